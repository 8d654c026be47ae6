"""Typed objects: briefings, console traces, behaviours, and any JSON object with a ``type``.

Invariant: an object is canonical JSON (RFC 8785) with a ``type`` key, so that the same object has the same bytes and the same id
in every space.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypedDict

from clia.errors import InvalidInput
from clia.values.canonical import canonical_bytes, digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.verbs import Text

SESSION_FLOW, PROMPT, IDENTITY_DOCUMENT = BEHAVIOUR_KINDS = ("session-flow", "prompt", "identity-document")


class Briefing(NamedTuple):
    """The task that an agent is spawned with."""

    title: Text  # one line
    text: Text = ""  # the task, in Markdown
    behaviour: Text | None = None  # id of the prompt that it was rendered from
    meta: Mapping[str, Any] | None = None  # additional fields

    def to_object(self) -> dict[str, Any]:
        behaviour = {} if self.behaviour is None else {"behaviour": self.behaviour}
        return {"type": "briefing", "title": self.title, "text": self.text, **behaviour, **_meta(self.meta)}


class EntryFields(TypedDict, total=False):
    """An entry of a trace; tools may add fields."""

    at: str  # when it was recorded
    kind: str  # kind of entry
    text: str  # without secrets
    data: Any  # additional data of a program
    cut: int  # only if the text was shortened: its original number of characters
    redacted: int  # only if secrets were removed: how many


TraceEntry = Annotated[Mapping[str, Any], EntryFields]


class ConsoleTrace(NamedTuple):
    """The console of an agent between two of its commits, bound to the later one."""

    commit: str  # the commit that it is bound to
    agent: str  # the agent
    entries: tuple[TraceEntry, ...] = ()  # oldest first

    def to_object(self) -> dict[str, Any]:
        entries = [dict(entry) for entry in self.entries]
        return {"type": "console-trace", "commit": self.commit, "agent": self.agent, "entries": entries}


def trace_digest(entries: Any) -> str:
    """The digest of a trace's entries, which the trace's commit names."""
    return f"sha256:{digest(entries)}"


class Behaviour(NamedTuple):
    """A version of a behaviour: the source of a flow, a prompt, or an identity's document.

    ``parent`` is the id of the version it derives from, if any.
    """

    name: str
    kind: str
    body: str
    meta: Mapping[str, Any] | None = None
    parent: str | None = None
    notes: str = ""

    def to_object(self) -> dict[str, Any]:
        parent = {} if self.parent is None else {"parent": self.parent}
        notes = {"notes": self.notes} if self.notes else {}
        return {"type": "behaviour", "name": self.name, "kind": self.kind, "body": self.body, **parent, **notes, **_meta(self.meta)}


def _meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"meta": dict(meta)} if meta else {}


TypedObject = Briefing | ConsoleTrace | Behaviour


def as_object(value: TypedObject | Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object of a typed object, checked; ``InvalidInput`` names the invalid field."""
    if isinstance(value, TypedObject):
        value = value.to_object()
    elif not isinstance(value, dict):
        raise invalid("object", "a typed object is a clia.Briefing, ConsoleTrace or Behaviour, or an object with a 'type'")
    body = dict(value)
    kind = body.get("type")
    if not isinstance(kind, str):
        raise invalid("type", "a typed object needs a 'type', a string")
    for field, types in _FIELDS.get(kind, {}).items():
        if not isinstance(body.get(field), types):
            raise invalid(field, f"the {field} of a {kind} must be {'a list' if types is list else 'a string'}")
    if kind == "briefing" and not body["title"].strip():
        raise invalid("title", "a briefing needs a title")
    if kind == "behaviour":
        if body["kind"] not in BEHAVIOUR_KINDS:
            raise invalid("kind", f"the kind of a behaviour is {' or '.join(BEHAVIOUR_KINDS)}, not {body['kind']!r}")
        for field in ("parent", "notes"):
            if not isinstance(body.get(field, ""), str):
                raise invalid(field, f"the {field} of a behaviour must be a string")
    return body


_FIELDS: dict[str, dict[str, type]] = {
    "briefing": {"title": str, "text": str},
    "console-trace": {"commit": str, "agent": str, "entries": list},
    "behaviour": {"name": str, "kind": str, "body": str},
}


def as_bytes(body: Mapping[str, Any]) -> bytes:
    """The canonical bytes of an object; ``InvalidInput`` if it is not JSON."""
    try:
        return canonical_bytes(body)
    except (ValueError, TypeError, RecursionError) as err:
        raise InvalidInput(f"the object is not JSON: {err}", code="invalid-object") from None


def as_typed(body: Mapping[str, Any]) -> TypedObject | dict[str, Any]:
    """The typed object of a JSON object; the object itself if its type has no class."""
    match body.get("type"):
        case "briefing":
            return Briefing(body["title"], body["text"], body.get("behaviour"), body.get("meta"))
        case "console-trace":
            return ConsoleTrace(body["commit"], body["agent"], tuple(body["entries"]))
        case "behaviour":
            return Behaviour(body["name"], body["kind"], body["body"], body.get("meta"), body.get("parent"), body.get("notes", ""))
    return dict(body)


def parse(data: bytes) -> dict[str, Any] | None:
    """The typed object in a blob; None if it has none, or its bytes are not canonical."""
    try:
        body = json.loads(data)
        return body if isinstance(body, dict) and as_bytes(as_object(body)) == data else None
    except (ValueError, InvalidInput, RecursionError):
        return None


def invalid(field: str, problem: str) -> InvalidInput:
    return InvalidInput(problem, code="invalid-object", fields={"field": field})
