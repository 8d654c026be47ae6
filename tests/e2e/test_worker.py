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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.store.interface import Claim
    from clia.workers.effects.context import Context
    from clia.workers.worker import WorkerStatus
    from support.worker_places import WorkerSpace

BOTH = """
import asyncio

async def main(input):
    return await asyncio.gather(*[request("echo", each) for each in input])
"""


@pytest.fixture
def worker_space(worker_space: WorkerSpace) -> WorkerSpace:
    worker_space.space.sessions.define("both", BOTH)
    return worker_space


# Answers


def test_a_request_is_answered_by_the_handler_of_its_kind(worker_space: WorkerSpace) -> None:
    worker_space.ask("echo", {"n": [1, "é"]})
    status = worker_space.work({"echo": echo})
    assert worker_space.result() == {"n": [1, "é"]}
    assert (status.answered, status.running, status.waiting) == (1, (), 0)
    assert StoreQueue(worker_space.space.local.store).waiting() == []


def test_a_handler_gets_the_context_of_its_request(worker_space: WorkerSpace) -> None:
    worker_space.ask("look", {"a": 1})
    facts: dict[str, Any] = {}

    def look(context: Context, payload: Any) -> None:
        facts.update(agent=context.agent, session=context.session, key=context.key, attempt=context.attempt, payload=payload)
        facts.update(options=context.options, request=context.request.id, cancelled=context.cancelled.is_set())
        context.trace("seen")
        context.progress("half\nway")

    statuses: list[WorkerStatus] = []
    worker_space.work({"look": look}, config=Config(worker=QUICK, effects={"look": {"depth": 3}}), tell=statuses.append)
    request = facts["request"]
    assert facts == {
        "agent": "scout",
        "session": "1",
        "key": f"{worker_space.space.id}/scout/{request}",
        "attempt": 1,
        "payload": {"a": 1},
        "options": {"depth": 3},
        "request": request,
        "cancelled": False,
    }
    (entry,) = [traced for traced in worker_space.space.traces.pending("scout") if traced["kind"] == "console"]
    assert (entry["text"], entry["data"]) == ("seen", {"request": request})
    assert "half way" in {doing.progress for status in statuses for doing in status.running}


def test_several_requests_are_handled_concurrently(worker_space: WorkerSpace) -> None:
    worker_space.space.start("scout", "both", [1, 2, 3])
    together = threading.Barrier(3)

    def meet(context: Context, payload: Any) -> Any:
        together.wait(30)
        return payload * 10

    worker_space.work({"echo": meet})
    assert worker_space.result() == [10, 20, 30]


def test_concurrent_attempts_are_limited_by_the_configuration(worker_space: WorkerSpace) -> None:
    worker_space.space.start("scout", "both", list(range(6)))
    now, most, mutex = 0, 0, threading.Lock()

    def count(context: Context, payload: Any) -> Any:
        nonlocal now, most
        with mutex:
            now += 1
            most = max(most, now)
        with mutex:
            now -= 1
        return payload

    worker_space.work({"echo": count}, config=Config(worker=QUICK._replace(concurrency=1)))
    assert most == 1


def test_requests_without_a_handler_wait_and_do_not_block_others(worker_space: WorkerSpace) -> None:
    worker_space.space.spawn("other", clia.Briefing(title="T"))
    worker_space.ask("unheard-of")
    worker_space.ask("echo", 5, agent="other")
    assert worker_space.work({"echo": echo}).answered == 1
    assert worker_space.space.session("scout").status == "suspended"


def test_questions_to_people_are_never_handled(worker_space: WorkerSpace) -> None:
    worker_space.ask("human", {"question": "Go on?"})
    worker_space.work({"human": echo})
    assert worker_space.space.session("scout").status == "suspended"


def test_a_worker_can_be_limited_to_kinds(worker_space: WorkerSpace) -> None:
    worker_space.ask("echo")
    assert worker_space.work({"echo": echo}, kinds=frozenset({"timer"})).answered == 0
    assert worker_space.work({"echo": echo}, kinds=frozenset({"echo"})).answered == 1


