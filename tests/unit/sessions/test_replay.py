"""Replay is authoritative: a dump only saves time, a damaged one is ignored, and a run that differs from the record is detected."""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.engine.records import PATIENCE, Failure, Turn
from clia.sessions.replay import SNAPSHOT_INTERVAL
from support.session_flows import PRODUCT, SUSPENDS_OFTEN
from support.session_spaces import (
    EngineSpy,
    Liar,
    SessionSpace,
    SpiedRun,
    count_up,
    ends,
    events,
    forget_runs,
    pending_requests,
    put_value,
    stored,
    use_engine,
    with_agents,
)
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from clia.engine.records import FlowAnswer, FlowCall, FlowProgram, FlowRun

KEY = "snapshot/scout/1"


def snapshot(space: clia.Space) -> list[Any] | None:
    value = stored(space, KEY)
    return None if value is None else list(value)


# Dumps


def test_a_dump_is_written_regularly_and_shortens_replays(space: clia.Space) -> None:
    spy: EngineSpy = use_engine(space, EngineSpy)
    space.start("scout", "counting", 40)
    spy.counts()
    for value in range(30):
        forget_runs(space)
        space.resume("scout", value)
        started, loaded, answered = spy.counts()
        assert started + loaded == 1
        assert started == (value < SNAPSHOT_INTERVAL)
        assert 1 <= answered <= SNAPSHOT_INTERVAL, "the number of replayed answers is bounded, however long the session is"
        dump = snapshot(space)
        assert (dump[0] if dump else 0) == (value + 1) // SNAPSHOT_INTERVAL * SNAPSHOT_INTERVAL


def test_reading_a_session_runs_nothing(space: clia.Space) -> None:
    count_up(space, 6)
    spy: EngineSpy = use_engine(space, EngineSpy)
    assert space.session("scout").resumes == [0, 1, 2, 3, 4, 5]
    assert space.pending()[0].payload == {"turn": 6, "total": 15}
    space.sessions()
    space.sessions.journal("scout")
    space.cancel("scout")
    assert spy.counts() == (0, 0, 0)


def test_without_a_dump_the_session_is_replayed(space: clia.Space) -> None:
    count_up(space, 6)
    with space.local.store.writing() as transaction:
        assert transaction.values.delete(KEY)
    spy: EngineSpy = use_engine(space, EngineSpy)
    assert space.resume("scout", 6).pending[0].payload == {"turn": 7, "total": 21}
    assert spy.counts() == (1, 0, 7)


def flip_bit(data: str, position: int, bit: int) -> str:
    raw = bytearray(base64.b64decode(data))
    raw[position] ^= 1 << bit
    return base64.b64encode(bytes(raw)).decode("ascii")


def with_digest(snapshot: list[Any]) -> list[Any]:
    """The snapshot with a matching digest, so that only later checks can detect the damage."""
    snapshot[3] = hashlib.sha256(snapshot[4].encode("ascii")).hexdigest()
    return snapshot


