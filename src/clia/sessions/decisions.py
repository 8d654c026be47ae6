"""Decisions: a person's answer becomes a commit, then a resume; and the statement that a person signs for it.

Invariant: a decision's commit is its point of no return: its effects are computed before and recorded with the intent, so recovery
finishes it exactly once without running anything. A statement is recorded only on the commit and for the request that it names.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from clia.errors import InvalidInput, NotAllowed
from clia.sessions.lifecycle import PendingCall, brief
from clia.sessions.model import INTERNAL, Decision, question_in
from clia.sessions.records import Resumed, request_hash
from clia.space.core import Person
from clia.space.model import BY, CHANNEL, META, REQUEST, TAG, VALUE, json_object
from clia.trust.policy import decided_act
from clia.trust.proving import check_same
from clia.trust.statements import DECIDE, WHOLE_QUESTION, PersonalStatement, question_digest, recorded_question, stated_in
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.people import names_agent
from clia.values.types import DECISION
from clia.verbs import channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.transitions import Transition
    from clia.space.commits import Commits
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.traces import PendingTrace
    from clia.trust.proving import StatementProver
    from clia.trust.statements import StatementProof

_ASKED_MAX, _QUESTION_MAX = 8192, 1000
_SHORT_MAX, _SHORT_FIELDS = 100, 16
_ADDRESS = "{}@people.clia.invalid"


class GivenAnswer(NamedTuple):
    """What a person answers, before it is checked. ``request``: None if only one is pending; ``by``: None for the local person."""

    agent: str
    value: Any
    rationale: str = ""
    by: str | None = None
    request: str | None = None


class SignedStatement(NamedTuple):
    """A person's statement, and the proofs of it, which the caller has verified."""

    statement: PersonalStatement
    proofs: tuple[StatementProof, ...]


class _CheckedAnswer(NamedTuple):
    """An answer that its request accepts."""

    value: Any
    rationale: str
    author: str
    request: str
    redacted: int


