"""What the tools' hooks and transcripts say, in one form: every documented event, and everything that should never come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clia.capture.events import (
    CALL,
    FAILURE,
    NOTE,
    PROMPT,
    RESULT,
    SAID,
    SUB_START,
    SUB_STOP,
    THINKING,
    HookReport,
    ToolEvent,
    digest,
)
from clia.capture.tools import TOOLS, tool_of
from clia.capture.transcripts import TranscriptCursor, hook_key, read_events
from clia.errors import InvalidInput
from clia.values.canonical import canonical_bytes
from support import hook_payloads

# What the events that are known become; any other is a note.
_CLAUDE = {
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "PreToolUse": "tool-call",
    "PostToolUse": "tool-result",
    "PostToolUseFailure": "tool-failure",
    "SubagentStart": "sub-start",
    "SubagentStop": "sub-stop",
    "Stop": "turn-end",
    "StopFailure": "note turn-end",
    "SessionEnd": "end",
}
_GEMINI = {
    "SessionStart": "start",
    "BeforeAgent": "prompt",
    "BeforeTool": "tool-call",
    "AfterTool": "tool-result",
    "AfterAgent": "said turn-end",
    "SessionEnd": "end",
}
BECOMES = {"claude-code": _CLAUDE, "codex": _CLAUDE, "gemini": _GEMINI}
FIXTURES = [(tool, name) for tool in hook_payloads.TOOLS for name in hook_payloads.payloads(tool)]
HERE = "/home/tess/project"


def told(tool: str, name: str, **more: Any) -> HookReport:
    return tool_of(tool).from_hook(hook_payloads.payloads(tool)[name] | more)


def the_event(tool: str, name: str, **more: Any) -> ToolEvent:
    (event,) = told(tool, name, **more).events
    return event


def transcript(tool: str, name: str = "transcript") -> tuple[ToolEvent, ...]:
    reading = read_events(hook_payloads.transcript(tool, name).encode(), TranscriptCursor(), tool_of(tool).from_line)
    assert reading.unreadable == 0
    return reading.events


def check_keepable(events: tuple[ToolEvent, ...]) -> None:
    """Whatever came, a record can hold it."""
    for event in events:
        canonical_bytes([event.text, dict(event.data), event.at, event.sub])
        assert all("\0" not in path for path in event.paths)
        assert event.key is None or event.key.isascii()


@pytest.mark.parametrize(("tool", "name"), FIXTURES)
def test_every_documented_event_becomes_what_it_says(tool: str, name: str) -> None:
    payload = hook_payloads.payloads(tool)[name]
    found = told(tool, name)
    wanted = "tool-failure" if name == "AfterTool-failed" else BECOMES[tool].get(payload["hook_event_name"], "note")
    assert [each.what for each in found.events] == wanted.split()
    assert (found.session, found.cwd) == (payload["session_id"], payload["cwd"])
    assert {each.sub for each in found.events} == {payload.get("agent_id", "")}
    assert found.sub_kind == (payload.get("agent_type", "") if "agent_id" in payload else "")
    check_keepable(found.events)
    if wanted == "note" and payload["hook_event_name"] not in ("PreCompact", "PostCompact"):
        rest = found.events[0].data["payload"]
        assert {*rest, "session_id", "transcript_path", "cwd", "hook_event_name"} == set(payload)


def test_what_is_said_of_each_step() -> None:
    """The texts, the ids and the files, where the tools differ."""
    called = the_event("claude-code", "PreToolUse-Edit")
    assert (called.text, called.paths) == (f"Edit: {HERE}/greet.py", (f"{HERE}/greet.py",))
    assert the_event("claude-code", "PreToolUse-Read").paths == ()
    assert the_event("claude-code", "PostToolUse-Bash").text == 'print("good morning")'
    assert the_event("claude-code", "PostToolUse-Write").text == 'print("hello")\n'
    failed = the_event("claude-code", "PostToolUseFailure")
    assert (failed.text, failed.data["tool"]) == ("Exit code 1", "Bash")
    assert the_event("codex", "PreToolUse-apply_patch").paths == ("greet.py",)
    assert the_event("gemini", "BeforeTool-write_file").paths == (f"{HERE}/greet.py",)
    assert the_event("gemini", "AfterTool-failed").text == f"File does not exist: {HERE}/missing.py"
    assert the_event("claude-code", "SessionStart-fork").data["source"] == "fork"
    assert told("gemini", "AfterAgent").events[0].text == "Done: greet.py greets, and was checked."


def test_all_files_of_a_large_patch_are_known() -> None:
    patch = (
        "*** Begin Patch\n*** Add File: a.txt\n" + "+x\n" * 9000 + "*** Update File: b/c d.txt\n*** Move to: e.txt\n*** End Patch"
    )
    assert the_event("codex", "PreToolUse-apply_patch", tool_input={"command": patch}).paths == ("a.txt", "b/c d.txt", "e.txt")
    line = {"type": "response_item", "payload": {"type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": "c"}}
    assert tool_of("codex").from_line(line)[0].paths == ("a.txt", "b/c d.txt", "e.txt")


def test_whose_transcript_it_is_that_a_hook_names() -> None:
    """Claude Code names the session's in a sub-agent's events, Codex the sub-agent's own, but at its end both."""
    session, sub = told("claude-code", "PreToolUse-in-subagent"), told("claude-code", "SubagentStop")
    assert session.transcript == sub.transcript == told("claude-code", "Stop").transcript
    assert session.sub_transcript is None
    assert str(sub.sub_transcript).endswith(f"/subagents/agent-{sub.events[0].sub}.jsonl")
    own = told("claude-code", "PreToolUse-in-subagent", transcript_path=sub.sub_transcript)
    assert (own.transcript, own.sub_transcript) == (None, sub.sub_transcript)
    thread, ended = told("codex", "PreToolUse-in-subagent"), told("codex", "SubagentStop")
    assert thread.transcript is None
    assert thread.sub_transcript == ended.sub_transcript
    assert ended.transcript == told("codex", "Stop").transcript != ended.sub_transcript
    assert told("codex", "SessionStart-without-transcript").transcript is None
    assert told("gemini", "SessionStart").transcript is None


