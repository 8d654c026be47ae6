"""The work of agents as changes to a branch, like pull requests: commits, files, and what landing them would do now.

Invariant: reading moves no ref, asks nobody and waits for no lock. The answer may be out of date when it is used; landing checks
everything again.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple, TypeVar

from clia.errors import NoSuchObject
from clia.space.core import UNREADABLE
from clia.space.model import agent_commit
from clia.values import refs as names
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.git.line_diff import GitLineDiffs, TreeDifference
    from clia.git.records import FileChange
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.history import History
    from clia.space.landing import Landing, LandingPlan
    from clia.space.merging import TreeMerging
    from clia.space.model import AgentCommit
    from clia.verbs import Count

K = TypeVar("K")
V = TypeVar("V")
LANDS, CONFLICTS, REFUSED, UP_TO_DATE = "lands", "conflicts", "refused", "up-to-date"
_REMEMBERED = 4096
"""Differences and merges that are remembered; they depend only on commits."""


class Forecast(NamedTuple):
    """What landing an agent's work would do now."""

    outcome: str  # `lands`, `conflicts`, `refused` or `up-to-date`
    fast_forward: bool = False  # whether the branch could move to the agent's head without a new commit
    conflicts: tuple[str, ...] = ()  # conflicting paths
    reasons: tuple[str, ...] = ()  # what a rule or an approval still asks for


class ChangeSummary(NamedTuple):
    """The work of one agent that a branch does not have yet, in numbers."""

    agent: str  # the agent
    title: str  # what it works on, from its briefing
    onto: str  # the branch
    head: str  # the agent's newest commit
    tip: str | None  # the branch's newest commit
    at: int  # time of the head, in seconds since the epoch
    commits: Count  # the agent's commits
    files: Count  # files that differ
    added: Count  # lines added
    removed: Count  # lines removed
    outcome: str  # `lands` or `conflicts`, before rules and approvals are checked
    conflicts: tuple[str, ...] = ()  # conflicting paths
    problem: str | None = None  # why the change cannot be read; null: it can


class AgentChange(NamedTuple):
    """The work of one agent that a branch does not have yet."""

    agent: str  # the agent
    title: str  # what it works on, from its briefing
    onto: str  # the branch
    head: str  # the agent's newest commit
    tip: str | None  # the branch's newest commit
    base: str | None  # the commit that the files are compared with; null: no files
    commits: list[AgentCommit]  # the agent's commits, newest first
    files: list[FileChange]  # the files that differ
    forecast: Forecast  # what landing would do


class Clash(NamedTuple):
    """Two agents whose work cannot be merged without a person."""

    first: str  # an agent
    second: str  # another agent
    paths: tuple[str, ...]  # conflicting paths


