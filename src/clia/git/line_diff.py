"""Lines that commits add to files, through libgit2.

Invariant: nothing is fetched and no filter or text conversion runs. The differences are those that ``git blame`` sees.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.git.libgit2 import reading
from clia.git.records import EXECUTABLE, FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    import pygit2

    from clia.git.libgit2 import GitHandle

RENAME_SIMILARITY = 30
"""Percentage from which a file counts as renamed. Git's default is 50, which misses a small file that was moved and edited."""
_RENAME_LIMIT = 400
"""Number of added and removed files beyond which renames are not searched for."""


class LineChange(NamedTuple):
    """A range of lines and its replacement; lines count from 0."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int


class PreviousFile(NamedTuple):
    """A file in a parent; ``blob`` is None if the parent has no such file."""

    path: str
    blob: str | None


class ChangedFile(NamedTuple):
    """A regular file that a commit has in another form than each of its parents."""

    path: str
    blob: str
    previous: tuple[PreviousFile, ...]  # of each parent; a root commit has none


def hunks(old: bytes, new: bytes) -> list[LineChange]:
    """Return the differences between two texts, as git does without context lines."""
    import pygit2
    from pygit2.enums import DiffOption

    if old == new:
        return []
    flags = DiffOption.FORCE_TEXT | DiffOption.INDENT_HEURISTIC
    patch = pygit2.Patch.create_from(old, new, flag=flags, context_lines=0, interhunk_lines=0)
    return [
        LineChange(
            hunk.old_start - 1 if hunk.old_lines else hunk.old_start,
            hunk.old_lines,
            hunk.new_start - 1 if hunk.new_lines else hunk.new_start,
            hunk.new_lines,
        )
        for hunk in patch.hunks
    ]


def unchanged(old_count: int, new_count: int, changes: list[LineChange]) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges that two texts share: start in the old one, start in the new one, number of lines."""
    old, new = 0, 0
    for hunk in changes:
        if hunk.new_start > new:
            yield old, new, hunk.new_start - new
        old, new = hunk.old_start + hunk.old_count, hunk.new_start + hunk.new_count
    if new < new_count and old < old_count:
        yield old, new, min(new_count - new, old_count - old)


class TreeDifference(NamedTuple):
    """The size of the difference between two trees."""

    paths: frozenset[str]  # files on either side
    files: int
    added: int  # lines
    removed: int  # lines


class GitLineDiffs:
    """The changed files of commits in one repository."""

    def __init__(self, handle: GitHandle) -> None:
        self._handle = handle
        self.is_partial = handle.is_partial  # whether objects may be missing on purpose

    def changed_files(self, commit: str) -> list[ChangedFile]:
        """Return the regular files that differ from every parent, with renames followed."""
        import pygit2

        with reading(commit):
            obj = self._handle.repo[commit].peel(pygit2.Commit)
            new, trees = self._tree(obj), [self._tree(self._handle.repo[parent].peel(pygit2.Commit)) for parent in obj.parent_ids]
            diffs = [self._files(tree, new) for tree in trees] or [self._files(None, new)]
        first, *others = diffs
        shared = [path for path in first if all(path in other for other in others)]
        previous = {path: tuple(diff[path][1] for diff in diffs) if trees else () for path in shared}
        return [ChangedFile(path, first[path][0], previous[path]) for path in shared]

    def difference(self, old: str | None, new: str) -> TreeDifference:
        """Return the size of the difference between the trees of two commits; None: an empty tree."""
        import pygit2

        with reading(new):
            trees = [self._tree(self._handle.repo[cid].peel(pygit2.Commit)) for cid in (old, new) if cid is not None]
            diff = trees[0].diff_to_tree(trees[1]) if len(trees) > 1 else trees[0].diff_to_tree(swap=True)
            deltas = list(diff.deltas)
            if old is not None and len(deltas) <= _RENAME_LIMIT:
                diff.find_similar(rename_threshold=RENAME_SIMILARITY)
            paths = {os.fsdecode(file.raw_path) for delta in deltas for file in (delta.old_file, delta.new_file)}
            stats = diff.stats
        return TreeDifference(frozenset(paths), stats.files_changed, stats.insertions, stats.deletions)

    def _tree(self, commit: pygit2.Commit) -> pygit2.Tree:
        import pygit2

        # ``commit.tree`` would not tell a missing tree from a damaged one.
        return self._handle.repo[commit.tree_id].peel(pygit2.Tree)

    def _files(self, old: pygit2.Tree | None, new: pygit2.Tree) -> dict[str, tuple[str, PreviousFile]]:
        """Return the blob of each changed file, and the file that it replaces."""
        from pygit2.enums import DeltaStatus, DiffFind

        diff = new.diff_to_tree(swap=True) if old is None else old.diff_to_tree(new)
        statuses = [delta.status for delta in diff.deltas]
        moved = statuses.count(DeltaStatus.ADDED), statuses.count(DeltaStatus.DELETED)
        if old is not None and all(moved) and sum(moved) <= _RENAME_LIMIT:
            diff.find_similar(DiffFind.FIND_RENAMES, rename_threshold=RENAME_SIMILARITY)
        files: dict[str, tuple[str, PreviousFile]] = {}
        for delta in diff.deltas:
            after, before = delta.new_file, delta.old_file
            if delta.status == DeltaStatus.DELETED or int(after.mode) not in (FILE, EXECUTABLE):
                continue
            has_old = delta.status != DeltaStatus.ADDED and int(before.mode) in (FILE, EXECUTABLE)
            previous = PreviousFile(os.fsdecode(before.raw_path), str(before.id) if has_old else None)
            if previous.blob != str(after.id) or previous.path != os.fsdecode(after.raw_path):
                files[os.fsdecode(after.raw_path)] = str(after.id), previous
        return files
