"""Parsing of requests, the arguments of a verb from path, query and body; and lists in pages.

Invariant: every parameter is known, in its place and of its shape, or the request is refused with the field's name before anything
happens. JSON is read strictly: no NaN, lone surrogates, duplicate names or unlimited depth.

A client that follows the cursors of a list to the end sees every entry that existed all the time, exactly once. A cursor names the
last entries of its page, by digest; if all of them are gone, their position counts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from typing import NamedTuple

from clia.api.derivation import BODY, PATH, QUERY
from clia.api.shapes import COUNT, FLAG, WHOLE, Listed, Optional
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from typing import Any

    from starlette.datastructures import QueryParams

    from clia.api.derivation import Param, Verb
    from clia.api.shapes import Shape

PAGING = ("cursor", "page_size")
SIZE, MOST = 500, 5000
_NAMED = 8
"""Entries that a cursor names: all but one of them may be deleted at once."""
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


# Pages


class PageOf(NamedTuple):
    items: list[Any]
    next: str | None


def page_size(text: str | None) -> int:
    if text is None:
        return SIZE
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    if not 1 <= number <= MOST:
        raise invalid("page_size", f"page_size must be a number from 1 to {MOST}")
    return number


def page_of(items: Sequence[Any], cursor: str | None, size: int) -> PageOf:
    """The entries after a cursor, as JSON values."""
    start = 0 if cursor is None else _start(items, *_read(cursor))
    shown = list(items[start : start + size])
    end = start + len(shown)
    return PageOf(shown, _cursor(end, items[max(0, end - _NAMED) : end]) if end < len(items) else None)


def _start(items: Sequence[Any], place: int, named: Sequence[str]) -> int:
    """The index after the last named entry that still exists: usually where it was, else the nearest to there."""
    if 0 < place <= len(items) and _digest(items[place - 1]) == named[-1]:
        return place
    indices: dict[str, list[int]] = {digest: [] for digest in named}
    for index, item in enumerate(items):
        indices.get(_digest(item), []).append(index)
    for back, digest in enumerate(reversed(named), 1):
        if indices[digest]:
            return min(indices[digest], key=lambda index: abs(index - (place - back))) + 1
    return min(max(place - len(named), 0), len(items))


def _cursor(place: int, last: Sequence[Any]) -> str:
    text = json.dumps([place, *map(_digest, last)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode("ascii")).decode("ascii").rstrip("=")


def _read(cursor: str) -> tuple[int, list[str]]:
    try:
        place, *named = json.loads(base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), b"-_", validate=True))
        if type(place) is int and 0 < place < 2**53 and 0 < len(named) <= _NAMED and all(type(digest) is str for digest in named):
            return place, named
    except (ValueError, TypeError, RecursionError):
        pass
    raise invalid("cursor", "invalid cursor", "invalid-cursor")


def _digest(item: Any) -> str:
    return hashlib.sha256(json.dumps(item, sort_keys=True).encode("ascii")).hexdigest()[:16]
