"""Secrets never reach a record: not by an input, an answer, a reason, a name or what a flow prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.fake_secrets import FAKES
from support.session_flows import COUNTING, PRODUCT, QUESTION
from support.session_spaces import Place, all_of_git, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    import clia

SECRET = FAKES[0].text
ECHO = """\
def main(input):
    print("input", input)
    given = request("key", {"for": input})
    print("given", given)
    said = request("human", {"question": given})
    if said == "raise":
        raise ValueError(input["token"])
    return [input, given, said]
"""


@pytest.fixture
def space(here: Place) -> Iterator[clia.Space]:
    with here.open() as made:
        yield with_agents(made, "scout", echo=ECHO, product=PRODUCT, question=QUESTION, counting=COUNTING)


def leaks(here: Place) -> list[str]:
    return leaks_of(here, FAKES[0].secret)


def leaks_of(here: Place, secret: str) -> list[str]:
    """Where a secret is: in any file of the store, in any object of git, in any name."""
    wanted = secret.encode()
    files = [each for each in (here.root / ".git").rglob("*") if each.is_file()]
    found = [str(each) for each in files if wanted in each.read_bytes() or secret in str(each)]
    return found + (["objects"] if wanted in all_of_git(here.root) else [])


def test_the_search_finds_a_leak_where_redaction_is_off(here: Place) -> None:
    with here.open(redact=False) as space:
        with_agents(space, "scout", echo=ECHO)
        space.start("scout", "echo", {"token": SECRET})
    assert leaks(here)
    with here.open(redact=False) as space:
        space.commit_with_trace("scout", "finding", changes={"a": b"1"})
    assert "objects" in leaks(here)


def test_inputs_answers_reasons_names_and_prints_are_clean_before_they_are_anywhere(here: Place, space: clia.Space) -> None:
    space.start("scout", "echo", {"token": SECRET})
    space.commit("scout", "finding", changes={"a": b"1"})
    space.resume("scout", f"the key is {SECRET}", by=f"worker with {SECRET}")
    made = space.decide("scout", ["use", SECRET], f"Because {SECRET} works.", by=f"Ann {SECRET}")
    assert made.session.status == "finished"
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
    space.fork("scout", "other", made.cid)
    with here.open() as again:
        again.decide("other", SECRET)
    assert leaks(here) == []
    redacted = space.session("scout", "1")
    assert redacted.input != {"token": SECRET}
    assert "redacted" in str(redacted.input).lower()


@pytest.mark.parametrize("verb", ["start", "resume", "decide"])
def test_what_a_flow_puts_together_and_raises_is_clean_in_its_failure_and_in_git(here: Place, space: clia.Space, verb: str) -> None:
    asks = {"start": "", "resume": "    request('x')\n", "decide": "    request('human')\n"}[verb]
    space.define("joins", f"def main(input):\n{asks}    raise ValueError('no entry with ' + input[0] + input[1])\n")
    made = space.start("scout", "joins", [SECRET[:10], SECRET[10:]])
    if verb == "resume":
        made = space.resume("scout", None)
    elif verb == "decide":
        made = space.decide("scout", None).session
    assert made.failure is not None
    assert made.failure["message"].startswith("ValueError: no entry with ")
    space.commit_with_trace("scout", "finding", changes={"a": b"1"})
    assert SECRET not in str(made.failure)
    assert leaks_of(here, SECRET) == []


def test_a_secret_in_a_flow_is_refused_and_left_nowhere(here: Place, space: clia.Space) -> None:
    refused("invalid-flow", lambda: space.define("leaky", f"def main(input):\n    return '{SECRET}'\n"))
    assert leaks(here) == []


def test_the_flow_gets_what_is_recorded_so_that_a_replay_is_the_same(here: Place, space: clia.Space) -> None:
    space.start("scout", "question", {"kind": "x", "payload": {"token": SECRET}})
    assert space.pending()[0].payload == space.session("scout").input["payload"]
    at = space.commit("scout", "finding", changes={"a": b"1"})
    here.lose_store()
    with here.open() as again:
        assert again.fork("scout", "other", at).status == "suspended"
