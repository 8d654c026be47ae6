"""Session pages: the list, and one session with its timeline.

Invariant: the timeline shows every event of the journal, including unreadable ones. Questions to people are answered in the inbox,
never here; an administrator may answer other requests.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from starlette.routing import Route

from clia.errors import InvalidInput, NotFound
from clia.forge.pages.common import ADMIN, Posted, RefusedForm, carry_out, first, form, known_agent, link, page, show, text_of
from clia.forge.pages.inbox_cards import asked_in
from clia.forge.rendering.form_values import value_from
from clia.forge.rendering.forms import raw_form
from clia.forge.rendering.texts import escaped
from clia.forge.rendering.traces import window
from clia.sessions.answers import Rule
from clia.sessions.model import STATUSES, is_human
from clia.sessions.records import ASK, COPIED, OVER, RESUMED, STARTED, resumed_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from markupsafe import Markup
    from starlette.responses import Response

    from clia.facade.space import Space
    from clia.forge.pages.common import Visit
    from clia.forge.rendering.traces import TraceWindow
    from clia.sessions.model import Request, Session
    from clia.sessions.records import Resumed
    from clia.space.model import AgentCommit

PAGE, EVENTS = 100, 200
"""Sessions and events per page."""
_SOURCE_LINES = 3000
_ANY_VALUE = raw_form(Rule(None))


class Event(NamedTuple):
    """A journal event; ``number`` is its position, ``body`` is set for unknown kinds."""

    number: int
    kind: str
    at: str | None = None
    by: str | None = None
    facts: Mapping[str, Any] = {}
    resumed: Resumed | None = None
    request: str | None = None
    decision: AgentCommit | None = None
    body: Any = None

    @property
    def question(self) -> str:
        """The question of a decision, on one line; "" if unknown."""
        asked_request = None if self.decision is None else asked_in(self.decision)
        return "" if asked_request is None else asked_request.headline


class SourceLine(NamedTuple):
    number: int
    text: Markup
    asks: Sequence[Request]
    failed: bool


def routes() -> list[Route]:
    at = "/s/{space}/sessions/{agent}/{session}"
    return [
        Route("/s/{space}/sessions", _sessions, methods=["GET"], name="sessions"),
        Route(at, _session, methods=["GET"], name="session"),
        Route(f"{at}/resume", _resume, methods=["POST"], name="session:resume"),
        Route(f"{at}/give-up", _give_up, methods=["POST"], name="session:give-up"),
        Route(f"{at}/forks", _fork, methods=["POST"], name="session:fork"),
        Route(f"{at}/cancel", _cancel, methods=["POST"], name="session:cancel"),
    ]


@page
def _sessions(visit: Visit) -> Response:
    """Live sessions first, then the newest."""
    status, agent = visit.query("status"), visit.query("agent")
    every = visit.site.space.sessions()
    counts = {word: sum(session.status == word for session in every) for word in STATUSES}
    agents = sorted({session.agent for session in every})
    chosen = [session for session in every if status in ("", session.status) and agent in ("", session.agent)]
    chosen.sort(key=lambda session: session.started_at, reverse=True)
    chosen.sort(key=lambda session: not session.live)
    part = window(len(chosen), visit.number("from", 0), PAGE)
    return show(
        visit,
        "sessions.html",
        sessions=chosen[part.first : part.last],
        count=len(chosen),
        total=len(every),
        part=part,
        counts=counts,
        agents=agents,
        wanted=(status if status in counts else "", agent if agent in agents else ""),
    )


@page
def _session(visit: Visit) -> Response:
    return _shown(visit, _found(visit))


def _found(visit: Visit) -> Session:
    agent, session = known_agent(visit, visit.param("agent")).name, visit.param("session")
    try:
        return visit.site.space.session(agent, session)
    except InvalidInput:  # not a valid session id
        raise NotFound(f"agent {agent!r} has no such session", code="no-such-session", fields={"agent": agent}) from None


def _shown(visit: Visit, session: Session, refused: RefusedForm | None = None) -> Response:
    space = visit.site.space
    journal = space.journal(session.agent, session.id)
    part = window(len(journal), visit.number("from", len(journal)), EVENTS)
    return show(
        visit,
        "session.html",
        refused.status if refused else 200,
        session=session,
        part=part,
        count=len(journal),
        events=_events(space, session, journal, part),
        input=_input(journal),
        source=_source(space, session),
        only_asks=session.id.startswith(ASK),
        is_human=is_human,
        refused=refused,
    )


def _input(journal: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """The input of the flow; empty if the journal does not have it."""
    start = journal[0] if journal else {}
    return (start["input"],) if isinstance(start, dict) and "input" in start else ()


def _events(space: Space, session: Session, journal: Sequence[Any], part: TraceWindow) -> list[Event]:
    return [_event(space, session, number, body) for number, body in enumerate(journal[part.first : part.last], part.first + 1)]


def _event(space: Space, session: Session, number: int, body: Any) -> Event:
    """An event from the journal; an invalid one is shown as it is."""
    kind = body.get("event") if isinstance(body, dict) else None
    if kind == RESUMED:
        with suppress(TypeError, KeyError):
            resumed = resumed_from(body["resume"])
            request = f"{session.id}.{resumed.call}"
            return Event(number, RESUMED, resumed.at, resumed.by, {}, resumed, request, _decision(space, resumed.decision))
    elif kind == STARTED:
        names = ("flow", "engine", "timezone", "on", "forked")
        facts = {name: body[name] for name in names if body.get(name) is not None}
        return Event(number, STARTED, _text(body.get("started_at")), _text(body.get("by")), facts)
    elif kind == OVER:
        return Event(number, OVER, _text(body.get("at")), None, {"status": body.get("status")})
    elif kind == COPIED and isinstance(body.get("resumes"), list):
        return Event(number, COPIED, None, None, {"resumes": len(body["resumes"])})
    return Event(number, "unknown", body=body)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _decision(space: Space, cid: str | None) -> AgentCommit | None:
    """The commit of a decision; None if it is not in this clone."""
    with suppress(NotFound):
        return None if cid is None else space.show(cid)
    return None


def _source(space: Space, session: Session) -> tuple[list[SourceLine], int]:
    """The source lines of the flow with pending requests, and the number of lines not shown."""
    try:
        source = space.flow(session.flow_cid).source
    except (NotFound, InvalidInput):  # built in, or an invalid id
        source = space.flow(session.flow).source if session.id.startswith(ASK) else ""
    lines = source.removesuffix("\n").split("\n") if source else []
    waiting = _by_line(session.pending)
    line = (session.failure or {}).get("line")
    source_lines = [
        SourceLine(number, escaped(text[:2000]), waiting.get(number, ()), number == line)
        for number, text in enumerate(lines[:_SOURCE_LINES], 1)
    ]
    return source_lines, len(lines) - len(source_lines)


def _by_line(requests: Iterable[Request]) -> dict[int, list[Request]]:
    by_line: dict[int, list[Request]] = {}
    for request in requests:
        by_line.setdefault(request.line, []).append(request)
    return by_line


# Actions


@form(ADMIN)
def _resume(visit: Visit, posted: Posted) -> Response:
    session = _found(visit)

    def deed() -> str:
        value = value_from(_ANY_VALUE, posted)
        visit.site.space.resume(session.agent, value, first(posted, "request"), by=visit.user.by)
        return _address(visit, session)

    return carry_out("resume", posted, deed, lambda refused: _shown(visit, _found(visit), refused))


@form(ADMIN)
def _give_up(visit: Visit, posted: Posted) -> Response:
    session = _found(visit)

    def deed() -> str:
        visit.site.space.give_up(session.agent, text_of(posted, "reason"), first(posted, "request"), by=visit.user.by)
        return _address(visit, session)

    return carry_out("give-up", posted, deed, lambda refused: _shown(visit, _found(visit), refused))


def _address(visit: Visit, session: Session) -> str:
    return link("s", visit.site.name, "sessions", session.agent, session.id)


@form(ADMIN)
def _fork(visit: Visit, posted: Posted) -> Response:
    session = _found(visit)

    def deed() -> str:
        return _address(visit, visit.site.space.fork(session.agent, first(posted, "name").strip()))

    return carry_out("fork", posted, deed, lambda refused: _shown(visit, session, refused))


@form(ADMIN)
def _cancel(visit: Visit, posted: Posted) -> Response:
    session = _found(visit)

    def deed() -> str:
        visit.site.space.cancel(session.agent, text_of(posted, "reason"), session_id=session.id)
        return _address(visit, session)

    return carry_out("cancel", posted, deed, lambda refused: _shown(visit, _found(visit), refused))
