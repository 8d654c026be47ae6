from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import clia
from support.federation import Pair, codes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two spaces; the hearer tracks the owner's agent ``scout``, which has two commits."""
    spaces = Pair(tmp_path)
    spaces.agent(spaces.owner, "scout", "one")
    spaces.owner.peers.announce("bee")
    spaces.grant()
    assert codes(spaces.sync().refused) == []
    yield spaces
    spaces.close()


@pytest.fixture
def pair_with_trace(tmp_path: Path) -> Iterator[Pair]:
    """Two spaces; the hearer tracks the owner's agent ``scout``, whose last commit has a trace."""
    spaces = Pair(tmp_path)
    spaces.agent(spaces.owner, "scout", "1")
    spaces.owner.trace("scout", "console", "a secret word")
    spaces.owner.commit_with_trace("scout", "finding", {"a.txt": b"theirs\n"})
    spaces.owner.peers.announce("bee")
    spaces.grant()
    assert not spaces.sync().refused
    yield spaces
    spaces.close()


@pytest.fixture
def stopped_clock(pair: Pair) -> Iterator[tuple[clia.Space, list[datetime]]]:
    """The hearer's space with a clock that stands still, and that clock."""
    clock = [datetime(2027, 1, 1, tzinfo=UTC)]
    settings = clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=lambda: clock[0])
    with clia.open(pair.place("hearer"), settings=settings) as space:
        yield space, clock
