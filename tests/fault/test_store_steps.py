"""Stores of an older clia: migrated once, usable by old code at the same time, and intact after a kill."""

from __future__ import annotations

import fcntl
import signal
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from clia.errors import UnsupportedFormat
from clia.store import sql_schema as schema
from clia.store.interface import Edge
from clia.store.postgres_store import PostgresStore
from clia.store.sqlite_store import SqliteStore
from support.crashes import FORK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clia.store.sql_store import SqlStore

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
PROCESSES = 4

# Exactly what the release before wrote and ran; do not change it with the code.
FIRST_SCHEMA = """
CREATE TABLE clia_streams (space {text} NOT NULL, stream {text} NOT NULL, last BIGINT NOT NULL,
   PRIMARY KEY (space, stream)){packed};
CREATE TABLE clia_entries (space {text} NOT NULL, stream {text} NOT NULL, position BIGINT NOT NULL, body {text} NOT NULL,
   PRIMARY KEY (space, stream, position));
CREATE TABLE clia_values (space {text} NOT NULL, key {text} NOT NULL, version BIGINT NOT NULL, value {text},
   PRIMARY KEY (space, key));
CREATE TABLE clia_edges (space {text} NOT NULL, src {text} NOT NULL, kind {text} NOT NULL, dst {text} NOT NULL,
   origin {text} NOT NULL, source {text} NOT NULL, PRIMARY KEY (space, src, kind, dst, origin, source)){packed};
CREATE INDEX clia_edges_back ON clia_edges (space, dst, kind, src, origin);
CREATE INDEX clia_edges_source ON clia_edges (space, source);
CREATE TABLE clia_retractions (space {text} NOT NULL, origin {text} NOT NULL, source {text} NOT NULL,
   PRIMARY KEY (space, origin, source)){packed};
CREATE INDEX clia_retractions_source ON clia_retractions (space, source)
"""
MOVE_END = (
    "INSERT INTO clia_streams VALUES (?, ?, ?)"
    " ON CONFLICT (space, stream) DO UPDATE SET last = clia_streams.last + excluded.last RETURNING last"
)
APPEND = "INSERT INTO clia_entries VALUES (?, ?, ?, ?)"
PUT = (
    "INSERT INTO clia_values VALUES (?, ?, ?, ?)"
    " ON CONFLICT (space, key) DO UPDATE SET version = excluded.version, value = excluded.value"
)
PUT_NEXT = (
    "INSERT INTO clia_values VALUES (?, ?, 1, ?)"
    " ON CONFLICT (space, key) DO UPDATE SET version = clia_values.version + 1, value = excluded.value RETURNING version"
)
SCAN = "SELECT key, value FROM clia_values WHERE space = ? AND key BETWEEN ? AND ? AND value IS NOT NULL ORDER BY key"
ADD = "INSERT INTO clia_edges VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
WORDS = {"sqlite": {"text": "TEXT", "packed": " WITHOUT ROWID"}, "postgres": {"text": 'TEXT COLLATE "C"', "packed": ""}}
KNOWN_THEN = 1
DATA = [("k1", 1), ("k2", {"a": [2]})]


