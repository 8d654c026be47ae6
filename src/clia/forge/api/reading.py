"""What a request says, as a verb takes it.

Invariant: every parameter is known, there where it must be, and of its shape, or the request is refused with the field's name and
nothing has happened. JSON is taken as the standard has it: no NaN, no lone surrogates, no name twice, no depth without end.
"""

from __future__ import annotations

import json
import math
import re

from clia.api.derivation import BODY, PATH, QUERY
from clia.api.shapes import COUNT, FLAG, WHOLE, Listed, Optional
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from starlette.datastructures import QueryParams

    from clia.api.derivation import Param, Verb
    from clia.api.shapes import Shape

PAGING = ("cursor", "page_size")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def arguments(verb: Verb, path: Mapping[str, str], query: QueryParams, body: bytes, kind: str) -> dict[str, Any]:
    """A verb's arguments by the library's names."""
    made: dict[str, Any] = {}
    allowed = {param.key for param in verb.params if param.where == QUERY} | (set(PAGING) if verb.paged else set())
    for key in query:
        if key not in allowed:
            raise _unknown(key)
    takes_body = any(param.where == BODY for param in verb.params)
    given = parse_body(body, kind) if takes_body else _no_body(body)
    known = {param.key for param in verb.params if param.where == BODY}
    for key in given:
        if key not in known:
            raise _unknown(key)
    for param in verb.params:
        if param.where == PATH:
            made[param.name] = param.shape.decode(path[param.key], param.key)
        elif param.where == QUERY:
            made[param.name] = _from_query(param, query)
        elif param.key in given:
            made[param.name] = param.shape.decode(given[param.key], param.key)
        else:
            made[param.name] = _default(param)
    return made


def _default(param: Param) -> Any:
    if param.required:
        raise InvalidInput(f"{param.key} is missing", code="missing-field", fields={"field": param.key})
    return param.default


def _unknown(key: str) -> InvalidInput:
    return InvalidInput(f"there is no field {key!r} here", code="unknown-field", fields={"field": key})


def _from_query(param: Param, query: QueryParams) -> Any:
    texts = query.getlist(param.key)
    if not texts:
        return _default(param)
    shape = param.shape
    if isinstance(shape, Listed):
        return shape.decode(texts, param.key)
    if len(texts) > 1:
        raise InvalidInput(f"{param.key} is given twice", code="invalid-field", fields={"field": param.key})
    return shape.decode(_read_word(texts[0], shape), param.key)


def _read_word(text: str, shape: Shape) -> Any:
    """A word of an address as JSON would have it; what is none of the shape is left for the shape to refuse."""
    inner = shape.inner if isinstance(shape, Optional) else shape
    if inner is FLAG:
        return {"true": True, "false": False}.get(text, text)
    if inner is COUNT or inner is WHOLE:
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 17 else text
    return text


def parse_body(body: bytes, kind: str) -> dict[str, Any]:
    """The object in a request's body; none is an empty one."""
    if not body:
        return {}
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise InvalidInput("a body comes as application/json", code="unsupported-media-type")
    try:
        text = body.decode("utf-8")
        made = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_once)
        if _SURROGATE.search(text):
            json.dumps(made, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as err:
        raise InvalidInput(f"the body is no JSON: {err}", code="malformed-json", fields={"field": "body"}) from None
    if not isinstance(made, dict):
        raise InvalidInput("the body must be an object", code="invalid-field", fields={"field": "body"})
    return made


def _no_body(body: bytes) -> dict[str, Any]:
    if body.strip() not in (b"", b"{}"):
        raise InvalidInput("this takes no body", code="unknown-field", fields={"field": "body"})
    return {}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    made = float(text)
    if math.isinf(made):
        raise ValueError(f"{text[:40]} is too large a number")
    return made


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return made
