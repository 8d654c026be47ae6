"""Commits that a program made itself in an agent's worktree become commits of the agent.

Invariant: each commit that the program created and that its HEAD contains is adopted once, in order, with its message, author
date, tree and the shape of its merges. Commits that it left behind (amended, reset, on another branch, stashed) and the originals
of the adopted ones are kept under ``refs/clia/own``. Commits of others that it fetched, merged or checked out stay what they are.
"""

from __future__ import annotations

from clia.space.model import KEPT, OWN
from clia.values import refs as names
from clia.values.commit_messages import compose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.git.records import Checkout, Commit, WorktreeHead
    from clia.git.workbench import GitWorkbench
    from clia.space.commits import Snapshots
    from clia.space.core import Core

    Trailer = tuple[str, str | None]


class ProgramCommits:
    """The commits that a program made in one checkout since the agent's last commit."""

    def __init__(self, core: Core, workbench: GitWorkbench, snapshots: Snapshots, checkout: Checkout) -> None:
        self._core = core
        self._workbench = workbench
        self._snapshots = snapshots
        self._checkout = checkout
        self.head = checkout.own or checkout.base

    def adopt(self, head: str, identity: Sequence[Trailer]) -> tuple[list[str], list[Trailer]]:
        """Write the adopted commits on top of the agent's head.

        Returns the parents of the agent's next commit, and the trailers that name what the program left behind.
        """
        state = self._workbench.head_state(self._checkout.directory, self.head)
        if state is None or state.commit is None:
            return [head], []
        stands_for = dict.fromkeys((self._checkout.base, self.head), head)
        start = self.head
        self.head = state.commit
        adopted, tip = self._adopted(state, head, stands_for, identity)
        left = self._left(state, [head, start])
        self._keep([*left, *([state.commit] if adopted else [])])
        for own, commit in adopted.items():
            self._note(own, commit)
        merged = [] if state.commit in adopted or self._core.graph.descends(head, state.commit) else [state.commit]
        parents = [tip, *merged]
        return parents, [(KEPT, cid) for cid in left]

    def has_any(self) -> bool:
        """Whether there is anything to adopt or to keep."""
        state = self._workbench.head_state(self._checkout.directory, self.head)
        places = (self.head, self._checkout.base)
        return state is not None and (state.commit not in places or bool(self._left(state, places)))

    def keep_left(self) -> bool:
        """Keep the commits that the program left behind; return whether HEAD has commits that are not recorded."""
        state = self._workbench.head_state(self._checkout.directory, self.head)
        if state is None:
            return False
        self._keep(self._left(state, [self.head]))
        return state.commit is not None and bool(self._own(state, state.commit, [self.head, self._checkout.base]))

    def pending(self, commit: str) -> None:
        """Record that a commit is about to become the agent's head."""
        checkout = self._checkout
        self._workbench.record(checkout.directory, checkout.agent, checkout.base, checkout.own, (commit, self.head))

    def _adopted(
        self, state: WorktreeHead, head: str, stands_for: dict[str, str], identity: Sequence[Trailer]
    ) -> tuple[dict[str, str], str]:
        """The agent's commit for each commit of the program, and the last of them."""
        adopted: dict[str, str] = {}
        tip = head
        for commit in self._own(state, state.commit or head, [head, *stands_for]):
            first, *others = commit.parents or ("",)
            parents = [stands_for.get(first, tip)]
            for parent in (first, *others):
                mapped = stands_for.get(parent, parent)
                if mapped and mapped not in parents and not self._core.graph.descends(head, mapped):
                    parents.append(mapped)
            tip = adopted[commit.cid] = stands_for[commit.cid] = self._write(commit, parents, identity)
        return adopted, stands_for.get(state.commit or "", tip)

    def _own(self, state: WorktreeHead, tip: str, hidden: Sequence[str]) -> list[Commit]:
        """The commits of a tip that were created in this worktree, oldest first."""
        created = state.created
        if created is None:  # no reflog: what no other ref contains was created here
            others = {cid for ref, cid in self._core.refs.under("refs/") if ref != state.branch}
            created = frozenset(commit.cid for commit in self._core.graph.walk([tip], [*hidden, *others]))
        own: dict[str, Commit] = {}
        for commit in reversed(list(self._core.graph.walk([tip], hidden))):
            if commit.cid in created or any(parent in own for parent in commit.parents):
                own[commit.cid] = commit
        return list(own.values())

    def _write(self, commit: Commit, parents: Sequence[str], identity: Sequence[Trailer]) -> str:
        core, name = self._core, self._checkout.agent
        self._snapshots.check_tree(core.objects.commit(parents[0]).tree, commit.tree)
        text = core.clean.text(commit.message.replace("\0", "\N{REPLACEMENT CHARACTER}"), "message")
        trailers = [(key, value) for key, value in (*identity, (OWN, commit.cid)) if value]
        message = compose(text, trailers, f"commit by {name}")
        author = core.agent_stamp(name, commit.author.at)
        return core.objects.write_commit(commit.tree, parents, author, core.person_stamp(), message)

    def _left(self, state: WorktreeHead, hidden: Sequence[str]) -> list[str]:
        """The newest commits that were created here and are neither in HEAD nor kept already."""
        core = self._core
        kept = core.refs.get(names.own(self._checkout.agent))
        known = [cid for cid in (*hidden, state.commit, kept) if cid is not None]
        created = [cid for cid in sorted(state.created or ()) if core.objects.kind(cid) == "commit"]
        left = list(core.graph.walk(created, known)) if created else []
        parents = {parent for commit in left for parent in commit.parents}
        return [commit.cid for commit in left if commit.cid in created and commit.cid not in parents]

    def _keep(self, commits: Sequence[str]) -> None:
        """Keep commits under the agent's ref for them, so that git never removes them."""
        core, ref = self._core, names.own(self._checkout.agent)
        before = core.refs.get(ref)
        new = [cid for cid in commits if before is None or not core.graph.descends(before, cid)]
        if new:
            by = core.person_stamp()
            parents = [cid for cid in (before, *new) if cid is not None]
            text = f"Commits that programs made as {self._checkout.agent}\n"
            core.refs.move(ref, before, core.objects.write_commit(core.empty_tree(), parents, by, by, text), "clia: keep")

    def _note(self, own: str, commit: str) -> None:
        core = self._core
        blob = core.objects.write_blob(f"{self._checkout.agent} {commit}\n".encode())
        core.notes.bind(names.OWN_NOTES, own, blob, core.person_stamp(), f"adopt: note of {own}\n")
