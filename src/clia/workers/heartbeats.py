"""Process heartbeats.

Workers and forges write a heartbeat row to the shared store every few seconds; `clia fleet` reads them. A failed write is
retried at the next beat and never stops the process. Rows are reused (at most 256), because deleting a key leaves a tombstone.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from operator import attrgetter
from secrets import token_hex
from typing import NamedTuple

from clia import __version__
from clia.errors import CliaError
from clia.store.clone_ids import clone_id
from clia.store.postgres_store import own_clock, time_of
from clia.values.background import background_thread
from clia.workers.fleet import FLEET, Heartbeat, Underway, parse_heartbeat, unpublished_by_clone

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from clia.facade.space import Space
    from clia.store.interface import Transaction
    from clia.workers.worker import WorkerStatus

HEARTBEAT_INTERVAL = 5.0
"""Seconds between heartbeats."""
MAX_ROWS = 256
_MAX_ITEMS = 50  # of a list in a row
_MAX_TEXT = 300


class ProcessInfo(NamedTuple):
    """What does not change while the process runs."""

    kind: str
    name: str
    kinds: tuple[str, ...] = ()
    concurrency: int = 0


@contextmanager
def heartbeat(
    space: Space, process: ProcessInfo, status: Callable[[], WorkerStatus] | None = None, interval: float = HEARTBEAT_INTERVAL
) -> Iterator[None]:
    """Send heartbeats for this process while the block runs."""
    writer = HeartbeatWriter(space, process, status, interval)

    def run(stop: threading.Event) -> None:
        while True:
            with suppress(CliaError):  # retried at the next beat
                writer.beat()
            if stop.wait(interval):
                break
        with suppress(CliaError):  # the row is shown as silent until it expires
            writer.leave()

    with background_thread("clia-fleet", run, HEARTBEAT_INTERVAL):
        yield


class HeartbeatWriter:
    """Writes the heartbeat row of one process. Not thread-safe."""

    def __init__(
        self,
        space: Space,
        process: ProcessInfo,
        status: Callable[[], WorkerStatus] | None = None,
        interval: float = HEARTBEAT_INTERVAL,
    ) -> None:
        self._store, self._clock = space.local.store, own_clock(space.local.clock)
        self._hub_sync = space.hub.exchange
        self._status = status
        self._key: str | None = None
        self._fork_candidates: set[str] | None = None
        self._since: dict[tuple[str, str, int], float] = {}
        clone = clone_id(os.path.dirname(space.home))
        name, kinds = process.name[:_MAX_TEXT], process.kinds[:_MAX_ITEMS]
        identity = (token_hex(8), process.kind, name, socket.gethostname(), clone, os.getpid(), __version__)
        self._row = Heartbeat(*identity, 0.0, 0.0, 0.0, interval, 0, kinds, process.concurrency)

    def beat(self) -> None:
        """Write the row."""
        now = time_of(self._store, self._clock)
        row = self._row._replace(seen_at=now, clock=self._clock().timestamp(), beats=self._row.beats + 1)
        self._row = self._with_status(row if row.started_at else row._replace(started_at=now), now)
        with suppress(CliaError):  # an unreadable repository must not make the process look dead
            self._row = self._with_hub(self._row)
        with self._store.writing() as transaction:
            key = self._key if self._owns_row(transaction) else self._allocate(transaction, now)
            if key is not None:
                lists = {"kinds": list(self._row.kinds), "running": [list(attempt) for attempt in self._row.running]}
                transaction.values.put(key, {**self._row._asdict(), **lists})
        self._key = key

    def leave(self) -> None:
        """Delete the row."""
        with self._store.writing() as transaction:
            if self._key is not None and self._owns_row(transaction):
                transaction.values.delete(self._key)

    def _with_status(self, row: Heartbeat, now: float) -> Heartbeat:
        if self._status is None:
            return row
        status = self._status()
        attempts = {(item.agent, item.request, item.attempt): item for item in status.running[:_MAX_ITEMS]}
        self._since = {key: self._since.get(key, now) for key in attempts}
        running = [Underway(item.agent, item.request, item.kind, item.attempt, self._since[key]) for key, item in attempts.items()]
        row = row._replace(answered=status.answered, retried=status.retried, given_up=status.given_up)
        return row._replace(running=running, trouble=None if status.trouble is None else status.trouble[:_MAX_TEXT])

    def _with_hub(self, row: Heartbeat) -> Heartbeat:
        """Add the hub status, without contacting the hub.

        Only the first beat checks every ref for forks; later ones check agents that had a fork or have unpublished work.
        """
        hub_sync = self._hub_sync
        if hub_sync is None:
            return row
        if self._fork_candidates is None:
            self._fork_candidates = {fork.agent for fork in hub_sync.status().forks}
        outage = hub_sync.hub.outage()
        since = None if outage is None else row.seen_at - (row.clock - outage.since)  # by the store's clock
        unpublished = set(unpublished_by_clone(self._store).get(row.clone, ())[:_MAX_ITEMS])
        candidates = self._fork_candidates | unpublished
        forks = sorted(name for name in candidates if hub_sync.fork(name) is not None)[:_MAX_ITEMS]
        self._fork_candidates = unpublished.union(forks)
        return row._replace(away_since=since, forks=forks)

    def _owns_row(self, view: Transaction) -> bool:
        """Whether the row is still this process's: after an hour of sleep another process may have reused it."""
        stored = None if self._key is None else view.values.get(self._key)
        row = None if stored is None else parse_heartbeat(stored.value)
        return row is not None and row.id == self._row.id

    def _allocate(self, transaction: Transaction, now: float) -> str | None:
        """Return a key for the row: a free one, else the one silent longest; None if all belong to live processes.

        Deletes expired rows and the row of the process that this one replaces.
        """
        rows: dict[str, Heartbeat] = {}
        process = attrgetter("kind", "name", "machine", "clone")  # names of live processes are unique
        for key, value in transaction.values.scan(FLEET):
            row = parse_heartbeat(value)
            if row is None or row.is_expired(now) or process(row) == process(self._row):
                transaction.values.delete(key)
            else:
                rows[key] = row
        free = next((key for number in range(MAX_ROWS) if (key := f"{FLEET}{number:03d}") not in rows), None)
        if free is not None:
            return free
        key, oldest = min(rows.items(), key=lambda item: item[1].seen_at)
        return key if now - oldest.seen_at > oldest.timeout else None
