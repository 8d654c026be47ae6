"""The inbox: pending questions and their answers.

Invariant: decisions are recorded under the logged-in user and only by submitting the form of the shown request. Input that is not
recorded is shown again. "Later" changes nothing. A request that cannot be shown (an invalid rule, a damaged journal) does not
affect the others. Questions and decisions are read from git; the feed only tells where to look.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import NamedTuple

from clia.capture.permissions.prompts import is_waited_for
from clia.errors import AwaitsOthers, CliaError, InvalidInput, NotFound, StaleRequest
from clia.forge.pages.common import DECIDER, form, if_found, page, redirect, render
from clia.forge.problems import status_of
from clia.forge.proofs import ASSERTION_FIELD, Signing, signed_decision, statement_options
from clia.forge.rendering.form_values import initial, value_from
from clia.forge.rendering.forms import form_of, raw_form
from clia.sessions.answers import problem_of, rule_of
from clia.sessions.model import FINISHED, Request, context_of, is_for_people, question_of
from clia.sessions.records import ASK
from clia.values.types import DECISION, GUARDRAIL_CHANGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from starlette.responses import Response
    from starlette.routing import Route

    from clia.facade.space import Space
    from clia.forge.forge import Site
    from clia.forge.pages.common import Visit
    from clia.forge.rendering.forms import AnswerForm
    from clia.sessions.model import Decision, Session
    from clia.sessions.records import Resumed
    from clia.space.model import AgentCommit

PAGE = 50
"""Questions per page."""
MOST = 100
"""Maximum questions answered by one form."""
DECIDED = 20
"""Number of recent decisions shown."""
_WORK = 200  # listed requests for workers
_LOOK_BACK = 2000  # entries of the feed
_WINDOW = 200  # commits
_BUTTONS, _BUTTON = 6, 40  # up to 6 choices of up to 40 characters become buttons
_HEADLINE = 160
_OFFERED = 50  # choices shown for an answered request


class Question(NamedTuple):
    """The question of a request; ``cut`` if the rest of the request was too long to store."""

    request: Request
    cut: bool = False

    @property
    def text(self) -> str:
        return question_of(self.request)

    @property
    def headline(self) -> str:
        return headline(self.text)

    @property
    def below(self) -> str:
        """The rest of the question after the headline."""
        return self.text.strip().removeprefix(self.headline).strip("\n")

    @property
    def context(self) -> list[tuple[str, Any]]:
        shown = [] if self.cut else context_of(self.request)
        return [(key, value) for key, value in shown if key not in ("kind", "losses")] if self.losses else shown

    @property
    def losses(self) -> list[dict[str, Any]]:
        """The guardrails that a change takes away, if the question is about that."""
        payload = self.request.payload
        if not isinstance(payload, dict) or payload.get("kind") != GUARDRAIL_CHANGE:
            return []
        losses = payload.get("losses")
        return [loss for loss in losses if isinstance(loss, dict)] if isinstance(losses, list) else []


class PendingCard(NamedTuple):
    """A pending request and its form, with the input to show."""

    request: Request
    form: AnswerForm | None = None  # None: see the problem
    posted: Mapping[str, Sequence[str]] = {}
    rationale: str = ""
    as_json: bool = False
    edited: bool = False  # whether it shows a person's input
    problem: CliaError | None = None

    @property
    def asked(self) -> Question:
        return Question(self.request)

    @property
    def choices(self) -> tuple[str, ...]:
        """The choices as posted; () if the form has none."""
        return tuple(choice.text for choice in self.form.choices) if self.form is not None else ()

    @property
    def buttons(self) -> bool:
        """Whether choices are shown as buttons."""
        has_few_choices = self.form is not None and 0 < len(self.form.choices) <= _BUTTONS
        return has_few_choices and self.form is not None and all(len(choice.label) <= _BUTTON for choice in self.form.choices)


class AnsweredCard(NamedTuple):
    """A request that is no longer pending."""

    agent: str
    request: str
    session: Session
    asked: Question | None  # if still known
    answer: Resumed | None = None  # None: its session ended without an answer
    rationale: str = ""
    commit: AgentCommit | None = None  # of the decision

    @property
    def title(self) -> str:
        return (self.asked.headline if self.asked is not None else "") or f"Request {self.request}"

    @property
    def choices(self) -> list[tuple[str, bool]]:
        """The offered choices, and whether each was chosen."""
        if self.asked is None or self.answer is None or self.answer.error is not None:
            return []
        try:
            offered = form_of(rule_of({}, "", self.asked.request.payload)).choices
        except CliaError:
            return []  # invalid rule: no choices
        return [(choice.label, problem_of({"enum": [choice.value]}, self.answer.value) is None) for choice in offered[:_OFFERED]]


class AnswerOutcome(NamedTuple):
    """The result of one of several answers."""

    agent: str
    request: str
    decision: Decision | None = None
    error: CliaError | None = None
    answer: Resumed | None = None  # by someone else, before


class BatchAnswer(NamedTuple):
    """Several answers at once: the results, and the input to show again."""

    outcomes: Sequence[AnswerOutcome] = ()
    picked: Sequence[str] = ()
    rationale: str = ""
    problem: CliaError | None = None


def routes() -> list[Route]:
    return [
        page("/inbox", "inbox", _inbox),
        form("/inbox", "decide:several", _decide_several, DECIDER),
        page("/inbox/{agent}/{request}", "request", _item),
        form("/inbox/{agent}/{request}", "decide", _decide, DECIDER),
        form("/inbox/{agent}/{request}/statement", "statement", _statement, DECIDER),
    ]


# Pages


def _inbox(visit: Visit, several: BatchAnswer | None = None, status: int = 200) -> Response:
    space = visit.space
    pending = space.pending()
    q = visit.query("q").strip()
    questions = _for_people(pending, q)
    pages = max(1, -(-len(questions) // PAGE))
    number = min(max(1, visit.number("page", 1)), pages)
    cards = [_card(visit.site, request) for request in questions[(number - 1) * PAGE : number * PAGE]]
    groups = _groups(cards) if visit.user.may(DECIDER) else {}
    work = [request for request in pending if not is_for_people(request)]
    attempts = space.sessions.attempts() if work else []
    notice = if_found(space.show, visit.query("decided"), missing=CliaError) if visit.query("decided") else None
    return render(
        visit,
        "inbox.html",
        status,
        cards=cards,
        waits=partial(is_waited_for, visit.space),
        signing=Signing(visit),
        later=_later(visit, questions),
        total=len(questions),
        page=number,
        pages=pages,
        q=q,
        groups=groups,
        ticks={(card.request.agent, card.request.id): group for group, members in groups.items() for card in members},
        several=several or BatchAnswer(),
        work=work[:_WORK],
        more_work=max(0, len(work) - _WORK),
        tried={(attempt.task.agent, attempt.task.request): attempt for attempt in attempts},
        decided=_newest_decisions(visit.site),
        notice=notice if notice is not None and notice.kind == DECISION else None,
        question_in=lambda commit: question.headline if (question := asked_in(commit)) else "",
        decided_value=decided_value,
        rationale_of=_rationale_of,
    )


def _groups(cards: Sequence[PendingCard]) -> dict[str, list[PendingCard]]:
    """Questions with the same choices, which can be answered together.

    The element id of a group is derived from the choices, so that partial refreshes do not mix up groups.
    """
    by_choices: dict[tuple[str, ...], list[PendingCard]] = {}
    for card in cards:
        by_choices.setdefault(card.choices, []).append(card)
    return {
        f"several-{hashlib.sha256(repr(choices).encode('utf-8', 'replace')).hexdigest()[:12]}": group
        for choices, group in by_choices.items()
        if choices and len(group) > 1
    }


def _later(visit: Visit, questions: Sequence[Request]) -> Mapping[tuple[str, str], str]:
    """The URL of the next question for each one; the last leads to the first."""
    after = [*questions[1:], *questions[:1]]
    return {
        (request.agent, request.id): visit.address("inbox", then.agent, then.id)
        for request, then in zip(questions, after, strict=True)
    }


def _for_people(requests: Sequence[Request], q: str = "") -> list[Request]:
    """The questions to people that match a filter, oldest first."""
    word = q.casefold()
    return [
        request
        for request in requests
        if is_for_people(request)
        and (not word or any(word in text.casefold() for text in (request.agent, request.flow, question_of(request))))
    ]


def _newest_decisions(site: Site) -> list[AgentCommit]:
    """Recent decisions, newest first: from the feed, supplemented by the newest commits if it is short."""
    entries = site.feed.read(max(0, site.feed.end() - _LOOK_BACK), _LOOK_BACK)
    answers = (entry.body.get("answered", {}) for entry in reversed(entries) if entry.body.get("event") == "session")
    cids = [cid for answer in answers if isinstance(cid := answer.get("decision"), str)][:DECIDED]
    # A commit is missing if its branch was deleted and git pruned it.
    commits = [commit for cid in cids if (commit := if_found(site.space.show, cid, missing=CliaError))]
    if len(commits) < DECIDED:
        listed = {commit.cid for commit in commits}
        commits += [commit for commit in site.space.history.window(limit=_WINDOW) if commit.cid not in listed]
    decisions = [commit for commit in commits if commit.kind == DECISION and commit.request and commit.agent]
    decisions.sort(key=lambda commit: commit.committer.at, reverse=True)
    return decisions[:DECIDED]


def _item(visit: Visit) -> Response:
    request = _find_pending(visit.space, visit.param("agent"), visit.param("request"))
    if request is None:
        return _show_answered(visit)
    return _show_item(visit, _card(visit.site, request, as_json=visit.query("as") == "json"))


def _show_item(visit: Visit, card: PendingCard, status: int = 200) -> Response:
    later = _later(visit, _for_people(visit.space.pending()))
    waits = partial(is_waited_for, visit.space)
    return render(
        visit, "inbox_item.html", status, card=card, later=later, answered=None, typed=(), waits=waits, signing=Signing(visit)
    )


def _show_answered(visit: Visit, status: int = 200) -> Response:
    """Show an answered request, with the input of a person whose answer came too late."""
    answered = _answered(visit.space, visit.param("agent"), visit.param("request"))
    question = visit.field("_question")
    if question and answered.asked is None:
        answered = answered._replace(asked=_recorded(question))
    fields = [(key, text) for key, texts in visit.posted.items() if not key.startswith("_") for text in texts if text]
    typed = [("answer" if key == "v" else key.removeprefix("v."), text) for key, text in fields]
    return render(visit, "inbox_item.html", status, card=None, later={}, answered=answered, typed=typed)


# Questions


def headline(question: str) -> str:
    """The first line of a question, truncated for a heading."""
    line = question.strip().split("\n", 1)[0]
    return line if len(line) <= _HEADLINE else f"{line[: _HEADLINE - 1]}…"


def _card(site: Site, request: Request, *, as_json: bool = False) -> PendingCard:
    """The card of a request; only questions to people have a form."""
    if not is_for_people(request):
        return PendingCard(request)
    try:
        rule = site.space.sessions.rule(request)
        answer_form = raw_form(rule) if as_json else form_of(rule)
    except CliaError as err:
        return PendingCard(request, problem=err)
    return PendingCard(request, answer_form, initial(answer_form), as_json=as_json)


def _find_pending(space: Space, agent: str, request_id: str) -> Request | None:
    """A pending request of any kind, or None; raises ``NotFound`` for an unknown agent."""
    try:
        pending = space.pending(agent)
    except InvalidInput:
        raise NotFound(f"unknown agent {agent!r}", code="no-such-agent", fields={"agent": agent}) from None
    return next((request for request in pending if request.id == request_id), None)


def _answered(space: Space, agent: str, request_id: str) -> AnsweredCard:
    """A request that is no longer pending; raises ``NotFound`` if it never existed."""
    session_id, _, number = request_id.rpartition(".")
    hints = ["see the inbox for pending questions"]
    unknown = NotFound(f"agent {agent!r} has no request {request_id!r}", code="no-such-request", hints=hints)
    try:
        session = space.session(agent, session_id)
    except InvalidInput:
        raise unknown from None
    except NotFound as err:
        raise (unknown if err.code == "no-such-session" else err) from None
    # Journals record only answers, but the question of ``clia ask`` is the session's input.
    card = AnsweredCard(agent, request_id, session, _recorded(session.input) if session.id.startswith(ASK) else None)
    answers = session.given()
    for answer in answers:
        if str(answer.call) == number:
            commit = if_found(space.show, answer.decision, missing=CliaError) if answer.decision is not None else None
            return _with_commit(card._replace(answer=answer), commit)
    is_number = number.isascii() and number.isdigit()
    was_asked = is_number and int(number[:9]) <= max((answer.call for answer in answers), default=0)
    if session.live or (session.status == FINISHED and not was_asked) or not is_number:
        raise unknown
    return card


def _recorded(payload: Any, tag: str | None = None, *, cut: bool = False) -> Question:
    """A question of which only the payload and the tag are known."""
    return Question(Request("", "", "", tag, payload, "", 0, "", ""), cut)


def _with_commit(card: AnsweredCard, commit: AgentCommit | None) -> AnsweredCard:
    """Add the rationale and, unless a fuller one is known, the question from the decision's commit."""
    if commit is None:
        return card
    question = asked_in(commit)
    keep = question is None or (question.cut and card.asked)
    return card._replace(rationale=_rationale_of(commit), asked=card.asked if keep else question, commit=commit)


