"""Authentication and roles.

Invariant: a request is anonymous unless a token, a login cookie or the header of a trusted proxy identifies its user. A request
with a cookie that changes something must also carry the CSRF token of the login. Tokens in URLs are ignored: logs keep URLs.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

from clia.errors import NotAllowed
from clia.forge.problems import Unauthenticated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import HTTPConnection

    from clia.forge.forge import Forge
    from clia.users.service import User

COOKIE = "clia_login"
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
    cookie = connection.cookies.get(COOKIE)
    session = forge.users.session(cookie) if cookie else None
    return ANONYMOUS if session is None else RequestIdentity(session.user, session.csrf, session.secret)


def _by_token(forge: Forge, authorization: str) -> RequestIdentity:
    scheme, _, secret = authorization.partition(" ")
    user = forge.users.by_token(secret.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise Unauthenticated("invalid or expired token", code="bad-token", hints=["clia user token NAME"])
    return RequestIdentity(user)


def _said_by_proxy(forge: Forge, connection: HTTPConnection) -> str | None:
    options = forge.options
    peer = connection.client.host if connection.client is not None else ""
    if options.proxy_header is None or peer not in options.proxies:
        return None
    return connection.headers.get(options.proxy_header) or None


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
