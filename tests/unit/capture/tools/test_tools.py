"""Hook events and transcripts of all tools in one form: every documented event, and invalid input."""

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
from clia.capture.tools import TOOLS, claude_family, tool_of
from clia.capture.transcripts import TranscriptCursor, hook_key, read_events
from clia.errors import InvalidInput
from clia.values.canonical import canonical_bytes
from support import hook_payloads

# The kinds of known events; any other event is a note.
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
KINDS = {"claude-code": _CLAUDE, "codex": _CLAUDE, "gemini": _GEMINI}
FIXTURES = [(tool, name) for tool in hook_payloads.TOOLS for name in hook_payloads.payloads(tool)]
PROJECT = "/home/tess/project"


def report(tool: str, name: str, **more: Any) -> HookReport:
    return tool_of(tool).from_hook(hook_payloads.payloads(tool)[name] | more)


def only_event(tool: str, name: str, **more: Any) -> ToolEvent:
    (event,) = report(tool, name, **more).events
    return event


def transcript(tool: str, name: str = "transcript") -> tuple[ToolEvent, ...]:
    reading = read_events(hook_payloads.transcript(tool, name).encode(), TranscriptCursor(), tool_of(tool).from_line)
    assert reading.unreadable == 0
    return reading.events


def check_recordable(events: tuple[ToolEvent, ...]) -> None:
    """Check that events can be recorded."""
    for event in events:
        canonical_bytes([event.text, dict(event.data), event.at, event.sub])
        assert all("\0" not in path for path in event.paths)
        assert event.key is None or event.key.isascii()


@pytest.mark.parametrize(("tool", "name"), FIXTURES)
def test_every_documented_event_has_its_kind(tool: str, name: str) -> None:
    payload = hook_payloads.payloads(tool)[name]
    hook_report = report(tool, name)
    # Gemini also runs PreCompress before every request, so only one that a person asked for is noted.
    if name == "PreCompress":
        assert not report(tool, name, trigger="auto").events
        hook_report = report(tool, name, trigger="manual")
    kinds = "tool-failure" if name == "AfterTool-failed" else KINDS[tool].get(payload["hook_event_name"], "note")
    assert [event.what for event in hook_report.events] == kinds.split()
    assert (hook_report.session, hook_report.cwd) == (payload["session_id"], payload["cwd"])
    assert {event.sub for event in hook_report.events} == {payload.get("agent_id", "")}
    assert hook_report.sub_kind == (payload.get("agent_type", "") if "agent_id" in payload else "")
    check_recordable(hook_report.events)
    if kinds == "note" and payload["hook_event_name"] not in ("PreCompact", "PostCompact", "PreCompress"):
        rest = hook_report.events[0].data["payload"]
        assert {*rest, "session_id", "transcript_path", "cwd", "hook_event_name"} == set(payload)


def test_texts_ids_and_paths_are_read_from_each_tools_format() -> None:
    """Cases in which the tools differ."""
    called = only_event("claude-code", "PreToolUse-Edit")
    assert (called.text, called.paths) == (f"Edit: {PROJECT}/greet.py", (f"{PROJECT}/greet.py",))
    assert only_event("claude-code", "PreToolUse-Read").paths == ()
    assert only_event("claude-code", "PostToolUse-Bash").text == 'print("good morning")'
    assert only_event("claude-code", "PostToolUse-Write").text == 'print("hello")\n'
    failed = only_event("claude-code", "PostToolUseFailure")
    assert (failed.text, failed.data["tool"]) == ("Exit code 1", "Bash")
    assert only_event("codex", "PreToolUse-apply_patch").paths == ("greet.py",)
    assert only_event("gemini", "BeforeTool-write_file").paths == (f"{PROJECT}/greet.py",)
    assert only_event("gemini", "AfterTool-failed").text == f"File does not exist: {PROJECT}/missing.py"
    assert only_event("claude-code", "SessionStart-fork").data["source"] == "fork"
    assert report("gemini", "AfterAgent").events[0].text == "Done: greet.py greets, and was checked."