def test_a_flow_asks_a_model_through_the_worker(worker_space: WorkerSpace) -> None:
    worker_space.ask("llm", {"prompt": "Plan?"})
    with model_server(completion("First, look.")) as server:
        worker_space.work(config=Config(worker=QUICK, llm=Llm(server.url, "small")))
    assert worker_space.result()["text"] == "First, look."


def test_only_due_timers_are_answered(worker_space: WorkerSpace) -> None:
    worker_space.ask("timer", {"until": "2020-01-01T00:00:00Z"})
    assert worker_space.work().answered == 1
    worker_space.ask("timer", {"until": "2999-01-01T00:00:00Z"})
    status = worker_space.worker().run(once=True)
    assert (status.answered, status.waiting) == (0, 1)
    assert status.next_at == 32472144000.0


def test_a_sleeping_flow_continues_after_its_time(worker_space: WorkerSpace) -> None:
    worker_space.space.sessions.define("nap", "import time\n\ndef main(input):\n    time.sleep(0.05)\n    return 'awake'\n")
    worker_space.space.start("scout", "nap")
    worker_space.work()
    assert worker_space.result() == "awake"


def test_a_flow_starts_a_sub_agent_and_waits_for_it(worker_space: WorkerSpace) -> None:
    worker_space.space.sessions.define(
        "dig", 'def main(input):\n    return request("commit", {"changes": {"found.txt": input["what"]}})\n'
    )
    lead = """
def main(input):
    made = request("spawn", {"name": "digger", "briefing": {"title": "Dig"}, "flow": "dig", "input": {"what": "gold"}})
    ended = request("session", {"agent": made["agent"]})
    request("merge", {"from": made["agent"]})
    return ended["status"]
"""
    worker_space.space.sessions.define("lead", lead)
    worker_space.space.start("scout", "lead")
    worker_space.work()
    assert worker_space.result() == "finished"
    assert worker_space.space.files("scout") == {"found.txt": b"gold"}


def test_waiting_for_a_session_does_not_occupy_a_worker(worker_space: WorkerSpace) -> None:
    worker_space.space.spawn("other", clia.Briefing(title="T"))
    worker_space.ask("human", {"question": "?"}, agent="other")
    worker_space.ask("session", {"agent": "other"})
    status = worker_space.work()
    assert (status.answered, status.waiting) == (0, 0)
    worker_space.space.decide("other", "yes")
    assert worker_space.work().answered == 1
    assert worker_space.result() == {"agent": "other", "session": "1", "status": "finished", "result": "yes"}


# Failures


def test_a_failed_handler_is_retried(worker_space: WorkerSpace) -> None:
    worker_space.ask("flaky")
    attempts: list[int] = []

    def flaky(context: Context, payload: Any) -> str:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise OSError("no route")
        return "there"

    status = worker_space.work({"flaky": flaky})
    assert worker_space.result() == "there"
    assert attempts == [1, 2, 3]
    assert (status.retried, status.answered) == (2, 1)


@pytest.mark.parametrize("error", [OSError("no route"), SystemExit(1), KeyboardInterrupt()])
def test_after_the_last_attempt_the_flow_gets_the_error(worker_space: WorkerSpace, error: BaseException) -> None:
    worker_space.ask("bad")
    tried: list[int] = []

    def bad(context: Context, payload: Any) -> None:
        tried.append(context.attempt)
        raise error

    status = worker_space.work({"bad": bad})
    assert tried == [1, 2, 3]
    assert worker_space.result()["failed"].startswith("given up after 3 attempts: ")
    assert type(error).__name__ in worker_space.result()["failed"]
    assert (status.retried, status.given_up) == (2, 1)


def test_bad_input_is_not_retried(worker_space: WorkerSpace) -> None:
    worker_space.ask("bad")
    tried: list[int] = []

    def bad(context: Context, payload: Any) -> None:
        tried.append(context.attempt)
        raise InvalidInput("there is no such thing")

    worker_space.work({"bad": bad})
    assert tried == [1]
    assert worker_space.result() == {"failed": "there is no such thing"}


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), "x" * 2_000_000])
def test_an_invalid_answer_is_an_error_in_the_flow(worker_space: WorkerSpace, value: Any) -> None:
    worker_space.ask("bad")
    worker_space.work({"bad": lambda context, payload: value})
    assert "the handler's answer cannot be used" in worker_space.result()["failed"]


