"""Requests to a forge, retried after a lost connection, and its stream of events.

Invariant: a change is made at most once. Each has its own idempotency key; a retry uses the same key, so the forge gives the same
answer again. A refusal by the forge raises the same error as the library. The token is in no error and in no ``repr``.

A stream yields every event after the given place once and in order, also across reconnects. If the forge no longer has the entries
in between, it sends ``reset``. The first event is ``hello``: no event after it is missed. Each event has its ``place``, from which
a later stream can continue. A forge that stays unreachable is an error.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from itertools import islice
from secrets import token_hex
from typing import NamedTuple

from clia import errors
from clia.errors import BackendError, CliaError, InvalidInput, TransportError
from clia.http_client import TOO_SLOW, HttpResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from typing import Any

    from clia.http_client import HttpConnectionPool

ANSWER_MAX = 1024 * 1024 * 1024
SILENCE = 45.0
"""Seconds of silence after which a stream counts as lost; the forge sends a comment every 15."""
_PAUSES = (0.05, 0.5)  # seconds before each retry
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # between connections of a stream
_ERROR_LINES = 1000
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
                # Not after a timeout: the server may still be working.
                if attempt == len(_PAUSES) or not err.retryable or err.fields.get("reason") == TOO_SLOW:
                    raise
            else:
                # After a lost connection the first request may still be running: wait for it.
                if (
                    not attempt
                    or attempt == len(_PAUSES)
                    or answer.status != 409
                    or error_of(answer).code != "idempotency-in-progress"
                ):
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


def error_of(answer: HttpResponse) -> CliaError:
    """The library's error in a response."""
    try:
        problem = json.loads(answer.body)
        code, message, hints, fields = problem["code"], problem["detail"], problem["hints"], problem["fields"]
        kind = _KINDS.get(problem["kind"]) or _BY_STATUS.get(answer.status, CliaError)
        sound = isinstance(code, str) and isinstance(message, str) and isinstance(fields, dict) and isinstance(hints, list)
    except (ValueError, KeyError, TypeError, RecursionError):
        return not_a_forge(answer.status)
    if not sound or not answer.headers.get("content-type", "").startswith("application/problem+json"):
        return not_a_forge(answer.status)
    return kind(message, hints=list(map(str, hints)), fields=fields, code=code)


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


# Events


class ServerEvent(NamedTuple):
    """One server-sent event."""

    name: str
    data: str
    id: str | None


def follow(connection: ForgeConnection, target: str, after: str | None) -> Generator[dict[str, Any]]:
    place, greeted = after, False
    away_since, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        try:
            for event in _connected(connection, target, place):
                place, pause = event.id or place, _FIRST_PAUSE
                if event.name in ("change", "reset") or not greeted:
                    greeted = True
                    yield {"event": event.name, **_entry(event), "place": place}
                away_since = time.monotonic()  # the consumer may be slow
        except BackendError as err:
            lost = err.retryable or not isinstance(err, TransportError)  # the forge may be overloaded or restarting
            if not lost or time.monotonic() - away_since > connection.seconds:
                raise
        connection.pause(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _connected(connection: ForgeConnection, target: str, place: str | None) -> Iterator[ServerEvent]:
    """The events of one connection after a place; it ends with an error."""
    headers = {**connection.headers(), "Accept": "text/event-stream", **({} if place is None else {"Last-Event-ID": place})}
    with connection.channel.stream(target, headers, seconds=SILENCE) as stream:
        if stream.status != 200:
            lines: list[bytes] = []
            with suppress(TransportError):  # the end of the response
                lines.extend(islice(stream.lines, _ERROR_LINES))
            raise error_of(HttpResponse(stream.status, stream.headers, b"\n".join(lines)))
        if not stream.headers.get("content-type", "").startswith("text/event-stream"):
            raise not_a_forge(stream.status)
        yield from events_in(stream.lines)


def events_in(lines: Iterable[bytes]) -> Iterator[ServerEvent]:
    name, data, place = "message", list[str](), None
    for line in lines:
        if not line:
            if data:
                yield ServerEvent(name, "\n".join(data), place)
            name, data = "message", []
            continue
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            place = value


def _entry(event: ServerEvent) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        entry = json.loads(event.data)
        if isinstance(entry, dict):
            return entry
    raise not_a_forge(200)
