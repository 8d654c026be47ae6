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
    mine: bool  # whether this clone has the private key
    chain: tuple[str, ...]  # all keys, oldest first
    fingerprint: str  # of the key, for people to compare
    url: str | None = None  # URL of this clone's forge, if it runs


class Share(NamedTuple):
    """What is announced to a peer. The name ``*`` stands for all."""

    agents: tuple[str, ...] = ()  # names of agents
    traces: bool = False  # whether their traces are included
    sessions: bool = False  # whether their sessions are included
    behaviours: tuple[str, ...] = ()  # names of behaviours


class Peer(NamedTuple):
    """Another space."""

    name: str  # its name here
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
    type: str  # type that is accepted, with its subtypes
    trigger: str  # trigger that is accepted
    execute: bool  # whether it may run code
    expires: int | None  # seconds since the epoch; None: never
    by: str  # who granted it
    at: int  # seconds since the epoch


class Missing(NamedTuple):
    """One reason why something is not allowed, and how to change it."""

    what: str  # trust, grant, execute, expired, type
    message: str  # one sentence for a person
    hint: str  # what to do


class Explained(NamedTuple):
    """Why something is allowed, or what is missing."""

    peer: str  # the peer
    type: str  # the commit kind or ref type in question
    trigger: str  # head-move, spawn, merge, note, …
    execute: bool  # whether it asks to run code
    allowed: bool  # whether it is accepted
    trusted: bool  # whether the peer is trusted
    grants: tuple[Grant, ...]  # that allow it
    path: tuple[str, ...]  # the type and its parents, which a grant may name
    missing: tuple[Missing, ...]  # what is missing


class Announced(NamedTuple):
    """What was announced to a peer. ``rung``: whether its forge accepted the notification; None if it has no forge."""

    peer: str  # the peer
    seq: Count  # number of the last statement
    statements: Count  # how many were made
    snapshot: bool  # whether the last one states every ref, not only the moves
    moves: tuple[Mapping[str, Any], ...]  # ref, old, new, type, trigger
    rung: bool | None = None  # whether its forge accepted the notification; null: it has no forge


class Move(NamedTuple):
    """A tracked ref of a peer that moved; ``new`` is None if it is no longer shared."""

    place: str  # agents/scout, notes/trace/scout, types/security-review
    old: str | None  # the tracked commit before
    new: str | None  # the tracked commit now; null: no longer shared
    type: str  # type of the object
    trigger: str  # what moved it: head-move, spawn, merge, note, …


class Untaken(NamedTuple):
    """A pending move: something a peer announced that is not applied here, why, and how to change it."""

    place: str  # agents/scout, notes/trace/scout, …
    old: str | None  # the tracked commit
    new: str | None  # the announced commit; None: no longer shared
    type: str  # type of the object
    trigger: str  # what moved it: head-move, spawn, merge, note, …
    code: str  # capability-denied, not-synced, or that of the refusal
    why: str  # the reason
    hint: str  # what to do


class Refused(NamedTuple):
    """Something refused from a peer, and why."""

    code: str  # error code
    message: str  # one sentence for a person
    ref: str | None = None  # the ref
    seq: int | None = None  # the statement, if it is about one
    at: int = 0  # seconds since the epoch


class Synced(NamedTuple):
    """The result of syncing from a peer."""

    peer: str  # the peer
    accepted: Count  # statements
    seq: Count  # number of the last accepted statement
    moves: tuple[Move, ...]  # tracked refs that moved
    refused: tuple[Refused, ...]  # statements that were refused
    keys: int = 0  # number of new keys
    error: Mapping[str, Any] | None = None  # why the sync failed, as JSON
    waiting: Count = 0  # claims that are not applied, including older ones
    silent: bool = False  # it has never announced anything to this space


class Remote(NamedTuple):
    """A tracked agent of a peer."""

    peer: str  # the peer
    agent: str  # the agent
    head: str  # its newest commit
    kind: str | None  # of the head
    subject: str  # first line of the message of the head
    at: int  # time of the head, in seconds since the epoch
    record: bool  # whether its briefing and profile are here
    traces: Count  # number of trace notes


class RemoteBehaviour(NamedTuple):
    """A tracked behaviour of a peer; ``runs``: whether a grant allows it to run."""

    peer: str  # the peer
    name: str  # the behaviour
    cid: str  # of its current version
    runs: bool  # whether a grant allows it to run
