"""Bells: how whoever reads the feed learns that there is more of it.

Invariant: waiting ends when there is more, when its time is up, or when the bell is closed; never with an error of a store
that comes back. PostgreSQL rings by itself; whatever becomes of the connection that listens, the feed is looked at in
between, so that a ring that was lost delays what it told of and nothing worse.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import suppress

from clia.errors import StoreError
from clia.store.postgres_store import PostgresStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.store.interface import FeedNotifier, Store
    from clia.store.postgres_store import Listener

LOOK_SECONDS = 0.1
"""How often the feed is looked at where nothing rings."""
DOUBT_SECONDS = 5.0
"""How often it is looked at where something should ring."""


def notifier_for(store: Store) -> FeedNotifier:
    return PostgresNotifier(store) if isinstance(store, PostgresStore) else PollingNotifier()


class PollingNotifier:
    """``FeedNotifier`` where nobody rings: looks again and again."""

    def __init__(self, every: float = LOOK_SECONDS) -> None:
        self._every = every
        self._closed = threading.Event()

    def wait(self, has_more: Callable[[], bool], timeout: float) -> bool:
        until = time.monotonic() + timeout
        while not self._closed.is_set():
            if _sees(has_more):
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._closed.wait(min(self._every, left))
        return False

    def close(self) -> None:
        self._closed.set()


class PostgresNotifier:
    """``FeedNotifier`` of PostgreSQL: LISTEN on a connection of its own, made anew where it was lost.

    ``polls``: whether the feed is looked at also where nothing has rung.
    """

    def __init__(self, store: PostgresStore, *, polls: bool = True) -> None:
        self._store = store
        self._polls = polls
        self._listener: Listener | None = None
        self._closed = False
        self._woken, self._waker = socket.socketpair()
        self._in_use = threading.Lock()  # only who waits may touch the connection

    def wait(self, has_more: Callable[[], bool], timeout: float) -> bool:
        try:
            with self._in_use:
                return self._wait(has_more, time.monotonic() + timeout)
        finally:
            if self._closed:
                self._tidy()

    def _wait(self, has_more: Callable[[], bool], until: float) -> bool:
        look = True
        while not self._closed:
            # First listen, then look: what comes between the two rings.
            look = self._listens_anew() or look
            if look and _sees(has_more):
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            look = self._rung(left)
        return False

    def _listens_anew(self) -> bool:
        """Makes the connection where there is none; whether it did: much may have been missed before."""
        if self._listener is not None:
            return False
        with suppress(StoreError):
            self._listener = self._store.listen()
        return self._listener is not None

    def _rung(self, left: float) -> bool:
        """Sleeps until the bell rings, or it is time to look all the same; whether to look."""
        listener, waiting = self._listener, select.poll()
        waiting.register(self._woken, select.POLLIN)
        if listener is not None:
            waiting.register(listener, select.POLLIN)
        pause = LOOK_SECONDS if listener is None else DOUBT_SECONDS
        if not waiting.poll(1000 * min(left, pause)):
            return self._polls
        try:
            return listener is not None and listener.heard()
        except StoreError:
            self._lose()
            return False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with suppress(OSError):  # who waited has seen it already, and tidied up
                self._waker.send(b"x")
            self._tidy()

    def _tidy(self) -> None:
        """Lets go of everything, unless somebody still waits: then it is they who do, when they have ended."""
        if self._in_use.acquire(blocking=False):
            try:
                self._lose()
                self._woken.close()
                self._waker.close()
            finally:
                self._in_use.release()

    def _lose(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def _sees(has_more: Callable[[], bool]) -> bool:
    try:
        return has_more()
    except StoreError as err:
        if not err.retryable:
            raise
        return False
