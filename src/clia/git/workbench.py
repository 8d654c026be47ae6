"""The workbench: stock git's work on one repository, put together here, and the upkeep of its objects.

Invariant: no object is removed but those that ``drop_objects`` is told, and those that git's own grace period has run out
for; checking and counting change nothing and fetch nothing.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from clia.errors import GitError, InvalidInput
from clia.git.patches import GitReview
from clia.git.transfer import GitTransfer
from clia.git.worktrees import GitWorktrees

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ID = re.compile(r"[0-9a-f]{40}")
# With --strict, what is called a warning is a remark: a link where git wants a file, say.
_NOTICES = ("notice: ", "dangling ", "Checking ", "Verifying ", "warning in ")
# In a partial clone git would fetch what is missing. The second is for versions that do not know the first.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
_PARTIAL = r"^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$"
_GC = ("-c", "gc.autoDetach=false", "-c", "gc.worktreePruneExpire=never")
# What must stay, or what repacking keeps whole.
_KEPT = (".keep", ".promisor")
_LARGE = 1_000_000
"""Packed objects beyond which git gc is too much: it looks at all of them each time (half an hour at 3 millions, measured)."""


class GitWorkbench(GitWorktrees, GitReview, GitTransfer):
    """``Workbench`` of one repository."""

    def check(self, progress: Callable[[str], None] | None = None) -> list[str]:
        if progress is not None:
            progress("git fsck: every object and ref")
        done = self._command.attempt("fsck", "--strict", "--no-dangling", "--no-progress", more=_NO_FETCH)
        lines = [*done.out.decode("utf-8", "replace").splitlines(), *done.err.splitlines()]
        found = {line.strip() for line in lines if line.strip() and not line.startswith(_NOTICES)}
        if done.code and not found:
            found.add(f"git fsck ends with {done.code}")
        return sorted(found)

    def is_partial(self) -> bool:
        out = self._command.attempt("config", "-z", "--get-regexp", _PARTIAL).out.decode("utf-8", "replace")
        return any(each.partition("\n")[2].lower() not in ("false", "no", "off", "0") for each in out.split("\0")[:-1])

    def is_shallow(self) -> bool:
        try:
            return os.path.getsize(os.path.join(self._handle.common_dir, "shallow")) > 0
        except OSError:
            return False

    def pack(self) -> None:
        self._command.run("pack-refs", "--all")
        if self._packed() > _LARGE and not self.is_partial():
            # Only what is new, and packs that are small beside it. What nothing reaches stays until somebody runs git gc.
            self._command.run("repack", "-d", "-l", "-q", "--geometric=2")
            return
        asked = self._command.attempt("config", "--get", "gc.pruneExpire").out.decode("utf-8", "replace").strip()
        # A shorter time than git's own would take objects from under writers at work.
        grace = "never" if asked == "never" else "2.weeks.ago"
        self._command.run(*_GC, "-c", f"gc.pruneExpire={grace}", "gc", "--quiet")

    def _packed(self) -> int:
        """About how many objects are in packs: each has 28 bytes in an index."""
        sizes = []
        for path in self._pack_indexes():
            with suppress(FileNotFoundError):  # repacked meanwhile
                sizes.append(os.path.getsize(path))
        return sum(sizes) // 28

    def drop_objects(self, cids: Sequence[str]) -> list[str]:
        for cid in cids:
            if not _ID.fullmatch(cid):
                raise InvalidInput(f"{cid!r} is not the id of an object", code="invalid-id", fields={"id": cid})
        cids, asked = self._unreachable(cids), cids
        self._unlink(cids)
        packed = [bytes.fromhex(cid) for cid in self._present(cids)]
        if any(_mentions(index, packed) for index in self._pack_indexes()):
            # -A makes whatever nothing reaches loose, with the age of its pack, so that the others keep their grace.
            self._command.run("repack", "-A", "-d", "-q", more=_NO_FETCH)
            self._unlink(cids)
        if any(_mentions(graph, [bytes.fromhex(cid) for cid in cids]) for graph in self._commit_graphs()):
            self._command.run("commit-graph", "write", "--reachable", "--no-progress", more=_NO_FETCH)
        return self._present(asked)

    def _unreachable(self, cids: Sequence[str]) -> list[str]:
        """Those that no ref, log or index reaches: removing another would break the repository."""
        words = ("rev-list", "--objects", "--no-object-names", "--all", "--reflog", "--indexed-objects")
        reached = set(self._command.run(*words, more=_NO_FETCH).decode("ascii").split())
        return [cid for cid in cids if cid not in reached]

    def size(self) -> int:
        total = 0
        for directory, _, files in os.walk(self._objects_folder()):
            for name in files:
                with suppress(FileNotFoundError):  # packed meanwhile
                    total += os.lstat(os.path.join(directory, name)).st_blocks * 512
        return total

    def _objects_folder(self, *below: str) -> str:
        return os.path.join(self._handle.common_dir, "objects", *below)

    def _unlink(self, cids: Sequence[str]) -> None:
        for cid in cids:
            path = self._objects_folder(cid[:2], cid[2:])
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as err:
                raise GitError(f"the object {cid} cannot be removed: {err.strerror}", fields={"path": path}) from None

    def _present(self, cids: Sequence[str]) -> list[str]:
        """Those that are still there, alternates included. A new look: an open handle remembers packs that are gone."""
        import pygit2  # 95 ms, and only spaces need it

        odb = pygit2.Odb(self._objects_folder())
        return sorted(cid for cid in set(cids) if cid in odb)

    def _pack_indexes(self) -> Iterator[str]:
        """The indexes of packs that git may rewrite."""
        folder = self._objects_folder("pack")
        names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
        for name in sorted(names):
            stem = name.removesuffix(".idx")
            if stem != name and not any(stem + end in names for end in _KEPT):
                yield os.path.join(folder, name)

    def _commit_graphs(self) -> Iterator[str]:
        yield self._objects_folder("info", "commit-graph")
        folder = self._objects_folder("info", "commit-graphs")
        if os.path.isdir(folder):
            yield from (os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".graph"))


def _mentions(file: str, ids: Sequence[bytes]) -> bool:
    """Whether an index file of git's holds one of the ids. A chance match costs a repack, and no more."""
    if not ids:
        return False
    try:
        with open(file, "rb") as content:
            data = content.read()
    except FileNotFoundError:
        return False
    return any(each in data for each in ids)
