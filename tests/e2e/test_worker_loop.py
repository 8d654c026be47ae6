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
from support.worker_places import Place, soon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.store.interface import Waiting
    from clia.workers.effects.context import Context


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "space")
    yield made
    made.space.close()


ON_AND_ON = """
def main(input):
    while not request("work"):
        pass
"""


def test_what_is_tried_again_gets_its_turn_however_much_new_work_there_is(place: Place) -> None:
    place.space.define("on-and-on", ON_AND_ON)
    place.agents("a", "b", "sleeper")
    place.ask("flaky")
    place.ask("timer", {"seconds": 0.01}, "sleeper")
    for name in "ab":
        place.space.start(name, "on-and-on")
    answered = threading.Event()
    done: Counter[str] = Counter()

    def work(context: Context, payload: Any) -> bool:
        done["work"] += 1
        slept = place.space.session("sleeper").status == "finished"
        return done["work"] >= 300 or (answered.is_set() and slept)

    def flaky(context: Context, payload: Any) -> str:
        done["flaky"] += 1
        if context.attempt == 1:
            raise OSError("once")
        answered.set()
        return "at last"

    place.work({"work": work, "flaky": flaky}, config=Config(worker=QUICK._replace(concurrency=1)))
    assert place.result() == "at last"
    assert done["flaky"] == 2
    assert done["work"] < 300  # it did not have to wait until there was nothing else


def test_a_worker_that_waits_for_a_handler_looks_no_more_often_than_it_was_told_to(place: Place) -> None:
    """Its own times and the time of day are told apart: their difference is no time to wait."""
    place.ask("slow")
    waits: list[float] = []

    def slow(context: Context, payload: Any) -> str:
        seen = len(waits)
        while len(waits) < seen + 5:
            assert not context.cancelled.wait(0.01)
        return "done"

    def wait(event: threading.Event, seconds: float) -> bool:
        waits.append(seconds)
        return event.wait(seconds)

    place.work({"slow": slow}, wait=wait)
    assert place.result() == "done"
    assert min(waits) == QUICK.poll_seconds


class Mute(Exception):
    """An error that cannot say what it is about."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Mute(), "Mute, which cannot say what is wrong"),
        (ValueError("a\0b"), "ValueError: a\ufffdb"),
        (ValueError("\ud800x"), "ValueError: \\ud800x"),
    ],
    ids=["mute", "nul", "half a character"],
)
def test_an_error_of_whatever_words_is_told_to_the_flow(
    place: Place, error: Exception, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    place.ask("bad")

    def bad(context: Context, payload: Any) -> Any:
        raise error

    seen = place.work({"bad": bad}, config=Config(worker=QUICK._replace(attempts=2)))
    assert place.result() == {"failed": f"given up after 2 attempts: {said}"}
    assert (seen.retried, seen.given_up) == (1, 1)
    assert capfd.readouterr().err == ""


def test_an_effect_whose_module_raises_an_error_without_words_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: Any) -> Any:
        raise Mute

    monkeypatch.setattr(EntryPoint, "load", load)
    made = Effects(Config(), {}, entry_points=[EntryPoint("bad", "some.module:handle", "clia.effects")])
    with pytest.raises(InvalidInput, match="Mute, which cannot say what is wrong"):
        made["bad"]


WAITS = """
def main(input):
    try:
        return request("session", {"agent": input})
    except RuntimeError as err:
        return {"failed": str(err)}
"""


def test_of_sessions_that_wait_for_one_another_one_is_told_and_all_end(place: Place) -> None:
    place.space.define("waits", WAITS)
    place.agents("a", "b", "c")
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        place.space.start(name, "waits", other)
    seen = place.work()
    assert (seen.given_up, seen.answered) == (1, 2)
    (told,) = (each for each in "abc" if "failed" in place.result(each))
    assert "a waits for b" in place.result(told)["failed"]
    assert "b waits for c" in place.result(told)["failed"]
    assert "c waits for a" in place.result(told)["failed"]
    assert seen.last is not None
    assert "the sessions wait for each other" in seen.last


def test_a_session_that_was_started_again_meanwhile_is_waited_for(place: Place) -> None:
    """Between the look, when it had ended, and the handler's own."""
    place.agents("helper")
    place.ask("echo", 1, "helper")
    context = context_for(place.space, asked("session", {"agent": "helper"}), Config(), tools_for())
    with pytest.raises(Conflict) as caught:  # which is tried again
        builtin.session(context, {"agent": "helper"})
    assert caught.value.code == "session-live"


def test_what_was_claimed_while_the_worker_forgets_is_not_forgotten(place: Place) -> None:
    late = Task("late", "9.9", "echo")

    class Racing(StoreQueue):
        looks = 0

        def waiting(self) -> list[Waiting]:
            self.looks += 1
            if self.looks == 2:  # after the list of requests was read
                assert self.claim([late], "w2", 1.0, 1.0) is not None
            return super().waiting()

    place.work({"echo": echo}, queue=Racing(place.space.core.store))
    assert [each.task for each in place.queue().waiting()] == [late]


def away() -> StoreError:
    error = StoreError("gone", code="store-unavailable")
    error.retryable = True
    return error


def test_an_answer_that_waits_for_a_store_is_let_go_when_the_worker_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to stop once, it ends by itself after the grace; nothing of it goes on."""
    place.ask("halting", 5)
    told = threading.Event()

    def resume(*words: Any, **more: Any) -> Any:
        told.set()
        raise away()

    monkeypatch.setattr(place.space, "resume", resume)
    worker = place.worker({"halting": echo}, config=Config(worker=QUICK._replace(grace_seconds=0.05)))
    thread = in_background(worker)
    assert told.wait(30)
    (handing_in,) = (each for each in threading.enumerate() if each.name == "clia-halting")
    worker.stop()
    thread.join()
    handing_in.join(60)
    assert not handing_in.is_alive()


def test_a_store_that_was_away_for_long_leaves_other_parts_their_tries(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)
    real = place.space.resume
    errors: list[Exception] = [*(away() for _ in range(8)), EngineError("the sandbox died"), EngineError("once more")]

    def resume(*words: Any, **more: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return real(*words, **more)

    monkeypatch.setattr(place.space, "resume", resume)
    seen = place.work({"echo": echo}, wait=soon)
    assert place.result() == 5
    assert (seen.answered, seen.retried) == (1, 0)


def test_a_repository_that_an_attempt_left_in_the_worktree_gets_into_no_commit(place: Place) -> None:
    config = Config(programs={"agent": fake_agent(place.root.parent)})

    def call(request: str, *lines: str) -> Any:
        payload = {"program": "agent", "stdin": "\n".join(lines)}
        context = context_for(place.space, asked("command", payload, request=request), config, tools_for())
        return command.handle(context, payload)

    call("1.1", "say hello")  # makes the worktree
    directory = Path(place.space.local.run_directories.directory("scout", worker=True))
    git("init", "--quiet", "inner", cwd=directory)  # as a program that was ended in the middle may leave it
    (directory / "inner" / "junk.txt").write_text("junk")
    value = call("1.2", "write good.txt good")
    assert place.space.files(value["commit"]) == {"good.txt": b"good\n"}
    assert not (directory / "inner").exists()
