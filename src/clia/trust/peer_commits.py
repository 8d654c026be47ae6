"""Commits of other spaces in the history of agents: of peers whose agents were merged, or from whose commits agents were spawned.

Their machines signed them, and the chain of keys of their space is not here. The commits of this space that build on them are
signed here and name them by their ids, so that nobody can add to them or change them.

Invariant: a commit counts as a peer's only behind a commit that a machine of this space signed: a merge that names the peer, or the
first commit of an agent at a commit that is tracked for a peer.
"""

from __future__ import annotations

from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from clia.trust.raw_commits import RawCommit
    from clia.trust.verification import TrustChecks

FOREIGN_CODES = ("unknown-key", "unsigned-commit")
"""Findings about commits that no machine of this space signed."""
_SPAWN = "spawn"


class PeerCommits:
    """Collects where the histories of peers begin."""

    def __init__(self, checks: TrustChecks, tracked: Iterable[str]) -> None:
        """``tracked``: the commits that are tracked for peers."""
        self._checks = checks
        self._tracked = tuple(tracked)
        self._merged: list[str] = []
        self._started_at: list[str] = []

    def note(self, commit: RawCommit) -> None:
        """Look at a commit that a machine of this space signed."""
        if names.remote_agent(commit.trailer("Clia-Merged") or "") is not None:
            self._merged += commit.parents[1:]
        elif commit.trailer("Clia-Type") == _SPAWN:
            self._started_at += commit.parents

    def all(self) -> set[str]:
        """The commits that may be of peers."""
        commits = self._reached(self._merged)
        if self._tracked and self._started_at:
            commits |= self._reached(self._started_at) & self._reached(self._tracked)
        return commits

    def _reached(self, starts: Iterable[str]) -> set[str]:
        visited: set[str] = set()
        for start in starts:
            for _ in self._checks.walk(names.HEADS, start, visited, quiet=True):
                pass
        return visited
