"""Tools whose hook events resemble those of Claude Code, one row each.

Invariant: a row names the events and fields that differ; the rest is parsed as Claude Code's. Hooks report prompts, calls and
results. A row may also have a reader of transcripts, for messages and reasoning of the model, which hooks do not report.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.capture import events
from clia.capture.events import HookReport, ToolEvent, field, text_event
from clia.capture.tools import claude_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    Line = Mapping[str, Any]

MESSAGE = "AssistantMessage"
"""An event that our plug-ins send. ``text`` is the model's message, ``thought`` its reasoning."""


def _as_is(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


def _no_texts(line: Line) -> Iterator[ToolEvent]:
    del line
    yield from ()


def _no_owner(line: Line) -> tuple[str, str]:
    del line
    return "", ""


class FamilyTool(NamedTuple):
    """How a tool differs from Claude Code."""

    name: str
    prefix: str
    fields: Mapping[str, str] = {}  # its field -> the field of Claude Code
    events: Mapping[str, str] = {}  # its event -> the event of Claude Code
    unnamed: str = ""  # the event whose payload has no name
    flat: Callable[[dict[str, Any]], dict[str, Any]] = _as_is  # a payload with all fields of its event at the top
    texts: Callable[[Line], Iterator[ToolEvent]] = _no_texts  # what a transcript line says and thinks
    owner: Callable[[Line], tuple[str, str]] = _no_owner  # the session and the directory that a transcript line names

    def from_hook(self, payload: object) -> HookReport:
        """Parse a hook's payload; ``InvalidInput`` if it names no session or event."""
        fields = self._renamed(payload) if isinstance(payload, dict) else payload
        if isinstance(fields, dict) and fields.get("hook_event_name") == MESSAGE:
            return _message(fields)
        report = claude_code.from_hook(fields)
        # Some tools report an empty prompt whenever they return results to the model.
        remaining = tuple(event for event in report.events if event.what != events.PROMPT or event.text.strip())
        return report._replace(events=remaining)

    def from_line(self, line: Line) -> list[ToolEvent]:
        at = events.time_field(line, "timestamp")
        return [event._replace(at=at) for event in self.texts(line)]

    def _renamed(self, payload: dict[str, Any]) -> dict[str, Any]:
        payload = self.flat(payload)
        fields = {key: value for key, value in payload.items() if key not in self.fields}
        fields |= {self.fields[key]: value for key, value in payload.items() if key in self.fields}
        if field(fields, "parent_agent_id"):  # a sub-agent names itself as the session
            fields["session_id"] = fields["parent_agent_id"]
        if self.unnamed and "agent_id" in fields:
            fields.setdefault("hook_event_name", self.unnamed)
        name = field(fields, "hook_event_name")
        return fields | {"hook_event_name": self.events[name]} if name in self.events else fields


def _message(fields: dict[str, Any]) -> HookReport:
    payload, session, _ = events.session_of(fields)
    sub = events.id_field(payload, "agent_id")
    texts = ((events.THINKING, "thought", field(payload, "thought")), (events.SAID, "say", field(payload, "text")))
    reported = (text_event(kind, prefix, text)._replace(sub=sub) for kind, prefix, text in texts if text.strip())
    return HookReport(session, tuple(reported), events.path_field(payload, "cwd"))


# Copilot CLI


def _copilot_texts(line: Line) -> Iterator[ToolEvent]:
    data = line.get("data")
    if field(line, "type") != "assistant.message" or not isinstance(data, dict):
        return
    for kind, prefix, name in ((events.THINKING, "thought", "reasoningText"), (events.SAID, "say", "content")):
        if field(data, name).strip():
            yield text_event(kind, prefix, field(data, name), field(data, "messageId"))


def _copilot_owner(line: Line) -> tuple[str, str]:
    data = line.get("data")
    if field(line, "type") != "session.start" or not isinstance(data, dict):
        return "", ""
    context = data.get("context")
    return field(data, "sessionId"), field(context, "cwd") if isinstance(context, dict) else ""


# Qwen Code


def _qwen_texts(line: Line) -> Iterator[ToolEvent]:
    message = line.get("message")
    parts = message.get("parts") if field(line, "type") == "assistant" and isinstance(message, dict) else None
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and field(part, "text").strip():
            kind, prefix = (events.THINKING, "thought") if part.get("thought") is True else (events.SAID, "say")
            yield text_event(kind, prefix, field(part, "text"), field(line, "uuid"))


# Cline


_CLINE_EVENTS = {
    "agent_start": "SessionStart",
    "agent_resume": "SessionStart",
    "agent_end": "Stop",
    "agent_abort": "Stop",
    "agent_error": "StopFailure",
    "prompt_submit": "UserPromptSubmit",
    "tool_call": "PreToolUse",
    "tool_result": "PostToolUse",
    "session_shutdown": "SessionEnd",
}
"""The events of the command line. Those of the extension have the names of its hook files, and other fields."""
_CLINE_SUB_EVENTS = {"SessionStart": "SubagentStart", "Stop": "SubagentStop", "StopFailure": "SubagentStop"}
_CLINE_OBJECTS = {"tool_call": "tool_call", "tool_result": "tool_result", "prompt_submit": "userPromptSubmit", "agent_end": "turn"}


def _cline_flat(payload: dict[str, Any]) -> dict[str, Any]:
    name = field(payload, "hookName")
    inner = payload.get(_CLINE_OBJECTS.get(name) or name[:1].lower() + name[1:])
    fields = {**payload, **(inner if isinstance(inner, dict) else {})}
    if name not in _CLINE_EVENTS:
        return fields
    event, context, error = _CLINE_EVENTS[name], payload.get("sessionContext"), payload.get("error")
    if isinstance(context, dict) and field(context, "rootSessionId"):
        fields["taskId"] = context["rootSessionId"]  # `taskId` is another one for each turn
    if field(payload, "parent_agent_id"):
        event = _CLINE_SUB_EVENTS.get(event, event)
    else:
        del fields["agent_id"]  # the session's own
    if isinstance(error, dict):
        fields["error"] = field(error, "message")
    texts, failed = _cline_output(fields.get("output"))
    fields |= {"output": texts, "error": texts} if texts else {}
    return {key: value for key, value in fields.items() if key != "parent_agent_id"} | {
        "hookName": "PostToolUseFailure" if failed else event
    }


def _cline_output(output: object) -> tuple[str, bool]:
    """The texts of a result of the command line, and whether one of its parts failed."""
    parts = [part for part in (output if isinstance(output, list) else [output]) if isinstance(part, dict)]
    texts = [text for part in parts if (text := field(part, "result") or field(part, "error") or field(part, "text"))]
    return "\n".join(texts), any(part.get("success") is False for part in parts)


_CALL_ID = {"tool_call_id": "tool_use_id"}
TOOLS = (
    FamilyTool(
        "copilot",
        "copilot",
        {"tool_result": "tool_response", "sessionId": "session_id", "transcriptPath": "transcript_path"},
        unnamed="SubagentStart",
        texts=_copilot_texts,
        owner=_copilot_owner,
    ),
    FamilyTool("qwen", "qwen", _CALL_ID, texts=_qwen_texts, owner=claude_code.owner),
    FamilyTool("openhands", "openhands", {"event_type": "hook_event_name", "message": "prompt", "working_dir": "cwd"}),
    FamilyTool("kimi", "kimi", {**_CALL_ID, "tool_output": "tool_response", "error_message": "error", "agent_name": "agent_type"}),
    FamilyTool(
        "cline",
        "cline",
        {
            "hookName": "hook_event_name",
            "taskId": "session_id",
            "toolName": "tool_name",
            "parameters": "tool_input",
            "result": "tool_response",
            "executionTimeMs": "duration_ms",
            "name": "tool_name",
            "id": "tool_use_id",
            "input": "tool_input",
            "output": "tool_response",
            "durationMs": "duration_ms",
            "outputText": "last_assistant_message",
        },
        {"TaskStart": "SessionStart", "TaskResume": "SessionStart", "TaskComplete": "Stop", "TaskCancel": "Stop"},
        flat=_cline_flat,
    ),
    FamilyTool("opencode", "opencode"),
    FamilyTool("amp", "amp"),
)
