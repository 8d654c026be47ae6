"""The crash harness: jobs in processes of their own, and processes that die by SIGKILL at a named crash point.

A space calls ``Settings.reached`` with the name of each crash point. A ``CrashHook`` given there records the points it passes
and kills the process at one of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.process import BaseProcess

    Job = Callable[[], None]

FORK = multiprocessing.get_context("fork")
KILLED = -signal.SIGKILL
"""The exit code of a process that was killed."""


class CrashPoint(NamedTuple):
    """A named step, and how often it was reached when the process dies there (1: the first time)."""

    step: str
    number: int


class CrashHook:
    """Records crash points while armed, and kills the process at one: a ``CrashPoint``, or the nth point of all.

    ``actions`` run when their point is reached, before the process dies there.
    """

    def __init__(
        self,
        at: CrashPoint | int | None = None,
        *,
        armed: bool = False,
        actions: Mapping[CrashPoint | int, Callable[[], object]] | None = None,
    ) -> None:
        self._at = at
        self._actions = actions or {}
        self._counts: Counter[str] = Counter()
        self.armed = armed
        self.passed: list[CrashPoint] = []

    def __call__(self, step: str) -> None:
        if not self.armed:
            return
        self._counts[step] += 1
        self.passed.append(CrashPoint(step, self._counts[step]))
        reached = (self.passed[-1], len(self.passed))
        for point in reached:
            if point in self._actions:
                self._actions[point]()
        if self._at in reached:
            kill_self()


def kill_self() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def exit_code_of(job: Job) -> int | None:
    """Run a job in a process of its own; the exit code is negative for a signal."""
    process = FORK.Process(target=job)
    process.start()
    process.join()
    return process.exitcode


def assert_killed(job: Job) -> None:
    """Run a job in a process of its own, which must die by SIGKILL."""
    assert exit_code_of(job) == KILLED


def run_all(jobs: Sequence[Job], at_once: int = 8) -> None:
    """Run each job in a process of its own, several at once; fail with every traceback."""
    waiting, failures = list(jobs), []
    running: list[tuple[BaseProcess, Any]] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(started(waiting.pop(0)))
        process, pipe = running.pop(0)
        failure = pipe.recv()
        process.join()
        if failure:
            failures.append(failure)
    assert not failures, "\n".join(failures)


def started(job: Job) -> tuple[BaseProcess, Any]:
    """Start a process for a job; its pipe sends the traceback, or an empty text."""
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_report, args=(job, theirs))
    process.start()
    theirs.close()
    return process, ours


def _report(job: Job, pipe: Any) -> None:
    try:
        job()
        pipe.send("")
    except BaseException:
        pipe.send(traceback.format_exc())
        raise
