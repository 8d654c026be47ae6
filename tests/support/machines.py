"""Machines of one space: clones with a worker each that share a hub and a PostgreSQL database."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import clia
from clia.facade.config import Config
from clia.hub.service import periodic_sync
from clia.testing import components
from support import crashes
from support.effects import QUICK, worker_for
from support.git_hubs import bare
from support.space_driver import BRIEFING, Paper, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.process import BaseProcess

    from clia.workers.effects.context import Context

STEPS = """
def main(input):
    found = []
    for n in range(input):
        found.append(request("step", n))
    return found
"""
OPTIONS = QUICK._replace(lease_seconds=2.0, attempts=1000, backoff_seconds=0.05, backoff_max_seconds=0.5)


class Machines(NamedTuple):
    """The paths of all machines; any process can open any clone."""

    top: str
    store: str

    @property
    def hub(self) -> Path:
        return Path(self.top, "repo.git")  # the forge's name for the space

    @property
    def paper(self) -> Paper:
        return Paper(str(Path(self.top, "paper")))

    def root(self, machine: str) -> Path:
        return Path(self.top, machine, "repo")

    def join(self, machine: str) -> clia.Space:
        """A clone with the hub and the store; the first one creates the space."""
        if not self.hub.exists():
            bare(self.hub)
        self.root(machine).parent.mkdir(exist_ok=True)
        chosen = settings(store=self.store)
        with clia.init(self.root(machine), settings=chosen, hub=str(self.hub)):
            return self.open(machine)

    def open(self, machine: str) -> clia.Space:
        return clia.open(self.root(machine), settings=settings(store=self.store))

    def start(self, machine: str, name: str) -> BaseProcess:
        """Start a worker on a machine, which runs until it is idle."""
        return crashes.start(work, self, machine, name)

    def tried(self) -> list[tuple[str, ...]]:
        """Machine's worker, agent and request of every call of a handler."""
        return self.paper.read("tried")


def with_sessions(space: clia.Space, sessions: int, steps: int) -> list[str]:
    """Create agents, each with a session that requests a number of steps; return their names."""
    space.sessions.define("steps", STEPS)
    agents = [f"a{number}" for number in range(sessions)]
    for agent in agents:
        space.spawn(agent, BRIEFING)
        space.start(agent, "steps", steps)
    return agents


def work(machines: Machines, machine: str, name: str) -> None:
    """A step commits a file and answers; a repeated one finds the file."""

    def step(context: Context, payload: Any) -> Any:
        machines.paper.note("tried", name, context.agent, context.request.id)
        space, agent, path = context.space, context.agent, f"steps/{payload}"
        head = space.head(agent)
        if path not in space.files(head):
            space.trace(agent, "step", f"{payload} on {machine}")
            # On the head that was read: another machine may have done this step before it was killed.
            space.commit_with_trace(agent, "finding", changes={path: b"done"}, message=f"step {payload}", base=head)
        return payload * 10

    config = Config(worker=OPTIONS)
    with machines.open(machine) as space, closing(space.local.queue) as queue, periodic_sync(space, 0.5):
        worker_for(space, machines.root(machine), {"step": step}, config, queue=queue, name=name).run(until_idle=True)


def fresh(machines: Machines) -> clia.Space:
    """A new clone of the hub, made by plain git and ``clia init``."""
    place = Path(machines.top, "fresh")
    subprocess.run(["git", "clone", "--quiet", str(machines.hub), str(place)], check=True, capture_output=True)
    return clia.init(place, settings=settings())


def endings(space: clia.Space, agent: str) -> Iterator[str]:
    """The ends of an agent's sessions, read from git."""
    from clia.space.events import read_events
    from clia.values import refs as names

    tip = components(space).core.refs.get(names.events(agent))
    for event in read_events(components(space).core, tip) if tip else ():
        if event.body.get("event") == "session-ended":
            yield str(event.body["status"])
