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
from support.worker_places import Place

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
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "space")
    made.space.define("both", BOTH)
    yield made
    made.space.close()


# Answers


def test_a_request_is_answered_by_the_handler_of_its_kind(place: Place) -> None:
    place.ask("echo", {"n": [1, "é"]})
    seen = place.work({"echo": echo})
    assert place.result() == {"n": [1, "é"]}
    assert (seen.answered, seen.running, seen.waiting) == (1, (), 0)
    assert StoreQueue(place.space.core.store).waiting() == []


def test_a_handler_learns_what_it_needs_to_know(place: Place) -> None:
    place.ask("look", {"a": 1})
    known: dict[str, Any] = {}

    def look(context: Context, payload: Any) -> None:
        known.update(agent=context.agent, session=context.session, key=context.key, attempt=context.attempt, payload=payload)
        known.update(options=context.options, request=context.request.id, cancelled=context.cancelled.is_set())
        context.trace("seen")
        context.progress("half\nway")

    seen: list[WorkerStatus] = []
    place.work({"look": look}, config=Config(worker=QUICK, effects={"look": {"depth": 3}}), tell=seen.append)
    request = known["request"]
    assert known == {
        "agent": "scout",
        "session": "1",
        "key": f"{place.space.id}/scout/{request}",
        "attempt": 1,
        "payload": {"a": 1},
        "options": {"depth": 3},
        "request": request,
        "cancelled": False,
    }
    (entry,) = [each for each in place.space.trace_pending("scout") if each["kind"] == "console"]
    assert (entry["text"], entry["data"]) == ("seen", {"request": request})
    assert "half way" in {doing.progress for status in seen for doing in status.running}


def test_several_requests_at_once_are_worked_on_at_once(place: Place) -> None:
    place.space.start("scout", "both", [1, 2, 3])
    together = threading.Barrier(3)

    def meet(context: Context, payload: Any) -> Any:
        together.wait(30)
        return payload * 10

    place.work({"echo": meet})
    assert place.result() == [10, 20, 30]


def test_no_more_is_started_than_the_operator_allows(place: Place) -> None:
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


def test_what_has_no_handler_waits_and_does_not_hold_up_the_rest(place: Place) -> None:
    place.space.spawn("other", clia.Briefing(title="T"))
    place.ask("unheard-of")
    place.ask("echo", 5, agent="other")
    assert place.work({"echo": echo}).answered == 1
    assert place.space.session("scout").status == "suspended"


def test_questions_to_people_are_left_to_people_whatever_handlers_there_are(place: Place) -> None:
    place.ask("human", {"question": "Go on?"})
    place.work({"human": echo})
    assert place.space.session("scout").status == "suspended"


def test_a_worker_may_be_told_which_kinds_to_answer(place: Place) -> None:
    place.ask("echo")
    assert place.work({"echo": echo}, kinds=frozenset({"timer"})).answered == 0
    assert place.work({"echo": echo}, kinds=frozenset({"echo"})).answered == 1


def test_a_flow_asks_a_model_through_the_worker(place: Place) -> None:
    place.ask("llm", {"prompt": "Plan?"})
    with model_server(completion("First, look.")) as server:
        place.work(config=Config(worker=QUICK, llm=Llm(server.url, "small")))
    assert place.result()["text"] == "First, look."


def test_a_timer_that_is_due_is_answered_and_one_that_is_not_waits(place: Place) -> None:
    place.ask("timer", {"until": "2020-01-01T00:00:00Z"})
    assert place.work().answered == 1
    place.ask("timer", {"until": "2999-01-01T00:00:00Z"})
    seen = place.worker().run(once=True)
    assert (seen.answered, seen.waiting) == (0, 1)
    assert seen.next_at == 32472144000.0


def test_a_sleeping_flow_goes_on_when_its_time_is_over(place: Place) -> None:
    place.space.define("nap", "import time\n\ndef main(input):\n    time.sleep(0.05)\n    return 'awake'\n")
    place.space.start("scout", "nap")
    place.work()
    assert place.result() == "awake"


def test_a_flow_leads_a_sub_agent_and_waits_for_it(place: Place) -> None:
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


def test_waiting_for_a_session_takes_no_worker_and_ends_with_that_session(place: Place) -> None:
    place.space.spawn("other", clia.Briefing(title="T"))
    place.ask("human", {"question": "?"}, agent="other")
    place.ask("session", {"agent": "other"})
    seen = place.work()
    assert (seen.answered, seen.waiting) == (0, 0)
    place.space.decide("other", "yes")
    assert place.work().answered == 1
    assert place.result() == {"agent": "other", "session": "1", "status": "finished", "result": "yes"}


