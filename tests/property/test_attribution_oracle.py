"""``blame`` against random histories whose lines all have a known author (``support.attributed_histories``).

The peer is the fuzzer of git-ai. Its program is neither on PyPI nor on npm, so the two are not compared side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from support import git
from support.attributed_histories import RandomHistory
from support.spaces import settings

if TYPE_CHECKING:
    from pathlib import Path

SHARDS, HISTORIES, SOAK_HISTORIES = 10, 500, 10_000
STEPS, FOUND = 10, 0.99


@pytest.mark.parametrize("shard", range(SHARDS))
def test_lines_of_agents_are_found_and_none_of_a_person_is_taken(shard: int, soak: bool, tmp_path: Path) -> None:
    count = (SOAK_HISTORIES if soak else HISTORIES) // SHARDS
    found, missed, stolen = 0, list[object](), list[object]()
    git("init", "-q", cwd=tmp_path)
    with clia.init(tmp_path, settings=settings()) as space:
        for seed in range(shard * count, (shard + 1) * count):
            history = RandomHistory(space, seed)
            history.play(STEPS)
            verdict = history.verdict()
            found += verdict.found
            missed += [(seed, *line) for line in verdict.missed]
            stolen += [(seed, *line) for line in verdict.stolen]
    assert not stolen, stolen[:10]
    assert found >= FOUND * (found + len(missed)), missed[:10]
    assert found > 20 * count, "the histories must have lines of agents to find"
