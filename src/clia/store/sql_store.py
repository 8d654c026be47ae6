"""Streams, values and edges as SQL tables, shared by SQLite and PostgreSQL. The gate is in ``capability_gate``.

Invariant: every statement names the space, so one database can hold many. Every check comes before the first change of a call,
so a refusal changes nothing. A transaction with a database error is never committed. If clones share live state, caches of one
clone's refs are under that clone's own key, in the same transaction. Text sorts by code point in both databases.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

from clia.errors import StoreError
from clia.store import validation
from clia.store.interface import ABSENT, ANY_VERSION, CLONE_KEYS, Edge, StreamEntry, Versioned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from clia.store.capability_gate import SqlGate

T = TypeVar("T")


def standing(columns: str, where: str, tables: str = "clia_edges e") -> str:
    """Return a query of the live edges."""
    # OFFSET forces a look-up per edge; without statistics PostgreSQL would read all retractions.
    kept = "NOT EXISTS (SELECT 1 FROM clia_retractions r WHERE r.space = e.space AND r.origin = e.origin LIMIT 1 OFFSET 0)"
    return f"SELECT {columns} FROM {tables} WHERE e.space = ? AND {where} AND {kept}"  # noqa: S608 (constants)


def reachable(step: str) -> str:
    """Return a query of all reachable nodes, with arguments space, start, kind, space, kind; ``step`` extends ``reached``."""
    first = standing("dst", "src = ? AND kind = ?")
    return f"WITH RECURSIVE reached (node) AS ({first} UNION {step}) SELECT node FROM reached ORDER BY node"  # noqa: S608 (constants)


_END = "SELECT last FROM clia_streams WHERE space = ? AND stream = ?"
_MOVE_END = (
    "INSERT INTO clia_streams VALUES (?, ?, ?)"
    " ON CONFLICT (space, stream) DO UPDATE SET last = clia_streams.last + excluded.last RETURNING last"
)
_MOVE_END_FROM = "UPDATE clia_streams SET last = last + ? WHERE space = ? AND stream = ? AND last = ? RETURNING last"
_APPEND = "INSERT INTO clia_entries VALUES (?, ?, ?, ?)"
_READ = "SELECT position, body FROM clia_entries WHERE space = ? AND stream = ? AND position > ? ORDER BY position LIMIT ?"
_REPLACE = "UPDATE clia_entries SET body = ? WHERE space = ? AND stream = ? AND position = ?"
_FORGET = "DELETE FROM clia_entries WHERE space = ? AND stream = ? AND position <= ?"
_NAMES = (
    "SELECT stream FROM clia_streams s WHERE space = ? AND stream BETWEEN ? AND ?"
    " AND EXISTS (SELECT 1 FROM clia_entries e WHERE e.space = s.space AND e.stream = s.stream) ORDER BY stream"
)
_GET = "SELECT version, value FROM clia_values WHERE space = ? AND key = ?"
_PUT = (
    "INSERT INTO clia_values VALUES (?, ?, ?, ?)"
    " ON CONFLICT (space, key) DO UPDATE SET version = excluded.version, value = excluded.value"
)
_PUT_NEXT = (
    "INSERT INTO clia_values VALUES (?, ?, 1, ?)"
    " ON CONFLICT (space, key) DO UPDATE SET version = clia_values.version + 1, value = excluded.value RETURNING version"
)
_SCAN = "SELECT key, value FROM clia_values WHERE space = ? AND key BETWEEN ? AND ? AND value IS NOT NULL ORDER BY key"
_ADD = "INSERT INTO clia_edges VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_RETRACT = "INSERT INTO clia_retractions VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_DROP = ("DELETE FROM clia_edges WHERE space = ? AND source = ?", "DELETE FROM clia_retractions WHERE space = ? AND source = ?")
_CLEAR = ("DELETE FROM clia_edges WHERE space = ?", "DELETE FROM clia_retractions WHERE space = ?")
_TARGETS = standing("DISTINCT dst", "src = ? AND kind = ?") + " ORDER BY dst"
_SOURCES = standing("DISTINCT src", "dst = ? AND kind = ?") + " ORDER BY src"
REACHABLE = reachable(standing("e.dst", "e.kind = ?", "reached JOIN clia_edges e ON e.src = reached.node"))
_ORIGINS = standing("DISTINCT origin", "src = ? AND kind = ? AND dst = ?") + " ORDER BY origin"
_EDGE = "src, kind, dst, origin, source"
_EDGES = standing(_EDGE, "1 = 1")
# Not sorted: SQLite would read the whole table in order instead of looking up both ends.
_TOUCHING = f"{standing(_EDGE, 'src = ?')} UNION {standing(_EDGE, 'dst = ?')}"


class Connection(Protocol):
    """A connection with an open transaction. Failures are raised as ``StoreError``."""

    def fetch(self, sql: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]: ...

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        """Run a statement once per row of arguments; return the number of affected rows."""

    def has_table(self, name: str) -> bool: ...

    def make_tables(self, statements: Sequence[str]) -> None:
        """Create missing tables as part of the transaction; concurrent creators wait for each other."""

    def appended(self, stream: str) -> None:
        """Called after an append, for databases with notifications."""

    def finish(self, *, commit: bool) -> None:
        """End the transaction and return the connection, even if this raises."""


class StoreKeys(NamedTuple):
    """The database keys of a space: one for shared names and one for a clone's own. Usually they are the same."""

    shared: str
    own: str

    def of(self, name: str) -> str:
        return self.own if name.startswith(CLONE_KEYS) else self.shared

    def under(self, prefix: str) -> str | None:
        """Return the key of all names with a prefix; None if both keys hold some."""
        if self.own == self.shared or prefix.startswith(CLONE_KEYS):
            return self.own
        return None if any(key.startswith(prefix) for key in CLONE_KEYS) else self.shared


