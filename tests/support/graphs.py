"""Commits for a graph, as a space would answer with them, without a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clia.git.records import Stamp
from clia.space.model import AgentCommit

if TYPE_CHECKING:
    from collections.abc import Sequence


def commit(cid: str, parents: Sequence[str] = (), agent: str | None = None, kind: str | None = None, **more: Any) -> AgentCommit:
    """``subject`` and ``at`` besides what an ``AgentCommit`` has."""
    stamp = Stamp("Tess", "tess@example.org", more.pop("at", 0))
    return AgentCommit(cid, tuple(parents), "t", agent, kind, more.pop("subject", f"work {cid}"), stamp, stamp, **more)


def commits(text: str) -> list[AgentCommit]:
    """``a2: a1 b1 ! kind`` a line, newest first; the agent is what stands before the number, ``m`` for people."""
    found = []
    for line in text.strip().splitlines():
        name, _, rest = line.strip().partition(":")
        parents, _, kind = rest.partition("!")
        agent = name.rstrip("0123456789")
        known = (None, None) if agent == "m" else (agent, kind.strip() or "finding")
        found.append(commit(name, parents.split(), *known))
    return found
