"""What the inbox shows of a request: its question and form while it waits, and who answered what once it does not.

Invariant: a request that cannot be shown properly (a rule that cannot be read, a journal that is damaged) hides no other.
What was decided is read from git, which has it for good, and so is what was asked; where to look is taken from the feed, which
is quick.
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
    from clia.forge.rendering.forms import Form
    from clia.sessions.model import Session
    from clia.space.model import AgentCommit

DECIDED = 20
"""Decisions that stay in sight."""
_LOOK_BACK = 2000  # entries of the feed
_WINDOW = 200  # commits
_BUTTONS, _BUTTON = 6, 40  # so many choices of so many characters are buttons
_HEADLINE = 160
_OFFERED = 50  # choices of a request that was answered


class Card(NamedTuple):
    """A request that waits."""

    request: Request
    site: str
    form: Form | None  # None: see the problem
    posted: Mapping[str, Sequence[str]] = {}
    rationale: str = ""
    as_json: bool = False
    edited: bool = False  # whether it shows what somebody typed
    problem: CliaError | None = None

    @property
    def id(self) -> str:
        return card_id(self.request.agent, self.request.id)

    @property
    def address(self) -> str:
        return address_of(self.site, self.request.agent, self.request.id)

    @property
    def headline(self) -> str:
        """The question as far as it fits a heading."""
        return headline(question_of(self.request))

    @property
    def question(self) -> Markup | None:
        """What the headline does not tell: the lines after it, or all of a question whose first line is too long for one."""
        return _below(question_of(self.request))

    @property
    def context(self) -> list[tuple[str, Markup, bool]]:
        """What is said beside it: by name, shown, and whether it is a text."""
        return _context(self.request)

    @property
    def errors(self) -> Mapping[str, str]:
        """What is wrong, by field."""
        fields = self.problem.fields if self.problem is not None else {}
        found = fields.get("problems")
        return found if isinstance(found, dict) else {}

    @property
    def buttons(self) -> bool:
        """Whether each choice is a button of its own."""
        form = self.form
        few = form is not None and form.kind == "choices" and len(form.choices) <= _BUTTONS
        return few and form is not None and all(len(each.label) <= _BUTTON for each in form.choices)

    @property
    def group(self) -> tuple[str, ...]:
        """The choices, by which requests can be answered together; () where it has none."""
        return tuple(each.text for each in self.form.choices) if self.form is not None and self.form.kind == "choices" else ()


class Asked(NamedTuple):
    """What was asked, as it is known once the answer is there."""

    payload: Any
    tag: str | None = None
    cut: bool = False  # whether the question is all that was kept

    def as_request(self) -> Request:
        return Request("", "", "", self.tag, self.payload, "", 0, "", "")

    @property
    def question(self) -> str:
        """In one text; "" where it was not put in words."""
        return question_of(self.as_request())

    @property
    def headline(self) -> str:
        return headline(self.question)

    @property
    def below(self) -> Markup | None:
        """What the headline does not tell."""
        return _below(self.question)

    @property
    def context(self) -> list[tuple[str, Markup, bool]]:
        return [] if self.cut else _context(self.as_request())

    def choices(self, value: Any) -> list[tuple[str, bool]]:
        """The choices that were offered, and whether each is the value."""
        try:
            form = form_of(rule_of({}, "", self.payload))
        except CliaError:
            return []  # what is no rule offers nothing
        return [(each.label, problem_of({"enum": [each.value]}, value) is None) for each in form.choices[:_OFFERED]]


class Answered(NamedTuple):
    """A request that does not wait any more."""

    agent: str
    request: str
    session: str
    site: str
    status: str  # of its session
    asked: Asked | None = None  # where it is still known
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
        """The question, or what else names the request."""
        return (self.asked.headline if self.asked is not None else "") or f"Request {self.request}"

    @property
    def shown(self) -> tuple[Markup, bool]:
        return shown(self.value)

    @property
    def choices(self) -> list[tuple[str, bool]]:
        return self.asked.choices(self.value) if self.asked is not None and self.given and self.error is None else []


class Decided(NamedTuple):
    """A decision in the list of the newest."""

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
        """As far as it fits a heading; "" where the commit does not say."""
        asked = asked_in(self.commit)
        return "" if asked is None else asked.headline

    @property
    def rationale(self) -> str:
        return rationale_of(self.commit)

    @property
    def address(self) -> str:
        return address_of(self.site, self.commit.agent or "", self.commit.request or "")


def card_id(agent: str, request: str) -> str:
    """In a page; no name of an agent holds a dot."""
    return f"q.{agent}.{request}"


def address_of(site: str, agent: str, request: str) -> str:
    return link("s", site, "inbox", agent, request)


def headline(question: str) -> str:
    """The first line of a question, as far as it fits a heading."""
    line = question.strip().split("\n", 1)[0]
    return line if len(line) <= _HEADLINE else f"{line[: _HEADLINE - 1]}…"


def _below(question: str) -> Markup | None:
    rest = question.strip().removeprefix(headline(question)).strip("\n")
    return escaped(rest) if rest else None


def _context(request: Request) -> list[tuple[str, Markup, bool]]:
    return [(key, *shown(value)) for key, value in context_of(request)]


def shown(value: Any) -> tuple[Markup, bool]:
    """A value for people, and whether it is a text."""
    return (escaped(value), True) if isinstance(value, str) else (jsons.to_html(value), False)


def card_of(site: Site, request: Request, *, as_json: bool = False) -> Card:
    """A request with the form that answers it."""
    try:
        rule = site.space.rule(request)
        form = raw_form(rule) if as_json else form_of(rule)
    except CliaError as err:
        return Card(request, site.name, None, problem=err)
    return Card(request, site.name, form, initial(form), as_json=as_json)


def find_pending(space: Space, agent: str, request_id: str) -> Request | None:
    """A request that waits for anyone; ``NotFound`` where there is no such agent."""
    try:
        waiting = space.pending(agent)
    except InvalidInput:
        raise NotFound(f"there is no agent {agent!r} here", code="no-such-agent", fields={"agent": agent}) from None
    return next((each for each in waiting if each.id == request_id), None)


# What was answered


def answered(site: Site, agent: str, request_id: str) -> Answered:
    """What became of a request that does not wait; ``NotFound`` for one that never was."""
    number, session = request_id.rpartition(".")[2], _session(site.space, agent, request_id)
    made = Answered(agent, request_id, session.id, site.name, session.status, _asked_at_start(session))
    given = session.given()
    for each in given:
        if str(each.call) == number:
            commit = None if each.decision is None else _commit(site.space, each.decision)
            said = made._replace(by=each.by, at=each.at, value=each.value, error=each.error, decision=each.decision)
            return _with_commit(said._replace(given=True), commit)
    asked = number.isascii() and number.isdigit() and int(number[:9]) <= max((each.call for each in given), default=0)
    if session.live or (session.status == FINISHED and not asked) or not (number.isascii() and number.isdigit()):
        raise _unknown(agent, request_id)
    return made._replace(at=session.ended_at)  # its session was over before anybody answered


def _session(space: Space, agent: str, request_id: str) -> Session:
    try:
        return space.session(agent, request_id.rpartition(".")[0])
    except InvalidInput:
        raise _unknown(agent, request_id) from None
    except NotFound as err:
        raise (_unknown(agent, request_id) if err.code == "no-such-session" else err) from None


def _unknown(agent: str, request_id: str) -> NotFound:
    return NotFound(f"{agent!r} has no request {request_id!r}", code="no-such-request", hints=["the inbox shows what waits"])


def _asked_at_start(session: Session) -> Asked | None:
    """A journal keeps answers only, so it tells what was asked where that was the session's input."""
    return Asked(session.input) if session.id.startswith(ASK) else None


