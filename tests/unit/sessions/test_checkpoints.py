"""Checkpoints in git: small, enough to rebuild a run with the store gone, and never trusted beyond what they say."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.sessions.checkpoints import CHAIN
from support import git
from support.session_flows import CAREFUL, CHANCE, COUNTING, PARTS, PRODUCT, SUSPENDS_OFTEN
from support.session_spaces import Place, Spy, asked, ends, forget_runs, use_engine, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTES = "--ref=clia/session/scout"
_numbers = itertools.count()


@pytest.fixture
def space(here: Place) -> Iterator[clia.Space]:
    with here.open() as made:
        yield with_agents(made, "scout", counting=COUNTING, chance=CHANCE, parts=PARTS, product=PRODUCT, careful=CAREFUL)


def notes(here: Place, agent: str = "scout") -> dict[str, str]:
    """By commit the id of its checkpoint."""
    lines = git("notes", f"--ref=clia/session/{agent}", "list", cwd=here.root).splitlines()
    return {commit: blob for blob, commit in (line.split() for line in lines)}


def note(here: Place, commit: str) -> dict[str, Any]:
    return dict(json.loads(git("notes", NOTES, "show", commit, cwd=here.root)))


def put_note(here: Place, commit: str, text: str) -> None:
    """Puts a text in a checkpoint's place, byte by byte as it is."""
    file = here.root.parent / "note"
    file.write_text(text)
    blob = git("hash-object", "-w", str(file), cwd=here.root).strip()
    git("notes", NOTES, "add", "-f", "-C", blob, commit, cwd=here.root)


def commit(space: clia.Space, name: str = "scout") -> str:
    return space.commit(name, "finding", changes={"n": str(next(_numbers)).encode()})


def sizes(here: Place, blobs: set[str]) -> int:
    import subprocess

    words = ["git", "cat-file", "--batch-check=%(objectsize)"]
    done = subprocess.run(words, cwd=here.root, input="\n".join(blobs), capture_output=True, text=True, check=True)
    return sum(map(int, done.stdout.split()))


def test_a_checkpoint_says_all_that_a_run_depends_on(here: Place, space: clia.Space) -> None:
    started = commit(space)
    space.start("scout", "counting", 5, timezone="Europe/Berlin")
    space.resume("scout", 10, by="worker")
    made = note(here, commit(space))
    origin = made["origin"]
    assert (made["type"], made["agent"], made["session"], made["done"], made["on"]) == ("session", "scout", "1", 1, started)
    assert (origin["flow"], origin["input"], origin["timezone"]) == (space.flow("counting").cid, 5, "Europe/Berlin")
    assert origin["started_at"] == space.session("scout").started_at
    assert len(origin["seed"]) == 32
    assert origin["engine"].startswith("pydantic-monty")
    assert [each[2] for each in made["resumes"]] == [10]


def test_a_state_that_did_not_change_is_the_same_blob(here: Place, space: clia.Space) -> None:
    space.start("scout", "counting", 5)
    first, second = commit(space), commit(space)
    space.resume("scout", 1)
    third, fourth = commit(space), commit(space)
    found = notes(here)
    assert found[first] == found[second]
    assert found[third] == found[fourth]
    assert found[first] != found[third]
    assert note(here, third)["base"] == first
    assert [each[2] for each in note(here, third)["resumes"]] == [1]
    assert space.fork("scout", "other", fourth).resumes == [1]


