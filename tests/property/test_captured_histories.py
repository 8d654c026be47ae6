"""``blame`` against random histories of real git with a captured tool (``support.captured_histories``).

The tool mixes moves, stashes, conflicts, restored files and rewritten commits in one turn. Some such mixtures cannot be told apart,
so both bars are shares of lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from support.captured import new_space
from support.captured_histories import CapturedHistory
from support.space_driver import settings

if TYPE_CHECKING:
    from pathlib import Path

SHARDS, HISTORIES, SOAK_HISTORIES = 2, 20, 400
TURNS, FOUND, OTHERS = 4, 0.99, 0.998


@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_a_tool_takes_from_others_with_git_stays_theirs(shard: int, soak: bool, tmp_path: Path) -> None:
    count = (SOAK_HISTORIES if soak else HISTORIES) // SHARDS
    found, others, missed, stolen = 0, 0, list[object](), list[object]()
    for seed in range(shard * count, (shard + 1) * count):
        place = tmp_path.resolve() / str(seed)
        history = CapturedHistory(new_space(place / "repo"), place / "far", seed)
        history.play(TURNS)
        with clia.open(place / "repo", settings=settings()) as space:
            verdict = history.verdict(space)
        found, others = found + verdict.found, others + verdict.others
        missed += [(seed, *line) for line in verdict.missed]
        stolen += [(seed, *line) for line in verdict.stolen]
    assert found >= FOUND * (found + len(missed)), missed[:10]
    assert others >= OTHERS * (others + len(stolen)), stolen[:10]
    assert found > 2 * count, "the histories must have lines of the tool to find"
