"""Git notes, written without git's shared index.

Invariant: stock git reads every note we write, and we read every spelling that git writes. A note stands under two hex
digits, or four where a folder has become crowded, so that binding costs the same at the hundredth note and at the
hundred-thousandth.
"""

from __future__ import annotations

import re

import pygit2

from clia.errors import StaleRef
from clia.git.libgit2 import reading
from clia.git.records import FILE, FOLDER, NoteChange, TreeEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clia.git.graph import GitGraph
    from clia.git.libgit2 import GitHandle
    from clia.git.objects import GitObjects
    from clia.git.records import Refs, Stamp

CROWDED = 16
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DEEPEST, _DEEPEST_TREE = 3, 20


class GitNotes:
    """``Notes`` of one repository."""

    def __init__(self, handle: GitHandle, objects: GitObjects, refs: Refs, graph: GitGraph) -> None:
        self._handle = handle
        self._objects = objects
        self._refs = refs
        self._graph = graph

    def get(self, ref: str, commit: str) -> str | None:
        tip = self._refs.get(ref)
        return None if tip is None else self._bound(self._objects.commit(tip).tree, commit)

    def all(self, ref: str) -> dict[str, str]:
        tip = self._refs.get(ref)
        return {} if tip is None else self._of_tree(self._objects.commit(tip).tree)

    def bind(self, ref: str, commit: str, blob: str, by: Stamp, message: str) -> bool:
        while True:
            made = self.prepared(ref, commit, blob, by, message)
            if made is None:
                return False
            try:
                self._refs.move(ref, *made, "clia: bind a note")
            except StaleRef:
                continue  # another writer's note; ours goes on top of it
            return True

    def prepared(self, ref: str, commit: str, blob: str, by: Stamp, message: str) -> tuple[str | None, str] | None:
        tip = self._refs.get(ref)
        folders, present = self._found(None if tip is None else self._objects.commit(tip).tree, commit)
        if [cid for _, cid in present] == [blob]:
            return None
        made = self._over(folders, commit, blob, present)
        return tip, self._objects.write_commit(made, [tip] if tip else [], by, by, message)

    def _found(self, tree: str | None, commit: str) -> tuple[list[pygit2.Tree], list[tuple[str, str]]]:
        """The folders that a commit's note may stand in, the notes' own tree first, and (path, blob) of each spelling of it
        that git may have used, the deepest first."""
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
        """The notes with one more; other spellings of it go."""
        if present:
            changes: dict[str, TreeEntry | None] = {path: None for path, _ in present}
            changes[_place(folders, commit, present)] = TreeEntry(FILE, blob)
            return self._objects.update_tree(str(folders[0].id), changes)
        depth = _place(folders, commit, ()).count("/")
        entry, name = TreeEntry(FILE, blob), commit[2 * depth :]
        for level in range(depth, -1, -1):
            base = folders[level] if level < len(folders) else None
            entry = TreeEntry(FOLDER, self._objects.with_entry(base, name, entry))
            name = commit[2 * level - 2 : 2 * level]
        return entry.cid

    def history(self, ref: str, commit: str) -> list[NoteChange]:
        tip = self._refs.get(ref)
        if tip is None:
            return []
        bound: dict[str, str | None] = {}
        walked = list(self._graph.walk([tip]))
        for each in walked:
            if each.tree not in bound:
                bound[each.tree] = self._bound(each.tree, commit)
        blobs = {each.cid: bound[each.tree] for each in walked}
        return [
            NoteChange(each.cid, blobs[each.cid], each.committer, each.message)
            for each in walked
            if all(blobs.get(parent) != blobs[each.cid] for parent in each.parents)
            and (each.parents or blobs[each.cid] is not None)
        ]

    def remade(self, ref: str, replaced: Mapping[str, str]) -> str | None:
        tip = self._refs.get(ref)
        if tip is None:
            return None
        made: dict[str, str] = {}
        trees: dict[str, str] = {}
        for each in reversed(list(self._graph.walk([tip]))):
            tree = self._replaced(each.tree, replaced, trees)
            parents = [made.get(parent, parent) for parent in each.parents]
            if tree == each.tree and parents == list(each.parents):
                made[each.cid] = each.cid
            else:
                made[each.cid] = self._objects.write_commit(tree, parents, each.author, each.committer, each.message)
        return made[tip]

    def unite(self, ref: str, theirs: str, by: Stamp) -> str:
        tip = self._refs.get(ref)
        if tip is None or self._graph.descends(theirs, tip):
            self._refs.move(ref, tip, theirs, "clia: adopt notes")
            return theirs
        if self._graph.descends(tip, theirs):
            return tip
        tree = self._objects.commit(tip).tree
        ours = self._of_tree(tree)
        for commit, blob in self._of_tree(self._objects.commit(theirs).tree).items():
            if commit not in ours:
                folders, present = self._found(tree, commit)
                tree = self._over(folders, commit, blob, present)
        new = self._objects.write_commit(tree, [tip, theirs], by, by, "Notes of two clones united by clia\n")
        self._refs.move(ref, tip, new, "clia: unite notes")
        return new

    def _bound(self, tree: str, commit: str) -> str | None:
        _, present = self._found(tree, commit)
        return present[0][1] if present else None

    def _of_tree(self, tree: str) -> dict[str, str]:
        return dict(_notes(self._objects.entries(tree).items()))

    def _replaced(self, tree: str, replaced: Mapping[str, str], known: dict[str, str], depth: int = 0) -> str:
        """The tree with blobs replaced. Trees of one history share most of their folders; each is looked at once."""
        if depth > _DEEPEST_TREE:
            return tree  # no note of git's stands there
        if tree not in known:
            changes: dict[str, TreeEntry] = {}
            for name, entry in self._objects.listing(tree):
                folder = entry.mode == FOLDER
                inner = self._replaced(entry.cid, replaced, known, depth + 1) if folder else replaced.get(entry.cid, entry.cid)
                if inner != entry.cid:
                    changes[name] = TreeEntry(entry.mode, inner)
            known[tree] = self._objects.replace_entries(tree, changes) if changes else tree
        return known[tree]


def _path(commit: str, depth: int) -> str:
    """Where a note stands that many folders deep."""
    return "/".join([*(commit[2 * each : 2 * each + 2] for each in range(depth)), commit[2 * depth :]])


def _place(folders: Sequence[pygit2.Tree], commit: str, present: Sequence[tuple[str, str]]) -> str:
    """Where a note goes: where it stands, as long as that is fanned out; else where there is room."""
    for path, _ in present:
        if "/" in path:
            return path
    return _path(commit, 2 if len(folders) > 1 and len(folders[1]) >= CROWDED else 1)


def _notes(entries: Iterable[tuple[str, TreeEntry]]) -> Iterable[tuple[str, str]]:
    """Commit and blob of what is a note; anything else in a notes tree is none of ours."""
    for path, entry in entries:
        commit = path.replace("/", "")
        if _COMMIT.fullmatch(commit):
            yield commit, entry.cid
