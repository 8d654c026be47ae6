"""PostgreSQL roles with few rights: what they can do is done, and what they cannot is said in one line, with who can."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

import clia
from support import postgres
from support.commands import Commands
from support.session_spaces import with_agents
from support.space_driver import postgres_url
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = ["clia_entries", "clia_values"]
DATA = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"


class Role(NamedTuple):
    """A role that may look into the schema of a test, and nothing more."""

    name: str
    schema: str
    owner: str  # the address of who owns the schema

    @property
    def address(self) -> str:
        return f"{self.owner} user={self.name}"

    @property
    def url(self) -> str:
        return postgres_url(self.owner).replace("//clia@", f"//{self.name}@")

    def grant(self, what: str) -> None:
        with psycopg.connect(self.owner) as admin:
            admin.execute(f'GRANT {what} IN SCHEMA "{self.schema}" TO "{self.name}"')


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
    """How many of the tables' files hold a text."""
    with psycopg.connect(role.owner, autocommit=True) as admin:
        admin.execute("CHECKPOINT")
        names = admin.execute("SELECT pg_relation_filepath(each::regclass) FROM unnest(%s::text[]) each", [TABLES]).fetchall()
    paths = [str(Path(os.environ[postgres.DIRECTORY], "data", *name)) for name in names]
    return len(subprocess.run(["grep", "-laF", text, *paths], capture_output=True, check=False).stdout.splitlines())


def test_who_does_not_own_the_tables_is_told_that_pages_may_still_hold_what_was_purged(role: Role, tmp_path: Path) -> None:
    here = Commands(tmp_path / "repo")
    with clia.init(here.root, settings=settings(store=postgres_url(role.owner))) as space:
        with_agents(space, "scout")
        space.trace("scout", "stdout", "the word is hunter2")
    role.grant(DATA)
    purge = ("trace", "purge", "scout", "--text", "hunter2", "--yes", "--store")
    said = here(*purge, role.url)
    assert said.startswith("taken out of 0 traces and 1 pending entry of scout; it may still be in:\n  PostgreSQL (")
    assert "until who owns the tables runs VACUUM FULL clia_entries, clia_values, or the same purge\n" in said
    assert files_with(role, "hunter2")
    assert "VACUUM" not in here(*purge, postgres_url(role.owner))
    assert not files_with(role, "hunter2")
