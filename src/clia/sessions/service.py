"""The verbs of a space that are about sessions: flows, requests, decisions, forks.

Invariant: nothing is decided here. A verb's rules live in the module of ``clia.sessions`` that its line names.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.engine.records import FlowAnswer
from clia.errors import InvalidDocument, InvalidInput
from clia.sessions.answers import Rule, check_answer, check_in_subprocess, rule_of, schema_problem
from clia.sessions.decisions import Decisions
from clia.sessions.flows import ASK, Flows
from clia.sessions.forks import Forks
from clia.sessions.health import Health
from clia.sessions.lifecycle import Lifecycle
from clia.sessions.model import Request
from clia.sessions.replay import Replay
from clia.sessions.transitions import Transitions
from clia.values.commit_messages import check_text
from clia.values.refs import is_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from typing import Any

    from clia.engine.records import Engine, Problem
    from clia.facade.config import Config
    from clia.federation.tracking import PeerTracking
    from clia.sessions.checkpoints import Checkpoints
    from clia.sessions.health import Ailment
    from clia.sessions.model import Decision, Flow, Session
    from clia.sessions.replay import KeptRuns
    from clia.space.agents import Agents
    from clia.space.behaviour_chains import BehaviourChains
    from clia.space.commits import Commits
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.history import History
    from clia.space.traces import Traces
    from clia.store.interface import Queue, Waiting
    from clia.values.clock import Clock


class Running(NamedTuple):
    """What sessions need beside the space."""

    engine: Engine
    shelf: KeptRuns  # shared by all spaces of a process, as the engine is
    place: Hashable  # which store and which engine: handles on the same place may go on with each other's runs
    queue: Queue
    seed: Callable[[], str]  # another one for each session
    config: Config  # the operator's
    workplace: str  # the directory for worktrees that workers make
    clock: Clock  # the space's: machines that share a store have one


class SessionVerbs:
    """Half of ``Space``."""

    _core: Core
    _envelope: Envelope
    _agents: Agents
    _traces: Traces
    _commits: Commits
    _history: History
    _tracking: PeerTracking
    _chains: BehaviourChains
    _whole_id: Callable[[str], str]  # of a version that is named by the start of its id

    def _set_up_sessions(self, checkpoints: Checkpoints, running: Running) -> None:
        core, envelope = self._core, self._envelope
        self._running = running
        self._flows = Flows(core, self._chains, running.engine)
        self._replay = replay = Replay(running.engine, core.store, self._flows.source, running.shelf, running.place)
        transitions = Transitions(core, envelope, self._traces)
        self._lifecycle = Lifecycle(core, envelope, self._flows, replay, transitions, running.seed, self._check_running)
        self._decisions = Decisions(core, envelope, self._commits, self._lifecycle, transitions, self._check)
        check = self._lifecycle.check_beginning
        self._health = Health(core, envelope, self._agents, checkpoints, replay, transitions, check)
        self._forks = Forks(core, envelope, self._agents, self._traces, checkpoints, self._lifecycle, (replay, transitions))

    def _check_running(self, flow: str, cid: str | None = None) -> None:
        self._tracking.check_running(flow, cid)

    @property
    def running(self) -> Running:
        """What its sessions run on: for workers."""
        return self._running

    # Flows

    def define(self, name: str, source: str, *, why: str = "") -> Flow:
        """Makes a source the current version of a flow; ``InvalidFlow`` says what in it cannot work."""
        return self._flows.define(name, source, why)

    def flows(self) -> list[Flow]:
        """Every flow that is defined here, sorted by name."""
        return self._flows.all()

    def flow(self, text: str) -> Flow:
        """A flow by its name, or one version of it by its id; ``PEER/NAME``: one of a peer's that is tracked here."""
        return self._flows.get(self._tracking.readable(check_text(text, "flow")))

    def check_flow(self, source: str, *, types: bool = True) -> list[Problem]:
        """What cannot work in a flow, in its own lines; nothing is run or kept."""
        return self._flows.check(source, types=types)

    # Sessions

    def start(self, agent: str, flow: str, input: Any = None, *, timezone: str = "UTC") -> Session:  # noqa: A002  # as the flow calls it
        """Runs a flow for an agent up to its first request. An agent has at most one live session.

        ``PEER/NAME`` is a behaviour of a peer; it takes a grant with ``execute``.
        """
        flow = self._whole_id(check_text(flow, "flow"))
        if is_id(flow):
            self._flows.source(flow)  # what is no flow at all is said before who may run it
        found, named = (flow, None) if flow in (ASK, self._flows.ask()) else self._tracking.runnable(flow)
        return self._lifecycle.start(agent, found, input, timezone, named)

    def session(self, agent: str, session_id: str | None = None) -> Session:
        """An agent's session: the live one, else the last."""
        return self._lifecycle.session(agent, session_id)

    def sessions(self, agent: str | None = None, *, live: bool = False) -> list[Session]:
        """Every session, live ones first."""
        return self._lifecycle.sessions(agent, live=live)

    def journal(self, agent: str, session_id: str | None = None) -> list[dict[str, Any]]:
        """What is recorded of a session, event by event."""
        return self._lifecycle.journal(agent, session_id)

    def resume(self, agent: str, value: Any, request_id: str | None = None, *, by: str | None = None) -> Session:
        """Answers a request; the id may be left out while just one is pending. A person's question takes a decision instead."""
        return self._lifecycle.resume(agent, FlowAnswer(value), request_id, by)

    def give_up(self, agent: str, reason: str, request_id: str | None = None, *, by: str | None = None) -> Session:
        """Answers a request with an error: it raises ``RuntimeError`` in the flow, which may catch it."""
        text = self._core.clean.text(check_text(reason, "reason"), "reason")
        return self._lifecycle.resume(agent, FlowAnswer(error=text), request_id, by)

    def cancel(self, agent: str, reason: str = "", *, session_id: str | None = None) -> Session:
        """Ends a session that nobody needs any more."""
        return self._lifecycle.cancel(agent, reason, session_id)

    def fork(self, agent: str, as_agent: str, at: str | None = None) -> Session:
        """A new agent whose session is where this one is, or was at a commit."""
        return self._forks.fork(agent, as_agent, None if at is None else self._history.find(check_text(at, "at")))

    # People

    def pending(self, agent: str | None = None) -> list[Request]:
        """Every request that waits for an answer, the oldest first."""
        return self._lifecycle.pending(agent)

    def rule(self, request: Request) -> Rule:
        """What a request may be answered with: the operator's rule for its kind, else its own."""
        if not isinstance(request, Request):
            raise InvalidInput("a rule is asked for by a clia.Request", code="invalid-request", fields={"field": "request"})
        return self._rule(request.kind, request.payload)

    def check_answer(self, request: Request, value: Any) -> None:
        """``InvalidAnswer`` with the reason, unless a request takes a value; nothing is recorded."""
        self.rule(request)
        self._check(request.id, request.kind, request.payload, self._lifecycle.crossed(value, "value"))

    def _check(self, request_id: str, kind: str, payload: Any, value: Any) -> None:
        check_answer(self._rule(kind, payload), request_id, kind, value, check_in_subprocess)

    def _rule(self, kind: str, payload: Any) -> Rule:
        config = self._running.config
        problem = schema_problem(config.answers[kind]) if kind in config.answers else None
        if problem is not None:
            field = f"answers.{kind}.schema"
            raise InvalidDocument(
                f"{config.path}: {field} is no JSON Schema: {problem}",
                code="invalid-config",
                fields={"path": config.path, "field": field},
            )
        return rule_of(config.answers, kind, payload)

    def ask(self, agent: str, payload: Mapping[str, Any]) -> Request:
        """Puts one question to people, beside the agent's session if it has one."""
        session = self._lifecycle.start(agent, ASK, payload)
        if session.pending:
            return session.pending[0]
        why = (session.failure or {}).get("message", "it ended at once")
        raise InvalidInput(f"the question cannot be put: {why}", code="invalid-question", fields={"agent": agent, "reason": why})

    def decide(
        self, agent: str, value: Any, rationale: str = "", *, by: str | None = None, request_id: str | None = None
    ) -> Decision:
        """A person's answer: a commit on the agent's branch, then a resume."""
        return self._decisions.decide(agent, value, rationale, by, request_id)

    # Upkeep

    def attempts(self) -> list[Waiting]:
        """What workers have tried and not yet answered: how often, who has it, and what the last attempt said."""
        return self._running.queue.waiting()

    def doctor(self, *, repair: bool = False) -> list[Ailment]:
        """What is wrong with sessions; with ``repair``, what can be put right is."""
        return self._health.examine(repair=repair)
