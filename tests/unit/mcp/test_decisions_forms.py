"""Flat forms of requests, and the answers read from them."""

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
    question = request(**payload)
    schema = form_of(question, rule_of({}, "human", question.payload)).schema
    assert all(field["type"] in PLAIN for field in schema["properties"].values()), "forms must be flat"
    properties: dict[str, Any] = schema["properties"]
    return properties


def answer_to(content: dict[str, Any], **payload: Any) -> tuple[Any, str]:
    question = request(**payload)
    return answer_in(form_of(question, rule_of({}, "human", question.payload)), content, question)


def test_choices_keep_their_types() -> None:
    for choices in (["1", 1, True, {"a": 1}, None, ""], ["yes", "no"], ["yes", 2]):
        labels = fields(choices=choices)["answer"]["enum"]
        assert [json.dumps(answer_to({"answer": label}, choices=choices)[0]) for label in labels] == [
            json.dumps(choice) for choice in choices
        ]
    assert fields(choices=["yes", 2])["answer"]["enum"] == ["yes", "2"]


def test_a_flat_object_has_one_form_field_per_property() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1}, "count": {"type": "integer"}, "sure": {"type": "boolean"}},
        "required": ["name"],
    }
    assert list(fields(schema=schema)) == ["name", "count", "sure", "rationale"]
    content = {"name": "x", "count": 2, "sure": None, "rationale": "because"}
    assert answer_to(content, schema=schema) == ({"name": "x", "count": 2}, "because")


def test_a_property_called_rationale_belongs_to_the_answer() -> None:
    schema = {"type": "object", "properties": {"rationale": {"type": "string"}}}
    assert answer_to({"rationale": "mine"}, schema=schema) == ({"rationale": "mine"}, "")


@pytest.mark.parametrize("schema", [{"type": "number", "minimum": 1}, {"type": "string", "format": "email"}, {"type": "integer"}])
def test_a_scalar_is_one_field(schema: dict[str, Any]) -> None:
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
def test_values_that_a_form_cannot_express_are_entered_as_json(schema: dict[str, Any]) -> None:
    assert fields(schema=schema)["answer"]["type"] == "string"
    assert answer_to({"answer": '{"a": [1]}'}, schema=schema) == ({"a": [1]}, "")


def test_without_a_rule_the_text_is_the_answer() -> None:
    assert answer_to({"answer": "[1", "rationale": None}) == ("[1", "")


@pytest.mark.parametrize("content", [{}, {"answer": "maybe"}, {"rationale": "x"}])
def test_a_form_without_an_answer_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidAnswer):
        answer_to(content, choices=["yes", "no"])


def test_a_long_question_is_cut_and_names_the_agent() -> None:
    question = request(question="x" * 100_000)
    message = form_of(question, rule_of({}, "human", question.payload)).message
    assert message.startswith("scout asks (ask-1.1): x")
    assert len(message) < 5000
