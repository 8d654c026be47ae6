"""How requests are shown, and how the words of an answer are interpreted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from clia.cli import sessions
from clia.sessions.model import Request


@pytest.mark.parametrize(
    ("since", "words"),
    [
        ("2026-05-01T12:00:00Z", "less than a minute"),
        ("2026-05-01T12:00:59Z", "less than a minute"),  # the other clock is ahead
        ("2026-05-01T11:58:30Z", "1 minute"),
        ("2026-05-01T09:00:00Z", "3 hours"),
        ("2026-04-29T11:00:00Z", "2 days"),
        ("2026-05-01T11:00:00", "1 hour"),
        ("once", "once"),
    ],
)
def test_an_age_is_shown_in_words(since: str, words: str) -> None:
    assert sessions.age(since, datetime(2026, 5, 1, 12, 0, 10, tzinfo=UTC)) == words


@pytest.mark.parametrize(
    ("text", "choices", "value"),
    [
        ("1", ["1", "2"], "1"),  # a choice by its text, before JSON is tried
        ("1", [1, 2], 1),
        ("true", [True, False], True),
        ("null", ["null"], "null"),
        ('{"a": 1}', [], {"a": 1}),
        ("5", [], 5),
        ('"5"', [], "5"),
        ("yes", [], "yes"),
        ("NaN", [], "NaN"),
        ("[" * 100_000, [], "[" * 100_000),
        ("2", ["yes", "no"], 2),  # no numbers were shown
    ],
)
def test_an_answer_is_a_choice_or_json_or_text(text: str, choices: list[Any], value: Any) -> None:
    answer = sessions.answer_value(text, choices)
    assert (answer, type(answer)) == (value, type(value))
    assert sessions.answer_value(text, choices, as_text=True) == text


@pytest.mark.parametrize(
    ("text", "choices", "value"),
    [
        ("2", ["yes", "no"], "no"),
        (" 2 ", ["yes", "no"], "no"),
        (" no", ["yes", "no"], "no"),
        ("2", ["2", "1"], "2"),  # the choice with this text, not the second
        ("2", [2, 1], 2),
        ("3", ["yes", "no"], 3),
        ("0", ["yes", "no"], 0),
        ("²", ["yes", "no"], "²"),
        ("1", [], 1),
    ],
)
def test_at_a_terminal_a_number_selects_a_choice_unless_a_choice_has_that_text(text: str, choices: list[Any], value: Any) -> None:
    assert sessions.labelled_answer(text, choices) == value


@pytest.mark.parametrize(
    ("choices", "labels"),
    [
        (["yes", "no"], ["1", "2"]),
        ([3, 2, 1], ["a", "b", "c"]),
        (["3", "2", "1"], ["a", "b", "c"]),
        ([7, 8], ["1", "2"]),  # no choice looks like a label
        ([" 2 ", "no"], ["a", "b"]),
        ([1, "b"], []),  # a label would be the same as another choice
        ([*range(30)], []),
        ([], []),
    ],
)
def test_labels_differ_from_the_choices(choices: list[Any], labels: list[str]) -> None:
    assert sessions.choice_labels(choices) == labels


def test_numeric_choices_are_labelled_with_letters() -> None:
    choices = [3, 2, 1]
    assert [sessions.labelled_answer(word, choices) for word in ("1", "3", "a", "c", " b ")] == [1, 3, 3, 1, 2]
    assert sessions.labelled_answer("1", ["3", "2", "1"]) == "1"
    assert sessions.labelled_answer("1", [2, 1.0, "a"]) == 1
    assert sessions.labelled_choices(choices) == "a 3   b 2   c 1"


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (["yes", "no"], ["yes", "no"]),
        ([True, "true"], ["true", '"true"']),
        ([1, "1"], ["1", '"1"']),
        (["", "no"], ['""', '"no"']),
        ([" no", "no"], ['" no"', '"no"']),
        ([None, {"a": 1}], ["null", '{"a": 1}']),
        ([1.0, 2.5], ["1.0", "2.5"]),
    ],
)
def test_every_choice_is_visible_and_distinct(choices: list[Any], words: list[str]) -> None:
    assert sessions.choice_texts(choices) == words


@pytest.mark.parametrize(
    ("text", "choices", "value"),
    [("1.0", [1, 2], 1.0), ("1", [1.0, 2.0], 1), ("1e0", [1], 1.0), ("01", [1], "01"), ("1.0", ["1.0"], "1.0")],
)
def test_a_number_may_have_any_json_spelling(text: str, choices: list[Any], value: Any) -> None:
    answer = sessions.answer_value(text, choices)
    assert (answer, type(answer)) == (value, type(value))


def test_a_number_is_text_if_the_answer_must_be_text() -> None:
    assert sessions.labelled_answer("2", ["yes", "no"], as_text=True) == "2"


def test_the_command_to_answer_can_be_pasted_into_a_shell() -> None:
    request = Request("scout", "1.2", "human", None, None, "2026-05-01T12:00:00Z", 3, "1", "plan")
    assert sessions.decide_command(request) == "clia decide scout --request 1.2"
    assert sessions.decide_command(request, "not now", path="/a b") == (
        "clia decide scout 'not now' --request 1.2 -m WHY --path '/a b'"
    )


def test_a_long_text_is_cut_and_the_rest_is_counted() -> None:
    assert sessions.shortened("abc", 2, 3) == "abc"
    assert sessions.shortened("abcdef", 2, 3) == "abc … (3 more characters)"
    assert sessions.shortened("a\nb\nc", 2, 100) == "a\nb … (2 more characters)"
    assert sessions.shortened("x" * 5000, None, None) == "x" * 5000
