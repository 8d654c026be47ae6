"""The queue of several machines: what ``test_queue`` cannot show, because it is about processes, spaces and the database."""

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
PATIENCE = 60.0  # a test that waits longer has failed


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
    with opened(address, space) as made:
        yield made


def rows(address: str, table: str) -> int:
    with psycopg.connect(address) as connection:
        return len(connection.execute(psycopg.sql.SQL("SELECT 1 FROM {}").format(psycopg.sql.Identifier(table))).fetchall())


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_processes_that_all_start_on_an_empty_database_make_its_tables_once_and_take_each_task_once(postgres_address: str) -> None:
    tasks = [Task("scout", f"1.{number}", "llm") for number in range(24)]
    pipes, all_done = [FORK.Pipe(duplex=False) for _ in range(4)], FORK.Barrier(4)
    started = [FORK.Process(target=_take_all, args=(postgres_address, tasks, str(at), pipes[at][1], all_done)) for at in range(4)]
    for each, (_, theirs) in zip(started, pipes, strict=True):
        each.start()
        theirs.close()  # whoever dies is not waited for
    taken = [request for ours, _ in pipes for request in ours.recv()]
    for each in started:
        each.join()
    assert sorted(taken) == sorted(task.request for task in tasks)
    assert rows(postgres_address, "procrastinate_workers") == 0  # all have gone, and what they had is free
    with opened(postgres_address, "one") as queue:
        again = [queue.claim(tasks, "late", time.time(), LEASE) for _ in tasks]
        assert sorted((each.task.request, each.attempt) for each in again if each) == sorted((each.request, 2) for each in tasks)
        for claim in again:
            assert claim is not None
            queue.done(claim)
    assert [rows(postgres_address, f"procrastinate_{table}") for table in ("jobs", "events")] == [0, 0]


def _take_all(address: str, tasks: list[Task], worker: str, pipe: Any, all_done: Any) -> None:
    with opened(address, "one") as queue:
        taken = []
        while (claim := queue.claim(tasks, worker, time.time(), LEASE)) is not None:
            taken.append(claim.task.request)
        pipe.send(taken)
        pipe.close()
        all_done.wait()  # a queue that is closed gives its tasks back
        assert len(queue.waiting()) <= len(tasks)


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_the_work_of_a_killed_worker_goes_to_another_when_it_was_silent_for_its_lease(
    queue: ProcrastinateQueue, address: str, space: str
) -> None:
    ours, theirs = FORK.Pipe(duplex=False)
    victim = FORK.Process(target=_claim_and_hang, args=(address, space, theirs))
    victim.start()
    theirs.close()
    assert ours.recv() == 1
    os.kill(victim.pid or 0, signal.SIGKILL)
    victim.join()
    assert queue.claim([FIRST], "heir", time.time(), LEASE) is None
    (known,) = queue.waiting()
    assert (known.worker, known.attempts) == ("victim", 1)
    age(address, LEASE + 1)
    found = queue.claim([FIRST], "heir", time.time() + LEASE, LEASE)  # as much later as the next search
    assert found is not None
    assert found.attempt == 2
    (known,) = queue.waiting()
    assert (known.worker, known.error) == ("heir", "worker victim stopped responding")


def _claim_and_hang(address: str, space: str, pipe: Any) -> None:
    with opened(address, space) as queue:
        claim = queue.claim([FIRST], "victim", time.time(), LEASE)
        pipe.send(claim and claim.attempt)
        signal.pause()


def test_a_machine_whose_clock_is_wrong_takes_nothing_and_gives_back_for_the_right_time(
    queue: ProcrastinateQueue, address: str, space: str
) -> None:
    now = time.time()
    ours = queue.claim([FIRST], "right", now, LEASE)
    assert ours is not None
    with opened(address, space) as ahead:
        assert ahead.claim([FIRST], "ahead", now + 3600, LEASE) is None
        assert queue.keep(ours, now, LEASE) is not None
        theirs = ahead.claim([SECOND], "ahead", now + 3600, LEASE)
        assert theirs is not None
        ahead.retry(theirs, now + 3600 + 100, "no route")
    assert queue.claim([SECOND], "right", now, LEASE) is None
    assert queue.next_time([SECOND], now) == pytest.approx(now + 100, abs=PATIENCE)
    age(address, 100 + PATIENCE)
    assert queue.claim([SECOND], "right", now, LEASE) is not None


