"""Ingest while clocks jump, repositories move, and transcripts are cut or replaced: each entry once, and every file."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import clia
from support import git
from support.captured import agent_of, hook, new_space, recorded, run_ingest, texts_of_kind
from support.space_driver import settings

if TYPE_CHECKING:
    from pathlib import Path

SESSION = "abcdef12-9"
HOUR = 3600 * 10**9


def at_another_time(root: Path, record: str, nanoseconds: int) -> None:
    """Move an event of the spool in time, as if the clock had been wrong when its hook ran."""
    folder, (digits, _, rest) = root / ".git/clia/spool/new", record.partition("-")
    os.rename(folder / record, folder / f"{int(digits) + nanoseconds:020d}-{rest}")


@pytest.mark.parametrize("skew", [2 * HOUR, -2 * HOUR], ids=["ahead", "behind"])
def test_events_of_a_wrong_clock_are_recorded_once(root: Path, space: clia.Space, skew: int) -> None:
    """A session's events are then out of order; the next end of a turn commits what was left."""
    hook(root, "SessionStart", source="startup")
    at_another_time(root, hook(root, "UserPromptSubmit", prompt="One.", prompt_id="p1"), skew)
    (root / "one.txt").write_text("one\n")
    hook(root, "Stop", last_assistant_message="Done.")
    run_ingest(root)
    hook(root, "UserPromptSubmit", prompt="Two.", prompt_id="p2")
    (root / "two.txt").write_text("two\n")
    hook(root, "Stop", last_assistant_message="Done, too.")
    report = run_ingest(root)
    assert (report.trouble, report.done.left) == ((), 0)
    assert sorted(texts_of_kind(space, "prompt")) == ["One.", "Two."]
    assert sorted(texts_of_kind(space, "said")) == ["Done, too.", "Done."]
    assert {"one.txt", "two.txt"} <= set(space.files(agent_of(space, "claude-code", SESSION)))


def test_lines_from_the_future_are_read_once(root: Path, space: clia.Space, tmp_path: Path) -> None:
    """The clock of the transcript was ahead of the hook's."""
    file = tmp_path / f"{SESSION}.jsonl"
    file.write_text("".join(said(text, f"2099-01-01T00:00:0{number}.000Z", root) for number, text in enumerate("ab")))
    for _ in range(2):
        hook(root, "Stop", transcript_path=str(file), last_assistant_message="b")
        run_ingest(root)
    assert sorted(texts_of_kind(space, "said")) == ["a", "b"]


def said(text: str, at: str, root: Path) -> str:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    line: dict[str, Any] = {"type": "assistant", "timestamp": at, "sessionId": SESSION, "cwd": str(root), "message": message}
    return json.dumps(line) + "\n"


def lines(root: Path, *texts: str) -> str:
    return "".join(said(text, f"2026-05-01T09:00:{ord(text[0]) % 60:02d}.000Z", root) for text in texts)


@pytest.mark.parametrize("change", ["cut in a line", "cut to its start", "replaced by new lines", "removed and written again"])
def test_a_transcript_that_is_cut_or_replaced_is_read_on(root: Path, space: clia.Space, tmp_path: Path, change: str) -> None:
    file = tmp_path / f"{SESSION}.jsonl"
    whole = lines(root, "a", "b", "c")
    half = whole[: len(whole) - 40]
    file.write_text(half if change == "cut in a line" else whole)
    hook(root, "Stop", transcript_path=str(file))
    run_ingest(root)
    after = {
        "cut in a line": whole + lines(root, "d"),
        "cut to its start": lines(root, "a", "d"),
        "replaced by new lines": lines(root, "d"),
        "removed and written again": whole + lines(root, "d"),
    }[change]
    if change == "removed and written again":
        file.unlink()
        hook(root, "Stop", transcript_path=str(file))
        run_ingest(root)
    file.write_text(after)
    hook(root, "Stop", transcript_path=str(file))
    run_ingest(root)
    assert sorted(texts_of_kind(space, "said")) == ["a", "b", "c", "d"]