def test_all_paths_of_a_large_patch_are_found() -> None:
    patch = (
        "*** Begin Patch\n*** Add File: a.txt\n" + "+x\n" * 9000 + "*** Update File: b/c d.txt\n*** Move to: e.txt\n*** End Patch"
    )
    assert only_event("codex", "PreToolUse-apply_patch", tool_input={"command": patch}).paths == ("a.txt", "b/c d.txt", "e.txt")
    line = {"type": "response_item", "payload": {"type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": "c"}}
    assert tool_of("codex").from_line(line)[0].paths == ("a.txt", "b/c d.txt", "e.txt")


def test_a_transcript_is_assigned_to_the_session_or_the_sub_agent() -> None:
    """In a sub-agent's events, Claude Code names the session's transcript, Codex the sub-agent's; at its end, both are named."""
    session, sub = report("claude-code", "PreToolUse-in-subagent"), report("claude-code", "SubagentStop")
    assert session.transcript == sub.transcript == report("claude-code", "Stop").transcript
    assert session.sub_transcript is None
    assert str(sub.sub_transcript).endswith(f"/subagents/agent-{sub.events[0].sub}.jsonl")
    own = report("claude-code", "PreToolUse-in-subagent", transcript_path=sub.sub_transcript)
    assert (own.transcript, own.sub_transcript) == (None, sub.sub_transcript)
    thread, ended = report("codex", "PreToolUse-in-subagent"), report("codex", "SubagentStop")
    assert thread.transcript is None
    assert thread.sub_transcript == ended.sub_transcript
    assert ended.transcript == report("codex", "Stop").transcript != ended.sub_transcript
    assert report("codex", "SessionStart-without-transcript").transcript is None
    assert str(report("gemini", "SessionStart").transcript).endswith(".jsonl")


def test_the_start_or_end_of_a_sub_agent_without_id_is_a_note() -> None:
    """The start or end of a session is never that of a sub-agent."""
    for name in ("SubagentStart", "SubagentStop"):
        assert only_event("claude-code", name, agent_id=7).what == NOTE
    for name in ("SessionStart", "Stop", "SessionEnd"):
        event = only_event("claude-code", name, agent_id="a1")
        assert (event.what, event.sub) == (NOTE, "a1")


# Transcripts


@pytest.mark.parametrize("tool", ["claude-code", "codex"])
def test_hooks_and_transcripts_agree_on_every_key(tool: str) -> None:
    """Each hook event of the documented session is in its transcript, with the same key."""
    lines, ofsub = transcript(tool), transcript(tool, "transcript-of-subagent")
    keys = {"": {event.key for event in lines}, "sub": {event.key for event in ofsub}}
    counts = {event.counted: 1 for event in (*lines, *ofsub) if event.counted is not None}
    session = hook_payloads.payloads(tool)["SessionStart"]["session_id"]
    compared = 0
    for payload in hook_payloads.payloads(tool).values():
        for event in tool_of(tool).from_hook(payload).events if payload["session_id"] == session else ():
            if event.what in (PROMPT, CALL, RESULT, FAILURE):
                assert hook_key(event, counts, "r") in keys["sub" if event.sub else ""], payload
                compared += 1
    assert compared >= 10


@pytest.mark.parametrize("tool", ["claude-code", "codex"])
def test_a_transcript_has_each_event_once_with_the_tools_name(tool: str) -> None:
    events = transcript(tool)
    assert len({event.key for event in events}) == len(events)
    assert {PROMPT, SAID, THINKING, CALL, RESULT} <= {event.what for event in events}
    assert all(event.data["tool"] for event in events if event.what in (CALL, RESULT, FAILURE))
    assert all(event.at is not None for event in events)
    assert [event.at for event in events] == sorted(str(event.at) for event in events)
    check_recordable(events)


def test_a_chat_of_gemini_has_the_thoughts_and_one_of_a_sub_agent_its_texts() -> None:
    """Hooks report the rest. A message that is written again keeps its keys."""
    thoughts = {event.key: event.text for event in transcript("gemini")}
    assert set(thoughts.values()) == {"One small file will do."}
    assert {event.what for event in transcript("gemini")} == {THINKING}
    chat = hook_payloads.transcript("gemini", "transcript-of-subagent").splitlines()
    events = [event for line in chat for event in tool_of("gemini").from_sub_line(json.loads(line))]
    texts = {event.key: (event.what, event.text) for event in events}
    assert {what for what, _ in texts.values()} >= {PROMPT, SAID}
    assert not [key for key in texts if key is None]