class Decisions(NamedTuple):
    core: Core
    envelope: Envelope
    commits: Commits
    lifecycle: Lifecycle
    check: Callable[[str, str, Any, Any], None]  # takes a request's id, kind and payload, and the answer
    prover: Callable[[], StatementProver]

    def state(self, given: GivenAnswer, person: str) -> PersonalStatement:
        """The statement for an answer, as of now: what the person signs. Nothing is recorded.

        If another person has stated the same and waits for more people, it is that statement.
        """
        answer = self._checked(given)
        head = self.core.own_head(given.agent)
        pending = self.lifecycle.find(given.agent, answer.request, for_people=True)
        statement = self._statement(answer, head, pending, person)
        waiting = self.prover().waiting(statement)
        return statement if waiting is None else waiting.statement

    def decide(self, given: GivenAnswer, signed: SignedStatement | None = None) -> Decision:
        core, agent = self.core, given.agent
        answer = self._checked(given)
        with self.envelope.at_work(agent):
            head = core.own_head(agent)
            pending = self.lifecycle.find(agent, answer.request, for_people=True)
            self.lifecycle.checkpoints.agree(agent, head, pending.live.session)
            trailers = self._proofs(signed, answer, head, pending)
            stated = stated_in(trailers)
            if stated is not None and stated.statement is not None:
                answer = answer._replace(rationale=stated.statement.reason)  # of the one who stated it first
            trace = self.commits.next_trace(agent)
            commit = self._write(head, pending, answer, [*trace.trailers, *trailers])
            resumed = Resumed(
                pending.call.number, request_hash(pending.call), answer.value, None, commit, answer.author, self.lifecycle.now()
            )
            shown = brief(core.clean.value(answer.value))  # before it is cut: half a secret is not recognized
            text = f"session {pending.live.session} resumed: {answer.author} decided {shown} on {pending.call.kind} ({pending.id})"
            facts = {"request": pending.id, "decision": commit}
            with self.lifecycle.answered(pending, resumed, text, facts, answer.redacted) as step:
                self._carry_out(agent, head, commit, step, trace)
        session = self.lifecycle.as_session(agent, pending.live.session, step.row)
        return Decision(commit, agent, pending.id, answer.value, answer.author, session, answer.redacted)

    def _checked(self, given: GivenAnswer) -> _CheckedAnswer:
        core, agent = self.core, names.check_name(given.agent)
        author = self.lifecycle.by(given.by)
        if names_agent(author, agent):
            message = f"{author} is an agent; only a person decides"
            raise NotAllowed(
                message, code="not-a-person", hints=["name the person: --by NAME"], fields={"agent": agent, "by": author}
            )
        rationale = core.clean.text(given.rationale, "rationale")
        value = self.lifecycle.as_json(given.value, "value")
        core.own_head(agent)
        request = self.lifecycle.find(agent, given.request, for_people=True)
        answer, redacted = self.lifecycle.crossed(value, "value", request.call.payload)
        # Applying a request's own rule may take long: hold no lock.
        self.check(request.id, request.call.kind, request.call.payload, answer)
        return _CheckedAnswer(answer, rationale, author, request.id, redacted)

    def _statement(self, answer: _CheckedAnswer, head: str, pending: PendingCall, person: str) -> PersonalStatement:
        meta = json_object(self._asked(pending)) or {}
        return PersonalStatement(
            space=self.core.space_id,
            verb=DECIDE,
            person=person,
            about=pending.live.agent,
            at=self.core.now(),
            parent=head,
            tree=self.core.objects.commit(head).tree,
            request=pending.id,
            question=recorded_question(meta),
            value=answer.value,
            reason=answer.rationale,
            channel=channel(),
            kind=str(meta.get("kind", "")),
        )

    def _proofs(
        self, signed: SignedStatement | None, answer: _CheckedAnswer, head: str, pending: PendingCall
    ) -> list[tuple[str, str]]:
        """The trailers that prove the answer; refused unless a statement is about this answer to this question on this commit."""
        prover = self.prover()
        act = decided_act(pending.live.agent, json_object(self._asked(pending)) or {}, answer.value)
        if signed is None:
            return prover.trailers(self._statement(answer, head, pending, answer.author), act)
        statement = signed.statement
        expected = self._statement(answer, head, pending, statement.person)
        waiting = prover.waiting(expected)
        check_same(expected, statement, None if waiting is None else waiting.statement, self.core.now())
        return prover.trailers(statement, act, signed.proofs, answer.author)

    def _write(self, head: str, pending: PendingCall, answer: _CheckedAnswer, signed: Sequence[tuple[str, str | None]]) -> str:
        """The commit has its parent's tree: a decision does not change files."""
        core, agent = self.core, pending.live.agent
        tag = " ".join((pending.call.tag or "").replace("\0", " ").split())  # on one line, as a trailer needs it
        trailers = [*self.commits.identity(agent, DECISION, head), (REQUEST, pending.id), (TAG, core.clean.text(tag, "tag"))]
        trailers += [(VALUE, canonical_bytes(answer.value).decode("utf-8")), (BY, answer.author), (CHANNEL, channel())]
        trailers += [(META, self._asked(pending)), *signed]
        default = f"decision: {brief(core.clean.value(answer.value))} ({core.clean.text(pending.call.kind, 'kind')} {pending.id})"
        tree, person = core.objects.commit(head).tree, person_named(answer.author)
        return core.write_commit(agent, tree, [head], answer.rationale, trailers, default, person)

    def _asked(self, pending: PendingCall) -> str:
        """The question, for readers of the decision: the journal has only answers.

        A long payload is cut to the question and its short texts, such as the ids that an approval names, with its digest.
        """
        payload, kind = self.core.clean.value(pending.call.payload), self.core.clean.text(pending.call.kind, "kind")
        fields = payload if isinstance(payload, dict) else {}
        with suppress(InvalidInput):  # numbers that canonical JSON cannot represent
            whole = canonical_bytes({"asked": payload, "kind": kind}).decode("utf-8")
            if len(whole) <= _ASKED_MAX:
                return whole
        texts = {key: value for key, value in fields.items() if isinstance(value, str)}
        short_texts = {key: value for key, value in texts.items() if len(key) + len(value) <= _SHORT_MAX}
        shortened: dict[str, Any] = {name: texts[name][:_SHORT_MAX] for name in ("kind", "risk") if name in texts}
        shortened |= {INTERNAL: {}} if INTERNAL in fields else {}
        question = {**dict(list(short_texts.items())[:_SHORT_FIELDS]), **shortened}
        for part in (question | {"question": (question_in(payload) or "")[:_QUESTION_MAX]}, shortened):
            cut: dict[str, Any] = {"asked": part, "cut": True, "kind": kind}
            with suppress(InvalidInput):
                cut[WHOLE_QUESTION] = question_digest(payload)
            text = canonical_bytes(cut).decode("utf-8")
            if len(text) <= _ASKED_MAX:
                return text
        return ""

    def _carry_out(self, agent: str, head: str, commit: str, step: Transition, trace: PendingTrace) -> None:
        intent = self.commits.intent(agent, DECISION, head, commit, trace)
        transitions, changes = self.lifecycle.transitions, step.intent
        after = (transitions.end_move(agent, step.ending),) if step.ending is not None else ()
        puts = (*intent.puts, *changes.puts)
        puts = (*puts, *(row for move in after for row in transitions.known_after(agent, move, puts)))
        intent = intent._replace(after=after, appends=changes.appends, puts=puts)
        self.envelope.carry_out(intent._replace(deletes=changes.deletes, discards=changes.discards))


def person_named(author: str) -> Person:
    """The person who decides is the committer; git requires an address."""
    match = re.fullmatch(r"\s*([^<>]*[^<>\s])\s*<([^<>\s]+)>\s*", author)
    if match is not None:
        return Person(match[1], match[2])
    name = re.sub(r"[<>]", "", author).strip() or "somebody"
    return Person(name, _ADDRESS.format(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "somebody"))
