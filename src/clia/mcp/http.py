"""Servers for the spaces of a forge, as one ASGI application.

Invariant: a request reaches a server only with a user whom the forge knows by a token, and each call is that user's, whoever opened
the session that it comes in. A page of another site reaches nothing. What a client must not lose between two requests is either in
what it carries, sealed with the forge's secret, or in a session that is bounded in number and in time.
"""

from __future__ import annotations

import hashlib
import hmac
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.request_state import RequestStateSecurity
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers

from clia.errors import CliaError, NotAllowed, NotFound
from clia.mcp.calls import Caller
from clia.mcp.server import NAME, server_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import Any

    from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
    from mcp.server.context import ServerRequestContext
    from mcp.server.streamable_http import StreamableHTTPServerTransport
    from starlette.types import Receive, Scope, Send

    from clia.mcp.calls import Place
    from clia.users.service import User

SESSIONS_MAX, SESSIONS_EACH = 256, 64
IDLE_SECONDS = 15 * 60.0
USER = "clia_caller"
"""Where the forge puts who asks into the scope of a request."""


class Wishes(NamedTuple):
    """What the forge says of itself."""

    address: str  # as browsers reach it
    secret: str  # the same in all of its processes
    body_max: int
    version: str  # of clia
    now: Callable[[str], User | None]  # a user by name, as known at this moment


class _Sessions(StreamableHTTPSessionManager):
    """One user has at most a quarter of the sessions."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        taken = sum(owner == requestor for owner in self._session_owners.values())
        return None if taken >= SESSIONS_EACH else super()._admit_session(requestor)


class Endpoint:
    """``/mcp`` is the first space, ``/mcp/{space}`` any."""

    def __init__(self, places: Mapping[str, Place], wishes: Wishes) -> None:
        self._wishes = wishes
        self._places = places
        self._managers = {name: self._manager(name, place) for name, place in places.items()}

    def _manager(self, name: str, place: Place) -> StreamableHTTPSessionManager:
        key = hmac.new(self._wishes.secret.encode("utf-8"), b"clia/mcp", hashlib.sha256).hexdigest()
        security = RequestStateSecurity(keys=[key], bind_principal=_principal, audience=f"{NAME}/{name}")
        return _Sessions(
            server_of(place, self._wishes.version, self._who, security),
            session_idle_timeout=IDLE_SECONDS,
            max_sessions=SESSIONS_MAX,
            max_request_body_size=self._wishes.body_max,
        )

    def _who(self, context: ServerRequestContext[Any, Any]) -> Caller:
        return Caller(_user(context), self._wishes.now)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for manager in self._managers.values():
                await stack.enter_async_context(manager.run())
            yield

    def stopping(self) -> None:
        """The forge is told to stop: calls that wait for people end. A signal's handler may call it."""
        for place in self._places.values():
            place.stopping = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``CliaError`` is answered by the forge, in its own form."""
        name = scope.get("path_params", {}).get("space") or next(iter(self._managers))
        manager = self._managers.get(name)
        if manager is None:
            raise NotFound(f"no space {name!r} is served here", code="no-such-space", fields={"space": name})
        if scope["method"] not in ("POST", "DELETE"):
            # We say nothing that was not asked for: an open stream would only be a connection that waits.
            raise CliaError("this address takes POST, and DELETE of a session", code="method-not-allowed")
        origin = Headers(scope=scope).get("origin")
        if origin is not None and origin != self._wishes.address:
            raise NotAllowed("pages of other sites may not speak with the forge", code="other-origin", fields={"origin": origin})
        user: User = scope[USER]
        # A session belongs to the user who opened it; to everybody else it does not exist.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=user.name, scopes=[user.role]))
        await manager.handle_request(scope, receive, send)


def _user(context: ServerRequestContext[Any, Any]) -> User:
    if context.request is None:
        raise NotAllowed("a call comes with a request", code="not-authenticated")
    found: User = context.request.scope[USER]
    return found


def _principal(context: ServerRequestContext[Any, Any]) -> str:
    return _user(context).name
