"""The capability gate: who may have what taken in here, as flat facts and one question.

Default deny: without a grant that applies, the answer is empty. The facts are a cache of refs and are replaced as a whole.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class GrantFact(NamedTuple):
    """One grant; ``expires`` in seconds since the epoch, the first moment at which it no longer holds."""

    cid: str
    peer: str  # the id of the peer's space
    type: str
    trigger: str
    execute: bool = False
    expires: int | None = None


class Facts(NamedTuple):
    grants: tuple[GrantFact, ...] = ()
    trusted: tuple[str, ...] = ()  # ids of spaces
    parents: tuple[tuple[str, str], ...] = ()  # a type and its parent, for each type that has one


class Question(NamedTuple):
    """May this peer have something of this type taken in by this trigger, at this moment; with ``execute``: and run?"""

    peer: str
    type: str
    trigger: str
    at: int
    execute: bool = False


class Gate(Protocol):
    def load(self, facts: Facts) -> None:
        """Replaces every fact."""

    def allowing(self, question: Question) -> list[str]:
        """The grants that allow it, sorted; none: denied.

        A grant applies if its peer is the one who asks and is trusted, its trigger is the same, its type is the one asked for or
        one that it descends from (types may form cycles in hostile facts: it ends all the same), it has not expired, and, where
        ``execute`` is asked for, it says so.
        """
