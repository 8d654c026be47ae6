"""Sessions: all of them in a list, and one with everything that it was asked for, was given, and waits for.

Invariant: the timeline is what the journal records, event by event, also where an event cannot be read. A question to people is
answered in the inbox, never here; what anything else waits for, an administrator may answer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from starlette.routing import Route

from clia.errors import InvalidInput, NotFound
from clia.forge.pages.common import ADMIN, Posted, Refused, carry_out, first, form, known_agent, link, page, show, text_of
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
    from clia.forge.rendering.traces import Window
    from clia.sessions.model import Request, Session
    from clia.sessions.records import Resumed
    from clia.space.model import AgentCommit

PAGE, EVENTS = 100, 200
"""Sessions and events on a page."""
_SOURCE_LINES = 3000
_ANY_VALUE = raw_form(Rule(None))


class Event(NamedTuple):
    """One event of the journal; ``number`` is its place, ``body`` is there where it is of no kind that we know."""

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
        """What was decided on, as far as it fits a line; "" where the decision does not say."""
        asked = None if self.decision is None else asked_in(self.decision)
        return "" if asked is None else asked.headline


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
    """Live ones first, then the newest."""
    status, agent = visit.query("status"), visit.query("agent")
    every = visit.site.space.sessions()
    counts = {word: sum(each.status == word for each in every) for word in STATUSES}
    agents = sorted({each.agent for each in every})
    chosen = [each for each in every if status in ("", each.status) and agent in ("", each.agent)]
    chosen.sort(key=lambda each: each.started_at, reverse=True)
    chosen.sort(key=lambda each: not each.live)
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
    except InvalidInput:  # what no session can be called
        raise NotFound(f"the agent {agent!r} has no such session", code="no-such-session", fields={"agent": agent}) from None


def _shown(visit: Visit, session: Session, refused: Refused | None = None) -> Response:
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
    """What the flow was started with; nothing where the journal does not say."""
    start = journal[0] if journal else {}
    return (start["input"],) if isinstance(start, dict) and "input" in start else ()


def _events(space: Space, session: Session, journal: Sequence[Any], part: Window) -> list[Event]:
    return [_event(space, session, number, body) for number, body in enumerate(journal[part.first : part.last], part.first + 1)]


def _event(space: Space, session: Session, number: int, body: Any) -> Event:
    """Rows come from a store that others may have written to: what is not as it should be is shown as it is."""
    kind = body.get("event") if isinstance(body, dict) else None
    if kind == RESUMED:
        with suppress(TypeError, KeyError):
            made = resumed_from(body["resume"])
            request = f"{session.id}.{made.call}"
            return Event(number, RESUMED, made.at, made.by, {}, made, request, _decision(space, made.decision))
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
    """The commit of a decision; this clone may not have it."""
    with suppress(NotFound):
        return None if cid is None else space.show(cid)
    return None


def _source(space: Space, session: Session) -> tuple[list[SourceLine], int]:
    """The flow as the session runs it, and how many lines are not shown; each line with what waits there."""
    try:
        source = space.flow(session.flow_cid).source
    except (NotFound, InvalidInput):  # it is built in, or a row names what no flow can be
        source = space.flow(session.flow).source if session.id.startswith(ASK) else ""
    lines = source.removesuffix("\n").split("\n") if source else []
    waiting = _by_line(session.pending)
    line = (session.failure or {}).get("line")
    made = [
        SourceLine(number, escaped(text[:2000]), waiting.get(number, ()), number == line)
        for number, text in enumerate(lines[:_SOURCE_LINES], 1)
    ]
    return made, len(lines) - len(made)


def _by_line(requests: Iterable[Request]) -> dict[int, list[Request]]:
    found: dict[int, list[Request]] = {}
    for each in requests:
        found.setdefault(each.line, []).append(each)
    return found


# What can be done


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
