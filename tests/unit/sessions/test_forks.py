"""A fork into an agent that was spawned for it, and one with its own briefing."""

from __future__ import annotations

import pytest

import clia
from support.spaces import BRIEFING, refused

FLOW = 'def main(input):\n    return request("human", {"question": "Go?", "choices": ["yes", "no"]})\n'
OWN = clia.Briefing(title="Try the other way", text="Say no.")


@pytest.fixture
def asking(space: clia.Space) -> clia.Space:
    """The space with a session of ``scout`` that asks a question."""
    space.sessions.define("ask-me", FLOW)
    space.start("scout", "ask-me")
    return space


def test_a_new_agent_may_have_its_own_briefing(asking: clia.Space) -> None:
    asking.fork("scout", "other", briefing=OWN)
    assert asking.agents.briefing("other") == OWN
    assert asking.decide("other", "no").session.result == "no"
    assert asking.session("scout").live


def test_an_agent_that_was_spawned_for_it_takes_over_the_session(asking: clia.Space) -> None:
    asking.spawn("other", OWN)
    session = asking.fork("scout", "other")
    assert (session.agent, session.live) == ("other", True)
    commit = asking.show("other")
    assert (commit.kind, commit.forked) == ("agent-commit", "scout session 1 after 0 resumes")
    assert asking.agents.briefing("other") == OWN
    assert asking.decide("other", "yes").session.result == "yes"
    assert asking.verify().findings == ()


def test_an_agent_that_has_worked_does_not_take_over_a_session(asking: clia.Space) -> None:
    asking.spawn("other", BRIEFING)
    asking.commit("other", "finding", changes={"a": b"1"})
    head = asking.head("other")
    refused("already-exists", lambda: asking.fork("scout", "other"))
    assert asking.head("other") == head


def test_an_agent_with_a_session_does_not_take_over_another(asking: clia.Space) -> None:
    asking.spawn("other", BRIEFING)
    asking.start("other", "ask-me")
    refused("already-exists", lambda: asking.fork("scout", "other"))


def test_a_second_briefing_is_refused(asking: clia.Space) -> None:
    asking.spawn("other", BRIEFING)
    refused("already-exists", lambda: asking.fork("scout", "other", briefing=OWN))
