"""The fleet: who lives, whatever clocks say, who has what, and what waits since when."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import StoreError
from clia.store.interface import Task
from clia.workers import heartbeats as beats
from clia.workers.fleet import (
    ALIVE,
    FLEET,
    FORGE,
    NO_PROCESS,
    SHOWN_SECONDS,
    SILENT,
    WORKER,
    LivenessMonitor,
    Underway,
)
from clia.workers.heartbeats import HEARTBEAT_INTERVAL, HeartbeatWriter, ProcessInfo, heartbeat
from clia.workers.worker import RunningAttempt, WorkerStatus
from support import git
from support.fleet import NOW, beat, put
from support.session_flows import QUESTION
from support.space_driver import postgres_url
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Clock:
    """Stands still until it is told."""

    def __init__(self, at: float = NOW) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=self.at)


class Place:
    def __init__(self, root: Path) -> None:
        self.clock = Clock()
        self.space = clia.init(root, settings=clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=self.clock))

    def keys(self) -> list[str]:
        return [key for key, _ in self.space.core.store.scan(FLEET)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "repo")
    yield made
    made.space.close()


# Who lives


@pytest.mark.parametrize(
    ("seen_at", "state"),
    [
        (NOW, ALIVE),
        (NOW - 3 * HEARTBEAT_INTERVAL, ALIVE),
        (NOW - 3 * HEARTBEAT_INTERVAL - 0.1, SILENT),
        (NOW + 2, ALIVE),
        (NOW + 600, SILENT),
    ],
    ids=["just now", "three beats ago", "more", "a moment ahead", "from before the clock was set back"],
)
def test_at_the_first_look_the_clock_of_the_store_tells_who_lives(seen_at: float, state: str) -> None:
    ((_, found, _),) = LivenessMonitor(lambda: 0.0).assess([beat(seen_at=seen_at)], NOW)
    assert found == state


def test_who_looks_again_goes_by_the_beats_and_not_by_any_clock() -> None:
    """The clock of the store is an hour off all the time: one that beats lives, one that does not is silent all the same."""
    passed = [0.0]
    watch, wrong = LivenessMonitor(lambda: passed[0]), NOW + 3000
    lives, dies = beat("lives", seen_at=NOW), beat("dies", seen_at=wrong)
    assert [state for _, state, _ in watch.assess([lives, dies], wrong)] == [SILENT, ALIVE], "nothing else is known yet"
    for wanted in (ALIVE, ALIVE, ALIVE, SILENT):
        passed[0] += HEARTBEAT_INTERVAL
        lives = lives._replace(beats=lives.beats + 1)
        assert [state for _, state, _ in watch.assess([lives, dies], wrong)] == [ALIVE, wanted]


def test_beats_that_went_on_long_ago_prove_nothing() -> None:
    """Between two looks an hour apart it beat, and died: what was seen is too old, and the store's clock tells."""
    passed = [0.0]
    watch = LivenessMonitor(lambda: passed[0])
    watch.assess([beat()], NOW)
    passed[0] = 1000.0
    ((_, state, age),) = watch.assess([beat(beats=100, seen_at=NOW + 500)], NOW + 1000)
    assert (state, age) == (SILENT, 500.0)


# Rows


def test_a_process_says_what_it_does_and_takes_its_row_away_when_it_stops(place: Place) -> None:
    status = [WorkerStatus()]
    worker = HeartbeatWriter(place.space, ProcessInfo(WORKER, "w1", ("echo", "llm"), 4), lambda: status[0])
    worker.beat()
    place.clock.at += 5
    doing = RunningAttempt("scout", "1.1", "echo", 2, "")
    status[0] = WorkerStatus(running=(doing,), answered=3, retried=2, given_up=1, trouble="the store does not answer")
    worker.beat()
    (found,) = place.space.fleet().workers
    assert (found.name, found.kinds, found.concurrency, found.state, found.age) == ("w1", ("echo", "llm"), 4, ALIVE, 0.0)
    assert (found.started_at, found.seen_at, found.clock_off) == (NOW, NOW + 5, 0.0)
    assert (found.answered, found.retried, found.given_up, found.trouble) == (3, 2, 1, "the store does not answer")
    assert found.running == (Underway("scout", "1.1", "echo", 2, NOW + 5),)
    place.clock.at += 5
    worker.beat()
    assert place.space.fleet().workers[0].running[0].since == NOW + 5, "as long as it is at it"
    (machine,) = place.space.fleet().machines
    assert (machine.machine, machine.clone) == (found.machine, found.clone)
    assert (machine.state, machine.workers, machine.forges, machine.running, machine.hub) == (ALIVE, 1, 0, 1, None)
    worker.leave()
    assert (place.space.fleet().workers, place.keys()) == ((), [])


