"""procrastinate's jobs in a PostgreSQL database, for callers that are ordinary threads.

Invariant: its tables are made, read and changed by procrastinate itself; what it has no call for is only read. Its calls are
asynchronous: they run in one event loop, in a thread of its own, which is there from the first call until the end. Nothing is
loaded and nobody connects before that call. Jobs of one space carry its name, and no call touches any other's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import re
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from clia.errors import StoreError
from clia.store.postgres_server import ALIVE, PostgresAddress, lock_number, modules
from clia.store.rules import closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
    from datetime import datetime
    from typing import Any, LiteralString

    import psycopg
    from procrastinate.jobs import Job, Notification
    from procrastinate.manager import JobManager
    from procrastinate.psycopg_connector import PsycopgConnector

T = TypeVar("T")
_CONNECTIONS = 4
_RECONNECT_SECONDS = 15.0
_LISTEN_AGAIN, _GOODBYE = 1.0, 3.0
TODO, DOING = "todo", "doing"
_TURN: LiteralString = "SELECT pg_advisory_xact_lock(%s)"
# Not to_regclass: it may answer from what the session remembers, although another has made the table since.
_HAS_TABLES: LiteralString = (
    "SELECT 1 FROM pg_catalog.pg_tables WHERE tablename = 'procrastinate_jobs' AND schemaname = ANY (current_schemas(false))"
)
_MISSING: LiteralString = """
WITH places AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = ANY (current_schemas(false)))
SELECT name FROM unnest(%s::text[]) AS name
 WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_proc WHERE proname = name AND pronamespace IN (SELECT oid FROM places))
   AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_type WHERE typname = name AND typnamespace IN (SELECT oid FROM places))
 ORDER BY name
"""
_CLOCK: LiteralString = "SELECT extract(epoch FROM clock_timestamp())::float8 AS now"
_SILENT: LiteralString = """
SELECT id, extract(epoch FROM clock_timestamp() - last_heartbeat)::float8 AS seconds
  FROM procrastinate_workers WHERE id = ANY (%(slots)s)
"""


class NewJob(NamedTuple):
    """A job to put in."""

    name: str  # of its queue and its locks: nothing else has it
    priority: int
    words: dict[str, Any]


class _Link(NamedTuple):
    """One process's way to the database."""

    process: int
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    connector: PsycopgConnector
    manager: JobManager
    address: PostgresAddress


