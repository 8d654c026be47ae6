"""Each store behaves like a simple model under any order of calls."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from clia.errors import CliaError
from clia.store.interface import Edge
from clia.store.postgres_store import PostgresStore
from clia.store.sqlite_store import SqliteStore
from support.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clia.store.interface import Store, Transaction

# Few names, so that calls interact; some sort or match in unusual ways, and one is refused.
names = st.sampled_from(["", "a", "a/", "a/1", "a%", "a_", "é", "\ud7ff", "\ue000", "\U0010ffff", "a\U0010ffff", "A", "\0"])
bodies = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=3), inner, max_size=3),
    max_leaves=5,
)
nodes = st.sampled_from("abcd")
kinds = st.sampled_from(["k", "l"])
origins = st.sampled_from(["o1", "o2", "o3", "o4"])
chains = st.sampled_from(["c1", "c2"])
edges = st.builds(Edge, nodes, kinds, nodes, origins, chains)
versions = st.integers(-1, 3)
positions = st.integers(0, 6)


class Undo(Exception):
    pass


class StoreMachine(RuleBasedStateMachine):
    """Runs each call on a real store and on the model, and compares the results."""

    make: Callable[[], Store]

    def __init__(self) -> None:
        super().__init__()
        self.stores = (self.make(), MemoryStore())
        self.block: tuple[AbstractContextManager[Transaction], ...] = ()
        self.open: tuple[Transaction, ...] = ()

    def teardown(self) -> None:
        if self.block:
            self.end(undo=False)
        for store in self.stores:
            store.close()

    def same(self, call: Callable[[Transaction], Any]) -> None:
        if self.open:
            real, model = (outcome(call, transaction) for transaction in self.open)
        else:
            with ExitStack() as stack:
                real, model = (outcome(call, stack.enter_context(store.writing())) for store in self.stores)
        assert real == model

    @precondition(lambda self: not self.block)
    @rule(writes=st.booleans())
    def begin(self, writes: bool) -> None:
        self.block = tuple(store.writing() if writes else store.reading() for store in self.stores)
        self.open = tuple(context.__enter__() for context in self.block)

    @precondition(lambda self: self.block)
    @rule(undo=st.booleans())
    def end(self, undo: bool) -> None:
        block, self.block, self.open = self.block, (), ()
        for context in block:
            assert not context.__exit__(*((Undo, Undo(), None) if undo else (None, None, None)))

    @precondition(lambda self: not self.block)
    @rule()
    def open_again(self) -> None:
        self.stores[0].close()
        self.stores = (self.make(), self.stores[1])

    @rule(stream=names, entries=st.lists(bodies, max_size=3), expected=st.none() | positions)
    def append(self, stream: str, entries: list[Any], expected: int | None) -> None:
        self.same(lambda view: view.streams.append(stream, entries, expected))

    @rule(stream=names, position=positions, body=bodies)
    def replace(self, stream: str, position: int, body: Any) -> None:
        self.same(lambda view: view.streams.replace(stream, position, body))

    @rule(stream=names, upto=positions)
    def forget(self, stream: str, upto: int) -> None:
        self.same(lambda view: view.streams.forget(stream, upto))

    @rule(stream=names, after=positions, limit=st.none() | positions)
    def read(self, stream: str, after: int, limit: int | None) -> None:
        self.same(lambda view: (view.streams.read(stream, after, limit), view.streams.end(stream), view.streams.names(stream)))

    @rule(key=names, value=bodies, expected=versions)
    def put(self, key: str, value: Any, expected: int) -> None:
        self.same(lambda view: view.values.put(key, value, expected))

    @rule(key=names, expected=versions)
    def delete(self, key: str, expected: int) -> None:
        self.same(lambda view: view.values.delete(key, expected))

    @rule(key=names)
    def look(self, key: str) -> None:
        self.same(lambda view: (view.values.get(key), view.values.scan(key)))

    @rule(edges=st.lists(edges, max_size=6))
    def add(self, edges: list[Edge]) -> None:
        self.same(lambda view: view.edges.add(edges))

    @rule(source=chains, origins=st.lists(origins, max_size=2))
    def retract(self, source: str, origins: list[str]) -> None:
        self.same(lambda view: view.edges.retract(source, origins))

    @rule(source=chains)
    def drop(self, source: str) -> None:
        self.same(lambda view: view.edges.drop(source))

    @rule()
    def clear(self) -> None:
        self.same(lambda view: view.edges.clear())

    @rule(a=nodes, b=nodes, kind=kinds)
    def follow(self, a: str, b: str, kind: str) -> None:
        self.same(
            lambda view: (
                view.edges.targets(a, kind),
                view.edges.sources(a, kind),
                view.edges.reachable(a, kind),
                view.edges.origins(a, kind, b),
                view.edges.standing(a),
                view.edges.standing(),
            )
        )


def outcome(call: Callable[[Transaction], Any], transaction: Transaction) -> Any:
    """The result of a call: the text of its value, or the error as data."""
    try:
        return repr(call(transaction))
    except CliaError as err:
        return type(err), err.to_json()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_store_behaves_like_the_model(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    numbers = count()
    address = request.getfixturevalue("postgres_address") if kind == "postgres" else ""

    class Machine(StoreMachine):
        def __init__(self) -> None:
            # One database for all examples, with one space per example, which must stay separate.
            space = f"space {next(numbers)}"
            path = str(tmp_path / "space.db")
            self.make = lambda: PostgresStore(address, space) if address else SqliteStore(path, space, durable=False)
            super().__init__()

    examples = settings.default.max_examples if settings.default else 100
    few = settings(max_examples=examples if kind == "sqlite" else examples // 2, stateful_step_count=40)
    run_state_machine_as_test(Machine, settings=few)
