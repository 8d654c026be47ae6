"""Stores with many writers, killed processes, damaged files and lost connections."""

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
        """A timeout for waits that must fail; long enough to connect on a busy machine."""
        return 0.05 if self.kind == "sqlite" else 3.0


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    if request.param == "sqlite":
        return Where("sqlite", str(tmp_path / "space.db"))
    return Where("postgres", request.getfixturevalue("postgres_address"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with a value."""
    store_path = tmp_path / "space.db"
    put(SqliteStore(str(store_path), "one"), "k", "v").close()
    return store_path


@contextmanager
def opened(address: Where, timeout: float = 30.0) -> Iterator[Store]:
    store = address.open(timeout)
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
        row = view.values.get(key)
    return row and row.value


def bodies(store: Store, stream: str) -> list[Any]:
    with store.reading() as view:
        return [entry.body for entry in view.streams.read(stream)]


def append_many(address: Where, writer: int) -> None:
    with opened(address) as store:
        for number in range(APPENDS):
            landed = False
            while not landed:
                with store.reading() as view:
                    end = view.streams.end("s")
                with suppress(Conflict), store.writing() as change:
                    change.streams.append("s", [[writer, number]], expected=end)
                    landed = True


def test_many_processes_append_with_an_expected_position_and_lose_and_duplicate_nothing(address: Where) -> None:
    writers = [FORK.Process(target=append_many, args=(address, number)) for number in range(PROCESSES)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * PROCESSES
    with opened(address) as store:
        entries = bodies(store, "s")
    assert sorted(entries) == [[writer, number] for writer in range(PROCESSES) for number in range(APPENDS)]
    for writer in range(PROCESSES):
        assert [number for author, number in entries if author == writer] == list(range(APPENDS))


def stop_inside(address: Where, ready: Any) -> None:
    with address.open().writing() as change:
        change.streams.append("s", ["never"])
        change.values.put("k", "never")
        change.edges.add([Edge(*"abcde")])
        ready.set()
        signal.pause()


def stop_inside_after_many(address: Where, ready: Any) -> None:
    with address.open().writing() as change:
        change.streams.append("s", ["never", "ever"])
        ready.set()
        signal.pause()


@pytest.mark.parametrize("stop", [stop_inside, stop_inside_after_many])
def test_a_process_stopped_inside_a_transaction_does_not_block_writers_forever(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch, stop: Callable[[Where, Any], None]
) -> None:
    address = Where("postgres", postgres_address)
    ready = FORK.Event()
    writer = FORK.Process(target=stop, args=(address, ready))
    with monkeypatch.context() as patch:  # only in the stopped process, because ours may be slow
        patch.setattr(postgres_server, "IDLE_SECONDS", 2.0)
        writer.start()
    try:
        assert ready.wait(60)
        with opened(address) as store:
            assert get(put(store, "k", "v")) == "v"
            assert bodies(store, "s") == []
    finally:
        writer.kill()
        writer.join()


def test_a_writer_killed_inside_its_transaction_leaves_nothing_and_no_lock(address: Where) -> None:
    with opened(address) as store:
        put(store, "k", "v")
        ready = FORK.Event()
        writer = FORK.Process(target=stop_inside, args=(address, ready))
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


def write_pairs(address: Where, pipe_end: int) -> None:
    store = address.open()
    for number in range(10**6):
        with store.writing() as change:
            change.streams.append("a", [number])
            change.streams.append("b", [number])
        os.write(pipe_end, b".")


def test_acknowledged_writes_survive_a_kill_and_none_is_partial(address: Where, life: int) -> None:
    reading, pipe_end = os.pipe()
    writer = FORK.Process(target=write_pairs, args=(address, pipe_end))
    writer.start()
    os.close(pipe_end)
    acknowledged = 0
    while acknowledged < life * 5 + 1:
        acknowledged += len(os.read(reading, life * 5 + 1 - acknowledged))
    assert writer.pid
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    while more := os.read(reading, 1000):
        acknowledged += len(more)
    os.close(reading)
    with opened(address) as store:
        assert bodies(store, "a") == bodies(store, "b") == list(range(len(bodies(store, "a"))))
        assert 0 < acknowledged <= len(bodies(store, "a")) <= acknowledged + 1


def use_inherited(store: Store, go: Any, finished: Any) -> None:
    put(store, "child 1", 1)
    finished.set()
    go.wait()
    put(store, "child 2", 2)


def test_a_store_works_in_a_forked_process_after_the_parent_closes_it(address: Where) -> None:
    store = put(address.open(), "k", "v")
    go, finished = FORK.Event(), FORK.Event()
    child = FORK.Process(target=use_inherited, args=(store, go, finished))
    child.start()
    assert finished.wait(60)
    put(store, "parent", 3)
    store.close()  # the last process that closes an SQLite database removes its journal
    go.set()
    child.join()
    assert child.exitcode == 0
    with opened(address) as again, again.reading() as view:
        assert view.values.scan("") == [("child 1", 1), ("child 2", 2), ("k", "v"), ("parent", 3)]


def use_in_child(store: Store, transaction: Any, codes: Any) -> None:
    codes.put(code_of(lambda: transaction.values.put("k", "child")))
    codes.put(code_of(lambda: get(store)))
    thread = threading.Thread(target=lambda: codes.put(code_of(lambda: get(store))))
    thread.start()
    thread.join()


def code_of(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except StoreError as err:
        return err.code
    return "fine"


def test_a_transaction_stays_in_the_process_that_began_it(address: Where) -> None:
    with opened(address) as store:
        codes = FORK.Queue()
        with store.writing() as change:
            child = FORK.Process(target=use_in_child, args=(store, change, codes))
            child.start()
            child.join()
            change.values.put("k", "parent")
        # The fork breaks SQLite's record of its locks; PostgreSQL only needs a separate connection.
        assert [codes.get() for _ in range(3)] == [
            "store-forked", "nested-transaction", "store-forked" if address.kind == "sqlite" else "fine",
        ]  # fmt: skip
        assert get(store) == "parent"


def test_waiting_for_other_writers_ends(address: Where) -> None:
    with opened(address) as holder, opened(address, timeout=address.brief) as store:
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

            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join()
        assert codes == [("store-locked", True)]
        put(store, "k", "x")
        assert get(holder) == "x"


def test_a_failure_caught_in_the_block_still_rolls_back_the_transaction(address: Where, tmp_path: Path) -> None:
    with opened(address) as store:
        put(store, "k", "v")
        with pytest.raises(StoreError), store.writing() as change:  # noqa: PT012 (the block is what is tried)
            change.values.put("k", "lost")
            with broken(address), suppress(StoreError):
                change.values.put("big", "x" * 20_000_000)
            with suppress(StoreError):
                change.values.put("after", "lost")
        assert get(store) == "v"
        assert get(store, "after") is None
        put(store, "k", "w")
        assert get(store) == "w"


def test_a_refusal_caught_in_the_block_rolls_back_the_transaction_too(path: Path) -> None:
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
def broken(address: Where) -> Iterator[None]:
    """A full disk, or a server that closes connections."""
    if address.kind == "postgres":
        hang_up(address.address)
        yield
        return
    with no_file_beyond(4_000_000):
        yield


def hang_up(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as admin:
        others_clause = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        admin.execute(f"SELECT pg_terminate_backend(pid, 5000) {others_clause}")


# SQLite


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "not SQLite": lambda data: b"This is no database.\n" * 500,
    "a damaged header": lambda data: data[:40] + b"\xff" * 60 + data[100:],
    "cut off": lambda data: data[:5000],
    "damaged pages": lambda data: data[:4096] + b"\xa5" * (len(data) - 4096),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_reported_with_a_hint_and_not_changed(path: Path, damage: str) -> None:
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


def test_an_entry_that_is_not_json_is_named(path: Path) -> None:
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
def test_a_directory_can_have_any_name(tmp_path: Path, name: str) -> None:
    with opened(Where("sqlite", str(tmp_path / name / "space.db"))) as store:
        assert get(put(store, "k", "v")) == "v"
    assert (tmp_path / name / "space.db").exists()


def test_a_newer_format_is_not_changed(path: Path) -> None:
    with sqlite3.connect(path) as direct:
        direct.execute("PRAGMA user_version = 99")
    direct.close()
    with opened(Where("sqlite", str(path))) as store:
        for attempt in (lambda: get(store), lambda: put(store, "k", "x")):
            with pytest.raises(UnsupportedFormat) as caught:
                attempt()
            assert caught.value.fields == {"path": str(path), "version": 99, "known": KNOWN}


def test_a_foreign_database_is_not_changed(tmp_path: Path) -> None:
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


def test_waiting_for_a_program_that_locks_the_database_ends_with_an_error(path: Path) -> None:
    direct = sqlite3.connect(path, isolation_level=None)
    direct.execute("BEGIN IMMEDIATE")
    with opened(Where("sqlite", str(path)), timeout=0.05) as store:
        with pytest.raises(StoreError) as caught, store.writing():
            pytest.fail("the block must not begin")
        assert (caught.value.code, caught.value.retryable) == ("store-locked", True)
        assert caught.value.fields["path"] == str(path)
        direct.close()
        assert get(put(store, "k", "x")) == "x"


def test_creating_the_store_waits_for_the_lock(tmp_path: Path) -> None:
    with (
        open(tmp_path / "space.db.lock", "w") as lock_file,
        opened(Where("sqlite", str(tmp_path / "space.db")), timeout=0.05) as store,
    ):
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        for attempt in (lambda: get(store), lambda: put(store, "k", "v")):
            with pytest.raises(StoreError) as caught:
                attempt()
            assert caught.value.code == "store-locked"
        fcntl.flock(lock_file, fcntl.LOCK_UN)
        assert get(store) is None


def in_another_thread(call: Callable[[], object]) -> str:
    codes: list[str] = []
    thread = threading.Thread(target=lambda: codes.append(code_of(call)))
    thread.start()
    thread.join()
    return codes[0]


def test_scrubbing_blocked_by_a_reader_or_writer_is_an_error(address: Where) -> None:
    with opened(address) as holder, opened(address, timeout=address.brief) as store:
        put(holder, "k", "v")
        with holder.reading() as view:
            assert view.values.get("k") == ("v", 1)
            assert in_another_thread(lambda: put(store, "k", "w")) == "fine"  # otherwise the reader would have nothing old to see
            assert in_another_thread(store.scrub) == "store-locked"
        with holder.writing() as change:
            assert change.values.get("k") == ("w", 2)
            assert in_another_thread(store.scrub) == "store-locked"
        store.scrub()
        assert get(store) == "w"


def test_a_store_that_was_moved_away_refuses_writes(path: Path) -> None:
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
    """A directory that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="clia-store-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run as another user, because file permissions do not apply to root."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("state", ["at rest", "with a writer"])
def test_a_read_only_store_is_read_and_not_written(shared: Path, state: str) -> None:
    path = shared / "space.db"
    writer = put(SqliteStore(str(path), "one"), "k", "v")
    if state == "at rest":
        writer.close()
    path.chmod(0o444)
    shared.chmod(0o555)
    ready, finished = FORK.Event(), FORK.Event()
    # In another process: two connections of one process would share their access.
    keeper = FORK.Process(target=keep_open, args=(path, ready, finished))
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
        finished.set()
        shared.chmod(0o755)
        if state == "with a writer":
            keeper.join()


def keep_open(path: Path, ready: Any, finished: Any) -> None:
    path.chmod(0o644)
    path.parent.chmod(0o755)
    store = put(SqliteStore(str(path), "one"), "other", "w")
    for suffix in ("", "-wal", "-shm"):  # they are private until the owner changes the mode
        Path(f"{path}{suffix}").chmod(0o444)
    path.parent.chmod(0o555)
    ready.set()
    finished.wait()
    os._exit(0 if get(store) == "v" else 1)


def test_a_read_only_file_in_a_writable_directory(shared: Path) -> None:
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


def test_an_unreadable_file_is_named(shared: Path) -> None:
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


def test_a_connection_lost_during_commit_is_not_retryable(postgres_address: str) -> None:
    with opened(Where("postgres", postgres_address)) as store:
        put(store, "k", "v")
        with pytest.raises(StoreError) as caught, store.writing() as change:  # noqa: PT012 (the block is what is tried)
            change.values.put("k", "w")
            hang_up(postgres_address)
        assert (caught.value.code, caught.value.retryable) == ("store-unsure", False)
        assert get(store) == "v"


def test_a_rollback_over_a_lost_connection_keeps_the_exception_of_the_block(postgres_address: str) -> None:
    with opened(Where("postgres", postgres_address)) as store:
        with pytest.raises(ZeroDivisionError), store.writing() as change:  # noqa: PT012 (the block is what is tried)
            change.values.put("k", "w")
            hang_up(postgres_address)
            raise ZeroDivisionError
        assert get(store) is None


def test_a_stopped_server_is_an_error_within_the_timeout(postgres_address: str) -> None:
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


def test_a_password_in_a_message_of_the_server_is_redacted(postgres_address: str) -> None:
    with pytest.raises(StoreError) as caught:
        put(PostgresStore(f"{postgres_address} user=hunter2 password=hunter2", "one"), "k", "v")
    assert 'role "***" does not exist' in caught.value.fields["reason"]


def test_a_newer_format_in_postgres_is_not_changed(postgres_address: str) -> None:
    with opened(Where("postgres", postgres_address)) as store:
        put(store, "k", "v")
    with psycopg.connect(postgres_address) as admin:
        admin.execute("UPDATE clia_schema SET version = 99")
    with opened(Where("postgres", postgres_address)) as store:
        with pytest.raises(UnsupportedFormat) as caught:
            get(store)
        assert caught.value.fields["version"] == 99


def test_a_missing_table_is_a_clean_error(postgres_address: str) -> None:
    with opened(Where("postgres", postgres_address)) as store:
        put(store, "k", "v")
        with psycopg.connect(postgres_address) as admin:
            admin.execute("DROP TABLE clia_values")
        with pytest.raises(StoreError) as caught:
            get(store)
        assert caught.value.code == "store-error"
        assert "clia_values" in caught.value.message


def test_a_database_without_unicode_is_refused(postgres_address: str) -> None:
    with psycopg.connect(postgres_address, autocommit=True) as admin:
        name = f"{admin.info.dbname}_ascii"
        admin.execute(f"""CREATE DATABASE "{name}" ENCODING 'SQL_ASCII' TEMPLATE template0""")
    with pytest.raises(StoreError, match="encoding is not UTF8"):
        put(PostgresStore(f"{postgres_address} dbname={name}", "one"), "k", "v")


def test_a_missing_postgres_driver_is_reported_with_the_command_to_install() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from clia.store.postgres_store import PostgresStore\n"
        "from clia.errors import StoreError\n"
        "try: PostgresStore('postgresql://h/x', 'one')\n"
        "except StoreError as err: print(err.code, *err.hints)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "store-extra-missing pip install 'clia-agents[postgres]'\n"
