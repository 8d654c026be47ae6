from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from clia.facade.config import Config
from clia.store.store_queue import StoreQueue
from support.effects import (
    QUICK,
    in_background,
    tools_for,
    utc,
)
from support.worker_places import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.store.interface import Claim
    from clia.workers.effects.context import Context
    from clia.workers.worker import WorkerStatus


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "space")
    yield made
    made.space.close()


class Clock:
    """The time of day, which somebody sets."""

    def __init__(self) -> None:
        self.off = timedelta(0)

    def __call__(self) -> Any:
        return utc() + self.off


def test_a_clock_that_is_set_forward_ends_no_attempt_and_starts_none_twice(place: Place) -> None:
    place.ask("slow")
    clock = Clock()
    tried: list[int] = []
    kept = threading.Event()

    class Keeping(StoreQueue):
        def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
            found = super().keep(claim, now, lease)
            if clock.off:
                kept.set()
            return found

    looks: list[WorkerStatus] = []

    def slow(context: Context, payload: Any) -> str:
        tried.append(context.attempt)
        clock.off = timedelta(days=1)
        seen = len(looks)
        assert kept.wait(30)
        while len(looks) < seen + 3:  # the worker looks on, and leaves it alone
            assert not context.cancelled.wait(0.01)
        return "once"

    config = Config(worker=QUICK._replace(lease_seconds=0.3, timeout_seconds=600.0))
    tools = tools_for()._replace(clock=clock)
    queue = Keeping(place.space.core.store)
    seen = place.work({"slow": slow}, config=config, tools=tools, queue=queue, tell=looks.append)
    assert place.result() == "once"
    assert tried == [1]
    assert (seen.answered, seen.retried) == (1, 0)


def test_a_clock_that_is_set_back_does_not_hold_up_the_workers_end(place: Place) -> None:
    place.ask("stuck")
    clock = Clock()
    begun, over = threading.Event(), threading.Event()

    def stuck(context: Context, payload: Any) -> Any:
        begun.set()
        return over.wait(60)

    def back(event: threading.Event, seconds: float) -> bool:
        if begun.is_set():
            clock.off -= timedelta(hours=1)  # at each wait, so that no time of day is ever reached
        return event.wait(min(seconds, 0.01))

    config = Config(worker=QUICK._replace(grace_seconds=0.05))
    worker = place.worker({"stuck": stuck}, config=config, tools=tools_for()._replace(clock=clock), wait=back)
    thread = in_background(worker)
    assert begun.wait(30)
    worker.stop()
    thread.join(30)
    assert not thread.is_alive()
    over.set()


def test_a_clock_that_is_set_back_does_not_lengthen_an_attempts_time(place: Place) -> None:
    place.ask("stuck")
    clock = Clock()
    over = threading.Event()

    def stuck(context: Context, payload: Any) -> Any:
        clock.off = -timedelta(hours=1)
        return over.wait(60)

    config = Config(worker=QUICK._replace(attempts=1, timeout_seconds=0.05))
    place.work({"stuck": stuck}, config=config, tools=tools_for()._replace(clock=clock))
    assert place.result() == {"failed": "stuck: timed out after 0.05 s"}
    over.set()
