"""Processes of one machine that are killed or stopped in the middle of a verb, and another machine that continues with the agent.

``crash_at_each_point`` and ``stop_in_each_case`` fork: call them with ``crashes.apart``. Every crash has a separate agent in
one space.
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
from support.crashes import FORK, KILLED, CrashHook, CrashPoint, crash, crash_points, kill_self, run_all
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
"""The verbs that end a session, and their answers."""
VICTIM, HEIR = "one", "two"
BOTH = "commit-with-session"
"""An agent whose session ends while one of its commits is under way: the two move no ref in common."""
PID = "the pid of the stopped process"
_MOST = 14  # steps of a verb
LOST_RACE = (StaleRef, StaleRequest, Conflict)
"""The only errors that the later of two processes may get."""


def act(space: clia.Space, agent: str, text: str) -> None:
    """Run the verb in the agent's name; two processes that do it in the same second make different commits."""
    verb = agent.partition("-")[0]
    if verb == "commit":
        space.commit_with_trace(
            agent, "finding", changes={"verb.txt": text.encode()}, message=verb, base=space.agents.genesis(agent)
        )
    elif verb == "decide":
        space.decide(agent, ENDS[verb], "it is", by=text, request_id="1.1")
    else:
        space.resume(agent, ENDS[verb], "1.1", by=text)


def open_at(machines: Machines, machine: str, reached: Callable[[str], None] | None = None) -> clia.Space:
    """Open a machine's clone as a separate person; the server's connections have the machine's name."""
    store, person = f"{machines.store}&application_name={machine}", (machine, f"{machine}@example.org")
    return clia.open(machines.root(machine), settings=settings(store=store, reached=reached, person=person))


def prepare(machines: Machines, agents: Sequence[str]) -> None:
    """Create each agent as its verb expects it, with a pending trace entry."""
    with machines.join(VICTIM) as space:
        for flow, source in FLOWS.items():
            space.sessions.define(flow, source)
        for agent in agents:
            space.spawn(agent, BRIEFING)
            space.trace(agent, "console", f"seen by {agent}")
            if agent == BOTH or not agent.startswith("commit"):
                space.start(agent, "ask-once" if agent.startswith("decide") else "work-once", 1)
    machines.join(HEIR).close()


def run_verb(machines: Machines, agent: str, hook: CrashHook) -> None:
    """The driver: an agent's verb on the machine whose process is killed."""
    with open_at(machines, VICTIM, hook) as space:
        hook.armed = True
        act(space, agent, VICTIM)


