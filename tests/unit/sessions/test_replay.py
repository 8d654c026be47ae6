"""Replay is the truth: a dump only saves the way, whatever is wrong with it; another run than the recorded one is found out."""

from __future__ import annotations

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.engine.records import Failure, Turn
from clia.sessions.replay import SNAPSHOT_INTERVAL
from support.session_flows import CHANCE, COUNTING, PARTS, PRODUCT, SUSPENDS_OFTEN
from support.session_spaces import Liar, Place, SpiedRun, Spy, asked, ends, events, forget_runs, use_engine, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from clia.engine.records import FlowAnswer, FlowCall, FlowProgram, FlowRun

KEY = "snapshot/scout/1"


@pytest.fixture
def space(here: Place) -> Iterator[clia.Space]:
    with here.open() as made:
        yield with_agents(made, "scout", counting=COUNTING, chance=CHANCE, parts=PARTS, product=PRODUCT)


def counted(space: clia.Space, upto: int, of: int = 20) -> clia.Session:
    made = space.start("scout", "counting", of)
    for value in range(upto):
        made = space.resume("scout", value)
    return made


def snapshot(space: clia.Space) -> list[Any] | None:
    with space.core.store.reading() as view:
        found = view.values.get(KEY)
    return None if found is None else list(found.value)


def put(space: clia.Space, value: Any) -> None:
    with space.core.store.writing() as transaction:
        transaction.values.put(KEY, value)


# Dumps


def test_a_dump_is_written_now_and_then_and_saves_the_way(space: clia.Space) -> None:
    spy: Spy = use_engine(space, Spy)
    space.start("scout", "counting", 40)
    spy.counts()
    for value in range(30):
        forget_runs(space)
        space.resume("scout", value)
        started, loaded, answered = spy.counts()
        assert started + loaded == 1
        assert started == (value < SNAPSHOT_INTERVAL)
        assert 1 <= answered <= SNAPSHOT_INTERVAL, "so many answers are given again at most, however long the session is"
        found = snapshot(space)
        assert (found[0] if found else 0) == (value + 1) // SNAPSHOT_INTERVAL * SNAPSHOT_INTERVAL


def test_reading_a_session_runs_nothing(space: clia.Space) -> None:
    counted(space, 6)
    spy: Spy = use_engine(space, Spy)
    assert space.session("scout").resumes == [0, 1, 2, 3, 4, 5]
    assert space.pending()[0].payload == {"turn": 6, "total": 15}
    space.sessions()
    space.journal("scout")
    space.cancel("scout")
    assert spy.counts() == (0, 0, 0)


def test_without_a_dump_the_run_is_replayed(space: clia.Space) -> None:
    counted(space, 6)
    with space.core.store.writing() as transaction:
        assert transaction.values.delete(KEY)
    spy: Spy = use_engine(space, Spy)
    assert space.resume("scout", 6).pending[0].payload == {"turn": 7, "total": 21}
    assert spy.counts() == (1, 0, 7)


def flipped(data: str, position: int, bit: int) -> str:
    raw = bytearray(base64.b64decode(data))
    raw[position] ^= 1 << bit
    return base64.b64encode(bytes(raw)).decode("ascii")


def sealed(made: list[Any]) -> list[Any]:
    """A snapshot with a digest that holds, so that only what is below it can find out."""
    made[3] = hashlib.sha256(made[4].encode("ascii")).hexdigest()
    return made


