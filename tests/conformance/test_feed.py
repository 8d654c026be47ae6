"""The feed of a space, on each store: every step of a session and every change of a ref, once and in order."""

from __future__ import annotations

import json
import multiprocessing
import queue
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import clia
from clia.sessions.records import LIVE
from clia.space.feed import Feed
from clia.store.interface import FEED
from clia.store.notifications import PollingNotifier, PostgresNotifier
from clia.testing import components
from support import git
from support.session_flows import APPROVAL, PARTS, PRODUCT
from support.session_spaces import STORES, Liar, SessionSpace, session_space_on, use_engine, with_agents
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from clia.git.records import RefScan

TESS = "Tess <tess@example.org>"
FORK = multiprocessing.get_context("fork")
LONG = 30.0


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SessionSpace:
    return session_space_on(request, tmp_path, request.param)


@pytest.fixture
def on_postgres(request: pytest.FixtureRequest, tmp_path: Path) -> SessionSpace:
    return session_space_on(request, tmp_path, "postgresql")


@pytest.fixture
def scout(place: SessionSpace) -> Iterator[clia.Space]:
    with place.open() as opened:
        yield with_agents(opened, "scout", product=PRODUCT, approval=APPROVAL, parts=PARTS)


@contextmanager
def fed(space: clia.Space) -> Iterator[Feed]:
    with closing(space.local.open_feed()) as feed:
        yield feed


def news(feed: Feed, after: int = 0) -> list[dict[str, Any]]:
    """The entries after a position, without their times."""
    entries = feed.read(after)
    assert all(entry.body["at"].endswith("Z") for entry in entries)
    return [{key: value for key, value in entry.body.items() if key != "at"} for entry in entries]


def step(status: str, waits: dict[str, str], requests: list[str], flow: str = "product", **more: Any) -> dict[str, Any]:
    """The entry of a step of scout's first session."""
    waiting = [{"id": request, "kind": kind} for request, kind in waits.items()]
    named = {"event": "session", "agent": "scout", "session": "1", "flow": flow}
    return named | {"status": status, "waits": waiting, "asked": requests} | more


# Sessions


def test_each_step_of_a_session_is_one_entry(scout: clia.Space) -> None:
    scout.start("scout", "product")
    scout.resume("scout", 6, by="calculator")
    scout.resume("scout", 7)
    with fed(scout) as feed:
        assert news(feed) == [
            step("suspended", {"1.1": "number"}, ["1.1"]),
            step("suspended", {"1.2": "number"}, ["1.2"], answered={"request": "1.1", "by": "calculator"}),
            step("finished", {}, [], answered={"request": "1.2", "by": TESS}),
        ]
        assert [entry.position for entry in feed.read(0)] == [1, 2, 3]
        assert (feed.oldest(), feed.end()) == (1, 3)


def test_only_new_requests_of_a_step_are_listed_as_asked(scout: clia.Space) -> None:
    scout.start("scout", "parts", 3)
    scout.resume("scout", "b", "1.2")
    scout.sessions.give_up("scout", "x" * 5000, "1.1")
    with fed(scout) as feed:
        first, second, third = news(feed)
    parts = {"1.1": "part", "1.2": "part", "1.3": "part"}
    assert first == step("suspended", parts, ["1.1", "1.2", "1.3"], "parts")
    answered = {"request": "1.2", "by": TESS}
    assert second == step("suspended", {"1.1": "part", "1.3": "part"}, [], "parts", answered=answered)
    assert third == step("failed", {}, [], "parts", answered={"request": "1.1", "by": TESS, "error": "x" * 200})


def test_the_entry_of_a_decision_has_its_commit_and_not_its_value(scout: clia.Space) -> None:
    scout.start("scout", "approval", {"goal": "peace"})
    scout.resume("scout", "a plan")
    decision = scout.decide("scout", "approve", "because", by="Ann")
    with fed(scout) as feed:
        *_, suspended, decided = news(feed)
        assert suspended["waits"] == [{"id": "1.2", "kind": "human"}]
        assert decided == step("finished", {}, [], "approval", answered={"request": "1.2", "by": "Ann", "decision": decision.cid})
        text = json.dumps([entry.body for entry in feed.read(0)])
        assert not [word for word in ("peace", "a plan", 'approve"', "because") if word in text]


