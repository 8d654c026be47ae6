"""How each field merges: one table of data.

Invariant: merging, ``explain`` and the reference documentation all read this table; changing a rule changes one line.
"""

from __future__ import annotations

from typing import NamedTuple

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

# Where the merged profile marks waived guardrails. No document can say so itself: the key is ignored in every layer.
MARKS = "waivedGuardrails"

# Shapes a value must have to take part; None: anything goes
STRING, LIST, OBJECT, LIST_OR_OBJECT = "a string", "an array", "an object", "an array or an object"


class Rule(NamedTuple):
    strategy: str
    shape: str | None
    story: str


_LAST = Rule(LAST, STRING, "the most local value that is not empty wins")
_UNION = Rule(UNION, LIST, "all items, outer first, each once")
_UNION_BY_TEXT = Rule(
    UNION_BY_TEXT, LIST, "all items, outer first, each once; a string that says what an object says is that object"
)

RULES: dict[str, Rule] = {
    "slug": Rule(REQUEST, STRING, "always the slug that was asked for"),
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
    "contributionMix": Rule(BY_TYPE, LIST_OR_OBJECT, "one item a type, in order of first appearance; the most local weight wins"),
    "links": Rule(BY_LINK, LIST, "one link a (title, url) pair, in order of first appearance; the most local wins"),
    "notes": Rule(WHOLE, None, "the most local notes that are not empty win whole"),
    "extensions": Rule(WHOLE, OBJECT, "the most local extensions that are not empty win whole"),
    "rootChain": Rule(LOCAL, OBJECT, "only the innermost agent document's root chain counts"),
    "persona": Rule(DEEP, OBJECT, "merged key by key, the most local value wins"),
    "agent": Rule(DEEP, OBJECT, "merged key by key, the most local value wins"),
}  # fmt: skip

DEFAULT = Rule(DEEP, None, "objects merge key by key; for everything else the most local value that is not empty wins")

# What a merged document always has; null where no layer gives a value.
ALWAYS = {
    AGENT: ("schemaVersion", "slug", "title", "purpose", "role", "status", "updated"),
    AGENDA: ("schemaVersion", "slug", "title", "status", "updated"),
    AGENCY: ("schemaVersion", "slug", "title", "status", "updated"),
}


def rule_for(field: str) -> Rule:
    return RULES.get(field, DEFAULT)
