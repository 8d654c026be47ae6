from __future__ import annotations

import threading
from collections import Counter
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import Conflict, EngineError, InvalidInput, StoreError
from clia.facade.config import Config
from clia.store.interface import Task
from clia.store.store_queue import StoreQueue
from clia.workers.effects import Effects, builtin, command
from support import git
from support.effects import (
    QUICK,
    asked,
    context_for,
    echo,
    fake_agent,
    in_background,
    tools_for,
)
from support.worker_places import WorkerSpace, soon

if TYPE_CHECKING:
    from clia.store.interface import Waiting
    from clia.workers.effects.context import Context


ON_AND_ON = """
def main(input):
    while not request("work"):
        pass
"""


def test_retries_are_not_starved_by_new_requests(worker_space: WorkerSpace) -> None:
    worker_space.space.sessions.define("on-and-on", ON_AND_ON)
    worker_space.agents("a", "b", "sleeper")
    worker_space.ask("flaky")
    worker_space.ask("timer", {"seconds": 0.01}, "sleeper")
    for name in "ab":
        worker_space.space.start(name, "on-and-on")
    answered = threading.Event()
    attempts: Counter[str] = Counter()

    def work(context: Context, payload: Any) -> bool:
        attempts["work"] += 1
        slept = worker_space.space.session("sleeper").status == "finished"
        return attempts["work"] >= 300 or (answered.is_set() and slept)

    def flaky(context: Context, payload: Any) -> str:
        attempts["flaky"] += 1
        if context.attempt == 1:
            raise OSError("once")
        answered.set()
        return "at last"

    worker_space.work({"work": work, "flaky": flaky}, config=Config(worker=QUICK._replace(concurrency=1)))
    assert worker_space.result() == "at last"
    assert attempts["flaky"] == 2
    assert attempts["work"] < 300  # it did not wait until there was nothing else


def test_a_worker_that_waits_for_a_handler_polls_at_its_interval(worker_space: WorkerSpace) -> None:
    """Monotonic time and the time of day are not mixed in the computation of the wait."""
    worker_space.ask("slow")
    waits: list[float] = []

    def slow(context: Context, payload: Any) -> str:
        count = len(waits)
        while len(waits) < count + 5:
            assert not context.cancelled.wait(0.01)
        return "done"

    def wait(event: threading.Event, seconds: float) -> bool:
        waits.append(seconds)
        return event.wait(seconds)

    worker_space.work({"slow": slow}, wait=wait)
    assert worker_space.result() == "done"
    assert min(waits) == QUICK.poll_seconds


class Mute(Exception):
    """An error whose text cannot be computed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Mute(), "Mute with an unreadable message"),
        (ValueError("a\0b"), "ValueError: a\ufffdb"),
        (ValueError("\ud800x"), "ValueError: \\ud800x"),
    ],
    ids=["mute", "nul", "half a character"],
)
def test_any_error_text_reaches_the_flow(
    worker_space: WorkerSpace, error: Exception, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    worker_space.ask("bad")

    def bad(context: Context, payload: Any) -> Any:
        raise error

    status = worker_space.work({"bad": bad}, config=Config(worker=QUICK._replace(attempts=2)))
    assert worker_space.result() == {"failed": f"given up after 2 attempts: {message}"}
    assert (status.retried, status.given_up) == (1, 1)
    assert capfd.readouterr().err == ""


def test_an_effect_whose_module_raises_an_error_without_a_message_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: Any) -> Any:
        raise Mute

    monkeypatch.setattr(EntryPoint, "load", load)
    effects = Effects(Config(), {}, entry_points=[EntryPoint("bad", "some.module:handle", "clia.effects")])
    with pytest.raises(InvalidInput, match="Mute with an unreadable message"):
        effects["bad"]


WAITS = """
def main(input):
    try:
        return request("session", {"agent": input})
    except RuntimeError as err:
        return {"failed": str(err)}
