"""Interfaces of the live state: store, locks, feed notifications, capability gate and work queue.

Each has two production implementations (SQLite or files on one machine, PostgreSQL for several) or is part of one that has.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from clia.verbs import Count

ANY_VERSION = -1
"""``put`` and ``delete`` regardless of the current version."""
ABSENT = 0
"""``put`` only if the key has no value."""
FEED = "feed"
"""The stream of events of a space. A shared store sends a notification for each transaction that appends to it."""
CLONE_LOCKS = ("@gate", "@space")
"""Locks about the files of one clone; other machines do not take them."""
# Spelled out because the packages that define these names are above this one. A test checks that the list is complete.
CLONE_KEYS = ("behaviours/", "feed/refs", "foreign/", "gate/", "read/", "sweep/")
"""Prefixes of keys that describe the refs and objects of one clone.

Clones that share a store keep separate values for them, and separate edges and gates: a clone may be behind the others.
"""


class StreamEntry(NamedTuple):
    position: int  # starts at 1, never reused
    body: Any


class Versioned(NamedTuple):
    value: Any
    version: int  # starts at 1, incremented by each put, also after a deletion: no version is reused


class Edge(NamedTuple):
    """``src -kind-> dst``, stated by the commit ``origin`` and read from the chain ``source``."""

    src: str
    kind: str
    dst: str
    origin: str
    source: str


class Streams(Protocol):
    """Named append-only streams."""

    def append(self, stream: str, bodies: Sequence[Any], expected: int | None = None) -> int:
        """Append bodies and return the last position.

        ``Conflict`` (stale-position) if the stream does not end at ``expected``.
        """

    def read(self, stream: str, after: int = 0, limit: int | None = None) -> list[StreamEntry]:
        """Return the entries after a position, in order."""

    def end(self, stream: str) -> int:
        """Return the position of the last entry ever appended; 0 if there was none."""

    def replace(self, stream: str, position: int, body: Any) -> None:
        """Replace the body of an entry: for leaked secrets only. ``NotFound`` if the entry does not exist."""

    def forget(self, stream: str, upto: int) -> None:
        """Delete the entries up to a position. Later entries do not reuse positions."""

    def names(self, prefix: str) -> list[str]:
        """Return the streams that hold an entry, sorted."""


class Values(Protocol):
    """Named values with versions."""

    def get(self, key: str) -> Versioned | None: ...

    def put(self, key: str, value: Any, expected: int = ANY_VERSION) -> int:
        """Set a value and return its version. ``Conflict`` (stale-value) if the current version is not ``expected``."""

    def delete(self, key: str, expected: int = ANY_VERSION) -> bool:
        """Delete a value; False if there was none. ``Conflict`` (stale-value) as for ``put``."""

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        """Return keys and values under a prefix, sorted by key."""


class Edges(Protocol):
    """An index of edges. Several origins may state the same edge; it is live until all of them are retracted.

    A retraction may arrive before the statement it retracts: order does not matter.
    """

    def add(self, edges: Iterable[Edge]) -> None:
        """Add edges. Idempotent."""

    def retract(self, source: str, origins: Iterable[str]) -> None:
        """Retract every edge, present or future, that the origins state. ``source`` is the chain that says so."""

    def drop(self, source: str) -> None:
        """Delete every edge and retraction read from a chain."""

    def clear(self) -> None:
        """Delete everything."""

    def targets(self, src: str, kind: str) -> list[str]:
        """Return the distinct targets of edges of a kind, sorted."""

    def sources(self, dst: str, kind: str) -> list[str]:
        """Return the distinct sources of edges of a kind, sorted."""

    def reachable(self, src: str, kind: str) -> list[str]:
        """Return every node reachable over edges of a kind, sorted. Contains ``src`` only if it is on a cycle."""

    def origins(self, src: str, kind: str, dst: str) -> list[str]:
        """Return the origins that state an edge and are not retracted, sorted."""

    def standing(self, touching: str | None = None) -> list[Edge]:
        """Return the live edges (optionally those that start or end at ``touching``), one per origin and source, sorted."""


class GrantFact(NamedTuple):
    """One grant. It expires at ``expires``, in seconds since the epoch."""

    cid: str
    peer: str  # space id of the peer
    type: str
    trigger: str
    execute: bool = False
    expires: int | None = None


class GateFacts(NamedTuple):
    """Everything the gate decides by."""

    grants: tuple[GrantFact, ...] = ()
    trusted: tuple[str, ...] = ()  # space ids
    parents: tuple[tuple[str, str], ...] = ()  # (type, parent type)


class GateQuestion(NamedTuple):
    """May this peer have an object of this type accepted by this trigger now, and (``execute``) run?"""

    peer: str
    type: str
    trigger: str
    at: int
    execute: bool = False


class Gate(Protocol):
    """The capability gate. Denies by default. Its facts are a cache of refs and are replaced as a whole."""

    def load(self, facts: GateFacts) -> None:
        """Replace all facts."""

    def allowing(self, question: GateQuestion) -> list[str]:
        """Return the grants that allow it, sorted; an empty list denies.

        A grant applies if it names the peer, the peer is trusted, trigger and type match (the type itself or one of its
        ancestors; cycles in hostile facts are harmless), it has not expired, and it allows ``execute`` if that is asked.
        """


class Transaction(Protocol):
    @property
    def streams(self) -> Streams: ...

    @property
    def values(self) -> Values: ...

    @property
    def edges(self) -> Edges: ...

    @property
    def gate(self) -> Gate: ...


class Store(Protocol):
    """The live state of one space: streams, values and edges. Threads may share it; each has one transaction at a time.

    Transactions are atomic, durable when their block ends, and serial per space. Bodies and values are JSON. A failure of
    the store is a ``StoreError``; a failed expectation is a ``Conflict`` and changes nothing. Names have at most 400 bytes
    and no NUL; a name or value that cannot be stored is ``InvalidInput``.
    """

    def writing(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction. An exception in its block rolls it back. Transactions cannot be nested."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """Open one consistent view. Writing in it is a bug and a ``StoreError``."""

    def get(self, key: str) -> Versioned | None:
        """Return one current value. Cheaper than ``reading``."""

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        """Return the current keys and values under a prefix. Cheaper than ``reading``."""

    def scrub(self) -> str | None:
        """Remove replaced and forgotten bodies from the store's files.

        Returns None, or what may still hold them and who can remove it.
        """

    def close(self) -> None: ...


class Locks(Protocol):
    """Locks that the system releases when their holder dies. Holding one proves that the holder is alive."""

    def hold(self, name: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Wait for the lock. Shared holders do not exclude each other. Not reentrant."""

    def attempt(self, name: str) -> AbstractContextManager[bool]:
        """Take the lock if it is free. The block gets False if a live process holds it."""


