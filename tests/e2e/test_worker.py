"""The worker on a real space: real sessions, real claims, handlers in threads."""

from __future__ import annotations

import threading
from collections import Counter
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import BackendError, InvalidInput, StoreError
from clia.facade.config import Config, Llm
from clia.store.interface import Task
from clia.store.store_queue import StoreQueue
from clia.workers.effects import Effects
from support import git
from support.effects import QUICK, completion, echo, in_background, model_server, tools_for, utc
from support.worker_places import WorkerSpace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from clia.store.interface import Claim
    from clia.workers.effects.context import Context
    from clia.workers.worker import WorkerStatus

BOTH = """
import asyncio

async def main(input):
    return await asyncio.gather(*[request("echo", each) for each in input])
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[WorkerSpace]:
    new_place = WorkerSpace(tmp_path / "space")
    new_place.space.define("both", BOTH)
    yield new_place
    new_place.space.close()


# Answers


def test_a_request_is_answered_by_the_handler_of_its_kind(place: WorkerSpace) -> None:
    place.ask("echo", {"n": [1, "é"]})
    status = place.work({"echo": echo})
    assert place.result() == {"n": [1, "é"]}
    assert (status.answered, status.running, status.waiting) == (1, (), 0)
    assert StoreQueue(place.space.local.store).waiting() == []


def test_a_handler_gets_the_context_of_its_request(place: WorkerSpace) -> None:
    place.ask("look", {"a": 1})
    facts: dict[str, Any] = {}

    def look(context: Context, payload: Any) -> None:
        facts.update(agent=context.agent, session=context.session, key=context.key, attempt=context.attempt, payload=payload)
        facts.update(options=context.options, request=context.request.id, cancelled=context.cancelled.is_set())
        context.trace("seen")
        context.progress("half\nway")

    statuses: list[WorkerStatus] = []
    place.work({"look": look}, config=Config(worker=QUICK, effects={"look": {"depth": 3}}), tell=statuses.append)
    request = facts["request"]
    assert facts == {
        "agent": "scout",
        "session": "1",
        "key": f"{place.space.id}/scout/{request}",
        "attempt": 1,
        "payload": {"a": 1},
        "options": {"depth": 3},
        "request": request,
        "cancelled": False,
    }
    (entry,) = [traced for traced in place.space.trace_pending("scout") if traced["kind"] == "console"]
    assert (entry["text"], entry["data"]) == ("seen", {"request": request})
    assert "half way" in {doing.progress for status in statuses for doing in status.running}


def test_several_requests_are_handled_concurrently(place: WorkerSpace) -> None:
    place.space.start("scout", "both", [1, 2, 3])
    together = threading.Barrier(3)

    def meet(context: Context, payload: Any) -> Any:
        together.wait(30)
        return payload * 10

    place.work({"echo": meet})
    assert place.result() == [10, 20, 30]


def test_concurrent_attempts_are_limited_by_the_configuration(place: WorkerSpace) -> None:
    place.space.start("scout", "both", list(range(6)))
    now, most, mutex = 0, 0, threading.Lock()

    def count(context: Context, payload: Any) -> Any:
        nonlocal now, most
        with mutex:
            now += 1
            most = max(most, now)
        with mutex:
            now -= 1
        return payload

    place.work({"echo": count}, config=Config(worker=QUICK._replace(concurrency=1)))
    assert most == 1


def test_requests_without_a_handler_wait_and_do_not_block_others(place: WorkerSpace) -> None:
    place.space.spawn("other", clia.Briefing(title="T"))
    place.ask("unheard-of")
    place.ask("echo", 5, agent="other")
    assert place.work({"echo": echo}).answered == 1
    assert place.space.session("scout").status == "suspended"


def test_questions_to_people_are_never_handled(place: WorkerSpace) -> None:
    place.ask("human", {"question": "Go on?"})
    place.work({"human": echo})
    assert place.space.session("scout").status == "suspended"


def test_a_worker_can_be_limited_to_kinds(place: WorkerSpace) -> None:
    place.ask("echo")
    assert place.work({"echo": echo}, kinds=frozenset({"timer"})).answered == 0
    assert place.work({"echo": echo}, kinds=frozenset({"echo"})).answered == 1


def test_a_flow_asks_a_model_through_the_worker(place: WorkerSpace) -> None:
    place.ask("llm", {"prompt": "Plan?"})
    with model_server(completion("First, look.")) as server:
        place.work(config=Config(worker=QUICK, llm=Llm(server.url, "small")))
    assert place.result()["text"] == "First, look."


def test_only_due_timers_are_answered(place: WorkerSpace) -> None:
    place.ask("timer", {"until": "2020-01-01T00:00:00Z"})
    assert place.work().answered == 1
    place.ask("timer", {"until": "2999-01-01T00:00:00Z"})
    status = place.worker().run(once=True)
    assert (status.answered, status.waiting) == (0, 1)
    assert status.next_at == 32472144000.0


def test_a_sleeping_flow_continues_after_its_time(place: WorkerSpace) -> None:
    place.space.define("nap", "import time\n\ndef main(input):\n    time.sleep(0.05)\n    return 'awake'\n")
    place.space.start("scout", "nap")
    place.work()
    assert place.result() == "awake"


def test_a_flow_starts_a_sub_agent_and_waits_for_it(place: WorkerSpace) -> None:
    place.space.define("dig", 'def main(input):\n    return request("commit", {"changes": {"found.txt": input["what"]}})\n')
    lead = """
