"""Moving from the SQLite store to PostgreSQL: live state moves completely or not at all, and the old store is closed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia
from clia.cli.main import main
from clia.facade.setup import move_store
from clia.store.private_files import FileLocks
from clia.users.fields import DECIDER
from clia.users.service import users_of
from support import Ran, git
from support.crashes import CrashHook, CrashPoint, exit_code_of
from support.git_hubs import bare
from support.session_flows import APPROVAL
from support.session_spaces import with_agents
from support.space_driver import postgres_url
from support.spaces import refused, settings, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIVE = {"sessions": 1, "traces": 5, "users": 1}  # the session has three trace entries


class MovingStore(NamedTuple):
    """A space with live state in its SQLite store, and an empty database."""

    root: Path
    url: str
    token: str

    def open(self, store: str | None = None) -> clia.Space:
        return clia.open(self.root, settings=settings(store=store))

    def run(self, *words: str) -> Ran:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*words, "--json"])
        return Ran(code, out.getvalue(), err.getvalue())

    def move(self, *more: str) -> Any:
        """Run ``clia init --store``; return the reported counts."""
        ran = self.run("init", "--store", self.url, *more, str(self.root))
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.json()["moved"]

    def kept(self) -> str:
        """The store in git's configuration."""
        return git("config", "--default", "", "clia.store", cwd=self.root).strip()

    def killed_at(self, step: str) -> None:
        """Move the store in a process that is killed at this step."""

        def work() -> None:
            point = CrashPoint(step, 1)
            move_store(
                self.root, settings(store=self.url, reached=CrashHook(point, armed=True, actions={point: self.is_locked_out}))
            )

        assert exit_code_of(work) == -9

    def is_locked_out(self) -> None:
        """Check that another process in the clone waits."""
        with FileLocks(str(self.root / ".git/clia/locks")).attempt("@gate") as free:
            assert not free

    def check(self, space: clia.Space, *more: str) -> None:
        """Continue with all live state: decide the question, bind the traces, find the user."""
        assert texts(space.trace_pending("scribe")) == ["two", "three", *more]
        assert space.trace("scribe", "console", "four") == 4 + len(
            more
        )  # the first was bound and removed, and is not counted again
        assert space.decide("scout", "approve").session.result == {"status": "done", "plan": "a plan"}
        cid = space.commit_with_trace("scribe", "finding", changes={"b.txt": b"2"})
        bound = space.trace_for(cid)
        assert bound is not None
        assert texts(bound.entries) == ["two", "three", *more, "four"]
        user = users_of(space).by_token(self.token)
        assert user is not None
        assert user.name == "tess"
        assert space.verify().clean


@pytest.fixture
def scene(tmp_path: Path, postgres_address: str) -> MovingStore:
    root = tmp_path.resolve() / "repo"
    with clia.init(root, settings=settings()) as space:
        with_agents(space, "scout", "scribe", approval=APPROVAL)
        space.trace("scribe", "console", "one")
        space.commit_with_trace("scribe", "finding", changes={"a.txt": b"1"})
        space.start("scout", "approval", {"goal": "tidy"})
        space.resume("scout", "a plan")
        space.trace("scribe", "console", "two")
        space.trace("scribe", "console", "three")
        users = users_of(space)
        users.add("tess", DECIDER)
        token = users.make_token("tess", "script")[0]
    return MovingStore(root, postgres_url(postgres_address), token)


def test_live_state_moves_and_the_file_is_closed(scene: MovingStore) -> None:
    with scene.open() as before:
        assert len(before.pending()) == 1
        with before.local.store.writing() as change:  # white box: the rows that adopting and purging leave
            change.values.put("foreign/theirs", True)
            change.values.put("sweep/scout", ["0" * 40])
        assert scene.move() == LIVE
        # A process with the file open gets an error, whether it reads or writes.
        calls: list[Callable[[], object]] = [before.pending, lambda: before.trace("scribe", "console", "lost")]
        for call in calls:
            assert "restart programs" in refused("store-moved", call).hints[0]
    assert scene.kept() == scene.url
    with scene.open() as space:
        assert [space.local.store.get(key) is None for key in ("foreign/theirs", "sweep/scout")] == [False, False]
        scene.check(space)
    assert scene.move() is None  # a second time there is nothing left to move
    git("config", "--unset", "clia.store", cwd=scene.root)
    refused("store-moved", scene.open)  # and does not silently open an empty store
    assert scene.move() is None
    with scene.open() as space:
        assert (len(space.sessions()), space.doctor()) == (1, [])


@pytest.mark.parametrize("work", [False, True], ids=["as it was", "gone on with"])
def test_after_a_kill_before_the_file_is_closed_everything_is_still_in_sqlite(scene: MovingStore, *, work: bool) -> None:
    scene.killed_at("store-copied")
    assert scene.kept() == ""
    with scene.open() as space:
        assert len(space.pending()) == 1
        if work:
            space.trace("scribe", "console", "more")
    assert scene.move() == {**LIVE, "traces": 5 + work}  # the incomplete copy is replaced
    with scene.open() as space:
        scene.check(space, *["more"] * work)


