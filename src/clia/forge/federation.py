"""Git over HTTP for peers: they fetch what they were told about.

Invariant: only who shows a pass gets anything, and only from its own view; there is no way to write. A request asks for commits,
in the first version of git's protocol, so that git itself looks whether the refs of the view reach each of them. What answers is
a program that has a time to do it, and that ends as soon as nobody reads its answer; a peer has but a few of them.


Listening to the peers of every space that is served: at the start, every so often, and when one knocks; and telling them.

Invariant: a peer is listened to by one thread at a time; however often it knocks meanwhile, there is one more time after it. No
peer keeps the others waiting unless all threads are busy, and none gets more than half of one. What is shared is announced soon
after it has moved, whoever moved it. What fails is said to the log and kept for the page of the peers; it hurts nobody.
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
from clia.federation.peer_tokens import FETCH_TOKEN, NOTIFY_TOKEN
from clia.forge.guard import TooLarge, TooMany
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
"""Where peers come to. Nothing below it knows users, cookies or forms."""
SERVICE = "git-upload-pack"
AT_ONCE = 4
"""So many answers one peer gets at a time."""
_ASKED, _TOLD, _SENT = (f"application/x-{SERVICE}-{what}" for what in ("request", "advertisement", "result"))
_PART = 64 * 1024
_SIZE = re.compile(rb"[0-9a-fA-F]{4}")
_LINE = re.compile(rb"(?:(?P<verb>want|have) (?P<cid>[0-9a-f]{40})(?: [^\n]*)?|done|deepen [0-9]{1,10})\n?")
_log = logging.getLogger("clia.federation")


class Fetching:
    """The addresses of git."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._open: Counter[tuple[str, str]] = Counter()  # only the event loop counts

    def routes(self) -> list[Route]:
        at = f"{AT}{{space}}"
        return [
            Route(f"{at}/info/refs", self._refs, methods=["GET"], name="federation:refs"),
            Route(f"{at}/{SERVICE}", self._pack, methods=["POST"], name="federation:pack"),
        ]

    async def _refs(self, request: Request) -> Response:
        site, peer = await run_in_threadpool(self._admitted, request)
        if request.query_params.get("service") != SERVICE:
            raise NotAllowed("peers fetch here, with git; they write nothing", code="read-only")
        upload = await run_in_threadpool(site.space.peer_tokens.advertised, peer)
        head = _packet(f"# service={SERVICE}\n".encode("ascii")) + b"0000"
        return _Answer(self._run(site, peer, upload), _TOLD, head)

    async def _pack(self, request: Request) -> Response:
        site, peer = await run_in_threadpool(self._admitted, request)
        if request.headers.get("content-type") != _ASKED:
            raise InvalidInput(f"git asks with {_ASKED}", code="unsupported-media-type")
        body = await _body(request, self._forge.options.body_max)
        try:
            body = asked(body, await run_in_threadpool(site.space.peer_tokens.told, peer))
        except Denied as err:  # in the words of git, which its client passes on
            return Response(_packet(f"ERR upload-pack: not our ref {err.message}".encode("ascii")), media_type=_SENT)
        return _Answer(self._run(site, peer, site.space.peer_tokens.upload(peer), body), _SENT)

    def _admitted(self, request: Request) -> tuple[Site, PinnedPeer]:
        """The space and the peer that a pass is good for; whoever has none learns nothing of either."""
        site = self._forge.sites.get(request.path_params["space"])
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if site is not None and scheme.lower() == "bearer":
            with suppress(Denied, InvalidInput):
                peer = site.space.peer_tokens.visitor(token.strip(), FETCH_TOKEN)
                request.scope["clia_user"] = f"peer:{peer.name}"
                return site, peer
        raise Unauthenticated("no pass that is good here was shown", code="bad-pass")

    def _run(self, site: Site, peer: PinnedPeer, upload: UploadCommand, body: bytes = b"") -> _Run:
        seconds = site.space.running.config.federation.transfer_seconds
        return _Run(upload, body, seconds, self._open, (site.name, peer.name))


