"""Commits that a program made itself become commits of the agent.

Invariant: each commit that the program created and that its HEAD contains is adopted once, in order, with its message, author
date, tree and the shape of its merges. A copy that a rebase made of a recorded commit is not adopted again, and a commit on other
files than the agent's has its change. Commits that it left behind (amended, reset, on another branch, stashed) and the originals
of the adopted ones are kept under ``refs/clia/own``. Commits of others that it fetched, merged or checked out stay what they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from clia.space.model import KEPT, OWN
from clia.values import refs as names
from clia.values.commit_messages import compose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from clia.git.porcelain import GitPorcelain
    from clia.git.records import Checkout, Commit, WorktreeHead
    from clia.space.commits import Snapshots
    from clia.space.core import Core

    Trailer = tuple[str, str | None]

_KEEP = "Commits that programs made as"


class AdoptedCommits(ABC):
    """Commits of a program that are adopted before the next commit of an agent."""

    def __init__(self, core: Core, snapshots: Snapshots, agent: str) -> None:
        self._core = core
        self._snapshots = snapshots
        self._agent = agent

    @abstractmethod
    def adopt(self, head: str, identity: Sequence[Trailer]) -> tuple[list[str], list[Trailer]]:
        """Write the adopted commits on top of the agent's head.

        Returns the parents of the agent's next commit, and the trailers that name what the program left behind.
        """

    @abstractmethod
    def pending(self, commit: str) -> None:
        """Record that a commit is about to become the agent's head."""

    def _write(self, commit: Commit, tree: str, parents: Sequence[str], identity: Sequence[Trailer]) -> str:
        """Write the agent's commit for a program's, and a note on the program's that names it."""
        core, name = self._core, self._agent
        self._snapshots.check_tree(core.objects.commit(parents[0]).tree, tree)
        text = core.clean.text(commit.message.replace("\0", "\N{REPLACEMENT CHARACTER}"), "message")
        trailers = [(key, value) for key, value in (*identity, (OWN, commit.cid)) if value]
        message = compose(text, trailers, f"commit by {name}")
        author, by = core.agent_stamp(name, commit.author.at), core.person_stamp()
        new = core.objects.write_commit(tree, parents, author, by, message)
        blob = core.objects.write_blob(f"{name} {new}\n".encode())
        core.notes.bind(names.OWN_NOTES, commit.cid, blob, by, f"adopt: note of {commit.cid}\n")
        return new

    def _others(self, head: str, parents: Sequence[str], commits: Sequence[str]) -> list[str]:
        """Those of the commits that neither the parents nor the agent's history contain."""
        new: list[str] = []
        for commit in commits:
            if commit not in (*parents, *new) and not self._core.graph.descends(head, commit):
                new.append(commit)
        return new

    def _newest(self, commits: Collection[str], known_tips: Iterable[str], head: str) -> list[str]:
        """The newest of the commits that are neither in known histories nor kept before the agent's head."""
        kept_tip = self._kept_before(head)
        hidden = [*known_tips, *([kept_tip] if kept_tip is not None else [])]
        commits_found = list(self._core.graph.walk(sorted(commits), hidden)) if commits else []
        parents = {parent for commit in commits_found for parent in commit.parents}
        return [commit.cid for commit in commits_found if commit.cid in commits and commit.cid not in parents]

    def _kept_before(self, head: str) -> str | None:
        """The tip of the kept commits that the agent's commits can name. After a crash, the last ones were kept and not named."""
        core = self._core
        kept_tip = core.refs.get(names.own(self._agent))
        while kept_tip is not None and (commit := core.objects.commit(kept_tip)).message == self._keep_message(head):
            is_first = not core.objects.commit(commit.parents[0]).message.startswith(_KEEP)
            kept_tip = None if is_first else commit.parents[0]
        return kept_tip

    def _keep_message(self, head: str) -> str:
        return f"{_KEEP} {self._agent}, after {head[:12]}\n"

    def _keep(self, commits: Sequence[str], head: str = "") -> None:
        """Keep commits under the agent's ref for them, so that git never removes them.

        ``head``: the agent's head, if its next commit names them.
        """
        core, ref = self._core, names.own(self._agent)
        before = core.refs.get(ref)
        new = [cid for cid in commits if before is None or not core.graph.descends(before, cid)]
        if new:
            by = core.person_stamp()
            parents = [cid for cid in (before, *new) if cid is not None]
            merge = core.objects.write_commit(core.empty_tree(), parents, by, by, self._keep_message(head))
            core.refs.move(ref, before, merge, "clia: keep")


class _NewHistory:
    """The agent's history while commits of a program are adopted."""

    def __init__(self, head: str, stands_for: dict[str, str]) -> None:
        self.head = head  # before the first of them
        self.tip = head
        self.stands_for = stands_for  # the agent's commit for each of the program's
        self.bases: dict[str, list[str]] = {}  # for each of them: commits of others that the agent's next commit has to merge


