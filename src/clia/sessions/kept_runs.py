"""Runs that are kept for the next answer.

Invariant: a run is there for every handle on the place that its session is in, and stands where the session stood when it was
written. However many spaces a process has open, it keeps few of them: each takes up a worker of the engine. None outlives the
last handle on its place.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

    from clia.engine.records import FlowRun
    from clia.sessions.records import Row

SIZE = 4


class Key(NamedTuple):
    """Whose run it is. The place is a store with its engine: copies of a space have the same agents and sessions."""

    place: Hashable
    agent: str
    session: str


class Shelf:
    """Threads may share it. The run that was put there first goes first."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._runs: OrderedDict[Key, tuple[Hashable, FlowRun]] = OrderedDict()
        self._handles: Counter[Hashable] = Counter()
        self._mutex = threading.Lock()

    def join(self, place: Hashable) -> None:
        """One more handle on a place."""
        with self._mutex:
            self._handles[place] += 1

    def leave(self, place: Hashable) -> None:
        """One handle fewer; with the last one go the runs."""
        with self._mutex:
            self._handles[place] -= 1
            gone = []
            if self._handles[place] <= 0:
                del self._handles[place]
                gone = [self._runs.pop(key)[1] for key in list(self._runs) if key.place == place]
        for run in gone:
            release(run)

    def take(self, key: Key, row: Row) -> FlowRun | None:
        """The run of a session that stands where it stood then; one that stands elsewhere is let go."""
        with self._mutex:
            there, run = self._runs.pop(key, (None, None))
        if run is not None and there != _stamp(row):
            release(run)  # someone else went on with the session
            return None
        return run

    def put(self, key: Key, row: Row, run: FlowRun) -> None:
        with self._mutex:
            gone = []
            if key.place not in self._handles:
                gone.append(run)  # closed meanwhile
            else:
                if key in self._runs:
                    gone.append(self._runs.pop(key)[1])
                if len(self._runs) >= self._size:
                    gone.append(self._runs.popitem(last=False)[1][1])
                self._runs[key] = _stamp(row), run
        for each in gone:
            release(each)


def _stamp(row: Row) -> Hashable:
    """What tells where a session stands. The times are in it: a store may be lost and come back with other answers."""
    return row.started_at, row.end, tuple(row.since.items())


def release(run: FlowRun | None) -> None:
    if run is not None:
        run.__exit__(None, None, None)