def test_a_repository_that_is_moved_during_a_session_keeps_its_session(tmp_path: Path) -> None:
    """Its files are committed from where they are now, and its transcript names the old directory."""
    old, new = new_space(tmp_path.resolve() / "old"), tmp_path.resolve() / "new"
    file = tmp_path / f"{SESSION}.jsonl"
    file.write_text(lines(old, "a"))
    hook(old, "SessionStart", source="startup", transcript_path=str(file))
    (old / "one.txt").write_text("one\n")
    hook(old, "Stop", transcript_path=str(file))
    run_ingest(old)
    (old / "two.txt").write_text("two\n")
    hook(old, "PreToolUse", tool_name="Write", tool_use_id="t1", tool_input={"file_path": str(old / "two.txt")})
    old.rename(new)
    file.write_text(lines(old, "a") + lines(new, "b"))
    hook(new, "Stop", transcript_path=str(file))
    run_ingest(new)
    with clia.open(new, settings=settings()) as space:
        (agent,) = space.agents()
        assert space.files(agent) == {"README.md": b"people\n", "one.txt": b"one\n", "two.txt": b"two\n"}
        assert {line.agent for line in space.blame(agent, "two.txt")} == {agent}
        assert sorted(texts_of_kind(space, "said")) == ["a", "b"]
        assert not [entry for _, entry in recorded(space) if "not read" in entry["text"]]


def test_a_session_of_a_removed_worktree_does_not_commit_files_of_another(root: Path, space: clia.Space) -> None:
    linked = root.parent / "linked"
    git("worktree", "add", "--quiet", "--detach", str(linked), cwd=root)
    hook(linked, "SessionStart", source="startup")
    run_ingest(root)
    git("worktree", "remove", "--force", str(linked), cwd=root)
    (root / "theirs.txt").write_text("theirs\n")
    hook(root, "Stop", last_assistant_message="Done.")
    assert run_ingest(root).trouble == ()
    assert set(space.files(agent_of(space, "claude-code", SESSION))) == {"README.md"}
    assert texts_of_kind(space, "said") == ["Done."]


def test_a_session_in_a_submodule_is_recorded_in_the_project_that_the_tool_names(root: Path, tmp_path: Path) -> None:
    """Its index and files, and those of the submodule, stay as they are."""
    library = new_space(tmp_path / "library")
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "part", cwd=root)
    git("commit", "--quiet", "--message=part", cwd=root)
    (root / "part/inner.txt").write_text("inner\n")
    before = [git("--no-optional-locks", "status", "--porcelain", cwd=place) for place in (root, root / "part")]
    hook(root, "SessionStart", source="startup")
    (root / "outer.txt").write_text("outer\n")
    hook(root, "Stop")
    assert run_ingest(root).trouble == ()
    after = [git("--no-optional-locks", "status", "--porcelain", cwd=place) for place in (root, root / "part")]
    assert after == [before[0] + "?? outer.txt\n", before[1]]
    with clia.open(root, settings=settings()) as space:
        assert "outer.txt" in space.files(agent_of(space, "claude-code", SESSION))


def test_a_file_of_300_megabytes_is_committed(root: Path, soak: bool) -> None:
    """If the configuration allows it. In a soak; usually one of 3 MB."""
    (root / ".git/clia/config.toml").write_text('[capture]\nsize_mb = 1\nallow = ["*.bin"]\n')
    with (root / "large.bin").open("wb") as file:
        file.truncate((300 if soak else 3) * 1_000_000)
    hook(root, "SessionStart", source="startup")
    with (root / "large.bin").open("ab") as file:
        file.write(b"more")
    hook(root, "Stop")
    assert run_ingest(root).trouble == ()
    with clia.open(root, settings=settings()) as space:
        agent = agent_of(space, "claude-code", SESSION)
    size = subprocess.run(
        ["git", "cat-file", "-s", f"agents/{agent}:large.bin"], cwd=root, capture_output=True, text=True, check=True
    )
    assert int(size.stdout) == (300 if soak else 3) * 1_000_000 + 4
