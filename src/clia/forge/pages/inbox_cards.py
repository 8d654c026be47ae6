"""Inbox cards: pending requests with their forms, and answered ones.

Invariant: a request that cannot be shown (an invalid rule, a damaged journal) does not affect the others. Questions and decisions
are read from git; the feed only tells where to look.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.errors import CliaError, InvalidInput, NotFound
from clia.forge.pages.common import link
from clia.forge.rendering import jsons
from clia.forge.rendering.form_values import initial
from clia.forge.rendering.forms import form_of, raw_form
from clia.forge.rendering.texts import escaped
from clia.sessions.answers import problem_of, rule_of
from clia.sessions.model import FINISHED, Request, context_of, is_for_people, question_of
from clia.sessions.records import ASK
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from markupsafe import Markup

    from clia.facade.space import Space
    from clia.forge.forge import Site
    from clia.forge.rendering.forms import AnswerForm
    from clia.sessions.model import Session
    from clia.space.model import AgentCommit

DECIDED = 20
"""Number of recent decisions shown."""
_LOOK_BACK = 2000  # entries of the feed
_WINDOW = 200  # commits
_BUTTONS, _BUTTON = 6, 40  # up to 6 choices of up to 40 characters become buttons
_HEADLINE = 160
_OFFERED = 50  # choices shown for an answered request


class PendingCard(NamedTuple):
    """A pending request."""

    request: Request
    site: str
    form: AnswerForm | None  # None: see the problem
    posted: Mapping[str, Sequence[str]] = {}
    rationale: str = ""
    as_json: bool = False
    edited: bool = False  # whether it shows a person's input
    problem: CliaError | None = None

    @property
    def id(self) -> str:
        return card_id(self.request.agent, self.request.id)

    @property
    def address(self) -> str:
        return address_of(self.site, self.request.agent, self.request.id)

    @property
    def is_question(self) -> bool:
        """Whether a person's decision answers it."""
        return is_for_people(self.request)

    @property
    def headline(self) -> str:
        """The question, truncated for a heading."""
        return headline(question_of(self.request))

    @property
    def question(self) -> Markup | None:
        """The rest of the question after the headline."""
        return _below(question_of(self.request))

    @property
    def context(self) -> list[tuple[str, Markup, bool]]:
        """The context: name, rendered value, whether it is text."""
        return _context(self.request)

    @property
    def errors(self) -> Mapping[str, str]:
        """Error messages by field."""
        fields = self.problem.fields if self.problem is not None else {}
        problems = fields.get("problems")
        return problems if isinstance(problems, dict) else {}

    @property
    def buttons(self) -> bool:
        """Whether choices are shown as buttons."""
        form = self.form
        few = form is not None and form.kind == "choices" and len(form.choices) <= _BUTTONS
        return few and form is not None and all(len(choice.label) <= _BUTTON for choice in form.choices)

    @property
    def group(self) -> tuple[str, ...]:
        """The choices, by which requests are grouped; () if there are none."""
        return tuple(choice.text for choice in self.form.choices) if self.form is not None and self.form.kind == "choices" else ()


class AskedQuestion(NamedTuple):
    """The recorded question of an answered request."""

    payload: Any
    tag: str | None = None
    cut: bool = False  # whether only the question was kept

    def as_request(self) -> Request:
        return Request("", "", "", self.tag, self.payload, "", 0, "", "")

    @property
    def question(self) -> str:
        """The question as text; "" if there is none."""
        return question_of(self.as_request())

    @property
    def headline(self) -> str:
        return headline(self.question)

    @property
    def below(self) -> Markup | None:
        """The rest of the question after the headline."""
        return _below(self.question)

    @property
    def context(self) -> list[tuple[str, Markup, bool]]:
        return [] if self.cut else _context(self.as_request())

    def choices(self, value: Any) -> list[tuple[str, bool]]:
        """The offered choices, and whether each was chosen."""
        try:
            form = form_of(rule_of({}, "", self.payload))
        except CliaError:
            return []  # invalid rule: no choices
        return [(choice.label, problem_of({"enum": [choice.value]}, value) is None) for choice in form.choices[:_OFFERED]]


