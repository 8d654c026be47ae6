"""The crash harness: processes that are killed by SIGKILL at a named crash point.

A driver is a function that takes a ``CrashHook``. It opens a space with it as ``Settings.reached``, arms it and runs a verb. The
harness runs drivers in forked processes; the test then opens what they left:

- ``crash_points(driver)`` runs a driver to its end and returns the crash points that it passed.
- ``crash(driver, point)`` kills a driver at a crash point and waits for it.
- ``crash_beside(driver, point, second, lock)`` does so while a second process waits for a lock of the first.
- ``crash_recovery(driver, point, recover, number)`` kills the recovery as well, twice.
- ``race_until_killed(race, names, most)`` runs several drivers at once; each dies at a random crash point.
- ``run_all(jobs)`` runs any jobs in separate processes, several at once.

A process that has run a flow has threads and must not fork. ``apart`` therefore runs a function, which may fork, in a process that
has run none; ``start`` does the same without waiting. Both fork from a server that has loaded clia already.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import traceback
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import support.preloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from multiprocessing.process import BaseProcess

    Job = Callable[[], Any]
    Driver = Callable[["CrashHook"], object]

VerbType = TypeVar("VerbType")
FORK = multiprocessing.get_context("fork")
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([support.preloaded.__name__])
KILLED = -signal.SIGKILL
"""The exit code of a process that was killed."""


class CrashPoint(NamedTuple):
    """A named step, and how often it was reached when the process is killed there (1: the first time)."""

    step: str
    number: int


class CrashCase(NamedTuple, Generic[VerbType]):
    """Where a verb is killed, and whether it is past the point of no return there."""

    verb: VerbType
    at: CrashPoint
    past: bool


class CrashHook:
    """Records crash points while armed, and kills the process at one: a ``CrashPoint``, or the nth point of all.

    ``actions`` run when their point is reached, before the process is killed there.
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