DAMAGES: dict[str, Callable[[list[Any]], Any]] = {
    "first bit": lambda dump: [*dump[:4], flip_bit(dump[4], 0, 0), dump[5]],
    "middle bit": lambda dump: [*dump[:4], flip_bit(dump[4], len(base64.b64decode(dump[4])) // 2, 3), dump[5]],
    "last bit": lambda dump: [*dump[:4], flip_bit(dump[4], -1, 7), dump[5]],
    "first bit, digest right": lambda dump: with_digest([*dump[:4], flip_bit(dump[4], 0, 0), dump[5]]),
    "middle bit, digest right": lambda dump: with_digest(
        [*dump[:4], flip_bit(dump[4], len(base64.b64decode(dump[4])) // 2, 3), dump[5]]
    ),
    "last bit, digest right": lambda dump: with_digest([*dump[:4], flip_bit(dump[4], -1, 7), dump[5]]),
    "cut": lambda dump: with_digest([*dump[:4], dump[4][: len(dump[4]) // 8 * 4], dump[5]]),
    "empty": lambda dump: with_digest([*dump[:4], "", dump[5]]),
    "not base64": lambda dump: with_digest([*dump[:4], "!?", dump[5]]),
    "not text": lambda dump: [*dump[:4], 7, dump[5]],
    "not ascii": lambda dump: [*dump[:4], "é", dump[5]],
    "no digest": lambda dump: [*dump[:3], "", *dump[4:]],
    "another engine": lambda dump: [dump[0], "pydantic-monty 0.0.1 rules 0", *dump[2:]],
    "another flow": lambda dump: [*dump[:2], "0" * 40, *dump[3:]],
    "earlier": lambda dump: [dump[0] - 1, *dump[1:]],
    "later": lambda dump: [dump[0] + 1, *dump[1:]],
    "far later": lambda dump: [dump[0] + 100, *dump[1:]],
    "before the beginning": lambda dump: [-3, *dump[1:]],
    "a count that is a text": lambda dump: ["x", *dump[1:]],
    "another call": lambda dump: [*dump[:5], [[9, *dump[5][0][1:]]]],
    "another payload": lambda dump: [*dump[:5], [[*dump[5][0][:3], {"turn": 99}, dump[5][0][4]]]],
    "no calls": lambda dump: [*dump[:5], []],
    "incomplete calls": lambda dump: [*dump[:5], [[1]]],
    "calls of the wrong type": lambda dump: [*dump[:5], 3],
    "too short": lambda dump: dump[:3],
    "not a list": lambda dump: {"dump": dump},
    "null": lambda dump: None,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_dump_is_ignored_and_the_session_continues(space: clia.Space, damage: str) -> None:
    count_up(space, 6)
    before = space.sessions.journal("scout")
    dump = snapshot(space)
    assert dump is not None
    assert dump[0] == SNAPSHOT_INTERVAL
    put_value(space, KEY, DAMAGES[damage](dump))
    spy: EngineSpy = use_engine(space, EngineSpy)
    session = space.resume("scout", 6)
    assert session.status == "suspended"
    assert session.pending[0].payload == {"turn": 7, "total": 21}
    assert space.sessions.journal("scout")[: len(before)] == before
    assert spy.started == 1, "replayed"
    for value in range(7, 20):
        session = space.resume("scout", value)
    assert session.result == sum(range(20))


@pytest.mark.parametrize(
    "damage", ["middle bit", "middle bit, digest right", "another engine", "later", "incomplete calls", "null"]
)
def test_a_fork_does_not_spread_a_damaged_dump(space: clia.Space, damage: str) -> None:
    count_up(space, 6)
    put_value(space, KEY, DAMAGES[damage](snapshot(space) or []))
    fork = space.fork("scout", "other")
    assert pending_requests(fork) == pending_requests(space.session("scout"))
    assert fork.resumes == [0, 1, 2, 3, 4, 5]
    assert space.resume("other", 6).pending[0].payload == {"turn": 7, "total": 21}
    assert space.resume("other", 7).resumes == [*range(8)]


def test_a_fork_with_a_valid_dump_runs_nothing(space: clia.Space) -> None:
    count_up(space, 6)
    spy: EngineSpy = use_engine(space, EngineSpy)
    space.fork("scout", "other")
    assert spy.counts() == (0, 0, 0)
    space.resume("other", 6)
    assert spy.counts() == (0, 1, 3), "the copied dump and the two resumes after it"


def test_another_engine_version_replays_and_writes_its_own_dumps(space: clia.Space) -> None:
    count_up(space, 5)
    spy: EngineSpy = use_engine(space, lambda engine: EngineSpy(engine, version="pydantic-monty 99 rules 1"))
    space.resume("scout", 5)
    assert spy.counts() == (1, 0, 6)
    for value in range(6, 12):
        forget_runs(space)
        space.resume("scout", value)
    assert snapshot(space)[1] == "pydantic-monty 99 rules 1"  # type: ignore[index]
    assert spy.loaded > 0
    for value in range(12, 20):
        space.resume("scout", value)
    assert space.session("scout").result == sum(range(20))


def test_a_dump_with_several_pending_requests_restores_them_all(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "parts", 9)
    for number in (9, 2, 5, 1, 7):
        space.resume("scout", number, f"1.{number}")
    with place.open() as other:
        spy: EngineSpy = use_engine(other, EngineSpy)
        for number in (3, 8, 4, 6):
            other.resume("scout", number, f"1.{number}")
        assert spy.started == 0
        assert other.resume("scout", "end").result == {"parts": [*range(1, 10)], "last": "end"}


def test_the_dump_is_deleted_with_the_session(space: clia.Space) -> None:
    count_up(space, 19)
    assert snapshot(space) is not None
    space.resume("scout", 0)
    assert snapshot(space) is None
    space.start("scout", "counting", 9)
    for _ in range(5):
        space.resume("scout", 0)
    space.cancel("scout")
    with space.local.store.reading() as view:
        assert view.values.scan("snapshot/") == []
        assert view.values.scan("live/") == []


# Kept runs


def test_a_handle_that_continues_its_session_neither_replays_nor_loads(space: clia.Space) -> None:
    spy: EngineSpy = use_engine(space, EngineSpy)
    space.sessions.define("counting", SUSPENDS_OFTEN)
    count_up(space, 1)
    spy.counts()
    for value in range(1, 19):
        space.resume("scout", value)
        assert spy.counts() == (0, 0, 1)
    assert space.decide("scout", 19).session.result == sum(range(20))
    assert spy.counts() == (0, 0, 1)


def test_a_kept_run_is_not_used_after_another_handle_resumed_the_session(place: SessionSpace, space: clia.Space) -> None:
    count_up(space, 3)
    with place.open() as other:
        for value in range(3, 7):
            other.resume("scout", value)
        assert space.resume("scout", 7).pending[0].payload == {"turn": 8, "total": 28}
        assert other.resume("scout", 8).pending[0].payload == {"turn": 9, "total": 36}
        assert space.resume("scout", 9).resumes == [*range(10)]


def test_a_kept_run_is_not_used_for_another_session(place: SessionSpace, space: clia.Space) -> None:
    """Even if agent, position and request are the same."""
    with_agents(
        space, drifting="import random\n\ndef main(input):\n    request('a')\n    request('b')\n    return random.random()\n"
    )
    space.start("scout", "drifting")
    space.resume("scout", 1)
    with place.open() as other:
        other.cancel("scout")
        other.start("scout", "drifting")
        assert other.session("scout").id == "2"
        other.resume("scout", 1)
        twin = other.fork("scout", "twin")
        assert twin.status == "suspended"
    result = space.resume("scout", 2, "2.2").result
    assert space.resume("twin", 2).result == result


def test_an_answer_that_could_not_be_recorded_does_not_affect_the_run(place: SessionSpace, space: clia.Space) -> None:
    failing_steps: list[str] = []

    def reached(step: str) -> None:
        if step in failing_steps:
            failing_steps.clear()
            raise errors.StoreError("the disk is full")

    with place.open(reached=reached) as flaky:
        flaky.sessions.define("counting", SUSPENDS_OFTEN)
        flaky.start("scout", "counting", 9)
        flaky.resume("scout", 1)
        for verb, step in ((flaky.resume, "engine-ran"), (flaky.decide, "objects-written"), (flaky.decide, "intent-recorded")):
            failing_steps.append(step)
            refused("store-error", lambda verb=verb: verb("scout", 100))  # type: ignore[misc]
            assert not failing_steps
        assert flaky.resume("scout", 2).pending[0].payload == {"turn": 2, "total": 3}
        assert flaky.session("scout").resumes == [1, 2]
        assert flaky.verify().clean


def test_the_store_refuses_an_event_at_an_old_position(place: SessionSpace) -> None:
    """The agent's lock normally prevents this; the check also covers writers without it."""
    writers: list[clia.Space] = []

    def reached(step: str) -> None:
        if step == "engine-ran" and writers:
            with writers.pop().local.store.writing() as transaction:
                transaction.streams.append("session/scout/1", [{"event": "resumed", "resume": [1, "", 0]}])

    with place.open(reached=reached) as space:
        with_agents(space, "scout", product=PRODUCT)
        space.start("scout", "product")
        writers.append(space)
        assert isinstance(refused("stale-position", lambda: space.resume("scout", 5)), errors.Conflict)
        assert [event["event"] for event in space.sessions.journal("scout")] == ["started", "resumed"]
        assert space.session("scout").pending[0].id == "1.1"


def test_threads_that_share_a_handle_do_not_mix_up_their_runs(space: clia.Space) -> None:
    names = [f"a{number}" for number in range(6)]
    with_agents(space, *names)

    def work(name: str) -> Any:
        space.start(name, "counting", 25)
        for value in range(25):
            space.resume(name, value)
        return space.session(name).result

    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(work, names)) == [sum(range(25))] * len(names)
    assert space.verify().clean


class NoDumps(EngineSpy):
    """An engine that cannot dump."""

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        return _NoDump(self._engine.start(program, patience=patience), self)


class _NoDump(SpiedRun):
    def dump(self) -> bytes:
        raise errors.EngineError("cannot dump")


def test_an_engine_that_cannot_dump_gives_the_right_result(space: clia.Space) -> None:
    spy: EngineSpy = use_engine(space, NoDumps)
    session = count_up(space, 12, 12)
    assert session.result == sum(range(12))
    assert spy.loaded == 0


class CrashingEngine(EngineSpy):
    """An engine whose workers die this many times."""

    def __init__(self, engine: Any, deaths: int) -> None:
        super().__init__(engine)
        self.deaths = deaths
        self.dies_of_answers = False

    def die(self) -> None:
        if self.deaths:
            self.deaths -= 1
            error = errors.EngineError("the process that ran the flow was lost", code="engine-lost")
            error.retryable = True
            raise error

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        self.die()
        return CrashingRun(super().start(program, patience=patience), self)


class CrashingRun(SpiedRun):
    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        if isinstance(self._spy, CrashingEngine) and self._spy.dies_of_answers:
            self._spy.deaths = 1
            self._spy.die()
        return super().answer(number, answer)


def test_a_worker_that_dies_is_replaced_and_the_answer_is_recorded_once(space: clia.Space) -> None:
    crashing: CrashingEngine = use_engine(space, lambda engine: CrashingEngine(engine, 1))
    space.start("scout", "product")
    crashing.deaths = 1
    space.resume("scout", 5)
    assert [event["event"] for event in space.sessions.journal("scout")] == ["started", "resumed"]
    assert space.resume("scout", 6).result == 30


def test_a_flow_that_kills_three_workers_in_a_row_has_failed(place: SessionSpace, space: clia.Space) -> None:
    crashing: CrashingEngine = use_engine(space, lambda engine: CrashingEngine(engine, 3))
    session = space.start("scout", "product")
    assert session.status == "failed"
    assert session.failure is not None
    assert session.failure["reason"] == "limit"
    assert "3 workers in a row died of it" in session.failure["message"]
    space.start("scout", "product")
    crashing.dies_of_answers = True
    assert space.resume("scout", 5).status == "failed"
    assert ends(place.root, "scout") == [("1", "failed"), ("2", "failed")]


def test_workers_that_die_during_a_replay_do_not_fail_the_session(space: clia.Space) -> None:
    crashing: CrashingEngine = use_engine(space, lambda engine: CrashingEngine(engine, 0))
    space.start("scout", "product")
    forget_runs(space)
    crashing.deaths = 9
    refused("engine-lost", lambda: space.resume("scout", 5))
    assert space.session("scout").status == "suspended"
    crashing.deaths = 0
    assert space.resume("scout", 5).pending


class SlowEngine(EngineSpy):
    """An engine on a busy machine: unless it is patient, it exceeds a limit at some answer of a replay."""

    def __init__(self, engine: Any, limit_at: int, *, patient: bool) -> None:
        super().__init__(engine)
        self._limit_at = limit_at
        self._patient = patient

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        run = super().start(program, patience=patience)
        return run if patience > 1 and self._patient else SlowRun(run, self, self._limit_at)

    def load(self, program: FlowProgram, dump: bytes, pending: Iterable[FlowCall]) -> FlowRun:
        return SlowRun(super().load(program, dump, pending), self, self._limit_at)


class SlowRun(SpiedRun):
    def __init__(self, run: FlowRun, spy: EngineSpy, limit_at: int) -> None:
        super().__init__(run, spy)
        self._remaining = limit_at

    @property
    def turn(self) -> Turn:
        if self._remaining:
            return self._run.turn
        return Turn(failure=Failure("limit", "time: a turn used more than 5 seconds of processor time", None))

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        self._remaining -= 1
        super().answer(number, answer)
        return self.turn


@pytest.mark.parametrize("resumes", [2, 6])
def test_a_limit_exceeded_in_a_replay_is_retried_patiently(space: clia.Space, resumes: int) -> None:
    count_up(space, resumes)
    use_engine(space, lambda engine: SlowEngine(engine, 1, patient=True))
    assert space.resume("scout", 9).resumes == [*range(resumes), 9]


@pytest.mark.parametrize("limit_at", [0, 1])
def test_a_replay_that_stays_too_slow_changes_nothing(space: clia.Space, limit_at: int) -> None:
    space.sessions.define("counting", SUSPENDS_OFTEN)
    count_up(space, 3)
    before = space.sessions.journal("scout")
    use_engine(space, lambda engine: SlowEngine(engine, limit_at, patient=False))
    refused("replay-too-slow", lambda: space.resume("scout", 3))
    refused("replay-too-slow", lambda: space.decide("scout", 3))
    assert space.sessions.journal("scout") == before
    assert space.session("scout").status == "suspended"


class BusyEngine(EngineSpy):
    """An engine on a busy machine: turns exceed their time, having used these parts of their processor time."""

    def __init__(self, engine: Any, *used: float) -> None:
        super().__init__(engine)
        self.used = list(used)
        self.given: list[float] = []
        self.at_starts = False

    def exceeded(self, turn: Turn) -> Turn:
        if not self.used:
            return turn
        message = "time: a turn used more than 5 seconds of processor time"
        return Turn(failure=Failure("limit", message, None, used=self.used.pop(0)))

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        self.given.append(patience)
        return BusyRun(super().start(program, patience=patience), self)


class BusyRun(SpiedRun):
    def __init__(self, run: FlowRun, spy: BusyEngine) -> None:
        super().__init__(run, spy)
        self._busy = spy
        self._first = spy.exceeded(run.turn) if spy.at_starts else None

    @property
    def turn(self) -> Turn:
        return self._first or super().turn

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        return self._busy.exceeded(super().answer(number, answer))


@pytest.mark.parametrize("at_start", [True, False])
def test_a_turn_that_exceeds_its_time_is_taken_again_with_more(space: clia.Space, *, at_start: bool) -> None:
    engine: BusyEngine = use_engine(space, lambda real: BusyEngine(real, 0.99))
    engine.at_starts = at_start
    space.start("scout", "product")
    session = space.resume("scout", 5)
    assert (session.status, session.resumes) == ("suspended", [5])
    assert [event["event"] for event in space.sessions.journal("scout")] == ["started", "resumed"]
    assert engine.given == [1, pytest.approx(2.02, abs=0.01)]
    engine.at_starts = False
    assert space.resume("scout", 6).result == 30


def test_a_turn_gets_more_time_until_it_has_the_most(space: clia.Space) -> None:
    engine: BusyEngine = use_engine(space, lambda real: BusyEngine(real, 0.99, 0.92, 0.9))
    space.start("scout", "product")
    assert space.resume("scout", 5).resumes == [5]
    assert engine.given == [1, *map(pytest.approx, (2 / 0.99, 4 / 0.99 / 0.92, 8 / 0.99 / 0.92 / 0.9))]


@pytest.mark.parametrize("at_start", [True, False])
def test_a_flow_that_uses_up_its_processor_time_twice_has_failed(space: clia.Space, *, at_start: bool) -> None:
    engine: BusyEngine = use_engine(space, lambda real: BusyEngine(real, 0.99, 1.9))
    engine.at_starts = at_start
    session = space.start("scout", "product")
    session = session if at_start else space.resume("scout", 5)
    assert session.status == "failed"
    assert session.failure is not None
    assert session.failure["message"] == "time: a turn used more than 5 seconds of processor time"


def test_a_machine_too_busy_for_a_turn_records_nothing(place: SessionSpace, space: clia.Space) -> None:
    engine: BusyEngine = use_engine(space, lambda real: BusyEngine(real, 0.1, 0.9))
    engine.at_starts = True
    error = refused("machine-busy", lambda: space.start("scout", "product"))
    assert isinstance(error, errors.BackendError)
    assert error.retryable
    assert space.sessions() == []
    engine.at_starts = False
    space.start("scout", "product")
    engine.used = [0.001, 0.4]
    refused("machine-busy", lambda: space.resume("scout", 5))
    assert engine.given[-1] == PATIENCE, "a turn gets no more than the highest patience"
    assert space.session("scout").pending[0].id == "1.1"
    assert space.resume("scout", 5).pending[0].id == "1.2"
    assert ends(place.root, "scout") == []


class UnavailableEngine(EngineSpy):
    """An engine that cannot run anything now."""

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        raise errors.EngineError("no process to run a flow in", code="engine-unavailable")


def test_an_unavailable_engine_changes_nothing(space: clia.Space) -> None:
    count_up(space, 2)
    before = space.sessions.journal("scout")
    use_engine(space, UnavailableEngine)
    refused("engine-unavailable", lambda: space.resume("scout", 2))
    refused("engine-unavailable", lambda: with_agents(space, "other").start("other", "product"))
    assert space.sessions.journal("scout") == before
    assert space.sessions("other") == []


# Divergence


def test_a_replay_with_another_request_is_divergence_and_loses_nothing(place: SessionSpace, space: clia.Space) -> None:
    count_up(space, 2)
    commit = space.commit("scout", "finding", changes={"a": b"1"})
    space.resume("scout", 2)
    before, head = space.sessions.journal("scout"), space.head("scout")
    use_engine(space, lambda engine: Liar(engine, after=1))
    with pytest.raises(errors.Nondeterminism) as caught:
        space.resume("scout", 3)
    assert caught.value.code == "nondeterminism"
    assert caught.value.fields["position"] == 1
    assert "call 2" in caught.value.fields["recorded"]
    assert "call 2 (number" in caught.value.fields["actual"]
    session = space.session("scout")
    assert (session.status, session.pending, session.resumes) == ("diverged", (), [0, 1, 2])
    assert session.failure is not None
    assert session.failure["reason"] == "diverged"
    assert {key: session.failure[key] for key in ("position", "recorded", "actual")} == caught.value.fields
    assert space.sessions.journal("scout")[:-1] == before, "the record is complete and followed by the end"
    assert space.sessions.journal("scout")[-1]["status"] == "diverged"
    assert ends(place.root, "scout") == [("1", "diverged")]
    assert events(place.root, "scout")[0]["reason"] == session.failure["message"]
    assert space.head("scout") == head
    assert space.pending() == []
    assert refused("stale-request", lambda: space.resume("scout", 3, "1.4")).fields["status"] == "diverged"
    assert "diverged" in space.traces.pending("scout")[-1]["text"]
    with place.open() as honest:
        fork = honest.fork("scout", "again", commit)
        assert pending_requests(fork) == [("3", "number", {"turn": 2, "total": 1}, 4)]
        assert honest.resume("again", 5).pending[0].payload == {"turn": 3, "total": 6}
        assert honest.start("scout", "product").id == "2"
        assert honest.verify().clean


def test_another_last_request_is_divergence_too(space: clia.Space) -> None:
    count_up(space, 2)
    use_engine(space, lambda engine: Liar(engine, after=2))
    with pytest.raises(errors.Nondeterminism) as caught:
        space.resume("scout", 3)
    assert caught.value.fields["position"] == 2
    assert space.session("scout").status == "diverged"


def test_a_decision_on_a_diverging_run_leaves_no_commit(place: SessionSpace, space: clia.Space) -> None:
    space.sessions.define("counting", SUSPENDS_OFTEN)
    count_up(space, 2)
    head = space.head("scout")
    use_engine(space, lambda engine: Liar(engine, after=1))
    with pytest.raises(errors.Nondeterminism):
        space.decide("scout", 3, "because")
    assert space.head("scout") == head
    assert space.session("scout").status == "diverged"
    assert ends(place.root, "scout") == [("1", "diverged")]
    assert space.verify().clean


def test_a_diverging_fork_from_a_commit_creates_no_agent_and_ends_no_session(space: clia.Space) -> None:
    count_up(space, 3)
    commit = space.commit("scout", "finding", changes={"a": b"1"})
    use_engine(space, lambda engine: Liar(engine, after=1))
    with pytest.raises(errors.Nondeterminism):
        space.fork("scout", "again", commit)
    assert space.agents() == ["scout"]
    assert space.session("scout").status == "suspended"


class EarlyEndEngine(EngineSpy):
    """An engine whose runs end where the recorded ones continued."""

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        return super().start(program._replace(source="def main(input):\n    return 'early'\n"), patience=patience)


class ChangedSourceEngine(EngineSpy):
    """An engine that runs a modified source."""

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        return super().start(
            program._replace(source=program.source.replace("turn in", "turn in reversed").replace("range(input)", "(range(input))"))
        )


@pytest.mark.parametrize("engine", [EarlyEndEngine, ChangedSourceEngine])
def test_a_replay_that_ends_early_or_differs_is_divergence(space: clia.Space, engine: type[EngineSpy]) -> None:
    count_up(space, 2)
    use_engine(space, engine)
    with pytest.raises(errors.Nondeterminism):
        space.resume("scout", 3)
    assert space.session("scout").status == "diverged"
    assert space.session("scout").resumes == [0, 1]


def test_a_checkpoint_from_which_the_run_ends_cannot_be_forked(space: clia.Space) -> None:
    space.start("scout", "counting", 5)
    commit = space.commit("scout", "finding", changes={"a": b"1"})
    use_engine(space, EarlyEndEngine)
    error = refused("nondeterminism", lambda: space.fork("scout", "other", commit))
    assert error.fields["actual"] == "an end"
    assert space.agents() == ["scout"]


def test_an_unreadable_event_is_reported_with_its_position_and_checkpoints_still_work(space: clia.Space) -> None:
    count_up(space, 3)
    commit = space.commit("scout", "finding", changes={"a": b"1"})
    with space.local.store.writing() as transaction:
        transaction.streams.replace("session/scout/1", 2, {"event": "resumed"})
        transaction.values.delete(KEY)
    forget_runs(space)
    error = refused("corrupt-journal", lambda: space.resume("scout", 3))
    assert error.fields == {"stream": "session/scout/1", "position": 2}
    assert space.fork("scout", "again", commit).resumes == [0, 1, 2]
    with space.local.store.writing() as transaction:
        transaction.streams.replace("session/scout/1", 1, {"event": "nonsense"})
    assert refused("corrupt-journal", lambda: space.resume("scout", 3)).fields["position"] == 1


# Chance and time


def test_a_run_is_reproducible_in_any_process_and_another_session_differs(place: SessionSpace, space: clia.Space) -> None:
    first = space.start("scout", "chance", {"turns": 1})
    space.fork("scout", "other")
    space.resume("scout", 1, "1.1")
    with place.open() as other_handle:
        other_handle.resume("other", 1, "1.1")
        (scout_request,), (other_request,) = space.session("scout").pending, other_handle.session("other").pending
        assert scout_request.payload == other_request.payload
        assert other_handle.resume("other", 2).pending[0].payload == space.resume("scout", 2).pending[0].payload
        assert other_handle.decide("other", 3).session.result == space.decide("scout", 3).session.result
    assert first.pending[1].payload["now"] == first.started_at.removesuffix("Z"), "the clock of a run shows its start"
    again = space.start("scout", "chance", {"turns": 1})
    assert again.pending[0].payload != first.pending[0].payload


def test_a_flow_sees_the_time_zone_of_its_session(space: clia.Space) -> None:
    session = space.start("scout", "chance", {"turns": 1}, timezone="Asia/Tokyo")
    assert session.started_at == "2026-05-01T00:00:" + session.started_at[17:]
    assert session.pending[1].payload["now"].startswith("2026-05-01T09:00:")
    space.cancel("scout")
    refused("unknown-timezone", lambda: space.start("scout", "chance", {"turns": 1}, timezone="Mars/Crater"))
    for bad in (3, None, "a\0b"):
        with pytest.raises(errors.InvalidInput):
            space.start("scout", "chance", {"turns": 1}, timezone=bad)  # type: ignore[arg-type]
    assert len(space.sessions()) == 1
