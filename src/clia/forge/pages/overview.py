"""Overview pages: spaces, agents, health and the fleet.

Invariant: a page reads only what it shows: 200 of a thousand agents. Names of machines and workers are untrusted text. The fleet
page polls for what has no event, such as a worker that stops sending heartbeats.
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clia.errors import CliaError
from clia.forge.auth import require
from clia.forge.pages.common import (
    VIEWER,
    forge_of,
    form,
    identity_of,
    if_found,
    link,
    page,
    redirect,
    render,
    render_bare,
    waiting_count,
)
from clia.forge.problems import status_of
from clia.forge.rendering import texts
from clia.sessions.model import is_for_people, question_of
from clia.space.remotes import title_of
from clia.values.typed_objects import Briefing
from clia.workers.fleet import ALIVE, CLOCK_TOLERANCE
from clia.workers.heartbeats import HEARTBEAT_INTERVAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from starlette.requests import Request as WebRequest

    from clia.facade.space import Space
    from clia.forge.pages.common import Visit
    from clia.sessions.model import Request, Session
    from clia.space.model import AgentCommit, Spawned
    from clia.store.interface import Waiting

PAGE = 200
"""Agents per page."""
FEW = 200
"""With up to this many agents, the overview checks all sessions; beyond, only the health page does."""
ROWS = 200
"""Maximum leases and kinds shown."""
_FIELDS = ("name", "title", "text", "from", "slug")


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


def routes() -> list[Route]:
    return [
        Route("/", _spaces, methods=["GET"], name="spaces"),
        page("/", "overview", _overview),
        form("/", "spawn", _spawn),
        page("/health", "health", _health),
        page("/waiting", "waiting", _waiting),
        page("/fleet", "fleet", _fleet),
    ]


def _spaces(request: WebRequest) -> Response:
    """The list of spaces; redirects to the only one."""
    require(identity_of(request), VIEWER)
    sites = list(forge_of(request).sites.values())
    if len(sites) == 1:
        return redirect(link("s", sites[0].name, ""))
    rows = [(site, len(site.space.agents()), list(filter(is_for_people, site.space.pending()))) for site in sites]
    return render_bare(request, "spaces.html", rows=rows, waiting=sum(len(questions) for _, _, questions in rows))


def _waiting(visit: Visit) -> Response:
    """The number in the inbox badge."""
    return JSONResponse({"waiting": waiting_count(visit.site)})


def _health(visit: Visit) -> Response:
    """The findings of the doctor, which reads every session."""
    return render(visit, "health.html", ailments=visit.space.doctor(), tried=_failed(visit.space))


def _spawn(visit: Visit) -> Response:
    fields = {name: visit.field(name).replace("\r\n", "\n").strip() for name in _FIELDS}
    try:
        spawned = _spawned(visit.space, fields)
    except CliaError as err:
        return _overview(visit, status_of(err), fields, err)
    return redirect(visit.address("agents", spawned.agent))


def _spawned(space: Space, fields: Mapping[str, str]) -> Spawned:
    briefing, start, slug = Briefing(fields["title"], fields["text"]), fields["from"], fields["slug"] or None
    if not start:
        return space.spawn(fields["name"], briefing, slug=slug)
    spawn = space.spawn_from if start in space.agents() else space.spawn_at
    return spawn(fields["name"], briefing, start, slug=slug)


def _overview(
    visit: Visit, status: int = 200, fields: Mapping[str, str] | None = None, problem: CliaError | None = None
) -> Response:
    names = visit.space.agents()
    start = "HEAD" if if_found(visit.space.find, "HEAD") else ""  # missing before the first commit
    return render(
        visit,
        "overview.html",
        status,
        agents=names,
        examined=len(names) <= FEW,
        tried=_failed(visit.space),
        fields=fields or {**dict.fromkeys(_FIELDS, ""), "from": start},
        problem=problem,
        **_listing(visit, names),
    )


def _failed(space: Space) -> list[Waiting]:
    """The requests with failed attempts."""
    return [attempt for attempt in space.sessions.attempts() if attempt.error is not None]


def _listing(visit: Visit, active: Sequence[str]) -> dict[str, Any]:
    """Agents that wait for people come first, longest-waiting first; then the others by name."""
    space, q, archived = visit.space, visit.query("q").strip(), visit.query("archived") == "1"
    names = [name for name in (space.agents(archived=True) if archived else active) if q.casefold() in name]
    pending: dict[str, list[Request]] = {}
    since: dict[str, str] = {}  # the oldest question of each agent
    for request in [] if archived else space.pending():  # oldest first
        pending.setdefault(request.agent, []).append(request)
        if is_for_people(request):
            since.setdefault(request.agent, request.since)
    names.sort(key=lambda name: (name not in since, since.get(name, ""), name))
    pages = max(1, -(-len(names) // PAGE))
    number = min(max(1, visit.number("page", 1)), pages)
    rows = [_row(space, name, pending.get(name, [])) for name in names[(number - 1) * PAGE : number * PAGE]]
    return {"rows": rows, "total": len(names), "page": number, "pages": pages, "q": q, "archived": archived}


def _row(space: Space, name: str, requests: Sequence[Request]) -> AgentRow:
    questions = [request for request in requests if is_for_people(request)]
    work = [request for request in requests if not is_for_people(request)]
    session = if_found(space.session, name, missing=CliaError)  # none, or a damaged one
    return AgentRow(name, if_found(space.show, name, missing=CliaError), session, questions, work)


def _fleet(visit: Visit) -> Response:
    fleet = visit.space.fleet()
    return render(
        visit,
        "fleet.html",
        fleet=fleet,
        alive=sum(worker.state == ALIVE for worker in fleet.workers),
        unanswered=[entry.kind for entry in fleet.queue if entry.due and not entry.workers],
        most=ROWS,
        off=CLOCK_TOLERANCE,
        every=max(2, round(HEARTBEAT_INTERVAL)),
        span=lambda seconds: texts.ago(0, max(seconds, 0)),
        due=sum(entry.due for entry in fleet.queue),
        left=sum(entry.elsewhere for entry in fleet.queue),
        title_of=title_of,
    )
