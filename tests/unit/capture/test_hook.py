"""The hook program: reading its input and the event's name."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

import pytest

from clia.capture import hook as main
from support import git

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (b'{"hook_event_name":"Stop"}', b"Stop"),
        (b'{"cwd": "/", "hook_event_name" :\n\t"SubagentStop", "x": 1}', b"SubagentStop"),
        (b'{"prompt": "say \\"hook_event_name\\": \\"Stop\\"", "hook_event_name": "Other"}', b"Other"),
        (b'{"hook_event_name": "Sto', b"Sto"),
        (b'{"hook_event_name": 7}', b"7}"),
        (b'{"hook_event_name"', b""),
        (b"", b""),
    ],
)
def test_the_event_name_is_found_in_the_payload(payload: bytes, name: bytes) -> None:
    assert main.event_name(payload) == name


STARTS = ["SessionStart", "UserPromptSubmit", "BeforeAgent", "SubagentStart", "TaskStart", "TaskResume"]


@pytest.mark.parametrize("name", [*STARTS, "SubagentStop", "Stop", "SessionEnd"])
def test_a_tool_waits_for_the_ingest_of_a_start_or_prompt_or_end(name: str) -> None:
    event = b'{"hook_event_name": "%s", "source": "resume"}' % name.encode()
    assert main.starts_ingest(event, in_run=False)
    assert 0 < main.wait_limit(event, in_run=False) < 10


@pytest.mark.parametrize("name", ["PreToolUse", "PostToolUse", "Notification", "SessionStart"])
def test_a_tool_does_not_wait_for_other_events_or_after_it_was_compacted(name: str) -> None:
    event = b'{"hook_event_name": "%s", "source":"compact"}' % name.encode()
    assert main.wait_limit(event, in_run=False) == 0


def test_in_a_run_the_program_waits_for_every_ingest() -> None:
    assert 0 < main.wait_limit(b'{"hook_event_name": "Stop"}', in_run=True) < 10


@pytest.mark.parametrize(("value", "limit"), [("8", 8.0), ("0", 0.0), ("on", 3.0)])
def test_the_environment_sets_the_limit_of_the_waiting(monkeypatch: pytest.MonkeyPatch, value: str, limit: float) -> None:
    monkeypatch.setenv("CLIA_HOOK_INGEST", value)
    assert main.wait_limit(b'{"hook_event_name": "SessionStart"}', in_run=False) == limit


def test_a_non_blocking_pipe_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool may pass such a pipe and write to it later; in this test, while we wait."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    real_select = select.select

    def write_late(read: list[int], write: list[int], exceptional: list[int]) -> tuple[list[int], list[int], list[int]]:
        os.write(write_end, b"late")
        os.close(write_end)
        return real_select(read, write, exceptional)

    monkeypatch.setattr(select, "select", write_late)
    assert main.read_input(read_end) == b"late"
    assert main.read_input(read_end) == b""
    os.close(read_end)


def test_the_hook_reads_head_without_git(tmp_path: Path) -> None:
    repo, linked = tmp_path / "repo", tmp_path / "linked"
    git("init", "-q", "-b", "main", str(repo), cwd=tmp_path)
    assert head_of(repo) == b""
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=repo)
    one = git("rev-parse", "HEAD", cwd=repo).strip().encode()
    assert head_of(repo) == one
    git("pack-refs", "--all", cwd=repo)
    assert head_of(repo) == one
    git("worktree", "add", "-q", "-b", "main-2", str(linked), cwd=repo)
    git("commit", "-q", "--allow-empty", "-m", "two", cwd=linked)
    two = git("rev-parse", "HEAD", cwd=linked).strip().encode()
    assert (head_of(repo), head_of(linked)) == (one, two)
    git("checkout", "-q", "--detach", "main-2", cwd=repo)
    assert head_of(repo) == two


def head_of(directory: Path) -> bytes:
    dirs = main.git_dirs(os.fsencode(directory))
    assert dirs is not None
    return main.head_commit(*dirs)


def state_at(place: Path) -> bytes:
    dirs = main.git_dirs(os.fsencode(place))
    assert dirs is not None
    return main.reflog_state(*dirs)


def test_the_reflogs_of_all_worktrees_are_reported_with_the_directorys_own_first(tmp_path: Path) -> None:
    root, linked = tmp_path.resolve() / "repo", tmp_path.resolve() / "linked"
    git("init", "-q", str(root), cwd=tmp_path)
    assert state_at(root) == b"logs/HEAD:0"
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=root)
    git("worktree", "add", "-q", str(linked), cwd=root)
    logs = root / ".git" / "logs" / "HEAD", root / ".git" / "worktrees" / "linked" / "logs" / "HEAD"
    main_part, linked_part = (
        b"%s:%d" % (name, log.stat().st_size) for name, log in zip((b"logs/HEAD", b"worktrees/linked/logs/HEAD"), logs, strict=True)
    )
    assert state_at(root) == main_part + b" " + linked_part
    assert state_at(linked) == linked_part + b" " + main_part


def test_the_newest_stashes_are_reported(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    git("init", "-q", cwd=root)
    ids = [f"{number:040x}" for number in range(600)]
    log = root / ".git" / "logs" / "refs" / "stash"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"{cid} {cid} Tess <tess@example.org> 1790000000 +0000\tWIP on main: {'x' * 60}\n" for cid in ids))
    stashes = state_at(root).decode().partition("stashes:")[2].split(",")
    assert stashes == ids[: -len(stashes) - 1 : -1]
    assert len(stashes) >= 20
