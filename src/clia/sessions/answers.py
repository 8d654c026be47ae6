"""Which answers a request takes.

Invariant: the operator's schema for a kind counts before what the request itself says (``schema``, then ``choices``); a
request that says nothing takes any JSON. Nothing is ever fetched to check an answer.
"""

from __future__ import annotations

from clia.errors import InvalidAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.ports.engine import Call

    Schemas = Mapping[str, Any]


def check_answer(schemas: Schemas, call: Call, request_id: str, value: Any) -> None:
    """``InvalidAnswer`` with the reason, unless a value answers a call."""
    schema, whose = rule(schemas, call.kind, call.payload)
    if schema is None:
        return
    problem = _problem(schema, value, whose)
    if problem is not None:
        choices = choices_of(schemas, call.kind, call.payload)
        hints = [f"choices: {', '.join(map(repr, choices))}"] if choices else [f"the rule is {whose}"]
        raise InvalidAnswer(
            f"{value!r} does not answer {request_id}: {problem}",
            hints=hints,
            fields={"request": request_id, "kind": call.kind, "problem": problem},
        )


def rule(schemas: Schemas, kind: str, payload: Any) -> tuple[Any, str]:
    """The JSON Schema that holds for a request, and where it comes from; None where any answer will do."""
    if kind in schemas:
        return schemas[kind], f"the operator's for requests of the kind {kind}"
    if isinstance(payload, dict):
        if payload.get("schema") is not None:
            return payload["schema"], "the request's own schema"
        if isinstance(payload.get("choices"), list):
            return {"enum": payload["choices"]}, "the request's own choices"
    return None, ""


def choices_of(schemas: Schemas, kind: str, payload: Any) -> list[Any]:
    """The answers to choose from, where they can be listed."""
    schema, _ = rule(schemas, kind, payload)
    found = schema.get("enum") if isinstance(schema, dict) else None
    if found is None and schema == {"type": "boolean"}:
        return [True, False]
    return list(found) if isinstance(found, list) else []


def _problem(schema: Any, value: Any, whose: str) -> str | None:
    if isinstance(schema, dict) and schema.keys() == {"enum"} and isinstance(schema["enum"], list):
        return None if any(_same(value, each) for each in schema["enum"]) else "it is not one of the choices"
    # Only where a schema is given: it costs 60 ms to load.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        Draft202012Validator.check_schema(schema)
        found = best_match(Draft202012Validator(schema, registry=Registry()).iter_errors(value))
    except SchemaError as err:
        return f"{whose} is no JSON Schema: {err.message}"
    except Unresolvable as err:
        return f"{whose} refers to what is not in it: {err}"
    except RecursionError:
        return f"{whose} refers to itself without end"
    if found is None:
        return None
    where = "".join(f"[{each!r}]" for each in found.absolute_path)
    return f"{f'at {where}: ' if where else ''}{found.message}"


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON, all the way down: 1 is not true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(each, other[key]) for key, each in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    alike = type(one) is type(other) or (_is_number(one) and _is_number(other))
    return alike and bool(one == other)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
