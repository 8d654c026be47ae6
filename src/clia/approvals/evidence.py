"""What history records about changes: decisions, tests and traces. Landings and a server's gate ask the same functions.

Invariant: evidence counts for the content that it was given for. A decision or a test run covers a path if the tree of its commit
has the same content there as the tree that is checked, so an edit afterwards is not covered. An approval of lost guardrails holds
for one change on one tree: the commit of the decision has that tree, names the change by its id, and the work that lands has that
tree, too, except that journals grew. The newest decision on a change counts. Only clia asks for one: a question of a flow, in the
words of an agent, approves nothing.

Imports nothing but values and records, because a server's hook reads evidence, too.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from clia.errors import CliaError
from clia.git.records import FILE
from clia.git.tree_changes import changed_paths
from clia.identities.journal_union import is_journal
from clia.space.model import json_object
from clia.values.people import AGENT_DOMAIN, is_listed, name_and_email, names_agent
from clia.values.types import DECISION, GUARDRAIL_CHANGE, QUESTION, SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from clia.git.records import TreeEntry
    from clia.sessions.lifecycle import Lifecycle
    from clia.space.model import AgentCommit

TEST = "test"
_YES = ("approve", "approved", "accept", "accepted", "yes", "ok")


APPROVE, REJECT = "approve", "reject"


class Approval(NamedTuple):
    """A person's decision on a change of guardrails."""

    cid: str  # the commit of the decision
    agent: str  # the agent that asked
    by: str  # who decided
    tree: str  # the tree that was shown
    change: str  # the id of the change
    approved: bool  # whether the answer is yes
    at: int = 0  # when, in seconds since the epoch
    channel: str | None = None  # how the answer came, such as `forge`


def approval_in(commit: AgentCommit) -> Approval | None:
    """The decision on a change of guardrails that a commit records; None for any other commit."""
    is_question = commit.kind == DECISION and (not commit.request or commit.request.startswith(QUESTION))
    question = commit.meta.get("asked") if is_question else None
    if not isinstance(question, dict) or question.get("kind") != GUARDRAIL_CHANGE or commit.agent is None:
        return None
    change, tree = question.get("change"), question.get("tree")
    if not isinstance(change, str) or tree != commit.tree:
        return None
    is_approved = answer_of(commit) == APPROVE
    return Approval(
        commit.cid, commit.agent, commit.by or "", commit.tree, change, is_approved, commit.committer.at, commit.channel
    )


def is_recorded(lifecycle: Lifecycle, decision: AgentCommit) -> bool:
    """Whether a session recorded a decision: a commit alone can be forged."""
    if decision.agent is None or decision.request is None:
        return False
    try:
        resumes = lifecycle.recorded(decision.agent, decision.request.rpartition(".")[0]).resumes
    except CliaError:
        return False
    return any(resumed.decision == decision.cid for resumed in resumes)


def answer_of(commit: AgentCommit) -> Any:
    """The answer that a decision records."""
    wrapped = json_object(f'{{"value":{commit.value}}}') if commit.value else None
    return None if wrapped is None else wrapped.get("value")


class RecordedHistory(Protocol):
    """Reads commits and trees."""

    def commit(self, cid: str) -> AgentCommit:
        """A commit."""

    def entry(self, tree: str, path: str) -> TreeEntry | None:
        """What a tree has at a path."""

    def listing(self, tree: str) -> Iterator[tuple[str, TreeEntry]]:
        """The entries of a tree."""


class CommitSignatures(Protocol):
    """Reads who signed commits, and who proved decisions."""

    def problem(self, commit: str) -> str | None:
        """Why the signature of a commit does not count; None if an enrolled key made it."""

    def is_proved(self, decision: str) -> bool:
        """Whether a person proved a decision with a key of their own."""


class Approvers(NamedTuple):
    """Who may decide."""

    people: tuple[str, ...] = ()  # by name or e-mail address; empty: every person
    other_person: bool = False  # who decides must not be accountable for the work


