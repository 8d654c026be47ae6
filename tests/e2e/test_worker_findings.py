"""What a hostile reading of the worker and its effects once found: each of these was wrong, or nothing would have told."""

from __future__ import annotations

import threading
import tracemalloc
from collections import Counter
from datetime import timedelta
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import Conflict, EngineError, InvalidInput, StoreError, TransportError
from clia.facade.config import Config, Llm, ProgramRule
from clia.http_client import HttpClient
from clia.programs.output import TracedOutput
from clia.redaction.secrets import START
from clia.store.interface import Task
from clia.store.store_queue import StoreQueue
from clia.workers.effects import Effects, builtin, command, llm
from clia.workers.setup import make_tools
from support import git
from support.effects import (
    QUICK,
    Reply,
    asked,
    completion,
    context_for,
    echo,
    fake_agent,
    in_background,
    made_space,
    model_server,
    tools_for,
    utc,
    worker_for,
)
from support.fake_secrets import FAKES
from support.session_spaces import all_of_git

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from clia.store.interface import Claim, Waiting
    from clia.workers.effects.context import Context, Tools
    from clia.workers.worker import Worker, WorkerStatus

ONE = """
def main(input):
    try:
        return request(input["kind"], input.get("payload"))
    except RuntimeError as err:
        return {"failed": str(err)}
"""
TOKEN = next(each for each in FAKES if each.kind == "github-token")


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


def soon(event: threading.Event, seconds: float) -> bool:
    """Waits, for tests that do not want to."""
    return event.wait(min(seconds, 0.01))


# Secrets


def printing(text: str) -> Config:
    return Config(worker=QUICK, programs={"p": ProgramRule(("python3", "-c", f"import sys; sys.stdout.write({text!r})"))})


@pytest.mark.parametrize("shown", range(0, len(TOKEN.text), 7))
def test_a_secret_across_the_cut_of_a_programs_output_is_in_no_part_of_it(shown: int) -> None:
    """The end of the output begins in the middle of a token, which is not known any more by its rest."""
    tools = tools_for_nothing()
    output = TracedOutput(lambda _: None, tools.cleaning.chunk)
    rest = "\n" + ("x" * 63 + "\n") * 1023
    output.add((TOKEN.text + rest + "y" * (64 * 1024 - len(rest) - shown)).encode())
    output.end()
    assert output.tail().endswith("yyy")
    assert TOKEN.secret[-6:] not in output.tail()


def tools_for_nothing(**how: bool) -> Tools:
    return make_tools(utc, {}, "/nowhere", **how)


def test_a_secret_that_comes_in_pieces_is_not_in_the_end_of_the_output() -> None:
    output = TracedOutput(lambda _: None, tools_for_nothing().cleaning.chunk)
    for at in range(0, len(TOKEN.text), 9):
        output.add((" " * 16 * 1024 if not at else "").encode() + TOKEN.text[at : at + 9].encode())
    output.add(b" done\n")
    output.end()
    assert output.tail().endswith(" done\n")
    assert TOKEN.secret[:12] not in output.tail()
    assert TOKEN.secret[-12:] not in output.tail()


def test_what_the_operator_wants_as_it_is_stays_as_it_is() -> None:
    cleaning = tools_for_nothing(redact=False).cleaning
    assert cleaning.text(TOKEN.text) == TOKEN.text
    assert cleaning.chunk(TOKEN.text, START) == (TOKEN.text, START)


def test_no_part_of_a_secret_that_a_program_printed_gets_into_git(place: Place) -> None:
    rest = "\n" + ("x" * 63 + "\n") * 1023
    place.ask("command", {"program": "p"})
    place.work(config=printing(TOKEN.text + rest + "y" * (64 * 1024 - len(rest) - len(TOKEN.secret))))
    assert place.result()["output"].endswith("yyy")
    place.space.commit_with_trace("scout", "finding", changes={"x": b"1"})
    assert place.holds(TOKEN.secret) == []


def test_what_is_held_of_a_programs_output_does_not_grow_with_it() -> None:
    output = TracedOutput(lambda _: None, lambda text, state: (text, state))
    lines = b"x" * 63 + b"\n"
    tracemalloc.start()
    try:
        for _ in range(400):
            output.add(lines * 256)
        output.end()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(output.tail()) == 64 * 1024
    assert held < 200_000
    assert peak < 1_000_000


KEY = "hunter2-Very-Own-Key"


def llm_config(url: str, **more: Any) -> Config:
    return Config(worker=QUICK._replace(**more), llm=Llm(url, "small", "KEY", 10.0))


def test_a_key_that_was_read_with_its_lines_end_is_that_key(place: Place) -> None:
    place.ask("llm", {"prompt": "x"})
    with model_server(completion("yes")) as server:
        place.work(config=llm_config(server.url), tools=tools_for(place.root, KEY=f" {KEY}\n"))
    assert place.result()["text"] == "yes"
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["two\nlines", "a b", "schlüssel", "\x07", "euro€"])
def test_what_cannot_be_a_key_is_said_without_it_and_nothing_is_tried(place: Place, key: str) -> None:
    place.ask("llm", {"prompt": "x"})
    config, tools = llm_config("http://127.0.0.1:9"), tools_for(place.root, KEY=key)
    seen = place.work(config=config, tools=tools)
    assert (seen.retried, seen.given_up) == (0, 0)
    said = dict(seen.problems)["llm"]
    assert "KEY does not hold a valid key" in said
    assert key not in said
    assert "KEY is not set" in str(llm.problem(config, {"KEY": " \n"}))


