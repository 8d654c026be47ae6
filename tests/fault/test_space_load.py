"""A space with many concurrent writers and git's own maintenance."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia
from clia.errors import StaleRef
from support import git
from support.crashes import FORK, run_all, started
from support.space_driver import Paper, Writer, check_nothing_lost, postgres_url, settings, trace_texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROCESSES = 40
SHARED = "shared"
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


class SpaceLoad(NamedTuple):
    """A space, the record of acknowledged changes, and the amount of work."""

    root: Path
    paper: Paper
    rounds: int
    store: str | None = None
    durable: bool = False

    def open(self) -> clia.Space:
        return clia.open(self.root, settings=settings(store=self.store, durable=self.durable))


def new_load(tmp_path: Path, rounds: int, store: str | None = None, *, durable: bool = False) -> SpaceLoad:
    load = SpaceLoad(tmp_path / "space", Paper(str(tmp_path / "paper")), rounds, store, durable)
    with clia.init(load.root, settings=settings(store=store)) as space:
        Writer(space, load.paper).spawn(SHARED)
    return load


def work(load: SpaceLoad, number: int, together: Any) -> None:
    with load.open() as space:
        take_part(Writer(space, load.paper), number, load.rounds, together)


def take_part(writer: Writer, number: int, rounds: int, together: Any) -> None:
    """The work of one writer: its own agent, sub-agents, a merge for every second writer, and a shared agent."""
    own = f"a{number}"
    writer.spawn(own)
    together.wait()
    for round_ in range(rounds):
        text = f"{own} round {round_}"
        writer.trace(own, f"first of {text}")
        writer.commit(own, f"{own}/full", text, base=writer.space.head(own))
        writer.commit(own, f"{own}/delta", text)
        writer.trace(own, f"second of {text}")
        writer.commit(own, f"{own}/traced", text, with_trace=True)
        if number % 2 == 0:
            writer.merge(own, f"a{number + 1}")
        writer.spawn(f"{own}-sub{round_}", own)
        writer.trace(SHARED, f"shared by {text}")
        commit_on_head(writer, SHARED, f"full-{number}", text)
        writer.commit(SHARED, f"delta-{number}", text)
        writer.commit(SHARED, f"traced-{number}", text, with_trace=True)
    writer.relate(own, "reviews", SHARED)
    writer.merge(SHARED, own)


def commit_on_head(writer: Writer, name: str, path: str, text: str) -> None:
    """Commit the full tree on the head that was read; after a lost race, read again."""
    while True:
        try:
            writer.commit(name, path, text, base=writer.space.head(name))
        except StaleRef:
            continue
        return


def run_git_maintenance(load: SpaceLoad, stop: Any, rounds: Any) -> None:
    """Repeat ``git gc`` with its usual grace period, ``git pack-refs``, and put agents away, as upkeep does with idle ones."""
    while not stop.is_set():
        with load.open() as space:
            space.local.put_away(space.agents())
        for words in (["gc", "--quiet"], ["pack-refs", "--all"]):
            # If a writer holds a lock that git needs, git leaves it for the next time.
            result = subprocess.run(["git", *words], cwd=load.root, capture_output=True, check=False)
            rounds.value += result.returncode == 0


def processes_at_work(load: SpaceLoad, count: int) -> None:
    together, stop, rounds = FORK.Barrier(count), FORK.Event(), FORK.Value("i", 0)
    keeper, _ = started(lambda: run_git_maintenance(load, stop, rounds))
    try:
        run_all([lambda number=number: work(load, number, together) for number in range(count)], at_once=count)  # type: ignore[misc]
    finally:
        stop.set()
        keeper.join()
    assert keeper.exitcode == 0
    assert rounds.value > 0


def check(load: SpaceLoad, count: int) -> None:
    with clia.open(load.root, settings=settings(store=load.store)) as space:
        check_nothing_lost(load.root, load.paper, space)
        assert set(trace_texts(space)) == {text for (text,) in load.paper.read("entry")}
        assert {edge[:3] for edge in space.relations()} == set(load.paper.read("edge"))
        assert space.relations.reviewers(SHARED) == sorted(f"a{number}" for number in range(count))
        assert space.agents() == sorted([SHARED, *agents(count, load.rounds)])
        assert space.files(SHARED) == {path: text.encode() for path, text in last_contents(count, load.rounds)}
        acknowledged = {cid for name, cid in load.paper.read("commit") if name == SHARED}
        assert {commit.cid for commit in space.history.own(SHARED)} == acknowledged
    git("fsck", "--strict", "--no-dangling", cwd=load.root)


def agents(count: int, rounds: int) -> Iterator[str]:
    for number in range(count):
        yield f"a{number}"
        yield from (f"a{number}-sub{round_}" for round_ in range(rounds))


def last_contents(count: int, rounds: int) -> Iterator[tuple[str, str]]:
    """The final files of the shared agent: each writer's last text, also that of its own agent."""
    for number in range(count):
        last = f"a{number} round {rounds - 1}"
        yield from ((f"{kind}-{number}", last) for kind in ("full", "delta", "traced"))
        yield from ((f"a{number}/{kind}", last) for kind in ("full", "delta", "traced"))


