"""procrastinate's jobs in PostgreSQL, for ordinary threads.

Invariant: procrastinate creates, reads and changes its tables; where it has no call, we only read. Its calls are asynchronous
and run in one event loop in its own thread, from the first call until close. Nothing is imported or connected before that call.
Jobs carry the name of their space; no call touches another space's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import re
import threading
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from clia.errors import StoreError
from clia.store.postgres_server import PostgresAddress, lock_number, modules
from clia.store.validation import refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from datetime import datetime
    from typing import Any, LiteralString

    import psycopg
    from procrastinate.jobs import Job, Notification
    from procrastinate.manager import JobManager
    from procrastinate.psycopg_connector import PsycopgConnector

T = TypeVar("T")
_CONNECTIONS = 4
_LISTEN_RETRY_SECONDS, _CLOSE_SECONDS = 1.0, 3.0
TODO, DOING = "todo", "doing"
_SCHEMA_LOCK: LiteralString = "SELECT pg_advisory_xact_lock(%s)"
# Not to_regclass: it may answer from a cache although another session has created the table.
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
_SILENCE: LiteralString = """
SELECT id, extract(epoch FROM clock_timestamp() - last_heartbeat)::float8 AS seconds
  FROM procrastinate_workers WHERE id = ANY (%(slots)s)
