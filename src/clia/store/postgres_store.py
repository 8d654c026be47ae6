"""The store that several machines share: a PostgreSQL database.

Invariant: writers of one space follow one another by an advisory lock that the server frees at the end of a transaction
or of its connection, so that each statement sees what the writer before has committed. A transaction that appended to the
feed tells everyone who listens, if and when it is committed. Tables are brought forward beside whoever works with them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading

from clia.errors import StoreError
from clia.store import postgres_migration as migration
from clia.store import sql_schema as schema
from clia.store.interface import FEED
from clia.store.postgres_server import ALIVE, PostgresAddress, lock_number, modules, watch
from clia.store.rules import check_name, closed
from clia.store.sql_store import REACHABLE, Connection, SqlStore, reachable, standing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, LiteralString

    import psycopg
    import psycopg_pool

    from clia.store.sqlite_export import SqliteExport

_CONNECTIONS = 16
# The lock is the first statement: in a stricter isolation the view would be from before it was granted.
_RECONNECT_SECONDS = 15.0
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {wait}; SELECT pg_advisory_xact_lock({space})"
_LOOK = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# One look-up for each node: left to itself the planner, while it has no statistics, reads all edges at each step (measured:
# 8.5 s instead of 0.1 s for 20,000 edges).
_STEP = f"SELECT next.dst FROM reached CROSS JOIN LATERAL ({standing('dst', 'src = reached.node AND kind = ?')} OFFSET 0) AS next"  # noqa: S608 (constants)
_OWN = {REACHABLE: reachable(_STEP)}
# Not to_regclass: it may answer from what the session remembers, although another has made the table since.
_HAS_TABLE = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables WHERE tablename = %s AND schemaname = ANY (current_schemas(false)))"
_MARK = "SELECT version FROM clia_schema"
_SET_MARK = "UPDATE clia_schema SET version = greatest(version, %s)"
_FIRST_FORM = ("CREATE TABLE clia_schema (version INTEGER NOT NULL)", *schema.FIRST_SCHEMA, "INSERT INTO clia_schema VALUES (1)")
_WORDS = {"text": 'TEXT COLLATE "C"', "packed": ""}
_STEP_SECONDS = 5.0
"""So long a step waits for those who write, and they behind it. If that is too short, the next start tries again."""
_FILES = "SELECT pg_relation_filenode(each::regclass) FROM unnest(ARRAY['clia_entries', 'clia_values']) AS each"
_NOT_OURS = "pages of its files, until who owns the tables runs VACUUM FULL clia_entries, clia_values, or the same purge"
_ENCODING = "SELECT current_setting('server_encoding')"


class PostgresStore(SqlStore):
    """``Store`` in a PostgreSQL database, whose tables are made where they are missing.

    ``dsn`` is anything libpq takes: ``postgresql://user@host/database`` or ``host=… dbname=…``.
    ``own``: where clones share the live state of ``space``, the key of what this one keeps for itself.
    ``stays``: asked once, when it is known how often the state of ``space`` was taken over: whether it still belongs there.
    """

    def __init__(
        self, dsn: str, space: str, *, own: str | None = None, timeout: float = 30.0, stays: Callable[[], bool] | None = None
    ) -> None:
        super().__init__(space, own)
        self._stays = stays
        self._ask_era = migration.era_query(space) if self._spaces.own == space else None  # None: nobody takes it over
        self._era: tuple[int] | None = None  # what that said when the store was opened; None: never
        self._opened = False
        self._dsn = dsn
        self._timeout = timeout
        self._address = PostgresAddress(dsn)
        self._mutex = threading.Lock()
        self._pools: list[tuple[int, psycopg_pool.ConnectionPool]] = []
        self._closed = False
        self._tables: set[str] = set()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            for process, pool in self._pools:
                if process == os.getpid():
                    pool.close()

    def _begin(self, *, writes: bool) -> Connection:
        pool = self._pool()
        with self._address.translated():
            connection = pool.getconn()
        try:
            with self._address.translated():
                self._start(connection, _WRITE.format(wait=self._wait(), space=lock_number(self._space)) if writes else _LOOK)
        except BaseException:
            pool.putconn(connection)
            raise
        return _PostgresConnection(pool, connection, self._address, _channel(self._space), self._tables)

    def _start(self, connection: psycopg.Connection, begin: LiteralString) -> None:
        """Begins a transaction; one of a clone's state only where that is still here, which is asked on the same way."""
        if self._ask_era is None:
            connection.execute(begin)
            return
        answer = connection.execute(f"{begin}; {self._ask_era}")
        while answer.nextset():
            pass
        if answer.fetchone() != self._era:
            connection.rollback()
            raise self._moved()

    def _moved(self) -> StoreError:
        return self._address.error(
            "what was live in this clone is shared with other machines by now",
            code="store-moved",
            hints=["a program that was at work before must be started again"],
        )

    def listen(self) -> Listener:
        """A connection of its own that hears of every transaction that appended to the feed, from now on."""
        self._pool()  # refuses where the store is closed, and makes the tables
        postgres, _ = modules()
        with self._address.translated():
            connection = postgres.connect(self._dsn, autocommit=True, connect_timeout=self._seconds(), **ALIVE)
            try:
                connection.execute(f"LISTEN {_channel(self._space)}")
            except BaseException:
                connection.close()
                raise
        return Listener(connection, self._address)

    def merge_clone_state(self, old: str) -> int:
        """Brings the live state that was kept under another key under this space's; how many names that were.

        What is a clone's own stays where it is. ``Conflict`` (state-in-the-way) where both keys hold a name: nothing is changed.
        Else whoever has the old key's state open is refused from now on (store-moved), also where it held nothing.
        """
        if check_name(old) == self._space:
            return 0
        with self._connection(writes=True) as guarded:
            guarded.fetch("SELECT pg_advisory_xact_lock(?)", lock_number(old))  # a process that knows only the old key may write
            sql, words = migration.has_state(old)
            brought = migration.merge_clone_state(guarded, old, self._space) if guarded.fetch(sql, *words)[0][0] else 0
            migration.start_era(guarded, old)
            return brought

    def import_store(self, export: SqliteExport) -> None:
        """Brings what another store held of this space, in one transaction; what is here already may be there once more.

        ``Conflict`` (state-in-the-way) where a name is here with something else: nothing is changed.
        """
        with self._connection(writes=True) as guarded:
            migration.import_store(guarded, export, self._spaces)

    def confirm_import(self) -> None:
        """The other store was left for good: what was brought is no copy any more."""
        with self.writing() as transaction:
            transaction.values.delete(migration.copy_mark(self._spaces))

    def _rewrite(self) -> str | None:
        with self._address.translated(), self._pool().connection() as connection:
            connection.execute(f"SET lock_timeout = {self._wait()}")
            try:
                before = connection.execute(_FILES).fetchall()
                connection.execute("VACUUM FULL clia_entries, clia_values")
                # A role that does not own the tables is only warned. A table that was written anew is another file.
                left = set(before) & set(connection.execute(_FILES).fetchall())
            finally:
                connection.execute("RESET lock_timeout")
        return f"{self._address}: {_NOT_OURS}" if left else None

    def _wait(self) -> int:
        return max(1, int(self._timeout * 1000))  # none would mean for ever

    def _pool(self) -> psycopg_pool.ConnectionPool:
        """This process's own: after a fork the child leaves its parent's alone, also from being collected."""
        with self._mutex:
            if self._closed:
                raise closed()
            if not self._pools or self._pools[-1][0] != os.getpid():
                self._pools.append((os.getpid(), self._connect()))
            return self._pools[-1][1]

    def _connect(self) -> psycopg_pool.ConnectionPool:
        postgres, pools = modules()
        # The first connection is made here: the pool would try one that is refused again until its time is up.
        with self._address.translated(), postgres.connect(self._dsn, autocommit=True, connect_timeout=self._seconds()) as first:
            self._make_schema(first)
            self._open(first)
        # The pool reports lost connections to the log; whoever asks next hears of it as an error.
        logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
        pool: psycopg_pool.ConnectionPool = pools.ConnectionPool(
            self._dsn,
            kwargs={"autocommit": True, "connect_timeout": self._seconds(), **ALIVE},
            configure=watch,
            min_size=0,
            max_size=_CONNECTIONS,
            num_workers=1,
            timeout=self._timeout,
            # The pool waits twice as long after each failure: a server that was away for minutes would be missed for minutes.
            reconnect_timeout=min(self._timeout, _RECONNECT_SECONDS),
            check=pools.ConnectionPool.check_connection,
            open=True,
        )
        return pool

    def _open(self, connection: psycopg.Connection) -> None:
        """Remembers what a clone's state must go on to be: for good, also in a process that is forked off."""
        if self._ask_era is not None and not self._opened:
            era = connection.execute(self._ask_era).fetchone()
            if self._stays is not None and not self._stays():  # only now: who takes it over says so first, and counts then
                raise self._moved()
            self._era, self._opened = era, True

    def _seconds(self) -> int:
        return max(2, round(self._timeout))  # libpq takes no less

    def _make_schema(self, connection: psycopg.Connection) -> None:
        if _one(connection, _ENCODING) != "UTF8":
            raise self._address.error("its encoding is not UTF8", hints=["createdb --encoding=UTF8 --template=template0 NAME"])
        connection.isolation_level = modules()[0].IsolationLevel.READ_COMMITTED
        if not _one(connection, _HAS_TABLE, "clia_schema"):
            with connection.transaction():
                connection.execute(_making())
                if not _one(connection, _HAS_TABLE, "clia_schema"):
                    self._address.check_may_make(connection)
                    _run(connection, _FIRST_FORM)
        schema.check_mark(_one(connection, _MARK), store=str(self._address))
        for step in schema.missing(_last_step(connection)):
            if not self._take_step(connection, step):
                break

    def _take_step(self, connection: psycopg.Connection, step: schema.MigrationStep) -> bool:
        """Whether a step was taken, by whomever. One that is not needed may wait: for writers, or for rights."""
        errors = modules()[0].errors
        wait = max(1, int(min(self._timeout, _STEP_SECONDS) * 1000))
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {wait}")
                connection.execute(_making())
                if _last_step(connection) < step.number:
                    _run(connection, schema.statements_of(step))
                    connection.execute(_SET_MARK, [step.min_known])
        except (errors.LockNotAvailable, errors.DeadlockDetected, errors.InsufficientPrivilege):
            if step.number <= schema.NEEDED:
                raise
            return False
        return True


