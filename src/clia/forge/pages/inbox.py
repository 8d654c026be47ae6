"""The inbox: what waits for people, and their answers.

Invariant: who decides is who is logged in. Nothing is decided but by a form that somebody sent, for the request that they were
shown; what they typed is shown again unless it was recorded. ``Later`` changes nothing.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from starlette.routing import Route

from clia.errors import CliaError, InvalidInput, StaleRequest
from clia.forge.pages.common import DECIDER, first, form, link, page, redirect, render
from clia.forge.pages.inbox_cards import (
    Answered,
    Asked,
    Card,
    Decided,
    address_of,
    answered,
    card_of,
    find_pending,
    for_people,
    newest_decisions,
)
from clia.forge.problems import status_of
from clia.forge.rendering.form_values import value_from
from clia.sessions.model import is_for_people
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response

    from clia.forge.pages.common import Posted, Visit
    from clia.forge.rendering.forms import Form
    from clia.sessions.model import Decision, Request
    from clia.store.interface import Waiting

PAGE = 50
"""Questions on one page."""
MOST = 100
"""Questions that one form may answer."""
_WORK = 200  # requests for workers that are listed


class Group(NamedTuple):
    """Requests that take the same choices, and so can be answered together."""

    form: Form
    cards: Sequence[Card]

    @property
    def id(self) -> str:
        """In a page; it follows from the choices, so that a page that is refreshed in part never mixes up two groups."""
        return f"several-{hashlib.sha256(repr(self.cards[0].group).encode('utf-8', 'replace')).hexdigest()[:12]}"


class Outcome(NamedTuple):
    """What became of one of several answers."""

    agent: str
    request: str
    address: str
    decision: Decision | None = None
    error: CliaError | None = None
    answered: Answered | None = None


class Several(NamedTuple):
    """Several answers at once: what became of each, and what is to be shown again."""

    outcomes: Sequence[Outcome] = ()
    picked: Sequence[str] = ()
    rationale: str = ""
    problem: CliaError | None = None


def routes() -> list[Route]:
    return [
        Route("/s/{space}/inbox", _inbox, methods=["GET"], name="inbox"),
        Route("/s/{space}/inbox", _decide_several, methods=["POST"], name="decide:several"),
        Route("/s/{space}/inbox/{agent}/{request}", _item, methods=["GET"], name="request"),
        Route("/s/{space}/inbox/{agent}/{request}", _decide, methods=["POST"], name="decide"),
    ]


# Looking


@page
def _inbox(visit: Visit) -> Response:
    return _show(visit, Several())


def _show(visit: Visit, several: Several, status: int = 200) -> Response:
    site = visit.site
    pending = site.space.pending()
    q = visit.query("q").strip()
    questions = for_people(pending, q)
    pages = max(1, -(-len(questions) // PAGE))
    number = min(max(1, visit.number("page", 1)), pages)
    cards = [card_of(site, each) for each in questions[(number - 1) * PAGE : number * PAGE]]
    groups = _groups(cards) if visit.may(DECIDER) else []
    work = [each for each in pending if not is_for_people(each)]
    return render(
        visit,
        "inbox.html",
        status,
        cards=cards,
        later=_later(questions, site.name),
        total=len(questions),
        page=number,
        pages=pages,
        q=q,
        groups=groups,
        ticks={card.id: group.id for group in groups for card in group.cards},
        several=several,
        work=work[:_WORK],
        more_work=max(0, len(work) - _WORK),
        tried=_tried(visit) if work else {},
        decided=newest_decisions(site),
        notice=_notice(visit),
    )


def _groups(cards: Sequence[Card]) -> list[Group]:
    found: dict[tuple[str, ...], list[Card]] = {}
    for card in cards:
        if card.group:
            found.setdefault(card.group, []).append(card)
    return [Group(several[0].form, several) for several in found.values() if len(several) > 1 and several[0].form is not None]


def _later(questions: Sequence[Request], site: str) -> Mapping[tuple[str, str], str]:
    """Where to go from each question: to the next one, and from the last to the first."""
    after = [*questions[1:], *questions[:1]]
    return {(each.agent, each.id): address_of(site, then.agent, then.id) for each, then in zip(questions, after, strict=True)}


def _tried(visit: Visit) -> Mapping[tuple[str, str], Waiting]:
    return {(each.task.agent, each.task.request): each for each in visit.site.space.attempts()}


def _notice(visit: Visit) -> Decided | None:
    """The decision that this person came from making."""
    cid = visit.query("decided")
    if not cid:
        return None
    try:
        found = visit.site.space.show(cid)
    except CliaError:
        return None
    return Decided(found, visit.site.name) if found.kind == DECISION else None


@page
def _item(visit: Visit) -> Response:
    found = find_pending(visit.site.space, visit.param("agent"), visit.param("request"))
    if found is None:
        return _show_answered(visit, answered(visit.site, visit.param("agent"), visit.param("request")))
    return _show_item(visit, card_of(visit.site, found, as_json=visit.query("as") == "json"))


def _show_item(visit: Visit, card: Card, status: int = 200) -> Response:
    site = visit.site
    later = _later(for_people(site.space.pending()), site.name)
    return render(visit, "inbox_item.html", status, card=card, later=later, answered=None, typed=())


def _show_answered(visit: Visit, found: Answered, status: int = 200, posted: Posted | None = None) -> Response:
    typed = _typed(posted or {})
    seen = first(posted or {}, "_question")  # by whoever answers too late
    if seen and found.asked is None:
        found = found._replace(asked=Asked(seen))
    return render(visit, "inbox_item.html", status, card=None, later={}, answered=found, typed=typed)


def _typed(posted: Posted) -> list[tuple[str, str]]:
    """What somebody typed, by the field's name as far as it says something."""
    named = [(key, text) for key, texts in posted.items() if not key.startswith("_") for text in texts if text]
    return [("answer" if key == "v" else key.removeprefix("v."), text) for key, text in named]


