"""One clock for all machines that share a store.

Invariant: on a PostgreSQL store the time is the server's, within the latency of a query; otherwise it is the machine's. While
the server is unavailable, the last known difference applies.
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

_REFRESH_SECONDS = 60.0
_RETRY_SECONDS = 2.0  # until the first answer


def time_of(store: Store, clock: Clock) -> float:
    """Return the store's time in seconds since the epoch; ``clock`` is this machine's."""
    return store.now() if isinstance(store, PostgresStore) else clock().timestamp()


def own_clock(clock: Clock) -> Clock:
    """Return the machine's own clock behind a store clock."""
    return clock.own if isinstance(clock, StoreClock) else clock


class StoreClock:
    """The machine's clock, corrected by the store's, which is queried periodically."""

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
        interval = _RETRY_SECONDS if self._offset is None else _REFRESH_SECONDS
        return self._queried_at is None or time.monotonic() - self._queried_at > interval

    def _query(self) -> None:
        self._querying.now = True  # the store may call this clock
        try:
            with suppress(StoreError):  # the caller's next use of the store reports it
                self._offset = timedelta(seconds=time_of(self._store, self.own) - self.own().timestamp())
        finally:
            self._queried_at, self._querying.now = time.monotonic(), False