def test_an_unlisted_program_is_an_error_in_the_flow(worker_space: WorkerSpace) -> None:
    worker_space.ask("command", {"program": "rm"})
    worker_space.work()
    assert "not in the operator's list" in worker_space.result()["failed"]


def test_a_hanging_handler_is_abandoned_and_its_late_answer_ignored(worker_space: WorkerSpace) -> None:
    worker_space.ask("slow")
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
    status = worker_space.work({"slow": slow}, config=config)
    assert worker_space.result() == "in time"
    assert (status.retried, status.answered) == (1, 1)


def test_a_handler_that_never_returns_ends_as_a_failure_in_the_flow(worker_space: WorkerSpace) -> None:
    worker_space.ask("stuck")
    over = threading.Event()
    options = QUICK._replace(attempts=2, timeout_seconds=0.1, concurrency=1)
    status = worker_space.work({"stuck": lambda context, payload: over.wait(60)}, config=Config(worker=options))
    assert worker_space.result() == {"failed": "given up after 2 attempts: stuck: timed out after 0.1 s"}
    assert status.hanging == 2
    over.set()


def test_too_many_hanging_handlers_stop_the_worker_from_starting_more(worker_space: WorkerSpace) -> None:
    worker_space.space.start("scout", "both", list(range(8)))
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

    worker = worker_space.worker({"echo": hang}, config=Config(worker=options), tell=stop_when_full)
    worker.run()
    assert worker.status().hanging == len(begun) == 4
    assert troubles[0] == "4 handlers hang; no more attempts are started"
    over.set()


def test_a_broken_effect_is_named_and_its_requests_wait_while_others_work(worker_space: WorkerSpace) -> None:
    worker_space.space.spawn("other", clia.Briefing(title="T"))
    worker_space.ask("broken")
    worker_space.ask("good", 5, agent="other")
    points = [
        EntryPoint("broken", "no_such_module:handle", "clia.effects"),
        EntryPoint("good", "support.effects:identity_effect", "clia.effects"),
    ]
    worker = worker_space.worker(effects=Effects(Config(worker=QUICK), {}, entry_points=points))
    status = worker.run(until_idle=True)
    assert worker_space.result("other") == 5
    assert worker_space.space.session("scout").status == "suspended"
    assert "no_such_module" in dict(status.problems)["broken"]
    assert StoreQueue(worker_space.space.local.store).waiting() == []


# Claims


def test_two_workers_share_the_work_and_each_request_is_tried_once(worker_space: WorkerSpace) -> None:
    worker_space.space.start("scout", "both", list(range(30)))
    tried: Counter[int] = Counter()

    def count(context: Context, payload: Any) -> Any:
        tried[payload] += 1
        return payload

    workers = [in_background(worker_space.worker({"echo": count}, name=f"w{at}"), until_idle=True) for at in range(3)]
    for worker in workers:
        worker.join()
    assert worker_space.result() == list(range(30))
    assert set(tried.values()) == {1}


def test_a_request_answered_before_its_claim_is_not_handled(worker_space: WorkerSpace) -> None:
    worker_space.ask("echo", 5)
    tried: list[Any] = []

    class LateQueue(StoreQueue):
        def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
            if tasks:
                worker_space.space.resume("scout", "another's", tasks[0].request)
            return super().claim(tasks, worker, now, lease)

    status = worker_space.work(
        {"echo": lambda context, payload: tried.append(payload)}, queue=LateQueue(worker_space.space.local.store)
    )
    assert tried == []
    assert worker_space.result() == "another's"
    assert status.gone == 1


class LosingQueue(StoreQueue):
    """A queue whose claims are lost to another worker at the first renewal."""

    def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
        return None


