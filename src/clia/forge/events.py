"""The feed of a space: what happened in it, in order, for those who watch.

Invariant: positions only grow, and an entry never changes. Each step of a session is there as soon as it is done, since it
was written with it; what happened to refs is there after the next look. Whoever has read up to a position goes on from it
and misses nothing, unless it was trimmed away (``oldest`` tells) or the store was lost and positions began anew (``end``
tells, being less).


One watcher a space and process, and any number of listeners.

Invariant: a listener sees every entry of the feed after the one it names, in order, or is told that it must start over. Each has
its own place: a slow one holds up nobody. The newest entries are read from the store once for all; who is behind them reads alone.


The feed as server-sent events.

Invariant: the id of each event says how far the listener has seen, so that a browser which comes back with ``Last-Event-ID`` misses
nothing; where that is too old, or of a store that was lost, the event ``reset`` says so. A connection that nobody reads from waits
by itself: beyond what its socket takes nothing is kept for it, and it has one of the places for listeners. Whoever may no longer
listen hears nothing more after a minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import Counter, deque
from contextlib import suppress
from secrets import token_hex
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from clia.errors import CliaError, InvalidInput
from clia.forge import metrics
from clia.forge.api.idempotency import Once
from clia.forge.auth import identify, require
from clia.forge.pages.common import forge_of
from clia.space.feed import KEPT, RefWatcher, oldest, trim
from clia.store.interface import FEED
from clia.store.notifications import notifier_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Any, Self

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from clia.facade.space import Space
    from clia.forge.forge import Forge, Site
    from clia.space.core import Core
    from clia.store.interface import FeedNotifier

EPOCH = "feed/epoch"


class FeedEntry(NamedTuple):
    position: int  # from 1, never used again
    body: dict[str, Any]


class Feed:
    """Made by ``feed_of``. Threads may share it, but only one may wait."""

    def __init__(self, core: Core, bell: FeedNotifier) -> None:
        self._store = core.store
        self._bell = bell
        self._looking = RefWatcher(core)
        self._one_look = threading.Lock()

    def epoch(self) -> str:
        """Which feed this is: another one after the store was lost, when positions begin anew."""
        found = self._store.get(EPOCH)
        if found is not None and isinstance(found.value, str):
            return found.value
        with self._store.writing() as change:
            there = change.values.get(EPOCH)
            if there is not None and isinstance(there.value, str):
                return there.value
            made = token_hex(4)
            change.values.put(EPOCH, made)
        return made

    def end(self) -> int:
        """The position of the last entry ever; less than what a reader has seen: the store was lost, all begins anew."""
        with self._store.reading() as view:
            return view.streams.end(FEED)

    def oldest(self) -> int:
        """The first position that is still there, or will be; who has read less than up to the one before it has missed some."""
        return oldest(self._store)

    def read(self, after: int, limit: int = 500) -> list[FeedEntry]:
        """The entries after a position, in order; none where it lies beyond the end."""
        _check(after, "after", 0)
        _check(limit, "limit", 1)
        with self._store.reading() as view:
            return [FeedEntry(*each) for each in view.streams.read(FEED, after, limit)]

    def look(self) -> int:
        """Tells what has happened to refs since anyone looked last, also by plain git; how many entries that took."""
        with self._one_look:
            return self._looking.look()

    def trim(self, keep: int = KEPT) -> int:
        """Drops all but the newest entries; how many."""
        return trim(self._store, _check(keep, "keep", 0))

    def wait(self, after: int, timeout: float) -> bool:
        """True as soon as the feed goes beyond a position; False after so many seconds, or when the feed is closed."""
        return self._bell.wait(lambda: self.end() > after, timeout)

    def close(self) -> None:
        """Ends the waiting. The space stays open."""
        self._bell.close()


def feed_of(space: Space) -> Feed:
    """The feed of an open space; to be closed before it."""
    core = space._core  # noqa: SLF001  # the space's other face: what a watcher needs is no verb of it
    return Feed(core, notifier_for(core.store))


def _check(number: int, field: str, least: int) -> int:
    if type(number) is not int or number < least:
        raise InvalidInput(f"{field} must be a number from {least} on", code="invalid-number", fields={"field": field})
    return number


_log = logging.getLogger("clia.forge")
_LOOK, _TRIM = 1.0, 300.0  # seconds between two looks at the refs, and between two tidyings
_TAIL = 2000


class News(NamedTuple):
    """An entry of the feed, ready to be sent."""

    position: int
    text: str  # JSON


def news_of(site: Site, position: int, body: Any) -> News:
    return News(position, json.dumps({"space": site.name, "position": position, **body}, separators=(",", ":")))


class _Tail:
    """The newest entries of one space's feed. Only the event loop changes or reads it."""

    def __init__(self) -> None:
        self.pulse = asyncio.Event()  # set once something is new; then there is another one
        self.end = 0
        self.epoch = ""
        self.entries: deque[News] = deque(maxlen=_TAIL)

    def add(self, found: Sequence[News], end: int, epoch: str) -> None:
        if epoch != self.epoch:
            self.entries.clear()  # the store was lost
        self.entries.extend(found)
        self.epoch = epoch
        self.end = end
        self.beat()

    def beat(self) -> None:
        self.pulse.set()
        self.pulse = asyncio.Event()

    def after(self, position: int) -> list[News] | None:
        """What came after a position; None where that is not all here."""
        if position == self.end:
            return []
        if not self.entries or self.entries[0].position > position + 1 or position > self.end:
            return None
        first = position + 1 - self.entries[0].position
        found = [self.entries[index] for index in range(first, len(self.entries))]
        return found if found and found[0].position == position + 1 else None