@pytest.mark.parametrize("headers", [{"Authorization": f"Bearer {KEY}\nx"}, {"Authorization": f"Bearer {KEY}€"}, {f"{KEY}\n": "x"}])
def test_a_header_that_cannot_be_sent_is_not_in_the_error(headers: dict[str, str]) -> None:
    with model_server(completion()) as server, pytest.raises(InvalidInput) as caught:
        HttpClient().post(server.url, headers, b"{}", seconds=5.0, limit=1000)
    assert caught.value.code == "invalid-request"
    assert KEY not in str(caught.value.to_json())
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("url", ["http://[::1", "http://x:99999999/"])
def test_an_address_that_cannot_be_taken_apart_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        HttpClient().post(url, {}, b"", seconds=1.0, limit=10)
    assert caught.value.code == "invalid-url"


@pytest.mark.parametrize(("attempts", "end"), [(5, "attempt 1 failed"), (1, "given up")])
def test_what_an_attempt_failed_with_is_kept_and_shown_without_secrets(place: Place, attempts: int, end: str) -> None:
    """Neither a secret that is known by its form, nor the key to the endpoint, which has none."""
    place.ask("leaky")

    def leaky(context: Context, payload: Any) -> Any:
        raise OSError(f"refused: {TOKEN.text} {KEY}")

    config = llm_config("http://127.0.0.1:9", attempts=attempts, backoff_seconds=1000.0, backoff_max_seconds=1000.0)
    seen = place.worker({"leaky": leaky}, config=config, tools=tools_for(place.root, KEY=f"{KEY}\n")).run(once=True)
    assert seen.last is not None
    assert seen.last.startswith(f"scout 1.1 leaky: {end}: OSError: refused: ")
    assert seen.last.endswith("***")
    assert KEY not in seen.last
    assert TOKEN.secret not in seen.last
    place.space.commit_with_trace("scout", "finding", changes={"x": b"1"})
    assert place.holds(KEY) == place.holds(TOKEN.secret) == []


@pytest.mark.parametrize("error", [clia.errors.InvalidAnswer, clia.errors.CorruptJournal], ids=["refused", "cannot be told"])
def test_why_an_answer_was_not_taken_is_kept_and_shown_without_secrets(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: type[clia.errors.CliaError]
) -> None:
    place.ask("echo", 5)

    def refuse(*words: Any, **more: Any) -> Any:
        raise error(f"not {TOKEN.text}")

    monkeypatch.setattr(place.space, "resume", refuse)
    config = Config(worker=QUICK._replace(backoff_max_seconds=1000.0))
    seen = place.worker({"echo": echo}, config=config).run(once=True)
    assert seen.last is not None
    assert "not [redacted" in seen.last
    assert place.holds(TOKEN.secret) == []


def test_the_key_is_not_in_an_error_however_far_down_the_answer_it_stands(place: Place) -> None:
    """Nor a part of it: what is shown is cut behind the replacement."""
    answer = b" " * (4 * 300 - 5) + KEY.encode()
    tools = tools_for(place.root, KEY=KEY)
    with model_server(Reply(500, answer)) as server:
        context = context_for(place.space, asked("llm", {}), llm_config(server.url), tools)
        with pytest.raises(TransportError) as caught:
            llm.handle(context, {"prompt": "x"})
    assert KEY[:5] not in caught.value.message


def test_an_endpoint_that_says_the_key_back_does_not_bring_it_into_a_record(place: Place) -> None:
    place.ask("llm", {"prompt": "x"})
    with model_server(completion(f"it is {KEY}", model=KEY)) as server:
        place.work(config=llm_config(server.url), tools=tools_for(place.root, KEY=KEY))
    assert place.result()["text"] == "it is ***"
    assert place.holds(KEY) == []


# Turns


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


# A clock that is set


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


# Words of errors


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


# Sessions that wait for one another


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
    context = context_for(place.space, asked("session", {"agent": "helper"}), Config(), tools_for(place.root))
    with pytest.raises(Conflict) as caught:  # which is tried again
        builtin.session(context, {"agent": "helper"})
    assert caught.value.code == "session-live"


# What is forgotten, and when things end


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
    handing_in.join(10)
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
        context = context_for(place.space, asked("command", payload, request=request), config, tools_for(place.root))
        return command.handle(context, payload)

    call("1.1", "say hello")  # makes the worktree
    directory = place.root / ".git" / "clia" / "work" / "scout"
    git("init", "--quiet", "inner", cwd=directory)  # as a program that was ended in the middle may leave it
    (directory / "inner" / "junk.txt").write_text("junk")
    value = call("1.2", "write good.txt good")
    assert place.space.files(value["commit"]) == {"good.txt": b"good\n"}
    assert not (directory / "inner").exists()


# What a worker says of itself


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
    tools = tools_for(place.root)._replace(monotonic=hours_later(queue))
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
    tools = tools_for(place.root)._replace(monotonic=lambda: passed[0])
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

    tools = tools_for(place.root)._replace(monotonic=monotonic)
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

    tools = tools_for(place.root)._replace(monotonic=hours_later(queue))
    place.work({"echo": echo}, queue=queue, tools=tools, tell=tell, wait=soon)
    assert overtaken == [False]
