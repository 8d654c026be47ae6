"""Forms for answers, derived from the rule of a request.

Invariant: every constraint of a form follows from the rule; a rule that a form cannot express exactly becomes a JSON field.
Fields may not cover every valid answer, such as list items with line breaks, but ``raw_form`` does. Building a form never runs a
regular expression of the rule, because it may not terminate.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from datetime import date
from fractions import Fraction
from typing import NamedTuple
from urllib.parse import quote

from clia.errors import InvalidAnswer
from clia.sessions.answers import Rule, check_answer, is_large, schema_problem
from clia.values.json_values import LARGEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

    Schema = dict[str, Any]
    TextKind = Literal["text", "textarea", "date", "url", "lines"]
    Kind = TextKind | Literal["integer", "number", "boolean", "checkbox", "select", "const", "checkboxes", "group"]

ROOT = "v"
"""The form field of an answer; its members are below it: ``v.title``."""
AS_TEXT = "v.as_text"
MAX_FIELDS, MAX_OPTIONS = 100, 200
"""With more fields, a JSON field is used instead."""
_MAX_NESTING = 3
_SHORT = 200
"""Maximum characters of a one-line input."""

_REMARKS = frozenset({"title", "description", "default", "examples", "$comment", "$schema", "deprecated", "readOnly", "writeOnly"})
_TEXTS = frozenset({"minLength", "maxLength", "pattern", "format"})
_NUMBERS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
}
"""Constraints of numbers, in words."""
_KEYWORDS = {
    "string": _TEXTS,
    "integer": _NUMBERS.keys(),
    "number": _NUMBERS.keys(),
    "boolean": frozenset[str](),
    "array": frozenset({"items", "minItems", "maxItems", "uniqueItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
_BESIDE_OPTIONS = _REMARKS | _NUMBERS.keys() | {"type", "enum", "const", "minLength", "maxLength"}
_HTML_NUMBER = re.compile(r"-?(\d+(\.\d+)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_HTML_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


class FormChoice(NamedTuple):
    """A choice: its label, its JSON (which is posted) and its value."""

    label: str
    text: str
    value: Any


class FormField(NamedTuple):
    """A form field or a group of fields."""

    name: str  # form field name
    key: str  # key in the parent object
    label: str
    schema: Schema
    required: bool  # by the parent
    always: bool = True  # whether the parent is always present
    kind: Kind = "text"
    must: bool = False  # whether the browser may require it
    blank: bool = False  # whether empty input means "" instead of missing
    description: str = ""
    notes: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()  # HTML constraints
    options: tuple[FormChoice, ...] = ()
    fields: tuple[FormField, ...] = ()
    default: tuple[Any, ...] = ()  # zero or one

    @property
    def mark(self) -> str:
        """The note next to the label."""
        if self.must:
            return "required"
        if self.blank:
            return "" if "pattern" in self.schema else "may be empty"
        return "required within this group" if self.required and not self.always and self.kind not in ("const", "group") else ""

    def control(self, text: str) -> str:
        """The control for a text: browsers drop texts that are invalid for a special control."""
        if self.kind in ("textarea", "lines") or "\n" in text or "\r" in text:
            return "textarea"
        if self.kind in ("integer", "number"):
            return "number" if not text or _is_step(text, dict(self.attributes)["step"]) else "text"
        if self.kind == "date":
            return "date" if not text or _is_date(text) else "text"
        return "url" if self.kind == "url" and text == text.strip() else "text"


class AnswerForm(NamedTuple):
    """A form: ``choices``, ``fields`` or ``raw`` JSON."""

    kind: Literal["choices", "fields", "raw"]
    label: str = "Answer"
    description: str = ""
    choices: tuple[FormChoice, ...] = ()
    root: FormField | None = None  # for fields: a group or a single field
    as_text: bool = False  # whether plain text is accepted instead of JSON
    default: tuple[Any, ...] = ()


class _NoForm(Exception):
    """A schema that fields cannot express; internal."""


def form_of(rule: Rule) -> AnswerForm:
    """The form for a rule; a JSON field when in doubt."""
    schema, plain = rule.schema, raw_form(rule)
    if not isinstance(schema, dict) or is_large(schema) or schema_problem(schema) is not None:
        return plain
    try:
        listed = (schema["const"],) if "const" in schema else rule.choices
        if listed:
            return plain._replace(kind="choices", choices=_options(schema, listed))
        root = _field(schema, FormField(ROOT, "", plain.label, schema, required=True))
    except _NoForm:
        return plain
    return plain if _count(root) > MAX_FIELDS else plain._replace(kind="fields", root=root)


def raw_form(rule: Rule) -> AnswerForm:
    """A JSON field, which accepts every valid answer."""
    schema = rule.schema if isinstance(rule.schema, dict) else {}
    any_value = rule.schema is None or rule.schema is True or (isinstance(rule.schema, dict) and schema.keys() <= _REMARKS)
    title, description = schema.get("title"), schema.get("description")
    return AnswerForm(
        "raw",
        title if isinstance(title, str) and title.strip() else "Answer",
        description if isinstance(description, str) else "",
        as_text=any_value,
        default=(schema["default"],) if "default" in schema else (),
    )


def json_text(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _count(field: FormField) -> int:
    return 1 + sum(map(_count, field.fields))


# Options


def _options(schema: Schema, listed: Sequence[Any]) -> tuple[FormChoice, ...]:
    """The enum values that the rest of the schema allows; labelled with JSON if labels would be equal or invisible."""
    if not schema.keys() <= _BESIDE_OPTIONS or len(listed) > MAX_OPTIONS:  # too many to choose from or validate
        raise _NoForm
    values = {}
    for value in listed:
        with suppress(InvalidAnswer):
            check_answer(Rule(schema, operators=True), "", "", value)
            values[json_text(value)] = value
    if not values:
        raise _NoForm
    words = [value if isinstance(value, str) else text for text, value in values.items()]
    clear = len(set(words)) == len(words) and all(value and value.strip() == value for value in words)
    return tuple(
        FormChoice(word if clear else text, text, value) for word, (text, value) in zip(words, values.items(), strict=True)
    )


# Fields


def _field(schema: Any, bare: FormField) -> FormField:
    if not isinstance(schema, dict):  # true and false are valid schemas
        raise _NoForm
    default = (schema["default"],) if "default" in schema else ()
    bare = bare._replace(description=schema.get("description", ""), default=default)
    if "const" in schema or "enum" in schema:
        options = _options(schema, (schema["const"],) if "const" in schema else schema["enum"])
        fixed = "const" in schema and bare.required
        return bare._replace(kind="const" if fixed else "select", options=options, must=_needed(bare) and not fixed)
    kind = schema.get("type")
    if not isinstance(kind, str) or not schema.keys() <= _REMARKS | {"type"} | _KEYWORDS.get(kind, frozenset()):
        raise _NoForm
    if kind == "string":
        return _text(schema, bare)
    if kind in ("integer", "number"):
        return _number(schema, bare, integer=kind == "integer")
    if kind == "boolean":
        # An unticked checkbox means false, so use one only if the schema has a default.
        ticked = not bare.required and bare.always and any(isinstance(item, bool) for item in bare.default)
        return bare._replace(kind="checkbox" if ticked else "boolean", must=_needed(bare))
    if kind == "array":
        return _list(schema, bare)
    if kind == "object":
        return _group(schema, bare)
    raise _NoForm


def _needed(field: FormField) -> bool:
    return field.required and field.always


def _text(schema: Schema, bare: FormField) -> FormField:
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    form, pattern = schema.get("format"), schema.get("pattern")
    short = form is not None or (most <= _SHORT if most is not None else pattern is not None)
    blank = bare.required and form is None and least == 0
    notes = [_between(least, most, "character"), f"must match {pattern}" if pattern is not None else ""]
    field = bare._replace(blank=blank, must=_needed(bare) and not blank)
    if form == "date" and pattern is None and least <= len("2000-01-01") and (most is None or most >= len("2000-01-01")):
        return field._replace(kind="date")
    attributes = [("minlength", str(least))] if least else []
    if most is not None and 0 < most <= LARGEST:
        # Browsers count UTF-16 units, schemas count characters.
        attributes.append(("maxlength", str(2 * int(most))))
    if form in ("email", "idn-email"):
        attributes.append(("inputmode", "email"))  # type=email would rewrite international domains
    return field._replace(
        kind="url" if form == "uri" else "text" if short else "textarea",
        notes=tuple(filter(None, [f"format: {form}" if form else "", *notes])),
        attributes=tuple(attributes),
    )


def _number(schema: Schema, bare: FormField, *, integer: bool) -> FormField:
    multiple = schema.get("multipleOf", 0.5)
    step = int(multiple) if multiple <= LARGEST and multiple == int(multiple) else 1 if integer else None
    low, high = _bounds(schema, step)
    limits = [("step", "any" if step is None else str(step)), ("min", _limit(low)), ("max", _limit(high))]
    return bare._replace(
        kind="integer" if integer else "number",
        must=_needed(bare),
        notes=tuple(f"{note} {json_text(schema[key])}" for key, note in _NUMBERS.items() if key in schema),
        attributes=tuple((name, limit) for name, limit in limits if limit),
    )


def _bounds(schema: Schema, step: int | None) -> tuple[float | Fraction | None, float | Fraction | None]:
    """Minimum and maximum for the browser, aligned to the step, which the browser counts from the minimum."""
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    most, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    lows, highs = [least, above], [most, below]
    if step is not None:
        lows[0] = None if least is None else step * math.ceil(Fraction(least) / step)
        lows[1] = None if above is None else step * (math.floor(Fraction(above) / step) + 1)
        highs[0] = None if most is None else step * math.floor(Fraction(most) / step)
        highs[1] = None if below is None else step * (math.ceil(Fraction(below) / step) - 1)
    low = max((bound for bound in lows if bound is not None), default=None)
    return low, min((bound for bound in highs if bound is not None), default=None)


def _limit(bound: Any) -> str:
    return "" if bound is None or not -LARGEST <= bound <= LARGEST else json_text(bound)


def _is_step(text: str, step: str) -> bool:
    if _HTML_NUMBER.fullmatch(text) is None or len(text) > 400 or not math.isfinite(float(text)):
        return False
    return step == "any" or (re.fullmatch(r"-?\d{1,16}", text, re.ASCII) is not None and int(text) % int(step) == 0)


def _is_date(text: str) -> bool:
    try:
        return _HTML_DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _list(schema: Schema, bare: FormField) -> FormField:
    items = schema.get("items")
    if not isinstance(items, dict):
        raise _NoForm
    least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
    notes = [_between(least, most, "entry"), "no duplicates" if schema.get("uniqueItems") else ""]
    field = bare._replace(must=_needed(bare) and least > 0)
    if "const" in items or "enum" in items:
        options = _options(items, (items["const"],) if "const" in items else items["enum"])
        if least > len(options):  # checkboxes cannot repeat
            raise _NoForm
        return field._replace(kind="checkboxes", options=options, notes=tuple(filter(None, notes[:1])))
    if items.get("type") != "string" or not items.keys() <= _REMARKS | {"type"} | _TEXTS:
        raise _NoForm
    item = _text(items, FormField("", "", "", items, required=False))
    item_notes = [f"each: {note}" for note in item.notes]
    return field._replace(kind="lines", notes=("one per line", *filter(None, notes), *item_notes))


def _group(schema: Schema, bare: FormField) -> FormField:
    parts, required = schema.get("properties", {}), schema.get("required", [])
    other = schema.get("additionalProperties", True)
    if not parts or not parts.keys() >= set(required) or not isinstance(other, bool) or bare.name.count(".") > _MAX_NESTING:
        raise _NoForm
    fields = []
    for key, part in parts.items():
        # The name has no dots in the key, and browsers post it unchanged.
        name = f"{bare.name}.{quote(key, safe='', errors='surrogatepass').replace('.', '%2E')}"
        member = part if isinstance(part, dict) else {}
        label = member.get("title", "") if member.get("title", "").strip() else key
        fields.append(_field(part, FormField(name, key, label, member, required=key in required, always=_needed(bare))))
    return bare._replace(kind="group", fields=tuple(fields))


def _between(least: int, most: float | None, unit: str) -> str:
    several = {"entry": "entries"}.get(unit, f"{unit}s")
    if most is not None:
        most = int(most)
        text = f"{least} to {most}" if 0 < least < most else f"exactly {most}" if least == most else f"at most {most}"
        return f"{text} {unit if most == 1 else several}"
    return f"at least {least} {unit if least == 1 else several}" if least else ""
