"""Crashes in the verbs of a session. The public functions fork: call them with ``crashes.apart``."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clia.errors import CliaError, Conflict, NotFound, StaleRequest
from support.crashes import (
    CrashCase,
    CrashHook,
    CrashPoint,
    crash,
    crash_beside,
    crash_points,
    crash_recovery,
    race_until_killed,
    run_all,
)
from support.disks import become_nobody
from support.session_driver import CHOICES, SessionCrashSpace, SessionTemplate, brought_to_its_end, check_nothing_lost
from support.session_verbs import VERBS, SessionVerb, check_done, me, person
from support.space_driver import Paper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import clia

MOST_STEPS = 5  # of a recovery: inside the locks of two notes and of the events, notes bound, finished
MOST_RACE_STEPS = 200


def run_verb(place: SessionCrashSpace, verb: SessionVerb, hook: CrashHook) -> None:
    """The driver: acknowledged work first, then the verb."""
    with place.open("victim", hook) as space:
        space.trace(verb.agent, "console", "victim before")
        place.paper.note("entry", "victim before")
        commit = space.commit(verb.agent, "finding", changes={"before.txt": b"before\n"})
        place.paper.note("commit", verb.agent, commit)
        hook.armed = True
        verb.act(space)


def points_of(place: SessionCrashSpace, verb: SessionVerb) -> list[CrashPoint]:
    """The crash points of a verb, from a run to its end, which is checked."""
    points = crash_points(partial(run_verb, place, verb))
    run_all([partial(check_done_by, place, verb, {"victim"})])
    return points


def check_done_by(place: SessionCrashSpace, verb: SessionVerb, who: set[str]) -> None:
    with place.open() as space:
        check_done(place, space, verb, who)


def crashes_of(verb: SessionVerb, points: list[CrashPoint], only: Sequence[str] | None) -> list[CrashCase[SessionVerb]]:
    """A crash at each point; ``only``: the first time that each of these steps is reached.

    The branch's move is the point of no return; where no ref moves, the transaction is.
    """
    turn = points.index(CrashPoint("committed" if CrashPoint("committed", 1) in points else "finished", 1))
    cases = [CrashCase(verb, point, number >= turn) for number, point in enumerate(points)]
    return [case for case in cases if only is None or (case.at.step in only and case.at.number == 1)]


def crash_alone(place: SessionCrashSpace, case: CrashCase[SessionVerb]) -> None:
    crash(partial(run_verb, place, case.verb), case.at)
    check_done_by(place, case.verb, {"victim"} if case.past else set())


def crash_beside_another(place: SessionCrashSpace, case: CrashCase[SessionVerb]) -> None:
    """The victim holds the agent's lock when the second process runs the same verb."""
    lock = CrashPoint("locked", 2 if case.verb.new_agent else 1)  # a fork takes the lock of the old agent, then that of the new one
    crash_beside(partial(run_verb, place, case.verb), case.at, partial(run_second, place, case), lock)
    first = {"victim"} if case.past else set()
    check_done_by(place, case.verb, first or {"second"} if case.verb.once else first | {"second"})


def run_second(place: SessionCrashSpace, case: CrashCase[SessionVerb], wait: Callable[[], None]) -> None:
    """The second process: opens the space before the first is killed, runs the same verb, and gets the name of the first."""
    verb = case.verb
    with place.open("second") as space:
        wait()
        try:
            verb.act(space)
        except Conflict as conflict:
            answered_by = conflict.answered_by if isinstance(conflict, StaleRequest) else None
            if not case.past or (answered_by and person(answered_by) != "victim"):
                raise
        name = verb.new_agent or verb.agent
        space.trace(name, "console", "second")
        place.paper.note("entry", "second")
        commit = space.commit_with_trace(name, "finding", changes={"second.txt": b"second\n"})
        place.paper.note("commit", name, commit)


def crash_at_each_point(
    home: str, address: str | None, to: str, name: str, modes: list[str], only: list[str] | None = None
) -> None:
    """Kill a verb at each of its crash points, each time in a copy of the space; ``only``: as in ``crashes_of``."""
    template, verb = SessionTemplate(Path(home), address), VERBS[name]
    points = points_of(template.copied(Path(to, "alive")), verb)
    ways = {"beside": crash_beside_another, "alone": crash_alone}
    jobs = [
        partial(ways[way], template.copied(Path(to, f"{way}{number}")), case)
        for number, case in enumerate(crashes_of(verb, points, only))
        for way in modes
    ]
    run_all(jobs, at_once=16)  # most of them wait until the lock of a killed process is stale


def steps_by_verb(home: str, to: str) -> dict[str, list[str]]:
    """The names of the steps that each verb reaches."""
    template = SessionTemplate(Path(home))
    return {name: [point.step for point in points_of(template.copied(Path(to, name)), verb)] for name, verb in VERBS.items()}


def recover(place: SessionCrashSpace, hook: CrashHook) -> None:
    with place.open("next", hook):
        pass


