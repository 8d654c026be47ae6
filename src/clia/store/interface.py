"""Live state: append-only streams, named values, and an index of edges, changed in transactions.

A transaction is all or nothing and durable once its block has ended; transactions of one space follow one another, as
if no two ran at once. Bodies and values are JSON values; what is read back equals what was written. A refusal of the
store itself is a ``StoreError``; an expectation that does not hold is a ``Conflict`` and changes nothing. Names (of streams,
keys, kinds, ends of edges) have at most 400 bytes and no NUL; a name or value that cannot be kept is ``InvalidInput``.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from clia.store.gate_interface import Gate

ANY_VERSION = -1
"""``put`` and ``delete`` whatever is there."""
ABSENT = 0
"""``put`` only where nothing is there."""

# Written out: the packages that use these names are above this one. A test holds that an index's names are all here.
OWN = ("behaviours/", "feed/refs", "foreign/", "gate/", "read/", "sweep/")
"""How names begin that are about one clone's refs and objects. Clones that share live state each keep them for themselves, and
so the edges and the gate: a clone lags behind others, and would take what they have read for what it has."""


class StreamEntry(NamedTuple):
    position: int  # from 1, never used again
    body: Any


class Versioned(NamedTuple):
    value: Any
    version: int  # from 1, one more with each put; also over a deletion, so that no version comes twice


class Edge(NamedTuple):
    """``src -kind-> dst``, as stated by ``origin``: the id of a commit. ``source`` is the chain it was read from."""

    src: str
    kind: str
    dst: str
    origin: str
    source: str


class Streams(Protocol):
    """Named append-only streams."""

    def append(self, stream: str, bodies: Sequence[Any], expected: int | None = None) -> int:
        """The position of the last body. ``expected``: where the stream must end now, else ``Conflict`` (stale-position)."""

    def read(self, stream: str, after: int = 0, limit: int | None = None) -> list[StreamEntry]:
        """The entries after a position, in order."""

    def end(self, stream: str) -> int:
        """The position of the last entry ever appended; 0 where there was none."""

    def replace(self, stream: str, position: int, body: Any) -> None:
        """Puts another body in an entry's place: for leaks only. ``NotFound`` where there is no such entry."""

    def forget(self, stream: str, upto: int) -> None:
        """Drops the entries up to a position; positions go on from where they were."""

    def names(self, prefix: str) -> list[str]:
        """The streams that hold an entry, sorted."""


class Values(Protocol):
    """Named values, each with a version."""

    def get(self, key: str) -> Versioned | None: ...

    def put(self, key: str, value: Any, expected: int = ANY_VERSION) -> int:
        """The new version; ``Conflict`` (stale-value) where the present version is not ``expected``."""

    def delete(self, key: str, expected: int = ANY_VERSION) -> bool:
        """Whether something was there. ``Conflict`` (stale-value) as for ``put``."""

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        """Keys and values under a prefix, sorted by key."""


class Edges(Protocol):
    """An index of edges. One edge may be stated by several origins; it stands while one of them is not retracted.

    Retractions may come before what they retract: order never matters.
    """

    def add(self, edges: Iterable[Edge]) -> None:
        """States edges; stating one again changes nothing."""

    def retract(self, source: str, origins: Iterable[str]) -> None:
        """Takes back what the origins stated, now or later. ``source`` is the chain the retraction was read from."""

    def drop(self, source: str) -> None:
        """Forgets every edge and every retraction that was read from a chain."""

    def clear(self) -> None:
        """Forgets everything."""

    def targets(self, src: str, kind: str) -> list[str]:
        """Where edges of a kind lead, each once, sorted."""

    def sources(self, dst: str, kind: str) -> list[str]:
        """Where edges of a kind come from, each once, sorted."""

    def reachable(self, src: str, kind: str) -> list[str]:
        """Everything that edges of a kind lead to over any number of steps, sorted; ``src`` only on a cycle."""

    def origins(self, src: str, kind: str, dst: str) -> list[str]:
        """What states an edge and is not retracted, sorted."""

    def standing(self, touching: str | None = None) -> list[Edge]:
        """Every edge that stands (or those that start or end at ``touching``), once per origin and source, sorted."""


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
    """The live state of one space. Threads may share it; a thread has one transaction at a time, of either sort."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction. An exception in its block undoes it. Not to be nested."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """One consistent view; writing in it is a bug and a ``StoreError``."""

    def get(self, key: str) -> Versioned | None:
        """One value as it is now: a reading of a single call, which is cheaper."""

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        """The keys and values under a prefix as they are now: a reading of a single call."""

    def scrub(self) -> str | None:
        """Leaves nothing of replaced or forgotten bodies in files of the store's own; where that is not ours to do, what may
        still hold them, and who can end it."""

    def close(self) -> None: ...
