"""The merge rule of each field, and the text by which items are compared.

Merging, ``explain`` and the reference documentation all read the table of rules. Invariant: the same content gives the same
text, whether it is written as a string or as an object.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from clia.identities.contexts import AGENCY, AGENDA, AGENT

# Strategies
LAST = "last-non-empty"
UNION = "union"
UNION_BY_TEXT = "union-by-text"
BY_TYPE = "union-by-type"
BY_LINK = "union-by-title-and-url"
WHOLE = "last-non-empty-whole"
LOCAL = "innermost-document-only"
REQUEST = "as-asked-for"
DEEP = "deep"

# The merged profile marks waived guardrails here; the key is ignored in documents.
MARKS = "waivedGuardrails"

# Required shape of a value; None: any
STRING, LIST, OBJECT, LIST_OR_OBJECT = "a string", "an array", "an object", "an array or an object"


class MergeRule(NamedTuple):
    strategy: str
    shape: str | None
    story: str


_LAST = MergeRule(LAST, STRING, "the innermost non-empty value wins")
_UNION = MergeRule(UNION, LIST, "all items, outermost first, without duplicates")
_UNION_BY_TEXT = MergeRule(
    UNION_BY_TEXT, LIST, "all items, outermost first, without duplicates; a string equals an object with the same text"
)

RULES: dict[str, MergeRule] = {
    "slug": MergeRule(REQUEST, STRING, "always the requested slug"),
    **dict.fromkeys(
        (
            "schemaVersion", "title", "subtitle", "purpose", "role", "status", "updated", "profileType", "emoji", "scope",
            "sourcePath", "avatarPath",
        ),
        _LAST,
    ),
    # Compared exactly: an object must not replace an outer guardrail.
    **dict.fromkeys(("guardrails", "waivers", "entries", "tags", "emojiTags", "operationModes"), _UNION),
    **dict.fromkeys(
        (
            "mentors", "responsibilities", "sections", "checklists", "principles", "themes", "horizons", "initiatives",
            "milestones", "backlog", "dependencies", "risks", "focusDomains",
        ),
        _UNION_BY_TEXT,
    ),
    "contributionMix": MergeRule(BY_TYPE, LIST_OR_OBJECT, "one item per type, in order of first appearance; the innermost wins"),
    "links": MergeRule(BY_LINK, LIST, "one link per (title, url) pair, in order of first appearance; the innermost wins"),
    "notes": MergeRule(WHOLE, None, "the innermost non-empty notes win as a whole"),
    "extensions": MergeRule(WHOLE, OBJECT, "the innermost non-empty extensions win as a whole"),
    "rootChain": MergeRule(LOCAL, OBJECT, "only the innermost agent document's root chain counts"),
    "persona": MergeRule(DEEP, OBJECT, "merged key by key; the innermost value wins"),
    "agent": MergeRule(DEEP, OBJECT, "merged key by key; the innermost value wins"),
}  # fmt: skip

DEFAULT_RULE = MergeRule(DEEP, None, "objects merge key by key; otherwise the innermost non-empty value wins")

# Fields that every merged document has; null if no layer provides a value.
ALWAYS = {
    AGENT: ("schemaVersion", "slug", "title", "purpose", "role", "status", "updated"),
    AGENDA: ("schemaVersion", "slug", "title", "status", "updated"),
    AGENCY: ("schemaVersion", "slug", "title", "status", "updated"),
}


def rule_for(field: str) -> MergeRule:
    return RULES.get(field, DEFAULT_RULE)


_LABEL_KEYS = ("title", "label", "name", "text", "summary", "statement", "slug", "identifier", "key", "id")


def projected_lines(item: Any) -> list[str]:
    """The lines of an array item: ``Title: item`` for sections and checklists, ``Title (due: D)`` for milestones."""
    if isinstance(item, str):
        return [item] if item.strip() else []
    if not isinstance(item, dict):
        return [] if item is None else [json.dumps(item, ensure_ascii=False)]
    title = label_of(item)
    children = item.get("items")
    if isinstance(children, list):
        inner = [line for child in children for line in projected_lines(child)]
        if inner:
            return [f"{title}: {line}" if title else line for line in inner]
    if not title:
        return [json.dumps(item, ensure_ascii=False, sort_keys=True)] if item else []
    for key in ("due", "window", "level"):
        value = item.get(key)
        if isinstance(value, str) and value.strip():
            return [f"{title} ({key}: {value})"]
    return [title]


def projected_text(item: Any) -> str:
    """The lines of an item as one string, which unions compare."""
    return "\n".join(projected_lines(item))


def label_of(item: dict[str, Any]) -> str:
    """The label of an object: the first non-empty value of the usual keys."""
    for key in _LABEL_KEYS:
        value = item.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def contribution_weight(item: Any) -> Any:
    """A contribution's weight, 1 by default."""
    weight = item.get("weight") if isinstance(item, dict) else None
    return 1 if weight is None else weight


def contribution_type(item: Any) -> str | None:
    """A contribution's type, from an object or a plain string."""
    kind = item.get("type") if isinstance(item, dict) else item
    return kind if isinstance(kind, str) and kind.strip() else None