def test_rows_of_the_dead_go_away_and_their_places_are_used_again(place: Place) -> None:
    HeartbeatWriter(place.space, ProcessInfo(WORKER, "dead")).beat()
    place.clock.at += 60
    (found,) = place.space.fleet().workers
    assert (found.state, found.age) == (SILENT, 60.0)
    assert place.space.fleet().machines[0].workers == 0
    HeartbeatWriter(place.space, ProcessInfo(WORKER, "dead")).beat()
    (found,) = place.space.fleet().workers
    assert (found.state, place.keys()) == (ALIVE, ["fleet/000"]), "who is started anew under a name takes the row over"
    place.clock.at += SHOWN_SECONDS + 1
    assert place.space.fleet().workers == ()
    HeartbeatWriter(place.space, ProcessInfo(FORGE, "127.0.0.1:8337")).beat()
    assert place.keys() == ["fleet/000"]
    assert [each.name for each in place.space.fleet().forges] == ["127.0.0.1:8337"]


def test_there_is_room_for_so_many_and_the_longest_silent_gives_way(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beats, "MAX_ROWS", 2)
    first, second, third = (HeartbeatWriter(place.space, ProcessInfo(WORKER, name)) for name in ("w1", "w2", "w3"))
    first.beat()
    place.clock.at += 1
    second.beat()
    third.beat()
    assert [each.name for each in place.space.fleet().workers] == ["w1", "w2"], "nobody who lives is pushed out"
    place.clock.at += 60
    second.beat()
    third.beat()
    assert [each.name for each in place.space.fleet().workers] == ["w2", "w3"]
    first.leave()
    assert [each.name for each in place.space.fleet().workers] == ["w2", "w3"], "the row is not its own any more"


def test_what_is_damaged_or_of_another_version_is_left_out(place: Place) -> None:
    good = beat(running=[Underway("scout", "1.1", "echo", 1, NOW)])
    put(place.space, good, beat("w2", pid="7"), beat("w3", kind="submarine"), beat("w4", every=0), beat("w5", forks=[1]))
    with place.space.core.store.writing() as change:
        change.values.put("fleet/100", {"id": "x"})
        change.values.put("fleet/101", [1])
        change.values.put("fleet/102", good._asdict() | {"id": "later", "name": "later", "new": "field"})
        change.values.put("fleet/103", good._asdict() | {"running": [["scout"]]})
    assert [each.name for each in place.space.fleet().workers] == ["later", "w1"]


