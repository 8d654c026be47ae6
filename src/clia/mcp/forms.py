"""A request to people as a form that a client can show, and what was filled in as an answer.

Invariant: forms of the protocol are flat: texts, numbers, yes or no, one of several. What a request takes is asked for in such
fields where it fits into them; else in one field of text that must hold JSON. Whatever comes back is only a value: whether the
request takes it is decided where every answer is.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.errors import InvalidAnswer
from clia.sessions.questions import context_of, question_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.sessions.answers import Rule
    from clia.sessions.model import Request

ANSWER, WHY = "answer", "rationale"
CHOICES_MAX, FIELDS_MAX, CONTEXT_MAX = 100, 20, 4000
_ABOUT = ("title", "description", "default")
_KEYWORDS = {
    "string": ("minLength", "maxLength", "format", *_ABOUT),
    "integer": ("minimum", "maximum", *_ABOUT),
    "number": ("minimum", "maximum", *_ABOUT),
    "boolean": _ABOUT,
}
_FORMATS = ("email", "uri", "date", "date-time")
_TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
_WHY_FIELD = {"type": "string", "title": "Why", "description": "Recorded with the decision; may be left empty."}


class Form(NamedTuple):
    message: str
    schema: dict[str, Any]
    labels: Mapping[str, Any]  # of choices: what each stands for
    whole: bool  # the fields together are the answer
    parsed: bool  # the one field holds JSON


def form_of(request: Request, rule: Rule) -> Form:
    message = _message(request)
    if rule.choices and len(rule.choices) <= CHOICES_MAX:
        labels = _labels(rule.choices)
        return Form(
            message,
            _object({ANSWER: {"type": "string", "title": "Answer", "enum": list(labels)}}, [ANSWER]),
            labels,
            whole=False,
            parsed=False,
        )
    single = _field(rule.schema)
    if single is not None:
        return Form(message, _object({ANSWER: {"title": "Answer", **single}}, [ANSWER]), {}, whole=False, parsed=False)
    flat = _flat(rule.schema)
    if flat is not None:
        return Form(message, flat, {}, whole=True, parsed=False)
    said = "Your answer." if rule.schema is None else f"JSON that fits {json.dumps(rule.schema, ensure_ascii=False)[:1000]}"
    text = {"type": "string", "title": "Answer", "description": said, "minLength": 1}
    return Form(message, _object({ANSWER: text}, [ANSWER]), {}, whole=False, parsed=rule.schema is not None)


def _message(request: Request) -> str:
    told = [question_of(request)]
    for name, value in context_of(request):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
        told.append(f"{name}: {text}")
    text = "\n\n".join(told)
    shown = text if len(text) <= CONTEXT_MAX else f"{text[:CONTEXT_MAX]}…"
    return f"{request.agent} asks ({request.id}): {shown}"


def _labels(choices: Sequence[Any]) -> dict[str, Any]:
    """What each choice is called: a text as it is, anything else as JSON; all as JSON where two would have one name."""
    exact = {json.dumps(each, ensure_ascii=False): each for each in choices}
    plain = {each if isinstance(each, str) and each else text: each for text, each in exact.items()}
    return plain if len(plain) == len(exact) else exact


def _object(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    more = {} if WHY in fields else {WHY: _WHY_FIELD}
    return {"type": "object", "properties": {**fields, **more}, "required": required}


def _field(schema: Any) -> dict[str, Any] | None:
    """A schema of one plain value as a field has it; None where it says what a field cannot."""
    if not isinstance(schema, dict):
        return None
    kind, choices = schema.get("type"), schema.get("enum")
    if isinstance(choices, list) and set(schema) <= {"type", "enum", *_ABOUT}:
        texts = [*choices, *([schema["default"]] if "default" in schema else [])]
        fits = 0 < len(choices) <= CHOICES_MAX and all(isinstance(each, str) for each in texts) and kind in (None, "string")
        return {**schema, "type": "string"} if fits else None
    allowed = _KEYWORDS.get(kind) if isinstance(kind, str) else None
    if allowed is None or not set(schema) <= {"type", *allowed} or not _is_plain(schema, str(kind)):
        return None
    return dict(schema)


def _is_plain(schema: Mapping[str, Any], kind: str) -> bool:
    right = "default" not in schema or isinstance(schema["default"], _TYPES[kind])
    return right and schema.get("format") in (None, *_FORMATS) and all(isinstance(schema.get(key, ""), str) for key in _ABOUT[:2])


def _flat(schema: Any) -> dict[str, Any] | None:
    """A schema of an object of plain values as a form; None where it says what a form cannot."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    if not set(schema) <= {"type", "properties", "required", "additionalProperties", "title", "description", "$schema"}:
        return None
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not 0 < len(properties) <= FIELDS_MAX or not isinstance(required, list):
        return None
    fields = {name: _field(each) for name, each in properties.items()}
    if any(each is None for each in fields.values()) or not set(required) <= set(fields):
        return None
    return _object({name: dict(each or {}) for name, each in fields.items()}, list(required))


def answer_in(form: Form, content: Mapping[str, Any] | None, request: Request) -> tuple[Any, str]:
    """The value that was given, and why; ``InvalidAnswer`` where the form holds none."""
    given = dict(content or {})
    own = form.schema["properties"].get(WHY) is not _WHY_FIELD
    why = "" if form.whole and own else given.pop(WHY, "") or ""
    if form.whole:
        return {key: each for key, each in given.items() if each is not None}, str(why)
    if ANSWER not in given:
        raise _refused(request, "the form came back without an answer")
    value = given[ANSWER]
    if form.labels:
        if value not in form.labels:
            raise _refused(request, f"{value!r} is not one of the choices")
        return form.labels[value], str(why)
    if not form.parsed:
        return value, str(why)
    try:
        return json.loads(str(value)), str(why)
    except (ValueError, RecursionError) as err:
        raise _refused(request, f"the answer is not JSON: {err}") from None


def _refused(request: Request, problem: str) -> InvalidAnswer:
    fields = {"request": request.id, "kind": request.kind, "problem": problem}
    return InvalidAnswer(f"{request.id} is not answered: {problem}", fields=fields)
