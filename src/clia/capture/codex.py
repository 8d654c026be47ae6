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
    call_line,
    digest,
    field,
    key_or_digest,
    shortened,
    small,
    time_field,
    whole,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

NAME = "codex"
PREFIX = "codex"


def from_hook(payload: object) -> HookReport:
    """Parse a hook's payload; ``InvalidInput`` if it names no session or event."""
    told = claude_code.from_hook(payload)
    given = payload.get("tool_input") if isinstance(payload, dict) else None
    events = tuple(_patched(each, given) for each in told.events)
    if any(each.sub for each in events) and told.sub_transcript is None:
        # A sub-agent is a separate thread; only its end event also names the session's transcript.
        return told._replace(events=events, transcript=None, sub_transcript=told.transcript)
    return told._replace(events=events)


def _patched(event: ToolEvent, given: object) -> ToolEvent:
    """The files that a patch names: Codex writes files by patches. ``given`` is the call's whole input."""
    if event.what != CALL or event.data.get("tool") != "apply_patch":
        return event
    patch = (given.get("command") or given.get("input")) if isinstance(given, dict) else given
    return event._replace(paths=_patch_paths(whole(patch))) if isinstance(patch, str) else event


_HEADS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")


def _patch_paths(patch: str) -> tuple[str, ...]:
    found = (line.removeprefix(head).strip() for line in patch.splitlines() for head in _HEADS if line.startswith(head))
    return tuple(dict.fromkeys(each for each in found if each))


def from_line(line: Mapping[str, Any]) -> list[ToolEvent]:
    """Parse a rollout line; empty if it is not part of the conversation."""
    payload = line.get("payload")
    if not isinstance(payload, dict):
        return []
    read = _LINES.get((field(line, "type"), field(payload, "type")))
    if read is None:
        return []
    at = time_field(line, "timestamp")
    return [each._replace(at=at) for each in read(payload)]


def _user(said: Mapping[str, Any]) -> list[ToolEvent]:
    text = field(said, "message")
    return [ToolEvent(PROMPT, shortened(text), counted=f"prompt:{digest(text)}")] if text.strip() else []


def _agent(said: Mapping[str, Any]) -> list[ToolEvent]:
    text = field(said, "message")
    return [ToolEvent(SAID, shortened(text), counted=f"say:{digest(text)}")] if text.strip() else []


def _reasoning(said: Mapping[str, Any]) -> list[ToolEvent]:
    text = field(said, "text")
    return [ToolEvent(THINKING, shortened(text), counted=f"thought:{digest(text)}")] if text.strip() else []


def _function_call(said: Mapping[str, Any]) -> list[ToolEvent]:
    given: Any = field(said, "arguments") or field(said, "input")
    with suppress(ValueError, RecursionError):  # a patch is not JSON
        given = json.loads(given)
    tool, call = field(said, "name"), field(said, "call_id")
    key, counted = key_or_digest("call", call, call_line(tool or "tool", given))
    made = ToolEvent(CALL, call_line(tool or "tool", given), key, counted, {"tool": tool, "id": call, "input": small(given)})
    return [_patched(made, given)]


def _function_output(said: Mapping[str, Any]) -> list[ToolEvent]:
    text = as_text(said.get("output"))
    key, counted = key_or_digest("result", said.get("call_id"), text)
    return [ToolEvent(RESULT, text, key, counted, {"id": field(said, "call_id")})]


_LINES: dict[tuple[str, str], Callable[[Mapping[str, Any]], list[ToolEvent]]] = {
    ("event_msg", "user_message"): _user,
    ("event_msg", "agent_message"): _agent,
    ("event_msg", "agent_reasoning"): _reasoning,
    ("response_item", "function_call"): _function_call,
    ("response_item", "custom_tool_call"): _function_call,
    ("response_item", "function_call_output"): _function_output,
    ("response_item", "custom_tool_call_output"): _function_output,
}