class ProgramCommits(AdoptedCommits):
    """The commits that a program made in one checkout since the agent's last commit."""

    def __init__(self, core: Core, porcelain: GitPorcelain, snapshots: Snapshots, checkout: Checkout) -> None:
        super().__init__(core, snapshots, checkout.agent)
        self._porcelain = porcelain
        self._checkout = checkout
        self.head = checkout.own or checkout.base

    def adopt(self, head: str, identity: Sequence[Trailer]) -> tuple[list[str], list[Trailer]]:
        state = self._porcelain.head_state(self._checkout.directory, self.head)
        if state is None or state.commit is None:
            return [head], []
        start, now = self.head, state.commit
        self.head = now
        new = _NewHistory(head, dict.fromkeys((self._checkout.base, start), head))
        for commit in self._own(state, now, [head, *new.stands_for]):
            self._take(commit, new, state, identity)
        is_new = now in new.bases
        left = self._left(state, [head, start], head)
        self._keep([*left, *([now] if is_new else [])], head)
        merged = new.bases[now] if is_new else self._others(head, [head], [now])
        return [new.stands_for.get(now, new.tip), *merged], [(KEPT, cid) for cid in left]

    def has_any(self) -> bool:
        """Whether there is anything to adopt or to keep."""
        state = self._porcelain.head_state(self._checkout.directory, self.head)
        places = (self.head, self._checkout.base)
        return state is not None and (state.commit not in places or bool(self._left(state, places, self._checkout.base)))

    def keep_left(self) -> bool:
        """Keep the commits that the program left behind; return whether HEAD has commits that are not recorded."""
        state = self._porcelain.head_state(self._checkout.directory, self.head)
        if state is None:
            return False
        self._keep(self._left(state, [self.head]))  # no commit names them
        return state.commit is not None and bool(self._own(state, state.commit, [self.head, self._checkout.base]))

    def pending(self, commit: str) -> None:
        checkout = self._checkout
        self._porcelain.record(checkout.directory, checkout.agent, checkout.base, checkout.own, (commit, self.head))

    def _take(self, commit: Commit, new: _NewHistory, state: WorktreeHead, identity: Sequence[Trailer]) -> None:
        """Adopt one commit of the program, unless it repeats a change that the agent's files have."""
        mapped = [new.stands_for.get(parent, parent) for parent in commit.parents]
        below = [base for parent in commit.parents for base in new.bases.get(parent, ())]
        # A commit on another base than the agent's work follows that work, and merges its base.
        parents = mapped[:1] if commit.parents[:1] and commit.parents[0] in new.stands_for else [new.tip]
        parents += self._others(new.head, parents, [*mapped, *below])
        if self._repeats(commit, state) and self._has_change(parents[0], commit):
            new.stands_for[commit.cid], new.bases[commit.cid] = parents[0], parents[1:]
            return
        tree = self._without_prepared(self._tree(commit, parents, state), parents)
        new.tip = new.stands_for[commit.cid] = self._write(commit, tree, parents, identity)
        new.bases[commit.cid] = []

    def _repeats(self, commit: Commit, state: WorktreeHead) -> bool:
        """Whether a commit is a copy of another one, which a rebase or cherry-pick made, and not an amended commit."""
        return commit.cid in state.replayed and len(commit.parents) == 1 and self._amended(commit, state) is None

    def _amended(self, commit: Commit, state: WorktreeHead) -> str | None:
        """The commit that a commit replaces, as by ``git commit --amend``, or by a squash in a rebase."""
        before = (state.before or {}).get(commit.cid)
        if before is None or self._core.objects.kind(before) != "commit":
            return None
        return before if self._core.objects.commit(before).parents == commit.parents else None

    def _has_change(self, agents: str, commit: Commit) -> bool:
        """Whether an agent's commit has the change of a commit already."""
        ours = self._tree_of(agents)
        return self._core.graph.apply(self._tree_of(commit.parents[0]), commit.tree, ours) == (ours, True)

    def _tree(self, commit: Commit, parents: Sequence[str], state: WorktreeHead) -> str:
        """The tree of a commit, or, if it is based on other files than the agent's work, its change applied to that work."""
        graph = self._core.graph
        if not commit.parents:
            return commit.tree
        ours, is_clean = self._tree_of(parents[0]), True
        for other in parents[1:] if len(commit.parents) == 1 else ():
            shared = graph.merge_base(parents[0], other)
            ours, applied = graph.apply(self._tree_of(shared), self._tree_of(other), ours)
            is_clean = is_clean and applied
        tree, applied = graph.apply(self._tree_of(self._base(commit, parents[0], state)), commit.tree, ours)
        return tree if is_clean and applied else commit.tree

    def _base(self, commit: Commit, agents: str, state: WorktreeHead) -> str:
        """The commit whose files a commit changes: the one that it amends, if that is recorded, or its parent."""
        base, amended = commit.parents[0], self._amended(commit, state)
        while amended is not None:
            if self._core.contains(agents, amended) or self._core.notes.among(names.OWN_NOTES, [amended]):
                return amended
            amended = self._amended(self._core.objects.commit(amended), state)
        return base

    def _tree_of(self, cid: str | None) -> str:
        return self._core.empty_tree() if cid is None else self._core.objects.commit(cid).tree

    def _without_prepared(self, tree: str, parents: Sequence[str]) -> str:
        """A tree without what was put into the worktree for the program, such as a copied ``.env``."""
        objects = self._core.objects
        before = objects.commit(parents[0]).tree
        paths = self._porcelain.prepared(self._checkout.directory).paths
        added = [path for path in paths if objects.entry(tree, path) is not None and objects.entry(before, path) is None]
        return objects.update_tree(tree, dict.fromkeys(added)) if added else tree

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

    def _left(self, state: WorktreeHead, hidden: Sequence[str], head: str = "") -> list[str]:
        """The newest commits that were created here and are neither in HEAD nor kept already."""
        created = {cid for cid in state.created or () if self._core.objects.kind(cid) == "commit"}
        return self._newest(created, [cid for cid in (*hidden, state.commit) if cid is not None], head)
