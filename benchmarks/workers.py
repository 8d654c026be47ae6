"""Workers on several machines, each a clone with its own process, over one hub and one PostgreSQL; all on this computer.

A session is the same work for every number of workers: a timer that is due at once, and a commit. Workers are running before it
begins. The cost is the time from the first start to the last end, divided by the sessions: the median of rounds, in which all
numbers of workers alternate. If a session fails, there is no result.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import clia
from benchmarks.measure import NotRun, Row, has_package
from benchmarks.peers.server import NoServer, started
from benchmarks.places import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MACHINES, SESSIONS, ROUNDS = 3, 12, 3
KEYS = tuple(f"workers-{count}" for count in range(1, MACHINES + 1))
PATIENCE = 120.0  # seconds
PAUSE = 0.01
FLOW = """\
def main(input):
    request("timer", {"seconds": 0})
    return request("commit", {"changes": {"out.txt": input}, "message": "Work"})["commit"]
"""
_CLIA = str(Path(sys.executable).parent / "clia")


class BenchmarkMachine(NamedTuple):
    root: Path
    settings: clia.Settings

    def open(self) -> clia.Space:
        return clia.open(self.root, settings=self.settings)


def rows(rounds: int) -> Iterator[Row | NotRun]:
    rounds = min(rounds, ROUNDS)  # each has many sessions
    if missing := [name for name in ("psycopg", "procrastinate") if not has_package(name)]:
        yield from (NotRun(key, f"{' and '.join(missing)} not installed: the extra postgres has it") for key in KEYS)
        return
    with ExitStack() as stack:
        top = stack.enter_context(place(disk=True))
        try:
            address = started(stack).database("workers").address()
        except NoServer as err:
            yield from (NotRun(key, f"no PostgreSQL server: {err}") for key in KEYS)
            return
        try:
            machines = _fleet(top, address)
        except NotYet as err:
            yield from (NotRun(key, str(err)) for key in KEYS)
            return
        yield from _rows(top, machines, rounds)


class NotYet(Exception):
    """Why machines cannot share a space here."""


def _fleet(top: Path, address: str) -> list[BenchmarkMachine]:
    """Clones of one space, one per machine."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(top / "hub.git")], check=True)
    settings = clia.Settings(durable=False, person=("Bench", "bench@example.org"))
    machines = [BenchmarkMachine(top / f"machine-{number}", settings) for number in range(1, MACHINES + 1)]
    for machine in machines:
        words = [_CLIA, "init", str(machine.root), "--hub", str(top / "hub.git"), "--store", address]
        process = subprocess.run(words, capture_output=True, text=True, check=False)
        if "unrecognized arguments: --hub" in process.stderr:
            raise NotYet("clia init does not support --hub")
        if process.returncode:
            raise RuntimeError(f"clia init --hub: {process.stderr}")
        subprocess.run(["git", "-C", str(machine.root), "config", "clia.durable", "false"], check=True)
    return machines


def _rows(top: Path, machines: Sequence[BenchmarkMachine], rounds: int) -> Iterator[Row]:
    agents = [f"a{number}" for number in range(SESSIONS)]
    with machines[0].open() as space:
        space.sessions.define("work", FLOW)
        for agent in agents:
            space.spawn(agent, clia.Briefing("bench"))
        _alone(space, agents)
        times: list[list[float]] = []
        for _ in range(rounds):
            by_workers = [_with_workers(top, space, machines[:count], agents) for count in range(1, MACHINES + 1)]
            times.append([_each(lambda: _alone(space, agents)), *by_workers])
    by_hand, *costs = (statistics.median(samples) for samples in zip(*times, strict=True))
    for key, cost in zip(KEYS, costs, strict=True):
        yield Row(key, cost, by_hand if key == KEYS[0] else costs[0], note=f"{1000 / cost:.1f} sessions a second")


def _each(work: Callable[[], None]) -> float:
    """Milliseconds per session."""
    started_at = time.perf_counter()
    work()
    return (time.perf_counter() - started_at) * 1000 / SESSIONS


def _alone(space: clia.Space, agents: Sequence[str]) -> None:
    """The same verbs, called one after the other by one process."""
    for agent in agents:
        space.start(agent, "work", "text")
        space.resume(agent, None)
        commit = space.commit(agent, "finding", changes={"out.txt": b"text"}, message="Work")
        assert space.resume(agent, {"commit": commit}).result == commit


def _with_workers(top: Path, space: clia.Space, machines: Sequence[BenchmarkMachine], agents: Sequence[str]) -> float:
    with ExitStack() as stack:
        workers = [
            _started(stack, Path(stack.enter_context(tempfile.TemporaryDirectory(dir=top))), machine) for machine in machines
        ]
        until = time.monotonic() + PATIENCE
        while any(log.stat().st_size == 0 for _, log in workers):  # a worker prints a line for each result
            if any(process.poll() is not None for process, _ in workers) or time.monotonic() > until:
                raise RuntimeError(f"not all of {len(machines)} workers take part")
            _through(space, agents)
        return _each(lambda: _through(space, agents))


def _started(stack: ExitStack, place: Path, machine: BenchmarkMachine) -> tuple[subprocess.Popen[bytes], Path]:
    """A worker's process, which ends with the stack, and the file that it prints to."""
    log = place / "said"
    words = [_CLIA, "worker", "--path", str(machine.root), "--json"]
    process = subprocess.Popen(words, stdout=stack.enter_context(log.open("wb")), stderr=subprocess.DEVNULL)
    for ending in (process.kill, lambda: process.wait(60), process.terminate):  # the last one first
        stack.callback(ending)
    return process, log


def _through(space: clia.Space, agents: Sequence[str]) -> None:
    """Start a session of each agent, and wait until all have ended."""
    for agent in agents:
        space.start(agent, "work", "text")
    until = time.monotonic() + PATIENCE
    left = list(agents)
    while left:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(left)} of {len(agents)} sessions did not end within {PATIENCE:.0f} s")
        time.sleep(PAUSE)
        ended = {agent: space.session(agent) for agent in left}
        for agent, session in ended.items():
            if session.status in ("failed", "diverged", "cancelled"):
                raise RuntimeError(f"a session of {agent} ended as {session.status}: {session.failure}")
        left = [agent for agent, session in ended.items() if session.status != "finished"]
