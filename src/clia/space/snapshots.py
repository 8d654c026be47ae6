"""Trees from files given as values.

Invariant: nothing is written before every path and content is checked. Only what differs from the base tree is hashed and written.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from clia.errors import InvalidInput, UnsafePath
from clia.git.records import EXECUTABLE, FILE, LINK, SUBMODULE, TreeEntry
from clia.space.model import File, Link, Submodule
from clia.values import paths
from clia.values.refs import is_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.git.objects import GitObjects
    from clia.space.model import Content

_REMEMBERED = 4
_ATTRIBUTE_LINE, _ATTRIBUTES_MAX = 2048, 100 * 1024 * 1024
_UPDATES = frozenset(("checkout", "rebase", "merge", "none"))


class Snapshots:
    """Builds trees. Caches the last contents of a few agents, so unchanged files are not hashed."""

    def __init__(self, objects: GitObjects) -> None:
        self._objects = objects
        self._last: OrderedDict[str, tuple[str, dict[str, TreeEntry], dict[str, Content]]] = OrderedDict()
        self._turn = Lock()

    def full(self, agent: str, tree: str, files: Mapping[str, Content]) -> str:
        """The tree of exactly these files; ``tree`` is the agent's current one."""
        last = self._last.get(agent)
        present, values = last[1:] if last is not None and last[0] == tree else (self._objects.entries(tree), {})
        changed: dict[str, Content] = {}
        for path, value in files.items():
            before = values.get(path, ...)
            # A link and a submodule both hold one text: compare their types, too.
            if before is not value and (type(before) is not type(value) or before != value):
                changed[path] = value
        written, removed = self._entries(changed, present), present.keys() - files.keys()
        new = self._objects.update_tree(tree, {**written, **dict.fromkeys(removed)}) if written or removed else tree
        entries = present | written
        for path in removed:
            del entries[path]
        with self._turn:
            self._last[agent] = (new, entries, dict(files))
            self._last.move_to_end(agent)
            while len(self._last) > _REMEMBERED:
                self._last.popitem(last=False)
        return new

    def delta(self, tree: str, changes: Mapping[str, Content | None]) -> str:
        """The tree with some paths set, and those with None removed."""
        removed = [path for path, value in changes.items() if value is None]
        for path in removed:
            paths.check_removed(path)
        written = self._entries({path: value for path, value in changes.items() if value is not None}, {})
        return self._objects.update_tree(tree, {**written, **dict.fromkeys(removed)})

    def _entries(self, files: Mapping[str, Content], present: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
        """The entries that must be written: those that differ from the tree."""
        described = {path: _described(path, value) for path, value in files.items()}
        entries: dict[str, TreeEntry] = {}
        blobs: dict[str, tuple[int, bytes]] = {}
        for path, (mode, data) in described.items():
            if path not in present:
                paths.check(path)
            if mode == SUBMODULE:
                entries[path] = TreeEntry(mode, data.decode("ascii"))
            elif present.get(path) != TreeEntry(mode, self._objects.blob_id(data)):
                self._check_special(path, mode, data)
                blobs[path] = (mode, data)
        entries |= {path: TreeEntry(mode, self._objects.write_blob(data)) for path, (mode, data) in blobs.items()}
        return {path: entry for path, entry in entries.items() if present.get(path) != entry}

    def check_tree(self, old: str, new: str) -> None:
        """Check the changed files of a tree that git itself interprets."""
        before = self._objects.entries(old)
        for path, entry in self._objects.entries(new).items():
            special = paths.is_gitmodules(path) or paths.is_gitattributes(path)
            if special and before.get(path) != entry and entry.mode != SUBMODULE:
                self._check_special(path, entry.mode, self._objects.blob(entry.cid))

    def _check_special(self, path: str, mode: int, data: bytes) -> None:
        if paths.is_gitmodules(path):
            self._check_gitmodules(path, mode, data)
        elif paths.is_gitattributes(path) and (
            len(data) > _ATTRIBUTES_MAX or any(len(line) >= _ATTRIBUTE_LINE for line in data.split(b"\n"))
        ):  # git would report it as damage
            raise UnsafePath(f"{path!r}: git does not read attributes this long", fields={"path": path})

    def _check_gitmodules(self, path: str, mode: int, data: bytes) -> None:
        """Refuse a ``.gitmodules`` file that git's own check refuses: it could run programs in a clone."""
        entries = self._objects.config_entries(data) if mode != LINK else None
        if entries is None:
            raise UnsafePath(f"{path!r}: not a readable .gitmodules file", fields={"path": path})
        for key, value in entries:
            section, _, rest = key.partition(".")
            name, _, field = rest.rpartition(".")
            bad_name = not name or ".." in name.replace("\\", "/").split("/")
            bad_value = field in ("url", "path") and value.startswith("-")
            bad_url = field == "url" and ("\n" in value or "::" in value.partition("/")[0])
            bad_update = field == "update" and value not in _UPDATES
            if section == "submodule" and (bad_name or bad_value or bad_url or bad_update):
                raise UnsafePath(f"{path!r}: the value of {key} is unsafe", fields={"path": path, "key": key})


def _described(path: str, value: object) -> tuple[int, bytes]:
    """The mode and data of a content; ``InvalidInput`` names the path."""
    match value:
        case bytes():
            return FILE, value
        case File(bytes() as data, executable):
            return (EXECUTABLE if executable else FILE), data
        case Link(str() as target) if target and "\0" not in target:
            return LINK, target.encode("utf-8", "surrogateescape")
        case Submodule(str() as commit) if is_id(commit) and commit.strip("0"):  # git treats all zeros as none
            return SUBMODULE, commit.encode("ascii")
    raise InvalidInput(
        f"the content of {path!r} cannot be stored: {type(value).__name__}",
        code="invalid-content",
        hints=["give bytes, clia.File, clia.Link or clia.Submodule"],
        fields={"path": path},
    )
