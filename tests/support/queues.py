"""Queues for tests that control the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.store.procrastinate_queue import ProcrastinateQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.store.interface import Claim, Store, Task


def age(address: str, seconds: float) -> None:
    """Move all times in the database into the past, as if this time had passed."""
    import psycopg  # 430 ms, and most tests need no server

    with psycopg.connect(address) as connection:
        passed = [seconds]
        connection.execute("UPDATE procrastinate_workers SET last_heartbeat = last_heartbeat - make_interval(secs => %s)", passed)
        connection.execute("UPDATE procrastinate_jobs SET scheduled_at = scheduled_at - make_interval(secs => %s)", passed)


class AgingQueue(ProcrastinateQueue):
    """Lets time pass in the database when a call has a later time, because the database's clock cannot be set."""

    def __init__(self, store: Store, address: str, space: str) -> None:
        super().__init__(store, address, space)
        self._address = address
        self._last: float | None = None

    def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
        self._pass(now)
        return super().claim(tasks, worker, now, lease)

    def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
        self._pass(now)
        return super().keep(claim, now, lease)

    def next_time(self, tasks: Sequence[Task], now: float) -> float | None:
        self._pass(now)
        return super().next_time(tasks, now)

    def _pass(self, now: float) -> None:
        if self._last is None:
            self._jobs.clock()  # creates the tables
        elif now > self._last:
            age(self._address, now - self._last)
        self._last = now
