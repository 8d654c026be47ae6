"""Decisions: a person's answer becomes a commit, then a resume.

Invariant: the decision's commit is the point of no return. Its effects are computed before and recorded with the intent, so
recovery finishes it exactly once without running anything. A caller that loses the race leaves nothing behind.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.sessions.lifecycle import brief
from clia.sessions.model import Decision, question_in
from clia.sessions.records import Resumed, request_hash
from clia.space.core import Person
from clia.space.model import BY, META, REQUEST, TAG, VALUE
from clia.values import refs as names
from clia.values.canonical import canonical_bytes
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from clia.sessions.lifecycle import Lifecycle, PendingCall
    from clia.sessions.transitions import Transition
    from clia.space.commits import Commits
    from clia.space.core import Core
    from clia.space.envelope import Envelope

_ASKED_MAX, _QUESTION_MAX = 8192, 1000
_ADDRESS = "{}@people.clia.invalid"


class Decisions(NamedTuple):
    core: Core
    envelope: Envelope
    commits: Commits
    lifecycle: Lifecycle
    check: Callable[[str, str, Any, Any], None]  # takes a request's id, kind and payload, and the answer

    def decide(self, agent: str, value: Any, rationale: str, by: str | None, request_id: str | None) -> Decision:
        core = self.core
        names.check_name(agent)
        who = self.lifecycle.by(by)
        rationale_text = core.clean.text(rationale, "rationale")
        answer = self.lifecycle.crossed(value, "value")
        core.own_head(agent)
        request = self.lifecycle.find(agent, request_id, for_people=True)
        # Applying a request's own rule may take long: hold no lock.
        self.check(request.id, request.call.kind, request.call.payload, answer)
        with self.envelope.at_work(agent):
            head = core.own_head(agent)
            pending = self.lifecycle.find(agent, request.id, for_people=True)
            commit = self._write(agent, head, pending, answer, (rationale_text, who))
            resumed = Resumed(pending.call.number, request_hash(pending.call), answer, None, commit, who, self.lifecycle.now())
            text = f"session {pending.live.session} resumed: {who} decided {brief(answer)} on {pending.call.kind} ({pending.id})"
            with self.lifecycle.answered(pending, resumed, text, {"request": pending.id, "decision": commit}) as step:
                self._carry_out(agent, head, commit, step)
        session = self.lifecycle.as_session(agent, pending.live.session, dict(step.row))
        return Decision(commit, agent, pending.id, answer, who, session)

    def _write(self, agent: str, head: str, pending: PendingCall, value: Any, wording: tuple[str, str]) -> str:
        """The commit has its parent's tree: a decision does not change files."""
        core = self.core
        text, who = wording
        tag = " ".join((pending.call.tag or "").replace("\0", " ").split())  # on one line, as a trailer needs it
        trailers = [*self.commits.identity(agent, DECISION, head), (REQUEST, pending.id), (TAG, core.clean.text(tag, "tag"))]
        trailers += [(VALUE, canonical_bytes(value).decode("utf-8")), (BY, who), (META, self._asked(pending))]
        default = f"decision: {brief(value)} ({core.clean.text(pending.call.kind, 'kind')} {pending.id})"
        tree = core.objects.commit(head).tree
        return core.write_commit(agent, tree, [head], text, trailers, default, person_named(who))

    def _asked(self, pending: PendingCall) -> str:
        """The question, for readers of the decision: the journal has only answers. A long payload is cut to the question."""
        payload = self.core.clean.value(pending.call.payload)
        for meta in ({"asked": payload}, {"asked": {"question": (question_in(payload) or "")[:_QUESTION_MAX]}, "cut": True}):
            with suppress(InvalidInput):  # numbers that canonical JSON cannot represent
                text = canonical_bytes(meta).decode("utf-8")
                if len(text) <= _ASKED_MAX:
                    return text
        return ""

    def _carry_out(self, agent: str, head: str, commit: str, step: Transition) -> None:
        intent = self.commits.intent(agent, DECISION, head, commit, with_trace=True)
        after = (self.lifecycle.transitions.end_move(agent, step.ending),) if step.ending is not None else ()
        puts = (*intent.puts, *step.intent.puts)
        self.envelope.carry_out(intent._replace(after=after, appends=step.intent.appends, puts=puts, deletes=step.intent.deletes))


def person_named(who: str) -> Person:
    """The person who decides is the committer; git requires an address."""
    match = re.fullmatch(r"\s*([^<>]*[^<>\s])\s*<([^<>\s]+)>\s*", who)
    if match is not None:
        return Person(match[1], match[2])
    name = re.sub(r"[<>]", "", who).strip() or "somebody"
    return Person(name, _ADDRESS.format(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "somebody"))