def test_questions_forks_and_ends_have_entries(scout: clia.Space) -> None:
    question = scout.ask("scout", {"question": "May I?"})
    scout.decide("scout", "yes", request_id=question.id)
    scout.start("scout", "product")
    scout.resume("scout", 6)
    scout.fork("scout", "fresh")
    scout.cancel("scout", "enough")
    with fed(scout) as feed:
        steps = [(entry["agent"], entry["session"], entry["status"], entry["asked"]) for entry in news(feed)]
    assert steps == [
        ("scout", "ask-1", "suspended", ["ask-1.1"]),
        ("scout", "ask-1", "finished", []),
        ("scout", "1", "suspended", ["1.1"]),
        ("scout", "1", "suspended", ["1.2"]),
        ("fresh", "1", "suspended", ["1.2"]),
        ("scout", "1", "cancelled", []),
    ]


def test_a_refused_verb_has_no_entry(scout: clia.Space) -> None:
    scout.start("scout", "approval", {"goal": "peace"})
    scout.spawn("other", BRIEFING)
    scout.commit("other", "finding", changes={"a.txt": b"1\n"})
    with fed(scout) as feed:
        end = feed.end()
        refused("session-live", lambda: scout.start("scout", "product"))
        refused("no-such-request", lambda: scout.resume("scout", 1, "1.9"))
        refused("no-such-agent", lambda: scout.ask("nobody", {"question": "?"}))
        refused("already-exists", lambda: scout.fork("scout", "other"))
        assert feed.end() == end == 1


def test_diverging_and_reopening_a_session_have_entries(place: SessionSpace, scout: clia.Space) -> None:
    scout.start("scout", "product")
    scout.resume("scout", 6)
    use_engine(scout, lambda engine: Liar(engine, after=1))
    refused("nondeterminism", lambda: scout.resume("scout", 7))
    with place.open() as second, fed(second) as feed:
        assert [ailment.repaired for ailment in second.doctor(repair=True)] == [True]
        *_, diverged, again = news(feed)
    assert diverged == step("diverged", {}, [])
    assert again == step("suspended", {"1.2": "number"}, ["1.2"])


def test_a_repair_by_doctor_has_an_entry_without_new_requests(scout: clia.Space) -> None:
    scout.start("scout", "product")
    with scout.local.store.writing() as change:
        change.values.delete(f"{LIVE}scout/1")
    with fed(scout) as feed:
        scout.doctor()
        assert feed.end() == 1
        scout.doctor(repair=True)
        assert news(feed, 1) == [step("suspended", {"1.1": "number"}, [])]
        scout.cancel("scout")
        with scout.local.store.writing() as change:
            change.values.delete("ended/scout/1")
        scout.doctor(repair=True)
        assert news(feed, 3) == [step("cancelled", {}, [])]


def test_after_the_loss_of_the_store_positions_restart_in_a_new_epoch(place: SessionSpace) -> None:
    with place.open() as space, fed(space) as feed:
        with_agents(space, "scout", product=PRODUCT).start("scout", "product")
        space.commit_with_trace("scout", "finding", changes={"a": b"a"})
        space.resume("scout", 6)
        feed.look()
        reached = feed.end()
        assert reached == 2
    place.lose_store()
    with place.open() as space, fed(space) as feed:
        assert feed.end() < reached
        assert feed.read(reached) == []
        assert feed.oldest() == 1
        space.doctor(repair=True)
        assert news(feed) == [step("suspended", {"1.1": "number"}, ["1.1"])]
        assert feed.look() == 0


def test_upkeep_does_not_change_the_feed(scout: clia.Space) -> None:
    """Verify, doctor, upkeep, purge and the store's scrubbing do not change it and have no findings."""
    scout.start("scout", "product")
    with fed(scout) as feed:
        feed.look()
        scout.spawn("other", BRIEFING)
        feed.look()
        before = feed.read(0)
        assert len(before) == 2
        assert scout.verify().clean
        assert scout.doctor(repair=True) == []
        scout.trace("scout", "console", "a secret word")
        scout.traces.purge("scout", "secret")
        scout.maintain(archive_idle_days=1, dry_run=True)
        assert feed.read(0) == before


