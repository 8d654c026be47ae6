"""Behaviour chains under crashes and races: one winner, nothing half done, no lock left."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia
from clia.errors import CliaError
from clia.values.typed_objects import PROMPT
from support import git
from support.crashes import FORK, CrashHook, CrashPoint, crash, crash_points, run_all
from support.space_driver import Paper, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
CHAINS = "refs/clia/behaviours/"


class StoredBehaviour(NamedTuple):
    """A behaviour with a current version and two proposals."""

    name: str
    current: str
    first_proposal: str
    second_proposal: str

    @classmethod
    def create(cls, space: clia.Space, name: str) -> StoredBehaviour:
        first = space.behaviours.add(name, "a", PROMPT).cid
        return cls(name, first, *(space.behaviours.propose(name, body).cid for body in ("b", "c")))


def opened(root: Path, **more: Any) -> clia.Space:
    return clia.open(root, settings=settings(**more))


def events(root: Path, name: str) -> list[tuple[str, str]]:
    """The events of a chain and their versions, oldest first, read by stock git."""
    lines = git("log", "--reverse", "--format=%(trailers:key=Clia-Event,valueonly)", CHAINS + name, cwd=root).splitlines()
    return [(event["event"], event["cid"]) for event in map(json.loads, filter(None, lines))]


# Crashes

VERBS: dict[str, tuple[Callable[[clia.Space, StoredBehaviour], object], str]] = {
    "propose": (lambda space, behaviour: space.behaviours.propose(behaviour.name, "d", evidence=()), "propose"),
    "adopt": (
        lambda space, behaviour: space.behaviours.adopt(behaviour.name, behaviour.first_proposal, expect=behaviour.current),
        "adopt",
    ),
    "retire": (lambda space, behaviour: space.behaviours.retire(behaviour.name, why="no good"), "retire"),
}


def run_verb(root: Path, behaviour: StoredBehaviour, act: Callable[[clia.Space, StoredBehaviour], object], hook: CrashHook) -> None:
    """Run a verb with a crash hook."""
    with opened(root, reached=hook) as space:
        hook.armed = True
        act(space, behaviour)


def test_a_change_killed_at_any_step_is_complete_or_absent_and_leaves_no_lock(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    with clia.init(root, settings=settings()) as space:
        for verb, (act, event) in VERBS.items():
            points = crash_points(partial(run_verb, root, StoredBehaviour.create(space, f"{verb}-whole"), act))
            moved = CrashPoint("committed", 1)
            assert {CrashPoint("objects-written", 1), CrashPoint("ref-locked", 1), moved} <= set(points)
            for number, point in enumerate(points):
                behaviour = StoredBehaviour.create(space, f"{verb}-{number}")
                before = events(root, behaviour.name)
                crash(partial(run_verb, root, behaviour, act), point)
                new_events = events(root, behaviour.name)[len(before) :]
                assert [kind for kind, _ in new_events] == ([event] if number >= points.index(moved) else []), point
                act_again(space, behaviour, act, applied=bool(new_events))
                assert len(events(root, behaviour.name)) == len(before) + 1
                check_read_by_git(root, space, behaviour.name)
        assert space.verify().clean
    git("fsck", "--strict", "--no-dangling", cwd=root)
    assert not list((root / ".git/refs").rglob("*.lock"))


def act_again(
    space: clia.Space, behaviour: StoredBehaviour, act: Callable[[clia.Space, StoredBehaviour], object], *, applied: bool
) -> None:
    """Repeat the change; it is refused only if it was applied, and no lock blocks it."""
    code = ""
    try:
        act(space, behaviour)
    except CliaError as err:
        code = err.code
    again = {VERBS["propose"][0]: "", VERBS["adopt"][0]: "stale-behaviour", VERBS["retire"][0]: "nothing-adopted"}
    assert code == (again[act] if applied else "")


def check_read_by_git(root: Path, space: clia.Space, name: str) -> None:
    """Check a chain against what stock git shows."""
    behaviour = space.behaviours.get(name)
    listed = git("ls-tree", "-r", "--name-only", CHAINS + name, cwd=root).split()
    assert sorted(f"versions/{version.cid}.json" for version in behaviour.versions) == [
        path for path in listed if path.startswith("versions/")
    ]
    current = git("show", f"{CHAINS}{name}:current", cwd=root).strip() if "current" in listed else None
    assert current == behaviour.current
    assert len(git("log", "--format=%H", CHAINS + name, cwd=root).split()) == len(behaviour.history)


# Races


def race(root: Path, *acts: Callable[[clia.Space], object]) -> list[str]:
    """Run the acts in concurrent processes; return their error codes, or "", in order."""
    paper, barrier = Paper(f"{root}.paper"), FORK.Barrier(len(acts))

    def job(number: int, act: Callable[[clia.Space], object]) -> None:
        with opened(root) as space:
            barrier.wait()
            try:
                act(space)
                paper.note("said", str(number), "")
            except CliaError as err:
                paper.note("said", str(number), err.code)

    before = len(paper.read("said"))
    run_all([partial(job, number, act) for number, act in enumerate(acts)])
    return [code for _, code in sorted(paper.read("said")[before:], key=lambda row: int(row[0]))]


def adopt(space: clia.Space, name: str, version: str, expect: str | None = None) -> None:
    space.behaviours.adopt(name, version, expect=expect)


def propose(space: clia.Space, name: str, body: str) -> None:
    space.behaviours.propose(name, body)


def test_of_two_concurrent_adoptions_one_wins_if_they_expect_a_version_and_both_apply_otherwise(tmp_path: Path) -> None:
    """The loser gets an error and leaves nothing on the chain. Proposals never conflict; equal ones are one."""
    root = tmp_path.resolve() / "repo"
    with clia.init(root, settings=settings()) as space:
        space.spawn("scout", clia.Briefing(title="Look"))
        work = space.commit("scout", "finding", {"a": b"a"})
        for life in range(3):
            behaviour = StoredBehaviour.create(space, f"insisting-{life}")
            ways = [behaviour.first_proposal, behaviour.second_proposal]
            acts = [partial(adopt, name=behaviour.name, version=version, expect=behaviour.current) for version in ways]
            codes = race(root, *acts)
            assert sorted(codes) == ["", "stale-behaviour"]
            winner = ways[codes.index("")]
            assert events(root, behaviour.name)[3:] == [("adopt", winner)]
            assert space.behaviours.get(behaviour.name).current == winner
        behaviour = StoredBehaviour.create(space, "easy")
        acts = [partial(adopt, name="easy", version=version) for version in (behaviour.first_proposal, behaviour.second_proposal)]
        acts += [partial(propose, name="easy", body=body) for body in ("d", "d", "e")]
        assert race(root, *acts) == [""] * 5
        new_events = events(root, "easy")[3:]
        assert sorted(event for event, _ in new_events) == ["adopt", "adopt", "propose", "propose"]
        versions = {version.body: version for version in space.behaviours.get("easy").versions}
        assert sorted(versions) == ["a", "b", "c", "d", "e"]
        assert {versions["b"].state, versions["c"].state} == {"former", "current"}
        assert space.behaviours.propose("easy", "d", evidence=[work]).evidence == (work,)
        assert space.behaviours.propose("easy", "d", evidence=[work]).cid == versions["d"].cid
        assert len(events(root, "easy")) == 3 + len(new_events) + 1
        assert space.verify().clean


def test_a_chain_moved_by_plain_git_is_read_again(tmp_path: Path) -> None:
    """The change is applied on top of it, unless the expected version has changed."""
    root = tmp_path.resolve()
    moved: list[str] = []

    def meddle(step: str) -> None:
        if step == "objects-written" and meddling and not moved:
            ref, tree = CHAINS + "tone", meddling[-1]
            moved.append(git("commit-tree", tree, "-p", ref, "-m", "by hand", cwd=root).strip())
            git("update-ref", ref, moved[0], cwd=root)

    meddling: list[str] = []
    with clia.init(root, settings=settings(reached=meddle)) as space:
        behaviour = StoredBehaviour.create(space, "tone")
        meddling.append(f"{CHAINS}tone^{{tree}}")
        space.behaviours.adopt("tone", behaviour.first_proposal, expect=behaviour.current)
        assert git("log", "-2", "--format=%H", CHAINS + "tone", cwd=root).split()[1] == moved[0]
        before = git("rev-parse", f"{CHAINS}tone~2^{{tree}}", cwd=root).strip()
        moved.clear()
        meddling.append(before)  # plain git makes the first version current again
        with pytest.raises(CliaError) as caught:
            space.behaviours.adopt("tone", behaviour.second_proposal, expect=behaviour.first_proposal)
        assert caught.value.code == "stale-behaviour"
        assert git("rev-parse", CHAINS + "tone", cwd=root).strip() == moved[0]
