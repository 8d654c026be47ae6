"""Live state that clones share in PostgreSQL: what is shared, what belongs to a clone, and the migration to it."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import ExitStack, closing
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import clia
from clia.errors import Conflict, StoreError
from clia.store.interface import ABSENT, CLONE_KEYS, EPOCH, FEED, Edge, GateFacts, GateQuestion, GrantFact
from clia.store.postgres_store import PostgresStore
from support.federation import Pair
from support.session_spaces import with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clia.store.interface import Store, Transaction

    Opening = Callable[..., PostgresStore]

FACTS = GateFacts((GrantFact("g1", "peer", "commit", "spawn"),), ("peer",), ())
ASKED = GateQuestion("peer", "commit", "spawn", 100)
EDGE = Edge("a", "sub-agent-of", "b", "o", "chain")


@pytest.fixture
def opening(postgres_address: str) -> Iterator[Opening]:
    """Opens stores of one database, and closes them after the test."""
    with ExitStack() as stack:
        yield lambda space, own=None: stack.enter_context(closing(PostgresStore(postgres_address, space, own=own)))


def put(store: Store, **values: Any) -> None:
    with store.writing() as change:
        for key, value in values.items():
            change.values.put(key.replace("__", "/"), value)


def append(store: Store, stream: str, *bodies: str) -> None:
    with store.writing() as change:
        change.streams.append(stream, bodies)


def whole(store: Store) -> tuple[Any, ...]:
    """All named rows of a store."""
    with store.reading() as view:
        streams = {name: (view.streams.end(name), view.streams.read(name)) for name in view.streams.names("")}
        return view.values.scan(""), streams, view.edges.standing(), view.gate.allowing(ASKED)


def test_clones_share_values_and_streams_and_each_has_its_own_index(opening: Opening) -> None:
    first_clone, two = opening("space", "space/one"), opening("space", "space/two")
    with first_clone.writing() as change:
        change.values.put("intent/scout", "shared")
        change.streams.append("trace/scout", ["shared"])
        change.edges.add([EDGE])
        change.gate.load(FACTS)
        for name in CLONE_KEYS:
            change.values.put(f"{name}x", "own")
            change.streams.append(f"{name}x", ["own"])
    assert two.get("intent/scout") == ("shared", 1)
    assert two.scan("intent/") == two.scan("") == [("intent/scout", "shared")]
    assert whole(two) == ([("intent/scout", "shared")], {"trace/scout": (1, [(1, "shared")])}, [], [])
    with two.writing() as change:
        assert [change.values.put(f"{name}x", "other", ABSENT) for name in CLONE_KEYS] == [1] * len(CLONE_KEYS)
        change.streams.append("trace/scout", ["too"], expected=1)
        change.values.delete("intent/scout")
    assert [first_clone.get(f"{name}x") for name in CLONE_KEYS] == [("own", 1)] * len(CLONE_KEYS)
    assert [first_clone.scan(name) for name in CLONE_KEYS] == [[(f"{name}x", "own")] for name in CLONE_KEYS]
    with first_clone.reading() as view:
        assert view.values.scan("") == [(f"{name}x", "own") for name in sorted(CLONE_KEYS)]
        assert view.streams.names("") == sorted([*(f"{name}x" for name in CLONE_KEYS), "trace/scout"])
        assert view.streams.read("trace/scout", after=1) == [(2, "too")]
        assert (view.edges.standing(), view.gate.allowing(ASKED)) == ([EDGE], ["g1"])


def test_one_transaction_covers_shared_and_clone_state(opening: Opening) -> None:
    first_clone, two = opening("space", "space/one"), opening("space", "space/two")
    with pytest.raises(ZeroDivisionError), first_clone.writing() as change:  # noqa: PT012 (the block is what is tried)
        change.values.put("read/x", 1)
        change.values.put("intent/x", 1)
        _ = 1 / 0
    assert first_clone.scan("") == []
    rows: list[Any] = []

    def write() -> None:
        with two.writing() as change:
            rows.append(change.values.get("intent/x"))

    with first_clone.writing() as change:
        thread = threading.Thread(target=write)  # of another clone, and still waits
        thread.start()
        change.values.put("read/x", 1)
        change.values.put("intent/x", 1)
    thread.join()
    assert rows == [(1, 1)]


def everything(change: Transaction) -> None:
    """The state of a clone that worked alone."""
    change.values.put("intent/gone", 1)
    change.values.delete("intent/gone")
    change.values.put("live/scout/1", {"end": 2})
    change.values.put("read/x", "tip")
    change.values.put("feed/refs", {})
    change.values.put("feed/epoch", "e1")
    change.values.put("hook/chat", 3)
    change.values.put("fleet/00", "alive")
    change.values.put("zz", 1)
    change.values.put("", 1)
    change.streams.append("session/scout/1", ["a", "b"])
    change.streams.append("trace/scout", ["c", "d"])
    change.streams.forget("trace/scout", 1)
    change.streams.append("trace/drained", ["e"])
    change.streams.forget("trace/drained", 1)
    change.streams.append(FEED, ["news"])
    change.edges.add([EDGE])


def test_the_state_of_one_clone_becomes_shared(opening: Opening, postgres_address: str) -> None:
    before = opening("space/one")
    with before.writing() as change:
        everything(change)
    store, second_clone = opening("space", "space/one"), opening("space", "space/two")
    assert store.merge_clone_state("space/one") > 0
    merged_rows = [("", 1), ("feed/epoch", "e1"), ("hook/chat", 3), ("live/scout/1", {"end": 2}), ("zz", 1)]
    assert second_clone.scan("") == merged_rows
    assert store.scan("") == sorted([*merged_rows, ("feed/refs", {}), ("read/x", "tip")])
    with store.writing() as change:
        assert change.edges.standing() == [EDGE]
        assert change.streams.read("trace/scout") == [(2, "d")]
        assert change.streams.append("session/scout/1", ["c"], expected=2) == 3
        assert change.streams.append("trace/drained", ["f"]) == 2
        assert change.values.put("intent/gone", "again", ABSENT) == 2
    assert whole(opening("space/one"))[:2] == ([("feed/refs", {}), ("read/x", "tip")], {})
    assert (
        store.merge_clone_state("space/one") == store.merge_clone_state("space") == second_clone.merge_clone_state("space/two") == 0
    )
    with psycopg.connect(postgres_address) as admin:
        remaining = admin.execute("SELECT key FROM clia_values WHERE space = 'space/one' ORDER BY key").fetchall()
    assert remaining == [("feed/refs",), ("read/x",)]


def test_a_second_clone_adds_its_state_without_its_feed(opening: Opening) -> None:
    first, second = opening("space/one"), opening("space/two")
    for store in (first, second):
        append(store, FEED, "news")
        append(store, "federation/refused/peer", "log")
        put(store, **{"feed/epoch": "e", "forge/secret": "s", "once/k": 1, "fleet/00": 1, "intent/scout": 1})
        with store.writing() as change:
            change.values.delete("intent/scout")
    put(second, hook__chat=1, live__other__1={"end": 0})
    append(second, "trace/other", "x")
    opening("space", "space/one").merge_clone_state("space/one")
    shared = opening("space", "space/two")
    assert shared.merge_clone_state("space/two") > 0
    names = [key for key, _ in shared.scan("")]
    assert names == ["feed/epoch", "forge/secret", "live/other/1", "once/k"]  # a position of another feed is meaningless
    with shared.writing() as change:
        assert [len(change.streams.read(name)) for name in (FEED, "federation/refused/peer", "trace/other")] == [1, 1, 1]
        assert change.values.put("intent/scout", 1, ABSENT) == 2
    assert shared.merge_clone_state("space/two") == 0


def test_a_conflicting_name_is_refused_and_nothing_changes(opening: Opening) -> None:
    old, shared = opening("space/one"), opening("space", "space/one")
    with old.writing() as change:
        everything(change)
    put(shared, live__scout__1={"end": 9}, zz=2)
    append(shared, "trace/scout", "theirs")
    append(shared, FEED, "theirs")
    before = whole(old), whole(opening("space", "space/two"))
    with pytest.raises(Conflict) as caught:
        shared.merge_clone_state("space/one")
    assert caught.value.code == "state-in-the-way"
    assert caught.value.fields == {"keys": ["live/scout/1", "trace/scout", "zz"], "count": 3, "kept": "space/one"}
    assert (whole(old), whole(opening("space", "space/two"))) == before
    with shared.writing() as change:
        change.values.delete("live/scout/1")
        change.values.delete("zz")
    with old.writing() as change:
        change.streams.forget("trace/scout", 9)
    assert shared.merge_clone_state("space/one") > 0
    with shared.writing() as change:
        assert change.streams.read("trace/scout") == [(1, "theirs")]
        assert change.values.get("live/scout/1") == ({"end": 2}, 2)  # versions are never reused
        assert change.values.get("zz") == (1, 2)


def test_a_writer_under_the_old_key_is_waited_for_and_included(opening: Opening, postgres_address: str) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    old, shared = opening("space/one"), opening("space", "space/one")
    put(old, intent__a=1)
    counts: list[int] = []
    with psycopg.connect(postgres_address, autocommit=True) as admin, old.writing() as change:
        thread = threading.Thread(target=lambda: counts.append(shared.merge_clone_state("space/one")))
        thread.start()
        while thread.is_alive() and admin.execute(waiting).fetchone() == (0,):
            pass
        change.values.put("intent/b", 1)
    thread.join()
    assert counts == [2]
    assert [key for key, _ in shared.scan("intent/")] == ["intent/a", "intent/b"]


def test_later_writes_under_the_old_key_are_refused(opening: Opening) -> None:
    old, other_store, shared = opening("space/one"), opening("space/two"), opening("space", "space/one")
    append(old, "trace/scout", "before")
    assert other_store.scan("") == []
    shared.merge_clone_state("space/one")
    calls: list[Callable[[], object]] = [
        lambda: append(old, "trace/scout", "lost"),
        lambda: put(old, read__x=1),
        lambda: whole(old),
        lambda: old.get("trace/scout"),
        lambda: old.scan(""),
    ]
    for call in calls:
        assert refused("store-moved", call).hints == ("restart programs that were running before",)
    assert shared.merge_clone_state("space/one") == 0  # nothing conflicting was added
    append(other_store, "trace/other", "its own")  # of another clone, without a hub so far
    shared.merge_clone_state("space/two")  # even an empty clone can have active processes
    refused("store-moved", lambda: append(other_store, "trace/other", "lost"))
    with shared.reading() as view:
        assert [view.streams.read(f"trace/{name}") for name in ("scout", "other")] == [[(1, "before")], [(1, "its own")]]


def test_an_empty_key_is_closed_too(opening: Opening) -> None:
    old, shared = opening("space/one"), opening("space", "space/one")
    assert (old.scan(""), shared.merge_clone_state("space/one")) == ([], 0)
    refused("store-moved", lambda: put(old, intent__a=1))
    late = opening("space/one")  # the clone has left its hub and starts over
    put(late, intent__a=1)
    assert shared.merge_clone_state("space/one") == 1
    refused("store-moved", lambda: put(late, intent__b=1))
    refused("store-moved", lambda: put(old, intent__b=1))


def test_a_store_opened_before_the_migration_and_unused_is_refused_too(opening: Opening, postgres_address: str) -> None:
    hub: list[str] = []
    with closing(PostgresStore(postgres_address, "space/one", is_current=lambda: not hub)) as old:
        hub.append("set")
        opening("space", "space/one").merge_clone_state("space/one")
        refused("store-moved", lambda: put(old, intent__a=1))
    assert opening("space/one").scan("") == []


def test_writers_that_race_with_the_migration_are_included_or_refused(opening: Opening) -> None:
    stores, shared = [opening("space/one") for _ in range(4)], opening("space", "space/one")
    written: list[list[int]] = [[] for _ in stores]
    begun = threading.Barrier(len(stores) + 1)

    def write(number: int) -> None:
        for number_written in count():
            try:
                append(stores[number], f"trace/{number}", str(number_written))
            except StoreError as err:
                assert err.code == "store-moved"  # noqa: PT017 (in a thread)
                return
            written[number].append(number_written)
            if number_written == 2:
                begun.wait()

    threads = [threading.Thread(target=write, args=[number]) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    begun.wait()
    shared.merge_clone_state("space/one")
    for thread in threads:
        thread.join()
    assert shared.merge_clone_state("space/one") == 0
    with shared.reading() as view:
        stored_numbers = [[int(entry.body) for entry in view.streams.read(f"trace/{number}")] for number in range(len(stores))]
    assert stored_numbers == written
    assert whole(opening("space/one"))[:2] == ([], {})


FLOW = """\
def main(input):
    return request("human", {"question": input})
