"""The graph of commits, and three-way merges in memory, through libgit2."""

from __future__ import annotations

import os
import threading

from clia.backends.git.objects import as_commit
from clia.backends.git.translate import reading, tried_again, writing
from clia.errors import NoSuchObject
from clia.ports.repository import Entry, PathConflict, TreeMerge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pygit2

    from clia.backends.git.handle import GitHandle
    from clia.backends.git.objects import GitObjects
    from clia.ports.repository import Commit


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


def _conflict(base: pygit2.IndexEntry | None, ours: pygit2.IndexEntry | None, theirs: pygit2.IndexEntry | None) -> PathConflict:
    return PathConflict(_path(base, ours, theirs), *(_entry(each) for each in (base, ours, theirs)))


def _path(base: pygit2.IndexEntry | None, ours: pygit2.IndexEntry | None, theirs: pygit2.IndexEntry | None) -> str:
    found = ours or theirs or base
    return str(found.path) if found is not None else ""


def _entry(side: pygit2.IndexEntry | None) -> Entry | None:
    return None if side is None else Entry(int(side.mode), str(side.id))