def main(input):
    made = request("spawn", {"name": "digger", "briefing": {"title": "Dig"}, "flow": "dig", "input": {"what": "gold"}})
    ended = request("session", {"agent": made["agent"]})
    request("merge", {"from": made["agent"]})
    return ended["status"]
"""
    place.space.define("lead", lead)
    place.space.start("scout", "lead")
    place.work()
    assert place.result() == "finished"
    assert place.space.files("scout") == {"found.txt": b"gold"}


def test_waiting_for_a_session_does_not_occupy_a_worker(place: WorkerSpace) -> None:
    place.space.spawn("other", clia.Briefing(title="T"))
    place.ask("human", {"question": "?"}, agent="other")
    place.ask("session", {"agent": "other"})
    status = place.work()
    assert (status.answered, status.waiting) == (0, 0)
    place.space.decide("other", "yes")
    assert place.work().answered == 1
    assert place.result() == {"agent": "other", "session": "1", "status": "finished", "result": "yes"}


# Failures


def test_a_failed_handler_is_retried(place: WorkerSpace) -> None:
    place.ask("flaky")
    attempts: list[int] = []

    def flaky(context: Context, payload: Any) -> str:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise OSError("no route")
        return "there"

    status = place.work({"flaky": flaky})
    assert place.result() == "there"
    assert attempts == [1, 2, 3]
    assert (status.retried, status.answered) == (2, 1)


@pytest.mark.parametrize("error", [OSError("no route"), SystemExit(1), KeyboardInterrupt()])
def test_after_the_last_attempt_the_flow_gets_the_error(place: WorkerSpace, error: BaseException) -> None:
    place.ask("bad")
    tried: list[int] = []

    def bad(context: Context, payload: Any) -> None:
        tried.append(context.attempt)
        raise error

    status = place.work({"bad": bad})
    assert tried == [1, 2, 3]
    assert place.result()["failed"].startswith("given up after 3 attempts: ")
    assert type(error).__name__ in place.result()["failed"]
    assert (status.retried, status.given_up) == (2, 1)


def test_bad_input_is_not_retried(place: WorkerSpace) -> None:
    place.ask("bad")
    tried: list[int] = []

    def bad(context: Context, payload: Any) -> None:
        tried.append(context.attempt)
        raise InvalidInput("there is no such thing")

    place.work({"bad": bad})
    assert tried == [1]
    assert place.result() == {"failed": "there is no such thing"}


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), "x" * 2_000_000])
def test_an_invalid_answer_is_an_error_in_the_flow(place: WorkerSpace, value: Any) -> None:
    place.ask("bad")
    place.work({"bad": lambda context, payload: value})
    assert "the handler's answer cannot be used" in place.result()["failed"]


def test_an_unlisted_program_is_an_error_in_the_flow(place: WorkerSpace) -> None:
    place.ask("command", {"program": "rm"})
    place.work()
    assert "not in the operator's list" in place.result()["failed"]


def test_a_hanging_handler_is_abandoned_and_its_late_answer_ignored(place: WorkerSpace) -> None:
    place.ask("slow")
    go_on, late = threading.Event(), threading.Event()

    def slow(context: Context, payload: Any) -> str:
        if context.attempt == 1:
            assert context.cancelled.wait(30)  # it is cancelled
            go_on.wait(30)
            late.set()
            return "late"
        go_on.set()
        assert late.wait(30)
        return "in time"

    config = Config(worker=QUICK, effects={"slow": {"timeout_seconds": 3.0}})
    status = place.work({"slow": slow}, config=config)
    assert place.result() == "in time"
    assert (status.retried, status.answered) == (1, 1)


def test_a_handler_that_never_returns_ends_as_a_failure_in_the_flow(place: WorkerSpace) -> None:
    place.ask("stuck")
    over = threading.Event()
    options = QUICK._replace(attempts=2, timeout_seconds=0.1, concurrency=1)
    status = place.work({"stuck": lambda context, payload: over.wait(60)}, config=Config(worker=options))
    assert place.result() == {"failed": "given up after 2 attempts: stuck: timed out after 0.1 s"}
    assert status.hanging == 2
    over.set()


def test_too_many_hanging_handlers_stop_the_worker_from_starting_more(place: WorkerSpace) -> None:
    place.space.start("scout", "both", list(range(8)))
    over = threading.Event()
    troubles: list[str] = []
    begun: list[int] = []

    def hang(context: Context, payload: Any) -> Any:
        begun.append(payload)
        return over.wait(60)

    options = QUICK._replace(attempts=9, timeout_seconds=0.05, concurrency=1, grace_seconds=0.1)

    def stop_when_full(status: WorkerStatus) -> None:
        if status.trouble:
            troubles.append(status.trouble)
            worker.stop()

    worker = place.worker({"echo": hang}, config=Config(worker=options), tell=stop_when_full)
    worker.run()
    assert worker.status().hanging == len(begun) == 4
    assert troubles[0] == "4 handlers hang; no more attempts are started"
    over.set()


def test_a_broken_effect_is_named_and_its_requests_wait_while_others_work(place: WorkerSpace) -> None:
    place.space.spawn("other", clia.Briefing(title="T"))
    place.ask("broken")
    place.ask("good", 5, agent="other")
    points = [
        EntryPoint("broken", "no_such_module:handle", "clia.effects"),
        EntryPoint("good", "support.effects:as_it_is", "clia.effects"),
    ]
    worker = place.worker(effects=Effects(Config(worker=QUICK), {}, entry_points=points))
    status = worker.run(until_idle=True)
    assert place.result("other") == 5
    assert place.space.session("scout").status == "suspended"
    assert "no_such_module" in dict(status.problems)["broken"]
    assert StoreQueue(place.space.local.store).waiting() == []


# Claims


def test_two_workers_share_the_work_and_each_request_is_tried_once(place: WorkerSpace) -> None:
    place.space.start("scout", "both", list(range(30)))
    tried: Counter[int] = Counter()

    def count(context: Context, payload: Any) -> Any:
        tried[payload] += 1
        return payload

    workers = [in_background(place.worker({"echo": count}, name=f"w{at}"), until_idle=True) for at in range(3)]
    for worker in workers:
        worker.join()
    assert place.result() == list(range(30))
    assert set(tried.values()) == {1}


def test_a_request_answered_before_its_claim_is_not_handled(place: WorkerSpace) -> None:
    place.ask("echo", 5)
    tried: list[Any] = []

    class LateQueue(StoreQueue):
        def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
            if tasks:
                place.space.resume("scout", "another's", tasks[0].request)
            return super().claim(tasks, worker, now, lease)

    status = place.work({"echo": lambda context, payload: tried.append(payload)}, queue=LateQueue(place.space.local.store))
    assert tried == []
    assert place.result() == "another's"
    assert status.gone == 1


class LosingQueue(StoreQueue):
    """A queue whose claims are lost to another worker at the first renewal."""

    def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
        return None


def test_a_lost_claim_cancels_the_handler_and_its_answer_counts_if_it_is_the_first(place: WorkerSpace) -> None:
    place.ask("slow")

    def slow(context: Context, payload: Any) -> str:
        assert context.cancelled.wait(30)
        return "still good"

    options = QUICK._replace(lease_seconds=0.1)
    place.work({"slow": slow}, config=Config(worker=options), queue=LosingQueue(place.space.local.store))
    assert place.result() == "still good"


def test_after_a_lost_claim_the_answer_of_another_worker_is_kept(place: WorkerSpace) -> None:
    place.ask("slow")

    def slow(context: Context, payload: Any) -> str:
        assert context.cancelled.wait(30)
        context.space.resume("scout", "another's", context.request.id)
        return "too late"

    options = QUICK._replace(lease_seconds=0.1)
    status = place.work({"slow": slow}, config=Config(worker=options), queue=LosingQueue(place.space.local.store))
    assert place.result() == "another's"
    assert (status.answered, status.gone) == (0, 1)


def test_after_a_lost_claim_an_error_leaves_the_task_to_its_new_worker(place: WorkerSpace) -> None:
    place.ask("slow")
    tried: list[int] = []

    def slow(context: Context, payload: Any) -> str:
        tried.append(context.attempt)
        if context.attempt == 1:
            assert context.cancelled.wait(30)
            raise OSError("no")
        return "second"

    options = QUICK._replace(lease_seconds=0.3, attempts=1)
    place.work({"slow": slow}, config=Config(worker=options), queue=LosingQueue(place.space.local.store))
    # The first attempt's error does not end the request, although one attempt is allowed: the claim had expired.
    reason = "its workers were lost, or their answers could not be recorded"
    assert place.result() == {"failed": f"given up after 1 attempt: {reason}"}
    assert tried == [1]


def test_cancelling_a_session_cancels_its_handler(place: WorkerSpace) -> None:
    place.ask("slow")
    begun = threading.Event()

    def slow(context: Context, payload: Any) -> str:
        begun.set()
        assert context.cancelled.wait(30)
        raise OSError("cancelled")

    worker = place.worker({"slow": slow})
    thread = in_background(worker, until_idle=True)
    assert begun.wait(30)
    place.space.cancel("scout", "enough")
    thread.join()
    assert place.space.session("scout").status == "cancelled"
    assert worker.status().gone == 1
    assert StoreQueue(place.space.local.store).waiting() == []


def test_tasks_of_ended_requests_are_removed(place: WorkerSpace) -> None:
    place.ask("flaky")
    queue = StoreQueue(place.space.local.store)
    (request,) = place.space.pending()
    claim = queue.claim([Task("scout", request.id, "flaky")], "w0", 1.0, 1.0)
    assert claim is not None
    queue.retry(claim, 10**12, "later")
    place.space.cancel("scout")
    assert len(queue.waiting()) == 1
    place.work({"flaky": echo})
    assert queue.waiting() == []


# Stopping


def test_a_stopping_worker_waits_for_running_handlers(place: WorkerSpace) -> None:
    place.space.start("scout", "both", [1, 2])
    begun, end = threading.Event(), threading.Event()

    def slow(context: Context, payload: Any) -> Any:
        begun.set()
        assert end.wait(30)
        return payload

    worker = place.worker({"echo": slow}, config=Config(worker=QUICK._replace(concurrency=1)))
    thread = in_background(worker)
    assert begun.wait(30)
    worker.stop()
    end.set()
    thread.join()
    assert worker.status().answered == 1  # the other request was not started
    assert len(place.space.pending()) == 1
    assert StoreQueue(place.space.local.store).waiting() == []


def test_handlers_that_exceed_the_grace_period_are_cancelled_and_their_tasks_released(place: WorkerSpace) -> None:
    place.ask("slow")
    begun, cancelled = threading.Event(), threading.Event()

    def slow(context: Context, payload: Any) -> Any:
        begun.set()
        assert context.cancelled.wait(30)
        cancelled.set()
        raise OSError("stopped in the middle")

    worker = place.worker({"slow": slow}, config=Config(worker=QUICK._replace(grace_seconds=0.1)))
    thread = in_background(worker)
    assert begun.wait(30)
    worker.stop()
    thread.join()
    assert cancelled.is_set()
    assert len(place.space.pending()) == 1
    assert StoreQueue(place.space.local.store).waiting() == []  # as if it had not been attempted
    place.work({"slow": echo})
    assert place.result() is None


def test_a_second_stop_releases_the_tasks_at_once(place: WorkerSpace) -> None:
    place.ask("stuck")
    begun, over = threading.Event(), threading.Event()

    def stuck(context: Context, payload: Any) -> Any:
        begun.set()
        return over.wait(60)

    worker = place.worker({"stuck": stuck}, config=Config(worker=QUICK._replace(grace_seconds=1000.0)))
    thread = in_background(worker)
    assert begun.wait(30)
    worker.stop()
    worker.stop()
    thread.join()
    assert StoreQueue(place.space.local.store).waiting() == []
    place.work({"stuck": echo})
    assert place.result() is None
    over.set()


# An unreachable store


class AwayQueue(StoreQueue):
    """A queue whose store fails for some calls, before or after it has applied them."""

    def __init__(self, store: Any, failures: int, *, unsure: bool = False) -> None:
        super().__init__(store)
        self.left = failures
        self.unsure = unsure

    def _fail(self) -> None:
        if self.left:
            self.left -= 1
            error = StoreError("gone", code="store-unsure" if self.unsure else "store-unavailable")
            error.retryable = not self.unsure
            raise error

    def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
        self._fail()
        return super().claim(tasks, worker, now, lease)

    def done(self, claim: Claim) -> None:
        super().done(claim)
        self._fail()


@pytest.mark.parametrize("unsure", [False, True])
def test_the_worker_waits_for_an_unreachable_store_and_reports_it(place: WorkerSpace, unsure: bool) -> None:
    place.ask("echo", 5)
    statuses: list[WorkerStatus] = []
    queue = AwayQueue(place.space.local.store, 3, unsure=unsure)
    status = place.work({"echo": echo}, queue=queue, tell=statuses.append)
    assert place.result() == 5
    assert status.answered == 1
    assert "gone" in {reported.trouble for reported in statuses}
    assert status.trouble is None


def test_an_answer_with_a_lost_confirmation_counts_once(place: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)
    real = place.space.resume
    lost: list[bool] = []

    def resume(*words: Any, **more: Any) -> Any:
        result = real(*words, **more)
        if not lost:
            lost.append(True)
            raise StoreError("lost while committing, perhaps done", code="store-unsure")
        return result

    monkeypatch.setattr(place.space, "resume", resume)
    tried: list[int] = []

    def once(context: Context, payload: Any) -> Any:
        tried.append(context.attempt)
        return payload

    status = place.work({"echo": once})
    assert place.result() == 5
    assert tried == [1]
    assert (status.answered, status.gone) == (1, 0)


def test_a_broken_store_ends_the_worker_with_its_error(place: WorkerSpace) -> None:
    place.ask("echo", 5)

    class BrokenQueue(StoreQueue):
        def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
            raise StoreError("corrupt", code="store-corrupt")

    with pytest.raises(BackendError, match="corrupt"):
        place.work({"echo": echo}, queue=BrokenQueue(place.space.local.store))


def test_an_answer_that_cannot_be_recorded_is_kept_and_retried(place: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)
    real, failures_left = place.space.resume, [True]

    def resume(*words: Any, **more: Any) -> Any:
        if failures_left:
            failures_left.clear()
            raise clia.errors.CorruptJournal("cannot be read")
        return real(*words, **more)

    monkeypatch.setattr(place.space, "resume", resume)
    status = place.work({"echo": echo})
    assert place.result() == 5
    assert (status.retried, status.answered) == (1, 1)


def test_a_worker_that_must_stop_at_once_does_not_wait_for_the_store(place: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)
    noticed = threading.Event()

    def away(*words: Any, **more: Any) -> Any:
        noticed.set()
        error = StoreError("gone", code="store-unavailable")
        error.retryable = True
        raise error

    monkeypatch.setattr(place.space, "resume", away)
    worker = place.worker({"echo": echo})
    thread = in_background(worker)
    assert noticed.wait(30)
    worker.stop()
    worker.stop()
    thread.join()
    monkeypatch.undo()
    (task,) = StoreQueue(place.space.local.store).waiting()
    assert task.worker == "w1"  # its claim expires, and another worker retries
    assert place.space.session("scout").status == "suspended"


def test_an_answer_refused_by_the_session_is_given_up_with_the_reason(place: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)

    def refuse(*words: Any, **more: Any) -> Any:
        raise clia.errors.InvalidAnswer("not a choice")

    monkeypatch.setattr(place.space, "resume", refuse)
    assert place.work({"echo": echo}).given_up == 1
    assert place.result() == {"failed": "the answer was refused: not a choice"}


def test_a_session_that_diverges_at_the_answer_is_dropped(place: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)

    def diverge(agent: str, *words: Any, **more: Any) -> Any:
        place.space.cancel(agent)  # as a replay that diverges from the record ends it
        raise clia.errors.Nondeterminism("it asked something else")

    monkeypatch.setattr(place.space, "resume", diverge)
    assert place.work({"echo": echo}).gone == 1
    assert StoreQueue(place.space.local.store).waiting() == []


def test_a_request_of_an_agent_without_a_branch_is_not_retried_in_a_loop(place: WorkerSpace) -> None:
    place.ask("echo", 5)
    git("update-ref", "-d", "refs/heads/agents/scout", cwd=place.root)
    options = QUICK._replace(backoff_max_seconds=1000.0)
    tried: list[int] = []

    def count(context: Context, payload: Any) -> Any:
        tried.append(context.attempt)
        return payload

    status = place.worker({"echo": count}, config=Config(worker=options)).run(once=True)
    assert tried == []
    assert (status.retried, status.answered, status.gone) == (1, 0, 0)
    (task,) = StoreQueue(place.space.local.store).waiting()
    assert "no agent 'scout'" in str(task.error)


def test_recording_an_answer_is_retried_with_the_same_answer(place: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)
    real, failures_left = place.space.resume, [clia.errors.EngineError("the sandbox died")] * 2

    def resume(*words: Any, **more: Any) -> Any:
        if failures_left:
            raise failures_left.pop()
        return real(*words, **more)

    monkeypatch.setattr(place.space, "resume", resume)
    assert place.work({"echo": echo}).answered == 1
    assert place.result() == 5


def test_a_trace_waits_for_a_briefly_unreachable_store(place: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("talk")
    error = StoreError("gone", code="store-unavailable")
    error.retryable = True
    real, failures_left = place.space.trace, [error]

    def trace(*words: Any, **more: Any) -> Any:
        if failures_left:
            raise failures_left.pop()
        return real(*words, **more)

    monkeypatch.setattr(place.space, "trace", trace)
    place.work({"talk": lambda context, payload: context.trace("here")})
    assert [entry["text"] for entry in place.space.trace_pending("scout") if entry["kind"] == "console"] == ["here"]
    assert not failures_left


# Effects


def test_built_in_effects_are_listed_and_unconfigured_ones_are_problems() -> None:
    effects = Effects(Config(), {})
    assert list(effects) == ["command", "commit", "merge", "session", "spawn", "timer"]
    assert "no endpoint is configured" in effects.problems["llm"]
    assert len(effects) == 6
    assert all(callable(effects[kind]) for kind in effects)


def test_a_model_whose_key_is_missing_is_not_served() -> None:
    config = Config(llm=Llm("http://x", api_key_env="KEY"))
    assert "KEY is not set" in Effects(config, {}).problems["llm"]
    assert "llm" in Effects(config, {"KEY": "k"})


def point(name: str, value: str = "support.effects:as_it_is") -> EntryPoint:
    return EntryPoint(name, value, "clia.effects")


def test_effects_of_other_packages_are_loaded_on_first_use() -> None:
    effects = Effects(Config(), {}, entry_points=[point("mine"), point("module", "clia.workers.effects.llm")])
    assert effects["mine"](None, 5) == 5  # type: ignore[arg-type]  # it does not use the context
    assert effects["module"].__name__ == "handle"


@pytest.mark.parametrize("value", ["no_such_module:handle", "support.effects:nothing", "support.effects:SINCE"])
def test_an_effect_that_cannot_be_loaded_is_named(value: str) -> None:
    effects = Effects(Config(), {}, entry_points=[point("bad", value)])
    with pytest.raises(InvalidInput) as caught:
        effects["bad"]
    assert caught.value.code == "broken-effect"
    assert caught.value.fields["entry_point"] == value


def test_a_kind_has_one_handler_and_reserved_kinds_are_refused() -> None:
    effects = Effects(Config(), {}, entry_points=[point("a"), point("a", "x:y"), point("timer", "x:y"), point("human", "x:y")])
    assert "a" not in effects
    assert "human" not in effects
    assert "another package" in effects.problems["a"]
    assert effects["timer"].__module__ == "clia.workers.effects.builtin"
    assert any(key.startswith("timer: x:y") for key in effects.problems)


def test_settings_for_an_unknown_effect_are_reported() -> None:
    effects = Effects(Config(effects={"tmier": {}}), {})
    assert "no package handles that kind" in effects.problems["tmier"]


def test_the_time_limit_of_an_attempt_is_configurable() -> None:
    config = Config(llm=Llm("http://x", timeout_seconds=20.0), effects={"mine": {"timeout_seconds": 3}})
    effects = Effects(config, {}, entry_points=[point("mine"), point("other")])
    assert effects.seconds("mine", None) == 3.0
    assert effects.seconds("other", None) == 600.0
    assert effects.seconds("llm", None) == 30.0
    assert effects.seconds("command", None) is None
    assert (effects.options("mine"), effects.options("other")) == ({"timeout_seconds": 3}, {})


def test_the_tools_use_the_given_clock() -> None:
    assert tools_for().clock is utc
