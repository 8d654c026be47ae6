"""A person retries a failed session from its last step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from clia.engine.records import LIMIT, Failure, Turn
from clia.sessions.records import ENDED
from clia.store.epochs import MARK_FILE
from clia.testing import ScriptedEffect, work
from support import git
from support.session_flows import FLOWS
from support.session_spaces import EngineSpy, SpiedRun, commit_change, pending_requests, use_engine, with_agents
from support.spaces import refused
from support.swapped_stores import SwappableSpace, session_ailments, swappable_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia
    from clia.engine.records import FlowAnswer

SUM = """\
def main(input):
    return int(request("number", {"which": 1})) + int(request("number", {"which": 2}))
"""
JUDGED = """\
def main(input):
    return int(request("human", {"question": "How many?"}))
"""
EVENTS = "refs/clia/events/scout"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SwappableSpace:
    return swappable_on(request, tmp_path / "repo")


@pytest.fixture
def space(place: SwappableSpace) -> Iterator[clia.Space]:
    with place.open() as opened:
        yield with_agents(opened, "scout", sum=SUM, judged=JUDGED, **FLOWS)


def failed(space: clia.Space) -> None:
    """Let scout's session fail at its second answer."""
    space.start("scout", "sum")
    space.resume("scout", 1)
    assert space.resume("scout", "many").status == "failed"


def events(space: clia.Space) -> list[str]:
    return [event["event"] for event in space.sessions.journal("scout")]


def subjects(place: SwappableSpace) -> list[str]:
    return git("log", "--reverse", "--format=%s", EVENTS, cwd=place.root).splitlines()


class Slow(EngineSpy):
    """An engine whose runs exceed the time limit at an answer, once or every time."""

    def __init__(self, engine: Any, *, at: Any, times: int) -> None:
        super().__init__(engine)
        self.at, self.times = at, times

    def start(self, program: Any, *, patience: float = 1) -> Any:
        return SlowRun(self._engine.start(program, patience=patience), self)


class SlowRun(SpiedRun):
    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        spy: Any = self._spy
        if answer.value == spy.at and spy.times:
            spy.times -= 1
            self._run.__exit__(None, None, None)
            return Turn(failure=Failure(LIMIT, "time: a turn used more than 5 seconds", None, used=None))
        return self._run.answer(number, answer)


def test_the_last_request_is_made_again(place: SwappableSpace, space: clia.Space) -> None:
    failed(space)
    session = space.sessions.retry("scout", "it answered in words", by="Ann <ann@example.org>")
    assert (session.status, session.resumes, session.failure) == ("suspended", [1], None)
    assert pending_requests(session) == [("2", "number", {"which": 2}, 2)]
    assert [request.id for request in space.pending()] == ["1.2"]
    event = space.sessions.journal("scout")[-1]
    assert (event["event"], event["by"], event["why"]) == ("retried", "Ann <ann@example.org>", "it answered in words")
    assert space.resume("scout", 5).result == 6
    assert events(space) == ["started", "resumed", "resumed", "ended", "retried", "resumed", "ended"]
    assert [subject.partition(":")[0] for subject in subjects(place)] == [
        "session 1 of scout failed",
        "session 1 of scout reopened",
        "session 1 of scout finished",
    ]
    entry = next(entry for entry in space.trace_pending("scout") if "retried" in entry["text"])
    assert entry["text"].startswith("session 1 retried by Ann <ann@example.org>: it answered in words")
    assert session_ailments(space) == []
    assert space.verify().clean


def test_git_has_who_retried_and_why(place: SwappableSpace, space: clia.Space) -> None:
    failed(space)
    space.sessions.retry("scout", "a reason", by="Ann")
    message = git("log", "-1", "--format=%(trailers:key=Clia-Event,valueonly)", EVENTS, cwd=place.root)
    body = json.loads(message)
    assert {key: body[key] for key in ("event", "session", "by", "why", "dropped")} == {
        "event": "session-reopened",
        "session": "1",
        "by": "Ann",
        "why": "a reason",
        "dropped": 2,
    }


def test_a_worker_repeats_its_effect(space: clia.Space) -> None:
    space.start("scout", "sum")
    effect = ScriptedEffect(1, "many", 7)
    work(space, {"number": effect})
    assert space.session("scout").status == "failed"
    space.sessions.retry("scout")
    work(space, {"number": effect})
    assert (space.session("scout").result, len(effect.payloads)) == (8, 3)


def test_a_request_that_was_given_up_is_made_again(space: clia.Space) -> None:
    space.start("scout", "sum")
    assert space.sessions.give_up("scout", "no luck").status == "failed"
    assert space.sessions.retry("scout").resumes == []
    space.resume("scout", 1)
    assert space.resume("scout", 2).result == 3


