"""One watcher a space and process, and any number of listeners.

Invariant: a listener sees every entry of the feed after the one it names, in order, or is told that it must start over. Each has
its own place: a slow one holds up nobody. The newest entries are read from the store once for all; who is behind them reads alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import Counter, deque
from contextlib import suppress
from typing import NamedTuple

from clia.errors import CliaError
from clia.forge.api.idempotency import Once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

    from clia.forge.forge import Forge, Site

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


class Hub:
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
