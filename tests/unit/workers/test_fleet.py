"""The fleet: which processes are alive, what they run, and what has been waiting for how long."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import StoreError
from clia.facade.setup import set_up
from clia.hub.joining import HubTarget
from clia.hub.model import BRANCHES
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


class ManualClock:
    """A clock that only the test moves."""

    def __init__(self, at: float = NOW) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=self.at)


class FleetSpace:
    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.space = clia.init(root, settings=clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=self.clock))

    def keys(self) -> list[str]:
        return [key for key, _ in self.space.local.store.scan(FLEET)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[FleetSpace]:
    opened = FleetSpace(tmp_path / "repo")
    yield opened
    opened.space.close()


# Liveness


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
def test_the_first_assessment_uses_the_clock_of_the_store(seen_at: float, state: str) -> None:
    ((_, assessed, _),) = LivenessMonitor(lambda: 0.0).assess([beat(seen_at=seen_at)], NOW)
    assert assessed == state


def test_later_assessments_use_new_beats_and_no_clock() -> None:
    """The store's clock is wrong by an hour, but a process with new beats is alive and one without is silent."""
    passed = [0.0]
    watch, wrong_time = LivenessMonitor(lambda: passed[0]), NOW + 3000
    lives, dies = beat("lives", seen_at=NOW), beat("dies", seen_at=wrong_time)
    assert [state for _, state, _ in watch.assess([lives, dies], wrong_time)] == [SILENT, ALIVE], (
        "the first assessment has only the clock"
    )
    for expected in (ALIVE, ALIVE, ALIVE, SILENT):
        passed[0] += HEARTBEAT_INTERVAL
        lives = lives._replace(beats=lives.beats + 1)
        assert [state for _, state, _ in watch.assess([lives, dies], wrong_time)] == [ALIVE, expected]


def test_old_beats_do_not_count() -> None:
    """Between two assessments far apart a process sent beats and died: the last beat is too old."""
    passed = [0.0]
    watch = LivenessMonitor(lambda: passed[0])
    watch.assess([beat()], NOW)
    passed[0] = 1000.0
    ((_, state, age),) = watch.assess([beat(beats=100, seen_at=NOW + 500)], NOW + 1000)
    assert (state, age) == (SILENT, 500.0)


# Rows


def test_a_process_reports_its_work_and_removes_its_row_when_it_stops(place: FleetSpace) -> None:
    status = [WorkerStatus()]
    worker = HeartbeatWriter(place.space, ProcessInfo(WORKER, "w1", ("echo", "llm"), 4), lambda: status[0])
    worker.beat()
    place.clock.at += 5
    doing = RunningAttempt("scout", "1.1", "echo", 2, "")
    status[0] = WorkerStatus(running=(doing,), answered=3, retried=2, given_up=1, trouble="the store does not answer")
    worker.beat()
    (worker_info,) = place.space.fleet().workers
    assert (worker_info.name, worker_info.kinds, worker_info.concurrency, worker_info.state, worker_info.age) == (
        "w1",
        ("echo", "llm"),
        4,
        ALIVE,
        0.0,
    )
    assert (worker_info.started_at, worker_info.seen_at, worker_info.clock_off) == (NOW, NOW + 5, 0.0)
    assert (worker_info.answered, worker_info.retried, worker_info.given_up, worker_info.trouble) == (
        3,
        2,
        1,
        "the store does not answer",
    )
    assert worker_info.running == (Underway("scout", "1.1", "echo", 2, NOW + 5),)
    place.clock.at += 5
    worker.beat()
    worker_info = place.space.fleet().workers[0]
    assert worker_info.running[0].since == NOW + 5, "the start time of running work must not change"
    (machine,) = place.space.fleet().machines
    assert (machine.machine, machine.clone) == (worker_info.machine, worker_info.clone)
    assert (machine.state, machine.workers, machine.forges, machine.running, machine.hub) == (ALIVE, 1, 0, 1, None)
    worker.leave()
    assert (place.space.fleet().workers, place.keys()) == ((), [])


def test_rows_of_dead_processes_are_removed_and_reused(place: FleetSpace) -> None:
    HeartbeatWriter(place.space, ProcessInfo(WORKER, "dead")).beat()
    place.clock.at += 60
    (worker_info,) = place.space.fleet().workers
    assert (worker_info.state, worker_info.age) == (SILENT, 60.0)
    assert place.space.fleet().machines[0].workers == 0
    HeartbeatWriter(place.space, ProcessInfo(WORKER, "dead")).beat()
    (worker_info,) = place.space.fleet().workers
    assert (worker_info.state, place.keys()) == (ALIVE, ["fleet/000"]), "a restarted process must reuse the row of its name"
    place.clock.at += SHOWN_SECONDS + 1
    assert place.space.fleet().workers == ()
    HeartbeatWriter(place.space, ProcessInfo(FORGE, "127.0.0.1:8337")).beat()
    assert place.keys() == ["fleet/000"]
    assert [forge.name for forge in place.space.fleet().forges] == ["127.0.0.1:8337"]


