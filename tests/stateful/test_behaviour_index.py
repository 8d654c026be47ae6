"""The observation index is the same whether it is built step by step, at once, concurrently, or after the store is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.behaviours.index import ObservationIndex
from support import git
from support.behaviour_crashes import as_text, crash_at_each_step, read_at_once
from support.behaviour_walks import Walk, observed, rebuilt, started
from support.crashes import apart
from support.session_spaces import SessionSpace
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from pathlib import Path

SEEDS, STEPS = 4, 60
RICH = 3
"""The seed of a walk in which something of every sort was observed."""


def test_an_index_built_step_by_step_equals_one_built_at_once_and_one_after_a_lost_store(tmp_path: Path, soak: bool) -> None:
    """After any sequence of steps by agents, people and plain git, with queries in between."""
    steps_taken: set[str] = set()
    for seed in range(200 if soak else SEEDS):
        root = tmp_path / f"walk-{seed}"
        walk = Walk(root, seed)
        for number in range(STEPS):
            walk.step()
            if number % 3 == 0:
                observations = observed(walk.space)
                assert not soak or rebuilt(walk.space) == observations, (seed, number, walk.done)
        steps_taken.update(walk.done)
        observations = observed(walk.space)
        assert rebuilt(walk.space) == observations, (seed, walk.done)
        walk.space.close()
        SessionSpace(root).lose_store()
        with clia.open(root, settings=settings()) as space:
            assert observed(space) == observations, (seed, walk.done)
    assert len(steps_taken) == 10, steps_taken  # every kind of step was taken


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A space after a long walk. Tests must not change it."""
    root = tmp_path_factory.mktemp("walked") / "made"
    walk = Walk(root, RICH)
    for _ in range(STEPS):
        walk.step()
    walk.space.close()
    return root


def _observed_at(root: Path) -> tuple[Any, str]:
    with clia.open(root, settings=settings()) as space:
        return observed(space), as_text(space)


def test_the_walk_includes_events_and_reverts(walked: Path) -> None:
    """Otherwise the other tests would prove little."""
    stats, _, gaps = _observed_at(walked)[0]
    assert gaps == 0
    assert sum(stat.reverted for stat in stats) > 0
    assert sum(stat.merges.get("refused", 0) for stat in stats) > 0
    assert {"finished", "failed"} <= {status for stat in stats for status in stat.sessions}


def test_a_clone_with_all_agents_adopted_has_the_same_counts(walked: Path, tmp_path: Path) -> None:
    git("clone", "-q", f"file://{walked}", "clone", cwd=tmp_path)
    with clia.init(tmp_path / "clone", settings=settings()) as space:
        space.adopt()
        assert as_text(space) == _observed_at(walked)[1]
        assert space.behaviours.gaps() == 0


def test_a_shallow_clone_reports_its_gaps_and_has_the_same_counts_once_complete(walked: Path, tmp_path: Path) -> None:
    """In a process that keeps the space open: missing history is read as soon as it arrives."""
    git("clone", "-q", "--depth", "2", "--no-single-branch", f"file://{walked}", "clone", cwd=tmp_path)
    with clia.init(tmp_path / "clone", settings=settings()) as space:
        space.adopt()
        observations = observed(space)
        complete = {stat.cid: stat for stat in _observed_at(walked)[0][0]}
        assert space.behaviours.gaps() > 0
        assert any(sum(stat.commits.values()) < sum(complete[stat.cid].commits.values()) for stat in observations[0])
        for stat in observations[0]:  # a part of the counts, and no others
            assert all(count <= complete[stat.cid].commits[kind] for kind, count in stat.commits.items())
            assert all(count <= complete[stat.cid].merges[outcome] for outcome, count in stat.merges.items())
            assert stat.landed <= complete[stat.cid].landed
        assert rebuilt(space) == observations == observed(space)
        git("fetch", "-q", "--unshallow", cwd=tmp_path / "clone")
        assert as_text(space) == _observed_at(walked)[1]
        assert space.behaviours.gaps() == 0