class Jobs:
    """The jobs whose task has the name ``task``. Threads may share it.

    A *slot* is what procrastinate calls a worker: it has a job, and gives signs of life.
    """

    def __init__(self, dsn: str, task: str, *, timeout: float = 30.0) -> None:
        self._dsn, self._task, self._timeout = dsn, task, timeout
        self._mutex = threading.Lock()
        self._links: list[_Link] = []  # after a fork the child leaves its parent's alone, also from being collected
        self._own: set[int] = set()  # the jobs that we put in last
        self._closed = False

    # Looks

    def are_there(self) -> bool:
        """Whether anyone has ever made the tables; they are not made for this."""
        with self._mutex:
            if self._links and self._links[-1].process == os.getpid():
                return True
        with self._connected() as connection:
            return connection.execute(_HAS_TABLES).fetchone() is not None

    def live(self) -> list[Job]:
        """Every job that waits or is being done."""
        found = self._run(lambda link: link.manager.list_jobs_async(task=self._task))
        return [job for job in found if job.status in (TODO, DOING)]

    def named(self, name: str) -> list[int]:
        found = self._run(lambda link: link.manager.list_jobs_async(task=self._task, queueing_lock=name))
        return [job.id for job in found if job.id is not None and job.status in (TODO, DOING)]

    def is_held(self, job: int, slot: int) -> bool:
        """Whether a job is being done by a slot."""
        found = self._run(lambda link: link.manager.list_jobs_async(id=job))
        return any((each.status, each.worker_id) == (DOING, slot) for each in found)

    def stalled(self, seconds: float) -> list[Job]:
        """Jobs being done by a slot that has given no sign of life for so long, or is not there any more."""
        return list(self._run(lambda link: link.manager.get_stalled_jobs(task_name=self._task, seconds_since_heartbeat=seconds)))

    def silent(self, slots: Iterable[int]) -> dict[int, float]:
        """For how many seconds each slot has given no sign of life; without those that are not there any more."""
        wanted = sorted(set(slots))
        if not wanted:
            return {}
        rows = self._run(lambda link: link.connector.execute_query_all_async(_SILENT, slots=wanted))
        return {row["id"]: row["seconds"] for row in rows}

    def clock(self) -> float:
        """The server's time."""
        return float(self._run(lambda link: link.connector.execute_query_one_async(_CLOCK))["now"])

    # Changes

    def put(self, jobs: Sequence[NewJob]) -> None:
        """Puts jobs in, in this order; none of them where one of the names waits already."""

        async def put(link: _Link) -> None:
            from procrastinate import exceptions
            from procrastinate.jobs import Job

            made = [
                Job(
                    queue=new.name,
                    lock=new.name,
                    queueing_lock=new.name,
                    task_name=self._task,
                    priority=new.priority,
                    task_kwargs=new.words,
                )
                for new in jobs
            ]
            with suppress(exceptions.AlreadyEnqueued):
                found = await link.manager.batch_defer_jobs_async(made)
                self._own = {job.id for job in found if job.id is not None}

        self._run(put)

    def fetch(self, names: Sequence[str], slot: int) -> Job | None:
        """The first of these jobs that waits and whose time has come, for a slot; ``NoSlot`` where there is no such slot."""

        async def fetch(link: _Link) -> Job | None:
            from procrastinate import exceptions

            await link.manager.update_heartbeat(slot)
            try:
                return await link.manager.fetch_job(list(names), slot)
            except exceptions.UniqueViolation:  # its twin is being done
                return None
            except exceptions.ConnectorException as err:
                if isinstance(err.__cause__, modules()[0].errors.ForeignKeyViolation):
                    raise NoSlot from None
                raise

        return self._run(fetch)

    def beat(self, slot: int) -> None:
        self._run(lambda link: link.manager.update_heartbeat(slot))

    def retry(self, job: int, at: datetime, priority: int | None = None) -> None:
        """Lets a job wait again, until a time by the server's clock; nothing where it is not being done."""

        async def retry(link: _Link) -> None:
            from procrastinate import exceptions

            try:
                await _unless_gone(link.manager.retry_job_by_id_async(job, at, priority))
            except exceptions.UniqueViolation:  # its twin waits already
                await _unless_gone(_finished(link.manager, job))

        self._run(retry)

    def finish(self, jobs: Iterable[int]) -> None:
        """Takes jobs out; those that are not there any more are as wanted."""

        async def finish(link: _Link) -> None:
            for job in jobs:
                await _unless_gone(_finished(link.manager, job))

        self._run(finish)

    def new_slot(self) -> int:
        return self._run(lambda link: link.manager.register_worker())

    def drop_slots(self, slots: Iterable[int]) -> None:
        """What they still have is free for others at once. ``TimeoutError`` where the server is away: nobody waits for it now."""

        async def drop(link: _Link) -> None:
            for slot in slots:
                await link.manager.unregister_worker(slot)

        self._run(drop, within=_GOODBYE)

    def prune_slots(self, seconds: float) -> None:
        """Drops the slots of everyone, in all spaces, that have been silent for so long."""
        self._run(lambda link: link.manager.prune_stalled_workers(seconds))

    def listen(self, heard: Callable[[], None]) -> None:
        """From now on calls ``heard`` in another thread whenever someone else puts a job in."""

        async def on_notification(*, channel: str, notification: Notification) -> None:
            del channel
            job = notification["job_id"]
            if notification["type"] != "job_inserted" or job in self._own:
                return
            # Who listens hears of all spaces in the database, and is told no more than a number.
            found = await link.manager.list_jobs_async(id=job, task=self._task)
            if list(found) and job not in self._own:  # we may be told before we know our own job's number
                heard()

        async def listen() -> None:
            from procrastinate import exceptions

            while True:
                with suppress(exceptions.ConnectorException):  # the server is away: whoever works hears of it elsewhere
                    await link.manager.listen_for_jobs(on_notification=on_notification)
                await asyncio.sleep(_LISTEN_AGAIN)

        link = self._linked()
        asyncio.run_coroutine_threadsafe(listen(), link.loop)

    def is_open(self) -> bool:
        """Whether this process has ever called."""
        with self._mutex:
            return not self._closed and any(link.process == os.getpid() for link in self._links)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            mine = [link for link in self._links if link.process == os.getpid()]
            self._links = []
        for link in mine:
            with suppress(Exception):  # nothing is left to be told
                asyncio.run_coroutine_threadsafe(_wound_up(link), link.loop).result(self._timeout)
            link.loop.call_soon_threadsafe(link.loop.stop)
            link.thread.join()
            link.loop.close()

    # The way there

    def _run(self, make: Callable[[_Link], Coroutine[Any, Any, T]], within: float | None = None) -> T:
        link = self._linked()
        with self._mutex:
            if self._closed:
                raise closed()
            future = asyncio.run_coroutine_threadsafe(make(link), link.loop)
        with _translated(link.address):
            return future.result(within)

    def _linked(self) -> _Link:
        with self._mutex:
            if self._closed:
                raise closed()
            if not self._links or self._links[-1].process != os.getpid():
                self._links.append(self._connect())
            return self._links[-1]

    def _connect(self) -> _Link:
        _, pools = modules()
        psycopg_connector, manager = _procrastinate()
        with self._connected() as first:
            self._make_tables(first)
        # The pool reports lost connections to the log; whoever asks next hears of it as an error.
        logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
        connector = psycopg_connector.PsycopgConnector(
            pool_factory=pools.AsyncConnectionPool,
            conninfo=self._dsn,
            kwargs={"connect_timeout": self._seconds(), **ALIVE},
            configure=_each_statement_alone,
            min_size=0,
            max_size=_CONNECTIONS,
            num_workers=1,
            timeout=self._timeout,
            reconnect_timeout=min(self._timeout, _RECONNECT_SECONDS),
        )
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="clia-queue", daemon=True)
        thread.start()
        asyncio.run_coroutine_threadsafe(connector.open_async(), loop).result()
        return _Link(os.getpid(), loop, thread, connector, manager.JobManager(connector), PostgresAddress(self._dsn))

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        """A connection for a moment: a pool would try one that is refused again until its time is up."""
        postgres, _ = modules()
        with (
            PostgresAddress(self._dsn).translated(),
            postgres.connect(self._dsn, autocommit=True, connect_timeout=self._seconds()) as connection,
        ):
            connection.isolation_level = postgres.IsolationLevel.READ_COMMITTED
            yield connection

    def _make_tables(self, connection: psycopg.Connection) -> None:
        """Where nobody has made them; made by an older procrastinate they are not touched: others may be using them."""
        from procrastinate.schema import SchemaManager
        from procrastinate.sql import queries

        with connection.transaction():
            connection.execute(_TURN, [lock_number("procrastinate schema")])
            if connection.execute(_HAS_TABLES).fetchone() is None:
                PostgresAddress(self._dsn).check_may_make(connection)
                connection.execute(SchemaManager.get_schema())
        names = sorted({name for text in queries.values() for name in re.findall(r"\bprocrastinate_[a-z0-9_]+", text)})
        missing = [row[0] for row in connection.execute(_MISSING, [names]).fetchall()]
        if missing:
            raise self._unfit(missing, Path(SchemaManager.get_migrations_path()))

    def _unfit(self, missing: list[str], migrations: Path) -> StoreError:
        from importlib.metadata import version

        wanted = re.compile(rf"\b(?:{'|'.join(missing)})\b")
        files = [each for each in sorted(migrations.glob("*.sql")) if wanted.search(each.read_text(encoding="utf-8"))]
        hints = [f"apply: psql -f {each}" for each in files]
        return PostgresAddress(self._dsn).error(
            f"its tables of procrastinate do not fit procrastinate {version('procrastinate')}: without {', '.join(missing)}",
            code="queue-schema-unfit",
            hints=[*hints, "made by a newer procrastinate: upgrade the package"],
        )

    def _seconds(self) -> int:
        return max(2, round(self._timeout))  # libpq takes no less


