"""The outermost middleware: size limits, rate limits, security headers, the access log.

Invariant: no request exceeds the size and rate limits; every response has headers that keep browsers from loading or running
foreign content; every request is one line in the access log, without secrets.
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
    """The outermost ASGI middleware."""

    def __init__(self, app: ASGIApp, options: Options) -> None:
        self.app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500
        limited = _LimitedReceive(receive, self._options.body_max, Headers(scope=scope).get("content-length"))

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
            await self.app(scope, limited, sent)
        finally:
            seconds = time.perf_counter() - started
            route = scope.get("clia_route") or getattr(scope.get("route"), "name", None) or "other"  # from a small fixed set
            metrics.request_done(route, scope["method"], status, seconds)
            client, user = scope["client"][0] if scope.get("client") else "-", scope.get("clia_user", "-")
            path = ascii(scope.get("path", ""))[1:-1]  # on one line, without the query, which may contain a login key
            _access.info("%s %s %s %s %d %.1f", client, user, scope["method"], path, status, seconds * 1000)


class _LimitedReceive:
    """Limits the size of a request body and the time to receive it."""

    def __init__(self, receive: Receive, most: int, declared: str | None) -> None:
        self._receive = receive
        self._most = most
        self._left = most
        self._until: float | None = None  # set on the first read
        self._complete = False
        self._over = bool(declared and declared.isascii() and declared.isdigit() and int(declared[:20]) > most)

    def answered(self) -> None:
        """The response has started; stop enforcing the deadline."""
        self._complete = True

    async def __call__(self) -> Message:
        if self._over:
            raise _too_large(self._most)
        message = await (self._receive() if self._complete else self._in_time())
        self._complete = self._complete or not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _too_large(self._most)
        return message

    async def _in_time(self) -> Message:
        try:
            self._until = self._until or time.monotonic() + BODY_SECONDS
            return await asyncio.wait_for(self._receive(), max(0.0, self._until - time.monotonic()))
        except TimeoutError:
            raise TooSlow(f"the request body was not received within {BODY_SECONDS:g} s") from None


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the request body exceeds {most} bytes", fields={"most": most})


class RateLimiter:
    """Token buckets for the most recent clients. Used by one event loop."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, cost: float = 1.0) -> float:
        """Seconds to wait; 0.0 if allowed now."""
        now = time.monotonic()
        left, then = self._buckets.pop(client, (float(self._per_minute), now))
        left = min(self._per_minute, left + (now - then) * self._per_minute / 60)
        allowed = left >= cost
        self._buckets[client] = (left - cost if allowed else left, now)
        if len(self._buckets) > _BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (cost - left) * 60 / self._per_minute

    def check(self, client: str) -> None:
        if wait := self.take(client):
            seconds = int(wait) + 1
            raise TooMany(f"too many requests; try again in {seconds} s", fields={"retry_after": seconds})
