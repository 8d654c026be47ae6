"""Codex: hook events and rollout lines, as of 0.140 to 0.166.

Invariant: as for Claude Code, whose events are similar. An unknown event becomes a note. From 0.150 on, a rollout has texts and
reasoning as completed items; these also report commands and patches that a script of the model ran (code mode). Hooks have no
exit codes, so those of the rollout are added.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

from clia.capture.events import (
    CALL,
    FAILURE,
    INTERRUPTED,
    MODEL_ERROR,
    NOTE,
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
    shortened,
    text_event,
    time_field,
    whole,
)
from clia.capture.tools import claude_code

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
# The same for completed items, whose texts are in parts.
_ITEMS = {
    "UserMessage": (PROMPT, "prompt", "content", "\n"),
    "AgentMessage": (SAID, "say", "content", ""),
    "Reasoning": (THINKING, "thought", "summary_text", "\n\n"),
}
_REFUSED = "apply_patch verification failed"
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,10})$", re.MULTILINE)


def from_hook(payload: object) -> HookReport:
    """Parse a hook's payload; ``InvalidInput`` if it names no session or event."""
    report = claude_code.from_hook(payload)
    arguments = payload.get("tool_input") if isinstance(payload, dict) else None
    report = report._replace(events=tuple(_exited(_patched(event, arguments)) for event in report.events))
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


def _exited(event: ToolEvent) -> ToolEvent:
    """A result with the exit code that its text begins with; that of a failed command or patch is a failure."""
    code = _EXIT.search(event.text[:300]) if event.what == RESULT else None
    if code is not None:
        return _with_exit(event, int(code[1]))
    return event._replace(what=FAILURE) if event.what == RESULT and event.text.startswith(_REFUSED) else event


def _with_exit(event: ToolEvent, code: int) -> ToolEvent:
    return event._replace(what=FAILURE if code else RESULT, data={**event.data, "exit": code})


def sub_label(line: Mapping[str, Any]) -> str:
    """The task name of a sub-agent, which the first line of its rollout has: the end of its path in the tree of agents."""
    payload = line.get("payload")
    path = field(payload, "agent_path") if isinstance(payload, dict) else ""
    return path.rstrip("/").rpartition("/")[2]


def owner(line: Mapping[str, Any]) -> tuple[str, str]:
    """The thread that a rollout's first line names, and the directory."""
    payload = line.get("payload")
    if field(line, "type") != "session_meta" or not isinstance(payload, dict):
        return "", ""
    return field(payload, "id"), field(payload, "cwd")


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
            yield _exited(result_event(RESULT, as_text(payload.get("output")), field(payload, "call_id")))
        case "event_msg", "error":
            text = f"the turn ended with an error: {field(payload, 'message')}"
            yield text_event(NOTE, "note", text)._replace(data=MODEL_ERROR)
        case "event_msg", "turn_aborted":
            yield text_event(NOTE, "note", f"the turn was aborted: {field(payload, 'reason')}")._replace(data=INTERRUPTED)
        case "event_msg", "item_completed":
            item = payload.get("item")
            yield from _item(item) if isinstance(item, dict) else ()


def _item(item: Mapping[str, Any]) -> Iterator[ToolEvent]:
    """A completed item. The calls of plain tools are also response items, with the same id; they count once."""
    kind, call = field(item, "type"), field(item, "id")
    if kind in _ITEMS:
        event_kind, prefix, key, separator = _ITEMS[kind]
        parts = item.get(key)
        text = separator.join(filter(None, map(_part, parts))) if isinstance(parts, list) else ""
        if text.strip():
            yield text_event(event_kind, prefix, text)
    elif kind == "CommandExecution":
        command, code = item.get("command"), item.get("exit_code")
        words = command if isinstance(command, list) else [command]
        yield call_event("exec_command", {"cmd": next((word for word in words[-1:] if isinstance(word, str)), "")}, call)
        event = result_event(RESULT, shortened(field(item, "aggregated_output")), call)
        yield _with_exit(event, code) if isinstance(code, int) else event
    elif kind == "FileChange":
        changes = item.get("changes")
        paths = tuple(changes) if isinstance(changes, dict) else ()
        yield call_event("apply_patch", {"path": list(paths)}, call)._replace(paths=paths)
        failed = field(item, "status") not in ("", "completed")
        yield result_event(FAILURE if failed else RESULT, shortened(field(item, "stdout") or field(item, "stderr")), call)


def _part(part: object) -> str:
    return part if isinstance(part, str) else field(part, "text") if isinstance(part, dict) else ""
