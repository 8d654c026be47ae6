"""DBOS on PostgreSQL: a workflow that waits for messages.

Only its public API is timed. A waiting workflow lives in this process, as usual in DBOS; the fresh handle is a client with a new
connection. Progress is reported through memory, so DBOS is not charged for it.
"""

from __future__ import annotations

import queue
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers.server import Database

_LONG = 3600.0  # seconds that a workflow waits for its message
_PATIENCE = 60.0
_STOP = "stop"
_STEPS = 2  # steps of one wait: the message, and the timeout


class Dbos:
    def __init__(self, database: Database) -> None:
        # By name: the package is an extra, and type checks must hold without it.
        module: Any = import_module("dbos")
        self._dbos, self._client = module.DBOS, module.DBOSClient
        self._database = database
        self._url = database.address("postgresql+psycopg")
        self._waits: queue.SimpleQueue[None] = queue.SimpleQueue()
        config = {"name": "bench", "system_database_url": self._url, "log_level": "ERROR", "max_executor_threads": 2000}
        self._dbos(config=config)
        self._adds = self._dbos.workflow(name="adds")(self._workflow())
        self._dbos.launch()

    def close(self) -> None:
        for workflow in self._dbos.list_workflows(status="PENDING", load_input=False, load_output=False):
            self._dbos.send(workflow.workflow_id, _STOP, "number")
        self._dbos.destroy(destroy_registry=True, workflow_completion_timeout_sec=int(_PATIENCE))

    def once(self) -> None:
        """Start a session that suspends; a fresh handle resumes it to its end."""
        session = self._start(1)
        client = self._client(system_database_url=self._url)
        client.send(session.workflow_id, 3, "number")
        assert session.get_result() == 3
        client.destroy()

    def long_session(self, count: int) -> Callable[[int], None]:
        """Start a session with more requests than ``count``; the returned function resumes it a number of times."""
        session = self._start(count + 1)
        return lambda times: self._resume(session, times)

    def forks(self, resumes: int) -> Callable[[], None]:
        """Resume a session this often; the returned function forks it at its current state and waits until the fork waits."""
        session = self._start(resumes + 1)
        self._resume(session, resumes)

        def fork() -> None:
            self._dbos.fork_workflow(session.workflow_id, 1 + resumes * _STEPS)
            for _ in range(resumes + 1):  # it repeats its earlier waits
                self._waits.get(timeout=_PATIENCE)

        return fork

    def suspend(self, count: int) -> None:
        """Create this many waiting sessions, each in its own thread."""
        for _ in range(count):
            self._start(1)

    def size(self) -> int:
        return self._database.size("dbos")

    def _start(self, count: int) -> Any:
        session = self._dbos.start_workflow(self._adds, count)
        self._waits.get(timeout=_PATIENCE)
        return session

    def _resume(self, session: Any, times: int) -> None:
        for _ in range(times):
            self._dbos.send(session.workflow_id, 3, "number")
            self._waits.get(timeout=_PATIENCE)

    def _workflow(self) -> Callable[[int], int]:
        def adds(count: int) -> int:
            total = 0
            for _ in range(count):
                self._waits.put(None)
                answer = self._dbos.recv("number", timeout_seconds=_LONG)
                if answer == _STOP:  # nothing else ends its thread
                    break
                total += answer
            return total

        return adds
