"""What happened in a session of a tool, in one form for every tool.

Invariant: an event that both a hook and a transcript tell of has the same key in both, so that it counts once. Texts that
have no id of their own are known by their digest and by how often they came before (``nth``). What a tool says is never
trusted: a field of another type counts as missing, and only what names the session must be there; what a record could not hold
(half a character, a number that is none) is made into what it can, so that one odd event is never in the way of others.
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
    from collections.abc import Mapping
    from typing import Any

# What becomes an entry of a trace, by the entry's kind.
PROMPT, SAID, THINKING, CALL, RESULT, FAILURE, NOTE = (
    "prompt",
    "said",
    "thinking",
    "tool-call",
    "tool-result",
    "tool-failure",
    "note",
)
# What begins or ends something.
START, SUB_START, SUB_STOP, TURN_END, END = "start", "sub-start", "sub-stop", "turn-end", "end"
BOUNDS = frozenset((START, SUB_START, SUB_STOP, TURN_END, END))

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
    """One thing that happened. ``key`` None: nothing else tells of it, and the hook's own record is its key."""

    what: str
    text: str = ""
    key: str | None = None
    counted: str | None = None  # a digest, where the key is to be ``<counted>:<nth>``
    data: Mapping[str, Any] = {}
    at: str | None = None  # when, as the tool says
    sub: str = ""  # the tool's id of the sub-agent that it is of; none: of the session itself
    paths: tuple[str, ...] = ()  # files that it says it writes
    message: str = ""  # the tool's id of the message that it is a part of


class HookReport(NamedTuple):
    """What one hook told."""

    session: str
    events: tuple[ToolEvent, ...]
    cwd: str | None = None
    transcript: str | None = None  # the session's own
    sub_transcript: str | None = None  # that of the sub-agent that the events are of
    sub_kind: str = ""


def field(payload: Mapping[str, Any], name: str) -> str:
    """A text field; anything else counts as none."""
    found = payload.get(name)
    return whole(found) if isinstance(found, str) else ""


def whole(text: str) -> str:
    """A text without halves of characters, which JSON can say and nothing can keep."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def id_field(payload: Mapping[str, Any], name: str) -> str:
    """An id; one that could not be one is known by its digest."""
    found = field(payload, name)
    return found if found.isprintable() and len(found) <= _ID_MAX else digest(found)


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def path_field(payload: Mapping[str, Any], name: str) -> str | None:
    """A path that could be one."""
    found = field(payload, name)
    return found if found and "\0" not in found else None


def time_field(payload: Mapping[str, Any], name: str) -> str | None:
    """A time in the one form that all the tools use, so that two can be compared as texts."""
    found = field(payload, name)
    return found if _TIME.fullmatch(found) else None


def session_of(payload: object) -> tuple[dict[str, Any], str, str]:
    """A hook's payload, its session and its event's name; ``InvalidInput`` where it names none."""
    if not isinstance(payload, dict):
        raise InvalidInput("the event is no JSON object", code="invalid-event", fields={"field": ""})
    for name in ("session_id", "hook_event_name"):
        found = payload.get(name)
        if not isinstance(found, str) or not found.strip() or len(found) > _ID_MAX or not found.isprintable():
            raise InvalidInput(f"the event has no {name} that could be one", code="invalid-event", fields={"field": name})
    return payload, payload["session_id"], payload["hook_event_name"]


def digest(text: str) -> str:
    """A text as it is known again; white space at its ends does not count."""
    return hashlib.sha256(text.strip().encode("utf-8", "surrogatepass")).hexdigest()[:24]


def key_or_digest(prefix: str, given: object, text: str) -> tuple[str | None, str | None]:
    """The key and the counted digest of something that has an id, or else only its text."""
    if isinstance(given, str) and given:
        return f"{prefix}:{given if _ID.fullmatch(given) else digest(given)}", None
    return None, f"{prefix}:{digest(text)}"


def shortened(text: str, limit: int = TEXT_MAX) -> str:
    kept = whole(text)
    if len(kept) <= limit:
        return kept
    # Half of a secret is not known again: what lies at the cut is cleaned before it.
    clean = redact(kept[: limit + _SECRET_MAX]).text
    return f"{clean[:limit]}\n[cut: {len(kept) - limit} more characters]"


def small(value: Any, depth: int = 0) -> Any:
    """A JSON value without its long texts, long lists and depths: the files themselves are in the commits."""
    if isinstance(value, str):
        return shortened(value, VALUE_MAX)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) >= _EXACT:
        return shortened(hex(value), VALUE_MAX)  # as a decimal, Python would refuse a very long one
    if depth >= _DEPTH and isinstance(value, (dict, list)):
        return f"[cut: {type(value).__name__}]"
    if isinstance(value, dict):
        kept = {shortened(str(key), _ID_MAX): small(each, depth + 1) for key, each in list(value.items())[:_ITEMS]}
        return kept if len(value) <= _ITEMS else kept | {"[cut]": len(value) - _ITEMS}
    if isinstance(value, list):
        listed = [small(each, depth + 1) for each in value[:_ITEMS]]
        return listed if len(value) <= _ITEMS else [*listed, f"[cut: {len(value) - _ITEMS} more]"]
    return value


def as_text(value: Any, depth: int = 0) -> str:
    """What a tool gave back, as people read it: its text where it has one, else JSON."""
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, list) and value and all(isinstance(each, dict) and isinstance(each.get("text"), str) for each in value):
        return shortened("\n".join(each["text"] for each in value))
    if isinstance(value, dict):
        streams = [value[name] for name in ("stdout", "stderr", "output", "llmContent") if isinstance(value.get(name), str)]
        if any(streams):
            return shortened("\n".join(each for each in streams if each))
        inner = value.get("file")
        if isinstance(inner, dict) and isinstance(inner.get("content"), str):
            return shortened(inner["content"])
        if isinstance(value.get("content"), (str, list)) and value["content"] and depth < _DEPTH:
            return as_text(value["content"], depth + 1)
    return "" if value is None else shortened(json.dumps(small(value), ensure_ascii=False, sort_keys=True))


_TELLING = ("command", "cmd", "file_path", "path", "notebook_path", "pattern", "query", "url", "description", "prompt")


def call_line(tool: str, given: Any) -> str:
    """A tool call in one line: the tool, and what says most about the call."""
    said = ""
    if isinstance(given, dict):
        found = next((given[name] for name in _TELLING if isinstance(given.get(name), (str, list)) and given[name]), "")
        said = found if isinstance(found, str) else " ".join(str(each) for each in found)
    elif isinstance(given, str):
        said = given
    return shortened(f"{tool}: {said}" if said else tool, VALUE_MAX)


_WRITING = ("file_path", "notebook_path")


def written(tool: str, given: Any, writers: frozenset[str]) -> tuple[str, ...]:
    """The files that a call says it writes."""
    if tool not in writers or not isinstance(given, dict):
        return ()
    return tuple(found for name in _WRITING if (found := path_field(given, name)))


# What every tool tells alike


def session_end(said: Mapping[str, Any]) -> list[ToolEvent]:
    return [ToolEvent(END, field(said, "reason") or "other")]


_COMMON = ("session_id", "transcript_path", "cwd", "hook_event_name")


def unknown_event(said: Mapping[str, Any]) -> list[ToolEvent]:
    """An event of a name that we do not know: a note with all that it says."""
    name = field(said, "hook_event_name")
    rest = {key: each for key, each in said.items() if key not in _COMMON}
    return [ToolEvent(NOTE, name, data={"event": name, "payload": small(rest)})]
