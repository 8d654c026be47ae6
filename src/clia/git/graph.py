"""The graph of commits, and three-way merges in memory, through libgit2."""

from __future__ import annotations

import heapq
import os
import threading

from clia.errors import NoSuchObject
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

_AHEAD = 100
"""So many commits more are read than asked for: clocks differ, and a child may be dated before its parent."""


class GitGraph:
    """``Graph`` of one repository."""

    def __init__(self, handle: GitHandle, objects: GitObjects) -> None:
        self._handle = handle
        self._objects = objects
        self._seen = threading.local()  # what this thread's handle takes for the end of history

    def merge_base(self, one: str, other: str) -> str | None:
        with reading(f"{one} or {other}"):
            found = self._handle.repo.merge_base(one, other)
        return str(found) if found else None

    def descends(self, cid: str, ancestor: str) -> bool:
        if cid == ancestor:
            return True
        with reading(f"{cid} or {ancestor}"):
            return bool(self._handle.repo.descendant_of(cid, ancestor))

    def first_parents(self, cid: str) -> Iterator[Commit]:
        found = self._objects.commit(cid)
        while True:
            yield found
            if not found.parents:
                return
            try:
                found = self._objects.commit(found.parents[0])
            except NoSuchObject:
                return  # a shallow clone ends here

    def cut_off(self) -> frozenset[str]:
        try:
            with open(os.path.join(self._handle.common_dir, "shallow"), encoding="ascii") as file:
                found = frozenset(file.read().split())
        except FileNotFoundError:
            found = frozenset()
        if getattr(self._seen, "cut", None) != found:
            self._handle.renew()  # libgit2 reads it once, and goes on to end where history ended then
            self._seen.cut = found
        return found

    def ranges(self) -> Callable[[str, Sequence[str]], list[str]]:
        from pygit2.enums import SortMode

        walker = self._handle.repo.walk(None, SortMode.TOPOLOGICAL | SortMode.TIME)

        def between(head: str, hidden: Sequence[str]) -> list[str]:
            with reading(f"{head} or what it is compared with"):
                walker.reset()
                walker.push(head)
                for each in hidden:
                    walker.hide(each)
                return [str(each.id) for each in walker]

        return between

    def walk(self, starts: Iterable[str], hidden: Iterable[str] = ()) -> Iterator[Commit]:
        from pygit2.enums import SortMode

        walker = self._handle.repo.walk(None, SortMode.TOPOLOGICAL | SortMode.TIME)
        for start in starts:
            with reading(start):
                walker.push(start)
        for each in hidden:
            with reading(each):
                walker.hide(each)
        with reading("a commit of this history"):
            for found in walker:
                yield as_commit(found)

    def newest(self, starts: Iterable[str], limit: int) -> list[Commit]:
        import pygit2

        # By hand: libgit2 sorts nothing before it has read all of the history.
        repo = self._handle.repo
        waiting: list[tuple[int, int, pygit2.Commit]] = []
        met: set[str | pygit2.Oid] = set()
        found: list[Commit] = []

        def meet(cid: str | pygit2.Oid) -> None:
            if cid not in met:
                met.add(cid)
                commit = repo[cid].peel(pygit2.Commit)
                heapq.heappush(waiting, (-commit.commit_time, len(met), commit))

        for start in starts:
            with reading(start):
                meet(repo[start].id)
        with reading("a commit of this history"):
            while waiting and len(found) < limit + _AHEAD:
                commit = heapq.heappop(waiting)[2]
                found.append(as_commit(commit))
                for parent in commit.parent_ids:
                    meet(parent)
        return _children_first(found)[:limit]

    @tried_again
    def merge(self, ours: str, theirs: str, base: str | None = None) -> TreeMerge:
        repo = self._handle.repo
        with reading(f"{ours} or {theirs}"):
            if base is None:
                index = repo.merge_commits(ours, theirs)
            else:
                start, mine, other = (self._objects.commit(each).tree for each in (base, ours, theirs))
                index = repo.merge_trees(start, mine, other)
        stages = list(index.conflicts or ())
        conflicts = tuple(sorted(_conflict(*each) for each in stages))
        for path in {str(side.path) for each in stages for side in each if side is not None}:
            if index.conflicts is not None:
                del index.conflicts[path]  # a rename leaves stages under several paths
        with writing("the merged tree"):
            return TreeMerge(str(index.write_tree(repo)), conflicts)


def _children_first(commits: list[Commit]) -> list[Commit]:
    """Commits that come by date, in an order in which no parent comes before its child; by date as far as that goes."""
    place = {each.cid: number for number, each in enumerate(commits)}
    if all(place.get(parent, number + 1) > number for number, each in enumerate(commits) for parent in each.parents):
        return commits  # as good as always
    children = dict.fromkeys(place, 0)
    for each in commits:
        for parent in set(each.parents) & place.keys():
            children[parent] += 1
    ready = [place[cid] for cid, count in children.items() if not count]
    heapq.heapify(ready)
    made: list[Commit] = []
    while ready:
        made.append(commits[heapq.heappop(ready)])
        for parent in set(made[-1].parents) & place.keys():
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, place[parent])
    return made


def _conflict(base: pygit2.IndexEntry | None, ours: pygit2.IndexEntry | None, theirs: pygit2.IndexEntry | None) -> PathConflict:
    return PathConflict(_path(base, ours, theirs), *(_entry(each) for each in (base, ours, theirs)))


def _path(base: pygit2.IndexEntry | None, ours: pygit2.IndexEntry | None, theirs: pygit2.IndexEntry | None) -> str:
    found = ours or theirs or base
    return str(found.path) if found is not None else ""


def _entry(side: pygit2.IndexEntry | None) -> TreeEntry | None:
    return None if side is None else TreeEntry(int(side.mode), str(side.id))
