"""Damaged rows of sessions in the store, and their repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from support.session_spaces import (
    EngineSpy,
    SessionSpace,
    checkpoint,
    commit_change,
    count_up,
    forget_runs,
    put_value,
    stored,
    use_engine,
    with_agents,
)
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.engine.records import FlowProgram, FlowRun


_CALL = [1, "number", None, {}, 4, "2026-05-01T00:00:00.000Z"]


ROWS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "something else": lambda _: {"x": 1},
    "a list": lambda _: [],
    "a number": lambda _: 5,
    "nothing": lambda _: None,
    "a text": lambda _: "s",
    "pending is a number": lambda row: {**row, "pending": 5},
    "pending is missing": lambda row: {key: value for key, value in row.items() if key != "pending"},
    "a call that is too short": lambda row: {**row, "pending": [[1]]},
    "a position that is a text": lambda row: {**row, "end": "9"},
    "a count that is nothing": lambda row: {**row, "done": None},
    "a count of dumps that is a text": lambda row: {**row, "kept": "z"},
    "a name that is a number": lambda row: {**row, "name": 5},
    "a call's number that is a text": lambda row: {**row, "pending": [["1", *_CALL[1:]]]},
    "a call's kind that is a number": lambda row: {**row, "pending": [[1, 5, *_CALL[2:]]]},
    "a call's tag that is a list": lambda row: {**row, "pending": [[*_CALL[:2], [], *_CALL[3:]]]},
    "a call's time that is a number": lambda row: {**row, "pending": [[*_CALL[:5], 7]]},
}


@pytest.mark.parametrize("name", ROWS)
def test_a_damaged_row_is_reported_hides_no_other_session_and_can_be_rebuilt(space: clia.Space, name: str) -> None:
    with_agents(space, "other")
    count_up(space, 5)
    count_up(space, 1, agent="other")
    forget_runs(space)
    put_value(space, "live/scout/1", ROWS[name](stored(space, "live/scout/1")))
    assert [request.agent for request in space.pending()] == ["other"]
    assert [session.agent for session in space.sessions()] == ["other"]
    assert space.maintain(archive_idle_days=0, dry_run=True).archived == ()
    for call in (
        lambda: space.session("scout"),
        lambda: space.resume("scout", 5),
        lambda: space.decide("scout", 5),
        lambda: space.cancel("scout"),
        lambda: space.start("scout", "product"),
        lambda: space.fork("scout", "twin"),
        lambda: commit_change(space),
    ):
        error = refused("damaged-row", call)
        assert error.fields == {"agent": "scout", "session": "1"}
    assert [(finding.code, finding.repaired) for finding in space.doctor()] == [("row-differs", False)]
    assert [(finding.code, finding.repaired) for finding in space.doctor(repair=True)] == [("row-differs", True)]
    assert space.doctor() == []
    assert space.resume("scout", 5).resumes == [*range(6)]
    assert space.fork("scout", "twin", commit_change(space)).resumes == [*range(6)]


@pytest.mark.parametrize("name", ROWS)
def test_a_damaged_row_of_a_past_session_hides_no_other_session_and_can_be_rebuilt(space: clia.Space, name: str) -> None:
    count_up(space, 2, 2)
    before = space.session("scout").to_json()
    space.start("scout", "product")
    put_value(space, "ended/scout/1", ROWS[name](stored(space, "ended/scout/1")))
    assert [session.id for session in space.sessions()] == ["2"]
    refused("damaged-row", lambda: space.session("scout", "1"))
    refused("damaged-row", lambda: space.resume("scout", 5, "1.1"))
    assert [(finding.session, finding.code, finding.repaired) for finding in space.doctor(repair=True)] == [
        ("1", "row-differs", True)
    ]
    assert space.session("scout", "1").to_json() == before
    assert space.session("scout").id == "2", "session numbers are not reused"
    assert space.doctor() == []


@pytest.mark.parametrize("counts", [5, [], {}, {"last": "x"}, {"last": None, "asks": 1}, {"last": 1}, "1", None])
@pytest.mark.parametrize("live", [True, False])
def test_damaged_counts_allow_no_second_live_session_and_can_be_repaired(space: clia.Space, counts: Any, live: bool) -> None:
    space.start("scout", "product")
    space.cancel("scout")
    count_up(space, 2)
    commit = commit_change(space)
    if not live:
        space.cancel("scout")
    put_value(space, "sessions/scout", counts)
    if live:
        assert space.session("scout").id == "2"
        assert refused("session-live", lambda: space.start("scout", "product")).fields["session"] == "2"
        assert space.resume("scout", 2).resumes == [0, 1, 2]
        assert space.fork("scout", "other", commit_change(space)).resumes == [0, 1, 2], "a checkpoint is still made"
    assert [(finding.code, finding.session, finding.repaired) for finding in space.doctor()] == [("row-differs", "2", False)]
    assert [(finding.code, finding.session, finding.repaired) for finding in space.doctor(repair=True)] == [
        ("row-differs", "2", True)
    ]
    assert space.doctor() == []
    assert space.session("scout").id == "2"
    if not live:
        assert space.start("scout", "product").id == "3", "no number is used twice"
    assert space.fork("scout", "twin", commit).resumes == [0, 1]


def test_damaged_counts_of_questions_can_be_repaired(space: clia.Space) -> None:
    for _ in range(2):
        space.ask("scout", {"question": "Go?"})
    put_value(space, "sessions/scout", 5)
    assert [(finding.session, finding.repaired) for finding in space.doctor(repair=True)] == [("ask-2", True)]
    assert space.ask("scout", {"question": "Go?"}).id == "ask-3.1"


POINTERS: tuple[Any, ...] = (
    *(5, [1], {}, None, "text", "12", ["1", []], ["1", 5], ["1", [5]], ["1", [[0, "zz", 0]]], ["1", [[0, None, 2]]]),
    *(["1", [["0", "0" * 40, 2]]], ["1", [[0, "0" * 40, "x"]]], ["1", [[0, "0" * 40]]], ["1", [[0, "0" * 40, 2]]]),
    ["1", "0" * 40, 2, 0],  # as earlier versions wrote it
)


@pytest.mark.parametrize("pointer", POINTERS)
def test_a_damaged_pointer_to_the_last_checkpoint_makes_the_next_one_complete(
    place: SessionSpace, space: clia.Space, pointer: Any
) -> None:
    count_up(space, 2)
    commit_change(space)
    put_value(space, "checkpoint/scout", pointer)
    space.resume("scout", 2)
    commit = commit_change(space)
    assert [resume[2] for resume in checkpoint(place, commit)["resumes"]] == [0, 1, 2]
    assert space.fork("scout", "other", commit).resumes == [0, 1, 2]


@pytest.mark.parametrize("intent", [5, {}, [], None, {"agent": "scout", "verb": "commit", "point": 5}])
def test_a_damaged_intent_stops_its_agent_and_no_other(space: clia.Space, intent: Any) -> None:
    with_agents(space, "other")
    count_up(space, 1)
    count_up(space, 1, agent="other")
    put_value(space, "intent/scout", intent)
    for call in (lambda: space.resume("scout", 1), lambda: commit_change(space), lambda: space.cancel("scout")):
        assert isinstance(refused("store-corrupt", call), errors.StoreError)
    assert [request.agent for request in space.pending()] == ["scout", "other"]
    assert space.resume("other", 1).resumes == [0, 1]


def test_a_repair_does_not_overwrite_a_session_that_was_resumed_meanwhile(place: SessionSpace, space: clia.Space) -> None:
    count_up(space, 2)
    put_value(space, "live/scout/1", {**stored(space, "live/scout/1"), "name": "another"})
    pending_resume = [True]

    class ResumingEngine(EngineSpy):
        def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
            if pending_resume:
                pending_resume.clear()
                with place.open() as other:
                    other.resume("scout", 2)
            return super().start(program, patience=patience)

    use_engine(space, ResumingEngine)
    assert [(finding.code, finding.repaired) for finding in space.doctor(repair=True)] == [("row-differs", False)]
    assert not pending_resume
    assert space.pending()[0].id == "1.4"
    assert space.resume("scout", 3).resumes == [0, 1, 2, 3]
