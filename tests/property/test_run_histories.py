"""``blame`` against random histories of real git with a program in an agent's worktree (``support.run_histories``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clia
from support.captured import new_space
from support.run_histories import AGENT, RunHistory
from support.space_driver import settings

if TYPE_CHECKING:
    from pathlib import Path

HISTORIES, SOAK_HISTORIES = 8, 300
TURNS, FOUND, OTHERS = 4, 0.99, 0.995


def test_what_a_program_commits_with_git_is_its_agents_once_and_the_rest_is_not(soak: bool, tmp_path: Path) -> None:
    found, others, missed, stolen = 0, 0, list[object](), list[object]()
    for seed in range(SOAK_HISTORIES if soak else HISTORIES):
        place = tmp_path.resolve() / str(seed)
        history = RunHistory(new_space(place / "repo"), place / "far", place / "work" / "desk", seed)
        history.play(TURNS)
        with clia.open(place / "repo", settings=settings()) as space:
            verdict = history.verdict(space)
            originals = [commit.own for commit in space.log(AGENT) if commit.own is not None]
            assert len(originals) == len(set(originals)), seed
            assert space.verify().findings == (), seed
        found, others = found + verdict.found, others + verdict.others
        missed += [(seed, *line) for line in verdict.missed]
        stolen += [(seed, *line) for line in verdict.stolen]
    assert found >= FOUND * (found + len(missed)), missed[:10]
    assert others >= OTHERS * (others + len(stolen)), stolen[:10]
    assert found > SOAK_HISTORIES // 20, "the histories must have lines of the program to find"
