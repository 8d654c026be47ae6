"""Assembly of a worker: configuration, tools, heartbeats, periodic sync, hook ingestion and wake-ups."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import closing, contextmanager, suppress
from secrets import token_hex
from typing import NamedTuple

from clia.capture.ingest import has_events, ingest
from clia.errors import CliaError, InvalidInput
from clia.facade.opening import open_space
from clia.hub.service import periodic_sync
from clia.redaction import secrets
from clia.store.notifications import PostgresNotifier
from clia.trust.agent_keys import AgentKeys
from clia.values.background import background_thread
from clia.workers.effects import Effects, installed
from clia.workers.effects.context import Cleaning, Tools
from clia.workers.fleet import WORKER
from clia.workers.heartbeats import ProcessInfo, heartbeat
from clia.workers.worker import Worker, WorkerDependencies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.redaction.secrets import RedactionState
    from clia.space.feed import Feed
    from clia.store.interface import Queue
    from clia.values.clock import Clock
    from clia.workers.worker import WorkerStatus

_INGEST_INTERVAL = 2.0
_ATTRIBUTION_INTERVAL = 30.0  # seconds between looks at the branches of people
_LISTEN_SECONDS = 30.0
_RETRY_SECONDS = 1.0  # after an error
_WAKE_INTERVAL = 0.05  # between two wake-ups
_JOIN_SECONDS = 3.0  # a thread may be blocked by a database that does not answer


class WorkerOverrides(NamedTuple):
    """Settings of one worker; None: as the operator's configuration says."""

    name: str | None = None  # unique
    kinds: frozenset[str] | None = None  # handle only these
    concurrency: int | None = None


@contextmanager
def open_worker(
    path: str,
    settings: Settings,
    overrides: WorkerOverrides,
    tell: Callable[[WorkerStatus], None],
    *,
    environment: Mapping[str, str],
) -> Iterator[Worker]:
    """Open a worker on the space at or above a path; the space is closed with it."""
    if overrides.name is not None and (not overrides.name.strip() or not overrides.name.isprintable()):
        raise InvalidInput("a worker name must be one line of printable text", code="invalid-name", fields={"field": "name"})
    with open_space(path, settings=settings._replace(agent_keys=AgentKeys(certify=True))) as space:
        config, queue = space.local.config, space.local.queue
        if overrides.concurrency is not None:
            config = config._replace(worker=config.worker._replace(concurrency=overrides.concurrency))
        effects = Effects(config, environment, entry_points=installed())
        unknown = sorted((overrides.kinds or frozenset()).difference(effects))
        if unknown:  # refuse a mistyped kind: the worker would wait forever
            message = f"cannot handle requests of kind {unknown[0]!r}: {effects.problems.get(unknown[0], 'no effect handles it')}"
            hints, fields = [f"handled here: {', '.join(effects)}"], {"kind": unknown[0], "handled": list(effects)}
            raise InvalidInput(message, code="unknown-effect", hints=hints, fields=fields)
        tools = make_tools(space.local.clock, environment, redact=settings.redact)
        name = overrides.name or new_name()
        worker = Worker(WorkerDependencies(space, effects, queue, tools, config, name, tell, kinds=overrides.kinds))
        kinds = tuple(kind for kind in effects if overrides.kinds is None or kind in overrides.kinds)
        process = ProcessInfo(WORKER, name, kinds, config.worker.concurrency)
        with (
            closing(queue),
            _background_ingest(space, settings, environment),
            heartbeat(space, process, worker.status),
            periodic_sync(space, config.worker.hub_seconds),
            wake_on_notifications(space, queue, worker.wake),
        ):
            yield worker


@contextmanager
def _background_ingest(space: Space, settings: Settings, environment: Mapping[str, str]) -> Iterator[None]:
    """Ingest spooled hook events once now, and periodically while the block runs; find agents' lines in people's new commits.

    On failure they stay in the spool and ``clia doctor`` reports why.
    """

    def ingest_now() -> None:
        with suppress(CliaError):
            if has_events(space, environment):
                ingest(space, settings, environment, wait=False)

    def run(stop: threading.Event) -> None:
        attributed_at = -_ATTRIBUTION_INTERVAL
        while not stop.wait(_INGEST_INTERVAL):
            ingest_now()
            if time.monotonic() >= attributed_at + _ATTRIBUTION_INTERVAL:
                with suppress(CliaError):
                    space.history.attribute()
                attributed_at = time.monotonic()

    ingest_now()
    with background_thread("clia-ingest", run):
        yield


# Tools


def make_tools(clock: Clock, environment: Mapping[str, str], *, redact: bool = True) -> Tools:
    """Return the real tools."""
    from clia.http_client import HttpClient
    from clia.programs.runner import ProgramRunner

    cleaning = (
        Cleaning(lambda text: secrets.redact(text).text, _clean_chunk)
        if redact
        else Cleaning(str, lambda text, state: (text, state))
    )
    return Tools(clock, time.monotonic, environment, HttpClient(), ProgramRunner(), cleaning)


def _clean_chunk(text: str, state: RedactionState) -> tuple[str, RedactionState]:
    clean, after = secrets.redact_chunk(text, state)
    return clean.text, after


def new_name() -> str:
    """Return a unique worker name: host, process and a random suffix."""
    return f"{socket.gethostname()}-{os.getpid()}-{token_hex(3)}"


# Wake-ups


@contextmanager
def wake_on_notifications(space: Space, queue: Queue, wake: Callable[[], None]) -> Iterator[None]:
    """Call ``wake``, at most every 50 ms, when the feed or the queue has news while the block runs.

    Does nothing if the store sends no notifications. The worker polls anyway, so a lost notification only delays it.
    """
    feed = space.local.open_feed()
    if not isinstance(feed.notifier, PostgresNotifier):
        feed.close()
        yield
        return
    stop, notified = threading.Event(), threading.Event()
    threads = [
        threading.Thread(target=_watch_feed, args=(feed, notified, stop), name="clia-feed", daemon=True),
        threading.Thread(target=_watch_queue, args=(queue, notified, stop), name="clia-queue-watch", daemon=True),
        threading.Thread(target=_forward_wakes, args=(wake, notified, stop), name="clia-wake", daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        notified.set()
        feed.close()
        for thread in threads:
            thread.join(_JOIN_SECONDS)


def _watch_feed(feed: Feed, notified: threading.Event, stop: threading.Event) -> None:
    last_end: int | None = None
    while not stop.is_set():
        try:
            end = feed.end()
            if end != last_end:  # lower after the store was lost: that is news as well
                notified.set()
            last_end = end
            feed.wait(end, _LISTEN_SECONDS)
        except CliaError:
            stop.wait(_RETRY_SECONDS)


def _watch_queue(queue: Queue, notified: threading.Event, stop: threading.Event) -> None:
    while not stop.is_set():
        with suppress(CliaError):  # the database is unavailable
            queue.watch(notified.set)
            return
        stop.wait(_RETRY_SECONDS)


def _forward_wakes(wake: Callable[[], None], notified: threading.Event, stop: threading.Event) -> None:
    while notified.wait() and not stop.is_set():
        notified.clear()
        wake()
        stop.wait(_WAKE_INTERVAL)
