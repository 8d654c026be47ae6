"""Secrets never reach a record: not by an input, an answer, a reason, a name or the output of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.fake_secrets import FAKES
from support.session_flows import PRODUCT
from support.session_spaces import SessionSpace, all_of_git, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    import clia

SECRET = FAKES[0].text
ECHO = """\
def main(input):
    print("input", input)
    key = request("key", {"for": input})
    print("key", key)
    answer = request("human", {"question": key})
    if answer == "raise":
        raise ValueError(input["token"])
    return [input, key, answer]
"""


@pytest.fixture
def space(space: clia.Space) -> clia.Space:
    return with_agents(space, echo=ECHO)


def leaks(place: SessionSpace) -> list[str]:
    return leaks_of(place, FAKES[0].secret)


def leaks_of(place: SessionSpace, secret: str) -> list[str]:
    """Where a secret occurs: in files of the store, in objects of git, or in file names."""
    content = secret.encode()
    files = [path for path in (place.root / ".git").rglob("*") if path.is_file()]
    places = [str(path) for path in files if content in path.read_bytes() or secret in str(path)]
    return places + (["objects"] if content in all_of_git(place.root) else [])


def test_the_search_finds_a_leak_if_redaction_is_off(place: SessionSpace) -> None:
    with place.open(redact=False) as space:
        with_agents(space, "scout", echo=ECHO)
        space.start("scout", "echo", {"token": SECRET})
    assert leaks(place)
    with place.open(redact=False) as space:
        space.commit_with_trace("scout", "finding", changes={"a": b"1"})
    assert "objects" in leaks(place)


def test_secrets_are_removed_from_inputs_answers_reasons_names_and_output(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "echo", {"token": SECRET})
    space.commit("scout", "finding", changes={"a": b"1"})
    space.resume("scout", f"the key is {SECRET}", by=f"worker with {SECRET}")
    decision = space.decide("scout", ["use", SECRET], f"Because {SECRET} works.", by=f"Ann {SECRET}")
    assert decision.session.status == "finished"
    space.commit_with_trace("scout", "finding", changes={"a": b"2"})
    space.start("scout", "product")
    space.sessions.give_up("scout", f"{SECRET} was refused", by=f"worker {SECRET}")
    space.start("scout", "product")
    space.cancel("scout", f"{SECRET} leaked")
    question = space.ask("scout", {"question": f"is {SECRET} yours?", "choices": [SECRET]})
    space.cancel("scout", session_id=question.session)
    space.start("scout", "echo", {"token": SECRET})
    space.resume("scout", SECRET)
    assert space.decide("scout", "raise").session.status == "failed"
    space.sessions.define("later", PRODUCT, why=f"with {SECRET}")
    space.fork("scout", "other", decision.cid)
    with place.open() as again:
        again.decide("other", SECRET)
    assert leaks(place) == []
    redacted = space.session("scout", "1")
    assert redacted.input != {"token": SECRET}
    assert "redacted" in str(redacted.input).lower()


@pytest.mark.parametrize("verb", ["start", "resume", "decide"])
def test_an_exception_with_a_secret_is_redacted_in_its_failure_and_in_git(
    place: SessionSpace, space: clia.Space, verb: str
) -> None:
    request_line = {"start": "", "resume": "    request('x')\n", "decide": "    request('human')\n"}[verb]
    space.sessions.define(
        "joins", f"def main(input):\n{request_line}    raise ValueError('no entry with ' + input[0] + input[1])\n"
    )
    session = space.start("scout", "joins", [SECRET[:10], SECRET[10:]])
    if verb == "resume":
        session = space.resume("scout", None)
    elif verb == "decide":
        session = space.decide("scout", None).session
    assert session.failure is not None
    assert session.failure["message"].startswith("ValueError: no entry with ")
    space.commit_with_trace("scout", "finding", changes={"a": b"1"})
    assert SECRET not in str(session.failure)
    assert leaks_of(place, SECRET) == []


def test_a_flow_with_a_secret_is_refused_and_stored_nowhere(place: SessionSpace, space: clia.Space) -> None:
    refused("invalid-flow", lambda: space.sessions.define("leaky", f"def main(input):\n    return '{SECRET}'\n"))
    assert leaks(place) == []


def test_a_flow_sees_the_redacted_value_so_that_a_replay_is_the_same(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "question", {"kind": "x", "payload": {"token": SECRET}})
    assert space.pending()[0].payload == space.session("scout").input["payload"]
    commit = space.commit("scout", "finding", changes={"a": b"1"})
    place.lose_store()
    with place.open() as again:
        assert again.fork("scout", "other", commit).status == "suspended"


ASKS = """\
def main(input):
    key = request("human", {"question": "Which key?", **input})
    return {"key": key, "lengths": [len(key)]}
