"""Kinds of objects and commits, as a tree of names.

Invariant: a type never changes its parent, and every parent exists. So ``is_a`` terminates and means the same in every space that
knows the type.
"""

from __future__ import annotations

import re

from clia.errors import AlreadyExists, InvalidInput, NotFound, UnknownKind, did_you_mean
from clia.values.commit_messages import check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AGENT_COMMIT = "agent-commit"
SPAWN, SESSION_MERGE, DECISION = "spawn", "session-merge", "decision"
JOURNAL_ENTRY, AGENDA_UPDATE, REPROFILE = "journal-entry", "agenda-update", "reprofile"
RESERVED = frozenset((SPAWN, SESSION_MERGE, DECISION, REPROFILE))
"""Kinds that only their own verbs may use; otherwise anyone could forge a decision."""

BUILT_IN: Mapping[str, str | None] = {
    "briefing": None,
    "console-trace": None,
    "behaviour": None,
    "capability": None,
    "profile": None,
    "place": None,
    "session": None,
    AGENT_COMMIT: None,
    SPAWN: AGENT_COMMIT,
    "finding": AGENT_COMMIT,
    "refactor": AGENT_COMMIT,
    "test": AGENT_COMMIT,
    JOURNAL_ENTRY: AGENT_COMMIT,
    AGENDA_UPDATE: AGENT_COMMIT,
    SESSION_MERGE: AGENT_COMMIT,
    DECISION: AGENT_COMMIT,
    REPROFILE: AGENT_COMMIT,
}
GUARDRAIL_CHANGE = "guardrail-change"
RULED_CHANGE = "ruled-change"
QUESTION = "ask-"
"""How the id of a session begins that holds one question."""
"""The kind of questions about changes that take guardrails away."""
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


class Types:
    """A registry: the built-in types and those that a space has registered."""

    def __init__(self, registered: Iterable[tuple[str, str | None]] = ()) -> None:
        # Two clones may have registered one name with different parents; in both, none wins, else the smaller one.
        pairs = sorted(registered, key=lambda pair: (pair[0], pair[1] or ""), reverse=True)
        self._parents: dict[str, str | None] = {**dict(pairs), **BUILT_IN}

    def check_new(self, name: str, parent: str | None) -> None:
        """Refuse a type that cannot be registered. Without a parent it is a type of objects, not of commits."""
        if not is_type_name(name):
            raise InvalidInput(
                f"{name!r} is not a valid type name",
                code="invalid-type",
                hints=["lower-case words joined by hyphens, at most 64 characters: security-review"],
                fields={"type": name},
            )
        if name in self._parents:
            raise AlreadyExists(f"type {name} already exists", fields={"type": name, "parent": self._parents[name]})
        if parent is not None and check_text(parent, "parent") not in self._parents:
            names = ", ".join(sorted(self._parents))
            raise NotFound(
                f"unknown parent type {parent!r}{did_you_mean(parent, self._parents)}",
                code="no-such-type",
                hints=[f"known types: {names}"],
            )

    def is_a(self, name: str, ancestor: str) -> bool:
        """Whether a type is another or descends from it."""
        if check_text(name, "type") == check_text(ancestor, "type"):
            return True
        return ancestor in self.lineage(name)

    def lineage(self, name: str) -> tuple[str, ...]:
        """A type and those above it, the most general last; empty for an unknown type."""
        lineage: list[str] = []
        at: str | None = name
        while at is not None and at in self._parents and at not in lineage:
            lineage.append(at)
            at = self._parents[at]
        return tuple(lineage)

    def check_commit_kind(self, kind: str) -> None:
        """Refuse a kind that ``commit`` must not use."""
        if check_text(kind, "kind") in RESERVED or any(self.is_a(kind, reserved) for reserved in RESERVED):
            raise UnknownKind(
                f"{kind} commits can only be created by their own verb",
                code="reserved-kind",
                hints=["use finding, refactor, test or a registered kind; spawn, merge, resolve and decide create the others"],
                fields={"kind": kind},
            )
        if not self.is_a(kind, AGENT_COMMIT):
            kinds = sorted(name for name in self._parents if self.is_a(name, AGENT_COMMIT) and name not in RESERVED)
            raise UnknownKind(
                f"unknown commit kind {kind!r}{did_you_mean(kind, kinds)}",
                hints=[f"known kinds: {', '.join(kinds)}", "register another: clia types --add NAME --parent agent-commit"],
                fields={"kind": kind},
            )

    def known(self) -> dict[str, str | None]:
        """Every type with its parent, sorted by name."""
        return dict(sorted(self._parents.items()))


def is_type_name(text: object) -> bool:
    """Whether a value is a valid type name."""
    return isinstance(text, str) and len(text) <= 64 and _NAME.fullmatch(text) is not None
