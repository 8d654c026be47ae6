from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from support import git
from support.session_flows import CAREFUL, COUNTING, PARTS, PRODUCT, QUESTION
from support.session_spaces import Place, Spy, forget_runs, use_engine, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.engine.records import FlowProgram, FlowRun


NOTES = "--ref=clia/session/scout"


TALK = """\
def main(input):
    first = request("human", {"question": "First?"})
    second = request("human", {"question": "Second?", "said": first})
    return [first, second]
"""


FLOWS = {"counting": COUNTING, "product": PRODUCT, "careful": CAREFUL, "parts": PARTS, "question": QUESTION, "talk": TALK}


_numbers = itertools.count()


@pytest.fixture
def space(here: Place) -> Iterator[clia.Space]:
    with here.open() as made:
        yield with_agents(made, "scout", **FLOWS)


def counted(space: clia.Space, upto: int, of: int = 20, agent: str = "scout") -> clia.Session:
    made = space.start(agent, "counting", of)
    for value in range(upto):
        made = space.resume(agent, value)
    return made


def commit(space: clia.Space, agent: str = "scout") -> str:
    return space.commit(agent, "finding", changes={"n": str(next(_numbers)).encode()})


def kept(space: clia.Space, key: str) -> Any:
    """What the store has under a key; None: nothing."""
    with space.core.store.reading() as view:
        found = view.values.get(key)
    return None if found is None else found.value


def put(space: clia.Space, key: str, value: Any) -> None:
    with space.core.store.writing() as transaction:
        transaction.values.put(key, value)


def note(here: Place, at: str) -> dict[str, Any]:
    return dict(json.loads(git("notes", NOTES, "show", at, cwd=here.root)))


_CALL = [1, "number", None, {}, 4, "2026-05-01T00:00:00.000Z"]


ROWS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "something else": lambda _: {"x": 1},
    "a list": lambda _: [],
    "a number": lambda _: 5,
    "nothing": lambda _: None,
    "a text": lambda _: "s",
    "pending is a number": lambda row: {**row, "pending": 5},
    "pending is not there": lambda row: {key: value for key, value in row.items() if key != "pending"},
    "a call that is none": lambda row: {**row, "pending": [[1]]},
    "a place that is a text": lambda row: {**row, "end": "9"},
    "a count that is nothing": lambda row: {**row, "done": None},
    "a dump's count that is a text": lambda row: {**row, "kept": "z"},
    "a name that is a number": lambda row: {**row, "name": 5},
    "a call's number that is a text": lambda row: {**row, "pending": [["1", *_CALL[1:]]]},
    "a call's kind that is a number": lambda row: {**row, "pending": [[1, 5, *_CALL[2:]]]},
    "a call's tag that is a list": lambda row: {**row, "pending": [[*_CALL[:2], [], *_CALL[3:]]]},
    "a call's time that is a number": lambda row: {**row, "pending": [[*_CALL[:5], 7]]},
}


@pytest.mark.parametrize("name", ROWS)
def test_a_damaged_row_hides_no_other_is_named_and_is_derived_anew(space: clia.Space, name: str) -> None:
    with_agents(space, "other")
    counted(space, 5)
    counted(space, 1, agent="other")
    forget_runs(space)
    put(space, "live/scout/1", ROWS[name](kept(space, "live/scout/1")))
    assert [each.agent for each in space.pending()] == ["other"]
    assert [each.agent for each in space.sessions()] == ["other"]
    assert space.maintain(archive_idle_days=0, dry_run=True).archived == ()
    for call in (
        lambda: space.session("scout"),
        lambda: space.resume("scout", 5),
        lambda: space.decide("scout", 5),
        lambda: space.cancel("scout"),
        lambda: space.start("scout", "product"),
        lambda: space.fork("scout", "twin"),
        lambda: commit(space),
    ):
        error = refused("damaged-row", call)
        assert error.fields == {"agent": "scout", "session": "1"}
    assert [(each.code, each.repaired) for each in space.doctor()] == [("row-differs", False)]
    assert [(each.code, each.repaired) for each in space.doctor(repair=True)] == [("row-differs", True)]
    assert space.doctor() == []
    assert space.resume("scout", 5).resumes == [*range(6)]
    assert space.fork("scout", "twin", commit(space)).resumes == [*range(6)]


