"""Where every agent is: the spaces of a forge, the agents of a space, and what ails it.

Invariant: looking costs what one page shows, not what the space holds: of a thousand agents two hundred are read. What is asked
for by a number or a name in the address is shown as far as it exists.


Who works on a space: machines, workers, forges, what each has, what waits and since when.

Invariant: whatever machines and workers call themselves is shown as text. What no event tells of, such as a worker that falls
silent, is looked at again every few seconds.
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
"""Agents on one page."""
FEW = 200
"""Up to so many agents the sessions are examined whenever somebody looks; beyond, when somebody asks."""
_FIELDS = ("name", "title", "text", "from", "slug")


class Summary(NamedTuple):
    """A space in the list of those that are served."""

    name: str
    id: str
    agents: int
    waiting: int  # questions to people
    oldest: str | None  # since when the oldest of them waits


class Row(NamedTuple):
    """An agent in the list."""

    name: str
    commit: AgentCommit | None
    session: Session | None
    questions: Sequence[Request]  # to people, the oldest first
    work: Sequence[Request]  # for workers

    @property
    def state(self) -> str:
        """In a word: whom it waits for, else how its session ended."""
        if self.questions:
            return "waits for people"
        if self.work:
            return "waits for a worker"
        return self.session.status if self.session is not None else "no session"

    @property
    def asked(self) -> Request | None:
        """What it waits for longest."""
        return next(iter([*self.questions, *self.work]), None)

    @property
    def question(self) -> str:
        return "" if self.asked is None else question_of(self.asked)

    @property
    def kinds(self) -> str:
        """What workers are to do for it."""
        return ", ".join(sorted({each.kind for each in self.work}))


class Listing(NamedTuple):
    """One page of the agents."""

    rows: Sequence[Row]
    total: int  # that the filter lets through
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
    """Every space that is served; where there is one, that one."""
    require(identity_of(request), VIEWER)
    sites = list(forge_of(request).sites.values())
    if len(sites) == 1:
        return redirect(link("s", sites[0].name, ""))
    spaces = [_summary(site) for site in sites]
    return render_bare(request, "spaces.html", spaces=spaces, waiting=sum(each.waiting for each in spaces))


def _summary(site: Site) -> Summary:
    pending = [each for each in site.space.pending() if is_for_people(each)]
    return Summary(site.name, site.space.id, len(site.space.agents()), len(pending), pending[0].since if pending else None)


@page
def _overview(visit: Visit) -> Response:
    return _show(visit)


@page
def _waiting(visit: Visit) -> Response:
    """The number of the badge, for pages that show nothing else that changes."""
    return JSONResponse({"waiting": waiting_count(visit.site)})


@page
def _health(visit: Visit) -> Response:
    """What the doctor says; it reads every session."""
    return render(visit, "health.html", ailments=visit.site.space.doctor(), tried=_failed(visit.site.space))


@form(ADMIN)
def _spawn(visit: Visit, posted: Posted) -> Response:
    given = {name: first(posted, name).replace("\r\n", "\n").strip() for name in _FIELDS}
    try:
        made = _spawned(visit.site.space, given)
    except CliaError as err:
        return _show(visit, status_of(err), given, err)
    return redirect(link("s", visit.site.name, "agents", made.agent))


def _spawned(space: Space, given: Mapping[str, str]) -> Spawned:
    briefing, start, slug = Briefing(given["title"], given["text"]), given["from"], given["slug"] or None
    if not start:
        return space.spawn(given["name"], briefing, slug=slug)
    if start in space.agents():
        return space.spawn_from(given["name"], briefing, start, slug=slug)
    return space.spawn_at(given["name"], briefing, start, slug=slug)


def _show(visit: Visit, status: int = 200, given: Mapping[str, str] | None = None, problem: CliaError | None = None) -> Response:
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
        given=given or {**dict.fromkeys(_FIELDS, ""), "from": _default_start(space)},
        problem=problem,
    )


def _default_start(space: Space) -> str:
    """Most want their code in a new agent; "" before the first commit."""
    try:
        space.find("HEAD")
    except NotFound:
        return ""
    return "HEAD"


def _failed(space: Space) -> list[Waiting]:
    """What workers have tried in vain so far."""
    return [each for each in space.attempts() if each.error is not None]


# The list


def _listing(visit: Visit, at_work: Sequence[str]) -> Listing:
    """Whoever waits for people longest stands first; then come the others, by name."""
    space, q, archived = visit.site.space, visit.query("q").strip(), visit.query("archived") == "1"
    names = [name for name in (space.agents(archived=True) if archived else at_work) if q.casefold() in name]
    pending: dict[str, list[Request]] = {}
    for each in [] if archived else space.pending():  # the oldest first
        pending.setdefault(each.agent, []).append(each)
    asking = [name for name, requests in pending.items() if any(map(is_for_people, requests))]
    rank = {name: place for place, name in enumerate(sorted(asking, key=lambda name: _since(pending[name])))}
    names.sort(key=lambda name: (rank.get(name, len(rank)), name))
    pages = max(1, -(-len(names) // PAGE))
    number = min(max(1, visit.number("page", 1)), pages)
    shown = names[(number - 1) * PAGE : number * PAGE]
    return Listing([_row(space, name, pending.get(name, [])) for name in shown], len(names), number, pages, q, archived)


def _since(requests: Sequence[Request]) -> str:
    return next(each.since for each in requests if is_for_people(each))


def _row(space: Space, name: str, requests: Sequence[Request]) -> Row:
    questions = [each for each in requests if is_for_people(each)]
    work = [each for each in requests if not is_for_people(each)]
    return Row(name, _commit(space, name), _session(space, name), questions, work)


def _commit(space: Space, name: str) -> AgentCommit | None:
    try:
        return space.show(name)
    except NotFound:
        return None  # it went just now


def _session(space: Space, name: str) -> Session | None:
    try:
        return space.session(name)
    except CliaError:
        return None  # it has none, or one that only the doctor can read


ROWS = 200
"""Leases and kinds on the page."""
_SECONDS = max(2, round(HEARTBEAT_INTERVAL))


@page
def _fleet(visit: Visit) -> Response:
    found = visit.site.space.fleet()
    return show(
        visit,
        "fleet.html",
        fleet=found,
        alive=sum(each.state == ALIVE for each in found.workers),
        unanswered=[each.kind for each in found.queue if each.due and not each.workers],
        most=ROWS,
        off=CLOCK_TOLERANCE,
        every=_SECONDS,
        span=lambda seconds: texts.ago(0, max(seconds, 0)),
        due=sum(each.due for each in found.queue),
        left=sum(each.elsewhere for each in found.queue),
        title_of=title_of,
    )
