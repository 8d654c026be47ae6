"""Runs that a process keeps between two answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia import errors
from clia.engine.records import Turn
from clia.sessions.records import SessionRow
from clia.sessions.replay import KEPT_RUNS_MAX, SNAPSHOT_INTERVAL, KeptRuns, RestoredRun, RunKey
from support.session_flows import PRODUCT
from support.session_spaces import EngineSpy, SessionSpace, Tally, count_up, forget_runs, use_engine, with_agents

if TYPE_CHECKING:
    from clia.engine.records import FlowAnswer, FlowProgram, FlowRun


def test_any_number_of_handles_in_a_process_can_resume_a_session(place: SessionSpace, space: clia.Space) -> None:
    handles = [place.open() for _ in range(70)]
    try:
        space.start("scout", "counting", 100)
        for value, handle in enumerate(handles):
            handle.resume("scout", value)
        assert space.resume("scout", 70).resumes == [*range(71)]
        space.define("another", PRODUCT)
        with_agents(handles[0], "other").start("other", "another")
    finally:
        for handle in handles:
            handle.close()


class FakeRun:
    """A run that only counts how often it was released."""

    turn = Turn()

    def __init__(self) -> None:
        self.released = 0

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        raise AssertionError((number, answer))

    def dump(self) -> bytes:
        raise AssertionError

    def __enter__(self) -> FakeRun:
        return self

    def __exit__(self, *exc: object) -> None:
        self.released += 1


def session_row(end: int = 5, since: str = "2026-01-01T00:00:00.000Z") -> SessionRow:
    return SessionRow("f" * 40, "adds", "suspended", "2026-01-01T00:00:00Z", end - 1, end, (), {1: since})


def shelf_of(*places: str) -> KeptRuns:
    shelf = KeptRuns()
    for place in places:
        shelf.join(place)
    return shelf


def test_a_kept_run_is_handed_out_once() -> None:
    shelf, run = shelf_of("here", "there"), FakeRun()
    shelf.put(RunKey("here", "scout", "1"), RestoredRun(run, session_row()))
    assert shelf.take(RunKey("there", "scout", "1"), session_row()) is None
    assert shelf.take(RunKey("here", "scout", "2"), session_row()) is None
    assert shelf.take(RunKey("here", "other", "1"), session_row()) is None
    assert shelf.take(RunKey("here", "scout", "1"), session_row()) == RestoredRun(run, session_row())
    assert shelf.take(RunKey("here", "scout", "1"), session_row()) is None
    assert run.released == 0, "it belongs to the caller"


@pytest.mark.parametrize("row", [session_row(end=6), session_row(since="2026-01-01T00:00:00.001Z")])
def test_a_kept_run_at_another_position_is_released(row: SessionRow) -> None:
    shelf, run, key = shelf_of("here"), FakeRun(), RunKey("here", "scout", "1")
    shelf.put(key, RestoredRun(run, session_row()))
    assert shelf.take(key, row) is None
    assert run.released == 1
    assert shelf.take(key, session_row()) is None


def test_a_run_replaces_the_earlier_run_of_its_session() -> None:
    shelf, first, second, key = shelf_of("here"), FakeRun(), FakeRun(), RunKey("here", "scout", "1")
    shelf.put(key, RestoredRun(first, session_row(5)))
    shelf.put(key, RestoredRun(second, session_row(6)))
    assert (first.released, second.released) == (1, 0)
    assert shelf.take(key, session_row(6)) == RestoredRun(second, session_row(6))


def test_the_oldest_run_is_released_first_if_too_many_are_kept() -> None:
    shelf, runs = shelf_of("here"), [FakeRun() for _ in range(KEPT_RUNS_MAX + 2)]
    for number, run in enumerate(runs):
        shelf.put(RunKey("here", "scout", str(number)), RestoredRun(run, session_row()))
    assert [run.released for run in runs] == [1, 1] + [0] * KEPT_RUNS_MAX
    assert KEPT_RUNS_MAX <= 4, "each occupies a worker of the engine"


def test_closing_the_last_handle_on_a_place_releases_its_runs() -> None:
    shelf, own_runs, other_run = shelf_of("here", "here", "there"), [FakeRun(), FakeRun()], FakeRun()
    for number, run in enumerate(own_runs):
        shelf.put(RunKey("here", "scout", str(number)), RestoredRun(run, session_row()))
    shelf.put(RunKey("there", "scout", "1"), RestoredRun(other_run, session_row()))
    shelf.leave("here")
    assert [run.released for run in own_runs] == [0, 0]
    shelf.leave("here")
    assert ([run.released for run in own_runs], other_run.released) == ([1, 1], 0)
    assert shelf.take(RunKey("there", "scout", "1"), session_row()) == RestoredRun(other_run, session_row())


def test_a_run_that_arrives_after_the_last_handle_closed_is_released() -> None:
    shelf, run = KeptRuns(), FakeRun()
    shelf.put(RunKey("here", "scout", "1"), RestoredRun(run, session_row()))
    assert run.released == 1


def test_a_new_handle_continues_the_run_of_another_handle(place: SessionSpace, space: clia.Space) -> None:
    count_up(space, 1)
    with place.open() as fresh:
        spy: EngineSpy = use_engine(fresh, EngineSpy, same_place=True)
        assert fresh.resume("scout", 1).resumes == [0, 1]
        assert (spy.started, spy.loaded) == (0, 0), "the kept run was used"
    assert space.resume("scout", 2).resumes == [0, 1, 2]


class LastDiffers(Tally):
    """An engine whose replay ends at another request than the session's pending one."""

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        return super().start(
            program._replace(
                source=program.source.replace('"total": total', f'"total": total if turn <= {SNAPSHOT_INTERVAL} else 0')
            ),
            patience=patience,
        )


def test_every_run_is_released_even_if_a_replay_ends_at_another_request(space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    tally: Tally = use_engine(space, Tally)
    for value in range(SNAPSHOT_INTERVAL + 1):
        forget_runs(space)
        space.resume("scout", value)
        assert tally.open == 1, "the kept run"
    forget_runs(space)
    assert tally.open == 0
    with space.local.store.writing() as transaction:
        transaction.values.delete("snapshot/scout/1")
    tally = use_engine(space, LastDiffers)
    with pytest.raises(errors.Nondeterminism):
        space.resume("scout", 0)
    assert (tally.begun, tally.open) == (1, 0)
