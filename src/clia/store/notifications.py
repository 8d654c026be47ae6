"""Notifications of new feed entries.

Invariant: waiting ends when there are more entries, at the timeout, or when the notifier is closed, and never with a retryable
store error. PostgreSQL sends notifications; the feed is polled as well, so a lost notification only causes a delay.
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
    from clia.store.postgres_store import FeedListener

POLL_SECONDS = 0.1
"""Polling interval without notifications."""
SAFETY_POLL_SECONDS = 5.0
"""Polling interval with notifications."""


def notifier_for(store: Store) -> FeedNotifier:
    """Return the notifier of a store."""
    return PostgresNotifier(store) if isinstance(store, PostgresStore) else PollingNotifier()


class PollingNotifier:
    """``FeedNotifier`` that polls."""

    def __init__(self, every: float = POLL_SECONDS) -> None:
        self._every = every
        self._closed = threading.Event()

    def wait(self, has_more: Callable[[], bool], timeout: float) -> bool:
        until = time.monotonic() + timeout
        while not self._closed.is_set():
            if _check(has_more):
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._closed.wait(min(self._every, left))
        return False

    def close(self) -> None:
        self._closed.set()


class PostgresNotifier:
    """``FeedNotifier`` that uses LISTEN on its own connection, and reconnects.

    ``polls``: also poll the feed between notifications.
    """

    def __init__(self, store: PostgresStore, *, polls: bool = True) -> None:
        self._store = store
        self._polls = polls
        self._listener: FeedListener | None = None
        self._closed = False
        self._woken, self._waker = socket.socketpair()
        self._in_use = threading.Lock()  # the waiting thread owns the connection

    def wait(self, has_more: Callable[[], bool], timeout: float) -> bool:
        try:
            with self._in_use:
                return self._wait(has_more, time.monotonic() + timeout)
        finally:
            if self._closed:
                self._release()

    def _wait(self, has_more: Callable[[], bool], until: float) -> bool:
        look = True
        while not self._closed:
            # Listen before checking, so that nothing is missed in between.
            if self._listener is None:
                with suppress(StoreError):
                    self._listener = self._store.listen()
                    look = True  # notifications may have been missed
            if look and _check(has_more):
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            look = self._wait_for_news(left)
        return False

    def _wait_for_news(self, left: float) -> bool:
        """Sleep until a notification or the next poll; return whether to check the feed."""
        listener, waiting = self._listener, select.poll()
        waiting.register(self._woken, select.POLLIN)
        if listener is not None:
            waiting.register(listener, select.POLLIN)
        pause = POLL_SECONDS if listener is None else SAFETY_POLL_SECONDS
        if not waiting.poll(1000 * min(left, pause)):
            return self._polls
        try:
            return listener is not None and listener.heard()
        except StoreError:
            self._disconnect()
            return False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with suppress(OSError):  # the waiting thread has already released it
                self._waker.send(b"x")
            self._release()

    def _release(self) -> None:
        """Release everything, unless a thread still waits; it does so when it ends."""
        if self._in_use.acquire(blocking=False):
            try:
                self._disconnect()
                self._woken.close()
                self._waker.close()
            finally:
                self._in_use.release()

    def _disconnect(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def _check(has_more: Callable[[], bool]) -> bool:
    try:
        return has_more()
    except StoreError as err:
        if not err.retryable:
            raise
        return False
