"""Locks as ``clia.store.interface`` specifies them, on one machine and across several."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from clia.errors import Conflict, StoreError
from clia.space.envelope import GATE, SPACE_LOCK
from clia.space.upkeep import UPKEEP_LOCK
from clia.store.interface import CLONE_LOCKS, Locks
from clia.store.postgres_locks import LOCK_TIMEOUT, LockSession, PostgresLocks
from clia.store.postgres_store import PostgresStore
from clia.store.private_files import FileLocks
from support.crashes import FORK
from support.own_postgres import Server, own_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
NOWHERE = "postgresql://me:hunter2@127.0.0.1:1/x"
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
HANG_UP = f"SELECT count(pg_terminate_backend(pid, 5000)) {OTHERS}"


class LockMachines(NamedTuple):
    """Opens locks of one space: on the same machine, or on one that shares only the server."""

    place: str
    address: str | None
    stack: ExitStack

    def open(self, machine: str, space: str = "space") -> Locks:
        if self.address is None:
            return FileLocks(f"{self.place}/locks")
        return self.stack.enter_context(closing(PostgresLocks(self.address, space, FileLocks(f"{self.place}/{machine}/{space}"))))


@pytest.fixture(params=["files", "postgres"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LockMachines]:
    with ExitStack() as stack:
        address = request.getfixturevalue("postgres_address") if request.param == "postgres" else None
        yield LockMachines(str(tmp_path), address, stack)


@pytest.fixture
def shared(postgres_address: str, tmp_path: Path) -> Iterator[LockMachines]:
    with ExitStack() as stack:
        yield LockMachines(str(tmp_path), postgres_address, stack)


def hold_on(machines: LockMachines, shared: bool, ready: Any) -> None:
    with machines.open("there").hold("scout", shared=shared):
        ready.set()
        signal.pause()


@contextmanager
def holder(machines: LockMachines, *, shared: bool = False) -> Iterator[Callable[[], None]]:
    """Another process that holds a lock until it is killed."""
    ready = FORK.Event()
    process = FORK.Process(target=hold_on, args=(machines, shared, ready))
    process.start()
    assert ready.wait(60)

    def kill() -> None:
        process.kill()
        process.join()

    yield kill
    kill()


def free(locks: Locks, name: str = "scout") -> bool:
    with locks.attempt(name) as acquired:
        return acquired


def test_a_lock_keeps_others_out_until_its_holder_is_killed(machines: LockMachines) -> None:
    locks = machines.open("here")
    with holder(machines) as kill:
        assert not free(locks)
        assert free(locks, "other")
        kill()
        with locks.hold("scout"):
            pass
        assert free(locks)


def test_shared_holders_block_only_exclusive_ones(machines: LockMachines) -> None:
    locks, other_locks = machines.open("here"), machines.open("there")
    with holder(machines, shared=True) as kill:
        with locks.hold("scout", shared=True):
            assert not free(machines.open("third"))
        assert not free(locks)
        kill()
        with locks.hold("scout"):
            assert not free(other_locks)
        assert free(other_locks)


def test_a_waiting_thread_continues_when_the_lock_is_released_even_by_an_error(machines: LockMachines) -> None:
    order: list[str] = []
    locks, other_locks = machines.open("here"), machines.open("there")

    def wait() -> None:
        with other_locks.hold("scout"):
            order.append("there")

    thread = threading.Thread(target=wait)
    with suppress(ZeroDivisionError), locks.hold("scout"):
        thread.start()
        assert not free(machines.open("third"))
        order.append("here")
        _ = 1 / 0
    thread.join()
    assert order == ["here", "there"]


def test_a_thread_holds_several_locks_and_releases_each_separately(machines: LockMachines) -> None:
    locks, other_locks = machines.open("here"), machines.open("there")
    with locks.hold("a"):
        with locks.hold("b", shared=True), locks.attempt("c") as acquired, locks.hold("d"):
            assert acquired
            assert [free(other_locks, name) for name in "abcd"] == [False] * 4
        assert [free(other_locks, name) for name in "abcd"] == [False, True, True, True]
    assert free(other_locks, "a")


def test_nested_locks_of_threads_neither_deadlock_nor_overlap(machines: LockMachines) -> None:
    counts = {"a": 0, "b": 0}

    def work(locks: Locks) -> None:
        for _ in range(5):
            with locks.hold("all", shared=True), locks.hold("a"), locks.hold("b"):
                before = dict(counts)
                counts.update({name: number + 1 for name, number in before.items()})

    run([(work, locks) for locks in (machines.open("here"), machines.open("there")) for _ in range(6)])
    assert counts == {"a": 60, "b": 60}


def run(jobs: Sequence[tuple[Any, ...]]) -> None:
    """Run each job, a function and its arguments, in a separate thread."""
    threads = [threading.Thread(target=function, args=words) for function, *words in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# PostgreSQL


def test_locks_of_one_clone_do_not_use_the_server(tmp_path: Path) -> None:
    assert sorted([SPACE_LOCK, GATE, UPKEEP_LOCK]) == list(CLONE_LOCKS)
    locks = PostgresLocks(NOWHERE, "space", FileLocks(str(tmp_path)))
    with locks.hold(GATE, shared=True), locks.hold(SPACE_LOCK), locks.attempt(SPACE_LOCK) as acquired:
        assert not acquired


def test_spaces_do_not_wait_for_each_other(shared: LockMachines) -> None:
    with shared.open("here").hold("scout"):
        assert free(shared.open("there", "another space"))


def test_an_unreachable_server_is_a_temporary_error_without_the_password(tmp_path: Path) -> None:
    locks = PostgresLocks(NOWHERE, "space", FileLocks(str(tmp_path)), timeout=2)
    for attempt in (locks.hold, locks.attempt):
        with pytest.raises(StoreError) as caught, attempt("scout"):
            pytest.fail("the block must not begin")
        assert (caught.value.code, caught.value.retryable) == ("store-unavailable", True)
        assert "hunter2" not in str(caught.value.to_json())
    assert free(FileLocks(str(tmp_path)))


@contextmanager
def server(machines: LockMachines) -> Iterator[Callable[[str], Any]]:
    """Query one value from the server."""
    with psycopg.connect(str(machines.address), autocommit=True) as admin:
        yield lambda sql: (admin.execute(sql).fetchone() or (None,))[0]


def test_a_thread_has_one_connection_that_is_reused_and_closed(shared: LockMachines) -> None:
    locks = PostgresLocks(str(shared.address), "space", FileLocks(shared.place))
    with server(shared) as ask:
        before = ask(f"SELECT count(*) {OTHERS}")
        with locks.hold("a"), locks.hold("b"):
            assert ask(f"SELECT count(*) {OTHERS}") == before + 1
        run([(free, locks)])
        assert ask(f"SELECT count(*) {OTHERS}") == before + 1
        locks.close()
        while ask(f"SELECT count(*) {OTHERS}") > before:
            pass  # the server takes a moment to end a session


def test_a_connection_lost_inside_of_a_block_does_not_break_it_or_the_next_lock(shared: LockMachines) -> None:
    locks, other_locks = shared.open("here"), shared.open("there")
    with server(shared) as ask:
        with locks.hold("a"):
            ask(HANG_UP)
            assert free(other_locks, "a")
            with locks.hold("b"):
                assert not free(other_locks, "b")
                ask(HANG_UP)
        assert free(locks, "a")
        with locks.hold("a"):
            assert not free(other_locks, "a")


def test_a_deadlock_of_two_threads_ends(shared: LockMachines) -> None:
    met, errors = threading.Barrier(2), []

    def work(locks: Locks, first: str, second: str) -> None:
        try:
            with locks.hold(first):
                met.wait()
                with locks.hold(second):
                    pass
        except StoreError as err:
            errors.append((err.code, err.retryable))

    run([(work, shared.open("here"), "a", "b"), (work, shared.open("there"), "b", "a")])
    assert errors == [("store-locked", True)]


def use_inherited(locks: Locks, ready: Any) -> None:
    with locks.hold("other"):
        ready.set()
        signal.pause()


def test_a_forked_process_opens_its_own_connection(shared: LockMachines) -> None:
    locks, other_locks = shared.open("here"), shared.open("there")
    ready = FORK.Event()
    assert free(other_locks)
    with locks.hold("scout"), server(shared) as ask:
        before = ask(f"SELECT count(*) {OTHERS}")
        child = FORK.Process(target=use_inherited, args=(locks, ready))
        child.start()
        assert ready.wait(60)
        assert ask(f"SELECT count(*) {OTHERS}") == before + 1
        child.kill()
        child.join()
        with other_locks.hold("other"):
            assert not free(other_locks, "scout")


def test_server_limits_on_idle_and_waiting_sessions_do_not_apply_to_locks(shared: LockMachines) -> None:
    """A server can end idle sessions and waiting statements; sessions for locks set their own limits."""
    words = "-c idle_session_timeout=60000 -c lock_timeout=60000 -c statement_timeout=60000"
    session = LockSession(f"{shared.address} options='{words}'", 30.0, LOCK_TIMEOUT)
    for name, limit in (("idle_session_timeout", "0"), ("lock_timeout", "5min"), ("statement_timeout", "0")):
        assert session.connection.execute("SELECT current_setting(%s)", [name]).fetchone() == (limit,)
    session.end()


def test_waiting_for_a_stopped_process_ends_with_an_error(postgres_address: str, tmp_path: Path) -> None:
    """A stopped process keeps its connection and its lock; waiting processes get an error."""
    impatient = PostgresLocks(postgres_address, "space", FileLocks(str(tmp_path / "there")), patience=0.2)
    patient = PostgresLocks(postgres_address, "space", FileLocks(str(tmp_path / "here")))
    with closing(patient), closing(impatient):
        with patient.hold("scout"), pytest.raises(Conflict) as caught, impatient.hold("scout"):
            raise AssertionError
        assert (caught.value.code, caught.value.fields) == ("agent-held", {"lock": "scout"})
        with impatient.hold("scout"):
            pass


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that these tests can stop and start."""
    with own_server() as server:
        yield server


def test_locks_work_after_a_restart_of_the_server(shared: LockMachines, own: Server) -> None:
    machines = shared._replace(address=own.url)
    locks, other_locks = machines.open("here"), machines.open("there")
    assert free(other_locks)
    with locks.hold("scout"):
        own.stop()
        with pytest.raises(StoreError) as caught:
            free(other_locks)
        assert (caught.value.code, caught.value.retryable) == ("store-unavailable", True)
    own.start()
    with locks.hold("scout"):
        assert not free(other_locks)
    assert free(other_locks)


def test_the_server_detects_silent_machines_by_keepalives(own: Server) -> None:
    """For TCP connections of locks and of writers; a local socket does not need it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    own.stop()
    try:
        more = f"-c listen_addresses=127.0.0.1 -c port={port}"
        own.start(more)
        address = f"postgresql://clia@127.0.0.1:{port}/postgres"
        session = LockSession(address, 30.0, LOCK_TIMEOUT)
        with closing(PostgresStore(address, "space")) as store, store.writing() as transaction:
            names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
            query = f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}"
            assert session.connection.execute(query).fetchall() == transaction.values.db.fetch(query) == [("15", "5", "3", "30000")]
        session.end()
    finally:
        own.stop()
        own.start()
