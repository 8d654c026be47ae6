"""Files of other authors that a turn brought into a directory.

HEAD brings files if the tool pulled, merged, checked out or cherry-picked, or a person committed. Stashes of a person, unfinished
merges and commits that a git command names bring files while HEAD stays. All of these files become commits of the person on the
agent's branch, before the turn's commit, so that only files that the tool wrote itself count as the agent's.

Invariant: only files that changed in the directory during the turn are committed, and the directory is only read.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from clia.errors import UnsafePath
from clia.git.line_diff import RENAME_SIMILARITY
from clia.git.records import TreeEntry
from clia.space.attribution.index import FILE_MAX
from clia.space.attribution.line_matching import added_lines, is_distinctive, lines_of, written_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clia.capture.service import CapturedSession
    from clia.git.porcelain import GitPorcelain
    from clia.git.records import Stamp
    from clia.space.commits import Snapshots
    from clia.space.core import Core


class DirectoryFiles(NamedTuple):
    """The files of a directory at the end of a turn, or those of a commit of the tool."""

    tree: str
    touched: set[str]  # paths that changed since the last look, or in the commit
    committed: str  # the same; of a commit without the agent's other files


class BroughtCommit(NamedTuple):
    """A commit whose change may have been applied to a directory while HEAD stayed. The change is everything since the commit left
    HEAD's history."""

    cid: str
    is_stash: bool = False
    is_pick: bool = False  # only the change of the commit itself


