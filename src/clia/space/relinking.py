"""Traces survive rewrites: they are bound again to what a squash or rebase made of their commits.

Invariant: nothing is taken from the old commits; a commit that has a trace of its own keeps it; a trace is bound again
only where the change, or the tree, is the same.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.space.model import agent_commit
from clia.values import refs as names
from clia.values.typed_objects import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.git.workbench import GitWorkbench
    from clia.space.core import Core
    from clia.space.model import AgentCommit
    from clia.space.traces import Traces

PATCH, TREE = "patch-id", "tree"


class Relinked(NamedTuple):
    """A commit that has a trace now, and the commits it came from."""

    commit: str
    sources: tuple[str, ...]
    by: str
    agent: str


class Relinking:
    def __init__(self, core: Core, traces: Traces, workbench: GitWorkbench) -> None:
        self._core = core
        self._traces = traces
        self._workbench = workbench

    def relink(self, onto: str | None = None) -> list[Relinked]:
        """Looks on one branch, or on all of them."""
        traced = self._traced()
        known = [cid for cid in traced if self._core.objects.kind(cid) == "commit"]
        candidates = self._candidates(onto, known)
        if not candidates:
            return []
        found = self._by_patch(candidates, known, traced)
        taken = {each.commit for each in found}
        found += self._by_tree([each for each in candidates if each.cid not in taken], known, traced)
        for each in found:
            entries = [entry for source in each.sources for entry in self._entries(traced[source][1])]
            self._traces.attach(each.commit, entries, each.agent)
        return found

    def _traced(self) -> dict[str, tuple[str, str]]:
        """Commit to agent and trace, over every agent's notes."""
        found: dict[str, tuple[str, str]] = {}
        for ref, _ in self._core.refs.under(names.TRACES):
            agent = ref.removeprefix(names.TRACES)
            if names.is_name(agent):
                for commit, blob in self._core.notes.all(ref).items():
                    found.setdefault(commit, (agent, blob))
        return found

    def _candidates(self, onto: str | None, known: list[str]) -> list[AgentCommit]:
        """Commits without a trace that are no older than the first traced one: agents' own, and those of people."""
        core = self._core
        if not known:
            return []
        heads = core.refs.under(names.BRANCHES)
        agents = [(ref.removeprefix(names.HEADS), cid) for ref, cid in heads if ref.startswith(names.HEADS)]
        starts = [onto] if onto else [cid for ref, cid in heads if not ref.startswith(names.HEADS)]
        first = min(core.objects.commit(cid).author.at for cid in known)
        found = {each.cid: each for each in map(agent_commit, core.graph.walk(starts)) if each.committer.at >= first}
        if onto is None:
            found |= {each.cid: each for name, cid in agents for each in core.own_commits(name, cid)}
        traced = set(known)
        return [each for each in found.values() if len(each.parents) < 2 and each.kind != "spawn" and each.cid not in traced]

    def _by_patch(self, candidates: list[AgentCommit], known: list[str], traced: dict[str, tuple[str, str]]) -> list[Relinked]:
        ids = self._workbench.patch_ids([*known, *(each.cid for each in candidates)])
        sources: dict[str, str] = {}
        for cid in known:
            if cid in ids:
                sources.setdefault(ids[cid], cid)
        found = []
        for each in candidates:
            source = sources.get(ids.get(each.cid, ""))
            if source is not None and self._fits(each, traced[source][0]):
                found.append(Relinked(each.cid, (source,), PATCH, traced[source][0]))
        return found

    def _by_tree(self, candidates: list[AgentCommit], known: list[str], traced: dict[str, tuple[str, str]]) -> list[Relinked]:
        """A squash has the tree of the last commit it took, over a parent with the tree of an earlier one."""
        core = self._core
        ends: dict[str, str] = {}
        for cid in known:
            ends.setdefault(core.objects.commit(cid).tree, cid)
        found = []
        for each in candidates:
            end = ends.get(each.tree)
            if end is None or not each.parents:
                continue
            agent = traced[end][0]
            start = core.objects.commit(each.parents[0]).tree
            sources = [cid for cid in self._since(agent, end, start) if cid in traced]
            if sources and self._fits(each, agent):
                found.append(Relinked(each.cid, tuple(sources), TREE, agent))
        return found

    def _since(self, agent: str, end: str, start: str) -> list[str]:
        """The agent's commits up to ``end`` after the newest one with the tree ``start``, oldest first."""
        found: list[str] = []
        for commit in self._core.own_commits(agent, end):
            if commit.tree == start:
                return found[::-1]
            found.append(commit.cid)
        return found[::-1]

    def _fits(self, commit: AgentCommit, agent: str) -> bool:
        """Not another agent's commit, and none that says itself where its traces are."""
        return commit.agent in (None, agent) and commit.landed is None

    def _entries(self, blob: str) -> list[Any]:
        made = parse(self._core.objects.blob(blob))
        return list(made["entries"]) if made is not None and made["type"] == "console-trace" else []
