"""Plan the steps of a history.

A seed determines the world and the steps: each has its own random choices, so that a history without some of its steps makes the
same choices in the others.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from support.fuzzer import person, verbs
from support.fuzzer.place import WORLDS, World
from support.fuzzer.surroundings import HUB_FAULTS, STORE_FAULTS
from support.fuzzer.traced import KILL, STOP, Fault

VERB, CHORE, BURST, CHECK, CLOCK, FILL, STORE = "verb", "chore", "burst", "check", "clock", "fill", "store"
HUB, SERVER = "hub", "database"
_KINDS = {VERB: 120, CHORE: 50, BURST: 8, CLOCK: 4, FILL: 4, STORE: 5, CHECK: 6}
_FAULTS = {None: 50, KILL: 28, STOP: 22}
_MOST_CHANGES, _MOST_POINTS = {VERB: 110, CHORE: 45}, 12
_SERVERS = ("server 1", "server 2")
_WORLDS = {"alone": 5, "server": 2, "hub": 3, "fleet": 4, "peers": 2}
"""How often each world comes. A seed that begins with the name of a world has that world."""
STEPS = 30
"""Steps of a history."""


class Step(NamedTuple):
    number: int
    kind: str
    what: str = ""
    fault: Fault | None = None
    more: tuple[str, ...] = ()  # the other verbs of a burst
    by: str = ""  # the server that runs the verb; empty: a process of its own
    machine: int = 0

    def __str__(self) -> str:
        fault = f", {self.fault.action} after {self.fault.after} {'steps' if self.by else 'changes'}" if self.fault else ""
        by = f" by {self.by}" if self.by else ""
        machine = f" on machine {self.machine + 1}" if self.machine else ""
        what = f"{self.kind} {self.what}" if self.kind in (STORE, HUB) else self.what or self.kind
        return f"{self.number}: {' + '.join((what, *self.more))}{by}{machine}{fault}"


def random_of(seed: str, what: object) -> Random:
    """The random choices of a seed for one purpose."""
    return Random(f"{seed} {what}")  # noqa: S311  # not a secret


def _chosen(order: Random, weights: dict[Any, int]) -> Any:
    return order.choices(list(weights), list(weights.values()))[0]


def world_of(seed: str) -> World:
    return WORLDS.get(seed.partition(" ")[0]) or WORLDS[_chosen(random_of(seed, "world"), _WORLDS)]


def plan(seed: str, steps: int = STEPS) -> list[Step]:
    """The steps of a history."""
    world = world_of(seed)
    return [_step(seed, number, world) for number in range(1, steps + 1)]


def _step(seed: str, number: int, world: World) -> Step:
    order = random_of(seed, f"plan {number}")
    # A peer refuses statements of a clock that is weeks ahead, until then.
    clock = 0 if world.peer else _KINDS[CLOCK]
    kind = _chosen(order, {**_KINDS, CLOCK: clock, HUB: 12 * world.hub, SERVER: 5 * world.postgres})
    if kind in (STORE, HUB):
        return Step(number, kind, _chosen(order, STORE_FAULTS if kind == STORE else HUB_FAULTS))
    if kind not in (VERB, CHORE, BURST):
        return Step(number, kind)
    chores = person.HUB_CHORES if world.hub else person.CHORES
    chosen = verbs.VERBS | (verbs.OF_PEERS if world.peer else {})
    weights = {name: weight for name, (_, weight) in (chores if kind == CHORE else chosen).items()}
    if kind == BURST:
        first, *more = (_chosen(order, weights) for _ in range(order.randint(2, 4)))
        return Step(number, kind, first, None, tuple(more))
    action, by = _chosen(order, _FAULTS), order.choice(("", "", *_SERVERS)) if kind == VERB else ""
    fault = None if action is None else Fault(action, order.randint(1, _MOST_POINTS if by else _MOST_CHANGES[kind]))
    what = _chosen(order, weights)
    machine = (_SERVERS.index(by) if by else order.randrange(2)) % world.machines
    return Step(number, kind, what, fault, by=by, machine=machine)
