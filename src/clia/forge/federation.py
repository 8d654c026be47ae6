"""Federation endpoints: git fetch over HTTP for peers, and background sync with them.

Fetch: a peer authenticates with a fetch token and reads only its own view; nothing can be written. Requests use version 1 of git's
protocol, so that git checks that the refs of the view reach each wanted commit. Each request runs a git process with a time limit,
which is killed when the client disconnects; a peer may run a few at once.

Sync: peers are synced at start, periodically, and when one sends a notification. One thread syncs a peer at a time, and
notifications during a sync cause one more. A peer uses at most half the time of one thread. Shared changes are announced soon after
they happen. Failures are logged and shown on the peer page.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
import time
import zlib
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from anyio import to_thread
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from clia.errors import CliaError, Denied, InvalidInput, NotAllowed
from clia.federation.announcing import FETCH_TOKEN, NOTIFY_TOKEN
from clia.forge.middleware import TooLarge, TooMany
from clia.forge.problems import Unauthenticated
from clia.forge.rendering.texts import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container
    from datetime import datetime
    from typing import Self

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from clia.federation.model import Synced
    from clia.federation.peers import PinnedPeer
    from clia.forge.forge import Forge, Site
    from clia.git.records import UploadCommand

AT = "/federation/"
"""URL prefix for peers. Nothing below it uses users, cookies or forms."""
SERVICE = "git-upload-pack"
AT_ONCE = 4
"""Maximum concurrent fetches per peer."""
_ASKED, _TOLD, _SENT = (f"application/x-{SERVICE}-{kind}" for kind in ("request", "advertisement", "result"))
_PART = 64 * 1024
_SIZE = re.compile(rb"[0-9a-fA-F]{4}")
_LINE = re.compile(rb"(?:(?P<verb>want|have) (?P<cid>[0-9a-f]{40})(?: [^\n]*)?|done|deepen [0-9]{1,10})\n?")
_log = logging.getLogger("clia.federation")
THREADS = 3
NOTIFICATION_MAX = 16 * 1024
_REST = 0.2  # minimum seconds between syncs of a peer
ANNOUNCE = ""
"""Placeholder for a peer name in a job that announces to all peers."""
Job = tuple[str, str | None]
"""The names of a space and a peer to sync with. None: schedule all peers; ANNOUNCE: announce changes."""


class FetchEndpoints:
    """The git fetch endpoints."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._running: Counter[tuple[str, str]] = Counter()  # used only by the event loop

    def routes(self) -> list[Route]:
        at = f"{AT}{{space}}"
        return [
            Route(f"{at}/info/refs", self._refs, methods=["GET"], name="federation:refs"),
            Route(f"{at}/{SERVICE}", self._pack, methods=["POST"], name="federation:pack"),
        ]

    async def _refs(self, request: Request) -> Response:
        site, peer = await run_in_threadpool(self._admit, request)
        if request.query_params.get("service") != SERVICE:
            raise NotAllowed("this endpoint is read-only; use git fetch", code="read-only")
        upload = await run_in_threadpool(site.space.peers.tokens.advertise, peer)
        head = _packet(f"# service={SERVICE}\n".encode("ascii")) + b"0000"
        return _GitResponse(self._run(site, peer, upload), _TOLD, head)

    async def _pack(self, request: Request) -> Response:
        site, peer = await run_in_threadpool(self._admit, request)
        if request.headers.get("content-type") != _ASKED:
            raise InvalidInput(f"the content type must be {_ASKED}", code="unsupported-media-type")
        body = await _body(request, self._forge.options.body_max)
        try:
            body = asked(body, await run_in_threadpool(site.space.peers.tokens.announced_ids, peer))
        except Denied as err:  # in git's wording, which its client shows
            return Response(_packet(f"ERR upload-pack: not our ref {err.message}".encode("ascii")), media_type=_SENT)
        return _GitResponse(self._run(site, peer, site.space.peers.tokens.upload(peer), body), _SENT)

    def _admit(self, request: Request) -> tuple[Site, PinnedPeer]:
        """The space and peer of a fetch token; without a valid token, the error reveals neither."""
        site = self._forge.sites.get(request.path_params["space"])
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if site is not None and scheme.lower() == "bearer":
            with suppress(Denied, InvalidInput):
                peer = site.space.peers.tokens.authenticate(token.strip(), FETCH_TOKEN)
                request.scope["clia_user"] = f"peer:{peer.name}"
                return site, peer
        raise Unauthenticated("missing or invalid fetch token", code="bad-fetch-token")

    def _run(self, site: Site, peer: PinnedPeer, upload: UploadCommand, body: bytes = b"") -> GitProcess:
        seconds = site.space.local.config.federation.transfer_seconds
        return GitProcess(upload, body, seconds, self._running, (site.name, peer.name))