def test_forty_processes_beside_gc_lose_and_duplicate_nothing(tmp_path: Path, soak: bool) -> None:
    load = new_load(tmp_path, rounds=40 if soak else 1)
    processes_at_work(load, PROCESSES)
    check(load, PROCESSES)


def test_durable_processes_beside_gc_lose_and_duplicate_nothing(tmp_path: Path, soak: bool) -> None:
    count = PROCESSES if soak else 8
    load = new_load(tmp_path, rounds=10 if soak else 1, durable=True)
    processes_at_work(load, count)
    check(load, count)


def test_processes_with_a_store_in_postgres_lose_and_duplicate_nothing(tmp_path: Path, postgres_address: str, soak: bool) -> None:
    count = PROCESSES if soak else 8
    load = new_load(tmp_path, 10 if soak else 1, postgres_url(postgres_address))
    processes_at_work(load, count)
    check(load, count)


def test_threads_on_one_handle_lose_and_duplicate_nothing(tmp_path: Path, soak: bool) -> None:
    count = 8
    load = new_load(tmp_path, rounds=50 if soak else 3)
    run_all([lambda: threads_at_work(load, count)])
    check(load, count)


def threads_at_work(load: SpaceLoad, count: int) -> None:
    """Run in a separate process, because the switch interval of threads is a setting of the whole process."""
    sys.setswitchinterval(1e-5)
    complaints: list[BaseException] = []
    together = threading.Barrier(count)

    def share(number: int) -> None:
        try:
            take_part(Writer(space, load.paper), number, load.rounds, together)
        except BaseException as err:  # noqa: BLE001  # whatever it is, the test must see it
            complaints.append(err)
            together.abort()

    with load.open() as space:
        threads = [threading.Thread(target=share, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if complaints:
        raise complaints[0]


def test_an_agent_whose_ref_git_is_packing_is_archived_once_git_is_done(tmp_path: Path) -> None:
    load = new_load(tmp_path, rounds=0)
    git("pack-refs", "--all", cwd=load.root)
    lock = load.root / ".git/packed-refs.lock"
    steps: list[str] = []

    def reached(step: str) -> None:
        steps.append(step)
        if steps.count("ref-locked") == 4:  # the new ref exists; the old one could not be removed twice
            lock.unlink()

    with clia.open(load.root, settings=settings(reached=reached)) as space:
        lock.touch()
        space.agents.archive(SHARED)
        assert space.agents() == []
    assert "refs/heads/agents/" not in git("for-each-ref", cwd=load.root)
    assert steps.count("ref-locked") >= 4
