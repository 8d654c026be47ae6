"""Claude Code: hook events (as of 2.1.325) and transcript lines.

Invariant: an unknown event becomes a note with its payload. Unknown transcript lines are ignored: they are undocumented, and
most are internal bookkeeping.
"""

from __future__ import annotations

from clia.capture import events
from clia.capture.events import HookReport, ToolEvent, as_text, field, shortened, text_event, text_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

NAME = "claude-code"
PREFIX = "claude"
_NOT_TYPED = (
    "<task-notification>",
    "<command-name>",
    "<command-message>",
    "<local-command-stdout>",
    "<local-command-caveat>",
    "<fork-boilerplate>",
)
# The tools that write a file, of Claude Code and of the tools in its family.
_WRITERS = frozenset(
    (
        *("Write", "Edit", "MultiEdit", "NotebookEdit", "write", "edit", "write_file", "notebook_edit"),
        *("WriteFile", "StrReplaceFile", "editor", "write_to_file", "replace_in_file"),
    )
)


def from_hook(payload: object) -> HookReport:
    """Parse a hook's payload; ``InvalidInput`` if it names no session or event."""
    fields, session, name = events.session_of(payload)
    sub = events.id_field(fields, "agent_id")
    reported = tuple(_of(event, sub, name) for event in _events(name, fields))
    own, of_sub = (events.path_field(fields, key) for key in ("transcript_path", "agent_transcript_path"))
    if sub and own is not None and own.endswith(f"/agent-{sub}.jsonl"):
        own, of_sub = None, own
    return HookReport(session, reported, events.path_field(fields, "cwd"), own, of_sub, field(fields, "agent_type") if sub else "")


def _of(event: ToolEvent, sub: str, name: str) -> ToolEvent:
    """An event of the session or a sub-agent. The start and end of a session are not those of a sub-agent."""
    fits = event.what not in events.BOUNDS or (event.what in (events.SUB_START, events.SUB_STOP)) == bool(sub)
    return event._replace(sub=sub) if fits else ToolEvent(events.NOTE, event.text or name, data={"event": name}, sub=sub)


def _events(name: str, payload: Mapping[str, Any]) -> Iterator[ToolEvent]:
    match name:
        case "SessionStart":
            yield events.start_event(payload, "model", "agent_type", "permission_mode")
        case "UserPromptSubmit":
            yield _prompt(field(payload, "prompt"), payload.get("prompt_id"))._replace(data=text_fields(payload, "source"))
        case "PreToolUse":
            call = field(payload, "tool_use_id")
            event = events.call_event(field(payload, "tool_name"), payload.get("tool_input"), call, _WRITERS)
            yield event._replace(counted=None)
        case "PostToolUse":
            yield _returned(events.RESULT, as_text(payload.get("tool_response")), payload)
        case "PostToolUseFailure":
            yield _returned(events.FAILURE, shortened(field(payload, "error")), payload)
        case "SubagentStart":
            kind = text_fields(payload, "agent_type")
            yield ToolEvent(events.SUB_START, f"sub-agent started: {kind.get('agent_type', 'agent')}", data=kind)
        case "SubagentStop":
            yield _last_message(events.SUB_STOP, payload)._replace(data=text_fields(payload, "agent_type"))
        case "Stop":
            yield _last_message(events.TURN_END, payload)._replace(data=_running(payload))
        case "StopFailure":
            why = field(payload, "error_details") or field(payload, "error") or as_text(payload.get("error"))
            yield ToolEvent(events.NOTE, shortened(f"the turn ended with an error: {why}"), data={"event": name})
            yield _last_message(events.TURN_END, payload)._replace(data={"error": True, **_running(payload)})
        case "PreCompact" | "PostCompact":
            text, summary = f"compacted ({field(payload, 'trigger') or 'auto'})", field(payload, "compact_summary")
            yield ToolEvent(events.NOTE, shortened(f"{text}: {summary}" if summary else text), data={"event": name})
        case "SessionEnd":
            yield events.end_event(payload)
        case _:
            yield events.unknown_event(payload)


