"""Overview pages: spaces, agents, health and the fleet.

Invariant: a page reads only what it shows: 200 of a thousand agents. Names of machines and workers are untrusted text. The fleet
page polls for what has no event, such as a worker that stops sending heartbeats.
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clia.errors import CliaError, NotFound
from clia.forge.auth import require
from clia.forge.pages.common import (
    ADMIN,
    VIEWER,
    first,
    forge_of,
    form,
    identity_of,
    link,
    page,
    redirect,
    render,
    render_bare,
    show,
    waiting_count,
)
from clia.forge.problems import status_of
from clia.forge.rendering import texts
from clia.sessions.model import is_for_people, question_of
from clia.space.adoption import title_of
from clia.values.typed_objects import Briefing
from clia.workers.fleet import ALIVE, CLOCK_TOLERANCE, HEARTBEAT_INTERVAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request as WebRequest
    from starlette.responses import Response

    from clia.facade.space import Space
    from clia.forge.forge import Site
    from clia.forge.pages.common import Posted, Visit
    from clia.sessions.model import Request, Session
    from clia.space.model import AgentCommit, Spawned
    from clia.store.interface import Waiting

PAGE = 200
"""Agents per page."""
FEW = 200
"""With up to this many agents, the overview checks all sessions; beyond, only the health page does."""
_FIELDS = ("name", "title", "text", "from", "slug")


class SpaceRow(NamedTuple):
    """A row of the list of spaces."""

    name: str
    id: str
    agents: int
    waiting: int  # pending questions
    oldest: str | None  # when the oldest was asked


class AgentRow(NamedTuple):
    """A row of the agent list."""

    name: str
    commit: AgentCommit | None
    session: Session | None
    questions: Sequence[Request]  # to people, oldest first
    work: Sequence[Request]  # for workers

    @property
    def state(self) -> str:
        """What the agent waits for, else the status of its session."""
        if self.questions:
            return "waits for people"
        if self.work:
            return "waits for a worker"
        return self.session.status if self.session is not None else "no session"

    @property
    def asked(self) -> Request | None:
        """The oldest pending request, questions first."""
        return next(iter([*self.questions, *self.work]), None)

    @property
    def question(self) -> str:
        return "" if self.asked is None else question_of(self.asked)

    @property
    def kinds(self) -> str:
        """The kinds of its requests for workers."""
        return ", ".join(sorted({request.kind for request in self.work}))


class AgentListing(NamedTuple):
    """A page of the agent list."""

    rows: Sequence[AgentRow]
    total: int  # matching the filter
    page: int
    pages: int
    q: str
    archived: bool


def routes() -> list[Route]:
    return [
        Route("/", _spaces, methods=["GET"], name="spaces"),
        Route("/s/{space}/", _overview, methods=["GET"], name="overview"),
        Route("/s/{space}/", _spawn, methods=["POST"], name="spawn"),
        Route("/s/{space}/health", _health, methods=["GET"], name="health"),
        Route("/s/{space}/waiting", _waiting, methods=["GET"], name="waiting"),
        Route("/s/{space}/fleet", _fleet, methods=["GET"], name="fleet"),
    ]


def _spaces(request: WebRequest) -> Response:
    """The list of spaces; redirects to the only one."""
    require(identity_of(request), VIEWER)
    sites = list(forge_of(request).sites.values())
    if len(sites) == 1:
        return redirect(link("s", sites[0].name, ""))
    spaces = [_summary(site) for site in sites]
    return render_bare(request, "spaces.html", spaces=spaces, waiting=sum(space.waiting for space in spaces))


def _summary(site: Site) -> SpaceRow:
    pending = [request for request in site.space.pending() if is_for_people(request)]
    return SpaceRow(site.name, site.space.id, len(site.space.agents()), len(pending), pending[0].since if pending else None)


@page
def _overview(visit: Visit) -> Response:
    return _show(visit)


@page
def _waiting(visit: Visit) -> Response:
    """The number in the inbox badge."""
    return JSONResponse({"waiting": waiting_count(visit.site)})


@page
def _health(visit: Visit) -> Response:
    """The findings of the doctor, which reads every session."""
    return render(visit, "health.html", ailments=visit.site.space.doctor(), tried=_failed(visit.site.space))


@form(ADMIN)
def _spawn(visit: Visit, posted: Posted) -> Response:
    fields = {name: first(posted, name).replace("\r\n", "\n").strip() for name in _FIELDS}
    try:
        spawned = _spawned(visit.site.space, fields)
    except CliaError as err:
        return _show(visit, status_of(err), fields, err)
    return redirect(link("s", visit.site.name, "agents", spawned.agent))


def _spawned(space: Space, fields: Mapping[str, str]) -> Spawned:
    briefing, start, slug = Briefing(fields["title"], fields["text"]), fields["from"], fields["slug"] or None
    if not start:
        return space.spawn(fields["name"], briefing, slug=slug)
    if start in space.agents():
        return space.spawn_from(fields["name"], briefing, start, slug=slug)
    return space.spawn_at(fields["name"], briefing, start, slug=slug)


def _show(visit: Visit, status: int = 200, fields: Mapping[str, str] | None = None, problem: CliaError | None = None) -> Response:
    space = visit.site.space
    names = space.agents()
    return render(
        visit,
        "overview.html",
        status,
        listing=_listing(visit, names),
        agents=names,
        examined=len(names) <= FEW,
        tried=_failed(space),
        given=fields or {**dict.fromkeys(_FIELDS, ""), "from": _default_start(space)},
        problem=problem,
    )


def _default_start(space: Space) -> str:
    """The default starting point: HEAD, or "" before the first commit."""
    try:
        space.find("HEAD")
    except NotFound:
        return ""
    return "HEAD"


def _failed(space: Space) -> list[Waiting]:
    """The requests with failed attempts."""
    return [attempt for attempt in space.attempts() if attempt.error is not None]


# List


def _listing(visit: Visit, at_work: Sequence[str]) -> AgentListing:
    """Agents that wait for people come first, longest-waiting first; then the others by name."""
    space, q, archived = visit.site.space, visit.query("q").strip(), visit.query("archived") == "1"
    names = [name for name in (space.agents(archived=True) if archived else at_work) if q.casefold() in name]
    pending: dict[str, list[Request]] = {}
    for request in [] if archived else space.pending():  # oldest first
        pending.setdefault(request.agent, []).append(request)
    asking = [name for name, requests in pending.items() if any(map(is_for_people, requests))]
    rank = {name: place for place, name in enumerate(sorted(asking, key=lambda name: _since(pending[name])))}
    names.sort(key=lambda name: (rank.get(name, len(rank)), name))
    pages = max(1, -(-len(names) // PAGE))
    number = min(max(1, visit.number("page", 1)), pages)
    shown = names[(number - 1) * PAGE : number * PAGE]
    return AgentListing([_row(space, name, pending.get(name, [])) for name in shown], len(names), number, pages, q, archived)


def _since(requests: Sequence[Request]) -> str:
    return next(request.since for request in requests if is_for_people(request))


def _row(space: Space, name: str, requests: Sequence[Request]) -> AgentRow:
    questions = [request for request in requests if is_for_people(request)]
    work = [request for request in requests if not is_for_people(request)]
    return AgentRow(name, _commit(space, name), _session(space, name), questions, work)


def _commit(space: Space, name: str) -> AgentCommit | None:
    try:
        return space.show(name)
    except NotFound:
        return None  # deleted just now


def _session(space: Space, name: str) -> Session | None:
    try:
        return space.session(name)
    except CliaError:
        return None  # none, or a damaged one


ROWS = 200
"""Maximum leases and kinds shown."""
_SECONDS = max(2, round(HEARTBEAT_INTERVAL))


@page
def _fleet(visit: Visit) -> Response:
    fleet = visit.site.space.fleet()
    return show(
        visit,
        "fleet.html",
        fleet=fleet,
        alive=sum(worker.state == ALIVE for worker in fleet.workers),
        unanswered=[entry.kind for entry in fleet.queue if entry.due and not entry.workers],
        most=ROWS,
        off=CLOCK_TOLERANCE,
        every=_SECONDS,
        span=lambda seconds: texts.ago(0, max(seconds, 0)),
        due=sum(entry.due for entry in fleet.queue),
        left=sum(entry.elsewhere for entry in fleet.queue),
        title_of=title_of,
    )