class Listener:
    """What hears of appends. For one thread."""

    def __init__(self, connection: psycopg.Connection, address: PostgresAddress) -> None:
        self._connection = connection
        self._address = address
        self._number = connection.fileno()

    def fileno(self) -> int:
        """Readable when something was said, or the connection is lost."""
        return self._number

    def heard(self) -> bool:
        """Whether something was said since the last time; ``StoreError`` where the connection is lost."""
        with self._address.translated():
            return len(list(self._connection.notifies(timeout=0))) > 0

    def close(self) -> None:
        self._connection.close()


class _PostgresConnection(Connection):
    def __init__(
        self,
        pool: psycopg_pool.ConnectionPool,
        connection: psycopg.Connection,
        address: PostgresAddress,
        channel: LiteralString,
        tables: set[str],
    ) -> None:
        self._pool = pool
        self._connection = connection
        self._address = address
        self._channel = channel
        self._tables = tables
        self._commit: LiteralString = "COMMIT"

    def fetch(self, sql: str, words: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._address.translated():
            return self._connection.execute(_dialect(sql), words).fetchall()

    def write(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        with self._address.translated(), self._connection.cursor() as cursor:
            if len(rows) == 1:
                return cursor.execute(_dialect(sql), rows[0]).rowcount
            cursor.executemany(_dialect(sql), rows)
            # After a pipeline, which that is, a server of version 15 does not watch how long a transaction says nothing.
            self._connection.execute("SELECT 1")
            return cursor.rowcount

    def has_table(self, name: str) -> bool:
        # Only that it is there is remembered: others may make it at any time, and each look is a way to the server and back.
        if name not in self._tables:
            with self._address.translated():
                if not _one(self._connection, _HAS_TABLE, name):
                    return False
            self._tables.add(name)
        return True

    def make_tables(self, statements: Sequence[str]) -> None:
        with self._address.translated():
            # Writers of other spaces do not wait for this one, and two who make one table at once fail, IF NOT EXISTS or not.
            self._connection.execute(_making())
            self._address.check_may_make(self._connection)
            _run(self._connection, statements)

    def appended(self, stream: str) -> None:
        if stream == FEED:
            self._commit = f"NOTIFY {self._channel}; COMMIT"

    def finish(self, *, commit: bool) -> None:
        try:
            with self._address.translated():
                self._connection.execute(self._commit if commit else "ROLLBACK")
        except StoreError as err:
            if commit:
                # Trying again could do it twice.
                raise self._address.error(f"lost while committing, perhaps done: {err.message}", code="store-unsure") from None
            raise
        finally:
            self._pool.putconn(self._connection)  # which undoes what is still open, and drops what is broken


def _dialect(sql: str) -> LiteralString:
    # The statements are constants; their type does not follow them through a format.
    made: Any = _OWN.get(sql, sql).replace("?", "%s")
    return made  # type: ignore[no-any-return]


def _one(connection: psycopg.Connection, sql: LiteralString, *words: str) -> Any:
    row = connection.execute(sql, words).fetchone()
    return row[0] if row else None


def _run(connection: psycopg.Connection, statements: Sequence[str]) -> None:
    """Statements that make tables, in our own words."""
    for statement in statements:
        connection.execute(_dialect(statement.format(**_WORDS)))


def _last_step(connection: psycopg.Connection) -> int:
    if not _one(connection, _HAS_TABLE, schema.STEPS_TABLE):
        return 1
    return int(_one(connection, _dialect(schema.LAST_STEP)) or 1)


def _making() -> LiteralString:
    """The turn of whoever makes tables, until the end of the transaction."""
    made: Any = f"SELECT pg_advisory_xact_lock({lock_number('clia schema')})"
    return made  # type: ignore[no-any-return]


def _channel(space: str) -> LiteralString:
    """Where appends to a space's feed are told of."""
    made: Any = f"clia_feed_{hashlib.sha256(space.encode()).hexdigest()[:32]}"  # letters and digits, whatever the space is called
    return made  # type: ignore[no-any-return]
