"""Stores under many writers, sudden death, damaged files and lost connections."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from clia.errors import Conflict, StoreError, UnsupportedFormat
from clia.store import postgres_server
from clia.store.interface import Edge
from clia.store.postgres_store import PostgresStore
from clia.store.sql_schema import KNOWN
from clia.store.sqlite_store import SqliteStore
from support.crashes import FORK
from support.disks import NOBODY, no_file_beyond

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.store.interface import Store

PROCESSES, APPENDS = 8, 40
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


class Where(NamedTuple):
    """A database that any process can open by itself."""

    kind: str
    address: str

    def open(self, timeout: float = 30.0) -> Store:
        if self.kind == "sqlite":
            return SqliteStore(self.address, "one", timeout=timeout)
        return PostgresStore(self.address, "one", timeout=timeout)

    @property
    def brief(self) -> float:
        """A timeout for those who wait in vain; a busy machine can still connect in it."""
        return 0.05 if self.kind == "sqlite" else 3.0


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    if request.param == "sqlite":
        return Where("sqlite", str(tmp_path / "space.db"))
    return Where("postgres", request.getfixturevalue("postgres_address"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with something in it, closed."""
    made = tmp_path / "space.db"
    put(SqliteStore(str(made), "one"), "k", "v").close()
    return made


@contextmanager
def opened(where: Where, timeout: float = 30.0) -> Iterator[Store]:
    store = where.open(timeout)
    try:
        yield store
    finally:
        store.close()


def put(store: Store, key: str, value: Any) -> Store:
    with store.writing() as change:
        change.values.put(key, value)
    return store


def get(store: Store, key: str = "k") -> Any:
    with store.reading() as view:
        found = view.values.get(key)
    return found and found.value


def bodies(store: Store, stream: str) -> list[Any]:
    with store.reading() as view:
        return [entry.body for entry in view.streams.read(stream)]


def append_many(where: Where, writer: int) -> None:
    with opened(where) as store:
        for number in range(APPENDS):
            landed = False
            while not landed:
                with store.reading() as view:
                    end = view.streams.end("s")
                with suppress(Conflict), store.writing() as change:
                    change.streams.append("s", [[writer, number]], expected=end)
                    landed = True


