"""Runs that are kept for the next answer.

Invariant: each is there for whoever put it there, and stands where its session stood when it was written. However many spaces
a process has open, it keeps few of them: each takes up a worker of the engine.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.ports.engine import Run

    Key = tuple[object, str, str]  # whose, the agent, the session

SIZE = 4


class Shelf:
    """Threads may share it. The run that was put there first goes first."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._runs: OrderedDict[Key, tuple[int, Run]] = OrderedDict()
        self._mutex = threading.Lock()

    def take(self, key: Key, end: int) -> Run | None:
        """The run of a session that ends where it ended then; one that stands elsewhere is let go."""
        with self._mutex:
            there, run = self._runs.pop(key, (0, None))
        if run is not None and there != end:
            release(run)  # someone else went on with the session
            return None
        return run

    def put(self, key: Key, end: int, run: Run) -> None:
        with self._mutex:
            too_many = [self._runs.popitem(last=False)[1][1]] if len(self._runs) >= self._size else []
            self._runs[key] = end, run
        for each in too_many:
            release(each)

    def clear(self, owner: object) -> None:
        """Lets go what someone put there."""
        with self._mutex:
            gone = [self._runs.pop(key)[1] for key in list(self._runs) if key[0] is owner]
        for run in gone:
            release(run)


def release(run: Run | None) -> None:
    if run is not None:
        run.__exit__(None, None, None)