def test_a_lost_claim_cancels_the_handler_and_its_answer_counts_if_it_is_the_first(worker_space: WorkerSpace) -> None:
    worker_space.ask("slow")

    def slow(context: Context, payload: Any) -> str:
        assert context.cancelled.wait(30)
        return "still good"

    options = QUICK._replace(lease_seconds=0.1)
    worker_space.work({"slow": slow}, config=Config(worker=options), queue=LosingQueue(worker_space.space.local.store))
    assert worker_space.result() == "still good"


def test_after_a_lost_claim_the_answer_of_another_worker_is_kept(worker_space: WorkerSpace) -> None:
    worker_space.ask("slow")

    def slow(context: Context, payload: Any) -> str:
        assert context.cancelled.wait(30)
        context.space.resume("scout", "another's", context.request.id)
        return "too late"

    options = QUICK._replace(lease_seconds=0.1)
    status = worker_space.work({"slow": slow}, config=Config(worker=options), queue=LosingQueue(worker_space.space.local.store))
    assert worker_space.result() == "another's"
    assert (status.answered, status.gone) == (0, 1)


def test_after_a_lost_claim_an_error_leaves_the_task_to_its_new_worker(worker_space: WorkerSpace) -> None:
    worker_space.ask("slow")
    tried: list[int] = []

    def slow(context: Context, payload: Any) -> str:
        tried.append(context.attempt)
        if context.attempt == 1:
            assert context.cancelled.wait(30)
            raise OSError("no")
        return "second"

    options = QUICK._replace(lease_seconds=0.3, attempts=1)
    worker_space.work({"slow": slow}, config=Config(worker=options), queue=LosingQueue(worker_space.space.local.store))
    # The first attempt's error does not end the request, although one attempt is allowed: the claim had expired.
    reason = "its workers were lost, or their answers could not be recorded"
    assert worker_space.result() == {"failed": f"given up after 1 attempt: {reason}"}
    assert tried == [1]


def test_cancelling_a_session_cancels_its_handler(worker_space: WorkerSpace) -> None:
    worker_space.ask("slow")
    begun = threading.Event()

    def slow(context: Context, payload: Any) -> str:
        begun.set()
        assert context.cancelled.wait(30)
        raise OSError("cancelled")

    worker = worker_space.worker({"slow": slow})
    thread = in_background(worker, until_idle=True)
    assert begun.wait(30)
    worker_space.space.cancel("scout", "enough")
    thread.join()
    assert worker_space.space.session("scout").status == "cancelled"
    assert worker.status().gone == 1
    assert StoreQueue(worker_space.space.local.store).waiting() == []


def test_tasks_of_ended_requests_are_removed(worker_space: WorkerSpace) -> None:
    worker_space.ask("flaky")
    queue = StoreQueue(worker_space.space.local.store)
    (request,) = worker_space.space.pending()
    claim = queue.claim([Task("scout", request.id, "flaky")], "w0", 1.0, 1.0)
    assert claim is not None
    queue.retry(claim, 10**12, "later")
    worker_space.space.cancel("scout")
    assert len(queue.waiting()) == 1
    worker_space.work({"flaky": echo})
    assert queue.waiting() == []


# Stopping


def test_a_stopping_worker_waits_for_running_handlers(worker_space: WorkerSpace) -> None:
    worker_space.space.start("scout", "both", [1, 2])
    begun, end = threading.Event(), threading.Event()

    def slow(context: Context, payload: Any) -> Any:
        begun.set()
        assert end.wait(30)
        return payload

    worker = worker_space.worker({"echo": slow}, config=Config(worker=QUICK._replace(concurrency=1)))
    thread = in_background(worker)
    assert begun.wait(30)
    worker.stop()
    end.set()
    thread.join()
    assert worker.status().answered == 1  # the other request was not started
    assert len(worker_space.space.pending()) == 1
    assert StoreQueue(worker_space.space.local.store).waiting() == []