class Old(NamedTuple):
    """A database of the release before, and the statements that it ran."""

    kind: str
    address: str

    def open(self, timeout: float = 30.0) -> SqlStore:
        if self.kind == "sqlite":
            return SqliteStore(self.address, "one", timeout=timeout)
        return PostgresStore(self.address, "one", timeout=timeout)

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A transaction of old code."""
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.address)) as connection, connection:
                yield connection
        else:
            with psycopg.connect(self.address) as server:
                yield server

    def run(self, connection: Any, sql: str, *words: Any) -> Any:
        return connection.execute(sql if self.kind == "sqlite" else sql.replace("?", "%s"), words)

    def make(self) -> None:
        with self.connected() as connection:
            if self.kind == "sqlite":
                connection.execute("PRAGMA journal_mode = WAL")
            else:
                connection.execute("CREATE TABLE clia_schema (version INTEGER NOT NULL)")
            words = (
                {"text": "TEXT", "packed": " WITHOUT ROWID"}
                if self.kind == "sqlite"
                else {"text": 'TEXT COLLATE "C"', "packed": ""}
            )
            for statement in FIRST_SCHEMA.split(";"):
                connection.execute(statement.format(**words))
            connection.execute("PRAGMA user_version = 1" if self.kind == "sqlite" else "INSERT INTO clia_schema VALUES (1)")
            self.run(connection, PUT, "one", "gone", 3, None)
            self.run(connection, PUT_NEXT, "one", "k1", "1")
            self.run(connection, PUT_NEXT, "one", "k2", '{"a":[2]}')
            self.run(connection, MOVE_END, "one", "s", 1)
            self.run(connection, APPEND, "one", "s", 1, '"first"')
            self.run(connection, ADD, "one", *"abcde")

    def mark(self) -> int:
        """The version that old code checks first; it refuses versions above ``KNOWN_THEN``."""
        with self.connected() as connection:
            sql = "PRAGMA user_version" if self.kind == "sqlite" else "SELECT version FROM clia_schema"
            return int(connection.execute(sql).fetchone()[0])

    def steps(self) -> list[int] | None:
        """The applied steps; None if there is no record of steps."""
        tables, indexes = "SELECT name FROM sqlite_master", "SELECT name FROM sqlite_master"
        if self.kind == "postgres":
            tables = "SELECT tablename FROM pg_tables WHERE schemaname = ANY (current_schemas(false))"
            indexes = "SELECT indexname FROM pg_indexes WHERE schemaname = ANY (current_schemas(false))"
        with self.connected() as connection:
            has_steps = ("clia_steps",) in connection.execute(tables).fetchall()
            assert has_steps == (("clia_values_live",) in connection.execute(indexes).fetchall())
            return [number for (number,) in connection.execute("SELECT number FROM clia_steps")] if has_steps else None


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    address = str(tmp_path / "space.db") if request.param == "sqlite" else request.getfixturevalue("postgres_address")
    old_store = Old(request.param, address)
    old_store.make()
    return old_store


def write(old: Old, number: int, go: Any) -> None:
    go.wait()
    with closing(old.open()) as store, store.writing() as change:
        change.streams.append("s", [number])


def test_concurrent_processes_migrate_a_store_once_and_keep_its_content(old: Old) -> None:
    go = FORK.Barrier(PROCESSES)
    writers = [FORK.Process(target=write, args=(old, number, go)) for number in range(PROCESSES)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * PROCESSES
    assert old.steps() == [step.number for step in schema.STEPS]
    with closing(old.open()) as store, store.writing() as change:
        assert change.values.scan("") == DATA
        assert change.values.put("gone", "back", expected=0) == 4
        assert sorted(str(entry.body) for entry in change.streams.read("s")) == ["0", "1", "2", "3", "first"]
        assert change.edges.standing() == [Edge(*"abcde")]


def test_old_code_works_on_a_migrated_store(old: Old) -> None:
    with closing(old.open()) as store:
        with store.writing() as change:
            change.values.put("new", 1)
        assert old.steps()
        assert old.mark() <= KNOWN_THEN
        with old.connected() as connection:
            assert old.run(connection, PUT_NEXT, "one", "k1", '"old"').fetchone() == (2,)
            old.run(connection, PUT, "one", "k2", 1, None)
            assert old.run(connection, MOVE_END, "one", "s", 1).fetchone() == (2,)
            old.run(connection, APPEND, "one", "s", 2, '"second"')
            rows = old.run(connection, SCAN, "one", "", "\U0010ffff").fetchall()
            assert rows == [("k1", '"old"'), ("new", "1")]
        assert store.scan("") == [("k1", "old"), ("new", 1)]
        with store.reading() as view:
            assert [entry.body for entry in view.streams.read("s")] == ["first", "second"]


def stop_inside(old: Old, ready: Any) -> None:
    taking = schema.statements_of

    def hanging(step: schema.MigrationStep) -> Iterator[str]:
        yield from taking(step)
        ready.set()
        signal.pause()

    schema.statements_of = hanging  # type: ignore[assignment]  # in a process that was forked for this
    write(old, 0, ready)


class _Ready(NamedTuple):
    """Set when this point is reached."""

    event: Any

    def wait(self) -> None:
        pass

    def set(self) -> None:
        self.event.set()


def test_a_kill_during_a_step_leaves_the_store_unchanged(old: Old) -> None:
    ready = FORK.Event()
    writer = FORK.Process(target=stop_inside, args=(old, _Ready(ready)))
    writer.start()
    assert ready.wait(60)
    assert old.steps() is None
    writer.kill()
    writer.join()
    assert old.steps() is None
    with closing(old.open()) as store, store.writing() as change:
        assert change.values.scan("") == DATA
        assert change.streams.end("s") == 1
    assert old.steps() == [step.number for step in schema.STEPS]


def test_steps_of_newer_code_are_accepted_unless_they_are_marked_as_breaking(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = [schema.MigrationStep(98, ("CREATE TABLE clia_more (x {text})",)), schema.MigrationStep(99, (), min_known=99)]
    for steps in (newer[:1], newer):
        with monkeypatch.context() as patch:
            patch.setattr(schema, "STEPS", (*schema.STEPS, *steps))
            write(old, 0, _Ready(None))
        if len(steps) == 1:
            assert old.steps() == [2, 98]
            write(old, 1, _Ready(None))
            assert old.mark() <= KNOWN_THEN
    with closing(old.open()) as store, pytest.raises(UnsupportedFormat) as caught:
        store.get("k1")
    assert (caught.value.fields["version"], caught.value.fields["known"]) == (99, schema.KNOWN)


def test_a_new_store_has_every_step_and_can_be_used_by_old_code(tmp_path: Path, postgres_address: str) -> None:
    for new_store in (Old("sqlite", str(tmp_path / "space.db")), Old("postgres", postgres_address)):
        with closing(new_store.open()) as store:
            assert store.scan("") == []
        assert new_store.steps() == [step.number for step in schema.STEPS]
        assert new_store.mark() == 1


def test_live_values_are_found_without_scanning_deleted_ones(tmp_path: Path) -> None:
    new_store = Old("sqlite", str(tmp_path / "space.db"))
    with closing(new_store.open()) as store:
        assert store.scan("") == []
    with new_store.connected() as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {SCAN}", ("one", "a", "b")).fetchall()
    assert "clia_values_live" in str(plan)


def test_an_old_read_only_file_is_read_without_a_migration(tmp_path: Path) -> None:
    old = Old("sqlite", str(tmp_path / "space.db"))
    old.make()
    with open(f"{old.address}.lock", "w") as lock, closing(old.open()) as store:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert store.scan("") == DATA
    assert old.steps() is None


def test_a_step_does_not_wait_long_for_a_writer_and_is_applied_the_next_time(postgres_address: str) -> None:
    """A process that starts during a slow old writer uses the store without the step and does not block others."""
    old = Old("postgres", postgres_address)
    old.make()
    with old.connected() as connection:
        old.run(connection, PUT_NEXT, "other", "k", "1")
        with closing(old.open(timeout=3.0)) as store, store.writing() as change:
            change.values.put("k1", "new")
    assert old.steps() is None
    with closing(old.open()) as store:
        assert store.get("k1") == ("new", 2)
    assert old.steps() == [step.number for step in schema.STEPS]


def test_a_role_that_cannot_create_tables_uses_the_store_without_the_step(postgres_address: str) -> None:
    old = Old("postgres", postgres_address)
    old.make()
    with psycopg.connect(postgres_address, autocommit=True) as admin:
        (schema_name,) = admin.execute("SELECT current_schema()").fetchone() or ("",)
        guest = f"{admin.info.dbname}_{schema_name}"
        for sql in (
            "CREATE ROLE {guest} LOGIN",
            "GRANT USAGE ON SCHEMA {schema} TO {guest}",
            "GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {guest}",
        ):
            words = {"guest": psycopg.sql.Identifier(guest), "schema": psycopg.sql.Identifier(schema_name)}
            admin.execute(psycopg.sql.SQL(sql).format(**words))
    with closing(PostgresStore(f"{postgres_address} user={guest}", "one")) as store, store.writing() as change:
        assert change.values.put("k1", "new") == 2
    assert old.steps() is None
