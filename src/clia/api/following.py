"""Events of a space, as the forge streams them.

Invariant: every entry of the feed after the given place comes once and in order, also across reconnects. If the forge no longer has
the entries in between, it sends ``reset``. The first event is ``hello``: nothing is missed after it. Each event has its ``place``,
from which a later stream can continue. A forge that stays unreachable is an error.
"""

from __future__ import annotations

import json
from time import monotonic
from typing import NamedTuple

from clia.api.connection import error_of, not_a_forge
from clia.errors import BackendError, TransportError
from clia.http_client import HttpResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from typing import Any

    from clia.api.connection import ForgeConnection
    from clia.http_client import HttpStream

SILENCE = 45.0
"""Seconds of silence after which a connection counts as lost; the forge sends a comment every 15."""
_ERROR_LINES = 1000
_PAUSE, _LONGEST = 0.1, 5.0


class ServerEvent(NamedTuple):
    """One server-sent event."""

    name: str
    data: str
    id: str | None


def follow(connection: ForgeConnection, target: str, after: str | None) -> Generator[dict[str, Any]]:
    place, heard = after, False
    away_since, pause = monotonic(), _PAUSE
    while True:
        try:
            for event in _connected(connection, target, place):
                place, pause = event.id or place, _PAUSE
                if event.name in ("change", "reset") or not heard:
                    heard = True
                    yield {"event": event.name, **_entry(event), "place": place}
                away_since = monotonic()  # the consumer may be slow
        except BackendError as err:
            lost = err.retryable or not isinstance(err, TransportError)  # the forge may be overloaded or restarting
            if not lost or monotonic() - away_since > connection.seconds:
                raise
        connection.pause(pause)
        pause = min(2 * pause, _LONGEST)


def _connected(connection: ForgeConnection, target: str, place: str | None) -> Iterator[ServerEvent]:
    """The events of one connection after a place; it ends with an error."""
    headers = {**connection.headers(), "Accept": "text/event-stream"}
    if place is not None:
        headers["Last-Event-ID"] = place
    with connection.channel.stream(target, headers, seconds=SILENCE) as stream:
        if stream.status != 200:
            raise error_of(HttpResponse(stream.status, stream.headers, _all(stream)))
        if not stream.headers.get("content-type", "").startswith("text/event-stream"):
            raise not_a_forge(stream.status)
        yield from events_in(stream.lines)


def _all(stream: HttpStream) -> bytes:
    found: list[bytes] = []
    try:
        for each in stream.lines:
            found.append(each)
            if len(found) > _ERROR_LINES:
                break
    except TransportError:
        pass  # the end of the response
    return b"\n".join(found)


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
    try:
        made = json.loads(event.data)
    except (ValueError, RecursionError):
        made = None
    if not isinstance(made, dict):
        raise not_a_forge(200)
    return made