DAMAGES: dict[str, Callable[[list[Any]], Any]] = {
    "first bit": lambda made: [*made[:4], flipped(made[4], 0, 0), made[5]],
    "middle bit": lambda made: [*made[:4], flipped(made[4], len(base64.b64decode(made[4])) // 2, 3), made[5]],
    "last bit": lambda made: [*made[:4], flipped(made[4], -1, 7), made[5]],
    "first bit, digest right": lambda made: sealed([*made[:4], flipped(made[4], 0, 0), made[5]]),
    "middle bit, digest right": lambda made: sealed([*made[:4], flipped(made[4], len(base64.b64decode(made[4])) // 2, 3), made[5]]),
    "last bit, digest right": lambda made: sealed([*made[:4], flipped(made[4], -1, 7), made[5]]),
    "cut": lambda made: sealed([*made[:4], made[4][: len(made[4]) // 8 * 4], made[5]]),
    "empty": lambda made: sealed([*made[:4], "", made[5]]),
    "not base64": lambda made: sealed([*made[:4], "!?", made[5]]),
    "not text": lambda made: [*made[:4], 7, made[5]],
    "not ascii": lambda made: [*made[:4], "é", made[5]],
    "no digest": lambda made: [*made[:3], "", *made[4:]],
    "another engine": lambda made: [made[0], "pydantic-monty 0.0.1 rules 0", *made[2:]],
    "another flow": lambda made: [*made[:2], "0" * 40, *made[3:]],
    "earlier": lambda made: [made[0] - 1, *made[1:]],
    "later": lambda made: [made[0] + 1, *made[1:]],
    "far later": lambda made: [made[0] + 100, *made[1:]],
    "before the beginning": lambda made: [-3, *made[1:]],
    "a count that is none": lambda made: ["x", *made[1:]],
    "another call": lambda made: [*made[:5], [[9, *made[5][0][1:]]]],
    "another payload": lambda made: [*made[:5], [[*made[5][0][:3], {"turn": 99}, made[5][0][4]]]],
    "no calls": lambda made: [*made[:5], []],
    "calls that are none": lambda made: [*made[:5], [[1]]],
    "calls of the wrong type": lambda made: [*made[:5], 3],
    "too short": lambda made: made[:3],
    "no list": lambda made: {"made": made},
    "null": lambda made: None,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_dump_that_is_not_what_was_written_is_not_used_and_the_session_goes_on_the_same(space: clia.Space, damage: str) -> None:
    counted(space, 6)
    before = space.journal("scout")
    found = snapshot(space)
    assert found is not None
    assert found[0] == SNAPSHOT_INTERVAL
    put(space, DAMAGES[damage](found))
    spy: Spy = use_engine(space, Spy)
    made = space.resume("scout", 6)
    assert made.status == "suspended"
    assert made.pending[0].payload == {"turn": 7, "total": 21}
    assert space.journal("scout")[: len(before)] == before
    assert spy.started == 1, "replayed"
    for value in range(7, 20):
        made = space.resume("scout", value)
    assert made.result == sum(range(20))


@pytest.mark.parametrize(
    "damage", ["middle bit", "middle bit, digest right", "another engine", "later", "calls that are none", "null"]
)
def test_a_fork_does_not_spread_a_damaged_dump(space: clia.Space, damage: str) -> None:
    counted(space, 6)
    put(space, DAMAGES[damage](snapshot(space) or []))
    forked = space.fork("scout", "other")
    assert asked(forked) == asked(space.session("scout"))
    assert forked.resumes == [0, 1, 2, 3, 4, 5]
    assert space.resume("other", 6).pending[0].payload == {"turn": 7, "total": 21}
    assert space.resume("other", 7).resumes == [*range(8)]


def test_a_fork_by_a_good_dump_runs_nothing(space: clia.Space) -> None:
    counted(space, 6)
    spy: Spy = use_engine(space, Spy)
    space.fork("scout", "other")
    assert spy.counts() == (0, 0, 0)
    space.resume("other", 6)
    assert spy.counts() == (0, 1, 3), "the copied dump and the two resumes after it"


def test_another_version_of_the_engine_replays_and_goes_on_with_dumps_of_its_own(space: clia.Space) -> None:
    counted(space, 5)
    spy: Spy = use_engine(space, lambda engine: Spy(engine, version="pydantic-monty 99 rules 1"))
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


def test_dumps_of_several_requests_at_once_wait_for_the_same_ones(here: Place, space: clia.Space) -> None:
    space.start("scout", "parts", 9)
    for number in (9, 2, 5, 1, 7):
        space.resume("scout", number, f"1.{number}")
    with here.open() as other:
        spy: Spy = use_engine(other, Spy)
        for number in (3, 8, 4, 6):
            other.resume("scout", number, f"1.{number}")
        assert spy.started == 0
        assert other.resume("scout", "end").result == {"parts": [*range(1, 10)], "last": "end"}


def test_the_dump_goes_with_the_session(space: clia.Space) -> None:
    counted(space, 19)
    assert snapshot(space) is not None
    space.resume("scout", 0)
    assert snapshot(space) is None
    space.start("scout", "counting", 9)
    for _ in range(5):
        space.resume("scout", 0)
    space.cancel("scout")
    with space.core.store.reading() as view:
        assert view.values.scan("snapshot/") == []
        assert view.values.scan("live/") == []


# Runs that are held


def test_a_handle_that_goes_on_with_the_same_session_neither_replays_nor_loads(space: clia.Space) -> None:
    spy: Spy = use_engine(space, Spy)
    space.define("counting", SUSPENDS_OFTEN)
    counted(space, 1)
    spy.counts()
    for value in range(1, 19):
        space.resume("scout", value)
        assert spy.counts() == (0, 0, 1)
    assert space.decide("scout", 19).session.result == sum(range(20))
    assert spy.counts() == (0, 0, 1)


def test_a_held_run_is_let_go_where_another_handle_went_on(here: Place, space: clia.Space) -> None:
    counted(space, 3)
    with here.open() as other:
        for value in range(3, 7):
            other.resume("scout", value)
        assert space.resume("scout", 7).pending[0].payload == {"turn": 8, "total": 28}
        assert other.resume("scout", 8).pending[0].payload == {"turn": 9, "total": 36}
        assert space.resume("scout", 9).resumes == [*range(10)]


def test_a_held_run_is_not_taken_for_that_of_another_session(here: Place, space: clia.Space) -> None:
    """The same agent, position and question, and yet another run."""
    with_agents(
        space, drifting="import random\n\ndef main(input):\n    request('a')\n    request('b')\n    return random.random()\n"
    )
    space.start("scout", "drifting")
    space.resume("scout", 1)
    with here.open() as other:
        other.cancel("scout")
        other.start("scout", "drifting")
        assert other.session("scout").id == "2"
        other.resume("scout", 1)
        twin = other.fork("scout", "twin")
        assert twin.status == "suspended"
    result = space.resume("scout", 2, "2.2").result
    assert space.resume("twin", 2).result == result


def test_an_answer_that_was_not_written_down_leaves_no_trace_in_the_run(here: Place, space: clia.Space) -> None:
    made: list[str] = []

    def reached(step: str) -> None:
        if step in made:
            made.clear()
            raise errors.StoreError("the disk is full")

    with here.open(reached=reached) as flaky:
        flaky.define("counting", SUSPENDS_OFTEN)
        flaky.start("scout", "counting", 9)
        flaky.resume("scout", 1)
        for verb, step in ((flaky.resume, "engine-ran"), (flaky.decide, "objects-written"), (flaky.decide, "intent-recorded")):
            made.append(step)
            refused("store-error", lambda verb=verb: verb("scout", 100))  # type: ignore[misc]
            assert not made
        assert flaky.resume("scout", 2).pending[0].payload == {"turn": 2, "total": 3}
        assert flaky.session("scout").resumes == [1, 2]
        assert flaky.verify().clean


def test_the_store_refuses_a_step_from_where_the_session_no_longer_is(here: Place) -> None:
    """The agent's lock comes first; this holds where someone writes without it."""
    meddles: list[clia.Space] = []

    def reached(step: str) -> None:
        if step == "engine-ran" and meddles:
            with meddles.pop().core.store.writing() as transaction:
                transaction.streams.append("session/scout/1", [{"event": "resumed", "resume": [1, "", 0]}])

    with here.open(reached=reached) as space:
        with_agents(space, "scout", product=PRODUCT)
        space.start("scout", "product")
        meddles.append(space)
        assert isinstance(refused("stale-position", lambda: space.resume("scout", 5)), errors.Conflict)
        assert [each["event"] for each in space.journal("scout")] == ["started", "resumed"]
        assert space.session("scout").pending[0].id == "1.1"


def test_threads_that_share_a_handle_do_not_take_each_others_runs(space: clia.Space) -> None:
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


class NoDumps(Spy):
    """An engine that cannot dump."""

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        return _NoDump(self._engine.start(program, patient=patient), self)


class _NoDump(SpiedRun):
    def dump(self) -> bytes:
        raise errors.EngineError("cannot dump")


def test_an_engine_that_cannot_dump_is_slow_and_right(space: clia.Space) -> None:
    spy: Spy = use_engine(space, NoDumps)
    made = counted(space, 12, 12)
    assert made.result == sum(range(12))
    assert spy.loaded == 0


class Dying(Spy):
    """An engine whose workers die a number of times."""

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

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        self.die()
        return DyingRun(super().start(program, patient=patient), self)


class DyingRun(SpiedRun):
    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        if isinstance(self._spy, Dying) and self._spy.dies_of_answers:
            self._spy.deaths = 1
            self._spy.die()
        return super().answer(number, answer)


def test_a_worker_that_dies_is_replaced_and_the_step_is_taken_once(space: clia.Space) -> None:
    dying: Dying = use_engine(space, lambda engine: Dying(engine, 1))
    space.start("scout", "product")
    dying.deaths = 1
    space.resume("scout", 5)
    assert [each["event"] for each in space.journal("scout")] == ["started", "resumed"]
    assert space.resume("scout", 6).result == 30


def test_a_flow_that_three_workers_in_a_row_died_of_has_failed(here: Place, space: clia.Space) -> None:
    dying: Dying = use_engine(space, lambda engine: Dying(engine, 3))
    made = space.start("scout", "product")
    assert made.status == "failed"
    assert made.failure is not None
    assert made.failure["reason"] == "limit"
    assert "3 workers in a row died of it" in made.failure["message"]
    space.start("scout", "product")
    dying.dies_of_answers = True
    assert space.resume("scout", 5).status == "failed"
    assert ends(here.root, "scout") == [("1", "failed"), ("2", "failed")]


def test_workers_that_are_lost_on_the_way_to_an_answer_fail_nothing(space: clia.Space) -> None:
    dying: Dying = use_engine(space, lambda engine: Dying(engine, 0))
    space.start("scout", "product")
    forget_runs(space)
    dying.deaths = 9
    refused("engine-lost", lambda: space.resume("scout", 5))
    assert space.session("scout").status == "suspended"
    dying.deaths = 0
    assert space.resume("scout", 5).pending


class Slow(Spy):
    """An engine on a busy machine: unless it is patient, a limit strikes at some answer of a replay."""

    def __init__(self, engine: Any, strikes_at: int, *, patient: bool) -> None:
        super().__init__(engine)
        self._strikes_at = strikes_at
        self._patient = patient

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        run = super().start(program, patient=patient)
        return run if patient and self._patient else SlowRun(run, self, self._strikes_at)

    def load(self, program: FlowProgram, dump: bytes, pending: Iterable[FlowCall]) -> FlowRun:
        return SlowRun(super().load(program, dump, pending), self, self._strikes_at)


class SlowRun(SpiedRun):
    def __init__(self, run: FlowRun, spy: Spy, strikes_at: int) -> None:
        super().__init__(run, spy)
        self._left = strikes_at

    @property
    def turn(self) -> Turn:
        if self._left:
            return self._run.turn
        return Turn(failure=Failure("limit", "time: a turn ran longer than 5 seconds", None))

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        self._left -= 1
        super().answer(number, answer)
        return self.turn


@pytest.mark.parametrize("resumes", [2, 6])
def test_a_limit_that_strikes_in_a_replay_is_the_machines_fault_and_patience_helps(space: clia.Space, resumes: int) -> None:
    counted(space, resumes)
    use_engine(space, lambda engine: Slow(engine, 1, patient=True))
    assert space.resume("scout", 9).resumes == [*range(resumes), 9]


@pytest.mark.parametrize("strikes_at", [0, 1])
def test_where_patience_does_not_help_nothing_is_changed(space: clia.Space, strikes_at: int) -> None:
    space.define("counting", SUSPENDS_OFTEN)
    counted(space, 3)
    before = space.journal("scout")
    use_engine(space, lambda engine: Slow(engine, strikes_at, patient=False))
    refused("replay-too-slow", lambda: space.resume("scout", 3))
    refused("replay-too-slow", lambda: space.decide("scout", 3))
    assert space.journal("scout") == before
    assert space.session("scout").status == "suspended"


class Broken(Spy):
    """An engine that cannot run anything now."""

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        raise errors.EngineError("no process to run a flow in", code="engine-unavailable")


def test_an_engine_that_cannot_be_had_changes_nothing(space: clia.Space) -> None:
    counted(space, 2)
    before = space.journal("scout")
    use_engine(space, Broken)
    refused("engine-unavailable", lambda: space.resume("scout", 2))
    refused("engine-unavailable", lambda: with_agents(space, "other").start("other", "product"))
    assert space.journal("scout") == before
    assert space.sessions("other") == []


# Divergence


def test_a_replay_that_asks_for_something_else_is_divergence_and_nothing_is_lost(here: Place, space: clia.Space) -> None:
    counted(space, 2)
    at = space.commit("scout", "finding", changes={"a": b"1"})
    space.resume("scout", 2)
    before, head = space.journal("scout"), space.head("scout")
    use_engine(space, lambda engine: Liar(engine, after=1))
    with pytest.raises(errors.Nondeterminism) as caught:
        space.resume("scout", 3)
    assert caught.value.code == "nondeterminism"
    assert caught.value.fields["position"] == 1
    assert "call 2" in caught.value.fields["recorded"]
    assert "call 2 (number" in caught.value.fields["actual"]
    made = space.session("scout")
    assert (made.status, made.pending, made.resumes) == ("diverged", (), [0, 1, 2])
    assert made.failure is not None
    assert made.failure["reason"] == "diverged"
    assert {key: made.failure[key] for key in ("position", "recorded", "actual")} == caught.value.fields
    assert space.journal("scout")[:-1] == before, "all that was recorded is there, and then the end"
    assert space.journal("scout")[-1]["status"] == "diverged"
    assert ends(here.root, "scout") == [("1", "diverged")]
    assert events(here.root, "scout")[0]["reason"] == made.failure["message"]
    assert space.head("scout") == head
    assert space.pending() == []
    assert refused("stale-request", lambda: space.resume("scout", 3, "1.4")).fields["status"] == "diverged"
    assert "diverged" in space.trace_pending("scout")[-1]["text"]
    with here.open() as honest:
        forked = honest.fork("scout", "again", at)
        assert asked(forked) == [("3", "number", {"turn": 2, "total": 1}, 4)]
        assert honest.resume("again", 5).pending[0].payload == {"turn": 3, "total": 6}
        assert honest.start("scout", "product").id == "2"
        assert honest.verify().clean


def test_a_last_request_that_differs_is_divergence_too(space: clia.Space) -> None:
    counted(space, 2)
    use_engine(space, lambda engine: Liar(engine, after=2))
    with pytest.raises(errors.Nondeterminism) as caught:
        space.resume("scout", 3)
    assert caught.value.fields["position"] == 2
    assert space.session("scout").status == "diverged"


def test_a_decision_on_a_run_that_diverges_leaves_no_commit(here: Place, space: clia.Space) -> None:
    space.define("counting", SUSPENDS_OFTEN)
    counted(space, 2)
    head = space.head("scout")
    use_engine(space, lambda engine: Liar(engine, after=1))
    with pytest.raises(errors.Nondeterminism):
        space.decide("scout", 3, "because")
    assert space.head("scout") == head
    assert space.session("scout").status == "diverged"
    assert ends(here.root, "scout") == [("1", "diverged")]
    assert space.verify().clean


def test_a_fork_from_a_commit_that_diverges_makes_no_agent_and_ends_no_session(space: clia.Space) -> None:
    counted(space, 3)
    at = space.commit("scout", "finding", changes={"a": b"1"})
    use_engine(space, lambda engine: Liar(engine, after=1))
    with pytest.raises(errors.Nondeterminism):
        space.fork("scout", "again", at)
    assert space.agents() == ["scout"]
    assert space.session("scout").status == "suspended"


class Ending(Spy):
    """An engine whose runs end where the recorded ones went on."""

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        return super().start(program._replace(source="def main(input):\n    return 'early'\n"), patient=patient)


class Changed(Spy):
    """An engine that runs another source: what a flow's text would do if its id did not name it."""

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        return super().start(
            program._replace(source=program.source.replace("turn in", "turn in reversed").replace("range(input)", "(range(input))"))
        )


@pytest.mark.parametrize("engine", [Ending, Changed])
def test_a_replay_that_ends_early_or_runs_another_way_is_divergence(space: clia.Space, engine: type[Spy]) -> None:
    counted(space, 2)
    use_engine(space, engine)
    with pytest.raises(errors.Nondeterminism):
        space.resume("scout", 3)
    assert space.session("scout").status == "diverged"
    assert space.session("scout").resumes == [0, 1]


def test_a_checkpoint_from_which_the_run_ends_is_no_point_to_fork_from(space: clia.Space) -> None:
    space.start("scout", "counting", 5)
    at = space.commit("scout", "finding", changes={"a": b"1"})
    use_engine(space, Ending)
    error = refused("nondeterminism", lambda: space.fork("scout", "other", at))
    assert error.fields["actual"] == "an end"
    assert space.agents() == ["scout"]


def test_an_event_that_cannot_be_read_is_said_with_its_place_and_the_checkpoints_still_work(space: clia.Space) -> None:
    counted(space, 3)
    at = space.commit("scout", "finding", changes={"a": b"1"})
    with space.core.store.writing() as transaction:
        transaction.streams.replace("session/scout/1", 2, {"event": "resumed"})
        transaction.values.delete(KEY)
    forget_runs(space)
    error = refused("corrupt-journal", lambda: space.resume("scout", 3))
    assert error.fields == {"stream": "session/scout/1", "position": 2}
    assert space.fork("scout", "again", at).resumes == [0, 1, 2]
    with space.core.store.writing() as transaction:
        transaction.streams.replace("session/scout/1", 1, {"event": "nonsense"})
    assert refused("corrupt-journal", lambda: space.resume("scout", 3)).fields["position"] == 1


# Chance and time


def test_the_same_run_comes_to_the_same_in_any_process_and_another_session_does_not(here: Place, space: clia.Space) -> None:
    first = space.start("scout", "chance", {"turns": 1})
    space.fork("scout", "other")
    space.resume("scout", 1, "1.1")
    with here.open() as elsewhere:
        elsewhere.resume("other", 1, "1.1")
        (one,), (two,) = space.session("scout").pending, elsewhere.session("other").pending
        assert one.payload == two.payload
        assert elsewhere.resume("other", 2).pending[0].payload == space.resume("scout", 2).pending[0].payload
        assert elsewhere.decide("other", 3).session.result == space.decide("scout", 3).session.result
    assert first.pending[1].payload["now"] == first.started_at.removesuffix("Z"), "the clock of a run stands at its start"
    again = space.start("scout", "chance", {"turns": 1})
    assert again.pending[0].payload != first.pending[0].payload


def test_a_flow_sees_the_time_zone_of_its_session(space: clia.Space) -> None:
    made = space.start("scout", "chance", {"turns": 1}, timezone="Asia/Tokyo")
    assert made.started_at == "2026-05-01T00:00:" + made.started_at[17:]
    assert made.pending[1].payload["now"].startswith("2026-05-01T09:00:")
    space.cancel("scout")
    refused("unknown-timezone", lambda: space.start("scout", "chance", {"turns": 1}, timezone="Mars/Crater"))
    for bad in (3, None, "a\0b"):
        with pytest.raises(errors.InvalidInput):
            space.start("scout", "chance", {"turns": 1}, timezone=bad)  # type: ignore[arg-type]
    assert len(space.sessions()) == 1
