from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.spaces import BRIEFING

if TYPE_CHECKING:
    import clia


@pytest.fixture
def space(space: clia.Space) -> clia.Space:
    """A space with one agent, ``scout``."""
    space.spawn("scout", BRIEFING)
    return space
