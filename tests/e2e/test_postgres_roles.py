"""PostgreSQL roles with few privileges: a missing privilege is reported in one line, with the role that has it."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

import clia
from clia.errors import StoreError
from clia.store.interface import GateFacts
from clia.store.postgres_store import PostgresStore
from clia.store.procrastinate_jobs import Jobs
from support import postgres
from support.commands import Commands
from support.session_spaces import with_agents
from support.space_driver import postgres_url
from support.spaces import refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = ["clia_entries", "clia_values"]
DATA = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"


class Role(NamedTuple):
    """A role that may only use the schema of a test."""

    name: str
    schema: str
    owner: str  # the address of the schema's owner

    @property
    def address(self) -> str:
        return f"{self.owner} user={self.name}"

    @property
    def url(self) -> str:
        return postgres_url(self.owner).replace("//clia@", f"//{self.name}@")

    def grant(self, privileges: str) -> None:
        with psycopg.connect(self.owner) as admin:
            admin.execute(f'GRANT {privileges} IN SCHEMA "{self.schema}" TO "{self.name}"')


@pytest.fixture
def role(postgres_address: str) -> Iterator[Role]:
    with psycopg.connect(postgres_address, autocommit=True) as admin:
        (schema,) = admin.execute("SELECT current_schema()").fetchone() or ("",)
        name = f"guest_{schema}"
        admin.execute(f'CREATE ROLE "{name}" LOGIN')
        admin.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{name}"')
        yield Role(name, schema, postgres_address)
        admin.execute(f'DROP OWNED BY "{name}"')
        admin.execute(f'DROP ROLE "{name}"')


def files_with(role: Role, text: str) -> int:
    """The number of table files that contain a text."""
    with psycopg.connect(role.owner, autocommit=True) as admin:
        admin.execute("CHECKPOINT")
        names = admin.execute("SELECT pg_relation_filepath(each::regclass) FROM unnest(%s::text[]) each", [TABLES]).fetchall()
    paths = [str(Path(os.environ[postgres.DIRECTORY], "data", *name)) for name in names]
    return len(subprocess.run(["grep", "-laF", text, *paths], capture_output=True, check=False).stdout.splitlines())


def purge_to_the_end(commands: Commands, *words: str) -> str:
    """Purge until no open transaction keeps rows: the server sometimes analyzes the tables by itself."""
    for _ in range(100):
        output = commands(*words)
        if "open transaction" not in output:
            return output
    raise AssertionError("an open transaction keeps the rows forever")


def test_a_purge_by_another_role_reports_that_pages_may_still_have_the_text(role: Role, tmp_path: Path) -> None:
    commands = Commands(tmp_path / "repo")
    with clia.init(commands.root, settings=settings(store=postgres_url(role.owner))) as space:
        with_agents(space, "scout")
        space.trace("scout", "stdout", "the word is hunter2")
    role.grant(DATA)
    purge = ("trace", "purge", "scout", "--text", "hunter2", "--yes", "--store")
    output = commands(*purge, role.url)
    assert output.startswith("removed from 0 traces and 1 pending entry of scout; copies may remain in:\n  PostgreSQL (")
    assert "until the owner of the tables runs VACUUM FULL clia_entries, clia_values, or the same purge\n" in output
    assert files_with(role, "hunter2")
    assert "VACUUM" not in purge_to_the_end(commands, *purge, postgres_url(role.owner))
    assert not files_with(role, "hunter2")


def test_a_purge_reports_rows_that_an_open_transaction_can_still_read(role: Role, tmp_path: Path) -> None:
    commands = Commands(tmp_path / "repo")
    with clia.init(commands.root, settings=settings(store=postgres_url(role.owner))) as space:
        with_agents(space, "scout")
        space.trace("scout", "stdout", "the word is hunter2")
    purge = ("trace", "purge", "scout", "--text", "hunter2", "--yes", "--store", postgres_url(role.owner))
    with psycopg.connect(role.owner) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        assert "because an open transaction may still read them; run the same purge again when it has ended\n" in commands(*purge)
        assert files_with(role, "hunter2")
    purge_to_the_end(commands, *purge)
    assert not files_with(role, "hunter2")


def test_a_role_that_cannot_create_tables_is_told_the_missing_privilege(role: Role) -> None:
    with closing(PostgresStore(role.address, "one")) as store, closing(Jobs(role.address, "task")) as jobs:
        for call in (lambda: store.scan(""), jobs.live):
            error = refused("store-denied", call)
            assert error.fields["reason"] == f"the role {role.name} may not create clia's tables in the schema {role.schema}"
            assert error.hints[0] == f'GRANT USAGE, CREATE ON SCHEMA "{role.schema}" TO "{role.name}"'
            assert "run the same command once with a role that may" in error.hints[1]
        with closing(PostgresStore(role.owner, "one")) as first:
            assert first.scan("") == []
        error = refused("store-denied", lambda: store.scan(""))
        assert error.fields["reason"] == "permission denied for table clia_schema"
        assert error.hints[0].startswith("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES")
        role.grant(DATA)
        assert store.scan("") == []

        def load() -> None:
            with store.writing() as change:
                change.gate.load(GateFacts((), ("peer",), ()))

        assert "may not create" in refused("store-denied", load).message


def test_a_missing_schema_is_reported(postgres_address: str) -> None:
    with closing(PostgresStore(f"{postgres_address} options='-c search_path=nowhere'", "one")) as store:
        assert "in any schema of its search_path" in refused("store-denied", lambda: store.scan("")).message


def test_messages_of_the_server_are_shown_in_one_line(postgres_address: str) -> None:
    addresses = [postgres_address, "postgresql://me@127.0.0.1:1/x", "host=/no/such/folder,127.0.0.1 port=1 user=me dbname=x"]
    with closing(PostgresStore(postgres_address, "one")) as store, psycopg.connect(postgres_address, autocommit=True) as admin:
        assert store.scan("") == []
        admin.execute("ALTER TABLE clia_values RENAME COLUMN value TO other")
        for postgres in (store, *(PostgresStore(address, "one") for address in addresses[1:])):
            with pytest.raises(StoreError) as caught:
                postgres.scan("")
            assert "\n" not in caught.value.message + caught.value.fields["reason"]
            assert "LINE 1" not in caught.value.message
