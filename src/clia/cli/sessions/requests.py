"""A request at a terminal: how it is worded, and what a person means by an answer.

Invariant: everything here is a function of its arguments. A choice is recognised by its text before anything is taken for
JSON, so that the answer ``1`` to the choices "1" and "2" is the text.
"""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from string import ascii_lowercase

from clia.errors import InvalidInput
from clia.sessions.model import is_for_people, question_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.sessions.answers import Rule
    from clia.sessions.model import Request
    from clia.store.interface import Waiting

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))


def age(since: str, now: datetime) -> str:
    """How long ago a moment was, as people say it."""
    try:
        then = datetime.fromisoformat(since)
    except ValueError:
        return since
    seconds = (now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
    for size, name in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count != 1 else ''}"
    return "less than a minute"


def answer_of(text: str, choices: Sequence[Any], *, as_text: bool = False) -> Any:
    """The value that a text stands for: the choice that reads so, else JSON where it is JSON, else the text itself."""
    if as_text or text in choices:
        return text
    for each in choices:
        if not isinstance(each, str) and json_text(each) == text.strip():
            return each
    return json_or_text(text)


def chosen(text: str, choices: Sequence[Any], *, as_text: bool = False) -> Any:
    """As ``answer_of``, for a person who was shown labelled choices: a label names its choice."""
    word = text.strip()
    if not as_text and word in (labels := labels_of(choices)):
        return choices[labels.index(word)]
    reads_so = any(word == (each if isinstance(each, str) else json_text(each)) for each in choices)
    return answer_of(word if reads_so else text, choices, as_text=as_text)


def labels_of(choices: Sequence[Any]) -> list[str]:
    """What stands before each choice at a terminal: numbers, or letters where some choice is itself a number; a label that
    is another choice would be taken for it, so that there are none then."""
    shown = {as_words(each).strip() for each in choices}
    numbers = [str(number) for number in range(1, len(choices) + 1)]
    for labels in (numbers, list(ascii_lowercase[: len(choices)])):
        if len(labels) == len(choices) and shown.isdisjoint(labels):
            return labels
    return []


def choice_words(choices: Sequence[Any]) -> list[str]:
    """The choices as people read them; as JSON where two would read alike, or one would not be seen."""
    words = [as_words(each) for each in choices]
    clear = len(set(words)) == len(words) and all(each.strip() == each and each for each in words)
    return words if clear else [json_text(each) for each in choices]


def json_or_text(text: str) -> Any:
    try:
        return _loads(text)
    except (ValueError, RecursionError):
        return text


def json_of(text: str, field: str) -> Any:
    """JSON that an option gives; ``InvalidInput`` names the option."""
    try:
        return _loads(text)
    except (ValueError, RecursionError) as err:
        raise InvalidInput(
            f"{field} is not JSON: {err}",
            code="invalid-json",
            hints=["a text needs its quotes: '\"text\"'"],
            fields={"field": field},
        ) from None


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_words(value: Any) -> str:
    """A value as people read it: a text without quotes, anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)


def decide_command(request: Request, value: str | None = None, *, path: str = ".") -> str:
    """What to type to answer a request: without a value, to be asked for one."""
    words = ["clia", "decide", request.agent, *(() if value is None else (value,)), "--request", request.id]
    words += ["-m", "WHY"] if value is not None else []
    words += ["--path", path] if path != "." else []
    return shlex.join(words)


def question_json(request: Request, rule: Rule, tried: Waiting | None = None) -> dict[str, Any]:
    """A request as a program reads it."""
    known = None if tried is None else {key: value for key, value in tried._asdict().items() if key != "task"}
    asked = {"question": question_of(request), "choices": list(rule.choices), "schema": rule.schema}
    return {**request._asdict(), **asked, "for_people": is_for_people(request), "tried": known}
