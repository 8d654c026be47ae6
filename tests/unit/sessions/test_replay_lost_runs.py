"""Dumps that do not fit, workers that are lost, and memory limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia import errors
from clia.engine.records import INHERITED, LOST, Turn
from clia.sessions.replay import SNAPSHOT_INTERVAL
from clia.testing import components
from support.session_flows import SUSPENDS
from support.session_spaces import (
    EngineSpy,
    SessionSpace,
    SpiedRun,
    Tally,
    count_up,
    diverge,
    ends,
    put_value,
    stored,
    use_engine,
    with_agents,
)
from support.spaces import refused

if TYPE_CHECKING:
    from clia.engine.records import FlowAnswer, FlowProgram, FlowRun


def test_a_dump_from_before_a_session_was_reopened_is_not_tried(place: SessionSpace, space: clia.Space) -> None:
    count_up(space, SNAPSHOT_INTERVAL + 2)
    diverge(space)
    with place.open() as honest:
        honest.doctor(repair=True)
        put_value(
            honest, "snapshot/scout/1", [SNAPSHOT_INTERVAL, components(honest).session_backend.engine.version, "", "", "", []]
        )
        spy: EngineSpy = use_engine(honest, EngineSpy)
        assert honest.resume("scout", 6).resumes == [*range(SNAPSHOT_INTERVAL + 2), 6]
        assert spy.loaded == 0


def test_a_loaded_dump_with_another_pending_request_is_released(space: clia.Space) -> None:
    count_up(space, SNAPSHOT_INTERVAL)
    dump = stored(space, "snapshot/scout/1")
    put_value(space, "snapshot/scout/1", [*dump[:5], [[*dump[5][0][:3], {"turn": 99}, dump[5][0][4]]]])
    tally: Tally = use_engine(space, Tally)
    space.resume("scout", 4)
    assert (tally.loaded, tally.started, tally.open) == (1, 1, 1)


def test_a_dump_with_a_wrong_number_of_resumes_is_not_used_even_if_it_would_load(space: clia.Space) -> None:
    count_up(space, SNAPSHOT_INTERVAL)
    dump = stored(space, "snapshot/scout/1")
    put_value(space, "snapshot/scout/1", [dump[0] + 100, *dump[1:]])
    spy: EngineSpy = use_engine(space, EngineSpy)
    assert space.resume("scout", 4).pending[0].payload == {"turn": 5, "total": 10}
    assert (spy.started, spy.loaded) == (1, 0)


def lost_worker_error(code: str = LOST) -> errors.EngineError:
    return errors.EngineError("the process that ran the flow was lost", code=code)


class LostInDump(EngineSpy):
    """An engine whose workers die while they write a dump."""

    late = 0

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        return LostInDumpRun(super().start(program, patience=patience), self)


class LostInDumpRun(SpiedRun):
    _spy: LostInDump
    _dead = False

    def dump(self) -> bytes:
        self._dead = True
        raise lost_worker_error()

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        if self._dead:
            self._spy.late += 1
            raise lost_worker_error()
        return super().answer(number, answer)


def test_a_worker_that_dies_while_writing_a_dump_is_not_kept(space: clia.Space) -> None:
    engine: LostInDump = use_engine(space, LostInDump)
    assert count_up(space, 9, 9).result == sum(range(9))
    assert engine.late == 0
    assert stored(space, "snapshot/scout/1") is None


class LosesAnswers(EngineSpy):
    """An engine that loses its worker at the next answers to one call, with this error code."""

    remaining_losses = 0
    call = 1
    code = LOST

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        return LosesAnswersRun(super().start(program, patience=patience), self)


class LosesAnswersRun(SpiedRun):
    _spy: LosesAnswers

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        if self._spy.remaining_losses and number == self._spy.call:
            self._spy.remaining_losses -= 1
            raise lost_worker_error(self._spy.code)
        return super().answer(number, answer)


@pytest.mark.parametrize("code", [LOST, INHERITED])
@pytest.mark.parametrize("verb", ["resume", "decide"])
def test_two_losses_in_a_row_are_retried_and_a_third_fails_the_session(place: SessionSpace, code: str, verb: str) -> None:
    with place.open() as space:
        with_agents(space, "scout", product=SUSPENDS)
        engine: LosesAnswers = use_engine(space, LosesAnswers)
        engine.code = code
        space.start("scout", "product")
        engine.remaining_losses = 2
        getattr(space, verb)("scout", 5)
        assert space.session("scout").resumes == [5]
        engine.remaining_losses, engine.call = 3, 2
        getattr(space, verb)("scout", 6)
        session = space.session("scout")
        assert (session.status, session.resumes) == ("failed", [5, 6])
        assert session.failure is not None
        assert session.failure["message"].startswith("engine: 3 workers in a row died of it")
        assert ends(place.root, "scout") == [("1", "failed")]


class LosesStarts(EngineSpy):
    remaining_losses = 0

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        if self.remaining_losses:
            self.remaining_losses -= 1
            raise lost_worker_error()
        return super().start(program, patience=patience)


def test_lost_workers_during_a_replay_change_nothing(space: clia.Space) -> None:
    space.start("scout", "talk")
    before, head = space.sessions.journal("scout"), space.head("scout")
    engine: LosesStarts = use_engine(space, LosesStarts)
    engine.remaining_losses = 100
    refused("engine-lost", lambda: space.decide("scout", "yes"))
    assert (space.sessions.journal("scout"), space.head("scout"), space.session("scout").status) == (before, head, "suspended")
    engine.remaining_losses = 3
    assert space.decide("scout", "yes").session.resumes == ["yes"]


MEMORY = "def main(input):\n    request('x', 0)\n    x = ('a,' * 400000).split(',')\n    return len(x)\n"


def test_a_worker_ended_by_the_memory_limit_is_a_limit_and_not_an_exception_of_the_flow(place: SessionSpace) -> None:
    with place.configured("[flows]\nmemory_mb = 8\n").open() as space:
        with_agents(space, "scout", hungry=MEMORY)
        space.start("scout", "hungry")
        session = space.resume("scout", 1)
        assert session.failure is not None
        assert (session.status, session.failure["reason"]) == ("failed", "limit")
        assert session.failure["message"] == "memory: it took more than 8 MiB"


def test_a_replay_that_a_lower_limit_stops_does_not_fail_the_session(place: SessionSpace) -> None:
    """The flow ran within the old limit, so only the replay is refused, and the session stays suspended."""
    source = MEMORY.replace("return len(x)", "n = len(x)\n    x = None\n    return request('x', n)")
    with place.configured("[flows]\nmemory_mb = 256\n").open() as space:
        with_agents(space, "scout", hungry=source)
        space.start("scout", "hungry")
        assert space.resume("scout", 1).status == "suspended"
    with place.configured("[flows]\nmemory_mb = 8\n").open() as space:
        refused("replay-too-slow", lambda: space.resume("scout", 2))
        assert space.session("scout").status == "suspended"
