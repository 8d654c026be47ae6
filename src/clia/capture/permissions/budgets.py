"""Budgets: what agents may use in a day or a session, and the question when it is used up.

Invariant: what is used is counted from the record and from the tools' transcripts, each time; nothing is estimated. A budget that
is used up refuses the next call, request or run until a person lifts it, for the rest of its day or session. The question about it
is asked once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NamedTuple

from clia.capture.usage import Usage, transcript_usage, usage_in
from clia.errors import Conflict, NotAllowed, NotFound
from clia.sessions.flows import ASK
from clia.values.clock import timestamp
from clia.verbs import VIEWER, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.api.parameters import Agent
    from clia.capture.service import CapturedSession
    from clia.facade.components import Components
    from clia.facade.config import Budget
    from clia.facade.space import Space

LIMITS = ("tokens", "cost", "seconds", "calls", "commits")
USED_UP = "budget-used-up"
"""The code of the error that refuses a call, a request or a run."""
_ROWS = "budgets/"
_LIFT = "lift"


class BudgetState(NamedTuple):
    """One limit of a budget, and what is used of it."""

    scope: str  # `space`, `identity` or `agent`
    name: str  # the identity or agent; empty for the space
    per: str  # `day` (UTC) or `session`
    limit: str  # `tokens`, `cost`, `seconds`, `calls` or `commits`
    allowed: float  # how much may be used
    used: float  # how much is used
    since: str  # start of the day or session, RFC 3339
    state: str  # `ok`, `warn`, `stop`, or by a person `lifted` or `refused`
    question: str | None = None  # request that asks people to lift it

    @property
    def key(self) -> str:
        return f"{_ROWS}{self.scope}/{self.name}/{self.limit}/{self.since}"

    def __str__(self) -> str:
        whose = "the space" if self.scope == "space" else f"the {self.scope} {self.name}"
        return f"the budget of {whose} is used up: {self.amounts} {self.limit} per {self.per}"

    @property
    def amounts(self) -> str:
        """``2 of 500``."""
        return " of ".join(f"{number:.2f}".rstrip("0").rstrip(".") for number in (self.used, self.allowed))


class _Window(NamedTuple):
    start: str  # RFC 3339
    session: str  # the captured session that it is for; empty: all


def budget_refusal(space: Space, agent: str) -> str | None:
    """Why no further call of an agent is allowed: a budget that is used up. None if there is none."""
    try:
        space.budgets.check(agent)
    except (Conflict, NotAllowed) as err:
        if err.code != USED_UP:
            raise
        return ". ".join([err.message, *err.hints])
    return None


class BudgetService:
    """The budgets of agents."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @property
    def is_configured(self) -> bool:
        """Whether the configuration states a budget."""
        return bool(self._components.config.budgets)

    @verb("GET", "/agents/{name}/budgets", VIEWER, "agents", "budgets")
    def __call__(self, name: Agent) -> list[BudgetState]:
        """The limits that apply to an agent, and what is used of each."""
        return list(self._states(name))

    def check(self, name: Annotated[str, "agent name"]) -> None:
        """``Conflict`` if a budget of an agent is used up and no person lifted it; people are asked once."""
        for state in self._states(name) if self.is_configured else ():
            if state.state == "warn":
                self._warn(name, state)
            elif state.state == "refused":
                raise NotAllowed(f"{state}, and a person refused to lift it", code=USED_UP, fields={"agent": name})
            elif state.state == "stop":
                question = state.question or self._ask_once(name, state)
                hints = [f"a person can lift it: clia decide {name} {_LIFT} --request {question}"]
                raise Conflict(str(state), code=USED_UP, hints=hints, fields={"agent": name, "request": question})

    def _states(self, name: str) -> Iterator[BudgetState]:
        slug = (self._components.agents.origin_of(name).profile or {}).get("slug")
        for budget in self._components.config.budgets:
            if budget.scope == "space" or (budget.scope, budget.name) in (("agent", name), ("identity", slug)):
                yield from self._of_budget(budget, name)

    def _of_budget(self, budget: Budget, name: str) -> Iterator[BudgetState]:
        window = self._window(budget.per, name)
        agents = [name] if budget.scope == "agent" else self._agents(budget)
        used: dict[str, float] = dict.fromkeys(LIMITS, 0.0)
        for agent in agents:
            for limit, amount in self._used(agent, window, budget.token_price).items():
                used[limit] += amount
        for limit in LIMITS:
            allowed = getattr(budget, limit)
            if allowed is None:
                continue
            share = used[limit] / allowed
            word = "stop" if share >= 1 else "warn" if share >= budget.warn else "ok"
            state = BudgetState(budget.scope, budget.name, budget.per, limit, allowed, used[limit], window.start, word)
            yield self._with_question(state)

    def _agents(self, budget: Budget) -> list[str]:
        agents = self._components.agents
        names = agents.names()
        if budget.scope == "space":
            return names
        return [name for name in names if (agents.origin_of(name).profile or {}).get("slug") == budget.name]

    def _window(self, per: str, name: str) -> _Window:
        now = self._components.core.clock()
        day = timestamp(now.replace(hour=0, minute=0, second=0, microsecond=0))
        if per == "day":
            return _Window(day, "")
        sessions = [row for row in self._captured(name) if not row.sub]
        newest = max(sessions, key=lambda row: row.started, default=None)
        if newest is not None:
            return _Window(newest.started, newest.session)
        live = self._components.lifecycle.sessions(name, live=True)
        return _Window(live[0].started_at if live else day, "")

    def _captured(self, name: str) -> list[CapturedSession]:
        return [row for row in self._components.captures.sessions() if row.agent == name]

    def _used(self, name: str, window: _Window, price: float) -> dict[str, float]:
        usage, calls, commits = Usage(), 0, 0
        entries = list(self._components.traces.pending(name))
        for commit in self._components.history.own(name):
            if timestamp(datetime.fromtimestamp(commit.committer.at, self._components.core.clock().tzinfo)) < window.start:
                break
            commits += 1
            trace = self._components.traces.trace_for(commit.cid)
            entries += map(dict, trace.entries if trace is not None else ())
        for entry in entries:
            if str(entry.get("at") or "") < window.start:
                continue
            data = entry.get("data")
            calls += entry.get("kind") == "tool-call"
            usage = usage.plus(usage_in(data.get("usage") if isinstance(data, dict) else None))
        seconds = 0.0
        for row in self._captured(name):
            if window.session in ("", row.session):
                usage = usage.plus(transcript_usage(row.transcript, window.start) if row.transcript else Usage())
                seconds += _between(max(row.started, window.start), row.last)
        cost = usage.cost + usage.tokens * price / 1_000_000
        return {"tokens": usage.tokens, "cost": cost, "seconds": seconds, "calls": calls, "commits": commits}

    # Questions

    def _with_question(self, state: BudgetState) -> BudgetState:
        row = self._components.core.store.get(state.key) if state.state == "stop" else None
        if row is None or "request" not in row.value:
            return state
        agent, request = row.value["agent"], row.value["request"]
        try:
            session = self._components.lifecycle.session(agent, request.rpartition(".")[0])
        except NotFound:
            return state
        if session.live:
            return state._replace(question=request)
        answers = session.given()
        lifted = bool(answers) and answers[-1].decision is not None and answers[-1].value == _LIFT
        return state._replace(state="lifted" if lifted else "refused", question=request)

    def _ask_once(self, name: str, state: BudgetState) -> str:
        """The question about a budget; of several processes that find it used up, one asks."""
        with self._components.core.locks.hold("@budgets"):
            return self._with_question(state).question or self._ask(name, state)

    def _ask(self, name: str, state: BudgetState) -> str:
        question = f"{str(state)[0].upper()}{str(state)[1:]}. Lift it for this {state.per}?"
        payload: dict[str, Any] = {"question": question, "choices": [_LIFT, "stop"], "clia": {"budget": state.key}}
        for other in self._components.lifecycle.sessions(questions=True):  # by a process that was killed before it kept this
            internal = other.input.get("clia") if isinstance(other.input, dict) else None
            if isinstance(internal, dict) and internal.get("budget") == state.key:
                return self._keep(other.agent, state, f"{other.id}.1")
        session = self._components.lifecycle.start(name, ASK, payload, "UTC", None)
        return self._keep(name, state, session.pending[0].id)

    def _keep(self, name: str, state: BudgetState, request: str) -> str:
        with self._components.core.store.writing() as transaction:
            transaction.values.put(state.key, {"agent": name, "request": request})
        return request

    def _warn(self, name: str, state: BudgetState) -> None:
        """Note in the trace that most of a budget is used, once."""
        store = self._components.core.store
        if store.get(f"{state.key}/warned") is None:
            with store.writing() as transaction:
                transaction.values.put(f"{state.key}/warned", True)
            share = f"{state.amounts} {state.limit} per {state.per}"
            text = f"most of a budget ({state.scope} {state.name}) is used: {share}"
            self._components.traces.add(name, "note", text, {"budget": state.key})


def _between(start: str, end: str) -> float:
    try:
        return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
    except ValueError:
        return 0.0
