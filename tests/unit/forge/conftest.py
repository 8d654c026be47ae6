from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.forge import OpenForge, open_forge
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def empty_forge(tmp_path: Path) -> Iterator[OpenForge]:
    """A forge with one empty space, ``repo``."""
    with open_forge(tmp_path) as opened:
        yield opened


@pytest.fixture
def forge(empty_forge: OpenForge) -> OpenForge:
    """A forge with the agents ``scout`` and ``smith``."""
    for name in ("scout", "smith"):
        empty_forge.space.spawn(name, BRIEFING)
    return empty_forge
