"""The inbox: pending questions and their answers.

Invariant: decisions are recorded under the logged-in user and only by submitting the form of the shown request. Input that is not
recorded is shown again. "Later" changes nothing.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from starlette.routing import Route

from clia.errors import CliaError, InvalidInput, StaleRequest
from clia.forge.pages.common import DECIDER, first, form, link, page, redirect, render
from clia.forge.pages.inbox_cards import (
    AnsweredCard,
    AskedQuestion,
    DecisionRow,
    PendingCard,
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
    from clia.forge.rendering.forms import AnswerForm
    from clia.sessions.model import Decision, Request
    from clia.store.interface import Waiting

PAGE = 50
"""Questions per page."""
MOST = 100
"""Maximum questions answered by one form."""
_WORK = 200  # listed requests for workers


class QuestionGroup(NamedTuple):
    """Requests with the same choices, which can be answered together."""

    form: AnswerForm
    cards: Sequence[PendingCard]

    @property
    def id(self) -> str:
        """The element id, derived from the choices so that partial refreshes do not mix up groups."""
        return f"several-{hashlib.sha256(repr(self.cards[0].group).encode('utf-8', 'replace')).hexdigest()[:12]}"


class AnswerOutcome(NamedTuple):
    """The result of one of several answers."""

    agent: str
    request: str
    address: str
    decision: Decision | None = None
    error: CliaError | None = None
    answered: AnsweredCard | None = None


class BatchAnswer(NamedTuple):
    """Several answers at once: the results, and the input to show again."""

    outcomes: Sequence[AnswerOutcome] = ()
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


# Pages


@page
def _inbox(visit: Visit) -> Response:
    return _show(visit, BatchAnswer())


def _show(visit: Visit, several: BatchAnswer, status: int = 200) -> Response:
    site = visit.site
    pending = site.space.pending()
    q = visit.query("q").strip()
    questions = for_people(pending, q)
    pages = max(1, -(-len(questions) // PAGE))
    number = min(max(1, visit.number("page", 1)), pages)
    cards = [card_of(site, request) for request in questions[(number - 1) * PAGE : number * PAGE]]
    groups = _groups(cards) if visit.may(DECIDER) else []
    work = [request for request in pending if not is_for_people(request)]
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


def _groups(cards: Sequence[PendingCard]) -> list[QuestionGroup]:
    by_choices: dict[tuple[str, ...], list[PendingCard]] = {}
    for card in cards:
        if card.group:
            by_choices.setdefault(card.group, []).append(card)
    return [
        QuestionGroup(several[0].form, several)
        for several in by_choices.values()
        if len(several) > 1 and several[0].form is not None
    ]


def _later(questions: Sequence[Request], site: str) -> Mapping[tuple[str, str], str]:
    """The URL of the next question for each one; the last leads to the first."""
    after = [*questions[1:], *questions[:1]]
    return {
        (request.agent, request.id): address_of(site, then.agent, then.id) for request, then in zip(questions, after, strict=True)
    }


def _tried(visit: Visit) -> Mapping[tuple[str, str], Waiting]:
    return {(attempt.task.agent, attempt.task.request): attempt for attempt in visit.site.space.attempts()}


def _notice(visit: Visit) -> DecisionRow | None:
    """The decision that was just made."""
    cid = visit.query("decided")
    if not cid:
        return None
    try:
        commit = visit.site.space.show(cid)
    except CliaError:
        return None
    return DecisionRow(commit, visit.site.name) if commit.kind == DECISION else None


@page
def _item(visit: Visit) -> Response:
    request = find_pending(visit.site.space, visit.param("agent"), visit.param("request"))
    if request is None:
        return _show_answered(visit, answered(visit.site, visit.param("agent"), visit.param("request")))
    return _show_item(visit, card_of(visit.site, request, as_json=visit.query("as") == "json"))


def _show_item(visit: Visit, card: PendingCard, status: int = 200) -> Response:
    site = visit.site
    later = _later(for_people(site.space.pending()), site.name)
    return render(visit, "inbox_item.html", status, card=card, later=later, answered=None, typed=())


def _show_answered(visit: Visit, answer: AnsweredCard, status: int = 200, posted: Posted | None = None) -> Response:
    typed = _typed(posted or {})
    question = first(posted or {}, "_question")  # shown to a person who answers too late
    if question and answer.asked is None:
        answer = answer._replace(asked=AskedQuestion(question))
    return render(visit, "inbox_item.html", status, card=None, later={}, answered=answer, typed=typed)


def _typed(posted: Posted) -> list[tuple[str, str]]:
    """The input by field name."""
    named = [(key, text) for key, texts in posted.items() if not key.startswith("_") for text in texts if text]
    return [("answer" if key == "v" else key.removeprefix("v."), text) for key, text in named]


# Decisions


@form(DECIDER)
def _decide(visit: Visit, posted: Posted) -> Response:
    site, agent, request_id = visit.site, visit.param("agent"), visit.param("request")
    request = find_pending(site.space, agent, request_id)
    if request is None:
        return _show_answered(visit, answered(site, agent, request_id), 409, posted)
    card = card_of(site, request, as_json=first(posted, "_as") == "json")
    try:
        decision = _decided(visit, card, posted)
    except StaleRequest:
        return _show_answered(visit, answered(site, agent, request_id), 409, posted)
    except CliaError as err:
        again = card._replace(posted=posted, rationale=_rationale(posted), edited=True, problem=err)
        return _show_item(visit, again, status_of(err))
    return redirect(link("s", site.name, "inbox", decided=decision.cid))


def _decided(visit: Visit, card: PendingCard, posted: Posted) -> Decision:
    space, request = visit.site.space, card.request
    if not card.is_question:  # the library refuses it and says how to answer
        return space.decide(request.agent, None, by=visit.user.by, request_id=request.id)
    if card.form is None:
        raise card.problem or InvalidInput("the request has no form")
    value = value_from(card.form, posted)
    space.check_answer(request, value)
    return space.decide(request.agent, value, _rationale(posted), by=visit.user.by, request_id=request.id)


def _rationale(posted: Posted) -> str:
    return first(posted, "rationale").replace("\r\n", "\n").strip()


@form(DECIDER)
def _decide_several(visit: Visit, posted: Posted) -> Response:
    picked = list(dict.fromkeys(posted.get("pick", [])))
    several = BatchAnswer((), picked, _rationale(posted))
    try:
        if not picked:
            raise InvalidInput("select at least one question", code="nothing-picked", fields={"field": "pick"})
        if len(picked) > MOST:
            raise InvalidInput(f"select at most {MOST} questions", code="too-many", fields={"field": "pick"})
    except InvalidInput as err:
        return _show(visit, several._replace(problem=err), status_of(err))
    outcomes = [_one_of_several(visit, outcome, posted) for outcome in picked]
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if len(failed) < len(outcomes):
        left = [f"{outcome.agent}/{outcome.request}" for outcome in failed]
        return _show(visit, BatchAnswer(outcomes, left, _rationale(posted) if left else ""))
    return _show(visit, several._replace(outcomes=outcomes), status_of(failed[0].error or InvalidInput("")))


def _one_of_several(visit: Visit, picked: str, posted: Posted) -> AnswerOutcome:
    """Decide one question; a failure does not affect the others."""
    agent, _, request_id = picked.partition("/")
    site = visit.site
    outcome = AnswerOutcome(agent, request_id, address_of(site.name, agent, request_id))
    try:
        request = find_pending(site.space, agent, request_id)
        if request is None:
            return _too_late(visit, outcome)
        return outcome._replace(decision=_decided(visit, card_of(site, request), posted))
    except StaleRequest:
        return _too_late(visit, outcome)
    except CliaError as err:
        return outcome._replace(error=err)


def _too_late(visit: Visit, outcome: AnswerOutcome) -> AnswerOutcome:
    try:
        answer = answered(visit.site, outcome.agent, outcome.request)
    except CliaError as err:
        return outcome._replace(error=err)
    return outcome._replace(
        answered=answer, error=StaleRequest(f"request {outcome.request} of agent {outcome.agent!r} has already been answered")
    )
