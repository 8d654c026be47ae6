"""Commits that a captured tool makes on a person's branch.

Invariant: the person's branch, HEAD, index and files are not touched. Each commit that the tool created while one of its calls ran
becomes one commit of the agent: its change, applied to the agent's files, with its message and author date. A note on the
person's commit names it. Commits that the tool fetched or switched to are not the tool's.
"""

from __future__ import annotations

from itertools import islice

from clia.capture.service import DirectoryChange
from clia.errors import NoSuchObject
from clia.space.program_commits import AdoptedCommits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clia.capture.service import CapturedSession
    from clia.git.records import Commit
    from clia.space.commits import Snapshots
    from clia.space.core import Core
    from clia.space.program_commits import Trailer

_LOOK_BACK = 200
"""Commits of the agent to search for adopted ones: an interrupted ingest records an event again."""


class ToolCommits(AdoptedCommits):
    """The commits of one turn. ``created``: what the reflog of the directory says was created there; None: it has none."""

    def __init__(
        self,
        core: Core,
        snapshots: Snapshots,
        captured: CapturedSession,
        created: frozenset[str] | None,
        applied: Callable[[DirectoryChange], Callable[[str], str]],
    ) -> None:
        super().__init__(core, snapshots, captured.agent)
        self._moves = captured.moves
        self._created = created
        self._applied = applied

    def adopt(self, head: str, identity: Sequence[Trailer]) -> tuple[list[str], list[Trailer]]:
        core, stands_for = self._core, dict[str, str]()
        tip = head
        for commit in self._own(head):
            before = core.objects.commit(commit.parents[0]).tree if commit.parents else core.empty_tree()
            tree = self._applied(DirectoryChange(commit.tree, before))(core.objects.commit(tip).tree)
            merged = [stands_for.get(parent, parent) for parent in commit.parents[1:]]
            tip = stands_for[commit.cid] = self._write(commit, tree, [tip, *self._others(head, [tip], merged)], identity)
        return [tip], []

    def pending(self, commit: str) -> None:
        """Nothing to record: the person's worktree does not follow."""

    def _own(self, head: str) -> Iterator[Commit]:
        """The commits to adopt, oldest first."""
        adopted = {commit.own for commit in islice(self._core.own_commits(self._agent, head), _LOOK_BACK)}
        # Without a reflog, what a remote has counts as fetched.
        fetched = [cid for _, cid in self._core.refs.under("refs/remotes/")] if self._created is None else []
        for old, new in self._moves:
            try:
                commits = list(self._core.graph.walk([new], [old, head, *fetched]))
            except NoSuchObject:
                continue  # removed since by git gc
            for commit in reversed(commits):
                if (self._created is None or commit.cid in self._created) and commit.cid not in adopted:
                    adopted.add(commit.cid)
                    yield commit
