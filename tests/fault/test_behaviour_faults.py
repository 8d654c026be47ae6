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


class Known(NamedTuple):
    """A behaviour with a current version and two that are proposed."""

    name: str
    current: str
    one: str
    other: str

    @classmethod
    def made(cls, space: clia.Space, name: str) -> Known:
        first = space.add_behaviour(name, "a", PROMPT).cid
        return cls(name, first, *(space.propose_behaviour(name, body).cid for body in ("b", "c")))


def opened(root: Path, **more: Any) -> clia.Space:
    return clia.open(root, settings=settings(**more))


def events(root: Path, name: str) -> list[tuple[str, str]]:
    """What happened on a chain and to which version, oldest first, as stock git tells."""
    lines = git("log", "--reverse", "--format=%(trailers:key=Clia-Event,valueonly)", CHAINS + name, cwd=root).splitlines()
    return [(made["event"], made["cid"]) for made in map(json.loads, filter(None, lines))]


# Crashes

VERBS: dict[str, tuple[Callable[[clia.Space, Known], object], str]] = {
    "propose": (lambda space, known: space.propose_behaviour(known.name, "d", evidence=()), "propose"),
    "adopt": (lambda space, known: space.adopt_behaviour(known.name, known.one, expect=known.current), "adopt"),
    "retire": (lambda space, known: space.retire_behaviour(known.name, why="no good"), "retire"),
}


def run_verb(root: Path, known: Known, act: Callable[[clia.Space, Known], object], hook: CrashHook) -> None:
    """The driver."""
    with opened(root, reached=hook) as space:
        hook.armed = True
        act(space, known)


def test_change_killed_at_any_step_is_complete_or_absent_and_blocks_nobody(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    with clia.init(root, settings=settings()) as space:
        for verb, (act, event) in VERBS.items():
            points = crash_points(partial(run_verb, root, Known.made(space, f"{verb}-whole"), act))
            moved = CrashPoint("committed", 1)
            assert {CrashPoint("objects-written", 1), CrashPoint("ref-locked", 1), moved} <= set(points)
            for number, point in enumerate(points):
                known = Known.made(space, f"{verb}-{number}")
                before = events(root, known.name)
                crash(partial(run_verb, root, known, act), point)
                done = events(root, known.name)[len(before) :]
                assert [each for each, _ in done] == ([event] if number >= points.index(moved) else []), point
                act_again(space, known, act, done=bool(done))
                assert len(events(root, known.name)) == len(before) + 1
                check_read_by_git(root, space, known.name)
        assert space.verify().clean
    git("fsck", "--strict", "--no-dangling", cwd=root)
    assert not list((root / ".git/refs").rglob("*.lock"))


def act_again(space: clia.Space, known: Known, act: Callable[[clia.Space, Known], object], *, done: bool) -> None:
    """Whoever comes next does it, unless it was done; no lock is in the way."""
    code = ""
    try:
        act(space, known)
    except CliaError as err:
        code = err.code
    again = {VERBS["propose"][0]: "", VERBS["adopt"][0]: "stale-behaviour", VERBS["retire"][0]: "nothing-adopted"}
    assert code == (again[act] if done else "")


def check_read_by_git(root: Path, space: clia.Space, name: str) -> None:
    """What we say of a chain is what stock git shows."""
    known = space.behaviour(name)
    listed = git("ls-tree", "-r", "--name-only", CHAINS + name, cwd=root).split()
    assert sorted(f"versions/{each.cid}.json" for each in known.versions) == [
        each for each in listed if each.startswith("versions/")
    ]
    current = git("show", f"{CHAINS}{name}:current", cwd=root).strip() if "current" in listed else None
    assert current == known.current
    assert len(git("log", "--format=%H", CHAINS + name, cwd=root).split()) == len(known.history)


# Races


def race(root: Path, *acts: Callable[[clia.Space], object]) -> list[str]:
    """Each in a process of its own, at once; the codes of the errors, or nothing, in order of the acts."""
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
    return [code for _, code in sorted(paper.read("said")[before:], key=lambda each: int(each[0]))]


def test_of_two_that_adopt_at_once_one_wins_where_they_insist_and_both_count_where_they_do_not(tmp_path: Path) -> None:
    """Who lost is told so, and nothing of it is on the chain. Proposals never get in each other's way; the same one is one."""
    root = tmp_path.resolve() / "repo"
    with clia.init(root, settings=settings()) as space:
        space.spawn("scout", clia.Briefing(title="Look"))
        work = space.commit("scout", "finding", {"a": b"a"})
        for life in range(3):
            known = Known.made(space, f"insisting-{life}")
            ways = [known.one, known.other]
            adopt = [partial(clia.Space.adopt_behaviour, name=known.name, version=each, expect=known.current) for each in ways]
            codes = race(root, *adopt)
            assert sorted(codes) == ["", "stale-behaviour"]
            winner = ways[codes.index("")]
            assert events(root, known.name)[3:] == [("adopt", winner)]
            assert space.behaviour(known.name).current == winner
        known = Known.made(space, "easy")
        propose = partial(clia.Space.propose_behaviour, name="easy")
        acts = [partial(clia.Space.adopt_behaviour, name="easy", version=each) for each in (known.one, known.other)]
        acts += [partial(propose, body=body) for body in ("d", "d", "e")]
        assert race(root, *acts) == [""] * 5
        done = events(root, "easy")[3:]
        assert sorted(event for event, _ in done) == ["adopt", "adopt", "propose", "propose"]
        versions = {each.body: each for each in space.behaviour("easy").versions}
        assert sorted(versions) == ["a", "b", "c", "d", "e"]
        assert {versions["b"].state, versions["c"].state} == {"former", "current"}
        assert space.propose_behaviour("easy", "d", evidence=[work]).evidence == (work,)
        assert space.propose_behaviour("easy", "d", evidence=[work]).cid == versions["d"].cid
        assert len(events(root, "easy")) == 3 + len(done) + 1
        assert space.verify().clean


def test_a_chain_that_plain_git_moves_in_between_is_read_again(tmp_path: Path) -> None:
    """The change is made on top of it, unless what it insists on has changed."""
    root = tmp_path.resolve()
    moved: list[str] = []

    def meddle(step: str) -> None:
        if step == "objects-written" and meddling and not moved:
            ref, tree = CHAINS + "tone", meddling[-1]
            moved.append(git("commit-tree", tree, "-p", ref, "-m", "by hand", cwd=root).strip())
            git("update-ref", ref, moved[0], cwd=root)

    meddling: list[str] = []
    with clia.init(root, settings=settings(reached=meddle)) as space:
        known = Known.made(space, "tone")
        meddling.append(f"{CHAINS}tone^{{tree}}")
        space.adopt_behaviour("tone", known.one, expect=known.current)
        assert git("log", "-2", "--format=%H", CHAINS + "tone", cwd=root).split()[1] == moved[0]
        before = git("rev-parse", f"{CHAINS}tone~2^{{tree}}", cwd=root).strip()
        moved.clear()
        meddling.append(before)  # by hand, somebody makes the first version current again
        with pytest.raises(CliaError) as caught:
            space.adopt_behaviour("tone", known.other, expect=known.one)
        assert caught.value.code == "stale-behaviour"
        assert git("rev-parse", CHAINS + "tone", cwd=root).strip() == moved[0]
