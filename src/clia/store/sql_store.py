"""Streams, values and edges as tables of an SQL database; what SQLite and PostgreSQL share. The gate's are in ``sql_gate``.

Invariant: every statement names the space, so that one database holds many; every check comes before the first change
of a call, so that a refusal changes nothing. A transaction in which the database refused anything is never committed.
Where clones share live state, what is a cache of one clone's refs is under a key of that clone's own, in the same
transaction. Text sorts by code point in both databases.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.errors import StoreError
from clia.store import rules
from clia.store.interface import ABSENT, ANY_VERSION, CLONE_KEYS, Edge, StreamEntry, Versioned
from clia.store.sql_gate import SqlGate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any


def standing(columns: str, where: str, tables: str = "clia_edges e") -> str:
    """A query of the edges that stand."""
    # The offset makes it a look-up for each edge, where PostgreSQL without statistics would read all retractions.
    kept = "NOT EXISTS (SELECT 1 FROM clia_retractions r WHERE r.space = e.space AND r.origin = e.origin LIMIT 1 OFFSET 0)"
    return f"SELECT {columns} FROM {tables} WHERE e.space = ? AND {where} AND {kept}"  # noqa: S608 (made of the constants below)


def reachable(step: str) -> str:
    """A query of all nodes on the way, given how to go on from those ``reached``: for space, start, kind, space, kind."""
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
# Not sorted here: SQLite would read the whole table in order rather than look up both ends.
_TOUCHING = f"{standing(_EDGE, 'src = ?')} UNION {standing(_EDGE, 'dst = ?')}"


class Connection(ABC):
    """One connection with a transaction begun in it. A failure comes out as a ``StoreError``."""

    @abstractmethod
    def fetch(self, sql: str, words: Sequence[Any]) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        """Runs a change once for each row; how many rows of the table it met."""

    @abstractmethod
    def has_table(self, name: str) -> bool: ...

    @abstractmethod
    def make_tables(self, statements: Sequence[str]) -> None:
        """Runs statements that make what is missing, as part of the transaction; others who do the same are waited for."""

    def appended(self, stream: str) -> None:
        """Something was appended to a stream: for a database that can tell others."""
        del stream

    @abstractmethod
    def finish(self, *, commit: bool) -> None:
        """Ends the transaction and gives the connection back; it is given back also where this raises."""


class SpaceKeys(NamedTuple):
    """Under which keys names are kept: the space's, and one for what a clone keeps for itself. Mostly they are one."""

    shared: str
    own: str

    def of(self, name: str) -> str:
        return self.own if name.startswith(CLONE_KEYS) else self.shared

    def under(self, prefix: str) -> str | None:
        """Where all names with a prefix are; None where some are here and some there."""
        if self.own == self.shared or prefix.startswith(CLONE_KEYS):
            return self.own
        return None if any(each.startswith(prefix) for each in CLONE_KEYS) else self.shared