def test_handlers_that_exceed_the_grace_period_are_cancelled_and_their_tasks_released(worker_space: WorkerSpace) -> None:
    worker_space.ask("slow")
    begun, cancelled = threading.Event(), threading.Event()

    def slow(context: Context, payload: Any) -> Any:
        begun.set()
        assert context.cancelled.wait(30)
        cancelled.set()
        raise OSError("stopped in the middle")

    worker = worker_space.worker({"slow": slow}, config=Config(worker=QUICK._replace(grace_seconds=0.1)))
    thread = in_background(worker)
    assert begun.wait(30)
    worker.stop()
    thread.join()
    assert cancelled.is_set()
    assert len(worker_space.space.pending()) == 1
    assert StoreQueue(worker_space.space.local.store).waiting() == []  # as if it had not been attempted
    worker_space.work({"slow": echo})
    assert worker_space.result() is None


def test_a_second_stop_releases_the_tasks_at_once(worker_space: WorkerSpace) -> None:
    worker_space.ask("stuck")
    begun, over = threading.Event(), threading.Event()

    def stuck(context: Context, payload: Any) -> Any:
        begun.set()
        return over.wait(60)

    worker = worker_space.worker({"stuck": stuck}, config=Config(worker=QUICK._replace(grace_seconds=1000.0)))
    thread = in_background(worker)
    assert begun.wait(30)
    worker.stop()
    worker.stop()
    thread.join()
    assert StoreQueue(worker_space.space.local.store).waiting() == []
    worker_space.work({"stuck": echo})
    assert worker_space.result() is None
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
def test_the_worker_waits_for_an_unreachable_store_and_reports_it(worker_space: WorkerSpace, unsure: bool) -> None:
    worker_space.ask("echo", 5)
    statuses: list[WorkerStatus] = []
    queue = AwayQueue(worker_space.space.local.store, 3, unsure=unsure)
    status = worker_space.work({"echo": echo}, queue=queue, tell=statuses.append)
    assert worker_space.result() == 5
    assert status.answered == 1
    assert "gone" in {reported.trouble for reported in statuses}
    assert status.trouble is None


