"""Parsing of requests: the arguments of a verb from path, query and body.

Invariant: every parameter is known, in its place and of its shape, or the request is refused with the field's name before anything
happens. JSON is read strictly: no NaN, lone surrogates, duplicate names or unlimited depth.
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
    from collections.abc import Container, Iterable, Mapping
    from typing import Any

    from starlette.datastructures import QueryParams

    from clia.api.derivation import Param, Verb
    from clia.api.shapes import Shape

PAGING = ("cursor", "page_size")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def arguments(verb: Verb, path: Mapping[str, str], query: QueryParams, body: bytes, kind: str) -> dict[str, Any]:
    """A verb's arguments by the library's names."""
    in_body = {param.key for param in verb.params if param.where == BODY}
    check_known(query, {param.key for param in verb.params if param.where == QUERY}.union(PAGING if verb.paged else ()))
    if not in_body and body.strip() not in (b"", b"{}"):
        raise invalid("body", "this request takes no body", "unknown-field")
    fields = parse_body(body, kind) if in_body else {}
    check_known(fields, in_body)
    return {param.name: _argument(param, path, query, fields) for param in verb.params}


def check_known(keys: Iterable[str], known: Container[str]) -> None:
    for key in keys:
        if key not in known:
            raise invalid(key, f"unknown field {key!r}", "unknown-field")


def invalid(field: str, message: str, code: str = "invalid-field") -> InvalidInput:
    return InvalidInput(message, code=code, fields={"field": field})


def _argument(param: Param, path: Mapping[str, str], query: QueryParams, fields: Mapping[str, Any]) -> Any:
    texts = query.getlist(param.key) if param.where == QUERY else []
    if param.where == PATH:
        value: Any = path[param.key]
    elif texts and isinstance(param.shape, Listed):
        value = texts
    elif len(texts) > 1:
        raise invalid(param.key, f"{param.key} is repeated")
    elif texts:
        value = _from_text(texts[0], param.shape)
    elif param.key in fields:
        value = fields[param.key]
    elif param.required:
        hints = [param.description] if param.description else []
        raise InvalidInput(f"{param.key} is missing", code="missing-field", hints=hints, fields={"field": param.key})
    else:
        return param.default
    return param.shape.decode(value, param.key)


def _from_text(text: str, shape: Shape) -> Any:
    """A query parameter as its JSON value; one that does not fit stays text, which the shape refuses."""
    inner = shape.inner if isinstance(shape, Optional) else shape
    if inner is FLAG:
        return {"true": True, "false": False}.get(text, text)
    digits = text.removeprefix("-")
    is_number = inner in (COUNT, WHOLE) and digits.isascii() and digits.isdigit() and len(digits) < 17
    return int(text) if is_number else text


def parse_body(body: bytes, kind: str) -> dict[str, Any]:
    """The object in a request's body; {} if there is none."""
    if not body:
        return {}
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise InvalidInput("the body must be application/json", code="unsupported-media-type")
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as err:
        raise invalid("body", f"the body is not valid JSON: {err}", "malformed-json") from None
    if not isinstance(value, dict):
        raise invalid("body", "the body must be an object")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("an object has the same name twice")
    return fields
