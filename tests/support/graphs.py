"""Commits and nodes for graphs, without a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clia.git.records import Stamp
from clia.space.model import AgentCommit
from clia.values.graph_lanes import GraphNode

if TYPE_CHECKING:
    from collections.abc import Sequence


def commit(cid: str, parents: Sequence[str] = (), agent: str | None = None, kind: str | None = None, **more: Any) -> AgentCommit:
    """A commit; ``more`` may have ``subject``, ``at`` and other fields of an ``AgentCommit``."""
    stamp = Stamp("Tess", "tess@example.org", more.pop("at", 0))
    return AgentCommit(cid, tuple(parents), "t", agent, kind, more.pop("subject", f"work {cid}"), stamp, stamp, **more)


def commits(text: str) -> list[AgentCommit]:
    """Parse lines like ``a2: a1 b1 ! kind``, newest first. The letters are the agent, ``m`` for people."""
    agent_commits = []
    for line in text.strip().splitlines():
        name, _, rest = line.strip().partition(":")
        parents, _, kind = rest.partition("!")
        agent = name.rstrip("0123456789")
        agent_and_kind = (None, None) if agent == "m" else (agent, kind.strip() or "finding")
        agent_commits.append(commit(name, parents.split(), *agent_and_kind))
    return agent_commits


def graph_nodes(text: str) -> list[GraphNode]:
    """Parse lines like ``a2: a1 b1``, newest first. The letters are the group, ``m`` for people."""
    nodes = []
    for line in text.strip().splitlines():
        name, _, parents = line.strip().partition(":")
        group = name.rstrip("0123456789")
        nodes.append(GraphNode(name, tuple(parents.split()), "" if group == "m" else group))
    return nodes
