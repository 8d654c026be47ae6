from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.facade.config import Config
from clia.store.store_queue import StoreQueue
from support.effects import (
    QUICK,
    in_background,
    made_space,
    tools_for,
    utc,
    worker_for,
)
from support.session_spaces import all_of_git

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from clia.store.interface import Claim
    from clia.workers.effects.context import Context
    from clia.workers.worker import Worker, WorkerStatus


ONE = """
def main(input):
    try:
        return request(input["kind"], input.get("payload"))
    except RuntimeError as err:
        return {"failed": str(err)}
"""


class Place:
    """A space on which tests run workers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.space = made_space(root)
        self.space.define("one", ONE)

    def ask(self, kind: str, payload: Any = None, agent: str = "scout") -> None:
        self.space.start(agent, "one", {"kind": kind, "payload": payload})

    def agents(self, *names: str) -> None:
        for name in names:
            self.space.spawn(name, clia.Briefing(title="Look around"))

    def result(self, agent: str = "scout") -> Any:
        found = self.space.session(agent)
        assert found.status == "finished", found.failure or found
        return found.result

    def worker(self, handlers: Mapping[str, Any] | None = None, **more: Any) -> Worker:
        return worker_for(self.space, self.root, handlers, **more)

    def work(self, handlers: Mapping[str, Any] | None = None, **more: Any) -> WorkerStatus:
        return self.worker(handlers, **more).run(until_idle=True)

    def queue(self) -> StoreQueue:
        return StoreQueue(self.space.core.store)

    def holds(self, text: str) -> list[str]:
        """Where a text is: in a file of the store, or in git."""
        files = [each for each in (self.root / ".git" / "clia").rglob("*") if each.is_file()]
        found = [each.name for each in files if text.encode() in each.read_bytes()]
        return found + (["git"] if text.encode() in all_of_git(self.root) else [])


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
    tools = tools_for(place.root)._replace(clock=clock)
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
    worker = place.worker({"stuck": stuck}, config=config, tools=tools_for(place.root)._replace(clock=clock), wait=back)
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
    place.work({"stuck": stuck}, config=config, tools=tools_for(place.root)._replace(clock=clock))
    assert place.result() == {"failed": "stuck: timed out after 0.05 s"}
    over.set()
