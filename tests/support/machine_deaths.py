"""Processes of one machine that die, or only stand still, in the middle of a verb, and another machine that goes on with the agent.

All of it is to be run apart, since a process that ran a flow may not fork. Every death has an agent of its own, in one space.
"""

from __future__ import annotations

import os
import select
import signal
import traceback
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

import clia
from clia.errors import Conflict, StaleRef, StaleRequest, StoreError
from clia.testing import components
from support.crashes import FORK, CrashHook, CrashPoint, assert_killed, kill_self, run_all
from support.machines import Machines, endings, fresh
from support.session_driver import check_sessions
from support.space_driver import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FLOWS = {
    "ask-once": 'def main(input):\n    return request("human", {"question": "Is it right?", "choices": ["yes", "no"]})\n',
    "work-once": 'def main(input):\n    return request("work", input)\n',
}
ENDS = {"decide": "yes", "end": 7}
"""The verbs that end a session, and with what."""
DEAD, HEIR = "one", "two"
BOTH = "commit-with-session"
"""An agent whose session ends while a commit of its is under way: the two move no ref in common."""
PID = "the process that stands still"
_MOST = 14  # steps of a verb
LOST_RACE = (StaleRef, StaleRequest, Conflict)
"""What whoever comes too late may be told; nothing else."""


def act(space: clia.Space, agent: str, who: str) -> None:
    """The verb that an agent is there for; two who do it in one second do not make the same commit."""
    verb = agent.partition("-")[0]
    if verb == "commit":
        space.commit_with_trace(agent, "finding", changes={"verb.txt": who.encode()}, message=verb, base=space.genesis(agent))
    elif verb == "decide":
        space.decide(agent, ENDS[verb], "it is", by=who, request_id="1.1")
    else:
        space.resume(agent, ENDS[verb], "1.1", by=who)


def open_at(machines: Machines, machine: str, reached: Callable[[str], None] | None = None) -> clia.Space:
    """A machine's clone, in which another person works; the server knows its connections by its name."""
    chosen = settings(
        store=f"{machines.store}&application_name={machine}", reached=reached, person=(machine, f"{machine}@example.org")
    )
    return clia.open(machines.root(machine), settings=chosen)


def prepare(machines: Machines, agents: Sequence[str]) -> None:
    """Each agent as its verb finds it, with an entry in its trace that waits for the next commit."""
    with machines.join(DEAD) as space:
        for flow, source in FLOWS.items():
            space.define(flow, source)
        for agent in agents:
            space.spawn(agent, BRIEFING)
            space.trace(agent, "console", f"seen by {agent}")
            if agent == BOTH or not agent.startswith("commit"):
                space.start(agent, "ask-once" if agent.startswith("decide") else "work-once", 1)
    machines.join(HEIR).close()


def steps_of(machines: Machines, agent: str) -> list[CrashPoint]:
    """The steps of an agent's verb, from a run that lives; inside the locks of its refs only the first."""
    ours, theirs = FORK.Pipe(duplex=False)

    def live() -> None:
        hook = CrashHook()
        with open_at(machines, DEAD, hook) as space:
            hook.armed = True
            act(space, agent, DEAD)
        theirs.send(hook.passed)

    run_all([live])
    return [point for point in ours.recv() if point.number == 1]


