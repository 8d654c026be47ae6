"""The floor of a durable session: plain Monty, and one SQLite row per session with the interpreter's dump.

It runs the same flow as our sessions, with the same journal mode and ``synchronous``. It has no journal, requests, locks or traces.
All handles share one pool of workers.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pydantic_monty

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FLOW = """\
def main(input):
    total = 0
    for _ in range(input["count"]):
        total += request("number", {"total": total})
    return total
"""
_LIMITS: pydantic_monty.ResourceLimits = {"max_suspensions": 1_000_000_000}
_TABLE = "CREATE TABLE sessions (id INTEGER PRIMARY KEY, dump BLOB, result INTEGER)"


class MontyFloor:
    def __init__(self, path: Path, *, durable: bool) -> None:
        self._path = path
        self._synchronous = "FULL" if durable else "NORMAL"
        self._pool = pydantic_monty.Monty()
        self._pool.__enter__()
        self._connection = self._open()
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(_TABLE)

    def close(self) -> None:
        self._connection.close()
        self._pool.__exit__(None, None, None)

    def once(self) -> None:
        """Start a session that suspends; a fresh handle resumes it to its next request."""
        session = self._start(2)
        fresh = self._open()
        assert self._resume(fresh, session) is None
        fresh.close()

    def long_session(self, count: int) -> Callable[[int], None]:
        """Start a session with more requests than ``count``; the returned function resumes it a number of times."""
        session = self._start(count + 1)

        def resume(times: int) -> None:
            for _ in range(times):
                self._resume(self._connection, session)

        return resume

    def suspend(self, count: int) -> None:
        """Create this many waiting sessions."""
        for _ in range(count):
            self._start(1)

    def size(self) -> int:
        return compact_size(self._connection, self._path)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        return connection

    def _start(self, count: int) -> int:
        with self._pool.checkout(limits=_LIMITS) as worker:
            waiting = worker.feed_start(f"{FLOW}\nmain(input)\n", inputs={"input": {"count": count}})
            assert isinstance(waiting, pydantic_monty.FunctionSnapshot)
            dump = waiting.dump()
        session = self._connection.execute("INSERT INTO sessions (dump) VALUES (?)", [dump]).lastrowid
        assert session is not None
        return session

    def _resume(self, connection: sqlite3.Connection, session: int) -> Any:
        (dump,) = connection.execute("SELECT dump FROM sessions WHERE id = ?", [session]).fetchone()
        with self._pool.checkout(limits=_LIMITS) as worker:
            waiting = worker.load_snapshot(dump)
            assert isinstance(waiting, pydantic_monty.FunctionSnapshot)
            after = waiting.resume({"return_value": 3})
            if isinstance(after, pydantic_monty.MontyComplete):
                connection.execute("UPDATE sessions SET dump = NULL, result = ? WHERE id = ?", [after.output, session])
                return after.output
            connection.execute("UPDATE sessions SET dump = ? WHERE id = ?", [after.dump(), session])
        return None


def compact_size(connection: sqlite3.Connection, path: Path) -> int:
    """The size of a database without its free pages and its journal."""
    copy = path.with_suffix(".copy")
    connection.execute("VACUUM INTO ?", [str(copy)])
    size = copy.stat().st_size
    copy.unlink()
    return size
