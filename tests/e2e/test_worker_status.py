from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.facade.config import Config
from clia.store.store_queue import StoreQueue
from support.effects import (
    QUICK,
    echo,
    tools_for,
)
from support.worker_places import Place, soon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from clia.store.interface import Claim, Task
    from clia.workers.effects.context import Context
    from clia.workers.worker import WorkerStatus


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "space")
    yield made
    made.space.close()


def test_the_status_says_what_became_of_the_last_attempt_without_an_answer(place: Place) -> None:
    place.ask("flaky")
    told: list[str | None] = []

    def flaky(context: Context, payload: Any) -> Any:
        raise OSError(f"no {context.attempt}")

    config = Config(worker=QUICK._replace(attempts=2))
    worker = place.worker({"flaky": flaky}, config=config, tell=lambda status: told.append(status.last))
    assert worker.status().last is None
    seen = worker.run(until_idle=True)
    assert "scout 1.1 flaky: attempt 1 failed: OSError: no 1" in told
    assert seen.last == "scout 1.1 flaky: given up: given up after 2 attempts: OSError: no 2"


def test_an_answer_that_was_refused_is_the_last_thing_that_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)

    def refuse(*words: Any, **more: Any) -> Any:
        raise clia.errors.InvalidAnswer("not a choice")

    monkeypatch.setattr(place.space, "resume", refuse)
    assert place.work({"echo": echo}).last == "scout 1.1 echo: given up: the answer was refused: not a choice"


class Silent(StoreQueue):
    """A queue whose first claim does not return before it is let go."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.asked, self.let_go = threading.Event(), threading.Event()

    def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
        self.asked.set()
        assert self.let_go.wait(30)
        return super().claim(tasks, worker, now, lease)


def hours_later(queue: Silent) -> Callable[[], float]:
    """A clock on which hours pass while the store is silent, until it was looked at a few times."""
    looks: list[bool] = []

    def monotonic() -> float:
        if not queue.asked.is_set():
            return 0.0
        looks.append(True)
        if len(looks) > 20:
            queue.let_go.set()
        return 7200.0

    return monotonic


def test_a_store_that_does_not_answer_is_named_while_it_is_waited_for_and_not_after(place: Place) -> None:
    place.ask("echo", 5)
    queue = Silent(place.space.core.store)
    told: list[WorkerStatus] = []
    tools = tools_for()._replace(monotonic=hours_later(queue))
    seen = place.work({"echo": echo}, queue=queue, tools=tools, tell=told.append, wait=soon)
    assert [each.trouble for each in told if each.trouble] == ["the store does not answer"]  # once
    assert seen.trouble is told[-1].trouble is None
    assert place.result() == 5


def test_many_calls_that_each_return_are_no_silence(place: Place) -> None:
    """Only a call that does not return is one; a look may take long in all."""
    place.ask("echo", 5)
    passed = [0.0]

    class Slow(StoreQueue):
        def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
            passed[0] += 1.5
            return super().claim(tasks, worker, now, lease)

        def next_time(self, tasks: Sequence[Task], now: float) -> float | None:
            passed[0] += 1.5
            told.append(worker.status().trouble)
            return super().next_time(tasks, now)

    told: list[str | None] = []
    tools = tools_for()._replace(monotonic=lambda: passed[0])
    worker = place.worker({"echo": echo}, queue=Slow(place.space.core.store), tools=tools)
    worker.run(until_idle=True)
    assert place.result() == 5
    assert set(told) == {None}
    passed[0] += 7200.0
    assert worker.status().trouble is None  # nothing is asked any more


def test_a_silence_that_ends_while_it_is_noticed_is_not_told(place: Place) -> None:
    """The store answers between the look at the clock and what is made of it: the worker is through by then."""
    place.ask("echo", 5)
    queue = Silent(place.space.core.store)
    through = threading.Event()
    told: list[WorkerStatus] = []

    def tell(status: WorkerStatus) -> None:
        told.append(status)
        if status.answered:
            through.set()

    def monotonic() -> float:
        if threading.current_thread().name == "clia-watch" and queue.asked.is_set() and not queue.let_go.is_set():
            queue.let_go.set()
            assert through.wait(30)
            return 7200.0
        return 0.0

    tools = tools_for()._replace(monotonic=monotonic)
    seen = place.work({"echo": echo}, queue=queue, tools=tools, tell=tell, wait=soon)
    assert through.is_set()
    assert {each.trouble for each in told} == {None}
    assert seen.trouble is None


def test_what_is_told_last_is_how_it_stands(place: Place) -> None:
    """Nothing newer is told while a silence that is over is still being told."""
    place.ask("echo", 5)
    queue = Silent(place.space.core.store)
    newer = threading.Event()
    overtaken: list[bool] = []

    def tell(status: WorkerStatus) -> None:
        if status.trouble is None:
            newer.set()
            return
        queue.let_go.set()
        newer.clear()
        overtaken.append(newer.wait(0.3))

    tools = tools_for()._replace(monotonic=hours_later(queue))
    place.work({"echo": echo}, queue=queue, tools=tools, tell=tell, wait=soon)
    assert overtaken == [False]