# Failures


def test_a_handler_that_fails_is_tried_again(place: Place) -> None:
    place.ask("flaky")
    attempts: list[int] = []

    def flaky(context: Context, payload: Any) -> str:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise OSError("no route")
        return "there"

    seen = place.work({"flaky": flaky})
    assert place.result() == "there"
    assert attempts == [1, 2, 3]
    assert (seen.retried, seen.answered) == (2, 1)


@pytest.mark.parametrize("error", [OSError("no route"), SystemExit(1), KeyboardInterrupt()])
def test_when_all_attempts_failed_the_flow_learns_why(place: Place, error: BaseException) -> None:
    place.ask("bad")
    tried: list[int] = []

    def bad(context: Context, payload: Any) -> None:
        tried.append(context.attempt)
        raise error

    seen = place.work({"bad": bad})
    assert tried == [1, 2, 3]
    assert place.result()["failed"].startswith("given up after 3 attempts: ")
    assert type(error).__name__ in place.result()["failed"]
    assert (seen.retried, seen.given_up) == (2, 1)


def test_bad_input_is_not_tried_again(place: Place) -> None:
    place.ask("bad")
    tried: list[int] = []

    def bad(context: Context, payload: Any) -> None:
        tried.append(context.attempt)
        raise InvalidInput("there is no such thing")

    place.work({"bad": bad})
    assert tried == [1]
    assert place.result() == {"failed": "there is no such thing"}


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), "x" * 2_000_000])
def test_nonsense_is_told_to_the_flow(place: Place, value: Any) -> None:
    place.ask("bad")
    place.work({"bad": lambda context, payload: value})
    assert "the handler's answer cannot be used" in place.result()["failed"]


def test_a_program_that_is_not_listed_is_told_to_the_flow(place: Place) -> None:
    place.ask("command", {"program": "rm"})
    place.work()
    assert "not in the operator's list" in place.result()["failed"]


def test_a_handler_that_hangs_is_given_up_and_its_late_answer_is_not_used(place: Place) -> None:
    place.ask("slow")
    go_on, late = threading.Event(), threading.Event()

    def slow(context: Context, payload: Any) -> str:
        if context.attempt == 1:
            assert context.cancelled.wait(30)  # it is told
            go_on.wait(30)
            late.set()
            return "late"
        go_on.set()
        assert late.wait(30)
        return "in time"

    config = Config(worker=QUICK, effects={"slow": {"timeout_seconds": 3.0}})
    seen = place.work({"slow": slow}, config=config)
    assert place.result() == "in time"
    assert (seen.retried, seen.answered) == (1, 1)


def test_a_handler_that_never_returns_ends_as_a_failure_in_the_flow(place: Place) -> None:
    place.ask("stuck")
    over = threading.Event()
    options = QUICK._replace(attempts=2, timeout_seconds=0.1, concurrency=1)
    seen = place.work({"stuck": lambda context, payload: over.wait(60)}, config=Config(worker=options))
    assert place.result() == {"failed": "given up after 2 attempts: stuck: timed out after 0.1 s"}
    assert seen.hanging == 2
    over.set()


def test_too_many_handlers_that_hang_stop_the_worker_from_starting_more(place: Place) -> None:
    place.space.start("scout", "both", list(range(8)))
    over = threading.Event()
    said: list[str] = []
    begun: list[int] = []

    def hang(context: Context, payload: Any) -> Any:
        begun.append(payload)
        return over.wait(60)

    options = QUICK._replace(attempts=9, timeout_seconds=0.05, concurrency=1, grace_seconds=0.1)

    def stop_when_full(status: WorkerStatus) -> None:
        if status.trouble:
            said.append(status.trouble)
            worker.stop()

    worker = place.worker({"echo": hang}, config=Config(worker=options), tell=stop_when_full)
    worker.run()
    assert worker.status().hanging == len(begun) == 4
    assert said[0] == "4 handlers hang; no more attempts are started"
    over.set()


