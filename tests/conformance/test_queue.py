"""Every promise of ``clia.store.interface``, kept by claims in each store and by procrastinate."""

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
    """One database for all tests of procrastinate, each with a space of its own: making the tables takes longer than a test."""
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
    made = MemoryStore if request.param == "memory" else lambda: SqliteStore(str(tmp_path / "space.db"), space)
    return lambda: _with_store(made())


@contextmanager
def _with_store(store: Store, make: Callable[[Store], Queue] = StoreQueue) -> Iterator[Queue]:
    queue = make(store)
    yield queue
    queue.close()
    store.close()


@pytest.fixture
def queue(opener: Opener) -> Iterator[Queue]:
    with opener() as made:
        yield made


def near(time: float) -> Any:
    """About that time: a database has its own clock, which advances while a test runs."""
    return pytest.approx(time, abs=9.0)


def claimed(queue: Queue, task: Task, worker: str = "w1", now: float = 100.0) -> Claim:
    found = queue.claim([task], worker, now, LEASE)
    assert found is not None
    return found


def test_a_claim_is_one_workers_until_its_time_is_up(queue: Queue) -> None:
    assert queue.claim([FIRST], "w1", 100.0, LEASE) == Claim(FIRST, "w1", 1, 130.0)
    assert queue.claim([FIRST], "w2", 100.0, LEASE) is None
    assert queue.claim([FIRST], "w2", 120.0, LEASE) is None
    assert queue.claim([FIRST], "w2", 130.0, LEASE) == Claim(FIRST, "w2", 2, 160.0)


def test_the_same_worker_does_not_get_what_it_has(queue: Queue) -> None:
    claimed(queue, FIRST)
    assert queue.claim([FIRST], "w1", 100.0, LEASE) is None


def test_with_nothing_to_do_there_is_no_claim(queue: Queue) -> None:
    assert queue.claim([], "w1", 100.0, LEASE) is None
    assert queue.waiting() == []


def test_the_one_longest_due_comes_first_and_equals_in_the_order_given(queue: Queue) -> None:
    late, later = Task("z", "1.1", "x", 50.0), Task("a", "1.1", "x", 60.0)
    assert claimed_in_turn(queue, [later, late]) == [late, later]
    assert claimed_in_turn(queue, [SECOND, FIRST]) == [SECOND, FIRST]


def test_what_waits_again_comes_before_what_was_asked_later(queue: Queue) -> None:
    """However much new work keeps coming: an attempt that is to be repeated, a claim that ran out and a timer get their turn."""
    again, lost, timer = Task("a", "1.1", "x", 10.0), Task("b", "1.1", "x", 20.0), Task("c", "1.1", "timer", 120.0)
    before, between, after = (Task("z", f"1.{number}", "x", asked) for number, asked in enumerate((109.0, 125.0, 131.0)))
    queue.retry(claimed(queue, again), 110.0, "no route")
    claimed(queue, lost)  # until 130
    tasks = [after, between, before, timer, lost, again]
    found = [queue.claim(tasks, "w2", 200.0, LEASE) for _ in tasks]
    assert [each.task for each in found if each is not None] == [before, again, timer, between, lost, after]


def test_an_attempt_that_does_not_count_waits_and_uses_nothing_up(queue: Queue) -> None:
    queue.retry(claimed(queue, FIRST), 110.0, "no route")
    for moment in (110.0, 120.0):
        claim = queue.claim([FIRST], "w1", moment, LEASE)
        assert claim is not None
        assert claim.attempt == 2
        queue.retry(claim, moment + 10.0, "the hub is away", counts=False)
        assert queue.claim([FIRST], "w2", moment + 9.0, LEASE) is None
    assert [(each.attempts, each.error) for each in queue.waiting()] == [(1, "the hub is away")]
    queue.retry(claimed(queue, SECOND), 110.0, "the hub is away", counts=False)
    assert [(each.task.agent, each.attempts, each.error) for each in queue.waiting()][1:] == [(SECOND.agent, 0, "the hub is away")]


def claimed_in_turn(queue: Queue, tasks: list[Task]) -> list[Task]:
    found = [queue.claim(tasks, "w1", 100.0, LEASE) for _ in tasks]
    assert queue.claim(tasks, "w1", 100.0, LEASE) is None
    return [each.task for each in found if each is not None]


def test_a_task_is_not_given_before_its_time(queue: Queue) -> None:
    assert queue.claim([THIRD], "w1", 490.0, LEASE) is None
    assert queue.waiting() == []
    assert queue.claim([THIRD], "w1", 500.0, LEASE) is not None


def test_a_claim_is_kept_as_long_as_its_worker_says_so(queue: Queue) -> None:
    kept = queue.keep(claimed(queue, FIRST), 125.0, LEASE)
    assert kept == Claim(FIRST, "w1", 1, 155.0)
    assert queue.claim([FIRST], "w2", 150.0, LEASE) is None
    again = queue.keep(kept, 200.0, LEASE)  # late, but nobody else came
    assert again == Claim(FIRST, "w1", 1, 230.0)


def test_a_claim_that_went_to_another_is_lost_whatever_its_first_owner_says(queue: Queue) -> None:
    old = claimed(queue, FIRST)
    new = claimed(queue, FIRST, "w2", 140.0)
    queue.retry(old, 999.0, "late")
    assert queue.keep(old, 141.0, LEASE) is None
    queue.release(old)
    assert queue.keep(new, 142.0, LEASE) == new._replace(until=172.0)
    (known,) = queue.waiting()
    assert (known.worker, known.attempts, known.next_at) == ("w2", 2, None)
    assert known.error is not None
    assert "w1" in known.error


