"""Approval of changes that take guardrails away.

Recording is never refused: an agent's own branch has everything that its tools did. What such a commit takes away is asked at
once, and landing it on your branch waits for a person's approval.

Invariant: an approval counts for exactly one change on one tree. It is a decision that the agent's session recorded, by a person
who may approve, and nothing was edited after it, except that journals grew. A question about an older state of the agent's branch
is withdrawn.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple

from clia.approvals.evidence import (
    APPROVE,
    REJECT,
    Approval,
    Approvers,
    Evidence,
    approval_in,
    is_recorded,
    only_journals_differ,
)
from clia.approvals.history import CoreHistory
from clia.errors import CliaError, NotAllowed
from clia.identities.guardrails.changes import guardrail_change
from clia.sessions.flows import ASK
from clia.space.core import UnapprovedChange
from clia.space.events import read_events
from clia.values import refs as names
from clia.values.types import GUARDRAIL_CHANGE, JOURNAL_ENTRY, REPROFILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.approvals.entries import ApprovalEntries
    from clia.identities.guardrails.changes import GuardrailChange
    from clia.identities.tree_files import SubmoduleTree
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.model import Decision, Request
    from clia.space.core import Core
    from clia.space.model import AgentCommit

_LOSSES_SHOWN, _PLACES_SHOWN = 50, 10


class GuardrailApprovals(NamedTuple):
    """Compares guardrails, asks people about losses, and finds their approvals."""

    core: Core
    lifecycle: Callable[[], Lifecycle]
    submodule_tree: SubmoduleTree
    people: tuple[str, ...]  # who may approve; empty: every person
    entries: Callable[[], ApprovalEntries]
    slug_of: Callable[[str], str | None]  # the identity that an agent works under
    check_rules: Callable[[str, str, tuple[str | None, str], str], None] = lambda *_: None  # checks rules on landings

    def change(self, before: str | None, after: str) -> GuardrailChange:
        """What the change from one tree to another takes away."""
        return guardrail_change(self.core.objects, before, after, self.submodule_tree)

    # Recording

    def recorded(self, agent: str, commit: str) -> None:
        """Ask people if a new commit of an agent leaves fewer guardrails than it was spawned with, or than it last landed."""
        core = self.core
        try:
            head = core.read(commit)
            if self._is_journal_entry(head) and not any(self._questions(agent)):
                return
            change = self.change(core.objects.commit(self._start(agent, commit)).tree, head.tree)
            if not change.losses:
                self._withdraw(agent, "the guardrails are as before", None)
            elif self._decision(agent, commit, change.digest) is None:
                request = self._asked(agent, change, head.tree, "")
                core.notify(f"{commit[:12]} loses {_count(change)}; landing it needs a person's approval ({request.id})")
        except CliaError as err:  # it is recorded, and landing compares again
            core.notify(f"guardrails of {commit[:12]} cannot be compared: {err.message}")

    def _start(self, agent: str, commit: str) -> str:
        """The agent's commit that landed last, else its oldest one. What came before needs no other approval."""
        tip = self.core.refs.get(names.events(agent))
        landed = (event.body.get("head") for event in read_events(self.core, tip) if event.body.get("event") == "landed")
        heads = (head for head in landed if isinstance(head, str) and names.is_id(head) and self.core.contains(commit, head))
        return next(heads, None) or self.core.own_root(agent, commit)

    def _is_journal_entry(self, commit: AgentCommit) -> bool:
        if commit.kind != JOURNAL_ENTRY or len(commit.parents) != 1:
            return False
        return self._only_journals_differ(self.core.objects.commit(commit.parents[0]).tree, commit.tree)

    # The record of approvals

    def record(self, agent: str) -> None:
        """Write the newest approval into the journals, unless something was edited after it, or it is written already."""
        head = self.core.head(agent)
        tree = None if head is None else self.core.objects.commit(head).tree
        for commit in self.core.own_commits(agent, head) if head is not None else ():
            if not self._only_journals_differ(commit.tree, str(tree)):
                return
            approval = approval_in(commit)
            if approval is not None and approval.approved and self._counts(commit):
                self.entries().write(agent, commit, self.slug_of(agent))
                return

    # Landing

    def check(self, agent: str, onto: str, trees: tuple[str | None, str], head: str) -> str | None:
        """The decision that approves what a landing takes away; None if it takes nothing.

        ``trees``: those of the branch before and after. Raises ``UnapprovedChange`` without an approval.
        """
        self.check_rules(agent, onto, trees, head)
        change = self.change(*trees)
        if not change.losses:
            return None
        approval = self._decision(agent, head, change.digest)
        if approval is None or not approval.approved:
            reasons = (f"it loses {_count(change)}, which needs a person's approval", *map(str, change.losses))
            raise UnapprovedChange(lambda: self._refusal(agent, onto, change, head, approval), reasons[: _PLACES_SHOWN + 1])
        return approval.cid

    # Recording another profile

    def check_profile(self, agent: str, change: GuardrailChange) -> str | None:
        """The decision that approves a loss in the profile of an agent; None if nothing is lost. ``NotAllowed`` without one."""
        if not change.losses:
            return None
        head = self.core.require_head(agent)
        approval = self._decision(agent, head, change.digest)
        if approval is not None and self._is_used(agent, head, approval.cid):
            approval = None
        if approval is not None and approval.approved:
            return approval.cid
        message = f"the new profile of {agent} loses {_count(change)}, which needs a person's approval"
        fields: dict[str, Any] = {"agent": agent, "change": change.digest, "losses": list(map(str, change.losses))}
        hints = fields["losses"][:_PLACES_SHOWN]
        if approval is not None:
            hints += [f"rejected by {approval.by}: restore the guardrails at the place of the agent"]
            raise NotAllowed(message, code=GUARDRAIL_CHANGE, hints=hints, fields=fields | {"decision": approval.cid})
        question = f"May {agent} work with another profile, although it loses {_count(change)}?"
        request = self._asked(agent, change, self.core.objects.commit(head).tree, "", question)
        hints += [
            f"a person approves it: clia decide {agent} {APPROVE} --request {request.id} -m WHY",
            f"then record it: clia reprofile {agent}",
        ]
        raise NotAllowed(message, code=GUARDRAIL_CHANGE, hints=hints, fields=fields | {"request": request.id})

    def _is_used(self, agent: str, head: str, decision: str) -> bool:
        """Whether a profile was recorded with a decision: it approves one loss, not the next one."""
        later = takewhile(lambda commit: commit.cid != decision, self.core.own_commits(agent, head))
        return any(commit.kind == REPROFILE and decision in commit.decisions for commit in later)

    def decided(self, agent: str) -> list[Approval]:
        """Every decision on guardrails that the agent's branch has, newest first, whether it counts or not."""
        head = self.core.refs.get(names.archived(names.check_name(agent))) or self.core.require_head(agent)
        decisions = map(approval_in, self.core.own_commits(agent, head))
        return [decision for decision in decisions if decision is not None]

    def _decision(self, agent: str, head: str, change: str) -> Approval | None:
        """The newest decision on a change, made on the tree of ``head`` by a person who may approve."""
        tree = self.core.objects.commit(head).tree
        decision, _ = self._evidence(tuple(self.core.own_commits(agent, head))).decided_change(change, tree)
        return None if decision is None else approval_in(decision)

    def _only_journals_differ(self, before: str, after: str) -> bool:
        return only_journals_differ(CoreHistory(self.core), before, after)

    def _counts(self, commit: AgentCommit) -> bool:
        """Whether a person who may approve made the decision, and the session recorded it: a commit alone can be forged."""
        return self._evidence((commit,)).objection(commit) is None

    def _evidence(self, commits: tuple[AgentCommit, ...]) -> Evidence:
        core = self.core
        is_agent = lambda name: names.is_name(name) and core.head(name) is not None  # noqa: E731
        recorded = lambda decision: is_recorded(self.lifecycle(), decision)  # noqa: E731
        return Evidence(CoreHistory(core), Approvers(self.people), commits, lambda *_: False, is_agent, recorded)

    def _refusal(self, agent: str, onto: str, change: GuardrailChange, head: str, rejected: Approval | None) -> CliaError:
        message = f"landing {agent} on {onto} loses {_count(change)}, which needs a person's approval"
        fields: dict[str, Any] = {"agent": agent, "onto": onto, "change": change.digest, "losses": list(map(str, change.losses))}
        hints = fields["losses"][:_PLACES_SHOWN]
        if rejected is not None:
            hints += [f"rejected by {rejected.by}: restore the guardrails, commit and land again"]
            return NotAllowed(message, code=GUARDRAIL_CHANGE, hints=hints, fields=fields | {"decision": rejected.cid})
        try:
            request = self._asked(agent, change, self.core.objects.commit(head).tree, onto)
        except CliaError as err:
            hints += [f"people cannot be asked: {err.message}", *err.hints]
            return NotAllowed(message, code=GUARDRAIL_CHANGE, hints=hints, fields=fields)
        hints += [f"a person approves it: clia decide {agent} {APPROVE} --request {request.id} -m WHY", "then land it again"]
        return NotAllowed(message, code=GUARDRAIL_CHANGE, hints=hints, fields=fields | {"request": request.id})

    def land(self, decision: Decision, branch: str, land: Callable[[str, str], object]) -> None:
        """Land the work of an agent if a decision approves that: on the branch that the question names, else on ``branch``."""
        commit = self.core.read(decision.cid)
        approval = approval_in(commit)
        if approval is None or not approval.approved:
            return
        onto = str(commit.meta["asked"].get("onto", branch))
        try:
            land(decision.agent, onto)
        except CliaError as err:  # the decision is recorded; a person can land it
            self.core.notify(f"{decision.agent} was approved and is not on {onto} yet: {err.message}")

    # Questions

    def _asked(self, agent: str, change: GuardrailChange, tree: str, onto: str, question: str | None = None) -> Request:
        """The pending question about this change on this tree. Those about other states are withdrawn."""
        for request in self._questions(agent):
            if (request.payload.get("change"), request.payload.get("tree")) == (change.digest, tree):
                return request
        self._withdraw(agent, "the agent's branch has changed", change.digest)
        payload = _payload(agent, change, tree, onto)
        session = self.lifecycle().start(agent, ASK, payload if question is None else {**payload, "question": question})
        return session.pending[0]

    def _questions(self, agent: str) -> Iterator[Request]:
        for request in self.lifecycle().pending(agent):
            if isinstance(request.payload, dict) and request.payload.get("kind") == GUARDRAIL_CHANGE:
                yield request

    def _withdraw(self, agent: str, reason: str, change: str | None) -> None:
        for request in list(self._questions(agent)):
            with suppress(CliaError):  # it was answered meanwhile
                self.lifecycle().cancel(agent, reason if change is None else f"{reason}: {change[:12]}", request.session)


