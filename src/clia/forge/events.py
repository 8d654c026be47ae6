"""The event bus, and server-sent events.

Event bus: one thread per space and process reads new entries once for all listeners. A listener that is further behind reads the
store itself, so a slow one does not delay the others.

Server-sent events: the event id is the listener's position, so a browser that reconnects with ``Last-Event-ID`` misses nothing. A
``reset`` event says that the position is too old or belongs to a lost store. Nothing is buffered beyond the socket. Permissions are
checked again every minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import Counter, deque
from contextlib import suppress
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from clia.errors import CliaError, InvalidInput
from clia.forge import metrics
from clia.forge.api.idempotency import Once
from clia.forge.auth import identify, require
from clia.forge.pages.common import forge_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Any, Self

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from clia.forge.forge import Forge, Site

SCAN_INTERVAL, TRIM_INTERVAL = 1.0, 300.0
"""Seconds between scans of the refs, and between cleanups."""
BEAT = 15.0
"""Seconds between keep-alive comments."""
ALLOWED = 60.0
"""Seconds between permission checks."""
USER_SHARE, USER_LEAST = 4, 20
"""One user may use a quarter of all connections, but at least 20."""
_TAIL = 2000
_BATCH = 200
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_log = logging.getLogger("clia.forge")


class FeedMessage(NamedTuple):
    """A feed entry, ready to send."""

    position: int
    text: str  # JSON


def news_of(site: Site, position: int, body: Any) -> FeedMessage:
    return FeedMessage(position, json.dumps({"space": site.name, "position": position, **body}, separators=(",", ":")))


class FeedTail:
    """The newest entries of a feed. Used only by the event loop."""

    def __init__(self) -> None:
        self.pulse = asyncio.Event()  # set on news, then replaced
        self.end = 0
        self.epoch = ""
        self.entries: deque[FeedMessage] = deque(maxlen=_TAIL)

    def add(self, entries: Sequence[FeedMessage], end: int, epoch: str) -> None:
        if epoch != self.epoch:
            self.entries.clear()  # the store was lost
        self.entries.extend(entries)
        self.epoch = epoch
        self.end = end
        self.beat()

    def beat(self) -> None:
        self.pulse.set()
        self.pulse = asyncio.Event()

    def after(self, position: int) -> list[FeedMessage] | None:
        """The entries after a position; None if some are missing here."""
        if position == self.end:
            return []
        if not self.entries or self.entries[0].position > position + 1 or position > self.end:
            return None
        first = position + 1 - self.entries[0].position
        entries = [self.entries[index] for index in range(first, len(self.entries))]
        return entries if entries and entries[0].position == position + 1 else None


class EventBus:
    """Wakes listeners when a feed has new entries."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.tails: dict[str, FeedTail] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.listeners = 0
        self.of_user: Counter[str] = Counter()
        self.closing = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._forge.told_to_stop.append(self.end_soon)
        for site in self._forge.sites.values():
            tail = self.tails[site.name] = FeedTail()
            tail.end = await asyncio.to_thread(site.feed.end)
            tail.epoch = await asyncio.to_thread(site.feed.epoch)
            for work in (self._watch, self._scan):
                thread = threading.Thread(target=work, args=(site, tail), daemon=True, name=f"{work.__name__} {site.name}")
                thread.start()
                self._threads.append(thread)
        return self

    def end_soon(self) -> None:
        """End every stream. Safe in any thread, but not in a signal handler, which may interrupt the holder of the lock."""
        self._stop.set()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self.closing = True
        for tail in self.tails.values():
            tail.beat()

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        self._end()
        for thread in self._threads:
            await asyncio.to_thread(thread.join, timeout=5)

    def _watch(self, site: Site, tail: FeedTail) -> None:
        """Wait for new entries, read them and wake the listeners."""
        at, epoch = tail.end, tail.epoch
        while not self._stop.is_set():
            try:
                changes, now = site.feed.wait(at, 1.0), site.feed.epoch()
                if now == epoch and not changes:
                    continue
                entries = [news_of(site, position, body) for position, body in site.feed.read(at)] if now == epoch else []
                epoch, at = now, entries[-1].position if entries else site.feed.end()
                if self._loop is not None and not self.closing:
                    with suppress(RuntimeError):  # the loop is closing
                        self._loop.call_soon_threadsafe(tail.add, entries, at, epoch)
            except CliaError as err:
                _log.warning("%s: cannot read the feed: %s", site.name, err.message)
                self._stop.wait(1.0)

    def _scan(self, site: Site, _tail: FeedTail) -> None:
        """Add ref changes to the feed: commits of other processes and of plain git."""
        since_trim = 0.0
        while not self._stop.wait(SCAN_INTERVAL):
            try:
                if self.listeners:
                    site.feed.look()
                since_trim += SCAN_INTERVAL
                if since_trim >= TRIM_INTERVAL:
                    since_trim = 0.0
                    self.tidy(site)
            except CliaError as err:
                _log.warning("%s: cannot read refs: %s", site.name, err.message)

    def tidy(self, site: Site) -> None:
        """Delete old entries of a feed, and with the first feed what has expired in the forge's store."""
        site.feed.trim()
        if site.name == next(iter(self._forge.sites)):
            Once(self._forge.home, self._forge.clock).expire()
            self._forge.users.expire()


class TooManyListeners(CliaError):
    code = "too-many-listeners"


