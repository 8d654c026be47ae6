"""The question and the context of a request."""

from __future__ import annotations

from typing import Any

import pytest

from clia.sessions import model as questions
from clia.sessions.model import Request


def request_with(payload: Any, kind: str = "human", tag: str | None = None) -> Request:
    return Request("scout", "1.2", kind, tag, payload, "2026-05-01T12:00:00Z", 3, "1", "plan")


@pytest.mark.parametrize(
    ("payload", "tag", "question"),
    [
        ({"question": "Go?", "prompt": "no", "title": "no"}, None, "Go?"),
        ({"question": " ", "prompt": "Why?"}, None, "Why?"),
        ({"title": "A title", "question": 5}, "tag", "A title"),
        ("Just a text", "tag", "Just a text"),
        (" ", None, "human"),
        ({"plan": 1}, "go-on", "go-on"),
        ([1, 2], None, "human"),
        (None, None, "human"),
    ],
)
def test_the_question_of_a_request_is_found_in_every_form(payload: Any, tag: str | None, question: str) -> None:
    assert questions.question_of(request_with(payload, tag=tag)) == question


@pytest.mark.parametrize(
    ("payload", "tag", "context"),
    [
        ({"question": "Go?", "choices": [1], "schema": {}, "plan": "x"}, None, [("plan", "x")]),
        ({"question": "Go?", "title": "T"}, "go-on", [("tag", "go-on"), ("title", "T")]),
        ({"plan": "x"}, "go-on", [("plan", "x")]),
        ("a text", None, []),
        ([1], None, [("payload", [1])]),
        (None, None, []),
    ],
)
def test_the_other_fields_of_a_request_are_context_without_repetition(
    payload: Any, tag: str | None, context: list[tuple[str, Any]]
) -> None:
    assert questions.context_of(request_with(payload, tag=tag)) == context


@pytest.mark.parametrize(("kind", "people"), [("human", True), ("human-legal", True), ("suspend", True), ("llm", False)])
def test_questions_and_bare_stops_are_for_people(kind: str, people: bool) -> None:
    assert questions.is_for_people(request_with(None, kind)) is people
