"""Git notes, written without git's shared index.

Invariant: git reads every note we write, and we read every path that git uses. A note is in a folder named by two hex digits,
or four if the folder is crowded, so that binding a note costs the same with a hundred notes and with a hundred thousand.
"""

from __future__ import annotations

import re

import pygit2

from clia.errors import StaleRef
from clia.git.libgit2 import reading
from clia.git.records import FILE, FOLDER, NoteChange, TreeEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from clia.git.graph import GitGraph
    from clia.git.libgit2 import GitHandle
    from clia.git.objects import GitObjects
    from clia.git.records import Refs, Stamp

    Merge = Callable[[bytes, bytes], bytes]

CROWDED = 16
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DEEPEST, _DEEPEST_TREE = 3, 20


class GitNotes:
    """The notes of one repository: refs whose trees map commits to blobs."""

    def __init__(self, handle: GitHandle, objects: GitObjects, refs: Refs, graph: GitGraph) -> None:
        self._handle = handle
        self._objects = objects
        self._refs = refs
        self._graph = graph

    def get(self, ref: str, commit: str) -> str | None:
        """Return the blob bound to a commit. If git has several spellings of the path, the first one counts."""
        tip = self._refs.get(ref)
        return None if tip is None else self._bound(self._objects.commit(tip).tree, commit)

    def among(self, ref: str, commits: Iterable[str]) -> dict[str, str]:
        """Return the blob bound to each of the commits that has a note."""
        tip = self._refs.get(ref)
        if tip is None:
            return {}
        tree = self._objects.commit(tip).tree
        bound = ((commit, self._bound(tree, commit)) for commit in commits)
        return {commit: blob for commit, blob in bound if blob is not None}

    def all(self, ref: str) -> dict[str, str]:
        """Return commit and blob of every note."""
        tip = self._refs.get(ref)
        return {} if tip is None else self._of_tree(self._objects.commit(tip).tree)

    def bind(self, ref: str, commit: str, blob: str, by: Stamp, message: str) -> bool:
        """Bind a blob to a commit; return False if this blob is bound already."""
        while True:
            tips = self.prepared(ref, commit, blob, by, message)
            if tips is None:
                return False
            try:
                self._refs.move(ref, *tips, "clia: bind a note")
            except StaleRef:
                continue  # another writer moved the ref
            return True

    def bind_all(self, ref: str, notes: Mapping[str, bytes], by: Stamp, message: str, merge: Merge) -> bool:
        """Bind texts to commits in one step; return whether any is new. ``merge`` joins a text with the one that is bound."""
        while True:
            tip = self._refs.get(ref)
            tree = None if tip is None else self._objects.commit(tip).tree
            changes = [change for commit, data in notes.items() for change in self._changes(tree, commit, data, merge)]
            if not changes:
                return False
            new_tree = self._objects.update_tree(tree, dict(changes))
            new = self._objects.write_commit(new_tree, [tip] if tip else [], by, by, message)
            try:
                self._refs.move(ref, tip, new, "clia: bind notes")
            except StaleRef:
                continue  # another writer moved the ref
            return True

    def _changes(self, tree: str | None, commit: str, data: bytes, merge: Merge) -> list[tuple[str, TreeEntry | None]]:
        """Return the changes of a notes tree that bind a text to a commit; none if it is bound already."""
        folders, present = self._found(tree, commit)
        if present:
            data = merge(self._objects.blob(present[0][1]), data)
        if [blob for _, blob in present] == [self._objects.blob_id(data)]:
            return []
        removed: list[tuple[str, TreeEntry | None]] = [(path, None) for path, _ in present]
        return [*removed, (_place(folders, commit, present), TreeEntry(FILE, self._objects.write_blob(data)))]

    def prepared(self, ref: str, commit: str, blob: str, by: Stamp, message: str) -> tuple[str | None, str] | None:
        """Return the ref's tip and the new tip with the blob bound, or None if this blob is bound already."""
        tip = self._refs.get(ref)
        folders, present = self._found(None if tip is None else self._objects.commit(tip).tree, commit)
        if [cid for _, cid in present] == [blob]:
            return None
        tree = self._over(folders, commit, blob, present)
        return tip, self._objects.write_commit(tree, [tip] if tip else [], by, by, message)

    def _found(self, tree: str | None, commit: str) -> tuple[list[pygit2.Tree], list[tuple[str, str]]]:
        """Return a commit's folders, the root first, and (path, blob) of each spelling of its note, the deepest first."""
        if tree is None:
            return [], []
        with reading(tree):
            folders = [self._handle.repo[tree].peel(pygit2.Tree)]
            while len(folders) <= _DEEPEST:
                name = commit[2 * len(folders) - 2 : 2 * len(folders)]
                inner = folders[-1][name] if name in folders[-1] else None  # noqa: SIM401  # a tree has no get
                if not isinstance(inner, pygit2.Tree):
                    break
                folders.append(inner)
            present = []
            for depth in range(len(folders) - 1, -1, -1):
                name = commit[2 * depth :]
                if name in folders[depth] and int(folders[depth][name].filemode) != FOLDER:
                    present.append((_path(commit, depth), str(folders[depth][name].id)))
        return folders, present

    def _over(self, folders: list[pygit2.Tree], commit: str, blob: str, present: Sequence[tuple[str, str]]) -> str:
        """Return the notes tree with one more note; other spellings of it are removed."""
        if present:
            changes: dict[str, TreeEntry | None] = {path: None for path, _ in present}
            changes[_place(folders, commit, present)] = TreeEntry(FILE, blob)
            return self._objects.update_tree(str(folders[0].id), changes)
        depth = _place(folders, commit, ()).count("/")
        entry, name = TreeEntry(FILE, blob), commit[2 * depth :]
        for level in range(depth, -1, -1):
            base = folders[level] if level < len(folders) else None
            entry = TreeEntry(FOLDER, self._objects.with_entries(base, {name: entry}))
            name = commit[2 * level - 2 : 2 * level]
        return entry.cid

    def history(self, ref: str, commit: str) -> list[NoteChange]:
        """Return every binding that the commit ever had, newest first."""
        tip = self._refs.get(ref)
        if tip is None:
            return []
        versions = list(self._graph.walk([tip]))
        bound = {tree: self._bound(tree, commit) for tree in {version.tree for version in versions}}
        blobs = {version.cid: bound[version.tree] for version in versions}
        return [
            NoteChange(version.cid, blobs[version.cid], version.committer, version.message)
            for version in versions
            if all(blobs.get(parent) != blobs[version.cid] for parent in version.parents)
            and (version.parents or blobs[version.cid] is not None)
        ]

    def remade(self, ref: str, replaced: Mapping[str, str]) -> str | None:
        """Rewrite the ref's history with blobs replaced; return the new tip. The ref is not moved."""
        tip = self._refs.get(ref)
        if tip is None:
            return None
        rewritten: dict[str, str] = {}
        trees: dict[str, str] = {}
        for old in reversed(list(self._graph.walk([tip]))):
            tree = self._replaced(old.tree, replaced, trees)
            parents = [rewritten.get(parent, parent) for parent in old.parents]
            if tree == old.tree and parents == list(old.parents):
                rewritten[old.cid] = old.cid
            else:
                rewritten[old.cid] = self._objects.write_commit(tree, parents, old.author, old.committer, old.message)
        return rewritten[tip]

    def unite(self, ref: str, theirs: str, by: Stamp, merge: Merge | None = None) -> str:
        """Merge a diverged notes history into the ref; return the new tip. Our note wins, unless ``merge`` joins the two."""
        tip = self._refs.get(ref)
        if tip is None or self._graph.descends(theirs, tip):
            self._refs.move(ref, tip, theirs, "clia: adopt notes")
            return theirs
        if self._graph.descends(tip, theirs):
            return tip
        tree = self._objects.commit(tip).tree
        ours = self._of_tree(tree)
        for commit, blob in self._of_tree(self._objects.commit(theirs).tree).items():
            if merge is not None and ours.get(commit, blob) != blob:
                blob = self._objects.write_blob(merge(*map(self._objects.blob, (ours[commit], blob))))  # noqa: PLW2901
            if commit not in ours or (merge is not None and ours[commit] != blob):
                folders, present = self._found(tree, commit)
                tree = self._over(folders, commit, blob, present)
        new = self._objects.write_commit(tree, [tip, theirs], by, by, "Notes of two clones united by clia\n")
        self._refs.move(ref, tip, new, "clia: unite notes")
        return new

    def _bound(self, tree: str, commit: str) -> str | None:
        _, present = self._found(tree, commit)
        return present[0][1] if present else None

    def _of_tree(self, tree: str) -> dict[str, str]:
        """Return commit and blob of each note; other entries of a notes tree are skipped."""
        notes = ((path.replace("/", ""), entry.cid) for path, entry in self._objects.entries(tree).items())
        return {commit: blob for commit, blob in notes if _COMMIT.fullmatch(commit)}

    def _replaced(self, tree: str, replaced: Mapping[str, str], trees: dict[str, str], depth: int = 0) -> str:
        """Return a tree with blobs replaced. Trees of one history share most folders; each is read once."""
        if depth > _DEEPEST_TREE:
            return tree  # git puts no note there
        if tree not in trees:
            changes: dict[str, TreeEntry] = {}
            for name, entry in self._objects.listing(tree):
                folder = entry.mode == FOLDER
                inner = self._replaced(entry.cid, replaced, trees, depth + 1) if folder else replaced.get(entry.cid, entry.cid)
                if inner != entry.cid:
                    changes[name] = TreeEntry(entry.mode, inner)
            trees[tree] = self._objects.with_entries(tree, changes) if changes else tree
        return trees[tree]


def _path(commit: str, depth: int) -> str:
    """Return the path of a note that many folders deep."""
    return "/".join([*(commit[2 * level : 2 * level + 2] for level in range(depth)), commit[2 * depth :]])


def _place(folders: Sequence[pygit2.Tree], commit: str, present: Sequence[tuple[str, str]]) -> str:
    """Return where to write a note: its present path if that is in a folder, else a folder with room."""
    for path, _ in present:
        if "/" in path:
            return path
    return _path(commit, 2 if len(folders) > 1 and len(folders[1]) >= CROWDED else 1)
