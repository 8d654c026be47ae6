"""Crashes and full disks while a space is backed up or restored, and backups under load. All functions fork."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clia
from clia.errors import CliaError
from clia.facade.backup import check_backup
from clia.facade.restore import restore
from support import git
from support.backups import check_sound
from support.crashes import FORK, CrashHook, CrashPoint, crash, crash_points, run_all, started
from support.disks import no_file_beyond
from support.session_driver import make_template
from support.space_driver import BRIEFING, Paper, Writer, check_commits, settings, trace_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOW = """\
def main(input):
    first = request("work", {"number": input})
    return [first, request("human", {"question": "Go on?", "choices": ["yes", "no"]})]
"""


def prepare(home: str) -> None:
    """A space with sessions in all states, and a backup of it."""
    make_template(home)
    root = Path(home) / "space"
    (root / "file.txt").write_text("one\n")
    git("add", ".", cwd=root)
    git("commit", "--quiet", "-m", "One", cwd=root)
    with clia.open(root, settings=settings()) as space:
        space.local.back_up(f"{home}/backup")


def _points(driver: Callable[[CrashHook], object], undo: Callable[[], object]) -> Iterator[CrashPoint]:
    """Kill a driver at each of its crash points; each time, the caller looks at what it left."""
    points = crash_points(driver)
    for point in points:
        undo()
        crash(driver, point)
        yield point


def crash_backups(home: str, tmp: str) -> set[str]:
    """Kill a backup at each step: there is no backup under its name, and the next one leaves nothing else."""
    root, directory = Path(home) / "space", Path(tmp) / "backups/backup"

    def back_up(hook: CrashHook) -> None:
        with clia.open(root, settings=settings(reached=hook)) as space:
            hook.armed = True
            space.local.back_up(str(directory))

    steps = set()
    for point in _points(back_up, lambda: shutil.rmtree(directory, ignore_errors=True)):
        steps.add(point.step)
        assert not directory.exists(), point
        back_up(CrashHook())
        assert os.listdir(directory.parent) == ["backup"], point
        check_backup(str(directory))
    return steps


def crash_restores(home: str, tmp: str, replace: bool) -> set[str]:
    """Kill a restore at each step: there is nothing under its name or a whole repository, and the next one succeeds."""
    backup, target = Path(home) / "backup", Path(tmp) / "copies/copy"

    def prepare_target() -> None:
        shutil.rmtree(target.parent, ignore_errors=True)
        if replace:
            shutil.copytree(Path(home) / "space", target, symlinks=True)

    def bring(hook: CrashHook) -> None:
        hook.armed = True
        restore(str(backup), str(target), settings(reached=hook), replace=replace)

    steps = set()
    prepare_target()
    for point in _points(bring, prepare_target):
        steps.add(point.step)
        if not target.exists() or replace:
            restore(str(backup), str(target), settings(), replace=True)
        assert os.listdir(target.parent) == ["copy"], point
        assert sorted(os.listdir(target)) == [".git", "file.txt"], point
        with clia.open(target, settings=settings()) as space:
            check_sound(space)
            assert space.session("scout").pending
    return steps


def fill_disks(home: str, tmp: str) -> set[str]:
    """Limit the size of files at many sizes; return the errors. Nothing is left behind."""
    root, place = Path(home) / "space", Path(tmp) / "places"
    place.mkdir()

    def attempt(size: int, act: Callable[[], object]) -> str | None:
        with no_file_beyond(size):
            try:
                act()
            except CliaError as err:
                return err.message
        return None

    def back_up(size: int) -> str | None:
        with clia.open(root, settings=settings()) as space:
            return attempt(size, lambda: space.local.back_up(str(place / "backup")))

    def bring(size: int) -> str | None:
        return attempt(size, lambda: restore(f"{home}/backup", str(place / "copy"), settings()))

    messages = set()
    for act in (back_up, bring):
        for size in (0, 100, 1000, 3000, 10_000, 30_000):
            (message,) = run_all([lambda act=act, size=size: act(size)])  # type: ignore[misc]
            assert message is not None, size
            assert os.listdir(place) == [], (size, message)
            messages.add(message)
    return messages


def back_up_under_load(tmp: str, store: str | None, target_store: str | None, processes: int, rounds: int) -> None:
    """Several processes work while a space is backed up several times; what was acknowledged before is in each backup."""
    home = Path(tmp)
    root, paper = home / "space", Paper(str(home / "paper"))
    run_all([lambda: _create(root, paper, store)])  # a process that has loaded flows must not fork
    together, stop = FORK.Barrier(processes + 1), FORK.Event()
    jobs = [started(lambda number=number: _work(root, paper, store, number, together, stop)) for number in range(processes)]  # type: ignore[misc]
    together.wait()
    papers = []
    try:
        for number in range(rounds):
            papers.append(Paper(f"{paper.path}-{number}"))
            shutil.copy(paper.path, papers[-1].path)
            with clia.open(root, settings=settings(store=store)) as space:
                space.local.back_up(str(home / f"backup-{number}"))
    finally:
        stop.set()
    for process, pipe in jobs:
        failure, _ = pipe.recv()
        process.join()
        assert not failure, failure
    run_all([lambda number=number: _check_copy(home, papers[number], target_store, number) for number in range(rounds)], 1)  # type: ignore[misc]


def _create(root: Path, paper: Paper, store: str | None) -> None:
    with clia.init(root, settings=settings(store=store)) as space:
        space.define("talk", FLOW)
        Writer(space, paper).spawn("shared")


def _work(root: Path, paper: Paper, store: str | None, number: int, together: Any, stop: Any) -> None:
    """Commit, trace, run a flow, ask and decide until told to stop."""
    with clia.open(root, settings=settings(store=store)) as space:
        writer, own, turn = Writer(space, paper), f"a{number}", 0
        writer.spawn(own)
        together.wait()
        while turn == 0 or not stop.is_set():
            turn += 1
            writer.trace(own, f"{own} first {turn}")
            writer.commit(own, f"{own}/{turn}", f"text {turn}", with_trace=True)
            writer.commit("shared", f"{own}-{turn}", f"text {turn}")
            writer.trace(own, f"{own} second {turn}")
            session = space.start(own, "talk", turn).id
            paper.note("started", own, session)
            space.resume(own, turn)
            paper.note("answered", own, session, str(turn))
            decision = space.decide(own, "yes")
            paper.note("commit", own, decision.cid)
            paper.note("decided", own, session, str(turn))
            question = space.ask(own, {"question": f"turn {turn}?", "choices": ["yes", "no"]})
            paper.note("asked", own, question.session)
            paper.note("commit", own, space.decide(own, "no").cid)
            paper.note("replied", own, question.session)


def _check_copy(home: Path, paper: Paper, store: str | None, number: int) -> None:
    root = home / f"copy-{number}"
    restore(str(home / f"backup-{number}"), str(root), settings(store=store), keep_store=store is not None)
    with clia.open(root, settings=settings()) as space:
        check_sound(space)
        check_commits(root, paper)
        texts = trace_texts(space, "console")
        assert {text for (text,) in paper.read("entry")} <= texts.keys()
        assert set(texts.values()) == {1}
        for name, _, text in paper.read("file"):
            assert text.encode() in space.files(name).values()
        for agent, session in paper.read("started"):
            assert space.session(agent, session).flow == "talk"
        for agent, session, answer in paper.read("decided"):
            assert space.session(agent, session).result == [int(answer), "yes"]
        for agent, session in paper.read("replied"):
            assert space.session(agent, session).result == "no"
        for name in sorted(space.agents()):
            _go_on(space, name)
        check_sound(space)


def _go_on(space: clia.Space, name: str) -> None:
    """Answer what a session waits for, and start another one."""
    for row in space.sessions(agent=name):
        session = space.session(name, row.id)
        while session.pending:
            if session.pending[0].kind == "human":
                space.decide(name, "yes", request_id=session.pending[0].id)
            else:
                space.resume(name, 1, session.pending[0].id)
            session = space.session(name, row.id)
        assert session.status == "finished", session
    space.commit(name, "finding", changes={"after.txt": b"after"})
    space.spawn(f"{name}-sub", BRIEFING)