class AgentChanges:
    """The work of agents as changes to a branch."""

    def __init__(
        self, core: Core, agents: Agents, history: History, landing: Landing, trees: TreeMerging, diffs: GitLineDiffs
    ) -> None:
        self._core = core
        self._agents = agents
        self._history = history
        self._landing = landing
        self._trees = trees
        self._diffs = diffs
        self._differences: dict[tuple[str | None, str], TreeDifference] = {}
        self._merges: dict[tuple[str, str], tuple[str, ...]] = {}

    def get(self, name: str, onto: str | None) -> AgentChange:
        branch = self._landing.default_branch() if onto is None else onto
        head = self._core.require_head(names.check_name(name))
        plan = self._landing.plan(name, branch, head)
        base = plan.base or self._start(name, head)
        commits = list(self._commits(name, plan))
        files = self._history.changes(base, head) if base is not None and base != head and commits else []
        return AgentChange(
            name, self._title(name), branch, head, plan.tip, base, commits, files, self._forecast(name, branch, plan)
        )

    def all(self, onto: str | None) -> list[ChangeSummary]:
        """The agents with work that the branch does not have, the newest first."""
        branch = self._landing.default_branch() if onto is None else onto
        summaries = [summary for name in self._agents.names() if (summary := self._summary(name, branch)) is not None]
        return sorted(summaries, key=lambda summary: (-summary.at, summary.agent))

    def clashes(self, onto: str | None) -> list[Clash]:
        """The pairs of agents with unlanded work whose merge has conflicts; only pairs that change the same paths are merged."""
        branch = self._landing.default_branch() if onto is None else onto
        plans = [(name, plan) for name in self._agents.names() if (plan := self._open_plan(name, branch)) is not None]
        paths = {name: self._difference(plan.base or self._start(name, plan.head), plan.head).paths for name, plan in plans}
        pairs = (
            Clash(first, second, self._conflicts(one.head, other.head))
            for (first, one), (second, other) in combinations(plans, 2)
            if not paths[first].isdisjoint(paths[second])
        )
        return [clash for clash in pairs if clash.paths]

    def _forecast(self, name: str, onto: str, plan: LandingPlan) -> Forecast:
        if plan.landed:
            return Forecast(UP_TO_DATE)
        forward = self._landing.is_forward(plan)
        if plan.tree is None:
            return Forecast(CONFLICTS, forward, tuple(conflict.path for conflict in plan.conflicts))
        reasons = self._landing.objection(name, onto, plan)
        return Forecast(REFUSED if reasons else LANDS, forward, (), reasons)

    def _summary(self, name: str, onto: str) -> ChangeSummary | None:
        """None if the branch has all of the agent's work, or the agent has done nothing."""
        head = self._core.head(name)
        if head is None:  # archived in between
            return None
        bare = ChangeSummary(name, self._title(name), onto, head, None, 0, 0, 0, 0, 0, LANDS)
        try:
            bare = bare._replace(at=self._core.objects.commit(head).committer.at)
            plan = self._landing.plan(name, onto, head)
            count = sum(1 for _ in self._commits(name, plan))
            if plan.landed or not count:
                return None
            difference = self._difference(plan.base or self._start(name, head), head)
        except UNREADABLE as err:
            return bare._replace(problem=err.message)
        outcome = CONFLICTS if plan.tree is None else LANDS
        paths = tuple(conflict.path for conflict in plan.conflicts)
        _, files, added, removed = difference
        return bare._replace(
            tip=plan.tip, commits=count, files=files, added=added, removed=removed, outcome=outcome, conflicts=paths
        )

    def _open_plan(self, name: str, onto: str) -> LandingPlan | None:
        """The plan of an agent that can land and has not."""
        head = self._core.head(name)
        try:
            plan = None if head is None else self._landing.plan(name, onto, head)
            return plan if plan is not None and not plan.landed and any(self._commits(name, plan)) else None
        except UNREADABLE:
            return None

    def _commits(self, name: str, plan: LandingPlan) -> Iterator[AgentCommit]:
        """The agent's commits that the branch does not have, newest first, without the one that it was spawned with."""
        hidden = [cid for cid in (None if plan.contained else plan.tip, plan.base) if cid is not None]
        for commit in map(agent_commit, self._core.graph.walk([plan.head], hidden)):
            if commit.agent == name and commit.kind not in (None, SPAWN):
                yield commit

    def _start(self, name: str, head: str) -> str | None:
        """The commit that the agent was spawned with."""
        try:
            return self._agents.genesis(name)
        except NoSuchObject:
            return self._core.own_root(name, head)

    def _title(self, name: str) -> str:
        try:
            return self._agents.briefing_of(name).title
        except UNREADABLE:
            return ""

    def _difference(self, base: str | None, head: str) -> TreeDifference:
        return _remembered(self._differences, (base, head), lambda: self._diffs.difference(base, head))

    def _conflicts(self, ours: str, theirs: str) -> tuple[str, ...]:
        paths = lambda: tuple(conflict.path for conflict in self._trees.merge(ours, theirs).conflicts)  # noqa: E731
        return _remembered(self._merges, (ours, theirs), paths)


def _remembered(cache: dict[K, V], key: K, compute: Callable[[], V]) -> V:
    if key not in cache:
        if len(cache) >= _REMEMBERED:
            cache.clear()
        cache[key] = compute()
    return cache[key]