class GitProcess:
    """A git process that answers one request; it runs inside the ``async with`` block."""

    def __init__(
        self, upload: UploadCommand, body: bytes, seconds: float, running: Counter[tuple[str, str]], peer: tuple[str, str]
    ) -> None:
        self._upload = upload
        self._body = body
        self.seconds = seconds
        self._running = running
        self.peer = peer  # names of the space and the peer

    async def __aenter__(self) -> GitProcess:
        if self._running[self.peer] >= AT_ONCE:
            raise TooMany(f"at most {AT_ONCE} concurrent fetches per peer", fields={"retry_after": 1})
        self._running[self.peer] += 1
        try:
            words, environment = self._upload
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *words, env=dict(environment), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except BaseException:
            self._running[self.peer] -= 1
            raise
        assert self._process.stderr is not None  # noqa: S101  # opened as a pipe above
        self._stderr = asyncio.create_task(self._process.stderr.read(4096))
        self._feeding = asyncio.create_task(self._feed())
        return self

    async def _feed(self) -> None:
        into = self._process.stdin
        assert into is not None  # noqa: S101  # as above
        with suppress(BrokenPipeError, ConnectionResetError):  # git stopped reading
            into.write(self._body)
            await into.drain()
        into.close()

    async def parts(self, head: bytes) -> AsyncIterator[bytes]:
        """The output of git after ``head``."""
        yield head
        out = self._process.stdout
        assert out is not None  # noqa: S101  # as above
        while part := await out.read(_PART):
            yield part
        if await self._process.wait():
            message = one_line((await self._stderr).decode("utf-8", "replace").strip())
            _log.warning("%s: git failed for peer %s: %s", *self.peer, message)

    async def __aexit__(self, *exc: object) -> None:
        try:
            self._feeding.cancel()
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)  # including its children
                await self._process.wait()
            self._stderr.cancel()
        finally:
            self._running[self.peer] -= 1


class _GitResponse(StreamingResponse):
    """Streams the output of a git process."""

    def __init__(self, run: GitProcess, kind: str, head: bytes = b"") -> None:
        super().__init__(run.parts(head), media_type=kind)
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._run as run:
            try:
                async with asyncio.timeout(run.seconds):
                    await super().__call__(scope, receive, send)
            except TimeoutError:  # drop the connection, so that a partial response is not taken for a complete one
                _log.warning("%s: fetch by peer %s exceeded %g s", *run.peer, run.seconds)


async def _body(request: Request, most: int) -> bytes:
    """The request body, decompressed if necessary; the guard has limited its size."""
    encoding = request.headers.get("content-encoding", "identity")
    data = await request.body()
    if encoding == "identity":
        return data
    if encoding not in ("gzip", "x-gzip"):
        raise InvalidInput(f"unsupported content encoding {encoding!r}", code="unsupported-media-type")
    try:
        body = zlib.decompressobj(wbits=31).decompress(data, most + 1)
    except zlib.error:
        raise _malformed() from None
    if len(body) > most:
        raise TooLarge(f"the request body exceeds {most} bytes", fields={"most": most})
    return body


def asked(body: bytes, allowed: Container[str]) -> bytes:
    """The request without the ``have`` ids that were never announced to the peer, so that it cannot learn whether they exist here.

    Raises ``Denied`` with the id if the peer wants a commit that was not announced to it, ``InvalidInput`` for a malformed request.
    """
    lines = []
    at = 0
    while at < len(body):
        head = body[at : at + 4]
        size = int(head, 16) if _SIZE.fullmatch(head) else -1
        if (size != 0 and size < 4) or at + size > len(body):
            raise _malformed()
        line = _LINE.fullmatch(body[at + 4 : at + size]) if size else None
        if size and line is None:
            raise _malformed()
        verb, cid = (line["verb"], line["cid"].decode("ascii")) if line and line["cid"] else (b"", "")
        if verb == b"want" and cid not in allowed:
            raise Denied(cid, code="missing-object")
        if verb != b"have" or cid in allowed:
            lines.append(body[at : at + (size or 4)])
        at += size or 4
    return b"".join(lines)


def _packet(line: bytes) -> bytes:
    return b"%04x" % (len(line) + 4) + line


def _malformed() -> InvalidInput:
    return InvalidInput("not a git upload-pack request", code="malformed-request")


class SyncResult(NamedTuple):
    """The result of the last sync with a peer; ``error`` if it failed."""

    at: datetime
    synced: Synced | None
    error: CliaError | None


