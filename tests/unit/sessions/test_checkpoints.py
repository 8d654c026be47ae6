"""Checkpoints in git: small, sufficient to rebuild a run without the store, and validated before use."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

import clia
from clia import errors
from clia.sessions.checkpoints import CHAIN
from clia.sessions.records import resumed_json
from clia.testing import components
from support import git
from support.session_flows import CAREFUL, COUNTING, SUSPENDS_OFTEN
from support.session_spaces import (
    EngineSpy,
    SessionSpace,
    checkpoint,
    commit_change,
    ends,
    forget_runs,
    pending_requests,
    put_checkpoint,
    put_value,
    use_engine,
)
from support.spaces import refused

NOTES = "--ref=clia/session/scout"


def checkpoint_blobs(place: SessionSpace, agent: str = "scout") -> dict[str, str]:
    """The checkpoint blobs by commit."""
    lines = git("notes", f"--ref=clia/session/{agent}", "list", cwd=place.root).splitlines()
    return {commit: blob for blob, commit in (line.split() for line in lines)}


def total_size(place: SessionSpace, blobs: set[str]) -> int:
    import subprocess

    command = ["git", "cat-file", "--batch-check=%(objectsize)"]
    process = subprocess.run(command, cwd=place.root, input="\n".join(blobs), capture_output=True, text=True, check=True)
    return sum(map(int, process.stdout.split()))


def test_a_checkpoint_has_everything_that_a_run_depends_on(place: SessionSpace, space: clia.Space) -> None:
    started = commit_change(space)
    space.start("scout", "counting", 5, timezone="Europe/Berlin")
    space.resume("scout", 10, by="worker")
    content = checkpoint(place, commit_change(space))
    origin = content["origin"]
    assert (content["type"], content["agent"], content["session"], content["done"], content["on"]) == (
        "session",
        "scout",
        "1",
        1,
        started,
    )
    assert (origin["flow"], origin["input"], origin["timezone"]) == (space.flow("counting").cid, 5, "Europe/Berlin")
    assert origin["started_at"] == space.session("scout").started_at
    assert len(origin["seed"]) == 32
    assert origin["engine"].startswith("pydantic-monty")
    assert [resume[2] for resume in content["resumes"]] == [10]


def test_an_unchanged_state_is_stored_as_the_same_blob(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "counting", 5)
    first, second = commit_change(space), commit_change(space)
    space.resume("scout", 1)
    third, fourth = commit_change(space), commit_change(space)
    blobs = checkpoint_blobs(place)
    assert blobs[first] == blobs[second]
    assert blobs[third] == blobs[fourth]
    assert blobs[first] != blobs[third]
    assert checkpoint(place, third)["base"] == first
    assert [resume[2] for resume in checkpoint(place, third)["resumes"]] == [1]
    assert space.fork("scout", "other", fourth).resumes == [1]


def test_many_checkpoints_take_little_space_and_each_can_be_forked(place: SessionSpace, space: clia.Space, soak: bool) -> None:
    count = 1000 if soak else 300
    space.start("scout", "counting", count + 1)
    commits = []
    for value in range(count):
        space.resume("scout", value)
        commits.append(commit_change(space))
    blobs = checkpoint_blobs(place)
    assert len(blobs) == count
    assert total_size(place, set(blobs.values())) < 2000 * count
    assert max(checkpoint(place, commit)["depth"] for commit in commits[::37]) <= count.bit_length()
    assert sum(len(checkpoint(place, commit)["resumes"]) for commit in commits[::7]) < count // 7 * count.bit_length()
    place.lose_store()
    with place.open() as again:
        for index in (0, 1, CHAIN - 1, CHAIN, CHAIN + 1, CHAIN + 2, count // 2, count - 1):
            forked = again.fork("scout", f"fork-{index}", commits[index])
            assert forked.resumes == [*range(index + 1)]
            assert pending_requests(forked) == [(str(index + 2), "number", {"turn": index + 1, "total": sum(range(index + 1))}, 4)]


def test_chains_of_earlier_versions_are_read(place: SessionSpace, space: clia.Space) -> None:
    """They were longer, and each checkpoint was based on the one before."""
    space.start("scout", "counting", CHAIN + 2)
    commits = []
    for value in range(CHAIN + 1):
        space.resume("scout", value)
        commits.append(commit_change(space))
    every = checkpoint(place, commits[-1])["done"]
    assert every == len(commits)
    journal = components(space).lifecycle.recorded("scout", "1")
    resumes = list(map(resumed_json, journal.resumes))
    for index, (before, commit) in enumerate(pairwise(commits), 1):
        delta = {"type": "session", "agent": "scout", "session": "1", "base": before, "resumes": [resumes[index]]}
        put_checkpoint(place, commit, delta | {"depth": index, "done": index + 1})
    put_value(space, "checkpoint/scout", ["1", commits[-1], len(commits), CHAIN])
    assert space.fork("scout", "other", commits[-1]).resumes == [*range(CHAIN + 1)]
    last = commit_change(space)
    assert "base" not in checkpoint(place, last)
    assert space.fork("scout", "another", last).resumes == [*range(CHAIN + 1)]


def test_checkpoints_of_other_sessions_beside_the_first_are_ignored(place: SessionSpace, space: clia.Space) -> None:
    """As a later version may write them."""
    space.start("scout", "counting", 3)
    space.resume("scout", 1)
    commit = commit_change(space)
    core = components(space).core
    note = core.notes.get("refs/notes/clia/session/scout", commit)
    assert note is not None
    body = json.loads(core.objects.blob(note)) | {"beside": [{"session": "2", "resumes": [], "origin": {}}]}
    blob = core.objects.write_blob(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
    assert core.notes.bind("refs/notes/clia/session/scout", commit, blob, core.person_stamp(), "test\n")
    assert space.verify().clean
    assert space.doctor() == []
    assert space.fork("scout", "twin", commit).resumes == [1]
    later = space.commit("scout", "finding", changes={"b": b"2"})
    assert space.fork("scout", "other", later).resumes == [1]


def test_a_session_that_follows_another_has_its_own_checkpoints(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "counting", 5)
    space.resume("scout", 1)
    first = commit_change(space)
    space.cancel("scout")
    between = commit_change(space)
    space.start("scout", "product")
    second = commit_change(space)
    assert between not in checkpoint_blobs(place)
    assert "base" not in checkpoint(place, second)
    place.lose_store()
    with place.open() as again:
        assert again.fork("scout", "one", first).flow == "counting"
        assert again.fork("scout", "two", second).flow == "product"
        assert again.fork("scout", "three", between).flow == "product", "the second session started on this commit"
        assert again.fork("scout", "four", space.genesis("scout")).resumes == []


def test_ids_are_not_reused_when_the_store_is_lost(place: SessionSpace, space: clia.Space) -> None:
    space.define("counting", SUSPENDS_OFTEN)
    space.start("scout", "counting", 5)
    space.cancel("scout")
    space.start("scout", "counting", 5)
    space.decide("scout", 7)
    question = space.ask("scout", {"question": "?"})
    space.decide("scout", 8, request_id=question.id)
    place.lose_store()
    with place.open() as again:
        assert again.cancel("scout").id == "2"
        assert again.start("scout", "product").id == "3"
        assert again.ask("scout", {"question": "?"}).id == "ask-2.1"
        refused("no-such-request", lambda: again.decide("scout", 9, request_id="1.1"))


def test_failures_and_decisions_are_rebuilt_when_the_store_is_lost(place: SessionSpace, space: clia.Space) -> None:
    space.define("careful", CAREFUL.replace('"next", found', '"suspend", found'))
    space.start("scout", "careful", "cats")
    space.give_up("scout", "no network", by="worker")
    commit = commit_change(space)
    decision = space.decide("scout", "later", by="Ann").cid
    place.lose_store()
    with place.open() as again:
        forked = again.fork("scout", "other", commit)
        assert forked.resumes == [{"error": "no network"}]
        assert pending_requests(forked) == [("2", "suspend", "no network", 6)]
        assert again.resume("other", "now").result == {"found": "no network", "next": "now"}
        assert pending_requests(again.fork("scout", "third", decision)) == [("2", "suspend", "no network", 6)]


def test_a_flow_sees_object_keys_in_the_same_order_after_the_store_is_lost(place: SessionSpace, space: clia.Space) -> None:
    space.define("keys", "def main(input):\n    more = request('more', list(input))\n    return request('last', list(more))\n")
    unsorted = {"b": 1, "a": {"z": 1, "y": 2}, "": 3, "é": 4, "\U0001f600": 5, "\uffee": 6, "A": 7}
    space.start("scout", "keys", unsorted)
    first_commit = commit_change(space)
    first = pending_requests(space.session("scout"))
    space.resume("scout", unsorted)
    second_commit = commit_change(space)
    second = pending_requests(space.session("scout"))
    place.lose_store()
    with place.open() as again:
        assert pending_requests(again.fork("scout", "one", first_commit)) == first
        assert pending_requests(again.fork("scout", "two", second_commit)) == second


def test_forks_made_after_the_store_is_lost_can_be_forked(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    for value in range(5):
        space.resume("scout", value)
    commit = commit_change(space)
    place.lose_store()
    with place.open() as again:
        again.fork("scout", "child", commit)
        again.resume("child", 100)
        later = commit_change(again, "child")
    place.lose_store()
    with place.open() as again:
        assert again.fork("child", "grandchild", later).resumes == [0, 1, 2, 3, 4, 100]
        assert again.fork("child", "other", again.genesis("child")).resumes == [0, 1, 2, 3, 4]
        assert again.fork("child", "third", later).started_at == again.session("other").started_at
        assert again.verify().clean


def test_a_fork_whose_first_checkpoint_is_missing_is_not_run_from_the_start(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "counting", 99)
    space.resume("scout", 5)
    space.fork("scout", "child")
    git("notes", "--ref=clia/session/child", "remove", str(space.genesis("child")), cwd=place.root)
    with place.open() as again:
        refused("no-checkpoint", lambda: again.fork("child", "other", again.genesis("child")))
        again.resume("child", 6)
        later = commit_change(again, "child")
        assert again.fork("child", "other", later).resumes == [5, 6]
        refused("no-checkpoint", lambda: again.fork("child", "third", again.genesis("child")))
    place.lose_store()
    with place.open() as again:
        refused("no-checkpoint", lambda: again.fork("child", "third", again.genesis("child")))


def test_a_checkpoint_whose_base_is_missing_is_reported_and_creates_no_agent(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    first = commit_change(space)
    space.resume("scout", 1)
    second = commit_change(space)
    git("notes", NOTES, "remove", first, cwd=place.root)
    with place.open() as again:
        error = refused("corrupt-journal", lambda: again.fork("scout", "other", second))
        assert isinstance(error, errors.CorruptJournal)
        assert error.fields == {"agent": "scout", "commit": second}
        assert again.agents() == ["scout"]
        assert again.fork("scout", "alive").resumes == [1], "the live session is unaffected"


INVALID_NOTES = {
    "text": "remember the milk",
    "json": '{"type":"briefing","title":"x","text":""}',
    "no resumes": '{"origin":{},"session":"1","type":"session"}',
    "no origin": '{"resumes":[],"session":"1","type":"session"}',
    "empty origin": '{"origin":{},"resumes":[],"session":"1","type":"session"}',
    "bad resumes": '{"origin":{},"resumes":[3],"session":"1","type":"session"}',
    "bad base": '{"base":"x","resumes":[],"session":"1","type":"session"}',
    "other spelling": '{"type": "session", "session": "1", "resumes": [], "origin": {}}',
    "deep": "[" * 5000,
}


@pytest.mark.parametrize("name", INVALID_NOTES)
def test_an_invalid_or_foreign_note_is_a_clear_error(place: SessionSpace, space: clia.Space, name: str) -> None:
    space.start("scout", "counting", 9)
    commit = commit_change(space)
    put_checkpoint(place, commit, INVALID_NOTES[name])
    with place.open() as again:
        with pytest.raises((errors.NotFound, errors.CorruptJournal)) as caught:
            again.fork("scout", "other", commit)
        assert caught.value.fields["commit"] == commit
        assert again.agents() == ["scout"]
        again.resume("scout", 1)
        commit_change(again)
        assert again.session("scout").resumes == [1]


def test_a_checkpoint_that_is_its_own_base_is_refused(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    commit = commit_change(space)
    put_checkpoint(place, commit, {"base": commit, "resumes": [], "session": "1", "type": "session"})
    with place.open() as again:
        refused("corrupt-journal", lambda: again.fork("scout", "other", commit))


def test_a_checkpoint_with_answers_to_other_requests_is_divergence(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    space.resume("scout", 1)
    space.resume("scout", 2)
    commit = commit_change(space)
    content = checkpoint(place, commit)
    content["resumes"][1][1] = "0" * 32
    put_checkpoint(place, commit, content)
    with place.open() as again:
        with pytest.raises(errors.Nondeterminism) as caught:
            again.fork("scout", "other", commit)
        assert caught.value.fields["position"] == 1
        assert again.agents() == ["scout"]
        assert again.session("scout").status == "suspended"


def test_a_missing_flow_is_reported(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    space.resume("scout", 1)
    commit = commit_change(space)
    git("update-ref", "-d", "refs/clia/behaviours/counting", cwd=place.root)
    git("reflog", "expire", "--expire=now", "--all", cwd=place.root)
    git("gc", "--quiet", "--prune=now", cwd=place.root)
    with place.open() as again:
        refused("no-such-object", lambda: again.fork("scout", "other", commit))
        forget_runs(again)
        refused("no-such-object", lambda: again.resume("scout", 2))
        assert again.session("scout").resumes == [1], "the record can still be read"
        again.define("counting", COUNTING)
        again.resume("scout", 2)
        assert again.fork("scout", "other", commit).resumes == [1]


def test_a_flow_survives_gc_while_a_ref_points_to_it(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    space.define("counting", COUNTING + "\n# another version\n")
    space.resume("scout", 1)
    commit = commit_change(space)
    git("reflog", "expire", "--expire=now", "--all", cwd=place.root)
    git("gc", "--quiet", "--prune=now", cwd=place.root)
    with place.open() as again:
        assert again.resume("scout", 2).resumes == [1, 2]
        assert again.fork("scout", "other", commit).resumes == [1]
        assert again.verify().clean


def test_a_fork_copies_the_session_and_not_the_question(space: clia.Space) -> None:
    space.ask("scout", {"question": "?"})
    refused("no-such-session", lambda: space.fork("scout", "other"))
    space.start("scout", "product")
    space.fork("scout", "other")
    assert [request.id for request in space.pending("other")] == ["1.1"]


def test_a_commit_with_only_a_question_pending_has_no_checkpoint(place: SessionSpace, space: clia.Space) -> None:
    space.ask("scout", {"question": "?"})
    commit = commit_change(space)
    refused("no-checkpoint", lambda: space.fork("scout", "other", commit))
    assert git("for-each-ref", "refs/notes/clia/session", cwd=place.root) == ""


def test_a_session_that_ended_at_once_cannot_be_forked_from_its_start(space: clia.Space) -> None:
    space.define("quick", "def main(input):\n    return 1\n")
    commit = commit_change(space)
    assert space.start("scout", "quick").result == 1
    refused("no-checkpoint", lambda: space.fork("scout", "other", commit))
    assert space.agents() == ["scout"]


def test_a_fork_from_a_commit_replays_once_and_continues_from_its_dump(space: clia.Space) -> None:
    space.start("scout", "counting", 30)
    for value in range(20):
        space.resume("scout", value)
    commit = commit_change(space)
    spy: EngineSpy = use_engine(space, EngineSpy)
    space.fork("scout", "other", commit)
    assert spy.counts() == (1, 0, 20)
    space.resume("other", 20)
    assert spy.counts() == (0, 1, 1)


def test_the_end_of_a_session_is_recorded_once_even_if_git_packed_the_refs(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "product")
    space.resume("scout", 1)
    space.relate("scout", "advises", "scout")
    git("pack-refs", "--all", cwd=place.root)
    space.resume("scout", 2)
    assert ends(place.root, "scout") == [("1", "finished")]
