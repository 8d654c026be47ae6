"""The worktree of a program in a real space, and the record of its output."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from clia.errors import Conflict, NoSuchObject, StaleRef
from clia.programs.runner import ProgramRunner
from clia.programs.worktree import ENTRY, TAIL, ProgramWorktree, TracedOutput
from clia.redaction.secrets import START, RedactionState, redact_chunk
from support.fake_secrets import FAKES
from support.spaces import trace_texts
from support.terminal import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia

COMMIT = ("-c", "user.name=Tess", "-c", "user.email=tess@example.org", "commit", "--quiet", "--message", "by hand")


@pytest.fixture
def worktree(scout: clia.Space, tmp_path: Path) -> Iterator[ProgramWorktree]:
    """A worktree of ``scout`` with the file ``a``, and the place that is held for it."""
    scout.commit("scout", "finding", changes={"a": b"one\n", ".gitignore": b"*.log\n"})
    directory, place, programs = tmp_path / "work", str(tmp_path / "place.lock"), ProgramRunner(PATIENCE)
    scout.checkout("scout", directory)
    with programs.alone(place, lambda: False):
        yield ProgramWorktree(scout, "scout", str(directory), place, programs, os.environ)


def write(worktree: ProgramWorktree, name: str, text: str) -> None:
    with open(os.path.join(worktree.directory, name), "w", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("name", "text", "changed"), [("a", "one\n", False), ("x.log", "", False), ("a", "two\n", True), ("new", "", True)]
)
def test_changed_and_new_files_are_changes_and_ignored_files_are_not(
    worktree: ProgramWorktree, name: str, text: str, changed: bool
) -> None:
    write(worktree, name, text)
    assert worktree.has_changed(worktree.space.head("scout")) is changed


def test_a_commit_that_the_program_made_itself_is_a_change(worktree: ProgramWorktree) -> None:
    base = worktree.space.head("scout")
    assert worktree.git(*COMMIT, "--allow-empty") == 0
    assert worktree.has_changed(base)


def test_files_that_git_cannot_compare_are_an_error(worktree: ProgramWorktree) -> None:
    with pytest.raises(NoSuchObject, match="no-such-commit"):
        worktree.has_changed("no-such-commit")


def test_git_runs_no_hook_and_sees_only_the_variables_it_needs(worktree: ProgramWorktree, tmp_path: Path, repo: Path) -> None:
    hook = repo / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    output = bytearray()
    guarded = worktree._replace(environment={**os.environ, "GIT_DIR": "/nowhere", "SECRET": "x"})
    assert guarded.git(*COMMIT, "--allow-empty") == 0
    assert guarded.git("-c", "alias.env=!env", "env", output=output) == 0
    assert not (tmp_path / "ran").exists()
    assert b"SECRET" not in output


def test_git_that_is_cancelled_is_a_conflict(worktree: ProgramWorktree) -> None:
    with pytest.raises(Conflict) as caught:
        worktree._replace(cancelled=lambda: True).git("-c", "alias.wait=!tail -f /dev/null", "wait")
    assert caught.value.code == "cancelled"


def test_the_files_are_committed_with_the_trace(worktree: ProgramWorktree) -> None:
    space, base = worktree.space, worktree.space.head("scout")
    space.trace("scout", "console", "output\n")
    write(worktree, "new", "text\n")
    cid = worktree.commit(base, "test", "Run it", {"exit": 0})
    commit = space.show(cid)
    assert (commit.parents, commit.kind, commit.subject, commit.meta) == ((base,), "test", "Run it", {"exit": 0})
    assert space.files(cid)["new"] == b"text\n"
    assert trace_texts(space, cid) == ["output\n"]


def test_a_newer_head_with_the_same_files_becomes_the_parent_and_one_with_others_is_refused(worktree: ProgramWorktree) -> None:
    space, base = worktree.space, worktree.space.head("scout")
    same_files = space.commit("scout", "finding", changes={})
    write(worktree, "new", "text\n")
    cid = worktree.commit(base, "test", "Run it", {})
    assert space.show(cid).parents == (same_files,)
    head = space.commit("scout", "finding", changes={"a": b"theirs\n"})
    with pytest.raises(StaleRef):
        worktree.commit(base, "test", "Run it again", {})
    assert space.head("scout") == head


# Output


def unchanged(text: str, state: RedactionState) -> tuple[str, RedactionState]:
    return text, state


def redacted(text: str, state: RedactionState) -> tuple[str, RedactionState]:
    redaction, state = redact_chunk(text, state)
    return redaction.text, state


def test_lines_are_recorded_together_when_the_program_is_silent_or_an_entry_is_full() -> None:
    entries: list[str] = []
    output = TracedOutput(entries.append, unchanged)
    for data in (b"one\n", b"two\nthr", b"", b"ee\n"):
        output.add(data)
    assert entries == ["one\ntwo\n"]
    output.add(b"x" * ENTRY)
    assert entries == ["one\ntwo\n", "three\n"]
    output.end()
    assert "".join(entries) == f"one\ntwo\nthree\n{'x' * ENTRY}"


def test_a_character_split_between_chunks_is_kept_and_invalid_bytes_are_replaced() -> None:
    entries: list[str] = []
    output = TracedOutput(entries.append, unchanged)
    for data in (b"caf\xc3", b"\xa9\n", b"\xff\n", b"\xe2\x82"):
        output.add(data)
    output.end()
    assert "".join(entries) == "café\n\ufffd\n\ufffd"


def test_the_trace_is_truncated_with_a_mark_and_the_tail_is_complete() -> None:
    entries: list[str] = []
    output = TracedOutput(entries.append, unchanged, limit=10)
    for data in (b"1234567\n", b"", b"abcdef\n", b"", b"more\n", b""):
        output.add(data)
    output.end()
    assert entries == ["1234567\n", "ab\n[cut: the program printed more than is kept]\n"]
    assert output.tail() == "1234567\nabcdef\nmore\n"


def test_the_tail_is_redacted_before_it_is_cut() -> None:
    secret = FAKES[0].public + FAKES[0].secret
    output = TracedOutput(lambda _: None, redacted)
    padding = "y" * (TAIL - len(secret) // 2 - 1)
    output.add(f"{secret}\n{padding}\n".encode())
    output.end()
    assert output.tail().endswith(f"{padding}\n")
    assert not any(secret[at:] in output.tail() for at in range(len(secret) - 6))
    assert redact_chunk(secret, START)[0].count == 1, "the fake must be a secret"


def test_the_tail_is_the_last_64_kb_of_whole_characters() -> None:
    assert TracedOutput.tail_of("é" * TAIL) == "é" * (TAIL // 2)
    assert TracedOutput.tail_of("é" * TAIL + "x") == "é" * (TAIL // 2 - 1) + "x"
