"""The gate decides like a logic program, which states the rules in another language and has its own solver."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import clingo
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from clia.store.interface import GateFacts, GateQuestion, GrantFact
from clia.store.postgres_store import PostgresStore
from clia.store.sqlite_store import SqliteStore
from support.memory_store import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from clia.store.interface import Store

PEERS, TYPES, TRIGGERS, MOMENTS = range(3), range(6), range(2), range(4)
# The program has only numbers: positions in the ranges above, and the position of a grant in the world.
RULES = """
is_a(T, T) :- type(T).
is_a(T, W) :- is_a(T, U), parent(U, W).
live(G) :- grant(G, _, _, _), not ends(G, _).
live(G) :- ends(G, E), now(N), N < E.
taken_in(G, P, T, R) :- grant(G, P, W, R), trusted(P), is_a(T, W), live(G).
allows(G, P, T, R, 0) :- taken_in(G, P, T, R).
allows(G, P, T, R, 1) :- taken_in(G, P, T, R), runs(G).
#show allows/5.
"""
Question = tuple[int, int, int, bool]


class GateWorld(NamedTuple):
    grants: list[tuple[int, int, int, bool, int | None]]  # peer, type, trigger, execute, expires
    trusted: set[int]
    parents: list[tuple[int, int]]
    now: int

    def facts(self) -> GateFacts:
        """The world with names for numbers; some names sort differently than their numbers."""
        grants = (GrantFact(f"g{n}", f"p{p}", f"t{t}", f"r{r}", x, e) for n, (p, t, r, x, e) in enumerate(self.grants))
        return GateFacts(
            tuple(grants),
            tuple(f"p{p}" for p in self.trusted),
            tuple((f"t{child}", f"t{parent}") for child, parent in self.parents),
        )

    def program(self) -> str:
        lines = [f"now({self.now})."]
        lines += [f"type({t})." for t in TYPES]
        lines += [f"trusted({p})." for p in self.trusted]
        lines += [f"parent({child}, {parent})." for child, parent in self.parents]
        for n, (p, t, r, x, e) in enumerate(self.grants):
            lines += [f"grant({n}, {p}, {t}, {r}).", *([f"runs({n})."] if x else []), *([] if e is None else [f"ends({n}, {e})."])]
        return "\n".join(lines)


grants = st.tuples(
    st.sampled_from(PEERS), st.sampled_from(TYPES), st.sampled_from(TRIGGERS), st.booleans(), st.none() | st.sampled_from(MOMENTS)
)
trees = st.lists(st.integers(0, 10), max_size=len(TYPES) - 1).map(lambda picks: [(n, pick % n) for n, pick in enumerate(picks, 1)])
# Not created by any registry of types, but possible for a hostile one: several parents, and cycles.
tangles = st.lists(st.tuples(st.sampled_from(TYPES), st.sampled_from(TYPES)), max_size=9)
worlds = st.builds(
    GateWorld, st.lists(grants, max_size=12), st.sets(st.sampled_from(PEERS)), trees | tangles, st.sampled_from(MOMENTS)
)


def oracle(world: GateWorld) -> dict[Question, list[str]]:
    """Every allowed question, with the grants that allow it."""
    control = clingo.Control(["--warn=none"])
    control.add("base", [], RULES + world.program())
    control.ground([("base", [])])
    allowed: dict[Question, list[str]] = {}
    with control.solve(yield_=True) as models:
        (model,) = models
        for symbol in model.symbols(shown=True):
            grant, peer, type_, trigger, execute = (argument.number for argument in symbol.arguments)
            allowed.setdefault((peer, type_, trigger, bool(execute)), []).append(f"g{grant}")
    return {question: sorted(cids) for question, cids in allowed.items()}


def decided(store: Store, world: GateWorld) -> dict[Question, list[str]]:
    with store.writing() as change:
        change.gate.load(world.facts())
    allowed = {}
    with store.reading() as view:
        for peer, type_, trigger, execute in product(PEERS, TYPES, TRIGGERS, (False, True)):
            cids = view.gate.allowing(GateQuestion(f"p{peer}", f"t{type_}", f"r{trigger}", world.now, execute))
            if cids:
                allowed[peer, type_, trigger, execute] = cids
    return allowed


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_gate_agrees_with_a_logic_program_on_every_question_of_a_world(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("postgres_address") if kind == "postgres" else ""
    stores = [
        PostgresStore(address, "one") if address else SqliteStore(str(tmp_path / "space.db"), "one", durable=False),
        MemoryStore(),
    ]
    examples = settings.default.max_examples if settings.default else 100

    @settings(max_examples=examples if kind == "sqlite" else examples // 4)
    @given(world=worlds)
    def agrees(world: GateWorld) -> None:
        expected = oracle(world)
        event("something is allowed" if expected else "all is denied")
        for store in stores:
            assert decided(store, world) == expected

    agrees()
    for store in stores:
        store.close()
