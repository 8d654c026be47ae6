"""Finding the notes of rewritten commits: ``clia relink``.

Invariant: notes are only added. A trace goes to commits that repeat the change, or the tree, of commits that have one.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

from clia.errors import NotAllowed
from clia.space.attribution.attributions import people_tips
from clia.space.core import UNREADABLE
from clia.space.model import agent_commit
from clia.space.rewritten import Rewritten
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.git.porcelain import GitPorcelain
    from clia.space.attribution.attributions import Attributions
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.model import AgentCommit
    from clia.space.traces import Traces

PATCH, TREE, COPY = "patch-id", "tree", "copy"


class Relinked(NamedTuple):
    """A commit that was given a trace or a checkpoint, and the commits that it came from."""

    commit: str  # the commit
    sources: tuple[str, ...]  # commits whose traces or checkpoint it got
    by: str  # how the commits were matched: `patch-id`, `tree`, or `copy` by a rebase
    agent: str  # the agent of the traces


class Relinking:
    def __init__(self, core: Core, envelope: Envelope, traces: Traces, porcelain: GitPorcelain, attributions: Attributions) -> None:
        self._core = core
        self._envelope = envelope
        self._traces = traces
        self._porcelain = porcelain
        self._attributions = attributions

    def relink(self, onto: str | None = None) -> list[Relinked]:
        """Search one branch, or all of them. The lines of its commits are compared with those of agents again."""
        self._attributions.repair([onto] if onto else people_tips(self._core))
        copied = [] if onto else self._copied()
        traced = self._traced()
        present = [cid for cid in traced if self._core.objects.kind(cid) == "commit"]
        candidates = self._candidates(onto, present)
        if not candidates:
            return copied
        relinked = self._by_patch(candidates, present, traced)
        linked = {link.commit for link in relinked}
        relinked += self._by_tree([commit for commit in candidates if commit.cid not in linked], present, traced)
        for link in relinked:
            traces = (self._traces.read(traced[source][1]) for source in link.sources)
            self._traces.attach(link.commit, [entry for trace in traces if trace for entry in trace.entries], link.agent)
        return copied + relinked

    def _copied(self) -> list[Relinked]:
        """Carry traces and checkpoints to the copies of agents' commits on their own branches."""
        rewritten, copies = Rewritten(self._core), dict[str, Relinked]()
        for ref, _ in self._core.refs.under(names.HEADS):
            name = ref.removeprefix(names.HEADS)
            with suppress(*UNREADABLE, NotAllowed):  # damaged, or another clone's
                if names.is_name(name) and rewritten.left(name, self._core.own_head(name)):
                    with self._envelope.at_work(name):
                        notes = rewritten.carry(name, self._core.own_head(name))
                    copies |= {note.commit: Relinked(note.commit, (note.source,), COPY, name) for note in notes}
        return list(copies.values())

    def _traced(self) -> dict[str, tuple[str, str]]:
        """The agent and the trace of each traced commit."""
        traced: dict[str, tuple[str, str]] = {}
        for ref, _ in self._core.refs.under(names.TRACES):
            agent = ref.removeprefix(names.TRACES)
            if names.is_name(agent):
                with suppress(*UNREADABLE):
                    for commit, blob in self._core.notes.all(ref).items():
                        traced.setdefault(commit, (agent, blob))
        return traced

    def _candidates(self, onto: str | None, traced: list[str]) -> list[AgentCommit]:
        """Commits without a trace, of agents or others, that are not older than the first traced one."""
        core = self._core
        if not traced:
            return []
        heads = core.refs.under(names.BRANCHES)
        agents = [(ref.removeprefix(names.HEADS), cid) for ref, cid in heads if ref.startswith(names.HEADS)]
        starts = [onto] if onto else [cid for ref, cid in heads if not ref.startswith(names.HEADS)]
        first = min(core.objects.commit(cid).author.at for cid in traced)
        commits = {commit.cid: commit for commit in map(agent_commit, core.graph.walk(starts)) if commit.committer.at >= first}
        if onto is None:
            commits |= {commit.cid: commit for name, cid in agents for commit in core.own_commits(name, cid)}
        for cid in traced:
            commits.pop(cid, None)
        return [commit for commit in commits.values() if len(commit.parents) < 2 and commit.kind != "spawn"]

    def _by_patch(self, candidates: list[AgentCommit], present: list[str], traced: dict[str, tuple[str, str]]) -> list[Relinked]:
        ids = self._porcelain.patch_ids([*present, *(commit.cid for commit in candidates)])
        sources = {ids[cid]: cid for cid in reversed(present) if cid in ids}  # the first commit with a patch counts
        pairs = ((commit, sources.get(ids.get(commit.cid, ""))) for commit in candidates)
        return [
            Relinked(commit.cid, (source,), PATCH, traced[source][0])
            for commit, source in pairs
            if source is not None and _may_get_trace(commit, traced[source][0])
        ]

    def _by_tree(self, candidates: list[AgentCommit], present: list[str], traced: dict[str, tuple[str, str]]) -> list[Relinked]:
        """Find squashes: the tree of the last squashed commit, on a parent with the tree of an earlier one."""
        objects = self._core.objects
        ends = {objects.commit(cid).tree: cid for cid in reversed(present)}
        relinked = []
        for commit in candidates:
            end = ends.get(commit.tree)
            if end is None or not commit.parents:
                continue
            agent = traced[end][0]
            sources = [cid for cid in self._since(agent, end, objects.commit(commit.parents[0]).tree) if cid in traced]
            if commit.agent == agent:  # a decision changes no file: without this, the commit before it would look like a squash
                sources = Rewritten(self._core).without_copies(agent, sources, commit)
            if sources and _may_get_trace(commit, agent):
                relinked.append(Relinked(commit.cid, tuple(sources), TREE, agent))
        return relinked

    def _since(self, agent: str, end: str, start: str) -> list[str]:
        """The agent's commits up to ``end`` after the newest one with the tree ``start``, oldest first."""
        newer = takewhile(lambda commit: commit.tree != start, self._core.own_commits(agent, end))
        return [commit.cid for commit in newer][::-1]


def _may_get_trace(commit: AgentCommit, agent: str) -> bool:
    """Whether a commit may get this agent's trace: it is not another agent's, nor a landing."""
    return commit.agent in (None, agent) and commit.landed is None
