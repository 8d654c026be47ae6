"""The checks of a push, one ref at a time.

Invariant: a protected branch only moves forward, loses no guardrail without an approval, and has what its policy requires. Each
refusal says why, and how to fix it. Records of agents are never removed or rewound.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from clia.approvals.evidence import APPROVE, Approvers, Evidence, approval_in, is_yes, only_journals_differ
from clia.errors import CliaError, InvalidDocument
from clia.gate.policy import BRANCHES, POLICY, GatePolicy, Requirement, policy_in, rule_requirements
from clia.gate.repository import ZERO
from clia.identities.guardrails.changes import SUBMODULE, guardrail_change
from clia.identities.journal_union import is_journal
from clia.trust.machine_log import continues
from clia.values import refs as names
from clia.values.types import DECISION as DECISION_KIND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.approvals.signatures import RecordedSignatures
    from clia.gate.repository import GateRepository
    from clia.identities.guardrails.changes import GuardrailChange
    from clia.space.model import AgentCommit

DELETION, NON_FAST_FORWARD, GUARDRAIL, DECISION, TESTS, TRACE = (
    *("deletion", "non-fast-forward", "guardrail-loss", "no-decision", "no-tests", "no-trace"),
)
SQUASH, POLICY_FILE, FORBIDDEN, SIGNATURE, UNREADABLE = "hidden-commits", "policy", "forbidden", "no-signature", "unreadable"
_RECORDS = (names.HEADS, "refs/clia/", "refs/notes/clia/")
_SHOWN = 5
_FOLDER = 0o040000


class RefUpdate(NamedTuple):
    """One line that git gives to the hook."""

    old: str
    new: str
    ref: str


class Refusal(NamedTuple):
    """Why a ref may not move."""

    ref: str  # the ref
    rule: str  # the rule: `deletion`, `non-fast-forward`, `guardrail-loss`, `no-decision`, `no-tests`, `no-trace`, …
    message: str  # what is wrong
    fix: str  # how to fix it


class LandedStep(NamedTuple):
    """A state of the branch between its old and its new one, up to which guardrails are compared."""

    tree: str
    work: str | None  # the tree of the agent's work; None: it is not known
    decision: str | None = None  # the decision at this state, if it is one


class PushChecks:
    """Checks the updates of one push."""

    def __init__(self, repository: GateRepository, updates: Sequence[RefUpdate], *, head_branch: str | None = None) -> None:
        """``head_branch``: the branch that is protected by default; None: the one that HEAD names."""
        self._repository = repository
        targets = repository.symbolic_targets(update.ref for update in updates)
        self._updates = [update._replace(ref=targets.get(update.ref, update.ref)) for update in updates]
        self._head = head_branch or repository.head_branch()

    def refusals(self) -> list[Refusal]:
        return [refusal for update in self._updates for refusal in self._checked(update)]

    def _checked(self, update: RefUpdate) -> Iterator[Refusal]:
        try:
            policy_tree = self._tree(update.old) or self._default_tree()
            try:
                policy = policy_in(self._repository, policy_tree)
            except InvalidDocument:
                policy = GatePolicy()
            if policy.protects(update.ref, self._head):
                yield from self._protected(update, policy)
            elif update.ref.startswith(_RECORDS):
                yield from self._forward_only(update, "the record of agents", "clia publish AGENT")
        except CliaError as err:
            yield Refusal(
                update.ref,
                UNREADABLE,
                f"the push cannot be checked: {err.message}",
                "push again from an undamaged clone",
            )

    def _forward_only(self, update: RefUpdate, what: str, fix: str) -> Iterator[Refusal]:
        if update.new == ZERO:
            yield Refusal(
                update.ref, DELETION, f"{what} must not be deleted", "keep it; an administrator of the server can delete it there"
            )
        elif update.old != ZERO and not self._continues(update):
            message = f"{what} only moves forward: {update.old[:12]} is not part of {update.new[:12]}"
            yield Refusal(update.ref, NON_FAST_FORWARD, message, fix)

    def _continues(self, update: RefUpdate) -> bool:
        if update.ref.startswith(names.LOGS):  # one commit, which each move replaces
            return continues(self._repository, update.ref.removeprefix(names.LOGS), update.new, update.old)
        return self._repository.descends(update.new, update.old)

    # Protected branches

    def _protected(self, update: RefUpdate, policy: GatePolicy) -> Iterator[Refusal]:
        branch = update.ref.removeprefix(BRANCHES)
        moves = list(self._forward_only(update, f"the protected branch {branch}", f"git pull --rebase origin {branch}, then push"))
        if moves:
            yield from moves
            return
        new = self._repository.commit(update.new)
        try:
            policy_in(self._repository, new.tree)
        except InvalidDocument as err:
            yield Refusal(update.ref, POLICY_FILE, err.message, f"fix {POLICY}: clia gate explain")
            return
        base = update.old if update.old != ZERO else self._start(update)
        if base is None:
            return  # the first push into an empty repository
        before = self._repository.commit(base).tree
        commits, hidden = self._commits(update.new, base)
        yield from (Refusal(update.ref, SQUASH, message, fix) for message, fix in hidden)
        approvers = Approvers(policy.people, policy.other_person)
        evidence = Evidence(self._repository, approvers, commits, self._has_trace, self._is_agent)
        changed = self._repository.changed(before, new.tree)
        yield from self._guardrails(update.ref, policy, evidence, (before, new.tree), update.new)
        for requirement in requirements_of(self._repository, policy, before, branch):
            yield from self._required(update.ref, evidence, requirement, requirement.matching(changed), new.tree)

    def _start(self, update: RefUpdate) -> str | None:
        """What a new branch is compared with: where it left the branch of HEAD, or that branch."""
        head = self._repository.resolve(self._head) if self._head else None
        return None if head is None or head == update.new else self._repository.merge_base(head, update.new) or head

    # Guardrails

    def _guardrails(self, ref: str, policy: GatePolicy, evidence: Evidence, trees: tuple[str, str], new: str) -> Iterator[Refusal]:
        """Compare the guardrails of the branch. A push of several landings is compared landing by landing."""
        start, reason = trees[0], ""
        open_decision: AgentCommit | None = None  # approves the tree of the last step, and its agent's work may go on
        for step in [*self._steps(evidence, new), LandedStep(trees[1], None)]:
            change = guardrail_change(self._repository, start, step.tree)
            reason, decision = self._unapproved(policy, evidence, change, step)
            if not reason:
                start = step.tree
                is_fresh = step.decision is not None and decision is not None and decision.cid == step.decision
                open_decision = decision if is_fresh else None if step.work is not None else open_decision
        if not reason and open_decision is not None and guardrail_change(self._repository, *trees).losses:
            reason = self._edited_after(open_decision, evidence, new)
        if reason:
            yield Refusal(ref, GUARDRAIL, reason, _approve(ref, evidence.commits))

    def _steps(self, evidence: Evidence, new: str) -> list[LandedStep]:
        """The landings and decisions on the branch's own line, oldest first."""
        by_id = {commit.cid: commit for commit in evidence.commits}
        steps, at = [], by_id.get(new)
        while at is not None:
            if at.landed is not None:
                steps.append(LandedStep(at.tree, self._work_of(at)))
            elif at.kind == DECISION_KIND:
                steps.append(LandedStep(at.tree, at.tree, at.cid))
            at = by_id.get(at.parents[0]) if at.parents else None
        return steps[::-1]

    def _work_of(self, landing: AgentCommit) -> str:
        """The tree of the agent's work that a landing brings."""
        head = landing.parents[1] if len(landing.parents) > 1 else (landing.range or "").rpartition("..")[2]
        return self._repository.commit(head).tree if names.is_id(head) and self._repository.has_commit(head) else landing.tree

    def _edited_after(self, decision: AgentCommit, evidence: Evidence, new: str) -> str:
        """Why a decision on the branch's own line does not count: its agent went on to work there; empty if it did not."""
        by_id = {commit.cid: commit for commit in evidence.commits}
        at = by_id.get(new)
        while at is not None and at.cid != decision.cid:
            if at.agent == decision.agent and at.landed is None:
                if only_journals_differ(self._repository, decision.tree, at.tree):
                    return ""
                return f"decision {decision.cid[:12]} on lost guardrails was made before the last edit"
            at = by_id.get(at.parents[0]) if at.parents else None
        return ""

    def _unapproved(
        self, policy: GatePolicy, evidence: Evidence, change: GuardrailChange, step: LandedStep
    ) -> tuple[str, AgentCommit | None]:
        """What a change takes away without an approval, and why there is none; empty if nothing. Also the decision."""
        losses = [loss for loss in change.losses if not _is_ignored(policy, loss.kind, loss.places[0].directory)]
        if not losses:
            return "", None
        decision, reason = evidence.decided_change(
            change.digest, step.work or self._newest_work(evidence, change.digest, step.tree)
        )
        if decision is None and all(loss.kind == SUBMODULE for loss in losses):
            missing, reason = evidence.undecided([module.path for module in change.submodules], step.tree)
            if not missing:
                return "", None
        if decision is not None and not is_yes(decision):
            reason, decision = f"decision {decision.cid[:12]} rejects the change", None
        return ("", decision) if decision is not None else (f"{_lost(change, [str(loss) for loss in losses])}; {reason}", None)

    def _newest_work(self, evidence: Evidence, change: str, tree: str) -> str:
        """The tree of the newest work of the agent that a decision on a change is about."""
        approvals = ((commit, approval_in(commit)) for commit in evidence.commits)
        decided = next((commit for commit, approval in approvals if approval is not None and approval.change == change), None)
        if decided is None:
            return tree
        own = (commit for commit in evidence.commits if commit.agent == decided.agent and commit.landed is None)
        return next(own, decided).tree

    # Requirements

    def _signatures(self) -> RecordedSignatures:
        """The signatures, by the keys that the server has after the push. Pushed keys continue those that it had."""
        from clia.approvals.signatures import RecordedSignatures  # few branches require signatures
        from clia.trust.key_chain import chain_of
        from clia.trust.raw_commits import raw_commit

        raw = self._repository.raw
        return RecordedSignatures(raw, chain_of(lambda cid: raw_commit(cid, raw(cid)), self._pushed(names.KEYS)))

    def _required(self, ref: str, evidence: Evidence, requirement: Requirement, paths: list[str], tree: str) -> Iterator[Refusal]:
        if not paths:
            return
        branch, source = ref.removeprefix(BRANCHES), requirement.source
        if not requirement.need:
            yield Refusal(
                ref, FORBIDDEN, f"{_listed(paths)} must not change here ({source})", "take the change back, or change the rule"
            )
        if "decision" in requirement.need:
            missing, why = evidence.undecided(paths, tree)
            if missing:
                message = f"{_listed(missing)} needs a person's decision on this content ({source}); {why}"
                yield Refusal(ref, DECISION, message, _approve(ref, evidence.commits))
        if "tests" in requirement.need:
            missing = evidence.untested(paths, tree)
            if missing:
                message = f"{_listed(missing)} needs recorded tests after the last edit ({source})"
                fix = f"run the tests and record them: clia commit {_agent(evidence.commits)} test, then land on {branch} again"
                yield Refusal(ref, TESTS, message, fix)
        if "trace" in requirement.need:
            agents = evidence.untraced() if evidence.has_agents() else ["people"]
            if agents:
                message = f"{_listed(paths)} needs a trace ({source}); work of {', '.join(agents)} has none"
                fix = f"publish it with its trace first: clia publish {_agent(evidence.commits)}"
                yield Refusal(ref, TRACE, message, fix)
        if "signature" in requirement.need:
            missing, why = evidence.unsigned(paths, tree, self._signatures())
            if missing:
                message = f"{_listed(missing)} needs a signature ({source}); {why}"
                fix = "commit with an enrolled key, or let a person prove the decision with a key: clia key list"
                yield Refusal(ref, SIGNATURE, message, fix)

    # Commits

    def _commits(self, new: str, old: str) -> tuple[tuple[AgentCommit, ...], list[tuple[str, str]]]:
        """The pushed commits, with those behind squashed landings; and what a squash hides."""
        repository = self._repository
        commits = [repository.commit(cid) for cid in repository.commits([new], [old])]
        problems: list[tuple[str, str]] = []
        behind: dict[str, AgentCommit] = {}
        for commit in commits:
            if commit.landed is None or len(commit.parents) != 1:
                continue
            problem, squashed = self._squashed(commit)
            problems += [problem] if problem is not None else []
            behind |= {other.cid: other for other in squashed}
        listed = {commit.cid for commit in commits}
        return (*commits, *(commit for cid, commit in behind.items() if cid not in listed)), problems

    def _squashed(self, landing: AgentCommit) -> tuple[tuple[str, str] | None, list[AgentCommit]]:
        """What is wrong with a squashed landing, and the commits that it stands for."""
        repository, agent = self._repository, str(landing.landed)
        base, dots, head = (landing.range or "").partition("..")
        short, fix = landing.cid[:12], f"push the agent's branch first: clia publish {agent}"
        if not dots or not names.is_id(base) or not names.is_id(head):
            return (f"squash {short} of {agent} does not name the commits that it stands for", fix), []
        if not repository.has_commit(head) or not repository.has_commit(base) or not self._is_kept(agent, head):
            return (f"squash {short} hides the commits of {agent} up to {head[:12]}, which are not on the server", fix), []
        commits = [repository.commit(cid) for cid in repository.commits([head], [base])]
        fix = f"land it again: clia land {agent} --onto BRANCH --squash"
        if any(commit.agent != agent and commit.agent is not None and commit.merged is None for commit in commits[:1]):
            return (f"squash {short} names a head that is not of {agent}", fix), commits
        before = repository.commit(landing.parents[0]).tree
        tree = repository.commit(head).tree
        differing = [
            path
            for path in repository.changed(before, landing.tree)
            if not is_journal(path) and repository.entry(landing.tree, path) != repository.entry(tree, path)
        ]
        at_base = repository.commit(base).tree
        added = [path for path in differing if not self._is_merged(path, (before, at_base, tree))]
        if added:
            return (f"squash {short} changes {_listed(added)}, which its commits do not", fix), commits
        return None, commits

    def _is_merged(self, path: str, trees: tuple[str, str, str]) -> bool:
        """Whether both sides changed a path, so that the landing merged it."""
        before, base, head = (self._repository.entry(tree, path) for tree in trees)
        return base not in (before, head)

    def _is_kept(self, agent: str, head: str) -> bool:
        """Whether a ref on the server, after the push, keeps the commit."""
        for ref in (names.head(agent), names.published(names.head(agent)), names.archived(agent)):
            tip = self._pushed(ref)
            if tip is not None and self._repository.has_commit(tip) and self._repository.descends(tip, head):
                return True
        return False

    def _pushed(self, ref: str) -> str | None:
        """What a ref names after the push."""
        pushed = next((update.new for update in self._updates if update.ref == ref and update.new != ZERO), None)
        return pushed or self._repository.resolve(ref)

    def _is_agent(self, name: str) -> bool:
        heads = [names.head(text) for text in {name, name.casefold()} if names.is_name(text)]
        return any(self._pushed(ref) is not None for head in heads for ref in (head, names.published(head)))

    def _has_trace(self, agent: str, cid: str) -> bool:
        tip = self._pushed(names.traces(agent))
        if tip is None or not self._repository.has_commit(tip):
            return False
        tree, rest = self._repository.commit(tip).tree, cid
        while True:
            entries = dict(self._repository.listing(tree))
            if rest in entries and entries[rest].mode != _FOLDER:
                return True
            folder = entries.get(rest[:2])
            if folder is None or folder.mode != _FOLDER:
                return False
            tree, rest = folder.cid, rest[2:]

    def _tree(self, cid: str) -> str | None:
        return None if cid == ZERO else self._repository.commit(cid).tree if self._repository.has_commit(cid) else None

    def _default_tree(self) -> str | None:
        head = self._repository.resolve(self._head) if self._head else None
        return None if head is None else self._repository.commit(head).tree


