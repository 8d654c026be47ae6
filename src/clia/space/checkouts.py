"""Checkouts: an agent's files in a directory.

Invariant: a checkout is a detached worktree that remembers its base commit, so a commit made in between is reported as ``StaleRef``
and never shows as deletions.
"""

from __future__ import annotations

from contextlib import suppress

from clia.errors import Conflict, InvalidInput
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.git.records import Checkout
    from clia.git.workbench import GitWorkbench
    from clia.space.commits import Commits
    from clia.space.core import CommitText, Core


class CheckoutPlaces:
    """All directories are absolute paths."""

    def __init__(self, core: Core, commits: Commits, workbench: GitWorkbench) -> None:
        self._core = core
        self._commits = commits
        self._workbench = workbench

    def checkout(self, name: str, directory: str) -> str:
        """Create a worktree with the agent's files, or bring an existing one to the agent's head."""
        core = self._core
        with suppress(Conflict):  # reading files uses what is here; working on the agent fetches first
            core.fresh(name)
        head = core.require_head(name)
        present = self._present(name, directory, head)
        if present is None:
            here = self._workbench.head_of(directory)
            if here is None or not core.graph.descends(head, here):
                self._workbench.add_worktree(directory, name, head)
                return head
            self._workbench.claim_worktree(directory, name)  # its creator died before it recorded the owner
            present = self._present(name, directory, head)
        if present is not None and present.base != head:
            self._workbench.move_worktree(directory, name, head)
        return head

    def _present(self, name: str, directory: str, head: str) -> Checkout | None:
        """The agent's checkout in a directory, after settling a commit that its creator did not finish."""
        found = self._workbench.checkout_of(directory)
        if found is not None and found.agent != name:
            raise _belongs_to(directory, found.agent)
        if found is None or found.tree is None or found.base == head:
            return found
        for commit in self._core.own_commits(name, head):
            if commit.parents[:1] == (found.base,):
                if commit.tree == found.tree:
                    self._workbench.settle(directory, name, found.base, commit.cid)
                    return found._replace(base=commit.cid, tree=None)
                break
        return found

    def checkout_at(self, directory: str) -> Checkout | None:
        """The checkout whose directory contains this one."""
        at = directory
        while True:
            found = self._workbench.checkout_of(at)
            above = at.rpartition("/")[0]
            if found is not None or not above or above == at:
                return found
            at = above

    def commit_dir(self, name: str, kind: str, directory: str, words: CommitText, *, base: str | None, with_trace: bool) -> str:
        head = self._core.require_head(name)
        present = self._present(name, directory, head)
        start = base or (present.base if present else self._base_of(directory, head))

        def staged(tree: str) -> str:
            made = self._workbench.snapshot(directory, tree)
            self._commits.check_tree(tree, made)
            if present is not None:
                self._workbench.prepare(present, made)
            return made

        made = self._commits.commit(name, kind, staged, words, base=start, with_trace=with_trace)
        if present is not None:
            self._workbench.settle(directory, name, start, made)
        return made

    def _base_of(self, directory: str, head: str) -> str:
        """The commit that the files of a directory came from, if it is not a checkout of ours."""
        core = self._core
        here = self._workbench.head_of(directory)
        if here is not None:
            return head if core.objects.commit(here).tree == core.objects.commit(head).tree else here
        if core.read(head).kind == SPAWN:
            return head  # nothing was done yet
        raise InvalidInput(
            f"which commit do the files of {directory} come from?",
            code="base-needed",
            hints=["work in a checkout, which knows it: clia checkout AGENT DIR", "or name it: --base COMMIT"],
            fields={"directory": directory},
        )


def _belongs_to(directory: str, agent: str) -> Conflict:
    return Conflict(
        f"{directory} is a checkout of the agent {agent!r}",
        code="other-checkout",
        hints=["use another directory, or the agent's own name"],
        fields={"directory": directory, "agent": agent},
    )
