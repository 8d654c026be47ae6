"""Convert between posted form data and answer values.

Invariant: ``value_from(form, as_posted(form, value)) == value`` for every valid value that the form can express; ``as_posted``
rejects the others. All unreadable fields are reported at once with reasons, and nothing is guessed. ``Space.check_answer``
validates the complete answer.
"""

from __future__ import annotations

import json
import math
import re

from clia.errors import InvalidAnswer
from clia.forge.rendering.forms import AS_TEXT, ROOT, json_text
from clia.sessions.answers import Rule, check_answer, check_in_subprocess
from clia.values.json_values import LARGEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.forge.rendering.forms import AnswerForm, FormChoice, FormField

    Data = Mapping[str, Sequence[str]]
    Posted = dict[str, list[str]]

GIVEN = "on"
"""The posted value of the checkbox of an optional group."""
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[-+]?\d{1,18}", re.ASCII)
_UNPOSTED = re.compile("[\r\0\ud800-\udfff]")
_MAX_PROBLEM = 300
_ABSENT = object()
"""No value."""


class _Unreadable(Exception):
    """Why a field is invalid; internal."""


# From a form


def value_from(form: AnswerForm, data: Data) -> Any:
    """The posted value; raises ``InvalidAnswer`` with the reasons of all invalid fields."""
    if form.kind == "raw":
        return _from_raw(form, data)
    problems: dict[str, str] = {}
    if form.root is None:
        try:
            return _option(form.choices, _last(data, ROOT) or "")
        except _Unreadable as err:
            raise _refused(str(err), {ROOT: str(err)}) from None
    labels: dict[str, str] = {}
    value = _read(form.root, data, problems, labels)
    if problems:
        raise _refused("; ".join(f"{labels[name]}: {problem}" for name, problem in problems.items()), problems)
    return value


def _refused(message: str, problems: dict[str, str], hints: Sequence[str] = (), **fields: Any) -> InvalidAnswer:
    return InvalidAnswer(message, hints=hints, fields={"field": next(iter(problems)), "problems": problems, **fields})


def _read(field: FormField, data: Data, problems: dict[str, str], labels: dict[str, str]) -> Any:
    if field.kind == "group":
        if not field.required and not _is_given(field, data):
            return _ABSENT
        values = {member.key: _read(member, data, problems, labels) for member in field.fields}
        return {key: value for key, value in values.items() if value is not _ABSENT}
    try:
        value = _value(field, data)
        if value is not _ABSENT:
            _check(field, value)
        elif field.required:
            raise _Unreadable("required")
    except _Unreadable as err:
        problems[field.name], labels[field.name] = str(err), field.label
        return _ABSENT
    return value


def _is_given(field: FormField, data: Data) -> bool:
    """Whether a field or one of its members was filled in."""
    if field.kind == "group":
        return GIVEN in data.get(field.name, ()) or any(_is_given(member, data) for member in field.fields)
    return field.kind != "const" and any(data.get(field.name, ()))


def _check(field: FormField, value: Any) -> None:
    """Validate one field against its schema, so that the reason is shown next to it."""
    try:
        check_answer(Rule(field.schema), "", "", value, check_in_subprocess)
    except InvalidAnswer as err:
        problem = str(err.fields["problem"])
        raise _Unreadable(problem if len(problem) <= _MAX_PROBLEM else f"{problem[:_MAX_PROBLEM]}…") from None


def _value(field: FormField, data: Data) -> Any:
    if field.kind == "const":
        return field.options[0].value
    text = _last(data, field.name)
    if text is None:
        return _ABSENT
    if field.kind == "checkboxes":
        ticked = [_option(field.options, item) for item in data[field.name] if item]
        return ticked if ticked or field.required else _ABSENT
    if field.kind == "lines":
        lines = [item for item in text.split("\n") if item]
        return lines if lines or field.required else _ABSENT
    if field.kind == "checkbox":
        return _truth(text or "false")
    if text == "":
        return "" if field.blank else _ABSENT
    if field.kind == "boolean":
        return _truth(text)
    if field.kind == "select":
        return _option(field.options, text)
    return _number(text, integer=field.kind == "integer") if field.kind in ("integer", "number") else text


def _last(data: Data, name: str) -> str | None:
    """The last text of a name (a checkbox follows its hidden marker), with normalized line breaks."""
    texts = data.get(name, ())
    return texts[-1].replace("\r\n", "\n").replace("\r", "\n") if texts else None


def _option(options: Sequence[FormChoice], text: str) -> Any:
    for option in options:
        if option.text == text:
            return option.value
    raise _Unreadable("choose one of the options")


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise _Unreadable("must be true or false")
    return text == "true"


def _number(text: str, *, integer: bool) -> float:
    word = text.strip()
    if _WHOLE.fullmatch(word):
        value: float = int(word)
    else:
        value = float(word) if _NUMBER.fullmatch(word) else math.nan
        if not math.isfinite(value) or (integer and not value.is_integer()):
            raise _Unreadable(f"{word[:40]!r} is not {'a whole number' if integer else 'a number'}")
        value = int(value) if integer else value
    if isinstance(value, int) and abs(value) > LARGEST:
        raise _Unreadable("whole numbers beyond 2**53 - 1 are not exact in JSON")
    return value