class Listening:
    """Syncs with peers in background threads while its block runs."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._changed = threading.Condition()
        self._wanted: dict[Job, None] = {}  # in order
        self._busy: set[Job] = set()
        self._rests: dict[Job, float] = {}  # monotonic deadlines
        self._periods: dict[Job, float] = {}  # of the periodic jobs, in seconds
        self._due: dict[Job, float] = {}
        self._announced: dict[str, str] = {}  # state at the last announcement
        self._results: dict[Job, SyncResult] = {}
        self._over = False
        self._threads: list[threading.Thread] = []

    def routes(self) -> list[Route]:
        return [Route(f"{AT}inbox", self._notify, methods=["POST"], name="federation:inbox")]

    async def __aenter__(self) -> Self:
        # Read here, so that a configuration that cannot be read is reported at the start and ends no thread later.
        self._periods = await to_thread.run_sync(self._configured_periods)
        for number in range(THREADS):
            thread = threading.Thread(target=self._work, daemon=True, name=f"listening {number}")
            thread.start()
            self._threads.append(thread)
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_thread.run_sync(self._end)

    def _configured_periods(self) -> dict[Job, float]:
        periods = dict[Job, float]()
        for name, site in self._forge.sites.items():
            options = site.space.local.config.federation
            periods |= {(name, None): options.every_seconds, (name, ANNOUNCE): options.announce_seconds}
        return periods

    def _end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=5)

    def heard(self, site: Site, peer: str) -> SyncResult | None:
        """The result of the last sync with a peer in this process."""
        return self._results.get((site.name, peer))

    def listen(self, site: Site, peer: str) -> Synced:
        """Sync with a peer now, in the calling thread."""
        job, now = (site.name, peer), self._forge.clock
        try:
            report = site.space.peers.sync(peer)[0]
        except CliaError as err:
            self._results[job] = SyncResult(now(), None, err)
            raise
        self._results[job] = SyncResult(now(), report, None)
        if report.moves:
            site.feed.look()  # update the feed immediately
        return report

    # Notifications

    async def _notify(self, request: Request) -> Response:
        """Schedule a sync with the peer that sent a notification; the error reveals nothing to strangers."""
        token = b""
        async for part in request.stream():
            token += part
            if len(token) > NOTIFICATION_MAX:
                raise TooLarge(f"the notification exceeds {NOTIFICATION_MAX} bytes", fields={"most": NOTIFICATION_MAX})
        job = await run_in_threadpool(self._notified_job, token.decode("ascii", "replace"))
        request.scope["clia_user"] = f"peer:{job[1]}"
        self._want(job)
        return Response(status_code=202)

    def _notified_job(self, token: str) -> Job:
        for site in self._forge.sites.values():
            with suppress(Denied, InvalidInput):
                return site.name, site.space.peers.tokens.authenticate(token, NOTIFY_TOKEN).name
        raise Unauthenticated("invalid notification token", code="bad-notification-token")

    def _want(self, *jobs: Job) -> None:
        with self._changed:
            self._wanted |= dict.fromkeys(jobs)
            self._changed.notify()

    # Threads

    def _work(self) -> None:
        while (job := self._next()) is not None:
            began = time.monotonic()
            try:
                self._carry_out(job)
            finally:
                ended = time.monotonic()
                with self._changed:
                    self._busy.discard(job)
                    self._rests[job] = ended + max(_REST, ended - began)
                    self._changed.notify()

    def _next(self) -> Job | None:
        """The next job that may run; None when stopping."""
        with self._changed:
            while not self._over:
                now = time.monotonic()
                self._schedule(now)
                free = [job for job in self._wanted if job not in self._busy]
                ready = next((job for job in free if self._rests.get(job, 0.0) <= now), None)
                if ready is not None:
                    del self._wanted[ready]
                    self._busy.add(ready)
                    return ready
                moments = [*self._due.values(), *(self._rests[job] for job in free)]
                self._changed.wait(max(0.01, min(moments) - now))
        return None

    def _schedule(self, now: float) -> None:
        """Add the periodic jobs that are due."""
        for job, seconds in self._periods.items():
            if self._due.get(job, 0.0) <= now:
                self._due[job] = now + seconds
                self._wanted[job] = None

    def _announce(self, site: Site) -> None:
        """Announce changes since the last announcement; once a day in any case, in case a snapshot is due."""
        fingerprint = site.space.peers.tokens.shared_fingerprint()
        state = f"{self._forge.clock():%F} {fingerprint}"
        if fingerprint is None or self._announced.get(site.name) == state:
            return
        for announcement in site.space.peers.announce():
            if announcement.statements:
                _log.info("%s: peer %s was told of %d changes", site.name, announcement.peer, len(announcement.moves))
        self._announced[site.name] = state

    def _carry_out(self, job: Job) -> None:
        name, peer = job
        try:
            site = self._forge.sites[name]
            if peer == ANNOUNCE:
                self._announce(site)
            elif peer is None:
                self._want(*((name, other.name) for other in site.space.peers() if other.url is not None))
            elif site.space.peers.get(peer).url is not None:
                report = self.listen(site, peer)
                if report.moves or report.refused:
                    _log.info("%s: synced peer %s: %d moved, %d refused", name, peer, len(report.moves), len(report.refused))
        except CliaError as err:
            _log.warning("%s: peer %s: %s", name, peer or "-", one_line(err.message)[:1000])
        except Exception:  # noqa: BLE001  # a bug: log it and keep the thread for the other peers
            _log.exception("%s: sync with peer %s failed", name, peer or "-")
