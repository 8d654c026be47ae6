"""Valid flows in every form, each small.

Invariant: each flow passes the checker, ends for all answers of the requested kind, and sends the same requests on a replay.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLAN = """\
def main(input):
    plan = request("llm", {"prompt": input["goal"]})
    verdict = request("human", {"question": "Go on?", "plan": plan, "choices": ["approve", "reject"]}, tag="gate")
    if verdict != "approve":
        return {"status": "rejected"}
    return {"status": "done", "plan": plan}
"""

WAIT = """\
def main(input):
    print("waiting for", input)
    first = suspend("start")
    second = suspend("go on", payload={"first": first})
    return [first, second]
"""

LOOP = """\
def main(input):
    total = 0
    for step in range(input["steps"]):
        answer = request("number", {"step": step, "total": total})
        if answer is None:
            continue
        total += answer
        while total > 1000:
            total -= request("take", total) or 1000
    return total
"""

CLOSURES = """\
def main(input):
    seen = []

    def ask(kind):
        count = 0

        def once(payload):
            nonlocal count
            count += 1
            seen.append([kind, count])
            return request(kind, {"count": count, "payload": payload}, tag=f"{kind}-{count}")

        return once

    left, right = ask("left"), ask("right")
    answers = [left(1), right(2), left(3)]
    answers += [left(number) for number in range(2)]
    return {"seen": seen, "answers": answers}
"""

CATCH = """\
def main(input):
    log = []
    for attempt in range(3):
        try:
            try:
                log.append(request("try", attempt))
                break
            finally:
                log.append(request("cleanup", attempt))
        except RuntimeError as error:
            log.append(str(error))
    else:
        raise ValueError("no attempt worked")
    return log
"""

REFUSALS = """\
def main(input):
    said = []
    for payload in [{1, 2}, {"a": [1, {2: 3}]}, float("nan"), 2**60, b"raw", "x" * 2_000_000]:
        try:
            request("never", payload)
        except (TypeError, ValueError) as error:
            said.append(str(error))
    return [said, request("after", len(said))]
"""

CHANCE = """\
import random
import time
from datetime import datetime, timezone


def main(input):
    drawn = [random.randint(1, 6) for _ in range(3)]
    got = request("dice", {"drawn": drawn, "now": datetime.now(timezone.utc).isoformat(), "local": str(datetime.now())})
    own = random.Random()
    shuffled = [1, 2, 3, 4, 5]
    random.shuffle(shuffled)
    return [got, random.random(), own.random(), shuffled, time.time(), time.monotonic()]
"""

SLEEP = """\
import time


def main(input):
    for pause in (0.5, 0, 2):
        time.sleep(pause)
    return request("awake")
"""

RECORDS = """\
from dataclasses import dataclass, field


@dataclass
class Task:
    name: str
    done: bool = False
    notes: list = field(default_factory=list)

    def work(self):
        answer = request("work", {"name": self.name})
        self.notes.append(answer)
        self.done = answer is not None
        return self


class Board:
    def __init__(self, names):
        self.tasks = [Task(name) for name in names]

    def __enter__(self):
        request("open", len(self.tasks))
        return self

    def __exit__(self, *error):
        request("close")
        return False


def main(input):
    with Board(["a", "b"]) as board:
        worked = [task.work() for task in board.tasks]
    return {task.name: [task.done, task.notes] for task in worked}
"""

MATCH = """\
def main(input):
    steps = []
    while len(steps) < 4:
        match request("next", {"steps": steps}):
            case {"do": str(what), **rest}:
                steps.append([what, len(rest)])
            case [first, *others]:
                steps.append([first, others])
            case int() | float() as number if number:
                steps.append(["number", number])
            case None | 0 | False:
                return {"stopped": steps}
            case other:
                steps.append(["other", other])
    return {"steps": steps}
"""

GATHER = """\
import asyncio


async def review(name):
    first = await request("review", {"name": name}, tag=name)
    second = await request("second", {"name": name, "first": first})
    return [name, first, second]


async def main(input):
    pair, alone = await asyncio.gather(asyncio.gather(review("a"), review("b")), review("c"))
    return {"pair": pair, "alone": alone, "last": await request("last", len(pair))}
"""

NAPS = """\
import asyncio
import random


async def late(seconds):
    await asyncio.sleep(seconds)
    return await request("woke", {"seconds": seconds, "drawn": random.random()})


async def main(input):
    early = request("early")
    found = await asyncio.gather(*[late(seconds) for seconds in (3, 1, 2)])
    return [await early, found]
"""

HANDLED = """\
import asyncio


async def careful(number):
    try:
        return await request("risky", number)
    except RuntimeError as error:
        return f"lost {number}: {error}"


async def main(input):
    try:
        firm = await asyncio.gather(request("firm", 1), request("firm", 2))
    except RuntimeError as error:
        firm = str(error)
    soft = await asyncio.gather(careful(1), careful(2), careful(3))
    return [firm, soft]
"""

VALUES = """\
from functools import partial, reduce


def main(input):
    ask = request
    llm = partial(ask, "llm")
    first = llm({"n": 1})
    later = (lambda payload: ask("other", payload))({"first": first})
    return reduce(lambda left, right: [left, right], [first, later, suspend("end")])
"""

PLAIN = {
    "plan": PLAN,
    "wait": WAIT,
    "loop": LOOP,
    "closures": CLOSURES,
    "catch": CATCH,
    "refusals": REFUSALS,
    "chance": CHANCE,
    "sleep": SLEEP,
    "records": RECORDS,
    "match": MATCH,
    "values": VALUES,
}
ASYNC = {"gather": GATHER, "naps": NAPS, "handled": HANDLED}
FLOWS = {**PLAIN, **ASYNC}

INPUTS: dict[str, Any] = {name: {"goal": "tidy up", "steps": 5} for name in FLOWS}
"""What each flow can be started with."""
