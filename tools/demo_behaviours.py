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
    ("Which behaviours do the agents have?", "behaviour list"),
    (
        "For weeks restock failed when a supplier answered in words. An agent proposed a version, based on these sessions.",
        "behaviour show restock",
    ),
    ("What would it change?", "behaviour diff restock {first} {second}"),
    (
        "Replay a failed session with the proposed version: with recorded answers, and without writing anything.",
        "behaviour replay --session {session} --with {second}",
    ),
    (
        "A person allowed a trial, alternating with the current version. How did they do, week by week?",
        "behaviour stats restock --over week",
    ),
    ("Side by side.", "behaviour compare {first} {second}"),
    ("Is that enough evidence? The supporting commits are listed.", "behaviour suggest restock"),
    (
        "It is adopted with that evidence. New sessions run it.",
        "behaviour adopt restock --on-evidence -m 'Suppliers answer in words'",
    ),
    ("Where did it come from?", "behaviour lineage restock"),
    ("A version of this prompt is proposed. Nobody has allowed it to run, so there is not enough data.", "behaviour suggest tidy"),
    (
        "An agent is spawned from a prompt by its name; its work counts for the prompt.",
        "spawn mender --behaviour tidy -t 'Tidy the tests' -b 'Begin with test_prices.py.'",
    ),
)
LOOK = (
    ("who adopted what, when and on which commits", "behaviour show restock"),
    ("is the proposal any better? not enough data", "behaviour suggest tidy"),
    ("allow it to run by its id, besides the current one", "behaviour adopt tidy {tidier} --trial"),
)


class _Past:
    """A clock that the demo advances; it ends a day before now."""

    def __init__(self, days: int) -> None:
        self._now = datetime.now(UTC).replace(microsecond=0) - timedelta(days=days)

    def __call__(self) -> datetime:
        self._now += timedelta(seconds=1)
        return self._now

    def later(self, **how_long: float) -> None:
        self._now += timedelta(**how_long)


def plant(repository: Path) -> dict[str, str]:
    """Create weeks of work at once; return the ids that the tour's commands use."""
    clock, chance = _Past(days=64), random.Random(SEED)  # noqa: S311  # the same demo every time
    settings = clia.Settings(person=("Ada", "ada@example.org"), clock=clock, durable=False)
    with clia.open(repository, settings=settings) as space:
        first = space.behaviours.add("restock", RESTOCK, "session-flow", why="Ask the supplier, then count").cid
        space.behaviours.add("tidy", TIDY, "prompt", why="What everyone is told anyway")
        for name in AGENTS:
            space.spawn(name, clia.Briefing("Keep the shelves full"))
        failed = [session for number in range(30) if (session := _restocked(space, clock, chance, number, first)) is not None]
        second = space.behaviours.propose(
            "restock",
            BETTER,
            evidence=[commit for _, commit in failed[-5:]],
            why="Suppliers answer in words, too: look for the number",
            agent="clerk",
        ).cid
        clock.later(days=1)
        space.behaviours.adopt("restock", second, trial=True, why="Run both in turn until we know")
        for number in range(30, 110):
            _restocked(space, clock, chance, number, (first, second)[number % 2])
        tidier = _tidied(space)
    return {"first": first[:12], "second": second[:12], "session": failed[-1][0], "tidier": tidier[:12]}


def _restocked(space: Space, clock: _Past, chance: random.Random, number: int, version: str) -> tuple[str, str] | None:
    """A session of some agent with a random answer of the supplier; if it failed, its id and the commit made in it."""
    agent, boxes = AGENTS[number % len(AGENTS)], chance.randint(2, 40)
    answer = chance.choices((f"{boxes}", f"{boxes} boxes", "none before Monday"), (54, 43, 3))[0]
    session = space.start(agent, version, {"what": ("apples", "pears", "plums")[number % 5 % 3]})
    clock.later(minutes=chance.randint(5, 60))
    outcome = "failed" if chance.random() < 0.1 else "passed"  # for a reason unrelated to the version
    order = {"ORDERS.md": f"{number}: {answer}\n".encode()}
    commit = space.commit(agent, "test", order, message=f"Order {number}", meta={"outcome": outcome})
    ended = space.resume(agent, answer)
    clock.later(hours=12)
    return (f"{agent}/{session.id}", commit) if ended.status == "failed" else None


def _tidied(space: Space) -> str:
    """An agent's work with the prompt, merged by another agent; and a proposal that nobody has reviewed."""
    space.spawn("sweeper", space.behaviours.brief("tidy", "Tidy the orders", "Begin with ORDERS.md.", agent="sweeper"))
    commit = space.commit("sweeper", "refactor", {"SHELVES.md": b"apples, pears, plums\n"}, message="Shelves in one line")
    space.merge("porter", "sweeper")
    why = "Tell whoever merges it what was removed"
    return space.behaviours.propose("tidy", TIDIER, evidence=[commit], why=why, agent="sweeper").cid
