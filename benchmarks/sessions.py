"""Sessions, against plain Monty on SQLite, and beside other durable engines.

All contenders run the same work: a loop that requests a number and adds it up. PostgreSQL and SQLite run without fsync except
in the rows that say otherwise.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import statistics
import subprocess
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import clia
from benchmarks import peers as others
from benchmarks.measure import REPETITIONS, Row, attempted, beside, timed
from benchmarks.monty_floor import FLOW, MontyFloor, compact_size
from benchmarks.peers.apart import PeerFailed
from benchmarks.places import place
from benchmarks.works import ABSURD, DBOS, FORK_DBOS, FORK_LANGGRAPH, LANGGRAPH
from clia.sessions.records import LIVE, key
from clia.values.clock import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.measure import NotRun
    from benchmarks.peers import Peers
    from benchmarks.peers.apart import Apart

    Opening = Callable[[int], Callable[[int], None]]

PENDING_MANY, PENDING_FEW, ANSWERS = 3_000, 300, 200
WIDE = """\
import asyncio

async def main(input):
    await asyncio.gather(*[request("number", {"n": n}) for n in range(input)])
"""
RESUMES, BLOCK, FORKED_AFTER, WAITING, KEPT, KEPT_BY_DBOS = 1_000, 100, 100, 10_000, 1_000, 200
AGENT = "scout"
ENGINES = (LANGGRAPH, DBOS, ABSURD)
TRIPS = ("round-trip", "round-trip-replayed", "round-trip-end")


class Ours:
    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self._path = path
        self._settings = clia.Settings(durable=durable, person=("Bench", "bench@example.org"))
        self.space = clia.init(path, settings=self._settings)
        self.space.sessions.define("adds", FLOW)
        self.space.sessions.define("wide", WIDE)
        self.space.spawn(AGENT, clia.Briefing("bench"))
        self._names = (f"a{number}" for number in itertools.count(1))

    @property
    def store(self) -> Path:
        return self._path / ".git/clia/space.db"

    def close(self) -> None:
        self.space.close()

    def once(self, agents: Iterator[str], *, forgotten: bool = False) -> Callable[[], None]:
        """Start a session that suspends; a fresh handle resumes it to its next request.

        ``forgotten``: the process keeps no run of it, like another process; it is replayed from the store.
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
        """Start a session that suspends, and resume it to its end, which is an event in git."""
        self.space.start(AGENT, "adds", {"count": 1})
        assert self.space.resume(AGENT, 3).result == 3

    def ready(self, count: int) -> Iterator[str]:
        """Agents without a session."""
        return iter([self.spawned() for _ in range(count)])

    def long_session(self, count: int) -> Callable[[int], None]:
        """Start a session with more requests than ``count``; the returned function resumes it a number of times."""
        agent = self.started(count + 1)

        def resume(times: int) -> None:
            for _ in range(times):
                self.space.resume(agent, 3)

        return resume

    def answers(self, pending: int, count: int) -> Callable[[], None]:
        """Answer some of this many pending requests; half of the answers come before, so that the number is that on average."""
        agent = self.spawned()
        self.space.start(agent, "wide", pending + count // 2)

        def answer() -> None:
            for number in range(1, count + 1):
                self.space.resume(agent, 3, f"1.{number}")

        return answer

    def forks(self, resumes: int) -> tuple[Callable[[], None], Callable[[], None]]:
        """Fork a session after this many resumes; and spawn at the same commit, which is the cost of the branch alone."""
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
        """A new agent with a session that waits for the first of ``count`` answers."""
        agent = self.spawned()
        self.space.start(agent, "adds", {"count": count})
        return agent

    def spawned(self) -> str:
        agent = next(self._names)
        self.space.spawn(agent, clia.Briefing("bench"))
        return agent

    def notes_size(self, agent: str) -> int:
        """The bytes of an agent's notes in git."""
        command = ["git", "-C", str(self._path), "rev-list", "--objects", "--disk-usage", f"--glob=refs/notes/clia/*/{agent}"]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def size(self) -> int:
        with _reading(self.store) as raw:
            return compact_size(raw, self.store)


def rows(rounds: int) -> Iterator[Row | NotRun]:
    """Everything without fsync; must be measured before a durable space is opened."""
    with place() as top, others.opened(top) as peers, ExitStack() as stack:
        floor, ours = MontyFloor(top / "floor.db", durable=False), Ours(top / "ours")
        stack.callback(floor.close)
        stack.callback(ours.close)
        yield from attempted(TRIPS, lambda: _round_trip(ours, floor, peers, rounds))
        yield from attempted(["resumes", "resumes-flat"], lambda: _resumes(ours, floor, peers, max(3, rounds // 5)))
        yield from attempted(["fan-out"], lambda: [_fan_out(ours, max(3, rounds // 5))])
        yield from attempted(["fan-out-store", "fan-out-notes"], lambda: _fan_out_bytes(ours))
        yield from attempted(["fork"], lambda: [_fork(ours, peers, rounds)])
        yield from attempted(["pending"], lambda: [_pending(top, peers, rounds)])
        yield from attempted(["bytes"], lambda: [_bytes(top, peers)])


def durable_rows(rounds: int) -> Iterator[Row | NotRun]:
    with place(disk=True) as top, ExitStack() as stack:
        floor, ours = MontyFloor(top / "floor.db", durable=True), Ours(top / "ours", durable=True)
        stack.callback(floor.close)
        stack.callback(ours.close)
        peers = {LANGGRAPH: others.open_langgraph(top / "langgraph.db", stack, durable=True)}
        once = ours.once(ours.ready((rounds + 1) * REPETITIONS))
        (cost, low), theirs = beside([once, floor.once], others.asked(peers, peers, lambda peer: peer.once), rounds, REPETITIONS)
        yield Row("round-trip-durable", cost, low, theirs)


def _round_trip(ours: Ours, floor: MontyFloor, peers: Peers, rounds: int) -> Iterator[Row]:
    works = [
        ours.once(ours.ready((rounds + 1) * REPETITIONS)),
        floor.once,
        ours.once(ours.ready((rounds + 1) * REPETITIONS), forgotten=True),
        ours.end,
    ]
    (cost, low, far, ended), theirs = beside(works, others.asked(peers, ENGINES, lambda peer: peer.once), rounds, REPETITIONS)
    yield Row("round-trip", cost, low, theirs, others.NOTE)
    yield Row("round-trip-replayed", far, low)
    yield Row("round-trip-end", ended, low)


def _resumes(ours: Ours, floor: MontyFloor, peers: Peers, rounds: int) -> Iterator[Row]:
    costs, low = _blocks([ours.long_session, floor.long_session], rounds)
    theirs = {name: _once_through(peers[name]) for name in ENGINES}
    yield Row(
        "resumes", sum(costs), sum(low), {name: cost if isinstance(cost, str) else sum(cost) for name, cost in theirs.items()}
    )
    last = {name: cost if isinstance(cost, str) else cost[-1] for name, cost in theirs.items()}
    yield Row("resumes-flat", costs[-1], costs[0], last)


def _once_through(peer: Apart | str) -> list[float] | str:
    """The blocks of a peer, measured once: they are long enough."""
    if isinstance(peer, str):
        return peer
    try:
        return _blocks([peer.long_session], 1)[0]
    except PeerFailed as err:
        return str(err)


def _blocks(openings: Sequence[Opening], rounds: int) -> list[list[float]]:
    """The median time of each block of resumes in milliseconds; contenders alternate."""
    times: list[list[list[float]]] = [[[] for _ in range(RESUMES // BLOCK)] for _ in openings]
    for _ in range(rounds):
        steps = [opening(RESUMES) for opening in openings]
        for block in range(RESUMES // BLOCK):
            for contender, step in enumerate(steps):
                times[contender][block].append(timed(lambda: step(BLOCK)))  # noqa: B023  # called at once
    return [[statistics.median(block) for block in blocks] for blocks in times]


def _fan_out(ours: Ours, rounds: int) -> Row:
    """The mean over many answers, because snapshots of a large state are rare."""
    costs = [[timed(ours.answers(pending, ANSWERS)) / ANSWERS for pending in (PENDING_MANY, PENDING_FEW)] for _ in range(rounds)]
    return Row("fan-out", *map(statistics.median, zip(*costs, strict=True)))


def _fan_out_bytes(ours: Ours) -> Iterator[Row]:
    """What an answer adds to the store, once it has a snapshot, and what it adds to the notes."""
    in_store, in_notes = [], []
    for pending in (PENDING_MANY, PENDING_FEW):
        agent = ours.spawned()
        ours.space.start(agent, "wide", pending + 2 * ANSWERS)
        numbers = itertools.count(1)

        def answer(count: int, *, commits: bool = False) -> None:
            for number in itertools.islice(numbers, count):  # noqa: B023  # called in this iteration
                ours.space.resume(agent, 3, f"1.{number}")  # noqa: B023
                if commits and number % 10 == 0:
                    ours.space.commit_with_trace(agent, "finding", {"n": str(number).encode()})  # noqa: B023

        answer(ANSWERS)
        in_store.append(_growth(ours.size, answer, ANSWERS))
        in_notes.append(_growth(lambda: ours.notes_size(agent), lambda count: answer(count, commits=True), ANSWERS))  # noqa: B023
    for name, (many, few) in (("fan-out-store", in_store), ("fan-out-notes", in_notes)):
        yield Row(name, many, few)


def _fork(ours: Ours, peers: Peers, rounds: int) -> Row:
    ready = others.asked(peers, (LANGGRAPH, DBOS), lambda peer: peer.forks(FORKED_AFTER))
    works = {FORK_LANGGRAPH: ready[LANGGRAPH], FORK_DBOS: ready[DBOS]}
    (complete, branch), theirs = beside(ours.forks(FORKED_AFTER), works, rounds, REPETITIONS)
    note = f"{complete:.1f} ms with the branch; DBOS starts a forked workflow when its queue is polled, once a second"
    return Row("fork", complete - branch, branch, theirs, note)


def _pending(top: Path, peers: Peers, rounds: int) -> Row:
    """Create waiting sessions as copies of a real one: only listing them is measured."""
    ours = Ours(top / "pending")
    agent = ours.started(1)
    with ours.space.core.store.writing() as transaction:
        row = transaction.values.get(key(LIVE, agent, "1"))
        assert row is not None
        for number in range(WAITING - 1):
            pending = [[*call, _moment(number)] for *call, _ in row.value["pending"]]
            transaction.values.put(key(LIVE, f"copy{number}", "1"), row.value | {"pending": pending})
    branches = "".join(f"create refs/heads/agents/copy{number} {ours.space.head(agent)}\n" for number in range(WAITING - 1))
    git = ["git", "-C", str(top / "pending")]
    subprocess.run([*git, "update-ref", "--stdin"], input=branches, text=True, check=True)
    subprocess.run([*git, "pack-refs", "--all"], check=True)

    def listed() -> None:
        assert len(ours.space.pending()) == WAITING

    with _reading(ours.store) as raw, ExitStack() as stack:
        stack.callback(ours.close)
        langgraph = others.open_langgraph(top / "langgraph-pending.db", stack)  # an empty store: it lists everything it ever wrote
        full = others.asked({LANGGRAPH: langgraph, ABSURD: peers[ABSURD]}, (LANGGRAPH, ABSURD), _filled)
        (cost, low), theirs = beside([listed, lambda: _parsed(raw)], full, max(3, rounds // 3))
    return Row("pending", cost, low, theirs)


def _filled(peer: Apart) -> Callable[[], object]:
    peer.fill(WAITING)
    return peer.pending


def _moment(number: int) -> str:
    """A distinct time for each, unordered, so that a list has to be sorted."""
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

        cost, low = _growth(ours.size, suspend, KEPT), _growth(floor.size, floor.suspend, KEPT)
        theirs = {name: _grown(peers[name], KEPT_BY_DBOS if name == DBOS else KEPT) for name in ENGINES}
    return Row("bytes", cost, low, theirs)


def _grown(peer: Apart | str, count: int) -> float | str:
    if isinstance(peer, str):
        return peer
    try:
        return _growth(peer.size, peer.suspend, count)
    except PeerFailed as err:
        return str(err)


def _growth(size: Callable[[], int], suspend: Callable[[int], None], count: int) -> float:
    before = size()
    suspend(count)
    return (size() - before) / count


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    raw = sqlite3.connect(path)
    try:
        yield raw
    finally:
        raw.close()