def crash_recovering(place: SessionCrashSpace, case: CrashCase[SessionVerb], number: int) -> int:
    """Kill the verb, then its recovery at the nth crash point, if it has that many; return how many recoveries were killed."""
    killed = crash_recovery(partial(run_verb, place, case.verb), case.at, partial(recover, place), number)
    check_done_by(place, case.verb, {"victim"} if case.past else set())
    return killed


def crash_each_recovery(home: str, address: str | None, to: str, name: str, only: list[str] | None = None) -> None:
    """Kill a verb at crash points from its intent on, and then its recovery at each crash point."""
    template, verb = SessionTemplate(Path(home), address), VERBS[name]
    points = points_of(template.copied(Path(to, "alive")), verb)
    intent = points.index(CrashPoint("intent-recorded", 1))
    cases = [case for case in crashes_of(verb, points, only) if points.index(case.at) >= intent]
    jobs = [
        partial(crash_recovering, template.copied(Path(to, f"{'-'.join(map(str, case.at))}-{number}")), case, number)
        for case in cases
        for number in range(1, MOST_STEPS + 1)
    ]
    assert sum(run_all(jobs, at_once=16)) >= len(cases)


class SessionRacer:
    """Runs random verbs of sessions until its process is killed."""

    def __init__(self, space: clia.Space, place: SessionCrashSpace, order: random.Random) -> None:
        self._space = space
        self._place = place
        self._order = order
        self._name = me(space)
        self._count = 0

    def run(self) -> None:
        verbs = (self._answer, self._answer, self._answer, self._start, self._commit, self._fork, self._ask, self._cancel)
        while True:
            self._count += 1
            with suppress(Conflict, NotFound):  # another process was first
                self._order.choice(verbs)()

    def _agent(self) -> str:
        return self._order.choice(("scout", "judge", "idle"))

    def _answer(self) -> None:
        requests = self._space.pending(self._agent())
        if not requests:
            return
        request = self._order.choice(requests)
        if request.kind == "human":
            self._space.decide(request.agent, "fine", request_id=request.id)
        elif self._order.random() < 0.2:
            self._space.sessions.give_up(request.agent, "no luck", request.id)
        else:
            self._space.resume(request.agent, 1, request.id)
        self._place.paper.note("answer", request.agent, request.id, self._name)

    def _start(self) -> None:
        times = self._order.randrange(4)
        self._space.start(self._agent(), "sum", {"times": times, "choices": CHOICES if self._order.random() < 0.5 else []})

    def _commit(self) -> None:
        name = self._agent()
        verb = self._order.choice((self._space.commit, self._space.commit_with_trace))
        commit = verb(name, "finding", changes={f"{self._name}.txt": str(self._count).encode()})
        self._place.paper.note("commit", name, commit)

    def _fork(self) -> None:
        name, fork = self._agent(), f"{self._name}-{self._count}"
        at = self._order.choice([None, *(commit.cid for commit in self._space.history.own(name))])
        session = self._space.fork(name, fork, at)
        self._place.paper.note("commit", fork, self._space.head(session.agent))

    def _ask(self) -> None:
        self._space.ask(self._agent(), {"question": "May I?", "choices": CHOICES})

    def _cancel(self) -> None:
        if self._order.random() < 0.3:
            self._space.cancel(self._agent(), "enough")


def race(place: SessionCrashSpace, name: str, hook: CrashHook) -> None:
    with place.open(name, hook) as space:
        SessionRacer(space, place, random.Random(name)).run()  # noqa: S311  # not a secret


def race_twice(home: str, address: str | None, to: str, seed: int) -> None:
    """Two generations of racers; after each, nothing is lost or duplicated, and in the end every session can finish."""
    place = SessionTemplate(Path(home), address).copied(Path(to))
    for generation in range(2):
        names = [f"s{seed}-g{generation}-r{number}" for number in range(4)]
        race_until_killed(partial(race, place), names, MOST_RACE_STEPS)
        run_all([partial(check_after_race, place, last=generation == 1)])


def check_after_race(place: SessionCrashSpace, *, last: bool) -> None:
    with place.open() as space:
        check_nothing_lost(place, space)
        if last:
            for session in space.sessions(live=True):
                assert brought_to_its_end(space, session.agent).status in ("finished", "failed")
            check_nothing_lost(place, space)


# Without permissions


def verbs_refused_without_permissions(root: str) -> None:
    """Reads work and writes are refused in a process without root's rights, which ignore file permissions."""
    become_nobody()
    with SessionCrashSpace(Path(root), Paper(os.devnull)).open("victim") as space:
        assert space.session("scout").resumes == [1, 1, 1]
        assert {request.agent for request in space.pending()} == {"asker", "chair", "closer", "crowd", "judge", "scout"}
        for name, verb in VERBS.items():
            try:
                verb.act(space)
            except CliaError as err:
                assert err.code in ("file-error", "git-error", "store-read-only"), err.to_json()  # noqa: PT017  # not a test
            else:
                raise AssertionError(f"{name} was not refused")
