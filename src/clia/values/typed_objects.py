"""Typed objects: briefings, console traces, behaviours, and any JSON object with a ``type``.

Invariant: an object is canonical JSON (RFC 8785) with a ``type`` key, so the same object has the same bytes, and with them
the same id, in every space.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from clia.errors import InvalidInput
from clia.values.canonical import canonical_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.verbs import Text

SESSION_FLOW, PROMPT = "session-flow", "prompt"


class Briefing(NamedTuple):
    """What an agent is spawned from. ``behaviour`` is the id of the prompt it was rendered from, if any."""

    title: Text
    text: Text = ""
    behaviour: Text | None = None
    meta: Mapping[str, Any] | None = None

    def to_object(self) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "briefing", "title": self.title, "text": self.text}
        if self.behaviour is not None:
            made["behaviour"] = self.behaviour
        if self.meta:
            made["meta"] = dict(self.meta)
        return made


class ConsoleTrace(NamedTuple):
    """What an agent said and saw between two of its commits, bound to the later one."""

    commit: str
    agent: str
    entries: tuple[Mapping[str, Any], ...] = ()

    def to_object(self) -> dict[str, Any]:
        entries = [dict(each) for each in self.entries]
        return {"type": "console-trace", "commit": self.commit, "agent": self.agent, "entries": entries}


class Behaviour(NamedTuple):
    """A skill: the source of a session's flow, or a prompt. ``parent`` is the id of the version it was made from, if any."""

    name: str
    kind: str
    body: str
    meta: Mapping[str, Any] | None = None
    parent: str | None = None
    notes: str = ""

    def to_object(self) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "behaviour", "name": self.name, "kind": self.kind, "body": self.body}
        made |= {"parent": self.parent} if self.parent is not None else {}
        made |= {"notes": self.notes} if self.notes else {}
        if self.meta:
            made["meta"] = dict(self.meta)
        return made


TypedObject = Briefing | ConsoleTrace | Behaviour


def as_object(thing: TypedObject | Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object of a typed object, checked; ``InvalidInput`` names the field that is wrong."""
    made = thing.to_object() if isinstance(thing, (Briefing, ConsoleTrace, Behaviour)) else _as_dict(thing)
    kind = made.get("type")
    if not isinstance(kind, str):
        raise invalid("type", "a typed object needs a 'type', a string")
    for field, types in _FIELDS.get(kind, {}).items():
        if not isinstance(made.get(field), types):
            raise invalid(field, f"the {field} of a {kind} must be {'a list' if types is list else 'a string'}")
    if kind == "briefing" and not made["title"].strip():
        raise invalid("title", "a briefing needs a title")
    if kind == "behaviour":
        _check_behaviour(made)
    return made


def _check_behaviour(made: Mapping[str, Any]) -> None:
    if made["kind"] not in (SESSION_FLOW, PROMPT):
        raise invalid("kind", f"the kind of a behaviour is {SESSION_FLOW} or {PROMPT}, not {made['kind']!r}")
    for field in ("parent", "notes"):
        if not isinstance(made.get(field, ""), str):
            raise invalid(field, f"the {field} of a behaviour must be a string")


def _as_dict(thing: object) -> dict[str, Any]:
    if not isinstance(thing, dict):
        raise invalid("object", "a typed object is a clia.Briefing, ConsoleTrace or Behaviour, or an object with a 'type'")
    return dict(thing)


_FIELDS: dict[str, dict[str, type]] = {
    "briefing": {"title": str, "text": str},
    "console-trace": {"commit": str, "agent": str, "entries": list},
    "behaviour": {"name": str, "kind": str, "body": str},
}


def as_bytes(made: Mapping[str, Any]) -> bytes:
    """The one spelling of an object; ``InvalidInput`` where it is not JSON."""
    try:
        return canonical_bytes(made)
    except (ValueError, TypeError, RecursionError) as err:
        raise InvalidInput(f"the object is not JSON: {err}", code="invalid-object") from None


def as_typed(made: Mapping[str, Any]) -> TypedObject | dict[str, Any]:
    """The typed object that a JSON object describes; the object itself where its type has no class of its own."""
    kind = made.get("type")
    if kind == "briefing":
        return Briefing(made["title"], made["text"], made.get("behaviour"), made.get("meta"))
    if kind == "console-trace":
        return ConsoleTrace(made["commit"], made["agent"], tuple(made["entries"]))
    if kind == "behaviour":
        return Behaviour(made["name"], made["kind"], made["body"], made.get("meta"), made.get("parent"), made.get("notes", ""))
    return dict(made)


def parse(data: bytes) -> dict[str, Any] | None:
    """The typed object in a blob; None where the bytes are none, or not in the one spelling."""
    try:
        made = json.loads(data)
        if not isinstance(made, dict) or as_bytes(as_object(made)) != data:
            return None
    except (ValueError, InvalidInput, RecursionError):
        return None
    return made


def invalid(field: str, problem: str) -> InvalidInput:
    return InvalidInput(problem, code="invalid-object", fields={"field": field})
