"""Checkpoints of reopened sessions, forged checkpoints, and sessions restored from decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.sessions.replay import SNAPSHOT_INTERVAL
from support import git
from support.session_spaces import (
    SessionSpace,
    checkpoint,
    commit_change,
    count_up,
    diverge,
    pending_requests,
    put_checkpoint,
    put_value,
    stored,
)
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable


def test_reopened_sessions_have_all_resumes_in_their_next_checkpoints(place: SessionSpace, space: clia.Space) -> None:
    count_up(space, 3)
    commit_change(space)
    space.resume("scout", 3)
    space.resume("scout", 4)
    diverge(space)
    with place.open() as honest:
        assert [(finding.code, finding.repaired) for finding in honest.doctor(repair=True)] == [("replays-again", True)]
        honest.resume("scout", 5)
        first = commit_change(honest)
        honest.resume("scout", 6)
        second = commit_change(honest)
        assert honest.session("scout").resumes == [*range(7)]
        assert honest.doctor() == []
    assert "base" not in checkpoint(place, first), "it is not a delta"
    assert checkpoint(place, second)["base"] == first
    for store_lost in (False, True):
        if store_lost:
            place.lose_store()
        with place.open() as again:
            for commit, resumes in ((first, 6), (second, 7)):
                forked = again.fork("scout", f"fork-{resumes}-{int(store_lost)}", commit)
                assert forked.resumes == [*range(resumes)]
                assert pending_requests(forked) == [
                    (str(resumes + 1), "number", {"turn": resumes, "total": sum(range(resumes))}, 4)
                ]


def test_a_delta_counts_resumes_and_no_other_events(place: SessionSpace, space: clia.Space) -> None:
    """The pointer to the last checkpoint may date from before the session was reopened."""
    count_up(space, 3)
    base = commit_change(space)
    pointer = stored(space, "checkpoint/scout")
    space.resume("scout", 3)
    diverge(space)
    with place.open() as honest:
        honest.doctor(repair=True)
        put_value(honest, "checkpoint/scout", pointer)
        honest.resume("scout", 4)
        commit = commit_change(honest)
        delta = checkpoint(place, commit)
        assert (delta["base"], [resume[2] for resume in delta["resumes"]]) == (base, [3, 4])
        assert honest.fork("scout", "other", commit).resumes == [*range(5)]


def forged(content: dict[str, Any], **origin: Any) -> dict[str, Any]:
    return {**content, "origin": {**content["origin"], **origin}}


def forging(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: forged(content, **{key: value})


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{
        f"{key} is {value!r}": forging(key, value)
        for key, value in (
            *(("flow", [1]), ("flow", None), ("started_at", 5), ("seed", 5), ("seed", None)),
            *(("timezone", 5), ("engine", 5), ("name", 5), ("name", [1])),
        )
    },
    "no seed": lambda content: {**content, "origin": {key: value for key, value in content["origin"].items() if key != "seed"}},
    "a resume that is a number": lambda content: {**content, "resumes": [5]},
    "a resume that is too short": lambda content: {**content, "resumes": [[1]]},
    "a resume that is too long": lambda content: {**content, "resumes": [[*range(9)]]},
    "a call that is a text": lambda content: {**content, "resumes": [["1", content["resumes"][0][1], 3]]},
    "a call that is true": lambda content: {**content, "resumes": [[True, content["resumes"][0][1], 3]]},
    "a hash that is a number": lambda content: {**content, "resumes": [[1, 2, 3]]},
    "an error that is a number": lambda content: {**content, "resumes": [[1, content["resumes"][0][1], None, 5]]},
    "an author that is an object": lambda content: {**content, "resumes": [[1, content["resumes"][0][1], 1, None, None, {}]]},
    "a resume of nothing": lambda content: {**content, "resumes": [[[], {}, 1]]},
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_checkpoint_is_reported_and_creates_no_agent(place: SessionSpace, space: clia.Space, name: str) -> None:
    count_up(space, 1)
    commit = commit_change(space)
    put_checkpoint(place, commit, FORGERIES[name](checkpoint(place, commit)))
    error = refused("corrupt-journal", lambda: space.fork("scout", "other", commit))
    assert error.fields == {"agent": "scout", "commit": commit}
    assert space.agents() == ["scout"]
    assert space.resume("scout", 1).resumes == [0, 1], "the live session is unaffected"
    place.lose_store()
    with place.open() as again:
        refused("corrupt-journal", lambda: again.fork("scout", "other", commit))
        assert [(finding.code, finding.repaired) for finding in again.doctor(repair=True)] == [("corrupt-journal", False)]
        assert (again.pending(), again.agents()) == ([], ["scout"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("flow", "zz"), ("started_at", "x"), ("timezone", "../../etc/passwd")],
)
def test_a_forged_checkpoint_with_the_right_types_raises_a_clia_error(
    place: SessionSpace, space: clia.Space, key: str, value: str
) -> None:
    count_up(space, 1)
    commit = commit_change(space)
    put_checkpoint(place, commit, forged(checkpoint(place, commit), **{key: value}))
    with pytest.raises(errors.CliaError):
        space.fork("scout", "other", commit)
    assert space.agents() == ["scout"]


@pytest.mark.parametrize("session", ["", "x", "x/../y", "ask-5", "²", "0", "-1", "1" * 5000])
def test_a_checkpoint_with_an_impossible_session_id_is_ignored(place: SessionSpace, space: clia.Space, session: str) -> None:
    count_up(space, 1)
    commit = commit_change(space)
    place.lose_store(rebuild=False)
    put_checkpoint(place, commit, {**checkpoint(place, commit), "session": session})
    with place.open() as again:
        assert [finding.code for finding in again.doctor(repair=True)] == ["store-lost"]
        refused("no-checkpoint", lambda: again.fork("scout", "other", commit))
        assert again.start("scout", "product").id == "1"


def test_a_forged_checkpoint_of_the_start_is_reported_too(place: SessionSpace, space: clia.Space) -> None:
    start = space.head("scout")
    count_up(space, 1)
    commit = commit_change(space)
    place.lose_store()
    put_checkpoint(place, commit, forged(checkpoint(place, commit), seed=5))
    with place.open() as again:
        assert refused("corrupt-journal", lambda: again.fork("scout", "other", start)).fields["commit"] == commit


def test_a_fork_at_commits_added_by_git_uses_the_checkpoint_of_the_agents_last_commit(
    place: SessionSpace, space: clia.Space
) -> None:
    count_up(space, 2)
    commit = commit_change(space)
    tree = git("rev-parse", f"{commit}^{{tree}}", cwd=place.root).strip()
    tip = commit
    for message in ("by hand", "again"):
        tip = git("commit-tree", tree, "-p", tip, "-m", message, cwd=place.root).strip()
    git("update-ref", "refs/heads/agents/scout", tip, commit, cwd=place.root)
    forked = space.fork("scout", "other", tip)
    assert (forked.resumes, pending_requests(forked)) == ([0, 1], pending_requests(space.session("scout")))
    assert git("merge-base", "agents/other", tip, cwd=place.root).strip() == tip, "the fork has those commits"


def test_a_lost_session_is_restored_from_the_decision_at_the_head(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "talk")
    decision = space.decide("scout", "yes", by="Ann").cid
    place.lose_store(rebuild=False)
    with place.open() as again:
        findings = [(finding.code, finding.repaired) for finding in again.doctor(repair=True)]
        assert findings == [("store-lost", True), ("lost-session", True)]
        session = again.session("scout")
        assert pending_requests(session) == [("2", "human", {"question": "Second?", "said": "yes"}, 3)]
        assert session.decisions == [(0, decision)]
        assert again.journal("scout")[1]["resumes"][0][4:6] == [decision, "Ann"]
        assert again.doctor() == []
        assert again.decide("scout", "no").session.result == ["yes", "no"]


def test_a_session_that_a_decision_ended_does_not_go_on(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "talk")
    space.decide("scout", "yes")
    assert space.decide("scout", "no").session.status == "finished"
    for codes in (["store-lost"], ["store-lost", "lost-session"]):
        place.lose_store(rebuild=False)
        with place.open() as again:
            findings = again.doctor(repair=True)
            assert [(finding.code, finding.repaired) for finding in findings] == [(expected_code, True) for expected_code in codes]
            assert again.pending() == []
            assert [session.status for session in again.sessions()] == ["finished"] * (len(codes) - 1)
            assert again.doctor() == []
        assert "session 1 of scout finished" in git("log", "--format=%s", "refs/clia/events/scout", cwd=place.root)
        git("update-ref", "-d", "refs/clia/events/scout", cwd=place.root)  # then only the decision itself shows it


def test_a_decision_is_the_base_of_the_next_checkpoint(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "talk")
    decision = space.decide("scout", "yes").cid
    assert stored(space, "checkpoint/scout") == ["1", [[0, decision, 0]]]
    commit = commit_change(space)
    delta = checkpoint(place, commit)
    assert (delta["base"], [resume[2] for resume in delta["resumes"]]) == (decision, ["yes"])


def test_a_fork_records_its_first_checkpoint_and_its_dump(place: SessionSpace, space: clia.Space) -> None:
    count_up(space, SNAPSHOT_INTERVAL + 2)
    space.fork("scout", "other")
    genesis = space.genesis("other")
    assert stored(space, "checkpoint/other") == ["1", [[0, genesis, SNAPSHOT_INTERVAL + 2]]]
    space.resume("other", 6)
    assert stored(space, "snapshot/other/1")[0] == SNAPSHOT_INTERVAL, "the copied dump is recent enough"
    commit = commit_change(space, "other")
    delta = checkpoint(place, commit, "other")
    assert (delta["base"], [resume[2] for resume in delta["resumes"]]) == (genesis, [6])
