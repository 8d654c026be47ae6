"""Following what happens in a space, as the forge sends it.

Invariant: every entry of the feed after the place that was named comes once, in order, whatever becomes of the connection; where
the forge cannot say any more what came meanwhile, the event ``reset`` says so. The first is ``hello``: from then on nothing is
missed. Each carries its ``place``, after which one can go on another time. A forge that stays away is an error.
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

    from clia.api.connection import Line
    from clia.http_client import HttpStream

SILENCE = 45.0
"""Seconds without a word after which a connection counts as lost; the forge says something every 15."""
_ERROR_LINES = 1000
_PAUSE, _LONGEST = 0.1, 5.0


class Sent(NamedTuple):
    """One event, as the standard has it."""

    name: str
    data: str
    id: str | None


def follow(line: Line, target: str, after: str | None) -> Generator[dict[str, Any]]:
    place, heard = after, False
    away_since, pause = monotonic(), _PAUSE
    while True:
        try:
            for event in _connected(line, target, place):
                place, pause = event.id or place, _PAUSE
                if event.name in ("change", "reset") or not heard:
                    heard = True
                    yield {"event": event.name, **_entry(event), "place": place}
                away_since = monotonic()  # whoever follows may take their time
        except BackendError as err:
            lost = err.retryable or not isinstance(err, TransportError)  # the forge may be full, or just stopping
            if not lost or monotonic() - away_since > line.seconds:
                raise
        line.pause(pause)
        pause = min(2 * pause, _LONGEST)


def _connected(line: Line, target: str, place: str | None) -> Iterator[Sent]:
    """The events of one connection, from the place on; it ends with an error."""
    headers = {**line.headers(), "Accept": "text/event-stream"}
    if place is not None:
        headers["Last-Event-ID"] = place
    with line.channel.stream(target, headers, seconds=SILENCE) as stream:
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
        pass  # that is its end
    return b"\n".join(found)


def events_in(lines: Iterable[bytes]) -> Iterator[Sent]:
    name, data, place = "message", list[str](), None
    for line in lines:
        if not line:
            if data:
                yield Sent(name, "\n".join(data), place)
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


def _entry(event: Sent) -> dict[str, Any]:
    try:
        made = json.loads(event.data)
    except (ValueError, RecursionError):
        made = None
    if not isinstance(made, dict):
        raise not_a_forge(200)
    return made
