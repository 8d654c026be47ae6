"""Commits that a program made itself become commits of the agent.

Invariant: each commit that the program created and that its HEAD contains is adopted once, in order, with its message, author
date, tree and the shape of its merges. Those that another branch, a tag or a worktree of the program has are adopted beside it: the
agent's next commit has them as parents, without their changes. A copy that a rebase made of a recorded commit is not adopted again,
and a commit on other files than the agent's has its change. Before one that is based on an older commit of the agent, a commit goes
back to the files of that. What it picked of another author is a commit of that author. Commits
that it left behind (amended, reset, stashed) and the originals of the adopted ones are kept under ``refs/clia/own``. Commits of
others that it fetched, merged or checked out stay what they are.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from clia.space.model import ADOPTED, KEPT, OWN, agent_commit
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
    WrittenBy = tuple[str, str, int, str]

_KEEP = "Commits that programs made as"
REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{40})", re.MULTILINE)
ORIGINALS_MAX = 2000
"""Commits of others to search for those that a program copies."""


class AdoptedCommits(ABC):
    """Commits of a program that are adopted before the next commit of an agent."""

    may_repeat = False
    """Whether a commit without changes repeats the last one, if it has the same kind, message and open fields."""

    def __init__(self, core: Core, snapshots: Snapshots, agent: str) -> None:
        self._core = core
        self._snapshots = snapshots
        self._agent = agent

    @abstractmethod
    def adopt(self, head: str, identity: Sequence[Trailer]) -> tuple[list[str], list[Trailer]]:
        """Write the adopted commits on top of the agent's head.

        Returns the parents of the agent's next commit, and the trailers that name what the program left behind.
        """

    def has_any(self) -> bool:
        """Whether there may be anything to adopt or to keep."""
        return True

    @abstractmethod
    def pending(self, commit: str) -> None:
        """Record that a commit will become the agent's head."""

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
        keep_commits(self._core, self._agent, commits, self._keep_message(head))


def keep_commits(core: Core, agent: str, commits: Sequence[str], message: str = "") -> None:
    """Keep commits under an agent's ref for those of programs, so that git never removes them."""
    ref = names.own(agent)
    before = core.refs.get(ref)
    new = [cid for cid in commits if before is None or not core.graph.descends(before, cid)]
    if new:
        by = core.person_stamp()
        parents = [cid for cid in (before, *new) if cid is not None]
        merge = core.objects.write_commit(core.empty_tree(), parents, by, by, message or f"{_KEEP} {agent}\n")
        core.refs.move(ref, before, merge, "clia: keep")


