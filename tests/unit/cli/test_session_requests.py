"""What people are shown of requests, and what their words mean: the pure parts of the commands of sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from clia.cli import flows, inputs, sessions, workers
from clia.errors import InvalidInput
from clia.sessions import model as questions
from clia.sessions.model import Request
from clia.workers.worker import RunningAttempt, WorkerStatus


def asked(payload: Any, kind: str = "human", tag: str | None = None) -> Request:
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
def test_a_question_is_found_wherever_a_flow_puts_it(payload: Any, tag: str | None, question: str) -> None:
    assert questions.question_of(asked(payload, tag=tag)) == question


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
def test_everything_else_that_a_request_says_is_context_and_nothing_is_told_twice(
    payload: Any, tag: str | None, context: list[tuple[str, Any]]
) -> None:
    assert questions.context_of(asked(payload, tag=tag)) == context


@pytest.mark.parametrize(("kind", "people"), [("human", True), ("human-legal", True), ("suspend", True), ("llm", False)])
def test_questions_and_bare_stops_are_for_people(kind: str, people: bool) -> None:
    assert questions.is_for_people(asked(None, kind)) is people


@pytest.mark.parametrize(
    ("since", "words"),
    [
        ("2026-05-01T12:00:00Z", "less than a minute"),
        ("2026-05-01T12:00:59Z", "less than a minute"),  # a clock that is ahead
        ("2026-05-01T11:58:30Z", "1 minute"),
        ("2026-05-01T09:00:00Z", "3 hours"),
        ("2026-04-29T11:00:00Z", "2 days"),
        ("2026-05-01T11:00:00", "1 hour"),
        ("once", "once"),
    ],
)
def test_an_age_is_told_as_people_say_it(since: str, words: str) -> None:
    assert sessions.age(since, datetime(2026, 5, 1, 12, 0, 10, tzinfo=UTC)) == words


@pytest.mark.parametrize(
    ("text", "choices", "value"),
    [
        ("1", ["1", "2"], "1"),  # a choice by its text, before it is taken for JSON
        ("1", [1, 2], 1),
        ("true", [True, False], True),
        ("null", ["null"], "null"),
        ('{"a": 1}', [], {"a": 1}),
        ("5", [], 5),
        ('"5"', [], "5"),
        ("yes", [], "yes"),
        ("NaN", [], "NaN"),
        ("[" * 100_000, [], "[" * 100_000),
        ("2", ["yes", "no"], 2),  # who was shown no numbers gave none
    ],
)
def test_a_word_means_a_choice_else_json_else_itself(text: str, choices: list[Any], value: Any) -> None:
    found = sessions.answer_value(text, choices)
    assert (found, type(found)) == (value, type(value))
    assert sessions.answer_value(text, choices, as_text=True) == text


@pytest.mark.parametrize(
    ("text", "choices", "value"),
    [
        ("2", ["yes", "no"], "no"),
        (" 2 ", ["yes", "no"], "no"),
        (" no", ["yes", "no"], "no"),
        ("2", ["2", "1"], "2"),  # the choice that reads so, not the second
        ("2", [2, 1], 2),
        ("3", ["yes", "no"], 3),
        ("0", ["yes", "no"], 0),
        ("²", ["yes", "no"], "²"),
        ("1", [], 1),
    ],
)
def test_at_a_terminal_a_number_names_a_choice_unless_a_choice_reads_so(text: str, choices: list[Any], value: Any) -> None:
    assert sessions.labelled_answer(text, choices) == value


@pytest.mark.parametrize(
    ("choices", "labels"),
    [
        (["yes", "no"], ["1", "2"]),
        ([3, 2, 1], ["a", "b", "c"]),
        (["3", "2", "1"], ["a", "b", "c"]),
        ([7, 8], ["1", "2"]),  # none of them reads like a label
        ([" 2 ", "no"], ["a", "b"]),
        ([1, "b"], []),  # a label would be taken for another choice
        ([*range(30)], []),
        ([], []),
    ],
)
def test_no_label_reads_like_a_choice(choices: list[Any], labels: list[str]) -> None:
    assert sessions.choice_labels(choices) == labels


def test_where_choices_are_numbers_letters_name_them_and_a_number_is_itself() -> None:
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
def test_every_choice_is_seen_and_told_from_the_others(choices: list[Any], words: list[str]) -> None:
    assert sessions.choice_texts(choices) == words


@pytest.mark.parametrize(
    ("text", "choices", "value"),
    [("1.0", [1, 2], 1.0), ("1", [1.0, 2.0], 1), ("1e0", [1], 1.0), ("01", [1], "01"), ("1.0", ["1.0"], "1.0")],
)
def test_a_number_may_be_spelled_in_any_way_that_json_has(text: str, choices: list[Any], value: Any) -> None:
    found = sessions.answer_value(text, choices)
    assert (found, type(found)) == (value, type(value))


def test_a_number_is_text_where_text_was_asked_for() -> None:
    assert sessions.labelled_answer("2", ["yes", "no"], as_text=True) == "2"


@pytest.mark.parametrize("text", ["{", "", "NaN", "[1] x", "[" * 100_000])
def test_json_that_is_none_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        inputs.json_value(text, "--input")
    assert (caught.value.code, caught.value.fields) == ("invalid-json", {"field": "--input"})


def test_the_command_to_answer_can_be_pasted_into_a_shell() -> None:
    request = asked(None)
    assert sessions.decide_command(request) == "clia decide scout --request 1.2"
    assert sessions.decide_command(request, "not now", path="/a b") == (
        "clia decide scout 'not now' --request 1.2 -m WHY --path '/a b'"
    )


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    assert sessions.shortened("abc", 2, 3) == "abc"
    assert sessions.shortened("abcdef", 2, 3) == "abc … (3 more characters)"
    assert sessions.shortened("a\nb\nc", 2, 100) == "a\nb … (2 more characters)"
    assert sessions.shortened("x" * 5000, None, None) == "x" * 5000


@pytest.mark.parametrize(
    ("line", "column", "shown", "caret"),
    [
        ("x = foo(1)", 5, "x = foo(1)", 4),
        ("\tfoo", 2, "    foo", 4),
        ("世界 = foo", 6, "世界 = foo", 7),  # two cells each
        ("a\x1bb = c", 3, "a\\u{1b}b = c", 7),
        ("abc", 9, "abc", 3),
        ("abc", 0, "abc", 0),
    ],
)
def test_the_caret_stands_below_the_character_that_a_problem_names(line: str, column: int, shown: str, caret: int) -> None:
    first, second = (each.plain for each in flows.excerpt(line, 7, column))
    assert first == f"    7 │ {shown}"
    assert second == f"      │ {' ' * caret}^"


# What a worker tells

BUSY = WorkerStatus(
    running=(RunningAttempt("scout", "1.1", "llm", 1, "thinking"), RunningAttempt("lead", "2.1", "timer", 3, "")), waiting=2
)


def test_the_status_line_says_what_is_done_what_waits_and_what_came_of_it() -> None:
    line = workers.status_line(BUSY._replace(answered=4, given_up=1, hanging=1))
    assert line == "scout 1.1 llm: thinking; lead 2.1 timer, attempt 3, 2 waiting, 1 hanging  (4 answered, 1 given up)"
    assert workers.status_line(WorkerStatus()) == "nothing to do  (nothing answered)"
    assert workers.status_line(BUSY._replace(trouble="the store is away")) == "waiting: the store is away"


def test_each_thing_is_told_once_and_no_line_of_it_acts_on_a_terminal() -> None:
    first = BUSY._replace(problems=(("llm", "no \x1b[31mendpoint"),))
    assert workers.news(None, first) == ["llm: no \\u{1b}[31mendpoint", "scout 1.1 llm", "lead 2.1 timer, attempt 3"]
    said = first._replace(running=(BUSY.running[0]._replace(said="still"), BUSY.running[1]), waiting=9)
    assert workers.news(first, said) == []
    retried = said._replace(running=(BUSY.running[0]._replace(attempt=2),), retried=1, trouble="away")
    assert workers.news(said, retried) == ["scout 1.1 llm, attempt 2", "waiting: away", "1 retried"]
    assert workers.news(retried, retried) == []
