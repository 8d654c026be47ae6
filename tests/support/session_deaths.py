"""Processes that die in the verbs of a session; all of it to be run apart, since a process that ran a flow may not fork."""

from __future__ import annotations

import json
import os
import random
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.errors import CliaError, Conflict, NotFound, StaleRequest
from support.crashes import FORK, CrashHook, CrashPoint, assert_killed, exit_code_of, kill_self, run_all, started
from support.disks import become_nobody
from support.session_driver import CHOICES, Place, Template, brought_to_its_end, check_nothing_lost
from support.session_verbs import VERBS, Verb, check_done, me, person
from support.space_driver import Paper

if TYPE_CHECKING:
    import clia

MOST_STEPS = 5  # of a recovery: inside the locks of two notes and of the events, notes bound, finished


class Death(NamedTuple):
    verb: Verb
    at: CrashPoint
    past: bool  # the point of no return


def do_and_die(place: Place, verb: Verb, hook: CrashHook) -> None:
    """Something that is acknowledged, then the verb."""
    with place.open("victim", hook) as space:
        space.trace(verb.agent, "console", "victim before")
        place.paper.note("entry", "victim before")
        made = space.commit(verb.agent, "finding", changes={"before.txt": b"before\n"})
        place.paper.note("commit", verb.agent, made)
        hook.armed = True
        verb.act(space)


def steps_of(place: Place, verb: Verb) -> list[CrashPoint]:
    """Every step of the verb, from a run that lives."""
    ours, theirs = FORK.Pipe(duplex=False)

    def run() -> None:
        hook = CrashHook()
        do_and_die(place, verb, hook)
        theirs.send(hook.passed)
        with place.open() as space:
            check_done(place, space, verb, {"victim"})

    run_all([run])
    found: list[CrashPoint] = ours.recv()
    return found


def deaths_of(verb: Verb, steps: list[CrashPoint]) -> list[Death]:
    """The branch's move is the point of no return; where no ref moves, the transaction is."""
    turn = steps.index(CrashPoint("committed" if CrashPoint("committed", 1) in steps else "finished", 1))
    return [Death(verb, at, number >= turn) for number, at in enumerate(steps)]


def die(place: Place, death: Death, hook: CrashHook) -> None:
    assert_killed(lambda: do_and_die(place, death.verb, hook))


def die_alone(place: Place, death: Death) -> None:
    die(place, death, CrashHook(death.at))
    with place.open() as space:
        check_done(place, space, death.verb, {"victim"} if death.past else set())


def try_too(place: Place, death: Death, ready: int, go: int) -> None:
    """The second process: open before the first dies, does the same right after, and learns who was first."""
    verb = death.verb
    with place.open("second") as space:
        os.write(ready, b"x")
        assert os.read(go, 1) == b"x"
        try:
            verb.act(space)
        except Conflict as lost:
            told = lost.answered_by if isinstance(lost, StaleRequest) else None
            if not death.past or (told and person(told) != "victim"):
                raise
        name = verb.made or verb.agent
        space.trace(name, "console", "second")
        place.paper.note("entry", "second")
        made = space.commit_with_trace(name, "finding", changes={"second.txt": b"second\n"})
        place.paper.note("commit", name, made)


def die_beside_another(place: Place, death: Death) -> None:
    """The victim holds the agent's lock when the second process sets to work on the same agent."""
    ready, go = os.pipe(), os.pipe()
    second, said = started(lambda: try_too(place, death, ready[1], go[0]))
    assert os.read(ready[0], 1) == b"x"
    last_lock = CrashPoint("locked", 2 if death.verb.made else 1)  # a fork takes that of the old agent, then that of the new one
    die(place, death, CrashHook(death.at, actions={last_lock: lambda: os.write(go[1], b"x")}))
    os.write(go[1], b"x")  # it may have died before
    assert said.recv() == ""
    second.join()
    first = {"victim"} if death.past else set()
    with place.open() as space:
        check_done(place, space, death.verb, first or {"second"} if death.verb.once else first | {"second"})


def walk(home: str, address: str | None, to: str, name: str, how: list[str], only: list[str] | None = None) -> None:
    """Dies at each step of a verb, each time in a copy of the space; ``only``: at these."""
    template, verb = Template(Path(home), address), VERBS[name]
    steps = steps_of(template.copied(Path(to, "alive")), verb)
    ends = {"beside": die_beside_another, "alone": die_alone}
    run_all(
        [
            partial(ends[each], template.copied(Path(to, f"{each}{number}")), death)
            for number, death in enumerate(deaths_of(verb, steps))
            for each in how
            if only is None or death.at.step in only
        ],
        at_once=16,  # they mostly wait for a dead one's lock to turn out stale
    )


def name_steps(home: str, to: str) -> None:
    """Prints, by verb, the names of the steps it reaches."""
    template = Template(Path(home))
    found = {name: [point.step for point in steps_of(template.copied(Path(to, name)), verb)] for name, verb in VERBS.items()}
    print(json.dumps(found))  # noqa: T201  # that is how one process tells another


def recover(place: Place, hook: CrashHook) -> None:
    with place.open("next", hook):
        pass


