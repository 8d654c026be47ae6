"""Listening to the peers of every space that is served: at the start, every so often, and when one knocks; and telling them.

Invariant: a peer is listened to by one thread at a time; however often it knocks meanwhile, there is one more time after it. No
peer keeps the others waiting unless all threads are busy, and none gets more than half of one. What is shared is announced soon
after it has moved, whoever moved it. What fails is said to the log and kept for the page of the peers; it hurts nobody.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from anyio import to_thread
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

from clia.errors import CliaError, Denied, InvalidInput
from clia.federation.doors import KNOCK
from clia.forge.federation.fetching import AT
from clia.forge.guard import TooLarge
from clia.forge.problems import Unauthenticated
from clia.forge.rendering.texts import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Self

    from starlette.requests import Request

    from clia.federation.model import Synced
    from clia.forge.forge import Forge, Site

THREADS = 3
KNOCK_MAX = 16 * 1024
_REST = 0.2  # seconds at least between the end of one time and the next
TELL = ""
"""In a peer's place, which has a name: it is not about one of them."""
_log = logging.getLogger("clia.federation")


class Heard(NamedTuple):
    """What came of listening to a peer last; ``error`` says why it could not be reached."""

    at: datetime
    synced: Synced | None
    error: CliaError | None


class _Job(NamedTuple):
    site: Site
    peer: str | None  # None: look whom there is to listen to; TELL: look whether there is something to announce

    @property
    def key(self) -> tuple[str, str | None]:
        return self.site.name, self.peer


class Listening:
    """Runs in threads of its own as long as its block."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._changed = threading.Condition()
        self._wanted: dict[tuple[str, str | None], _Job] = {}
        self._busy: set[tuple[str, str | None]] = set()
        self._rests: dict[tuple[str, str | None], float] = {}  # until when
        self._due: dict[tuple[str, str | None], float] = {}
        self._told: dict[str, str] = {}  # what there was to tell when it was told last
        self._heard: dict[tuple[str, str | None], Heard] = {}
        self._over = False
        self._threads: list[threading.Thread] = []

    def routes(self) -> list[Route]:
        return [Route(f"{AT}inbox", self._knock, methods=["POST"], name="federation:inbox")]

    async def __aenter__(self) -> Self:
        for number in range(THREADS):
            thread = threading.Thread(target=self._work, daemon=True, name=f"listening {number}")
            thread.start()
            self._threads.append(thread)
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_thread.run_sync(self._end)

    def _end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=5)

    def heard(self, site: Site, peer: str) -> Heard | None:
        """What came of listening to a peer last, in this process."""
        return self._heard.get((site.name, peer))

    def listen(self, site: Site, peer: str) -> Synced:
        """Listens to a peer now, in the thread of whoever asks."""
        key, now = (site.name, peer), self._forge.clock
        try:
            found = site.space.sync(peer)[0]
        except CliaError as err:
            self._heard[key] = Heard(now(), None, err)
            raise
        self._heard[key] = Heard(now(), found, None)
        if found.moves:
            site.feed.look()  # whoever watches is told at once
        return found

    # The bell

    async def _knock(self, request: Request) -> Response:
        """Whoever knocks is listened to soon; a stranger learns nothing."""
        token = b""
        async for part in request.stream():
            token += part
            if len(token) > KNOCK_MAX:
                raise TooLarge(f"a knock has at most {KNOCK_MAX} bytes", fields={"most": KNOCK_MAX})
        job = await run_in_threadpool(self._knocking, token.decode("ascii", "replace"))
        request.scope["clia_user"] = f"peer:{job.peer}"
        self._want(job)
        return Response(status_code=202)

    def _knocking(self, token: str) -> _Job:
        for site in self._forge.sites.values():
            with suppress(Denied, InvalidInput):
                return _Job(site, site.space.doors.visitor(token, KNOCK).name)
        raise Unauthenticated("nobody who is known here knocks like this", code="bad-knock")

    def _want(self, *jobs: _Job) -> None:
        with self._changed:
            self._wanted |= {job.key: job for job in jobs}
            self._changed.notify()

    # The threads

    def _work(self) -> None:
        while (job := self._next()) is not None:
            began = time.monotonic()
            try:
                self._carry_out(job)
            finally:
                ended = time.monotonic()
                with self._changed:
                    self._busy.discard(job.key)
                    self._rests[job.key] = ended + max(_REST, ended - began)
                    self._changed.notify()

    def _next(self) -> _Job | None:
        """The next that is wanted and may be; None when all is over."""
        with self._changed:
            while not self._over:
                now = time.monotonic()
                self._look_at_the_clock(now)
                free = [job for key, job in self._wanted.items() if key not in self._busy]
                ready = next((job for job in free if self._rests.get(job.key, 0.0) <= now), None)
                if ready is not None:
                    del self._wanted[ready.key]
                    self._busy.add(ready.key)
                    return ready
                moments = [*self._due.values(), *(self._rests[job.key] for job in free)]
                self._changed.wait(max(0.01, min(moments) - now))
        return None

    def _look_at_the_clock(self, now: float) -> None:
        for site in self._forge.sites.values():
            options = site.space.running.config.federation
            for job, seconds in ((_Job(site, None), options.every_seconds), (_Job(site, TELL), options.announce_seconds)):
                if self._due.get(job.key, 0.0) <= now:
                    self._due[job.key] = now + seconds
                    self._wanted[job.key] = job

    def _tell(self, site: Site) -> None:
        """Announces what is new, if something moved since it was announced last; once a day anyway, should a snapshot be due."""
        there = site.space.doors.untold()
        state = f"{self._forge.clock():%F} {there}"
        if there is None or self._told.get(site.name) == state:
            return
        for each in site.space.announce():
            if each.statements:
                _log.info("%s: the peer %s was told of %d moves", site.name, each.peer, len(each.moves))
        self._told[site.name] = state

    def _carry_out(self, job: _Job) -> None:
        site, peer = job
        try:
            if peer == TELL:
                self._tell(site)
            elif peer is None:
                self._want(*(_Job(site, each.name) for each in site.space.peers() if each.url is not None))
            elif site.space.peer(peer).url is not None:
                found = self.listen(site, peer)
                if found.moves or found.refused:
                    told = (site.name, peer, len(found.moves), len(found.refused))
                    _log.info("%s: the peer %s was heard: %d moved, %d refused", *told)
        except CliaError as err:
            _log.warning("%s: the peer %s: %s", site.name, peer or "-", one_line(err.message)[:1000])
        except Exception:  # noqa: BLE001  # a bug: it is logged whole, and the thread serves every other peer too
            _log.exception("%s: listening to the peer %s is broken", site.name, peer or "-")
