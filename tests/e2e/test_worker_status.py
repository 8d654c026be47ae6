from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import clia
from clia.facade.config import Config
from clia.store.store_queue import StoreQueue
from support.effects import (
    QUICK,
    echo,
    tools_for,
)
from support.worker_places import WorkerSpace, soon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from clia.store.interface import Claim, Task
    from clia.workers.effects.context import Context
    from clia.workers.worker import WorkerStatus


def test_the_status_has_the_result_of_the_last_failed_attempt(worker_space: WorkerSpace) -> None:
    worker_space.ask("flaky")
    last_attempts: list[str | None] = []

    def flaky(context: Context, payload: Any) -> Any:
        raise OSError(f"no {context.attempt}")

    config = Config(worker=QUICK._replace(attempts=2))
    worker = worker_space.worker({"flaky": flaky}, config=config, tell=lambda status: last_attempts.append(status.last))
    assert worker.status().last is None
    status = worker.run(until_idle=True)
    assert "scout 1.1 flaky: attempt 1 failed: OSError: no 1" in last_attempts
    assert status.last == "scout 1.1 flaky: given up: given up after 2 attempts: OSError: no 2"


def test_the_status_ends_with_a_refused_answer(worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_space.ask("echo", 5)

    def refuse(*words: Any, **more: Any) -> Any:
        raise clia.errors.InvalidAnswer("not a choice")

    monkeypatch.setattr(worker_space.space, "resume", refuse)
    assert worker_space.work({"echo": echo}).last == "scout 1.1 echo: given up: the answer was refused: not a choice"


class SilentQueue(StoreQueue):
    """A queue whose first claim blocks until it is released."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.claimed, self.released = threading.Event(), threading.Event()

    def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
        self.claimed.set()
        assert self.released.wait(30)
        return super().claim(tasks, worker, now, lease)


def hours_later(queue: SilentQueue) -> Callable[[], float]:
    """A clock on which hours pass while the store is silent, until it was read a few times."""
    looks: list[bool] = []

    def monotonic() -> float:
        if not queue.claimed.is_set():
            return 0.0
        looks.append(True)
        if len(looks) > 20:
            queue.released.set()
        return 7200.0

    return monotonic


def test_a_silent_store_is_reported_while_it_is_waited_for(worker_space: WorkerSpace) -> None:
    worker_space.ask("echo", 5)
    queue = SilentQueue(worker_space.space.local.store)
    statuses: list[WorkerStatus] = []
    tools = tools_for()._replace(monotonic=hours_later(queue))
    status = worker_space.work({"echo": echo}, queue=queue, tools=tools, tell=statuses.append, wait=soon)
    assert [reported.trouble for reported in statuses if reported.trouble] == ["the store does not answer"]  # once
    assert status.trouble is statuses[-1].trouble is None
    assert worker_space.result() == 5


def test_many_calls_that_return_are_not_silence(worker_space: WorkerSpace) -> None:
    """Only a call that does not return is; a poll may take long in total."""
    worker_space.ask("echo", 5)
    passed = [0.0]

    class SlowQueue(StoreQueue):
        def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
            passed[0] += 1.5
            return super().claim(tasks, worker, now, lease)

        def next_time(self, tasks: Sequence[Task], now: float) -> float | None:
            passed[0] += 1.5
            troubles.append(worker.status().trouble)
            return super().next_time(tasks, now)

    troubles: list[str | None] = []
    tools = tools_for()._replace(monotonic=lambda: passed[0])
    worker = worker_space.worker({"echo": echo}, queue=SlowQueue(worker_space.space.local.store), tools=tools)
    worker.run(until_idle=True)
    assert worker_space.result() == 5
    assert set(troubles) == {None}
    passed[0] += 7200.0
    assert worker.status().trouble is None  # no call is running any more


def test_a_silence_that_ends_while_it_is_noticed_is_not_reported(worker_space: WorkerSpace) -> None:
    """The store answers between the reading of the clock and the report."""
    worker_space.ask("echo", 5)
    queue = SilentQueue(worker_space.space.local.store)
    through = threading.Event()
    statuses: list[WorkerStatus] = []

    def tell(status: WorkerStatus) -> None:
        statuses.append(status)
        if status.answered:
            through.set()

    def monotonic() -> float:
        if threading.current_thread().name == "clia-watch" and queue.claimed.is_set() and not queue.released.is_set():
            queue.released.set()
            assert through.wait(30)
            return 7200.0
        return 0.0

    tools = tools_for()._replace(monotonic=monotonic)
    status = worker_space.work({"echo": echo}, queue=queue, tools=tools, tell=tell, wait=soon)
    assert through.is_set()
    assert {reported.trouble for reported in statuses} == {None}
    assert status.trouble is None


def test_the_last_report_is_the_final_state(worker_space: WorkerSpace) -> None:
    """No newer status is reported while an outdated silence is being reported."""
    worker_space.ask("echo", 5)
    queue = SilentQueue(worker_space.space.local.store)
    newer = threading.Event()
    overtaken: list[bool] = []

    def tell(status: WorkerStatus) -> None:
        if status.trouble is None:
            newer.set()
            return
        queue.released.set()
        newer.clear()
        overtaken.append(newer.wait(0.3))

    tools = tools_for()._replace(monotonic=hours_later(queue))
    worker_space.work({"echo": echo}, queue=queue, tools=tools, tell=tell, wait=soon)
    assert overtaken == [False]