def test_a_store_that_is_away_stops_nobody_and_the_next_beat_is_seen(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real = HeartbeatWriter.beat
    failed: list[int] = []

    def once_away(self: HeartbeatWriter) -> None:
        if not failed:
            failed.append(1)
            raise StoreError("away")
        real(self)
        done.set()

    done = threading.Event()
    monkeypatch.setattr(HeartbeatWriter, "beat", once_away)
    with heartbeat(place.space, ProcessInfo(WORKER, "w1"), interval=0.01):
        assert done.wait(60)
        assert [each.name for each in place.space.fleet().workers] == ["w1"]
    assert place.space.fleet().workers == ()


def test_machines_that_share_a_store_see_each_other_whatever_their_clocks_say(tmp_path: Path, postgres_address: str) -> None:
    """The server's clock dates the beats: neither a wrong clock of the worker's machine nor one of whoever looks matters."""
    git("init", "--quiet", "--bare", "hub.git", cwd=tmp_path)
    right = datetime.now(UTC).timestamp()
    spaces = []
    with ExitStack() as stack:
        for name, off in (("one", -600.0), ("two", 7200.0)):
            settings = clia.Settings(
                durable=False, person=("Tess", "tess@example.org"), clock=Clock(right + off), store=postgres_url(postgres_address)
            )
            spaces.append(stack.enter_context(clia.init(tmp_path / name, settings=settings, hub=str(tmp_path / "hub.git"))))
            HeartbeatWriter(spaces[-1], ProcessInfo(WORKER, name)).beat()
        for space in spaces:
            found = space.fleet()
            assert [(each.name, each.state) for each in found.workers] == [("one", ALIVE), ("two", ALIVE)]
            assert [round(each.clock_off / 600) for each in found.workers] == [-1, 12]
            assert sorted(round(each.clock_off / 600) for each in found.machines) == [-1, 12], "two clones are two machines"


# The hub


def test_what_machines_owe_the_hub_is_told_also_of_those_that_are_not_heard_of(place: Place) -> None:
    put(place.space, beat(forks=["scout"], away_since=NOW - 60), beat("w2", clone="c2", forks=[]), beat("w3", clone="c3"))
    with place.space.core.store.writing() as change:
        change.values.put("owed/scout", {"clone": "c1", "since": "2026-05-01T12:00:00Z"})
        for lock in ("smith", "@behaviour-go2", "@types"):
            change.values.put(f"owed/{lock}", {"clone": "gone", "since": "2026-05-01T12:00:00Z"})
    found = {each.clone: (each.machine, each.state, each.hub and tuple(each.hub)) for each in place.space.fleet().machines}
    assert found == {
        "c1": ("north", ALIVE, (("scout",), NOW - 60, ("scout",))),
        "c2": ("north", ALIVE, ((), None, ())),
        "c3": ("north", ALIVE, None),
        "gone": ("", NO_PROCESS, (("refs/clia/behaviours/go2", "refs/clia/types", "smith"), None, ())),
    }, "what is no agent's is told by its ref, and no process was heard of that could be silent"


def test_a_beat_tells_how_its_clone_stands_with_a_real_hub(tmp_path: Path) -> None:
    """In step; then the hub is away and work is owed; then two machines went on from one head, and the agent is forked."""
    hub, now = tmp_path / "hub.git", Clock(datetime.now(UTC).timestamp())
    git("init", "--quiet", "--bare", str(hub), cwd=tmp_path)
    settings = clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=now)
    with clia.init(tmp_path / "one", settings=settings, hub=str(hub)) as one:
        beats = HeartbeatWriter(one, ProcessInfo(WORKER, "w1"))

        def standing() -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
            beats.beat()
            found = one.fleet().machines[0].hub
            assert found is not None
            return found.away_since is not None, found.owed, found.forks

        base = one.spawn("scout", BRIEFING).genesis
        assert standing() == (False, (), ())
        away = hub.rename(tmp_path / "elsewhere.git")
        one.commit("scout", "finding", {"a.txt": b"1"})
        assert standing() == (True, ("scout",), ())
        found = one.fleet().machines[0].hub
        assert found is not None
        assert found.away_since is not None
        assert abs(found.away_since - now.at) < 60
        away.rename(hub)
        theirs = git("commit-tree", "-p", base, "-m", "theirs", f"{base}^{{tree}}", cwd=hub).strip()
        git("update-ref", "refs/heads/agents/scout", theirs, base, cwd=hub)
        assert any(each.what == "fork" for each in one.hub_sync())
        assert standing()[::2] == (False, ("scout",))
        beats = HeartbeatWriter(one, ProcessInfo(WORKER, "w1"))
        assert standing()[::2] == (False, ("scout",)), "also to one that was started since"


# What waits


def test_what_waits_is_counted_by_kind_and_the_oldest_is_named(place: Place) -> None:
    space, clock = place.space, place.clock
    space.define("question", QUESTION)
    asked = [
        ("a", "echo", {}),
        ("b", "echo", {}),
        ("c", "llm", {}),
        ("d", "timer", {"seconds": 900}),
        ("e", "human", {"question": "?"}),
    ]
    asked += [("f", "session", {"agent": "a"}), ("g", "human", {"question": "?"}), ("h", "echo", {})]
    for name, kind, payload in asked:
        space.spawn(name, BRIEFING)
        space.start(name, "question", {"kind": kind, "payload": payload})
        clock.at += 1
    queue = space.running.queue
    held = queue.claim([Task("a", "1.1", "echo", NOW)], "w1", clock.at, 30.0)
    failed = queue.claim([Task("b", "1.1", "echo", NOW)], "nobody", clock.at, 30.0)
    assert held is not None
    assert failed is not None
    queue.retry(failed, clock.at + 100, "no")
    put(space, beat(seen_at=clock.at), beat("w2", seen_at=NOW - 100, kinds=["llm"]))
    found = space.fleet()
    assert [tuple(each) for each in found.queue] == [
        ("echo", 1, 1, 1, 0, 1),
        ("llm", 1, 0, 0, 0, 0),
        ("session", 0, 0, 1, 0, 0),
        ("timer", 0, 0, 1, 0, 0),
    ]
    assert found.work is not None
    assert (found.work.agent, found.work.request, found.work.kind, found.work.age) == ("a", "1.1", "echo", 8.0)
    assert found.people is not None
    assert (found.people.agent, found.people.age, found.questions) == ("e", 4.0, 2)
    (lease,) = found.leases
    assert (lease.agent, lease.worker, lease.holder, lease.attempt, lease.left) == ("a", "w1", ALIVE, 1, 30.0)
    clock.at += 40
    found = space.fleet()
    assert (found.leases[0].left, found.leases[0].holder) == (-10.0, SILENT)
    assert found.queue[0][:4] == ("echo", 2, 0, 1), "a lease that ran out is due"


def test_where_nothing_waits_and_nobody_works_the_answer_is_empty(place: Place) -> None:
    assert place.space.fleet() == clia.Fleet(NOW, (), (), (), (), (), 0, None, None)
