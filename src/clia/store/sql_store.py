"""Streams and values as SQL tables, shared by SQLite and PostgreSQL. Edges are in ``edges``, the gate in ``capability_gate``.

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
from clia.store.epochs import row_from
from clia.store.interface import ABSENT, ANY_VERSION, CLONE_KEYS, DERIVED, EPOCH, INTENT, StreamEntry, Versioned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from clia.store.capability_gate import SqlGate
    from clia.store.edges import Edges
    from clia.store.epochs import EpochRow, StoreGuard
    from clia.store.export import StoreExport

T = TypeVar("T")


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
_SCAN_WITH_EPOCH = (
    "SELECT key, value, 0 FROM clia_values WHERE space = ? AND key BETWEEN ? AND ? AND value IS NOT NULL"
    " UNION ALL SELECT key, value, version FROM clia_values WHERE space = ? AND key = ? AND value IS NOT NULL"
)
_DISCARD = "DELETE FROM clia_values WHERE space = ? AND key BETWEEN ? AND ?"


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

    def advance(self, space: str, key: str) -> tuple[int, str] | None:
        """Increment the version of a value, and return it with the text; None if there is no value."""

    def finish(self, *, commit: bool, then: Callable[[], None] | None = None) -> None:
        """End the transaction, call ``then`` if it is committed, and return the connection, even if this raises."""


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
        self.guard: StoreGuard | None = None
        """Checks that this is the store of the repository; None: not checked."""

    @property
    @abstractmethod
    def location(self) -> str:
        """Where the store is, for messages: its path or address."""

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
        with self.transaction() as connection:
            yield SqlTransaction(connection, self._keys)
            if self.guard is not None and (connection.changes_live_state or connection.changes_intents):
                connection.after_commit = self.guard.admit(connection, live=connection.changes_live_state)

    def transaction(self) -> AbstractContextManager[GuardedConnection]:
        """Begin a transaction that the guard does not check."""
        return self._connection(writes=True)

    @contextmanager
    def reading(self) -> Iterator[SqlTransaction]:
        """Open one consistent view. Writing in it is a bug and a ``StoreError``."""
        with self._connection(writes=False) as connection:
            yield SqlTransaction(connection, self._keys)

    @contextmanager
    def snapshot(self, without: tuple[str, ...]) -> Iterator[StoreExport]:
        """Export everything except names that start with one of ``without``, as it is when the block begins; nobody waits."""
        from clia.store.export import StoreExport  # most processes export nothing

        with self._connection(writes=False) as connection:
            export = StoreExport(connection, self._keys, without)
            export.epoch()  # the first statement fixes the view
            yield export

    @contextmanager
    def _connection(self, *, writes: bool) -> Iterator[GuardedConnection]:
        with self._one_at_a_time():
            connection = GuardedConnection(self._begin(writes=writes), self._keys, writes=writes)
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

    def scan_at_opening(self, prefix: str) -> list[tuple[str, Any]]:
        """Return what ``scan`` returns, and look at the epoch in the same statement."""
        mark = None if self.guard is None else self.guard.read_mark()
        rows = self._fetch_once(_SCAN_WITH_EPOCH, [self._keys.of(prefix), *validation.prefix_range(prefix), self._keys.own, EPOCH])
        if self.guard is not None:
            self.guard.look(mark, next((row_from(version, text) for key, text, version in rows if key == EPOCH), None))
        return validation.decode_all(sorted((key, text) for key, text, _ in rows if key != EPOCH))

    def epoch_row(self) -> EpochRow | None:
        """Return the row that names the epoch of this store; None if it has none."""
        rows = self._fetch_once(_GET, [self._keys.own, EPOCH])
        return row_from(*rows[0]) if rows and rows[0][1] is not None else None

    def require_sound(self, *, look: bool = False) -> None:
        """``StoreError`` if the store is lost, an older copy or another one (``epochs``).

        ``look``: also if it was replaced since it was opened, which otherwise the next write notices.
        """
        if self.guard is not None:
            if look:
                self.guard.look(self.guard.read_mark(), self.epoch_row())
            self.guard.require()

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
        self._connection, self._own = connection, keys.own

    @cached_property
    def edges(self) -> Edges:
        """The relations between agents."""
        from clia.store.edges import Edges  # most transactions read none

        return Edges(self._connection, self._own)

    @cached_property
    def gate(self) -> SqlGate:
        """The grants of peers. One object for a transaction, because it may have created the tables."""
        from clia.store.capability_gate import SqlGate  # most transactions ask for none

        return SqlGate(self._connection, self._own)


class GuardedConnection:
    """A connection that enforces the rules of a transaction and remembers failures."""

    def __init__(self, connection: Connection, keys: StoreKeys, *, writes: bool) -> None:
        self._connection = connection
        self.key_of = keys.of
        self._writes = writes
        self.changes_live_state = self.changes_intents = False
        self.after_commit: Callable[[], None] | None = None
        self._process = os.getpid()
        self._ended = False
        self._failure: StoreError | None = None
        self.appended = connection.appended

    def check_writable(self) -> None:
        """Refuse a write in a read-only transaction. The first check of every write."""
        self._check()
        if not self._writes:
            raise validation.refusal("only-reading")

    def check_change(self, name: str) -> None:
        """The same for a change of a stream or value."""
        self.check_writable()
        if name.startswith(INTENT):
            self.changes_intents = True
        elif not name.startswith(DERIVED):
            self.changes_live_state = True

    def fetch(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return self._call(self._connection.fetch, sql, arguments)

    def write(self, sql: str, *arguments: Any) -> int:
        return self._call(self._connection.write, sql, [arguments])

    def write_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        return self._call(self._connection.write, sql, rows) if rows else 0

    def advance(self, key: str) -> EpochRow | None:
        """Increment the version of the row that names the epoch; None if there is none."""
        row = self._call(self._connection.advance, self.key_of(key), key)
        return None if row is None else row_from(*row)

    def has_table(self, name: str) -> bool:
        return self._call(self._connection.has_table, name)

    def make_tables(self, statements: Sequence[str]) -> None:
        self._call(self._connection.make_tables, statements)

    def finish(self, *, commit: bool) -> None:
        self._check_alive()
        self._ended = True
        self._connection.finish(commit=commit and self._failure is None, then=self.after_commit)
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
        if self._ended or self._process != os.getpid():
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
        self.db.check_change(stream)
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
        self.db.check_change(stream)
        where = self.keys.of(stream), validation.check_name(stream), validation.clamp(position)
        if not self.db.write(_REPLACE, validation.encode(body), *where):
            raise validation.no_entry(stream, position)

    def forget(self, stream: str, upto: int) -> None:
        """Delete the entries up to a position. Later entries do not reuse positions."""
        self.db.check_change(stream)
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
        self.db.check_change(key)
        text = validation.encode(value)
        if expected == ANY_VERSION:
            return int(self.db.fetch(_PUT_NEXT, self.keys.of(key), validation.check_name(key), text)[0][0])
        version, _ = self._expect(key, expected)
        self.db.write(_PUT, self.keys.of(key), key, version + 1, text)
        return version + 1

    def delete(self, key: str, expected: int = ANY_VERSION) -> bool:
        """Delete a value; False if there was none. ``Conflict`` (stale-value) as for ``put``."""
        self.db.check_change(key)
        version, text = self._expect(key, expected)
        self.db.write_many(_PUT, [] if text is None else [(self.keys.of(key), key, version, None)])
        return text is not None

    def discard(self, prefix: str) -> None:
        """Delete all values under a prefix, and their versions: only for keys that are never expected to have a version."""
        self.db.check_change(prefix)
        self.db.write(_DISCARD, self.keys.of(prefix), *validation.prefix_range(prefix))

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        """Return keys and values under a prefix, sorted by key."""
        return validation.decode_all(_under(self.db, _SCAN, self.keys, prefix))

    def each(self, prefix: str) -> Iterator[tuple[str, Any]]:
        """As ``scan``, for callers that keep few of the values: a third faster if there are thousands."""
        return validation.decoded(_under(self.db, _SCAN, self.keys, prefix))

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
