"""Records of the live state, and the interfaces of locks, feed notifications and the work queue.

Each interface has two implementations: for one machine, and for several that share a PostgreSQL server. SQLite and PostgreSQL
share the class of the store (``sql_store``).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from clia.store import edges, sql_store
    from clia.verbs import Count

    Store = sql_store.SqlStore
    Transaction = sql_store.SqlTransaction
    Values = sql_store.Values
    Edges = edges.Edges

ANY_VERSION = -1
"""``put`` and ``delete`` regardless of the current version."""
ABSENT = 0
"""``put`` only if the key has no value."""
FEED = "feed"
"""The stream of events of a space. A shared store sends a notification for each transaction that appends to it."""
CLONE_LOCKS = ("@gate", "@space", "@upkeep")
"""Locks about the files of one clone; other machines do not take them."""
# Spelled out because the packages that define these names are above this one. A test checks that the list is complete.
CLONE_KEYS = ("attribution/", "behaviours/", "epoch/", "feed/refs", "foreign/", "gate/", "read/", "rewound/", "sweep/")
"""Prefixes of keys that describe the refs and objects of one clone.

Clones that share a store keep separate values for them, and separate edges and gates: a clone may be behind the others.
"""
EPOCH = "epoch/"
"""The key of the row that says which repository the store belongs to (``epochs``)."""
FOREIGN = "foreign/"
INTENT = "intent/"
KNOWN = "known/"
"""Of each agent: the head and the events up to which store and git are known to agree about its sessions."""
DERIVED = (
    *(key for key in CLONE_KEYS if key != FOREIGN),
    *(FEED, "arrival/", "claim/", "federation/refused/", "fleet/", "forge/secret", "queue/"),
)
"""Prefixes of names that are not live state: derived from git, written again by live processes, or useless without live state."""


class StreamEntry(NamedTuple):
    position: int  # starts at 1, never reused
    body: Any


class Versioned(NamedTuple):
    value: Any
    version: int  # starts at 1, incremented by each put, also after a deletion: no version is reused


class Edge(NamedTuple):
    """``src -kind-> dst``, stated by the commit ``origin`` and read from the chain ``source``."""

    src: str  # the agent that the relation starts at
    kind: str  # the kind of relation
    dst: str  # the agent that it leads to
    origin: str  # the commit that states it
    source: str  # the chain that the commit is on


class GrantFact(NamedTuple):
    """One grant. It expires at ``expires``, in seconds since the epoch."""

    cid: str
    peer: str  # space id of the peer
    type: str
    trigger: str
    execute: bool = False
    expires: int | None = None


class GateFacts(NamedTuple):
    """The facts on which the gate decides."""

    grants: tuple[GrantFact, ...] = ()
    trusted: tuple[str, ...] = ()  # space ids
    parents: tuple[tuple[str, str], ...] = ()  # (type, parent type)


class GateQuestion(NamedTuple):
    """Whether an object of this type from this peer is accepted by this trigger now, and (``execute``) may run."""

    peer: str
    type: str
    trigger: str
    at: int
    execute: bool = False


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

    agent: str  # the agent
    request: str  # request id
    kind: str  # kind of request
    not_before: float = 0.0  # seconds since the epoch: when it is or was due


class Claim(NamedTuple):
    """The right of one worker to attempt a task, until ``until``."""

    task: Task
    worker: str
    attempt: int  # starts at 1
    until: float  # seconds since the epoch


class Waiting(NamedTuple):
    """The queue's record of a task that was attempted."""

    task: Task  # the task
    attempts: Count  # so far
    worker: str | None  # current holder
    until: float | None  # when the lease of the holder expires, in seconds since the epoch
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
        """Return the task until ``at``; the attempt counts if ``counts``. No effect if the claim was lost."""

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
