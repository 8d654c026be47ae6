"""The store that several machines share: a PostgreSQL database.

Invariant: writers of a space are serialized by an advisory lock that the server releases with the transaction or the connection,
so each statement sees what earlier writers committed. A transaction that appended to the feed sends a notification when it
commits. Tables are migrated while others use them.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from clia.errors import StoreError
from clia.store import postgres_import
from clia.store import sql_schema as schema
from clia.store.edges import REACHABLE, reachable, standing
from clia.store.interface import EPOCH, FEED
from clia.store.postgres_server import PostgresAddress, detect_dead_peers, lock_number, modules
from clia.store.sql_store import SqlStore
from clia.store.validation import check_name, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from typing import Any, LiteralString

    import psycopg
    import psycopg_pool

    from clia.store.export import StoreExport
    from clia.store.interface import Store
    from clia.store.sql_store import Connection
    from clia.values.clock import Clock

_CONNECTIONS = 16
_CLOCK_REFRESH_SECONDS = 60.0
_CLOCK_RETRY_SECONDS = 2.0  # until the first answer
# READ COMMITTED: in a stricter isolation the snapshot would predate the lock.
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {wait}; SELECT pg_advisory_xact_lock({space})"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_EPOCH_ROW = "SELECT version, value FROM clia_values WHERE {where} AND value IS NOT NULL"
_ADVANCE = "UPDATE clia_values SET version = version + 1 WHERE {where}"
# A look-up per node: without statistics the planner would read all edges at each step (8.5 s instead of 0.1 s for 20,000
# edges).
_STEP = f"SELECT next.dst FROM reached CROSS JOIN LATERAL ({standing('dst', 'src = reached.node AND kind = ?')} OFFSET 0) AS next"  # noqa: S608 (constants)
_OVERRIDES = {REACHABLE: reachable(_STEP)}
# Not to_regclass: it may answer from a cache although another session has created the table.
_HAS_TABLE = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables WHERE tablename = %s AND schemaname = ANY (current_schemas(false)))"
# Locks the schema until the end of the transaction.
_LOCK_SCHEMA: Any = f"SELECT pg_advisory_xact_lock({lock_number('clia schema')})"
_MARK = "SELECT version FROM clia_schema"
_SET_MARK = "UPDATE clia_schema SET version = greatest(version, %s)"
_FIRST_FORM = ("CREATE TABLE clia_schema (version INTEGER NOT NULL)", *schema.FIRST_SCHEMA, "INSERT INTO clia_schema VALUES (1)")
_DIALECT = {"text": 'TEXT COLLATE "C"', "packed": ""}
_STEP_LOCK_MILLISECONDS = 5000
"""How long a migration step waits for writers, who wait behind it. If it fails, the next start retries."""
_FILES = "SELECT pg_relation_filenode(each::regclass) FROM unnest(ARRAY['clia_entries', 'clia_values']) AS each"
_NOT_OWNED = "pages of its files, until the owner of the tables runs VACUUM FULL clia_entries, clia_values, or the same purge"
_STILL_READ = "pages of its files, because an open transaction may still read them; run the same purge again when it has ended"
_NOW = "SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8"
_ENCODING = "SELECT current_setting('server_encoding')"


class PostgresStore(SqlStore):
    """``Store`` in a PostgreSQL database; missing tables are created.

    ``dsn`` is anything libpq accepts: ``postgresql://user@host/database`` or ``host=… dbname=…``.
    ``own``: the key of this clone's own names, if clones share the live state of ``space``.
    ``is_current``: called once, after reading the era: whether the state still belongs under ``space``.
    """

    def __init__(
        self, dsn: str, space: str, *, own: str | None = None, timeout: float = 30.0, is_current: Callable[[], bool] | None = None
    ) -> None:
        super().__init__(space, own)
        self._is_current = is_current
        space_key, key = (text.replace("'", "''") for text in (self._keys.own, EPOCH))
        self._epoch_where = f"space = '{space_key}' AND key = '{key}'"
        self._era_query = postgres_import.era_query(space) if self._keys.own == space else None  # None: cannot be merged
        self._era: tuple[int] | None = None  # the era when the store was opened; None: never merged
        self._opened = False
        self._lock_milliseconds = max(1, int(timeout * 1000))  # 0 would mean forever
        self.address = PostgresAddress(dsn, timeout)
        # Letters and digits for any space.
        self.channel: Any = f"clia_feed_{hashlib.sha256(space.encode()).hexdigest()[:32]}"
        self.tables: set[str] = set()  # that are known to exist
        self._mutex = threading.Lock()
        self._pools: list[tuple[int, psycopg_pool.ConnectionPool]] = []
        self._closed = False

    @property
    def location(self) -> str:
        return str(self.address)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            for process, pool in self._pools:
                if process == os.getpid():
                    pool.close()

    def _begin(self, *, writes: bool) -> Connection:
        pool = self.pool()
        with self.address.translated():
            connection = pool.getconn()
        try:
            begin = _WRITE.format(wait=self._lock_milliseconds, space=lock_number(self._space)) if writes else _READ
            # Reads the epoch and checks the era in the same round trip.
            epoch_query = _EPOCH_ROW.format(where=self._epoch_where) if writes and self.guard is not None else None
            statements: Any = "; ".join(filter(None, (begin, epoch_query, self._era_query)))
            with self.address.translated():
                answers = _first_rows(connection.execute(statements))
                if self._era_query and answers[-1] != self._era:
                    connection.rollback()
                    raise self._moved()
        except BaseException:
            pool.putconn(connection)
            raise
        advance: Any = _ADVANCE.format(where=self._epoch_where)
        epoch = answers[1] if epoch_query else None  # after the answer of the lock
        return _PostgresConnection(self, pool, connection, PostgresEpoch(epoch, advance))

    def now(self) -> float:
        """Return the server's time in seconds since the epoch, also inside a transaction."""
        connection = self._begin(writes=False)
        try:
            return float(connection.fetch(_NOW, ())[0][0])
        finally:
            connection.finish(commit=False)

    def _moved(self) -> StoreError:
        message = "the live state of this clone is now shared with other machines"
        hints = ["restart programs that were running before"]
        return self.address.error(message, code="store-moved", hints=hints)

    def listen(self) -> FeedListener:
        """Return a connection that receives a notification for each transaction that appends to the feed."""
        self.pool()  # raises if the store is closed; creates the tables
        with self.address.translated():
            connection = self.address.connect()
            try:
                connection.execute(f"LISTEN {self.channel}")
            except BaseException:
                connection.close()
                raise
        return FeedListener(connection, self.address, connection.fileno())

    def merge_clone_state(self, old: str) -> int:
        """Move the live state under another key to this space; return the number of names.

        A clone's own names stay. ``Conflict`` (state-in-the-way) if both keys hold a name; nothing is changed then.
        Otherwise stores that are open on the old key are refused from now on (store-moved), even if it was empty.
        """
        if check_name(old) == self._space:
            return 0
        with self._connection(writes=True) as connection:
            connection.fetch("SELECT pg_advisory_xact_lock(?)", lock_number(old))  # other processes may write to the old key
            return postgres_import.merge_and_start_era(connection, old, self._space)

    def import_store(self, export: StoreExport) -> None:
        """Import another store in one transaction; equal rows may exist already.

        ``Conflict`` (state-in-the-way) if a name exists with another value; nothing is changed then.
        """
        with self._connection(writes=True) as connection:
            postgres_import.import_store(connection, export, self._keys)

    def confirm_import(self) -> None:
        """Make the import final, after the other store was retired."""
        with self.writing() as transaction:
            transaction.values.delete(postgres_import.copy_mark(self._keys))

    def _rewrite_files(self) -> str | None:
        dead_rows: list[int] = []  # deleted rows that VACUUM kept for open transactions

        def count(report: psycopg.errors.Diagnostic) -> None:  # its texts are gone when the statement has ended
            # The first number of the detail, in every language.
            number = re.search(r"\d+", report.message_detail or "")
            dead_rows.append(int(number[0]) if number else 0)

        with self.address.translated(), self.pool().connection() as connection:
            connection.execute(f"SET lock_timeout = {self._lock_milliseconds}")
            connection.add_notice_handler(count)
            try:
                before = connection.execute(_FILES).fetchall()
                connection.execute("VACUUM (FULL, VERBOSE) clia_entries, clia_values")
                # A role that does not own the tables only gets a warning. A rewritten table has a new file.
                is_kept = not set(before).isdisjoint(connection.execute(_FILES).fetchall())
            finally:
                connection.remove_notice_handler(count)
                connection.execute("RESET lock_timeout")
        if is_kept:
            return f"{self.address}: {_NOT_OWNED}"
        return f"{self.address}: {_STILL_READ}" if any(dead_rows) else None

    def pool(self) -> psycopg_pool.ConnectionPool:
        """Return this process's pool. A forked child neither uses nor frees its parent's."""
        with self._mutex:
            if self._closed:
                raise refusal("store-closed")
            if not self._pools or self._pools[-1][0] != os.getpid():
                self._pools.append((os.getpid(), self._connect()))
            return self._pools[-1][1]

    def _connect(self) -> psycopg_pool.ConnectionPool:
        with self.address.translated(), self.address.connect() as first:
            self._create_schema(first)
            if self._era_query is not None and not self._opened:  # once, also for forked children
                era = first.execute(self._era_query).fetchone()
                if self._is_current is not None and not self._is_current():  # after reading: a merge changes the setting first
                    raise self._moved()
                self._era, self._opened = era, True
        pools = modules()[1].ConnectionPool
        settings = self.address.pool_settings(_CONNECTIONS, autocommit=True)
        pool: psycopg_pool.ConnectionPool = pools(**settings, configure=detect_dead_peers, check=pools.check_connection, open=True)
        return pool

    def _create_schema(self, connection: psycopg.Connection) -> None:
        if _scalar(connection, _ENCODING) != "UTF8":
            hints = ["createdb --encoding=UTF8 --template=template0 NAME"]
            raise self.address.error("the database encoding is not UTF8", hints=hints)
        if not _scalar(connection, _HAS_TABLE, "clia_schema"):
            with connection.transaction():
                connection.execute(_LOCK_SCHEMA)
                if not _scalar(connection, _HAS_TABLE, "clia_schema"):
                    self.address.check_may_create(connection)
                    _run(connection, _FIRST_FORM)
        schema.check_mark(_scalar(connection, _MARK), store=str(self.address))
        for step in schema.missing(_last_step(connection)):
            if not self._run_step(connection, step):
                break

    def _run_step(self, connection: psycopg.Connection, step: schema.MigrationStep) -> bool:
        """Run a migration step; False if it must wait for writers or privileges, which an optional one may."""
        errors = modules()[0].errors
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {min(self._lock_milliseconds, _STEP_LOCK_MILLISECONDS)}")
                connection.execute(_LOCK_SCHEMA)
                if _last_step(connection) < step.number:
                    _run(connection, schema.statements_of(step))
                    connection.execute(_SET_MARK, [step.min_known])
        except (errors.LockNotAvailable, errors.DeadlockDetected, errors.InsufficientPrivilege):
            if step.number <= schema.NEEDED:
                raise
            return False
        return True


