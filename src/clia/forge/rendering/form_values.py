"""An answer as a browser posts it, and the value it stands for.

Invariant: ``value_from(form, as_posted(form, value))`` is the value, for every value that the rule takes and the form has a
place for; ``as_posted`` refuses the others. A field that cannot be read is named with the reason, all of them at once, and
nothing is guessed. What the rule says of the whole answer is for ``Space.check_answer`` to tell.
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

    from clia.forge.rendering.forms import Choice, Field, Form

    Data = Mapping[str, Sequence[str]]
    Posted = dict[str, list[str]]

GIVEN = "on"
"""What the box of a group that may be left out posts."""
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[-+]?\d{1,18}", re.ASCII)
_UNPOSTED = re.compile("[\r\0\ud800-\udfff]")
_MAX_PROBLEM = 300
_ABSENT = object()
"""Nothing was given."""


class _Unreadable(Exception):
    """Why a field has no value; never leaves this module."""


# Out of a form


def value_from(form: Form, data: Data) -> Any:
    """The value that was posted; ``InvalidAnswer`` names the first field that has none, and has the reasons of all."""
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


def _refused(message: str, problems: dict[str, str], hints: Sequence[str] = (), **more: Any) -> InvalidAnswer:
    return InvalidAnswer(message, hints=hints, fields={"field": next(iter(problems)), "problems": problems, **more})


def _read(field: Field, data: Data, problems: dict[str, str], labels: dict[str, str]) -> Any:
    if field.kind == "group":
        if not field.required and not _is_given(field, data):
            return _ABSENT
        found = {each.key: _read(each, data, problems, labels) for each in field.fields}
        return {key: value for key, value in found.items() if value is not _ABSENT}
    try:
        value = _value(field, data)
        if value is not _ABSENT:
            _check(field, value)
        elif field.required:
            raise _Unreadable("it is required")
    except _Unreadable as err:
        problems[field.name], labels[field.name] = str(err), field.label
        return _ABSENT
    return value


def _is_given(field: Field, data: Data) -> bool:
    """Whether a person did anything in a field, or in a part of it."""
    if field.kind == "group":
        return GIVEN in data.get(field.name, ()) or any(_is_given(each, data) for each in field.fields)
    return field.kind != "const" and any(data.get(field.name, ()))


def _check(field: Field, value: Any) -> None:
    """What the rule says of this field alone, so that the reason stands beside it."""
    try:
        check_answer(Rule(field.schema), "", "", value, check_in_subprocess)
    except InvalidAnswer as err:
        problem = str(err.fields["problem"])
        raise _Unreadable(problem if len(problem) <= _MAX_PROBLEM else f"{problem[:_MAX_PROBLEM]}…") from None


def _value(field: Field, data: Data) -> Any:
    if field.kind == "const":
        return field.options[0].value
    text = _last(data, field.name)
    if text is None:
        return _ABSENT
    if field.kind == "checkboxes":
        ticked = [_option(field.options, each) for each in data[field.name] if each]
        return ticked if ticked or field.required else _ABSENT
    if field.kind == "lines":
        lines = [each for each in text.split("\n") if each]
        return lines if lines or field.required else _ABSENT
    if field.kind == "checkbox":
        return _truth(text or "false")
    if text == "":
        return "" if field.blank else _ABSENT
    if field.kind == "boolean":
        return _truth(text)
    if field.kind == "select":
        return _option(field.options, text)
    return _number(text, whole=field.kind == "integer") if field.kind in ("integer", "number") else text


def _last(data: Data, name: str) -> str | None:
    """The last text of a name (a box comes after its marker), with the line breaks that it had before a browser sent it."""
    found = data.get(name, ())
    return found[-1].replace("\r\n", "\n").replace("\r", "\n") if found else None


def _option(options: Sequence[Choice], text: str) -> Any:
    for each in options:
        if each.text == text:
            return each.value
    raise _Unreadable("choose one of those listed")


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise _Unreadable("it must be true or false")
    return text == "true"


def _number(text: str, *, whole: bool) -> float:
    word = text.strip()
    if _WHOLE.fullmatch(word):
        found: float = int(word)
    else:
        found = float(word) if _NUMBER.fullmatch(word) else math.nan
        if not math.isfinite(found) or (whole and not found.is_integer()):
            raise _Unreadable(f"{word[:40]!r} is no {'whole number' if whole else 'number'}")
        found = int(found) if whole else found
    if isinstance(found, int) and abs(found) > LARGEST:
        raise _Unreadable("it is a whole number beyond 2**53 - 1, which JSON does not carry exactly")
    return found


# JSON that a person typed


def _from_raw(form: Form, data: Data) -> Any:
    text = _last(data, ROOT) or ""
    if form.as_text and any(data.get(AS_TEXT, ())):
        return text
    hints = ["tick the box that takes it as text, or put the text in quotes"] if form.as_text else ["a text needs its quotes"]
    if not text.strip():
        raise _refused("it is required", {ROOT: "it is required"}, hints[:0])
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_object)
    except json.JSONDecodeError as err:
        problem = f"not JSON: {err.msg} (line {err.lineno}, column {err.colno})"
        raise _refused(problem, {ROOT: problem}, hints, line=err.lineno, column=err.colno) from None
    except RecursionError:
        problem = "it is nested too deeply"
    except (_Unreadable, ValueError) as err:  # Python refuses numbers of many thousand digits
        problem = str(err)
    raise _refused(problem, {ROOT: problem})


def _no_number(word: str) -> Any:
    raise _Unreadable(f"{word} is no number of JSON")


def _finite(text: str) -> float:
    found = float(text)
    return found if math.isfinite(found) else _no_number(text[:40])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _Unreadable(f"the key {key[:40]!r} stands twice in one object")
        made[key] = value
    return made


# Into a form


def initial(form: Form) -> Posted:
    """What a form shows at first: the defaults that have a place in it.

    In a group that may be left out there are none of its parts': they would bring the group into the answer.
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