class AnsweredCard(NamedTuple):
    """A request that is no longer pending."""

    agent: str
    request: str
    session: str
    site: str
    status: str  # of its session
    asked: AskedQuestion | None = None  # if still known
    by: str | None = None
    at: str | None = None
    value: Any = None
    error: str | None = None  # why it was given up
    decision: str | None = None
    rationale: str = ""
    given: bool = False  # whether it was answered at all

    @property
    def id(self) -> str:
        return card_id(self.agent, self.request)

    @property
    def title(self) -> str:
        """The question, else the request id."""
        return (self.asked.headline if self.asked is not None else "") or f"Request {self.request}"

    @property
    def shown(self) -> tuple[Markup, bool]:
        return shown(self.value)

    @property
    def choices(self) -> list[tuple[str, bool]]:
        return self.asked.choices(self.value) if self.asked is not None and self.given and self.error is None else []


class DecisionRow(NamedTuple):
    """A row of the list of recent decisions."""

    commit: AgentCommit
    site: str

    @property
    def value(self) -> tuple[Markup, bool]:
        try:
            return shown(json.loads(self.commit.value or "null"))
        except (ValueError, RecursionError):
            return shown(self.commit.value)

    @property
    def question(self) -> str:
        """The question, truncated for a heading; "" if the commit does not have it."""
        request = asked_in(self.commit)
        return "" if request is None else request.headline

    @property
    def rationale(self) -> str:
        return rationale_of(self.commit)

    @property
    def address(self) -> str:
        return address_of(self.site, self.commit.agent or "", self.commit.request or "")


def card_id(agent: str, request: str) -> str:
    """The element id; agent names contain no dots."""
    return f"q.{agent}.{request}"


def address_of(site: str, agent: str, request: str) -> str:
    return link("s", site, "inbox", agent, request)


def headline(question: str) -> str:
    """The first line of a question, truncated for a heading."""
    line = question.strip().split("\n", 1)[0]
    return line if len(line) <= _HEADLINE else f"{line[: _HEADLINE - 1]}…"


def _below(question: str) -> Markup | None:
    rest = question.strip().removeprefix(headline(question)).strip("\n")
    return escaped(rest) if rest else None


def _context(request: Request) -> list[tuple[str, Markup, bool]]:
    return [(key, *shown(value)) for key, value in context_of(request)]


def shown(value: Any) -> tuple[Markup, bool]:
    """A rendered value, and whether it is text."""
    return (escaped(value), True) if isinstance(value, str) else (jsons.to_html(value), False)


def card_of(site: Site, request: Request, *, as_json: bool = False) -> PendingCard:
    """The card of a request; only questions to people have a form."""
    if not is_for_people(request):
        return PendingCard(request, site.name, None)
    try:
        rule = site.space.rule(request)
        form = raw_form(rule) if as_json else form_of(rule)
    except CliaError as err:
        return PendingCard(request, site.name, None, problem=err)
    return PendingCard(request, site.name, form, initial(form), as_json=as_json)


def find_pending(space: Space, agent: str, request_id: str) -> Request | None:
    """A pending request of any kind, or None; raises ``NotFound`` for an unknown agent."""
    try:
        waiting = space.pending(agent)
    except InvalidInput:
        raise NotFound(f"unknown agent {agent!r}", code="no-such-agent", fields={"agent": agent}) from None
    return next((request for request in waiting if request.id == request_id), None)


# Answered requests


