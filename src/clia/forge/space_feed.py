"""The feed of a space: what happened in it, in order, for those who watch.

Invariant: positions only grow, and an entry never changes. Each step of a session is there as soon as it is done, since it
was written with it; what happened to refs is there after the next look. Whoever has read up to a position goes on from it
and misses nothing, unless it was trimmed away (``oldest`` tells) or the store was lost and positions began anew (``end``
tells, being less).
"""

from __future__ import annotations

import threading
from secrets import token_hex
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.space.feed import KEPT, Looking, oldest, trim
from clia.store.feed_interface import FEED
from clia.store.notifications import bell_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.facade.space import Space
    from clia.space.core import Core
    from clia.store.feed_interface import Bell

EPOCH = "feed/epoch"


class FeedEntry(NamedTuple):
    position: int  # from 1, never used again
    body: dict[str, Any]


class Feed:
    """Made by ``feed_of``. Threads may share it, but only one may wait."""

    def __init__(self, core: Core, bell: Bell) -> None:
        self._store = core.store
        self._bell = bell
        self._looking = Looking(core)
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
    return Feed(core, bell_of(core.store))


def _check(number: int, field: str, least: int) -> int:
    if type(number) is not int or number < least:
        raise InvalidInput(f"{field} must be a number from {least} on", code="invalid-number", fields={"field": field})
    return number
