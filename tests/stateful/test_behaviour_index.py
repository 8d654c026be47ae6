"""The index of what was observed: read bit by bit, all at once, by several at a time, or with the store lost, it says the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.behaviours.index import ObservationIndex
from support import git
from support.behaviour_deaths import as_text, die_at_each_step, read_at_once
from support.behaviour_walks import Walk, observed, rebuilt, started
from support.session_driver import apart
from support.session_spaces import Place
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from pathlib import Path

SEEDS, STEPS = 4, 60
RICH = 3
"""The seed of a walk in which something of every sort was observed."""


def test_what_is_read_bit_by_bit_is_what_is_read_all_at_once_and_with_the_store_lost(tmp_path: Path, soak: bool) -> None:
    """Whatever agents, people and plain git did, in any order, with questions in between."""
    done: set[str] = set()
    for seed in range(200 if soak else SEEDS):
        root = tmp_path / f"walk-{seed}"
        walk = Walk(root, seed)
        for number in range(STEPS):
            walk.step()
            if number % 3 == 0:
                found = observed(walk.space)
                assert not soak or rebuilt(walk.space) == found, (seed, number, walk.done)
        done.update(walk.done)
        found = observed(walk.space)
        assert rebuilt(walk.space) == found, (seed, walk.done)
        walk.space.close()
        Place(root).lose_store()
        with clia.open(root, settings=settings()) as space:
            assert observed(space) == found, (seed, walk.done)
    assert len(done) == 10, done  # every sort of step was taken


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A space after a long walk; nobody changes it."""
    root = tmp_path_factory.mktemp("walked") / "made"
    walk = Walk(root, RICH)
    for _ in range(STEPS):
        walk.step()
    walk.space.close()
    return root


def _told(root: Path) -> tuple[Any, str]:
    with clia.open(root, settings=settings()) as space:
        return observed(space), as_text(space)


def test_the_walk_shows_what_only_events_and_reverts_say(walked: Path) -> None:
    """Else the tests that walk would show little."""
    stats, _, gaps = _told(walked)[0]
    assert gaps == 0
    assert sum(each.reverted for each in stats) > 0
    assert sum(each.merges.get("refused", 0) for each in stats) > 0
    assert {"finished", "failed"} <= {status for each in stats for status in each.sessions}


def test_a_clone_that_has_adopted_all_counts_the_same(walked: Path, tmp_path: Path) -> None:
    git("clone", "-q", f"file://{walked}", "clone", cwd=tmp_path)
    with clia.init(tmp_path / "clone", settings=settings()) as space:
        space.adopt()
        assert as_text(space) == _told(walked)[1]
        assert space.observation_gaps() == 0


def test_a_shallow_clone_tells_its_gaps_and_once_whole_counts_the_same(walked: Path, tmp_path: Path) -> None:
    """In the process that has it open all the while; what was lacking is read as soon as it is there, and not before."""
    git("clone", "-q", "--depth", "2", "--no-single-branch", f"file://{walked}", "clone", cwd=tmp_path)
    with clia.init(tmp_path / "clone", settings=settings()) as space:
        space.adopt()
        found = observed(space)
        whole = {each.cid: each for each in _told(walked)[0][0]}
        assert space.observation_gaps() > 0
        assert any(sum(each.commits.values()) < sum(whole[each.cid].commits.values()) for each in found[0])
        for each in found[0]:  # in part, and nothing made up
            assert all(count <= whole[each.cid].commits[kind] for kind, count in each.commits.items())
            assert all(count <= whole[each.cid].merges[how] for how, count in each.merges.items())
            assert each.landed <= whole[each.cid].landed
        assert rebuilt(space) == found == observed(space)
        git("fetch", "-q", "--unshallow", cwd=tmp_path / "clone")
        assert as_text(space) == _told(walked)[1]
        assert space.observation_gaps() == 0


