"""One line of text for each thing a triad can hold, written as a string or as an object.

Invariant: the same content gives the same lines, whichever of the accepted shapes it came in.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMES = ("title", "label", "name", "text", "summary", "statement", "slug", "identifier", "key", "id")


def lines(item: Any) -> list[str]:
    """The lines of one array item: ``Title: item`` for sections and checklists, ``T (due: D)`` for milestones."""
    if isinstance(item, str):
        return [item] if item.strip() else []
    if not isinstance(item, dict):
        return [] if item is None else [json.dumps(item, ensure_ascii=False)]
    title = name_of(item)
    children = item.get("items")
    if isinstance(children, list):
        inner = [line for child in children for line in lines(child)]
        if inner:
            return [f"{title}: {line}" if title else line for line in inner]
    if not title:
        return [json.dumps(item, ensure_ascii=False, sort_keys=True)] if item else []
    for key, label in (("due", "due"), ("window", "window"), ("level", "level")):
        value = item.get(key)
        if isinstance(value, str) and value.strip():
            return [f"{title} ({label}: {value})"]
    return [title]


def text(item: Any) -> str:
    """The lines of an item as one string: what a union compares with plain strings."""
    return "\n".join(lines(item))


def name_of(item: dict[str, Any]) -> str:
    """What an object is called, by the first of the usual keys that says something."""
    for key in _NAMES:
        value = item.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def weight_of(item: Any) -> Any:
    """A contribution's weight; one that names none weighs 1."""
    weight = item.get("weight") if isinstance(item, dict) else None
    return 1 if weight is None else weight


def type_of(item: Any) -> str | None:
    """A contribution's type, from an object or a plain string."""
    found = item.get("type") if isinstance(item, dict) else item
    return found if isinstance(found, str) and found.strip() else None
