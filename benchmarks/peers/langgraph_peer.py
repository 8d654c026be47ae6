"""LangGraph with its SQLite checkpointer: a node that interrupts, in a loop.

Only its public API is timed; a graph is built once and compiled for each handle, which is how it gets a checkpointer.
"""

from __future__ import annotations

import itertools
import sqlite3
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypedDict

from benchmarks.monty_floor import compact_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_COPIED = "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
_COPIED_WRITES = "checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value"
_COPIES = (
    f"INSERT INTO checkpoints (thread_id, {_COPIED}) SELECT ?, {_COPIED} FROM checkpoints WHERE thread_id = ?",  # noqa: S608 (constants)
    f"INSERT INTO writes (thread_id, {_COPIED_WRITES}) SELECT ?, {_COPIED_WRITES} FROM writes WHERE thread_id = ?",  # noqa: S608 (constants)
)


class State(TypedDict):
    count: int
    total: int


class LangGraph:
    def __init__(self, path: Path, durable: bool) -> None:
        # By name: the packages are an extra, and type checks must hold without them.
        self._types = import_module("langgraph.types")
        self._saver = import_module("langgraph.checkpoint.sqlite").SqliteSaver
        self._path = path
        self._synchronous = "FULL" if durable else "OFF"
        self._builder = self._build(import_module("langgraph.graph"))
        self._threads = itertools.count(1)
        self._connection, self._graph = self._open()

    def close(self) -> None:
        self._connection.close()

    def once(self) -> None:
        """Start a session that suspends; a fresh handle resumes it to its end."""
        thread = self._start(1)
        connection, graph = self._open()
        result = graph.invoke(self._types.Command(resume=3), thread)
        connection.close()
        assert result["total"] == 3

    def long_session(self, count: int) -> Callable[[int], None]:
        """Start a session with more requests than ``count``; the returned function resumes it a number of times."""
        thread = self._start(count + 1)
        return lambda times: self._resume(thread, times)

    def forks(self, resumes: int) -> Callable[[], None]:
        """Resume a session this often; the returned function forks it at its current state, in the same thread: the only way."""
        thread = self._start(resumes + 1)
        self._resume(thread, resumes)
        place = self._graph.get_state(thread).config

        def fork() -> None:
            waiting = self._graph.invoke(None, self._graph.update_state(place, {"count": 2}, as_node="ask"))
            assert waiting["__interrupt__"]

        return fork

    def suspend(self, count: int) -> None:
        """Create this many waiting sessions."""
        for _ in range(count):
            self._start(1)

    def fill(self, count: int) -> None:
        """Create this many waiting sessions as copies of one."""
        thread = self._start(1)["configurable"]["thread_id"]
        for sql in _COPIES:
            self._connection.executemany(sql, [(f"copy{number}", thread) for number in range(count - 1)])
        self._connection.commit()

    def pending(self) -> int:
        """All unanswered interrupts of all threads."""
        threads, waiting = set(), 0
        for checkpoint in self._graph.checkpointer.list(None):
            thread = checkpoint.config["configurable"]["thread_id"]
            if thread not in threads:  # the newest of a thread comes first
                threads.add(thread)
                waiting += any(channel == "__interrupt__" for _, channel, _ in checkpoint.pending_writes)
        return waiting

    def size(self) -> int:
        return compact_size(self._connection, self._path)

    def _open(self) -> tuple[sqlite3.Connection, Any]:
        connection = sqlite3.connect(self._path, check_same_thread=False)
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        return connection, self._builder.compile(checkpointer=self._saver(connection))

    def _start(self, count: int) -> dict[str, Any]:
        thread = {"configurable": {"thread_id": str(next(self._threads))}}
        waiting = self._graph.invoke({"count": count, "total": 0}, thread)
        assert waiting["__interrupt__"]
        return thread

    def _resume(self, thread: dict[str, Any], times: int) -> None:
        for _ in range(times):
            self._graph.invoke(self._types.Command(resume=3), thread)

    def _build(self, graph: Any) -> Any:
        def ask(state: State) -> dict[str, int]:
            answer = self._types.interrupt({"kind": "number", "total": state["total"]})
            return {"count": state["count"] - 1, "total": state["total"] + answer}

        builder = graph.StateGraph(State)
        builder.add_node("ask", ask)
        builder.add_edge(graph.START, "ask")
        builder.add_conditional_edges("ask", lambda state: "ask" if state["count"] else graph.END)
        return builder
