"""Gemini CLI: hook events (as of 0.61.0).

Invariant: Gemini's hooks give no ids that match its transcripts, so only hooks are read and each record counts once. A result
belongs to the last call of the same tool. Sub-agents cannot be told from the session.
"""

from __future__ import annotations

from clia.capture import events
from clia.capture.events import HookReport, ToolEvent, as_text, field, shortened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

NAME = "gemini"
PREFIX = "gemini"
_WRITERS = frozenset(("write_file", "replace", "edit"))


def from_hook(payload: object) -> HookReport:
    """Parse a hook's payload; ``InvalidInput`` if it names no session or event."""
    fields, session, name = events.session_of(payload)
    at = events.time_field(fields, "timestamp")
    reported = tuple(event._replace(at=at) for event in _events(name, fields))
    return HookReport(session, reported, events.path_field(fields, "cwd"))


def _events(name: str, payload: Mapping[str, Any]) -> Iterator[ToolEvent]:
    tool = field(payload, "tool_name")
    match name:
        case "SessionStart":
            yield events.start_event(payload)
        case "BeforeAgent":
            yield ToolEvent(events.PROMPT, shortened(field(payload, "prompt")))
        case "BeforeTool":
            arguments = payload.get("tool_input")
            event = events.call_event(tool, arguments, "", _WRITERS)
            yield event._replace(counted=None, data={"tool": tool, "input": event.data["input"]})
        case "AfterTool":
            yield _result(payload.get("tool_response"))._replace(data={"tool": tool})
        case "AfterAgent":
            text = shortened(field(payload, "prompt_response"))
            if text.strip():
                yield ToolEvent(events.SAID, text)
            yield ToolEvent(events.TURN_END)
        case "SessionEnd":
            yield events.end_event(payload)
        case _:
            yield events.unknown_event(payload)


def _result(response: object) -> ToolEvent:
    error = response.get("error") if isinstance(response, dict) else None
    if not error:
        return ToolEvent(events.RESULT, as_text(response))
    message = field(error, "message") if isinstance(error, dict) else ""
    return ToolEvent(events.FAILURE, shortened(message) if message else as_text(error))


def from_line(line: Mapping[str, Any]) -> list[ToolEvent]:
    """Transcripts are not read; see the module."""
    del line
    return []