def test_many_processes_append_with_an_expectation_and_nothing_is_lost_or_doubled(where: Where) -> None:
    writers = [FORK.Process(target=append_many, args=(where, number)) for number in range(PROCESSES)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert [each.exitcode for each in writers] == [0] * PROCESSES
    with opened(where) as store:
        found = bodies(store, "s")
    assert sorted(found) == [[writer, number] for writer in range(PROCESSES) for number in range(APPENDS)]
    for writer in range(PROCESSES):
        assert [number for who, number in found if who == writer] == list(range(APPENDS))


def stop_inside(where: Where, ready: Any) -> None:
    with where.open().writing() as change:
        change.streams.append("s", ["never"])
        change.values.put("k", "never")
        change.edges.add([Edge(*"abcde")])
        ready.set()
        signal.pause()


def stop_inside_after_many(where: Where, ready: Any) -> None:
    with where.open().writing() as change:
        change.streams.append("s", ["never", "ever"])
        ready.set()
        signal.pause()


@pytest.mark.parametrize("stop", [stop_inside, stop_inside_after_many])
def test_a_process_that_is_stopped_inside_a_transaction_does_not_keep_others_from_writing_for_ever(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch, stop: Callable[[Where, Any], None]
) -> None:
    where = Where("postgres", postgres_address)
    ready = FORK.Event()
    writer = FORK.Process(target=stop, args=(where, ready))
    with monkeypatch.context() as patch:  # only in the process that stops: ours may be slow
        patch.setattr(postgres_server, "IDLE_SECONDS", 2.0)
        writer.start()
    try:
        assert ready.wait(60)
        with opened(where) as store:
            assert get(put(store, "k", "v")) == "v"
            assert bodies(store, "s") == []
    finally:
        writer.kill()
        writer.join()


def test_a_writer_killed_inside_its_transaction_leaves_nothing_and_blocks_nobody(where: Where) -> None:
    with opened(where) as store:
        put(store, "k", "v")
        ready = FORK.Event()
        writer = FORK.Process(target=stop_inside, args=(where, ready))
        writer.start()
        ready.wait()
        assert get(store) == "v"
        assert writer.pid
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        with store.writing() as change:
            assert change.streams.append("s", ["mine"], expected=0) == 1
            assert change.values.put("k", "mine", expected=1) == 2
            assert change.edges.standing() == []


def write_pairs(where: Where, told: int) -> None:
    store = where.open()
    for number in range(10**6):
        with store.writing() as change:
            change.streams.append("a", [number])
            change.streams.append("b", [number])
        os.write(told, b".")


def test_whatever_was_acknowledged_before_a_kill_is_there_and_nothing_is_half(where: Where, life: int) -> None:
    reading, told = os.pipe()
    writer = FORK.Process(target=write_pairs, args=(where, told))
    writer.start()
    os.close(told)
    acknowledged = 0
    while acknowledged < life * 5 + 1:
        acknowledged += len(os.read(reading, life * 5 + 1 - acknowledged))
    assert writer.pid
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    while more := os.read(reading, 1000):
        acknowledged += len(more)
    os.close(reading)
    with opened(where) as store:
        assert bodies(store, "a") == bodies(store, "b") == list(range(len(bodies(store, "a"))))
        assert 0 < acknowledged <= len(bodies(store, "a")) <= acknowledged + 1


def use_inherited(store: Store, go: Any, done: Any) -> None:
    put(store, "child 1", 1)
    done.set()
    go.wait()
    put(store, "child 2", 2)


def test_a_store_goes_on_in_a_forked_process_and_loses_nothing_when_the_parent_closes_it(where: Where) -> None:
    store = put(where.open(), "k", "v")
    go, done = FORK.Event(), FORK.Event()
    child = FORK.Process(target=use_inherited, args=(store, go, done))
    child.start()
    assert done.wait(60)
    put(store, "parent", 3)
    store.close()  # the last one who closes an SQLite database removes its journal
    go.set()
    child.join()
    assert child.exitcode == 0
    with opened(where) as again, again.reading() as view:
        assert view.values.scan("") == [("child 1", 1), ("child 2", 2), ("k", "v"), ("parent", 3)]


def use_in_child(store: Store, transaction: Any, found: Any) -> None:
    found.put(code_of(lambda: transaction.values.put("k", "child")))
    found.put(code_of(lambda: get(store)))
    other = threading.Thread(target=lambda: found.put(code_of(lambda: get(store))))
    other.start()
    other.join()


def code_of(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except StoreError as err:
        return err.code
    return "fine"


def test_a_transaction_stays_in_the_process_that_began_it(where: Where) -> None:
    with opened(where) as store:
        found = FORK.Queue()
        with store.writing() as change:
            child = FORK.Process(target=use_in_child, args=(store, change, found))
            child.start()
            child.join()
            change.values.put("k", "parent")
        # SQLite's memory of its locks is torn by the fork; a connection of its own is enough for PostgreSQL.
        assert [found.get() for _ in range(3)] == [
            "store-forked", "nested-transaction", "store-forked" if where.kind == "sqlite" else "fine",
        ]  # fmt: skip
        assert get(store) == "parent"


def test_waiting_for_other_writers_ends(where: Where) -> None:
    with opened(where) as holder, opened(where, timeout=where.brief) as store:
        put(holder, "k", "v")
        assert get(store) == "v"
        codes = []
        with holder.writing() as change:
            change.values.put("k", "w")

            def attempt() -> None:
                assert get(store) == "v"  # readers do not wait
                with pytest.raises(StoreError) as caught:
                    put(store, "k", "x")
                codes.append((caught.value.code, caught.value.retryable))

            other = threading.Thread(target=attempt)
            other.start()
            other.join()
        assert codes == [("store-locked", True)]
        put(store, "k", "x")
        assert get(holder) == "x"


def test_a_failure_that_the_block_swallowed_still_undoes_all_of_it(where: Where, tmp_path: Path) -> None:
    with opened(where) as store:
        put(store, "k", "v")
        with pytest.raises(StoreError), store.writing() as change:  # noqa: PT012 (the block is what is tried)
            change.values.put("k", "lost")
            with broken(where), suppress(StoreError):
                change.values.put("big", "x" * 20_000_000)
            with suppress(StoreError):
                change.values.put("after", "lost")
        assert get(store) == "v"
        assert get(store, "after") is None
        put(store, "k", "w")
        assert get(store) == "w"


def test_a_single_refusal_that_the_block_swallowed_undoes_all_of_it_too(path: Path) -> None:
    with sqlite3.connect(path) as direct:
        direct.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON clia_values WHEN NEW.key = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    direct.close()
    with opened(Where("sqlite", str(path))) as store:
        with pytest.raises(StoreError, match="no"), store.writing() as change:  # noqa: PT012 (the block is what is tried)
            change.values.put("k", "lost")
            with suppress(StoreError):
                change.values.put("bad", 1)
        assert get(store) == "v"


@contextmanager
def broken(where: Where) -> Iterator[None]:
    """A disk that takes no more, or a server that hangs up."""
    if where.kind == "postgres":
        hang_up(where.address)
        yield
        return
    with no_file_beyond(4_000_000):
        yield


def hang_up(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as admin:
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        admin.execute(f"SELECT pg_terminate_backend(pid, 5000) {others}")


# SQLite


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "not SQLite": lambda data: b"This is no database.\n" * 500,
    "a damaged header": lambda data: data[:40] + b"\xff" * 60 + data[100:],
    "cut off": lambda data: data[:5000],
    "damaged pages": lambda data: data[:4096] + b"\xa5" * (len(data) - 4096),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_with_what_to_do_and_left_alone(path: Path, damage: str) -> None:
    damaged = DAMAGES[damage](path.read_bytes())
    path.write_bytes(damaged)
    with opened(Where("sqlite", str(path))) as store:
        for attempt in (lambda: get(store), lambda: put(store, "k", "x")):
            with pytest.raises(StoreError) as caught:
                attempt()
            assert caught.value.code == "store-corrupt"
            assert str(path) in caught.value.message
            assert caught.value.fields["path"] == str(path)
            assert caught.value.hints == ("move it aside and run 'clia rebuild'",)
    assert path.read_bytes() == damaged


def test_an_entry_that_is_no_json_is_named(path: Path) -> None:
    with sqlite3.connect(path) as direct:
        direct.execute("UPDATE clia_values SET value = '{' WHERE key = 'k'")
    direct.close()
    with opened(Where("sqlite", str(path))) as store:
        with pytest.raises(StoreError) as caught:
            get(store)
        assert caught.value.code == "store-corrupt"
        assert caught.value.fields == {"where": "k"}
        put(store, "k", "new")
        assert get(store) == "new"


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "space.db").touch()
    with opened(Where("sqlite", str(tmp_path / "space.db"))) as store:
        assert get(store) is None
        assert get(put(store, "k", "v")) == "v"


@pytest.mark.parametrize("name", ["", "nul\0inside", "file/below"], ids=["a directory", "NUL", "below a file"])
def test_a_path_that_cannot_be_a_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    store = SqliteStore(f"{tmp_path}/{name}", "one")
    for attempt in (lambda: get(store), lambda: put(store, "k", "v")):
        with pytest.raises(StoreError) as caught:
            attempt()
        assert caught.value.fields["path"] == f"{tmp_path}/{name}"


@pytest.mark.parametrize("name", ["a b", "a?b#c%20", "é"])
def test_any_name_of_a_directory_will_do(tmp_path: Path, name: str) -> None:
    with opened(Where("sqlite", str(tmp_path / name / "space.db"))) as store:
        assert get(put(store, "k", "v")) == "v"
    assert (tmp_path / name / "space.db").exists()


def test_a_newer_format_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as direct:
        direct.execute("PRAGMA user_version = 99")
    direct.close()
    with opened(Where("sqlite", str(path))) as store:
        for attempt in (lambda: get(store), lambda: put(store, "k", "x")):
            with pytest.raises(UnsupportedFormat) as caught:
                attempt()
            assert caught.value.fields == {"path": str(path), "version": 99, "known": KNOWN}


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as direct:
        direct.execute("CREATE TABLE theirs (x)")
    direct.close()
    before = path.read_bytes()
    with opened(Where("sqlite", str(path))) as store:
        for attempt in (lambda: get(store), lambda: put(store, "k", "x")):
            with pytest.raises(StoreError) as caught:
                attempt()
            assert caught.value.code == "not-a-store"
    assert path.read_bytes() == before


def test_a_program_that_holds_the_database_itself_is_waited_for_in_vain(path: Path) -> None:
    direct = sqlite3.connect(path, isolation_level=None)
    direct.execute("BEGIN IMMEDIATE")
    with opened(Where("sqlite", str(path)), timeout=0.05) as store:
        with pytest.raises(StoreError) as caught, store.writing():
            pytest.fail("the block must not begin")
        assert (caught.value.code, caught.value.retryable) == ("store-locked", True)
        assert caught.value.fields["path"] == str(path)
        direct.close()
        assert get(put(store, "k", "x")) == "x"


def test_making_the_store_waits_its_turn_too(tmp_path: Path) -> None:
    with open(tmp_path / "space.db.lock", "w") as held, opened(Where("sqlite", str(tmp_path / "space.db")), timeout=0.05) as store:
        fcntl.flock(held, fcntl.LOCK_EX)
        for attempt in (lambda: get(store), lambda: put(store, "k", "v")):
            with pytest.raises(StoreError) as caught:
                attempt()
            assert caught.value.code == "store-locked"
        fcntl.flock(held, fcntl.LOCK_UN)
        assert get(store) is None


def in_another_thread(call: Callable[[], object]) -> str:
    codes: list[str] = []
    other = threading.Thread(target=lambda: codes.append(code_of(call)))
    other.start()
    other.join()
    return codes[0]


def test_scrubbing_that_a_reader_or_a_writer_holds_up_says_so(where: Where) -> None:
    with opened(where) as holder, opened(where, timeout=where.brief) as store:
        put(holder, "k", "v")
        with holder.reading() as view:
            assert view.values.get("k") == ("v", 1)
            assert in_another_thread(lambda: put(store, "k", "w")) == "fine"  # or the reader would see nothing old
            assert in_another_thread(store.scrub) == "store-locked"
        with holder.writing() as change:
            assert change.values.get("k") == ("w", 2)
            assert in_another_thread(store.scrub) == "store-locked"
        store.scrub()
        assert get(store) == "w"


def test_a_store_that_was_moved_aside_is_written_to_no_more(path: Path) -> None:
    with opened(Where("sqlite", str(path))) as store:
        assert get(store) == "v"
        for name in ("space.db", "space.db-wal", "space.db-shm"):
            with suppress(FileNotFoundError):
                (path.parent / name).rename(path.parent / f"old-{name}")
        assert get(store) is None
        put(store, "k", "new")
    with opened(Where("sqlite", str(path.parent / "old-space.db"))) as old:
        assert get(old) == "v"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that everyone may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="clia-store-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write everywhere; a test of permissions is for someone else."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("state", ["at rest", "with a writer"])
def test_what_may_only_be_read_is_read_and_not_written(shared: Path, state: str) -> None:
    path = shared / "space.db"
    writer = put(SqliteStore(str(path), "one"), "k", "v")
    if state == "at rest":
        writer.close()
    path.chmod(0o444)
    shared.chmod(0o555)
    ready, done = FORK.Event(), FORK.Event()
    # In another process: two openings in one process would share what they may do.
    keeper = FORK.Process(target=keep_open, args=(path, ready, done))
    if state == "with a writer":
        writer.close()
        keeper.start()
        ready.wait()
    try:
        with as_nobody(), opened(Where("sqlite", str(path))) as store:
            assert get(store) == "v"
            assert get(store) == "v"
            with pytest.raises(StoreError) as caught:
                put(store, "k", "x")
            assert caught.value.code == "store-read-only"
            assert caught.value.fields["path"] == str(path)
            assert "writable" in caught.value.hints[0]
    finally:
        done.set()
        shared.chmod(0o755)
        if state == "with a writer":
            keeper.join()


def keep_open(path: Path, ready: Any, done: Any) -> None:
    path.chmod(0o644)
    path.parent.chmod(0o755)
    store = put(SqliteStore(str(path), "one"), "other", "w")
    for suffix in ("", "-wal", "-shm"):  # they are private until the owner opens them to others
        Path(f"{path}{suffix}").chmod(0o444)
    path.parent.chmod(0o555)
    ready.set()
    done.wait()
    os._exit(0 if get(store) == "v" else 1)


def test_a_file_that_may_only_be_read_in_a_directory_of_ours(shared: Path) -> None:
    path = shared / "space.db"
    put(SqliteStore(str(path), "one"), "k", "v").close()
    path.chmod(0o444)
    shared.chmod(0o777)
    (shared / "space.db.lock").chmod(0o666)
    with as_nobody(), opened(Where("sqlite", str(path))) as store:
        assert get(store) == "v"
        with pytest.raises(StoreError) as caught:
            put(store, "k", "x")
        assert caught.value.code == "store-read-only"


def test_a_file_that_may_not_be_read_is_named(shared: Path) -> None:
    path = shared / "space.db"
    put(SqliteStore(str(path), "one"), "k", "v").close()
    path.chmod(0)
    with as_nobody(), opened(Where("sqlite", str(path))) as store:
        with pytest.raises(StoreError) as caught:
            get(store)
        assert caught.value.code == "store-unreadable"
        assert caught.value.fields["path"] == str(path)
        assert "clia rebuild" in caught.value.hints[0]


# PostgreSQL


def test_lost_connections_are_replaced(postgres_address: str) -> None:
    with opened(Where("postgres", postgres_address)) as store:
        put(store, "k", "v")
        hang_up(postgres_address)
        assert get(store) == "v"
        hang_up(postgres_address)
        assert get(put(store, "k", "w")) == "w"


def test_a_connection_lost_while_committing_is_not_called_a_failure_to_be_tried_again(postgres_address: str) -> None:
    with opened(Where("postgres", postgres_address)) as store:
        put(store, "k", "v")
        with pytest.raises(StoreError) as caught, store.writing() as change:  # noqa: PT012 (the block is what is tried)
            change.values.put("k", "w")
            hang_up(postgres_address)
        assert (caught.value.code, caught.value.retryable) == ("store-unsure", False)
        assert get(store) == "v"


def test_undoing_over_a_lost_connection_keeps_the_exception_of_the_block(postgres_address: str) -> None:
    with opened(Where("postgres", postgres_address)) as store:
        with pytest.raises(ZeroDivisionError), store.writing() as change:  # noqa: PT012 (the block is what is tried)
            change.values.put("k", "w")
            hang_up(postgres_address)
            raise ZeroDivisionError
        assert get(store) is None


def test_a_server_that_has_gone_is_an_error_within_the_time_given(postgres_address: str) -> None:
    with opened(Where("postgres", postgres_address), timeout=3.0) as store:
        put(store, "k", "v")
        with psycopg.connect(postgres_address, autocommit=True) as admin:
            name = admin.info.dbname
        with psycopg.connect(postgres_address, autocommit=True, dbname="postgres") as admin:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            try:
                admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name])
                with pytest.raises(StoreError) as caught:
                    get(store)
                assert (caught.value.code, caught.value.retryable) == ("store-unavailable", True)
            finally:
                admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