def test_after_a_kill_before_the_configuration_is_written_the_same_command_completes_the_move(scene: MovingStore) -> None:
    scene.killed_at("store-shut")
    refused("store-moved", scene.open)
    assert scene.move() is None
    with scene.open() as space:
        scene.check(space)


def test_a_database_with_other_state_is_refused_and_nothing_changes(scene: MovingStore) -> None:
    with scene.open(scene.url) as copy:  # another process used CLIA_STORE
        refused("store-lost", lambda: copy.trace("scribe", "console", "theirs"))
        copy.local.store.guard = None  # as an earlier version did
        copy.trace("scribe", "console", "theirs")
    ran = scene.run("init", "--store", scene.url, str(scene.root))
    error = json.loads(ran.err)["error"]
    assert (ran.code, error["code"], error["fields"]["keys"]) == (
        1,
        "state-in-the-way",
        ["redaction/scribe/console", "trace/scribe"],
    )
    assert scene.kept() == ""
    with scene.open(scene.url) as copy:
        assert (texts(copy.trace_pending("scribe")), copy.sessions()) == (["theirs"], [])
    with scene.open() as space:
        scene.check(space)


def test_a_copy_that_was_changed_is_not_replaced(scene: MovingStore) -> None:
    scene.killed_at("store-copied")
    with scene.open(scene.url) as copy:
        copy.trace("scribe", "console", "theirs")
    with scene.open() as space:
        refused("store-older", lambda: space.trace("scribe", "console", "ours"))
        assert json.loads(scene.run("init", "--store", scene.url, str(scene.root)).err)["error"]["code"] == "store-older"
        space.doctor(repair=True)
    assert json.loads(scene.run("init", "--store", scene.url, str(scene.root)).err)["error"]["code"] == "state-in-the-way"
    with scene.open(scene.url) as copy:
        assert texts(copy.trace_pending("scribe")) == ["two", "three", "theirs"]


@pytest.mark.parametrize("at_once", [True, False], ids=["hub and store at once", "the hub was there"])
def test_with_a_hub_another_machine_continues_with_the_moved_store(scene: MovingStore, tmp_path: Path, *, at_once: bool) -> None:
    hub = str(bare(tmp_path.resolve() / "hub.git"))
    if not at_once:
        assert scene.run("init", "--hub", hub, str(scene.root)).code == 0
        scene.killed_at("store-copied")  # equal rows that exist already are accepted
    assert scene.move("--hub", hub) == LIVE
    other_scene = scene._replace(root=tmp_path.resolve() / "other")
    assert other_scene.move("--hub", hub) is None
    with other_scene.open() as space:
        scene.check(space)


def test_naming_another_store_moves_nothing_and_doctor_reports_the_sessions(
    scene: MovingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIA_STORE", scene.url)
    assert scene.run("init", str(scene.root)).json()["moved"] is None
    assert scene.run("doctor", "--path", str(scene.root)).json()["space"]["beside"] == 1
    monkeypatch.setenv("CLIA_STORE", "")  # as if it were not set
    assert scene.run("doctor", "--path", str(scene.root)).json()["space"]["beside"] == 0
    assert scene.move() == LIVE
    assert scene.run("doctor", "--path", str(scene.root)).json()["space"]["beside"] == 0
    with closing(sqlite3.connect(scene.root / ".git/clia/space.db")) as old_store:  # every row is still in the file
        assert old_store.execute(
            "SELECT count(*) FROM moved_clia_values WHERE key LIKE 'live/%' AND value IS NOT NULL"
        ).fetchone() == (1,)


def test_a_hub_takes_over_the_state_and_an_older_program_is_refused(scene: MovingStore, tmp_path: Path) -> None:
    hub = str(bare(tmp_path.resolve() / "hub.git"))
    assert scene.move() == LIVE
    with scene.open() as before, scene.open() as unused:
        assert len(before.pending()) == 1
        assert scene.run("init", "--hub", hub, str(scene.root)).code == 0
        for space in (before, unused):
            for call in (space.pending, partial(space.trace, "scribe", "console", "lost")):
                assert "restart programs" in refused("store-moved", call).hints[0]
        assert scene.run("init", "--hub", hub, str(scene.root)).code == 0  # nothing conflicts
        with scene.open() as space:
            scene.check(space)
        git("config", "--unset", "clia.hub", cwd=scene.root)
        with scene.open() as alone:  # the clone starts with its own store
            assert alone.sessions() == []
            alone.trace("scout", "console", "alone")
            error = json.loads(scene.run("hub", "set", hub, "--path", str(scene.root)).err)["error"]
            assert (error["code"], error["fields"]["keys"]) == ("state-in-the-way", ["trace/scout"])
            assert "clia trace pending" in error["hints"][0]
            alone.commit_with_trace("scout", "finding", changes={"c.txt": b"3"})  # as the hint says
            assert scene.run("hub", "set", hub, "--path", str(scene.root)).code == 0
            refused("store-moved", lambda: alone.trace("scout", "console", "lost"))
        refused("store-moved", lambda: before.trace("scout", "console", "lost"))
