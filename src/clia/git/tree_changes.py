"""The paths that differ between two trees."""

from __future__ import annotations

from typing import Protocol

from clia.git.records import FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.git.records import TreeEntry


class TreeListing(Protocol):
    """Reads trees."""

    def listing(self, tree: str) -> Iterator[tuple[str, TreeEntry]]:
        """The entries of a tree."""


def changed_paths(source: TreeListing, before: str | None, after: str) -> list[str]:
    """The paths that differ between two trees, sorted. A renamed file is two paths."""
    paths: list[str] = []
    waiting: list[tuple[str, str | None, str | None]] = [("", before, after)]
    while waiting:
        prefix, *trees = waiting.pop()
        sides = [{} if tree is None else dict(source.listing(tree)) for tree in trees]
        for name in sides[0].keys() | sides[1].keys():
            entries = [side.get(name) for side in sides]
            if entries[0] == entries[1]:
                continue
            folders = [entry.cid if entry is not None and entry.mode == FOLDER else None for entry in entries]
            if any(folders):
                waiting.append((f"{prefix}{name}/", folders[0], folders[1]))
            if any(entry is not None and entry.mode != FOLDER for entry in entries):
                paths.append(prefix + name)
    return sorted(paths)