class _Run:
    """A program that answers one request: as a block, in which it runs."""

    def __init__(
        self, upload: UploadCommand, body: bytes, seconds: float, places: Counter[tuple[str, str]], whose: tuple[str, str]
    ) -> None:
        self._upload = upload
        self._body = body
        self.seconds = seconds
        self._open = places
        self.whose = whose

    async def __aenter__(self) -> _Run:
        if self._open[self.whose] >= AT_ONCE:
            raise TooMany(f"a peer has at most {AT_ONCE} answers at a time", fields={"retry_after": 1})
        self._open[self.whose] += 1
        try:
            words, environment = self._upload
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *words, env=dict(environment), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except BaseException:
            self._open[self.whose] -= 1
            raise
        assert self._process.stderr is not None  # noqa: S101  # it is a pipe, and said so above
        self._said = asyncio.create_task(self._process.stderr.read(4096))
        self._fed = asyncio.create_task(self._feed())
        return self

    async def _feed(self) -> None:
        into = self._process.stdin
        assert into is not None  # noqa: S101  # as above
        with suppress(BrokenPipeError, ConnectionResetError):  # it has heard enough
            into.write(self._body)
            await into.drain()
        into.close()

    async def parts(self) -> AsyncIterator[bytes]:
        out = self._process.stdout
        assert out is not None  # noqa: S101  # as above
        while part := await out.read(_PART):
            yield part
        if await self._process.wait():
            said = one_line((await self._said).decode("utf-8", "replace").strip())
            _log.warning("%s: git has not answered the peer %s: %s", *self.whose, said)

    async def __aexit__(self, *exc: object) -> None:
        try:
            self._fed.cancel()
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)  # also what it has started itself
                await self._process.wait()
            self._said.cancel()
        finally:
            self._open[self.whose] -= 1


class _Answer(StreamingResponse):
    """What a program says, as it says it."""

    def __init__(self, run: _Run, kind: str, head: bytes = b"") -> None:
        super().__init__(self._whole(run, head), media_type=kind)
        self._run = run

    async def _whole(self, run: _Run, head: bytes) -> AsyncIterator[bytes]:
        yield head
        async for part in run.parts():
            yield part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._run as run:
            try:
                async with asyncio.timeout(run.seconds):
                    await super().__call__(scope, receive, send)
            except TimeoutError:  # the connection breaks off, so that half of an answer does not pass for a whole one
                _log.warning("%s: an answer to the peer %s took longer than %g s", *run.whose, run.seconds)


async def _body(request: Request, most: int) -> bytes:
    """What was asked, which git sends compressed where it is long; the guard has limited what came."""
    encoding = request.headers.get("content-encoding", "identity")
    whole = await request.body()
    if encoding == "identity":
        return whole
    if encoding not in ("gzip", "x-gzip"):
        raise InvalidInput(f"what is encoded as {encoding!r} is not read here", code="unsupported-media-type")
    try:
        found = zlib.decompressobj(wbits=31).decompress(whole, most + 1)
    except zlib.error:
        raise _malformed() from None
    if len(found) > most:
        raise TooLarge(f"a request has at most {most} bytes", fields={"most": most})
    return found


def asked(body: bytes, told: Container[str]) -> bytes:
    """A request without the ids that the peer says it has and was never told of: it must not learn whether they are here.

    ``Denied`` with the id where it asks for one that it was not told; ``InvalidInput`` where it is no request that we make.
    """
    kept = []
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
        if verb == b"want" and cid not in told:
            raise Denied(cid, code="missing-object")
        if verb != b"have" or cid in told:
            kept.append(body[at : at + (size or 4)])
        at += size or 4
    return b"".join(kept)


def _packet(line: bytes) -> bytes:
    return b"%04x" % (len(line) + 4) + line


def _malformed() -> InvalidInput:
    return InvalidInput("this is no request of git's", code="malformed-request")


THREADS = 3
KNOCK_MAX = 16 * 1024
_REST = 0.2  # seconds at least between the end of one time and the next
TELL = ""
"""In a peer's place, which has a name: it is not about one of them."""


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
                return _Job(site, site.space.peer_tokens.visitor(token, NOTIFY_TOKEN).name)
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
        there = site.space.peer_tokens.untold()
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