def test_a_broken_effect_is_named_and_its_requests_wait_while_others_work(place: Place) -> None:
    place.space.spawn("other", clia.Briefing(title="T"))
    place.ask("broken")
    place.ask("good", 5, agent="other")
    points = [
        EntryPoint("broken", "no_such_module:handle", "clia.effects"),
        EntryPoint("good", "support.effects:as_it_is", "clia.effects"),
    ]
    worker = place.worker(effects=Effects(Config(worker=QUICK), {}, entry_points=points))
    seen = worker.run(until_idle=True)
    assert place.result("other") == 5
    assert place.space.session("scout").status == "suspended"
    assert "no_such_module" in dict(seen.problems)["broken"]
    assert StoreQueue(place.space.core.store).waiting() == []


# Claims


def test_two_workers_share_the_work_and_each_request_is_tried_once(place: Place) -> None:
    place.space.start("scout", "both", list(range(30)))
    tried: Counter[int] = Counter()

    def count(context: Context, payload: Any) -> Any:
        tried[payload] += 1
        return payload

    workers = [in_background(place.worker({"echo": count}, name=f"w{at}"), until_idle=True) for at in range(3)]
    for each in workers:
        each.join()
    assert place.result() == list(range(30))
    assert set(tried.values()) == {1}


def test_what_was_answered_between_a_look_and_a_claim_is_not_done_again(place: Place) -> None:
    place.ask("echo", 5)
    tried: list[Any] = []

    class Late(StoreQueue):
        def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
            if tasks:
                place.space.resume("scout", "another's", tasks[0].request)
            return super().claim(tasks, worker, now, lease)

    seen = place.work({"echo": lambda context, payload: tried.append(payload)}, queue=Late(place.space.core.store))
    assert tried == []
    assert place.result() == "another's"
    assert seen.gone == 1


class Losing(StoreQueue):
    """A queue whose claims are lost to someone else at the first beat."""

    def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
        return None


def test_a_lost_claim_is_told_to_the_handler_whose_answer_counts_if_nobody_gave_another(place: Place) -> None:
    place.ask("slow")

    def slow(context: Context, payload: Any) -> str:
        assert context.cancelled.wait(30)
        return "still good"

    options = QUICK._replace(lease_seconds=0.1)
    place.work({"slow": slow}, config=Config(worker=options), queue=Losing(place.space.core.store))
    assert place.result() == "still good"


def test_a_lost_claim_and_an_answer_by_someone_else_leave_that_answer(place: Place) -> None:
    place.ask("slow")

    def slow(context: Context, payload: Any) -> str:
        assert context.cancelled.wait(30)
        context.space.resume("scout", "another's", context.request.id)
        return "too late"

    options = QUICK._replace(lease_seconds=0.1)
    seen = place.work({"slow": slow}, config=Config(worker=options), queue=Losing(place.space.core.store))
    assert place.result() == "another's"
    assert (seen.answered, seen.gone) == (0, 1)


def test_a_lost_claim_and_an_error_leave_the_task_to_whoever_has_it(place: Place) -> None:
    place.ask("slow")
    tried: list[int] = []

    def slow(context: Context, payload: Any) -> str:
        tried.append(context.attempt)
        if context.attempt == 1:
            assert context.cancelled.wait(30)
            raise OSError("no")
        return "second"

    options = QUICK._replace(lease_seconds=0.3, attempts=1)
    place.work({"slow": slow}, config=Config(worker=options), queue=Losing(place.space.core.store))
    # The first attempt's error was not the last word, although one attempt is all there is: the claim had run out.
    why = "its workers were lost, or their answers could not be recorded"
    assert place.result() == {"failed": f"given up after 1 attempt: {why}"}
    assert tried == [1]


def test_a_session_that_is_cancelled_tells_the_handler_at_work_for_it(place: Place) -> None:
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
    assert StoreQueue(place.space.core.store).waiting() == []


def test_what_is_known_of_requests_that_are_gone_is_forgotten(place: Place) -> None:
    place.ask("flaky")
    queue = StoreQueue(place.space.core.store)
    (request,) = place.space.pending()
    claim = queue.claim([Task("scout", request.id, "flaky")], "w0", 1.0, 1.0)
    assert claim is not None
    queue.retry(claim, 10**12, "later")
    place.space.cancel("scout")
    assert len(queue.waiting()) == 1
    place.work({"flaky": echo})
    assert queue.waiting() == []


# Stopping


def test_a_worker_that_is_told_to_stop_lets_what_runs_end(place: Place) -> None:
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
    assert worker.status().answered == 1  # the other one was not begun
    assert len(place.space.pending()) == 1
    assert StoreQueue(place.space.core.store).waiting() == []


