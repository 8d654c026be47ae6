"""A session about which the store and git differ is frozen until a person repairs it from git."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clia.sessions.repairs import REPLACED
from clia.store.epochs import MARK_FILE
from support import git
from support.session_flows import FLOWS
from support.session_spaces import commit_change, pending_requests, with_agents
from support.spaces import refused, texts
from support.swapped_stores import SwappableSpace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import clia

BRANCH = "refs/heads/agents/scout"
STEPS = """\
def main(input):
    return [request("human", {"question": f"Step {step}?"}) for step in range(input)]
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SwappableSpace:
    address = None if request.param == "sqlite" else request.getfixturevalue("postgres_address")
    return SwappableSpace(tmp_path / "repo", address)


@pytest.fixture
def space(place: SwappableSpace) -> Iterator[clia.Space]:
    with place.open() as opened:
        yield with_agents(opened, "scout", steps=STEPS, **FLOWS)


def put_back(place: SwappableSpace, name: str = "older") -> None:
    """Put an older copy of everything beside git back, so that only git shows it."""
    place.put_back(name)
    (place.root / ".git/clia" / MARK_FILE).unlink()


def codes(space: clia.Space, *, repair: bool = False) -> list[tuple[str, str, bool]]:
    """The problems; entries about sessions, which are in the trace of each decision, are pending again in an older store."""
    found = [(ailment.code, ailment.session, ailment.repaired) for ailment in space.doctor(repair=repair)]
    return [ailment for ailment in found if ailment[0] != "trace-bound"]


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
        assert codes(again) == [("session-behind", "1", False)]
        assert codes(again, repair=True) == [("session-behind", "1", True)]
        assert codes(again) == []
        assert waiting(again) == ["1.3"]
        error = refused("stale-request", lambda: again.decide("scout", "no", by="Bob", request_id="1.1"))
        assert error.fields["decision"] == first.cid
        session = again.decide("scout", "end", by="Ann").session
        assert (session.status, session.result) == ("finished", ["yes", "on", "end"])
        assert decisions(again) == [("1.1", '"yes"'), ("1.2", '"on"'), ("1.3", '"end"')]
        assert again.verify().clean


def test_the_end_that_a_decision_made_is_restored(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 1)
    place.save("older")
    space.decide("scout", "yes")
    events = git("rev-parse", "refs/clia/events/scout", cwd=place.root)
    put_back(place)
    with place.open() as again:
        refused("session-behind", lambda: again.decide("scout", "no"))
        assert codes(again, repair=True) == [("session-behind", "1", True)]
        assert (again.session("scout").status, again.session("scout").result, waiting(again)) == ("finished", ["yes"], [])
        assert git("rev-parse", "refs/clia/events/scout", cwd=place.root) == events, "git has the end once"
        assert again.start("scout", "steps", 1).id == "2"
        assert codes(again) == []


def test_an_end_without_a_commit_is_found_in_the_events(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "product")
    space.resume("scout", 2)
    place.save("older")
    assert space.resume("scout", 3).result == 6
    put_back(place)
    with place.open() as again:
        refused("session-behind", lambda: again.resume("scout", 4))
        assert codes(again, repair=True) == [("session-behind", "1", True)]
        session = again.session("scout")
        assert (session.status, session.result, session.resumes) == ("finished", None, [2]), "git has no answers of workers"
        assert codes(again) == []


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
        assert codes(again, repair=True) == [("session-behind", "1", True)]
        assert again.session("scout").resumes == [1, 2]
        commit = commit_change(again)
        assert again.fork("scout", "other", commit).resumes == [1, 2]
        assert codes(again) == []


