"""What federation answers with: plain records."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.verbs import Count


class Key(NamedTuple):
    """Who this space is to others. ``text`` is what they pin; ``mine``: whether this clone can sign with it."""

    text: str
    space: str
    key: str
    mine: bool
    chain: tuple[str, ...]  # every key so far, oldest first
    fingerprint: str  # of the key, for people to compare
    url: str | None = None  # where the forge of this clone is reached, if one serves it


class Share(NamedTuple):
    """What a peer is told about. ``*`` among the names: all of them."""

    agents: tuple[str, ...] = ()
    traces: bool = False
    sessions: bool = False
    behaviours: tuple[str, ...] = ()


class Peer(NamedTuple):
    """Another space, as it is known here."""

    name: str
    space: str
    keys: tuple[str, ...]  # pinned, newest last
    fingerprint: str  # of the newest, for people to compare
    url: str | None
    trusted: bool
    share: Share
    seq: Count  # of the last statement accepted
    heard: int | None  # when that was made, by the peer's own clock
    level: Count
    forked: bool
    waiting: Count  # claims that are not carried out: denied, or not to be had
    agents: Count  # tracked


class Grant(NamedTuple):
    """One capability: what a peer may have taken in here."""

    cid: str
    peer: str  # its name, or its space's id where it has none here
    space: str
    type: str
    trigger: str
    execute: bool
    expires: int | None
    by: str
    at: int


class Missing(NamedTuple):
    """One thing that keeps something from being allowed, and what would change it."""

    what: str  # trust, grant, execute, expired, type
    message: str
    hint: str


class Explained(NamedTuple):
    """Why something is allowed, or what is missing."""

    peer: str
    type: str
    trigger: str
    execute: bool
    allowed: bool
    trusted: bool
    grants: tuple[Grant, ...]  # that allow it
    path: tuple[str, ...]  # from the type up to the root of its kind: what a grant may name
    missing: tuple[Missing, ...]


class Announced(NamedTuple):
    """What a peer was told. ``rung``: whether its forge took notice at once; None where it has none."""

    peer: str
    seq: Count
    statements: Count
    snapshot: bool
    moves: tuple[Mapping[str, Any], ...]  # ref, old, new, type, trigger
    rung: bool | None = None


class Move(NamedTuple):
    """A ref of a peer that is now tracked elsewhere; ``new`` is None where it is no longer shared."""

    place: str  # agents/scout, notes/trace/scout, types/security-review
    old: str | None
    new: str | None
    type: str
    trigger: str


class Untaken(NamedTuple):
    """Something that a peer says and that is not carried out here: why not, and what would change it."""

    place: str
    old: str | None  # where it is tracked
    new: str | None
    type: str
    trigger: str
    code: str  # capability-denied, not-synced, or that of the refusal
    why: str
    hint: str


class Refused(NamedTuple):
    """Something of a peer's that was not taken, and why."""

    code: str
    message: str
    ref: str | None = None
    seq: int | None = None
    at: int = 0


class Synced(NamedTuple):
    """What came of listening to a peer."""

    peer: str
    accepted: Count  # statements
    seq: Count
    moves: tuple[Move, ...]
    refused: tuple[Refused, ...]
    keys: int = 0  # how many new keys it has
    error: Mapping[str, Any] | None = None  # why it could not be listened to, as JSON
    waiting: Count = 0  # claims that are not carried out here, also older ones
    silent: bool = False  # it has never said anything to this space


class Remote(NamedTuple):
    """An agent of a peer, as it is tracked here."""

    peer: str
    agent: str
    head: str
    kind: str | None
    subject: str
    at: int
    record: bool
    traces: Count  # notes that came with it


class RemoteBehaviour(NamedTuple):
    """A behaviour of a peer, as it is tracked here; ``runs``: whether a grant lets it run."""

    peer: str
    name: str
    cid: str  # of its current version
    runs: bool
