"""What all pages share: who looks, at which space, and how a page is made.

Invariant: a page is shown to someone who may see it, or the login page is; a form that changes something came from one of our own
pages. Every text that an agent wrote goes through autoescape.


What the pages of agents, commits, sessions and traces share.

Invariant: whatever an agent wrote goes into a template through ``shown`` or a function of ``clia.forge.rendering``, so that nothing
of it acts or hides. A form that was refused is shown again with what was typed, and nothing has changed.
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

    from clia.forge.auth import Identity
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
    return {"short": short, "ago": texts.ago, "stamp": texts.stamp}


_environment.filters.update(filters())
_environment.globals["link"] = link


TEXT_MAX = 20_000
"""Characters of a message or a briefing on a page."""
_NOBODYS_FAULT = (BackendError, Unauthenticated)
"""What no form is at fault for; it has an error page."""


class Refused(NamedTuple):
    """A form that could not be carried out; ``form`` says which of the page's forms it was."""

    form: str
    error: CliaError
    posted: Posted

    def was(self, form: str, field: str) -> str:
        """What was typed in a field of a form."""
        return first(self.posted, field) if self.form == form else ""

    @property
    def status(self) -> int:
        """Something that a form names wrongly is a mistake in the form, and not in the address."""
        return 422 if isinstance(self.error, NotFound) else status_of(self.error)


class Known(NamedTuple):
    """An agent that there is, at work or archived."""

    name: str
    head: str
    archived: bool


def show(visit: Visit, template: str, status: int = 200, **context: Any) -> Response:
    """A page of a record: ``refused`` is there for every form."""

    def address(*parts: str, **query: str | int | None) -> str:
        return link("s", visit.site.name, *parts, **query)

    made: dict[str, Any] = {"shown": shown, "as_json": jsons.to_html, "address": address, "refused": None}
    made |= {"is_name": is_name, "is_id": is_id, "is_for_people": is_for_people, "agent_at": lambda name: agent_at(visit, name)}
    made["behaviour_at"] = lambda cid: _behaviour_at(visit, cid)
    return render(visit, template, status, **(made | context))


def agent_at(visit: Visit, name: object) -> str | None:
    """The page of an agent here, or of ``PEER/AGENT`` as it is tracked here; None where there is none (any more)."""
    refs, text = core_of(visit).refs, name if isinstance(name, str) else ""
    if is_name(text):
        known = refs.get(names.head(text)) or refs.get(names.archived(text))
        return link("s", visit.site.name, "agents", text) if known else None
    named = names.remote_agent(text)
    if named is None or refs.get(names.remote(named[0], f"agents/{named[1]}")) is None:
        return None
    return link("s", visit.site.name, "peers", named[0], "agents", named[1])


def _behaviour_at(visit: Visit, cid: str) -> str | None:
    """The page of a version of a behaviour; None where this clone has not got it, or it is something else."""
    with suppress(CliaError):
        if read_behaviour(core_of(visit).objects, cid) is not None:
            return link("s", visit.site.name, "behaviour-versions", cid)
    return None


def shown(text: str, most: int = TEXT_MAX) -> Any:
    """Foreign text, escaped; what is too long for a page is cut, and that is said."""
    if len(text) <= most:
        return escaped(text)
    return escaped(f"{text[:most]}\n… {len(text) - most:,} more characters")


def core_of(visit: Visit) -> Core:
    """Below the verbs: to list a folder or to walk the graph without reading more than is shown."""
    return visit.site.space._core  # noqa: SLF001  # the verbs give whole worktrees and whole logs


def known_agent(visit: Visit, name: str) -> Known:
    """``NoSuchAgent`` for a name that no agent has, or that none can have. One of another machine comes here, as by any verb."""
    if not is_name(name):
        raise NoSuchAgent(f"there is no agent {name!r} in this space", fields={"agent": name})
    core = core_of(visit)
    core.require_known(name)
    head = core.refs.get(names.head(name))
    return Known(name, head or visit.site.space.find(name), archived=head is None)


def known_source(visit: Visit, name: str) -> Known:
    """What can be merged: an agent here, or ``PEER/AGENT`` as it is tracked here."""
    if names.remote_agent(name) is None:
        return known_agent(visit, name)
    return Known(name, core_of(visit).source_head(name), archived=False)


def carry_out(form: str, posted: Posted, deed: Callable[[], str], again: Callable[[Refused], Response]) -> Response:
    """Does what a form asks for and goes where that leads; else shows the form again."""
    try:
        return redirect(deed())
    except CliaError as err:
        if isinstance(err, _NOBODYS_FAULT):
            raise
        return again(Refused(form, err, posted))


def optional(posted: Posted, field: str) -> str | None:
    """What was typed; None for nothing."""
    return first(posted, field).strip() or None


def text_of(posted: Posted, field: str) -> str:
    """A text of several lines, with the line breaks that it had before a browser sent it."""
    return first(posted, field).replace("\r\n", "\n").replace("\r", "\n")