class FeedNotifier(Protocol):
    """Waits for new entries of the feed, for one thread. The stream is the truth: a spurious notification is harmless."""

    def wait(self, has_more: Callable[[], bool], timeout: float) -> bool:
        """Return True as soon as ``has_more``; False after ``timeout`` seconds or when closed."""

    def close(self) -> None:
        """End the waiting. May be called from any thread."""


class Task(NamedTuple):
    """A request that a worker can handle."""

    agent: str
    request: str
    kind: str
    not_before: float = 0.0  # seconds since the epoch: when it is or was due


class Claim(NamedTuple):
    """The right of one worker to attempt a task, until ``until``."""

    task: Task
    worker: str
    attempt: int  # starts at 1
    until: float  # seconds since the epoch


class Waiting(NamedTuple):
    """What the queue knows of a task that was attempted."""

    task: Task
    attempts: Count
    worker: str | None  # current holder
    until: float | None
    next_at: float | None  # not retried before
    error: str | None  # of the last attempt


class Queue(Protocol):
    """Claims on tasks: one worker at a time attempts a task.

    A claim that is not renewed expires and the task goes to another worker, so work is done at least once. The session
    accepts one answer per request, so its result counts once.
    """

    def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
        """Claim one of the tasks that is due and free, for ``lease`` seconds; the longest due first."""

    def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
        """Renew a claim for ``lease`` seconds; None if it was lost."""

    def retry(self, claim: Claim, at: float, error: str, *, counts: bool = True) -> None:
        """Return the task, not to be attempted before ``at``. No effect if the claim was lost.

        If not ``counts``, the attempt is not counted.
        """

    def release(self, claim: Claim) -> None:
        """Return the task as if it had not been attempted: the worker stops. No effect if the claim was lost."""

    def done(self, claim: Claim) -> None:
        """Forget the task: it is answered, or its session ended."""

    def next_time(self, tasks: Sequence[Task], now: float) -> float | None:
        """Return when the first of the tasks is due; None if there is none."""

    def waiting(self) -> list[Waiting]:
        """Return every task that was attempted and is not done, sorted by agent and request."""

    def forget(self, live: Sequence[tuple[str, str]]) -> int:
        """Drop everything about requests other than these (agent, request); return how many were dropped."""

    def watch(self, wake: Callable[[], None]) -> None:
        """Call ``wake``, from any thread, when another process enqueues work. Queues without notifications never do."""

    def close(self) -> None:
        """Release connections. Open claims go to others when they expire, or earlier."""