# Refs


def test_the_first_look_records_the_refs_and_later_ones_add_changes(place: SessionSpace, scout: clia.Space) -> None:
    with fed(scout) as feed:
        assert feed.look() == 0
        genesis = scout.head("scout")
        first = scout.commit("scout", "finding", changes={"a": b"a"})
        second = scout.commit("scout", "finding", changes={"a": b"b"})
        child = scout.spawn_from("child", BRIEFING, "scout").genesis
        assert (feed.look(), feed.look()) == (2, 0)
        assert first != second
        assert news(feed) == [
            {"event": "head", "agent": "child", "cid": child, "kind": "spawn"},
            {"event": "head", "agent": "scout", "cid": second, "before": genesis, "kind": "finding"},
        ]
        scout.agents.archive("child")
        old, new = tips(place, scout, lambda: scout.sessions.define("product", PRODUCT + "\n"))
        assert feed.look() == 2
        assert news(feed, 2) == [
            {"event": "archived", "agent": "child", "cid": child, "before": child, "kind": "spawn"},
            {"event": "flow", "flow": "product", "cid": new, "before": old},
        ]
        scout.agents.restore("child")
        assert feed.look() == 1
        assert news(feed, 4) == [{"event": "restored", "agent": "child", "cid": child, "before": child, "kind": "spawn"}]


def tips(place: SessionSpace, space: clia.Space, act: Callable[[], object]) -> tuple[str, str]:
    """The flow's ref before and after an action."""
    before = git("rev-parse", "refs/clia/behaviours/product", cwd=place.root).strip()
    act()
    return before, git("rev-parse", "refs/clia/behaviours/product", cwd=place.root).strip()


def test_changes_by_plain_git_have_entries(place: SessionSpace, scout: clia.Space) -> None:
    scout.spawn("other", BRIEFING)
    with fed(scout) as feed:
        feed.look()
        head, other_head = scout.head("scout"), scout.head("other")
        cid = git("commit-tree", f"{head}^{{tree}}", "-p", head, "-m", "by hand", cwd=place.root).strip()
        git("update-ref", "refs/heads/agents/scout", cid, cwd=place.root)
        git("update-ref", "refs/heads/agents/not/an/agent", cid, cwd=place.root)
        git("branch", "-D", "agents/other", cwd=place.root)
        git("update-ref", "-d", "refs/clia/behaviours/product", cwd=place.root)
        git("pack-refs", "--all", cwd=place.root)
        assert feed.look() == 3
        assert news(feed) == [
            {"event": "gone", "agent": "other", "before": other_head},
            {"event": "head", "agent": "scout", "cid": cid, "before": head},
            {"event": "gone", "flow": "product", "before": news(feed)[2]["before"]},
        ]


def test_looks_of_several_handles_add_each_change_once(place: SessionSpace, scout: clia.Space) -> None:
    """Also if another handle looks between the read and the write of one, and with an outdated cache."""
    with place.open() as second, fed(scout) as first_feed, fed(second) as second_feed:
        first_feed.look()
        assert second_feed.look() == 0
        scout.commit("scout", "finding", changes={"a": b"a"})
        look = components(scout).core.refs.look
        looked: list[str] = []

        def overtaken(prefixes: Sequence[str], since: Any) -> RefScan:
            look_result = look(prefixes, since)
            if not looked:
                looked.append(scout.commit("scout", "finding", changes={"a": b"b"}))
                looked.append(str(second_feed.look()))
            return look_result

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(components(scout).core.refs, "look", overtaken)
            assert first_feed.look() == 0
        assert looked[1] == "1"
        assert [entry["cid"] for entry in news(first_feed)] == [looked[0]]
        scout.spawn("late", BRIEFING)
        assert (second_feed.look(), first_feed.look()) == (1, 0)


def look_until_stopped(place: SessionSpace, stop: Any) -> None:
    with place.open() as space, fed(space) as feed:
        while not stop.is_set():
            feed.look()


