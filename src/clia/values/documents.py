"""Read JSON documents strictly.

Invariant: the value is exactly what the file says. Duplicate keys, NaN, infinities and unpaired surrogates are refused;
byte-order marks, CRLF and large integers are accepted. Errors have the path and, if known, line and column.
"""

from __future__ import annotations

import json

from clia.errors import InvalidDocument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 128


def parse(data: bytes, path: str) -> dict[str, Any]:
    """Return the JSON object in ``data``; ``InvalidDocument`` has ``path`` and the problem."""
    check_size(len(data), path)
    text = decode(data, path)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as err:
        raise invalid(path, f"not JSON: {err.msg} (line {err.lineno}, column {err.colno})", err.lineno, err.colno) from None
    except RecursionError:
        raise _too_deep(path) from None
    except _RefusedJson as err:
        raise invalid(path, str(err)) from None
    except ValueError as err:  # Python refuses integers of many thousand digits
        raise invalid(path, f"a number cannot be read: {err}") from None
    if not isinstance(value, dict):
        raise invalid(path, f"the document must be a JSON object, not {type_name(value)}", 1, 1)
    _check_depth(value, data, path)
    _check_surrogates(value, data, path)
    return value


def decode(data: bytes, path: str) -> str:
    """Decode a document without its byte-order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        column = err.start - data.rfind(b"\n", 0, err.start)
        raise invalid(path, f"not UTF-8 (line {line}, column {column})", line, column) from None


def check_size(size: int, path: str) -> None:
    if size > MAX_BYTES:
        raise InvalidDocument(
            f"{path}: larger than the limit of {MAX_BYTES} bytes (16 MiB)",
            code="document-too-large",
            hints=["split the document, or move old entries to an archive"],
            fields={"path": path, "limit": MAX_BYTES},
        )


def invalid(path: str, problem: str, line: int | None = None, column: int | None = None) -> InvalidDocument:
    place = {} if line is None else {"line": line, "column": column}
    return InvalidDocument(f"{path}: {problem}", code="invalid-json", fields={"path": path, **place})


def type_name(value: object) -> str:
    """Return JSON's name for the value's type."""
    for kind, name in _TYPE_NAMES.items():
        if isinstance(value, kind):
            return name
    return "an object"


_TYPE_NAMES = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}


class _RefusedJson(Exception):
    """Raised inside the JSON parser's hooks; never leaves this module."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise _RefusedJson(f"duplicate key {key!r}")
            keys.add(key)
    return members


def _constant(name: str) -> Any:
    raise _RefusedJson(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _RefusedJson(f"the number {text[:40]} is too large")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)


def _too_deep(path: str) -> InvalidDocument:
    return InvalidDocument(
        f"{path}: nested deeper than the limit of {MAX_DEPTH} levels",
        code="document-too-deep",
        fields={"path": path, "limit": MAX_DEPTH},
    )


def _check_depth(value: Any, data: bytes, path: str) -> None:
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return
    raise _too_deep(path)


def _check_surrogates(value: Any, data: bytes, path: str) -> None:
    # Only an escape can bring in a surrogate, and most documents have none.
    if b"\\" not in data or b"\\u" not in data:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise invalid(path, "a string contains a lone surrogate") from None