def test_the_number_of_rows_is_limited_and_the_longest_silent_process_is_replaced(
    place: FleetSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beats, "MAX_ROWS", 2)
    first, second, third = (HeartbeatWriter(place.space, ProcessInfo(WORKER, name)) for name in ("w1", "w2", "w3"))
    first.beat()
    place.clock.at += 1
    second.beat()
    third.beat()
    assert [worker.name for worker in place.space.fleet().workers] == ["w1", "w2"], "a live process must keep its row"
    place.clock.at += 60
    second.beat()
    third.beat()
    assert [worker.name for worker in place.space.fleet().workers] == ["w2", "w3"]
    first.leave()
    assert [worker.name for worker in place.space.fleet().workers] == ["w2", "w3"], "the row belongs to another process now"


def test_damaged_rows_and_rows_of_other_versions_are_ignored(place: FleetSpace) -> None:
    good = beat(running=[Underway("scout", "1.1", "echo", 1, NOW)])
    put(place.space, good, beat("w2", pid="7"), beat("w3", kind="submarine"), beat("w4", every=0), beat("w5", forks=[1]))
    with place.space.local.store.writing() as change:
        change.values.put("fleet/100", {"id": "x"})
        change.values.put("fleet/101", [1])
        change.values.put("fleet/102", good._asdict() | {"id": "later", "name": "later", "new": "field"})
        change.values.put("fleet/103", good._asdict() | {"running": [["scout"]]})
    assert [worker.name for worker in place.space.fleet().workers] == ["later", "w1"]


def test_a_failed_write_does_not_stop_the_process_and_is_retried_at_the_next_beat(
    place: FleetSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = HeartbeatWriter.beat
    failed: list[int] = []

    def once_away(self: HeartbeatWriter) -> None:
        if not failed:
            failed.append(1)
            raise StoreError("away")
        real(self)
        written.set()

    written = threading.Event()
    monkeypatch.setattr(HeartbeatWriter, "beat", once_away)
    with heartbeat(place.space, ProcessInfo(WORKER, "w1"), interval=0.01):
        assert written.wait(60)
        assert [worker.name for worker in place.space.fleet().workers] == ["w1"]
    assert place.space.fleet().workers == ()


def test_machines_with_a_shared_store_see_each_other_despite_wrong_clocks(tmp_path: Path, postgres_address: str) -> None:
    """The server's clock dates the beats, so the clocks of the machines do not matter."""
    git("init", "--quiet", "--bare", "hub.git", cwd=tmp_path)
    server_time = datetime.now(UTC).timestamp()
    spaces = []
    with ExitStack() as stack:
        for name, offset in (("one", -600.0), ("two", 7200.0)):
            settings = clia.Settings(
                durable=False,
                person=("Tess", "tess@example.org"),
                clock=ManualClock(server_time + offset),
                store=postgres_url(postgres_address),
            )
            spaces.append(stack.enter_context(clia.init(tmp_path / name, settings=settings, hub=str(tmp_path / "hub.git"))))
            HeartbeatWriter(spaces[-1], ProcessInfo(WORKER, name)).beat()
        for space in spaces:
            fleet = space.fleet()
            assert [(worker.name, worker.state) for worker in fleet.workers] == [("one", ALIVE), ("two", ALIVE)]
            assert [round(worker.clock_off / 600) for worker in fleet.workers] == [-1, 12]
            assert sorted(round(machine.clock_off / 600) for machine in fleet.machines) == [-1, 12], (
                "two clones must be two machines"
            )


# The hub


def test_unpublished_work_is_shown_even_for_machines_without_heartbeats(place: FleetSpace) -> None:
    put(place.space, beat(forks=["scout"], away_since=NOW - 60), beat("w2", clone="c2", forks=[]), beat("w3", clone="c3"))
    with place.space.local.store.writing() as change:
        change.values.put("owed/scout", {"clone": "c1", "since": "2026-05-01T12:00:00Z"})
        for lock in ("smith", "@behaviour-go2", "@types"):
            change.values.put(f"owed/{lock}", {"clone": "gone", "since": "2026-05-01T12:00:00Z"})
    hubs = {
        machine.clone: (machine.machine, machine.state, machine.hub and tuple(machine.hub))
        for machine in place.space.fleet().machines
    }
    assert hubs == {
        "c1": ("north", ALIVE, (("scout",), NOW - 60, ("scout",))),
        "c2": ("north", ALIVE, ((), None, ())),
        "c3": ("north", ALIVE, None),
        "gone": ("", NO_PROCESS, (("refs/clia/behaviours/go2", "refs/clia/types", "smith"), None, ())),
    }, "other refs than agents are named in full, and a machine without processes is not silent"


def test_a_beat_has_the_sync_state_of_its_clone(tmp_path: Path) -> None:
    """First in sync; then the hub is unreachable and work is unpublished; then two machines fork the agent."""
    hub, now = tmp_path / "hub.git", ManualClock(datetime.now(UTC).timestamp())
    git("init", "--quiet", "--bare", str(hub), cwd=tmp_path)
    settings = clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=now)
    with set_up(tmp_path / "one", settings=settings, hub=HubTarget(str(hub), BRANCHES)).space as machine:
        beats = HeartbeatWriter(machine, ProcessInfo(WORKER, "w1"))

        def sync_state() -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
            beats.beat()
            hub_state = machine.fleet().machines[0].hub
            assert hub_state is not None
            return hub_state.away_since is not None, hub_state.owed, hub_state.forks

        base = machine.spawn("scout", BRIEFING).genesis
        assert sync_state() == (False, (), ())
        away = hub.rename(tmp_path / "elsewhere.git")
        machine.commit("scout", "finding", {"a.txt": b"1"})
        assert sync_state() == (True, ("scout",), ())
        hub_state = machine.fleet().machines[0].hub
        assert hub_state is not None
        assert hub_state.away_since is not None
        assert abs(hub_state.away_since - now.at) < 60
        away.rename(hub)
        other_commit = git("commit-tree", "-p", base, "-m", "theirs", f"{base}^{{tree}}", cwd=hub).strip()
        git("update-ref", "refs/heads/agents/scout", other_commit, base, cwd=hub)
        assert any(change.what == "fork" for change in machine.hub.sync())
        assert sync_state()[::2] == (False, ("scout",))
        beats = HeartbeatWriter(machine, ProcessInfo(WORKER, "w1"))
        assert sync_state()[::2] == (False, ("scout",)), "a process started later must report the fork too"