def answered(site: Site, agent: str, request_id: str) -> AnsweredCard:
    """A request that is no longer pending; raises ``NotFound`` if it never existed."""
    number, session = request_id.rpartition(".")[2], _session(site.space, agent, request_id)
    answer = AnsweredCard(agent, request_id, session.id, site.name, session.status, _asked_at_start(session))
    resumes = session.given()
    for resume in resumes:
        if str(resume.call) == number:
            commit = None if resume.decision is None else _commit(site.space, resume.decision)
            response = answer._replace(by=resume.by, at=resume.at, value=resume.value, error=resume.error, decision=resume.decision)
            return _with_commit(response._replace(given=True), commit)
    was_asked = number.isascii() and number.isdigit() and int(number[:9]) <= max((resume.call for resume in resumes), default=0)
    if session.live or (session.status == FINISHED and not was_asked) or not (number.isascii() and number.isdigit()):
        raise _unknown(agent, request_id)
    return answer._replace(at=session.ended_at)  # its session ended without an answer


def _session(space: Space, agent: str, request_id: str) -> Session:
    try:
        return space.session(agent, request_id.rpartition(".")[0])
    except InvalidInput:
        raise _unknown(agent, request_id) from None
    except NotFound as err:
        raise (_unknown(agent, request_id) if err.code == "no-such-session" else err) from None


def _unknown(agent: str, request_id: str) -> NotFound:
    return NotFound(
        f"agent {agent!r} has no request {request_id!r}", code="no-such-request", hints=["see the inbox for pending questions"]
    )


def _asked_at_start(session: Session) -> AskedQuestion | None:
    """The question, if it is the session's input: journals record only answers."""
    return AskedQuestion(session.input) if session.id.startswith(ASK) else None


def _with_commit(answer: AnsweredCard, commit: AgentCommit | None) -> AnsweredCard:
    """Add the rationale and, unless a fuller one is known, the question from the decision's commit."""
    if commit is None:
        return answer
    request = asked_in(commit)
    return answer._replace(
        rationale=rationale_of(commit), asked=answer.asked if request is None or (request.cut and answer.asked) else request
    )


def asked_in(commit: AgentCommit) -> AskedQuestion | None:
    """The question in a decision's commit; None in older commits."""
    if commit.kind != DECISION or "asked" not in commit.meta:
        return None
    return AskedQuestion(commit.meta["asked"], commit.tag, commit.meta.get("cut") is True)


def rationale_of(commit: AgentCommit) -> str:
    """The rationale of a decision; "" if the message is generated."""
    text = commit.message.strip()
    ours = text.startswith("decision: ") and text.endswith(f" {commit.request})") and "\n" not in text
    return "" if ours else text


# Recent decisions


def newest_decisions(site: Site) -> list[DecisionRow]:
    """Recent decisions, newest first: from the feed, supplemented by the newest commits if it is short."""
    space = site.space
    commits = [commit for commit in (_commit(space, cid) for cid in _told(site)) if commit is not None]
    if len(commits) < DECIDED:
        cids = {commit.cid for commit in commits}
        commits += [commit for commit in space.window(limit=_WINDOW) if commit.cid not in cids]
    decisions = [commit for commit in commits if commit.kind == DECISION and commit.request and commit.agent]
    decisions.sort(key=lambda commit: commit.committer.at, reverse=True)
    return [DecisionRow(commit, site.name) for commit in decisions[:DECIDED]]


def _told(site: Site) -> list[str]:
    """The newest decisions in the feed, newest first."""
    entries = site.feed.read(max(0, site.feed.end() - _LOOK_BACK), _LOOK_BACK)
    cids = (entry.body.get("answered", {}).get("decision") for entry in reversed(entries) if entry.body.get("event") == "session")
    return [cid for cid in cids if isinstance(cid, str)][:DECIDED]


def _commit(space: Space, cid: str) -> AgentCommit | None:
    try:
        return space.show(cid)
    except CliaError:
        return None  # its branch was deleted and git pruned it


# Filtering


def for_people(requests: Sequence[Request], q: str = "") -> list[Request]:
    """The questions to people that match a filter, oldest first."""
    word = q.casefold()
    return [
        request
        for request in requests
        if is_for_people(request)
        and (not word or any(word in text.casefold() for text in (request.agent, request.flow, question_of(request))))
    ]
