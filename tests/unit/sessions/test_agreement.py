"""A session about which the store and git differ is frozen until a person repairs it from git."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from clia.sessions.repairs import REPLACED
from clia.space.envelope import Envelope
from clia.store.epochs import MARK_FILE
from clia.testing import ScriptedEffect, work
from clia.workers import retries
from support import git
from support.session_flows import FLOWS
from support.session_spaces import commit_change, pending_requests, with_agents
from support.spaces import refused, texts
from support.swapped_stores import SwappableSpace, session_ailments, swappable_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import clia

BRANCH = "refs/heads/agents/scout"
STEPS = """\
def main(input):
    return [request("human", {"question": f"Step {step}?"}) for step in range(input)]
"""
MIXED = """\
def main(input):
    return request("human", {"question": "So?", "plan": request("plan", None)})
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SwappableSpace:
    return swappable_on(request, tmp_path / "repo")


@pytest.fixture
def space(place: SwappableSpace) -> Iterator[clia.Space]:
    with place.open() as opened:
        yield with_agents(opened, "scout", steps=STEPS, **FLOWS)


def put_back(place: SwappableSpace, name: str = "older") -> None:
    """Put an older copy of everything beside git back, so that only git shows it."""
    place.put_back(name)
    (place.root / ".git/clia" / MARK_FILE).unlink()


def decisions(space: clia.Space) -> list[tuple[str | None, str | None]]:
    """The request and the answer of each decision on the branch, oldest first."""
    return [(commit.request, commit.value) for commit in reversed(space.session_log("scout")) if commit.kind == "decision"]


def waiting(space: clia.Space) -> list[str]:
    return [request.id for request in space.pending()]


# An older store


def test_a_decision_that_the_store_lost_is_not_taken_again(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 3)
    place.save("older")
    first = space.decide("scout", "yes", by="Ann", request_id="1.1")
    space.decide("scout", "on", by="Ann", request_id="1.2")
    put_back(place)
    with place.open() as again:
        assert waiting(again) == ["1.1"], "the older store has the old question"
        error = refused("session-behind", lambda: again.decide("scout", "no", by="Bob", request_id="1.1"))
        assert error.fields == {"agent": "scout", "session": "1"}
        assert "clia doctor --repair" in error.hints[-1]
        refused("session-behind", lambda: again.cancel("scout"))
        refused("session-behind", lambda: commit_change(again))
        refused("session-behind", lambda: again.fork("scout", "other"))
        refused("session-behind", lambda: again.ask("scout", {"question": "?"}))
        assert decisions(again) == [("1.1", '"yes"'), ("1.2", '"on"')]
        assert session_ailments(again) == [("session-behind", "1", False)]
        assert session_ailments(again, repair=True) == [("session-behind", "1", True)]
        assert session_ailments(again) == []
        assert waiting(again) == ["1.3"]
        error = refused("stale-request", lambda: again.decide("scout", "no", by="Bob", request_id="1.1"))
        assert error.fields["decision"] == first.cid
        session = again.decide("scout", "end", by="Ann").session
        assert (session.status, session.result) == ("finished", ["yes", "on", "end"])
        assert decisions(again) == [("1.1", '"yes"'), ("1.2", '"on"'), ("1.3", '"end"')]
        assert again.verify().clean


def test_a_lost_write_ahead_log_does_not_ask_people_again(tmp_path: Path) -> None:
    place = SwappableSpace(tmp_path / "repo", None)
    with place.open() as space:
        with_agents(space, "scout", steps=STEPS)
        space.start("scout", "steps", 3)
        with closing(sqlite3.connect(place.root / ".git/clia/space.db")) as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        decided(space, "yes")
        place.save("whole")
    put_back(place, "whole")
    place.files.lose_journal()
    with place.open() as again:
        assert waiting(again) == ["1.1"], "the decision was only in the log"
        refused("session-behind", lambda: again.decide("scout", "no"))
        assert session_ailments(again, repair=True) == [("session-behind", "1", True)]
        assert waiting(again) == ["1.2"]
        assert decisions(again) == [("1.1", '"yes"')]


