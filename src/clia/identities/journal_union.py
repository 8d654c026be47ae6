"""The merge of two versions of a journal: both sides' entries, each once.

Invariant: the entries are the same whichever side is merged into the other. Entries of the common ancestor come first, then the
new ones by time; those of one second stay in the order in which their side wrote them. An entry that one side removed stays
removed. Other fields are merged by value; if both sides changed one of them differently, or a version is not a valid journal, there
is no union, and the conflict stays.
"""

from __future__ import annotations

import re
from typing import Any

from clia.errors import CliaError
from clia.identities.contexts import AGENCY, kind_of
from clia.values import documents
from clia.values.canonical import digest
from clia.values.json_text import append_to_array, pretty_bytes

_DOCUMENT = re.compile(r"(?:.*/)?\.clia/agents/[^/]+/[^/]+", re.DOTALL)
_ABSENT = object()


def is_journal(path: str) -> bool:
    """Whether a path of a tree is an agency document of an identity."""
    return is_document(path, AGENCY)


def is_document(path: str, kind: str) -> bool:
    """Whether a path of a tree is a document of an identity of one kind."""
    return kind_of(path) == kind and _DOCUMENT.fullmatch(path) is not None


def merge_journals(path: str, base: bytes | None, ours: bytes, theirs: bytes) -> bytes | None:
    """The union of two versions of a journal; None if it cannot be built."""
    try:
        left, right = documents.parse(ours, path), documents.parse(theirs, path)
        merged = _merge_fields(_ancestor(path, base), left, right)
    except (CliaError, _CannotMerge):
        return None
    before = left.get("entries") or []
    added = merged["entries"][len(before) :]
    others_differ = any(merged.get(key, _ABSENT) != left.get(key, _ABSENT) for key in {*merged, *left} - {"entries"})
    if not others_differ and merged["entries"][: len(before)] == before:
        return append_to_array(ours.decode("utf-8"), "entries", added).encode("utf-8") if added else ours
    return pretty_bytes(merged)


def _ancestor(path: str, base: bytes | None) -> dict[str, Any]:
    """The common ancestor. If histories cross, git merges several ancestors, and the result may have conflict markers."""
    try:
        ancestor = documents.parse(base, path) if base is not None else {}
    except CliaError:
        return {}
    return ancestor if isinstance(ancestor.get("entries"), list) else {}


class _CannotMerge(Exception):
    """Both sides changed one field differently, or the entries are not a list."""


def _merge_fields(ancestor: dict[str, Any], left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key in [*left, *(key for key in right if key not in left)]:
        if key == "entries":
            merged[key] = _union(*(_entries(version) for version in (ancestor, left, right)))
        else:
            value = _merge_value(*(version.get(key, _ABSENT) for version in (ancestor, left, right)))
            if value is not _ABSENT:
                merged[key] = value
    merged.setdefault("entries", [])
    return merged


def _merge_value(ancestor: Any, left: Any, right: Any) -> Any:
    if right in (left, ancestor):
        return left
    if left == ancestor:
        return right
    raise _CannotMerge


def _entries(document: dict[str, Any]) -> list[Any]:
    entries = document.get("entries")
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise _CannotMerge
    return entries


def _union(ancestor: list[Any], left: list[Any], right: list[Any]) -> list[Any]:
    old = {digest(entry): entry for entry in ancestor}
    ours, theirs = ({digest(entry): entry for entry in side} for side in (left, right))
    common = [entry for key, entry in old.items() if key in ours and key in theirs]
    new = {key: entry for key, entry in (ours | theirs).items() if key not in old}
    sides = [[key for key in side if key not in old] for side in (ours, theirs)]
    moments = sorted({_moment(entry) for entry in new.values()})
    return common + [new[key] for moment in moments for key in _interleaved(*_of_moment(sides, new, moment))]


def _of_moment(sides: list[list[str]], new: dict[str, Any], moment: str) -> list[list[str]]:
    """What each side wrote in one moment, in its order; the sides in an order that does not depend on which is ours."""
    return sorted([key for key in side if _moment(new[key]) == moment] for side in sides)


def _interleaved(one: list[str], other: list[str]) -> list[str]:
    """Two sequences as one: each element once, after those that its sequences have before it."""
    keys: list[str] = []
    at = 0
    for key in one:
        if key in other[at:]:
            end = other.index(key, at) + 1
            keys += [before for before in other[at : end - 1] if before not in one]
            at = end
        keys.append(key)
    return list(dict.fromkeys(keys + [key for key in other if key not in keys]))


def _moment(entry: Any) -> str:
    moment = entry.get("timestamp") if isinstance(entry, dict) else None
    return moment if isinstance(moment, str) else ""
