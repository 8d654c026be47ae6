"""What every store says of names and values, in one place, so that all of them accept and refuse alike.

Invariant: text that passed here can be kept by each database and comes back the same. Names are short and without NUL
(PostgreSQL keeps no NUL in text, and no index entry above 2,700 bytes; an edge has six names), values are JSON.
"""

from __future__ import annotations

import json

from clia.errors import Conflict, InvalidInput, NotFound, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

NAME_BYTES = 400
_FAR = 2**62
# No name sorts after a prefix followed by this: a name has room for no more of the last character there is.
_LAST_NAME = "\U0010ffff" * (NAME_BYTES // 4)


def check_name(text: str) -> str:
    """A stream, a key, an end of an edge: the name itself, or ``InvalidInput``."""
    _check_text(text, text)
    if "\0" in text:
        raise InvalidInput(f"{text!r}: a name has no NUL character", code="invalid-text", fields={"text": text})
    # No character takes more than four bytes, so that most names need no second encoding.
    if len(text) > NAME_BYTES // 4 and len(text.encode()) > NAME_BYTES:
        message = f"{text[:40]!r}…: a name has at most {NAME_BYTES} bytes"
        raise InvalidInput(message, code="invalid-text", fields={"text": text})
    return text


def prefix_range(prefix: str) -> tuple[str, str]:
    """The first and the last name that a prefix allows, both included, in the order of code points."""
    return check_name(prefix), prefix + _LAST_NAME


def at_most(limit: int | None) -> int:
    return _FAR if limit is None else max(0, min(limit, _FAR))


def place(position: int) -> int:
    """A position that every database can compare; no entry is beyond either end."""
    return max(-1, min(position, _FAR))


def moment(at: int) -> int:
    """A moment that every database can compare. Those beyond either end are one: whatever ends there has ended."""
    return max(-_FAR, min(at, _FAR))


def encode(value: Any) -> str:
    """JSON text without a NUL in it."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as err:
        raise InvalidInput(f"not a JSON value: {err}", code="invalid-json", fields={"reason": str(err)}) from None
    _check_text(text, value)
    return text


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_raw_decode = json.JSONDecoder().raw_decode


def decode_all(rows: Sequence[tuple[str, str]]) -> list[tuple[str, Any]]:
    """Names with what stands at them; read as one text, in which the same keys are made once, in half the time."""
    try:
        values, _ = _raw_decode(f"[{','.join([text for _, text in rows])}]")
    except (ValueError, RecursionError):
        values = []
    if len(values) != len(rows):
        return [(where, decode(text, where)) for where, text in rows]  # says where
    return [(where, value) for (where, _), value in zip(rows, values, strict=True)]


def decode(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        message = f"the store holds something at {where} that is no JSON: {err}"
        raise StoreError(message, code="store-corrupt", hints=[REBUILD], fields={"where": where}) from None


REBUILD = "move it aside and run 'clia rebuild'"


def stale_position(stream: str, expected: int, actual: int) -> Conflict:
    return Conflict(
        f"{stream} ends at {actual}, not at {expected}",
        code="stale-position",
        fields={"stream": stream, "expected": expected, "actual": actual},
    )


def stale_value(key: str, expected: int, actual: int) -> Conflict:
    return Conflict(
        f"{key} has version {actual}, not {expected}" if actual else f"{key} is not there, version {expected} was expected",
        code="stale-value",
        fields={"key": key, "expected": expected, "actual": actual},
    )


def no_entry(stream: str, position: int) -> NotFound:
    return NotFound(f"{stream} has no entry {position}", code="no-such-entry", fields={"stream": stream, "position": position})


def nested() -> StoreError:
    return StoreError("a transaction in a transaction: a thread has one at a time", code="nested-transaction")


def ended() -> StoreError:
    return StoreError("the transaction has ended", code="transaction-ended")


def only_reading() -> StoreError:
    return StoreError("a change while only reading", code="only-reading")


def closed() -> StoreError:
    return StoreError("the store is closed", code="store-closed")


def _check_text(text: str, value: Any) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "text with half of a character (a lone surrogate) cannot be kept"
        raise InvalidInput(message, code="invalid-text", fields={"text": ascii(value)[:200]}) from None
