"""Login and logout pages.

Invariant: only submitting a form redeems a login link, so that link previews do not use it up. Scripts and other sites cannot
read the cookie.
"""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from clia.errors import NotAllowed
from clia.forge.auth import CSRF_FIELD, check_csrf, cookie_name
from clia.forge.pages.common import first, forge_of, identity_of, read_form, render_bare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.requests import Request

    from clia.forge.forge import Forge
    from clia.users.service import WebSession

_AGE = 7 * 86400


def login_routes() -> list[Route]:
    return [
        Route("/login", _show, methods=["GET"], name="login"),
        Route("/login", _log_in, methods=["POST"], name="login:post"),
        Route("/logout", _log_out, methods=["POST"], name="logout"),
    ]


def _show(request: Request) -> Response:
    """The login page, with or without a key."""
    back = local_path(request.query_params.get("next", ""))
    return render_bare(request, "login.html", secret=request.query_params.get("key", ""), next=back, problem=None)


async def _log_in(request: Request) -> Response:
    posted = await read_form(request)
    check_own(request)
    forge = forge_of(request)
    session = await run_in_threadpool(forge.users.redeem, first(posted, "key").strip())
    back = local_path(first(posted, "next"))
    if session is None:
        hints = ["the forge prints a new link at each start", "create one for any user with: clia user link NAME"]
        problem = NotAllowed("the login link has been used or has expired", code="bad-login", hints=hints)
        return render_bare(request, "login.html", 403, secret="", next=back, problem=problem)
    return logged_in(forge, session, back)


def logged_in(forge: Forge, session: WebSession, back: str) -> Response:
    """The response that logs a browser in."""
    answer = RedirectResponse(back or "/", status_code=303)
    secure = forge.options.address.startswith("https://")
    answer.set_cookie(cookie_name(forge), session.secret, max_age=_AGE, httponly=True, samesite="strict", secure=secure, path="/")
    return answer


async def _log_out(request: Request) -> Response:
    posted = await read_form(request)
    identity = identity_of(request)
    check_csrf(identity, request.headers, first(posted, CSRF_FIELD))
    if identity.secret is not None:
        await run_in_threadpool(forge_of(request).users.end_session, identity.secret)
    answer = RedirectResponse("/login", status_code=303)
    secure = forge_of(request).options.address.startswith("https://")
    answer.delete_cookie(cookie_name(forge_of(request)), path="/", secure=secure, httponly=True, samesite="strict")
    return answer


def check_own(request: Request) -> None:
    """Reject login forms from other sites (login CSRF)."""
    origin = request.headers.get("origin")
    host = request.headers.get("host")
    foreign = origin not in (None, f"http://{host}", f"https://{host}", forge_of(request).options.address or None)
    if foreign or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise NotAllowed("the login form comes from another site", code="bad-csrf", hints=["open the login link directly"])


def local_path(address: str) -> str:
    """The redirect target, if it is a local path."""
    plain = address.startswith("/") and not address.startswith(("//", "/\\")) and "\\" not in address
    return address if plain and address.isprintable() else ""
