"""Shared by all pages: routes, access checks, forms and rendering.

Invariant: a page checks the role of the user, and a form its CSRF token. Text written by agents goes through autoescape,
``shown`` or ``clia.forge.rendering``, so it can neither act nor hide. A refused form is shown again with its input, and nothing
has changed.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from clia.errors import BackendError, CliaError, InvalidInput, NoSuchAgent, NotFound, TransportError
from clia.forge.auth import CSRF_FIELD, check_csrf, require
from clia.forge.problems import Unauthenticated, status_of
from clia.forge.proofs import ASSERTION_FIELD, PREVIEW_FIELD, Signing, act_options, shown_proof, signed_act
from clia.forge.rendering import json_view, texts
from clia.forge.rendering.texts import escaped
from clia.sessions.model import is_for_people
from clia.values import refs as names
from clia.values.refs import is_id, is_name
from clia.verbs import set_channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from starlette.requests import Request

    from clia.facade.local import KnownAgent
    from clia.facade.space import Space
    from clia.forge.auth import RequestIdentity
    from clia.forge.forge import Forge, Site
    from clia.users.service import User

VIEWER, DECIDER, ADMIN = "viewer", "decider", "admin"
TEXT_MAX = 20_000
"""Maximum characters of a message or briefing on a page."""
Posted = dict[str, list[str]]
T = TypeVar("T")


class Visit(NamedTuple):
    """A request for a page of a space: the user, the space and the input."""

    request: Request
    forge: Forge
    site: Site
    user: User
    posted: Posted

    @property
    def space(self) -> Space:
        return self.site.space

    def param(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "")

    def number(self, name: str, default: int, most: int = 10**9) -> int:
        """A number in the query; the default if it is invalid."""
        text = self.query(name)
        return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 12 else default

    def field(self, name: str) -> str:
        """The input of a form field."""
        return first(self.posted, name)

    def text(self, name: str) -> str:
        """Multi-line input with normalized line breaks."""
        return self.field(name).replace("\r\n", "\n").replace("\r", "\n")

    def address(self, *parts: str, **query: str | int | None) -> str:
        """The URL of a page of this space."""
        return link("s", self.site.name, *parts, **query)


class RefusedForm(NamedTuple):
    """A refused form; ``form`` names it, since a page may have several."""

    form: str
    error: CliaError
    posted: Posted

    def was(self, form: str, field: str) -> str:
        """The input of a field, if this form was refused."""
        return first(self.posted, field) if self.form == form else ""


def forge_of(request: Request) -> Forge:
    forge: Forge = request.app.state.forge
    return forge


def identity_of(request: Request) -> RequestIdentity:
    identity: RequestIdentity = request.state.identity
    return identity


def _visit(request: Request, role: str, posted: Posted) -> Visit:
    set_channel("forge")
    user = require(identity_of(request), role)
    forge = forge_of(request)
    return Visit(request, forge, forge.site(request.path_params["space"]), user, posted)


# Routes


def page(path: str, name: str, view: Callable[[Visit], Response]) -> Route:
    """The route of a page, which only reads; Starlette runs it in a thread."""

    def endpoint(request: Request) -> Response:
        return view(_visit(request, VIEWER, {}))

    return Route(f"/s/{{space}}{path}", endpoint, methods=["GET"], name=name)


def form(path: str, name: str, view: Callable[[Visit], Response], role: str = ADMIN) -> Route:
    """The route of a form; checks the role and the CSRF token."""

    async def endpoint(request: Request) -> Response:
        posted = await read_form(request)
        check_csrf(identity_of(request), request.headers, first(posted, CSRF_FIELD))
        return await run_in_threadpool(lambda: view(_visit(request, role, posted)))

    return Route(f"/s/{{space}}{path}", endpoint, methods=["POST"], name=name)


def action(
    path: str, name: str, act: Callable[[Visit], str], again: Callable[[Visit, RefusedForm], Response], form_name: str = ""
) -> Route:
    """The route of a form whose ``act`` returns the URL of the result; if it is refused, ``again`` shows the page with the error.

    The name of the form is the last part of the route's name, unless given.
    """

    def view(visit: Visit) -> Response:
        if visit.field(PREVIEW_FIELD):
            return act_options(visit, act)
        try:
            return redirect(signed_act(visit, act) if visit.field(ASSERTION_FIELD) else act(visit))
        except CliaError as err:
            if isinstance(err, (BackendError, Unauthenticated)) and not isinstance(err, TransportError):
                raise  # not the form's fault
            return again(visit, RefusedForm(form_name or name.rpartition(":")[2], err, visit.posted))

    return form(path, name, view)


async def read_form(request: Request) -> Posted:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidInput("the content type must be application/x-www-form-urlencoded", code="unsupported-media-type")
    posted: Posted = {}
    for key, value in (await request.form(max_fields=1000)).multi_items():
        posted.setdefault(key, []).append(value if isinstance(value, str) else "")
    return posted


def first(posted: Posted, name: str) -> str:
    return posted.get(name, [""])[0]


def form_status(err: CliaError) -> int:
    """The status of a page that shows the error of its form: 422 for an unknown object named there; 404 is for the URL."""
    return 422 if isinstance(err, NotFound) else status_of(err)


def redirect(address: str) -> RedirectResponse:
    """Redirect after a form (303), so that a reload does not submit it again."""
    return RedirectResponse(address, status_code=303)


# Rendering


def render(visit: Visit, template: str, status: int = 200, refused: RefusedForm | None = None, **context: Any) -> HTMLResponse:
    """Render a page of a space."""
    status = status if refused is None else form_status(refused.error)

    def behaviour_at(cid: str) -> str | None:  # None if it is not in this clone, or something else
        is_behaviour = if_found(visit.space.views.is_behaviour, cid, missing=CliaError)
        return visit.address("behaviour-versions", cid) if is_behaviour else None

    values = {
        "visit": visit,
        "site": visit.site,
        "base": visit.address(),
        "address": visit.address,
        "waiting": waiting_count(visit.site),
        "refused": refused,
        "agent_at": lambda name: agent_at(visit, name),
        "behaviour_at": behaviour_at,
        "proof_of": partial(shown_proof, visit),
        "signs_acts": lambda: visit.space.trust.is_signing() and bool(Signing(visit).keys),
    }
    return render_bare(visit.request, template, status, **(values | context))


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


def link(*parts: str, **query: str | int | None) -> str:
    """A URL from unescaped parts."""
    path = "/".join(quote(part, safe="") for part in parts)
    parameters = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in query.items() if value not in (None, ""))
    return f"/{path}?{parameters}" if parameters else f"/{path}"


def short(cid: str | None) -> str:
    return (cid or "")[:12]


def shown(text: str, most: int = TEXT_MAX) -> Any:
    """Foreign text, escaped and truncated with a note."""
    return escaped(text if len(text) <= most else f"{text[:most]}\n… {len(text) - most:,} more characters")


_environment = Environment(
    loader=PackageLoader("clia.forge"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_environment.filters.update(short=short, ago=texts.ago, stamp=texts.stamp)
_environment.globals.update(
    link=link, shown=shown, escaped=escaped, as_json=json_view.to_html, is_name=is_name, is_id=is_id, is_for_people=is_for_people
)


# Records


def if_found(read: Callable[..., T], *args: object, missing: type[CliaError] = NotFound) -> T | None:
    """The result of ``read``; None if it raises ``missing``: a clone may lack objects, and others may delete them."""
    try:
        return read(*args)
    except missing:
        return None


def agent_at(visit: Visit, name: object) -> str | None:
    """The URL of a local agent or a tracked ``PEER/AGENT``; None if it does not exist."""
    if not isinstance(name, str) or not visit.space.views.has_agent(name):
        return None
    remote = names.remote_agent(name)
    return visit.address("agents", name) if remote is None else visit.address("peers", remote[0], "agents", remote[1])


def known_agent(visit: Visit, name: str | None = None) -> KnownAgent:
    """An agent by name, by default the one in the URL, adopted from another machine if necessary; raises ``NoSuchAgent``."""
    name = visit.param("agent") if name is None else name
    if not is_name(name):
        raise NoSuchAgent(f"unknown agent {name!r}", fields={"agent": name})
    return visit.space.views.agent(name)


def known_source(visit: Visit, name: str) -> KnownAgent:
    """A merge source: a local agent or a tracked ``PEER/AGENT``."""
    return known_agent(visit, name) if names.remote_agent(name) is None else visit.space.views.agent(name)


def commits_page(visit: Visit, name: str, size: int) -> dict[str, Any]:
    """The requested page of an agent's own commits, and the offsets of its neighbours, for ``records_macros.pages``."""
    start = visit.number("from", 0)
    commits = visit.space.log(name, own=True, limit=start + size + 1)[start:]
    return {
        "commits": commits[:size],
        "start": start,
        "newer": max(0, start - size) if start else None,
        "older": start + size if len(commits) > size else None,
    }