def test_concurrent_processes_add_each_change_once(place: SessionSpace) -> None:
    """The entries of an agent form a chain: each starts where the last one ended, up to its head."""
    stop = FORK.Event()
    with place.open() as space:
        start = space.spawn("scout", BRIEFING).genesis
        with fed(space) as feed:
            feed.look()
    lookers = [FORK.Process(target=look_until_stopped, args=(place, stop)) for _ in range(3)]
    for looker in lookers:
        looker.start()
    try:
        with place.open() as space, fed(space) as feed:
            for number in range(25):
                space.commit("scout", "finding", changes={"a": str(number).encode()})
                feed.look()
            stop.set()
            for looker in lookers:
                looker.join()
            feed.look()
            entries = news(feed)
            assert [entry["before"] for entry in entries] == [start, *(entry["cid"] for entry in entries[:-1])]
            assert entries[-1]["cid"] == space.head("scout")
            assert len(entries) == 25
    finally:
        stop.set()
    assert [looker.exitcode for looker in lookers] == [0, 0, 0]


def test_a_look_writes_only_the_part_that_changed(scout: clia.Space) -> None:
    refs = components(scout).core.refs
    for number in range(300):
        refs.move(f"refs/heads/agents/many-{number}", None, scout.head("scout"), "test")
    with fed(scout) as feed:
        feed.look()
        before = buckets(scout)
        assert len(before) > 150
        scout.commit("scout", "finding", changes={"a": b"a"})
        assert feed.look() == 1
        after = buckets(scout)
        assert after.keys() == before.keys()
        assert len([name for name in after if after[name] != before[name]]) == 1
    with fed(scout) as fresh:
        assert fresh.look() == 0


def buckets(space: clia.Space) -> dict[str, int]:
    with space.local.store.reading() as view:
        return {key: view.values.get(key).version for key, _ in view.values.scan("feed/refs/")}  # type: ignore[union-attr]  # it exists


# Reading


def test_a_reader_continues_at_its_position_and_is_told_about_trimmed_entries(scout: clia.Space) -> None:
    scout.start("scout", "parts", 6)
    for number in range(1, 7):
        scout.resume("scout", number, f"1.{number}")
    with fed(scout) as feed:
        assert [entry.position for entry in feed.read(2, limit=3)] == [3, 4, 5]
        assert feed.read(7) == feed.read(100) == []
        assert feed.trim() == 0
        assert feed.trim(keep=2) == 5
        assert (feed.oldest(), feed.end()) == (6, 7)
        assert [entry.position for entry in feed.read(0)] == [6, 7]
        assert (feed.trim(keep=0), feed.trim(keep=0)) == (2, 0)
        assert (feed.oldest(), feed.end(), feed.read(0)) == (8, 7, [])
        scout.cancel("scout")
        assert [entry.position for entry in feed.read(7)] == [8]


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("after", lambda feed: feed.read(-1)),
        ("after", lambda feed: feed.read("1")),
        ("limit", lambda feed: feed.read(0, limit=0)),
        ("keep", lambda feed: feed.trim(-1)),
        ("keep", lambda feed: feed.trim(True)),
    ],
)
def test_bad_positions_are_refused_by_name(tmp_path: Path, field: str, call: Callable[[Feed], object]) -> None:
    with clia.init(tmp_path) as space, fed(space) as feed:
        assert refused("invalid-number", lambda: call(feed)).fields == {"field": field}
        assert feed.read(2**80) == []


# Waiting


class Watched:
    """A feed that reports when a waiting reader has looked at its end."""

    def __init__(self, feed: Feed, pool: ThreadPoolExecutor) -> None:
        self.looks: queue.Queue[int] = queue.Queue()
        self._end = feed.end
        feed.end = self._look  # type: ignore[method-assign]  # to observe that a reader waits
        self.waiting = pool.submit(feed.wait, self._end(), LONG)

    def _look(self) -> int:
        position = self._end()
        self.looks.put(position)
        return position


