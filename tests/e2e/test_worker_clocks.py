from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from clia.facade.config import Config
from clia.store.store_queue import StoreQueue
from support.effects import (
    QUICK,
    in_background,
    tools_for,
    utc,
)

if TYPE_CHECKING:
    from clia.store.interface import Claim
    from clia.workers.effects.context import Context
    from clia.workers.worker import WorkerStatus
    from support.worker_places import WorkerSpace


class SettableClock:
    """A time of day that the test sets."""

    def __init__(self) -> None:
        self.off = timedelta(0)

    def __call__(self) -> Any:
        return utc() + self.off


def test_a_clock_set_forward_does_not_end_or_repeat_an_attempt(worker_space: WorkerSpace) -> None:
    worker_space.ask("slow")
    clock = SettableClock()
    tried: list[int] = []
    renewed = threading.Event()

    class RenewingQueue(StoreQueue):
        def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
            renewed_claim = super().keep(claim, now, lease)
            if clock.off:
                renewed.set()
            return renewed_claim

    looks: list[WorkerStatus] = []

    def slow(context: Context, payload: Any) -> str:
        tried.append(context.attempt)
        clock.off = timedelta(days=1)
        count = len(looks)
        assert renewed.wait(30)
        while len(looks) < count + 3:  # the worker polls, and does not touch it
            assert not context.cancelled.wait(0.01)
        return "once"

    config = Config(worker=QUICK._replace(lease_seconds=0.3, timeout_seconds=600.0))
    tools = tools_for()._replace(clock=clock)
    queue = RenewingQueue(worker_space.space.local.store)
    status = worker_space.work({"slow": slow}, config=config, tools=tools, queue=queue, tell=looks.append)
    assert worker_space.result() == "once"
    assert tried == [1]
    assert (status.answered, status.retried) == (1, 0)


def test_a_clock_set_back_does_not_delay_the_workers_end(worker_space: WorkerSpace) -> None:
    worker_space.ask("stuck")
    clock = SettableClock()
    begun, over = threading.Event(), threading.Event()

    def stuck(context: Context, payload: Any) -> Any:
        begun.set()
        return over.wait(60)

    def back(event: threading.Event, seconds: float) -> bool:
        if begun.is_set():
            clock.off -= timedelta(hours=1)  # at each wait, so that no deadline is ever reached
        return event.wait(min(seconds, 0.01))

    config = Config(worker=QUICK._replace(grace_seconds=0.05))
    worker = worker_space.worker({"stuck": stuck}, config=config, tools=tools_for()._replace(clock=clock), wait=back)
    thread = in_background(worker)
    assert begun.wait(30)
    worker.stop()
    thread.join(30)
    assert not thread.is_alive()
    over.set()


def test_a_clock_set_back_does_not_extend_an_attempts_time_limit(worker_space: WorkerSpace) -> None:
    worker_space.ask("stuck")
    clock = SettableClock()
    over = threading.Event()

    def stuck(context: Context, payload: Any) -> Any:
        clock.off = -timedelta(hours=1)
        return over.wait(60)

    config = Config(worker=QUICK._replace(attempts=1, timeout_seconds=0.05))
    worker_space.work({"stuck": stuck}, config=config, tools=tools_for()._replace(clock=clock))
    assert worker_space.result() == {"failed": "stuck: timed out after 0.05 s"}
    over.set()