class FeedListener(NamedTuple):
    """Receives notifications of appends. For one thread."""

    connection: psycopg.Connection
    address: PostgresAddress
    number: int  # of its file, also when it is closed

    def fileno(self) -> int:
        """Readable when there is a notification or the connection is lost."""
        return self.number

    def heard(self) -> bool:
        """Whether there was a notification since the last call; ``StoreError`` if the connection is lost."""
        with self.address.translated():
            return len(list(self.connection.notifies(timeout=0))) > 0

    def close(self) -> None:
        self.connection.close()


class PostgresEpoch(NamedTuple):
    """The row of the epoch as a transaction found it, and the statement that advances it."""

    row: tuple[int, str] | None
    advance: LiteralString


class _PostgresConnection:
    def __init__(
        self, store: PostgresStore, pool: psycopg_pool.ConnectionPool, connection: psycopg.Connection, epoch: PostgresEpoch
    ) -> None:
        self._epoch = epoch
        self._store = store
        self._address = store.address
        self._pool = pool
        self._connection = connection
        self._commit: LiteralString = "COMMIT"

    def fetch(self, sql: str, arguments: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._address.translated():
            return self._connection.execute(_dialect(sql), arguments).fetchall()

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        with self._address.translated(), self._connection.cursor() as cursor:
            if len(rows) == 1:
                return cursor.execute(_dialect(sql), rows[0]).rowcount
            cursor.executemany(_dialect(sql), rows)
            # After a pipeline, PostgreSQL 15 does not apply the idle timeout until the next statement.
            self._connection.execute("SELECT 1")
            return cursor.rowcount

    def has_table(self, name: str) -> bool:
        # Cache only positive answers: others may create the table at any time.
        if name not in self._store.tables:
            with self._address.translated():
                if not _scalar(self._connection, _HAS_TABLE, name):
                    return False
            self._store.tables.add(name)
        return True

    def make_tables(self, statements: Sequence[str]) -> None:
        with self._address.translated():
            # Concurrent creators of a table fail even with IF NOT EXISTS.
            self._connection.execute(_LOCK_SCHEMA)
            self._address.check_may_create(self._connection)
            _run(self._connection, statements)

    def appended(self, stream: str) -> None:
        if stream == FEED:
            self._commit = f"NOTIFY {self._store.channel}; COMMIT"

    def advance(self, space: str, key: str) -> tuple[int, str] | None:
        """Advance the epoch, in the same round trip as the commit: writers of a space are serialized."""
        del space, key
        if self._epoch.row is None:
            return None
        self._commit = f"{self._epoch.advance}; {self._commit}"
        return self._epoch.row[0] + 1, self._epoch.row[1]

    def finish(self, *, commit: bool, then: Callable[[], None] | None = None) -> None:
        try:
            with self._address.translated():
                self._connection.execute(self._commit if commit else "ROLLBACK")
            if commit and then is not None:
                then()
        except StoreError as err:
            if commit:  # not retryable: it could be committed twice
                message = f"connection lost during commit, which may have succeeded: {err.message}"
                raise self._address.error(message, code="store-unsure") from None
            raise
        finally:
            self._pool.putconn(self._connection)  # rolls back what is open and drops broken connections


def _dialect(sql: str) -> LiteralString:
    # The statements are constants, which their type cannot express after formatting.
    translated: Any = _OVERRIDES.get(sql, sql).replace("?", "%s")
    return translated  # type: ignore[no-any-return]


def _first_rows(cursor: psycopg.Cursor) -> list[Any]:
    """Return the first row of each result that has rows."""
    rows = []
    while True:
        if cursor.description:
            rows.append(cursor.fetchone())
        if not cursor.nextset():
            return rows


def _scalar(connection: psycopg.Connection, sql: LiteralString, *arguments: str) -> Any:
    row = connection.execute(sql, arguments).fetchone()
    return row[0] if row else None


def _run(connection: psycopg.Connection, statements: Sequence[str]) -> None:
    """Run DDL statements."""
    for statement in statements:
        connection.execute(_dialect(statement.format(**_DIALECT)))


def _last_step(connection: psycopg.Connection) -> int:
    if not _scalar(connection, _HAS_TABLE, schema.STEPS_TABLE):
        return 1
    return int(_scalar(connection, _dialect(schema.LAST_STEP)) or 1)


def time_of(store: Store, clock: Clock) -> float:
    """Return the store's time in seconds since the epoch; ``clock`` is this machine's."""
    return store.now() if isinstance(store, PostgresStore) else clock().timestamp()


def own_clock(clock: Clock) -> Clock:
    """Return the machine's own clock behind a store clock."""
    return clock.own if isinstance(clock, StoreClock) else clock


class StoreClock:
    """One clock for all machines that share a store: the machine's, corrected by the store's, which is queried periodically.

    Invariant: on a PostgreSQL store the time is the server's, within the latency of a query. While the server is unavailable,
    the last known difference applies.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self.own = clock
        self._store = store
        self._offset: timedelta | None = None  # None: unknown, and threads wait for the first answer
        self._queried_at: float | None = None
        self._mutex, self._querying = threading.Lock(), threading.local()

    def __call__(self) -> datetime:
        if self._is_due() and not getattr(self._querying, "now", False) and self._mutex.acquire(blocking=self._offset is None):
            try:
                if self._is_due():
                    self._query()
            finally:
                self._mutex.release()
        return self.own() + (self._offset or timedelta(0))

    def _is_due(self) -> bool:
        interval = _CLOCK_RETRY_SECONDS if self._offset is None else _CLOCK_REFRESH_SECONDS
        return self._queried_at is None or time.monotonic() - self._queried_at > interval

    def _query(self) -> None:
        self._querying.now = True  # the store may call this clock
        try:
            with suppress(StoreError):  # the caller's next use of the store reports it
                self._offset = timedelta(seconds=time_of(self._store, self.own) - self.own().timestamp())
        finally:
            self._queried_at, self._querying.now = time.monotonic(), False
