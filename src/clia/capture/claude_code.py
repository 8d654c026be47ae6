"""Claude Code: hook events (as of 2.1.325) and transcript lines.

Invariant: an unknown event becomes a note with its payload. Unknown transcript lines are ignored: they are undocumented, and
most are internal bookkeeping.
"""

from __future__ import annotations

from clia.capture.events import (
    BOUNDS,
    CALL,
    FAILURE,
    NOTE,
    PROMPT,
    RESULT,
    SAID,
    START,
    SUB_START,
    SUB_STOP,
    THINKING,
    TURN_END,
    HookReport,
    ToolEvent,
    as_text,
    call_line,
    digest,
    field,
    id_field,
    key_or_digest,
    path_field,
    session_end,
    session_of,
    shortened,
    small,
    time_field,
    unknown_event,
    written,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

NAME = "claude-code"
PREFIX = "claude"
_WRITERS = frozenset(("Write", "Edit", "MultiEdit", "NotebookEdit"))


def from_hook(payload: object) -> HookReport:
    """Parse a hook's payload; ``InvalidInput`` if it names no session or event."""
    said, session, name = session_of(payload)
    read, sub = _HOOKS.get(name, unknown_event), id_field(said, "agent_id")
    events = tuple(_of(each, sub, name) for each in read(said))
    own, of_sub = path_field(said, "transcript_path"), path_field(said, "agent_transcript_path")
    if sub and own is not None and own.endswith(f"/agent-{sub}.jsonl"):
        own, of_sub = None, own
    return HookReport(session, events, path_field(said, "cwd"), own, of_sub, field(said, "agent_type") if sub else "")


def _of(event: ToolEvent, sub: str, name: str) -> ToolEvent:
    """An event of the session or a sub-agent. The start and end of a session are not those of a sub-agent."""
    fits = event.what not in BOUNDS or (event.what in (SUB_START, SUB_STOP)) == bool(sub)
    return event._replace(sub=sub) if fits else ToolEvent(NOTE, event.text or name, data={"event": name}, sub=sub)


def _start(said: Mapping[str, Any]) -> list[ToolEvent]:
    source = field(said, "source") or "startup"
    data = {"source": source, **_named(said, "model", "agent_type", "permission_mode")}
    return [ToolEvent(START, f"session started: {source}", data=data)]


def _prompt(said: Mapping[str, Any]) -> list[ToolEvent]:
    text = field(said, "prompt")
    key, counted = key_or_digest("prompt", said.get("prompt_id"), text)
    return [ToolEvent(PROMPT, shortened(text), key, counted, _named(said, "source"))]


def _call(said: Mapping[str, Any]) -> list[ToolEvent]:
    return [_called(field(said, "tool_name"), said.get("tool_input"), field(said, "tool_use_id"))]


def _called(tool: str, given: Any, call: str) -> ToolEvent:
    data = {"tool": tool, "id": call, "input": small(given)}
    return ToolEvent(
        CALL, call_line(tool or "tool", given), key_or_digest("call", call, "")[0], data=data, paths=written(tool, given, _WRITERS)
    )


def _result(said: Mapping[str, Any]) -> list[ToolEvent]:
    return [_returned(RESULT, as_text(said.get("tool_response")), said)]


def _failure(said: Mapping[str, Any]) -> list[ToolEvent]:
    return [_returned(FAILURE, shortened(field(said, "error")), said)]


def _returned(what: str, text: str, said: Mapping[str, Any]) -> ToolEvent:
    call = field(said, "tool_use_id")
    data: dict[str, Any] = {"tool": field(said, "tool_name"), "id": call}
    duration = said.get("duration_ms")
    if isinstance(duration, (int, float)) and not isinstance(duration, bool):
        data["ms"] = small(duration)
    if said.get("is_interrupt") is True:
        data["interrupted"] = True
    return ToolEvent(what, text, key_or_digest("result", call, "")[0], data=data)


def _sub_start(said: Mapping[str, Any]) -> list[ToolEvent]:
    kind = field(said, "agent_type")
    return [ToolEvent(SUB_START, f"sub-agent started: {kind or 'agent'}", data=_named(said, "agent_type"))]


def _sub_stop(said: Mapping[str, Any]) -> list[ToolEvent]:
    return [_last_said(SUB_STOP, said)._replace(data=_named(said, "agent_type"))]


def _stop(said: Mapping[str, Any]) -> list[ToolEvent]:
    return [_last_said(TURN_END, said)]


def _last_said(what: str, said: Mapping[str, Any]) -> ToolEvent:
    """The end of a turn, with the last message as its counted text."""
    text = field(said, "last_assistant_message")
    return ToolEvent(what, shortened(text), counted=f"say:{digest(text)}")


def _stop_failure(said: Mapping[str, Any]) -> list[ToolEvent]:
    error = said.get("error")
    why = field(said, "error_details") or (error if isinstance(error, str) else as_text(error))
    note = ToolEvent(NOTE, shortened(f"the turn ended with an error: {why}"), data={"event": "StopFailure"})
    return [note, _last_said(TURN_END, said)]


def _compact(said: Mapping[str, Any]) -> list[ToolEvent]:
    text = f"compacted ({field(said, 'trigger') or 'auto'})"
    summary = field(said, "compact_summary")
    return [ToolEvent(NOTE, shortened(f"{text}: {summary}" if summary else text), data={"event": field(said, "hook_event_name")})]


def _named(said: Mapping[str, Any], *names: str) -> dict[str, str]:
    return {name: field(said, name) for name in names if field(said, name)}


_HOOKS: dict[str, Callable[[Mapping[str, Any]], list[ToolEvent]]] = {
    "SessionStart": _start,
    "UserPromptSubmit": _prompt,
    "PreToolUse": _call,
    "PostToolUse": _result,
    "PostToolUseFailure": _failure,
    "SubagentStart": _sub_start,
    "SubagentStop": _sub_stop,
    "Stop": _stop,
    "StopFailure": _stop_failure,
    "SessionEnd": session_end,
    "PreCompact": _compact,
    "PostCompact": _compact,
}


def from_line(line: Mapping[str, Any]) -> list[ToolEvent]:
    """Parse a transcript line; empty if it is not part of the conversation."""
    message = line.get("message")
    copied = isinstance(line.get("forkedFrom"), dict)  # copied from the session that this one was forked from
    if not isinstance(message, dict) or line.get("isMeta") is True or copied:
        return []
    read = {"user": _user, "assistant": _assistant}.get(field(line, "type"))
    if read is None:
        return []
    at, sub = time_field(line, "timestamp"), id_field(line, "agentId")
    return [each._replace(at=at, sub=sub) for each in read(line, message)]


def _user(line: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[ToolEvent]:
    for block in _blocks(message):
        if block.get("type") == "tool_result":
            yield _answered(block)
        elif block.get("type") == "text" and field(block, "text").strip():
            yield _typed(line, field(block, "text"))


def _typed(line: Mapping[str, Any], text: str) -> ToolEvent:
    if line.get("isCompactSummary") is True or text.startswith("[Request interrupted by user"):
        return ToolEvent(NOTE, shortened(text), counted=f"note:{digest(text)}")
    key, counted = key_or_digest("prompt", line.get("promptId"), text)
    return ToolEvent(PROMPT, shortened(text), key, counted)


def _answered(block: Mapping[str, Any]) -> ToolEvent:
    call = field(block, "tool_use_id")
    text = as_text(block.get("content"))
    what = FAILURE if block.get("is_error") is True else RESULT
    key, counted = key_or_digest("result", call, text)
    return ToolEvent(what, text, key, counted, {"id": call})


def _assistant(line: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[ToolEvent]:
    of = field(message, "id")
    for block in _blocks(message):
        kind = block.get("type")
        if kind == "text" and field(block, "text").strip():
            text = field(block, "text")
            what = NOTE if line.get("isApiErrorMessage") is True else SAID
            yield ToolEvent(what, shortened(text), counted=f"say:{digest(text)}", message=of)
        elif kind == "thinking" and field(block, "thinking").strip():
            text = field(block, "thinking")
            yield ToolEvent(THINKING, shortened(text), counted=f"thought:{digest(text)}")
        elif kind == "tool_use":
            made = _called(field(block, "name"), block.get("input"), field(block, "id"))
            yield made if made.key else made._replace(counted=f"call:{digest(made.text)}")


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