class _NewHistory:
    """The agent's history while commits of a program are adopted."""

    def __init__(self, head: str, stands_for: dict[str, str]) -> None:
        self.head = head  # before the first of them
        self.tip = head
        self.stands_for = stands_for  # the agent's commit for each of the program's
        self.recorded: dict[str, str] = {}  # the same, for those that were adopted before
        self.written: list[str] = []  # the commits for those of the program
        self.first_parents: dict[str, str] = {}  # of these, and of commits of others that were picked
        self.bases: dict[str, list[str]] = {}  # for each of them: commits of others that the agent's next commit has to merge

    def beside(self, tip: str) -> list[str]:
        """The written commits that are not first parents of a tip."""
        line, at = {tip}, tip
        while at in self.first_parents:
            at = self.first_parents[at]
            line.add(at)
        return [commit for commit in self.written if commit not in line]


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
        own = self._own(state, now, [head, *new.stands_for])
        named = {now, *(state.created or ()), *(cid for commit in own for cid in (commit.cid, *commit.parents))}
        new.recorded = self._recorded(named, head)
        for commit in own:
            if commit.cid not in new.recorded:
                self._take(commit, new, state, identity)
        is_new = now in new.bases
        tip = new.stands_for.get(now, new.tip)
        merged = new.bases[now] if is_new else self._others(head, [head], [new.recorded.get(now, now)])
        aside = [commit for commit in self._aside(state, [now, head, start]) if commit.cid not in new.recorded]
        new.tip = tip
        for commit in aside:
            self._take(commit, new, state, identity)
        left = self._left(state, [head, start, *(commit.cid for commit in aside)], head)
        self._keep([*left, *self._newest({commit.cid for commit in aside}, [], head), *([now] if is_new else [])], head)
        beside = new.beside(tip)
        merged += [*self._tips(beside, tip), *self._older(now, tip, new)]
        return [tip, *merged], [*((KEPT, cid) for cid in left), *((ADOPTED, cid) for cid in beside)]

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
        is_next = bool(commit.parents) and commit.parents[0] in new.stands_for
        mapped = [new.recorded.get(parent, parent) for parent in mapped]
        parents = mapped[:1] if is_next else [self._gone_back(commit, mapped, new, state)]
        parents += self._others(new.head, parents, [*mapped, *below])
        if self._repeats(commit, state) and self._has_change(parents[0], commit):
            new.stands_for[commit.cid], new.bases[commit.cid] = parents[0], parents[1:]
            return
        if self._repeats(commit, state) or self._amends_copy(commit, state):
            parents = self._with_original(commit, parents, state, new)
        tree = self._without_prepared(self._tree(commit, parents, state), parents)
        parents += [cid for cid in self._before_reverted(commit, new) if cid not in parents]
        if parents[0] not in (*mapped, new.tip) and tree == self._tree_of(parents[0]):  # nothing but the change of its original
            new.tip, new.stands_for[commit.cid], new.bases[commit.cid] = parents[0], parents[0], parents[1:]
            return
        new.tip = new.stands_for[commit.cid] = self._write(commit, tree, parents, identity)
        new.written.append(new.tip)
        new.first_parents[new.tip] = parents[0]
        new.bases[commit.cid] = []

    def _gone_back(self, commit: Commit, mapped: list[str], new: _NewHistory, state: WorktreeHead) -> str:
        """The commit that a commit of the program follows: the tip or, if the program went back to an older commit of the agent, a
        new one with the files of that. Lines that come back keep their authors, because the older commit is a parent, too.
        """
        core, tip = self._core, new.tip
        is_based = bool(mapped) and commit.cid not in state.replayed and self._base(commit, tip, state) == commit.parents[0]
        if not is_based or not core.contains(new.head, mapped[0]) or self._tree_of(mapped[0]) == self._tree_of(tip):
            return tip
        by = core.person_stamp()
        author, message = core.agent_stamp(self._agent, by.at), f"{self._agent} went back to {mapped[0][:12]}\n"
        self._snapshots.check_tree(self._tree_of(tip), self._tree_of(mapped[0]))
        back = core.objects.write_commit(self._tree_of(mapped[0]), [tip, mapped[0]], author, by, message)
        new.first_parents[back] = tip
        return back

    def _repeats(self, commit: Commit, state: WorktreeHead) -> bool:
        """Whether a commit is a copy of another one, which a rebase or cherry-pick made, and not an amended commit."""
        return commit.cid in state.replayed and len(commit.parents) == 1 and self._amended(commit, state) is None

    def _before_reverted(self, commit: Commit, new: _NewHistory) -> list[str]:
        """The commits before those that a commit reverts: lines that it brings back are not new."""
        ids = REVERTS.findall(commit.message) if len(commit.parents) == 1 else ()
        reverted = [self._core.objects.commit(cid) for cid in ids if self._core.objects.kind(cid) == "commit"]
        parents = [parent for one in reverted for parent in one.parents[:1]]
        return [new.recorded.get(parent, new.stands_for.get(parent, parent)) for parent in parents]

    def _amends_copy(self, commit: Commit, state: WorktreeHead) -> bool:
        """Whether a commit replaces a copy of another one. It keeps the author and date."""
        amended = self._amended(commit, state)
        while amended is not None:
            commit = self._core.objects.commit(amended)
            if self._repeats(commit, state):
                return True
            amended = self._amended(commit, state)
        return False

    def _with_original(self, commit: Commit, parents: list[str], state: WorktreeHead, new: _NewHistory) -> list[str]:
        """The parents of a copied commit. If the original is another author's, its change is a commit of that author, so that the
        agent's commit has only what the program wrote, such as to resolve a conflict. The agent is not another author: a second
        commit for its original would adopt a commit of the program twice.
        """
        core, original = self._core, self._originals(state).get(written_by(commit))
        if original is None or self._is_agents(original, new.head):
            return parents
        base, ours = (self._tree_of(next(iter(cids), None)) for cids in (original.parents, parents))
        tree, _ = core.graph.apply(base, original.tree, ours)
        self._snapshots.check_tree(ours, tree)
        picked = core.objects.write_commit(tree, parents[:1], original.author, core.person_stamp(), original.message)
        new.first_parents[picked] = parents[0]
        return [picked, *parents[1:]]

    def _is_agents(self, commit: Commit, head: str) -> bool:
        """Whether a commit is the agent's, also under a former name."""
        core, writer = self._core, agent_commit(commit).agent
        former = (self._agent, head) if writer and commit.author.email == core.agent_stamp(writer).email else None
        while former is not None and former[0] != writer:
            former = core.former_name(*former)
        return former is not None

    def _originals(self, state: WorktreeHead) -> dict[WrittenBy, Commit]:
        """The newest commits of others that a program may have copied."""
        core = self._core
        refs = (entry for prefix in (names.BRANCHES, "refs/remotes/", "refs/tags/") for entry in core.refs.under(prefix))
        tips = {cid for ref, cid in refs if not ref.startswith(names.HEADS) and core.objects.kind(cid) == "commit"}
        commits = core.graph.newest(sorted(tips), ORIGINALS_MAX)
        own = {*(state.created or ()), *core.notes.among(names.OWN_NOTES, [commit.cid for commit in commits])}
        return {written_by(commit): commit for commit in reversed(commits) if commit.cid not in own and len(commit.parents) < 2}

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

    def _recorded(self, commits: Collection[str], head: str) -> dict[str, str]:
        """The agent's commits for those of some that were adopted before."""
        core, recorded = self._core, dict[str, str]()
        for cid, blob in core.notes.among(names.OWN_NOTES, commits).items():
            agent, _, adopted = core.objects.blob(blob).decode("utf-8", "replace").strip().partition(" ")
            if agent == self._agent and names.is_id(adopted) and core.contains(head, adopted):  # else its adoption was interrupted
                recorded[cid] = adopted
        return recorded

    def _aside(self, state: WorktreeHead, hidden: Sequence[str]) -> list[Commit]:
        """The commits that were created here, and that only other branches, tags or worktrees have, oldest first."""
        core = self._core
        created = {cid for cid in state.created or () if core.objects.kind(cid) == "commit"}
        if not created:
            return []
        refs = (*core.refs.under(names.BRANCHES), *core.refs.under("refs/tags/"))
        tips = {cid for ref, cid in refs if not ref.startswith(names.HEADS)} | self._porcelain.worktree_heads()
        alive = created - {commit.cid for commit in core.graph.walk(sorted(created), sorted(tips))}
        return [commit for commit in reversed(list(core.graph.walk(sorted(alive), hidden))) if commit.cid in alive]

    def _older(self, now: str, tip: str, new: _NewHistory) -> list[str]:
        """An older commit of the agent's history that the program's HEAD is based on: lines that it brings back are not new."""
        core, base = self._core, now
        if self._tree_of(now) == self._tree_of(tip):
            return []
        while base in new.bases and (parents := core.objects.commit(base).parents):
            base = parents[0]
        base = new.recorded.get(base, base)
        return [base] if base not in new.stands_for and base != tip and core.contains(tip, base) else []

    def _tips(self, commits: Sequence[str], tip: str) -> list[str]:
        """The newest of the commits beside a tip that its history lacks."""
        others = [cid for cid in commits if not self._core.graph.descends(tip, cid)]
        return [cid for cid in others if not any(one != cid and self._core.graph.descends(one, cid) for one in others)]

    def _own(self, state: WorktreeHead, tip: str, hidden: Sequence[str]) -> list[Commit]:
        """The commits of a tip that were created in this worktree, oldest first."""
        created = state.created
        if created is None:  # no reflog: what no other ref contains was created here
            others = {cid for ref, cid in self._core.refs.under("refs/") if ref != state.branch}
            created = frozenset(commit.cid for commit in self._core.graph.walk([tip], [*hidden, *others]))
        own: dict[str, Commit] = {}
        for commit in reversed(list(self._core.graph.walk([tip], hidden))):
            if commit.cid in created:
                own[commit.cid] = commit
        return list(own.values())

    def _left(self, state: WorktreeHead, hidden: Sequence[str], head: str = "") -> list[str]:
        """The newest commits that were created here and are neither in HEAD nor kept already."""
        created = {cid for cid in state.created or () if self._core.objects.kind(cid) == "commit"}
        return self._newest(created, [cid for cid in (*hidden, state.commit) if cid is not None], head)


def written_by(commit: Commit) -> WrittenBy:
    """The properties that a copy of a commit shares with it."""
    return commit.author.name, commit.author.email, commit.author.at, commit.message.partition("\n")[0]
