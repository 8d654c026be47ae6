"""Who a request is from.

Invariant: a request is from nobody until something in it proves otherwise, and only one thing may: a token, a login's cookie or
the header of a proxy that the operator trusts. A cookie alone changes nothing: what changes something must carry the login's own
CSRF token, which no other site can know. A token is never taken from an address, where logs would keep it.
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


class Identity(NamedTuple):
    """Who asks, and how that is known; ``csrf`` is there for a login of a browser."""

    user: User | None = None
    csrf: str | None = None
    secret: str | None = None

    @property
    def by_cookie(self) -> bool:
        return self.csrf is not None


NOBODY = Identity()


def identify(forge: Forge, connection: HTTPConnection) -> Identity:
    """``Unauthenticated`` where something was presented that proves nothing."""
    given = connection.headers.get("authorization")
    name = _said_by_proxy(forge, connection)
    if given is not None and (name is None or given.lower().startswith("bearer ")):
        return _by_token(forge, given)  # any other word beside a proxy's is what people told the proxy
    if name is not None:
        user = forge.users.get(name)
        if user is None:
            raise NotAllowed(f"the user {name!r} is not known here", code="unknown-user", hints=[f"clia user add {name}"])
        secret = f"proxy:{name}"
        return Identity(user, _proxy_csrf(forge, name), secret)
    cookie = connection.cookies.get(COOKIE)
    session = forge.users.session(cookie) if cookie else None
    return NOBODY if session is None else Identity(session.user, session.csrf, session.secret)


def _by_token(forge: Forge, given: str) -> Identity:
    scheme, _, secret = given.partition(" ")
    user = forge.users.by_token(secret.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise Unauthenticated("the token is not known, or no longer good", code="bad-token", hints=["clia user token NAME"])
    return Identity(user)


def _said_by_proxy(forge: Forge, connection: HTTPConnection) -> str | None:
    options = forge.options
    peer = connection.client.host if connection.client is not None else ""
    if options.proxy_header is None or peer not in options.proxies:
        return None
    return connection.headers.get(options.proxy_header) or None


def _proxy_csrf(forge: Forge, name: str) -> str:
    return hmac.new(forge.secret.encode("ascii"), name.encode("utf-8"), "sha256").hexdigest()


def check_csrf(identity: Identity, headers: Mapping[str, str], field: str | None) -> None:
    """For a change that a browser asks for."""
    if not identity.by_cookie:
        return
    given = headers.get(CSRF_HEADER) or field or ""
    if not hmac.compare_digest(given.encode("utf-8"), (identity.csrf or "").encode("ascii")):
        raise NotAllowed(
            "this form is not one of this forge's, or it is from another login",
            code="bad-csrf",
            hints=["load the page again and send the form from there"],
        )


def require(identity: Identity, role: str) -> User:
    """The user, who may do what a role may."""
    user = identity.user
    if user is None:
        raise Unauthenticated("log in first", hints=["clia serve prints a login link", "programs send Authorization: Bearer TOKEN"])
    if not user.may(role):
        raise NotAllowed(
            f"{user.name!r} has the role {user.role}; this takes {role}",
            code="role-too-low",
            hints=[f"an administrator can change the role: clia user change {user.name} --role {role}"],
            fields={"user": user.name, "role": user.role, "needed": role},
        )
    return user