def test_a_claim_lasts_as_long_as_its_own_worker_said(queue: ProcrastinateQueue, address: str) -> None:
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
    ours = queue.claim([FIRST], "w1", now, LEASE)
    assert ours is not None
    with opened(address, f"{space} too") as other:
        theirs = other.claim([FIRST], "w2", now, LEASE)
        assert theirs is not None
        assert [each.worker for each in other.waiting()] == ["w2"]
        age(address, 10.0)
        assert other.forget([]) == 1
        queue.retry(ours, now, "no route")
        assert other.waiting() == []
    (known,) = queue.waiting()
    assert (known.attempts, known.error) == (1, "no route")


def test_who_watches_is_woken_by_what_others_put_in_for_the_same_space(address: str, space: str) -> None:
    rung: list[int] = []
    heard = threading.Event()

    def ring() -> None:
        rung.append(1)
        heard.set()

    tasks = (Task("scout", f"1.{number}", "llm") for number in count(1))
    with opened(address, space) as watching, opened(address, space) as working, opened(address, f"{space} too") as other:
        watching.watch(ring)
        while not heard.wait(0.1):  # nobody says when the database has begun to tell
            assert working.claim([next(tasks)], "w1", time.time(), LEASE) is not None
            assert len(working.waiting()) < 100
        before = len(rung)
        assert other.claim([FIRST], "w2", time.time(), LEASE) is not None
        assert watching.claim([next(tasks)], "w3", time.time(), LEASE) is not None
        heard.clear()
        assert working.claim([next(tasks)], "w1", time.time(), LEASE) is not None
        assert heard.wait(PATIENCE)
        assert len(rung) == before + 1


def test_a_slot_that_someone_swept_away_is_made_anew_and_its_work_is_free(queue: ProcrastinateQueue, address: str) -> None:
    now = time.time()
    lost, idle = (queue.claim([task], "w1", now, LEASE) for task in (FIRST, SECOND))
    assert lost is not None
    assert idle is not None
    queue.done(idle)
    with psycopg.connect(address) as connection:
        connection.execute("DELETE FROM procrastinate_workers")
    assert queue.keep(lost, now, LEASE) is None
    assert queue.claim([SECOND], "w1", now, LEASE) is not None
    again = queue.claim([FIRST], "w1", now + LEASE, LEASE)  # when stalled jobs are looked for next
    assert again is not None
    assert again.attempt == 2


def test_what_was_noted_of_a_job_that_is_gone_is_not_told_of_the_next(queue: ProcrastinateQueue, address: str) -> None:
    now = time.time()
    for give_back in (lambda claim: queue.retry(claim, now, "no route"), queue.release):
        claim = queue.claim([FIRST], "w1", now, LEASE)
        assert claim is not None
        give_back(claim)
    with psycopg.connect(address) as connection:
        connection.execute("DELETE FROM procrastinate_jobs")
    claim = queue.claim([FIRST], "w1", now, LEASE)
    assert claim is not None
    (known,) = queue.waiting()
    assert (claim.attempt, known.attempts, known.error) == (1, 1, None)
    queue.retry(claim, now, "no answer")
    (known,) = queue.waiting()
    assert (known.attempts, known.error) == (1, "no answer")


def test_no_note_is_left_of_what_is_done_or_forgotten(queue: ProcrastinateQueue, address: str, space: str) -> None:
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


def test_however_much_waits_a_few_jobs_are_in(postgres_address: str) -> None:
    tasks = [Task("scout", f"1.{number}", "llm", float(number)) for number in range(300)]
    with opened(postgres_address, "one") as queue:
        for task in reversed(tasks[:20]):  # each is due longer than all that are in
            claim = queue.claim([*tasks[20:], task], "w1", time.time(), LEASE)
            assert claim is not None
            assert claim.task == task
            queue.done(claim)
        assert rows(postgres_address, "procrastinate_jobs") <= 20


def test_whoever_only_looks_makes_no_tables(postgres_address: str) -> None:
    with opened(postgres_address, "one") as queue:
        assert queue.waiting() == []
        assert queue.forget([]) == 0
    with psycopg.connect(postgres_address) as connection:
        assert connection.execute("SELECT to_regclass('procrastinate_jobs')").fetchone() == (None,)


def test_tables_of_an_older_procrastinate_are_refused_and_the_files_to_apply_named(postgres_address: str) -> None:
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


def test_a_server_that_goes_and_comes_back_costs_an_error_that_may_be_tried_again() -> None:
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
        kept = None
        until = time.monotonic() + PATIENCE
        while kept is None and time.monotonic() < until:
            with suppress(StoreError):
                kept = queue.keep(claim, time.time(), LEASE)
        assert kept is not None
        rung.clear()
        with opened(server.url, "one") as other:
            tasks = (Task("scout", f"2.{number}", "llm") for number in range(100))
            while not rung.wait(0.1):
                assert other.claim([next(tasks)], "w2", time.time(), LEASE) is not None
        queue.done(kept)
