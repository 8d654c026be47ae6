from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.values.typed_objects import PROMPT, SESSION_FLOW
from support.behaviour_walks import check_flow, started
from support.federation import Pair
from support.session_spaces import with_agents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    """A space with the flow ``review`` in two versions: one current, one on trial."""
    with started(repo) as opened:
        yield opened


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A peer with a prompt and four flows, each with a proposal; the hearer may run its behaviours."""
    spaces = Pair(tmp_path_factory.mktemp("peers").resolve())
    for number, name in enumerate(("hello", "forked", "twice", "past")):
        spaces.owner.behaviours.add(name, check_flow(10 + number), SESSION_FLOW)
        spaces.owner.behaviours.propose(name, check_flow(20 + number))
    spaces.owner.behaviours.add("review", "Look twice.", PROMPT)
    spaces.owner.peers.announce("bee")
    spaces.hearer.peers.grant("ay", "behaviour", "behaviour", execute=True)
    assert not spaces.sync().refused
    with_agents(spaces.hearer, "one", "two")
    spaces.hearer.behaviours.add("review", check_flow(1), SESSION_FLOW)
    yield spaces
    spaces.close()