def test_the_end_that_a_decision_made_is_restored(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 1)
    place.save("older")
    space.decide("scout", "yes")
    events = git("rev-parse", "refs/clia/events/scout", cwd=place.root)
    put_back(place)
    with place.open() as again:
        refused("session-behind", lambda: again.decide("scout", "no"))
        assert session_ailments(again, repair=True) == [("session-behind", "1", True)]
        assert (again.session("scout").status, again.session("scout").result, waiting(again)) == ("finished", ["yes"], [])
        assert git("rev-parse", "refs/clia/events/scout", cwd=place.root) == events, "git has the end once"
        assert again.start("scout", "steps", 1).id == "2"
        assert session_ailments(again) == []


def test_an_end_without_a_commit_is_found_in_the_events(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "product")
    space.resume("scout", 2)
    place.save("older")
    assert space.resume("scout", 3).result == 6
    put_back(place)
    with place.open() as again:
        refused("session-behind", lambda: again.resume("scout", 4))
        assert session_ailments(again, repair=True) == [("session-behind", "1", True)]
        session = again.session("scout")
        assert (session.status, session.result, session.resumes) == ("finished", None, [2]), "git has no answers of workers"
        assert session_ailments(again) == []


def test_answers_up_to_the_newest_checkpoint_are_restored(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    place.save("older")
    space.resume("scout", 1)
    commit_change(space)
    space.resume("scout", 2)
    commit_change(space)
    space.resume("scout", 3)
    put_back(place)
    with place.open() as again:
        refused("session-behind", lambda: again.resume("scout", 7))
        assert session_ailments(again, repair=True) == [("session-behind", "1", True)]
        assert again.session("scout").resumes == [1, 2]
        commit = commit_change(again)
        assert again.fork("scout", "other", commit).resumes == [1, 2]
        assert session_ailments(again) == []


def test_an_answered_question_is_not_asked_again(place: SwappableSpace, space: clia.Space) -> None:
    asked = space.ask("scout", {"question": "Which?"})
    place.save("older")
    space.decide("scout", "this", request_id=asked.id)
    put_back(place)
    with place.open() as again:
        refused("session-behind", lambda: again.decide("scout", "that", request_id=asked.id))
        assert session_ailments(again, repair=True) == [("session-behind", "ask-1", True)]
        assert waiting(again) == []
        refused("stale-request", lambda: again.decide("scout", "that", request_id=asked.id))
        assert again.ask("scout", {"question": "Next?"}).id == "ask-2.1"


def test_numbers_that_git_has_used_are_not_used_again(place: SwappableSpace, space: clia.Space) -> None:
    space.decide("scout", 1, request_id=space.ask("scout", {"question": "First?"}).id)
    place.save("older")
    space.decide("scout", 2, request_id=space.ask("scout", {"question": "Second?"}).id)
    put_back(place)
    with place.open() as again:
        refused("row-differs", lambda: again.ask("scout", {"question": "Third?"}))
        assert session_ailments(again, repair=True) == [("row-differs", "ask-2", True)]
        assert again.ask("scout", {"question": "Third?"}).id == "ask-3.1"
        assert session_ailments(again) == []


@pytest.mark.parametrize("commits_after", [0, 3])
def test_a_session_that_the_store_never_had_is_found_behind_later_commits(
    place: SwappableSpace, space: clia.Space, commits_after: int
) -> None:
    space.trace("scout", "console", "the store is in use")
    place.save("older")
    space.start("scout", "steps", 2)
    space.decide("scout", "yes")
    put_back(place)
    with place.open() as again:
        for _ in range(commits_after):
            commit_change(again)  # the agent has no session as far as the store knows: no checkpoint
        refused("lost-session", lambda: again.start("scout", "steps", 1))
        refused("lost-session", lambda: again.ask("scout", {"question": "?"}))
        refused("lost-session", lambda: again.archive("scout"))
        assert session_ailments(again) == [("lost-session", "1", False)]
        assert session_ailments(again, repair=True) == [("lost-session", "1", True)]
        assert waiting(again) == ["1.2"]
        assert again.decide("scout", "end").session.result == ["yes", "end"]
        assert session_ailments(again) == []


def test_a_lost_session_whose_place_another_one_took_is_ended_in_git(place: SwappableSpace, space: clia.Space) -> None:
    """As earlier versions left it."""
    space.start("scout", "steps", 2)
    first = space.decide("scout", "yes").cid
    place.lose()
    with place.open() as again:
        again.local.store.guard = None
        with again.local.store.writing() as transaction:
            transaction.values.put("known/scout", [again.head("scout"), None])
        again.start("scout", "counting", 5)
        commit_change(again)
        again.local.store.guard = None
        assert session_ailments(again) == [("lost-session", "1", False)]
        assert session_ailments(again, repair=True) == [("lost-session", "1", True)]
        assert session_ailments(again) == []
        assert again.session("scout").id == "2"
        event = git("log", "-1", "--format=%B", "refs/clia/events/scout", cwd=place.root)
        assert event.startswith("session 1 of scout cancelled: flow steps")
        assert f"lost with the store, and a later session took its place; to continue it, fork it at {first}" in event
        assert pending_requests(again.fork("scout", "other", first))[0][0] == "1", "it can be forked"


def test_a_trace_is_not_bound_twice(place: SwappableSpace, space: clia.Space) -> None:
    space.trace("scout", "console", "zero")
    space.commit_with_trace("scout", "finding", changes={"a": b"0"})
    for text in ("one", "two"):
        space.trace("scout", "console", text)
    place.save("older")
    space.commit_with_trace("scout", "finding", changes={"a": b"1"})
    put_back(place)
    with place.open() as again:
        again.trace("scout", "console", "three")
        refused("trace-bound", lambda: again.commit_with_trace("scout", "finding", changes={"a": b"2"}))
        assert [(ailment.code, ailment.repaired) for ailment in again.doctor(repair=True)] == [("trace-bound", True)]
        assert texts(again.trace_pending("scout")) == ["three"]
        again.commit_with_trace("scout", "finding", changes={"a": b"2"})
        bound = texts(hit.entry for hit in again.trace_search(".", regex=True) if hit.entry["kind"] == "console")
        assert sorted(bound) == ["one", "three", "two", "zero"]


def test_answers_that_contradict_git_are_kept_aside(place: SwappableSpace, space: clia.Space) -> None:
    """A store that continued after it was put back, with an earlier version."""
    space.start("scout", "counting", 9)
    space.resume("scout", 1)
    place.save("older")
    space.resume("scout", 2)
    commit_change(space)
    put_back(place)
    with place.open() as again:
        again.local.store.guard = None
        with again.local.store.writing() as transaction:
            transaction.values.put("known/scout", [again.head("scout"), None])
        again.resume("scout", 22)
        again.resume("scout", 33)
        assert session_ailments(again) == [("session-differs", "1", False)]
        assert session_ailments(again, repair=True) == [("session-differs", "1", True)]
        assert again.session("scout").resumes == [1, 2]
        with again.local.store.reading() as view:
            kept = [entry.body for entry in view.streams.read(f"{REPLACED}session/scout/1")]
        assert [body["resume"][2] for body in kept if body["event"] == "resumed"] == [1, 22, 33]
        assert again.resume("scout", 3).resumes == [1, 2, 3]
        assert session_ailments(again) == []


def test_verify_names_each_session_that_differs(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 2)
    place.save("older")
    (cid,) = decided(space, "yes")
    assert space.verify().clean
    put_back(place)
    with place.open() as again:
        finding = next(finding for finding in again.verify().findings if finding.code == "session-behind")
        assert (finding.ref, finding.cid) == (BRANCH, cid)
        assert finding.message.startswith("session 1 of 'scout': git has the decision")
        assert "repair it with: clia doctor --repair" in finding.message
        again.doctor(repair=True)
        assert again.verify().clean


def test_a_session_that_continues_does_not_hide_that_another_one_is_frozen(place: SwappableSpace, space: clia.Space) -> None:
    asked = space.ask("scout", {"question": "Which?"})
    space.start("scout", "counting", 3)
    space.commit_with_trace("scout", "finding", changes={"a": b"1"})  # nothing of the trace is pending in the copy
    place.save("older")
    space.decide("scout", "this", request_id=asked.id)
    put_back(place)
    with place.open() as again:
        for number in range(2):
            commit_change(again)  # of session 1, which agrees with git
            again.resume("scout", number)
            refused("session-behind", lambda: again.decide("scout", "that", request_id=asked.id))
        assert session_ailments(again, repair=True) == [("session-behind", "ask-1", True)]
        refused("stale-request", lambda: again.decide("scout", "that", request_id=asked.id))
        assert again.resume("scout", 2).result == 3
        assert decisions(again) == [("ask-1.1", '"this"')]


def test_a_damaged_session_does_not_stop_the_comparison_of_others(place: SwappableSpace, space: clia.Space) -> None:
    space.ask("scout", {"question": "Which?"})
    space.start("scout", "steps", 2)
    with space.local.store.writing() as transaction:
        transaction.streams.forget("session/scout/ask-1", 1)
    git("update-ref", "-d", "refs/clia/events/scout", cwd=place.root)
    space.commit("scout", "finding", changes={"a": b"1"})
    assert space.decide("scout", "yes", request_id="1.1").session.pending
    assert ("corrupt-journal", "ask-1", False) in session_ailments(space)


@pytest.mark.parametrize("behind", [1, 20])
def test_many_pending_requests_are_restored(place: SwappableSpace, space: clia.Space, behind: int) -> None:
    """With a row for each request, which the older copy may lack."""
    space.start("scout", "parts", 30)
    place.save("older")
    for number in range(behind):
        space.resume("scout", number * 10, f"1.{number + 1}")
    commit_change(space)
    put_back(place)
    with place.open() as again:
        refused("session-behind", lambda: again.resume("scout", 0, "1.30"))
        assert session_ailments(again, repair=True) == [("session-behind", "1", True)]
        assert waiting(again) == [f"1.{number}" for number in range(behind + 1, 31)]
        assert session_ailments(again) == []
        for number in range(behind, 30):
            again.resume("scout", number * 10, f"1.{number + 1}")
        assert again.resume("scout", "end").result == {"parts": [number * 10 for number in range(30)], "last": "end"}


def test_a_worker_does_not_repeat_the_effect_of_an_answered_request(
    place: SwappableSpace, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until a person repairs the session."""
    space.start("scout", "counting", 2)
    place.save("older")
    space.resume("scout", 5)
    commit_change(space)
    put_back(place)
    with place.open() as again:
        effect, reasons = ScriptedEffect(6), list[str]()
        put_off = retries.put_off

        def repair_then_put_off(error: Exception, *more: Any) -> retries.Retry:
            reasons.append(getattr(error, "code", ""))
            again.doctor(repair=True)
            return put_off(error, *more)

        monkeypatch.setattr(retries, "put_off", repair_then_put_off)
        work(again, {"number": effect})
        assert reasons == ["session-behind"]
        assert [payload["turn"] for payload in effect.payloads] == [1]
        assert again.session("scout").resumes == [5, 6]


# A branch that was moved by plain git


def decided(space: clia.Space, *values: str) -> list[str]:
    return [space.decide("scout", value).cid for value in values]


def test_a_branch_that_was_reset_under_a_session_freezes_it(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 4)
    first, second, third = decided(space, "one", "two", "three")
    git("update-ref", BRANCH, first, cwd=place.root)
    error = refused("decision-missing", lambda: space.decide("scout", "four"))
    assert second in error.hints[0]
    refused("decision-missing", lambda: commit_change(space))
    assert ("decision-missing", "1", False) in session_ailments(space)
    git("update-ref", BRANCH, third, cwd=place.root)
    assert session_ailments(space) == []
    assert space.decide("scout", "four").session.result == ["one", "two", "three", "four"]


def test_a_session_goes_back_to_what_its_branch_has(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 4)
    first, second, third = decided(space, "one", "two", "three")
    git("update-ref", BRANCH, first, cwd=place.root)
    assert ("decision-missing", "1", True) in session_ailments(space, repair=True)
    assert waiting(space) == ["1.2"]
    session = space.session("scout")
    assert (session.resumes, session.decisions) == (["one"], [(0, first)])
    with space.local.store.reading() as view:
        assert len(view.streams.read(f"{REPLACED}session/scout/1")) == 4
    assert decided(space, "zwei", "drei") != [second, third]
    assert space.decide("scout", "vier").session.result == ["one", "zwei", "drei", "vier"]
    assert [value for _, value in decisions(space)] == ['"one"', '"zwei"', '"drei"', '"vier"']


def test_a_branch_that_lost_no_decision_does_not_freeze_the_session(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 2)
    (first,) = decided(space, "one")
    commit_change(space)
    git("update-ref", BRANCH, first, cwd=place.root)
    assert space.decide("scout", "two").session.result == ["one", "two"]


def test_a_rebase_that_keeps_the_decisions_does_not_freeze_the_session(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 3)
    commit_change(space)
    decided(space, "one")
    commit_change(space)
    decided(space, "two")
    before = git("rev-parse", BRANCH, cwd=place.root)
    work = place.root.parent / "work"
    git("worktree", "add", "-q", str(work), "agents/scout", cwd=place.root)
    git("rebase", "-q", "--no-ff", "--root", cwd=work)
    git("checkout", "-q", "--detach", cwd=work)
    assert git("rev-parse", BRANCH, cwd=place.root) != before
    assert space.decide("scout", "three").session.result == ["one", "two", "three"]
    assert [ailment.code for ailment in space.doctor() if ailment.session] == []


def rebased(place: SwappableSpace) -> str:
    """Rewrite all commits of scout's branch, as ``git rebase --root`` does."""
    work = place.root.parent / "work"
    git("worktree", "add", "-q", str(work), "agents/scout", cwd=place.root)
    git("rebase", "-q", "--no-ff", "--root", cwd=work)
    git("worktree", "remove", "--force", str(work), cwd=place.root)
    return git("rev-parse", BRANCH, cwd=place.root).strip()


def notes_of(place: SwappableSpace, kind: str) -> set[str]:
    """The commits on scout's branch that have a note."""
    noted = {line.split()[1] for line in git("notes", f"--ref=clia/{kind}/scout", "list", cwd=place.root).splitlines()}
    return noted & set(git("rev-list", BRANCH, cwd=place.root).split())


def with_notes(space: clia.Space) -> None:
    """A session with a commit, a decision and traces."""
    space.start("scout", "steps", 3)
    commit_change(space)
    decided(space, "one")
    space.trace("scout", "console", "why")
    space.commit_with_trace("scout", "finding", changes={"b": b"1"}, message="second")


@pytest.mark.parametrize("by", ["a step", "relink", "doctor"])
def test_a_rebase_carries_checkpoints_and_traces_along(place: SwappableSpace, space: clia.Space, by: str) -> None:
    with_notes(space)
    before = {kind: len(notes_of(place, kind)) for kind in ("session", "trace")}
    rebased(place)
    assert notes_of(place, "session") == notes_of(place, "trace") == set()
    if by == "a step":
        space.decide("scout", "two")
        before["session"] += 1
    elif by == "relink":
        assert {link.by for link in space.traces.relink()} == {"copy"}
        assert space.traces.relink() == []
    else:
        assert ("notes-left", "", False) in session_ailments(space)
        assert ("notes-left", "", True) in session_ailments(space, repair=True)
    assert {kind: len(notes_of(place, kind)) for kind in before} == before
    decision = [commit for commit in space.session_log("scout") if commit.kind == "decision"][-1]
    trace = space.traces.of(decision.cid)
    assert trace is not None
    assert any("session 1 started" in entry["text"] for entry in trace.entries)
    assert [hit.commit for hit in space.traces.search("session 1 started")] == [decision.cid], "once, and not at the former commit"
    assert [request.id for request in space.fork("scout", "twin", decision.cid).pending] == ["1.1"]
    assert "notes-left" not in {code for code, *_ in session_ailments(space)}


def test_a_session_is_restored_from_git_after_a_rebase(place: SwappableSpace, space: clia.Space) -> None:
    with_notes(space)
    rebased(place)
    place.lose()
    with place.open() as again:
        found = session_ailments(again, repair=True)
        assert {("notes-left", "", True), ("lost-session", "1", True)} <= set(found)
        assert waiting(again) == ["1.2"]
        assert again.decide("scout", "two").session.resumes == ["one", "two"]
        assert [value for _, value in decisions(again)] == ['"one"', '"two"']


def test_notes_are_not_carried_if_the_former_commit_is_not_certain(place: SwappableSpace, space: clia.Space) -> None:
    """Two commits with the same message in the same second, and different traces."""
    space.start("scout", "steps", 3)
    for text in ("one", "two"):
        space.trace("scout", "console", text)
        space.commit_with_trace("scout", "finding", changes={"b": text.encode()}, message="same")
    rebased(place)
    left = {link.commit for link in space.traces.relink() if link.by == "copy"}
    same = {commit.author for commit in space.session_log("scout") if commit.message == "same"}
    assert bool(left & {commit.cid for commit in space.session_log("scout")[:2]}) == (len(same) == 2)


def test_a_rebase_that_drops_a_decision_freezes_the_session(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 3)
    first, _ = decided(space, "one", "two")
    tree = git("rev-parse", f"{first}^{{tree}}", cwd=place.root).strip()
    other = git("commit-tree", tree, "-p", first, "-m", "by hand", cwd=place.root).strip()
    git("update-ref", BRANCH, other, cwd=place.root)
    refused("decision-missing", lambda: space.decide("scout", "three"))
    assert ("decision-missing", "1", True) in session_ailments(space, repair=True)
    assert waiting(space) == ["1.2"]


def test_the_branch_of_a_waiting_session_is_restored(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 2)
    (first,) = decided(space, "one")
    git("update-ref", "-d", BRANCH, cwd=place.root)
    ailment = next(ailment for ailment in space.doctor() if ailment.code == "no-branch")
    assert first in ailment.message
    assert ("no-branch", "1", True) in session_ailments(space, repair=True)
    assert git("rev-parse", BRANCH, cwd=place.root).strip() == first
    assert space.decide("scout", "two").session.result == ["one", "two"]


def test_a_branch_that_another_process_restores_meanwhile_is_not_an_error(
    place: SwappableSpace, space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example a sync with the hub, when the agent is locked."""
    space.start("scout", "steps", 2)
    (first,) = decided(space, "one")
    git("update-ref", "-d", BRANCH, cwd=place.root)
    at_work = Envelope.at_work

    def restored(envelope: Envelope, name: str) -> AbstractContextManager[None]:
        git("update-ref", BRANCH, first, cwd=place.root)
        return at_work(envelope, name)

    monkeypatch.setattr(Envelope, "at_work", restored)
    assert ("no-branch", "1", True) in session_ailments(space, repair=True)
    assert git("rev-parse", BRANCH, cwd=place.root).strip() == first


def test_a_branch_without_a_log_is_restored_at_the_newest_commit_that_was_read(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 2)
    (first,) = decided(space, "one")
    tree = git("rev-parse", f"{first}^{{tree}}", cwd=place.root).strip()
    newer = git("commit-tree", tree, "-p", first, "-m", "by hand", cwd=place.root).strip()
    git("update-ref", BRANCH, newer, cwd=place.root)
    assert space.relations() is not None  # the index reads the branch
    git("update-ref", "-d", BRANCH, cwd=place.root)
    assert ("no-branch", "1", True) in session_ailments(space, repair=True)
    assert git("rev-parse", BRANCH, cwd=place.root).strip() == newer


def test_a_deleted_branch_that_was_restored_at_an_older_commit_freezes_the_session(
    place: SwappableSpace, space: clia.Space
) -> None:
    space.start("scout", "steps", 3)
    first, second = decided(space, "one", "two")
    git("update-ref", "-d", BRANCH, cwd=place.root)
    refused("no-such-agent", lambda: space.decide("scout", "three"))
    git("update-ref", BRANCH, first, cwd=place.root)
    refused("decision-missing", lambda: space.decide("scout", "three"))
    git("update-ref", BRANCH, second, cwd=place.root)
    assert space.decide("scout", "three").session.result == ["one", "two", "three"]
    assert [value for _, value in decisions(space)] == ['"one"', '"two"', '"three"']


def test_commits_of_plain_git_do_not_freeze_a_session(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 2)
    (first,) = decided(space, "one")
    tree = git("rev-parse", f"{first}^{{tree}}", cwd=place.root).strip()
    other = git("commit-tree", tree, "-p", first, "-m", "by hand", cwd=place.root).strip()
    git("update-ref", BRANCH, other, cwd=place.root)
    assert space.decide("scout", "two").session.result == ["one", "two"]
    assert session_ailments(space) == []


def test_an_end_that_git_lacks_is_recorded_again(place: SwappableSpace, space: clia.Space) -> None:
    """A repository that is older than its store."""
    space.start("scout", "product")
    commit_change(space)
    space.resume("scout", 2)
    space.resume("scout", 3)
    git("update-ref", "-d", "refs/clia/events/scout", cwd=place.root)
    assert ("end-missing", "1", False) in session_ailments(space)
    space.start("scout", "product")
    assert ("end-missing", "1", True) in session_ailments(space, repair=True)
    assert [code for code, *_ in session_ailments(space) if code != "ref-missing"] == []
    assert (
        git("log", "-1", "--format=%s", "refs/clia/events/scout", cwd=place.root) == "session 1 of scout finished: flow product\n"
    )


# Cost


def test_a_step_compares_two_refs_and_reads_no_history(space: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    from clia.sessions import agreement

    space.start("scout", "steps", 9)
    calls: list[Any] = []

    def require(*words: object) -> bool:
        calls.append(words)
        return True

    monkeypatch.setattr(agreement.Agreement, "require", require)
    space.decide("scout", "one")
    commit_change(space)
    space.trace("scout", "console", "x")
    space.commit_with_trace("scout", "finding", changes={"b": b"1"})
    space.decide("scout", "two")
    space.cancel("scout")
    assert calls == []
    space.commit("scout", "finding", changes={"c": b"1"})
    space.start("scout", "product")
    assert len(calls) == 1, "commits without a session are walked once"
    space.resume("scout", 1)
    space.resume("scout", 1)
    space.start("scout", "product")
    assert len(calls) == 1


# What earlier versions left


def test_verify_finds_a_request_that_an_earlier_version_let_people_decide_twice(place: SwappableSpace, space: clia.Space) -> None:
    """Without the comparison, a restored store asked again."""
    space.start("scout", "steps", 2)
    place.save("older")
    (first,) = decided(space, "yes")
    put_back(place)
    with place.open() as again:
        with again.local.store.writing() as transaction:
            transaction.values.put("known/scout", [first, None])
        second = again.decide("scout", "no", by="Bob").cid
        (finding,) = [finding for finding in again.verify().findings if finding.code == "decided-twice"]
        assert (finding.ref, finding.cid) == (BRANCH, second)
        assert finding.message.startswith(f"request 1.1 of 'scout' was decided twice: {first} (\"yes\", by Tess")
        assert f'{second} ("no", by Bob)' in finding.message
        assert finding.message.endswith("state which one counts in a commit of the agent (--meta counts=COMMIT)")


@pytest.mark.parametrize("counts", [0, 1])
def test_a_commit_states_which_of_two_decisions_counts(place: SwappableSpace, space: clia.Space, counts: int) -> None:
    space.start("scout", "steps", 2)
    place.save("older")
    (first,) = decided(space, "yes")
    put_back(place)
    with place.open() as again:
        with again.local.store.writing() as transaction:
            transaction.values.put("known/scout", [first, None])
        second = again.decide("scout", "no").cid
        for value in ({"no": "commit"}, again.genesis("scout")):
            again.commit("scout", "finding", changes={}, meta={"counts": value})
        assert "decided-twice" in {finding.code for finding in again.verify().findings}
        again.commit("scout", "finding", changes={}, meta={"counts": (first, second)[counts]})
        assert "decided-twice" not in {finding.code for finding in again.verify().findings}


def test_a_number_that_was_used_again_for_another_question_is_no_second_decision(place: SwappableSpace, space: clia.Space) -> None:
    """After the store was lost, requests that had answers of workers are made again with the same numbers."""
    space.sessions.define("mixed", MIXED)
    space.start("scout", "mixed")
    space.resume("scout", "a")
    decided(space, "yes")
    place.lose()
    git("update-ref", "-d", "refs/notes/clia/session/scout", cwd=place.root)
    with place.open() as again:
        again.doctor(repair=True)
        with again.local.store.writing() as transaction:
            transaction.values.delete("sessions/scout")
            transaction.values.put("sessions/scout", {"last": 0})
        again.start("scout", "mixed")
        again.resume("scout", "b")
        again.decide("scout", "no")
        assert [commit.request for commit in again.session_log("scout") if commit.kind == "decision"] == ["1.2", "1.2"]
        assert "decided-twice" not in {finding.code for finding in again.verify().findings}