def test_a_clone_without_events_and_notes_counts_what_is_there(walked: Path, tmp_path: Path) -> None:
    """Branches alone: what commits say is told; what only events and notes say goes with them, and comes with them."""
    clone = tmp_path / "clone"
    git("clone", "-q", f"file://{walked}", "clone", cwd=tmp_path)
    with clia.init(clone, settings=settings()) as space:
        space.behaviour_stats()
        whole = {each.cid: each for each in _told(walked)[0][0]}
        for ref in git("for-each-ref", "--format=%(refname)", "refs/clia/events", "refs/notes/clia", cwd=clone).split():
            git("update-ref", "-d", ref, cwd=clone)
        for each in (found := observed(space))[0]:
            assert (each.outcomes, each.commits) == (whole[each.cid].outcomes, whole[each.cid].commits)
            assert (each.sessions, each.landed, each.reverted, each.trace, each.tokens) == ({}, 0, 0, {}, {})
        assert rebuilt(space) == found
        git("fetch", "-q", "origin", "refs/clia/*:refs/clia/*", "refs/notes/clia/*:refs/notes/clia/*", cwd=clone)
        assert as_text(space) == _told(walked)[1]


def test_an_answer_is_not_what_another_process_has_left_of_the_index(walked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one begins to rebuild right after this one has caught up."""
    expected = _told(walked)
    caught_up = ObservationIndex.catch_up
    gone: list[str] = []

    def overtaken(self: ObservationIndex, progress: Any = None) -> Any:
        found = caught_up(self, progress)
        if not gone:
            with self._core.store.writing() as transaction:
                gone.extend(key for key, _ in transaction.values.scan("behaviours/"))
                for key in gone:
                    transaction.values.delete(key)
        return found

    monkeypatch.setattr(ObservationIndex, "catch_up", overtaken)
    assert _told(walked) == expected
    assert gone


def test_what_another_process_has_read_meanwhile_is_not_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one reads on between this one's reading on and its writing."""
    write = ObservationIndex.write
    others: list[Any] = []

    def overtaken(self: ObservationIndex, found: Any) -> None:
        if not others:
            others.append("at work")
            others.append(_told(tmp_path / "made")[0])
        write(self, found)

    with _at_work(tmp_path / "made") as space:
        space.behaviour_stats()
        space.commit("ada", "test", changes={"x": b"2"})
        monkeypatch.setattr(ObservationIndex, "write", overtaken)
        assert space.behaviour_stats("review")[0].commits == {"test": 2}
        assert others == ["at work", observed(space)]
        assert rebuilt(space) == observed(space)


def _at_work(root: Path) -> clia.Space:
    """An agent in the middle of a session, with one commit in it."""
    space = started(root)
    space.spawn("ada", BRIEFING)
    space.start("ada", "review", 1)
    space.commit("ada", "test", changes={"x": b"1"})
    return space


def test_of_a_merge_whose_work_is_cut_off_nothing_is_told_until_it_is_there(tmp_path: Path) -> None:
    """Of the agent that merged everything is in the clone, of the work that it took in only the end."""
    with _at_work(tmp_path / "made") as space:
        for number in range(6):
            space.commit("ada", "test", changes={"x": b"more %d" % number})
        space.spawn("bob", BRIEFING)
        space.merge("bob", "ada")
        whole = as_text(space)
        assert space.behaviour_stats("review")[0].merges == {"merged": 1}
    git("clone", "-q", "--depth", "3", "--no-single-branch", f"file://{tmp_path / 'made'}", "clone", cwd=tmp_path)
    with clia.init(tmp_path / "clone", settings=settings()) as space:
        assert space.behaviour_stats("review")[0].merges == {}
        assert space.observation_gaps() == 2  # the merge, and the rest of the other agent's branch
        git("fetch", "-q", "--unshallow", cwd=tmp_path / "clone")
        assert as_text(space) == whole


def test_a_process_killed_at_any_step_of_a_rebuild_leaves_the_rest_to_the_next(walked: Path) -> None:
    assert int(apart(die_at_each_step, str(walked), _told(walked)[1])) > 5


def test_processes_that_read_and_rebuild_at_once_count_everything_once(walked: Path) -> None:
    apart(read_at_once, str(walked), _told(walked)[1])