class SqlStore(ABC):
    """The live state of one space in an SQL database. Threads may share it; each has one transaction at a time.

    ``own``: the key of what is a cache of one clone's refs, where the rest is shared with other clones.
    """

    def __init__(self, space: str, own: str | None = None) -> None:
        self._space = rules.check_name(space)
        self._spaces = SpaceKeys(space, space if own is None else rules.check_name(own))
        self._thread = threading.local()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _rewrite(self) -> str | None:
        """Writes the files anew, without what was deleted in them; what it may not, as ``scrub`` says it."""

    def scrub(self) -> str | None:
        with self._one_at_a_time():
            return self._rewrite()

    @abstractmethod
    def _begin(self, *, writes: bool) -> Connection: ...

    @contextmanager
    def writing(self) -> Iterator[SqlTransaction]:
        with self._connection(writes=True) as guarded:
            yield SqlTransaction(guarded, self._spaces)

    @contextmanager
    def reading(self) -> Iterator[SqlTransaction]:
        with self._connection(writes=False) as guarded:
            yield SqlTransaction(guarded, self._spaces)

    @contextmanager
    def _connection(self, *, writes: bool) -> Iterator[GuardedConnection]:
        with self._one_at_a_time():
            guarded = GuardedConnection(self._begin(writes=writes), writes=writes)
            try:
                yield guarded
            except BaseException:
                with suppress(StoreError):  # what ended the block says more than how its undoing went
                    guarded.finish(commit=False)
                raise
            guarded.finish(commit=True)

    def get(self, key: str) -> Versioned | None:
        return _versioned(key, *_last(self._once(_GET, [self._spaces.of(key), rules.check_name(key)])))

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        where = self._spaces.under(prefix)
        if where is None:
            with self.reading() as view:
                return view.values.scan(prefix)
        return rules.decode_all(self._once(_SCAN, [where, *rules.prefix_range(prefix)]))

    def _once(self, sql: str, words: Sequence[Any]) -> list[tuple[Any, ...]]:
        """What one statement finds by itself; never inside a transaction of this thread, which it would not see."""
        if getattr(self._thread, "inside", False):
            raise rules.nested()
        return self._fetch_once(sql, words)

    def _fetch_once(self, sql: str, words: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._connection(writes=False) as guarded:
            return guarded.fetch(sql, *words)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if getattr(self._thread, "inside", False):
            raise rules.nested()
        self._thread.inside = True
        try:
            yield
        finally:
            self._thread.inside = False


class SqlTransaction:
    """``Transaction`` on tables."""

    def __init__(self, connection: GuardedConnection, spaces: SpaceKeys) -> None:
        self.streams = _Streams(connection, spaces)
        self.values = _Values(connection, spaces)
        self.edges = _Edges(connection, spaces.own)
        self.gate = SqlGate(connection, spaces.own)


class GuardedConnection:
    """A connection that refuses what a transaction may not do, and remembers that something failed in it."""

    def __init__(self, connection: Connection, *, writes: bool) -> None:
        self._connection = connection
        self._writes = writes
        self._process = os.getpid()
        self._ended = False
        self._failure: StoreError | None = None

    def changing(self) -> None:
        """First in every call that changes something: a change in the wrong place is a bug, whatever else is wrong."""
        self._check()
        if not self._writes:
            raise rules.only_reading()

    def fetch(self, sql: str, *words: Any) -> list[tuple[Any, ...]]:
        self._check()
        try:
            return self._connection.fetch(sql, words)
        except StoreError as err:
            raise self._failed(err) from None

    def write(self, sql: str, *words: Any) -> int:
        return self.write_many(sql, [words])

    def write_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        try:
            return self._connection.write(sql, rows) if rows else 0
        except StoreError as err:
            raise self._failed(err) from None

    def has_table(self, name: str) -> bool:
        self._check()
        try:
            return self._connection.has_table(name)
        except StoreError as err:
            raise self._failed(err) from None

    def make_tables(self, statements: Sequence[str]) -> None:
        try:
            self._connection.make_tables(statements)
        except StoreError as err:
            raise self._failed(err) from None

    def appended(self, stream: str) -> None:
        self._connection.appended(stream)

    def finish(self, *, commit: bool) -> None:
        self._check_alive()
        self._ended = True
        self._connection.finish(commit=commit and self._failure is None)
        if commit and self._failure is not None:
            raise self._failure

    def _failed(self, err: StoreError) -> StoreError:
        """Remembers what failed."""
        self._failure = err
        return err

    def _check(self) -> None:
        self._check_alive()
        if self._failure is not None:
            # The database may have undone the transaction already: what came now would be kept by itself.
            raise self._failure

    def _check_alive(self) -> None:
        if self._ended:
            raise rules.ended()
        if self._process != os.getpid():
            raise StoreError("a transaction stays in the process that began it", code="store-forked")


class _Streams:
    def __init__(self, connection: GuardedConnection, spaces: SpaceKeys) -> None:
        self._db = connection
        self._spaces = spaces

    def append(self, stream: str, bodies: Sequence[Any], expected: int | None = None) -> int:
        self._db.changing()
        texts = [rules.encode(body) for body in bodies]
        last = self._moved_end(stream, len(texts), expected)
        if texts:
            space, first = self._spaces.of(stream), last - len(texts) + 1
            self._db.write_many(_APPEND, [(space, stream, position, text) for position, text in enumerate(texts, first)])
            self._db.appended(stream)
        return last

    def _moved_end(self, stream: str, count: int, expected: int | None) -> int:
        """The end, so many entries further; from where it is expected, if that is said."""
        space = self._spaces.of(stream)
        if expected and count:
            moved = self._db.fetch(_MOVE_END_FROM, count, space, rules.check_name(stream), rules.place(expected))
            if moved:
                return int(moved[0][0])
        if expected is not None or not count:
            end = self.end(stream)
            if expected is not None and expected != end:
                raise rules.stale_position(stream, expected, end)
            if not count:
                return end
        return int(self._db.fetch(_MOVE_END, space, rules.check_name(stream), count)[0][0])

    def read(self, stream: str, after: int = 0, limit: int | None = None) -> list[StreamEntry]:
        rows = self._db.fetch(_READ, self._spaces.of(stream), rules.check_name(stream), rules.place(after), rules.at_most(limit))
        bodies = rules.decode_all([(f"{stream}:{position}", body) for position, body in rows])
        return [StreamEntry(position, body) for (position, _), (_, body) in zip(rows, bodies, strict=True)]

    def end(self, stream: str) -> int:
        rows = self._db.fetch(_END, self._spaces.of(stream), rules.check_name(stream))
        return int(rows[0][0]) if rows else 0

    def replace(self, stream: str, position: int, body: Any) -> None:
        self._db.changing()
        where = self._spaces.of(stream), rules.check_name(stream), rules.place(position)
        if not self._db.write(_REPLACE, rules.encode(body), *where):
            raise rules.no_entry(stream, position)

    def forget(self, stream: str, upto: int) -> None:
        self._db.changing()
        self._db.write(_FORGET, self._spaces.of(stream), rules.check_name(stream), rules.place(upto))

    def names(self, prefix: str) -> list[str]:
        return [name for (name,) in _under(self._db, _NAMES, self._spaces, prefix)]


class _Values:
    def __init__(self, connection: GuardedConnection, spaces: SpaceKeys) -> None:
        self._db = connection
        self._spaces = spaces

    def get(self, key: str) -> Versioned | None:
        return _versioned(key, *self._row(key))

    def put(self, key: str, value: Any, expected: int = ANY_VERSION) -> int:
        self._db.changing()
        text = rules.encode(value)
        if expected == ANY_VERSION:
            return int(self._db.fetch(_PUT_NEXT, self._spaces.of(key), rules.check_name(key), text)[0][0])
        version, _ = self._expect(key, expected)
        self._db.write(_PUT, self._spaces.of(key), key, version + 1, text)
        return version + 1

    def delete(self, key: str, expected: int = ANY_VERSION) -> bool:
        self._db.changing()
        version, text = self._expect(key, expected)
        self._db.write_many(_PUT, [] if text is None else [(self._spaces.of(key), key, version, None)])
        return text is not None

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        return rules.decode_all(_under(self._db, _SCAN, self._spaces, prefix))

    def _row(self, key: str) -> tuple[int, str | None]:
        """The last version, and the text where it was not deleted."""
        return _last(self._db.fetch(_GET, self._spaces.of(key), rules.check_name(key)))

    def _expect(self, key: str, expected: int) -> tuple[int, str | None]:
        version, text = self._row(key)
        present = ABSENT if text is None else version
        if expected not in (ANY_VERSION, present):
            raise rules.stale_value(key, expected, present)
        return version, text


def _under(connection: GuardedConnection, sql: str, spaces: SpaceKeys, prefix: str) -> list[Any]:
    """The rows of all names with a prefix, sorted by name, which comes first in each."""
    where, ends = spaces.under(prefix), rules.prefix_range(prefix)
    if where is not None:
        return connection.fetch(sql, where, *ends)
    both = [(space, row) for space in spaces for row in connection.fetch(sql, space, *ends)]
    return sorted((row for space, row in both if spaces.of(row[0]) == space), key=lambda row: str(row[0]))


def _last(rows: Sequence[tuple[Any, ...]]) -> tuple[int, str | None]:
    return (int(rows[0][0]), rows[0][1]) if rows else (0, None)


def _versioned(key: str, version: int, text: str | None) -> Versioned | None:
    return None if text is None else Versioned(rules.decode(text, key), version)


class _Edges:
    def __init__(self, connection: GuardedConnection, space: str) -> None:
        self._db = connection
        self._space = space

    def add(self, edges: Iterable[Edge]) -> None:
        self._db.changing()
        self._db.write_many(_ADD, [(self._space, *map(rules.check_name, edge)) for edge in edges])

    def retract(self, source: str, origins: Iterable[str]) -> None:
        self._db.changing()
        rules.check_name(source)
        self._db.write_many(_RETRACT, [(self._space, rules.check_name(origin), source) for origin in origins])

    def drop(self, source: str) -> None:
        self._db.changing()
        for sql in _DROP:
            self._db.write(sql, self._space, rules.check_name(source))

    def clear(self) -> None:
        self._db.changing()
        for sql in _CLEAR:
            self._db.write(sql, self._space)

    def targets(self, src: str, kind: str) -> list[str]:
        return self._column(_TARGETS, src, kind)

    def sources(self, dst: str, kind: str) -> list[str]:
        return self._column(_SOURCES, dst, kind)

    def reachable(self, src: str, kind: str) -> list[str]:
        return self._column(REACHABLE, src, kind, self._space, kind)

    def origins(self, src: str, kind: str, dst: str) -> list[str]:
        return self._column(_ORIGINS, src, kind, dst)

    def standing(self, touching: str | None = None) -> list[Edge]:
        if touching is None:
            rows = self._db.fetch(_EDGES, self._space)
        else:
            rows = self._db.fetch(_TOUCHING, self._space, rules.check_name(touching), self._space, touching)
        return sorted(Edge(*row) for row in rows)

    def _column(self, sql: str, *names: str) -> list[str]:
        return [name for (name,) in self._db.fetch(sql, self._space, *map(rules.check_name, names))]