"""
MARK = "[redacted:github-token]"


def test_a_session_counts_the_secrets_removed_from_it(place: SessionSpace, space: clia.Space) -> None:
    started = space.start("scout", "echo", {"token": SECRET})
    assert started.redacted == 1
    resumed = space.resume("scout", [SECRET, SECRET])
    assert resumed.redacted == 3
    decision = space.decide("scout", SECRET)
    assert (decision.value, decision.redacted, decision.session.redacted) == (MARK, 1, 4)
    assert [event.get("redacted", 0) for event in space.sessions.journal("scout")] == [1, 2, 1, 4]
    assert decision.session.to_json()["redacted"] == 4
    with place.open() as again:
        assert again.session("scout").redacted == 4


def test_a_session_without_secrets_has_no_redactions(space: clia.Space) -> None:
    space.start("scout", "echo", {"a": 1})
    space.resume("scout", "x")
    decision = space.decide("scout", "y")
    assert (decision.redacted, decision.session.redacted) == (0, 0)
    assert not any("redacted" in event for event in space.sessions.journal("scout"))


def test_a_result_that_the_flow_composed_is_redacted_and_counted(place: SessionSpace, space: clia.Space) -> None:
    space.sessions.define("composes", "def main(input):\n    return {'token': input[0] + input[1]}\n")
    session = space.start("scout", "composes", [SECRET[:10], SECRET[10:]])
    assert session.result == {"token": MARK}
    assert session.redacted == 1
    assert leaks_of(place, SECRET) == []


def test_a_request_can_keep_the_secrets_of_its_answer(place: SessionSpace, space: clia.Space) -> None:
    space.sessions.define("asks", ASKS)
    space.start("scout", "asks", {"secret": "keep"})
    decision = space.decide("scout", SECRET, f"It is {SECRET}.")
    assert (decision.value, decision.redacted) == (SECRET, 0)
    assert decision.session.result == {"key": SECRET, "lengths": [len(SECRET)]}
    commit = space.show(decision.cid)
    assert SECRET not in commit.message
    assert SECRET not in str(space.traces.pending("scout"))
    place.lose_store()
    with place.open() as again:
        assert again.show(decision.cid).value == f'"{SECRET}"'


def test_a_request_that_does_not_keep_secrets_gets_a_redacted_answer(space: clia.Space) -> None:
    space.sessions.define("asks", ASKS)
    space.start("scout", "asks", {"secret": "yes"})
    session = space.decide("scout", SECRET).session
    assert session.result == {"key": MARK, "lengths": [len(MARK)]}


def test_the_input_decides_whether_a_result_is_kept(space: clia.Space) -> None:
    space.sessions.define("keeps", "def main(input):\n    return request('key', {'secret': input['answer']})\n")
    for answer, secret in [("keep", "keep"), ("keep", "no"), ("no", "keep")]:
        space.start("scout", "keeps", {"answer": answer, "secret": secret})
        assert space.resume("scout", SECRET).result == (SECRET if (answer, secret) == ("keep", "keep") else MARK)


def test_a_kept_answer_replays_the_same(place: SessionSpace, space: clia.Space) -> None:
    space.sessions.define(
        "twice", "def main(input):\n    key = request('key', {'secret': 'keep'})\n    return [len(key), request('last', key[:4])]\n"
    )
    space.start("scout", "twice")
    space.resume("scout", SECRET)
    commit = space.commit("scout", "finding", changes={"a": b"1"})
    place.lose_store()
    with place.open() as again:
        again.fork("scout", "other", commit)
        assert again.resume("other", "x").result == [len(SECRET), "x"]
