"""A store that is lost, an older copy or another one is noticed before anything is written, and doctor accepts it on request."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from clia.facade.setup import set_up
from clia.store import private_files
from clia.store.epochs import MARK_FILE
from clia.testing import Crash, components, crash_at
from support import git
from support.space_driver import postgres_url
from support.spaces import BRIEFING, refused, settings, texts
from support.swapped_stores import SwappableSpace, swappable_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import clia

STORE, FORMER = "refs/clia-local/store", "refs/clia/store"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SwappableSpace:
    return swappable_on(request, tmp_path / "repo")


def number(space: clia.Space) -> int:
    row = space.local.store.epoch_row()
    return 0 if row is None else row.number


def test_an_epoch_begins_with_the_first_live_state(place: SwappableSpace) -> None:
    with place.open() as space:
        space.spawn("scout", BRIEFING)
        space.commit("scout", "finding", changes={"a": b"1"})
        space.relations()
        assert number(space) == 0, "git has everything"
        assert STORE not in place.refs()
        space.trace("scout", "console", "one")
        assert number(space) == 1
        assert git("log", "-1", "--format=%s", STORE, cwd=place.root) == "store epoch 1: first use\n"
        space.trace("scout", "console", "two")
        space.log("scout")
        space.relations()
        assert number(space) == 2, "reads and caches do not count"
        assert (place.root / ".git/clia" / MARK_FILE).stat().st_mode & 0o777 == 0o600


def test_a_store_without_live_state_is_rebuilt_from_git_without_a_question(place: SwappableSpace) -> None:
    with place.open() as space:
        space.spawn("scout", BRIEFING)
        space.spawn_from("helper", BRIEFING, "scout")
        edges = space.relations()
    place.lose()
    with place.open() as space:
        assert space.doctor() == []
        space.commit("scout", "finding", changes={"a": b"1"})
        assert space.relations() == edges


def worked(place: SwappableSpace) -> None:
    with place.open() as space:
        space.spawn("scout", BRIEFING)
        space.define("go-on", 'def main(input):\n    return request("human", {"question": "Go?"})\n')
        space.trace("scout", "console", "one")
        space.commit_with_trace("scout", "finding", changes={"a": b"1"})
        space.trace("scout", "console", "two")
    place.save("older")
    with place.open() as space:
        space.trace("scout", "console", "three")


@pytest.mark.parametrize("code", ["store-lost", "store-older"])
def test_a_store_with_a_problem_is_read_and_not_written(place: SwappableSpace, code: str) -> None:
    worked(place)
    place.lose() if code == "store-lost" else place.put_back("older")
    before = place.refs()
    with place.open() as space:
        verbs: dict[str, Callable[[], object]] = {
            "trace": lambda: space.trace("scout", "console", "x"),
            "commit": lambda: space.commit("scout", "finding", changes={"b": b"1"}),
            "commit_with_trace": lambda: space.commit_with_trace("scout", "finding", changes={"b": b"1"}),
            "spawn": lambda: space.spawn("other", BRIEFING),
            "start": lambda: space.start("scout", "go-on"),
            "ask": lambda: space.ask("scout", {"question": "?"}),
            "define": lambda: space.define("other", "def main(input):\n    return 1\n"),
            "relate": lambda: space.relate("scout", "reviews", "scout"),
            "archive": lambda: space.archive("scout"),
            "register_type": lambda: space.register_type("note", "agent-commit"),
            "land": lambda: space.land("scout", "main"),
            "pending": space.pending,
        }
        for name, verb in verbs.items():
            error = refused(code, verb)
            assert any("doctor --repair" in hint for hint in error.hints), name
        assert place.refs() == before
        assert [commit.kind for commit in space.log("scout")] == ["finding", "spawn"]
        assert space.relations() == []
        assert [(ailment.code, ailment.repaired) for ailment in space.doctor()] == [(code, False)]
        assert [(ailment.code, ailment.repaired) for ailment in space.doctor(repair=True)] == [(code, True)]
        assert space.doctor() == []
        for name in ("trace", "commit_with_trace", "start", "define", "pending"):
            verbs[name]()
        assert space.verify().clean


def test_a_lost_write_ahead_log_is_noticed(tmp_path: Path) -> None:
    place = SwappableSpace(tmp_path / "repo", None)
    worked(place)
    with place.open() as space:
        space.trace("scout", "console", "four")
        assert [file.name for file in place.files.all()] == ["space.db", "space.db-shm", "space.db-wal", "space.db.lock"]
        shutil.copy(place.root / ".git/clia/space.db", tmp_path)
    place.lose()
    shutil.copy(tmp_path / "space.db", place.root / ".git/clia")
    with place.open() as space:
        assert [ailment.code for ailment in space.doctor()] == ["store-older"]
        refused("store-older", lambda: space.trace("scout", "console", "five"))


def test_entries_that_a_commit_has_are_not_pending_again_in_an_older_store(place: SwappableSpace) -> None:
    worked(place)
    with place.open() as space:
        cid = space.commit_with_trace("scout", "finding", changes={"a": b"2"})
        assert texts(space.trace_pending("scout")) == []
    place.put_back("older")
    with place.open() as space:
        assert texts(space.trace_pending("scout")) == ["two"]
        space.doctor(repair=True)
        assert texts(space.trace_pending("scout")) == []
        space.trace("scout", "console", "four")
        space.commit_with_trace("scout", "finding", changes={"a": b"3"})
        bound = {trace.trace.commit: texts(trace.trace.entries) for trace in space.session_traces("scout")}
        assert (sorted(bound.values()), bound[cid]) == ([["four"], ["one"], ["two", "three"]], ["two", "three"])


def test_an_agent_that_is_held_does_not_stop_the_repair_of_a_store(place: SwappableSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    worked(place)
    with place.open() as space:
        space.spawn("archer", BRIEFING)
        space.commit_with_trace("scout", "finding", changes={"a": b"2"})
    place.put_back("older")
    monkeypatch.setattr(private_files, "LOCK_SECONDS", 0.01)
    with place.open() as other, components(other).core.locks.hold("archer"), place.open() as space:
        assert [ailment.code for ailment in space.doctor(repair=True)] == ["store-older", "agent-held"]
        assert (texts(space.trace_pending("scout")), space.doctor()) == ([], [])


def test_the_newer_store_can_be_put_back(place: SwappableSpace) -> None:
    worked(place)
    place.save("newer")
    place.put_back("older")
    with place.open() as space:
        refused("store-older", lambda: space.trace("scout", "console", "x"))
    place.put_back("newer")
    with place.open() as space:
        space.trace("scout", "console", "four")
        assert texts(space.trace_pending("scout")) == ["two", "three", "four"]


def test_a_copy_from_before_a_repair_is_older_whatever_its_count(place: SwappableSpace) -> None:
    worked(place)
    with place.open() as space:
        for word in "abcdef":
            space.trace("scout", "console", word)
    place.save("longer")
    place.put_back("older")
    with place.open() as space:
        space.doctor(repair=True)
        space.trace("scout", "console", "after the repair")
    place.put_back("longer")
    with place.open() as space:
        refused("store-older", lambda: space.trace("scout", "console", "x"))


def test_a_store_that_is_replaced_under_an_open_space_is_noticed(place: SwappableSpace) -> None:
    worked(place)
    with place.open() as space:
        space.trace("scout", "console", "four")
        place.put_back("older")
        refused("store-older", lambda: space.trace("scout", "console", "x"))
        refused("store-older", lambda: space.commit_with_trace("scout", "finding", changes={"b": b"1"}))
        with place.open() as other:
            other.doctor(repair=True)
        space.trace("scout", "console", "on")
        assert texts(space.trace_pending("scout")) == ["two", "on"]


def test_the_store_of_another_repository_is_refused(place: SwappableSpace, tmp_path: Path) -> None:
    worked(place)
    shutil.copytree(place.root, tmp_path / "copy")
    with place.open() as space:
        refs = git("rev-parse", STORE, cwd=place.root)
    other = SwappableSpace(tmp_path / "copy", place.address)
    git("update-ref", "-d", STORE, cwd=other.root)
    (other.root / ".git/clia" / MARK_FILE).unlink()
    with other.open() as space:
        space.trace("scout", "console", "its epoch is named again: it has the commit")
    assert git("rev-parse", STORE, cwd=other.root) == refs


def test_a_repository_that_is_older_than_its_store_is_noticed(place: SwappableSpace, tmp_path: Path) -> None:
    """It lacks the commit that names the epoch."""
    with place.open() as space:
        space.spawn("scout", BRIEFING)
    shutil.copytree(place.root, tmp_path / "old")
    with place.open() as space:
        space.trace("scout", "console", "one")
    for file in place.files.all():
        shutil.copy(file, tmp_path / "old/.git/clia")
    with SwappableSpace(tmp_path / "old", place.address).open() as space:
        assert [ailment.code for ailment in space.doctor()] == ["store-other"]
        refused("store-other", lambda: space.trace("scout", "console", "two"))
        space.doctor(repair=True)
        space.trace("scout", "console", "two")


@pytest.mark.parametrize("mark", ["", "x", "0" * 40 + " 9\n", "é" * 62], ids=["empty", "short", "other", "long"])
def test_a_damaged_mark_is_ignored(place: SwappableSpace, mark: str) -> None:
    worked(place)
    (place.root / ".git/clia" / MARK_FILE).write_text(mark)
    with place.open() as space:
        assert space.doctor() == []
        space.trace("scout", "console", "four")
        row = space.local.store.epoch_row()
        assert row is not None
        assert (place.root / ".git/clia" / MARK_FILE).read_bytes().startswith(b"%s %020d\n" % (row.epoch.encode(), row.number))
    with place.open() as space:
        assert space.doctor() == []


def test_an_epoch_of_an_earlier_version_is_read_and_continued_under_its_new_name(place: SwappableSpace) -> None:
    worked(place)
    git("update-ref", FORMER, STORE, cwd=place.root)
    git("update-ref", "-d", STORE, cwd=place.root)
    before = git("rev-parse", FORMER, cwd=place.root)
    with place.open() as space:
        space.trace("scout", "console", "four")
    assert STORE not in place.refs()
    place.lose()
    with place.open() as space:
        refused("store-lost", lambda: space.trace("scout", "console", "five"))
        space.doctor(repair=True)
        space.trace("scout", "console", "five")
        assert git("rev-parse", f"{STORE}~1", cwd=place.root) == before
        space.maintain()
        assert FORMER not in place.refs()
        assert space.doctor() == []


def test_an_epoch_that_an_earlier_version_began_later_counts(place: SwappableSpace) -> None:
    worked(place)
    place.put_back("older")
    with place.open() as space:
        space.doctor(repair=True)
    git("update-ref", FORMER, STORE, cwd=place.root)
    git("update-ref", STORE, f"{STORE}~1", cwd=place.root)
    place.put_back("older")
    with place.open() as space:
        refused("store-older", lambda: space.trace("scout", "console", "x"))
        refused("store-older", space.maintain)
        before = place.refs()
        space.doctor(repair=True)
        space.maintain()
    assert FORMER in before
    assert FORMER not in place.refs()
    assert git("log", "--format=%s", STORE, cwd=place.root).splitlines()[-1] == "store epoch 1: first use"
    assert len(git("rev-list", STORE, cwd=place.root).split()) == 3


def test_the_epoch_of_another_clone_under_the_former_name_is_left_alone(place: SwappableSpace) -> None:
    worked(place)
    other = git("commit-tree", "-m", "epoch", "refs/clia/space^{tree}", cwd=place.root).strip()
    git("update-ref", FORMER, other, cwd=place.root)
    with place.open() as space:
        assert space.doctor() == []
        space.maintain()
        space.trace("scout", "console", "four")
    assert git("rev-parse", FORMER, cwd=place.root).strip() == other


def test_an_epoch_whose_ref_was_not_written_is_completed(place: SwappableSpace) -> None:
    with place.open() as space:
        space.spawn("scout", BRIEFING)
    with place.open(reached=crash_at("ref-locked")) as space, pytest.raises(Crash):
        space.trace("scout", "console", "one")
    assert STORE not in place.refs()
    with place.open() as space:
        assert space.doctor() == []
        space.trace("scout", "console", "two")
        assert texts(space.trace_pending("scout")) == ["one", "two"]
    assert STORE in place.refs()


def test_a_repair_that_is_killed_can_be_repeated(place: SwappableSpace) -> None:
    worked(place)
    place.lose()
    with place.open(reached=crash_at("ref-locked")) as space, pytest.raises(Crash):
        space.doctor(repair=True)
    with place.open() as space:
        space.doctor(repair=True)
        assert space.doctor() == []
        space.trace("scout", "console", "on")
    chain = git("log", "--format=%s", STORE, cwd=place.root).splitlines()
    assert chain[-1] == "store epoch 1: first use"
    assert chain[0].startswith("store epoch 2: ")


def test_the_move_to_a_server_keeps_the_epoch(tmp_path: Path, postgres_address: str) -> None:
    place = SwappableSpace(tmp_path / "repo", None)
    worked(place)
    url = postgres_url(postgres_address)
    with place.open() as space:
        before = space.local.store.epoch_row()
    with set_up(place.root, settings=settings(store=url), keep_store=True).space as space:
        assert space.local.store.epoch_row() == before
        assert space.doctor() == []
        space.trace("scout", "console", "four")
        assert number(space) == (before.number if before else 0) + 1
