"""What a session costs, against plain Monty on SQLite, and beside other engines that outlive a process.

Every contender runs the same work: a loop that asks for a number and adds it up. PostgreSQL and SQLite run without fsync
except in the rows that say otherwise.
"""

from __future__ import annotations

import gc
import itertools
import json
import shutil
import sqlite3
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import clia
from benchmarks import peers as others
from benchmarks.measure import Peer, Row, in_turns
from benchmarks.monty_floor import FLOW, NAME, MontyFloor, compact_size
from clia.kernel.clock import timestamp
from clia.sessions.records import LIVE, key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.peers import Peers
    from benchmarks.peers.apart import Apart

RESUMES, BLOCK, FORKED_AFTER, WAITING, KEPT, KEPT_BY_DBOS = 1_000, 100, 100, 10_000, 1_000, 200
AGENT = "scout"


class Ours:
    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self._path = path
        self._settings = clia.Settings(durable=durable, person=("Bench", "bench@example.org"))
        self.space = clia.init(path, settings=self._settings)
        self.space.define("adds", FLOW)
        self.space.spawn(AGENT, clia.Briefing("bench"))
        self._names = (f"a{number}" for number in itertools.count(1))

    @property
    def store(self) -> Path:
        return self._path / ".git/clia/space.db"

    def close(self) -> None:
        self.space.close()

    def once(self, agents: Iterator[str], *, forgotten: bool = False) -> Callable[[], None]:
        """Starts a session that suspends; a fresh handle resumes it to its next request.

        ``forgotten``: the process keeps no run of it, as if it were another one; it is replayed from the store.
        """

        def work() -> None:
            agent = next(agents)
            self.space.start(agent, "adds", {"count": 2})
            if forgotten:
                self._forget()
            with clia.open(self._path, settings=self._settings) as fresh:
                assert fresh.resume(agent, 3).pending

        return work

    def _forget(self) -> None:
        self.space.running.shelf.leave(self.space.running.place)
        self.space.running.shelf.join(self.space.running.place)

    def end(self) -> None:
        """Starts a session that suspends, and resumes it to its end, which is an event in git."""
        self.space.start(AGENT, "adds", {"count": 1})
        assert self.space.resume(AGENT, 3).result == 3

    def ready(self, count: int) -> Iterator[str]:
        """Agents that have no session yet."""
        return iter([self.spawned() for _ in range(count)])

    def long_session(self, count: int) -> Callable[[int], None]:
        """Starts a session with more requests than that; the call resumes it so often."""
        agent = self.started(count + 1)

        def resume(times: int) -> None:
            for _ in range(times):
                self.space.resume(agent, 3)

        return resume

    def forks(self, resumes: int) -> tuple[Callable[[], None], Callable[[], None]]:
        """Forks a session that was resumed so often; and spawns at the same commit, which is the branch's part of it."""
        agent = self.started(resumes + 1)
        for _ in range(resumes):
            self.space.resume(agent, 3)
        head = self.space.head(agent)

        def fork() -> None:
            assert self.space.fork(agent, next(self._names)).pending

        def branch() -> None:
            self.space.spawn_at(next(self._names), clia.Briefing("bench"), head, agent)

        return fork, branch

    def started(self, count: int) -> str:
        """A new agent with a session that waits for the first of so many answers."""
        agent = self.spawned()
        self.space.start(agent, "adds", {"count": count})
        return agent

    def spawned(self) -> str:
        agent = next(self._names)
        self.space.spawn(agent, clia.Briefing("bench"))
        return agent

    def size(self) -> int:
        with _reading(self.store) as raw:
            return compact_size(raw, self.store)