class NoSlot(Exception):
    """A slot is gone: someone cleaned up. For the queue, which makes another."""


@contextmanager
def _translated(address: PostgresAddress) -> Iterator[None]:
    """Errors of procrastinate and of the driver as those of a store."""
    from procrastinate import exceptions

    with address.translated():
        try:
            yield
        except concurrent.futures.CancelledError:
            raise closed() from None
        except exceptions.ConnectorException as err:
            if err.__cause__ is not None:
                raise err.__cause__ from None  # what the driver said
            raise address.error(f"procrastinate: {err}") from None


async def _each_statement_alone(connection: psycopg.AsyncConnection) -> None:
    await connection.set_autocommit(True)


async def _unless_gone(call: Coroutine[Any, Any, None]) -> None:
    """A call about a job that may be gone, or in another state: procrastinate's functions raise then."""
    from procrastinate import exceptions

    try:
        await call
    except exceptions.ConnectorException as err:
        if not isinstance(err.__cause__, modules()[0].errors.RaiseException):
            raise


def _finished(manager: JobManager, job: int) -> Coroutine[Any, Any, None]:
    from procrastinate.jobs import Status

    return manager.finish_job_by_id_async(job, Status.SUCCEEDED, delete_job=True)


async def _wound_up(link: _Link) -> None:
    """Whoever still waits for an answer is told that there is none."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await link.connector.close_async()


def _procrastinate() -> tuple[Any, Any]:
    try:
        from procrastinate import manager, psycopg_connector  # an extra, and 100 ms at start-up
    except ImportError:
        hints = ["pip install 'clia[postgres]'"]
        raise StoreError("workers on several machines need procrastinate", code="store-extra-missing", hints=hints) from None
    return psycopg_connector, manager