# JSON input


def _from_raw(form: AnswerForm, data: Data) -> Any:
    text = _last(data, ROOT) or ""
    if form.as_text and any(data.get(AS_TEXT, ())):
        return text
    hints = ["put text in quotes, or tick the box to treat it as text"] if form.as_text else ["put text in quotes"]
    if not text.strip():
        raise _refused("required", {ROOT: "required"}, hints[:0])
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_object)
    except json.JSONDecodeError as err:
        problem = f"not JSON: {err.msg} (line {err.lineno}, column {err.colno})"
        raise _refused(problem, {ROOT: problem}, hints, line=err.lineno, column=err.colno) from None
    except RecursionError:
        problem = "nested too deeply"
    except (_Unreadable, ValueError) as err:  # Python rejects numbers with thousands of digits
        problem = str(err)
    raise _refused(problem, {ROOT: problem})


def _no_number(word: str) -> Any:
    raise _Unreadable(f"{word} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text[:40])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise _Unreadable(f"duplicate key {key[:40]!r}")
        members[key] = value
    return members


# To a form


def initial(form: AnswerForm) -> Posted:
    """The initial input: the defaults that the form can express.

    Members of an optional group have none, because they would add the group to the answer.
    """
    posted: Posted = {}
    if form.root is not None:
        _fill_in(form.root, posted)
    elif form.default:
        try:
            return as_posted(form, form.default[0])
        except InvalidAnswer:
            return {}
    return posted


def _fill_in(field: FormField, posted: Posted) -> None:
    if field.default:
        values: Posted = {}
        try:
            _post(field, field.default[0], values)
        except _Unreadable:
            pass  # invalid default: start with an empty field
        else:
            posted.update(values)
            return
    if field.required:
        for member in field.fields:
            _fill_in(member, posted)


def as_posted(form: AnswerForm, value: Any) -> Posted:
    """The form data for a value; raises ``InvalidAnswer`` if the form cannot express it."""
    posted: Posted = {}
    try:
        if form.kind == "raw":
            posted[ROOT] = [json_text(value, indent=2 if isinstance(value, (dict, list)) else None)]
        elif form.root is None:
            posted[ROOT] = [_text_of(form.choices, value)]
        else:
            _post(form.root, value, posted)
    except _Unreadable as err:
        raise InvalidAnswer(
            f"the form cannot express the value: {err}", hints=["answer with JSON"], fields={"field": ROOT}
        ) from None
    return posted


def _post(field: FormField, value: Any, posted: Posted) -> None:
    if field.kind == "group":
        _post_group(field, value, posted)
    elif field.kind == "const":
        _text_of(field.options, value)
    elif field.kind == "select":
        posted[field.name] = [_text_of(field.options, value)]
    elif field.kind in ("boolean", "checkbox"):
        _expect(isinstance(value, bool), field, "is neither true nor false")
        posted[field.name] = [*([""] if field.kind == "checkbox" else []), json_text(value)]
    elif field.kind in ("integer", "number"):
        _expect(_is_posted_number(value, integer=field.kind == "integer"), field, "is not an exact JSON number")
        posted[field.name] = [json_text(value)]
    elif field.kind in ("checkboxes", "lines"):
        _post_list(field, value, posted)
    else:
        _expect(isinstance(value, str) and not _UNPOSTED.search(value), field, "is not a text that browsers post unchanged")
        _expect(value != "" or field.blank, field, "is empty, which means missing")
        posted[field.name] = [value]


def _post_group(field: FormField, value: Any, posted: Posted) -> None:
    _expect(isinstance(value, dict), field, "is not an object")
    _expect(value.keys() <= {member.key for member in field.fields}, field, "has a key without a field")
    if not field.required:
        posted[field.name] = [GIVEN]
    for member in field.fields:
        if member.key in value:
            _post(member, value[member.key], posted)
        else:
            _expect(not member.required, member, "is missing")


def _post_list(field: FormField, value: Any, posted: Posted) -> None:
    _expect(isinstance(value, list), field, "is not a list")
    _expect(bool(value) or field.required, field, "is empty, which means missing")
    if field.kind == "checkboxes":
        posted[field.name] = ["", *(_text_of(field.options, item) for item in value)]
        return
    fit = all(isinstance(item, str) and item and "\n" not in item and not _UNPOSTED.search(item) for item in value)
    _expect(fit, field, "has an item that is not a single line")
    posted[field.name] = ["\n".join(value)]


def _is_posted_number(value: Any, *, integer: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -LARGEST <= value <= LARGEST if integer or isinstance(value, int) else math.isfinite(value)


def _expect(holds: bool, field: FormField, problem: str) -> None:
    if not holds:
        raise _Unreadable(f"{field.label} {problem}")


def _text_of(options: Sequence[FormChoice], value: Any) -> str:
    for option in options:
        try:
            check_answer(Rule({"enum": [option.value]}), "", "", value)
        except InvalidAnswer:
            continue
        return option.text
    raise _Unreadable(f"{json_text(value)[:40]} is not an option")
