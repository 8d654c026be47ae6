"""The clock that machines share: what it tells while the server is away, how often it asks, and what threads see of it."""

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

CLONE_KEYS = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WAIT = 60.0


class Server:
    """Its time is an hour ahead of the machine's; it can be away, and slow to answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = False
        self.passed = 0.0
        self.before: Callable[[], object] = lambda: None

    def time_of(self, *_: object) -> float:
        self.asked += 1
        self.before()
        if self.away:
            raise StoreError("away")
        return (CLONE_KEYS + HOUR).timestamp()

    def monotonic(self) -> float:
        return self.passed


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(postgres_store, "time_of", made.time_of)
    monkeypatch.setattr(postgres_store, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def clock() -> StoreClock:
    return StoreClock(MemoryStore(), lambda: CLONE_KEYS)


def test_the_server_is_asked_once_a_minute(server: Server) -> None:
    told = clock()
    for passed, asked in ((0, 1), (30, 1), (59, 1), (61, 2), (120, 2), (122, 3)):
        server.passed = passed
        assert (told(), server.asked) == (CLONE_KEYS + HOUR, asked)


def test_while_the_server_is_away_the_clock_goes_on_as_far_off_as_it_was(server: Server) -> None:
    told = clock()
    assert told() == CLONE_KEYS + HOUR
    server.away, server.passed = True, 100.0
    assert [told(), told()] == [CLONE_KEYS + HOUR] * 2
    assert server.asked == 2


def test_a_server_that_was_away_at_the_start_is_asked_again_soon(server: Server) -> None:
    told = clock()
    server.away = True
    assert told() == CLONE_KEYS
    server.away, server.passed = False, 5.0
    assert told() == CLONE_KEYS + HOUR


def test_no_thread_is_told_the_machines_own_time_while_another_asks_for_the_first_time(server: Server) -> None:
    told, asking, go = clock(), threading.Event(), threading.Event()
    found: list[datetime] = []

    def wait() -> None:
        asking.set()
        assert go.wait(WAIT)

    server.before = wait
    threads = [threading.Thread(target=lambda: found.append(told())) for _ in range(4)]
    for each in threads:
        each.start()
        assert asking.wait(WAIT)
    go.set()
    for each in threads:
        each.join(WAIT)
    assert (found, server.asked) == ([CLONE_KEYS + HOUR] * 4, 1)


def test_who_is_asked_may_look_at_the_clock(server: Server) -> None:
    told = clock()
    server.before = told
    assert (told(), server.asked) == (CLONE_KEYS + HOUR, 1)


def test_a_store_of_one_machine_has_its_clock() -> None:
    assert clock()() == CLONE_KEYS
