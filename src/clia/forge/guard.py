"""What stands before everything else: sizes, rates, headers, the access log.

Invariant: no request reaches the rest with more bytes than allowed, or more often than allowed; every answer carries the headers
that keep a browser from running or loading anything that is not ours; every request is one line of the log, without secrets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict

from starlette.datastructures import Headers, MutableHeaders

from clia.errors import CliaError, InvalidInput
from clia.forge import metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from clia.facade.config import ForgeOptions as Options

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_access = logging.getLogger("clia.access")
_BUCKETS = 10_000
BODY_SECONDS = 30.0


class TooLarge(InvalidInput):
    code = "payload-too-large"


class TooSlow(InvalidInput):
    code = "too-slow"


class TooMany(CliaError):
    code = "too-many-requests"


class Guard:
    """The outermost layer."""

    def __init__(self, app: ASGIApp, options: Options) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500
        limited = _Limited(receive, self._options.body_max, Headers(scope=scope).get("content-length"))

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                limited.answered()
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            await self._app(scope, limited, sent)
        finally:
            seconds = time.perf_counter() - started
            metrics.request_done(_route(scope), scope["method"], status, seconds)
            who = scope.get("clia_user", "-")
            _access.info("%s %s %s %s %d %.1f", _client(scope), who, scope["method"], _path(scope), status, seconds * 1000)


class _Limited:
    """Receives no more than so many bytes, and waits no longer than so for the end of them."""

    def __init__(self, receive: Receive, most: int, declared: str | None) -> None:
        self._receive = receive
        self._most = most
        self._left = most
        self._until: float | None = None  # from when somebody waits for it
        self._whole = False
        self._over = bool(declared and declared.isascii() and declared.isdigit() and int(declared[:20]) > most)

    def answered(self) -> None:
        """Whoever has an answer waits for no more of the question."""
        self._whole = True

    async def __call__(self) -> Message:
        if self._over:
            raise _too_large(self._most)
        message = await (self._receive() if self._whole else self._in_time())
        self._whole = self._whole or not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _too_large(self._most)
        return message

    async def _in_time(self) -> Message:
        try:
            if self._until is None:
                self._until = time.monotonic() + BODY_SECONDS
            return await asyncio.wait_for(self._receive(), max(0.0, self._until - time.monotonic()))
        except TimeoutError:
            raise TooSlow(f"the request did not come to its end within {BODY_SECONDS:g} s") from None


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"a request has at most {most} bytes", fields={"most": most})


def _route(scope: Scope) -> str:
    """The name of what was asked for: one of a few, whatever stands in the address."""
    return scope.get("clia_route") or getattr(scope.get("route"), "name", None) or "other"


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "-"


def _path(scope: Scope) -> str:
    """Without the query, where a login's secret would stand; one line whatever was asked for."""
    return ascii(scope.get("path", ""))[1:-1]


class Rates:
    """How often someone may ask: a bucket each, of those that asked last. Threads do not share it: one event loop has it."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, cost: float = 1.0) -> float:
        """Seconds to wait; 0.0 where it may be now."""
        now = time.monotonic()
        left, then = self._buckets.pop(who, (float(self._per_minute), now))
        left = min(self._per_minute, left + (now - then) * self._per_minute / 60)
        allowed = left >= cost
        self._buckets[who] = (left - cost if allowed else left, now)
        if len(self._buckets) > _BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (cost - left) * 60 / self._per_minute

    def check(self, who: str) -> None:
        wait = self.take(who)
        if wait:
            seconds = int(wait) + 1
            raise TooMany(f"too many requests; try again in {seconds} s", fields={"retry_after": seconds})