def test_a_worker_that_took_its_own_task_again_has_lost_its_first_claim(queue: Queue) -> None:
    old = claimed(queue, FIRST)
    new = claimed(queue, FIRST, now=140.0)
    assert queue.keep(old, 141.0, LEASE) is None
    assert queue.keep(new, 141.0, LEASE) is not None


def test_a_task_given_back_waits_for_its_time_and_counts_its_attempts(queue: Queue) -> None:
    queue.retry(claimed(queue, FIRST), 110.0, "no route")
    assert queue.claim([FIRST], "w2", 105.0, LEASE) is None
    assert queue.waiting() == [(FIRST, 1, None, None, near(110.0), "no route")]
    assert queue.claim([FIRST], "w2", 110.0, LEASE) == Claim(FIRST, "w2", 2, 140.0)


def test_a_released_task_is_as_if_it_had_not_been_tried(queue: Queue) -> None:
    queue.release(claimed(queue, FIRST))
    assert queue.waiting() == []
    assert claimed(queue, FIRST, "w2").attempt == 1


def test_a_release_keeps_what_earlier_attempts_said(queue: Queue) -> None:
    queue.retry(claimed(queue, FIRST), 110.0, "no route")
    queue.release(claimed(queue, FIRST, "w2", 120.0))
    assert queue.waiting() == [(FIRST, 1, None, None, near(110.0), "no route")]
    assert claimed(queue, FIRST, "w3", 120.0).attempt == 2


def test_what_is_done_is_forgotten_also_by_someone_who_lost_it(queue: Queue) -> None:
    old = claimed(queue, FIRST)
    new = claimed(queue, FIRST, "w2", 140.0)
    assert queue.keep(old, 141.0, LEASE) is None
    queue.done(old)
    assert queue.waiting() == []
    assert queue.keep(new, 141.0, LEASE) is None
    queue.done(new)  # once more changes nothing


def test_the_next_time_is_that_of_whatever_comes_first(queue: Queue) -> None:
    assert queue.next_time([], 100.0) is None
    assert queue.next_time([FIRST, THIRD], 100.0) == 100.0
    assert queue.next_time([THIRD], 100.0) == 500.0
    claim = claimed(queue, FIRST)
    assert queue.next_time([FIRST, THIRD], 100.0) == near(130.0)  # its worker may die
    queue.retry(claim, 700.0, "x")
    assert queue.next_time([FIRST, THIRD], 100.0) == 500.0
    assert queue.next_time([FIRST], 100.0) == near(700.0)
    assert queue.next_time([FIRST], 900.0) == 900.0


def test_what_was_tried_is_listed_in_order(queue: Queue) -> None:
    for task in (SECOND, THIRD, FIRST):
        claimed(queue, task, now=600.0)
    assert [each.task for each in queue.waiting()] == [THIRD, FIRST, SECOND]


def test_forgetting_drops_what_is_not_live_and_says_how_much(queue: Queue) -> None:
    for task in (FIRST, SECOND, THIRD):
        claimed(queue, task, now=600.0)
    assert queue.forget([("scout", "1.1"), ("nobody", "9.9")]) == 2
    assert [each.task for each in queue.waiting()] == [FIRST]
    assert queue.forget([("scout", "1.1")]) == 0
    assert queue.forget([]) == 1
    assert queue.waiting() == []


def test_an_error_of_any_length_can_be_kept(queue: Queue) -> None:
    queue.retry(claimed(queue, FIRST), 110.0, "x" * 100_000)
    (known,) = queue.waiting()
    assert known.error is not None
    assert set(known.error) == {"x"}
    assert len(known.error) <= 10_000


def test_many_tasks_done_leave_a_fixed_number_of_values() -> None:
    store = MemoryStore()
    queue = StoreQueue(store)
    for number in range(300):
        queue.done(claimed(queue, Task("scout", f"1.{number}", "llm")))
    with store.reading() as view:
        found = view.values.scan("")
    assert len(found) <= 64
    assert all(value == {} for _, value in found)


def test_threads_share_a_queue_and_no_task_is_given_twice(queue: Queue) -> None:
    tasks = [Task("scout", f"1.{number}", "llm") for number in range(60)]
    taken: list[Task] = []

    def work(worker: str) -> None:
        while (claim := queue.claim(tasks, worker, 100.0, LEASE)) is not None:
            taken.append(claim.task)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(taken) == sorted(tasks)


@pytest.mark.parametrize("opener", ["sqlite", "postgres", "procrastinate"], indirect=True)
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_processes_share_a_queue_and_no_task_is_given_twice(opener: Opener) -> None:
    tasks = [Task("scout", f"1.{number}", "llm") for number in range(60)]
    pipes = [FORK.Pipe(duplex=False) for _ in range(4)]
    started = [FORK.Process(target=_take_all, args=(opener, tasks, str(at), pipes[at][1])) for at in range(4)]
    for each in started:
        each.start()
    taken = [request for ours, _ in pipes for request in ours.recv()]
    for each in started:
        each.join()
    assert sorted(taken) == sorted(task.request for task in tasks)


def _take_all(opener: Opener, tasks: list[Task], worker: str, pipe: object) -> None:
    taken = []
    with opener() as queue:
        while (claim := queue.claim(tasks, worker, 100.0, LEASE)) is not None:
            taken.append(claim.task.request)
    pipe.send(taken)  # type: ignore[attr-defined]  # a Connection, which multiprocessing does not name
