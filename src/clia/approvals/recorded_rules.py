"""Rules of guardrails on commits and landings: what must be on the record before the work of an agent is accepted.

A commit that a person or a program asks for is checked before it is written. What tools did is always recorded; the rules on it
count when it lands, with those on landings.

Invariant: a rule is satisfied by the record alone: a person's decision, a test run or a trace of exactly this content. Without a
decision, people are asked once about this content.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from clia.approvals.evidence import APPROVE, REJECT, Approvers, Evidence, is_recorded, is_yes
from clia.approvals.history import CoreHistory
from clia.errors import CliaError, NotAllowed
from clia.git.tree_changes import changed_paths
from clia.rules.evaluation import RuledAction, evaluate, reason
from clia.rules.model import COMMIT, DECISION, DENY, LAND, REQUIRE, SIGNATURE, TESTS, TRACE
from clia.rules.patterns import path_may_match
from clia.sessions.flows import ASK
from clia.sessions.records import ASK as ASKED
from clia.space.core import UnapprovedChange
from clia.space.model import agent_commit
from clia.values import refs as names
from clia.values.types import DECISION as DECISION_KIND
from clia.values.types import RULED_CHANGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from clia.approvals.signatures import RecordedSignatures
    from clia.rules.evaluation import RuleVerdict
    from clia.rules.model import GuardrailRule
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.model import Decision, Request
    from clia.space.core import Core
    from clia.space.model import AgentCommit
    from clia.space.type_registry import Registry

_SHOWN, _ASKED_MAX = 5, 50


class RuledChange(NamedTuple):
    """A change that rules are asked about."""

    agent: str
    on: str  # `commit` or `land`
    target: str  # the kind of the commit, or the branch
    paths: tuple[str, ...]  # files that it changes
    tree: str  # the tree that it leads to
    kinds: tuple[str, ...] = ()  # of a commit: its kind, and the kinds above it
    with_trace: bool = False  # of a commit: whether trace entries are attached to it

    def __str__(self) -> str:
        if self.on == LAND:
            return f"landing {self.agent} on {self.target}"
        return f"a commit of {self.agent} ({self.target})"


class RuleNeed(NamedTuple):
    """What a rule requires for files; no files: for the change itself."""

    rule: GuardrailRule
    need: str
    paths: tuple[str, ...]


class RecordedRules(NamedTuple):
    """Checks commits and landings of agents, and asks people about them."""

    core: Core
    lifecycle: Callable[[], Lifecycle]
    registry: Registry
    rules_of: Callable[[str], Sequence[GuardrailRule]]
    has_trace: Callable[[AgentCommit], bool]
    has_entries: Callable[[str], bool]  # whether trace entries of an agent wait for a commit
    people: tuple[str, ...]
    signatures: Callable[[], RecordedSignatures]

    # Commits

    def check_commit(self, agent: str, kind: str, trees: tuple[str, str], *, with_trace: bool) -> None:
        """``UnapprovedChange`` if a rule refuses a commit, or needs what is not on the record. ``trees``: before and after."""
        rules = [rule for rule in self.rules_of(agent) if COMMIT in rule.on]
        if not rules:
            return
        paths = tuple(changed_paths(self.core.objects, *trees))
        traced = with_trace and self.has_entries(agent)
        change = RuledChange(agent, COMMIT, kind, paths, trees[1], self.registry.types().lineage(kind), traced)
        self._check(rules, change, self.core.require_head(agent), trees[1])

    # Landings

    def check_landing(self, agent: str, onto: str, trees: tuple[str | None, str], head: str) -> None:
        """``UnapprovedChange`` if a rule refuses a landing, or needs what is not on the record. ``trees``: before and after."""
        rules = [rule for rule in self.rules_of(agent) if {COMMIT, LAND} & set(rule.on)]
        if not rules:
            return
        branch = onto.removeprefix(names.BRANCHES)
        paths = tuple(changed_paths(self.core.objects, *trees))
        self._check(rules, RuledChange(agent, LAND, branch, paths, trees[1]), head, self.core.objects.commit(head).tree)

    # The check

    def _check(self, rules: Sequence[GuardrailRule], change: RuledChange, head: str, shown: str) -> None:
        """``shown``: the tree of the agent that a person is asked about."""
        commits = tuple(self._own_work(change, head))
        verdicts = list(self._verdicts(rules, change, commits))
        denied = next((verdict for verdict in verdicts if verdict.do == DENY), None)
        if denied is not None:
            raise UnapprovedChange(lambda: _denied(change, denied), (f"denied by a guardrail: {reason(denied)}",))
        needs = [need for verdict in verdicts if verdict.do == REQUIRE for need in _needs(verdict, change)]
        evidence = self._evidence(commits)
        missing = [(need, why) for need in needs if (why := self._missing(need, change, evidence, shown)) is not None]
        if missing:
            reasons = tuple(dict.fromkeys(f"{why} (rule {need.rule.path} {need.rule.pointer})" for need, why in missing))
            raise UnapprovedChange(lambda: self._refusal(change, missing, reasons, head, shown), reasons)

    def _verdicts(
        self, rules: Sequence[GuardrailRule], change: RuledChange, commits: Sequence[AgentCommit]
    ) -> Iterator[RuleVerdict]:
        on_branch = change.target if change.on == LAND else ""
        yield evaluate(rules, RuledAction(change.on, paths=change.paths, branch=on_branch, kinds=change.kinds))
        if change.on != LAND or not any(COMMIT in rule.on for rule in rules):
            return
        types = self.registry.types()
        for commit in commits:  # what tools did is recorded before rules are asked
            if commit.agent != change.agent or commit.kind is None or len(commit.parents) != 1 or commit.kind == DECISION_KIND:
                continue
            before = self.core.objects.commit(commit.parents[0]).tree
            changed = [path for path in changed_paths(self.core.objects, before, commit.tree) if path in change.paths]
            if changed:
                yield evaluate(rules, RuledAction(COMMIT, paths=tuple(changed), kinds=types.lineage(commit.kind)))

    def _own_work(self, change: RuledChange, head: str) -> Iterator[AgentCommit]:
        """The commits that may hold evidence, newest first."""
        tip = self.core.refs.get(names.branch(change.target)) if change.on == LAND else None
        return map(agent_commit, self.core.graph.walk([head], [tip] if tip else []))

    def _evidence(self, commits: tuple[AgentCommit, ...]) -> Evidence:
        return Evidence(
            CoreHistory(self.core),
            Approvers(self.people),
            commits,
            lambda _, cid: self.has_trace(self.core.read(cid)),
            lambda name: names.is_name(name) and self.core.head(name) is not None,
            lambda decision: is_recorded(self.lifecycle(), decision),
        )

    def _missing(self, need: RuleNeed, change: RuledChange, evidence: Evidence, shown: str) -> str | None:
        """Why a need is not satisfied; None if it is."""
        if need.need == DECISION:
            decision = self._decision(change, evidence, shown)
            if decision is not None and is_yes(decision):
                return None
            missing, why = evidence.undecided(need.paths, change.tree)
            return f"{_listed(missing)} needs a person's decision; {why}" if missing or not need.paths else None
        if need.need == TESTS:
            if change.on == COMMIT and "test" in change.kinds:
                return None
            missing = evidence.untested(need.paths, change.tree)
            return f"{_listed(missing)} needs recorded tests after the last edit" if missing else None
        if need.need == TRACE:
            if change.on == COMMIT:
                return None if change.with_trace else "it needs a trace"
            untraced = evidence.untraced()
            return f"the work of {', '.join(untraced)} needs a trace" if untraced else None
        if change.on == COMMIT:
            return self.signatures().own_problem()
        missing, why = evidence.unsigned(need.paths or change.paths, change.tree, self.signatures())
        return f"{_listed(missing)} needs a signature; {why}" if missing else None

    def _decision(self, change: RuledChange, evidence: Evidence, shown: str) -> AgentCommit | None:
        """The newest decision that counts on the question about exactly this change."""
        for commit in evidence.commits:
            question = commit.meta.get("asked") if commit.kind == DECISION_KIND else None
            is_ours = (commit.request or "").startswith(ASKED)  # a flow chooses its words itself
            if not is_ours or not isinstance(question, dict) or question.get("kind") != RULED_CHANGE:
                continue
            if evidence.objection(commit) is not None:
                continue
            if (question.get("tree"), question.get("on"), question.get("target")) == (shown, change.on, change.target):
                return commit
        return None

    # Questions

    def _refusal(
        self, change: RuledChange, missing: Sequence[tuple[RuleNeed, str]], reasons: Sequence[str], head: str, shown: str
    ) -> CliaError:
        rule = missing[0][0].rule
        message = f"{change} needs more on the record: {rule.text or f'rule {rule.path} {rule.pointer}'}"
        fields: dict[str, Any] = {"agent": change.agent, "on": change.on, "target": change.target}
        hints = list(reasons)
        needs = {need.need for need, _ in missing}
        if TESTS in needs:
            hints.append(f"run the tests and record them: clia commit {change.agent} test")
        if TRACE in needs:
            hints.append(f"record what was done: clia trace add {change.agent} note TEXT, then commit with --trace")
        if SIGNATURE in needs:
            hints.append("sign commits: clia key list shows the enrolled keys, clia key init starts to sign")
        if DECISION in needs:
            hints += self._asking(change, missing, head, shown, fields)
        return NotAllowed(message, code="required-by-rule", hints=hints, fields=fields)

    def _asking(
        self, change: RuledChange, missing: Sequence[tuple[RuleNeed, str]], head: str, shown: str, fields: dict[str, Any]
    ) -> Iterator[str]:
        evidence = self._evidence(tuple(self._own_work(change, head)))
        decision = self._decision(change, evidence, shown)
        if decision is not None:  # no, else nothing is missing
            fields["decision"] = decision.cid
            yield f"refused by {decision.by}: change the files, then try again"
            return
        try:
            request = self._asked(change, [need for need, _ in missing if need.need == DECISION], shown)
        except CliaError as err:
            yield f"people cannot be asked: {err.message}"
            return
        fields["request"] = request.id
        yield f"a person approves it: clia decide {change.agent} {APPROVE} --request {request.id} -m WHY"
        yield "then land it again" if change.on == LAND else "then commit again"

    def _asked(self, change: RuledChange, needs: Sequence[RuleNeed], shown: str) -> Request:
        """The pending question about this change; one about another state of the same target is withdrawn."""
        lifecycle = self.lifecycle()
        for request in lifecycle.pending(change.agent):
            payload = request.payload if isinstance(request.payload, dict) else {}
            if payload.get("kind") != RULED_CHANGE or (payload.get("on"), payload.get("target")) != (change.on, change.target):
                continue
            if payload.get("tree") == shown:
                return request
            with suppress(CliaError):  # it was answered meanwhile
                lifecycle.cancel(change.agent, "the work has changed", request.session)
        return lifecycle.start(change.agent, ASK, _payload(change, needs, shown)).pending[0]

    def land(self, decision: Decision, branch: str, land: Callable[[str, str], object]) -> None:
        """Land the work of an agent if the decision approves a landing on this branch."""
        commit = self.core.read(decision.cid)
        question = commit.meta.get("asked")
        if (
            not isinstance(question, dict)
            or (question.get("kind"), question.get("on")) != (RULED_CHANGE, LAND)
            or not is_yes(commit)
        ):
            return
        try:
            land(decision.agent, str(question.get("target") or branch))
        except CliaError as err:  # the decision is recorded; a person can land it
            self.core.notify(f"{decision.agent} was approved and is not on {branch} yet: {err.message}")


def _needs(verdict: RuleVerdict, change: RuledChange) -> Iterator[RuleNeed]:
    for match in verdict.matches:
        rule = match.rule
        paths = tuple(path for path in change.paths if _is_about(rule, path))
        for need in rule.need if rule.do == REQUIRE else (DECISION,):
            yield RuleNeed(rule, need, paths)


def _is_about(rule: GuardrailRule, path: str) -> bool:
    return not rule.match.paths or any(path_may_match(pattern, path) for pattern in rule.match.paths)


def _denied(change: RuledChange, verdict: RuleVerdict) -> CliaError:
    fields = {"agent": change.agent, "on": change.on, "target": change.target}
    hints = [f"it is about {verdict.matches[0].what}", "take the change back, or ask a person to change the rule"]
    return NotAllowed(f"{change} is denied by a guardrail: {reason(verdict)}", code="denied-by-rule", hints=hints, fields=fields)


def _listed(paths: Iterable[str]) -> str:
    listed = list(paths)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{', '.join(listed[:_SHOWN]) or 'it'}{more}"


def _payload(change: RuledChange, needs: Sequence[RuleNeed], shown: str) -> dict[str, Any]:
    paths = list(dict.fromkeys(path for need in needs for path in need.paths))
    rules = list(dict.fromkeys((need.rule.text, need.rule.path, need.rule.pointer) for need in needs))
    risks = {need.rule.risk for need in needs}
    risk = next((risk for risk in ("high", "medium", "low") if risk in risks), None)
    what = f"land on {change.target}" if change.on == LAND else f"be committed as {change.target}"
    return {
        "kind": RULED_CHANGE,
        "question": f"May the work of {change.agent} {what}? It changes {_listed(paths) if paths else 'files'}.",
        "choices": [APPROVE, REJECT],
        "on": change.on,
        "target": change.target,
        "tree": shown,
        "paths": paths[:_ASKED_MAX],
        **({"more": len(paths) - _ASKED_MAX} if len(paths) > _ASKED_MAX else {}),
        "rules": [{"guardrail": text, "file": path, "at": pointer} for text, path, pointer in rules[:_ASKED_MAX]],
        **({"risk": risk} if risk else {}),
    }
