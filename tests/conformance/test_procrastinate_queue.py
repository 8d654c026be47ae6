"""The queue of several machines: processes, spaces and the database; ``test_queue`` covers the rest."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from clia.errors import StoreError
from clia.store.interface import Task
from clia.store.postgres_store import PostgresStore
from clia.store.procrastinate_queue import ProcrastinateQueue
from support import postgres
from support.own_postgres import own_server
from support.queues import age

if TYPE_CHECKING:
    from collections.abc import Iterator

FORK = multiprocessing.get_context("fork")
LEASE = 30.0
FIRST, SECOND = Task("scout", "1.1", "llm"), Task("scout", "1.2", "llm")
SPACES = count(1)
PATIENCE = 60.0  # a test that waits longer fails


@pytest.fixture(scope="module")
def address() -> str:
    return postgres.fresh()


@pytest.fixture
def space() -> str:
    return f"space {next(SPACES)}"


@contextmanager
def opened(address: str, space: str, **more: Any) -> Iterator[ProcrastinateQueue]:
    store = PostgresStore(address, space, **more)
    queue = ProcrastinateQueue(store, address, space, **more)
    try:
        yield queue
    finally:
        queue.close()
        store.close()


@pytest.fixture
def queue(address: str, space: str) -> Iterator[ProcrastinateQueue]:
    with opened(address, space) as new_queue:
        yield new_queue


def rows(address: str, table: str) -> int:
    with psycopg.connect(address) as connection:
        return len(connection.execute(psycopg.sql.SQL("SELECT 1 FROM {}").format(psycopg.sql.Identifier(table))).fetchall())


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_processes_that_start_on_an_empty_database_create_its_tables_and_claim_each_task_once(postgres_address: str) -> None:
    tasks = [Task("scout", f"1.{number}", "llm") for number in range(24)]
    pipes, all_done = [FORK.Pipe(duplex=False) for _ in range(4)], FORK.Barrier(4)
    started = [FORK.Process(target=_take_all, args=(postgres_address, tasks, str(at), pipes[at][1], all_done)) for at in range(4)]
    for process, (_, child_end) in zip(started, pipes, strict=True):
        process.start()
        child_end.close()  # so that a dead process ends the wait
    requests = [request for parent_end, _ in pipes for request in parent_end.recv()]
    for process in started:
        process.join()
    assert sorted(requests) == sorted(task.request for task in tasks)
    assert rows(postgres_address, "procrastinate_workers") == 0  # all have ended, and their tasks are free
    with opened(postgres_address, "one") as queue:
        again = [queue.claim(tasks, "late", time.time(), LEASE) for _ in tasks]
        assert sorted((repeated.task.request, repeated.attempt) for repeated in again if repeated) == sorted(
            (task.request, 2) for task in tasks
        )
        for claim in again:
            assert claim is not None
            queue.done(claim)
    assert [rows(postgres_address, f"procrastinate_{table}") for table in ("jobs", "events")] == [0, 0]


def _take_all(address: str, tasks: list[Task], worker: str, pipe: Any, all_done: Any) -> None:
    with opened(address, "one") as queue:
        requests = []
        while (claim := queue.claim(tasks, worker, time.time(), LEASE)) is not None:
            requests.append(claim.task.request)
        pipe.send(requests)
        pipe.close()
        all_done.wait()  # closing a queue releases its tasks
        assert len(queue.waiting()) <= len(tasks)


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_the_task_of_a_killed_worker_is_free_after_its_lease(queue: ProcrastinateQueue, address: str, space: str) -> None:
    parent_end, child_end = FORK.Pipe(duplex=False)
    victim = FORK.Process(target=_claim_and_hang, args=(address, space, child_end))
    victim.start()
    child_end.close()
    assert parent_end.recv() == 1
    os.kill(victim.pid or 0, signal.SIGKILL)
    victim.join()
    assert queue.claim([FIRST], "heir", time.time(), LEASE) is None
    (task,) = queue.waiting()
    assert (task.worker, task.attempts) == ("victim", 1)
    age(address, LEASE + 1)
    claim = queue.claim([FIRST], "heir", time.time() + LEASE, LEASE)  # at the time of the next search
    assert claim is not None
    assert claim.attempt == 2
    (task,) = queue.waiting()
    assert (task.worker, task.error) == ("heir", "worker victim stopped responding")


def _claim_and_hang(address: str, space: str, pipe: Any) -> None:
    with opened(address, space) as queue:
        claim = queue.claim([FIRST], "victim", time.time(), LEASE)
        pipe.send(claim and claim.attempt)
        signal.pause()


def test_a_machine_with_a_wrong_clock_steals_nothing_and_schedules_retries_correctly(
    queue: ProcrastinateQueue, address: str, space: str
) -> None:
    now = time.time()
    claim = queue.claim([FIRST], "right", now, LEASE)
    assert claim is not None
    with opened(address, space) as ahead:
        assert ahead.claim([FIRST], "ahead", now + 3600, LEASE) is None
        assert queue.keep(claim, now, LEASE) is not None
        ahead_claim = ahead.claim([SECOND], "ahead", now + 3600, LEASE)
        assert ahead_claim is not None
        ahead.retry(ahead_claim, now + 3600 + 100, "no route")
    assert queue.claim([SECOND], "right", now, LEASE) is None
    assert queue.next_time([SECOND], now) == pytest.approx(now + 100, abs=PATIENCE)
    age(address, 100 + PATIENCE)
    assert queue.claim([SECOND], "right", now, LEASE) is not None


def test_a_claim_made_while_the_clock_of_the_server_was_ahead_ends_one_lease_after_the_clock_is_right(
    queue: ProcrastinateQueue, address: str
) -> None:
    now = time.time()
    assert queue.claim([FIRST], "dead", now, LEASE) is not None
    age(address, -7200.0)  # its heartbeat is two hours in the future
    assert queue.claim([FIRST], "heir", now + LEASE, LEASE) is None
    age(address, LEASE + 1)
    claim = queue.claim([FIRST], "heir", now + 2 * LEASE, LEASE)
    assert claim is not None
    assert claim.attempt == 2


def test_a_claim_lasts_for_the_lease_of_its_worker(queue: ProcrastinateQueue, address: str) -> None:
    now = time.time()
    patient = queue.claim([FIRST], "patient", now, 3600.0)
    assert queue.claim([SECOND], "hasty", now, 1.0) is not None
    assert patient is not None
    age(address, 100.0)
    again = queue.claim([FIRST, SECOND], "other", now + 100, 1.0)
    assert again is not None
    assert again.task == SECOND
    assert queue.claim([FIRST], "other", now + 100, 1.0) is None
    assert queue.keep(patient, now + 100, 3600.0) is not None


def test_spaces_in_one_database_do_not_see_each_other(queue: ProcrastinateQueue, address: str, space: str) -> None:
    now = time.time()
    first_claim = queue.claim([FIRST], "w1", now, LEASE)
    assert first_claim is not None
    with opened(address, f"{space} too") as other_queue:
        second_claim = other_queue.claim([FIRST], "w2", now, LEASE)
        assert second_claim is not None
        assert [task.worker for task in other_queue.waiting()] == ["w2"]
        age(address, 10.0)
        assert other_queue.forget([]) == 1
        queue.retry(first_claim, now, "no route")
        assert other_queue.waiting() == []
    (task,) = queue.waiting()
    assert (task.attempts, task.error) == (1, "no route")


def test_a_watcher_is_woken_by_tasks_of_the_same_space(address: str, space: str) -> None:
    rung: list[int] = []
    woken = threading.Event()

    def ring() -> None:
        rung.append(1)
        woken.set()

    tasks = (Task("scout", f"1.{number}", "llm") for number in count(1))
    with opened(address, space) as watching, opened(address, space) as working, opened(address, f"{space} too") as other_queue:
        watching.watch(ring)
        while not woken.wait(0.1):  # the database does not report when it has started to notify
            assert working.claim([next(tasks)], "w1", time.time(), LEASE) is not None
            assert len(working.waiting()) < 100
        before = len(rung)
        assert other_queue.claim([FIRST], "w2", time.time(), LEASE) is not None
        assert watching.claim([next(tasks)], "w3", time.time(), LEASE) is not None
        woken.clear()
        assert working.claim([next(tasks)], "w1", time.time(), LEASE) is not None
        assert woken.wait(PATIENCE)
        assert len(rung) == before + 1


def test_a_deleted_worker_row_is_recreated_and_its_task_is_free(queue: ProcrastinateQueue, address: str) -> None:
    now = time.time()
    lost, idle = (queue.claim([task], "w1", now, LEASE) for task in (FIRST, SECOND))
    assert lost is not None
    assert idle is not None
    queue.done(idle)
    with psycopg.connect(address) as connection:
        connection.execute("DELETE FROM procrastinate_workers")
    assert queue.keep(lost, now, LEASE) is None
    assert queue.claim([SECOND], "w1", now, LEASE) is not None
    again = queue.claim([FIRST], "w1", now + LEASE, LEASE)  # when stalled jobs are searched next
    assert again is not None
    assert again.attempt == 2


def test_notes_of_a_deleted_job_do_not_apply_to_the_next(queue: ProcrastinateQueue, address: str) -> None:
    now = time.time()
    for give_back in (lambda claim: queue.retry(claim, now, "no route"), queue.release):
        claim = queue.claim([FIRST], "w1", now, LEASE)
        assert claim is not None
        give_back(claim)
    with psycopg.connect(address) as connection:
        connection.execute("DELETE FROM procrastinate_jobs")
    claim = queue.claim([FIRST], "w1", now, LEASE)
    assert claim is not None
    (task,) = queue.waiting()
    assert (claim.attempt, task.attempts, task.error) == (1, 1, None)
    queue.retry(claim, now, "no answer")
    (task,) = queue.waiting()
    assert (task.attempts, task.error) == (1, "no answer")


def test_notes_of_done_and_forgotten_tasks_are_removed(queue: ProcrastinateQueue, address: str, space: str) -> None:
    now = time.time()
    store = PostgresStore(address, space)
    for end in (queue.done, lambda _: queue.forget([])):
        for _ in range(2):
            claim = queue.claim([FIRST], "w1", now, LEASE)
            assert claim is not None
            queue.retry(claim, now, "no route")
        assert any(value for _, value in store.scan("queue/notes/"))
        last = queue.claim([FIRST], "w1", now, LEASE)
        assert last is not None
        end(last)
        assert not any(value for _, value in store.scan("queue/notes/"))
    store.close()


def test_the_number_of_jobs_in_the_database_is_bounded(postgres_address: str) -> None:
    tasks = [Task("scout", f"1.{number}", "llm", float(number)) for number in range(300)]
    with opened(postgres_address, "one") as queue:
        for task in reversed(tasks[:20]):  # each is due earlier than all jobs in the database
            claim = queue.claim([*tasks[20:], task], "w1", time.time(), LEASE)
            assert claim is not None
            assert claim.task == task
            queue.done(claim)
        assert rows(postgres_address, "procrastinate_jobs") <= 20


def test_reading_does_not_create_tables(postgres_address: str) -> None:
    with opened(postgres_address, "one") as queue:
        assert queue.waiting() == []
        assert queue.forget([]) == 0
    with psycopg.connect(postgres_address) as connection:
        assert connection.execute("SELECT to_regclass('procrastinate_jobs')").fetchone() == (None,)


def test_tables_of_an_older_procrastinate_are_refused_with_the_migrations_to_apply(postgres_address: str) -> None:
    with opened(postgres_address, "one") as queue:
        assert queue.claim([FIRST], "w1", time.time(), LEASE) is not None
    with psycopg.connect(postgres_address) as connection:
        connection.execute("DROP FUNCTION procrastinate_retry_job_v2")
    with opened(postgres_address, "one") as queue:
        with pytest.raises(StoreError) as caught:
            queue.claim([FIRST], "w1", time.time(), LEASE)
        assert (caught.value.code, caught.value.retryable) == ("queue-schema-unfit", False)
        assert any("03.04.00_01_pre_add_retry_failed_job_procedure.sql" in hint for hint in caught.value.hints)
    assert rows(postgres_address, "procrastinate_jobs") == 1


def test_a_restart_of_the_server_is_a_temporary_error() -> None:
    with own_server() as server, opened(f"{server.url}&password=s3cret", "one", timeout=3.0) as queue:
        rung = threading.Event()
        queue.watch(rung.set)
        claim = queue.claim([FIRST], "w1", time.time(), LEASE)
        assert claim is not None
        server.stop()
        for call in (lambda: queue.keep(claim, time.time(), LEASE), queue.waiting):
            with pytest.raises(StoreError) as caught:
                call()
            assert (caught.value.code, caught.value.retryable) == ("store-unavailable", True)
            assert "s3cret" not in str(caught.value.to_json())
        server.start()
        renewed = None
        until = time.monotonic() + PATIENCE
        while renewed is None and time.monotonic() < until:
            with suppress(StoreError):
                renewed = queue.keep(claim, time.time(), LEASE)
        assert renewed is not None
        rung.clear()
        with opened(server.url, "one") as other_queue:
            tasks = (Task("scout", f"2.{number}", "llm") for number in range(100))
            while not rung.wait(0.1):
                assert other_queue.claim([next(tasks)], "w2", time.time(), LEASE) is not None
        queue.done(renewed)
