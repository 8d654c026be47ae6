"""Absurd on PostgreSQL: a task that awaits events.

Only its public API is timed. Its tables come from the package ``absurdctl``, which contains the SQL of its release. A worker's
turn is run at once instead of by polling, so no pause is charged to it.
"""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers.server import Database

_QUEUE = "bench"
_PENDING = (
    "SELECT t.task_id, t.task_name, t.params, w.event_name, w.created_at FROM absurd.t_bench t"
    " JOIN absurd.w_bench w USING (task_id) WHERE t.state = 'sleeping' ORDER BY w.created_at"
)
_SPAWN = (
    "SELECT absurd.spawn_task('bench', 'adds', jsonb_build_object('name', 'copy' || i, 'count', 1), '{}')"
    " FROM generate_series(1, %s) i"
)


class Absurd:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._admin = database.connect()
        # By name: the packages are an extra, and type checks must hold without them.
        self._admin.execute(import_module("absurdctl").BUNDLED_SCHEMA_SQL)
        self._sdk: Any = import_module("absurd_sdk")
        self._handle = self._open()
        self._handle.create_queue()
        self._names = (f"s{number}" for number in itertools.count(1))

    def close(self) -> None:
        self._handle.close()
        self._admin.close()

    def once(self) -> None:
        """Start a session that suspends; a fresh handle resumes it to its end."""
        name, task = self._start(1)
        fresh = self._open()
        fresh.emit_event(f"{name}-0", 3)
        fresh.work_batch()
        result = fresh.fetch_task_result(task)
        fresh.close()
        assert result.result == 3

    def long_session(self, count: int) -> Callable[[int], None]:
        """Start a session with more requests than ``count``; the returned function resumes it a number of times."""
        name, _ = self._start(count + 1)
        numbers = itertools.count()

        def resume(times: int) -> None:
            for number in itertools.islice(numbers, times):
                self._handle.emit_event(f"{name}-{number}", 3)
                self._handle.work_batch()

        return resume

    def fill(self, count: int) -> None:
        """The same: it is fast enough for many."""
        self.suspend(count)

    def suspend(self, count: int) -> None:
        """Create this many waiting sessions."""
        self._admin.execute(_SPAWN, [count])
        self._handle.work_batch(batch_size=count)
        self._admin.execute("ANALYZE")

    def pending(self) -> int:
        """All tasks that wait for an event, with the event and the time; Absurd has SQL for this, but no function."""
        return len(self._admin.execute(_PENDING).fetchall())

    def size(self) -> int:
        return self._database.size("absurd")

    def _open(self) -> Any:
        handle = self._sdk.Absurd(self._database.address(), queue_name=_QUEUE)
        handle.register_task("adds")(_adds)
        return handle

    def _start(self, count: int) -> tuple[str, str]:
        name = next(self._names)
        task = self._handle.spawn("adds", {"name": name, "count": count})
        self._handle.work_batch()
        return name, task["task_id"]


def _adds(params: dict[str, Any], context: Any) -> int:
    return sum(context.await_event(f"{params['name']}-{number}") for number in range(params["count"]))
