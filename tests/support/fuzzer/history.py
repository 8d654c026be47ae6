"""Plan, play and shorten a history of faults.

A seed determines the steps: each has its own random choices, so that a history without some of its steps makes the same choices in
the others. ``play`` raises ``Broken`` with every problem; ``shortened`` looks for fewer steps with a problem.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from support.fuzzer import oracle, person, verbs
from support.fuzzer.place import Outcome, Place, make
from support.fuzzer.servers import Server
from support.fuzzer.surroundings import COPY, STORE_FAULTS, Disk, damage_store, state_of_store
from support.fuzzer.traced import KILL, STOP, Ended, Fault, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

VERB, CHORE, BURST, CHECK, CLOCK, FILL, STORE = "verb", "chore", "burst", "check", "clock", "fill", "store"
_KINDS = {VERB: 120, CHORE: 50, BURST: 8, CLOCK: 4, FILL: 4, STORE: 5, CHECK: 6}
_FAULTS = {None: 50, KILL: 28, STOP: 22}
_MOST_CHANGES, _MOST_POINTS = {VERB: 110, CHORE: 45}, 12
_MOST_STOPPED = 3
_SERVERS = ("server 1", "server 2")
STEPS = 30
"""Steps of a history."""


class Step(NamedTuple):
    number: int
    kind: str
    what: str = ""
    fault: Fault | None = None
    more: tuple[str, ...] = ()  # the other verbs of a burst
    by: str = ""  # the server that runs the verb; empty: a process of its own

    def __str__(self) -> str:
        fault = f", {self.fault.action} after {self.fault.after} {'steps' if self.by else 'changes'}" if self.fault else ""
        by = f" by {self.by}" if self.by else ""
        return f"{self.number}: {' + '.join((self.what or self.kind, *self.more))}{by}{fault}"


class Broken(AssertionError):
    """A history broke a promise."""

    def __init__(self, problems: Sequence[str], told: Sequence[str]) -> None:
        super().__init__("\n".join([*problems, "", *told]))
        self.problems = list(problems)


def _chosen(order: Random, weights: dict[Any, int]) -> Any:
    return order.choices(list(weights), list(weights.values()))[0]


def plan(seed: str, steps: int = STEPS) -> list[Step]:
    """The steps of a history."""
    return [_step(seed, number) for number in range(1, steps + 1)]


def _step(seed: str, number: int) -> Step:
    order = Random(f"{seed} plan {number}")  # noqa: S311  # not a secret
    kind = _chosen(order, _KINDS)
    if kind == STORE:
        return Step(number, kind, _chosen(order, STORE_FAULTS))
    if kind not in (VERB, CHORE, BURST):
        return Step(number, kind)
    weights = {name: weight for name, (_, weight) in (person.CHORES if kind == CHORE else verbs.VERBS).items()}
    if kind == BURST:
        first, *more = (_chosen(order, weights) for _ in range(order.randint(2, 4)))
        return Step(number, kind, first, None, tuple(more))
    action, by = _chosen(order, _FAULTS), order.choice(("", "", *_SERVERS)) if kind == VERB else ""
    fault = None if action is None else Fault(action, order.randint(1, _MOST_POINTS if by else _MOST_CHANGES[kind]))
    return Step(number, kind, _chosen(order, weights), fault, by=by)


class _Stopped(NamedTuple):
    run: Run | Server
    token: str | None  # of a verb
    title: str


class History:
    """One history under way."""

    def __init__(self, seed: str, top: Path, disk: Disk, say: Callable[[str], None]) -> None:
        self._seed = seed
        self._disk = disk
        self._place = Place(str(top))
        self._say = say
        self._told: list[str] = []
        self._stopped: list[_Stopped] = []
        self._outcomes: dict[str, Outcome] = {}
        self._disturbed: set[str] = set()
        self._clock = 0
        self._servers: dict[str, Server] = {}
        self._lost = oracle.LostState()
        self._store_is_wrong = False

    def play(self, steps: Iterable[Step]) -> None:
        self._in_process(partial(make, self._place))
        for step in steps:
            self._place = self._place._replace(step=step.number, clock=self._clock)
            self._maybe_continue(step)
            self._take(step)
        self._check("end")
        reasons = self._in_process(partial(oracle.can_go_on, self._place._replace(step=0), self._expected()))
        self._fail(reasons)

    def close(self) -> None:
        """End every process of the history."""
        for stopped in self._stopped:
            for pid in stopped.run.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(RuntimeError, BrokenPipeError, OSError):
                stopped.run.kill()
        for server in self._servers.values():
            server.kill()

    # Steps

    def _take(self, step: Step) -> None:
        if step.kind == CHECK:
            self._check(f"{step.number}: check")
        elif step.kind == CLOCK:
            self._clock = Random(f"{self._seed} clock {step.number}").choice((0, 86_400, -86_400, 3_600_000))  # noqa: S311
            self._tell(f"{step}: {self._clock:+} s")
        elif step.kind == CHORE:
            chore = person.chore_of(self._place, step.what, self._choices(step))
            self._disturbed.update([chore.disturbs] if chore.disturbs else [])
            self._settle(person.started(self._place, chore, step.fault).wait(), None, f"{step} [{chore.script}]")
        elif step.kind == FILL:
            self._fill(step)
        elif step.kind == STORE:
            self._damage_store(step)
        elif step.by:
            self._serve(step)
        else:
            self._run_verbs(step)

    def _fill(self, step: Step) -> None:
        """Fill the disk, or free it if it is full."""
        if self._disk.filler is None:
            leave = Random(f"{self._seed} fill {step.number}").choice((0, 1, 3, 10, 30))  # noqa: S311  # not a secret
            self._tell(f"{step}: {self._disk.fill(leave)}")
        else:
            self._disk.free()
            self._tell(f"{step}: freed")

    def _damage_store(self, step: Step) -> None:
        """Copy, swap or lose the store while no process uses it."""
        self._let_all_end()
        before = self._in_process(partial(state_of_store, self._place))
        if not damage_store(self._place, step.what):
            self._tell(f"{step}: there is no copy")
            return
        self._tell(str(step))
        if step.what == COPY:
            return
        after = self._in_process(partial(state_of_store, self._place))
        if after != before:
            self._lost = self._lost.joined(before.pending, self._outcomes)
            self._store_is_wrong = after.changes != before.changes or self._store_is_wrong

    def _serve(self, step: Step) -> None:
        """Run a verb in a process that stays, or in one of its own while that process is stopped."""
        server = self._servers.get(step.by)
        if server is not None and any(stopped.run is server for stopped in self._stopped):
            self._run_verbs(step._replace(by="", fault=None))
            return
        if server is None or not server.is_alive:
            server = self._servers[step.by] = Server(self._place)
        server.begin(self._place, step.what, self._choices(step), step.fault)
        self._settle(server.wait(), self._place.token, str(step))

    def _run_verbs(self, step: Step) -> None:
        places = [self._place] if not step.more else [self._place._replace(part=part) for part in range(1 + len(step.more))]
        runs = [
            Run(partial(verbs.run, place, what, f"{self._choices(step)} {place.part}"), step.fault, self._place.top)
            for place, what in zip(places, (step.what, *step.more), strict=True)
        ]
        for run, place in zip(runs, places, strict=True):
            self._settle(run.wait(), place.token, str(step))

    def _choices(self, step: Step) -> str:
        return f"{self._seed} choices {step.number}"

    def _maybe_continue(self, step: Step) -> None:
        order = Random(f"{self._seed} continue {step.number}")  # noqa: S311  # not a secret
        if self._stopped and (order.random() < 0.25 or len(self._stopped) >= _MOST_STOPPED):
            self._continue(order.randrange(len(self._stopped)))

    def _continue(self, at: int) -> None:
        stopped = self._stopped.pop(at)
        stopped.run.go_on()
        self._settle(stopped.run, stopped.token, f"continued: {stopped.title}")

    def _settle(self, run: Run | Server, token: str | None, title: str) -> None:
        """Note how a run ended, or that it is stopped."""
        if run.ended is None:
            self._stopped.append(_Stopped(run, token, title))
            self._tell(f"{title}: stopped")
            return
        if run.ended.failure:
            self._tell(f"{title}: failed")
            self._fail([run.ended.failure])
        if token is None:
            self._tell(f"{title}: {person.describe(run.ended)}")
            return
        self._answered(token, title, run.ended)

    def _answered(self, token: str, title: str, ended: Ended) -> None:
        outcome: Outcome = ended.result or Outcome("unknown")
        self._outcomes[token] = outcome
        words = [outcome.state, *map(str, outcome.facts), outcome.code, outcome.message]
        self._tell(f"{title}: {' '.join(filter(None, words))} (exit {ended.code}, {ended.changes} changes)")

    # Checks

    def _expected(self) -> oracle.Expected:
        return oracle.Expected(dict(self._outcomes), frozenset(self._disturbed), self._lost)

    def _check(self, title: str) -> None:
        """Let everything end, remove the locks of killed gits, and compare."""
        self._let_all_end()
        if self._store_is_wrong:
            self._fail(self._in_process(partial(oracle.accept_store, self._place)))
            self._store_is_wrong = False
        removed = person.remove_locks(self._place.root)
        self._tell(f"{title}{f', removed {removed}' if removed else ''}")
        self._fail(self._in_process(partial(oracle.problems, self._place, self._expected())))

    def _let_all_end(self) -> None:
        """Continue what is stopped, and end the processes that stay."""
        self._disk.free()
        while self._stopped:
            self._continue(0)
        for server in self._servers.values():
            server.kill()
        self._servers.clear()

    def _in_process(self, job: Callable[[], Any]) -> Any:
        ended = Run(job, None, self._place.top).wait().ended
        assert ended is not None
        if ended.failure or ended.code:
            self._fail([ended.failure or f"the check ended with {ended.code}"])
        return ended.result

    def _fail(self, problems: Sequence[str] | None) -> None:
        if problems:
            raise Broken(problems, self._told)

    def _tell(self, text: str) -> None:
        self._told.append(text)
        self._say(text)


def play(seed: str, top: Path, steps: Sequence[Step], say: Callable[[str], None] = lambda _: None) -> None:
    """Play a history in an empty directory; ``Broken`` if it breaks a promise."""
    with Disk(top / "disk") as disk:
        history = History(seed, top, disk, say)
        try:
            history.play(steps)
        finally:
            history.close()


def shortened(seed: str, top: Path, steps: Sequence[Step], attempts: int = 60) -> list[Step]:
    """Fewer steps that break a promise, too: half of them is left out, then a quarter, and so on."""
    kept, size = list(steps), max(1, len(steps) // 2)
    while attempts > 0:
        start, shorter = 0, False
        while start < len(kept) and attempts > 0:
            fewer = kept[:start] + kept[start + size :]
            attempts -= 1
            if fewer and _breaks(seed, top / f"attempt-{attempts}", fewer):
                kept, shorter = fewer, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return kept


def _breaks(seed: str, top: Path, steps: Sequence[Step]) -> bool:
    top.mkdir(parents=True)
    try:
        play(seed, top, steps)
    except Broken:
        return True
    finally:
        shutil.rmtree(top, ignore_errors=True)
    return False


def replay_command(seed: str, steps: Iterable[Step], planned: int) -> str:
    """The command that plays some of the steps of a planned history."""
    only = ",".join(str(step.number) for step in steps)
    return f"PYTHONPATH=tests .venv/bin/python -m support.fuzzer --seed {shlex.quote(seed)} --steps {planned} --only {only}"
