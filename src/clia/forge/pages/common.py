"""Shared by all pages: access checks, forms and rendering.

Invariant: a page checks the role of the user, and a form its CSRF token. Text written by agents goes through autoescape,
``shown`` or ``clia.forge.rendering``, so it can neither act nor hide. A refused form is shown again with its input, and nothing
has changed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import wraps
from typing import NamedTuple
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from clia.errors import BackendError, CliaError, InvalidInput, NoSuchAgent, NotFound
from clia.forge.auth import CSRF_FIELD, check_csrf, require
from clia.forge.problems import Unauthenticated, status_of
from clia.forge.rendering import jsons, texts
from clia.forge.rendering.texts import escaped
from clia.sessions.model import is_for_people
from clia.space.behaviour_chains import read_behaviour
from clia.values import refs as names
from clia.values.refs import is_id, is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from starlette.requests import Request
    from starlette.responses import Response

    from clia.forge.auth import RequestIdentity
    from clia.forge.forge import Forge, Site
    from clia.space.core import Core
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
    """A page request: the user, the space and the parameters."""

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
        """A number in the query; the default if it is invalid."""
        text = self.query(name)
        return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 12 else default

    def may(self, role: str) -> bool:
        return self.user.may(role)


def forge_of(request: Request) -> Forge:
    forge: Forge = request.app.state.forge
    return forge


def identity_of(request: Request) -> RequestIdentity:
    identity: RequestIdentity = request.state.identity
    return identity


def visit(request: Request, role: str = VIEWER) -> Visit:
    user = require(identity_of(request), role)
    forge = forge_of(request)
    return Visit(request, forge, forge.site(request.path_params["space"]), user)


def page(view: Callable[[Visit], Response]) -> Callable[[Request], Response]:
    """Decorate a page that only reads; Starlette runs it in a thread."""

    @wraps(view)
    def endpoint(request: Request) -> Response:
        return view(visit(request))

    return endpoint


def form(role: str) -> Callable[[Callable[[Visit, Posted], Response]], Callable[[Request], Awaitable[Response]]]:
    """Decorate a form handler: check the role and the CSRF token."""

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
        raise InvalidInput("the content type must be application/x-www-form-urlencoded", code="unsupported-media-type")
    data = await request.form(max_fields=1000)
    posted: Posted = {}
    for key, value in data.multi_items():
        posted.setdefault(key, []).append(value if isinstance(value, str) else "")
    return posted


def first(posted: Posted, key: str, default: str = "") -> str:
    return posted.get(key, [default])[0]


def render(visit: Visit, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a page of a space."""
    values = {
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
    return HTMLResponse(_environment.get_template(template).render(values | context), status_code=status)


def render_bare(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a page outside of a space: login, errors, the list of spaces."""
    identity: RequestIdentity | None = getattr(request.state, "identity", None)
    values = {
        "user": identity.user if identity else None,
        "csrf": identity.csrf if identity else None,
        "sites": list(forge_of(request).sites.values()) if identity and identity.user else [],
        "site": None,
        "base": "",
        "path": request.url.path,
        "waiting": 0,
        "now": forge_of(request).clock(),
    }
    return HTMLResponse(_environment.get_template(template).render(values | context), status_code=status)


def waiting_count(site: Site) -> int:
    """The number of pending questions."""
    return sum(map(is_for_people, site.space.pending()))


def redirect(address: str) -> RedirectResponse:
    """Redirect after a form (303), so that a reload does not submit it again."""
    return RedirectResponse(address, status_code=303)


def link(*parts: str, **query: str | int | None) -> str:
    """A URL from unescaped parts."""
    path = "/".join(quote(part, safe="") for part in parts)
    parameters = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in query.items() if value not in (None, ""))
    return f"/{path}?{parameters}" if parameters else f"/{path}"


def short(cid: str | None) -> str:
    return (cid or "")[:12]


def filters() -> Mapping[str, Callable[..., Any]]:
    return {"short": short, "ago": texts.ago, "stamp": texts.stamp}


_environment.filters.update(filters())
_environment.globals["link"] = link


TEXT_MAX = 20_000
"""Maximum characters of a message or briefing on a page."""
_NOBODYS_FAULT = (BackendError, Unauthenticated)
"""Errors that are not the form's fault; they get an error page."""


class RefusedForm(NamedTuple):
    """A refused form; ``form`` names it, since a page may have several."""

    form: str
    error: CliaError
    posted: Posted

    def was(self, form: str, field: str) -> str:
        """The input of a field, if this form was refused."""
        return first(self.posted, field) if self.form == form else ""

    @property
    def status(self) -> int:
        """422 for an unknown object named in the form; 404 is for the URL."""
        return 422 if isinstance(self.error, NotFound) else status_of(self.error)


class KnownAgent(NamedTuple):
    """An existing agent, active or archived."""

    name: str
    head: str
    archived: bool


def show(visit: Visit, template: str, status: int = 200, **context: Any) -> Response:
    """Render a page with the helpers that record templates use."""

    def address(*parts: str, **query: str | int | None) -> str:
        return link("s", visit.site.name, *parts, **query)

    values: dict[str, Any] = {"shown": shown, "as_json": jsons.to_html, "address": address, "refused": None}
    values |= {"is_name": is_name, "is_id": is_id, "is_for_people": is_for_people, "agent_at": lambda name: agent_at(visit, name)}
    values["behaviour_at"] = lambda cid: _behaviour_at(visit, cid)
    return render(visit, template, status, **(values | context))


def agent_at(visit: Visit, name: object) -> str | None:
    """The URL of a local agent or a tracked ``PEER/AGENT``; None if it does not exist."""
    refs, text = core_of(visit).refs, name if isinstance(name, str) else ""
    if is_name(text):
        head = refs.get(names.head(text)) or refs.get(names.archived(text))
        return link("s", visit.site.name, "agents", text) if head else None
    named = names.remote_agent(text)
    if named is None or refs.get(names.remote(named[0], f"agents/{named[1]}")) is None:
        return None
    return link("s", visit.site.name, "peers", named[0], "agents", named[1])


def _behaviour_at(visit: Visit, cid: str) -> str | None:
    """The URL of a behaviour version; None if it is not in this clone or something else."""
    with suppress(CliaError):
        if read_behaviour(core_of(visit).objects, cid) is not None:
            return link("s", visit.site.name, "behaviour-versions", cid)
    return None


def shown(text: str, most: int = TEXT_MAX) -> Any:
    """Foreign text, escaped and truncated with a note."""
    if len(text) <= most:
        return escaped(text)
    return escaped(f"{text[:most]}\n… {len(text) - most:,} more characters")


def core_of(visit: Visit) -> Core:
    """Low-level access, to list folders or walk the graph without reading more than the page shows."""
    return visit.site.space.core


def known_agent(visit: Visit, name: str) -> KnownAgent:
    """An agent by name, adopted from another machine if necessary; raises ``NoSuchAgent``."""
    if not is_name(name):
        raise NoSuchAgent(f"unknown agent {name!r}", fields={"agent": name})
    core = core_of(visit)
    core.require_known(name)
    head = core.refs.get(names.head(name))
    return KnownAgent(name, head or visit.site.space.find(name), archived=head is None)


def known_source(visit: Visit, name: str) -> KnownAgent:
    """A merge source: a local agent or a tracked ``PEER/AGENT``."""
    if names.remote_agent(name) is None:
        return known_agent(visit, name)
    return KnownAgent(name, core_of(visit).source_head(name), archived=False)


def carry_out(form: str, posted: Posted, deed: Callable[[], str], again: Callable[[RefusedForm], Response]) -> Response:
    """Run the action of a form and redirect to its result; on an error, show the form again."""
    try:
        return redirect(deed())
    except CliaError as err:
        if isinstance(err, _NOBODYS_FAULT):
            raise
        return again(RefusedForm(form, err, posted))


def optional(posted: Posted, field: str) -> str | None:
    """The trimmed input; None if empty."""
    return first(posted, field).strip() or None


def text_of(posted: Posted, field: str) -> str:
    """Multi-line input with normalized line breaks."""
    return first(posted, field).replace("\r\n", "\n").replace("\r", "\n")
