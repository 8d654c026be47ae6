"""Each store against the specification in ``clia.store.interface``."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from clia.errors import Conflict, InvalidInput, NotFound, StoreError
from clia.store.interface import ABSENT, Edge, GateFacts, GateQuestion, GrantFact
from clia.store.postgres_store import PostgresStore
from clia.store.sqlite_store import SqliteStore
from clia.store.validation import NAME_BYTES
from support import postgres
from support.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.store.interface import Store

LAST = "\U0010ffff"
HOSTILE = [
    "",
    "%",
    "_",
    "a%b",
    "a_b",
    "'",
    '"; DROP TABLE clia_values; --',
    "\\",
    "?",
    "%s",
    "é",
    "e\u0301",
    "\ud7ff",
    "\ue000",
    LAST,
    LAST * 3,
]
TABLES = ["clia_entries", "clia_values"]
KIND = "sub-agent-of"
GRANT = GrantFact("g1", "peer", "commit", "spawn")
FACTS = GateFacts((GRANT,), ("peer",), (("bug", "finding"), ("finding", "commit")))
ASKED = GateQuestion("peer", "finding", "spawn", 100)


class Database(NamedTuple):
    """Opens stores in one database, and closes them after the test."""

    name: str
    open: Callable[[str], Store]
    address: str  # a directory, or a PostgreSQL address


@pytest.fixture(params=["sqlite", "postgres", "postgres, with names of its own", "memory"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    opened: list[Store] = []
    path, address = str(tmp_path / "new/folder/space.db"), ""
    if request.param.startswith("postgres"):
        address = request.getfixturevalue("postgres_address")

    def make(space: str) -> Store:
        stores: dict[str, Callable[[], Store]] = {
            "sqlite": lambda: SqliteStore(path, space),
            "postgres": lambda: PostgresStore(address, space),
            "postgres, with names of its own": lambda: PostgresStore(address, space, own=f"{space}/clone"),
            "memory": MemoryStore,
        }
        opened.append(stores[request.param]())
        return opened[-1]

    yield Database(request.param, make, address or str(tmp_path))
    for open_store in opened:
        open_store.close()


@pytest.fixture
def store(database: Database) -> Store:
    return database.open("one")


def test_a_stream_grows_by_positions_from_one(store: Store) -> None:
    with store.writing() as change:
        assert change.streams.end("s") == 0
        assert change.streams.append("s", ["a", "b"]) == 2
        assert change.streams.append("s", ["c"]) == 3
    with store.reading() as view:
        assert view.streams.read("s") == [(1, "a"), (2, "b"), (3, "c")]
        assert view.streams.read("s", after=1) == [(2, "b"), (3, "c")]
        assert view.streams.read("s", after=1, limit=1) == [(2, "b")]
        assert view.streams.read("s", limit=0) == view.streams.read("s", after=3) == view.streams.read("other") == []
        assert view.streams.end("s") == 3


def test_numbers_can_have_any_size(store: Store) -> None:
    with store.writing() as change:
        change.streams.append("s", ["a", "b"])
        change.streams.forget("s", -(2**70))
        assert change.streams.read("s", after=-(2**70), limit=2**70) == [(1, "a"), (2, "b")]
        assert change.streams.read("s", after=2**70) == change.streams.read("s", limit=-1) == []
        with pytest.raises(NotFound):
            change.streams.replace("s", 2**70, "x")
        with pytest.raises(Conflict):
            change.streams.append("s", ["c"], expected=2**70)
        change.streams.forget("s", 2**70)
        assert change.streams.names("") == []


def test_appending_nothing_changes_nothing(store: Store) -> None:
    with store.writing() as change:
        assert change.streams.append("s", []) == 0
        assert change.streams.append("s", [], expected=0) == 0
        assert change.streams.names("") == []
        with pytest.raises(Conflict):
            change.streams.append("s", [], expected=1)


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_appending_where_the_stream_does_not_end_is_a_conflict(store: Store, expected: int) -> None:
    with store.writing() as change:
        change.streams.append("s", ["a", "b"])
        with pytest.raises(Conflict) as caught:
            change.streams.append("s", ["c"], expected=expected)
        assert caught.value.code == "stale-position"
        assert caught.value.fields == {"stream": "s", "expected": expected, "actual": 2}
        assert change.streams.append("s", ["d"], expected=2) == 3
    with store.reading() as view:
        assert view.streams.read("s") == [(1, "a"), (2, "b"), (3, "d")]


def test_an_entry_is_replaced_in_its_place(store: Store) -> None:
    with store.writing() as change:
        change.streams.append("s", ["a", "leak", "c"])
        change.streams.append("t", ["t"])
    with store.writing() as change:
        change.streams.replace("s", 2, {"removed": True})
        for stream, position in (("s", 4), ("s", 0), ("none", 1)):
            with pytest.raises(NotFound) as caught:
                change.streams.replace(stream, position, "x")
            assert caught.value.fields == {"stream": stream, "position": position}
    with store.reading() as view:
        assert view.streams.read("s") == [(1, "a"), (2, {"removed": True}), (3, "c")]
        assert view.streams.read("t") == [(1, "t")]


def test_positions_continue_after_forgetting(store: Store) -> None:
    with store.writing() as change:
        change.streams.append("s", ["a", "b", "c"])
        change.streams.append("t", ["t"])
        change.streams.forget("s", 2)
        assert change.streams.read("s") == [(3, "c")]
        with pytest.raises(NotFound):
            change.streams.replace("s", 2, "x")
        change.streams.forget("s", 99)
        change.streams.forget("none", 1)
    with store.writing() as change:
        assert change.streams.read("s") == []
        assert change.streams.end("s") == 3
        assert change.streams.names("") == ["t"]
        assert change.streams.append("s", ["d"], expected=3) == 4
        assert change.streams.read("s") == [(4, "d")]
        assert change.streams.names("") == ["s", "t"]


def test_a_version_grows_with_each_put(store: Store) -> None:
    with store.writing() as change:
        assert change.values.get("k") is None
        assert change.values.put("k", "a") == 1
        assert change.values.put("k", "b") == 2
        assert change.values.put("k", "c", expected=2) == 3
        assert change.values.get("k") == ("c", 3)


@pytest.mark.parametrize("expected", [ABSENT, 1, 3])
def test_putting_over_another_version_is_a_conflict(store: Store, expected: int) -> None:
    with store.writing() as change:
        change.values.put("k", "a")
        change.values.put("k", "b")
        attempts: list[Callable[[], object]] = [
            lambda: change.values.put("k", "c", expected),
            lambda: change.values.delete("k", expected),
        ]
        for attempt in attempts:
            with pytest.raises(Conflict) as caught:
                attempt()
            assert caught.value.code == "stale-value"
            assert caught.value.fields == {"key": "k", "expected": expected, "actual": 2}
    with store.reading() as view:
        assert view.values.get("k") == ("b", 2)


def test_expecting_a_version_of_nothing_is_a_conflict(store: Store) -> None:
    with store.writing() as change:
        with pytest.raises(Conflict) as caught:
            change.values.put("k", "a", expected=1)
        assert caught.value.fields["actual"] == ABSENT
        with pytest.raises(Conflict):
            change.values.delete("k", expected=1)
        assert change.values.put("k", "a", expected=ABSENT) == 1


def test_a_version_is_never_reused_even_after_a_deletion(store: Store) -> None:
    with store.writing() as change:
        change.values.put("k", "mine")
        assert change.values.delete("k", expected=1) is True
    with store.writing() as change:
        assert change.values.get("k") is None
        assert change.values.scan("") == []
        assert change.values.delete("k") is False
        assert change.values.delete("k", expected=ABSENT) is False
        assert change.values.put("k", "another's", expected=ABSENT) == 2
        with pytest.raises(Conflict):
            change.values.delete("k", expected=1)
        assert change.values.get("k") == ("another's", 2)


def test_discarded_values_leave_no_version(store: Store) -> None:
    with store.writing() as change:
        for key in ("r/a/1", "r/a/2", "r/b/1", "r/a", "s"):
            change.values.put(key, key)
        change.values.put("r/a/1", "again")
        change.values.delete("r/a/2")
    with store.writing() as change:
        change.values.discard("r/a/")
        assert [key for key, _ in change.values.scan("")] == ["r/a", "r/b/1", "s"]
        assert change.values.put("r/a/1", "new", expected=ABSENT) == 1
        change.values.discard("r/nothing")
        assert [change.values.put("r/a/2", 0), change.values.put("r/a", 0)] == [1, 2]


def test_discarding_is_rolled_back(store: Store) -> None:
    with store.writing() as change:
        change.values.put("r/1", 1)
    with suppress(KeyError), store.writing() as change:
        change.values.discard("r/")
        raise KeyError
    assert store.scan("r/") == [("r/1", 1)]


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**53 + 1, 10**40, 0.1, 1.0, -0.0, 1e300, "", "plain", "nul \0 inside", "\U0001f600é\u2028",
    "'%?\\", [], {}, [1, [2, {"x": [None]}]], {"": 1, "é": {"nul \0": 2}, "%s": 3},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_is_read_equals_what_was_written(store: Store, value: Any) -> None:
    with store.writing() as change:
        change.streams.append("s", [value, value])
        change.values.put("k", value)
    with store.reading() as view:
        read = [entry.body for entry in view.streams.read("s")]
        assert repr(read) == repr([value, value])
        assert repr(view.values.get("k")) == f"Versioned(value={value!r}, version=1)"
        assert repr(view.values.scan("")) == repr([("k", value)])


def nested_too_deep() -> Any:
    value: Any = []
    for _ in range(200_000):
        value = [value]
    return value


REFUSED: dict[str, Any] = {
    "a lone surrogate": "\ud800", "a pair of halves": "\ud83d\ude00", "a surrogate in a key": {"\udfff": 1}, "NaN": float("nan"),
    "infinity": [float("inf")], "bytes": b"x", "a set": {1}, "an object": object(),
    "too deep": nested_too_deep(),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_values_are_refused_before_anything_is_written(store: Store, name: str) -> None:
    with store.writing() as change:
        change.values.put("k", "old")
        change.streams.append("s", ["old"])
        for attempt in (
            lambda: change.streams.append("s", ["fine", REFUSED[name]]),
            lambda: change.streams.replace("s", 1, REFUSED[name]),
            lambda: change.values.put("k", REFUSED[name]),
        ):
            with pytest.raises(InvalidInput) as caught:
                attempt()
            assert caught.value.code == ("invalid-text" if "surrogate" in name or "halves" in name else "invalid-json")
    with store.reading() as view:
        assert view.streams.read("s") == [(1, "old")]
        assert view.values.get("k") == ("old", 1)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * (NAME_BYTES + 1), "é" * (NAME_BYTES // 2 + 1)], ids=ascii)
def test_a_name_that_some_databases_cannot_store_is_refused_by_all(store: Store, name: str) -> None:
    edge = Edge("a", "k", "b", "o", "c")
    with store.writing() as change:
        for attempt in (
            lambda: change.streams.append(name, [1]), lambda: change.streams.read(name), lambda: change.streams.end(name),
            lambda: change.streams.replace(name, 1, 1), lambda: change.streams.forget(name, 1), lambda: change.streams.names(name),
            lambda: change.values.get(name), lambda: change.values.put(name, 1), lambda: change.values.delete(name),
            lambda: change.values.discard(name), lambda: change.values.scan(name),
            lambda: change.edges.add([edge, edge._replace(dst=name)]),
            lambda: change.edges.retract(name, []), lambda: change.edges.retract("c", ["o", name]), lambda: change.edges.drop(name),
            lambda: change.edges.targets(name, "k"), lambda: change.edges.sources("a", name),
            lambda: change.edges.reachable(name, "k"), lambda: change.edges.origins("a", "k", name),
            lambda: change.edges.standing(name), lambda: change.gate.load(GateFacts((GRANT, GRANT._replace(type=name)))),
            lambda: change.gate.load(GateFacts(trusted=("peer", name))),
            lambda: change.gate.load(GateFacts(parents=(("a", name),))),
            lambda: change.gate.allowing(ASKED._replace(trigger=name)),
        ):  # fmt: skip
            with pytest.raises(InvalidInput) as caught:
                attempt()
            assert caught.value.code == "invalid-text"
        change.edges.add([edge])
        assert change.edges.standing() == [edge]
        change.gate.load(FACTS)
        with pytest.raises(InvalidInput):
            change.gate.load(GateFacts(trusted=(name,)))
        assert change.gate.allowing(ASKED) == ["g1"]
        assert change.streams.names("") == []
        assert change.values.scan("") == []


def test_names_can_have_the_documented_length_everywhere(store: Store) -> None:
    name = LAST * (NAME_BYTES // 4)
    with store.writing() as change:
        change.edges.add([Edge(*[name] * 5)])
        change.streams.append(name, [1])
        change.values.put(name, 1)
        assert change.edges.reachable(name, name) == [name]
        assert change.streams.names(name) == change.streams.names("") == [name]
        assert change.values.scan(LAST) == [(name, 1)]
        change.gate.load(GateFacts((GrantFact(name, name, name, name),), (name,), ((name, name),)))
        assert change.gate.allowing(GateQuestion(name, name, name, 1)) == [name]


def test_hostile_names_are_only_names(store: Store) -> None:
    with store.writing() as change:
        for number, name in enumerate(HOSTILE):
            change.values.put(name, number)
            change.streams.append(name, [number])
            change.edges.add([Edge(name, KIND, f"to {name}", "o", "c")])
        grants = [GrantFact(f"by {name}", name, f"to {name}", name) for name in HOSTILE]
        change.gate.load(GateFacts(tuple(grants), tuple(HOSTILE), tuple((name, f"to {name}") for name in HOSTILE)))
    with store.reading() as view:
        assert view.values.scan("") == sorted((name, number) for number, name in enumerate(HOSTILE))
        assert view.streams.names("") == sorted(HOSTILE)
        for number, name in enumerate(HOSTILE):
            assert view.values.get(name) == (number, 1)
            assert view.streams.read(name) == [(1, number)]
            assert view.edges.targets(name, KIND) == [f"to {name}"]
            assert view.gate.allowing(GateQuestion(name, name, name, 1)) == [f"by {name}"]


def test_a_prefix_is_matched_literally(store: Store) -> None:
    names = {prefix + rest for prefix in HOSTILE for rest in ("", "a", "/1", LAST, "é")}
    with store.writing() as change:
        for name in names:
            change.values.put(name, name)
            change.streams.append(name, [name])
    with store.reading() as view:
        for prefix in (*HOSTILE, "a", "to", "absent", f"a{LAST}", LAST * 2):
            expected = sorted(name for name in names if name.startswith(prefix))
            assert [key for key, _ in view.values.scan(prefix)] == expected
            assert view.streams.names(prefix) == expected


class Oops(Exception):
    pass


def fill(store: Store) -> None:
    with store.writing() as change:
        change.streams.append("s", ["a", "b"])
        change.values.put("k", "v")
        change.values.put("gone", "v")
        change.values.delete("gone")
        change.edges.add([Edge("a", KIND, "b", "o1", "c"), Edge("b", KIND, "c", "o2", "c")])
        change.edges.retract("r", ["o2"])
        change.gate.load(FACTS)


def everything(store: Store) -> Any:
    with store.reading() as view:
        streams = {name: (view.streams.end(name), view.streams.read(name)) for name in ("s", "new")}
        other_tables = view.values.get("k"), view.edges.standing(), view.gate.allowing(ASKED)
        return streams, view.streams.names(""), view.values.scan(""), *other_tables


@pytest.mark.parametrize("exception", [Oops, KeyboardInterrupt])
def test_an_exception_in_the_block_rolls_back_the_transaction(store: Store, exception: type[BaseException]) -> None:
    fill(store)
    before = everything(store)
    with pytest.raises(exception), store.writing() as change:  # noqa: PT012 (the block is what is tried)
        change.streams.append("s", ["c"])
        change.streams.append("new", ["n"])
        change.streams.replace("s", 1, "x")
        change.streams.forget("s", 1)
        change.values.put("k", "other")
        change.values.put("gone", "back")
        change.edges.clear()
        change.edges.add([Edge("x", KIND, "y", "o3", "c")])
        change.gate.load(GateFacts())
        assert change.gate.allowing(ASKED) == []
        raise exception
    assert everything(store) == before
    with store.writing() as change:  # and the next transaction works
        assert change.streams.append("s", ["c"], expected=2) == 3
        assert change.values.put("gone", "back", expected=ABSENT) == 2


def test_a_transaction_sees_its_own_changes_and_others_only_committed_ones(store: Store) -> None:
    fill(store)
    views = []
    with store.writing() as change:
        change.values.put("k", "new")
        assert change.values.get("k") == ("new", 2)
        thread = threading.Thread(target=lambda: views.append(everything(store)))
        thread.start()
        thread.join()
    assert views[0][3] == ("v", 1)
    assert everything(store)[3] == ("new", 2)


def test_a_reader_has_one_consistent_view(store: Store) -> None:
    fill(store)

    def write() -> None:
        with store.writing() as change:
            change.values.put("k", "new")
            change.streams.append("s", ["c"])

    with store.reading() as view:
        assert view.values.get("k") == ("v", 1)
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        assert view.values.get("k") == ("v", 1)
        assert view.streams.end("s") == 2
    with store.reading() as view:
        assert view.values.get("k") == ("new", 2)
        assert view.streams.end("s") == 3


def test_writers_of_one_space_are_serialized(store: Store) -> None:
    def count() -> None:
        for _ in range(25):
            with store.writing() as change:
                old = change.values.get("n")
                change.values.put("n", 1 + (old.value if old else 0))

    writers = [threading.Thread(target=count) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with store.reading() as view:
        assert view.values.get("n") == (100, 100)


def test_writing_while_reading_is_refused_and_changes_nothing(store: Store) -> None:
    fill(store)
    before = everything(store)
    with store.reading() as view:
        for attempt in (
            lambda: view.streams.append("s", ["x"]), lambda: view.streams.replace("s", 1, "x"), lambda: view.streams.forget("s", 1),
            lambda: view.values.put("k", "x"), lambda: view.values.delete("k"), lambda: view.edges.add([Edge(*"abcde")]),
            lambda: view.values.discard("k"),
            lambda: view.streams.append("s", [], expected=9), lambda: view.values.put("\0", object()), lambda: view.edges.add([]),
            lambda: view.edges.retract("c", ["o1"]), lambda: view.edges.drop("c"), view.edges.clear,
            lambda: view.gate.load(GateFacts()),
        ):  # fmt: skip
            with pytest.raises(StoreError) as caught:
                attempt()
            assert caught.value.code == "only-reading"
    assert everything(store) == before


def test_transactions_are_not_nested(store: Store) -> None:
    for outer in (store.writing, store.reading):
        for inner in (store.writing, store.reading):
            with outer():
                with pytest.raises(StoreError) as caught, inner():
                    pass
                assert caught.value.code == "nested-transaction"
    fill(store)


def test_a_single_read_sees_only_committed_changes(store: Store) -> None:
    with store.writing() as transaction:
        transaction.values.put("a/1", {"n": 1})
        transaction.values.put("a/2", [2])
        transaction.values.put("b", "other")
    with store.writing() as transaction:
        transaction.values.put("a/1", {"n": 3})
        transaction.values.delete("a/2")
    value = store.get("a/1")
    assert value is not None
    assert (value.value, value.version) == ({"n": 3}, 2)
    assert store.get("a/2") is None
    assert store.get("a") is None
    assert store.scan("a/") == [("a/1", {"n": 3})]
    assert store.scan("") == [("a/1", {"n": 3}), ("b", "other")]


def test_a_single_read_inside_a_transaction_is_refused(store: Store) -> None:
    """It would not see the changes of the transaction."""
    with store.writing() as transaction:
        transaction.values.put("a", 1)
        for look in (lambda: store.get("a"), lambda: store.scan("a")):
            with pytest.raises(StoreError):
                look()
    value = store.get("a")
    assert value is not None
    assert value.value == 1


def test_a_transaction_cannot_be_used_after_its_end(store: Store) -> None:
    with store.writing() as change:
        change.values.put("k", "v")
    with store.reading() as view:
        pass
    with pytest.raises(Oops), store.writing() as undone:
        raise Oops
    for ended in (change, view, undone):
        with pytest.raises(StoreError, match="has ended"):
            ended.values.get("k")
        with pytest.raises(StoreError, match="has ended"):
            ended.streams.append("s", [1])
        with pytest.raises(StoreError, match="has ended"):
            ended.edges.standing()
        with pytest.raises(StoreError, match="has ended"):
            ended.gate.allowing(ASKED)


def test_a_closed_store_refuses_calls(store: Store) -> None:
    fill(store)
    store.close()
    store.close()
    for begin in (store.writing, store.reading):
        with pytest.raises(StoreError) as caught, begin():
            pass
        assert caught.value.code == "store-closed"


def test_a_store_can_be_closed_while_another_thread_uses_it(database: Database) -> None:
    store = database.open("one")
    with store.writing() as change:
        change.values.put("k", "v")
        thread = threading.Thread(target=store.close)
        thread.start()
        thread.join()
    if database.name != "memory":
        assert everything(database.open("one"))[3] == ("v", 1)


def test_edges_are_read_from_both_ends(store: Store) -> None:
    with store.writing() as change:
        change.edges.add([Edge("root", KIND, target, f"o{target}", "root") for target in ("b", "a", "é", "Z")])
        change.edges.add([Edge("root", "reviews", "a", "r1", "root"), Edge("x", KIND, "a", "o", "x")])
        assert change.edges.targets("root", KIND) == ["Z", "a", "b", "é"]
        assert change.edges.targets("root", "reviews") == ["a"]
        assert change.edges.sources("a", KIND) == ["root", "x"]
        assert change.edges.targets("a", KIND) == change.edges.sources("root", KIND) == change.edges.targets("root", "none") == []


def test_an_edge_stands_while_one_origin_is_not_retracted(store: Store) -> None:
    with store.writing() as change:
        change.edges.add(Edge("a", KIND, "b", origin, "c") for origin in ("o2", "o1"))
        change.edges.add([Edge("a", KIND, "b", "o1", "c")])
        assert change.edges.origins("a", KIND, "b") == ["o1", "o2"]
        assert change.edges.targets("a", KIND) == ["b"]
        change.edges.retract("c", iter(["o1"]))
        change.edges.retract("c", ["o1"])
        assert change.edges.origins("a", KIND, "b") == ["o2"]
        assert change.edges.targets("a", KIND) == change.edges.reachable("a", KIND) == ["b"]
        change.edges.retract("c", ["o2"])
        assert change.edges.origins("a", KIND, "b") == change.edges.targets("a", KIND) == change.edges.reachable("a", KIND) == []
        assert change.edges.sources("b", KIND) == []
        assert change.edges.standing() == change.edges.standing("a") == []


def test_one_origin_may_state_several_edges_and_its_retraction_takes_all(store: Store) -> None:
    with store.writing() as change:
        change.edges.add([Edge("a", KIND, "b", "o", "c"), Edge("a", "reviews", "d", "o", "c"), Edge("a", KIND, "e", "p", "c")])
        change.edges.retract("c", ["o"])
        assert change.edges.standing() == [Edge("a", KIND, "e", "p", "c")]


def test_a_retraction_can_precede_its_edge(store: Store) -> None:
    with store.writing() as change:
        change.edges.retract("c", ["o1"])
        change.edges.add([Edge("a", KIND, "b", "o1", "c"), Edge("a", KIND, "b", "o2", "c")])
        assert change.edges.origins("a", KIND, "b") == ["o2"]


def test_dropping_a_chain_forgets_its_edges_and_its_retractions_only(store: Store) -> None:
    with store.writing() as change:
        change.edges.add([Edge("a", KIND, "b", "o1", "one"), Edge("a", KIND, "b", "o1", "two"), Edge("a", KIND, "c", "o2", "two")])
        change.edges.retract("one", ["o2"])
        change.edges.retract("three", ["o1"])
        assert change.edges.standing() == []
        change.edges.drop("one")
        assert change.edges.standing() == [Edge("a", KIND, "c", "o2", "two")]
        change.edges.drop("three")
        assert change.edges.standing() == [Edge("a", KIND, "b", "o1", "two"), Edge("a", KIND, "c", "o2", "two")]
        change.edges.retract("one", ["o1"])
        change.edges.retract("two", ["o1"])
        change.edges.drop("one")
        assert change.edges.origins("a", KIND, "b") == []


def test_clearing_forgets_edges_and_retractions_and_nothing_else(store: Store) -> None:
    fill(store)
    with store.writing() as change:
        change.edges.clear()
        assert change.edges.standing() == []
        change.edges.add([Edge("b", KIND, "c", "o2", "c")])
        assert change.edges.targets("b", KIND) == ["c"]
        assert change.streams.end("s") == 2
        assert change.values.get("k") == ("v", 1)


def test_reachable_follows_cycles_and_includes_the_start_only_on_a_cycle(store: Store) -> None:
    def edges(*pairs: str, kind: str = KIND) -> list[Edge]:
        return [Edge(pair[0], kind, pair[1], pair, "chain") for pair in pairs]

    with store.writing() as change:
        change.edges.add([*edges("ab", "bc", "cd", "db", "ad", "xx", "zz"), *edges("dq", "qa", kind="reviews")])
        assert change.edges.reachable("a", KIND) == ["b", "c", "d"]
        assert change.edges.reachable("b", KIND) == ["b", "c", "d"]
        assert change.edges.reachable("x", KIND) == ["x"]
        assert change.edges.reachable("none", KIND) == []
        change.edges.retract("chain", ["cd", "ad"])
        assert change.edges.reachable("a", KIND) == ["b", "c"]
        assert change.edges.reachable("b", KIND) == ["c"]


def test_standing_lists_each_edge_by_origin_and_source(store: Store) -> None:
    edges = [
        Edge("a", KIND, "b", "o1", "one"), Edge("a", KIND, "b", "o1", "two"), Edge("a", KIND, "b", "o2", "one"),
        Edge("b", "reviews", "a", "o3", "one"), Edge("x", KIND, "x", "o4", "one"), Edge("x", KIND, "y", "o5", "one"),
    ]  # fmt: skip
    with store.writing() as change:
        change.edges.add([*reversed(edges), Edge("a", KIND, "z", "gone", "one")])
        change.edges.retract("one", ["gone"])
        assert change.edges.standing() == edges
        assert change.edges.standing("a") == edges[:4]
        assert change.edges.standing("x") == edges[4:]
        assert change.edges.standing("y") == edges[5:]
        assert change.edges.standing("none") == []
        assert isinstance(change.edges.standing()[0], Edge)


def test_spaces_in_one_database_are_isolated(database: Database) -> None:
    first_space, two = database.open("one"), database.open("two%")
    fill(first_space)
    before = everything(first_space)
    with two.reading() as view:
        assert (view.streams.end("s"), view.values.get("k"), view.edges.standing()) == (0, None, [])
        assert view.gate.allowing(ASKED) == []
        assert view.streams.names("") == []
        assert view.values.scan("") == []
    with two.writing() as change:
        assert change.streams.append("s", ["z"]) == 1
        assert change.values.put("k", "z", expected=ABSENT) == 1
        change.edges.add([Edge("b", KIND, "z", "o2", "c")])
        assert change.edges.reachable("b", KIND) == ["z"]
        change.edges.retract("c", ["o1"])
        change.streams.forget("s", 9)
        change.values.delete("k")
        change.edges.drop("c")
        change.edges.drop("r")
        change.edges.clear()
        whole = GateFacts((GRANT._replace(cid="g2"),), ("peer",), (("bug", "finding"), ("finding", "commit")))
        for less in ({"grants": ()}, {"trusted": ()}, {"parents": whole.parents[:1]}, {"parents": whole.parents[1:]}):
            change.gate.load(whole._replace(**less))  # names that are missing here exist in the other space
            assert change.gate.allowing(ASKED._replace(type="bug")) == [], less
        change.gate.load(whole)
        assert change.gate.allowing(ASKED._replace(type="bug")) == ["g2"]
        with pytest.raises(NotFound):
            change.streams.replace("s", 2, "z")
    assert everything(first_space) == before


def test_written_data_is_read_after_reopening(database: Database) -> None:
    if database.name == "memory":
        return  # it is not persistent
    first = database.open("one")
    fill(first)
    before = everything(first)
    first.close()
    again = database.open("one")
    assert everything(again) == before
    with again.writing() as change:
        assert change.streams.append("s", ["c"], expected=2) == 3
        assert change.values.put("gone", "back", expected=ABSENT) == 2
        change.edges.add([Edge("b", KIND, "c", "o2", "again")])
        assert change.edges.targets("b", KIND) == []


def test_the_gate_allows_only_what_a_grant_names(store: Store) -> None:
    grants = (
        GRANT._replace(cid="wide"), GRANT._replace(cid="narrow", type="finding"), GRANT._replace(cid="narrow", type="finding"),
        GRANT._replace(cid="run", trigger="merge", execute=True), GRANT._replace(cid="stranger", peer="other"),
    )  # fmt: skip
    parents = (*FACTS.parents, ("commit", "thing"), ("finding", "commit"))
    with store.writing() as change:
        assert change.gate.allowing(ASKED) == []
        change.gate.load(GateFacts(grants, ("peer", "third", "peer"), parents))
        assert change.gate.allowing(ASKED._replace(type="bug")) == ["narrow", "wide"]  # a subtype of a subtype
        assert change.gate.allowing(ASKED._replace(type="commit")) == ["wide"]
        assert change.gate.allowing(ASKED._replace(type="commit", trigger="merge")) == ["run"]
        assert change.gate.allowing(ASKED._replace(type="commit", trigger="merge", execute=True)) == ["run"]
        for denied in (
            {"type": "thing"}, {"type": "unheard-of"}, {"type": "Commit"}, {"trigger": "note"}, {"execute": True},
            {"peer": "other"}, {"peer": "third"}, {"peer": "nobody"},
        ):  # fmt: skip
            assert change.gate.allowing(ASKED._replace(**denied)) == [], denied
    with store.reading() as view:
        assert view.gate.allowing(ASKED) == ["narrow", "wide"]


def test_loading_the_gate_replaces_every_fact(store: Store) -> None:
    with store.writing() as change:
        change.gate.load(FACTS)
        for less in ({"grants": ()}, {"trusted": ()}, {"parents": ()}):
            change.gate.load(FACTS)
            assert change.gate.allowing(ASKED) == ["g1"]
            change.gate.load(FACTS._replace(**less))
            assert change.gate.allowing(ASKED) == [], less
    with store.reading() as view:
        assert view.gate.allowing(ASKED) == []
        assert view.gate.allowing(ASKED._replace(type="commit")) == ["g1"]


def test_types_in_a_cycle_are_subtypes_of_each_other(store: Store) -> None:
    parents = (("a", "b"), ("b", "c"), ("c", "a"), ("x", "x"), ("y", "a"))
    with store.writing() as change:
        change.gate.load(GateFacts((GRANT._replace(type="b"), GRANT._replace(cid="g2", type="x")), ("peer",), parents))
        grants = {type_: change.gate.allowing(ASKED._replace(type=type_)) for type_ in "abcxyz"}
    assert grants == {"a": ["g1"], "b": ["g1"], "c": ["g1"], "x": ["g2"], "y": ["g1"], "z": []}


def test_a_grant_ends_at_its_expiry(store: Store) -> None:
    def at(moment: int) -> list[str]:
        return change.gate.allowing(ASKED._replace(at=moment))

    ends = {"soon": 100, "later": 101, "past": -(2**70), "far": 2**70, "never": None}
    grants = tuple(GRANT._replace(cid=cid, expires=moment) for cid, moment in ends.items())
    with store.writing() as change:
        change.gate.load(FACTS._replace(grants=grants))
        assert at(99) == ["far", "later", "never", "soon"]
        assert at(100) == ["far", "later", "never"]
        assert at(101) == ["far", "never"]
        assert at(2**80) == ["never"]


def gate_tables(database: Database, sql: str) -> list[str]:
    """Run SQL on each table of the gate, without clia; return the tables that exist then."""
    names = ("clia_grants", "clia_trusted", "clia_subtypes")
    if database.name == "sqlite":
        with closing(sqlite3.connect(f"{database.address}/new/folder/space.db")) as direct:
            for name in names:
                direct.execute(sql.format(name))
            tables = direct.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    else:
        with psycopg.connect(database.address, autocommit=True) as admin:
            for name in names:
                admin.execute(psycopg.sql.SQL(sql).format(psycopg.sql.Identifier(name)))
            tables = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = ANY (current_schemas(false))").fetchall()
    return sorted({name for (name,) in tables} & set(names))


def test_a_store_from_before_the_gate_denies_until_the_first_facts_create_the_tables(database: Database) -> None:
    if database.name == "memory":
        return  # it has no older version
    fill(database.open("one"))
    assert gate_tables(database, "DROP TABLE {}") == []
    store, second_space = database.open("one"), database.open("two")
    with store.reading() as view:
        assert view.gate.allowing(ASKED) == []
        assert view.values.get("k") == ("v", 1)
    with pytest.raises(Oops), store.writing() as change:  # noqa: PT012 (the block is what is tried)
        assert change.gate.allowing(ASKED) == []
        change.gate.load(FACTS)
        assert change.gate.allowing(ASKED) == ["g1"]
        raise Oops
    with store.writing() as change:
        assert change.gate.allowing(ASKED) == []
        change.gate.load(FACTS)
    assert len(gate_tables(database, "SELECT 1 FROM {}")) == 3
    for each_store, expected in ((store, ["g1"]), (second_space, []), (database.open("one"), ["g1"])):
        with each_store.reading() as view:
            assert view.gate.allowing(ASKED) == expected
    assert everything(store)[3:5] == (("v", 1), [Edge("a", KIND, "b", "o1", "c")])


def test_two_spaces_of_one_database_can_create_the_tables_at_once(postgres_address: str) -> None:
    """In PostgreSQL writers of two spaces run concurrently; creating one table twice fails unless one of them waits."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    first_store, two = PostgresStore(postgres_address, "one"), PostgresStore(postgres_address, "two")
    with closing(first_store), closing(two), psycopg.connect(postgres_address, autocommit=True) as admin:
        with first_store.writing() as change:
            change.gate.load(FACTS)
            thread = threading.Thread(target=fill, args=(two,))
            thread.start()
            while thread.is_alive() and admin.execute(waiting).fetchone() == (0,):
                pass
        thread.join()
        for store in (first_store, two):
            with store.reading() as view:
                assert view.gate.allowing(ASKED) == ["g1"]


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, {"x": (1,)}, [{None: 1}]], ids=repr)
def test_the_memory_store_refuses_values_that_json_would_change(value: Any) -> None:
    store = MemoryStore()
    with store.writing() as change:
        with pytest.raises(InvalidInput, match="not a JSON value"):
            change.values.put("k", value)
        with pytest.raises(InvalidInput, match="not a JSON value"):
            change.streams.append("s", [value])