def test_what_does_not_end_within_the_grace_is_cancelled_and_given_back(place: Place) -> None:
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
    assert StoreQueue(place.space.core.store).waiting() == []  # as if it had not been tried
    place.work({"slow": echo})
    assert place.result() is None


def test_a_second_stop_waits_for_nobody_and_gives_the_work_back(place: Place) -> None:
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
    assert StoreQueue(place.space.core.store).waiting() == []
    place.work({"stuck": echo})
    assert place.result() is None
    over.set()


# A store that is away


class Away(StoreQueue):
    """A queue whose store is away for some calls, or is lost when it has just done what was asked."""

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
def test_while_the_store_is_away_the_worker_waits_and_says_so(place: Place, unsure: bool) -> None:
    place.ask("echo", 5)
    told: list[WorkerStatus] = []
    queue = Away(place.space.core.store, 3, unsure=unsure)
    seen = place.work({"echo": echo}, queue=queue, tell=told.append)
    assert place.result() == 5
    assert seen.answered == 1
    assert "gone" in {each.trouble for each in told}
    assert seen.trouble is None


def test_an_answer_whose_end_was_lost_counts_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)
    real = place.space.resume
    lost: list[bool] = []

    def resume(*words: Any, **more: Any) -> Any:
        done = real(*words, **more)
        if not lost:
            lost.append(True)
            raise StoreError("lost while committing, perhaps done", code="store-unsure")
        return done

    monkeypatch.setattr(place.space, "resume", resume)
    tried: list[int] = []

    def once(context: Context, payload: Any) -> Any:
        tried.append(context.attempt)
        return payload

    seen = place.work({"echo": once})
    assert place.result() == 5
    assert tried == [1]
    assert (seen.answered, seen.gone) == (1, 0)


def test_a_store_that_is_broken_ends_the_worker_with_its_error(place: Place) -> None:
    place.ask("echo", 5)

    class Broken(StoreQueue):
        def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
            raise StoreError("corrupt", code="store-corrupt")

    with pytest.raises(BackendError, match="corrupt"):
        place.work({"echo": echo}, queue=Broken(place.space.core.store))


def test_an_answer_that_cannot_be_handed_in_is_kept_for_later(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)
    real, left = place.space.resume, [True]

    def resume(*words: Any, **more: Any) -> Any:
        if left:
            left.clear()
            raise clia.errors.CorruptJournal("cannot be read")
        return real(*words, **more)

    monkeypatch.setattr(place.space, "resume", resume)
    seen = place.work({"echo": echo})
    assert place.result() == 5
    assert (seen.retried, seen.answered) == (1, 1)


