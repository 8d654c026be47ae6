from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.session_flows import FLOWS
from support.session_spaces import SessionSpace, with_agents

if TYPE_CHECKING:
    from collections.abc import Iterator

    import clia


@pytest.fixture
def space(place: SessionSpace) -> Iterator[clia.Space]:
    """A space with the agent ``scout`` and the flows of ``support.session_flows``."""
    with place.open() as opened:
        yield with_agents(opened, "scout", **FLOWS)
