"""Measurements on a noisy machine: medians of rounds, with the compared works alternating.

A peer that fails drops out with its reason and does not affect the others; work that fails leaves a line for every expected row.
"""

from __future__ import annotations

import gc
import importlib.util
import resource
import statistics
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

NOT_INSTALLED = "not installed (make bench PEERS=1 installs it)"
REPETITIONS = 3  # of short works in each round
PATIENCE = 3_000  # total milliseconds for the rounds of one peer; a slow peer takes part in fewer rounds
FEWEST = 3


class Row(NamedTuple):
    """The measurement of one work of the registry, in its unit."""

    key: str
    ours: float
    floor: float
    peers: Mapping[str, float | str] = {}  # a text: why it was not run
    note: str = ""  # remark on this run


class NotRun(NamedTuple):
    key: str
    reason: str
    failed: bool = False  # it was tried


def in_turns(works: Sequence[Callable[[], object]], rounds: int, repetitions: int = 1) -> list[float]:
    """The median time of each in milliseconds: one warm-up round, then this many repetitions per round."""
    return [statistics.median(samples) for samples in _sampled(works, {}, rounds, repetitions)]


def fastest_in_turns(works: Sequence[Callable[[], object]], rounds: int, repetitions: int = 1) -> list[float]:
    """The same, but the shortest time of each: for programs whose start other processes delay."""
    return [min(samples) for samples in _sampled(works, {}, rounds, repetitions)]


def cheapest_in_turns(works: Sequence[Callable[[], object]], rounds: int, repetitions: int = 1) -> list[float]:
    """The same, but the least processor time of the programs that each starts: for those of a few milliseconds."""
    return [min(samples) for samples in _sampled(works, {}, rounds, repetitions, processor_time)]


def beside(
    works: Sequence[Callable[[], object]], peers: Mapping[str, Callable[[], object] | str], rounds: int, repetitions: int = 1
) -> tuple[list[float], dict[str, float | str]]:
    """The same with peers in the same rounds: the median of each, or the reason why there is none.

    ``repetitions``: in each round, for works of a few milliseconds: the first one mostly measures what the others left in the
    processor's caches.
    """
    contests = {name: Contest(peer, rounds * repetitions) for name, peer in peers.items()}
    times = [statistics.median(samples) for samples in _sampled(works, contests, rounds, repetitions)]
    return times, {name: samples.outcome() for name, samples in contests.items()}


def _sampled(
    works: Sequence[Callable[[], object]],
    contests: Mapping[str, Contest],
    rounds: int,
    repetitions: int,
    cost: Callable[[Callable[[], object]], float] | None = None,
) -> list[list[float]]:
    """The times of each work, or another cost, with the contests in the same rounds."""
    times: list[list[float]] = [[] for _ in works]
    with _heap_at_rest():
        for number in range(rounds + 1):
            for index, work in enumerate(works):
                costs = [(cost or timed)(work) for _ in range(repetitions)]
                times[index] += costs if number else []
            for contest in contests.values():
                for _ in range(repetitions):
                    contest.turn()
    return times


@contextmanager
def _heap_at_rest() -> Iterator[None]:
    """Exclude existing objects from garbage collection during measurements."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Contest:
    """The rounds of one peer."""

    def __init__(self, peer: Callable[[], object] | str, rounds: int) -> None:
        self._peer = peer
        self._left = rounds
        self._times: list[float] = []
        self._is_warm = False

    def turn(self) -> None:
        if isinstance(self._peer, str) or not self._left:
            return
        try:
            seconds = timed(self._peer)
        except Exception as err:  # noqa: BLE001  # an error of a peer does not stop the others
            self._peer = reason_of(err)
            return
        if self._is_warm:
            self._times.append(seconds)
            self._left -= 1
        else:
            self._is_warm = True
            self._left = min(self._left, max(FEWEST, int(PATIENCE / max(seconds, 0.001))))

    def outcome(self) -> float | str:
        return self._peer if isinstance(self._peer, str) else statistics.median(self._times)


def attempted(keys: Sequence[str], work: Callable[[], Iterable[Row | NotRun]]) -> Iterator[Row | NotRun]:
    """The rows of a work; if it fails, the missing keys with the reason."""
    owed = list(keys)
    reason = "its part of the benchmarks gave no result"
    try:
        for row in work():
            owed.remove(row.key)
            yield row
    except Exception as err:  # noqa: BLE001  # a failed row is shown in the table, and the others continue
        reason = reason_of(err)
    for key in owed:
        yield NotRun(key, reason, failed=True)


def reason_of(err: Exception) -> str:
    """One line."""
    message = " ".join(str(err).split())
    return f"{type(err).__name__}: {message}"[:200] if message else type(err).__name__


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    gc.collect()
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def processor_time(work: Callable[[], object]) -> float:
    """Milliseconds of processor time of the programs that a work starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def has_package(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def command(words: Sequence[str]) -> Callable[[], object]:
    """Run a program to its end and discard its output."""
    return lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
