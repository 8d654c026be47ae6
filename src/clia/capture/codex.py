"""Codex: hook events (schemas of 0.1xx, 2026) and rollout lines.

Invariant: as for Claude Code, whose events are similar. An unknown event becomes a note.
"""

from __future__ import annotations

import json
from contextlib import suppress

from clia.capture import claude_code
from clia.capture.events import (
    CALL,
    PROMPT,
    RESULT,
    SAID,
    THINKING,
    HookReport,
    ToolEvent,
    as_text,
    call_event,
    field,
    result_event,
    text_event,
    time_field,
    whole,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

NAME = "codex"
PREFIX = "codex"
_HEADS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
# The event of each message, the prefix of its key, and the field that has its text.
_MESSAGES = {
    "user_message": (PROMPT, "prompt", "message"),
    "agent_message": (SAID, "say", "message"),
    "agent_reasoning": (THINKING, "thought", "text"),
}


def from_hook(payload: object) -> HookReport:
    """Parse a hook's payload; ``InvalidInput`` if it names no session or event."""
    report = claude_code.from_hook(payload)
    arguments = payload.get("tool_input") if isinstance(payload, dict) else None
    report = report._replace(events=tuple(_patched(event, arguments) for event in report.events))
    if any(event.sub for event in report.events) and report.sub_transcript is None:
        # A sub-agent is a separate thread; only its end event also names the session's transcript.
        return report._replace(transcript=None, sub_transcript=report.transcript)
    return report


def _patched(event: ToolEvent, arguments: object) -> ToolEvent:
    """The files that a patch names: Codex writes files by patches. ``arguments`` is the call's whole input."""
    if event.what != CALL or event.data.get("tool") != "apply_patch":
        return event
    patch = (arguments.get("command") or arguments.get("input")) if isinstance(arguments, dict) else arguments
    lines = whole(patch).splitlines() if isinstance(patch, str) else []
    paths = (line.removeprefix(head).strip() for line in lines for head in _HEADS if line.startswith(head))
    return event._replace(paths=tuple(dict.fromkeys(filter(None, paths))))


def from_line(line: Mapping[str, Any]) -> list[ToolEvent]:
    """Parse a rollout line; empty if it is not part of the conversation."""
    payload, at = line.get("payload"), time_field(line, "timestamp")
    return [event._replace(at=at) for event in _events(field(line, "type"), payload)] if isinstance(payload, dict) else []


def _events(kind: str, payload: Mapping[str, Any]) -> Iterator[ToolEvent]:
    match kind, field(payload, "type"):
        case "event_msg", name if name in _MESSAGES:
            event_kind, prefix, key = _MESSAGES[name]
            if field(payload, key).strip():
                yield text_event(event_kind, prefix, field(payload, key))
        case "response_item", "function_call" | "custom_tool_call":
            arguments: Any = field(payload, "arguments") or field(payload, "input")
            with suppress(ValueError, RecursionError):  # a patch is not JSON
                arguments = json.loads(arguments)
            yield _patched(call_event(field(payload, "name"), arguments, field(payload, "call_id")), arguments)
        case "response_item", "function_call_output" | "custom_tool_call_output":
            yield result_event(RESULT, as_text(payload.get("output")), field(payload, "call_id"))
