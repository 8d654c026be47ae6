"""The store of one machine: an SQLite file beside the git directory.

Invariant: writers queue at ``<path>.lock`` before SQLite sees them, because SQLite's own waiting starves under load; the kernel
releases that lock at death, and readers never take it. No connection survives a fork: SQLite would rely on locks that only the
parent holds, and the child's commits could be lost (measured). The first writer migrates an older file; readers use it as it is.
Only SQLite opens the database file: closing any other handle on it would drop SQLite's locks. A store that is moved to a server
is marked and its tables renamed in one transaction, so that no process continues to use it, not even one that has it open.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
import weakref
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple
from urllib.parse import quote

from clia.errors import StoreError
from clia.store import private_files, validation
from clia.store import sql_schema as schema
from clia.store.sql_store import SqlStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.store.export import StoreExport
    from clia.store.sql_store import Connection

    FileId = tuple[int, int]  # distinguishes a file from another one with the same name

STORE_FILE = "space.db"
"""In the directory of clia's own files."""
TIMEOUT = 30.0
"""Seconds to wait for other processes."""
_NOT_WRITABLE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
# The last one: a process was stopped while it recovered the journal, which all others wait for.
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.01
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
_ADVANCE = "UPDATE clia_values SET version = version + 1 WHERE space = ? AND key = ? AND value IS NOT NULL RETURNING version, value"
_DIALECT = {"text": "TEXT", "packed": " WITHOUT ROWID"}
# SQLite result code: our code and hint. Everything else is a ``store-error``.
ERRORS = {
    sqlite3.SQLITE_ERROR: ("store-corrupt", validation.REBUILD),  # our statements are valid, so the tables are damaged
    sqlite3.SQLITE_CORRUPT: ("store-corrupt", validation.REBUILD),
    sqlite3.SQLITE_NOTADB: ("store-corrupt", validation.REBUILD),
    sqlite3.SQLITE_CANTOPEN: (
        "store-unreadable",
        f"make the file and its directory readable and writable, or {validation.REBUILD}",
    ),
    sqlite3.SQLITE_PERM: ("store-unreadable", f"make the file and its directory readable and writable, or {validation.REBUILD}"),
    sqlite3.SQLITE_READONLY: ("store-read-only", f"make the file and its directory writable, or {validation.REBUILD}"),
    sqlite3.SQLITE_FULL: ("store-full", "free some space on its disk"),
    sqlite3.SQLITE_IOERR: ("store-unreadable", f"check its disk; if the file is damaged, {validation.REBUILD}"),
}
_TABLES = r"SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'clia\_%' ESCAPE '\'"


