"""Gemini CLI: hook events (as of 0.61.0).

Invariant: Gemini's hooks give no ids that match its transcripts, so only hooks are read and each record counts once. A result
belongs to the last call of the same tool. Sub-agents cannot be told from the session.
"""

from __future__ import annotations

from clia.capture.events import (
    CALL,
    FAILURE,
    PROMPT,
    RESULT,
    SAID,
    START,
    TURN_END,
    HookReport,
    ToolEvent,
    as_text,
    call_line,
    field,
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
    from collections.abc import Callable, Mapping
    from typing import Any

NAME = "gemini"
PREFIX = "gemini"
_WRITERS = frozenset(("write_file", "replace", "edit"))


def from_hook(payload: object) -> HookReport:
    """Parse a hook's payload; ``InvalidInput`` if it names no session or event."""
    said, session, name = session_of(payload)
    at = time_field(said, "timestamp")
    events = tuple(each._replace(at=at) for each in _HOOKS.get(name, unknown_event)(said))
    return HookReport(session, events, path_field(said, "cwd"))


def _start(said: Mapping[str, Any]) -> list[ToolEvent]:
    source = field(said, "source") or "startup"
    return [ToolEvent(START, f"session started: {source}", data={"source": source})]


def _prompt(said: Mapping[str, Any]) -> list[ToolEvent]:
    return [ToolEvent(PROMPT, shortened(field(said, "prompt")))]


def _call(said: Mapping[str, Any]) -> list[ToolEvent]:
    tool, given = field(said, "tool_name"), said.get("tool_input")
    return [
        ToolEvent(
            CALL, call_line(tool or "tool", given), data={"tool": tool, "input": small(given)}, paths=written(tool, given, _WRITERS)
        )
    ]


def _result(said: Mapping[str, Any]) -> list[ToolEvent]:
    given = said.get("tool_response")
    error = given.get("error") if isinstance(given, dict) else None
    data = {"tool": field(said, "tool_name")}
    if not error:
        return [ToolEvent(RESULT, as_text(given), data=data)]
    message = field(error, "message") if isinstance(error, dict) else ""
    return [ToolEvent(FAILURE, shortened(message) if message else as_text(error), data=data)]


def _turn_end(said: Mapping[str, Any]) -> list[ToolEvent]:
    text = shortened(field(said, "prompt_response"))
    return [*([ToolEvent(SAID, text)] if text.strip() else []), ToolEvent(TURN_END)]


_HOOKS: dict[str, Callable[[Mapping[str, Any]], list[ToolEvent]]] = {
    "SessionStart": _start,
    "BeforeAgent": _prompt,
    "BeforeTool": _call,
    "AfterTool": _result,
    "AfterAgent": _turn_end,
    "SessionEnd": session_end,
}


def from_line(line: Mapping[str, Any]) -> list[ToolEvent]:
    """Transcripts are not read; see the module."""
    del line
    return []
