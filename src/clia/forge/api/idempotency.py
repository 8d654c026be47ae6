"""Idempotency keys: a change that is requested twice with the same key is made once.

Invariant: the key is claimed before the change, and the response is stored after it, each in one transaction; a repeated request
gets that response. If the forge died in between, it is unknown whether the change was made: the key reports this until it expires,
and never makes the change a second time. Only a digest of the request is stored.
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
_FIELD = {"field": "Idempotency-Key"}


class StoredResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: str


class Once:
    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def claim(self, user: str, key: str, content: bytes) -> StoredResponse | None:
        """The stored response; None if the change is to be made now."""
        if not key or len(key) > KEY_MAX or not key.isascii() or not key.isprintable():
            problem = f"an Idempotency-Key has 1 to {KEY_MAX} printable ASCII characters"
            raise InvalidInput(problem, code="invalid-field", fields=_FIELD)
        name, digest = _name(user, key), hashlib.sha256(content).hexdigest()
        with self._store.writing() as transaction:
            entry = transaction.values.get(name)
            row = entry.value if entry is not None and self._is_valid(entry.value) else None
            if row is None:
                transaction.values.put(name, {"asked": digest, "at": timestamp(self._clock())})
                return None
        if row["asked"] != digest:
            raise InvalidInput(
                "this Idempotency-Key was used for another request",
                code="idempotency-mismatch",
                hints=["use a new key for a new request"],
                fields=_FIELD,
            )
        if "body" not in row:
            raise Conflict(
                "the request with this Idempotency-Key is still running, or its outcome is unknown",
                code="idempotency-in-progress",
                hints=["check whether the change was made; then use a new key"],
                fields=_FIELD,
            )
        return StoredResponse(row["status"], row["headers"], row["body"])

    def store(self, user: str, key: str, content: bytes, response: StoredResponse) -> None:
        row = {"asked": hashlib.sha256(content).hexdigest(), "at": timestamp(self._clock()), **response._asdict()}
        with self._store.writing() as transaction:
            transaction.values.put(_name(user, key), row)

    def release(self, user: str, key: str) -> None:
        """The change was refused: the key may be used again."""
        with self._store.writing() as transaction:
            transaction.values.delete(_name(user, key))

    def expire(self) -> int:
        """Delete expired keys; return how many."""
        with self._store.writing() as transaction:
            expired = [key for key, row in transaction.values.scan(PREFIX) if not self._is_valid(row)]
            for key in expired:
                transaction.values.delete(key)
        return len(expired)

    def _is_valid(self, row: Any) -> bool:
        try:
            return datetime.fromisoformat(row["at"]) + LIFE > self._clock() and isinstance(row["asked"], str)
        except (TypeError, KeyError, ValueError):
            return False


def _name(user: str, key: str) -> str:
    return f"{PREFIX}{hashlib.sha256(f'{user} {key}'.encode()).hexdigest()}"
