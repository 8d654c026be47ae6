"""Play and shorten a history of faults.

``play`` raises ``Broken`` with every problem; ``shortened`` looks for fewer steps with a problem.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from support.fuzzer import oracle, peers, person, verbs
from support.fuzzer import planning as kinds
from support.fuzzer.place import Outcome, Place, make
from support.fuzzer.planning import random_of, world_of
from support.fuzzer.servers import Server
from support.fuzzer.surroundings import COPY, Disk, HubFaults, clean_up, damage_store, new_schema, state_of_store
from support.fuzzer.traced import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from random import Random

    from support.fuzzer.planning import Step
    from support.fuzzer.surroundings import StoreState
    from support.fuzzer.traced import Ended
    from support.own_postgres import Server as Database

    Databases = Callable[[], Database]

_MOST_STOPPED = 3


class Broken(AssertionError):
    """A history broke a promise."""

    def __init__(self, problems: Sequence[str], told: Sequence[str]) -> None:
        super().__init__("\n".join([*problems, "", *told]))
        self.problems = list(problems)


class _Stopped(NamedTuple):
    run: Run | Server
    token: str | None  # of a verb
    title: str


class History:
    """One history under way."""

    def __init__(self, seed: str, place: Place, disk: Disk, database: Database | None, say: Callable[[str], None]) -> None:
        self._seed = seed
        self._disk = disk
        self._place = place
        self._database = database
        self._database_is_away = False
        self._hub = HubFaults(place)
        self._say = say
        self._told: list[str] = []
        self._stopped: list[_Stopped] = []
        self._outcomes: dict[str, Outcome] = {}
        self._disturbed: set[str] = set()
        self._servers: dict[str, Server] = {}
        self._lost = oracle.LostState()
        self._wrong_stores: set[int] = set()  # machines for which the store is lost or older
        self._repairs = 0  # before the store was lost
        self.counts: Counter[str] = Counter()

    def play(self, steps: Iterable[Step]) -> None:
        self._in_process(partial(make, self._place))
        if self._place.world.peer:
            self._in_process(partial(peers.make_peer, self._place))
        for step in steps:
            self._place = self._place._replace(step=step.number, machine=step.machine)
            self._maybe_continue(step)
            self._take(step)
        self._check("end")
        for place in self._place._replace(step=0, machine=0).on_all_machines:
            self._fail(self._in_process(partial(oracle.can_go_on, place, self._expected())))

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
        self._start_database()

    # Steps

    def _take(self, step: Step) -> None:
        self.counts[f"{step.kind} {step.what}" if step.kind in (kinds.STORE, kinds.HUB) else step.kind] += 1
        if step.kind == kinds.CHECK:
            self._check(f"{step.number}: check")
        elif step.kind == kinds.CLOCK:
            self._place = self._place._replace(clock=self._order(step).choice((0, 86_400, -86_400, 3_600_000)))
            self._tell(f"{step}: {self._place.clock:+} s")
        elif step.kind == kinds.CHORE:
            self._do_chore(step)
        elif step.kind == kinds.FILL:
            self._fill(step)
        elif step.kind == kinds.STORE:
            self._damage_store(step)
        elif step.kind == kinds.HUB:
            self._tell(f"{step}: {self._hub.damage(step.what, self._order(step))}")
        elif step.kind == kinds.SERVER:
            self._stop_database(step)
        elif step.by:
            self._serve(step)
        else:
            self._run_verbs(step)

    def _do_chore(self, step: Step) -> None:
        chore = person.chore_of(self._place, step.what, self._choices(step))
        if chore.at_hub and not self._place.hub.exists():
            self._tell(f"{step}: the hub is away")
            return
        self._disturbed.update([chore.disturbs] if chore.disturbs else [])
        self._settle(person.started(self._place, chore, step.fault).wait(), None, f"{step} [{chore.script}]")

    def _fill(self, step: Step) -> None:
        """Fill the disk, or free it if it is full."""
        if self._disk.filler is None:
            self._tell(f"{step}: {self._disk.fill(self._order(step).choice((0, 1, 3, 10, 30)))}")
        else:
            self._disk.free()
            self._tell(f"{step}: freed")

    def _stop_database(self, step: Step) -> None:
        """Kill the database under those who use it, or start it again."""
        if self._start_database():
            self._tell(f"{step}: started")
        elif self._database is not None:
            self._database.stop("immediate")
            self._database_is_away = True
            self._tell(f"{step}: killed")

    def _start_database(self) -> bool:
        if self._database is None or not self._database_is_away:
            return False
        self._database.start()
        self._database_is_away = False
        return True

    def _damage_store(self, step: Step) -> None:
        """Copy, swap or lose the store while no process uses it."""
        self._let_all_end()
        before = self._states_of_store()
        if not damage_store(self._place, step.what, self._database):
            self._tell(f"{step}: there is no copy")
            return
        self._tell(str(step))
        if step.what == COPY:
            return
        after = self._states_of_store()
        if after != before:
            self._lost = self._lost.joined({text for state in before for text in state.pending}, self._outcomes)
            pairs = zip(before, after, strict=True)
            self._repairs = len(list(self._place.begun_with("repair")))
            self._wrong_stores |= {machine for machine, (old, new) in enumerate(pairs) if old.changes != new.changes}

    def _states_of_store(self) -> list[StoreState]:
        return [self._in_process(partial(state_of_store, place)) for place in self._place.on_all_machines]

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

    def _order(self, step: Step) -> Random:
        return random_of(self._seed, f"{step.kind} {step.number}")

    def _maybe_continue(self, step: Step) -> None:
        order = random_of(self._seed, f"continue {step.number}")
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
            self.counts["stopped"] += 1
            self._tell(f"{title}: stopped")
            return
        self.counts["killed"] += run.ended.code == -signal.SIGKILL
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
        self.counts[outcome.state] += 1
        words = [outcome.state, *map(str, outcome.facts), outcome.code, outcome.message]
        self._tell(f"{title}: {' '.join(filter(None, words))} (exit {ended.code}, {ended.changes} changes)")

    # Checks

    def _expected(self) -> oracle.Expected:
        return oracle.Expected(dict(self._outcomes), frozenset(self._disturbed), self._lost)

    def _check(self, title: str) -> None:
        """Let everything end, remove the locks of killed gits, and compare."""
        self._let_all_end()
        places = self._place._replace(machine=0).on_all_machines
        removed = [path for place in places for path in person.remove_locks(place.root)]
        if self._place.world.hub:
            removed += person.remove_locks(self._place.hub)
        accepted = len(list(self._place.begun_with("repair"))) > self._repairs
        for place in places if self._wrong_stores else ():
            differs = place.machine in self._wrong_stores and not accepted
            self._fail(self._in_process(partial(oracle.accept_store, place, differs)))
        self._wrong_stores.clear()
        self._tell(f"{title}{f', removed {removed}' if removed else ''}")
        if self._place.world.hub:
            for number, place in enumerate([*places, *places, *places]):
                self._fail(self._in_process(partial(oracle.meet, place, self._expected(), number >= 2 * len(places))))
        found: list[oracle.Problems] = [self._in_process(partial(oracle.problems, place, self._expected())) for place in places]
        self._fail([problem for problems in found for problem in problems.certain])
        self._fail(sorted(set.intersection(*(set(problems.unnamed) for problems in found))))
        if self._place.world.peer:
            self._fail(self._in_process(partial(peers.peer_problems, places[0], self._expected())))

    def _let_all_end(self) -> None:
        """Continue what is stopped, and end the processes that stay."""
        self._disk.free()
        self._hub.bring_back()
        self._start_database()
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


def no_database() -> Database:
    raise LookupError("this history needs a database")


def play(
    seed: str, top: Path, steps: Sequence[Step], say: Callable[[str], None] = lambda _: None, databases: Databases = no_database
) -> Counter[str]:
    """Play a history in an empty directory; ``Broken`` if it breaks a promise. Return what happened, and how often.

    ``databases``: returns the database server for a history that needs one.
    """
    world, schema = world_of(seed), "fuzzed"
    database = databases() if world.postgres else None
    place = Place(str(top), world=world, store=None if database is None else new_schema(database, schema))
    with Disk(top / "disk") as disk:
        history = History(seed, place, disk, database, say)
        try:
            history.play(steps)
        finally:
            history.close()
            if database is not None:
                clean_up(database, schema)
    return history.counts


def shortened(seed: str, top: Path, steps: Sequence[Step], attempts: int = 60, databases: Databases = no_database) -> list[Step]:
    """Fewer steps that break a promise, too: half of them is left out, then a quarter, and so on."""
    kept, size = list(steps), max(1, len(steps) // 2)
    while attempts > 0:
        start, shorter = 0, False
        while start < len(kept) and attempts > 0:
            fewer = kept[:start] + kept[start + size :]
            attempts -= 1
            if fewer and _breaks(seed, top / f"attempt-{attempts}", fewer, databases):
                kept, shorter = fewer, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return kept


def _breaks(seed: str, top: Path, steps: Sequence[Step], databases: Databases) -> bool:
    top.mkdir(parents=True)
    try:
        play(seed, top, steps, databases=databases)
    except Broken:
        return True
    finally:
        shutil.rmtree(top, ignore_errors=True)
    return False


def replay_command(seed: str, steps: Iterable[Step], planned: int) -> str:
    """The command that plays some of the steps of a planned history."""
    only = ",".join(str(step.number) for step in steps)
    return f"PYTHONPATH=tests .venv/bin/python -m support.fuzzer --seed {shlex.quote(seed)} --steps {planned} --only {only}"
