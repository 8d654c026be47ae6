"""The clock of a shared store: how often it asks the server, what it shows during an outage, and that it is thread-safe."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from clia.errors import StoreError
from clia.store import postgres_store
from clia.store.postgres_store import StoreClock
from support.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WAIT = 60.0


class ClockServer:
    """A server whose clock is an hour ahead of the machine's; it can be unavailable or slow."""

    def __init__(self) -> None:
        self.requests = 0
        self.away = False
        self.passed = 0.0
        self.before: Callable[[], object] = lambda: None

    def time_of(self, *_: object) -> float:
        self.requests += 1
        self.before()
        if self.away:
            raise StoreError("away")
        return (NOW + HOUR).timestamp()

    def monotonic(self) -> float:
        return self.passed


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ClockServer:
    fake = ClockServer()
    monkeypatch.setattr(postgres_store, "time_of", fake.time_of)
    monkeypatch.setattr(postgres_store, "time", SimpleNamespace(monotonic=fake.monotonic))
    return fake


def clock() -> StoreClock:
    return StoreClock(MemoryStore(), lambda: NOW)


def test_the_server_is_asked_once_a_minute(server: ClockServer) -> None:
    store_clock = clock()
    for passed, requests in ((0, 1), (30, 1), (59, 1), (61, 2), (120, 2), (122, 3)):
        server.passed = passed
        assert (store_clock(), server.requests) == (NOW + HOUR, requests)


def test_during_an_outage_the_clock_keeps_its_last_offset(server: ClockServer) -> None:
    store_clock = clock()
    assert store_clock() == NOW + HOUR
    server.away, server.passed = True, 100.0
    assert [store_clock(), store_clock()] == [NOW + HOUR] * 2
    assert server.requests == 2


def test_a_server_that_was_unavailable_at_the_start_is_asked_again_soon(server: ClockServer) -> None:
    store_clock = clock()
    server.away = True
    assert store_clock() == NOW
    server.away, server.passed = False, 5.0
    assert store_clock() == NOW + HOUR


def test_threads_wait_for_the_first_answer_of_the_server(server: ClockServer) -> None:
    store_clock, asking, go = clock(), threading.Event(), threading.Event()
    times: list[datetime] = []

    def wait() -> None:
        asking.set()
        assert go.wait(WAIT)

    server.before = wait
    threads = [threading.Thread(target=lambda: times.append(store_clock())) for _ in range(4)]
    for thread in threads:
        thread.start()
        assert asking.wait(WAIT)
    go.set()
    for thread in threads:
        thread.join(WAIT)
    assert (times, server.requests) == ([NOW + HOUR] * 4, 1)


def test_the_request_itself_may_read_the_clock(server: ClockServer) -> None:
    store_clock = clock()
    server.before = store_clock
    assert (store_clock(), server.requests) == (NOW + HOUR, 1)


def test_a_store_without_a_server_uses_the_machines_clock() -> None:
    assert clock()() == NOW
