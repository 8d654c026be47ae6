"""Stores that an older clia made: brought forward once, beside old code that goes on, and whole after a kill."""

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

# Word for word what the release before wrote and ran: not to be changed with the code.
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
        """As old code is, in a transaction."""
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
        """What old code looks at before it does anything: it refuses what is above ``KNOWN_THEN``."""
        with self.connected() as connection:
            sql = "PRAGMA user_version" if self.kind == "sqlite" else "SELECT version FROM clia_schema"
            return int(connection.execute(sql).fetchone()[0])

    def steps(self) -> list[int] | None:
        """The steps that were taken; None where there is nothing of them."""
        tables, indexes = "SELECT name FROM sqlite_master", "SELECT name FROM sqlite_master"
        if self.kind == "postgres":
            tables = "SELECT tablename FROM pg_tables WHERE schemaname = ANY (current_schemas(false))"
            indexes = "SELECT indexname FROM pg_indexes WHERE schemaname = ANY (current_schemas(false))"
        with self.connected() as connection:
            made = ("clia_steps",) in connection.execute(tables).fetchall()
            assert made == (("clia_values_live",) in connection.execute(indexes).fetchall())
            return [number for (number,) in connection.execute("SELECT number FROM clia_steps")] if made else None


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    address = str(tmp_path / "space.db") if request.param == "sqlite" else request.getfixturevalue("postgres_address")
    made = Old(request.param, address)
    made.make()
    return made


def write(old: Old, number: int, go: Any) -> None:
    go.wait()
    with closing(old.open()) as store, store.writing() as change:
        change.streams.append("s", [number])


def test_many_bring_a_store_forward_once_and_nothing_in_it_changes(old: Old) -> None:
    go = FORK.Barrier(PROCESSES)
    writers = [FORK.Process(target=write, args=(old, number, go)) for number in range(PROCESSES)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert [each.exitcode for each in writers] == [0] * PROCESSES
    assert old.steps() == [step.number for step in schema.STEPS]
    with closing(old.open()) as store, store.writing() as change:
        assert change.values.scan("") == DATA
        assert change.values.put("gone", "back", expected=0) == 4
        assert sorted(str(each.body) for each in change.streams.read("s")) == ["0", "1", "2", "3", "first"]
        assert change.edges.standing() == [Edge(*"abcde")]


def test_old_code_goes_on_beside_a_store_that_was_brought_forward(old: Old) -> None:
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
            found = old.run(connection, SCAN, "one", "", "\U0010ffff").fetchall()
            assert found == [("k1", '"old"'), ("new", "1")]
        assert store.scan("") == [("k1", "old"), ("new", 1)]
        with store.reading() as view:
            assert [each.body for each in view.streams.read("s")] == ["first", "second"]


def stop_inside(old: Old, ready: Any) -> None:
    taking = schema.statements_of

    def hanging(step: schema.MigrationStep) -> Iterator[str]:
        yield from taking(step)
        ready.set()
        signal.pause()

    schema.statements_of = hanging  # type: ignore[assignment]  # in a process that was forked for it
    write(old, 0, ready)


class _Ready(NamedTuple):
    """Set by whoever has come that far; nobody waits for it before."""

    event: Any

    def wait(self) -> None:
        pass

    def set(self) -> None:
        self.event.set()


def test_whoever_is_killed_in_the_middle_of_a_step_leaves_the_store_as_it_was(old: Old) -> None:
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


def test_steps_of_newer_code_are_no_hindrance_unless_they_say_so(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_new_store_has_taken_every_step_and_may_be_used_by_old_code(tmp_path: Path, postgres_address: str) -> None:
    for made in (Old("sqlite", str(tmp_path / "space.db")), Old("postgres", postgres_address)):
        with closing(made.open()) as store:
            assert store.scan("") == []
        assert made.steps() == [step.number for step in schema.STEPS]
        assert made.mark() == 1


def test_live_values_are_found_without_walking_over_deleted_ones(tmp_path: Path) -> None:
    made = Old("sqlite", str(tmp_path / "space.db"))
    with closing(made.open()) as store:
        assert store.scan("") == []
    with made.connected() as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {SCAN}", ("one", "a", "b")).fetchall()
    assert "clia_values_live" in str(plan)


def test_whoever_only_reads_an_old_file_does_with_it_as_it_is(tmp_path: Path) -> None:
    old = Old("sqlite", str(tmp_path / "space.db"))
    old.make()
    with open(f"{old.address}.lock", "w") as lock, closing(old.open()) as store:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert store.scan("") == DATA
    assert old.steps() is None


def test_a_step_waits_for_no_writer_for_long_and_is_taken_the_next_time(postgres_address: str) -> None:
    """Whoever starts while an old writer is slow works with the store as it is; others are not kept waiting behind it."""
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


def test_whoever_may_not_make_tables_works_with_the_store_as_it_is(postgres_address: str) -> None:
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