@pytest.mark.parametrize(
    "address",
    [
        "postgresql//me:hunter2@localhost/x",
        "postgresql://me:hunter2@localhost:port/x",
        "host=/no/such/folder user=me password=hunter2 dbname=x",
        "postgresql://me:hunter2@127.0.0.1:1/x",
    ],
)
def test_an_address_that_does_not_work_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(StoreError) as caught:
        put(PostgresStore(address, "one", timeout=2), "k", "v")
    assert "hunter2" not in str(caught.value.to_json())
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_password_that_the_server_repeats_is_struck_out(postgres_address: str) -> None:
    with pytest.raises(StoreError) as caught:
        put(PostgresStore(f"{postgres_address} user=hunter2 password=hunter2", "one"), "k", "v")
    assert 'role "***" does not exist' in caught.value.fields["reason"]


def test_a_newer_format_in_postgres_is_left_alone(postgres_address: str) -> None:
    with opened(Where("postgres", postgres_address)) as store:
        put(store, "k", "v")
    with psycopg.connect(postgres_address) as admin:
        admin.execute("UPDATE clia_schema SET version = 99")
    with opened(Where("postgres", postgres_address)) as store:
        with pytest.raises(UnsupportedFormat) as caught:
            get(store)
        assert caught.value.fields["version"] == 99


def test_a_table_that_is_gone_is_a_clean_error(postgres_address: str) -> None:
    with opened(Where("postgres", postgres_address)) as store:
        put(store, "k", "v")
        with psycopg.connect(postgres_address) as admin:
            admin.execute("DROP TABLE clia_values")
        with pytest.raises(StoreError) as caught:
            get(store)
        assert caught.value.code == "store-error"
        assert "clia_values" in caught.value.message


def test_a_database_that_does_not_keep_every_character_is_refused(postgres_address: str) -> None:
    with psycopg.connect(postgres_address, autocommit=True) as admin:
        name = f"{admin.info.dbname}_ascii"
        admin.execute(f"""CREATE DATABASE "{name}" ENCODING 'SQL_ASCII' TEMPLATE template0""")
    with pytest.raises(StoreError, match="encoding is not UTF8"):
        put(PostgresStore(f"{postgres_address} dbname={name}", "one"), "k", "v")


def test_a_store_in_postgres_without_its_driver_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from clia.store.postgres_store import PostgresStore\n"
        "from clia.errors import StoreError\n"
        "try: PostgresStore('postgresql://h/x', 'one')\n"
        "except StoreError as err: print(err.code, *err.hints)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "store-extra-missing pip install 'clia[postgres]'\n"