def asked_in(commit: AgentCommit) -> Question | None:
    """The question in a decision's commit; None in older commits."""
    if commit.kind != DECISION or "asked" not in commit.meta:
        return None
    return _recorded(commit.meta["asked"], commit.tag, cut=commit.meta.get("cut") is True)


def decided_value(commit: AgentCommit) -> Any:
    """The decided value, parsed if possible, else as text."""
    try:
        return json.loads(commit.value or "null")
    except (ValueError, RecursionError):
        return commit.value


def _rationale_of(commit: AgentCommit) -> str:
    """The rationale of a decision; "" if the message is generated."""
    text = commit.message.strip()
    ours = text.startswith("decision: ") and text.endswith(f" {commit.request})") and "\n" not in text
    return "" if ours else text


# Decisions


def _decide(visit: Visit) -> Response:
    request = _find_pending(visit.space, visit.param("agent"), visit.param("request"))
    if request is None:
        return _show_answered(visit, 409)
    card = _card(visit.site, request, as_json=visit.field("_as") == "json")
    try:
        decision = signed_decision(visit, request) if visit.field(ASSERTION_FIELD) else _decided(visit, card)
    except StaleRequest:
        return _show_answered(visit, 409)
    except AwaitsOthers:
        return redirect(visit.address("inbox", request.agent, request.id))
    except CliaError as err:
        again = card._replace(posted=visit.posted, rationale=_rationale(visit), edited=True, problem=err)
        return _show_item(visit, again, status_of(err))
    return redirect(visit.address("inbox", decided=decision.cid))


