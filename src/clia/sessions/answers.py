"""The rules for answers to requests.

Invariant: the operator's schema for a kind comes before the request's own ``schema`` and ``choices``. A request without a valid
rule takes any JSON: otherwise it would block its session. Checking an answer never fetches anything. A flow author's schema may
take very long to apply (patterns, exponential references), so a subprocess with a time limit applies it, unless it is certain to be
quick.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.errors import InvalidAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Schemas = Mapping[str, Any]
    Judge = Callable[[Any, Any], str | None]  # takes a schema and a value; raises CannotApply

_LISTED = 50


class Rule(NamedTuple):
    """What a request accepts: a JSON Schema, its choices if it lists them, and where the rule comes from."""

    schema: Any = None  # None: any answer
    choices: tuple[Any, ...] = ()  # the valid answers, if they are listed
    whose: str = ""  # where the rule comes from, in words
    operators: bool = False  # the operator's: must apply; a flow author's faulty rule is ignored


def check_answer(rule: Rule, request_id: str, kind: str, value: Any, judge: Judge | None = None) -> None:
    """Raise ``InvalidAnswer`` with the reason unless the rule accepts the value."""
    judged = problem_of if judge is None or rule.operators or is_quick(rule.schema) else judge
    try:
        problem = None if rule.schema is None else judged(rule.schema, value)
    except CannotApply as err:
        problem = f"the rule cannot be applied: {err}" if rule.operators else None
    if problem is None:
        return
    listed = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in rule.choices[:_LISTED])
    listed += f" and {len(rule.choices) - _LISTED} more" if len(rule.choices) > _LISTED else ""
    message = f"{json.dumps(value, ensure_ascii=False)} does not answer {request_id}: {problem}"
    hints = [f"choices: {listed}" if listed else f"the rule is {rule.whose}: {json.dumps(rule.schema, ensure_ascii=False)}"]
    raise InvalidAnswer(message, hints=hints, fields={"request": request_id, "kind": kind, "problem": problem})


def rule_of(schemas: Schemas, kind: str, payload: Any) -> Rule:
    """The operator's rule for a kind, else the request's own valid one."""
    if kind in schemas:
        return _rule(schemas[kind], f"the operator's for requests of the kind {kind}")._replace(operators=True)
    if isinstance(payload, dict):
        schema, choices = payload.get("schema"), payload.get("choices")
        if schema is not None and not is_large(schema) and schema_problem(schema) is None:
            return _rule(schema, "the request's own schema")
        if isinstance(choices, list) and choices:
            return _rule({"enum": choices}, "the request's own choices")
    return Rule()


def _rule(schema: Any, whose: str) -> Rule:
    listed = schema.get("enum") if isinstance(schema, dict) else None
    choices = (True, False) if schema == {"type": "boolean"} else tuple(listed) if isinstance(listed, list) else ()
    return Rule(schema, choices, whose)


PARTS_MAX = 1000
"""Maximum parts of a schema: checking a larger one takes too long for a page."""


def is_large(schema: Any) -> bool:
    left, count = [schema], 0
    while left and count <= PARTS_MAX:
        item = left.pop()
        count += 1
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        left += inner if len(inner) <= PARTS_MAX else [None] * PARTS_MAX
    return count > PARTS_MAX and not _is_enum(schema)


def schema_problem(schema: Any) -> str | None:
    """Why a value is not a JSON Schema; None if it is one."""
    if _is_enum(schema):
        return None
    from jsonschema import Draft202012Validator  # loaded only if needed: it takes 60 ms
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as err:
        return str(err.message)
    except RecursionError:
        return "it is nested too deeply"
    return None


class CannotApply(Exception):
    """A rule cannot be applied to a value."""


# Keywords that look at a value once, without following the schema any further.
_ABOUT = ("$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "format", "choices")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SIZES = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "required")
_QUICK = frozenset(("type", "enum", "const", *_ABOUT, *_NUMBERS, *_SIZES))
_QUICK_MAX = 1000


def is_quick(schema: Any) -> bool:
    """Whether applying a schema takes time proportional to the schema and the value."""
    left, count = [schema], 0
    while left:
        count += 1
        item = left.pop()
        if isinstance(item, bool):
            continue
        if not isinstance(item, dict) or count > _QUICK_MAX:
            return False
        for key, inner in item.items():
            if key == "properties" and isinstance(inner, dict):
                left += inner.values()
            elif key in ("items", "additionalProperties"):
                left.append(inner)
            elif key not in _QUICK:
                return False
    return True


def _is_enum(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.keys() == {"enum"} and isinstance(schema["enum"], list) and bool(schema["enum"])


def problem_of(schema: Any, value: Any) -> str | None:
    """Why the value does not match the schema; None if it does."""
    if _is_enum(schema):
        return None if any(same_json(value, choice) for choice in schema["enum"]) else "it is not one of the choices"
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(Draft202012Validator(schema, registry=Registry()).iter_errors(value))
    except Unresolvable as err:
        raise CannotApply(f"it has an unresolved reference: {err}") from None
    except RecursionError:
        raise CannotApply("it refers to itself endlessly") from None
    except (TypeError, ValueError, AttributeError, KeyError) as err:  # what a reference to a non-schema leads to
        raise CannotApply(f"{type(err).__name__}: {err}") from None
    if error is None:
        return None
    where = "".join(f"[{key!r}]" for key in error.absolute_path)
    return f"{f'at {where}: ' if where else ''}{error.message}"


def same_json(left: Any, right: Any) -> bool:
    """Deep equality as JSON: 1 is not true."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return (type(left) is type(right) or {type(left), type(right)} == {int, float}) and bool(left == right)


# Schemas that a flow's author wrote are applied in a subprocess with limits on time and memory.

CHECK_SECONDS = 5.0


def check_in_subprocess(schema: Any, value: Any) -> str | None:
    """Why the value does not match the schema; None if it does. ``CannotApply`` if the check runs out of time."""
    from clia.engine.limited_process import SubprocessFailed, limited_subprocess

    try:
        with limited_subprocess(__name__, CHECK_SECONDS) as ask:
            outcome, reason = ask([schema, value])
    except (SubprocessFailed, OSError) as err:
        raise CannotApply(str(err)) from None
    if outcome == "cannot":
        raise CannotApply(reason)
    problem: str | None = reason
    return problem


def _serve_check(question: Any) -> list[str | None]:
    schema, value = question
    try:
        return ["says", problem_of(schema, value)]
    except CannotApply as err:
        return ["cannot", str(err)]


if __name__ == "__main__":
    from clia.engine.limited_process import serve

    serve(_serve_check, CHECK_SECONDS)