def test_waiting_ends_as_soon_as_there_is_more_or_when_time_is_up(scout: clia.Space) -> None:
    with fed(scout) as feed, ThreadPoolExecutor(1) as pool:
        assert feed.wait(0, 0) is False
        watched = Watched(feed, pool)
        watched.looks.get(timeout=LONG)
        scout.start("scout", "product")
        assert watched.waiting.result(LONG) is True
        assert feed.wait(0, 0) is True
        assert feed.wait(1, 0.01) is False


def test_closing_ends_the_waiting(scout: clia.Space) -> None:
    feed = scout.local.open_feed()
    with ThreadPoolExecutor(1) as pool:
        watched = Watched(feed, pool)
        watched.looks.get(timeout=LONG)
        feed.close()
        assert watched.waiting.result(LONG) is False
    feed.close()
    assert feed.wait(0, LONG) is False
    assert scout.agents() == ["scout"]


def test_sqlite_is_polled_and_postgresql_notifies(place: SessionSpace, scout: clia.Space) -> None:
    with fed(scout) as feed:
        assert isinstance(feed.notifier, PollingNotifier if place.store is None else PostgresNotifier)


def test_postgresql_notifies_for_every_transaction_that_adds_to_the_feed(on_postgres: SessionSpace) -> None:
    """There is no polling here: without a notification the wait would end empty."""
    with on_postgres.open() as space, on_postgres.open() as second:
        with_agents(second, "scout", product=PRODUCT)
        notifier = PostgresNotifier(space.local.store, polls=False)  # type: ignore[arg-type]  # it is a PostgresStore
        with closing(Feed(components(space).core, notifier)) as feed, ThreadPoolExecutor(1) as pool:
            for act in (
                lambda: None if feed.look() else second.start("scout", "product"),
                lambda: second.resume("scout", 6),
                lambda: feed.look() if second.commit("scout", "finding", changes={"a": b"a"}) else None,
            ):
                watched = Watched(feed, pool)
                watched.looks.get(timeout=LONG)
                act()
                assert watched.waiting.result(LONG) is True


def test_rolled_back_and_foreign_changes_do_not_notify(on_postgres: SessionSpace, tmp_path: Path) -> None:
    elsewhere = on_postgres._replace(root=tmp_path / "elsewhere")
    with on_postgres.open() as space, elsewhere.open() as second:
        listener = space.local.store.listen()  # type: ignore[attr-defined]  # it is PostgreSQL
        with closing(listener):
            with suppress(RuntimeError), space.local.store.writing() as change:
                change.streams.append(FEED, [{}])
                raise RuntimeError
            with space.local.store.writing() as change:
                change.streams.append("another", [{}])
            with second.local.store.writing() as change:
                change.streams.append(FEED, [{}])
            with space.local.store.reading() as view:
                assert view.streams.end(FEED) == 0
            assert listener.heard() is False
            with space.local.store.writing() as change:
                change.streams.append(FEED, [{}])
            listener.connection.execute("SELECT 1")  # which also delivers earlier notifications
            assert listener.heard() is True


def test_a_lost_connection_is_replaced_and_nothing_is_missed(on_postgres: SessionSpace) -> None:
    assert on_postgres.store is not None
    with on_postgres.open() as space, on_postgres.open() as second_space:
        with_agents(second_space, "scout", product=PRODUCT)
        notifier = PostgresNotifier(space.local.store, polls=False)  # type: ignore[arg-type]  # it is a PostgresStore
        with closing(Feed(components(space).core, notifier)) as feed, ThreadPoolExecutor(1) as pool:
            watched = Watched(feed, pool)
            watched.looks.get(timeout=LONG)
            first = end_listeners(on_postgres.store)
            watched.looks.get(timeout=LONG)  # by the new connection, because there was no notification
            second_space.start("scout", "product")
            assert watched.waiting.result(LONG) is True
            second = end_listeners(on_postgres.store)
            assert len(first) == 1
            assert second - first


def end_listeners(address: str) -> set[int]:
    """End the listening connections and return their pids. No other test uses the database at the same time."""
    with psycopg.connect(address, autocommit=True) as admin:
        condition = "query LIKE 'LISTEN clia_feed_%' AND datname = current_database()"
        ended = admin.execute(f"SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE {condition}").fetchall()  # noqa: S608  # constants
    return {pid for pid, _ in ended}
