"""Records that federation verbs return."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.verbs import Count


class Key(NamedTuple):
    """The identity of this space. Peers pin ``text``; ``mine``: whether this clone has the private key."""

    text: str  # the key with its space, as peers pin it
    space: str  # id of the space
    key: str  # public key
    mine: bool
    chain: tuple[str, ...]  # all keys, oldest first
    fingerprint: str  # of the key, for people to compare
    url: str | None = None  # URL of this clone's forge, if it runs


class Share(NamedTuple):
    """What is announced to a peer. The name ``*`` stands for all."""

    agents: tuple[str, ...] = ()
    traces: bool = False  # whether their traces are included
    sessions: bool = False  # whether their sessions are included
    behaviours: tuple[str, ...] = ()


class Peer(NamedTuple):
    """Another space."""

    name: str
    space: str  # id of the space
    keys: tuple[str, ...]  # pinned, newest last
    fingerprint: str  # of the newest, for people to compare
    url: str | None  # where its forge or repository is
    trusted: bool  # False: nothing of it is applied
    share: Share  # what it may see
    seq: Count  # of the last accepted statement
    heard: int | None  # time of that statement, by the peer's clock
    level: Count  # the highest format version that it has used
    forked: bool  # it announced two different histories: nothing is accepted until its next snapshot
    waiting: Count  # claims that are not applied: denied, or unavailable
    agents: Count  # tracked


class Grant(NamedTuple):
    """One capability: what is accepted from a peer."""

    cid: str  # id of the capability
    peer: str  # its name, or its space id if it is not a peer
    space: str  # id of the space
    type: str
    trigger: str
    execute: bool  # whether it may run code
    expires: int | None  # seconds since the epoch; None: never
    by: str  # who granted it
    at: int  # seconds since the epoch


class Missing(NamedTuple):
    """One reason why something is not allowed, and how to change it."""

    what: str  # trust, grant, execute, expired, type
    message: str
    hint: str


class Explained(NamedTuple):
    """Why something is allowed, or what is missing."""

    peer: str
    type: str  # the commit kind or ref type in question
    trigger: str  # head-move, spawn, merge, note, …
    execute: bool  # whether it asks to run code
    allowed: bool
    trusted: bool
    grants: tuple[Grant, ...]  # that allow it
    path: tuple[str, ...]  # the type and its parents, which a grant may name
    missing: tuple[Missing, ...]


class Announced(NamedTuple):
    """What was announced to a peer. ``rung``: whether its forge accepted the notification; None if it has no forge."""

    peer: str
    seq: Count  # number of the last statement
    statements: Count  # how many were made
    snapshot: bool  # whether the last one states every ref, not only the moves
    moves: tuple[Mapping[str, Any], ...]  # ref, old, new, type, trigger
    rung: bool | None = None


class Move(NamedTuple):
    """A tracked ref of a peer that moved; ``new`` is None if it is no longer shared."""

    place: str  # agents/scout, notes/trace/scout, types/security-review
    old: str | None  # the tracked commit before
    new: str | None
    type: str
    trigger: str


class Untaken(NamedTuple):
    """A pending move: something a peer announced that is not applied here, why, and how to change it."""

    place: str  # agents/scout, notes/trace/scout, …
    old: str | None  # the tracked commit
    new: str | None  # the announced commit; None: no longer shared
    type: str
    trigger: str
    code: str  # capability-denied, not-synced, or that of the refusal
    why: str
    hint: str


class Refused(NamedTuple):
    """Something refused from a peer, and why."""

    code: str
    message: str
    ref: str | None = None
    seq: int | None = None  # the statement, if it is about one
    at: int = 0  # seconds since the epoch


class Synced(NamedTuple):
    """The result of syncing from a peer."""

    peer: str
    accepted: Count  # statements
    seq: Count  # number of the last accepted statement
    moves: tuple[Move, ...]
    refused: tuple[Refused, ...]
    keys: int = 0  # number of new keys
    error: Mapping[str, Any] | None = None  # why the sync failed, as JSON
    waiting: Count = 0  # claims that are not applied, including older ones
    silent: bool = False  # it has never announced anything to this space


class Remote(NamedTuple):
    """A tracked agent of a peer."""

    peer: str
    agent: str
    head: str
    kind: str | None  # of the head
    subject: str  # first line of the message of the head
    at: int  # time of the head, in seconds since the epoch
    record: bool  # whether its briefing and profile are here
    traces: Count  # number of trace notes


class RemoteBehaviour(NamedTuple):
    """A tracked behaviour of a peer; ``runs``: whether a grant allows it to run."""

    peer: str
    name: str
    cid: str  # of its current version
    runs: bool
