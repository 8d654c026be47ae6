"""Every promise of ``clia.store.interface``, kept on one machine and over several."""

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


class Machines(NamedTuple):
    """Opens locks of one space: of the same machine, or of one that has only the server in common with it."""

    place: str
    address: str | None
    stack: ExitStack

    def open(self, machine: str, space: str = "space") -> Locks:
        if self.address is None:
            return FileLocks(f"{self.place}/locks")
        return self.stack.enter_context(closing(PostgresLocks(self.address, space, FileLocks(f"{self.place}/{machine}/{space}"))))


@pytest.fixture(params=["files", "postgres"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        address = request.getfixturevalue("postgres_address") if request.param == "postgres" else None
        yield Machines(str(tmp_path), address, stack)


@pytest.fixture
def shared(postgres_address: str, tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        yield Machines(str(tmp_path), postgres_address, stack)


def hold_on(machines: Machines, shared: bool, ready: Any) -> None:
    with machines.open("there").hold("scout", shared=shared):
        ready.set()
        signal.pause()


@contextmanager
def holder(machines: Machines, *, shared: bool = False) -> Iterator[Callable[[], None]]:
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
    with locks.attempt(name) as ours:
        return ours


def test_a_lock_keeps_others_out_until_its_holder_is_killed(machines: Machines) -> None:
    locks = machines.open("here")
    with holder(machines) as kill:
        assert not free(locks)
        assert free(locks, "other")
        kill()
        with locks.hold("scout"):
            pass
        assert free(locks)


def test_shared_holders_keep_out_only_who_wants_it_alone(machines: Machines) -> None:
    locks, there = machines.open("here"), machines.open("there")
    with holder(machines, shared=True) as kill:
        with locks.hold("scout", shared=True):
            assert not free(machines.open("third"))
        assert not free(locks)
        kill()
        with locks.hold("scout"):
            assert not free(there)
        assert free(there)


def test_who_waits_goes_on_when_the_lock_is_let_go_also_by_an_error(machines: Machines) -> None:
    seen: list[str] = []
    locks, there = machines.open("here"), machines.open("there")

    def wait() -> None:
        with there.hold("scout"):
            seen.append("there")

    other = threading.Thread(target=wait)
    with suppress(ZeroDivisionError), locks.hold("scout"):
        other.start()
        assert not free(machines.open("third"))
        seen.append("here")
        _ = 1 / 0
    other.join()
    assert seen == ["here", "there"]


def test_a_thread_holds_many_and_lets_go_of_each_by_itself(machines: Machines) -> None:
    locks, there = machines.open("here"), machines.open("there")
    with locks.hold("a"):
        with locks.hold("b", shared=True), locks.attempt("c") as ours, locks.hold("d"):
            assert ours
            assert [free(there, name) for name in "abcd"] == [False] * 4
        assert [free(there, name) for name in "abcd"] == [False, True, True, True]
    assert free(there, "a")


def test_threads_that_nest_locks_neither_stop_nor_let_two_in(machines: Machines) -> None:
    counts = {"a": 0, "b": 0}

    def work(locks: Locks) -> None:
        for _ in range(5):
            with locks.hold("all", shared=True), locks.hold("a"), locks.hold("b"):
                before = dict(counts)
                counts.update({name: number + 1 for name, number in before.items()})

    run([(work, locks) for locks in (machines.open("here"), machines.open("there")) for _ in range(6)])
    assert counts == {"a": 60, "b": 60}


def run(jobs: Sequence[tuple[Any, ...]]) -> None:
    """Each job in a thread of its own: a function and its words."""
    threads = [threading.Thread(target=function, args=words) for function, *words in jobs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


# PostgreSQL


def test_locks_about_one_clone_never_reach_the_server(tmp_path: Path) -> None:
    assert sorted([SPACE_LOCK, GATE]) == list(CLONE_LOCKS)
    locks = PostgresLocks(NOWHERE, "space", FileLocks(str(tmp_path)))
    with locks.hold(GATE, shared=True), locks.hold(SPACE_LOCK), locks.attempt(SPACE_LOCK) as ours:
        assert not ours


def test_spaces_do_not_wait_for_each_other(shared: Machines) -> None:
    with shared.open("here").hold("scout"):
        assert free(shared.open("there", "another space"))


def test_a_server_that_is_away_is_an_error_worth_trying_again_and_without_the_password(tmp_path: Path) -> None:
    locks = PostgresLocks(NOWHERE, "space", FileLocks(str(tmp_path)), timeout=2)
    for attempt in (locks.hold, locks.attempt):
        with pytest.raises(StoreError) as caught, attempt("scout"):
            pytest.fail("the block must not begin")
        assert (caught.value.code, caught.value.retryable) == ("store-unavailable", True)
        assert "hunter2" not in str(caught.value.to_json())
    assert free(FileLocks(str(tmp_path)))


@contextmanager
def server(machines: Machines) -> Iterator[Callable[[str], Any]]:
    """Asks the server itself for one value."""
    with psycopg.connect(str(machines.address), autocommit=True) as admin:
        yield lambda sql: (admin.execute(sql).fetchone() or (None,))[0]


def test_a_thread_has_one_connection_which_the_next_thread_takes_and_closing_ends(shared: Machines) -> None:
    locks = PostgresLocks(str(shared.address), "space", FileLocks(shared.place))
    with server(shared) as ask:
        before = ask(f"SELECT count(*) {OTHERS}")
        with locks.hold("a"), locks.hold("b"):
            assert ask(f"SELECT count(*) {OTHERS}") == before + 1
        run([(free, locks)])
        assert ask(f"SELECT count(*) {OTHERS}") == before + 1
        locks.close()
        while ask(f"SELECT count(*) {OTHERS}") > before:
            pass  # the end of a session takes the server a moment


def test_a_connection_lost_while_it_holds_ends_no_block_and_the_next_lock_is_had(shared: Machines) -> None:
    locks, there = shared.open("here"), shared.open("there")
    with server(shared) as ask:
        with locks.hold("a"):
            ask(HANG_UP)
            assert free(there, "a")
            with locks.hold("b"):
                assert not free(there, "b")
                ask(HANG_UP)
        assert free(locks, "a")
        with locks.hold("a"):
            assert not free(there, "a")


def test_two_who_wait_for_each_other_do_not_wait_for_ever(shared: Machines) -> None:
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


def test_a_forked_process_makes_its_own_connection_and_leaves_what_its_parent_holds(shared: Machines) -> None:
    locks, there = shared.open("here"), shared.open("there")
    ready = FORK.Event()
    assert free(there)
    with locks.hold("scout"), server(shared) as ask:
        before = ask(f"SELECT count(*) {OTHERS}")
        child = FORK.Process(target=use_inherited, args=(locks, ready))
        child.start()
        assert ready.wait(60)
        assert ask(f"SELECT count(*) {OTHERS}") == before + 1
        child.kill()
        child.join()
        with there.hold("other"):
            assert not free(there, "scout")


def test_limits_on_idle_and_waiting_sessions_are_not_for_locks(shared: Machines) -> None:
    """A server may end sessions that are idle, and statements that wait: those that are about locks have limits of their own."""
    words = "-c idle_session_timeout=60000 -c lock_timeout=60000 -c statement_timeout=60000"
    session = LockSession(f"{shared.address} options='{words}'", 30.0, LOCK_TIMEOUT)
    for name, limit in (("idle_session_timeout", "0"), ("lock_timeout", "5min"), ("statement_timeout", "0")):
        assert session.connection.execute("SELECT current_setting(%s)", [name]).fetchone() == (limit,)
    session.end()


def test_nobody_waits_for_ever_for_a_process_that_was_stopped(postgres_address: str, tmp_path: Path) -> None:
    """It keeps its connection, and with it the lock; whoever waits is told."""
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
    """A server that these tests may stop and start."""
    with own_server() as made:
        yield made


def test_locks_outlive_a_restart_of_the_server(shared: Machines, own: Server) -> None:
    machines = shared._replace(address=own.url)
    locks, there = machines.open("here"), machines.open("there")
    assert free(there)
    with locks.hold("scout"):
        own.stop()
        with pytest.raises(StoreError) as caught:
            free(there)
        assert (caught.value.code, caught.value.retryable) == ("store-unavailable", True)
    own.start()
    with locks.hold("scout"):
        assert not free(there)
    assert free(there)


def test_the_server_is_told_to_watch_for_machines_that_fall_silent(own: Server) -> None:
    """Over a network: a socket of the same machine needs no watching. Locks, and writers of the store."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    own.stop()
    try:
        more = f"-c listen_addresses=127.0.0.1 -c port={port}"
        own.start(more)
        address = f"postgresql://clia@127.0.0.1:{port}/postgres"
        session = LockSession(address, 30.0, LOCK_TIMEOUT)
        with closing(PostgresStore(address, "space")) as store, store.writing() as transaction:
            names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
            asked = f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}"
            assert session.connection.execute(asked).fetchall() == transaction.values.db.fetch(asked) == [("15", "5", "3", "30000")]
        session.end()
    finally:
        own.stop()
        own.start()