def _fill_in(field: Field, posted: Posted) -> None:
    if field.default:
        made: Posted = {}
        try:
            _post(field, field.default[0], made)
        except _Unreadable:
            pass  # an author's slip: the person starts with an empty field
        else:
            posted.update(made)
            return
    if field.required:
        for each in field.fields:
            _fill_in(each, posted)


def as_posted(form: Form, value: Any) -> Posted:
    """What a browser would post for a value; ``InvalidAnswer`` where the form has no place for it."""
    posted: Posted = {}
    try:
        if form.kind == "raw":
            posted[ROOT] = [json_text(value, indent=2 if isinstance(value, (dict, list)) else None)]
        elif form.root is None:
            posted[ROOT] = [_text_of(form.choices, value)]
        else:
            _post(form.root, value, posted)
    except _Unreadable as err:
        raise InvalidAnswer(f"the form has no place for it: {err}", hints=["give it as JSON"], fields={"field": ROOT}) from None
    return posted


def _post(field: Field, value: Any, posted: Posted) -> None:
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
        _expect(_is_posted_number(value, whole=field.kind == "integer"), field, "is no number that JSON carries exactly")
        posted[field.name] = [json_text(value)]
    elif field.kind in ("checkboxes", "lines"):
        _post_list(field, value, posted)
    else:
        _expect(isinstance(value, str) and not _UNPOSTED.search(value), field, "is no text that a browser posts unchanged")
        _expect(value != "" or field.blank, field, "is empty, which would leave it out")
        posted[field.name] = [value]


def _post_group(field: Field, value: Any, posted: Posted) -> None:
    _expect(isinstance(value, dict), field, "is no object")
    _expect(value.keys() <= {each.key for each in field.fields}, field, "has a key without a field")
    if not field.required:
        posted[field.name] = [GIVEN]
    for each in field.fields:
        if each.key in value:
            _post(each, value[each.key], posted)
        else:
            _expect(not each.required, each, "is missing")


def _post_list(field: Field, value: Any, posted: Posted) -> None:
    _expect(isinstance(value, list), field, "is no list")
    _expect(bool(value) or field.required, field, "is empty, which would leave it out")
    if field.kind == "checkboxes":
        posted[field.name] = ["", *(_text_of(field.options, each) for each in value)]
        return
    fit = all(isinstance(each, str) and each and "\n" not in each and not _UNPOSTED.search(each) for each in value)
    _expect(fit, field, "has an entry that is no line")
    posted[field.name] = ["\n".join(value)]


def _is_posted_number(value: Any, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -LARGEST <= value <= LARGEST if whole or isinstance(value, int) else math.isfinite(value)


def _expect(holds: bool, field: Field, problem: str) -> None:
    if not holds:
        raise _Unreadable(f"{field.label} {problem}")


def _text_of(options: Sequence[Choice], value: Any) -> str:
    for each in options:
        try:
            check_answer(Rule({"enum": [each.value]}), "", "", value)
        except InvalidAnswer:
            continue
        return each.text
    raise _Unreadable(f"{json_text(value)[:40]} is not listed")
