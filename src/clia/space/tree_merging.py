"""Three-way merges of trees, with merge rules for files of certain kinds.

Invariant: a file rule only resolves a conflict in a regular file that both sides have; everything else is as git merges it.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.git.records import EXECUTABLE, FILE, TreeEntry, TreeMerge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.git.records import PathConflict
    from clia.space.core import Core


class FileRule(NamedTuple):
    """How conflicting versions of certain files are merged."""

    applies: Callable[[str], bool]
    """Whether the rule is for this path."""
    merge: Callable[[str, bytes | None, bytes, bytes], bytes | None]
    """The merged content of a path's base, ours and theirs; None leaves the conflict."""


class TreeMerging:
    """Merges the trees of two commits."""

    def __init__(self, core: Core, rules: tuple[FileRule, ...] = ()) -> None:
        self._core = core
        self._rules = rules

    def merge(self, ours: str, theirs: str, base: str | None = None) -> TreeMerge:
        """Merge two commits, from their own merge base or from another commit."""
        merged = self._core.graph.merge(ours, theirs, base)
        resolved: dict[str, TreeEntry | None] = {}
        for conflict in merged.conflicts:
            entry = self._resolve(conflict)
            if entry is not None:
                resolved[conflict.path] = entry
        if not resolved:
            return merged
        left = tuple(conflict for conflict in merged.conflicts if conflict.path not in resolved)
        return TreeMerge(self._core.objects.update_tree(merged.tree, resolved), left)

    def _resolve(self, conflict: PathConflict) -> TreeEntry | None:
        path, base, ours, theirs = conflict
        rule = next((rule for rule in self._rules if rule.applies(path)), None)
        if rule is None or ours is None or theirs is None or not all(map(_is_file, (base or ours, ours, theirs))):
            return None
        objects = self._core.objects
        content = rule.merge(path, objects.blob(base.cid) if base else None, objects.blob(ours.cid), objects.blob(theirs.cid))
        return None if content is None else TreeEntry(ours.mode, objects.write_blob(content))


def _is_file(entry: TreeEntry) -> bool:
    return entry.mode in (FILE, EXECUTABLE)
