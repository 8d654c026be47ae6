"""Session pages: the list, and one session with its timeline.

Invariant: the timeline shows every event of the journal, including unreadable ones. Questions to people are answered in the inbox,
never here; an administrator may answer other requests.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from clia.errors import InvalidInput, NotFound
from clia.forge.pages.common import action, if_found, known_agent, page, render
from clia.forge.pages.inbox import asked_in
from clia.forge.rendering.form_values import value_from
from clia.forge.rendering.forms import raw_form
from clia.forge.rendering.texts import escaped
from clia.forge.rendering.traces import window
from clia.sessions.answers import Rule
from clia.sessions.model import FAILED, STATUSES, is_human
from clia.sessions.records import ASK, COPIED, OVER, RESUMED, RETRIED, STARTED, resumed_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from markupsafe import Markup
    from starlette.responses import Response
    from starlette.routing import Route

    from clia.facade.space import Space
    from clia.forge.pages.common import RefusedForm, Visit
    from clia.sessions.model import Request, Session
    from clia.sessions.records import Resumed
    from clia.space.model import AgentCommit

PAGE, EVENTS = 100, 200
"""Sessions and events per page."""
_SOURCE_LINES = 3000
_ANY_VALUE = raw_form(Rule(None))
_FACTS = ("flow", "engine", "timezone", "on", "forked")


class Event(NamedTuple):
    """A journal event; ``number`` is its position, ``body`` is set for unknown kinds."""

    number: int
    kind: str
    at: Any = None
    by: Any = None
    facts: Mapping[str, Any] = {}
    resumed: Resumed | None = None
    request: str | None = None
    decision: AgentCommit | None = None
    body: Any = None


def routes() -> list[Route]:
    at = "/sessions/{agent}/{session}"
    return [
        page("/sessions", "sessions", _sessions),
        page(at, "session", _session),
        action(f"{at}/resume", "session:resume", _resume, _session),
        action(f"{at}/give-up", "session:give-up", _give_up, _session),
        action(f"{at}/forks", "session:fork", _fork, _session),
        action(f"{at}/cancel", "session:cancel", _cancel, _session),
        action(f"{at}/retry", "session:retry", _retry, _session),
    ]


def _sessions(visit: Visit) -> Response:
    """Live sessions first, then the newest."""
    status, agent = visit.query("status"), visit.query("agent")
    every = visit.space.sessions()
    counts = {word: sum(session.status == word for session in every) for word in STATUSES}
    agents = sorted({session.agent for session in every})
    chosen = [session for session in every if status in ("", session.status) and agent in ("", session.agent)]
    chosen.sort(key=lambda session: (session.live, session.started_at), reverse=True)
    part = window(len(chosen), visit.number("from", 0), PAGE)
    return render(
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


def _found(visit: Visit) -> Session:
    agent = known_agent(visit).name
    try:
        return visit.space.session(agent, visit.param("session"))
    except InvalidInput:  # not a valid session id
        raise NotFound(f"agent {agent!r} has no such session", code="no-such-session", fields={"agent": agent}) from None


def _session(visit: Visit, refused: RefusedForm | None = None) -> Response:
    space, session = visit.space, _found(visit)
    journal = space.sessions.journal(session.agent, session.id)
    part = window(len(journal), visit.number("from", len(journal)), EVENTS)
    bodies = enumerate(journal[part.first : part.last], part.first + 1)
    return render(
        visit,
        "session.html",
        session=session,
        part=part,
        count=len(journal),
        events=[_event(space, session, number, body) for number, body in bodies],
        start=journal[0] if journal and isinstance(journal[0], dict) else {},
        source=_source(space, session),
        only_asks=session.id.startswith(ASK),
        may_retry=session.status == FAILED and not session.id.startswith(ASK),
        is_human=is_human,
        asked_in=asked_in,
        refused=refused,
    )


def _event(space: Space, session: Session, number: int, body: Any) -> Event:
    """An event from the journal; an invalid one is shown as it is."""
    kind = body.get("event") if isinstance(body, dict) else None
    if kind == RESUMED:
        with suppress(TypeError, KeyError):
            resumed = resumed_from(body["resume"])
            # None if the commit is not in this clone.
            decision = None if resumed.decision is None else if_found(space.show, resumed.decision)
            return Event(number, RESUMED, resumed.at, resumed.by, {}, resumed, f"{session.id}.{resumed.call}", decision)
    elif kind == STARTED:
        facts = {name: body[name] for name in _FACTS if body.get(name) is not None}
        return Event(number, STARTED, body.get("started_at"), body.get("by"), facts)
    elif kind == OVER:
        return Event(number, OVER, body.get("at"), None, {"status": body.get("status")})
    elif kind == COPIED and isinstance(body.get("resumes"), list):
        return Event(number, COPIED, facts={"resumes": len(body["resumes"])})
    elif kind == RETRIED:
        again = f"request {session.id}.{body['dropped']} again" if body.get("dropped") is not None else "last turn again"
        return Event(number, RETRIED, body.get("at"), body.get("by"), {"again": again, "why": body.get("why")})
    return Event(number, "unknown", body=body)


def _source(space: Space, session: Session) -> tuple[list[tuple[Markup, list[Request], bool]], int]:
    """The source lines of the flow, each with its pending requests and whether it failed; and the number of lines not shown."""
    try:
        source = space.sessions.flow(session.flow_cid).source
    except (NotFound, InvalidInput):  # built in, or an invalid id
        source = space.sessions.flow(session.flow).source if session.id.startswith(ASK) else ""
    lines = source.removesuffix("\n").split("\n") if source else []
    pending = sorted(session.pending, key=lambda request: request.line)
    by_line = {line: list(requests) for line, requests in groupby(pending, lambda request: request.line)}
    failed = (session.failure or {}).get("line")
    shown = [
        (escaped(text[:2000]), by_line.get(number, []), number == failed) for number, text in enumerate(lines[:_SOURCE_LINES], 1)
    ]
    return shown, len(lines) - len(shown)


# Actions


def _resume(visit: Visit) -> str:
    session = _found(visit)
    visit.space.resume(session.agent, value_from(_ANY_VALUE, visit.posted), visit.field("request"), by=visit.user.by)
    return visit.address("sessions", session.agent, session.id)


def _give_up(visit: Visit) -> str:
    session = _found(visit)
    visit.space.sessions.give_up(session.agent, visit.text("reason"), visit.field("request"), by=visit.user.by)
    return visit.address("sessions", session.agent, session.id)


def _fork(visit: Visit) -> str:
    forked = visit.space.fork(_found(visit).agent, visit.field("name").strip())
    return visit.address("sessions", forked.agent, forked.id)


def _cancel(visit: Visit) -> str:
    session = _found(visit)
    visit.space.cancel(session.agent, visit.text("reason"), session_id=session.id)
    return visit.address("sessions", session.agent, session.id)


def _retry(visit: Visit) -> str:
    session = _found(visit)
    visit.space.sessions.retry(session.agent, visit.text("reason"), by=visit.user.by, session_id=session.id)
    return visit.address("sessions", session.agent, session.id)