def rows(rounds: int) -> list[Row]:
    """Everything without fsync; to be measured before a durable space is opened."""
    with _place() as top, others.opened(top) as peers, ExitStack() as stack:
        floor, ours = MontyFloor(top / "floor.db", durable=False), Ours(top / "ours")
        stack.callback(floor.close)
        stack.callback(ours.close)
        return [
            *_round_trip(ours, floor, peers, rounds),
            *_resumes(ours, floor, peers, max(3, rounds // 5)),
            _fork(ours, peers, rounds),
            _pending(top, peers, rounds),
            _bytes(top, peers),
        ]


def durable_rows(rounds: int) -> list[Row]:
    with _place() as top, ExitStack() as stack:
        floor, ours = MontyFloor(top / "floor.db", durable=True), Ours(top / "ours", durable=True)
        stack.callback(floor.close)
        stack.callback(ours.close)
        langgraph = others.open_langgraph(top / "langgraph.db", stack, durable=True)
        asked = [langgraph] if langgraph else []
        once = ours.once(ours.ready(rounds + 1))
        mine, low, *theirs = in_turns([once, floor.once, *(each.once for each in asked)], rounds)
    peers = _measured(asked, theirs)
    return [Row("start, suspend, resume on a fresh handle, fsync on", mine, low, NAME, 1.5, peers=peers)]


def _round_trip(ours: Ours, floor: MontyFloor, peers: Peers, rounds: int) -> Iterator[Row]:
    asked = peers.all()
    once, replayed = ours.once(ours.ready(rounds + 1)), ours.once(ours.ready(rounds + 1), forgotten=True)
    mine, low, far, ended, *theirs = in_turns([once, floor.once, replayed, ours.end, *(each.once for each in asked)], rounds)
    work = "start, suspend, resume on a fresh handle"
    measured = tuple(each._replace(note=others.NOTES.get(each.name, "")) for each in _measured(asked, theirs))
    yield Row(work, mine, low, NAME, 1.5, peers=measured + peers.missing)
    if peers.langgraph is not None:
        yield Row("the same against LangGraph", mine, theirs[0], peers.langgraph.name, 1 / 3)
    yield Row("the same with no run kept: replayed from the store", far, low, NAME, None)
    yield Row("start, suspend, resume to the end: an event in git", ended, low, NAME, None)


def _resumes(ours: Ours, floor: MontyFloor, peers: Peers, rounds: int) -> Iterator[Row]:
    asked = peers.all()
    mine, low = _blocks([ours.long_session, floor.long_session], rounds)
    theirs = _blocks([each.long_session for each in asked], 1)
    measured = _measured(asked, [sum(blocks) for blocks in theirs])
    yield Row("1,000 resumes of one session, one after the other", sum(mine), sum(low), NAME, 1.5, peers=measured)
    flat = tuple(Peer(f"{each.name}, its last 100", blocks[-1]) for each, blocks in zip(asked, theirs, strict=True))
    yield Row("the last 100 of them", mine[-1], mine[0], "our first 100", 1.3, peers=flat)


def _blocks(openings: Sequence[Callable[[int], Callable[[int], None]]], rounds: int) -> list[list[float]]:
    """The median time of each block of resumes, in milliseconds; a block of every contender in turn."""
    times: list[list[list[float]]] = [[[] for _ in range(RESUMES // BLOCK)] for _ in openings]
    for _ in range(rounds):
        steps = [opening(RESUMES) for opening in openings]
        for block in range(RESUMES // BLOCK):
            for contender, step in enumerate(steps):
                gc.collect()
                started = time.perf_counter()
                step(BLOCK)
                times[contender][block].append((time.perf_counter() - started) * 1000)
    return [[statistics.median(block) for block in blocks] for blocks in times]


def _fork(ours: Ours, peers: Peers, rounds: int) -> Row:
    works = list(ours.forks(FORKED_AFTER))
    names = []
    if peers.langgraph is not None:
        works.append(peers.langgraph.forks(FORKED_AFTER))
        names.append(("LangGraph, in the same thread only", ""))
    whole, branch, *theirs = in_turns(works, rounds)
    if peers.dbos is not None:
        theirs += in_turns([peers.dbos.forks(FORKED_AFTER)], 3)
        names.append(("DBOS, until the fork waits", "a forked workflow starts when its queue is polled, once a second"))
    measured = tuple(Peer(name, cost, note) for (name, note), cost in zip(names, theirs, strict=True))
    work = f"fork after 100 resumes, besides the branch ({whole:.1f} ms with it)"
    return Row(work, whole - branch, branch, "spawn_at, the branch", 3.0, absolute=True, peers=measured)


def _pending(top: Path, peers: Peers, rounds: int) -> Row:
    """Sessions that wait, all copied from a real one: a list is what is measured, not how it came about."""
    ours = Ours(top / "pending")
    agent = ours.started(1)
    with ours.space._core.store.writing() as transaction:
        row = transaction.values.get(key(LIVE, agent, "1"))
        assert row is not None
        for number in range(WAITING - 1):
            pending = [[*call, _moment(number)] for *call, _ in row.value["pending"]]
            transaction.values.put(key(LIVE, f"copy{number}", "1"), row.value | {"pending": pending})

    def listed() -> None:
        assert len(ours.space.pending()) == WAITING

    with _reading(ours.store) as raw, ExitStack() as stack:
        stack.callback(ours.close)
        langgraph = others.open_langgraph(top / "langgraph-pending.db", stack)  # with nothing in it: it lists all it ever wrote
        asked = [each for each in (langgraph, peers.absurd) if each is not None]
        for each in asked:
            each.fill(WAITING)
        mine, low, *theirs = in_turns([listed, lambda: _parsed(raw), *(each.pending for each in asked)], max(3, rounds // 3))
    peers_of_it = _measured(asked, theirs)
    return Row("list 10,000 pending requests", mine, low, "SELECT and json.loads", 60, absolute=True, peers=peers_of_it)


def _moment(number: int) -> str:
    """Another one for each, and in no order: a list of them has to be sorted."""
    return timestamp(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number * 7919 % WAITING))


def _parsed(raw: sqlite3.Connection) -> None:
    rows = raw.execute("SELECT key, value FROM clia_values WHERE key BETWEEN 'live/' AND 'live0' ORDER BY key")
    assert sum(len(json.loads(text)["pending"]) for _, text in rows) == WAITING


def _bytes(top: Path, peers: Peers) -> Row:
    with ExitStack() as stack:
        ours, floor = Ours(top / "bytes"), MontyFloor(top / "bytes.db", durable=False)
        stack.callback(ours.close)
        stack.callback(floor.close)
        agents = iter([ours.spawned() for _ in range(KEPT)])

        def suspend(count: int) -> None:
            for agent in itertools.islice(agents, count):
                ours.space.start(agent, "adds", {"count": 1})

        mine, low = _growth(ours.size, suspend, KEPT), _growth(floor.size, floor.suspend, KEPT)
        asked = peers.all()
        counts = [KEPT_BY_DBOS if each is peers.dbos else KEPT for each in asked]
        theirs = [_growth(each.size, each.suspend, count) for each, count in zip(asked, counts, strict=True)]
    work = "bytes of a suspended session in the store"
    return Row(work, mine, low, f"{NAME}, the dump", None, peers=_measured(asked, theirs), unit="B")


def _measured(asked: Sequence[Apart], costs: Sequence[float]) -> tuple[Peer, ...]:
    return tuple(Peer(each.name, cost) for each, cost in zip(asked, costs, strict=True))


def _growth(size: Callable[[], int], suspend: Callable[[int], None], count: int) -> float:
    before = size()
    suspend(count)
    return (size() - before) / count


@contextmanager
def _place() -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(prefix="clia-bench-")).resolve()
    try:
        yield top
    finally:
        shutil.rmtree(top)


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    raw = sqlite3.connect(path)
    try:
        yield raw
    finally:
        raw.close()
