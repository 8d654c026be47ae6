"""How a clone and its hub stand to each other, and what became of their refs: as values."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.hub.ledger import Elsewhere

PUBLISHED, FORK, REMOVED, ELSEWHERE, UNREADABLE = "published", "fork", "gone", "elsewhere", "unreadable"


class Synced(NamedTuple):
    """What became of a ref: ``new``, ``ahead``, ``united`` or ``gone`` here, ``published`` or ``gone`` there; or left.

    What is left is a ``fork``, ``purged``, ``unreadable``, ``elsewhere`` (another machine owes it), or has the code of what is in
    the way: ``hub-refused`` (the server does not allow it), ``branch-checked-out``.
    """

    ref: str
    what: str
    cid: str | None
    reason: str = ""  # what is in the way, in words: the server's own, where it refuses


class Fork(NamedTuple):
    """An agent that went on here and at the hub."""

    agent: str
    base: str | None  # the last commit that both have
    ours: str
    theirs: str
    ahead: int  # commits that only we have
    behind: int  # commits that only the hub has


class HubStatus(NamedTuple):
    remote: str
    address: str
    heads: str  # branches, published
    clone: str
    shared_store: bool
    away_since: str | None
    away_reason: str | None
    refs: int  # shared refs here
    owed: tuple[str, ...]  # refs that the hub has not as they are here
    behind: tuple[str, ...]  # refs that are newer at the hub, as far as it was read
    forks: tuple[Fork, ...]
    elsewhere: tuple[Elsewhere, ...]