def test_a_worker_that_must_stop_at_once_does_not_wait_for_a_store_that_is_away(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.ask("echo", 5)
    told = threading.Event()

    def away(*words: Any, **more: Any) -> Any:
        told.set()
        error = StoreError("gone", code="store-unavailable")
        error.retryable = True
        raise error

    monkeypatch.setattr(place.space, "resume", away)
    worker = place.worker({"echo": echo})
    thread = in_background(worker)
    assert told.wait(30)
    worker.stop()
    worker.stop()
    thread.join()
    monkeypatch.undo()
    (known,) = StoreQueue(place.space.core.store).waiting()
    assert known.worker == "w1"  # its claim runs out, and another worker tries again
    assert place.space.session("scout").status == "suspended"


def test_an_answer_that_a_session_refuses_is_given_up_with_the_reason(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)

    def refuse(*words: Any, **more: Any) -> Any:
        raise clia.errors.InvalidAnswer("not a choice")

    monkeypatch.setattr(place.space, "resume", refuse)
    assert place.work({"echo": echo}).given_up == 1
    assert place.result() == {"failed": "the answer was refused: not a choice"}


def test_a_session_that_diverges_at_the_answer_is_let_go(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)

    def diverge(agent: str, *words: Any, **more: Any) -> Any:
        place.space.cancel(agent)  # as a replay that departs from the record ends it
        raise clia.errors.Nondeterminism("it asked something else")

    monkeypatch.setattr(place.space, "resume", diverge)
    assert place.work({"echo": echo}).gone == 1
    assert StoreQueue(place.space.core.store).waiting() == []


def test_a_request_of_an_agent_whose_branch_was_deleted_is_not_tried_in_a_circle(place: Place) -> None:
    place.ask("echo", 5)
    git("update-ref", "-d", "refs/heads/agents/scout", cwd=place.root)
    options = QUICK._replace(backoff_max_seconds=1000.0)
    tried: list[int] = []

    def count(context: Context, payload: Any) -> Any:
        tried.append(context.attempt)
        return payload

    seen = place.worker({"echo": count}, config=Config(worker=options)).run(once=True)
    assert tried == []
    assert (seen.retried, seen.answered, seen.gone) == (1, 0, 0)
    (known,) = StoreQueue(place.space.core.store).waiting()
    assert "no agent 'scout'" in str(known.error)


def test_a_part_that_fails_a_few_times_is_tried_again_with_the_same_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("echo", 5)
    real, left = place.space.resume, [clia.errors.EngineError("the sandbox died")] * 2

    def resume(*words: Any, **more: Any) -> Any:
        if left:
            raise left.pop()
        return real(*words, **more)

    monkeypatch.setattr(place.space, "resume", resume)
    assert place.work({"echo": echo}).answered == 1
    assert place.result() == 5


def test_a_trace_waits_for_a_store_that_is_away_for_a_moment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.ask("talk")
    error = StoreError("gone", code="store-unavailable")
    error.retryable = True
    real, left = place.space.trace, [error]

    def trace(*words: Any, **more: Any) -> Any:
        if left:
            raise left.pop()
        return real(*words, **more)

    monkeypatch.setattr(place.space, "trace", trace)
    place.work({"talk": lambda context, payload: context.trace("here")})
    assert [each["text"] for each in place.space.trace_pending("scout") if each["kind"] == "console"] == ["here"]
    assert not left


# Which effects there are


def test_the_built_in_effects_are_there_and_what_is_not_configured_is_named() -> None:
    made = Effects(Config(), {})
    assert list(made) == ["command", "commit", "merge", "session", "spawn", "timer"]
    assert "no endpoint is configured" in made.problems["llm"]
    assert len(made) == 6
    assert all(callable(made[kind]) for kind in made)


def test_a_model_whose_key_is_missing_is_not_served() -> None:
    config = Config(llm=Llm("http://x", api_key_env="KEY"))
    assert "KEY is not set" in Effects(config, {}).problems["llm"]
    assert "llm" in Effects(config, {"KEY": "k"})


def point(name: str, value: str = "support.effects:as_it_is") -> EntryPoint:
    return EntryPoint(name, value, "clia.effects")


def test_effects_of_other_packages_are_loaded_when_they_are_needed() -> None:
    made = Effects(Config(), {}, entry_points=[point("mine"), point("module", "clia.workers.effects.llm")])
    assert made["mine"](None, 5) == 5  # type: ignore[arg-type]  # it looks at no context
    assert made["module"].__name__ == "handle"


@pytest.mark.parametrize("value", ["no_such_module:handle", "support.effects:nothing", "support.effects:SINCE"])
def test_an_effect_that_cannot_be_loaded_says_so_by_name(value: str) -> None:
    made = Effects(Config(), {}, entry_points=[point("bad", value)])
    with pytest.raises(InvalidInput) as caught:
        made["bad"]
    assert caught.value.code == "broken-effect"
    assert caught.value.fields["entry_point"] == value


def test_a_kind_has_one_handler_and_people_and_built_in_kinds_are_not_taken() -> None:
    made = Effects(Config(), {}, entry_points=[point("a"), point("a", "x:y"), point("timer", "x:y"), point("human", "x:y")])
    assert "a" not in made
    assert "human" not in made
    assert "another package" in made.problems["a"]
    assert made["timer"].__module__ == "clia.workers.effects.builtin"
    assert any(key.startswith("timer: x:y") for key in made.problems)


def test_a_table_for_which_there_is_no_effect_is_named() -> None:
    made = Effects(Config(effects={"tmier": {}}), {})
    assert "no package handles that kind" in made.problems["tmier"]


def test_how_long_an_attempt_may_take_is_the_operators_to_say() -> None:
    config = Config(llm=Llm("http://x", timeout_seconds=20.0), effects={"mine": {"timeout_seconds": 3}})
    made = Effects(config, {}, entry_points=[point("mine"), point("other")])
    assert made.seconds("mine", None) == 3.0
    assert made.seconds("other", None) == 600.0
    assert made.seconds("llm", None) == 30.0
    assert made.seconds("command", None) is None
    assert (made.options("mine"), made.options("other")) == ({"timeout_seconds": 3}, {})


def test_the_tools_use_the_given_clock() -> None:
    assert tools_for().clock is utc
