from __future__ import annotations

import threading
from contextlib import closing

from clia.errors import StoreError
from clia.store.notifications import PollingNotifier
from support.spaces import refused


class UnavailableStore:
    """A store that is unavailable for the first few checks."""

    def __init__(self, checks: int, *, retryable: bool = True) -> None:
        self.remaining = checks
        self._retryable = retryable

    def has_more(self) -> bool:
        if not self.remaining:
            return True
        self.remaining -= 1
        error = StoreError("away", code="store-unavailable")
        error.retryable = self._retryable
        raise error


def test_waiting_survives_a_store_that_is_unavailable_for_a_while() -> None:
    store = UnavailableStore(3)
    with closing(PollingNotifier(every=0)) as notifier:
        assert notifier.wait(store.has_more, 30) is True
    assert not store.remaining


def test_waiting_fails_if_the_store_error_is_not_retryable() -> None:
    with closing(PollingNotifier(every=0)) as notifier:
        refused("store-unavailable", lambda: notifier.wait(UnavailableStore(1, retryable=False).has_more, 30))


def test_closing_a_notifier_during_a_check_ends_the_wait() -> None:
    notifier = PollingNotifier()
    checks = threading.Semaphore(0)

    def has_more() -> bool:
        notifier.close()
        checks.release()
        return False

    assert notifier.wait(has_more, 30) is False
    assert checks.acquire(blocking=False)
    assert not checks.acquire(blocking=False)
