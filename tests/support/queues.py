"""Queues for tests in which time passes as the test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.store.procrastinate_queue import ProcrastinateQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.store.interface import Claim, Store, Task


def age(address: str, seconds: float) -> None:
    """As if so much time had passed in the database: all that it has stamped moves into the past."""
    import psycopg  # 430 ms, and most tests need no server

    with psycopg.connect(address) as connection:
        passed = [seconds]
        connection.execute("UPDATE procrastinate_workers SET last_heartbeat = last_heartbeat - make_interval(secs => %s)", passed)
        connection.execute("UPDATE procrastinate_jobs SET scheduled_at = scheduled_at - make_interval(secs => %s)", passed)


class AgingQueue(ProcrastinateQueue):
    """Time passes in the database whenever a call says that it has: its own clock cannot be set."""

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
            self._jobs.clock()  # the tables are made
        elif now > self._last:
            age(self._address, now - self._last)
        self._last = now
