"""A space on which tests run workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import clia
from clia.store.store_queue import StoreQueue
from support.effects import made_space, worker_for
from support.session_spaces import all_of_git

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping
    from pathlib import Path

    from clia.workers.worker import Worker, WorkerStatus

ONE = """
def main(input):
    try:
        return request(input["kind"], input.get("payload"))
    except RuntimeError as err:
        return {"failed": str(err)}
"""


class WorkerSpace:
    """A space with the agent ``scout`` and the flow ``one``, which makes one request."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.space = made_space(root)
        self.space.sessions.define("one", ONE)

    def ask(self, kind: str, payload: Any = None, agent: str = "scout") -> None:
        self.space.start(agent, "one", {"kind": kind, "payload": payload})

    def agents(self, *names: str) -> None:
        for name in names:
            self.space.spawn(name, clia.Briefing(title="Look around"))

    def result(self, agent: str = "scout") -> Any:
        session = self.space.session(agent)
        assert session.status == "finished", session.failure or session
        return session.result

    def worker(self, handlers: Mapping[str, Any] | None = None, **more: Any) -> Worker:
        return worker_for(self.space, self.root, handlers, **more)

    def work(self, handlers: Mapping[str, Any] | None = None, **more: Any) -> WorkerStatus:
        return self.worker(handlers, **more).run(until_idle=True)

    def queue(self) -> StoreQueue:
        return StoreQueue(self.space.local.store)

    def holds(self, text: str) -> list[str]:
        """The places of a text: files of the store, and git."""
        files = [path for path in (self.root / ".git" / "clia").rglob("*") if path.is_file()]
        names = [path.name for path in files if text.encode() in path.read_bytes()]
        return names + (["git"] if text.encode() in all_of_git(self.root) else [])


def soon(event: threading.Event, seconds: float) -> bool:
    """A worker's ``wait`` that lasts 10 ms at most."""
    return event.wait(min(seconds, 0.01))
