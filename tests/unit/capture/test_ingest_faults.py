"""Ingest with invalid input, failing stores and concurrent hooks."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from clia.capture import spool_reader as spool
from clia.capture.recording import Recorder
from clia.errors import BackendError, InvalidInput
from clia.space.traces import Traces
from clia.store.private_files import FileLocks
from support.captured import hook, put, run_ingest, texts_of_kind, waiting

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    import clia


def test_a_path_with_a_lone_surrogate_does_not_block_other_sessions(root: Path, space: clia.Space) -> None:
    hook(root, "PreToolUse", tool_name="Write", tool_use_id="t1", tool_input={"file_path": "/x/\ud800", "content": "a"})
    hook(root, "UserPromptSubmit", session="99999999-1", prompt="innocent")
    report = run_ingest(root)
    assert (report.trouble, report.done.left, report.done.rejected) == ((), 0, 0)
    assert texts_of_kind(space, "prompt") == ["innocent"]


def test_deeply_nested_results_are_recorded(root: Path, space: clia.Space) -> None:
    deep = '{"content":[' * 200 + '"x"' + "]}" * 200
    body = {
        "session_id": "abcdef12-9",
        "hook_event_name": "PostToolUse",
        "cwd": str(root),
        "tool_use_id": "t1",
        "tool_response": "DEEP",
    }
    put(root, json.dumps(body).replace('"DEEP"', deep).encode())
    report = run_ingest(root)
    assert (report.trouble, report.done.rejected, report.done.entries) == ((), 0, 1)


def test_an_unexpected_error_in_one_session_does_not_affect_others(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Recorder, hook: Any) -> None:
        if hook.report.session == "aaaaaaaa":
            raise ZeroDivisionError("oops")
        take(self, hook)

    take = Recorder.take
    monkeypatch.setattr(Recorder, "take", broken)
    hook(root, "UserPromptSubmit", session="aaaaaaaa", prompt="one")
    hook(root, "UserPromptSubmit", session="bbbbbbbb", prompt="two")
    report = run_ingest(root)
    assert (report.done.rejected, texts_of_kind(space, "prompt")) == (1, ["two"])
    (reason_file,) = (root / ".git" / "clia" / "spool" / "rejected").glob("*.why.json")
    assert "ZeroDivisionError" in reason_file.read_text()


def test_the_messages_are_recorded_even_if_git_refuses_the_files(root: Path, space: clia.Space) -> None:
    """For example, because of a nested repository without commits."""
    (root / "inner").mkdir()
    subprocess.run(["git", "init", "--quiet", str(root / "inner")], check=True)
    hook(root, "UserPromptSubmit", prompt="Go.", prompt_id="p")
    hook(root, "Stop", last_assistant_message="Done.")
    report = run_ingest(root)
    assert (report.trouble, report.done.left) == ((), 0)
    (agent,) = space.agents()
    trace = space.traces.of(space.head(agent))
    assert trace is not None
    assert {"Go.", "Done."} <= {entry["text"] for entry in trace.entries}


def test_an_entry_that_cannot_be_stored_is_noted_and_the_turn_is_recorded(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_odd(self: Any, name: str, entries: Any) -> int:
        batch = list(entries)
        if any(entry["text"] == "odd" for entry in batch):
            raise InvalidInput("no")
        return add(self, name, batch)

    add = Traces.add_once
    monkeypatch.setattr(Traces, "add_once", refuse_odd)
    hook(root, "UserPromptSubmit", prompt="odd", prompt_id="p")
    hook(root, "Stop", last_assistant_message="Done.")
    report = run_ingest(root)
    assert (report.done.rejected, report.done.left, report.done.commits) == (0, 0, 1)
    assert "a prompt could not be recorded" in texts_of_kind(space, "note")
    assert texts_of_kind(space, "said") == ["Done."]


def test_events_after_a_failed_one_wait_in_order_and_are_tried_once(root: Path, space: clia.Space) -> None:
    """Otherwise a later turn would be committed first, and waiting events would be processed repeatedly."""
    steps: list[str] = []

    def fail_once(step: str) -> None:
        steps.append(step)
        if steps.count("event-recorded") == 1 and step == "event-recorded":
            raise BackendError("the disk is full", code="disk-full")

    hook(root, "SessionStart", source="startup")
    for text in ("one", "two"):
        hook(root, "UserPromptSubmit", prompt=text, prompt_id=text)
        hook(root, "Stop", last_assistant_message=f"{text} is done")
    progress: list[tuple[int, int]] = []
    report = run_ingest(root, fail_once, progress=lambda number, total: progress.append((number, total)))
    assert (report.done.left, len(report.trouble), texts_of_kind(space, "said")) == (5, 1, [])
    assert progress == [(number, 5) for number in range(6)]
    assert not run_ingest(root).trouble
    (agent,) = space.agents()
    assert [commit.message.splitlines()[0] for commit in space.history.own(agent)][:2] == ["two", "one"]


def test_an_event_that_arrives_while_ingest_releases_the_spool_is_recorded(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hook saw a running ingest and did not start another."""
    late = iter(["late"])

    def forget(place: str) -> None:
        """Run at the end of a pass."""
        for prompt in late:
            hook(root, "UserPromptSubmit", prompt=prompt, prompt_id=prompt)
        forget_error(place)

    forget_error = spool.forget_error
    monkeypatch.setattr(spool, "forget_error", forget)
    hook(root, "UserPromptSubmit", prompt="early", prompt_id="early")
    assert run_ingest(root).done.events == 2
    assert (texts_of_kind(space, "prompt"), waiting(root)) == (["early", "late"], [])


def test_a_brief_lock_on_the_spool_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook locks it to check for a running ingest; if ingest gave up then, the event would not be processed."""
    hook(root, "UserPromptSubmit", prompt="Go.")
    with ExitStack() as locked:
        locked.enter_context(FileLocks(spool.spools(str(root / ".git"), {})[0]).hold(spool.LOCK))
        monkeypatch.setattr("clia.capture.ingest.time", SimpleNamespace(sleep=lambda seconds: locked.close()))
        report = run_ingest(root, wait=False)
    assert (report.busy, report.done.events) == (False, 1)