"""


def test_a_cycle_of_waiting_sessions_is_broken_by_failing_one(worker_space: WorkerSpace) -> None:
    worker_space.space.sessions.define("waits", WAITS)
    worker_space.agents("a", "b", "c")
    for name, awaited in (("a", "b"), ("b", "c"), ("c", "a")):
        worker_space.space.start(name, "waits", awaited)
    status = worker_space.work()
    assert (status.given_up, status.answered) == (1, 2)
    (failed,) = (agent for agent in "abc" if "failed" in worker_space.result(agent))
    assert "a waits for b" in worker_space.result(failed)["failed"]
    assert "b waits for c" in worker_space.result(failed)["failed"]
    assert "c waits for a" in worker_space.result(failed)["failed"]
    assert status.last is not None
    assert "the sessions wait for each other" in status.last


def test_a_restarted_session_is_waited_for(worker_space: WorkerSpace) -> None:
    """It restarts between the worker's look, when it had ended, and the handler's."""
    worker_space.agents("helper")
    worker_space.ask("echo", 1, "helper")
    context = context_for(worker_space.space, asked("session", {"agent": "helper"}), Config(), tools_for())
    with pytest.raises(Conflict) as caught:  # which is retried
        builtin.session(context, {"agent": "helper"})
    assert caught.value.code == "session-live"


def test_a_task_claimed_during_cleanup_is_kept(worker_space: WorkerSpace) -> None:
    late = Task("late", "9.9", "echo")

    class RacingQueue(StoreQueue):
        looks = 0

        def waiting(self) -> list[Waiting]:
            self.looks += 1
            if self.looks == 2:  # after the list of requests was read
                assert self.claim([late], "w2", 1.0, 1.0) is not None
            return super().waiting()

    worker_space.work({"echo": echo}, queue=RacingQueue(worker_space.space.local.store))
    assert [task.task for task in worker_space.queue().waiting()] == [late]


def away() -> StoreError:
    error = StoreError("gone", code="store-unavailable")
    error.retryable = True
    return error


def test_an_answer_that_waits_for_the_store_is_dropped_when_the_worker_ends(
    worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one stop the worker ends with the grace period, and no thread remains."""
    worker_space.ask("halting", 5)
    noticed = threading.Event()

    def resume(*words: Any, **more: Any) -> Any:
        noticed.set()
        raise away()

    monkeypatch.setattr(worker_space.space, "resume", resume)
    worker = worker_space.worker({"halting": echo}, config=Config(worker=QUICK._replace(grace_seconds=0.05)))
    thread = in_background(worker)
    assert noticed.wait(30)
    (handing_in,) = (running for running in threading.enumerate() if running.name == "clia-halting")
    worker.stop()
    thread.join()
    handing_in.join(60)
    assert not handing_in.is_alive()


def test_waiting_for_the_store_does_not_use_up_other_retries(worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_space.ask("echo", 5)
    real = worker_space.space.resume
    errors: list[Exception] = [*(away() for _ in range(8)), EngineError("the sandbox died"), EngineError("once more")]

    def resume(*words: Any, **more: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return real(*words, **more)

    monkeypatch.setattr(worker_space.space, "resume", resume)
    status = worker_space.work({"echo": echo}, wait=soon)
    assert worker_space.result() == 5
    assert (status.answered, status.retried) == (1, 0)


def test_a_nested_repository_left_by_an_attempt_is_not_committed(worker_space: WorkerSpace) -> None:
    config = Config(programs={"agent": fake_agent(worker_space.root.parent)})

    def call(request: str, *lines: str) -> Any:
        payload = {"program": "agent", "stdin": "\n".join(lines)}
        context = context_for(worker_space.space, asked("command", payload, request=request), config, tools_for())
        return command.handle(context, payload)

    call("1.1", "say hello")  # creates the worktree
    directory = Path(worker_space.space.local.run_directories.directory("scout", worker=True))
    git("init", "--quiet", "inner", cwd=directory)  # as a killed program may leave it
    (directory / "inner" / "junk.txt").write_text("junk")
    value = call("1.2", "write good.txt good")
    assert worker_space.space.files(value["commit"]) == {"good.txt": b"good\n"}
    assert not (directory / "inner").exists()
