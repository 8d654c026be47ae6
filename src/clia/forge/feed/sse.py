"""The feed as server-sent events.

Invariant: the id of each event says how far the listener has seen, so that a browser which comes back with ``Last-Event-ID`` misses
nothing; where that is too old, or of a store that was lost, the event ``reset`` says so. A connection that nobody reads from waits
by itself: beyond what its socket takes nothing is kept for it, and it has one of the places for listeners. Whoever may no longer
listen hears nothing more after a minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from clia.errors import CliaError, InvalidInput
from clia.forge import metrics
from clia.forge.auth.identity import identify, require
from clia.forge.feed.hub import news_of
from clia.forge.pages.common import forge_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from clia.forge.feed.hub import Hub, News
    from clia.forge.forge import Site

BEAT = 15.0
"""Seconds after which a comment is sent, so that proxies and people see that the connection lives."""
ALLOWED = 60.0
"""Seconds after which it is asked again whether the listener may listen."""
_BATCH = 200
_SHARE, _LEAST = 4, 20  # one user has at most this part of all places, and this many in any case
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_log = logging.getLogger("clia.forge")


class TooManyListeners(CliaError):
    code = "too-many-listeners"


class Place(NamedTuple):
    """How far a listener has seen one space's feed; another epoch is another feed."""

    epoch: str
    position: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.position}"


def feed_routes() -> list[Route]:
    return [
        Route("/events", _all, name="events"),
        Route("/api/v1/spaces/{space}/events", _one, name="api:events"),
    ]


async def _all(request: Request) -> Response:
    """Every space, for browsers: one connection for all tabs."""
    require(request.state.identity, "viewer")
    return await _stream(request, list(forge_of(request).sites.values()), plain=False)


async def _one(request: Request) -> Response:
    require(request.state.identity, "viewer")
    return await _stream(request, [forge_of(request).site(request.path_params["space"])], plain=True)


async def _stream(request: Request, sites: Sequence[Site], *, plain: bool) -> Response:
    hub: Hub = request.app.state.hub
    user = require(request.state.identity, "viewer").name
    most = forge_of(request).options.listeners
    if hub.listeners >= most or hub.of_user[user] >= max(_LEAST, most // _SHARE):
        raise TooManyListeners("too many are listening; try again later")
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=_HEADERS)
    given = request.headers.get("last-event-id") or request.query_params.get("last_event_id") or ""
    place = _read_place(given, sites, plain=plain)
    return _EventStream(_Listener(request, sites, place, plain=plain))


def _read_place(text: str, sites: Sequence[Site], *, plain: bool) -> dict[str, Place]:
    """What Last-Event-ID says: a place, or one for each space by its name."""
    if not text:
        return {}
    names = {site.name for site in sites}
    parts = (
        [(sites[0].name, text)]
        if plain
        else [(name, place) for name, _, place in (each.partition("=") for each in text.split(";"))]
    )
    found = {}
    for name, place in parts:
        epoch, _, number = place.rpartition(".")
        if not place.isascii() or not epoch.isalnum() or not number.isdigit() or len(number) > 15:
            raise InvalidInput("this is no Last-Event-ID of ours", code="invalid-field", fields={"field": "Last-Event-ID"})
        if name in names:
            found[name] = Place(epoch, int(number))
    return found


class _EventStream(StreamingResponse):
    """Has its place among the listeners from the moment that it was let in, however its connection ends."""

    def __init__(self, listener: _Listener) -> None:
        super().__init__(listener.events(), media_type="text/event-stream", headers=_HEADERS)
        self._hub = listener.hub
        self._user = listener.user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._hub.listeners += 1
        self._hub.of_user[self._user] += 1
        metrics.listeners(1)
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            if not self._hub.closing:
                raise
            # The forge ends, and this one reads nothing: it was given its time.
        finally:
            self._hub.listeners -= 1
            self._hub.of_user[self._user] -= 1
            metrics.listeners(-1)


class _Listener:
    def __init__(self, request: Request, sites: Sequence[Site], seen: dict[str, Place], *, plain: bool) -> None:
        self.hub: Hub = request.app.state.hub
        self._request = request
        self.user = require(request.state.identity, "viewer").name
        self._sites = sites
        self._seen = seen
        self._plain = plain

    async def events(self) -> AsyncIterator[str]:
        """Ends with the forge, and where the listener may not listen or the feed cannot be read: who comes back is told why."""
        hub, time = self.hub, asyncio.get_running_loop().time
        for site in self._sites:
            self._seen.setdefault(site.name, self._now(site))
        yield f"retry: 2000\n{self._event('hello', json.dumps({'spaces': [site.name for site in self._sites]}))}"
        asked = time()
        while not hub.closing:
            pulses = [hub.tails[site.name].pulse for site in self._sites]  # taken first: what comes meanwhile is not slept over
            try:
                if time() - asked >= ALLOWED:
                    await run_in_threadpool(self._check_allowed)
                    asked = time()
                news = [text for site in self._sites for text in await self._news(site)]
            except CliaError as err:
                _log.warning("a stream of events ends: %s", err.message)
                return
            for text in news:
                yield text
            if not news and not await _first_of(pulses, BEAT):
                yield ": beat\n\n"

    def _check_allowed(self) -> None:
        require(identify(forge_of(self._request), self._request), "viewer")

    def _now(self, site: Site) -> Place:
        tail = self.hub.tails[site.name]
        return Place(tail.epoch, tail.end)

    async def _news(self, site: Site) -> list[str]:
        """What is to be sent of one space, a batch at most."""
        tail, seen = self.hub.tails[site.name], self._seen[site.name]
        found: list[News] | None = None
        if seen.epoch == tail.epoch:
            found = tail.after(seen.position)
            if found is None:
                found = await run_in_threadpool(self._from_store, site, seen.position)
        if found is None:
            self._seen[site.name] = self._now(site)
            return [self._event("reset", json.dumps({"space": site.name}))]
        made = []
        for each in found[:_BATCH]:
            self._seen[site.name] = Place(seen.epoch, each.position)
            made.append(self._event("change", each.text))
        metrics.sent(len(made))
        return made

    def _from_store(self, site: Site, after: int) -> list[News] | None:
        """What came after a position; None where the feed does not say any more."""
        end = site.feed.end()
        if after > end or (after < end and site.feed.oldest() > after + 1):
            return None
        return [news_of(site, position, body) for position, body in site.feed.read(after, _BATCH)]

    def _event(self, name: str, data: str) -> str:
        seen = self._seen
        place = str(seen[self._sites[0].name]) if self._plain else ";".join(f"{each}={seen[each]}" for each in seen)
        return f"id: {place}\nevent: {name}\ndata: {data}\n\n"


async def _first_of(pulses: Sequence[asyncio.Event], seconds: float) -> bool:
    """Whether one of them came within the time."""
    waits = [asyncio.ensure_future(pulse.wait()) for pulse in pulses]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for each in waits:
            each.cancel()