class BroughtFiles:
    """The files that one turn brought into a directory."""

    def __init__(self, core: Core, porcelain: GitPorcelain, snapshots: Snapshots, captured: CapturedSession) -> None:
        self._core = core
        self._porcelain = porcelain
        self._snapshots = snapshots
        self._captured = captured

    def at_head(
        self, head: str, tip: str, stands_for: str, directory: DirectoryFiles, own_paths: set[str], *, adopted: bool
    ) -> str:
        """Commit the files that the commit at HEAD brought, except for the tool's own commits and files; return the new tip.

        ``stands_for``: the agent's commit for that at HEAD, or the commit itself. ``own_paths``: files that the tool wrote.
        """
        core, captured = self._core, self._captured
        now, before = captured.head, captured.git.looked_at
        if not self._is_here(now) or (now == before and not adopted) or (before and not self._is_here(before)):
            return tip
        at_start = core.objects.commit(head).tree
        tree, _ = core.graph.apply(self._tree([before] if before else []), core.objects.commit(now).tree, at_start)
        try:
            changed = self.changed(at_start, tree)
            tree = self._with(tree, at_start, [path for path in changed if self._stayed(path, at_start, tree, directory)])
            tree = self._with(tree, core.objects.commit(tip).tree, own_paths)
        except UnsafePath:  # a file and a folder conflict
            tree = at_start
        # A commit of the person that has files of the tool must not count as older than the turn.
        others = [] if now == before or own_paths else [stands_for]
        return self.commit(tip, tree, others, f"the files of {now[:12]}, which HEAD moved to")

    def while_head_stayed(
        self, tip: str, directory: DirectoryFiles, sources: Iterable[BroughtCommit], head: str, merged: Sequence[str] = ()
    ) -> str:
        """Commit the files that stashes, unfinished merges and named commits brought; return the new tip.

        ``head``: the commit at HEAD then. ``merged``: commits that the next commit merges, so new ancestors keep their authors.
        """
        for source in sources:
            is_old = self._is_ancestor(source.cid, self._captured.git.looked_at)
            if is_old or not any(self._is_ancestor(source.cid, commit) for commit in merged):
                with suppress(UnsafePath):  # a file and a folder conflict
                    tree = self._applied(source, head, self._core.objects.commit(tip).tree, directory)
                    name = f"the stash {source.cid[:12]}" if source.is_stash else source.cid[:12]
                    author = None if source.is_stash else self._core.objects.commit(source.cid).author
                    tip = self.commit(tip, tree, [], f"the files of {name}", author)
        return tip

    def lines_of_others(
        self, tip: str, directory: DirectoryFiles, sources: Iterable[BroughtCommit], own_paths: set[str], merged: Sequence[str] = ()
    ) -> str:
        """Commit the lines of changed files that sources have in the same file, or in one that was renamed; return the new tip.

        The other methods bring whole changes. This one finds their lines in files that were also moved, or merged by hand.
        ``own_paths``: files that the tool wrote. ``merged``: further parents of the next commit, so their lines need no commit.
        """
        objects, before = self._core.objects, self._core.objects.commit(tip).tree
        now = {path: objects.entry(directory.tree, path) for path in sorted(directory.touched - own_paths)}
        texts = {path: self._text(entry) for path, entry in now.items() if entry != objects.entry(before, path)}
        files = {path: text for path, text in texts.items() if text is not None}
        renamed = self._renamed(before, directory.tree, files)
        parents = dict.fromkeys([before, *(objects.commit(commit).tree for commit in merged)])
        inherited = self._versions(parents, directory.tree, files)
        versions = self._versions(dict.fromkeys([*parents, *map(self._files, sources)]), directory.committed, files, copies=True)
        changes: dict[str, TreeEntry | None] = {}
        for path, text in files.items():
            entry, data = now[path], without_new_lines(text, inherited[path], versions[path])
            if entry is not None and data is not None:
                changes |= {renamed[path]: None} if path in renamed else {}
                changes[path] = TreeEntry(entry.mode, objects.write_blob(data))
        with suppress(UnsafePath):  # a file and a folder conflict
            tip = self.commit(tip, objects.update_tree(before, changes) if changes else before, [], "lines of other commits")
        return tip

    def _versions(
        self, trees: Iterable[str], now: str, files: Mapping[str, bytes], *, copies: bool = False
    ) -> dict[str, list[bytes | None]]:
        """The content of some files of a tree in others; ``copies``: or of the files that they were copied from."""
        versions: dict[str, list[bytes | None]] = {path: [] for path in files}
        for tree in trees if versions else ():
            origins = self._renamed(tree, now, versions, RENAME_SIMILARITY if copies else 0)
            for path, texts in versions.items():
                text = self._text(self._core.objects.entry(tree, origins.get(path, path)))
                is_origin = path not in origins or text is None or not copies or _have_lines_in_common(files[path], text)
                texts.append(text if is_origin else None)
        return versions

    def _renamed(self, before: str, tree: str, paths: Iterable[str], copies: int = 0) -> dict[str, str]:
        """The paths that files were moved from, or copied from, if the tree before did not have them."""
        if all(self._core.objects.entry(before, path) is not None for path in paths):
            return {}
        changes = self._porcelain.changes(before, tree, copies=copies)
        return {file.path: file.old_path for file in changes if file.old_path is not None and file.path != file.old_path}

    def _is_ancestor(self, cid: str, commit: str) -> bool:
        return self._is_here(commit) and self._core.contains(commit, cid)

    def _applied(self, source: BroughtCommit, head: str, before: str, directory: DirectoryFiles) -> str:
        """A tree with those files of a change that the directory has, at least in part."""
        objects, theirs = self._core.objects, self._files(source)
        tree, _ = self._core.graph.apply(self._base(source, head), theirs, before)
        # A file that was taken as it is, such as by `git checkout COMMIT -- FILE`.
        same = [path for path in directory.touched if objects.entry(theirs, path) == objects.entry(directory.tree, path)]
        tree = self._with(tree, theirs, same)
        missing = [path for path in self.changed(before, tree) if not self._has(directory, path, before, tree)]
        return self._with(tree, before, missing)

    def _files(self, source: BroughtCommit) -> str:
        objects, commit = self._core.objects, self._core.objects.commit(source.cid)
        tree = commit.tree
        for untracked in commit.parents[2:] if source.is_stash else ():
            tree = objects.update_tree(tree, objects.entries(objects.commit(untracked).tree))
        return tree

    def _base(self, source: BroughtCommit, head: str) -> str:
        """The files that the change of a commit is applied to; those of HEAD, if it is an older version of them."""
        if source.is_stash or source.is_pick:
            return self._tree(self._core.objects.commit(source.cid).parents[:1])
        base = self._core.graph.merge_base(head, source.cid) if self._is_here(head) else None
        return self._tree([head if base == source.cid else base] if base is not None else [])

    def _tree(self, commits: Sequence[str]) -> str:
        return self._core.objects.commit(commits[0]).tree if commits else self._core.empty_tree()

    def _is_here(self, cid: str) -> bool:
        return bool(cid) and self._core.objects.kind(cid) == "commit"  # git gc may have removed it

    def without_doubled(self, tree: str, ours: str, theirs: str) -> str:
        """A merged tree, with their version of files in which the merge doubled lines that both sides had added."""
        entry, doubled = self._core.objects.entry, list[str]()
        for path in sorted(self.changed(ours, tree)):
            entries = [entry(side, path) for side in (tree, ours, theirs)]
            if None not in entries and entries[0] not in entries[1:]:
                merged, *sides = (Counter(lines_of(text)) if (text := self._text(one)) else Counter() for one in entries)
                doubled += [path] if any(map(is_distinctive, merged - (sides[0] | sides[1]))) else []
        return self._with(tree, theirs, doubled)

    def changed(self, before: str, tree: str) -> set[str]:
        """The paths that differ between two trees."""
        changes = self._porcelain.changes(before, tree) if tree != before else []
        return {path for file in changes for path in (file.path, file.old_path or file.path)}

    def _has(self, directory: DirectoryFiles, path: str, before: str, tree: str) -> bool:
        """Whether the directory has any of the lines that a file would get."""
        if path not in directory.touched:
            return False
        entries = [self._core.objects.entry(source, path) for source in (before, tree, directory.tree)]
        if entries[1] == entries[2]:
            return True
        old, new, now = map(self._text, entries)
        if new is None or now is None:
            return False
        lines, present = lines_of(new), {*lines_of(now)}
        return any(lines[number] in present for number in added_lines(new, [old]))

    def _stayed(self, path: str, at_start: str, tree: str, directory: DirectoryFiles) -> bool:
        """Whether a file did not follow HEAD, as after ``git reset --soft``: it has more lines in common with the last look."""
        if path not in directory.touched:
            return True
        before, after, now = (self._core.objects.entry(source, path) for source in (at_start, tree, directory.tree))
        text = self._text(now)
        if after == now or text is None:
            return False
        old, new = (len(added_lines(text, [self._text(entry) or b""])) for entry in (before, after))
        return old < new

    def _text(self, entry: TreeEntry | None) -> bytes | None:
        """The content of a file; None if it is missing or too large."""
        objects = self._core.objects
        if entry is None or objects.kind(entry.cid) != "blob" or objects.size(entry.cid) > FILE_MAX:
            return None
        return objects.blob(entry.cid)

    def _with(self, tree: str, source: str, paths: Iterable[str]) -> str:
        """A tree with some files of another one."""
        objects = self._core.objects
        entries = {path: objects.entry(source, path) for path in paths}
        changes = {path: entry for path, entry in entries.items() if entry != objects.entry(tree, path)}
        return objects.update_tree(tree, changes) if changes else tree

    def commit(self, tip: str, tree: str, others: Sequence[str], message: str, author: Stamp | None = None) -> str:
        """Write a commit of the person on top of the agent's work, unless it changes nothing."""
        core = self._core
        before = core.objects.commit(tip).tree
        if tree == before:
            return tip
        self._snapshots.check_tree(before, tree)
        by = core.person_stamp()
        return core.objects.write_commit(tree, list(dict.fromkeys((tip, *others))), author or by, by, f"{message}\n")


def _have_lines_in_common(one: bytes, other: bytes) -> bool:
    """Whether a file may be a copy of another one; a single line can be the same by accident."""
    return sum(map(is_distinctive, {*lines_of(one)} & {*lines_of(other)})) > 1


def without_new_lines(data: bytes, inherited: Sequence[bytes | None], versions: Sequence[bytes | None]) -> bytes | None:
    """A file without the lines that none of its versions has; None if those that it inherits have all of the rest."""
    lines, new = lines_of(data), set(range(len(lines_of(data))))
    for version in versions:
        new &= new if version is None else written_lines(data, [version])
    brought = added_lines(data, inherited) - new
    if not any(is_distinctive(lines[line]) for line in brought):
        return None
    ends_with_newline = data.endswith(b"\n") or len(lines) - 1 in new
    text = b"".join(line + b"\n" for number, line in enumerate(lines) if number not in new)
    return text if ends_with_newline else text.removesuffix(b"\n")