def _payload(agent: str, change: GuardrailChange, tree: str, onto: str) -> dict[str, Any]:
    where = f"on {onto}" if onto else "on a branch"
    losses = [
        {
            "kind": loss.kind,
            "guardrail": loss.text,
            **({"now": loss.now} if loss.now is not None else {}),
            **({"why": loss.why} if loss.why is not None else {}),
            "places": [f"{place.identity} in {place.directory}" for place in loss.places[:_PLACES_SHOWN]],
        }
        for loss in change.losses[:_LOSSES_SHOWN]
    ]
    more = len(change.losses) - _LOSSES_SHOWN
    moved = [f"{module.path}: {module.before} -> {module.after}" for module in change.submodules[:_LOSSES_SHOWN]]
    return {
        "kind": GUARDRAIL_CHANGE,
        "question": f"May the work of {agent} land {where}, although it loses {_count(change)}?",
        "choices": [APPROVE, REJECT],
        "change": change.digest,
        "tree": tree,
        **({"onto": onto} if onto else {}),
        "losses": losses,
        **({"more": more} if more > 0 else {}),
        **({"submodules": moved} if moved else {}),
    }


def _count(change: GuardrailChange) -> str:
    count = len(change.losses)
    return "1 guardrail" if count == 1 else f"{count} guardrails"