# Deciding


@form(DECIDER)
def _decide(visit: Visit, posted: Posted) -> Response:
    site, agent, request_id = visit.site, visit.param("agent"), visit.param("request")
    found = find_pending(site.space, agent, request_id)
    if found is None:
        return _show_answered(visit, answered(site, agent, request_id), 409, posted)
    card = card_of(site, found, as_json=first(posted, "_as") == "json")
    try:
        made = _decided(visit, card, posted)
    except StaleRequest:
        return _show_answered(visit, answered(site, agent, request_id), 409, posted)
    except CliaError as err:
        again = card._replace(posted=posted, rationale=_rationale(posted), edited=True, problem=err)
        return _show_item(visit, again, status_of(err))
    return redirect(link("s", site.name, "inbox", decided=made.cid))


def _decided(visit: Visit, card: Card, posted: Posted) -> Decision:
    space, request = visit.site.space, card.request
    if card.form is None:
        raise card.problem or InvalidInput("this request has no form")
    value = value_from(card.form, posted)
    space.check_answer(request, value)
    return space.decide(request.agent, value, _rationale(posted), by=visit.user.by, request_id=request.id)


def _rationale(posted: Posted) -> str:
    return first(posted, "rationale").replace("\r\n", "\n").strip()


@form(DECIDER)
def _decide_several(visit: Visit, posted: Posted) -> Response:
    picked = list(dict.fromkeys(posted.get("pick", [])))
    several = Several((), picked, _rationale(posted))
    try:
        if not picked:
            raise InvalidInput("tick the questions that this answers", code="nothing-picked", fields={"field": "pick"})
        if len(picked) > MOST:
            raise InvalidInput(f"at most {MOST} questions are answered at once", code="too-many", fields={"field": "pick"})
    except InvalidInput as err:
        return _show(visit, several._replace(problem=err), status_of(err))
    outcomes = [_one_of_several(visit, each, posted) for each in picked]
    failed = [each for each in outcomes if each.error is not None]
    if len(failed) < len(outcomes):
        left = [f"{each.agent}/{each.request}" for each in failed]
        return _show(visit, Several(outcomes, left, _rationale(posted) if left else ""))
    return _show(visit, several._replace(outcomes=outcomes), status_of(failed[0].error or InvalidInput("")))


def _one_of_several(visit: Visit, picked: str, posted: Posted) -> Outcome:
    """Each is a decision of its own; one that is refused holds up no other."""
    agent, _, request_id = picked.partition("/")
    site = visit.site
    made = Outcome(agent, request_id, address_of(site.name, agent, request_id))
    try:
        found = find_pending(site.space, agent, request_id)
        if found is None:
            return _too_late(visit, made)
        return made._replace(decision=_decided(visit, card_of(site, found), posted))
    except StaleRequest:
        return _too_late(visit, made)
    except CliaError as err:
        return made._replace(error=err)


def _too_late(visit: Visit, made: Outcome) -> Outcome:
    try:
        found = answered(visit.site, made.agent, made.request)
    except CliaError as err:
        return made._replace(error=err)
    return made._replace(answered=found, error=StaleRequest(f"{made.request} of {made.agent!r} was answered already"))