def test_a_decision_stays(place: SwappableSpace, space: clia.Space) -> None:
    """A request takes one decision. A session that fails again stays as it is."""
    space.start("scout", "judged")
    assert space.decide("scout", "several").session.status == "failed"
    before = (events(space), git("for-each-ref", cwd=place.root), space.trace_pending("scout"))
    error = refused("fails-again", lambda: space.sessions.retry("scout", "again"))
    assert "ValueError" in error.message
    assert (events(space), git("for-each-ref", cwd=place.root), space.trace_pending("scout")) == before
    assert space.session("scout").status == "failed"
    assert [commit.kind for commit in space.session_log("scout")].count("decision") == 1


@pytest.mark.parametrize("value", [2, "suspends"])
def test_a_turn_that_exceeded_a_limit_is_run_again_with_its_answer(space: clia.Space, value: Any) -> None:
    use_engine(space, lambda engine: Slow(engine, at=value, times=1))
    if value == 2:
        space.start("scout", "sum")
        space.resume("scout", 1)
    else:
        space.start("scout", "talk")
    failed_session = space.resume("scout", 2) if value == 2 else space.decide("scout", value).session
    assert failed_session.status == "failed"
    session = space.sessions.retry("scout", "busy machine")
    if value == 2:
        assert (session.status, session.result) == ("finished", 3)
        assert events(space)[-2:] == ["retried", "ended"]
    else:
        assert (session.status, session.resumes) == ("suspended", ["suspends"])
        assert space.decide("scout", "end").session.result == ["suspends", "end"]
    assert session_ailments(space) == []


def test_a_turn_that_exceeds_a_limit_again_stays_failed(space: clia.Space) -> None:
    use_engine(space, lambda engine: Slow(engine, at=2, times=9))
    space.start("scout", "sum")
    space.resume("scout", 1)
    assert space.resume("scout", 2).status == "failed"
    refused("fails-again", lambda: space.sessions.retry("scout"))
    assert events(space)[-1] == "ended"


def test_only_the_last_failed_session_can_be_retried(space: clia.Space) -> None:
    refused("no-such-session", lambda: space.sessions.retry("scout"))
    refused("no-such-agent", lambda: space.sessions.retry("nobody"))
    failed(space)
    refused("no-such-session", lambda: space.sessions.retry("scout", session_id="7"))
    asked = space.ask("scout", {"question": "?"})
    refused("not-failed", lambda: space.sessions.retry("scout", session_id=asked.session))
    space.start("scout", "sum")
    error = refused("not-failed", lambda: space.sessions.retry("scout"))
    assert error.fields["status"] == "suspended"
    refused("session-superseded", lambda: space.sessions.retry("scout", session_id="1"))
    space.cancel("scout")
    refused("not-failed", lambda: space.sessions.retry("scout"))
    refused("session-superseded", lambda: space.sessions.retry("scout", session_id="1"))


def test_a_retried_session_has_checkpoints_and_forks(space: clia.Space) -> None:
    space.start("scout", "sum")
    space.resume("scout", 1)
    commit_change(space)
    space.resume("scout", "many")
    space.sessions.retry("scout")
    commit = commit_change(space)
    assert space.fork("scout", "twin", commit).resumes == [1]
    assert space.resume("twin", 2).result == 3
    assert space.fork("scout", "now").resumes == [1]
    space.resume("scout", "many")
    space.sessions.retry("scout")
    assert space.resume("scout", 9).result == 10
    assert space.verify().clean


def test_an_older_store_does_not_hide_a_retry(place: SwappableSpace, space: clia.Space) -> None:
    failed(space)
    place.save("older")
    space.sessions.retry("scout")
    commit_change(space)
    place.put_back("older")
    (place.root / ".git/clia" / MARK_FILE).unlink()
    with place.open() as again:
        refused("session-behind", lambda: again.sessions.retry("scout"))
        refused("session-behind", lambda: again.start("scout", "sum"))
        assert session_ailments(again, repair=True) == [("session-behind", "1", True)]
        assert (again.session("scout").status, again.session("scout").resumes) == ("suspended", [1])
        assert again.resume("scout", 3).result == 4
        assert session_ailments(again) == []


def test_a_session_that_an_earlier_version_failed_can_be_retried(space: clia.Space) -> None:
    """It wrote no row about the agreement of store and git, and the reason of the failure may be missing."""
    failed(space)
    with space.local.store.writing() as transaction:
        transaction.values.delete("known/scout")
        row = transaction.values.get(f"{ENDED}scout/1")
        assert row is not None
        transaction.values.put(f"{ENDED}scout/1", {**row.value, "failure": {"message": "ValueError"}})
    space.sessions.retry("scout")
    assert space.resume("scout", 1).result == 2
