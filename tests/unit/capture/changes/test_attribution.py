"""Commits of people during and after captured sessions get their notes at ingest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clia
from support import git
from support.captured import END, TURN, Script, ingest_afterwards, ingest_live, new_space, rehearse, run_ingest
from support.plain_git import rev
from support.space_driver import settings
from support.tool_turns import agent_of, start, stop

if TYPE_CHECKING:
    from pathlib import Path

MORE: Script = [{"prompt": "More."}, {"write": "more.txt", "text": "more\n"}, {"say": "Done."}, {"stop": True}]


def commit_all(root: Path) -> str:
    git("add", "-A", cwd=root)
    git("commit", "-qm", "mine", cwd=root)
    return rev(root, "HEAD")


def noted(root: Path) -> str:
    return git("notes", "--ref=clia/attribution", "list", cwd=root)


def test_a_commit_between_two_turns_is_attributed_at_the_end_of_the_second(tmp_path: Path) -> None:
    root = new_space(tmp_path / "shop")
    agent = ingest_afterwards(root, [*TURN, *END])
    (root / "main.txt").write_text("main\nmine\n")
    commit = commit_all(root)
    ingest_live(root, [*MORE, *END])
    assert commit in noted(root), "no blame was needed"
    with clia.open(root, settings=settings()) as space:
        assert [line.agent for line in space.blame("main", "main.txt")] == [agent, None]


def test_a_commit_that_was_compared_while_the_turn_ran_is_compared_again(tmp_path: Path) -> None:
    """The person commits and asks for blame before the turn is recorded."""
    root = new_space(tmp_path / "shop")
    blamed: list[list[str | None]] = []

    def step() -> None:
        if not (root / "main.txt").exists():
            run_ingest(root)
        elif not blamed:
            commit_all(root)
            with clia.open(root, settings=settings()) as space:
                blamed.append([line.agent for line in space.blame("main", "main.txt")])

    report = rehearse(root, [*TURN, *END], after=step)
    assert blamed == [[None]]
    run_ingest(root)
    with clia.open(root, settings=settings()) as space:
        assert [line.agent for line in space.blame("main", "main.txt")] == [f"claude-{report['session'][:8]}"]


def test_new_commits_on_other_branches_are_attributed_by_workers(tmp_path: Path) -> None:
    root = new_space(tmp_path / "shop")
    ingest_afterwards(root, [*TURN, *END])
    git("switch", "-qc", "side", cwd=root)
    commit = commit_all(root)
    git("switch", "-q", "main", cwd=root)
    with clia.open(root, settings=settings()) as space:
        assert space.history.attribute() == 1
        assert space.history.attribute() == 0
    assert commit in noted(root)


def test_a_tool_that_changes_modes_and_makes_links_gets_no_lines_of_a_person(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "README.md").chmod(0o755)
    (root / "link").symlink_to("README.md")
    stop(root)
    agent = agent_of(space)
    listing = git("ls-tree", "-r", f"agents/{agent}", cwd=root).splitlines()
    assert {(line.split()[0], line.split("\t")[1]) for line in listing} == {("100755", "README.md"), ("120000", "link")}
    assert [line.agent for line in space.blame(agent, "README.md")] == [None]
    git("add", "-A", cwd=root)
    git("commit", "-qm", "Both", cwd=root)
    assert [line.agent for line in space.blame("main", "README.md")] == [None]
    assert space.history.authorship("main").by_agents == 0
