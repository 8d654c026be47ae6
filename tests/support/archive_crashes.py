"""Crashes while the refs of idle agents move to the archive repository, or back. ``crash_everywhere`` forks."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError
from typing import TYPE_CHECKING

from clia.errors import GitError
from clia.git import archive
from clia.testing import components
from support import git
from support.crashes import CrashHook, crash, crash_points, run_all
from support.fuzzer.traced import STOP, Fault, Run
from support.space_crashes import CrashSpace, copied
from support.space_driver import Writer, check_nothing_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import clia
    from support.crashes import CrashPoint

AGENTS = ("helper", "idle", "old", "rival", "scout")


def put_away(space: clia.Space) -> None:
    components(space).archiving.put_away(AGENTS)


def prepare_nothing(space: clia.Space) -> None:
    del space


def put_away_one_by_one(space: clia.Space) -> None:
    for name in AGENTS:
        components(space).archiving.put_away([name])


def join_packs(space: clia.Space) -> None:
    archive.FEW = 1
    components(space).archiving.join_packs()


ACTIONS: Mapping[str, tuple[Callable[[clia.Space], None], Callable[[clia.Space], object]]] = {
    # What is done first, and what is killed.
    "put away": (prepare_nothing, put_away),
    "commit": (put_away, lambda space: space.commit("scout", "finding", changes={"verb.txt": b"verb\n"})),
    "bring all back": (put_away, lambda space: components(space).archiving.bring_back()),
    "join packs": (put_away_one_by_one, join_packs),
}


def refs_of(space: clia.Space) -> dict[str, str]:
    refs = dict(components(space).git.refs.under("refs/"))
    refs.pop("refs/clia-local/bases", None)
    return refs


def _act(place: CrashSpace, name: str, hook: CrashHook) -> None:
    with place.open(hook) as space:
        ACTIONS[name][0](space)
        hook.armed = True
        ACTIONS[name][1](space)


def _check(place: CrashSpace, name: str, before: dict[str, str]) -> None:
    """Nothing is lost after the crash, after git cleaned up, after the action is repeated, and for the next writer."""
    with place.open() as space:
        check_nothing_lost(place.root, place.paper, space)
        after = refs_of(space)
        assert name == "commit" or after == before
        assert before.keys() == after.keys()
    with suppress(CalledProcessError):  # a lock that the dead process left: the next writer removes it
        _clean_up(place)
    with place.open() as space:
        check_nothing_lost(place.root, place.paper, space)
        assert refs_of(space) == after
        ACTIONS[name][1](space)
        put_away(space)
        assert components(space).archiving.names() == list(AGENTS)
        assert not [ref for ref, _ in components(space).git.refs.present_under("refs/heads/agents/")]
        check_nothing_lost(place.root, place.paper, space)
        writer = Writer(space, place.paper)
        writer.trace("scout", "afterwards")
        writer.commit("scout", "after.txt", "after\n", with_trace=True)
        assert git("log", "-1", "--format=%an", "agents/scout", cwd=place.root).strip() == "scout"
        check_nothing_lost(place.root, place.paper, space)
    _clean_up(place)
    with place.open() as space:
        check_nothing_lost(place.root, place.paper, space)
    repository = Path(place.root, ".git")
    assert not [*repository.glob("refs/**/*.lock"), *repository.glob("**/packed-refs.lock"), *repository.glob("clia/packs/*")]


def _clean_up(place: CrashSpace) -> None:
    git("-c", "gc.reflogExpire=now", "gc", "--quiet", "--prune=now", cwd=place.root)
    git("pack-refs", "--all", cwd=place.root)


def _crash(template: str, to: Path, name: str, before: dict[str, str], at: CrashPoint) -> None:
    place = copied(template, to)
    crash(partial(_act, place, name), at)
    _check(place, name, before)


def crash_everywhere(template: str, to: str, name: str) -> list[str]:
    """Kill an action at each of its crash points, each time in a copy of the space; return the steps."""
    alive = copied(template, Path(to, "alive"))
    with alive.open() as space:
        before = refs_of(space)
    points = crash_points(partial(_act, alive, name))
    _check(alive, name, before)
    run_all([partial(_crash, template, Path(to, str(number)), name, before, at) for number, at in enumerate(points)])
    return sorted({point.step for point in points})


def write_while_put_away(template: str, to: str) -> None:
    """Agents commit while another process puts them away again and again: nobody loses anything, or is refused."""
    place = copied(template, Path(to, "race"))

    def write(name: str) -> None:
        with place.open() as space:
            writer = Writer(space, place.paper)
            for number in range(25):
                writer.trace(name, f"{name} {number}")
                writer.commit(name, f"{name}.txt", f"{number}\n", with_trace=number % 2 == 0)

    def tidy() -> None:
        with place.open() as space:
            for number in range(12):
                put_away(space)
                if number % 4 == 3:
                    join_packs(space)
                components(space).git.refs.pack()

    run_all([partial(write, "scout"), partial(write, "helper"), partial(write, "rival"), tidy])
    with place.open() as space:
        check_nothing_lost(place.root, place.paper, space)
    _clean_up(place)
    with place.open() as space:
        check_nothing_lost(place.root, place.paper, space)


def put_away_and_back_beside_a_stopped_pack(template: str, to: str) -> int:
    """Stop ``git pack-refs`` after each of its changes, put an agent away and bring it back, and let git finish.

    The agent keeps its refs. Return how often git was stopped.
    """
    place = copied(template, Path(to, "pack"))
    words = ["git", "pack-refs", "--all"]
    with place.open() as space:
        refs = components(space).git.refs
        archiving = components(space).archiving
        for after in range(1, 1000):
            for ref in ("refs/heads/agents/scout", "refs/clia/agents/scout"):
                head = refs.get(ref)
                git("update-ref", "-d", ref, cwd=place.root)
                git("update-ref", ref, str(head), cwd=place.root)  # loose again
            before = refs_of(space)
            run = Run(words, Fault(STOP, after), str(place.root)).wait()
            if run.is_stopped:
                with suppress(GitError):  # git holds the lock of the packed refs
                    archiving.put_away(["scout"])
                with suppress(OSError):
                    refs.bring_back(refs.archive.among(before))
                run.go_on()
            assert refs_of(space) == before, f"git was stopped after {after} changes"
            if run.ended is not None and run.ended.changes < after:
                return after - 1
    raise AssertionError("git did not end")
