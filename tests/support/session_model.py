"""A model of sessions: a few flows, the same in Python, and the expected state of an agent that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    FlowRequest = tuple[str, str | None, Any]  # kind, tag, payload
    Steps = Generator[FlowRequest, Any, Any]

CHOICES = ["yes", "no"]


class _Anything:
    """Equal to every value. Stands for a random value of the engine."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


ANYTHING = _Anything()

# Each flow, followed by the same in plain Python: requests are yielded, answers are sent or thrown.

COUNT = """\
def main(input):
    total = 0
    for n in range(input):
        try:
            total += request("work", {"n": n, "total": total})
        except RuntimeError as err:
            total -= len(str(err))
    verdict = request("human", {"question": "Right?", "total": total, "choices": ["yes", "no"]}, tag="gate")
    return [total, verdict]
"""


def counted(flow_input: int) -> Steps:
    total = 0
    for n in range(flow_input):
        try:
            total += yield "work", None, {"n": n, "total": total}
        except RuntimeError as err:
            total -= len(str(err))
    verdict = yield "human", "gate", {"question": "Right?", "total": total, "choices": CHOICES}
    return [total, verdict]


STRICT = """\
import time

def main(input):
    first = request("work", input)
    time.sleep(2.5)
    return [first, suspend("last", {"first": first})]
"""


def strict(flow_input: int) -> Steps:
    first = yield "work", None, flow_input
    yield "timer", None, {"seconds": 2.5}
    return [first, (yield "suspend", "last", {"first": first})]


CHANCE = """\
import random
from datetime import datetime

def main(input):
    rolls = []
    for n in range(input + 1):
        rolls.append(request("dice", [n, random.random(), str(datetime.now())]))
    return [rolls, random.random()]
"""


def chance(flow_input: int) -> Steps:
    for _ in range(flow_input + 1):
        yield "dice", None, ANYTHING
    return ANYTHING


AT_ONCE = "def main(input):\n    print('at once')\n    return input\n"


def at_once(flow_input: int) -> Steps:
    return flow_input
    yield  # makes this function a generator


GATHER = """\
import asyncio

async def careful(kind, n):
    try:
        return await request(kind, {"n": n, "choices": ["yes", "no"]})
    except RuntimeError as err:
        return str(err)

async def main(input):
    answers = await asyncio.gather(careful("work", 0), careful("human", 1), careful("work", 2))
    return [answers, await request("last", answers)]
"""
SOURCES = {"count": COUNT, "strict": STRICT, "chance": CHANCE, "at-once": AT_ONCE, "gather": GATHER}
STEPS: dict[str, Callable[[int], Steps]] = {"count": counted, "strict": strict, "chance": chance, "at-once": at_once}


class ModelAnswer(NamedTuple):
    call: int
    value: Any
    error: str | None = None


class RunState(NamedTuple):
    """The state of a run: its pending requests by number, or how it ended."""

    pending: dict[int, FlowRequest]
    result: Any = None
    failure: str | None = None


def state_of(flow: str, flow_input: int, answers: tuple[ModelAnswer, ...]) -> RunState:
    return gathered(answers) if flow == "gather" else stepped(STEPS[flow](flow_input), answers)


def stepped(steps: Steps, answers: tuple[ModelAnswer, ...]) -> RunState:
    try:
        request = next(steps)
        for answer in answers:
            if answer.error is not None:
                request = steps.throw(RuntimeError(answer.error))
            else:
                request = steps.send(None if request[0] == "timer" else answer.value)
    except StopIteration as end:
        return RunState({}, end.value)
    except RuntimeError as err:
        return RunState({}, failure=f"RuntimeError: {err}")
    return RunState({len(answers) + 1: request})


def gathered(answers: tuple[ModelAnswer, ...]) -> RunState:
    answered = {answer.call: answer.value if answer.error is None else answer.error for answer in answers}
    pending: dict[int, FlowRequest] = {
        n + 1: (kind, None, {"n": n, "choices": CHOICES})
        for n, kind in enumerate(("work", "human", "work"))
        if n + 1 not in answered
    }
    first_three = [answered.get(n) for n in (1, 2, 3)]
    if pending:
        return RunState(pending)
    if 4 not in answered:
        return RunState({4: ("last", None, first_three)})
    last = next(answer for answer in answers if answer.call == 4)
    return RunState({}, [first_three, last.value]) if last.error is None else RunState({}, failure=f"RuntimeError: {last.error}")


class Run(NamedTuple):
    """A run in the model. ``root`` is shared by all forks of one start, which must send the same requests."""

    root: int
    flow: str
    flow_input: int
    answers: tuple[ModelAnswer, ...] = ()
    decided: tuple[tuple[int, str], ...] = ()
    cancelled: bool = False
    began_on: str | None = None  # None for a fork: its first commit has a checkpoint

    @property
    def state(self) -> RunState:
        return RunState({}) if self.cancelled else state_of(self.flow, self.flow_input, self.answers)

    @property
    def status(self) -> str:
        if self.cancelled:
            return "cancelled"
        state = self.state
        return "suspended" if state.pending else "finished" if state.failure is None else "failed"

    @property
    def waited(self) -> bool:
        return bool(state_of(self.flow, self.flow_input, ()).pending)

    def at_start(self) -> Run:
        return self._replace(answers=(), decided=(), cancelled=False)


ASK = "ask-"


class Agent:
    """The expected state of one agent."""

    def __init__(self, genesis: str) -> None:
        self.commits = [genesis]
        self.sessions: dict[str, Run] = {}
        self.asks: dict[str, tuple[Any, Any]] = {}  # question, and the answer or None
        self.checkpoints: dict[str, Run] = {}
        self.proved: dict[str, Run] = {}  # the sessions as git has them: at the last commit, with its decision
        self.begun: dict[str, list[Run]] = {}  # by commit: the sessions that began there according to a checkpoint
        self.last, self.last_ask = 0, 0  # the last used numbers
        self.in_git: list[int] = [0]  # numbers of sessions that are in git
        self.asks_in_git: list[int] = [0]

    @property
    def live(self) -> str | None:
        return next((key for key, run in self.sessions.items() if run.status == "suspended"), None)

    def waiting(self) -> list[str]:
        """The ids of all pending requests."""
        in_sessions = [f"{session}.{call}" for session, run in self.sessions.items() for call in run.state.pending]
        return in_sessions + [f"{session}.1" for session, (_, answer) in self.asks.items() if answer is None]

    def committed(self, cid: str) -> None:
        self.commits.append(cid)
        live = self.live
        if live is not None:
            run = self.sessions[live]
            self.checkpoints[cid] = self.proved[live] = run
            self.in_git.append(int(live))
            if run.began_on is not None:
                self.begun.setdefault(run.began_on, []).append(run.at_start())

    def candidates(self, cid: str) -> list[Run]:
        """The runs that a fork at a commit may continue; only one if the commit has a checkpoint."""
        if cid in self.checkpoints:
            return [self.checkpoints[cid]]
        started = [run.at_start() for run in self.sessions.values() if run.began_on == cid and run.waited]
        return started + self.begun.get(cid, [])

    def forget(self) -> None:
        """Lose the store and rebuild it; git keeps its part."""
        live = self.live
        self.sessions = {live: self.proved[live]._replace(began_on=None)} if live in self.proved else {}
        self.asks = {}
        self.last, self.last_ask = max(self.in_git), max(self.asks_in_git)


def values(run: Run) -> list[Any]:
    return [answer.value if answer.error is None else {"error": answer.error} for answer in run.answers]
