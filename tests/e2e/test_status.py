"""``clia status``: what is going on in a space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia as library
from clia.cli.status import status_of
from clia.programs.runner import ProgramRunner
from support import clia, git
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def space(tmp_path: Path) -> Iterator[library.Space]:
    with library.init(tmp_path / "shop", settings=settings()) as opened:
        opened.spawn("scout", BRIEFING)
        yield opened


def test_a_quiet_space_is_reported_as_quiet(space: library.Space, tmp_path: Path) -> None:
    assert clia("status", cwd=tmp_path / "shop").out == "1 agent\nnothing is running, and nothing waits for you\n"


def test_work_that_finished_is_shown_until_the_next_look(space: library.Space, tmp_path: Path) -> None:
    cid = space.commit("scout", "finding", {"a": b""}, message="Looked")
    first = clia("status", "--json", cwd=tmp_path / "shop").json()
    assert (first["looked"], first["agents"]) == (None, 1)
    assert [(work["agent"], work["commit"], work["subject"], work["landed"]) for work in first["finished"]] == [
        ("scout", cid, "Looked", None)
    ]
    second = clia("status", "--json", cwd=tmp_path / "shop").json()
    assert second["looked"] is not None
    assert second["finished"] == [], "the work of a test's clock is older than the look"


def test_questions_come_with_the_command_that_answers_them(space: library.Space, tmp_path: Path) -> None:
    space.sessions.ask("scout", {"question": "Which box?"})
    current = status_of(space, ".", None)
    assert [(question.question, question.answer) for question in current.waiting] == [
        ("Which box?", "clia decide scout --request ask-1.1")
    ]
    out = clia("status", cwd=tmp_path / "shop").out
    assert "waits for you\n  scout  Which box?\n         clia decide scout --request ask-1.1\n" in out


def test_programs_and_flows_at_work_are_shown(space: library.Space) -> None:
    space.spawn("flows", BRIEFING)
    space.sessions.define("waits", 'def main(input):\n    return request("box", {})\n')
    space.sessions.start("flows", "waits")
    with ProgramRunner().alone(space.local.run_directories.lock("scout"), lambda: True) as locked:
        assert locked
        working = status_of(space, ".", None).working
    assert [(work.agent, work.kind) for work in working] == [("scout", "program"), ("flows", "flow")]
    assert "scout" not in [work.agent for work in status_of(space, ".", None).working]


def test_a_branch_that_clia_did_not_create_is_a_problem(space: library.Space, tmp_path: Path) -> None:
    git(
        "branch",
        "agents/mine",
        git("commit-tree", "-m", "mine", f"{space.head('scout')}^{{tree}}", cwd=tmp_path / "shop").strip(),
        cwd=tmp_path / "shop",
    )
    assert any("was not created by clia" in problem for problem in status_of(space, ".", None).problems)


def test_without_a_command_the_status_is_shown_in_a_space_and_the_commands_elsewhere(space: library.Space, tmp_path: Path) -> None:
    assert clia(cwd=tmp_path / "shop").out.startswith("1 agent\n")
    elsewhere = clia(cwd=tmp_path)
    assert (elsewhere.code, elsewhere.err) == (2, "")
    assert elsewhere.out.startswith("usage: clia COMMAND")