def die_recovering(place: Place, death: Death, number: int, killed: Any) -> None:
    """Dies in the verb; then, twice, at a step of the recovery, where it has that many."""
    die(place, death, CrashHook(death.at))
    for _ in range(2):
        code = exit_code_of(lambda: recover(place, CrashHook(number, armed=True)))
        assert code in (-signal.SIGKILL, 0)
        with killed.get_lock():
            killed.value += code != 0
    with place.open() as space:
        check_done(place, space, death.verb, {"victim"} if death.past else set())


def walk_recovering(home: str, address: str | None, to: str, name: str, only: list[str] | None = None) -> None:
    """Dies at steps of a verb from its intent on, and then at each step of what recovers from it."""
    template, verb = Template(Path(home), address), VERBS[name]
    steps = steps_of(template.copied(Path(to, "alive")), verb)
    begun = [death for death in deaths_of(verb, steps) if steps.index(death.at) >= steps.index(CrashPoint("intent-recorded", 1))]
    begun = [death for death in begun if only is None or death.at.step in only]
    killed = FORK.Value("i", 0)
    jobs = [
        partial(die_recovering, template.copied(Path(to, f"{'-'.join(map(str, death.at))}-{number}")), death, number, killed)
        for death in begun
        for number in range(1, MOST_STEPS + 1)
    ]
    run_all(jobs, at_once=16)
    assert killed.value >= len(begun)


class Racer:
    """Does whatever comes to its mind with the sessions of a space, until it dies."""

    def __init__(self, space: clia.Space, place: Place, order: random.Random) -> None:
        self._space = space
        self._place = place
        self._order = order
        self._name = me(space)
        self._count = 0

    def live(self) -> None:
        verbs = (self._answer, self._answer, self._answer, self._start, self._commit, self._fork, self._ask, self._cancel)
        while True:
            self._count += 1
            with suppress(Conflict, NotFound):  # another was quicker
                self._order.choice(verbs)()

    def _agent(self) -> str:
        return self._order.choice(("scout", "judge", "idle"))

    def _answer(self) -> None:
        waiting = self._space.pending(self._agent())
        if not waiting:
            return
        found = self._order.choice(waiting)
        if found.kind == "human":
            self._space.decide(found.agent, "fine", request_id=found.id)
        elif self._order.random() < 0.2:
            self._space.give_up(found.agent, "no luck", found.id)
        else:
            self._space.resume(found.agent, 1, found.id)
        self._place.paper.note("answer", found.agent, found.id, self._name)

    def _start(self) -> None:
        times = self._order.randrange(4)
        self._space.start(self._agent(), "sum", {"times": times, "choices": CHOICES if self._order.random() < 0.5 else []})

    def _commit(self) -> None:
        name = self._agent()
        verb = self._order.choice((self._space.commit, self._space.commit_with_trace))
        made = verb(name, "finding", changes={f"{self._name}.txt": str(self._count).encode()})
        self._place.paper.note("commit", name, made)

    def _fork(self) -> None:
        name, made = self._agent(), f"{self._name}-{self._count}"
        at = self._order.choice([None, *(commit.cid for commit in self._space.session_log(name))])
        found = self._space.fork(name, made, at)
        self._place.paper.note("commit", made, self._space.head(found.agent))

    def _ask(self) -> None:
        self._space.ask(self._agent(), {"question": "May I?", "choices": CHOICES})

    def _cancel(self) -> None:
        if self._order.random() < 0.3:
            self._space.cancel(self._agent(), "enough")


def race(place: Place, name: str) -> None:
    order = random.Random(name)  # noqa: S311  # a moment to die, not a secret
    steps = order.randrange(1, 200)

    def reached(step: str) -> None:
        nonlocal steps
        steps -= 1
        if not steps:
            kill_self()

    with place.open(name, reached) as space:
        Racer(space, place, order).live()


def race_and_die(home: str, address: str | None, to: str, seed: int) -> None:
    place = Template(Path(home), address).copied(Path(to))
    for generation in range(2):
        racers = [FORK.Process(target=race, args=(place, f"s{seed}-g{generation}-r{number}")) for number in range(4)]
        for each in racers:
            each.start()
        for each in racers:
            each.join()
        assert [each.exitcode for each in racers] == [-signal.SIGKILL] * len(racers)
        run_all([partial(everyone_comes_to_an_end, place, last=generation == 1)])


def everyone_comes_to_an_end(place: Place, *, last: bool) -> None:
    with place.open() as space:
        check_nothing_lost(place, space)
        if last:
            for each in space.sessions(live=True):
                assert brought_to_its_end(space, each.agent).status in ("finished", "failed")
            check_nothing_lost(place, space)


# Without rights


def nobody_reads_and_is_refused(root: str) -> None:
    """In a process without root's rights, which no permission of a file stops."""
    become_nobody()
    with Place(Path(root), Paper(os.devnull)).open("victim") as space:
        assert space.session("scout").resumes == [1, 1, 1]
        assert len(space.pending()) == 5
        for name, verb in VERBS.items():
            try:
                verb.act(space)
            except CliaError as err:
                said = err.to_json()
                assert err.code in ("file-error", "git-error", "store-read-only"), said  # noqa: PT017  # no test, and pytest is not here
            else:
                raise AssertionError(f"{name} was not refused")
