"""One clock for everyone who shares a store.

Invariant: all who share a store are told the same time, give or take the way to it: where machines share a PostgreSQL server it
is the server's, whatever their own clocks say. A store that belongs to one machine has that machine's clock. While the server is
away the machine's own clock goes on, as far off as it was.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import timedelta

from clia.errors import StoreError
from clia.store.postgres_store import PostgresStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

    from clia.store.interface import Store
    from clia.values.clock import Clock

_ASK_SECONDS = 60.0
_AGAIN_SECONDS = 2.0  # where it was never told
_NOW = "SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8"


def time_of(store: Store, clock: Clock) -> float:
    """The store's time in seconds since the epoch; ``clock``: this machine's."""
    if not isinstance(store, PostgresStore):
        return clock().timestamp()
    connection = store._begin(writes=False)  # noqa: SLF001  # the port speaks no SQL, and the server's time is nothing else
    try:
        return float(connection.fetch(_NOW, ())[0][0])
    finally:
        connection.finish(commit=False)


def own_clock(clock: Clock) -> Clock:
    """The clock of the machine itself, whatever puts it right."""
    return clock.own if isinstance(clock, StoreClock) else clock


class StoreClock:
    """``Clock`` of a store: the machine's own, put right by the store's, which is asked now and then."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.own = clock
        self._store = store
        self._off: timedelta | None = None  # not known yet: all threads wait for the first answer
        self._asked: float | None = None
        self._mutex, self._asking = threading.Lock(), threading.local()

    def __call__(self) -> datetime:
        if self._is_due() and not getattr(self._asking, "now", False) and self._mutex.acquire(blocking=self._off is None):
            try:
                if self._is_due():
                    self._ask()
            finally:
                self._mutex.release()
        return self.own() + (self._off or timedelta(0))

    def _is_due(self) -> bool:
        return self._asked is None or time.monotonic() - self._asked > (_AGAIN_SECONDS if self._off is None else _ASK_SECONDS)

    def _ask(self) -> None:
        self._asking.now = True  # the store may ask for the time itself
        try:
            with suppress(StoreError):  # whoever waits for the store does so elsewhere
                self._off = timedelta(seconds=time_of(self._store, self.own) - self.own().timestamp())
        finally:
            self._asked, self._asking.now = time.monotonic(), False
