from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.capture import spool_reader as spool
from clia.capture.recording import Recorder
from clia.errors import BackendError, InvalidInput
from clia.space.traces import Traces
from clia.store.private_files import FileLocks
from support.captured import new_space, put, recorded, rehearse, take_in, waiting
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_space(tmp_path.resolve() / "repo")


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as made:
        yield made


def told_by(space: clia.Space, kind: str) -> list[str]:
    return [entry["text"] for _, entry in recorded(space) if entry["kind"] == kind]


def hook(root: Path, name: str, session: str = "abcdef12-9", **more: Any) -> None:
    body = {"session_id": session, "hook_event_name": name, "cwd": str(root), **more}
    put(root, json.dumps(body).encode())


def test_a_path_with_half_a_character_is_in_nobodys_way(root: Path, space: clia.Space) -> None:
    hook(root, "PreToolUse", tool_name="Write", tool_use_id="t1", tool_input={"file_path": "/x/\ud800", "content": "a"})
    hook(root, "UserPromptSubmit", session="99999999-1", prompt="innocent")
    made = take_in(root)
    assert (made.trouble, made.done.left, made.done.rejected) == ((), 0, 0)
    assert told_by(space, "prompt") == ["innocent"]


def test_what_is_nested_deeper_than_can_be_written_is_told_all_the_same(root: Path, space: clia.Space) -> None:
    deep = '{"content":[' * 200 + '"x"' + "]}" * 200
    body = {
        "session_id": "abcdef12-9",
        "hook_event_name": "PostToolUse",
        "cwd": str(root),
        "tool_use_id": "t1",
        "tool_response": "DEEP",
    }
    put(root, json.dumps(body).replace('"DEEP"', deep).encode())
    made = take_in(root)
    assert (made.trouble, made.done.rejected, made.done.entries) == ((), 0, 1)


def test_what_nobody_foresaw_in_one_session_leaves_the_others_alone(
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
    made = take_in(root)
    assert (made.done.rejected, told_by(space, "prompt")) == (1, ["two"])
    (why,) = (root / ".git" / "clia" / "spool" / "rejected").glob("*.why.json")
    assert "ZeroDivisionError" in why.read_text()


def test_where_git_refuses_the_files_what_was_said_is_recorded(root: Path, space: clia.Space) -> None:
    """A repository inside that has no commit yet, say."""
    (root / "inner").mkdir()
    subprocess.run(["git", "init", "--quiet", str(root / "inner")], check=True)
    hook(root, "UserPromptSubmit", prompt="Go.", prompt_id="p")
    hook(root, "Stop", last_assistant_message="Done.")
    made = take_in(root)
    assert (made.trouble, made.done.left) == ((), 0)
    (agent,) = space.agents()
    trace = space.trace_for(space.head(agent))
    assert trace is not None
    assert {"Go.", "Done."} <= {each["text"] for each in trace.entries}


def test_an_entry_that_cannot_be_kept_is_said_so_and_the_turn_is_recorded(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(self: Any, name: str, entries: Any) -> int:
        given = list(entries)
        if any(each["text"] == "odd" for each in given):
            raise InvalidInput("no")
        return add(self, name, given)

    add = Traces.add_once
    monkeypatch.setattr(Traces, "add_once", picky)
    hook(root, "UserPromptSubmit", prompt="odd", prompt_id="p")
    hook(root, "Stop", last_assistant_message="Done.")
    made = take_in(root)
    assert (made.done.rejected, made.done.left, made.done.commits) == (0, 0, 1)
    assert "a prompt could not be recorded" in told_by(space, "note")
    assert told_by(space, "said") == ["Done."]


def test_where_an_event_cannot_be_recorded_those_after_it_wait_in_their_order_and_are_tried_once(
    root: Path, space: clia.Space
) -> None:
    """Else a later turn would be committed before it, and what waits would be gone through again and again."""
    steps: list[str] = []

    def full(step: str) -> None:
        steps.append(step)
        if steps.count("event-recorded") == 1 and step == "event-recorded":
            raise BackendError("the disk is full", code="disk-full")

    hook(root, "SessionStart", source="startup")
    for text in ("one", "two"):
        hook(root, "UserPromptSubmit", prompt=text, prompt_id=text)
        hook(root, "Stop", last_assistant_message=f"{text} is done")
    tried: list[tuple[int, int]] = []
    made = take_in(root, full, progress=lambda number, total: tried.append((number, total)))
    assert (made.done.left, len(made.trouble), told_by(space, "said")) == (5, 1, [])
    assert tried == [(number, 5) for number in range(6)]
    assert not take_in(root).trouble
    (agent,) = space.agents()
    assert [each.message.splitlines()[0] for each in space.session_log(agent)][:2] == ["two", "one"]


def test_an_event_that_comes_while_ingest_lets_go_of_the_spool_is_recorded(
    root: Path, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hook saw that somebody is at it, and started nobody."""
    late = iter(["late"])

    def forget(place: str) -> None:
        """The last that a pass does."""
        for prompt in late:
            hook(root, "UserPromptSubmit", prompt=prompt, prompt_id=prompt)
        forget_error(place)

    forget_error = spool.forget_error
    monkeypatch.setattr(spool, "forget_error", forget)
    hook(root, "UserPromptSubmit", prompt="early", prompt_id="early")
    assert take_in(root).done.events == 2
    assert (told_by(space, "prompt"), waiting(root)) == (["early", "late"], [])


def test_one_who_holds_the_spool_for_an_instant_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook does, to see whether anybody is at it; an ingest that gave up then would leave its event to nobody."""
    hook(root, "UserPromptSubmit", prompt="Go.")
    with ExitStack() as held:
        held.enter_context(FileLocks(spool.spools(str(root / ".git"), {})[0]).hold(spool.LOCK))
        monkeypatch.setattr("clia.capture.ingest.time", SimpleNamespace(sleep=lambda seconds: held.close()))
        made = take_in(root, wait=False)
    assert (made.busy, made.done.events) == (False, 1)


def late(root: Path, script: list[dict[str, Any]]) -> str:
    """A session that is taken in when it is over; its agent."""
    told = rehearse(root, script)
    take_in(root)
    return f"claude-{told['session'][:8]}"
