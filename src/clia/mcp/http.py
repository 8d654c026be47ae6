"""MCP servers for the spaces of a forge, as one ASGI application.

Invariant: every request carries a token of a known user, and each call runs as that user, even in another user's session. Pages
of other sites are rejected. State between requests is either sealed with the forge's secret and carried by the client, or in a
session; sessions are limited in number and time.
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
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http import StreamableHTTPServerTransport
    from starlette.types import Receive, Scope, Send

    from clia.mcp.calls import SpaceContext
    from clia.users.service import User

    Context = ServerRequestContext[Any, Any]

SESSIONS_MAX, SESSIONS_EACH = 256, 64
IDLE_SECONDS = 15 * 60.0
USER = "clia_caller"
"""The key of the user in the ASGI scope."""


class EndpointOptions(NamedTuple):
    """Settings from the forge."""

    address: str  # URL of the forge
    secret: str  # shared by all processes of the forge
    body_max: int
    version: str  # of clia
    now: Callable[[str], User | None]  # looks up a user by name


class _Sessions(StreamableHTTPSessionManager):
    """Limits each user to a quarter of the sessions."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        count = sum(owner == requestor for owner in self._session_owners.values())
        return None if count >= SESSIONS_EACH else super()._admit_session(requestor)


def user_of(context: Context) -> User:
    if context.request is None:
        raise NotAllowed("the call has no HTTP request", code="not-authenticated")
    user: User = context.request.scope[USER]
    return user


class Endpoint:
    """``/mcp`` serves the first space, ``/mcp/{space}`` any."""

    def __init__(
        self, places: Mapping[str, SpaceContext], options: EndpointOptions, user_of: Callable[[Context], User] = user_of
    ) -> None:
        self._options = options
        self._places = places
        self._user_of = user_of
        self.servers = {name: self._server(name, place) for name, place in places.items()}
        self._managers = {
            name: _Sessions(
                server,
                session_idle_timeout=IDLE_SECONDS,
                max_sessions=SESSIONS_MAX,
                max_request_body_size=options.body_max,
            )
            for name, server in self.servers.items()
        }

    def _server(self, name: str, place: SpaceContext) -> Server[Any]:
        key = hmac.new(self._options.secret.encode("utf-8"), b"clia/mcp", hashlib.sha256).hexdigest()
        security = RequestStateSecurity(
            keys=[key], bind_principal=lambda context: self._user_of(context).name, audience=f"{NAME}/{name}"
        )
        return server_of(place, self._options.version, lambda context: Caller(self._user_of(context), self._options.now), security)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for manager in self._managers.values():
                await stack.enter_async_context(manager.run())
            yield

    def stopping(self) -> None:
        """End calls that wait for people."""
        for place in self._places.values():
            place.stopping = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; the forge turns a ``CliaError`` into a problem document."""
        name = scope.get("path_params", {}).get("space") or next(iter(self._managers))
        manager = self._managers.get(name)
        if manager is None:
            raise NotFound(f"unknown space {name!r}", code="no-such-space", fields={"space": name})
        if scope["method"] not in ("POST", "DELETE"):
            # GET would open a stream for server messages; this server never sends any.
            raise CliaError("use POST, or DELETE to end a session", code="method-not-allowed")
        origin = Headers(scope=scope).get("origin")
        if origin is not None and origin != self._options.address:
            raise NotAllowed("requests from other sites are not allowed", code="other-origin", fields={"origin": origin})
        user: User = scope[USER]
        # A session is visible only to the user who opened it.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=user.name, scopes=[user.role]))
        await manager.handle_request(scope, receive, send)
