"""A change that is asked for twice with the same key is made once.

Invariant: the key is claimed before the change and the answer kept after it, each in one transaction; who comes with it again gets
that answer. Where the forge died between the two, nobody knows whether the change was made: the key then says so until it expires,
and never makes it a second time. Only the digest of what was asked is kept.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import NamedTuple

from clia.errors import Conflict, InvalidInput
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.store.interface import Store

PREFIX = "once/"
KEY_MAX = 200
LIFE = timedelta(hours=24)


class Kept(NamedTuple):
    """An answer, as it was given."""

    status: int
    headers: Mapping[str, str]
    body: str


class Once:
    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def claim(self, user: str, key: str, asked: bytes) -> Kept | None:
        """The answer that was given already; None where the change is to be made now."""
        name, digest = _name(user, check_key(key)), hashlib.sha256(asked).hexdigest()
        with self._store.writing() as change:
            found = change.values.get(name)
            row = found.value if found is not None and self._is_good(found.value) else None
            if row is None:
                change.values.put(name, {"asked": digest, "at": timestamp(self._clock())})
                return None
        if row["asked"] != digest:
            raise InvalidInput(
                "this Idempotency-Key was used for another request",
                code="idempotency-mismatch",
                hints=["a new request takes a new key"],
                fields={"field": "Idempotency-Key"},
            )
        if "body" not in row:
            raise Conflict(
                "the request with this Idempotency-Key has not ended, or how it ended is not known",
                code="idempotency-in-progress",
                hints=["look whether the change was made; then use a new key"],
                fields={"field": "Idempotency-Key"},
            )
        return Kept(row["status"], row["headers"], row["body"])

    def keep(self, user: str, key: str, asked: bytes, answer: Kept) -> None:
        row = {"asked": hashlib.sha256(asked).hexdigest(), "at": timestamp(self._clock()), **answer._asdict()}
        with self._store.writing() as change:
            change.values.put(_name(user, key), row)

    def release(self, user: str, key: str) -> None:
        """The change was refused: the key may be used again."""
        with self._store.writing() as change:
            change.values.delete(_name(user, key))

    def expire(self) -> int:
        """Forgets keys that are over; how many."""
        with self._store.writing() as change:
            gone = [key for key, row in change.values.scan(PREFIX) if not self._is_good(row)]
            for key in gone:
                change.values.delete(key)
        return len(gone)

    def _is_good(self, row: Any) -> bool:
        try:
            return datetime.fromisoformat(row["at"]) + LIFE > self._clock() and isinstance(row["asked"], str)
        except (TypeError, KeyError, ValueError):
            return False


def check_key(key: str) -> str:
    if not key or len(key) > KEY_MAX or not key.isascii() or not key.isprintable():
        raise InvalidInput(
            f"an Idempotency-Key has 1 to {KEY_MAX} printable ASCII characters",
            code="invalid-field",
            fields={"field": "Idempotency-Key"},
        )
    return key


def _name(user: str, key: str) -> str:
    return f"{PREFIX}{hashlib.sha256(f'{user} {key}'.encode()).hexdigest()}"
