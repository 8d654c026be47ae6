"""Git over HTTP for peers: they fetch what they were told about.

Invariant: only who shows a pass gets anything, and only from its own view; there is no way to write. A request asks for commits,
in the first version of git's protocol, so that git itself looks whether the refs of the view reach each of them. What answers is
a program that has a time to do it, and that ends as soon as nobody reads its answer; a peer has but a few of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import zlib
from collections import Counter
from contextlib import suppress

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from clia.errors import Denied, InvalidInput, NotAllowed
from clia.federation.doors import PASS
from clia.forge.guard import TooLarge, TooMany
from clia.forge.problems import Unauthenticated
from clia.forge.rendering.texts import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from clia.federation.peers import Pinned
    from clia.forge.forge import Forge, Site
    from clia.git.transport_records import Upload

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
        upload = await run_in_threadpool(site.space.doors.advertised, peer)
        head = _packet(f"# service={SERVICE}\n".encode("ascii")) + b"0000"
        return _Answer(self._run(site, peer, upload), _TOLD, head)

    async def _pack(self, request: Request) -> Response:
        site, peer = await run_in_threadpool(self._admitted, request)
        if request.headers.get("content-type") != _ASKED:
            raise InvalidInput(f"git asks with {_ASKED}", code="unsupported-media-type")
        body = await _body(request, self._forge.options.body_max)
        try:
            body = asked(body, await run_in_threadpool(site.space.doors.told, peer))
        except Denied as err:  # in the words of git, which its client passes on
            return Response(_packet(f"ERR upload-pack: not our ref {err.message}".encode("ascii")), media_type=_SENT)
        return _Answer(self._run(site, peer, site.space.doors.upload(peer), body), _SENT)

    def _admitted(self, request: Request) -> tuple[Site, Pinned]:
        """The space and the peer that a pass is good for; whoever has none learns nothing of either."""
        site = self._forge.sites.get(request.path_params["space"])
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if site is not None and scheme.lower() == "bearer":
            with suppress(Denied, InvalidInput):
                peer = site.space.doors.visitor(token.strip(), PASS)
                request.scope["clia_user"] = f"peer:{peer.name}"
                return site, peer
        raise Unauthenticated("no pass that is good here was shown", code="bad-pass")

    def _run(self, site: Site, peer: Pinned, upload: Upload, body: bytes = b"") -> _Run:
        seconds = site.space.running.config.federation.transfer_seconds
        return _Run(upload, body, seconds, self._open, (site.name, peer.name))


class _Run:
    """A program that answers one request: as a block, in which it runs."""

    def __init__(
        self, upload: Upload, body: bytes, seconds: float, places: Counter[tuple[str, str]], whose: tuple[str, str]
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
