"""Gemini CLI: hook events and chats (as of 0.61.0).

Invariant: Gemini's hooks give no ids that match its chats, so each kind of record is read from only one of the two. Hooks report
prompts, calls, results and the last message, each record once; a result belongs to the last call of the same tool, and calls of
sub-agents cannot be told from the session's. Chats have the thoughts, and those of sub-agents what they were asked and said. A
changed message is written again with the same id.
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
    return HookReport(session, reported, events.path_field(fields, "cwd"), events.path_field(fields, "transcript_path"))


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
        case "PreCompress":
            if field(payload, "trigger") == "manual":  # it also runs before every request, to check whether to compress
                yield ToolEvent(events.NOTE, "compressed (manual)", data={"event": name})
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


def owner(line: Mapping[str, Any]) -> tuple[str, str]:
    """The session or sub-agent that a chat's first line names, and the directory, which only that of a sub-agent has."""
    directories = line.get("directories")
    place = directories[0] if isinstance(directories, list) and directories else ""
    return field(line, "sessionId"), place if isinstance(place, str) else ""


def sub_folder(transcript: str, session: str) -> tuple[str, str]:
    """The folder with the chats of the sub-agents, whose names have no prefix."""
    folder, _, name = transcript.rpartition("/")
    return (f"{folder}/{session}", "") if name.endswith(".jsonl") else ("", "")


def from_line(line: Mapping[str, Any]) -> list[ToolEvent]:
    """The thoughts in a line of a chat."""
    message, thoughts = field(line, "id"), line.get("thoughts")
    if field(line, "type") != "gemini" or not message or not isinstance(thoughts, list):
        return []
    texts = [(number, thought, _thought(thought)) for number, thought in enumerate(thoughts) if isinstance(thought, dict)]
    return [
        ToolEvent(
            events.THINKING, text, f"thought:{events.id_field(line, 'id')}:{number}", at=events.time_field(thought, "timestamp")
        )
        for number, thought, text in texts
        if text
    ]


def _thought(thought: Mapping[str, Any]) -> str:
    subject, description = field(thought, "subject").strip(), field(thought, "description").strip()
    return shortened(description if description.startswith(subject) else f"{subject}: {description}".rstrip(": "))


def from_sub_line(line: Mapping[str, Any]) -> list[ToolEvent]:
    """What a sub-agent was asked, thought and said. Hooks report its calls as the session's."""
    at, kind = events.time_field(line, "timestamp"), {"user": events.PROMPT, "gemini": events.SAID}.get(field(line, "type"))
    content = line.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [text for part in parts if isinstance(part, dict) and (text := field(part, "text")).strip()]
    if kind is None or not field(line, "id") or not texts:
        return from_line(line)
    text = texts[-1] if kind == events.PROMPT else "\n".join(texts)  # the context comes before the task
    return [*from_line(line), ToolEvent(kind, shortened(text), f"{kind}:{events.id_field(line, 'id')}", at=at)]