def kill_self(*_: object, **__: object) -> Any:
    """End this process as ``kill -9`` does. Takes any arguments, so that it can replace any function."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_before(owner: object, name: str) -> None:
    """Kill this process when it calls a function."""
    setattr(owner, name, kill_self)


def killed_at(step: str) -> CrashHook:
    """A hook that kills the process when it first reaches a step."""
    return CrashHook(CrashPoint(step, 1), armed=True)


# Drivers


def crash_points(driver: Driver) -> list[CrashPoint]:
    """Run a driver to its end in a separate process; return the crash points that it passed."""

    def run() -> list[CrashPoint]:
        hook = CrashHook()
        driver(hook)
        return hook.passed

    points: list[CrashPoint] = run_all([run])[0]
    return points


def crash(driver: Driver, at: CrashPoint | int, actions: Mapping[CrashPoint | int, Callable[[], object]] | None = None) -> None:
    """Run a driver in a separate process, which must be killed at a crash point."""
    assert_killed(lambda: driver(CrashHook(at, actions=actions)))


def crash_beside(
    driver: Driver, at: CrashPoint | int, second: Callable[[Callable[[], None]], object], lock: CrashPoint | int
) -> None:
    """Kill a driver while a second process is about to do its own work.

    The second process gets a function: it calls it when it is ready, and the call returns when the driver has reached ``lock``
    (the point at which it holds what both need) or died.
    """
    ready, go = os.pipe(), os.pipe()

    def wait() -> None:
        os.write(ready[1], b"x")
        assert os.read(go[0], 1) == b"x"

    process, report = started(lambda: second(wait))
    assert os.read(ready[0], 1) == b"x"
    crash(driver, at, {lock: lambda: os.write(go[1], b"x")})
    os.write(go[1], b"x")  # the driver may have died before it reached the lock
    result_of(process, report)
    for handle in (*ready, *go):
        os.close(handle)


def crash_recovery(driver: Driver, at: CrashPoint | int, recover: Driver, number: int) -> int:
    """Kill a driver, then two recoveries at their nth crash point; return how many recoveries got that far."""
    crash(driver, at)
    codes = [exit_code_of(lambda: recover(CrashHook(number, armed=True))) for _ in range(2)]
    assert set(codes) <= {KILLED, 0}, codes
    return codes.count(KILLED)


def race_until_killed(race: Callable[[str, CrashHook], object], names: Sequence[str], most: int) -> None:
    """Run a race in one process per name, all at once, until each has died at a crash point; the names are the seeds."""
    points = {name: random.Random(name).randrange(1, most) for name in names}  # noqa: S311  # not a secret
    racers = [FORK.Process(target=race, args=(name, CrashHook(point, armed=True))) for name, point in points.items()]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [KILLED] * len(racers)


# Jobs in forked processes


def exit_code_of(job: Job) -> int | None:
    """Run a job in a separate process; the exit code is negative for a signal."""
    process = FORK.Process(target=job)
    process.start()
    process.join()
    return process.exitcode


def assert_killed(job: Job) -> None:
    """Run a job in a separate process, which must be killed by SIGKILL."""
    assert exit_code_of(job) == KILLED


def run_all(jobs: Sequence[Job], at_once: int = 8) -> list[Any]:
    """Run each job in a separate process, several at once; return their results, or fail with every traceback."""
    results, failures, waiting = [], [], list(jobs)
    running: list[tuple[BaseProcess, Any]] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(started(waiting.pop(0)))
        process, pipe = running.pop(0)
        failure, result = _received(process, pipe)
        results.append(result)
        if failure:
            failures.append(failure)
    assert not failures, "\n".join(failures)
    return results


def started(job: Job) -> tuple[BaseProcess, Any]:
    """Start a process for a job; ``result_of`` waits for it."""
    parent_end, child_end = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_report, args=(child_end, job))
    process.start()
    child_end.close()
    return process, parent_end


def result_of(process: BaseProcess, pipe: Any) -> Any:
    """Wait for a started job; return its result, or fail with its traceback."""
    failure, result = _received(process, pipe)
    assert not failure, failure
    return result


def _received(process: BaseProcess, pipe: Any) -> tuple[str, Any]:
    try:
        failure, result = pipe.recv()
    except EOFError:
        process.join()
        return f"the process ended with {process.exitcode}", None
    process.join()
    return failure, result


def _report(pipe: Any, job: Callable[..., Any], *arguments: Any) -> None:
    try:
        pipe.send(("", job(*arguments)))
    except BaseException:
        pipe.send((traceback.format_exc(), None))
        raise


# Functions in processes that may fork


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function of a module in a process that has run no flow; return its result, or fail with its traceback."""
    return result_of(*started_apart(function, *arguments))


def started_apart(function: Callable[..., Any], *arguments: Any) -> tuple[BaseProcess, Any]:
    """Like ``apart``, without waiting; ``result_of`` waits."""
    parent_end, child_end = SERVER.Pipe(duplex=False)
    process = start(_report, child_end, function, *arguments)
    child_end.close()
    return process, parent_end


def start(function: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """Start a process for a function of a module. It has this process's environment and has run no flow."""
    process: BaseProcess = SERVER.Process(target=_with_environment, args=(dict(os.environ), function, *arguments))
    with _tests_on_path():
        process.start()
    return process


def exit_code(process: BaseProcess, seconds: float | None = None) -> int | None:
    """Wait for a process; return its exit code, or None if it did not end in time."""
    process.join(seconds)
    return process.exitcode


def _with_environment(environment: Mapping[str, str], function: Callable[..., Any], *arguments: Any) -> None:
    os.environ.clear()
    os.environ.update(environment)
    function(*arguments)


@contextmanager
def _tests_on_path() -> Iterator[None]:
    """The server does not get our ``sys.path`` before it loads what it preloads."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [before])])
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
