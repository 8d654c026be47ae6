"""Agents' files in directories.

Invariant: a checkout is detached and remembers the commit it was made from, so that another's commit in between shows as
``StaleRef`` and never as deletions.
"""

from __future__ import annotations

from clia.errors import Conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.ports.workbench import Checkout, Workbench
    from clia.space.commits import Commits
    from clia.space.core import Core, Words


class Places:
    """Directories are absolute paths."""

    def __init__(self, core: Core, commits: Commits, workbench: Workbench) -> None:
        self._core = core
        self._commits = commits
        self._workbench = workbench

    def checkout(self, name: str, directory: str) -> str:
        """A worktree with the agent's files, or the one that is there brought to the agent's head."""
        head = self._core.require_head(name)
        present = self._workbench.checkout_of(directory)
        if present is None:
            self._workbench.add_worktree(directory, name, head)
        elif present.agent != name:
            raise _belongs_to(directory, present.agent)
        elif present.base != head:
            self._workbench.move_worktree(directory, name, head)
        return head

    def checkout_at(self, directory: str) -> Checkout | None:
        """The checkout that a directory is the top of, or lies in."""
        at = directory
        while True:
            found = self._workbench.checkout_of(at)
            above = at.rpartition("/")[0]
            if found is not None or not above or above == at:
                return found
            at = above

    def commit_dir(self, name: str, kind: str, directory: str, words: Words, *, base: str | None, with_trace: bool) -> str:
        present = self._workbench.checkout_of(directory)
        if present is not None and present.agent != name:
            raise _belongs_to(directory, present.agent)
        start = base or (present.base if present else self._core.require_head(name))
        made = self._commits.commit(
            name, kind, lambda tree: self._workbench.snapshot(directory, tree), words, base=start, with_trace=with_trace
        )
        if present is not None:
            self._workbench.settle(directory, name, start, made)
        return made


def _belongs_to(directory: str, agent: str) -> Conflict:
    return Conflict(
        f"{directory} is a checkout of the agent {agent!r}",
        code="other-checkout",
        hints=["use another directory, or the agent's own name"],
        fields={"directory": directory, "agent": agent},
    )
