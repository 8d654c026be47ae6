"""Validation of names and values, shared by all stores.

Invariant: each database can store a valid name or value and reads it back unchanged. Names are short and without NUL (PostgreSQL
allows no NUL in text and no index entry above 2,700 bytes; an edge has six names). Values are JSON.
"""

from __future__ import annotations

import json

from clia.errors import Conflict, InvalidInput, NotFound, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

NAME_BYTES = 400
_FAR = 2**62
_BATCH = 50
# The largest suffix a name can have: the last code point, repeated up to the limit.
_LAST_NAME = "\U0010ffff" * (NAME_BYTES // 4)


def check_name(text: str) -> str:
    """Return the name; ``InvalidInput`` if it cannot be stored."""
    _check_text(text, text)
    if "\0" in text:
        raise InvalidInput(f"{text!r}: a name cannot contain NUL", code="invalid-text", fields={"text": text})
    # A character has at most four bytes, so most names need not be encoded.
    if len(text) > NAME_BYTES // 4 and len(text.encode()) > NAME_BYTES:
        message = f"{text[:40]!r}…: a name has at most {NAME_BYTES} bytes"
        raise InvalidInput(message, code="invalid-text", fields={"text": text})
    return text


def prefix_range(prefix: str) -> tuple[str, str]:
    """Return the first and last possible name with a prefix, by code point."""
    return check_name(prefix), prefix + _LAST_NAME


def at_most(limit: int | None) -> int:
    return _FAR if limit is None else max(0, min(limit, _FAR))


def clamp(number: int) -> int:
    """Limit a position or a time to what every database can compare."""
    return max(-_FAR, min(number, _FAR))


def encode(value: Any) -> str:
    """Return JSON text."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as err:
        raise InvalidInput(f"not a JSON value: {err}", code="invalid-json", fields={"reason": str(err)}) from None
    _check_text(text, value)
    return text


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_raw_decode = json.JSONDecoder().raw_decode


def decode_all(rows: Sequence[tuple[str, str]]) -> list[tuple[str, Any]]:
    """Decode many values at once, which takes half the time: keys are shared."""
    try:
        values, _ = _raw_decode(f"[{','.join([text for _, text in rows])}]")
    except (ValueError, RecursionError):
        values = []
    if len(values) != len(rows):
        return [(where, decode(text, where)) for where, text in rows]  # reports which one
    return [(where, value) for (where, _), value in zip(rows, values, strict=True)]


def decoded(rows: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    """Decode values in small batches, so that few are in memory: the garbage collector would visit them again and again."""
    for start in range(0, len(rows), _BATCH):
        yield from decode_all(rows[start : start + _BATCH])


def decode(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        message = f"the store holds invalid JSON at {where}: {err}"
        raise StoreError(message, code="store-corrupt", hints=[REBUILD], fields={"where": where}) from None


REBUILD = "move it aside and run 'clia rebuild'"


def stale_position(stream: str, expected: int, actual: int) -> Conflict:
    fields = {"stream": stream, "expected": expected, "actual": actual}
    return Conflict(f"{stream} ends at {actual}, expected {expected}", code="stale-position", fields=fields)


def stale_value(key: str, expected: int, actual: int) -> Conflict:
    problem = f"has version {actual}, expected {expected}" if actual else f"does not exist, expected version {expected}"
    return Conflict(f"{key} {problem}", code="stale-value", fields={"key": key, "expected": expected, "actual": actual})


def no_entry(stream: str, position: int) -> NotFound:
    return NotFound(f"{stream} has no entry {position}", code="no-such-entry", fields={"stream": stream, "position": position})


_REFUSALS = {
    "nested-transaction": "transactions cannot be nested",
    "transaction-ended": "the transaction has ended",
    "only-reading": "write in a read-only transaction",
    "store-closed": "the store is closed",
}


def refusal(code: str) -> StoreError:
    return StoreError(_REFUSALS[code], code=code)


def _check_text(text: str, value: Any) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "text with a lone surrogate cannot be stored"
        raise InvalidInput(message, code="invalid-text", fields={"text": ascii(value)[:200]}) from None