# Waiting work


def test_waiting_requests_are_counted_by_kind_and_the_oldest_is_named(place: FleetSpace) -> None:
    space, clock = place.space, place.clock
    space.sessions.define("question", QUESTION)
    requests = [
        ("a", "echo", {}),
        ("b", "echo", {}),
        ("c", "llm", {}),
        ("d", "timer", {"seconds": 900}),
        ("e", "human", {"question": "?"}),
    ]
    requests += [("f", "session", {"agent": "a"}), ("g", "human", {"question": "?"}), ("h", "echo", {})]
    for name, kind, payload in requests:
        space.spawn(name, BRIEFING)
        space.start(name, "question", {"kind": kind, "payload": payload})
        clock.at += 1
    queue = space.local.queue
    claimed = queue.claim([Task("a", "1.1", "echo", NOW)], "w1", clock.at, 30.0)
    failed = queue.claim([Task("b", "1.1", "echo", NOW)], "nobody", clock.at, 30.0)
    assert claimed is not None
    assert failed is not None
    queue.retry(failed, clock.at + 100, "no")
    put(space, beat(seen_at=clock.at), beat("w2", seen_at=NOW - 100, kinds=["llm"]))
    fleet = space.fleet()
    assert [tuple(waiting) for waiting in fleet.queue] == [
        ("echo", 1, 1, 1, 0, 1),
        ("llm", 1, 0, 0, 0, 0),
        ("session", 0, 0, 1, 0, 0),
        ("timer", 0, 0, 1, 0, 0),
    ]
    assert fleet.work is not None
    assert (fleet.work.agent, fleet.work.request, fleet.work.kind, fleet.work.age) == ("a", "1.1", "echo", 8.0)
    assert fleet.people is not None
    assert (fleet.people.agent, fleet.people.age, fleet.questions) == ("e", 4.0, 2)
    (lease,) = fleet.leases
    assert (lease.agent, lease.worker, lease.holder, lease.attempt, lease.left) == ("a", "w1", ALIVE, 1, 30.0)
    clock.at += 40
    fleet = space.fleet()
    assert (fleet.leases[0].left, fleet.leases[0].holder) == (-10.0, SILENT)
    assert fleet.queue[0][:4] == ("echo", 2, 0, 1), "work with an expired lease must be due"


def test_an_idle_fleet_without_workers_is_empty(place: FleetSpace) -> None:
    assert place.space.fleet() == clia.Fleet(NOW, (), (), (), (), (), 0, None, None)