class Heir:
    """A process on the other machine, which runs jobs while processes of the first one are killed."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._ours, child_end = FORK.Pipe()
        self._process = FORK.Process(target=self._serve, args=(child_end,))
        self._process.start()
        child_end.close()

    def __call__(self, job: str, agent: str, *more: Any) -> None:
        self._ours.send((job, agent, more))
        failure = self._ours.recv()
        assert not failure, f"{job} {agent} {more}: {failure}"

    def close(self) -> None:
        self._ours.close()
        self._process.join()

    def _serve(self, pipe: Any) -> None:
        self._ours.close()
        jobs: dict[str, Callable[..., None]] = {
            "recover": recover,
            "take over": take_over,
            "continue": continue_work,
            "end": end,
            "continue and wake": continue_and_wake,
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
                except BaseException:  # noqa: BLE001  # the caller fails with it
                    pipe.send(traceback.format_exc())


@contextmanager
def heir_on(machines: Machines) -> Iterator[Heir]:
    heir = Heir(machines)
    try:
        yield heir
    finally:
        heir.close()


# Jobs of the heir

_WAKE: list[int] = []
"""The process to wake when the heir has recorded its intent."""


def reached(step: str) -> None:
    if _WAKE and step == "intent-recorded":
        pid = _WAKE.pop()
        ended = os.pidfd_open(pid)
        os.kill(pid, signal.SIGCONT)
        assert select.select([ended], [], [], 60)[0], "the woken process does not end"
        os.close(ended)


def continue_and_wake(space: clia.Space, agent: str, pid: int) -> None:
    """Continue twice; during the second time the stopped process wakes, finds that it is late, and ends."""
    continue_work(space, agent)
    _WAKE.append(pid)
    continue_work(space, agent)


def recover(space: clia.Space, agent: str) -> None:
    """Finish or undo what was begun with the agent, and nothing else."""
    with components(space).envelope.at_work(agent):
        pass
    assert not space.local.store.scan(f"intent/{agent}")


def take_over(space: clia.Space, agent: str, past: bool) -> None:
    """Run the verb; it is refused if it was done already."""
    try:
        act(space, agent, HEIR)
    except LOST_RACE:
        assert past
    else:
        assert not past


def continue_work(space: clia.Space, agent: str) -> None:
    """Work on the agent as if nothing had been begun: a trace entry, and a commit with it."""
    head = space.head(agent)
    space.trace(agent, "console", f"heir after {head}")
    space.commit_with_trace(agent, "finding", changes={"heir.txt": head.encode()})


def end(space: clia.Space, agent: str) -> None:
    space.resume(agent, ENDS["end"], "1.1")


def check(space: clia.Space, agent: str, times: int = 1) -> None:
    """The verb was done completely, this many times, and every trace entry exists once."""
    subjects = Counter(commit.subject for commit in space.history.own(agent))
    entries = [entry for bound in space.traces.of_agent(agent) for entry in bound.trace.entries] + space.traces.pending(agent)
    console = Counter(entry["text"] for entry in entries if entry["kind"] == "console")
    assert console[f"seen by {agent}"] == 1
    assert set(console.values()) == {1}
    verb = agent.partition("-")[0]
    if verb == "commit":
        assert subjects[verb] == times
        return
    session = space.session(agent)
    assert (session.status, session.result) == (("finished", ENDS[verb]) if times else ("suspended", None)), session
    assert [event["event"] for event in space.sessions.journal(agent)].count("resumed") == times
    assert list(endings(space, agent)) == ["finished"] * times
    assert subjects["it is"] == (times if verb == "decide" else 0)


def check_all(space: clia.Space, _: str) -> None:
    space.hub.sync()
    report = space.verify()
    assert report.clean, report.findings
    assert not components(space).envelope.unfinished()
    check_sessions(space)


def check_everywhere(machines: Machines, heir: Heir) -> None:
    """On the machine that continued, on the one with the killed processes, and in a new clone."""
    heir("check all", "")

    def elsewhere() -> None:
        with open_at(machines, VICTIM) as space:
            check_all(space, "")
        with fresh(machines) as clone:
            report = clone.verify()
            assert report.clean, report.findings

    run_all([elsewhere])


# Crashes


def crash_at_each_point(top: str, store: str, verbs: Sequence[str], only: Sequence[str] | None) -> None:
    """Kill each verb at each crash point; the other machine finishes what had reached the hub, and does the rest itself.

    Of the points inside the locks of refs only the first is used. ``only``: at these steps.
    """
    machines = Machines(top, store)
    agents = [f"{verb}-{number}" for verb in verbs for number in range(_MOST if only is None else 1 + len(only))]
    run_all([lambda: prepare(machines, agents)])
    with heir_on(machines) as heir:
        for verb in verbs:
            points = [point for point in crash_points(partial(run_verb, machines, f"{verb}-0")) if point.number == 1]
            assert len(points) < _MOST
            turn = points.index(CrashPoint("intent-recorded", 1)) + 1  # the next step records what the hub has accepted
            cases = [(point, at >= turn) for at, point in enumerate(points) if only is None or point.step in only]
            for number, (point, past) in enumerate(cases, 1):
                agent = f"{verb}-{number}"
                crash(partial(run_verb, machines, agent), point)
                heir("recover", agent)
                heir("check", agent, int(past))
                heir("take over", agent, past)
                heir("continue", agent)
                heir("check", agent)
        check_everywhere(machines, heir)


# Stopped processes


class Stop(NamedTuple):
    """Where a process is stopped, what the heir does in the meantime, and how often the verb was done in the end."""

    agent: str
    at: str
    meanwhile: tuple[tuple[Any, ...], ...]
    wins: bool = False  # whether its verb succeeds after it was woken
    dies_at: str = ""
    times: int = 1


CASES = [
    Stop(f"{verb}-{number}", at, meanwhile, wins, dies_at)
    for verb in ("commit", "decide", "end")
    for number, (at, meanwhile, wins, dies_at) in enumerate(
        [
            ("intent-recorded", (("recover",), ("check", 0)), True, ""),
            ("intent-recorded", (("recover",), ("check", 0)), False, "hub-moved"),
            ("intent-recorded", (("take over", False),), False, ""),
            ("objects-written", (("take over", False),), False, ""),
            ("hub-moved", (("take over", True),), True, ""),
            ("committed", (("recover",), ("check", 1), ("continue",)), True, ""),
        ]
    )
] + [
    Stop(BOTH, "intent-recorded", (("end",),), wins=True),
    Stop("commit-too-late", "intent-recorded", (("continue and wake", PID),), times=0),
]
ALIKE = {"commit-2", "commit-3", "commit-4", "decide-0", "decide-3", "decide-4", "decide-5", "end-0", "end-1", "end-5"}
"""Cases that differ from others only in the verb."""


def run_stopped_verb(machines: Machines, case: Stop, pipe: Any) -> None:
    """Stop at a step; continue when woken, and possibly be killed then. Send the outcome through the pipe."""

    def reached(step: str) -> None:
        if armed and step == case.at:
            armed.clear()
            os.kill(os.getpid(), signal.SIGSTOP)
        elif step == case.dies_at and not armed:
            kill_self()

    armed: list[int] = []
    with open_at(machines, VICTIM, reached) as space:
        armed.append(1)
        try:
            act(space, case.agent, VICTIM)
        except (*LOST_RACE, StoreError) as err:
            pipe.send(err.code)
        else:
            pipe.send("done")


def stop_and_wake(machines: Machines, heir: Heir, case: Stop) -> str:
    """Stop a process until the server has dropped its connections and locks; return the outcome of its verb."""
    parent_end, child_end = FORK.Pipe(duplex=False)
    process = FORK.Process(target=run_stopped_verb, args=(machines, case, child_end))
    process.start()
    child_end.close()
    assert os.WIFSTOPPED(os.waitpid(process.pid or 0, os.WUNTRACED)[1])
    hang_up(machines.store)
    for job, *more in case.meanwhile:
        heir(job, case.agent, *(process.pid if value is PID else value for value in more))
    os.kill(process.pid or 0, signal.SIGCONT)
    process.join()
    assert process.exitcode == (KILLED if case.dies_at else 0)
    return "" if case.dies_at else str(parent_end.recv())


def hang_up(store: str) -> None:
    """Drop the connections of a machine, as the server does after half a minute of silence."""
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = %s"
            " AND datname = current_database()",
            [VICTIM],
        )


def stop_in_each_case(top: str, store: str, everything: bool) -> None:
    """Stop a process in each case, or in those that differ most."""
    machines, cases = Machines(top, store), [case for case in CASES if everything or case.agent not in ALIKE]
    run_all([lambda: prepare(machines, [case.agent for case in cases])])
    with heir_on(machines) as heir:
        for case in cases:
            outcome = stop_and_wake(machines, heir, case)
            assert case.dies_at or (outcome == "done") == case.wins, (case, outcome)
            heir("recover", case.agent)
            heir("check", case.agent, case.times)
            heir("continue", case.agent)
            heir("check", case.agent, case.times)
        check_everywhere(machines, heir)
