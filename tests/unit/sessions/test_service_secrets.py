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
    space.give_up("scout", f"{SECRET} was refused", by=f"worker {SECRET}")
    space.start("scout", "product")
    space.cancel("scout", f"{SECRET} leaked")
    question = space.ask("scout", {"question": f"is {SECRET} yours?", "choices": [SECRET]})
    space.cancel("scout", session_id=question.session)
    space.start("scout", "echo", {"token": SECRET})
    space.resume("scout", SECRET)
    assert space.decide("scout", "raise").session.status == "failed"
    space.define("later", PRODUCT, why=f"with {SECRET}")
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
    space.define("joins", f"def main(input):\n{request_line}    raise ValueError('no entry with ' + input[0] + input[1])\n")
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
    refused("invalid-flow", lambda: space.define("leaky", f"def main(input):\n    return '{SECRET}'\n"))
    assert leaks(place) == []


def test_a_flow_sees_the_redacted_value_so_that_a_replay_is_the_same(place: SessionSpace, space: clia.Space) -> None:
    space.start("scout", "question", {"kind": "x", "payload": {"token": SECRET}})
    assert space.pending()[0].payload == space.session("scout").input["payload"]
    commit = space.commit("scout", "finding", changes={"a": b"1"})
    place.lose_store()
    with place.open() as again:
        assert again.fork("scout", "other", commit).status == "suspended"