class Heir:
    """A process on the other machine, which does what it is told to while others die."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._ours, theirs = FORK.Pipe()
        self._process = FORK.Process(target=self._live, args=(theirs,))
        self._process.start()
        theirs.close()

    def __call__(self, job: str, agent: str, *more: Any) -> None:
        self._ours.send((job, agent, more))
        complaint = self._ours.recv()
        assert not complaint, f"{job} {agent} {more}: {complaint}"

    def close(self) -> None:
        self._ours.close()
        self._process.join()

    def _live(self, pipe: Any) -> None:
        self._ours.close()
        jobs: dict[str, Callable[..., None]] = {
            "recover": recover,
            "take over": take_over,
            "go on": go_on,
            "end": end,
            "go on and wake it": go_on_and_wake,
            "check": check,
            "check all": check_all,
        }
        with open_at(self._machines, HEIR, reached) as space:
            while True:
                try:
                    job, agent, more = pipe.recv()
                except EOFError:
                    return
                try:
                    jobs[job](space, agent, *more)
                    pipe.send("")
                except BaseException:  # noqa: BLE001  # whoever asked is told
                    pipe.send(traceback.format_exc())


@contextmanager
def heir_on(machines: Machines) -> Iterator[Heir]:
    heir = Heir(machines)
    try:
        yield heir
    finally:
        heir.close()


# What the heir does

_WAKE: list[int] = []
"""Who is to be woken when the heir has written down what it is about to do."""


def reached(step: str) -> None:
    if _WAKE and step == "intent-recorded":
        process = _WAKE.pop()
        over = os.pidfd_open(process)
        os.kill(process, signal.SIGCONT)
        assert select.select([over], [], [], 60)[0], "it does not end"
        os.close(over)


def go_on_and_wake(space: clia.Space, agent: str, process: int) -> None:
    """Goes on, and again; in the middle of that the one that stood still comes back, finds that it is late, and ends."""
    go_on(space, agent)
    _WAKE.append(process)
    go_on(space, agent)


def recover(space: clia.Space, agent: str) -> None:
    """Settles what was begun with the agent, and leaves it so."""
    with components(space).envelope.at_work(agent):
        pass
    assert not space.core.store.scan(f"intent/{agent}")


def take_over(space: clia.Space, agent: str, past: bool) -> None:
    """Does the verb itself, and is told where it was done already."""
    try:
        act(space, agent, HEIR)
    except LOST_RACE:
        assert past
    else:
        assert not past


def go_on(space: clia.Space, agent: str) -> None:
    """Works on the agent as if nothing had been begun: its own trace, and a commit with it."""
    head = space.head(agent)
    space.trace(agent, "console", f"heir after {head}")
    space.commit_with_trace(agent, "finding", changes={"heir.txt": head.encode()})


def end(space: clia.Space, agent: str) -> None:
    space.resume(agent, ENDS["end"], "1.1")


def check(space: clia.Space, agent: str, times: int = 1) -> None:
    """The verb was done so often, all of it, and every entry of the trace is there once."""
    subjects = Counter(each.subject for each in space.session_log(agent))
    entries = [entry for each in space.session_traces(agent) for entry in each.trace.entries] + space.trace_pending(agent)
    console = Counter(entry["text"] for entry in entries if entry["kind"] == "console")
    assert console[f"seen by {agent}"] == 1
    assert set(console.values()) == {1}
    verb = agent.partition("-")[0]
    if verb == "commit":
        assert subjects[verb] == times
        return
    found = space.session(agent)
    assert (found.status, found.result) == (("finished", ENDS[verb]) if times else ("suspended", None)), found
    assert len([each for each in space.journal(agent) if each["event"] == "resumed"]) == times
    assert list(endings(space, agent)) == ["finished"] * times
    assert subjects["it is"] == (times if verb == "decide" else 0)


def check_all(space: clia.Space, _: str) -> None:
    space.hub_sync()
    report = space.verify()
    assert report.clean, report.findings
    assert not components(space).envelope.unfinished()
    check_sessions(space)


def all_is_well(machines: Machines, heir: Heir) -> None:
    """On the machine that went on, on the one where somebody died, and in a clone that was never there."""
    heir("check all", "")

    def elsewhere() -> None:
        with open_at(machines, DEAD) as space:
            check_all(space, "")
        with fresh(machines) as clone:
            report = clone.verify()
            assert report.clean, report.findings

    run_all([elsewhere])


# Sudden death


def walk(top: str, store: str, verbs: Sequence[str], only: Sequence[str] | None) -> None:
    """Dies at each step of each verb; the other machine finishes what had reached the hub, and does the rest itself."""
    machines = Machines(top, store)
    agents = [f"{verb}-{number}" for verb in verbs for number in range(_MOST if only is None else 1 + len(only))]
    run_all([lambda: prepare(machines, agents)])
    with heir_on(machines) as heir:
        for verb in verbs:
            steps = steps_of(machines, f"{verb}-0")
            assert len(steps) < _MOST
            turn = steps.index(CrashPoint("intent-recorded", 1)) + 1  # next comes a note of what the hub has taken
            deaths = [(point, at >= turn) for at, point in enumerate(steps) if only is None or point.step in only]
            for number, (point, past) in enumerate(deaths, 1):
                agent = f"{verb}-{number}"
                assert_killed(partial(die, machines, agent, point))
                heir("recover", agent)
                heir("check", agent, int(past))
                heir("take over", agent, past)
                heir("go on", agent)
                heir("check", agent)
        all_is_well(machines, heir)


def die(machines: Machines, agent: str, point: CrashPoint) -> None:
    hook = CrashHook(point)
    with open_at(machines, DEAD, hook) as space:
        hook.armed = True
        act(space, agent, DEAD)


# Standing still


class Slow(NamedTuple):
    """Where a process stands still, what the heir does meanwhile, and how often the verb was done in the end."""

    agent: str
    at: str
    meanwhile: tuple[tuple[Any, ...], ...]
    wins: bool = False  # whether it is told, when it goes on, that it has done it
    dies_at: str = ""
    times: int = 1


CASES = [
    Slow(f"{verb}-{number}", at, meanwhile, wins, dies_at)
    for verb in ("commit", "decide", "end")
    for number, (at, meanwhile, wins, dies_at) in enumerate(
        [
            ("intent-recorded", (("recover",), ("check", 0)), True, ""),
            ("intent-recorded", (("recover",), ("check", 0)), False, "hub-moved"),
            ("intent-recorded", (("take over", False),), False, ""),
            ("objects-written", (("take over", False),), False, ""),
            ("hub-moved", (("take over", True),), True, ""),
            ("committed", (("recover",), ("check", 1), ("go on",)), True, ""),
        ]
    )
] + [
    Slow(BOTH, "intent-recorded", (("end",),), wins=True),
    Slow("commit-too-late", "intent-recorded", (("go on and wake it", PID),), times=0),
]
ALIKE = {"commit-2", "commit-3", "commit-4", "decide-0", "decide-3", "decide-4", "decide-5", "end-0", "end-1", "end-5"}
"""Cases that differ from others in the verb alone."""


def stand_still(machines: Machines, slow: Slow, said: Any) -> None:
    """Stops at a step; goes on when it is woken, and may die then. What it was told goes into the pipe."""

    def reached(step: str) -> None:
        if armed and step == slow.at:
            armed.clear()
            os.kill(os.getpid(), signal.SIGSTOP)
        elif step == slow.dies_at and not armed:
            kill_self()

    armed: list[int] = []
    with open_at(machines, DEAD, reached) as space:
        armed.append(1)
        try:
            act(space, slow.agent, DEAD)
        except (*LOST_RACE, StoreError) as err:
            said.send(err.code)
        else:
            said.send("done")


def be_slow(machines: Machines, heir: Heir, slow: Slow) -> str:
    """One process stands still so long that the server has let go of what it held; what it is told when it goes on."""
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=stand_still, args=(machines, slow, theirs))
    process.start()
    theirs.close()
    assert os.WIFSTOPPED(os.waitpid(process.pid or 0, os.WUNTRACED)[1])
    hang_up(machines.store)
    for job, *more in slow.meanwhile:
        heir(job, slow.agent, *(process.pid if each is PID else each for each in more))
    os.kill(process.pid or 0, signal.SIGCONT)
    process.join()
    assert process.exitcode == (-signal.SIGKILL if slow.dies_at else 0)
    return "" if slow.dies_at else str(ours.recv())


def hang_up(store: str) -> None:
    """As the server does with a machine that was silent for half a minute."""
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = %s"
            " AND datname = current_database()",
            [DEAD],
        )


def stumble(top: str, store: str, everything: bool) -> None:
    """Stands still in each case, or in those that tell most."""
    machines, cases = Machines(top, store), [each for each in CASES if everything or each.agent not in ALIKE]
    run_all([lambda: prepare(machines, [each.agent for each in cases])])
    with heir_on(machines) as heir:
        for each in cases:
            told = be_slow(machines, heir, each)
            assert each.dies_at or (told == "done") == each.wins, (each, told)
            heir("recover", each.agent)
            heir("check", each.agent, each.times)
            heir("go on", each.agent)
            heir("check", each.agent, each.times)
        all_is_well(machines, heir)