class Evidence(NamedTuple):
    """The commits behind a change, and how to look at them."""

    repository: RecordedHistory
    approvers: Approvers
    commits: tuple[AgentCommit, ...]  # newest first; also those of squashed landings
    has_trace: Callable[[str, str], bool]  # whether a commit of an agent has a trace
    is_agent: Callable[[str], bool]  # whether an agent has this name
    is_recorded: Callable[[AgentCommit], bool] = lambda _: True  # whether a session recorded the decision

    # Decisions

    def decisions(self) -> list[AgentCommit]:
        return [commit for commit in self.commits if commit.kind == DECISION and is_yes(commit)]

    def objection(self, decision: AgentCommit) -> str | None:
        """Why a decision does not count, if it does not."""
        short, by = decision.cid[:12], decision.by or ""
        if not decision.request or not by or decision.agent is None:
            return f"decision {short} does not say what was asked, or who decided"
        if len(decision.parents) != 1 or self.repository.commit(decision.parents[0]).tree != decision.tree:
            return f"decision {short} changes files"
        if names_agent(by, decision.agent) or decision.committer.email.casefold().endswith(AGENT_DOMAIN):
            return f"decision {short} is the agent's own approval"
        name, email = name_and_email(by)
        if not email and self.is_agent(name):
            return f"decision {short} is by {by}, which is an agent"
        if not self.is_recorded(decision):
            return f"decision {short} was not made by a session"
        if not is_listed(by, self.approvers.people):
            return f"decision {short} is by {by}, who may not approve here"
        if self.approvers.other_person and self._is_accountable(by):
            return f"decision {short} is by {by}, who is accountable for the work"
        return None

    def _is_accountable(self, by: str) -> bool:
        """Whether a person committed some of the work."""
        own = {part.casefold() for part in name_and_email(by) if part}
        work = (commit for commit in self.commits if commit.kind != DECISION)
        return any({commit.committer.name.casefold(), commit.committer.email.casefold()} & own for commit in work)

    def undecided(self, paths: Iterable[str], tree: str) -> tuple[list[str], str]:
        """The paths without a decision on their content in ``tree``, and why."""
        decisions = self.decisions()
        counting = [decision for decision in decisions if self.objection(decision) is None]
        missing = [path for path in paths if not any(self._same(decision.tree, tree, path) for decision in counting)]
        if not decisions:
            return missing, "no decision is among the commits"
        if not counting:
            return missing, next(filter(None, map(self.objection, decisions)))
        newest = counting[0]
        earlier = bool(missing) and self._edited_since(newest, missing[0])
        moment = "before the last edit" if earlier else "on another tree"
        return missing, f"decision {newest.cid[:12]} was made {moment}"

    def _edited_since(self, decision: AgentCommit, path: str) -> bool:
        """Whether a commit after a decision changed a path."""
        for commit in self.commits:
            if commit.cid != decision.cid and decision.cid in self._ancestors(commit):
                before = self.repository.commit(commit.parents[0]).tree if commit.parents else None
                if before is None or not self._same(before, commit.tree, path):
                    return True
        return False

    def _ancestors(self, commit: AgentCommit) -> set[str]:
        by_id = {other.cid: other for other in self.commits}
        seen_commits: set[str] = set()
        waiting = list(commit.parents)
        while waiting:
            cid = waiting.pop()
            if cid in by_id and cid not in seen_commits:
                seen_commits.add(cid)
                waiting += by_id[cid].parents
        return seen_commits

    def decided_change(self, change: str, tree: str) -> tuple[AgentCommit | None, str]:
        """The newest decision that counts on a change of guardrails, whether it approves or rejects it, or why there is none.

        ``tree``: that of the agent's work as it lands.
        """
        decisions = [(commit, approval) for commit in self.commits if (approval := approval_in(commit)) is not None]
        reason = "no decision on a change of guardrails is among the commits"
        for commit, approval in decisions:
            if approval.change != change:
                reason = "the decisions on changes of guardrails are about other changes"
                continue
            objection = self.objection(commit)
            if objection is None and only_journals_differ(self.repository, commit.tree, tree):
                return commit, ""
            reason = objection or f"decision {commit.cid[:12]} was made before the last edit"
        return None, reason

    # Tests and traces

    def untested(self, paths: Iterable[str], tree: str) -> list[str]:
        """The paths that were edited after the last recorded tests."""
        tests = [commit for commit in self.commits if commit.kind == TEST]
        return [path for path in paths if not any(self._same(commit.tree, tree, path) for commit in tests)]

    def untraced(self) -> list[str]:
        """The agents whose work comes without a trace."""
        work = [commit for commit in self.commits if commit.agent and commit.kind not in (None, DECISION, SPAWN)]
        own = [commit for commit in work if commit.landed is None]
        agents = sorted({str(commit.agent) for commit in own})
        return [agent for agent in agents if not any(self.has_trace(agent, commit.cid) for commit in own if commit.agent == agent)]

    # Signatures

    def unsigned(self, paths: Iterable[str], tree: str, signatures: CommitSignatures) -> tuple[list[str], str]:
        """The paths that commits changed without a signature that counts, and why the first does not.

        A person's own proof of a decision on the content of a path stands for signatures.
        """
        proved = [
            commit
            for commit in self.commits
            if commit.kind == DECISION and self.objection(commit) is None and is_yes(commit) and signatures.is_proved(commit.cid)
        ]
        missing, reason = [], ""
        for path in paths:
            if any(self._same(decision.tree, tree, path) for decision in proved):
                continue
            authors = [commit for commit in self.commits if self._changes(commit, path)]
            problems = (signatures.problem(commit.cid) for commit in authors)
            problem = next(filter(None, problems), None) if authors else "no commit is known that changes it"
            if problem is not None:
                missing.append(path)
                reason = reason or problem
        return missing, reason

    def _changes(self, commit: AgentCommit, path: str) -> bool:
        """Whether a commit has another content at a path than each of its parents."""
        parents = [self.repository.commit(parent).tree for parent in commit.parents]
        if not parents:
            return self.repository.entry(commit.tree, path) is not None
        return not any(self._same(parent, commit.tree, path) for parent in parents)

    def has_agents(self) -> bool:
        return any(commit.agent for commit in self.commits)

    def _same(self, one: str, other: str, path: str) -> bool:
        return self.repository.entry(one, path) == self.repository.entry(other, path)


def only_journals_differ(source: RecordedHistory, before: str, after: str) -> bool:
    """Whether two trees have the same guardrails by all that they contain: journals state none."""
    if before == after:
        return True
    paths = changed_paths(source, before, after)
    entries = [source.entry(after, path) for path in paths if is_journal(path)]
    return len(entries) == len(paths) and all(entry is not None and entry.mode == FILE for entry in entries)


def is_yes(commit: AgentCommit) -> bool:
    answer = answer_of(commit)
    if isinstance(answer, dict):
        answer = answer.get("approved", answer.get("approve"))
    return answer is True or (isinstance(answer, str) and answer.strip().casefold() in _YES)
