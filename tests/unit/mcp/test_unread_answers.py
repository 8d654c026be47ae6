"""A session that is killed while it waits for a person, and asks again: it gets the answer that was given meanwhile, once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import clia
from support.captured import agent_of, new_space, put, run_ingest
from support.mcp_server import drive, server_at
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.mcp_client import Driver

ONE, TWO = "11111111-aaaa", "22222222-bbbb"
GO: dict[str, Any] = {"question": "Go on?", "choices": ["yes", "no"]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A space with two sessions of one agent."""
    root = new_space(tmp_path.resolve() / "repo")
    for session in (ONE, TWO):
        event = {"session_id": session, "hook_event_name": "UserPromptSubmit", "cwd": str(root), "prompt": "Go."}
        put(root, json.dumps(event).encode(), agent="fixer")
    run_ingest(root)
    return root


@pytest.fixture
def opened(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as space:
        yield space


def ask(space: clia.Space, root: Path, session: str, tool: str = "request_decision", **args: Any) -> dict[str, Any]:
    """The outcome of a call by a server that a session has started."""
    outcomes = []

    async def work(driver: Driver) -> None:
        outcomes.append(await driver.do(tool, **(args or GO)))

    drive(server_at(space, root, session=session), work)
    (outcome,) = outcomes
    return outcome


def test_the_answer_is_given_to_the_session_that_asks_again_in_the_same_words(opened: clia.Space, root: Path) -> None:
    assert agent_of(opened, "claude-code", ONE) == agent_of(opened, "claude-code", TWO) == "fixer"
    request = ask(opened, root, ONE)["request"]
    opened.decide("fixer", "no")
    other = ask(opened, root, ONE, question="Go back?")
    assert other["status"] == "held", "another question"
    opened.decide("fixer", "yes", request_id=other["request"])
    again = ask(opened, root, ONE)
    assert (again["status"], again["value"], again["request"]) == ("decided", "no", request)
    assert ask(opened, root, ONE)["status"] == "held", "an answer that was read is out of date"


def test_another_session_of_the_agent_does_not_get_the_answer(opened: clia.Space, root: Path) -> None:
    request = ask(opened, root, ONE)["request"]
    opened.decide("fixer", "no")
    asked = ask(opened, root, TWO)
    assert (asked["status"], asked["value"]) == ("held", None)
    assert asked["request"] != request
    assert ask(opened, root, ONE)["request"] == request, "its own answer comes before the other session's question"


def test_an_answer_that_another_session_polls_is_still_unread(opened: clia.Space, root: Path) -> None:
    request = ask(opened, root, ONE)["request"]
    opened.decide("fixer", "no")
    assert ask(opened, root, TWO, "decision", request=request)["status"] == "decided"
    assert ask(opened, root, ONE)["request"] == request


def test_a_client_without_a_session_is_asked_again(opened: clia.Space, root: Path) -> None:
    request = ask(opened, root, "", agent="fixer", **GO)["request"]
    opened.decide("fixer", "no")
    assert ask(opened, root, "", agent="fixer", **GO)["request"] != request


def test_only_the_newest_questions_are_remembered(opened: clia.Space, root: Path) -> None:
    requests = [ask(opened, root, ONE, question=f"Go to {number}?")["request"] for number in range(51)]
    for request in requests:
        opened.decide("fixer", "no", request_id=request)
    assert ask(opened, root, ONE, question="Go to 50?")["request"] == requests[-1]
    assert ask(opened, root, ONE, question="Go to 0?")["request"] not in requests
