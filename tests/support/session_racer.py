"""Processes that race for the same requests, all starting each round together.

A racer writes each step to the paper before it continues.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import clia
from clia.errors import Conflict, NotFound, StaleRequest
from support.crashes import SERVER, result_of, started_apart
from support.space_driver import Paper, settings

PATIENCE = 300.0
"""Seconds after which a racer that is not ready for a round is a failure."""


class Race(NamedTuple):
    """The rules of a race."""

    root: str
    store: str | None
    paper: str
    verb: str  # decide, resume or start
    rounds: list[list[list[str]]]  # in each some requests: agent and id


def run(race: Race, racers: int) -> None:
    """Run a race and wait for its end."""
    barrier = SERVER.Barrier(racers, timeout=PATIENCE)
    running = [started_apart(race_all_rounds, race, str(number), barrier) for number in range(racers)]
    for racer in running:
        result_of(*racer)


def answer(space: clia.Space, verb: str, requests: list[list[str]], number: str, paper: Paper) -> None:
    """Answer every request, and note whether this racer was first."""
    for agent, request in requests:
        value: Any = [int(number), request]
        try:
            if verb == "decide":
                space.decide(agent, value, f"racer {number} says so", by=f"racer {number}", request_id=request)
            else:
                space.resume(agent, value, request, by=f"racer {number}")
        except StaleRequest as err:
            paper.note("lost", agent, request, number, str(err.answered_by), str(err.fields["value"][0]))
        else:
            paper.note("won", agent, request, number)


def start_and_cancel(space: clia.Space, agent: str, paper: Paper) -> None:
    try:
        paper.note("started", space.start(agent, "many", 2).id)
    except Conflict as err:
        paper.note("refused", err.code)
    try:
        paper.note("cancelled", space.cancel(agent).id)
    except (Conflict, NotFound) as err:
        paper.note("late", err.code)


def race_all_rounds(race: Race, number: str, barrier: Any) -> None:
    paper = Paper(race.paper)
    with clia.open(race.root, settings=settings(store=race.store)) as space:
        space.sessions.check_flow("def main(input):\n    return input\n")  # load the engine before the race
        for requests in race.rounds:
            barrier.wait()
            if race.verb == "start":
                start_and_cancel(space, requests[0][0], paper)
            else:
                answer(space, race.verb, requests, number, paper)
