"""Authentication and roles.

Invariant: a request is anonymous unless a token, a login cookie or the header of a trusted proxy identifies its user. A request
with a cookie that changes something must also carry the CSRF token of the login. Tokens in URLs are ignored: logs keep URLs.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

from clia.errors import NotAllowed
from clia.forge.problems import Unauthenticated
from clia.users.fields import AGENT, VIEWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import HTTPConnection

    from clia.forge.forge import Forge
    from clia.users.service import User
    from clia.verbs import Route

COOKIE, SECURE_COOKIE = "clia_login", "__Host-clia_login"
PROXY_SECRET = "x-clia-proxy-secret"  # noqa: S105  # the name of a header
"""The header with which a proxy proves itself."""
CSRF_FIELD, CSRF_HEADER = "_csrf", "x-csrf-token"


class RequestIdentity(NamedTuple):
    """The user of a request; ``csrf`` is set for browser logins."""

    user: User | None = None
    csrf: str | None = None
    secret: str | None = None

    @property
    def by_cookie(self) -> bool:
        return self.csrf is not None


ANONYMOUS = RequestIdentity()


def identify(forge: Forge, connection: HTTPConnection) -> RequestIdentity:
    """Identify the user; raises ``Unauthenticated`` for invalid credentials."""
    authorization = connection.headers.get("authorization")
    name = _said_by_proxy(forge, connection)
    if authorization is not None and (name is None or authorization.lower().startswith("bearer ")):
        return _by_token(forge, authorization)  # other schemes next to a proxy header are credentials for the proxy
    if name is not None:
        user = forge.users.get(name)
        if user is None:
            raise NotAllowed(f"unknown user {name!r}", code="unknown-user", hints=[f"clia user add {name}"])
        csrf = hmac.new(forge.secret.encode("ascii"), name.encode("utf-8"), "sha256").hexdigest()
        return RequestIdentity(user, csrf, f"proxy:{name}")
    pages = forge.hosts.serves_pages(connection.headers.getlist("host"))
    cookie = connection.cookies.get(cookie_name(forge)) if pages else None
    session = forge.users.session(cookie) if cookie else None
    return ANONYMOUS if session is None else RequestIdentity(session.user, session.csrf, session.secret)


def cookie_name(forge: Forge) -> str:
    """The name of the login cookie. With ``__Host-`` browsers accept it over TLS only, and from no other host."""
    return SECURE_COOKIE if forge.options.address.startswith("https://") else COOKIE


def _by_token(forge: Forge, authorization: str) -> RequestIdentity:
    scheme, _, secret = authorization.partition(" ")
    user = forge.users.by_token(secret.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise Unauthenticated("invalid or expired token", code="bad-token", hints=["clia user token NAME"])
    return RequestIdentity(user)


def _said_by_proxy(forge: Forge, connection: HTTPConnection) -> str | None:
    """The user that a proxy names. The proxy has the secret and connects from a listed address, or uses the Unix socket."""
    header = forge.options.proxy_header
    names = [] if header is None else connection.headers.getlist(header)
    if len(names) != 1:
        return None  # two: one of them is not the proxy's
    if not (_is_over_socket(forge, connection) or _has_proxy_secret(forge, connection)):
        return None
    return names[0] or None


def _is_over_socket(forge: Forge, connection: HTTPConnection) -> bool:
    server = connection.scope.get("server")
    return forge.socket is not None and server is not None and tuple(server) == (forge.socket, None)


def _has_proxy_secret(forge: Forge, connection: HTTPConnection) -> bool:
    peer = connection.client.host if connection.client is not None else ""
    secrets = connection.headers.getlist(PROXY_SECRET)
    if forge.proxy_secret is None or peer not in forge.options.proxies or len(secrets) != 1:
        return False
    return hmac.compare_digest(secrets[0].encode("utf-8", "replace"), forge.proxy_secret.encode("utf-8"))


def check_csrf(identity: RequestIdentity, headers: Mapping[str, str], field: str | None) -> None:
    """Check the CSRF token of a change made by a browser."""
    if not identity.by_cookie:
        return
    token = headers.get(CSRF_HEADER) or field or ""
    if not hmac.compare_digest(token.encode("utf-8"), (identity.csrf or "").encode("ascii")):
        hints = ["reload the page and submit the form again"]
        raise NotAllowed("the form has expired or belongs to another login", code="bad-csrf", hints=hints)


def require(identity: RequestIdentity, role: str) -> User:
    """The user, if the role is sufficient."""
    user = identity.user
    if user is None:
        hints = ["open the login link that clia serve prints", "programs: send Authorization: Bearer TOKEN"]
        raise Unauthenticated("log in first", hints=hints)
    user.require(role)
    return user


def require_verb(identity: RequestIdentity, route: Route) -> User:
    """The user, if the role is sufficient for a verb. An agent may also call those that record and ask."""
    for_agents = identity.user is not None and identity.user.role == AGENT and route.agent is not None
    return require(identity, VIEWER if for_agents else route.role)
