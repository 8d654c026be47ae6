"""Queues as ``clia.store.interface`` specifies them, in each store and with procrastinate."""

from __future__ import annotations

import multiprocessing
import threading
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from clia.store.interface import Claim, Queue, Task
from clia.store.postgres_store import PostgresStore
from clia.store.sqlite_store import SqliteStore
from clia.store.store_queue import StoreQueue
from support import postgres
from support.memory_store import MemoryStore
from support.queues import AgingQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from clia.store.interface import Store

    Opener = Callable[[], AbstractContextManager[Queue]]

NUMBERS = count(1)
FORK = multiprocessing.get_context("fork")
LEASE = 30.0
FIRST, SECOND, THIRD = Task("scout", "1.1", "llm"), Task("scout", "1.2", "llm"), Task("ann", "1.1", "timer", 500.0)


KINDS = ["sqlite", "postgres", "memory", "procrastinate"]


@pytest.fixture(scope="module")
def jobs_address() -> str:
    """One database for all tests of procrastinate, each with its own space: creating the tables takes longer than a test."""
    return postgres.fresh()


@pytest.fixture(params=KINDS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    space = f"space {next(NUMBERS)}"
    if request.param == "procrastinate":
        address = request.getfixturevalue("jobs_address")
        return lambda: _with_store(PostgresStore(address, space), lambda store: AgingQueue(store, address, space))
    if request.param == "postgres":
        address = request.getfixturevalue("postgres_address")
        return lambda: _with_store(PostgresStore(address, space))
    new_store = MemoryStore if request.param == "memory" else lambda: SqliteStore(str(tmp_path / "space.db"), space)
    return lambda: _with_store(new_store())


@contextmanager
def _with_store(store: Store, make: Callable[[Store], Queue] = StoreQueue) -> Iterator[Queue]:
    queue = make(store)
    yield queue
    queue.close()
    store.close()


@pytest.fixture
def queue(opener: Opener) -> Iterator[Queue]:
    with opener() as new_queue:
        yield new_queue


def near(time: float) -> Any:
    """Approximately this time: a database has its own clock, which advances during a test."""
    return pytest.approx(time, abs=9.0)


def claimed(queue: Queue, task: Task, worker: str = "w1", now: float = 100.0) -> Claim:
    claim = queue.claim([task], worker, now, LEASE)
    assert claim is not None
    return claim


def test_a_claim_belongs_to_one_worker_until_it_expires(queue: Queue) -> None:
    assert queue.claim([FIRST], "w1", 100.0, LEASE) == Claim(FIRST, "w1", 1, 130.0)
    assert queue.claim([FIRST], "w2", 100.0, LEASE) is None
    assert queue.claim([FIRST], "w2", 120.0, LEASE) is None
    assert queue.claim([FIRST], "w2", 130.0, LEASE) == Claim(FIRST, "w2", 2, 160.0)


def test_a_worker_does_not_get_its_own_claims_again(queue: Queue) -> None:
    claimed(queue, FIRST)
    assert queue.claim([FIRST], "w1", 100.0, LEASE) is None


def test_without_tasks_there_is_no_claim(queue: Queue) -> None:
    assert queue.claim([], "w1", 100.0, LEASE) is None
    assert queue.waiting() == []


def test_the_earliest_due_task_is_first_and_equal_ones_keep_their_order(queue: Queue) -> None:
    late, later = Task("z", "1.1", "x", 50.0), Task("a", "1.1", "x", 60.0)
    assert claimed_in_turn(queue, [later, late]) == [late, later]
    assert claimed_in_turn(queue, [SECOND, FIRST]) == [SECOND, FIRST]


def test_a_retried_task_comes_before_later_requests(queue: Queue) -> None:
    """New requests do not starve a retry, an expired claim or a timer."""
    again, lost, timer = Task("a", "1.1", "x", 10.0), Task("b", "1.1", "x", 20.0), Task("c", "1.1", "timer", 120.0)
    before, between, after = (Task("z", f"1.{number}", "x", asked_at) for number, asked_at in enumerate((109.0, 125.0, 131.0)))
    queue.retry(claimed(queue, again), 110.0, "no route")
    claimed(queue, lost)  # until 130
    tasks = [after, between, before, timer, lost, again]
    claims = [queue.claim(tasks, "w2", 200.0, LEASE) for _ in tasks]
    assert [claim.task for claim in claims if claim is not None] == [before, again, timer, between, lost, after]


def test_an_attempt_that_does_not_count_is_delayed_and_not_counted(queue: Queue) -> None:
    queue.retry(claimed(queue, FIRST), 110.0, "no route")
    for moment in (110.0, 120.0):
        claim = queue.claim([FIRST], "w1", moment, LEASE)
        assert claim is not None
        assert claim.attempt == 2
        queue.retry(claim, moment + 10.0, "the hub is away", counts=False)
        assert queue.claim([FIRST], "w2", moment + 9.0, LEASE) is None
    assert [(task.attempts, task.error) for task in queue.waiting()] == [(1, "the hub is away")]
    queue.retry(claimed(queue, SECOND), 110.0, "the hub is away", counts=False)
    assert [(task.task.agent, task.attempts, task.error) for task in queue.waiting()][1:] == [(SECOND.agent, 0, "the hub is away")]


def claimed_in_turn(queue: Queue, tasks: list[Task]) -> list[Task]:
    claims = [queue.claim(tasks, "w1", 100.0, LEASE) for _ in tasks]
    assert queue.claim(tasks, "w1", 100.0, LEASE) is None
    return [claim.task for claim in claims if claim is not None]


def test_a_task_is_not_claimed_before_its_time(queue: Queue) -> None:
    assert queue.claim([THIRD], "w1", 490.0, LEASE) is None
    assert queue.waiting() == []
    assert queue.claim([THIRD], "w1", 500.0, LEASE) is not None


def test_a_claim_is_kept_while_its_worker_renews_it(queue: Queue) -> None:
    renewed = queue.keep(claimed(queue, FIRST), 125.0, LEASE)
    assert renewed == Claim(FIRST, "w1", 1, 155.0)
    assert queue.claim([FIRST], "w2", 150.0, LEASE) is None
    again = queue.keep(renewed, 200.0, LEASE)  # late, but no other worker claimed it
    assert again == Claim(FIRST, "w1", 1, 230.0)


def test_a_claim_made_with_a_clock_that_was_ahead_ends_one_lease_after_the_clock_is_right(queue: Queue) -> None:
    """A worker that still renews it keeps it."""
    dead, alive = claimed(queue, FIRST, now=90_000.0), claimed(queue, SECOND, "w2", now=90_000.0)
    assert queue.claim([FIRST, SECOND], "w3", 100.0, LEASE) is None
    assert queue.keep(alive, 110.0, LEASE) == alive._replace(until=140.0)
    assert queue.next_time([FIRST], 110.0) == near(130.0)
    assert queue.claim([FIRST, SECOND], "w3", 131.0, LEASE) == Claim(FIRST, "w3", 2, 161.0)
    assert queue.claim([FIRST, SECOND], "w3", 131.0, LEASE) is None
    assert queue.keep(dead, 132.0, LEASE) is None


def test_a_retry_that_was_planned_with_a_clock_that_was_ahead_waits_no_longer_than_its_delay(queue: Queue) -> None:
    queue.retry(claimed(queue, FIRST, now=90_000.0), 90_020.0, "no route")
    assert queue.claim([FIRST], "w2", 100.0, LEASE) is None
    claim = queue.claim([FIRST], "w2", 121.0, LEASE)
    assert claim is not None
    assert claim.attempt == 2


def test_a_claim_that_went_to_another_worker_is_lost(queue: Queue) -> None:
    old = claimed(queue, FIRST)
    new = claimed(queue, FIRST, "w2", 140.0)
    queue.retry(old, 999.0, "late")
    assert queue.keep(old, 141.0, LEASE) is None
    queue.release(old)
    assert queue.keep(new, 142.0, LEASE) == new._replace(until=172.0)
    (task,) = queue.waiting()
    assert (task.worker, task.attempts, task.next_at) == ("w2", 2, None)
    assert task.error is not None
    assert "w1" in task.error


def test_a_worker_that_claims_its_own_task_again_loses_its_first_claim(queue: Queue) -> None:
    old = claimed(queue, FIRST)
    new = claimed(queue, FIRST, now=140.0)
    assert queue.keep(old, 141.0, LEASE) is None
    assert queue.keep(new, 141.0, LEASE) is not None


def test_a_returned_task_waits_for_its_time_and_counts_its_attempts(queue: Queue) -> None:
    queue.retry(claimed(queue, FIRST), 110.0, "no route")
    assert queue.claim([FIRST], "w2", 105.0, LEASE) is None
    assert queue.waiting() == [(FIRST, 1, None, None, near(110.0), "no route")]
    assert queue.claim([FIRST], "w2", 110.0, LEASE) == Claim(FIRST, "w2", 2, 140.0)


def test_a_released_task_has_no_counted_attempt(queue: Queue) -> None:
    queue.release(claimed(queue, FIRST))
    assert queue.waiting() == []
    assert claimed(queue, FIRST, "w2").attempt == 1


def test_a_release_keeps_the_error_of_earlier_attempts(queue: Queue) -> None:
    queue.retry(claimed(queue, FIRST), 110.0, "no route")
    queue.release(claimed(queue, FIRST, "w2", 120.0))
    assert queue.waiting() == [(FIRST, 1, None, None, near(110.0), "no route")]
    assert claimed(queue, FIRST, "w3", 120.0).attempt == 2


def test_a_done_task_is_removed_even_by_a_worker_that_lost_it(queue: Queue) -> None:
    old = claimed(queue, FIRST)
    new = claimed(queue, FIRST, "w2", 140.0)
    assert queue.keep(old, 141.0, LEASE) is None
    queue.done(old)
    assert queue.waiting() == []
    assert queue.keep(new, 141.0, LEASE) is None
    queue.done(new)  # repeating it changes nothing


def test_the_next_time_is_the_earliest_one(queue: Queue) -> None:
    assert queue.next_time([], 100.0) is None
    assert queue.next_time([FIRST, THIRD], 100.0) == 100.0
    assert queue.next_time([THIRD], 100.0) == 500.0
    claim = claimed(queue, FIRST)
    assert queue.next_time([FIRST, THIRD], 100.0) == near(130.0)  # its worker can be killed
    queue.retry(claim, 700.0, "x")
    assert queue.next_time([FIRST, THIRD], 100.0) == 500.0
    assert queue.next_time([FIRST], 100.0) == near(700.0)
    assert queue.next_time([FIRST], 900.0) == 900.0


def test_attempted_tasks_are_listed_in_order(queue: Queue) -> None:
    for task in (SECOND, THIRD, FIRST):
        claimed(queue, task, now=600.0)
    assert [waiting.task for waiting in queue.waiting()] == [THIRD, FIRST, SECOND]


def test_forgetting_removes_dead_tasks_and_returns_their_number(queue: Queue) -> None:
    for task in (FIRST, SECOND, THIRD):
        claimed(queue, task, now=600.0)
    assert queue.forget([("scout", "1.1"), ("nobody", "9.9")]) == 2
    assert [waiting.task for waiting in queue.waiting()] == [FIRST]
    assert queue.forget([("scout", "1.1")]) == 0
    assert queue.forget([]) == 1
    assert queue.waiting() == []


def test_an_error_of_any_length_can_be_stored(queue: Queue) -> None:
    queue.retry(claimed(queue, FIRST), 110.0, "x" * 100_000)
    (task,) = queue.waiting()
    assert task.error is not None
    assert set(task.error) == {"x"}
    assert len(task.error) <= 10_000


def test_many_tasks_done_leave_a_fixed_number_of_values() -> None:
    store = MemoryStore()
    queue = StoreQueue(store)
    for number in range(300):
        queue.done(claimed(queue, Task("scout", f"1.{number}", "llm")))
    with store.reading() as view:
        rows = view.values.scan("")
    assert len(rows) <= 64
    assert all(value == {} for _, value in rows)


def test_threads_that_share_a_queue_claim_each_task_once(queue: Queue) -> None:
    tasks = [Task("scout", f"1.{number}", "llm") for number in range(60)]
    claimed_tasks: list[Task] = []

    def work(worker: str) -> None:
        while (claim := queue.claim(tasks, worker, 100.0, LEASE)) is not None:
            claimed_tasks.append(claim.task)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed_tasks) == sorted(tasks)


@pytest.mark.parametrize("opener", ["sqlite", "postgres", "procrastinate"], indirect=True)
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_processes_that_share_a_queue_claim_each_task_once(opener: Opener) -> None:
    tasks = [Task("scout", f"1.{number}", "llm") for number in range(60)]
    pipes = [FORK.Pipe(duplex=False) for _ in range(4)]
    started = [FORK.Process(target=_take_all, args=(opener, tasks, str(at), pipes[at][1])) for at in range(4)]
    for process in started:
        process.start()
    requests = [request for parent_end, _ in pipes for request in parent_end.recv()]
    for process in started:
        process.join()
    assert sorted(requests) == sorted(task.request for task in tasks)


def _take_all(opener: Opener, tasks: list[Task], worker: str, pipe: object) -> None:
    requests = []
    with opener() as queue:
        while (claim := queue.claim(tasks, worker, 100.0, LEASE)) is not None:
            requests.append(claim.task.request)
    pipe.send(requests)  # type: ignore[attr-defined]  # a Connection, which multiprocessing does not name