def test_a_clone_without_events_and_notes_counts_commits_only(walked: Path, tmp_path: Path) -> None:
    """With branches only, the index has what commits say; the rest appears when events and notes arrive."""
    clone = tmp_path / "clone"
    git("clone", "-q", f"file://{walked}", "clone", cwd=tmp_path)
    with clia.init(clone, settings=settings()) as space:
        space.behaviours.stats()
        complete = {stat.cid: stat for stat in _observed_at(walked)[0][0]}
        for ref in git("for-each-ref", "--format=%(refname)", "refs/clia/events", "refs/notes/clia", cwd=clone).split():
            git("update-ref", "-d", ref, cwd=clone)
        for stat in (observations := observed(space))[0]:
            assert (stat.outcomes, stat.commits) == (complete[stat.cid].outcomes, complete[stat.cid].commits)
            assert (stat.sessions, stat.landed, stat.reverted, stat.trace, stat.tokens) == ({}, 0, 0, {}, {})
        assert rebuilt(space) == observations
        git("fetch", "-q", "origin", "refs/clia/*:refs/clia/*", "refs/notes/clia/*:refs/notes/clia/*", cwd=clone)
        assert as_text(space) == _observed_at(walked)[1]


def test_a_query_does_not_read_an_index_that_another_process_is_rebuilding(walked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process starts a rebuild right after this one has caught up."""
    expected = _observed_at(walked)
    caught_up = ObservationIndex.catch_up
    deleted: list[str] = []

    def overtaken(self: ObservationIndex, progress: Any = None) -> Any:
        result = caught_up(self, progress)
        if not deleted:
            with self._core.store.writing() as transaction:
                deleted.extend(key for key, _ in transaction.values.scan("behaviours/"))
                for key in deleted:
                    transaction.values.delete(key)
        return result

    monkeypatch.setattr(ObservationIndex, "catch_up", overtaken)
    assert _observed_at(walked) == expected
    assert deleted


def test_entries_that_another_process_indexed_meanwhile_are_not_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process updates the index between this one's read and write."""
    write = ObservationIndex.write
    other_results: list[Any] = []

    def overtaken(self: ObservationIndex, entries: Any) -> None:
        if not other_results:
            other_results.append("at work")
            other_results.append(_observed_at(tmp_path / "made")[0])
        write(self, entries)

    with _at_work(tmp_path / "made") as space:
        space.behaviours.stats()
        space.commit("ada", "test", changes={"x": b"2"})
        monkeypatch.setattr(ObservationIndex, "write", overtaken)
        assert space.behaviours.stats("review")[0].commits == {"test": 2}
        assert other_results == ["at work", observed(space)]
        assert rebuilt(space) == observed(space)


def _at_work(root: Path) -> clia.Space:
    """An agent in the middle of a session, with one commit in it."""
    space = started(root)
    space.spawn("ada", BRIEFING)
    space.start("ada", "review", 1)
    space.commit("ada", "test", changes={"x": b"1"})
    return space


def test_a_merge_with_missing_work_is_not_counted_until_it_arrives(tmp_path: Path) -> None:
    """The clone has the complete history of the merging agent, but only the end of the merged work."""
    with _at_work(tmp_path / "made") as space:
        for number in range(6):
            space.commit("ada", "test", changes={"x": b"more %d" % number})
        space.spawn("bob", BRIEFING)
        space.merge("bob", "ada")
        complete = as_text(space)
        assert space.behaviours.stats("review")[0].merges == {"merged": 1}
    git("clone", "-q", "--depth", "3", "--no-single-branch", f"file://{tmp_path / 'made'}", "clone", cwd=tmp_path)
    with clia.init(tmp_path / "clone", settings=settings()) as space:
        assert space.behaviours.stats("review")[0].merges == {}
        assert space.behaviours.gaps() == 2  # the merge, and the rest of the other agent's branch
        git("fetch", "-q", "--unshallow", cwd=tmp_path / "clone")
        assert as_text(space) == complete


def test_a_rebuild_killed_at_any_step_is_completed_by_the_next_process(walked: Path) -> None:
    assert apart(crash_at_each_step, str(walked), _observed_at(walked)[1]) > 5


def test_concurrent_reads_and_rebuilds_count_everything_once(walked: Path) -> None:
    apart(read_at_once, str(walked), _observed_at(walked)[1])
