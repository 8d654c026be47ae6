"""Events of a tool's session, in one form for all tools.

Invariant: an event that both a hook and a transcript report has the same key in both, so it is recorded once. A text without an
id is identified by its digest and its number of occurrences. Input is not trusted: a field of the wrong type counts as missing,
and only the session is required. Values that cannot be stored (lone surrogates, NaN) are replaced, so one odd event blocks no
other.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.redaction.secrets import redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

# Events that become trace entries, named by the entry's kind.
PROMPT, SAID, THINKING, NOTE = "prompt", "said", "thinking", "note"
CALL, RESULT, FAILURE = "tool-call", "tool-result", "tool-failure"
# Events that start or end something.
START, SUB_START, SUB_STOP, TURN_END, END = "start", "sub-start", "sub-stop", "turn-end", "end"
BOUNDS = frozenset((START, SUB_START, SUB_STOP, TURN_END, END))

MODEL_ERROR = {"event": "error"}
"""The data of a note about an error of the model."""
INTERRUPTED = {"event": "interrupted"}
"""The data of a note that a person interrupted the turn."""
_INTERNAL = re.compile(r"a[a-z_]+-[0-9a-f]+")
_DELEGATING = frozenset(("Agent", "Task", "SendMessage", "task", "agent", "invoke_agent", "spawn_agent"))
_READING = frozenset(
    (
        *("Read", "Grep", "Glob", "WebFetch", "WebSearch", "ToolSearch", "TaskOutput"),
        *("read", "grep", "glob", "list", "view", "webfetch", "read_file", "list_directory", "search_file_content", "web_fetch"),
        "read_agent",
    )
)
# Codex puts the namespace of a tool before its name, such as `multi_agent_v1wait_agent`.
_DELEGATING_OF_CODEX = re.compile(r"(spawn|resume)_agents?$|send_(input|message)$")
_READING_OF_CODEX = re.compile(r"(wait|list|interrupt|close)_agents?$")

TEXT_MAX = 64 * 1024
VALUE_MAX = 4 * 1024
_DEPTH = 12
_ITEMS = 200
_ID_MAX = 200
_ID = re.compile(r"[!-~]{1,200}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
_EXACT = 2**53
_SECRET_MAX = 8 * 1024


class ToolEvent(NamedTuple):
    """One event. ``key`` None: only this hook reports it, and its record is the key."""

    what: str
    text: str = ""
    key: str | None = None
    counted: str | None = None  # a digest, if the key is ``<counted>:<nth>``
    data: Mapping[str, Any] = {}
    at: str | None = None  # the tool's timestamp
    sub: str = ""  # the tool's id of the sub-agent; empty: the session itself
    paths: tuple[str, ...] = ()  # files that a call says it writes
    message: str = ""  # the tool's id of the message it is part of
    texts: tuple[str, ...] = ()  # what a call that names files writes to them


class HookReport(NamedTuple):
    """What one hook reported."""

    session: str
    events: tuple[ToolEvent, ...]
    cwd: str | None = None
    transcript: str | None = None  # the session's
    sub_transcript: str | None = None  # the sub-agent's, if the events are a sub-agent's
    sub_kind: str = ""


def field(payload: Mapping[str, Any], name: str) -> str:
    """A text field; "" for any other type."""
    value = payload.get(name)
    return whole(value) if isinstance(value, str) else ""


def text_fields(payload: Mapping[str, Any], *names: str) -> dict[str, str]:
    """The text fields of these names that are not empty."""
    return {name: text for name in names if (text := field(payload, name))}


def whole(text: str) -> str:
    """A text without lone surrogates, which JSON allows and no store accepts."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def id_field(payload: Mapping[str, Any], name: str) -> str:
    """An id field; an implausible id is replaced by its digest."""
    text = field(payload, name)
    return text if text.isprintable() and len(text) <= _ID_MAX else digest(text)


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def is_delegating(tool: object) -> bool:
    """Whether a tool lets a sub-agent begin to work."""
    return isinstance(tool, str) and (tool in _DELEGATING or _DELEGATING_OF_CODEX.search(tool) is not None)


def is_reading(tool: object) -> bool:
    """Whether a tool changes no file of the directory itself: it reads, waits, or delegates."""
    waits = isinstance(tool, str) and _READING_OF_CODEX.search(tool) is not None
    return tool in _READING or waits or is_delegating(tool)


def is_internal(sub: str) -> bool:
    """Whether a sub-agent is the tool's own, such as the one of Claude Code that compacts a conversation."""
    return _INTERNAL.fullmatch(sub) is not None


def path_field(payload: Mapping[str, Any], name: str) -> str | None:
    """A path field, or None if it cannot be a path."""
    path = field(payload, name)
    return path if path and "\0" not in path else None


def time_field(payload: Mapping[str, Any], name: str) -> str | None:
    """A timestamp in the format that all tools use, so timestamps compare as texts."""
    text = field(payload, name)
    return text if _TIME.fullmatch(text) else None


def session_of(payload: object) -> tuple[dict[str, Any], str, str]:
    """A hook's payload, session and event name; ``InvalidInput`` if one is missing."""
    if not isinstance(payload, dict):
        raise InvalidInput("the event is not a JSON object", code="invalid-event", fields={"field": ""})
    for name in ("session_id", "hook_event_name"):
        value = payload.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > _ID_MAX or not value.isprintable():
            raise InvalidInput(f"the event has no valid {name}", code="invalid-event", fields={"field": name})
    return payload, payload["session_id"], payload["hook_event_name"]


def digest(text: str) -> str:
    """The digest that identifies a text, ignoring white space at its ends."""
    return hashlib.sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()[:24]