def test_many_resumes_with_a_commit_each_take_little_room_and_each_commit_can_be_forked(
    here: Place, space: clia.Space, soak: bool
) -> None:
    count = 1000 if soak else 300
    space.start("scout", "counting", count + 1)
    made = []
    for value in range(count):
        space.resume("scout", value)
        made.append(commit(space))
    found = notes(here)
    assert len(found) == count
    assert sizes(here, set(found.values())) < 2000 * count
    assert max(note(here, each).get("depth", 0) for each in made[::37]) <= CHAIN
    here.lose_store()
    with here.open() as again:
        for index in (0, 1, CHAIN - 1, CHAIN, CHAIN + 1, CHAIN + 2, count // 2, count - 1):
            forked = again.fork("scout", f"fork-{index}", made[index])
            assert forked.resumes == [*range(index + 1)]
            assert asked(forked) == [(str(index + 2), "number", {"turn": index + 1, "total": sum(range(index + 1))}, 4)]


def test_a_session_that_follows_another_has_checkpoints_of_its_own(here: Place, space: clia.Space) -> None:
    space.start("scout", "counting", 5)
    space.resume("scout", 1)
    first = commit(space)
    space.cancel("scout")
    between = commit(space)
    space.start("scout", "product")
    second = commit(space)
    assert between not in notes(here)
    assert "base" not in note(here, second)
    here.lose_store()
    with here.open() as again:
        assert again.fork("scout", "one", first).flow == "counting"
        assert again.fork("scout", "two", second).flow == "product"
        assert again.fork("scout", "three", between).flow == "product", "the second session started on this commit"
        assert again.fork("scout", "four", space.genesis("scout")).resumes == []


def test_numbers_are_not_given_out_again_when_the_store_is_lost(here: Place, space: clia.Space) -> None:
    space.define("counting", SUSPENDS_OFTEN)
    space.start("scout", "counting", 5)
    space.cancel("scout")
    space.start("scout", "counting", 5)
    space.decide("scout", 7)
    question = space.ask("scout", {"question": "?"})
    space.decide("scout", 8, request_id=question.id)
    here.lose_store()
    with here.open() as again:
        assert again.start("scout", "product").id == "3"
        assert again.ask("scout", {"question": "?"}).id == "ask-2.1"
        refused("no-such-request", lambda: again.decide("scout", 9, request_id="1.1"))


def test_what_was_given_up_and_what_was_decided_is_rebuilt_with_the_store_gone(here: Place, space: clia.Space) -> None:
    space.define("careful", CAREFUL.replace('"next", found', '"suspend", found'))
    space.start("scout", "careful", "cats")
    space.give_up("scout", "no network", by="worker")
    at = commit(space)
    decided = space.decide("scout", "later", by="Ann").cid
    here.lose_store()
    with here.open() as again:
        forked = again.fork("scout", "other", at)
        assert forked.resumes == [{"error": "no network"}]
        assert asked(forked) == [("2", "suspend", "no network", 6)]
        assert again.resume("other", "now").result == {"found": "no network", "next": "now"}
        assert asked(again.fork("scout", "third", decided)) == [("2", "suspend", "no network", 6)]


def test_a_flow_sees_the_keys_of_an_object_in_one_order_before_and_after_the_store_is_lost(here: Place, space: clia.Space) -> None:
    space.define("keys", "def main(input):\n    given = request('more', list(input))\n    return request('last', list(given))\n")
    unsorted = {"b": 1, "a": {"z": 1, "y": 2}, "": 3, "é": 4, "\U0001f600": 5, "\uffee": 6, "A": 7}
    space.start("scout", "keys", unsorted)
    begun = commit(space)
    first = asked(space.session("scout"))
    space.resume("scout", unsorted)
    at = commit(space)
    second = asked(space.session("scout"))
    here.lose_store()
    with here.open() as again:
        assert asked(again.fork("scout", "one", begun)) == first
        assert asked(again.fork("scout", "two", at)) == second


def test_forks_after_the_store_is_lost_have_checkpoints_and_are_forked_in_their_turn(here: Place, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    for value in range(5):
        space.resume("scout", value)
    at = commit(space)
    here.lose_store()
    with here.open() as again:
        again.fork("scout", "child", at)
        again.resume("child", 100)
        later = commit(again, "child")
    here.lose_store()
    with here.open() as again:
        assert again.fork("child", "grandchild", later).resumes == [0, 1, 2, 3, 4, 100]
        assert again.fork("child", "other", again.genesis("child")).resumes == [0, 1, 2, 3, 4]
        assert again.fork("child", "third", later).started_at == again.session("other").started_at
        assert again.verify().clean


def test_a_fork_whose_first_checkpoint_is_gone_is_not_taken_for_a_run_from_the_start(here: Place, space: clia.Space) -> None:
    space.start("scout", "counting", 99)
    space.resume("scout", 5)
    space.fork("scout", "child")
    git("notes", "--ref=clia/session/child", "remove", str(space.genesis("child")), cwd=here.root)
    with here.open() as again:
        refused("no-checkpoint", lambda: again.fork("child", "other", again.genesis("child")))
        again.resume("child", 6)
        later = commit(again, "child")
        assert again.fork("child", "other", later).resumes == [5, 6]
        refused("no-checkpoint", lambda: again.fork("child", "third", again.genesis("child")))
    here.lose_store()
    with here.open() as again:
        refused("no-checkpoint", lambda: again.fork("child", "third", again.genesis("child")))


def test_a_checkpoint_whose_base_is_gone_is_said_and_makes_no_agent(here: Place, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    first = commit(space)
    space.resume("scout", 1)
    second = commit(space)
    git("notes", NOTES, "remove", first, cwd=here.root)
    with here.open() as again:
        error = refused("corrupt-journal", lambda: again.fork("scout", "other", second))
        assert isinstance(error, errors.CorruptJournal)
        assert error.fields == {"agent": "scout", "commit": second}
        assert again.agents() == ["scout"]
        assert again.fork("scout", "alive").resumes == [1], "the live session is not harmed"


NONSENSE = {
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


@pytest.mark.parametrize("name", NONSENSE)
def test_a_note_that_is_not_ours_or_nonsense_is_a_clear_error(here: Place, space: clia.Space, name: str) -> None:
    space.start("scout", "counting", 9)
    at = commit(space)
    put_note(here, at, NONSENSE[name])
    with here.open() as again:
        with pytest.raises((errors.NotFound, errors.CorruptJournal)) as caught:
            again.fork("scout", "other", at)
        assert caught.value.fields["commit"] == at
        assert again.agents() == ["scout"]
        again.resume("scout", 1)
        commit(again)
        assert again.session("scout").resumes == [1]


def test_a_checkpoint_that_stands_on_itself_ends(here: Place, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    at = commit(space)
    loop = json.dumps({"base": at, "resumes": [], "session": "1", "type": "session"}, sort_keys=True, separators=(",", ":"))
    put_note(here, at, loop)
    with here.open() as again:
        refused("corrupt-journal", lambda: again.fork("scout", "other", at))


def test_a_checkpoint_whose_answers_are_to_other_questions_is_divergence(here: Place, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    space.resume("scout", 1)
    space.resume("scout", 2)
    at = commit(space)
    made = note(here, at)
    made["resumes"][1][1] = "0" * 32
    put_note(here, at, json.dumps(made, sort_keys=True, separators=(",", ":")))
    with here.open() as again:
        with pytest.raises(errors.Nondeterminism) as caught:
            again.fork("scout", "other", at)
        assert caught.value.fields["position"] == 1
        assert again.agents() == ["scout"]
        assert again.session("scout").status == "suspended"


def test_a_flow_that_is_gone_is_said(here: Place, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    space.resume("scout", 1)
    at = commit(space)
    git("update-ref", "-d", "refs/clia/behaviours/counting", cwd=here.root)
    git("reflog", "expire", "--expire=now", "--all", cwd=here.root)
    git("gc", "--quiet", "--prune=now", cwd=here.root)
    with here.open() as again:
        refused("no-such-object", lambda: again.fork("scout", "other", at))
        forget_runs(again)
        refused("no-such-object", lambda: again.resume("scout", 2))
        assert again.session("scout").resumes == [1], "what is recorded can still be read"
        again.define("counting", COUNTING)
        again.resume("scout", 2)
        assert again.fork("scout", "other", at).resumes == [1]


def test_a_flow_outlives_gc_while_a_ref_holds_it(here: Place, space: clia.Space) -> None:
    space.start("scout", "counting", 9)
    space.define("counting", COUNTING + "\n# another version\n")
    space.resume("scout", 1)
    at = commit(space)
    git("reflog", "expire", "--expire=now", "--all", cwd=here.root)
    git("gc", "--quiet", "--prune=now", cwd=here.root)
    with here.open() as again:
        assert again.resume("scout", 2).resumes == [1, 2]
        assert again.fork("scout", "other", at).resumes == [1]
        assert again.verify().clean


def test_a_fork_of_a_question_takes_the_session_and_not_the_question(space: clia.Space) -> None:
    space.ask("scout", {"question": "?"})
    refused("no-such-session", lambda: space.fork("scout", "other"))
    space.start("scout", "product")
    space.fork("scout", "other")
    assert [each.id for each in space.pending("other")] == ["1.1"]


def test_a_commit_beside_only_a_question_has_no_checkpoint(here: Place, space: clia.Space) -> None:
    space.ask("scout", {"question": "?"})
    at = commit(space)
    refused("no-checkpoint", lambda: space.fork("scout", "other", at))
    assert git("for-each-ref", "refs/notes/clia/session", cwd=here.root) == ""


def test_a_session_that_ended_at_once_cannot_be_forked_from_where_it_started(space: clia.Space) -> None:
    space.define("quick", "def main(input):\n    return 1\n")
    at = commit(space)
    assert space.start("scout", "quick").result == 1
    refused("no-checkpoint", lambda: space.fork("scout", "other", at))
    assert space.agents() == ["scout"]


def test_a_fork_from_a_commit_replays_once_and_goes_on_by_its_dump(space: clia.Space) -> None:
    space.start("scout", "counting", 30)
    for value in range(20):
        space.resume("scout", value)
    at = commit(space)
    spy: Spy = use_engine(space, Spy)
    space.fork("scout", "other", at)
    assert spy.counts() == (1, 0, 20)
    space.resume("other", 20)
    assert spy.counts() == (0, 1, 1)


def test_an_end_is_told_once_even_where_the_chain_was_moved_by_git(here: Place, space: clia.Space) -> None:
    space.start("scout", "product")
    space.resume("scout", 1)
    space.relate("scout", "advises", "scout")
    git("pack-refs", "--all", cwd=here.root)
    space.resume("scout", 2)
    assert ends(here.root, "scout") == [("1", "finished")]
