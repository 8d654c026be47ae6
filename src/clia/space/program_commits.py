"""Commits that a program made itself become commits of the agent.

Invariant: each commit that the program created and that its HEAD contains is adopted once, in order, with its message, author
date, tree and the shape of its merges. Commits that it left behind (amended, reset, on another branch, stashed) and the originals
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
        stands_for = dict.fromkeys((self._checkout.base, self.head), head)
        start = self.head
        self.head = state.commit
        adopted, tip = self._adopted(state, head, stands_for, identity)
        left = self._left(state, [head, start], head)
        self._keep([*left, *([state.commit] if adopted else [])], head)
        merged = [] if state.commit in adopted or self._core.graph.descends(head, state.commit) else [state.commit]
        parents = [tip, *merged]
        return parents, [(KEPT, cid) for cid in left]

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

    def _adopted(
        self, state: WorktreeHead, head: str, stands_for: dict[str, str], identity: Sequence[Trailer]
    ) -> tuple[dict[str, str], str]:
        """The agent's commit for each commit of the program, and the last of them."""
        adopted: dict[str, str] = {}
        tip = head
        for commit in self._own(state, state.commit or head, [head, *stands_for]):
            mapped = [stands_for.get(parent, parent) for parent in commit.parents]
            # A commit on another base than the agent's work follows that work, and merges its base.
            parents = mapped[:1] if commit.parents[:1] and commit.parents[0] in stands_for else [tip]
            parents += self._others(head, parents, mapped)
            tip = adopted[commit.cid] = stands_for[commit.cid] = self._write(
                commit, self._without_prepared(commit.tree, parents), parents, identity
            )
        return adopted, stands_for.get(state.commit or "", tip)

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