"""


class _ProcessLink(NamedTuple):
    """The connection of one process: event loop, thread and connector."""

    process: int
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    connector: PsycopgConnector
    manager: JobManager


class Jobs:
    """The jobs of the task ``task``. Threads may share it.

    A *slot* is what procrastinate calls a worker: it has a job and sends heartbeats.
    """

    def __init__(self, dsn: str, task: str, *, timeout: float = 30.0) -> None:
        self._dsn, self._task, self._timeout = dsn, task, timeout
        self._mutex = threading.Lock()
        self._links: list[_ProcessLink] = []  # a forked child neither uses nor frees its parent's
        self._own: set[int] = set()  # ids of the jobs that we enqueued last
        self._closed = False

    # Queries

    def tables_exist(self) -> bool:
        """Whether the tables exist; does not create them."""
        with self._mutex:
            if self._links and self._links[-1].process == os.getpid():
                return True
        with self._address.translated(), self._address.connect() as connection:
            return connection.execute(_HAS_TABLES).fetchone() is not None

    def live(self, **filters: Any) -> list[Job]:
        """Return the waiting and running jobs; ``filters`` as in procrastinate."""
        jobs = self._run(lambda link: link.manager.list_jobs_async(task=self._task, **filters))
        return [job for job in jobs if job.status in (TODO, DOING)]

    def is_held(self, job: int, slot: int) -> bool:
        """Whether a slot runs a job."""
        return any((row.status, row.worker_id) == (DOING, slot) for row in self.live(id=job))

    def stalled(self, seconds: float) -> list[Job]:
        """Return jobs whose slot is silent for this long, or gone."""
        return list(self._run(lambda link: link.manager.get_stalled_jobs(task_name=self._task, seconds_since_heartbeat=seconds)))

    def silent(self, slots: Iterable[int]) -> dict[int, float]:
        """Return the seconds since each slot's last heartbeat, without slots that are gone."""
        ids = sorted(set(slots))
        rows = self._run(lambda link: link.connector.execute_query_all_async(_SILENCE, slots=ids)) if ids else []
        return {row["id"]: row["seconds"] for row in rows}

    def clock(self) -> float:
        """Return the server's time."""
        return float(self._run(lambda link: link.connector.execute_query_one_async(_CLOCK))["now"])

    # Changes

    def put(self, jobs: Sequence[tuple[str, int, dict[str, Any]]]) -> None:
        """Enqueue jobs (unique name, priority, arguments) in this order; none if one of the names is already waiting."""

        async def put(link: _ProcessLink) -> None:
            from procrastinate.jobs import Job

            rows = [
                Job(queue=name, lock=name, queueing_lock=name, task_name=self._task, priority=priority, task_kwargs=arguments)
                for name, priority, arguments in jobs
            ]
            with suppress(_exceptions().AlreadyEnqueued):
                self._own = {job.id or 0 for job in await link.manager.batch_defer_jobs_async(rows)}

        self._run(put)

    def fetch(self, names: Sequence[str], slot: int) -> Job | None:
        """Fetch the first of these jobs that is due, for a slot; ``NoSlot`` if the slot is gone."""

        async def fetch(link: _ProcessLink) -> Job | None:
            await link.manager.update_heartbeat(slot)
            try:
                return await link.manager.fetch_job(list(names), slot)
            except _exceptions().UniqueViolation:  # its duplicate is running
                return None
            except _exceptions().ConnectorException as err:
                if isinstance(err.__cause__, modules()[0].errors.ForeignKeyViolation):
                    raise NoSlot from None
                raise

        return self._run(fetch)

    def beat(self, slot: int) -> None:
        self._run(lambda link: link.manager.update_heartbeat(slot))

    def retry(self, job: int, at: datetime, priority: int | None = None) -> None:
        """Return a running job to the queue until a time by the server's clock; no effect if it is not running."""

        async def retry(link: _ProcessLink) -> None:
            try:
                await _ignore_missing(link.manager.retry_job_by_id_async(job, at, priority))
            except _exceptions().UniqueViolation:  # its duplicate is waiting
                await _ignore_missing(_delete(link.manager, job))

        self._run(retry)

    def finish(self, jobs: Iterable[int]) -> None:
        """Delete jobs. Missing ones are ignored."""

        async def finish(link: _ProcessLink) -> None:
            for job in jobs:
                await _ignore_missing(_delete(link.manager, job))

        self._run(finish)

    def new_slot(self) -> int:
        return self._run(lambda link: link.manager.register_worker())

    def drop_slots(self, slots: Iterable[int]) -> None:
        """Remove slots, which frees their jobs at once. ``TimeoutError`` if the server does not answer soon."""

        async def drop(link: _ProcessLink) -> None:
            for slot in slots:
                await link.manager.unregister_worker(slot)

        self._run(drop, within=_CLOSE_SECONDS)

    def prune_slots(self, seconds: float) -> None:
        """Remove the slots of all spaces that are silent for this long."""
        self._run(lambda link: link.manager.prune_stalled_workers(seconds))

    def listen(self, notify: Callable[[], None]) -> None:
        """Call ``notify`` in another thread whenever another process enqueues a job."""

        async def on_notification(*, channel: str, notification: Notification) -> None:
            del channel
            job = notification["job_id"]
            if notification["type"] != "job_inserted" or job in self._own:
                return
            # Notifications cover all spaces and carry only a job id.
            jobs = await link.manager.list_jobs_async(id=job, task=self._task)
            if list(jobs) and job not in self._own:  # it may arrive before our own insert returns
                notify()

        async def listen() -> None:
            while True:
                with suppress(_exceptions().ConnectorException):  # the server is unavailable; other calls report it
                    await link.manager.listen_for_jobs(on_notification=on_notification)
                await asyncio.sleep(_LISTEN_RETRY_SECONDS)

        link = self._linked()
        asyncio.run_coroutine_threadsafe(listen(), link.loop)

    def is_open(self) -> bool:
        """Whether this process is connected."""
        with self._mutex:
            return not self._closed and any(link.process == os.getpid() for link in self._links)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            links = [link for link in self._links if link.process == os.getpid()]
            self._links = []

        async def shut_down(link: _ProcessLink) -> None:
            """Cancel open calls and close the pool."""
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await link.connector.close_async()

        for link in links:
            with suppress(Exception):  # no caller is left to report it to
                asyncio.run_coroutine_threadsafe(shut_down(link), link.loop).result(self._timeout)
            link.loop.call_soon_threadsafe(link.loop.stop)
            link.thread.join()
            link.loop.close()

    # Connection

    def _run(self, make: Callable[[_ProcessLink], Coroutine[Any, Any, T]], within: float | None = None) -> T:
        link = self._linked()
        with self._mutex:
            if self._closed:
                raise refusal("store-closed")
            future = asyncio.run_coroutine_threadsafe(make(link), link.loop)
        with self._address.translated():
            try:
                return future.result(within)
            except concurrent.futures.CancelledError:
                raise refusal("store-closed") from None
            except _exceptions().ConnectorException as err:
                if err.__cause__ is not None:
                    raise err.__cause__ from None  # the driver's error
                raise self._address.error(f"procrastinate: {err}") from None

    def _linked(self) -> _ProcessLink:
        with self._mutex:
            if self._closed:
                raise refusal("store-closed")
            if not self._links or self._links[-1].process != os.getpid():
                self._links.append(self._connect())
            return self._links[-1]

    @cached_property
    def _address(self) -> PostgresAddress:
        return PostgresAddress(self._dsn, self._timeout)

    def _connect(self) -> _ProcessLink:
        pool = modules()[1].AsyncConnectionPool
        try:
            from procrastinate import manager, psycopg_connector  # an extra, and 100 ms at start-up
        except ImportError:
            hints = ["pip install 'clia-agents[postgres]'"]
            raise StoreError("workers on several machines require procrastinate", code="store-extra-missing", hints=hints) from None
        with self._address.translated(), self._address.connect() as first:
            self._create_tables(first)
        settings = self._address.pool_settings(_CONNECTIONS)
        connector = psycopg_connector.PsycopgConnector(pool_factory=pool, configure=_each_statement_alone, **settings)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="clia-queue", daemon=True)
        thread.start()
        asyncio.run_coroutine_threadsafe(connector.open_async(), loop).result()
        return _ProcessLink(os.getpid(), loop, thread, connector, manager.JobManager(connector))

    def _create_tables(self, connection: psycopg.Connection) -> None:
        """Create missing tables. Those of an older procrastinate are left alone: others may use them."""
        from importlib.metadata import version

        from procrastinate.schema import SchemaManager
        from procrastinate.sql import queries

        with connection.transaction():
            connection.execute(_SCHEMA_LOCK, [lock_number("procrastinate schema")])
            if connection.execute(_HAS_TABLES).fetchone() is None:
                self._address.check_may_create(connection)
                connection.execute(SchemaManager.get_schema())
        names = sorted({name for text in queries.values() for name in re.findall(r"\bprocrastinate_[a-z0-9_]+", text)})
        missing = [row[0] for row in connection.execute(_MISSING, [names]).fetchall()]
        if missing:
            pattern = re.compile(rf"\b(?:{'|'.join(missing)})\b")
            files = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
            hints = [f"apply: psql -f {file}" for file in files if pattern.search(file.read_text(encoding="utf-8"))]
            raise self._address.error(
                f"the tables do not match procrastinate {version('procrastinate')}: missing {', '.join(missing)}",
                code="queue-schema-unfit",
                hints=[*hints, "if a newer procrastinate created them: upgrade the package"],
            )


class NoSlot(Exception):
    """The slot was removed; the queue creates another."""


def _exceptions() -> Any:
    from procrastinate import exceptions  # only after ``_connect`` has checked that it is installed

    return exceptions


async def _each_statement_alone(connection: psycopg.AsyncConnection) -> None:
    await connection.set_autocommit(True)  # not a setting: procrastinate adds it to those of the connection that listens


async def _ignore_missing(call: Coroutine[Any, Any, None]) -> None:
    """Ignore the error of procrastinate's functions for a job that is gone or in another state."""
    try:
        await call
    except _exceptions().ConnectorException as err:
        if not isinstance(err.__cause__, modules()[0].errors.RaiseException):
            raise


def _delete(manager: JobManager, job: int) -> Coroutine[Any, Any, None]:
    from procrastinate.jobs import Status

    return manager.finish_job_by_id_async(job, Status.SUCCEEDED, delete_job=True)
