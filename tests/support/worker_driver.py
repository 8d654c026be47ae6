"""Workers in separate processes, which can be killed at a step, and checks after all work is done."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import clia
from clia.facade.config import Config
from clia.store.procrastinate_queue import ProcrastinateQueue
from clia.store.store_queue import StoreQueue
from support import crashes
from support.effects import QUICK, fake_agent, worker_for
from support.space_driver import BRIEFING, Paper, settings

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from clia.store.interface import Queue
    from clia.workers.effects.context import Context

CHAIN = """
def main(input):
    found = []
    for n in range(input):
        try:
            found.append(request("work", n))
        except RuntimeError as err:
            found.append(str(err))
    return found
"""
IMPATIENT = {"lease_seconds": 0.5, "attempts": 4}


class DriverSpace(NamedTuple):
    """A space that any process can open."""

    root: str
    store: str | None
    paper: str

    def open(self) -> clia.Space:
        return clia.open(self.root, settings=settings(store=self.store))

    def made(self, sessions: int, requests: int, flow: str = CHAIN) -> DriverSpace:
        """A space with agents, each with a session that requests a number of answers."""
        with clia.init(self.root, settings=settings(store=self.store)) as space:
            space.sessions.define("chain", flow)
            for number in range(sessions):
                space.spawn(f"a{number}", BRIEFING)
                space.start(f"a{number}", "chain", requests)
        return self

    def tried(self) -> list[tuple[str, ...]]:
        """Agent and request of every call of a handler."""
        return Paper(self.paper).read("tried")


def start(place: DriverSpace, name: str, dies_at: str = "", **options: Any) -> BaseProcess:
    """Start a worker that runs until it is idle. ``shared``: on the queue of several machines."""
    return crashes.start(work, place, name, dies_at, {**IMPATIENT, **options})


def work(place: DriverSpace, name: str, dies_at: str, options: dict[str, Any]) -> None:
    def reached(step: str) -> None:
        if step == dies_at:
            crashes.kill_self()

    def handle(context: Context, payload: Any) -> Any:
        Paper(place.paper).note("tried", context.agent, context.request.id)
        reached("handling")
        return payload * 10

    shared = options.pop("shared", False)
    config = Config(worker=QUICK._replace(**options), programs={"agent": fake_agent(Path(place.root).parent)})
    with place.open() as space, closing(_queue(space, place.store if shared else None)) as queue:
        worker_for(space, Path(place.root), {"work": handle}, config, queue=queue, name=name, reached=reached).run(until_idle=True)


def _queue(space: clia.Space, shared: str | None) -> Queue:
    """The queue of one machine, or of several that share a database."""
    store = space.local.store
    return StoreQueue(store) if shared is None else ProcrastinateQueue(store, shared, space.id)


def check_answered_once(place: DriverSpace, agents: int, expected: list[Any]) -> None:
    """Check that each session ended as expected, each request was resumed once, and the space is sound."""
    calls = Counter(range(1, len(expected) + 1))
    with place.open() as space:
        for agent in (f"a{number}" for number in range(agents)):
            session = space.session(agent)
            assert (session.status, session.result) == ("finished", expected)
            assert Counter(event["resume"][0] for event in space.sessions.journal(agent) if event["event"] == "resumed") == calls
        assert StoreQueue(space.local.store).waiting() == []
        assert space.doctor() == []
        report = space.verify()
        assert report.clean, report.findings
