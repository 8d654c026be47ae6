"""The merge of two versions of an agenda, item by item.

Invariant: an item is recognized by its id, so two agents that mark neighbouring items never conflict. A field of an item that both
sides changed differently, an item that one side changed and the other removed, and a version that is not a valid agenda leave the
conflict. What neither side changed keeps its text.
"""

from __future__ import annotations

from typing import Any

from clia.errors import CliaError
from clia.identities.agenda import LISTS, item_key
from clia.identities.merge import same
from clia.values import documents, json_text

_ABSENT = object()


def merge_agendas(path: str, base: bytes | None, ours: bytes, theirs: bytes) -> bytes | None:
    """The merge of two versions of an agenda; None if it cannot be built."""
    try:
        left, right = documents.parse(ours, path), documents.parse(theirs, path)
        merged = _merge_fields(_ancestor(path, base), left, right, top=True)
    except (CliaError, _ContradictoryItems):
        return None
    text = _edited(ours.decode("utf-8"), (), left, merged)
    return text.encode("utf-8") if documents.parse(text.encode("utf-8"), path) == merged else json_text.pretty_bytes(merged)


class _ContradictoryItems(Exception):
    """Both sides changed one value differently."""


def _ancestor(path: str, base: bytes | None) -> dict[str, Any]:
    """The common ancestor. If histories cross, git merges several ancestors, and the result may have conflict markers."""
    try:
        return documents.parse(base, path) if base is not None else {}
    except CliaError:
        return {}


def _merge_fields(ancestor: dict[str, Any], left: dict[str, Any], right: dict[str, Any], *, top: bool = False) -> dict[str, Any]:
    """``top``: these are the fields of the document, not of an item."""
    merged: dict[str, Any] = {}
    lists = LISTS if top else ("items",)
    for key in [*left, *(key for key in right if key not in left)]:
        versions = [version.get(key, _ABSENT) for version in (ancestor, left, right)]
        if key in lists and all(isinstance(version, list) for version in versions[1:]):
            merged[key] = _merge_items(versions[0] if isinstance(versions[0], list) else [], versions[1], versions[2])
            continue
        value = _merge_value(*versions)
        if value is not _ABSENT:
            merged[key] = value
    return merged


def _merge_value(ancestor: Any, left: Any, right: Any) -> Any:
    if _equal(left, right) or _equal(right, ancestor):
        return left
    if _equal(left, ancestor):
        return right
    raise _ContradictoryItems


def _equal(one: Any, other: Any) -> bool:
    return one is other or (_ABSENT not in (one, other) and same(one, other))


def _merge_items(ancestor: list[Any], left: list[Any], right: list[Any]) -> list[Any]:
    """Our items in our order, then those that only they added."""
    old, ours, theirs = map(_by_id, (ancestor, left, right))
    merged = []
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        value = _merge_item(old.get(key, _ABSENT), ours.get(key, _ABSENT), theirs.get(key, _ABSENT))
        if value is not _ABSENT:
            merged.append(value)
    return merged


def _by_id(items: list[Any]) -> dict[tuple[str, int], Any]:
    """Items by id; those with one id are numbered."""
    counts: dict[str, int] = {}
    keyed = {}
    for item in items:
        name = item_key(item)
        counts[name] = counts.get(name, 0) + 1
        keyed[name, counts[name]] = item
    return keyed


def _merge_item(ancestor: Any, left: Any, right: Any) -> Any:
    try:
        return _merge_value(ancestor, left, right)
    except _ContradictoryItems:
        if _ABSENT in (left, right):
            raise  # one side changed what the other removed
    objects = [_as_object(item) for item in (ancestor, left, right)]
    if any(item is None for item in objects[1:]):
        raise _ContradictoryItems
    return _merge_fields(objects[0] or {}, objects[1] or {}, objects[2] or {})


def _as_object(item: Any) -> dict[str, Any] | None:
    """An item as an object: a text becomes one when it is marked as done."""
    if isinstance(item, str):
        return {"title": item.strip()}
    return item if isinstance(item, dict) else None


def _edited(text: str, at: tuple[str | int, ...], before: Any, after: Any) -> str:
    """The text of our version with the values that differ replaced, as deep as possible."""
    if _equal(before, after):
        return text
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() <= after.keys():
        for key in before:
            text = _edited(text, (*at, key), before[key], after[key])
        for key in [key for key in after if key not in before]:
            text = json_text.add(text, at, after[key], key)
        return text
    if isinstance(before, list) and isinstance(after, list) and len(after) >= len(before):
        for index, value in enumerate(before):
            text = _edited(text, (*at, index), value, after[index])
        for value in after[len(before) :]:
            text = json_text.add(text, at, value)
        return text
    return json_text.put(text, at, after) if at else json_text.pretty_bytes(after).decode("utf-8")
