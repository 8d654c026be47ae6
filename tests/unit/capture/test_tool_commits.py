"""Commits that a captured tool makes on a person's branch."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from clia.testing import Crash, crash_at
from support import git
from support.captured import put, run_ingest
from support.plain_git import rev

if TYPE_CHECKING:
    from pathlib import Path

    import clia

CALLS = count(1)


def send(root: Path, name: str, **fields: Any) -> None:
    """Put an event with the current HEAD into the spool."""
    body = {"session_id": "abcdef12-9", "hook_event_name": name, "cwd": str(root), **fields}
    put(root, json.dumps(body).encode(), commit=rev(root, "HEAD"))


def start(root: Path) -> None:
    send(root, "SessionStart", source="startup")
    send(root, "UserPromptSubmit", prompt="Do it.", prompt_id=f"p{next(CALLS)}")
    run_ingest(root)


def bash(root: Path, *commands: tuple[str, ...]) -> None:
    """A tool call that runs git commands."""
    call = {"tool_name": "Bash", "tool_use_id": f"t{next(CALLS)}"}
    send(root, "PreToolUse", **call)
    for words in commands:
        git(*words, cwd=root)
    send(root, "PostToolUse", **call, tool_response="")


def commit_all(message: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return ("add", "-A"), ("commit", "-qm", message)


def stop(root: Path) -> None:
    send(root, "Stop", last_assistant_message="Done.")
    run_ingest(root)


def adopted_turns(space: clia.Space) -> list[tuple[str, str | None]]:
    """Subject and original of the agent's turns, oldest first."""
    (agent,) = space.agents()
    return [(commit.subject, commit.own) for commit in reversed(space.log(agent, own=True)) if commit.kind == "turn"]


def test_a_commit_that_the_tool_makes_is_adopted_and_the_persons_branch_stays(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    (root / "b.txt").write_text("1\n")
    original = rev(root, "main")
    stop(root)
    assert adopted_turns(space) == [("Add a", original), ("Do it.", None)]
    (agent,) = space.agents()
    adopted, turn = reversed(space.log(agent, own=True)[:2])
    assert sorted(space.files(adopted.cid)) == ["README.md", "a.txt"]
    assert sorted(space.files(turn.cid)) == ["README.md", "a.txt", "b.txt"]
    assert rev(root, "HEAD") == original
    assert git("notes", "--ref=clia/own", "show", original, cwd=root) == f"{agent} {adopted.cid}\n"
    assert space.verify().findings == ()


def test_files_that_were_changed_before_the_session_are_not_part_of_an_adopted_commit(root: Path, space: clia.Space) -> None:
    (root / "mine.txt").write_text("a person's\n")
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, ("add", "a.txt"), ("commit", "-qm", "Add a"))
    stop(root)
    (agent,) = space.agents()
    adopted = next(commit for commit in space.log(agent, own=True) if commit.own)
    assert {file.path for file in space.changed(adopted.cid)} == {"a.txt"}
    assert "mine.txt" in space.files(adopted.cid)


def test_commits_of_a_person_during_the_session_are_not_adopted(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "tool.txt").write_text("1\n")
    bash(root)
    (root / "person.txt").write_text("1\n")
    git("add", "person.txt", cwd=root)
    git("commit", "-qm", "A person's", cwd=root)
    bash(root)
    stop(root)
    assert adopted_turns(space) == [("Do it.", None)]


def test_commits_that_the_tool_fetches_are_not_adopted(root: Path, space: clia.Space, tmp_path: Path) -> None:
    git("clone", "-q", str(root), str(tmp_path / "other"), cwd=tmp_path)
    (tmp_path / "other" / "far.txt").write_text("1\n")
    for words in commit_all("From afar"):
        git(*words, cwd=tmp_path / "other")
    start(root)
    bash(root, ("pull", "-q", "--ff-only", str(tmp_path / "other"), "main"))
    stop(root)
    assert all(original is None for _, original in adopted_turns(space))


def test_an_amended_commit_is_adopted_again_with_its_new_content(root: Path, space: clia.Space) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    (root / "a.txt").write_text("2\n")
    bash(root, ("commit", "-qa", "--amend", "-m", "Add a, better"))
    stop(root)
    assert [subject for subject, _ in adopted_turns(space)] == ["Add a", "Add a, better", "Do it."]
    (agent,) = space.agents()
    assert space.files(agent)["a.txt"] == b"2\n"


@pytest.mark.parametrize("step", ["event-recorded", "turn-recorded", "entries-recorded", "finished"])
def test_an_interrupted_ingest_adopts_each_commit_once(root: Path, space: clia.Space, step: str) -> None:
    start(root)
    (root / "a.txt").write_text("1\n")
    bash(root, *commit_all("Add a"))
    send(root, "Stop", last_assistant_message="Done.")
    with pytest.raises(Crash):
        run_ingest(root, reached=crash_at(step))
    run_ingest(root)
    run_ingest(root)
    assert [subject for subject, _ in adopted_turns(space)] == ["Add a", "Do it."]
