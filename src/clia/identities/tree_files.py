"""The files of a git tree, read as ``LocalFiles`` reads a directory.

Invariant: nothing outside of the tree is read, so the same tree gives the same answers on every machine, also in a bare
repository. Links are followed inside the tree; one that leaves it leads to a path that does not exist. A submodule is a directory
with a ``.git``; it is empty if its commit cannot be read here.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import FileError
from clia.files import DIRECTORY, FILE, LINK, MISSING, OTHER, DirectoryEntry, LocalFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    class TreeEntryLike(Protocol):
        """A mode and an object id."""

        @property
        def mode(self) -> int: ...
        @property
        def cid(self) -> str: ...

    class TreeSource(Protocol):
        """Where trees and blobs are read from: a repository of the library, or git itself in a server's hook."""

        def listing(self, tree: str) -> Iterator[tuple[str, TreeEntryLike]]: ...
        def blob(self, cid: str) -> bytes: ...

    SubmoduleTree = Callable[[str, str], "tuple[TreeSource, str] | None"]
    """The source and the tree of a submodule, by its path and its commit; None if they cannot be read here."""

TOP = "/repository"
"""The path of the tree's top directory. It stands for the repository, wherever that lies."""
_FOLDER, _LINK_MODE, SUBMODULE_MODE = 0o040000, 0o120000, 0o160000
_LINKS_MAX = 40  # as Linux allows


class _TreeNode(NamedTuple):
    """One name in a tree."""

    kind: str
    source: TreeSource
    cid: str  # of the tree or the blob; empty: a submodule that cannot be read
    submodule: bool = False


class TreeFiles(LocalFiles):
    """Reads a tree as the directory ``TOP``."""

    is_disk = False

    def __init__(self, source: TreeSource, tree: str, submodule_tree: SubmoduleTree) -> None:
        self._top = _TreeNode(DIRECTORY, source, tree, submodule=True)
        self._submodule_tree = submodule_tree
        self._folders: dict[str, dict[str, _TreeNode]] = {}
        self._real: dict[str, str] = {}

    def real(self, path: str) -> str:
        if path not in self._real:
            self._real[path] = self._resolved(path)
        return self._real[path]

    def kind(self, path: str) -> str:
        node = self._node(path)
        return MISSING if node is None else node.kind

    def entries(self, directory: str) -> list[DirectoryEntry] | None:
        real = self.real(directory)
        node = self._node(real)
        if node is None or node.kind != DIRECTORY:
            return None
        return [DirectoryEntry(name, child.kind) for name, child in self._children(real, node).items()]

    def read(self, path: str, limit: int) -> bytes | None:
        node = self._node(self.real(path))
        if node is None:
            return None
        if node.kind != FILE:
            raise FileError(f"{path} is not a regular file", fields={"path": path, "reason": "not a regular file"})
        return node.source.blob(node.cid)[: limit + 1] if node.cid else b""

    def owner(self, path: str) -> int | None:
        del path  # a tree has no owners
        return None

    def _resolved(self, path: str) -> str:
        """The path without links. A cycle of links, or one that leaves the tree, leads to a path that does not exist."""
        waiting = [part for part in reversed(path.split("/")) if part]
        at, links = "", 0
        while waiting:
            part = waiting.pop()
            if part == "..":
                at = at.rpartition("/")[0]
            elif part != ".":
                node = self._node(f"{at}/{part}")
                if node is None or node.kind != LINK:
                    at = f"{at}/{part}"
                    continue
                links += 1
                target = node.source.blob(node.cid).decode("utf-8", "surrogateescape")
                if links > _LINKS_MAX or "\0" in target:
                    return f"{at}/{part}"
                waiting += [name for name in reversed(target.split("/")) if name]
                at = "" if target.startswith("/") else at
        return at or "/"

    def _node(self, path: str) -> _TreeNode | None:
        """The node of a path whose directories are not links."""
        if path in ("/", ""):
            return _TreeNode(DIRECTORY, self._top.source, "")
        if path != TOP and not path.startswith(f"{TOP}/"):
            return None
        node: _TreeNode | None = self._top
        at = TOP
        for name in path[len(TOP) + 1 :].split("/") if path != TOP else ():  # not recursive: a tree may be very deep
            node = None if node is None or node.kind != DIRECTORY else self._children(at, node).get(name)
            at = f"{at}/{name}"
        return node

    def _children(self, directory: str, node: _TreeNode) -> dict[str, _TreeNode]:
        if directory not in self._folders:
            children = {".git": _TreeNode(FILE, node.source, "")} if node.submodule else {}
            for name, entry in node.source.listing(node.cid) if node.cid else ():
                children[name] = self._child(f"{directory}/{name}", node.source, entry)
            self._folders[directory] = children
        return self._folders[directory]

    def _child(self, path: str, source: TreeSource, entry: TreeEntryLike) -> _TreeNode:
        if entry.mode == _FOLDER:
            return _TreeNode(DIRECTORY, source, entry.cid)
        if entry.mode == _LINK_MODE:
            return _TreeNode(LINK, source, entry.cid)
        if entry.mode != SUBMODULE_MODE:
            return _TreeNode(FILE if entry.mode & 0o100000 else OTHER, source, entry.cid)
        inner = self._submodule_tree(path.removeprefix(f"{TOP}/"), entry.cid)
        return _TreeNode(DIRECTORY, *(inner or (source, "")), submodule=True)