def _prompt(text: str, prompt: object) -> ToolEvent:
    """What a person typed; or a note, if the tool itself put the text into the conversation."""
    kind = events.NOTE if text.lstrip().startswith(_NOT_TYPED) else events.PROMPT
    return ToolEvent(kind, shortened(text), *events.key_or_digest("prompt", prompt, text))


def _returned(kind: str, text: str, payload: Mapping[str, Any]) -> ToolEvent:
    event = events.result_event(kind, text, field(payload, "tool_use_id"))
    data: dict[str, Any] = {"tool": field(payload, "tool_name"), **event.data}
    duration = payload.get("duration_ms")
    if isinstance(duration, (int, float)) and not isinstance(duration, bool):
        data["ms"] = events.small(duration)
    if payload.get("is_interrupt") is True:
        data["interrupted"] = True
    return event._replace(counted=None, data=data)


def _last_message(kind: str, payload: Mapping[str, Any]) -> ToolEvent:
    """The end of a turn, with the last message as its counted text."""
    return text_event(kind, "say", field(payload, "last_assistant_message"))


def _running(payload: Mapping[str, Any]) -> dict[str, list[str]]:
    """The ids of tasks in the background, among them sub-agents; nothing before 2.1.145, which does not report them."""
    tasks = payload.get("background_tasks")
    if not isinstance(tasks, list):
        return {}
    return {"running": [events.id_field(task, "id") for task in tasks if isinstance(task, dict)]}


def from_line(line: Mapping[str, Any]) -> list[ToolEvent]:
    """Parse a transcript line; empty if it is not part of the conversation."""
    message = line.get("message")
    copied = isinstance(line.get("forkedFrom"), dict)  # copied from the session that this one was forked from
    parse = {"user": _user, "assistant": _assistant}.get(field(line, "type"))
    if not isinstance(message, dict) or line.get("isMeta") is True or copied or parse is None:
        return []
    at, sub = events.time_field(line, "timestamp"), events.id_field(line, "agentId")
    return [event._replace(at=at, sub=sub) for event in parse(line, message)]


def owner(line: Mapping[str, Any]) -> tuple[str, str]:
    """The session that a transcript line names, and the directory."""
    return field(line, "sessionId"), field(line, "cwd")


def sub_folder(transcript: str, session: str) -> tuple[str, str]:
    """The folder with the transcripts of the sub-agents, and the prefix of their names."""
    del session
    return (f"{transcript.removesuffix('.jsonl')}/subagents", "agent-") if transcript.endswith(".jsonl") else ("", "")


def _user(line: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[ToolEvent]:
    for block in _blocks(message):
        text = field(block, "text")
        if block.get("type") == "tool_result":
            kind = events.FAILURE if block.get("is_error") is True else events.RESULT
            yield events.result_event(kind, as_text(block.get("content")), field(block, "tool_use_id"))
        elif block.get("type") == "text" and text.strip():
            note = text_event(events.NOTE, "note", text)
            if text.startswith("[Request interrupted by user"):
                yield note._replace(data=events.INTERRUPTED)
            else:
                yield note if line.get("isCompactSummary") is True else _prompt(text, line.get("promptId"))


def _assistant(line: Mapping[str, Any], message: Mapping[str, Any]) -> Iterator[ToolEvent]:
    for block in _blocks(message):
        kind = block.get("type")
        if kind == "text" and field(block, "text").strip():
            event = text_event(events.SAID, "say", field(block, "text"), field(message, "id"))
            failed = line.get("isApiErrorMessage") is True
            yield event._replace(what=events.NOTE, data=events.MODEL_ERROR) if failed else event
        elif kind == "thinking" and field(block, "thinking").strip():
            yield text_event(events.THINKING, "thought", field(block, "thinking"))
        elif kind == "tool_use":
            yield events.call_event(field(block, "name"), block.get("input"), field(block, "id"), _WRITERS)


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