def _statement(visit: Visit) -> Response:
    """What the person signs with a passkey for the answer in the form; nothing is recorded."""
    request = _find_pending(visit.space, visit.param("agent"), visit.param("request"))
    return statement_options(visit, request, partial(_answer_in, visit), _rationale(visit))


def _answer_in(visit: Visit, request: Request) -> Any:
    """The answer in the form."""
    card = _card(visit.site, request, as_json=visit.field("_as") == "json")
    if card.form is None:
        raise card.problem or InvalidInput("the request has no form")
    return value_from(card.form, visit.posted)


def _decided(visit: Visit, card: PendingCard) -> Decision:
    space, request = visit.space, card.request
    if not is_for_people(request):  # the library refuses it and says how to answer
        return space.decide(request.agent, None, by=visit.user.by, request_id=request.id)
    if card.form is None:
        raise card.problem or InvalidInput("the request has no form")
    value = value_from(card.form, visit.posted)
    space.sessions.check_answer(request, value)
    return space.decide(request.agent, value, _rationale(visit), by=visit.user.by, request_id=request.id)


def _rationale(visit: Visit) -> str:
    return visit.field("rationale").replace("\r\n", "\n").strip()


def _decide_several(visit: Visit) -> Response:
    picked = list(dict.fromkeys(visit.posted.get("pick", [])))
    several = BatchAnswer((), picked, _rationale(visit))
    if not 0 < len(picked) <= MOST:
        problem = InvalidInput(f"select at most {MOST} questions", code="too-many", fields={"field": "pick"})
        if not picked:
            problem = InvalidInput("select at least one question", code="nothing-picked", fields={"field": "pick"})
        return _inbox(visit, several._replace(problem=problem), status_of(problem))
    outcomes = [_one_of_several(visit, *request.partition("/")[::2]) for request in picked]
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if len(errors) == len(outcomes):
        return _inbox(visit, several._replace(outcomes=outcomes), status_of(errors[0]))
    left = [f"{outcome.agent}/{outcome.request}" for outcome in outcomes if outcome.error is not None]
    return _inbox(visit, BatchAnswer(outcomes, left, _rationale(visit) if left else ""))


def _one_of_several(visit: Visit, agent: str, request_id: str) -> AnswerOutcome:
    """Decide one question; a failure does not affect the others."""
    outcome = AnswerOutcome(agent, request_id)
    try:
        request = _find_pending(visit.space, agent, request_id)
        if request is not None:
            return outcome._replace(decision=_decided(visit, _card(visit.site, request)))
    except StaleRequest:
        pass
    except CliaError as err:
        return outcome._replace(error=err)
    try:
        answer = _answered(visit.space, agent, request_id).answer
    except CliaError as err:
        return outcome._replace(error=err)
    late = StaleRequest(f"request {request_id} of agent {agent!r} has already been answered")
    return outcome._replace(error=late, answer=answer)
