"""A request as a flat form, and what was filled in as an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clia.errors import InvalidAnswer
from clia.mcp.decisions import answer_in, form_of
from clia.sessions.answers import rule_of
from clia.sessions.model import Request

PLAIN = ("string", "number", "integer", "boolean")


def request(**payload: Any) -> Request:
    return Request("scout", "ask-1.1", "human", None, {"question": "Well?", **payload}, "", 1, "ask-1", "ask")


def fields(**payload: Any) -> dict[str, Any]:
    made = request(**payload)
    schema = form_of(made, rule_of({}, "human", made.payload)).schema
    assert all(each["type"] in PLAIN for each in schema["properties"].values()), "forms are flat"
    found: dict[str, Any] = schema["properties"]
    return found


def answered(content: dict[str, Any], **payload: Any) -> tuple[Any, str]:
    made = request(**payload)
    return answer_in(form_of(made, rule_of({}, "human", made.payload)), content, made)


def test_choices_are_one_of_several_and_keep_their_types() -> None:
    for choices in (["1", 1, True, {"a": 1}, None, ""], ["yes", "no"], ["yes", 2]):
        labels = fields(choices=choices)["answer"]["enum"]
        assert [json.dumps(answered({"answer": label}, choices=choices)[0]) for label in labels] == [
            json.dumps(each) for each in choices
        ]
    assert fields(choices=["yes", 2])["answer"]["enum"] == ["yes", "2"]


def test_a_flat_object_is_asked_for_field_by_field() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1}, "count": {"type": "integer"}, "sure": {"type": "boolean"}},
        "required": ["name"],
    }
    assert list(fields(schema=schema)) == ["name", "count", "sure", "rationale"]
    given = {"name": "x", "count": 2, "sure": None, "rationale": "because"}
    assert answered(given, schema=schema) == ({"name": "x", "count": 2}, "because")


def test_a_field_of_the_request_that_is_called_rationale_is_the_requests() -> None:
    schema = {"type": "object", "properties": {"rationale": {"type": "string"}}}
    assert answered({"rationale": "mine"}, schema=schema) == ({"rationale": "mine"}, "")


@pytest.mark.parametrize("schema", [{"type": "number", "minimum": 1}, {"type": "string", "format": "email"}, {"type": "integer"}])
def test_one_plain_value_is_one_field(schema: dict[str, Any]) -> None:
    assert fields(schema=schema)["answer"] == {"title": "Answer", **schema}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"type": "string", "pattern": "^a"},
        {"type": "string", "format": "hostname"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 1},
        {"anyOf": [{"type": "string"}]},
        {"type": "integer", "default": "x"},
    ],
)
def test_what_a_form_cannot_say_is_asked_for_as_json(schema: dict[str, Any]) -> None:
    assert fields(schema=schema)["answer"]["type"] == "string"
    assert answered({"answer": '{"a": [1]}'}, schema=schema) == ({"a": [1]}, "")


def test_without_a_rule_the_text_is_the_answer() -> None:
    assert answered({"answer": "[1", "rationale": None}) == ("[1", "")


@pytest.mark.parametrize("content", [{}, {"answer": "maybe"}, {"rationale": "x"}])
def test_a_form_without_an_answer_is_none(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidAnswer):
        answered(content, choices=["yes", "no"])


def test_a_long_question_is_cut_and_says_who_asks() -> None:
    made = request(question="x" * 100_000)
    message = form_of(made, rule_of({}, "human", made.payload)).message
    assert message.startswith("scout asks (ask-1.1): x")
    assert len(message) < 5000