def test_no_line_stops_the_reader() -> None:
    """Unknown, broken, too deep, with a carriage return: later lines are read."""
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
    content = b"".join(line for pair in zip(good, bad * 9, strict=False) for line in pair) + b"".join(good[len(bad) * 9 :])
    reading = read_events(content, TranscriptCursor(), tool_of("claude-code").from_line)
    assert reading.events == transcript("claude-code")
    assert reading.cursor.offset == len(content)
    assert reading.unreadable > 5


# Invalid input


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_events_without_session_or_name_are_refused(tool: str) -> None:
    refused_names = []
    for name, payload in hook_payloads.broken(tool).items():
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            continue  # ingest reports that it is not JSON
        with pytest.raises(InvalidInput) as caught:
            tool_of(tool).from_hook(value)
        assert caught.value.code == "invalid-event", name
        refused_names.append(name)
    assert len(refused_names) >= 6
    for session_id in ("", " ", "x" * 201, "a\nb", "\ud83d"):
        with pytest.raises(InvalidInput, match="session_id"):
            tool_of(tool).from_hook({"session_id": session_id, "hook_event_name": "Stop"})


@pytest.mark.parametrize("tool", hook_payloads.TOOLS)
def test_unusual_events_are_recorded_as_far_as_possible(tool: str) -> None:
    for name, payload in hook_payloads.odd(tool).items():
        hook_report = tool_of(tool).from_hook(json.loads(payload))
        assert hook_report.events, name
        check_recordable(hook_report.events)
    unknown = tool_of(tool).from_hook(json.loads(hook_payloads.odd(tool)["unknown event"])).events[0]
    assert (unknown.what, unknown.text) == (NOTE, "EventOfTomorrow")
    assert unknown.data["payload"]["tool_name"]


def test_invalid_ids_paths_times_and_numbers_do_no_harm() -> None:
    """The store would refuse them, which would block all later events."""
    unusual = only_event(
        "claude-code", "PreToolUse-Write", tool_use_id="a b\n\ud83d", tool_input={"n": float("nan"), "i": 10**40, "\ud83d": "\0"}
    )
    check_recordable((unusual,))
    assert unusual.key == f"call:{digest('a b' + chr(10) + chr(0xFFFD))}"
    assert only_event("claude-code", "PostToolUse-Bash", duration_ms=float("inf")).data["ms"] == "inf"
    hook_report = report("claude-code", "Stop", cwd="/a\0b", transcript_path="/x\0", agent_transcript_path=[])
    assert (hook_report.cwd, hook_report.transcript, hook_report.sub_transcript) == (None, None, None)
    line = {"type": "user", "message": {"content": "hello"}, "timestamp": "zzz", "agentId": "x" * 999}
    (event,) = tool_of("claude-code").from_line(line)
    assert event.at is None
    assert len(event.sub) == 24


def test_long_texts_and_lists_are_truncated_with_a_note() -> None:
    long_result = only_event("claude-code", "PostToolUse-Bash", tool_response={"stdout": "x" * 200_000, "stderr": ""})
    assert long_result.text.endswith("[cut: 134464 more characters]")
    long_input = only_event("claude-code", "PreToolUse-Bash", tool_input={"list": list(range(1000)), "text": "y" * 9000})
    assert long_input.data["input"]["list"][-1] == "[cut: 800 more]"
    assert long_input.data["input"]["text"].endswith("[cut: 4904 more characters]")


def test_an_unknown_tool_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="'cursor'") as caught:
        tool_of("cursor")
    assert caught.value.code == "unknown-tool"
    assert set(TOOLS) == {*hook_payloads.TOOLS, *(tool.name for tool in claude_family.TOOLS)}
    assert {SUB_START, SUB_STOP} <= {kind for row in _CLAUDE.values() for kind in row.split()}