class FeedPosition(NamedTuple):
    """A listener's position in a feed; the epoch identifies the feed."""

    epoch: str
    position: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.position}"


def feed_routes() -> list[Route]:
    return [Route("/events", _events, name="events"), Route("/api/v1/spaces/{space}/events", _events, name="api:events")]


async def _events(request: Request) -> Response:
    """The events of one space, or of every space: browsers use one connection for all tabs."""
    user = require(request.state.identity, "viewer").name
    forge, plain = forge_of(request), "space" in request.path_params
    sites = [forge.site(request.path_params["space"])] if plain else list(forge.sites.values())
    bus: EventBus = request.app.state.event_bus
    most = forge.options.listeners
    if bus.listeners >= most or bus.of_user[user] >= max(USER_LEAST, most // USER_SHARE):
        raise TooManyListeners("too many event listeners; try again later")
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=_HEADERS)
    last_event_id = request.headers.get("last-event-id") or request.query_params.get("last_event_id") or ""
    return _EventStream(request, user, sites, _read_place(last_event_id, sites, plain=plain), plain=plain)


def _read_place(text: str, sites: Sequence[Site], *, plain: bool) -> dict[str, FeedPosition]:
    """Parse Last-Event-ID: one position, or one per space name."""
    if not text:
        return {}
    names = {site.name for site in sites}
    parts = (
        [(sites[0].name, text)]
        if plain
        else [(name, place) for name, _, place in (part.partition("=") for part in text.split(";"))]
    )
    positions = {}
    for name, place in parts:
        epoch, _, number = place.rpartition(".")
        if not place.isascii() or not epoch.isalnum() or not number.isdigit() or len(number) > 15:
            raise InvalidInput("invalid Last-Event-ID", code="invalid-field", fields={"field": "Last-Event-ID"})
        if name in names:
            positions[name] = FeedPosition(epoch, int(number))
    return positions


class _EventStream(StreamingResponse):
    """A stream of events. It counts as a listener from admission until the connection ends."""

    def __init__(
        self, request: Request, user: str, sites: Sequence[Site], positions: dict[str, FeedPosition], *, plain: bool
    ) -> None:
        super().__init__(self._events(), media_type="text/event-stream", headers=_HEADERS)
        self._bus: EventBus = request.app.state.event_bus
        self._request = request
        self._user = user
        self._sites = sites
        self._positions = positions
        self._plain = plain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._bus.listeners += 1
        self._bus.of_user[self._user] += 1
        metrics.listeners.inc()
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            if not self._bus.closing:
                raise
            # The forge is stopping and the client did not read in time.
        finally:
            self._bus.listeners -= 1
            self._bus.of_user[self._user] -= 1
            metrics.listeners.dec()

    async def _events(self) -> AsyncIterator[str]:
        """Stream events until the forge stops, permission is lost or the feed fails; a reconnect gets the error."""
        bus, time = self._bus, asyncio.get_running_loop().time
        for site in self._sites:
            self._positions.setdefault(site.name, self._now(site))
        yield f"retry: 2000\n{self._event('hello', json.dumps({'spaces': [site.name for site in self._sites]}))}"
        checked_at = time()
        while not bus.closing:
            pulses = [bus.tails[site.name].pulse for site in self._sites]  # taken first, so that no wake-up is lost
            try:
                if time() - checked_at >= ALLOWED:
                    require(await run_in_threadpool(identify, forge_of(self._request), self._request), "viewer")
                    checked_at = time()
                news = [text for site in self._sites for text in await self._news(site)]
            except CliaError as err:
                _log.warning("event stream ended: %s", err.message)
                return
            for text in news:
                yield text
            if not news and not await _first_of(pulses, BEAT):
                yield ": beat\n\n"

    def _now(self, site: Site) -> FeedPosition:
        tail = self._bus.tails[site.name]
        return FeedPosition(tail.epoch, tail.end)

    async def _news(self, site: Site) -> list[str]:
        """The next batch of events of one space."""
        tail, last = self._bus.tails[site.name], self._positions[site.name]
        entries = tail.after(last.position) if last.epoch == tail.epoch else None
        if entries is None and last.epoch == tail.epoch:
            entries = await run_in_threadpool(self._from_store, site, last.position)
        if entries is None:
            self._positions[site.name] = self._now(site)
            return [self._event("reset", json.dumps({"space": site.name}))]
        events = []
        for entry in entries[:_BATCH]:
            self._positions[site.name] = FeedPosition(last.epoch, entry.position)  # the id of the event
            events.append(self._event("change", entry.text))
        metrics.sent.inc(len(events))
        return events

    def _from_store(self, site: Site, after: int) -> list[FeedMessage] | None:
        """The entries after a position; None if they are no longer available."""
        end = site.feed.end()
        if after > end or (after < end and site.feed.oldest() > after + 1):
            return None
        return [news_of(site, position, body) for position, body in site.feed.read(after, _BATCH)]

    def _event(self, name: str, data: str) -> str:
        positions = self._positions
        place = str(positions[self._sites[0].name]) if self._plain else ";".join(f"{site}={positions[site]}" for site in positions)
        return f"id: {place}\nevent: {name}\ndata: {data}\n\n"


async def _first_of(pulses: Sequence[asyncio.Event], seconds: float) -> bool:
    """Whether one of the events was set in time."""
    waits = [asyncio.ensure_future(pulse.wait()) for pulse in pulses]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()