def test_what_begins_or_ends_a_sub_agent_that_has_no_id_is_a_note() -> None:
    """And what begins or ends a session is never one of a sub-agent."""
    for name in ("SubagentStart", "SubagentStop"):
        assert the_event("claude-code", name, agent_id=7).what == NOTE
    for name in ("SessionStart", "Stop", "SessionEnd"):
        found = the_event("claude-code", name, agent_id="a1")
        assert (found.what, found.sub) == (NOTE, "a1")


# Transcripts


@pytest.mark.parametrize("tool", ["claude-code", "codex"])
def test_hooks_and_transcripts_agree_on_every_key(tool: str) -> None:
    """What a hook of the documented session tells is in the transcript of the same session, under the same key."""
    lines, ofsub = transcript(tool), transcript(tool, "transcript-of-subagent")
    known = {"": {each.key for each in lines}, "sub": {each.key for each in ofsub}}
    counts = {each.counted: 1 for each in (*lines, *ofsub) if each.counted is not None}
    session = hook_payloads.payloads(tool)["SessionStart"]["session_id"]
    compared = 0
    for payload in hook_payloads.payloads(tool).values():
        for event in tool_of(tool).from_hook(payload).events if payload["session_id"] == session else ():
            if event.what in (PROMPT, CALL, RESULT, FAILURE):
                assert hook_key(event, counts, "r") in known["sub" if event.sub else ""], payload
                compared += 1
    assert compared >= 10


@pytest.mark.parametrize("tool", ["claude-code", "codex"])
def test_a_transcript_tells_each_thing_once_with_the_tools_name(tool: str) -> None:
    events = transcript(tool)
    assert len({each.key for each in events}) == len(events)
    assert {PROMPT, SAID, THINKING, CALL, RESULT} <= {each.what for each in events}
    assert all(each.data["tool"] for each in events if each.what in (CALL, RESULT, FAILURE))
    assert all(each.at is not None for each in events)
    assert [each.at for each in events] == sorted(str(each.at) for each in events)
    check_keepable(events)


