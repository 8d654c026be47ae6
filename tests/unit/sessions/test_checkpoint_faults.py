from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.engine.records import LOST
from clia.sessions.replay import SNAPSHOT_INTERVAL
from support import git
from support.session_flows import CAREFUL, COUNTING, PARTS, PRODUCT, QUESTION
from support.session_spaces import Liar, Place, asked, use_engine, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


def put_note(here: Place, at: str, made: Any) -> None:
    """Puts something in a checkpoint's place, spelled as ours are."""
    file = here.root.parent / "note"
    file.write_text(json.dumps(made, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    blob = git("hash-object", "-w", str(file), cwd=here.root).strip()
    git("notes", NOTES, "add", "-f", "-C", blob, at, cwd=here.root)


def diverged(space: clia.Space) -> None:
    """The session meets an engine that departs from its record, and is over."""
    use_engine(space, lambda engine: Liar(engine, after=1))
    with pytest.raises(errors.Nondeterminism):
        space.resume("scout", 99)


def test_a_session_that_was_opened_again_has_all_resumes_in_its_next_checkpoints(here: Place, space: clia.Space) -> None:
    counted(space, 3)
    commit(space)
    space.resume("scout", 3)
    space.resume("scout", 4)
    diverged(space)
    with here.open() as honest:
        assert [(each.code, each.repaired) for each in honest.doctor(repair=True)] == [("replays-again", True)]
        honest.resume("scout", 5)
        first = commit(honest)
        honest.resume("scout", 6)
        second = commit(honest)
        assert honest.session("scout").resumes == [*range(7)]
        assert honest.doctor() == []
    assert "base" not in note(here, first), "it stands by itself"
    assert note(here, second)["base"] == first
    for lost in (False, True):
        if lost:
            here.lose_store()
        with here.open() as again:
            for at, done in ((first, 6), (second, 7)):
                forked = again.fork("scout", f"fork-{done}-{int(lost)}", at)
                assert forked.resumes == [*range(done)]
                assert asked(forked) == [(str(done + 1), "number", {"turn": done, "total": sum(range(done))}, 4)]


def test_a_delta_counts_resumes_and_not_the_events_between_them(here: Place, space: clia.Space) -> None:
    """The pointer to the last checkpoint may have survived from before the session was opened again."""
    counted(space, 3)
    base = commit(space)
    pointer = kept(space, "checkpoint/scout")
    space.resume("scout", 3)
    diverged(space)
    with here.open() as honest:
        honest.doctor(repair=True)
        put(honest, "checkpoint/scout", pointer)
        honest.resume("scout", 4)
        at = commit(honest)
        made = note(here, at)
        assert (made["base"], [each[2] for each in made["resumes"]]) == (base, [3, 4])
        assert honest.fork("scout", "other", at).resumes == [*range(5)]


def lost(code: str = LOST) -> errors.EngineError:
    return errors.EngineError("the process that ran the flow was lost", code=code)


def forged(made: dict[str, Any], **origin: Any) -> dict[str, Any]:
    return {**made, "origin": {**made["origin"], **origin}}


def forging(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda made: forged(made, **{key: value})


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{
        f"{key} is {value!r}": forging(key, value)
        for key, value in (
            *(("flow", [1]), ("flow", None), ("started_at", 5), ("seed", 5), ("seed", None)),
            *(("timezone", 5), ("engine", 5), ("name", 5), ("name", [1])),
        )
    },
    "no seed": lambda made: {**made, "origin": {key: each for key, each in made["origin"].items() if key != "seed"}},
    "a resume that is a number": lambda made: {**made, "resumes": [5]},
    "a resume that is too short": lambda made: {**made, "resumes": [[1]]},
    "a resume that is too long": lambda made: {**made, "resumes": [[*range(9)]]},
    "a call that is a text": lambda made: {**made, "resumes": [["1", made["resumes"][0][1], 3]]},
    "a call that is true": lambda made: {**made, "resumes": [[True, made["resumes"][0][1], 3]]},
    "a hash that is a number": lambda made: {**made, "resumes": [[1, 2, 3]]},
    "an error that is a number": lambda made: {**made, "resumes": [[1, made["resumes"][0][1], None, 5]]},
    "an author that is an object": lambda made: {**made, "resumes": [[1, made["resumes"][0][1], 1, None, None, {}]]},
    "a resume of nothing": lambda made: {**made, "resumes": [[[], {}, 1]]},
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_checkpoint_is_named_and_makes_nothing(here: Place, space: clia.Space, name: str) -> None:
    counted(space, 1)
    at = commit(space)
    put_note(here, at, FORGERIES[name](note(here, at)))
    error = refused("corrupt-journal", lambda: space.fork("scout", "other", at))
    assert error.fields == {"agent": "scout", "commit": at}
    assert space.agents() == ["scout"]
    assert space.resume("scout", 1).resumes == [0, 1], "the live session is not harmed"
    here.lose_store()
    with here.open() as again:
        refused("corrupt-journal", lambda: again.fork("scout", "other", at))
        assert [(each.code, each.repaired) for each in again.doctor(repair=True)] == [("corrupt-journal", False)]
        assert (again.pending(), again.agents()) == ([], ["scout"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("flow", "zz"), ("started_at", "x"), ("timezone", "../../etc/passwd")],
)
def test_a_forged_checkpoint_of_the_right_types_is_no_raw_error_either(
    here: Place, space: clia.Space, key: str, value: str
) -> None:
    counted(space, 1)
    at = commit(space)
    put_note(here, at, forged(note(here, at), **{key: value}))
    with pytest.raises(errors.CliaError):
        space.fork("scout", "other", at)
    assert space.agents() == ["scout"]


@pytest.mark.parametrize("session", ["", "x", "x/../y", "ask-5", "²", "0", "-1", "1" * 5000])
def test_a_checkpoint_of_a_session_that_cannot_be_is_none_of_ours(here: Place, space: clia.Space, session: str) -> None:
    counted(space, 1)
    at = commit(space)
    here.lose_store()
    put_note(here, at, {**note(here, at), "session": session})
    with here.open() as again:
        assert again.doctor(repair=True) == []
        refused("no-checkpoint", lambda: again.fork("scout", "other", at))
        assert again.start("scout", "product").id == "1"


def test_a_forged_note_that_says_where_a_session_started_is_named_too(here: Place, space: clia.Space) -> None:
    start = space.head("scout")
    counted(space, 1)
    at = commit(space)
    here.lose_store()
    put_note(here, at, forged(note(here, at), seed=5))
    with here.open() as again:
        assert refused("corrupt-journal", lambda: again.fork("scout", "other", start)).fields["commit"] == at


def test_a_fork_at_what_plain_git_added_takes_the_checkpoint_of_the_agents_commit_below(here: Place, space: clia.Space) -> None:
    counted(space, 2)
    made = commit(space)
    tree = git("rev-parse", f"{made}^{{tree}}", cwd=here.root).strip()
    tip = made
    for message in ("by hand", "again"):
        tip = git("commit-tree", tree, "-p", tip, "-m", message, cwd=here.root).strip()
    git("update-ref", "refs/heads/agents/scout", tip, made, cwd=here.root)
    forked = space.fork("scout", "other", tip)
    assert (forked.resumes, asked(forked)) == ([0, 1], asked(space.session("scout")))
    assert git("merge-base", "agents/other", tip, cwd=here.root).strip() == tip, "and it has those commits"


def test_a_lost_session_comes_back_after_the_decision_at_the_head(here: Place, space: clia.Space) -> None:
    space.start("scout", "talk")
    decided = space.decide("scout", "yes", by="Ann").cid
    here.lose_store()
    with here.open() as again:
        assert [(each.code, each.repaired) for each in again.doctor(repair=True)] == [("lost-session", True)]
        made = again.session("scout")
        assert asked(made) == [("2", "human", {"question": "Second?", "said": "yes"}, 3)]
        assert made.decisions == [(0, decided)]
        assert again.journal("scout")[1]["resumes"][0][4:6] == [decided, "Ann"]
        assert again.doctor() == []
        assert again.decide("scout", "no").session.result == ["yes", "no"]


def test_a_decision_that_ended_its_session_brings_nothing_back(here: Place, space: clia.Space) -> None:
    space.start("scout", "talk")
    space.decide("scout", "yes")
    assert space.decide("scout", "no").session.status == "finished"
    for code in ([], ["lost-session"]):
        here.lose_store()
        with here.open() as again:
            found = again.doctor(repair=True)
            assert [(each.code, each.repaired) for each in found] == [(each, False) for each in code]
            assert (again.pending(), again.sessions()) == ([], [])
        git("update-ref", "-d", "refs/clia/events/scout", cwd=here.root)  # then only the decision itself can tell


def test_a_decision_is_what_the_next_checkpoint_stands_on(here: Place, space: clia.Space) -> None:
    space.start("scout", "talk")
    decided = space.decide("scout", "yes").cid
    assert kept(space, "checkpoint/scout") == ["1", decided, 0, 0]
    at = commit(space)
    made = note(here, at)
    assert (made["base"], [each[2] for each in made["resumes"]]) == (decided, ["yes"])


def test_a_fork_remembers_its_first_checkpoint_and_its_dump(here: Place, space: clia.Space) -> None:
    counted(space, SNAPSHOT_INTERVAL + 2)
    space.fork("scout", "other")
    genesis = space.genesis("other")
    assert kept(space, "checkpoint/other") == ["1", genesis, SNAPSHOT_INTERVAL + 2, 0]
    space.resume("other", 6)
    assert kept(space, "snapshot/other/1")[0] == SNAPSHOT_INTERVAL, "the copied one is young enough"
    at = commit(space, "other")
    made = json.loads(git("notes", "--ref=clia/session/other", "show", at, cwd=here.root))
    assert (made["base"], [each[2] for each in made["resumes"]]) == (genesis, [6])
