"""Sessions in plain values: a few flows, the same in Python, and what must be true of an agent that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Asked = tuple[str, str | None, Any]  # kind, tag, payload
    Steps = Generator[Asked, Any, Any]

CHOICES = ["yes", "no"]


class _Anything:
    """Equal to all: what only the engine knows, and must know again."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


ANYTHING = _Anything()

# The flows, and beside each the same in plain Python: what it asks is yielded, what it gets is sent or thrown.

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


def counted(given: int) -> Steps:
    total = 0
    for n in range(given):
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


def strict(given: int) -> Steps:
    first = yield "work", None, given
    yield "timer", None, {"seconds": 2.5}
    return [first, (yield "suspend", "last", {"first": first})]


CHANCE = """\
import random
from datetime import datetime

def main(input):
    said = []
    for n in range(input + 1):
        said.append(request("dice", [n, random.random(), str(datetime.now())]))
    return [said, random.random()]
"""


def chance(given: int) -> Steps:
    for _ in range(given + 1):
        yield "dice", None, ANYTHING
    return ANYTHING


AT_ONCE = "def main(input):\n    print('at once')\n    return input\n"


def at_once(given: int) -> Steps:
    return given
    yield  # a generator all the same


GATHER = """\
import asyncio

async def careful(kind, n):
    try:
        return await request(kind, {"n": n, "choices": ["yes", "no"]})
    except RuntimeError as err:
        return str(err)

async def main(input):
    found = await asyncio.gather(careful("work", 0), careful("human", 1), careful("work", 2))
    return [found, await request("last", found)]
"""
SOURCES = {"count": COUNT, "strict": STRICT, "chance": CHANCE, "at-once": AT_ONCE, "gather": GATHER}
STEPS: dict[str, Callable[[int], Steps]] = {"count": counted, "strict": strict, "chance": chance, "at-once": at_once}


class Answer(NamedTuple):
    call: int
    value: Any
    error: str | None = None


class Stand(NamedTuple):
    """Where a run is: what it asks under which number, or how it ended."""

    pending: dict[int, Asked]
    result: Any = None
    failure: str | None = None


def stand(flow: str, given: int, answers: tuple[Answer, ...]) -> Stand:
    return gathered(answers) if flow == "gather" else stepped(STEPS[flow](given), answers)


def stepped(steps: Steps, answers: tuple[Answer, ...]) -> Stand:
    try:
        asked = next(steps)
        for each in answers:
            if each.error is not None:
                asked = steps.throw(RuntimeError(each.error))
            else:
                asked = steps.send(None if asked[0] == "timer" else each.value)
    except StopIteration as end:
        return Stand({}, end.value)
    except RuntimeError as err:
        return Stand({}, failure=f"RuntimeError: {err}")
    return Stand({len(answers) + 1: asked})


def gathered(answers: tuple[Answer, ...]) -> Stand:
    got = {each.call: each.value if each.error is None else each.error for each in answers}
    asked: dict[int, Asked] = {
        n + 1: (kind, None, {"n": n, "choices": CHOICES}) for n, kind in enumerate(("work", "human", "work")) if n + 1 not in got
    }
    found = [got.get(n) for n in (1, 2, 3)]
    if asked:
        return Stand(asked)
    if 4 not in got:
        return Stand({4: ("last", None, found)})
    last = next(each for each in answers if each.call == 4)
    return Stand({}, [found, last.value]) if last.error is None else Stand({}, failure=f"RuntimeError: {last.error}")


class Run(NamedTuple):
    """A run as the model knows it. ``root`` is shared by all forks of one start: they must ask the same."""

    root: int
    flow: str
    given: int
    answers: tuple[Answer, ...] = ()
    decided: tuple[tuple[int, str], ...] = ()
    cancelled: bool = False
    began_on: str | None = None  # None for a fork: its first commit has a checkpoint

    @property
    def stand(self) -> Stand:
        return Stand({}) if self.cancelled else stand(self.flow, self.given, self.answers)

    @property
    def status(self) -> str:
        if self.cancelled:
            return "cancelled"
        found = self.stand
        return "suspended" if found.pending else "finished" if found.failure is None else "failed"

    @property
    def waited(self) -> bool:
        return bool(stand(self.flow, self.given, ()).pending)

    def at_start(self) -> Run:
        return self._replace(answers=(), decided=(), cancelled=False)


ASK = "ask-"


class Agent:
    """What must be true of one agent."""

    def __init__(self, genesis: str) -> None:
        self.commits = [genesis]
        self.sessions: dict[str, Run] = {}
        self.asks: dict[str, tuple[Any, Any]] = {}  # question, and the answer or None
        self.checkpoints: dict[str, Run] = {}
        self.begun: dict[str, list[Run]] = {}  # by commit: the sessions whose checkpoint says that they began there
        self.last, self.asked = 0, 0  # numbers given out
        self.in_git: list[int] = [0]  # numbers of sessions that git knows
        self.asks_in_git: list[int] = [0]

    @property
    def live(self) -> str | None:
        return next((key for key, run in self.sessions.items() if run.status == "suspended"), None)

    def waiting(self) -> list[str]:
        """The ids of all requests that wait for an answer."""
        asked = [f"{session}.{call}" for session, run in self.sessions.items() for call in run.stand.pending]
        return asked + [f"{session}.1" for session, (_, answer) in self.asks.items() if answer is None]

    def committed(self, cid: str) -> None:
        self.commits.append(cid)
        live = self.live
        if live is not None:
            run = self.sessions[live]
            self.checkpoints[cid] = run
            self.in_git.append(int(live))
            if run.began_on is not None:
                self.begun.setdefault(run.began_on, []).append(run.at_start())

    def candidates(self, cid: str) -> list[Run]:
        """The runs that a fork at a commit may be of; where the commit says it itself, only one."""
        if cid in self.checkpoints:
            return [self.checkpoints[cid]]
        here = [run.at_start() for run in self.sessions.values() if run.began_on == cid and run.waited]
        return here + self.begun.get(cid, [])

    def forget(self) -> None:
        """The store is gone; git keeps what it knows."""
        self.sessions, self.asks = {}, {}
        self.last, self.asked = max(self.in_git), max(self.asks_in_git)


def values(run: Run) -> list[Any]:
    return [each.value if each.error is None else {"error": each.error} for each in run.answers]