def _with_commit(made: Answered, commit: AgentCommit | None) -> Answered:
    """What the decision's commit adds: why, and the question unless all of it is known better."""
    if commit is None:
        return made
    kept = asked_in(commit)
    return made._replace(rationale=rationale_of(commit), asked=made.asked if kept is None or (kept.cut and made.asked) else kept)


def asked_in(commit: AgentCommit) -> Asked | None:
    """What a decision answers; None where its commit does not say, as older ones do not."""
    if commit.kind != DECISION or "asked" not in commit.meta:
        return None
    return Asked(commit.meta["asked"], commit.tag, commit.meta.get("cut") is True)


def rationale_of(commit: AgentCommit) -> str:
    """Why somebody decided so; "" where they did not say, and the message is our own."""
    text = commit.message.strip()
    ours = text.startswith("decision: ") and text.endswith(f" {commit.request})") and "\n" not in text
    return "" if ours else text


# What was decided last


def newest_decisions(site: Site) -> list[Decided]:
    """The newest first. A feed that is young, or was lost, does not tell all; the newest commits do then."""
    space = site.space
    found = [each for each in (_commit(space, cid) for cid in _told(site)) if each is not None]
    if len(found) < DECIDED:
        known = {each.cid for each in found}
        found += [each for each in space.window(limit=_WINDOW) if each.cid not in known]
    made = [each for each in found if each.kind == DECISION and each.request and each.agent]
    made.sort(key=lambda each: each.committer.at, reverse=True)
    return [Decided(each, site.name) for each in made[:DECIDED]]


def _told(site: Site) -> list[str]:
    """The newest decisions that the feed knows of, the newest first."""
    entries = site.feed.read(max(0, site.feed.end() - _LOOK_BACK), _LOOK_BACK)
    found = (each.body.get("answered", {}).get("decision") for each in reversed(entries) if each.body.get("event") == "session")
    return [cid for cid in found if isinstance(cid, str)][:DECIDED]


def _commit(space: Space, cid: str) -> AgentCommit | None:
    try:
        return space.show(cid)
    except CliaError:
        return None  # its branch was taken away, and git forgot it


# Whom they wait for


def for_people(requests: Sequence[Request], q: str = "") -> list[Request]:
    """Questions to people that a filter lets through, in the order they came."""
    word = q.casefold()
    return [
        each
        for each in requests
        if is_for_people(each) and (not word or any(word in text.casefold() for text in (each.agent, each.flow, question_of(each))))
    ]
