"""How each field merges: one table of data.

Invariant: merging, ``explain`` and the reference documentation all read this table; changing a rule changes one line.

=====

One line of text for each thing a triad can hold, written as a string or as an object.

Invariant: the same content gives the same lines, whichever of the accepted shapes it came in.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.identities.contexts import AGENCY, AGENDA, AGENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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

# Where the merged profile marks waived guardrails. No document can say so itself: the key is ignored in every layer.
MARKS = "waivedGuardrails"

# Shapes a value must have to take part; None: anything goes
STRING, LIST, OBJECT, LIST_OR_OBJECT = "a string", "an array", "an object", "an array or an object"


class MergeRule(NamedTuple):
    strategy: str
    shape: str | None
    story: str


_LAST = MergeRule(LAST, STRING, "the most local value that is not empty wins")
_UNION = MergeRule(UNION, LIST, "all items, outer first, each once")
_UNION_BY_TEXT = MergeRule(
    UNION_BY_TEXT, LIST, "all items, outer first, each once; a string that says what an object says is that object"
)

RULES: dict[str, MergeRule] = {
    "slug": MergeRule(REQUEST, STRING, "always the slug that was asked for"),
    **dict.fromkeys(
        (
            "schemaVersion", "title", "subtitle", "purpose", "role", "status", "updated", "profileType", "emoji", "scope",
            "sourcePath", "avatarPath",
        ),
        _LAST,
    ),
    # Exactly what was written: nobody may put an object in the place of an outer guardrail.
    **dict.fromkeys(("guardrails", "waivers", "entries", "tags", "emojiTags", "operationModes"), _UNION),
    **dict.fromkeys(
        (
            "mentors", "responsibilities", "sections", "checklists", "principles", "themes", "horizons", "initiatives",
            "milestones", "backlog", "dependencies", "risks", "focusDomains",
        ),
        _UNION_BY_TEXT,
    ),
    "contributionMix": MergeRule(BY_TYPE, LIST_OR_OBJECT, "one item per type, in order of first appearance; the innermost wins"),
    "links": MergeRule(BY_LINK, LIST, "one link a (title, url) pair, in order of first appearance; the most local wins"),
    "notes": MergeRule(WHOLE, None, "the most local notes that are not empty win whole"),
    "extensions": MergeRule(WHOLE, OBJECT, "the most local extensions that are not empty win whole"),
    "rootChain": MergeRule(LOCAL, OBJECT, "only the innermost agent document's root chain counts"),
    "persona": MergeRule(DEEP, OBJECT, "merged key by key, the most local value wins"),
    "agent": MergeRule(DEEP, OBJECT, "merged key by key, the most local value wins"),
}  # fmt: skip

DEFAULT_RULE = MergeRule(DEEP, None, "objects merge key by key; for everything else the most local value that is not empty wins")

# What a merged document always has; null where no layer gives a value.
ALWAYS = {
    AGENT: ("schemaVersion", "slug", "title", "purpose", "role", "status", "updated"),
    AGENDA: ("schemaVersion", "slug", "title", "status", "updated"),
    AGENCY: ("schemaVersion", "slug", "title", "status", "updated"),
}


def rule_for(field: str) -> MergeRule:
    return RULES.get(field, DEFAULT_RULE)


_LABEL_KEYS = ("title", "label", "name", "text", "summary", "statement", "slug", "identifier", "key", "id")


def projected_lines(item: Any) -> list[str]:
    """The lines of one array item: ``Title: item`` for sections and checklists, ``T (due: D)`` for milestones."""
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
    for key, label in (("due", "due"), ("window", "window"), ("level", "level")):
        value = item.get(key)
        if isinstance(value, str) and value.strip():
            return [f"{title} ({label}: {value})"]
    return [title]


def projected_text(item: Any) -> str:
    """The lines of an item as one string: what a union compares with plain strings."""
    return "\n".join(projected_lines(item))


def label_of(item: dict[str, Any]) -> str:
    """What an object is called, by the first of the usual keys that says something."""
    for key in _LABEL_KEYS:
        value = item.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def contribution_weight(item: Any) -> Any:
    """A contribution's weight; one that names none weighs 1."""
    weight = item.get("weight") if isinstance(item, dict) else None
    return 1 if weight is None else weight


def contribution_type(item: Any) -> str | None:
    """A contribution's type, from an object or a plain string."""
    found = item.get("type") if isinstance(item, dict) else item
    return found if isinstance(found, str) and found.strip() else None
