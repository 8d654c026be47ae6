"""The commit graph, and three-way merges in memory, through libgit2."""

from __future__ import annotations

import heapq
import os
import threading
from contextlib import suppress

from clia.errors import GitError, NoSuchObject, UnsafePath
from clia.git.libgit2 import reading, tried_again, writing
from clia.git.objects import as_commit
from clia.git.records import PathConflict, TreeEntry, TreeMerge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pygit2

    from clia.git.libgit2 import GitHandle
    from clia.git.objects import GitObjects
    from clia.git.records import Commit

UNION, THEIRS = "UNION", "THEIRS"
"""Which lines stay in a conflict."""
_AHEAD = 100
"""Extra commits to read: clocks differ, and a child may be dated before its parent."""


class GitGraph:
    """The commit graph of one repository."""

    def __init__(self, handle: GitHandle, objects: GitObjects) -> None:
        self._handle = handle
        self._objects = objects
        self._local = threading.local()  # the boundaries that this thread's handle knows

    def merge_base(self, first: str, second: str) -> str | None:
        with reading(f"{first} or {second}"):
            base = self._handle.repo.merge_base(first, second)
        return str(base) if base else None

    def descends(self, cid: str, ancestor: str) -> bool:
        """Return whether a commit is another commit or has it as an ancestor."""
        if cid == ancestor:
            return True
        with reading(f"{cid} or {ancestor}"):
            return bool(self._handle.repo.descendant_of(cid, ancestor))

    def first_parents(self, cid: str) -> Iterator[Commit]:
        """Yield a commit, its first parent, and so on to the root, or to where a shallow clone ends."""
        commit = self._objects.commit(cid)
        while True:
            yield commit
            if not commit.parents:
                return
            try:
                commit = self._objects.commit(commit.parents[0])
            except NoSuchObject:
                return  # a shallow clone ends here

    def cut_off(self) -> frozenset[str]:
        """Return the commits where a shallow clone ends, whose parents it does not show.

        After this call the thread sees history with these boundaries.
        """
        try:
            with open(os.path.join(self._handle.common_dir, "shallow"), encoding="ascii") as file:
                boundaries = frozenset(file.read().split())
        except FileNotFoundError:
            boundaries = frozenset()
        if getattr(self._local, "boundaries", None) != boundaries:
            self._handle.renew()  # libgit2 reads the file only once
            self._local.boundaries = boundaries
        return boundaries

    def _walker(self) -> pygit2.Walker:
        from pygit2.enums import SortMode

        return self._handle.repo.walk(None, SortMode.TOPOLOGICAL | SortMode.TIME)

    def ranges(self) -> Callable[[str, Sequence[str]], list[str]]:
        """Return a function that lists the commits reachable from one commit and not from others.

        It is for one thread. Objects read for one answer are reused for the next.
        """
        walker = self._walker()

        def between(head: str, hidden: Sequence[str]) -> list[str]:
            with reading(f"{head} or a commit to exclude"):
                walker.reset()
                walker.push(head)
                for cid in hidden:
                    walker.hide(cid)
                return [str(commit.id) for commit in walker]

        return between

    def walk(self, starts: Iterable[str], hidden: Iterable[str] = ()) -> Iterator[Commit]:
        """Yield commits in topological order, newest first, without those reachable from ``hidden``."""
        walker = self._walker()
        for act, cids in ((walker.push, starts), (walker.hide, hidden)):
            for cid in cids:
                with reading(cid):
                    act(cid)
        with reading("a commit of this history"):
            for commit in walker:
                yield as_commit(commit)

    def newest(self, starts: Iterable[str], limit: int, *, lenient: bool = False) -> list[Commit]:
        """Return the first commits of such a walk, reading only about as many: by date, and no parent before its child.

        If clocks were far apart, a commit may be missing that the whole walk would have here. ``lenient``: commits that
        cannot be read are left out, with what only they lead to.
        """
        import pygit2

        # libgit2 would read all of the history before it sorts.
        repo = self._handle.repo
        queue: list[tuple[int, int, pygit2.Commit]] = []
        queued: set[pygit2.Oid] = set()
        commits: list[Commit] = []
        skipped = (NoSuchObject, GitError) if lenient else ()

        def add(cid: pygit2.Oid) -> None:
            if cid not in queued:
                queued.add(cid)
                with suppress(*skipped), reading(str(cid)):
                    commit = repo[cid].peel(pygit2.Commit)
                    heapq.heappush(queue, (-commit.commit_time, len(queued), commit))

        for start in starts:
            with suppress(*skipped), reading(start):
                add(repo[start].id)
        while queue and len(commits) < limit + _AHEAD:
            commit = heapq.heappop(queue)[2]
            commits.append(as_commit(commit))
            for parent in commit.parent_ids:
                add(parent)
        return _children_first(commits)[:limit]

    @tried_again
    def merge(self, ours: str, theirs: str, base: str | None = None) -> TreeMerge:
        """Merge three ways, from the commits' own merge base or from another commit."""
        repo = self._handle.repo
        if self._handle.is_partial():
            commits = [ours, theirs, base or self.merge_base(ours, theirs)]
            self._objects.require_files(*(self._objects.commit(cid).tree for cid in commits if cid is not None))
        with reading(f"{ours} or {theirs}"):
            if base is None:
                index = repo.merge_commits(ours, theirs)
            else:
                base_tree, our_tree, their_tree = (self._objects.commit(cid).tree for cid in (base, ours, theirs))
                index = repo.merge_trees(base_tree, our_tree, their_tree)
        stages = list(index.conflicts or ())
        conflicts = tuple(sorted(_conflict(*sides) for sides in stages))
        for path in {str(side.path) for sides in stages for side in sides if side is not None}:
            if index.conflicts is not None:
                del index.conflicts[path]  # a rename leaves stages under several paths
        with writing("the merged tree"):
            return TreeMerge(self._written(index), conflicts)

    def _written(self, index: pygit2.Index) -> str:
        """Write the tree of an index; return its id."""
        tree = str(index.write_tree(self._handle.repo))
        if self._handle.sharing.bits:
            self._handle.share(tree, *self._objects.below(tree))  # libgit2 does not tell which of them are new
        return tree

    @tried_again
    def apply(self, base: str, theirs: str, ours: str, *, favor: str = UNION) -> tuple[str, bool]:
        """Apply the change from one tree to another to a third one; return the tree, and whether there were no conflicts.

        Where lines conflict, both sides stay, or theirs (``favor``); where files do, theirs do.
        """
        if ours in (base, theirs):
            return theirs, True
        import pygit2.enums

        self._objects.require_files(base, theirs, ours)
        repo = self._handle.repo
        with reading("a tree"):
            index = repo.merge_trees(base, ours, theirs)
            is_clean = not index.conflicts
            if not is_clean:
                index = repo.merge_trees(base, ours, theirs, favor=pygit2.enums.MergeFavor[favor])
        wanted: dict[str, TreeEntry | None] = {}
        for sides in list(index.conflicts or ()):
            for path in {str(side.path) for side in sides if side is not None}:
                wanted[path] = self._objects.entry(theirs, path)
                if index.conflicts is not None:
                    del index.conflicts[path]
        with writing("the merged tree"):
            tree = self._written(index)
        changes = {path: entry for path, entry in wanted.items() if entry != self._objects.entry(tree, path)}
        try:
            return self._objects.update_tree(tree, changes) if changes else tree, is_clean
        except UnsafePath:  # a file and a folder conflict
            return theirs, is_clean


def _children_first(commits: list[Commit]) -> list[Commit]:
    """Reorder commits sorted by date so that no parent comes before its child; otherwise by date."""
    position = {commit.cid: number for number, commit in enumerate(commits)}
    if all(position.get(parent, number + 1) > number for number, commit in enumerate(commits) for parent in commit.parents):
        return commits  # almost always
    children = dict.fromkeys(position, 0)
    for commit in commits:
        for parent in set(commit.parents) & position.keys():
            children[parent] += 1
    ready = [position[cid] for cid, count in children.items() if not count]
    heapq.heapify(ready)
    ordered: list[Commit] = []
    while ready:
        ordered.append(commits[heapq.heappop(ready)])
        for parent in set(ordered[-1].parents) & position.keys():
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, position[parent])
    return ordered


def _conflict(*sides: pygit2.IndexEntry | None) -> PathConflict:
    path = next((str(side.path) for side in (sides[1], sides[2], sides[0]) if side is not None), "")
    return PathConflict(path, *(None if side is None else TreeEntry(int(side.mode), str(side.id)) for side in sides))
