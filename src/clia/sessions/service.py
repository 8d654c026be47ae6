"""Sessions of a space: flows, requests, decisions, forks.

Invariant: this module contains no rules. Those of a verb are in the module of ``clia.sessions`` that implements it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from clia.engine.records import FlowAnswer
from clia.errors import InvalidDocument, InvalidInput, NoSuchObject
from clia.sessions import records
from clia.sessions.answers import Rule, check_answer, check_in_subprocess, rule_of, schema_problem
from clia.sessions.decisions import GivenAnswer, SignedStatement
from clia.sessions.flows import ASK
from clia.sessions.model import INTERNAL, Request
from clia.trust.statements import read_proof, read_statement
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.values.types import GUARDRAIL_CHANGE, RULED_CHANGE
from clia.verbs import ADMIN, DECIDER, VIEWER, for_people, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from typing import Annotated, Any

    from clia.api.parameters import Agent, AnyAgent, FlowName, FlowSource, NewAgent, RequestId, SessionId
    from clia.engine.records import Engine, Problem
    from clia.facade.components import Components
    from clia.facade.config import Config
    from clia.sessions.health import Ailment
    from clia.sessions.model import Decision, Flow, Session
    from clia.sessions.records import Resumed
    from clia.sessions.replay import KeptRuns
    from clia.store.interface import Queue, Waiting
    from clia.trust.statements import PersonalStatement, StatementProof
    from clia.values.clock import Clock
    from clia.values.typed_objects import Briefing


class SessionBackend(NamedTuple):
    """The resources that sessions need in addition to the space."""

    engine: Engine
    shelf: KeptRuns  # shared by all spaces of a process, as the engine is
    place: Hashable  # which store and which engine: handles on the same place may continue each other's runs
    queue: Queue
    seed: Callable[[], str]  # a new one for each session
    config: Config  # the operator's
    clock: Clock  # the space's: machines that share a store have one


class SessionRecord(NamedTuple):
    """The input of a session, and its resumes in order."""

    input: Any  # what the flow was started with
    resumes: list[Resumed]  # the answers, in order


class SessionService:
    """Flows, sessions, and requests to people."""

    def __init__(self, components: Components) -> None:
        self._components = components

    # Flows

    @verb("PUT", "/flows/{name}", ADMIN, "flows")
    @for_people("propose it instead: clia behaviour propose NAME --from FILE --agent AGENT")
    def define(self, name: Annotated[str, "flow name"], source: FlowSource, *, why: str = "") -> Flow:
        """Make a source the current version of a flow; ``InvalidFlow`` lists the problems in it."""
        return self._components.flows.define(name, source, why)

    @verb("GET", "/flows", VIEWER, "flows")
    def flows(self) -> list[Flow]:
        """Every flow that is defined here, sorted by name."""
        return self._components.flows.all()

    @verb("GET", "/flows/{text}", VIEWER, "flows")
    def flow(self, text: FlowName) -> Flow:
        """A flow by its name, or a version by its id; ``PEER/NAME``: a tracked flow of a peer."""
        return self._components.flows.get(self._components.tracking.readable(check_text(text, "flow")))

    @verb("POST", "/flow-checks", VIEWER, "flows")
    def check_flow(self, source: FlowSource, *, types: bool = True) -> list[Problem]:
        """The problems in a flow, with their lines; nothing is run or stored."""
        return self._components.flows.check(source, types=types)

    # Sessions

    @verb("POST", "/agents/{agent}/sessions", ADMIN, "sessions", agent="agent")
    def start(
        self,
        agent: Agent,
        flow: FlowName,
        input: Annotated[Any, "input of the flow, any JSON"] = None,  # noqa: A002  # as the flow calls it
        *,
        timezone: Annotated[str, "time zone of the session"] = "UTC",
    ) -> Session:
        """Run a flow for an agent up to its first request. An agent has at most one live session.

        ``PEER/NAME`` runs a peer's behaviour; that needs a grant with ``execute``.
        """
        components = self._components
        flow = self._full_id(check_text(flow, "flow"))
        if flow in (ASK, components.flows.ask()):
            self.check_question(input)
        if names.is_id(flow):
            components.flows.source(flow)  # an id that is not a flow is reported before the missing right to run it
        version, name = (flow, None) if flow in (ASK, components.flows.ask()) else components.tracking.runnable(flow)
        return self._logged(components.lifecycle.start(agent, version, input, timezone, name))

    def _full_id(self, text: str) -> str:
        """The id of the version that a text is the start of; any other text unchanged."""
        if names.is_id(text) or not names.is_start_of_id(text):
            return text
        try:
            return self._components.library.version(text).cid
        except NoSuchObject:
            return text  # the caller reports what is missing

    @verb("GET", "/agents/{agent}/session", VIEWER, "sessions", "session")
    def get(self, agent: Agent, session_id: SessionId = None) -> Session:
        """An agent's live session, or else its last one."""
        return self._components.lifecycle.session(agent, session_id)

    @verb("GET", "/sessions", VIEWER, "sessions", "sessions")
    def __call__(self, agent: AnyAgent = None, *, live: bool = False) -> list[Session]:
        """Every session, live ones first."""
        return self._components.lifecycle.sessions(agent, live=live)

    def questions(self, agent: str | None = None) -> list[Session]:
        """The sessions of questions that were asked outside of flows, pending ones first."""
        return self._components.lifecycle.sessions(agent, questions=True)

    @verb("GET", "/agents/{agent}/session/given", VIEWER, "sessions", "given")
    def record(self, agent: Agent, session_id: SessionId = None) -> SessionRecord:
        """The input of a session, and what it was resumed with."""
        session = self._components.lifecycle.session(agent, session_id)
        return SessionRecord(session.input, session.given())

    @verb("GET", "/agents/{agent}/journal", VIEWER, "sessions")
    def journal(self, agent: Agent, session_id: SessionId = None) -> list[dict[str, Any]]:
        """The events of a session, in order."""
        return self._components.lifecycle.journal(agent, session_id)

    @verb("POST", "/agents/{agent}/resume", ADMIN, "sessions", agent="agent")
    def resume(
        self, agent: Agent, value: Annotated[Any, "the answer, any JSON"], request_id: RequestId = None, *, by: str | None = None
    ) -> Session:
        """Answer a request that is not for people.

        The id is optional while only one is pending. Questions to people are answered with ``decide``.
        """
        return self._logged(self._components.lifecycle.resume(agent, FlowAnswer(value), request_id, by))

    @verb("POST", "/agents/{agent}/give-up", ADMIN, "sessions", agent="agent")
    def give_up(self, agent: Agent, reason: str, request_id: RequestId = None, *, by: str | None = None) -> Session:
        """Answer a request with an error: it raises ``RuntimeError`` in the flow, which may catch it."""
        text = self._components.core.clean.text(check_text(reason, "reason"), "reason")
        return self._logged(self._components.lifecycle.resume(agent, FlowAnswer(error=text), request_id, by))

    @verb("POST", "/agents/{agent}/cancel", ADMIN, "sessions", agent="agent")
    def cancel(self, agent: Agent, reason: Annotated[str, "why"] = "", *, session_id: SessionId = None) -> Session:
        """End a session."""
        return self._logged(self._components.lifecycle.cancel(agent, reason, session_id))

    @verb("POST", "/agents/{agent}/retry", ADMIN, "sessions")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def retry(
        self, agent: Agent, reason: Annotated[str, "why"] = "", *, by: str | None = None, session_id: SessionId = None
    ) -> Session:
        """Retry a failed session from its last step, as a person.

        The last request is made again. If a person answered it, or the flow then exceeded a limit, the answer stays, and the
        flow runs again from there; if it fails again, nothing is recorded.
        """
        return self._components.reopening.retry(agent, reason, by, session_id)

    @verb("POST", "/agents/{agent}/fork", ADMIN, "sessions")
    def fork(
        self,
        agent: Agent,
        as_agent: NewAgent,
        at: Annotated[str | None, "commit of the agent (default: the current step)"] = None,
        *,
        briefing: Briefing | None = None,
    ) -> Session:
        """Create an agent whose session continues from where this one is, or was at a commit.

        ``briefing``: of the new agent (default: the same). An agent that was spawned and did nothing yet can take over the session.
        """
        commit = None if at is None else self._components.history.find(check_text(at, "at"))
        return self._components.forks.fork(agent, as_agent, commit, briefing)

    # People

    @verb("GET", "/pending", VIEWER, "requests")
    def pending(self, agent: Annotated[str | None, "only requests of this agent (default: all)"] = None) -> list[Request]:
        """Every request that waits for an answer, oldest first."""
        return self._components.lifecycle.pending(agent)

    @verb("POST", "/rules", VIEWER, "requests")
    def rule(self, request: Request) -> Rule:
        """The answers that a request accepts: the operator's rule for its kind, or else its own."""
        if not isinstance(request, Request):
            raise InvalidInput("request must be a clia.Request", code="invalid-request", fields={"field": "request"})
        return _rule(self._components.config, request.kind, request.payload)

    @verb("POST", "/answer-checks", VIEWER, "requests")
    def check_answer(self, request: Request, value: Any) -> None:
        """Check a value against a request: ``InvalidAnswer`` if it is not accepted. Nothing is recorded."""
        self.rule(request)
        lifecycle = self._components.lifecycle
        answer, _ = lifecycle.crossed(lifecycle.as_json(value, "value"), "value", request.payload)
        answer_checker(self._components.config)(request.id, request.kind, request.payload, answer)

    @verb("POST", "/agents/{agent}/asks", ADMIN, "requests", wire={"payload": "Any"}, agent="agent")
    def ask(self, agent: Agent, payload: Mapping[str, Any]) -> Request:
        """Ask people one question, beside the agent's session if it has one."""
        self.check_question(payload)
        return self.ask_for_clia(agent, payload)

    def check_question(self, payload: object) -> None:
        """Refuse a question that looks like one of clia's own: its words could hide what the answer allows."""
        fields = payload if isinstance(payload, Mapping) else {}
        reserved = f"/{INTERNAL}" if INTERNAL in fields else "/kind" if fields.get("kind") in _OWN_KINDS else None
        if reserved is not None:
            message = f"a question must not have {reserved} as clia's own questions do"
            own = "clia asks this itself when guardrails are lost or rules require it"
            hint = own if reserved == "/kind" else "choose another name for the field"
            raise InvalidInput(message, code="reserved-question", hints=[hint], fields={"field": reserved})

    def ask_for_clia(self, agent: str, payload: Mapping[str, Any]) -> Request:
        """Ask a question whose answer clia itself carries out, such as a grant. Its words must be clia's, not an agent's."""
        session = self._components.lifecycle.start(agent, ASK, payload)
        if session.pending:
            return session.pending[0]
        why = (session.failure or {}).get("message", "it ended at once")
        raise InvalidInput(f"the question cannot be asked: {why}", code="invalid-question", fields={"agent": agent, "reason": why})

    @verb("POST", "/agents/{agent}/decisions", DECIDER, "requests", moves="agent")
    @for_people("the question waits in their inbox: clia inbox")
    def decide(
        self, agent: Agent, value: Any, rationale: str = "", *, by: str | None = None, request_id: RequestId = None
    ) -> Decision:
        """Record a person's answer as a commit on the agent's branch, then resume the session."""
        return self._decided(self._components.decisions.decide(GivenAnswer(agent, value, rationale, by, request_id)))

    def state(
        self, agent: str, value: Any, rationale: str = "", *, person: str, by: str | None = None, request_id: str | None = None
    ) -> PersonalStatement:
        """The statement for an answer, as of now, which a person signs. Nothing is recorded."""
        return self._components.decisions.state(GivenAnswer(agent, value, rationale, by, request_id), person)

    @for_people("the question waits in their inbox: clia inbox")
    def decide_signed(self, statement: PersonalStatement, proofs: Sequence[StatementProof], *, by: str | None = None) -> Decision:
        """Record an answer that a person has signed. The caller has verified the proofs.

        ``StaleRef`` if the agent has made a commit since; ``Conflict`` if the statement is about anything else.
        """
        answer = GivenAnswer(statement.about, statement.value, statement.reason, by, statement.request)
        return self._decided(self._components.decisions.decide(answer, SignedStatement(statement, tuple(proofs))))

    @verb("POST", "/agents/{agent}/statements", DECIDER, "requests", "state_decision")
    def statement(
        self, agent: Agent, value: Any, rationale: str = "", *, by: str | None = None, request_id: RequestId = None
    ) -> str:
        """The statement to sign for an answer, as canonical JSON. Nothing is recorded.

        Sign its bytes with ``ssh-keygen -Y sign -n clia``. Where another person waits for agreement, it is that person's statement.
        """
        person = self._components.lifecycle.by(by)
        statement = self.state(agent, value, rationale, person=person, by=by, request_id=request_id)
        return statement.data().decode("utf-8")

    @verb("POST", "/agents/{agent}/signed-decisions", DECIDER, "requests", "decide_with_proofs", moves="agent")
    @for_people("the question waits in their inbox: clia inbox")
    def decide_with_proofs(
        self,
        agent: Agent,
        statement: Annotated[str, "the signed statement, as canonical JSON"],
        proofs: Annotated[Sequence[str], "JSON with `method` (ssh), `key` (fingerprint) and `signature`, in canonical form"],
        *,
        by: str | None = None,
    ) -> Decision:
        """Record an answer with a statement that the person signed.

        ``AwaitsOthers`` if the policy asks for more people: it is kept, and another person completes it.
        """
        signed = read_statement(check_text(statement, "statement"))
        if signed.about != names.check_name(agent):
            fields = {"agent": agent, "about": signed.about}
            raise InvalidInput("the statement is about another agent", code="other-statement", fields=fields)
        return self.decide_signed(signed, [read_proof(check_text(proof, "proofs")) for proof in proofs], by=by)

    def _decided(self, decision: Decision) -> Decision:
        """Log a decision, and land the approved work if the operator wants that."""
        self._components.approvals.record(decision.agent)
        self._log_decision(decision)
        branch = self._components.config.approvals.land
        if branch is not None:
            land = partial(self._components.landing.land, by_agent=True)
            self._components.approvals.land(decision, branch, land)
            self._components.recorded_rules.land(decision, branch, land)
        return decision

    def check_agreement(self, agent: str, session_id: str) -> None:
        """Raise ``Conflict`` if the session is frozen, because store and git differ about it."""
        self._components.lifecycle.check_agreement(agent, session_id)

    def _log_decision(self, decision: Decision) -> None:
        """Write the decision to the journal, if the operator wants that."""
        if "decisions" in self._components.config.journal.write:
            text = f"{decision.by} decided {json.dumps(decision.value, ensure_ascii=False)} on request {decision.request}"
            about = {"decision": decision.cid, "session": decision.session.id}
            self._components.agent_journals.log(decision.agent, text, "decision", f"decision {decision.cid}", about)
        self._logged(decision.session)

    def _logged(self, session: Session) -> Session:
        """Write the end of a session to the journal, if it ended and the operator wants that."""
        if not session.live and not session.id.startswith(records.ASK) and "sessions" in self._components.config.journal.write:
            text = f"session {session.id} ({session.flow}) is {session.status}"
            key = f"session {session.agent} {session.id} {session.started_at}"
            self._components.agent_journals.log(session.agent, text, "log", key, {"session": session.id})
        return session

    # Upkeep

    @verb("GET", "/attempts", VIEWER, "upkeep")
    def attempts(self) -> list[Waiting]:
        """The requests that workers have tried and not yet answered: attempts, current worker, last error."""
        return self._components.queue.waiting()

    @verb("GET", "/doctor", VIEWER, "upkeep", "doctor")
    def examine(self) -> list[Ailment]:
        """Problems of sessions and refs."""
        return self._components.health.examine(repair=False)

    @verb("POST", "/doctor", ADMIN, "upkeep")
    def repair(self) -> list[Ailment]:
        """Repair sessions and refs where possible; return the problems."""
        return self._components.health.examine(repair=True)


_OWN_KINDS = (GUARDRAIL_CHANGE, RULED_CHANGE)


def answer_checker(config: Config) -> Callable[[str, str, Any, Any], None]:
    """The check of an answer by its request's id, kind and payload: ``InvalidAnswer`` with the reason."""

    def check(request_id: str, kind: str, payload: Any, value: Any) -> None:
        check_answer(_rule(config, kind, payload), request_id, kind, value, check_in_subprocess)

    return check


def _rule(config: Config, kind: str, payload: Any) -> Rule:
    problem = schema_problem(config.answers[kind]) if kind in config.answers else None
    if problem is not None:
        field = f"answers.{kind}.schema"
        message = f"{config.path}: {field} is not a valid JSON Schema: {problem}"
        raise InvalidDocument(message, code="invalid-config", fields={"path": config.path, "field": field})
    return rule_of(config.answers, kind, payload)