def test_an_answer_with_a_lost_confirmation_counts_once(worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_space.ask("echo", 5)
    real = worker_space.space.resume
    lost: list[bool] = []

    def resume(*words: Any, **more: Any) -> Any:
        result = real(*words, **more)
        if not lost:
            lost.append(True)
            raise StoreError("lost while committing, perhaps done", code="store-unsure")
        return result

    monkeypatch.setattr(worker_space.space, "resume", resume)
    tried: list[int] = []

    def once(context: Context, payload: Any) -> Any:
        tried.append(context.attempt)
        return payload

    status = worker_space.work({"echo": once})
    assert worker_space.result() == 5
    assert tried == [1]
    assert (status.answered, status.gone) == (1, 0)


def test_a_broken_store_ends_the_worker_with_its_error(worker_space: WorkerSpace) -> None:
    worker_space.ask("echo", 5)

    class BrokenQueue(StoreQueue):
        def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
            raise StoreError("corrupt", code="store-corrupt")

    with pytest.raises(BackendError, match="corrupt"):
        worker_space.work({"echo": echo}, queue=BrokenQueue(worker_space.space.local.store))


def test_an_answer_that_cannot_be_recorded_is_kept_and_retried(worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_space.ask("echo", 5)
    real, failures_left = worker_space.space.resume, [True]

    def resume(*words: Any, **more: Any) -> Any:
        if failures_left:
            failures_left.clear()
            raise clia.errors.CorruptJournal("cannot be read")
        return real(*words, **more)

    monkeypatch.setattr(worker_space.space, "resume", resume)
    status = worker_space.work({"echo": echo})
    assert worker_space.result() == 5
    assert (status.retried, status.answered) == (1, 1)


def test_a_worker_that_must_stop_at_once_does_not_wait_for_the_store(
    worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_space.ask("echo", 5)
    noticed = threading.Event()

    def away(*words: Any, **more: Any) -> Any:
        noticed.set()
        error = StoreError("gone", code="store-unavailable")
        error.retryable = True
        raise error

    monkeypatch.setattr(worker_space.space, "resume", away)
    worker = worker_space.worker({"echo": echo})
    thread = in_background(worker)
    assert noticed.wait(30)
    worker.stop()
    worker.stop()
    thread.join()
    monkeypatch.undo()
    (task,) = StoreQueue(worker_space.space.local.store).waiting()
    assert task.worker == "w1"  # its claim expires, and another worker retries
    assert worker_space.space.session("scout").status == "suspended"


def test_an_answer_refused_by_the_session_is_given_up_with_the_reason(
    worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_space.ask("echo", 5)

    def refuse(*words: Any, **more: Any) -> Any:
        raise clia.errors.InvalidAnswer("not a choice")

    monkeypatch.setattr(worker_space.space, "resume", refuse)
    assert worker_space.work({"echo": echo}).given_up == 1
    assert worker_space.result() == {"failed": "the answer was refused: not a choice"}


def test_a_session_that_diverges_at_the_answer_is_dropped(worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_space.ask("echo", 5)

    def diverge(agent: str, *words: Any, **more: Any) -> Any:
        worker_space.space.cancel(agent)  # as a replay that diverges from the record ends it
        raise clia.errors.Nondeterminism("it asked something else")

    monkeypatch.setattr(worker_space.space, "resume", diverge)
    assert worker_space.work({"echo": echo}).gone == 1
    assert StoreQueue(worker_space.space.local.store).waiting() == []


def test_a_request_of_an_agent_without_a_branch_is_left_until_the_branch_is_restored(worker_space: WorkerSpace) -> None:
    worker_space.ask("echo", 5)
    head = git("rev-parse", "refs/heads/agents/scout", cwd=worker_space.root).strip()
    git("update-ref", "-d", "refs/heads/agents/scout", cwd=worker_space.root)
    status = worker_space.work({"echo": echo})
    assert (status.retried, status.answered, status.gone, status.given_up) == (0, 0, 0, 0)
    assert StoreQueue(worker_space.space.local.store).waiting() == []
    git("update-ref", "refs/heads/agents/scout", head, cwd=worker_space.root)
    assert worker_space.work({"echo": echo}).answered == 1
    assert worker_space.result() == 5


def test_recording_an_answer_is_retried_with_the_same_answer(worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_space.ask("echo", 5)
    real, failures_left = worker_space.space.resume, [clia.errors.EngineError("the sandbox died")] * 2

    def resume(*words: Any, **more: Any) -> Any:
        if failures_left:
            raise failures_left.pop()
        return real(*words, **more)

    monkeypatch.setattr(worker_space.space, "resume", resume)
    assert worker_space.work({"echo": echo}).answered == 1
    assert worker_space.result() == 5


def test_a_trace_waits_for_a_briefly_unreachable_store(worker_space: WorkerSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_space.ask("talk")
    error = StoreError("gone", code="store-unavailable")
    error.retryable = True
    real, failures_left = worker_space.space.trace, [error]

    def trace(*words: Any, **more: Any) -> Any:
        if failures_left:
            raise failures_left.pop()
        return real(*words, **more)

    monkeypatch.setattr(worker_space.space, "trace", trace)
    worker_space.work({"talk": lambda context, payload: context.trace("here")})
    assert [entry["text"] for entry in worker_space.space.traces.pending("scout") if entry["kind"] == "console"] == ["here"]
    assert not failures_left


# Effects


def test_built_in_effects_are_listed_and_unconfigured_ones_are_problems() -> None:
    effects = Effects(Config(), {})
    assert list(effects) == ["command", "commit", "journal", "merge", "plan", "profile", "session", "spawn", "timer"]
    assert "no endpoint is configured" in effects.problems["llm"]
    assert len(effects) == 9
    assert all(callable(effects[kind]) for kind in effects)


def test_a_model_whose_key_is_missing_is_not_served() -> None:
    config = Config(llm=Llm("http://x", api_key_env="KEY"))
    assert "KEY is not set" in Effects(config, {}).problems["llm"]
    assert "llm" in Effects(config, {"KEY": "k"})


def point(name: str, value: str = "support.effects:identity_effect") -> EntryPoint:
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