class EventBus:
    """Wakes listeners when the feed of a space goes on."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.tails: dict[str, _Tail] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.listeners = 0
        self.of_user: Counter[str] = Counter()
        self.closing = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._forge.told_to_stop.append(self.end_soon)
        for site in self._forge.sites.values():
            tail = self.tails[site.name] = _Tail()
            tail.end = await asyncio.to_thread(site.feed.end)
            tail.epoch = await asyncio.to_thread(site.feed.epoch)
            for work in (self._watch, self._look):
                thread = threading.Thread(target=work, args=(site, tail), daemon=True, name=f"{work.__name__} {site.name}")
                thread.start()
                self._threads.append(thread)
        return self

    def end_soon(self) -> None:
        """Ends every stream; from any thread, or from a signal's handler."""
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
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=5)

    def _watch(self, site: Site, tail: _Tail) -> None:
        """Waits for the feed to go on, reads what is new, and wakes the listeners."""
        at, epoch = tail.end, tail.epoch
        while not self._stop.is_set():
            try:
                more, now = site.feed.wait(at, 1.0), site.feed.epoch()
                if now != epoch:
                    epoch, at = now, self._told(tail, [], site.feed.end(), now)
                    continue
                if not more:
                    continue
                found = [news_of(site, position, body) for position, body in site.feed.read(at)]
                at = self._told(tail, found, found[-1].position if found else site.feed.end(), epoch)
            except CliaError as err:
                _log.warning("%s: the feed cannot be read: %s", site.name, err.message)
                self._stop.wait(1.0)

    def _told(self, tail: _Tail, found: Sequence[News], end: int, epoch: str) -> int:
        loop = self._loop
        if loop is not None and not self.closing:
            with suppress(RuntimeError):  # it is just closing
                loop.call_soon_threadsafe(tail.add, found, end, epoch)
        return end

    def _look(self, site: Site, tail: _Tail) -> None:
        """Puts into the feed what refs say: commits of others, and of plain git."""
        del tail
        tidied = 0.0
        while not self._stop.wait(_LOOK):
            try:
                if self.listeners:
                    site.feed.look()
                tidied += _LOOK
                if tidied >= _TRIM:
                    tidied = 0.0
                    self._tidy(site)
            except CliaError as err:
                _log.warning("%s: its refs cannot be read: %s", site.name, err.message)

    def _tidy(self, site: Site) -> None:
        site.feed.trim()
        if site.name == next(iter(self._forge.sites)):
            Once(self._forge.home, self._forge.clock).expire()
            self._forge.users.expire()


BEAT = 15.0
"""Seconds after which a comment is sent, so that proxies and people see that the connection lives."""
ALLOWED = 60.0
"""Seconds after which it is asked again whether the listener may listen."""
_BATCH = 200
_SHARE, _LEAST = 4, 20  # one user has at most this part of all places, and this many in any case
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


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
    bus: EventBus = request.app.state.event_bus
    user = require(request.state.identity, "viewer").name
    most = forge_of(request).options.listeners
    if bus.listeners >= most or bus.of_user[user] >= max(_LEAST, most // _SHARE):
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
        self._bus = listener.bus
        self._user = listener.user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._bus.listeners += 1
        self._bus.of_user[self._user] += 1
        metrics.listeners(1)
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:
            if not self._bus.closing:
                raise
            # The forge ends, and this one reads nothing: it was given its time.
        finally:
            self._bus.listeners -= 1
            self._bus.of_user[self._user] -= 1
            metrics.listeners(-1)


class _Listener:
    def __init__(self, request: Request, sites: Sequence[Site], seen: dict[str, Place], *, plain: bool) -> None:
        self.bus: EventBus = request.app.state.event_bus
        self._request = request
        self.user = require(request.state.identity, "viewer").name
        self._sites = sites
        self._seen = seen
        self._plain = plain

    async def events(self) -> AsyncIterator[str]:
        """Ends with the forge, and where the listener may not listen or the feed cannot be read: who comes back is told why."""
        bus, time = self.bus, asyncio.get_running_loop().time
        for site in self._sites:
            self._seen.setdefault(site.name, self._now(site))
        yield f"retry: 2000\n{self._event('hello', json.dumps({'spaces': [site.name for site in self._sites]}))}"
        asked = time()
        while not bus.closing:
            pulses = [bus.tails[site.name].pulse for site in self._sites]  # taken first: what comes meanwhile is not slept over
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
        tail = self.bus.tails[site.name]
        return Place(tail.epoch, tail.end)

    async def _news(self, site: Site) -> list[str]:
        """What is to be sent of one space, a batch at most."""
        tail, seen = self.bus.tails[site.name], self._seen[site.name]
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