def requirements_of(repository: GateRepository, policy: GatePolicy, tree: str, branch: str) -> Iterator[Requirement]:
    """What changes of a branch need, by the tree that it has."""
    yield Requirement((POLICY,), ("decision",), "the gate: its own policy")
    yield from policy.require
    yield from rule_requirements(repository, tree, branch)


def _is_ignored(policy: GatePolicy, kind: str, directory: str) -> bool:
    return kind == SUBMODULE and any(fnmatchcase(directory, pattern) for pattern in policy.ignore_submodules)


def _lost(change: GuardrailChange, losses: list[str]) -> str:
    more = f" and {len(losses) - _SHOWN} more" if len(losses) > _SHOWN else ""
    return f"guardrails are lost ({change.digest[:12]}): {'; '.join(losses[:_SHOWN])}{more}"


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"{', '.join(paths[:_SHOWN])}{more}"


def _agent(commits: Sequence[AgentCommit]) -> str:
    return next((str(commit.landed or commit.agent) for commit in commits if commit.agent), "AGENT")


def _approve(ref: str, commits: Sequence[AgentCommit]) -> str:
    agent, branch = _agent(commits), ref.removeprefix(BRANCHES)
    ask = f"clia ask {agent} QUESTION, then clia decide {agent} {APPROVE}"
    return f"a person decides after the last edit: {ask}; then clia land {agent} --onto {branch}"