@pytest.mark.parametrize("name", ROWS)
def test_a_damaged_row_of_a_past_session_hides_no_other_and_is_derived_anew(space: clia.Space, name: str) -> None:
    counted(space, 2, 2)
    before = space.session("scout").to_json()
    space.start("scout", "product")
    put(space, "ended/scout/1", ROWS[name](kept(space, "ended/scout/1")))
    assert [each.id for each in space.sessions()] == ["2"]
    refused("damaged-row", lambda: space.session("scout", "1"))
    refused("damaged-row", lambda: space.resume("scout", 5, "1.1"))
    assert [(each.session, each.code, each.repaired) for each in space.doctor(repair=True)] == [("1", "row-differs", True)]
    assert space.session("scout", "1").to_json() == before
    assert space.session("scout").id == "2", "the numbers that were given out are not taken back"
    assert space.doctor() == []


@pytest.mark.parametrize("counts", [5, [], {}, {"last": "x"}, {"last": None, "asks": 1}, {"last": 1}, "1", None])
@pytest.mark.parametrize("live", [True, False])
def test_damaged_counts_let_no_second_session_live_and_come_back_with_a_repair(space: clia.Space, counts: Any, live: bool) -> None:
    space.start("scout", "product")
    space.cancel("scout")
    counted(space, 2)
    at = commit(space)
    if not live:
        space.cancel("scout")
    put(space, "sessions/scout", counts)
    if live:
        assert space.session("scout").id == "2"
        assert refused("session-live", lambda: space.start("scout", "product")).fields["session"] == "2"
        assert space.resume("scout", 2).resumes == [0, 1, 2]
        assert space.fork("scout", "other", commit(space)).resumes == [0, 1, 2], "a checkpoint is made all the same"
    assert [(each.code, each.session, each.repaired) for each in space.doctor()] == [("row-differs", "2", False)]
    assert [(each.code, each.session, each.repaired) for each in space.doctor(repair=True)] == [("row-differs", "2", True)]
    assert space.doctor() == []
    assert space.session("scout").id == "2"
    if not live:
        assert space.start("scout", "product").id == "3", "no number is given out twice"
    assert space.fork("scout", "twin", at).resumes == [0, 1]


def test_damaged_counts_of_questions_come_back_with_a_repair(space: clia.Space) -> None:
    for _ in range(2):
        space.ask("scout", {"question": "Go?"})
    put(space, "sessions/scout", 5)
    assert [(each.session, each.repaired) for each in space.doctor(repair=True)] == [("ask-2", True)]
    assert space.ask("scout", {"question": "Go?"}).id == "ask-3.1"


@pytest.mark.parametrize("pointer", [5, [1], {}, None, ["1", "zz", 0, 0], ["1", None, 2, 3], ["1", "0" * 40, "x", 0], "text"])
def test_a_damaged_pointer_to_the_last_checkpoint_makes_the_next_one_whole(here: Place, space: clia.Space, pointer: Any) -> None:
    counted(space, 2)
    commit(space)
    put(space, "checkpoint/scout", pointer)
    space.resume("scout", 2)
    at = commit(space)
    assert [each[2] for each in note(here, at)["resumes"]] == [0, 1, 2]
    assert space.fork("scout", "other", at).resumes == [0, 1, 2]


@pytest.mark.parametrize("intent", [5, {}, [], None, {"agent": "scout", "verb": "commit", "point": 5}])
def test_a_damaged_intent_stops_its_agent_by_name_and_nobody_else(space: clia.Space, intent: Any) -> None:
    with_agents(space, "other")
    counted(space, 1)
    counted(space, 1, agent="other")
    put(space, "intent/scout", intent)
    for call in (lambda: space.resume("scout", 1), lambda: commit(space), lambda: space.cancel("scout")):
        assert isinstance(refused("store-corrupt", call), errors.StoreError)
    assert [each.agent for each in space.pending()] == ["scout", "other"]
    assert space.resume("other", 1).resumes == [0, 1]


def test_a_repair_writes_no_row_over_a_session_that_went_on_meanwhile(here: Place, space: clia.Space) -> None:
    counted(space, 2)
    put(space, "live/scout/1", {**kept(space, "live/scout/1"), "name": "another"})
    meddles = [True]

    class Meddled(Spy):
        def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
            if meddles:
                meddles.clear()
                with here.open() as other:
                    other.resume("scout", 2)
            return super().start(program, patient=patient)

    use_engine(space, Meddled)
    assert [(each.code, each.repaired) for each in space.doctor(repair=True)] == [("row-differs", False)]
    assert not meddles
    assert space.pending()[0].id == "1.4"
    assert space.resume("scout", 3).resumes == [0, 1, 2, 3]