def files_with(database: Database, text: str) -> list[str]:
    """The store's files that contain a text. Another process reads them: closing a file here would drop SQLite's locks."""
    if database.name == "memory":
        return []
    if database.name == "sqlite":
        paths = database.address
    else:
        with psycopg.connect(database.address, autocommit=True) as admin:
            admin.execute("CHECKPOINT")
            names = admin.execute("SELECT pg_relation_filepath(each::regclass) FROM unnest(%s::text[]) each", [TABLES]).fetchall()
        paths = "\n".join(str(Path(os.environ[postgres.DIRECTORY], "data", *name)) for name in names)
    looked = subprocess.run(["grep", "-rlaF", text, *paths.split("\n")], capture_output=True, text=True, check=False)
    assert not looked.stderr
    return looked.stdout.splitlines()


def test_after_scrubbing_the_files_do_not_contain_replaced_or_forgotten_data(database: Database) -> None:
    store = database.open("one")
    with store.writing() as change:
        change.streams.append("s", ["hunter2 " * 20, "hunter2", "kept"])
        change.values.put("k", "hunter2 " * 20)
        change.values.put("l", "hunter2")
    with store.writing() as change:
        change.streams.replace("s", 1, "removed")
        change.streams.forget("s", 1)
        change.streams.replace("s", 2, "removed")
        change.values.delete("k")
        change.values.put("l", "removed")
    assert database.name == "memory" or files_with(database, "hunter2")
    store.scrub()
    assert files_with(database, "hunter2") == []
    with store.writing() as change:
        assert change.streams.read("s") == [(2, "removed"), (3, "kept")]
        assert change.values.scan("") == [("l", "removed")]
        with pytest.raises(StoreError, match="cannot be nested"):
            store.scrub()


def test_read_values_are_copies(store: Store) -> None:
    value = {"list": [1]}
    with store.writing() as change:
        change.values.put("k", value)
        change.streams.append("s", [value])
        value["list"].append(2)
        read = change.values.get("k")
        assert read is not None
        read.value["list"].append(3)
        change.streams.read("s")[0].body["list"].append(3)
        assert change.values.get("k") == ({"list": [1]}, 1)
        assert change.streams.read("s") == [(1, {"list": [1]})]
