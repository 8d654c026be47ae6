"""A process that dies at a step of its work: the same step each time, by kill -9."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Point(NamedTuple):
    """A step, and the how-manieth time it is reached."""

    step: str
    number: int


class Mortal:
    """Told each step; from when it is armed, remembers them, and dies at one. A point, or the how-manieth step of all."""

    def __init__(
        self,
        at: Point | int | None = None,
        *,
        armed: bool = False,
        told: Mapping[Point | int, Callable[[], object]] | None = None,
    ) -> None:
        self._at = at
        self._told = told or {}
        self._counts: Counter[str] = Counter()
        self.armed = armed
        self.seen: list[Point] = []

    def __call__(self, step: str) -> None:
        if not self.armed:
            return
        self._counts[step] += 1
        self.seen.append(Point(step, self._counts[step]))
        here = (self.seen[-1], len(self.seen))
        for each in here:
            if each in self._told:
                self._told[each]()
        if self._at in here:
            os.kill(os.getpid(), signal.SIGKILL)