def test_an_answered_question_is_not_asked_again(place: SwappableSpace, space: clia.Space) -> None:
    asked = space.ask("scout", {"question": "Which?"})
    place.save("older")
    space.decide("scout", "this", request_id=asked.id)
    put_back(place)
    with place.open() as again:
        refused("session-behind", lambda: again.decide("scout", "that", request_id=asked.id))
        assert codes(again, repair=True) == [("session-behind", "ask-1", True)]
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
        assert codes(again, repair=True) == [("row-differs", "ask-2", True)]
        assert again.ask("scout", {"question": "Third?"}).id == "ask-3.1"
        assert codes(again) == []


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
        assert codes(again) == [("lost-session", "1", False)]
        assert codes(again, repair=True) == [("lost-session", "1", True)]
        assert waiting(again) == ["1.2"]
        assert again.decide("scout", "end").session.result == ["yes", "end"]
        assert codes(again) == []


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
        assert codes(again) == [("lost-session", "1", False)]
        assert codes(again, repair=True) == [("lost-session", "1", True)]
        assert codes(again) == []
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
    """A store that went on after it was put back, with an earlier version."""
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
        assert codes(again) == [("session-differs", "1", False)]
        assert codes(again, repair=True) == [("session-differs", "1", True)]
        assert again.session("scout").resumes == [1, 2]
        with again.local.store.reading() as view:
            kept = [entry.body for entry in view.streams.read(f"{REPLACED}session/scout/1")]
        assert [body["resume"][2] for body in kept if body["event"] == "resumed"] == [1, 22, 33]
        assert again.resume("scout", 3).resumes == [1, 2, 3]
        assert codes(again) == []


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
    assert ("decision-missing", "1", False) in codes(space)
    git("update-ref", BRANCH, third, cwd=place.root)
    assert codes(space) == []
    assert space.decide("scout", "four").session.result == ["one", "two", "three", "four"]


def test_a_session_goes_back_to_what_its_branch_has(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 4)
    first, second, third = decided(space, "one", "two", "three")
    git("update-ref", BRANCH, first, cwd=place.root)
    assert ("decision-missing", "1", True) in codes(space, repair=True)
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


def test_a_rebase_that_drops_a_decision_freezes_the_session(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 3)
    first, _ = decided(space, "one", "two")
    tree = git("rev-parse", f"{first}^{{tree}}", cwd=place.root).strip()
    other = git("commit-tree", tree, "-p", first, "-m", "by hand", cwd=place.root).strip()
    git("update-ref", BRANCH, other, cwd=place.root)
    refused("decision-missing", lambda: space.decide("scout", "three"))
    assert ("decision-missing", "1", True) in codes(space, repair=True)
    assert waiting(space) == ["1.2"]


def test_the_branch_of_a_waiting_session_is_restored(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 2)
    (first,) = decided(space, "one")
    git("update-ref", "-d", BRANCH, cwd=place.root)
    ailment = next(ailment for ailment in space.doctor() if ailment.code == "no-branch")
    assert first in ailment.message
    assert ("no-branch", "", True) in codes(space, repair=True)
    assert git("rev-parse", BRANCH, cwd=place.root).strip() == first
    assert space.decide("scout", "two").session.result == ["one", "two"]


def test_commits_of_plain_git_do_not_freeze_a_session(place: SwappableSpace, space: clia.Space) -> None:
    space.start("scout", "steps", 2)
    (first,) = decided(space, "one")
    tree = git("rev-parse", f"{first}^{{tree}}", cwd=place.root).strip()
    other = git("commit-tree", tree, "-p", first, "-m", "by hand", cwd=place.root).strip()
    git("update-ref", BRANCH, other, cwd=place.root)
    assert space.decide("scout", "two").session.result == ["one", "two"]
    assert codes(space) == []


def test_an_end_that_git_lacks_is_recorded_again(place: SwappableSpace, space: clia.Space) -> None:
    """A repository that is older than its store."""
    space.start("scout", "product")
    commit_change(space)
    space.resume("scout", 2)
    space.resume("scout", 3)
    git("update-ref", "-d", "refs/clia/events/scout", cwd=place.root)
    assert ("end-missing", "1", False) in codes(space)
    space.start("scout", "product")
    assert ("end-missing", "1", True) in codes(space, repair=True)
    assert [code for code, *_ in codes(space) if code != "ref-missing"] == []
    assert (
        git("log", "-1", "--format=%s", "refs/clia/events/scout", cwd=place.root) == "session 1 of scout finished: flow product\n"
    )


# Cost


def test_a_step_compares_two_refs_and_reads_no_history(space: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    from clia.sessions import agreement

    space.start("scout", "steps", 9)
    calls: list[Any] = []
    monkeypatch.setattr(agreement.Agreement, "require", lambda *words: calls.append(words))
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