def test_geminis_transcripts_are_not_read() -> None:
    """Its messages are written again and again; only hooks count."""
    assert transcript("gemini") == ()


def test_no_line_stops_the_reader() -> None:
    """Unknown, broken, too deep, with a carriage return in it: what comes after is read."""
    good = hook_payloads.transcript("claude-code").encode().splitlines(keepends=True)
    bad = (
        b"nonsense\rand more\n",
        b"{\n",
        b"[" * 100_000 + b"\n",
        b"\xff\n",
        b"7\n",
        b'{"type":"of-tomorrow","message":{}}\n',
        b"\n",
    )
    whole = b"".join(line for pair in zip(good, bad * 9, strict=False) for line in pair) + b"".join(good[len(bad) * 9 :])
    reading = read_events(whole, TranscriptCursor(), tool_of("claude-code").from_line)
    assert reading.events == transcript("claude-code")
    assert reading.cursor.offset == len(whole)
    assert reading.unreadable > 5


# What should never come


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_what_names_no_session_or_event_is_refused_and_says_so(tool: str) -> None:
    refused = []
    for name, payload in hook_payloads.broken(tool).items():
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            continue  # ingest says that it is no JSON
        with pytest.raises(InvalidInput) as caught:
            tool_of(tool).from_hook(value)
        assert caught.value.code == "invalid-event", name
        refused.append(name)
    assert len(refused) >= 6
    for given in ("", " ", "x" * 201, "a\nb", "\ud83d"):
        with pytest.raises(InvalidInput, match="session_id"):
            tool_of(tool).from_hook({"session_id": given, "hook_event_name": "Stop"})


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_what_is_odd_is_recorded_as_far_as_it_goes(tool: str) -> None:
    for name, payload in hook_payloads.odd(tool).items():
        found = tool_of(tool).from_hook(json.loads(payload))
        assert found.events, name
        check_keepable(found.events)
    unknown = tool_of(tool).from_hook(json.loads(hook_payloads.odd(tool)["unknown event"])).events[0]
    assert (unknown.what, unknown.text) == (NOTE, "EventOfTomorrow")
    assert unknown.data["payload"]["tool_name"]


def test_ids_paths_times_and_numbers_that_are_none_do_no_harm() -> None:
    """They would be refused where they are kept, and be in the way of everything after them."""
    odd = the_event(
        "claude-code", "PreToolUse-Write", tool_use_id="a b\n\ud83d", tool_input={"n": float("nan"), "i": 10**40, "\ud83d": "\0"}
    )
    check_keepable((odd,))
    assert odd.key == f"call:{digest('a b' + chr(10) + chr(0xFFFD))}"
    assert the_event("claude-code", "PostToolUse-Bash", duration_ms=float("inf")).data["ms"] == "inf"
    there = told("claude-code", "Stop", cwd="/a\0b", transcript_path="/x\0", agent_transcript_path=[])
    assert (there.cwd, there.transcript, there.sub_transcript) == (None, None, None)
    line = {"type": "user", "message": {"content": "hello"}, "timestamp": "zzz", "agentId": "x" * 999}
    (event,) = tool_of("claude-code").from_line(line)
    assert event.at is None
    assert len(event.sub) == 24


def test_long_things_are_cut_and_say_so() -> None:
    long = the_event("claude-code", "PostToolUse-Bash", tool_response={"stdout": "x" * 200_000, "stderr": ""})
    assert long.text.endswith("[cut: 134464 more characters]")
    many = the_event("claude-code", "PreToolUse-Bash", tool_input={"list": list(range(1000)), "text": "y" * 9000})
    assert many.data["input"]["list"][-1] == "[cut: 800 more]"
    assert many.data["input"]["text"].endswith("[cut: 4904 more characters]")


def test_a_tool_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="'cursor'") as caught:
        tool_of("cursor")
    assert caught.value.code == "unknown-tool"
    assert set(TOOLS) == set(hook_payloads.TOOLS)
    assert {SUB_START, SUB_STOP} <= {each for row in _CLAUDE.values() for each in row.split()}
