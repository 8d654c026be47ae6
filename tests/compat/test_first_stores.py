"""Spaces from before the stores had migrations: today's code finds everything in them and can continue.

``tests/fixtures/first_stores/make.py`` wrote them, with that code. Do not regenerate them: they are what users
have.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

import clia
from clia.store import sql_schema as schema
from clia.users.fields import DECIDER
from clia.users.service import users_of
from support import git
from support.space_driver import postgres_url
from support.spaces import settings, texts

FIXTURES = Path(__file__).parent.parent / "fixtures/first_stores"
TOKEN = "clia_made-up-for-the-tests"  # noqa: S105  # of a user of these spaces
STEPS = f"SELECT number FROM {schema.STEPS_TABLE} ORDER BY number"  # noqa: S608  # a constant
THREE = "three: Ünïcödé 'quoted' \\ and\nmore"


class OldSpace(NamedTuple):
    """An old space: its repository, and the address of its store if that is a server."""

    root: Path
    address: str | None

    def open(self) -> clia.Space:
        return clia.open(self.root, settings=settings(store=None if self.address is None else postgres_url(self.address)))

    def run(self, script: str) -> None:
        if self.address is None:
            with closing(sqlite3.connect(self.root / ".git/clia/space.db")) as file:
                file.executescript(f"PRAGMA journal_mode = WAL;\n{script}")
        else:
            with psycopg.connect(self.address) as server:
                server.execute(script.encode())

    def steps(self) -> list[int]:
        if self.address is None:
            with closing(sqlite3.connect(self.root / ".git/clia/space.db")) as file:
                return [number for (number,) in file.execute(STEPS)]
        with psycopg.connect(self.address) as server:
            return [number for (number,) in server.execute(STEPS.encode())]


@pytest.fixture(params=["sqlite", "postgres"])
def old_space(request: pytest.FixtureRequest, tmp_path: Path) -> OldSpace:
    source, root = FIXTURES / request.param, tmp_path / "repo"
    git("init", "--quiet", "--initial-branch", "main", str(root), cwd=tmp_path)
    git("fetch", "--quiet", str(source / "space.bundle"), "+refs/*:refs/*", cwd=root)
    (root / ".git/clia").mkdir()
    address = None
    if request.param == "postgres":
        address = request.getfixturevalue("postgres_address")
        (root / ".git/clia/clone").write_text((source / "clone").read_text())
    restored = OldSpace(root, address)
    restored.run((source / "store.sql").read_text(encoding="utf-8"))
    return restored


def test_everything_is_found(old_space: OldSpace) -> None:
    with old_space.open() as space:
        assert space.agents() == ["scout", "scribe", "smith"]
        sessions = {(session.agent, session.id): (session.flow, session.status) for session in space.sessions()}
        assert sessions == {("scout", "1"): ("plan", "suspended"), ("smith", "1"): ("plan", "finished")}
        assert [(request.agent, request.payload["question"]) for request in space.pending()] == [
            ("scout", "Go on?"),
            ("scribe", "Which one?"),
        ]
        assert space.session("smith").result == {"verdict": "approve", "plan": "a plan"}
        assert texts(space.traces.pending("scribe")) == ["two", THREE]
        assert [(edge.src, edge.kind, edge.dst) for edge in space.relations()] == [("smith", "reviews", "scout")]
        (user,) = users_of(space).all()
        assert (user.user.name, user.user.role, [token.label for token in user.tokens]) == ("tess", DECIDER, ["script"])
        assert (space.doctor(), space.verify().findings) == ([], ())


def test_work_continues_and_the_store_is_migrated(old_space: OldSpace) -> None:
    with old_space.open() as space:
        user = users_of(space).by_token(TOKEN)
        assert user is not None
        assert user.name == "tess"
        space.trace("scribe", "console", "four")
        bound = space.traces.of(space.commit_with_trace("scribe", "finding", changes={"b.txt": b"2"}))
        assert bound is not None
        assert texts(bound.entries) == ["two", THREE, "four"]
        assert space.decide("scout", "reject").session.result == {"verdict": "reject", "plan": "a plan"}
        assert space.decide("scribe", "that").session.result == "that"
        assert space.pending() == []
        assert space.start("smith", "plan", {"goal": "again"}).id == "2"
        space.relations.retract("smith", "reviews", "scout")
        assert space.relations() == []
        assert (space.doctor(), space.verify().findings) == ([], ())
    assert old_space.steps() == [step.number for step in schema.STEPS]
