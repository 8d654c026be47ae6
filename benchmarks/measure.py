"""Measuring on a noisy machine: medians of rounds, the compared things taken in turns."""

from __future__ import annotations

import gc
import importlib.util
import statistics
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOT_INSTALLED = "not installed (make bench PEERS=1 installs it)"


class Peer(NamedTuple):
    name: str
    cost: float | None = None  # in the row's unit; None: not measured
    note: str = ""  # one line below the table: why it was not measured, or what there is to know


class Row(NamedTuple):
    work: str
    ours: float  # in `unit`
    floor: float
    floor_name: str
    bar: float | None  # the largest ratio, or with `absolute` the largest cost; None: nothing was promised
    absolute: bool = False
    peers: tuple[Peer, ...] = ()
    unit: str = "ms"

    @property
    def ratio(self) -> float:
        return self.ours / self.floor

    @property
    def met(self) -> bool:
        return self.bar is None or (self.ours if self.absolute else self.ratio) <= self.bar


def in_turns(works: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The median time of each, in milliseconds; one warm-up round, then all of them once a round."""
    times: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for index, work in enumerate(works):
            gc.collect()
            started = time.perf_counter()
            work()
            if number:
                times[index].append((time.perf_counter() - started) * 1000)
    return [statistics.median(each) for each in times]


def has_package(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def command(words: Sequence[str]) -> Callable[[], object]:
    """A program run to its end, its output thrown away."""
    return lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