def key_or_digest(prefix: str, identifier: object, text: str) -> tuple[str | None, str | None]:
    """The key of something with an id, or the counted digest of its text."""
    if isinstance(identifier, str) and identifier:
        return f"{prefix}:{identifier if _ID.fullmatch(identifier) else digest(identifier)}", None
    return None, f"{prefix}:{digest(text)}"


def shortened(text: str, limit: int = TEXT_MAX) -> str:
    text = whole(text)
    if len(text) <= limit:
        return text
    # Redaction cannot recognise half a secret: redact around the cut before cutting.
    clean = redact(text[: limit + _SECRET_MAX]).text
    return f"{clean[:limit]}\n[cut: {len(text) - limit} more characters]"


def small(value: Any, depth: int = 0) -> Any:
    """A JSON value without long texts, long lists and deep nesting: the files themselves are in the commits."""
    if isinstance(value, str):
        return shortened(value, VALUE_MAX)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) >= _EXACT:
        return shortened(hex(value), VALUE_MAX)  # Python refuses to convert very long integers
    if depth >= _DEPTH and isinstance(value, (dict, list)):
        return f"[cut: {type(value).__name__}]"
    if isinstance(value, dict):
        members = {shortened(str(key), _ID_MAX): small(member, depth + 1) for key, member in list(value.items())[:_ITEMS]}
        return members if len(value) <= _ITEMS else members | {"[cut]": len(value) - _ITEMS}
    if isinstance(value, list):
        items = [small(item, depth + 1) for item in value[:_ITEMS]]
        return items if len(value) <= _ITEMS else [*items, f"[cut: {len(value) - _ITEMS} more]"]
    return value


def as_text(value: Any, depth: int = 0) -> str:
    """A tool's result for people: its text if it has one, else JSON."""
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, list) and value and all(isinstance(item, dict) and isinstance(item.get("text"), str) for item in value):
        return shortened("\n".join(item["text"] for item in value))
    if isinstance(value, dict):
        streams = [
            value[name]
            for name in ("stdout", "stderr", "output", "llmContent", "text_result_for_llm")
            if isinstance(value.get(name), str)
        ]
        if any(streams):
            return shortened("\n".join(filter(None, streams)))
        inner = value.get("file")
        if isinstance(inner, dict) and isinstance(inner.get("content"), str):
            return shortened(inner["content"])
        if isinstance(value.get("content"), (str, list)) and value["content"] and depth < _DEPTH:
            return as_text(value["content"], depth + 1)
    return "" if value is None else shortened(json.dumps(small(value), ensure_ascii=False, sort_keys=True))


_TELLING = (
    *("command", "commands", "cmd", "file_path", "path", "filePath", "notebook_path"),
    *("pattern", "query", "url", "description", "prompt", "task"),
)


def call_line(tool: str, arguments: Any) -> str:
    """A tool call in one line: the tool and its most telling argument."""
    argument = arguments
    if isinstance(arguments, dict):
        argument = next(
            (arguments[name] for name in _TELLING if isinstance(arguments.get(name), (str, list)) and arguments[name]), ""
        )
        argument = argument if isinstance(argument, str) else " ".join(map(str, argument))
    return shortened(f"{tool}: {argument}" if isinstance(argument, str) and argument else tool, VALUE_MAX)


def written(tool: str, arguments: Any, writers: frozenset[str]) -> tuple[str, ...]:
    """The files that a call says it writes."""
    if tool not in writers or not isinstance(arguments, dict):
        return ()
    return tuple(path for name in ("file_path", "notebook_path", "path", "filePath") if (path := path_field(arguments, name)))


# Events that all tools report in the same way


def start_event(payload: Mapping[str, Any], *names: str) -> ToolEvent:
    """The start of a session, with these fields of the payload."""
    source = field(payload, "source") or "startup"
    return ToolEvent(START, f"session started: {source}", data={"source": source, **text_fields(payload, *names)})


def text_event(kind: str, prefix: str, text: str, message: str = "") -> ToolEvent:
    """A text without an id, identified by its digest."""
    return ToolEvent(kind, shortened(text), counted=f"{prefix}:{digest(text)}", message=message)


def call_event(tool: str, arguments: Any, call: str, writers: frozenset[str] = frozenset()) -> ToolEvent:
    line = call_line(tool or "tool", arguments)
    data = {"tool": tool, "id": call, "input": small(arguments)}
    paths = written(tool, arguments, writers)
    texts = tuple(_texts(arguments)) if paths else ()
    return ToolEvent(CALL, line, *key_or_digest("call", call, line), data, paths=paths, texts=texts)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """The texts in the arguments of a call, but those that it replaces."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _DEPTH:
        for item in value:
            yield from _texts(item, depth + 1)
    elif isinstance(value, dict) and depth < _DEPTH:
        for key, member in value.items():
            if not str(key).startswith("old"):
                yield from _texts(member, depth + 1)


def result_event(kind: str, text: str, call: str) -> ToolEvent:
    return ToolEvent(kind, text, *key_or_digest("result", call, text), {"id": call})


def end_event(payload: Mapping[str, Any]) -> ToolEvent:
    return ToolEvent(END, field(payload, "reason") or "other")


_COMMON = ("session_id", "transcript_path", "cwd", "hook_event_name")


def unknown_event(payload: Mapping[str, Any]) -> ToolEvent:
    """An unknown event, as a note with its payload."""
    name = field(payload, "hook_event_name")
    fields = {key: value for key, value in payload.items() if key not in _COMMON}
    return ToolEvent(NOTE, name, data={"event": name, "payload": small(fields)})
