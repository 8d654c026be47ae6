"""The ASGI application of the forge.

Invariant: this module lists every route. Errors become a problem document for programs and a page for people. Bugs are logged, and
the response reveals nothing about them.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from clia.errors import CliaError, InvalidInput, NotFound
from clia.forge import metrics
from clia.forge.api.openapi import document
from clia.forge.api.routes import verb_routes
from clia.forge.auth import ANONYMOUS, identify, require
from clia.forge.events import EventBus, feed_routes
from clia.forge.federation import AT as FEDERATION
from clia.forge.federation import FetchEndpoints, Listening
from clia.forge.forge import HostedApp
from clia.forge.hosts import UnknownHost
from clia.forge.middleware import Guard, RateLimiter
from clia.forge.pages import page_routes
from clia.forge.pages.common import forge_of, link, render_bare
from clia.forge.pages.login import login_routes
from clia.forge.pages.passkeys import passkey_routes
from clia.forge.problems import PROBLEM, Unauthenticated, problem, status_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from clia.forge.forge import ExtraApp, Forge, Site

STATIC = Path(__file__).parent / "static"
_DEGRADED = ("no-signing-key", "signing-key-locked", "signing-key-unreadable", "key-exposed")
_OPEN = ("/login", "/static/", "/healthz")
"""Paths that need no login."""
_FOR_PROGRAMS = ("/api/", "/events", "/healthz", "/metrics", "/mcp/", FEDERATION)
_THREADS = 8
_PROBE = 2.0


def create_app(forge: Forge, extras: Sequence[ExtraApp] = ()) -> ASGIApp:
    bus, listening, fetching = EventBus(forge), Listening(forge), FetchEndpoints(forge)
    hosted = [HostedApp(extra_app) for extra_app in extras]

    @asynccontextmanager
    async def life(_app: Starlette) -> AsyncIterator[None]:
        async with bus, listening, AsyncExitStack() as stack:
            for extra_app in hosted:
                await stack.enter_async_context(extra_app)
            yield

    app = Starlette(
        routes=[
            Route("/healthz", _health, name="healthz"),
            Route("/metrics", _metrics, name="metrics"),
            Route("/api/v1/openapi.json", _openapi, name="openapi"),
            Route("/api/v1/spaces", _spaces, name="api:spaces"),
            Route("/api/v1/spaces/{space}", _space, name="api:space"),
            Route("/api/v1/whoami", _whoami, name="api:whoami"),
            *feed_routes(),
            *verb_routes(),
            *login_routes(),
            *passkey_routes(),
            Route("/s/{space}", _to_overview, methods=["GET"], name="overview:slash"),
            *page_routes(),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
            *listening.routes(),
            *fetching.routes(),
            *(Route(path, extra_app, name=extra_app.extra.name) for extra_app in hosted for path in extra_app.extra.paths),
        ],
        middleware=[Middleware(Authentication, forge=forge)],
        exception_handlers={ClientDisconnect: _disconnected} | dict.fromkeys((CliaError, HTTPException, Exception), _failed),
        lifespan=life,
    )
    app.state.forge, app.state.event_bus, app.state.listening = forge, bus, listening
    forge.told_to_stop += [extra_app.stopping for extra_app in hosted]
    app.router.redirect_slashes = False  # redirects would trust the Host header
    return Guard(app, forge.options)


class Authentication:
    """Identifies the user of each request and limits request rates."""

    def __init__(self, app: ASGIApp, forge: Forge) -> None:
        self._app = app
        self._forge = forge
        self._rates = RateLimiter(forge.options.per_minute)
        self._wrong = RateLimiter(forge.options.logins_per_minute)
        self._limiter: CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        request.state.identity = ANONYMOUS
        try:
            elsewhere = self._own_address(request)
            if elsewhere is None:
                request.state.identity = await self._identified(request)
        except CliaError as err:
            await _failed(request, err)(scope, receive, send)
            return
        await (elsewhere or self._app)(scope, receive, send)

    def _own_address(self, request: Request) -> Response | None:
        """The redirect of a page that was requested under a loopback name to the forge's own address; else None."""
        _check_length(request)
        address = self._forge.options.address
        if self._forge.hosts.serves_pages(request.headers.getlist("host")) or _is_for_programs(request.url.path):
            return None
        if request.method not in ("GET", "HEAD") or not address.startswith("http://"):
            hints = [f"open {address}", "a proxy must pass the Host header of the browser: proxy_set_header Host $host;"]
            raise UnknownHost(f"the pages of this forge are at {address}", hints=hints, fields={"address": address})
        raw = request.scope.get("raw_path", b"").decode("ascii", "replace") or quote(request.url.path)
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{address}{raw}{query}", status_code=307)

    async def _identified(self, request: Request) -> object:
        address = request.client.host if request.client else "-"
        if request.url.path.startswith(FEDERATION):
            self._rates.check(f"address {address}")
            return ANONYMOUS  # peers authenticate with their own tokens
        try:
            # A separate thread pool, so that slow pages do not delay authentication.
            self._limiter = self._limiter or CapacityLimiter(_THREADS)
            identity = await to_thread.run_sync(identify, self._forge, request, limiter=self._limiter)
        except CliaError:
            self._wrong.check(address)
            raise
        if identity.user is not None:
            request.scope["clia_user"] = identity.user.name
        if not request.url.path.startswith("/static/"):
            self._rates.check(identity.user.name if identity.user else f"address {address}")
        return identity


