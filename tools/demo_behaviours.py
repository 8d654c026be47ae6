"""Demo of behaviours: a flow that was improved on evidence, and a prompt with too little data.

Sessions of several weeks have run the flow's first version and one that an agent proposed and a person put on trial; enough of both
to show that the second is better. The prompt has an open proposal and no suggestion.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import clia

if TYPE_CHECKING:
    from pathlib import Path

    from clia.facade.space import Space

RESTOCK = """\
def main(input):
    answer = request("supplier", {"how many": input["what"]})
    return {"what": input["what"], "boxes": int(answer)}
"""
BETTER = """\
import re


def main(input):
    answer = request("supplier", {"how many": input["what"]})
    found = re.search(r"[0-9]+", str(answer))
    return {"what": input["what"], "boxes": int(found[0])}
"""
TIDY = "You are {{agent}}. Leave the code shorter than you found it, and every test green.\n\n{{task}}\n"
TIDIER = TIDY.replace("every test green", "every test green. Say in the commit what you took away")
AGENTS = ("buyer", "clerk", "porter")
SEED = 14
TOUR: tuple[tuple[str, str], ...] = (
    ("What do the agents know how to do?", "behaviour list"),
    (
        "For weeks restock failed where a supplier answered in words. An agent proposed a version, with the sessions that failed.",
        "behaviour show restock",
    ),
    ("What would it change?", "behaviour diff restock {first} {second}"),
    (
        "A session that failed, again with the proposed version: recorded answers, nothing is written.",
        "behaviour replay --session {session} --with {second}",
    ),
    (
        "A person let it run on trial, by its id, in turn with the other. How did they do, week by week?",
        "behaviour stats restock --over week",
    ),
    ("Side by side.", "behaviour compare {first} {second}"),
    ("Is that enough? The commits that it rests on are named.", "behaviour suggest restock"),
    (
        "So it is adopted, with that evidence. New sessions run it.",
        "behaviour adopt restock --on-evidence -m 'Suppliers answer in words'",
    ),
    ("Where did it come from?", "behaviour lineage restock"),
    ("Of this prompt a proposal waits. Nobody let it run, and too little is known.", "behaviour suggest tidy"),
    (
        "An agent is spawned from a prompt by its name; what it does counts for the prompt.",
        "spawn mender --behaviour tidy -t 'Tidy the tests' -b 'Begin with test_prices.py.'",
    ),
)
LOOK = (
    ("who adopted what, when and on which commits", "behaviour show restock"),
    ("is the proposal any better? not enough data", "behaviour suggest tidy"),
    ("let it run by its id, beside the current one", "behaviour adopt tidy {tidier} --trial"),
)


class _Past:
    """A clock that the plan below moves: it ends a day before now."""

    def __init__(self, days: int) -> None:
        self._now = datetime.now(UTC).replace(microsecond=0) - timedelta(days=days)

    def __call__(self) -> datetime:
        self._now += timedelta(seconds=1)
        return self._now

    def later(self, **how_long: float) -> None:
        self._now += timedelta(**how_long)


def plant(repository: Path) -> dict[str, str]:
    """Weeks of work in a moment; and the ids that the tour's commands name."""
    clock, chance = _Past(days=64), random.Random(SEED)  # noqa: S311  # the same demo for everybody
    settings = clia.Settings(person=("Ada", "ada@example.org"), clock=clock, durable=False)
    with clia.open(repository, settings=settings) as space:
        first = space.add_behaviour("restock", RESTOCK, "session-flow", why="Ask the supplier, then count").cid
        space.add_behaviour("tidy", TIDY, "prompt", why="What everybody is told anyway")
        for name in AGENTS:
            space.spawn(name, clia.Briefing("Keep the shelves full"))
        failed = [session for number in range(30) if (session := _restocked(space, clock, chance, number, first)) is not None]
        second = space.propose_behaviour(
            "restock",
            BETTER,
            evidence=[commit for _, commit in failed[-5:]],
            why="Suppliers answer in words, too: look for the number",
            agent="clerk",
        ).cid
        clock.later(days=1)
        space.adopt_behaviour("restock", second, trial=True, why="Run both in turn until we know")
        for number in range(30, 110):
            _restocked(space, clock, chance, number, (first, second)[number % 2])
        tidier = _tidied(space)
    return {"first": first[:12], "second": second[:12], "session": failed[-1][0], "tidier": tidier[:12]}


def _restocked(space: Space, clock: _Past, chance: random.Random, number: int, version: str) -> tuple[str, str] | None:
    """A session of some agent's, as the supplier happens to answer; where it failed, which one and the commit made in it."""
    agent, boxes = AGENTS[number % len(AGENTS)], chance.randint(2, 40)
    answer = chance.choices((f"{boxes}", f"{boxes} boxes", "none before Monday"), (54, 43, 3))[0]
    session = space.start(agent, version, {"what": ("apples", "pears", "plums")[number % 5 % 3]})
    clock.later(minutes=chance.randint(5, 60))
    outcome = "failed" if chance.random() < 0.1 else "passed"  # of something that neither version has to do with
    order = {"ORDERS.md": f"{number}: {answer}\n".encode()}
    commit = space.commit(agent, "test", order, message=f"Order {number}", meta={"outcome": outcome})
    ended = space.resume(agent, answer)
    clock.later(hours=12)
    return (f"{agent}/{session.id}", commit) if ended.status == "failed" else None


def _tidied(space: Space) -> str:
    """One agent's work by the prompt, taken in by another; and a proposal that nobody has looked at."""
    space.spawn("sweeper", space.brief("tidy", "Tidy the orders", "Begin with ORDERS.md.", agent="sweeper"))
    commit = space.commit("sweeper", "refactor", {"SHELVES.md": b"apples, pears, plums\n"}, message="Shelves in one line")
    space.merge("porter", "sweeper")
    why = "Who merges it wants to know what went"
    return space.propose_behaviour("tidy", TIDIER, evidence=[commit], why=why, agent="sweeper").cid
