"""How a process says that it lives: a row in the store that the fleet shares, written anew every few seconds.

Invariant: a row belongs to the process that wrote it until it is taken away at a clean stop, or was silent for an hour. There is
a fixed number of places for rows, because a deleted value leaves a row behind for ever. A store that is away or busy stops
nobody: the next beat tries again, and a process that stops waits for its last one a moment and no more.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from secrets import token_hex
from typing import NamedTuple

from clia.errors import CliaError
from clia.hub.clone_ids import clone_id
from clia.store.clock import own_clock, time_of
from clia.values.background import background_thread
from clia.workers.fleet import EVERY, FLEET, Beat, Underway, as_beat, owed_by_clone
from clia.workers.hub_inspection import meeting_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from clia.facade.space import Space
    from clia.store.interface import Transaction
    from clia.workers.worker import Status

PLACES = 256
_LISTED, _TEXT = 50, 300  # how much a row holds of what can be long


class About(NamedTuple):
    """What a process says of itself once and for all."""

    kind: str
    name: str
    kinds: tuple[str, ...] = ()
    concurrency: int = 0


@contextmanager
def beating(space: Space, about: About, status: Callable[[], Status] | None = None, every: float = EVERY) -> Iterator[None]:
    """Meanwhile the fleet is told that this process lives and what it does."""
    beats = Beats(space, about, status, every)

    def go_on(over: threading.Event) -> None:
        while True:
            with suppress(CliaError):  # the store is away: the next beat tries again
                beats.beat()
            if over.wait(every):
                break
        with suppress(CliaError):  # then it is shown as silent for a while
            beats.leave()

    with background_thread("clia-fleet", go_on, EVERY):
        yield


class Beats:
    """The row of one process. For one thread."""

    def __init__(self, space: Space, about: About, status: Callable[[], Status] | None = None, every: float = EVERY) -> None:
        core = space._core  # noqa: SLF001  # the fleet's rows are no verb of a space
        self._store, self._clock = core.store, own_clock(core.clock)
        self._meeting = meeting_of(space)
        self._status = status
        self._key: str | None = None
        self._apart: set[str] | None = None  # agents that may have gone two ways
        self._since: dict[tuple[str, str, int], float] = {}
        clone = clone_id(os.path.dirname(os.path.dirname(space.running.workplace)))
        name, kinds = about.name[:_TEXT], about.kinds[:_LISTED]
        machine = socket.gethostname()
        own = (token_hex(8), about.kind, name, machine, clone, os.getpid(), _version())
        self._row = Beat(*own, 0.0, 0.0, 0.0, every, 0, kinds, about.concurrency)

    def beat(self) -> None:
        """Says that the process lives, and what it does."""
        now = time_of(self._store, self._clock)
        row = self._row._replace(seen_at=now, clock=self._clock().timestamp(), beats=self._row.beats + 1)
        self._row = self._with_status(row if row.started_at else row._replace(started_at=now), now)
        with suppress(CliaError):  # a repository that cannot be read is no reason to look dead
            self._row = self._with_hub(self._row)
        with self._store.writing() as change:
            key = self._key if self._is_mine(change) else self._place(change, now)
            if key is not None:
                change.values.put(key, _kept(self._row))
        self._key = key

    def leave(self) -> None:
        """Takes the row away."""
        with self._store.writing() as change:
            if self._key is not None and self._is_mine(change):
                change.values.delete(self._key)

    def _with_status(self, row: Beat, now: float) -> Beat:
        if self._status is None:
            return row
        said = self._status()
        doing = {(each.agent, each.request, each.attempt): each for each in said.running[:_LISTED]}
        self._since = {place: self._since.get(place, now) for place in doing}
        running = [Underway(each.agent, each.request, each.kind, each.attempt, self._since[place]) for place, each in doing.items()]
        row = row._replace(answered=said.answered, retried=said.retried, given_up=said.given_up)
        return row._replace(running=running, trouble=None if said.trouble is None else said.trouble[:_TEXT])

    def _with_hub(self, row: Beat) -> Beat:
        """How this clone stands with its hub, as far as is known: nothing is asked.

        All refs are looked at once; then what was apart or owed before, or is owed now: nothing else can have gone two ways.
        """
        meeting = self._meeting
        if meeting is None:
            return row
        if self._apart is None:
            self._apart = {each.agent for each in meeting.status().forks}
        away = meeting.away()
        since = None if away is None else row.seen_at - (row.clock - away.since)  # by the store's clock
        owed = set(owed_by_clone(self._store).get(row.clone, ())[:_LISTED])
        forks = sorted(name for name in self._apart | owed if meeting.fork(name) is not None)[:_LISTED]
        self._apart = owed.union(forks)
        return row._replace(away_since=since, forks=forks)

    def _is_mine(self, view: Transaction) -> bool:
        """Whether the row is still this process's: one that slept for an hour may find somebody else's there."""
        found = None if self._key is None else view.values.get(self._key)
        held = None if found is None else as_beat(found.value)
        return held is not None and held.id == self._row.id

    def _place(self, change: Transaction, now: float) -> str | None:
        """A place for the row: that of the process that was called alike, else one that is free, else the longest silent's.

        On the way rows that are over are taken away. None where all places are taken by processes that live.
        """
        held: dict[str, Beat] = {}
        for key, value in change.values.scan(FLEET):
            row = as_beat(value)
            if row is None or row.is_over(now) or self._is_successor(row):
                change.values.delete(key)
            else:
                held[key] = row
        free = next((key for number in range(PLACES) if (key := f"{FLEET}{number:03d}") not in held), None)
        if free is not None:
            return free
        key, last = min(held.items(), key=lambda each: each[1].seen_at)
        return key if now - last.seen_at > last.patience else None

    def _is_successor(self, row: Beat) -> bool:
        """Whether this process was started in the place of the one that has a row: no two that live are called alike."""
        mine = self._row
        return (row.kind, row.name, row.machine, row.clone) == (mine.kind, mine.name, mine.machine, mine.clone)


def _version() -> str:
    try:
        return version("clia")
    except PackageNotFoundError:  # run from its sources
        return ""


def _kept(row: Beat) -> dict[str, object]:
    return {**row._asdict(), "kinds": list(row.kinds), "running": [list(each) for each in row.running]}