"""
INDEXES = ("clia_edges", "clia_retractions", "clia_grants", "clia_trusted", "clia_subtypes")


def worked(root: Path) -> Pair:
    """A space with every operation that writes to a store or to refs."""
    pair = Pair(root)
    pair.agent(pair.owner, "theirs", "one")
    pair.grant()
    pair.owner.announce()
    pair.hearer.sync()
    space = with_agents(pair.hearer, "scout", plan=FLOW)
    space.spawn_from("helper", clia.Briefing(title="Help"), "scout")
    space.reviews("scout", "helper")
    space.trace("helper", "stdout", "at it")
    space.commit_with_trace("helper", "finding", {"a.txt": b"a"})
    space.start("scout", "plan", "go on?")
    space.decide("scout", "yes", by="Tess")
    space.start("helper", "plan", "really?")
    space.trace("helper", "stdout", "waiting")
    return pair


def asked(space: clia.Space) -> list[Any]:
    """Reads of a space, with and without its index."""
    feed = space.local.open_feed()
    feed.look()
    feed.close()
    return [
        space.relations(),
        space.agent_tree("scout"),
        space.behaviour_stats("plan"),
        space.observation_gaps(),
        space.allowed("ay", "finding", "head-move"),
        space.states(),
        space.remotes(),
        space.waiting("ay"),
        space.verify().findings,
    ]


def stored(path: str) -> dict[tuple[str, str], str | None]:
    with closing(sqlite3.connect(path)) as direct:
        values = direct.execute("SELECT 'value', key, value FROM clia_values").fetchall()
        entries = direct.execute("SELECT 'stream', stream, max(position) FROM clia_entries GROUP BY stream").fetchall()
    return {(sort, name): value for sort, name, value in [*values, *entries]}


def test_reads_write_only_names_of_a_clones_own_index(tmp_path: Path) -> None:
    pair = worked(tmp_path)
    path = os.path.join(pair.place("hearer"), ".git", "clia", "space.db")
    answers = asked(pair.hearer)
    pair.hearer.close()
    before = stored(path)
    assert {name for name in CLONE_KEYS if any(key.startswith(name) for _, key in before)} == {
        "behaviours/",
        EPOCH,
        "feed/refs",
        "gate/",
        "read/",
    }

    with closing(sqlite3.connect(path)) as direct, direct:
        for table in INDEXES:
            direct.execute(f"DELETE FROM {table}")  # noqa: S608 (constants)
        for name in set(CLONE_KEYS) - {EPOCH}:
            direct.execute("DELETE FROM clia_values WHERE key BETWEEN ? AND ? || char(1114111)", (name, name))
    with closing(clia.open(pair.place("hearer"), settings=pair.settings())) as space:
        assert asked(space) == answers
        space.rebuild()
        assert asked(space) == answers
    after = stored(path)
    assert after.keys() == before.keys()
    shared_keys = {key for key in before if not key[1].startswith(CLONE_KEYS)}
    assert {key: after[key] for key in shared_keys} == {key: before[key] for key in shared_keys}

    os.rename(path, f"{path}.lost")
    with closing(clia.open(pair.place("hearer"), settings=pair.settings())) as space:
        asked(space)
        space.rebuild()
    shared_names = {name for _, name in stored(path) if not name.startswith(CLONE_KEYS)}
    assert not shared_names, "rows that reads write come from a clone's refs; add their names to CLONE_KEYS"
