"""What all pages share: who looks, at which space, and how a page is made.

Invariant: a page is shown to someone who may see it, or the login page is; a form that changes something came from one of our own
pages. Every text that an agent wrote goes through autoescape.
"""

from __future__ import annotations

from functools import wraps
from typing import NamedTuple
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from clia.errors import InvalidInput
from clia.forge.auth.identity import CSRF_FIELD, check_csrf, require
from clia.forge.rendering import times
from clia.sessions.questions import is_for_people

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from starlette.requests import Request

    from clia.forge.auth.identity import Identity
    from clia.forge.forge import Forge, Site
    from clia.users.service import User

VIEWER, DECIDER, ADMIN = "viewer", "decider", "admin"
Posted = dict[str, list[str]]
_environment = Environment(
    loader=PackageLoader("clia.forge"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


class Visit(NamedTuple):
    """One look at one page of one space."""

    request: Request
    forge: Forge
    site: Site
    user: User

    @property
    def base(self) -> str:
        return f"/s/{self.site.name}"

    def param(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int, most: int = 10**9) -> int:
        """A number in the address; whoever wrote nonsense there gets the default."""
        text = self.query(name)
        return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 12 else default

    def may(self, role: str) -> bool:
        return self.user.may(role)


def forge_of(request: Request) -> Forge:
    found: Forge = request.app.state.forge
    return found


def identity_of(request: Request) -> Identity:
    found: Identity = request.state.identity
    return found


def visit(request: Request, role: str = VIEWER) -> Visit:
    user = require(identity_of(request), role)
    forge = forge_of(request)
    return Visit(request, forge, forge.site(request.path_params["space"]), user)


def page(view: Callable[[Visit], Response]) -> Callable[[Request], Response]:
    """A page that is read; Starlette runs it in a thread."""

    @wraps(view)
    def endpoint(request: Request) -> Response:
        return view(visit(request))

    return endpoint


def form(role: str) -> Callable[[Callable[[Visit, Posted], Response]], Callable[[Request], Awaitable[Response]]]:
    """What a form of ours is sent to."""

    def decorated(view: Callable[[Visit, Posted], Response]) -> Callable[[Request], Awaitable[Response]]:
        @wraps(view)
        async def endpoint(request: Request) -> Response:
            posted = await read_form(request)
            check_csrf(identity_of(request), request.headers, first(posted, CSRF_FIELD))
            return await run_in_threadpool(lambda: view(visit(request, role), posted))

        return endpoint

    return decorated


async def read_form(request: Request) -> Posted:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidInput("a form comes as application/x-www-form-urlencoded", code="unsupported-media-type")
    data = await request.form(max_fields=1000)
    posted: Posted = {}
    for key, value in data.multi_items():
        posted.setdefault(key, []).append(value if isinstance(value, str) else "")
    return posted


def first(posted: Posted, key: str, default: str = "") -> str:
    return posted.get(key, [default])[0]


def render(visit: Visit, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """A page in its frame."""
    made = {
        "visit": visit,
        "site": visit.site,
        "sites": list(visit.forge.sites.values()),
        "user": visit.user,
        "csrf": identity_of(visit.request).csrf,
        "base": visit.base,
        "path": visit.request.url.path,
        "waiting": waiting_count(visit.site),
        "now": visit.forge.clock(),
    }
    return HTMLResponse(_environment.get_template(template).render(made | context), status_code=status)


def render_bare(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """A page of no space: login, errors, the list of spaces."""
    identity: Identity | None = getattr(request.state, "identity", None)
    made = {
        "user": identity.user if identity else None,
        "csrf": identity.csrf if identity else None,
        "sites": list(forge_of(request).sites.values()) if identity and identity.user else [],
        "site": None,
        "base": "",
        "path": request.url.path,
        "waiting": 0,
        "now": forge_of(request).clock(),
    }
    return HTMLResponse(_environment.get_template(template).render(made | context), status_code=status)


def waiting_count(site: Site) -> int:
    """How many questions wait for people."""
    return sum(map(is_for_people, site.space.pending()))


def redirect(address: str) -> RedirectResponse:
    """After a form: the browser asks for the page anew, and a reload sends nothing twice."""
    return RedirectResponse(address, status_code=303)


def link(*parts: str, **query: str | int | None) -> str:
    """An address from parts that may hold anything."""
    path = "/".join(quote(part, safe="") for part in parts)
    said = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in query.items() if value not in (None, ""))
    return f"/{path}?{said}" if said else f"/{path}"


def short(cid: str | None) -> str:
    return (cid or "")[:12]


def filters() -> Mapping[str, Callable[..., Any]]:
    return {"short": short, "ago": times.ago, "stamp": times.stamp}


_environment.filters.update(filters())
_environment.globals["link"] = link