class SqliteStore(SqlStore):
    """``Store`` in an SQLite file, created if missing.

    ``durable``: committed transactions survive a power failure; otherwise only the death of the process.
    """

    def __init__(self, path: str, space: str, *, durable: bool = True, timeout: float | None = None) -> None:
        super().__init__(space)
        self.path = path
        self._durable = durable
        self._timeout = TIMEOUT if timeout is None else timeout
        self._mutex = threading.Lock()
        self._idle: list[tuple[sqlite3.Connection, FileId]] = []
        self._busy = 0
        self._closed = False
        self._forked_busy = False
        self._migrated: FileId | None = None  # the file that is known to be migrated
        _STORES.add(self)

    @property
    def location(self) -> str:
        return self.path

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._drop_idle()

    @contextmanager
    def exporting(self, without: tuple[str, ...]) -> Iterator[StoreExport]:
        """Export everything except names that start with one of ``without``; writers wait.

        If the block succeeds, this store is retired; otherwise nothing is changed.
        """
        from clia.store.export import StoreExport  # most processes export nothing

        with self._connection(writes=True) as connection:
            yield StoreExport(connection, self._keys, without)
            for (name,) in connection.fetch(_TABLES):
                connection.fetch(f"ALTER TABLE {name} RENAME TO moved_{name}")  # our own names
            connection.fetch(f"PRAGMA user_version = {schema.MOVED}")

    def _begin(self, *, writes: bool) -> Connection:
        lock = self._lock_writers() if writes else None
        try:
            connection, file = self._acquire(queued=writes)
            try:
                if writes and file is not None and file != self._migrated:
                    _migrate(connection)
                    self._migrated = file
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            except sqlite3.Error as err:
                self.release_connection(connection, None)
                raise _error(self.path, err) from None
        except BaseException:
            _release(lock)
            raise
        return _SqliteConnection(self, connection, file, lock)

    def _fetch_once(self, sql: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        self._check_not_nested()
        connection, file = self._acquire(queued=False)
        usable = None
        try:
            rows = connection.execute(sql, arguments).fetchall()
            usable = file
        except sqlite3.Error as err:
            raise _error(self.path, err) from None
        finally:
            self.release_connection(connection, usable)
        return rows

    def _rewrite_files(self) -> None:
        lock = self._lock_writers()
        try:
            connection, file = self._acquire(queued=True)
            try:
                connection.execute("VACUUM")
                # The journal holds the old pages; wait for readers that still use it.
                (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as err:
                raise _error(self.path, err) from None
            finally:
                self.release_connection(connection, file)
            if busy:
                raise _locked(self.path, f"other processes kept reading for {self._timeout:g} s")
        finally:
            _release(lock)

    def _lock_writers(self) -> int:
        """Wait for the writers' lock and return its handle."""
        try:
            handle = private_files.open_lock(f"{self.path}.lock")
        except (OSError, ValueError) as err:
            reason = getattr(err, "strerror", None) or str(err)
            code, hint = ERRORS[sqlite3.SQLITE_READONLY]
            message = f"{self.path}: the store is not writable: {reason}"
            raise StoreError(message, code=code, hints=[hint], fields={"path": self.path, "reason": reason}) from None
        waited, pause = 0.0, _FIRST_PAUSE
        try:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return handle
                if waited >= self._timeout:
                    holder, fields = private_files.describe_holder(handle)
                    raise _locked(self.path, f"{holder}; it was waited for {self._timeout:g} s", fields)
                time.sleep(pause)
                waited += pause
                pause = min(pause * 2, _LONGEST_PAUSE)
        except BaseException:
            os.close(handle)
            raise

    def _acquire(self, *, queued: bool) -> tuple[sqlite3.Connection, FileId | None]:
        """Return a connection and the id of its file; no id if it must not be reused."""
        with self._mutex:
            if self._closed:
                raise validation.refusal("store-closed")
            if self._forked_busy:
                message = "the process was forked while a transaction was open"
                hints = ["start processes with exec instead of fork"]
                raise StoreError(message, code="store-forked", hints=hints, fields={"path": self.path})
            self._busy += 1
            while self._idle:
                connection, file = self._idle.pop()
                # A damaged store may have been moved aside: do not write to it there.
                if file == _file_id(self.path):
                    return connection, file
                connection.close()
        try:
            return self._connect(queued=queued)
        except BaseException:
            with self._mutex:
                self._busy -= 1
            raise

    def release_connection(self, connection: sqlite3.Connection, file: FileId | None) -> None:
        with self._mutex:
            self._busy -= 1
            if file is None or self._closed:
                connection.close()
            else:
                self._idle.append((connection, file))

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()

    def _connect(self, *, queued: bool) -> tuple[sqlite3.Connection, FileId | None]:
        with suppress(OSError, ValueError):  # SQLite reports the problem
            private_files.make_directory(os.path.dirname(self.path))
            private_files.make_file(self.path)  # SQLite gives -wal and -shm the same mode
            for suffix in ("-wal", "-shm", ".lock"):
                private_files.adjust(self.path + suffix)
        try:
            return self._open("mode=rwc", queued=queued), _file_id(self.path)
        except sqlite3.Error as err:
            # An unused database in a read-only directory: SQLite can read it as immutable.
            if _primary(err) not in _NOT_WRITABLE or _file_id(self.path) is None or _file_id(f"{self.path}-wal") is not None:
                raise _error(self.path, err) from None
        try:
            return self._open("mode=ro&immutable=1", queued=queued), None
        except sqlite3.Error as err:
            raise _error(self.path, err) from None

    def _open(self, mode: str, *, queued: bool) -> sqlite3.Connection:
        try:
            address = f"file:{quote(os.fsencode(self.path))}?{mode}"
            connection = sqlite3.connect(address, timeout=self._timeout, isolation_level=None, check_same_thread=False, uri=True)
        except ValueError as err:
            raise StoreError(f"{self.path!r}: {err}", fields={"path": self.path, "reason": str(err)}) from None
        try:
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            if not self._version(connection):
                self._create(connection, queued=queued)
        except BaseException:
            connection.close()
            raise
        return connection

    def _version(self, connection: sqlite3.Connection) -> int:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == schema.MOVED:
            raise _moved(self.path)
        schema.check_mark(version, path=self.path)
        return int(version)

    def _create(self, connection: sqlite3.Connection, *, queued: bool) -> None:
        lock = None if queued else self._lock_writers()
        try:
            if self._version(connection):
                return
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if tables:
                message = f"{self.path} is an SQLite database of another application"
                raise StoreError(message, code="not-a-store", hints=[validation.REBUILD], fields={"path": self.path})
            connection.execute("PRAGMA journal_mode = WAL")
            with connection:  # commits, or rolls back
                connection.execute("BEGIN IMMEDIATE")
                for statement in schema.FIRST_SCHEMA:
                    connection.execute(statement.format(**_DIALECT))
                connection.execute("PRAGMA user_version = 1")
                for step in schema.STEPS:
                    _run_step(connection, step)
        finally:
            _release(lock)

    def before_fork(self) -> None:
        self._mutex.acquire()
        self._drop_idle()

    def after_fork(self, *, child: bool) -> None:
        self._forked_busy = self._forked_busy or (child and self._busy > 0)
        self._mutex.release()


class _SqliteConnection(NamedTuple):
    store: SqliteStore
    connection: sqlite3.Connection
    file: FileId | None
    lock: int | None

    def fetch(self, sql: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(sql, arguments).fetchall()
        except sqlite3.Error as err:
            raise _error(self.store.path, err) from None

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        try:
            return self.connection.executemany(sql, rows).rowcount
        except sqlite3.Error as err:
            raise _error(self.store.path, err) from None

    def has_table(self, name: str) -> bool:
        return bool(self.fetch(_HAS_TABLE, [name]))

    def make_tables(self, statements: Sequence[str]) -> None:
        for statement in statements:  # the only writer
            self.fetch(statement.format(**_DIALECT), [])

    def appended(self, stream: str) -> None:
        """SQLite has no notifications."""

    def advance(self, space: str, key: str) -> tuple[int, str] | None:
        rows = self.fetch(_ADVANCE, [space, key])
        return (int(rows[0][0]), rows[0][1]) if rows else None

    def finish(self, *, commit: bool, then: Callable[[], None] | None = None) -> None:
        file = None
        try:
            if commit or self.connection.in_transaction:  # SQLite rolls back some failures itself
                self.connection.execute("COMMIT" if commit else "ROLLBACK")
            file = self.file
            if commit and then is not None:
                then()  # other writers still wait
        except sqlite3.Error as err:
            raise _error(self.store.path, err) from None
        finally:
            self.store.release_connection(self.connection, file)
            _release(self.lock)


def _migrate(connection: sqlite3.Connection) -> None:
    """Run the missing migration steps. Requires the writers' lock."""
    try:
        (last,) = connection.execute(schema.LAST_STEP).fetchone()
    except sqlite3.OperationalError:
        if connection.execute(_HAS_TABLE, [schema.STEPS_TABLE]).fetchone() is not None:
            raise
        last = None  # the first schema has no table of steps
    steps = schema.missing(last or 1)
    if steps:
        with connection:  # commits, or rolls back
            connection.execute("BEGIN IMMEDIATE")
            for step in steps:
                _run_step(connection, step)


def _run_step(connection: sqlite3.Connection, step: schema.MigrationStep) -> None:
    for statement in schema.statements_of(step):
        connection.execute(statement.format(**_DIALECT))
    (mark,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {max(mark, step.min_known)}")


def _file_id(path: str) -> FileId | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _release(lock: int | None) -> None:
    if lock is not None:
        private_files.release_lock(lock)


def _primary(err: Exception) -> int:
    return int(getattr(err, "sqlite_errorcode", 0)) & 0xFF


def _error(path: str, err: Exception) -> StoreError:
    if _primary(err) in _LOCKED:
        holder, fields = private_files.describe_holders(private_files.record_lockers(f"{path}-shm"))
        return _locked(path, f"{err}, {holder}", fields)
    if _primary(err) == sqlite3.SQLITE_ERROR and is_moved(path):  # while it was open here
        return _moved(path)
    code, *hints = ERRORS.get(_primary(err), (None,))
    return StoreError(f"{path}: store error: {err}", code=code, hints=hints, fields={"path": path, "reason": str(err)})


def _locked(path: str, reason: str, holder: Mapping[str, int] | None = None) -> StoreError:
    message, hints = f"{path}: the store is locked: {reason}", ["another program is using it; try again"]
    error = StoreError(message, code="store-locked", hints=hints, fields={"path": path, "reason": reason, **(holder or {})})
    error.retryable = True
    return error


def is_moved(path: str) -> bool:
    """Whether the file is marked as moved; False if it is missing or unreadable."""
    with suppress(sqlite3.Error, ValueError):
        address = f"file:{quote(os.fsencode(path))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            return bool(connection.execute("PRAGMA user_version").fetchone()[0] == schema.MOVED)
    return False


def _moved(path: str) -> StoreError:
    hints = [
        "restart programs that were running before the move",
        "git config clia.store shows its address; if unset, run clia init --store postgresql://… again",
        f"to start with an empty store instead: move {path} aside and run 'clia rebuild'",
    ]
    return StoreError(f"{path}: the live state has moved to PostgreSQL", code="store-moved", hints=hints, fields={"path": path})


_STORES: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_forking: list[SqliteStore] = []


def _before_fork() -> None:
    _forking.extend(_STORES)
    for store in _forking:
        store.before_fork()


def _after_fork(*, child: bool) -> None:
    while _forking:
        _forking.pop().after_fork(child=child)


os.register_at_fork(
    before=_before_fork, after_in_parent=lambda: _after_fork(child=False), after_in_child=lambda: _after_fork(child=True)
)