def _failed(request: Request, err: Exception) -> Response:
    error = _error_of(err)
    status = status_of(error)
    headers = {}
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        headers["retry-after"] = str(error.fields.get("retry_after", 1))
    if error.code == "ambiguous-length":
        headers["connection"] = "close"
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = 'Bearer realm="clia"'
    if isinstance(err, HTTPException) and err.headers:
        headers |= dict(err.headers)
    path = request.url.path
    if _is_for_programs(path):
        return JSONResponse(problem(error, status), status_code=status, media_type=PROBLEM, headers=headers)
    if isinstance(error, Unauthenticated) and request.method == "GET" and not path.startswith(_OPEN):
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"/login?next={quote(path + query, safe='')}", status_code=303)
    page = render_bare(request, "error.html", status, error=error, code=status)
    page.headers.update(headers)
    return page


def _is_for_programs(path: str) -> bool:
    return path.startswith(_FOR_PROGRAMS) or path == "/mcp"


def _check_length(request: Request) -> None:
    """Refuse a request with two statements of its length: a proxy may go by one and the forge by the other (smuggling)."""
    if "content-length" in request.headers and "transfer-encoding" in request.headers:
        message = "a request has either Content-Length or Transfer-Encoding"
        raise InvalidInput(message, code="ambiguous-length", fields={"field": "Transfer-Encoding"})


def _error_of(err: Exception) -> CliaError:
    if isinstance(err, CliaError):
        return err
    status = err.status_code if isinstance(err, HTTPException) else 500
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return CliaError("method not allowed", code="method-not-allowed")
    if status == HTTPStatus.NOT_FOUND:
        return NotFound("page not found", code="no-such-address")
    if isinstance(err, HTTPException) and 400 <= status < 500:
        return CliaError(err.detail or "malformed request", code="malformed-json")
    return CliaError("internal error in the forge", code="internal", hints=["see the forge's log"])  # the server logs the bug


def _disconnected(_request: Request, _err: Exception) -> Response:
    """The client disconnected; the response is not read."""
    return Response(status_code=400)


def _to_overview(request: Request) -> Response:
    return RedirectResponse(link("s", request.path_params["space"]) + "/", status_code=303)


async def _health(request: Request) -> Response:
    """Check that every store and repository responds within the probe timeout. Only users see the names of the spaces.

    A space that can be read, and records nothing because its key is missing or locked, is degraded.
    """
    forge, limiter = forge_of(request), CapacityLimiter(1)
    spaces = {}
    for site in forge.sites.values():
        try:
            answer = to_thread.run_sync(_answers, site, limiter=limiter, abandon_on_cancel=True)
            spaces[site.name] = await asyncio.wait_for(answer, _PROBE)
        except TimeoutError:
            spaces[site.name] = "no-answer"
    good = all(state == "ok" or state in _DEGRADED for state in spaces.values())
    status = "failing" if not good else "ok" if all(state == "ok" for state in spaces.values()) else "degraded"
    shown = {"spaces": spaces} if request.state.identity.user is not None else {}
    return JSONResponse({"status": status, **shown}, status_code=200 if good else 503)


def _answers(site: Site) -> str:
    try:
        site.space.pending()
        site.space.agents()
        problem = site.space.trust.signing_problem()
    except CliaError as err:
        return err.code
    return "ok" if problem is None else problem.code


def _metrics(request: Request) -> Response:
    require(request.state.identity, "viewer")
    return Response(metrics.text(forge_of(request)), media_type=metrics.CONTENT_TYPE)


def _openapi(request: Request) -> Response:
    require(request.state.identity, "viewer")
    return JSONResponse(document(forge_of(request).options.address))


def _spaces(request: Request) -> Response:
    require(request.state.identity, "viewer")
    return JSONResponse([{"name": site.name, "id": site.space.id} for site in forge_of(request).sites.values()])


def _space(request: Request) -> Response:
    require(request.state.identity, "viewer")
    site = forge_of(request).site(request.path_params["space"])
    return JSONResponse({"name": site.name, "id": site.space.id})


def _whoami(request: Request) -> Response:
    user = require(request.state.identity, "viewer")
    return JSONResponse({**user._asdict(), "by": user.by})