class SqlStore(ABC):
    """The live state of one space: streams, values and edges. Threads may share it; each has one transaction at a time.

    Transactions are atomic, durable when their block ends, and serial per space. Bodies and values are JSON. A failure of
    the store is a ``StoreError``; a failed expectation is a ``Conflict`` and changes nothing. Names have at most 400 bytes
    and no NUL; a name or value that cannot be stored is ``InvalidInput``.

    ``own``: the key for caches of one clone's refs, if the rest is shared with other clones.
    """

    def __init__(self, space: str, own: str | None = None) -> None:
        self._space = validation.check_name(space)
        self._keys = StoreKeys(space, space if own is None else validation.check_name(own))
        self._thread = threading.local()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _rewrite_files(self) -> str | None:
        """Rewrite the files without deleted data; returns what ``scrub`` returns."""

    def scrub(self) -> str | None:
        """Remove replaced and forgotten bodies from the files; return what may still hold them and who can remove it, or None."""
        with self._one_at_a_time():
            return self._rewrite_files()

    @abstractmethod
    def _begin(self, *, writes: bool) -> Connection: ...

    @contextmanager
    def writing(self) -> Iterator[SqlTransaction]:
        """Begin a transaction. An exception in its block rolls it back. Transactions cannot be nested."""
        with self._connection(writes=True) as connection:
            yield SqlTransaction(connection, self._keys)

    @contextmanager
    def reading(self) -> Iterator[SqlTransaction]:
        """Open one consistent view. Writing in it is a bug and a ``StoreError``."""
        with self._connection(writes=False) as connection:
            yield SqlTransaction(connection, self._keys)

    @contextmanager
    def _connection(self, *, writes: bool) -> Iterator[GuardedConnection]:
        with self._one_at_a_time():
            connection = GuardedConnection(self._begin(writes=writes), writes=writes)
            try:
                yield connection
            except BaseException:
                with suppress(StoreError):  # the first error matters more
                    connection.finish(commit=False)
                raise
            connection.finish(commit=True)

    def get(self, key: str) -> Versioned | None:
        """Return one current value. Cheaper than ``reading``."""
        return _versioned(key, *_version_and_text(self._fetch_once(_GET, [self._keys.of(key), validation.check_name(key)])))

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        """Return the current keys and values under a prefix. Cheaper than ``reading``."""
        where = self._keys.under(prefix)
        if where is None:
            with self.reading() as view:
                return view.values.scan(prefix)
        return validation.decode_all(self._fetch_once(_SCAN, [where, *validation.prefix_range(prefix)]))

    def _fetch_once(self, sql: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a single statement outside of any transaction of this thread."""
        with self._connection(writes=False) as connection:
            return connection.fetch(sql, *arguments)

    def _check_not_nested(self) -> None:
        if getattr(self._thread, "inside", False):
            raise validation.refusal("nested-transaction")

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        self._check_not_nested()
        self._thread.inside = True
        try:
            yield
        finally:
            self._thread.inside = False


class SqlTransaction:
    def __init__(self, connection: GuardedConnection, keys: StoreKeys) -> None:
        self.streams = Streams(connection, keys)
        self.values = Values(connection, keys)
        self.edges = Edges(connection, keys.own)
        self._connection, self._own = connection, keys.own

    @cached_property
    def gate(self) -> SqlGate:
        """The grants of peers. One object for a transaction, because it may have created the tables."""
        from clia.store.capability_gate import SqlGate  # most transactions ask for none

        return SqlGate(self._connection, self._own)


class GuardedConnection:
    """A connection that enforces the rules of a transaction and remembers failures."""

    def __init__(self, connection: Connection, *, writes: bool) -> None:
        self._connection = connection
        self._writes = writes
        self._process = os.getpid()
        self._ended = False
        self._failure: StoreError | None = None
        self.appended = connection.appended

    def check_writable(self) -> None:
        """Refuse a write in a read-only transaction. The first check of every write."""
        self._check()
        if not self._writes:
            raise validation.refusal("only-reading")

    def fetch(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return self._call(self._connection.fetch, sql, arguments)

    def write(self, sql: str, *arguments: Any) -> int:
        return self._call(self._connection.write, sql, [arguments])

    def write_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        return self._call(self._connection.write, sql, rows) if rows else 0

    def has_table(self, name: str) -> bool:
        return self._call(self._connection.has_table, name)

    def make_tables(self, statements: Sequence[str]) -> None:
        self._call(self._connection.make_tables, statements)

    def finish(self, *, commit: bool) -> None:
        self._check_alive()
        self._ended = True
        self._connection.finish(commit=commit and self._failure is None)
        if commit and self._failure is not None:
            raise self._failure

    def _call(self, method: Callable[..., T], *arguments: Any) -> T:
        self._check()
        try:
            return method(*arguments)
        except StoreError as err:
            self._failure = err
            raise

    def _check(self) -> None:
        self._check_alive()
        if self._failure is not None:
            # The database may have rolled back already; a later statement would be committed by itself.
            raise self._failure

    def _check_alive(self) -> None:
        if self._ended:
            raise validation.refusal("transaction-ended")
        if self._process != os.getpid():
            raise StoreError("a transaction cannot be used in a forked process", code="store-forked")


class Streams(NamedTuple):
    """Named append-only streams."""

    db: GuardedConnection
    keys: StoreKeys

    def append(self, stream: str, bodies: Sequence[Any], expected: int | None = None) -> int:
        """Append bodies and return the last position. ``Conflict`` (stale-position) if it does not end at ``expected``."""
        self.db.check_writable()
        texts = [validation.encode(body) for body in bodies]
        last = self._advance_end(stream, len(texts), expected)
        if texts:
            space, first = self.keys.of(stream), last - len(texts) + 1
            self.db.write_many(_APPEND, [(space, stream, position, text) for position, text in enumerate(texts, first)])
            self.db.appended(stream)
        return last

    def _advance_end(self, stream: str, count: int, expected: int | None) -> int:
        """Advance the end of a stream and return it; check it first if ``expected`` is given."""
        space = self.keys.of(stream)
        if expected and count:
            rows = self.db.fetch(_MOVE_END_FROM, count, space, validation.check_name(stream), validation.clamp(expected))
            if rows:
                return int(rows[0][0])
        if expected is not None or not count:
            end = self.end(stream)
            if expected is not None and expected != end:
                raise validation.stale_position(stream, expected, end)
            if not count:
                return end
        return int(self.db.fetch(_MOVE_END, space, validation.check_name(stream), count)[0][0])

    def read(self, stream: str, after: int = 0, limit: int | None = None) -> list[StreamEntry]:
        """Return the entries after a position, in order."""
        rows = self.db.fetch(
            _READ, self.keys.of(stream), validation.check_name(stream), validation.clamp(after), validation.at_most(limit)
        )
        bodies = validation.decode_all([(f"{stream}:{position}", body) for position, body in rows])
        return [StreamEntry(position, body) for (position, _), (_, body) in zip(rows, bodies, strict=True)]

    def end(self, stream: str) -> int:
        """Return the position of the last entry ever appended; 0 if there was none."""
        rows = self.db.fetch(_END, self.keys.of(stream), validation.check_name(stream))
        return int(rows[0][0]) if rows else 0

    def replace(self, stream: str, position: int, body: Any) -> None:
        """Replace the body of an entry: for leaked secrets only. ``NotFound`` if the entry does not exist."""
        self.db.check_writable()
        where = self.keys.of(stream), validation.check_name(stream), validation.clamp(position)
        if not self.db.write(_REPLACE, validation.encode(body), *where):
            raise validation.no_entry(stream, position)

    def forget(self, stream: str, upto: int) -> None:
        """Delete the entries up to a position. Later entries do not reuse positions."""
        self.db.check_writable()
        self.db.write(_FORGET, self.keys.of(stream), validation.check_name(stream), validation.clamp(upto))

    def names(self, prefix: str) -> list[str]:
        """Return the streams that hold an entry, sorted."""
        return [name for (name,) in _under(self.db, _NAMES, self.keys, prefix)]


class Values(NamedTuple):
    """Named values with versions."""

    db: GuardedConnection
    keys: StoreKeys

    def get(self, key: str) -> Versioned | None:
        return _versioned(key, *self._row(key))

    def put(self, key: str, value: Any, expected: int = ANY_VERSION) -> int:
        """Set a value and return its version. ``Conflict`` (stale-value) if the current version is not ``expected``."""
        self.db.check_writable()
        text = validation.encode(value)
        if expected == ANY_VERSION:
            return int(self.db.fetch(_PUT_NEXT, self.keys.of(key), validation.check_name(key), text)[0][0])
        version, _ = self._expect(key, expected)
        self.db.write(_PUT, self.keys.of(key), key, version + 1, text)
        return version + 1

    def delete(self, key: str, expected: int = ANY_VERSION) -> bool:
        """Delete a value; False if there was none. ``Conflict`` (stale-value) as for ``put``."""
        self.db.check_writable()
        version, text = self._expect(key, expected)
        self.db.write_many(_PUT, [] if text is None else [(self.keys.of(key), key, version, None)])
        return text is not None

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        """Return keys and values under a prefix, sorted by key."""
        return validation.decode_all(_under(self.db, _SCAN, self.keys, prefix))

    def _row(self, key: str) -> tuple[int, str | None]:
        """Return the last version, and the text unless deleted."""
        return _version_and_text(self.db.fetch(_GET, self.keys.of(key), validation.check_name(key)))

    def _expect(self, key: str, expected: int) -> tuple[int, str | None]:
        version, text = self._row(key)
        present = ABSENT if text is None else version
        if expected not in (ANY_VERSION, present):
            raise validation.stale_value(key, expected, present)
        return version, text


def _under(connection: GuardedConnection, sql: str, keys: StoreKeys, prefix: str) -> list[Any]:
    """Return the rows of all names with a prefix, sorted by name, the first column."""
    key, bounds = keys.under(prefix), validation.prefix_range(prefix)
    if key is not None:
        return connection.fetch(sql, key, *bounds)
    both = [(space, row) for space in keys for row in connection.fetch(sql, space, *bounds)]
    return sorted((row for space, row in both if keys.of(row[0]) == space), key=lambda row: str(row[0]))


def _version_and_text(rows: Sequence[tuple[Any, ...]]) -> tuple[int, str | None]:
    return (int(rows[0][0]), rows[0][1]) if rows else (0, None)


def _versioned(key: str, version: int, text: str | None) -> Versioned | None:
    return None if text is None else Versioned(validation.decode(text, key), version)


class Edges(NamedTuple):
    """An index of edges. Several origins may state the same edge; it is live until all of them are retracted.

    A retraction may arrive before the statement it retracts: order does not matter. All lists are sorted.
    """

    db: GuardedConnection
    space: str

    def add(self, edges: Iterable[Edge]) -> None:
        """Add edges. Idempotent."""
        self.db.check_writable()
        self.db.write_many(_ADD, [(self.space, *map(validation.check_name, edge)) for edge in edges])

    def retract(self, source: str, origins: Iterable[str]) -> None:
        """Retract every edge, present or future, that the origins state. ``source`` is the chain with the retraction."""
        self.db.check_writable()
        validation.check_name(source)
        self.db.write_many(_RETRACT, [(self.space, validation.check_name(origin), source) for origin in origins])

    def drop(self, source: str) -> None:
        """Delete every edge and retraction read from a chain."""
        self.db.check_writable()
        for sql in _DROP:
            self.db.write(sql, self.space, validation.check_name(source))

    def clear(self) -> None:
        """Delete everything."""
        self.db.check_writable()
        for sql in _CLEAR:
            self.db.write(sql, self.space)

    def targets(self, src: str, kind: str) -> list[str]:
        """Return the distinct targets of edges of a kind."""
        return self._column(_TARGETS, src, kind)

    def sources(self, dst: str, kind: str) -> list[str]:
        """Return the distinct sources of edges of a kind."""
        return self._column(_SOURCES, dst, kind)

    def reachable(self, src: str, kind: str) -> list[str]:
        """Return every node reachable over edges of a kind. Contains ``src`` only if it is on a cycle."""
        return self._column(REACHABLE, src, kind, self.space, kind)

    def origins(self, src: str, kind: str, dst: str) -> list[str]:
        """Return the origins that state an edge and are not retracted."""
        return self._column(_ORIGINS, src, kind, dst)

    def standing(self, touching: str | None = None) -> list[Edge]:
        """Return the live edges (optionally those that start or end at ``touching``), one per origin and source."""
        if touching is None:
            rows = self.db.fetch(_EDGES, self.space)
        else:
            rows = self.db.fetch(_TOUCHING, self.space, validation.check_name(touching), self.space, touching)
        return sorted(Edge(*row) for row in rows)

    def _column(self, sql: str, *names: str) -> list[str]:
        return [name for (name,) in self.db.fetch(sql, self.space, *map(validation.check_name, names))]
