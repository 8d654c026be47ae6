"""Requests to a forge, retried after a lost connection.

Invariant: a change is made at most once. Each has its own idempotency key; a retry uses the same key, so the forge gives the same
answer again. What the forge refuses is raised as the library raises it. The token is in no error and in no ``repr``.
"""

from __future__ import annotations

import json
import time
from secrets import token_hex

from clia import errors
from clia.errors import CliaError, InvalidInput, TransportError
from clia.http_client import TOO_SLOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.http_client import HttpConnectionPool, HttpResponse

ANSWER_MAX = 1024 * 1024 * 1024
_PAUSES = (0.05, 0.5)  # seconds before each retry
_PROBLEM = "application/problem+json"
_IN_PROGRESS = "idempotency-in-progress"
_KINDS = {kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CliaError)}
# For error kinds that only the forge knows.
_BY_STATUS: Mapping[int, type[CliaError]] = {
    400: errors.InvalidInput,
    401: errors.Denied,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.Conflict,
    413: errors.InvalidInput,
    415: errors.InvalidInput,
    422: errors.InvalidInput,
    503: errors.BackendError,
}


class ForgeConnection:
    """Sends requests with a token. Threads may share it."""

    def __init__(
        self, channel: HttpConnectionPool, token: str, seconds: float, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.channel = channel
        self.seconds = seconds
        self.pause = pause
        self._token = token

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}

    def get(self, target: str) -> Any:
        return self._read(self._sent("GET", target, self.headers(), None))

    def change(self, method: str, target: str, body: Mapping[str, Any]) -> Any:
        """The result of a change, which is made once however often it is sent."""
        headers = {**self.headers(), "Idempotency-Key": token_hex(16)}
        data = None
        if body:
            data = json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")
            headers["Content-Type"] = "application/json"
        return self._read(self._sent(method, target, headers, data))

    def _sent(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        attempt = 0
        while True:
            try:
                answer = self.channel.request(method, target, headers, body, seconds=self.seconds, limit=ANSWER_MAX)
            except TransportError as err:
                if attempt == len(_PAUSES) or not was_lost(err):
                    raise
            else:
                # After a lost connection the first request may still be running: wait for it.
                if not attempt or attempt == len(_PAUSES) or not _is_in_progress(answer):
                    return answer
            self.pause(_PAUSES[attempt])
            attempt += 1

    def _read(self, answer: HttpResponse) -> Any:
        if answer.status == 204:
            return None
        if answer.status != 200:
            raise error_of(answer)
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            raise not_a_forge(answer.status) from None

    def __repr__(self) -> str:
        return "ForgeConnection()"


def was_lost(err: TransportError) -> bool:
    """Whether a retry can help: not after a timeout, since the server may still be working."""
    return err.retryable and err.fields.get("reason") != TOO_SLOW


def _is_in_progress(answer: HttpResponse) -> bool:
    return answer.status == 409 and error_of(answer).code == _IN_PROGRESS


def error_of(answer: HttpResponse) -> CliaError:
    """The library's error in a response."""
    try:
        made = json.loads(answer.body)
        code, message, hints, fields = made["code"], made["detail"], made["hints"], made["fields"]
        kind = _KINDS.get(made["kind"]) if made["kind"] != CliaError.code else None
        sound = isinstance(code, str) and isinstance(message, str) and isinstance(fields, dict) and isinstance(hints, list)
    except (ValueError, KeyError, TypeError, RecursionError):
        return not_a_forge(answer.status)
    if not sound or not answer.headers.get("content-type", "").startswith(_PROBLEM):
        return not_a_forge(answer.status)
    kind = kind or (_BY_STATUS.get(answer.status, CliaError) if made["kind"] != CliaError.code else CliaError)
    return kind(message, hints=[str(each) for each in hints], fields=fields, code=code)


def not_a_forge(status: int) -> TransportError:
    error = TransportError(
        f"the server is not a forge, or a proxy answered for it (status {status})",
        code="not-a-forge",
        hints=["use the address that clia serve prints"],
        fields={"status": status},
    )
    error.retryable = False
    return error


def check_token(token: object) -> str:
    """Check that a token fits in a header; errors do not repeat it."""
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInput(
            "the token is not a forge token",
            code="invalid-token",
            hints=["create one: clia user token NAME"],
            fields={"field": "token"},
        )
    return token
