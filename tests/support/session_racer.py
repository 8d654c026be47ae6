"""A process that races others for the same requests: started by a test, ready when it says so, off when it is told, each round.

Run as a program: what it did is on paper before it goes on, one line a step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import clia
from clia.errors import Conflict, NotFound, StaleRequest
from support.space_driver import Paper, settings


class Race(NamedTuple):
    """What racers are told."""

    root: str
    store: str | None
    paper: str
    verb: str  # decide, resume or start
    rounds: list[list[list[str]]]  # in each some requests: agent and id


def run(race: Race, racers: int) -> None:
    """Starts the racers, lets them off together, and waits for them."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    words = [sys.executable, "-m", "support.session_racer", json.dumps(race)]
    running = [
        subprocess.Popen(
            [*words, str(number)], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for number in range(racers)
    ]
    for _ in race.rounds:
        for each in running:
            assert each.stdout is not None
            each.stdout.readline()
        for each in running:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
    said = [(each.communicate()[1], each.returncode) for each in running]
    assert not any(code for _, code in said), "\n".join(err for err, _ in said)


def answer(space: clia.Space, verb: str, requests: list[list[str]], number: str, paper: Paper) -> None:
    """Answers every request, and notes whether it was the first."""
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


def main(told: str, number: str) -> None:
    race = Race(*json.loads(told))
    paper = Paper(race.paper)
    with clia.open(race.root, settings=settings(store=race.store)) as space:
        space.check_flow("def main(input):\n    return input\n")  # the engine is loaded before the race
        for requests in race.rounds:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.readline()
            if race.verb == "start":
                start_and_cancel(space, requests[0][0], paper)
            else:
                answer(space, race.verb, requests, number, paper)


if __name__ == "__main__":
    main(*sys.argv[1:])
