"""The archive repository, ``clia/archive.git`` in the git directory: the refs of idle agents, and the packs that keep their
objects.

Invariant: refs have the same names as in the main repository, and are in one packed file. The archive repository has no objects of
its own: they stay in the main repository, where every program can read them; stock git finds them there (``git --git-dir``).
Everything that its refs reach is in a pack that is marked with a ``.keep`` file, which ``git gc`` and ``git repack`` leave alone,
or is reached by ``refs/clia/bases``. If both repositories have a ref, the main one's value counts.

Such a pack also has a commit with the packed tips as parents (the collector): ``git fsck`` in the main repository reports one
dangling commit for each pack, instead of one for each ref.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.git.libgit2 import git_error
from clia.git.ref_files import NO_FILE, edited, packed_state, read_packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from clia.git.command import GitCommand
    from clia.git.libgit2 import GitHandle
    from clia.git.lock_files import LockFiles
    from clia.git.records import Stamp

FOLDER = "archive.git"
SUPERSEDED = "refs/superseded/"
"""Values of refs whose history in the main repository is another one."""
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n[gc]\n\tauto = 0\n"
_FILES = {
    # Relative, so that the repository can be moved.
    "objects/info/alternates": "../../../objects\n",
    "config": _CONFIG,
    "HEAD": "ref: refs/heads/none\n",
}


class ArchiveSnapshot(NamedTuple):
    """The packed file at one moment. It stays open, so that no later file gets its inode."""

    path: str
    handle: int | None

    def is_current(self) -> bool:
        """Return whether the file has not been replaced since."""
        try:
            info = os.stat(self.path)
        except FileNotFoundError:
            return self.handle is None
        return self.handle is not None and os.path.samestat(info, os.fstat(self.handle))


class RefArchive:
    """The archive repository beside one repository."""

    def __init__(self, handle: GitHandle, locks: LockFiles) -> None:
        self.directory = os.path.join(handle.common_dir, "clia", FOLDER)
        self.logs = os.path.join(self.directory, "logs")
        self.lock = os.path.join(self.directory, "packed-refs.lock")
        self._packed = os.path.join(self.directory, "packed-refs")
        self._locks = locks
        self._handle = handle

    def exists(self) -> bool:
        return os.path.exists(self._packed)

    def get(self, name: str) -> str | None:
        return next((cid for ref, cid in read_packed(self.directory, name, limit=1) if ref == name), None)

    def among(self, refs: Iterable[str]) -> dict[str, str]:
        """Return the values of those refs that are in the archive repository."""
        values = ((ref, self.get(ref)) for ref in refs)
        return {ref: cid for ref, cid in values if cid is not None}

    def under(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[tuple[str, str]]:
        return read_packed(self.directory, prefix, after, limit)

    def state(self) -> str | None:
        """Return a fingerprint of the refs, or None if they changed a moment ago."""
        return packed_state(self.directory)

    @contextmanager
    def snapshot(self) -> Iterator[ArchiveSnapshot]:
        """Watch the refs: while they stay the same, no ref leaves the main repository for this one, or the other way round."""
        try:
            handle: int | None = os.open(self._packed, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            handle = None
        try:
            yield ArchiveSnapshot(self._packed, handle)
        finally:
            if handle is not None:
                os.close(handle)

    def is_empty(self) -> bool:
        return self.state() == NO_FILE or not self.under("refs/", limit=1)

    def edit(self, changes: Mapping[str, str | None]) -> None:
        """Set or remove refs, all at once. Raises what ``LockFiles.hold`` raises."""
        self._create()
        with self._locks.hold(self.lock):
            try:
                with open(self._packed, "rb") as file:
                    packed = file.read()
            except FileNotFoundError:
                packed = b""
            content = edited(packed, changes)
            if content is None:
                raise git_error(f"cannot change {self._packed}", ValueError("git pack-refs has not written it"))
            self._locks.replace(self._packed, content, durable=self._handle.durable)
        if self._handle.durable:
            sync_directory(self.directory)

    def _create(self) -> None:
        for name in ("objects/info", "refs"):
            self._handle.sharing.make_directory(os.path.join(self.directory, *name.split("/")))
        for name, text in _FILES.items():
            path = os.path.join(self.directory, *name.split("/"))
            if not os.path.exists(path):
                draft = f"{path}.{os.getpid()}"
                with open(draft, "w", encoding="ascii") as file:
                    file.write(text)
                self._handle.sharing.apply(draft)
                os.replace(draft, path)

    def remove_log(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.logs, *name.split("/")))


def sync_directory(path: str) -> None:
    """Flush the entries of a directory to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


FEW = 4
"""Number of small packs that stay; more are joined: git looks for an object in one pack after the other."""
_MARK = "clia: objects of clia/archive.git, collected by "
_COLLECTOR = re.compile(rf"{_MARK}([0-9a-f]{{40}})")
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_PARTS = (".pack", ".rev", ".idx")  # git looks for the index
_COMMIT = 1
_INDEX_HEADER, _INDEX_ENTRY = 1072, 28  # bytes


class KeptPacks:
    """The marked packs of one repository."""

    def __init__(self, handle: GitHandle, command: GitCommand, reached: Callable[[str], None]) -> None:
        self._command = command
        self._handle = handle
        self._reached = reached
        self._folder = os.path.join(handle.common_dir, "objects", "pack")
        self._drafts = os.path.join(handle.common_dir, "clia", "packs")

    def bases(self, tips: Iterable[str], people: Iterable[str], before: Iterable[str]) -> list[str]:
        """Return the earlier bases and the commits of people that tips are based on, without those that another one contains."""
        tips = list(tips)
        lines = [*tips, *(f"^{cid}" for cid in people)]
        out = self._listed("rev-list", "--boundary", "--stdin", data=lines)
        own = {line for line in out if not line.startswith("-")}
        bases = {line[1:] for line in out if line.startswith("-")} | {tip for tip in tips if tip not in own} | set(before)
        if len(bases) > 1:  # a commit that another one contains is the parent of a commit in its history
            lines = self._listed("rev-list", "--parents", "--stdin", data=sorted(bases))
            bases -= {parent for line in lines for parent in line.split()[1:]}
        return sorted(bases)

    def keep(self, tips: Sequence[str], bases: Sequence[str], by: Stamp) -> None:
        """Pack the objects that tips reach and bases do not reach, unless a marked pack has them already."""
        collector = self._collector(tips, by)
        words = ("--revs", "--honor-pack-keep")
        self._install(self._packed(words, [collector, *tips, *(f"^{cid}" for cid in bases)]), collector)

    def join(self, tips: Sequence[str], by: Stamp, *, whole: int = 0) -> None:
        """Join the small packs if there are many. A pack with twice as many objects as all smaller ones together stays, so that
        an object is rewritten only a few times.

        ``whole``: join all packs if they have at most that number of objects.
        """
        small, few, objects = 0, FEW, 0
        stems = sorted(self._marked(), key=_objects)
        for number, size in enumerate(map(_objects, stems), 1):
            small = number if size < 2 * objects else small
            objects += size
        if objects <= whole:
            small, few = len(stems), 1
        if small > few:
            old = stems[:small]
            parents = {str(parent) for cid in self._collectors(old) for parent in self._parents(cid)}
            self._replace(old, [tip for tip in tips if tip in parents], by, frozenset())

    def drop(self, cids: Iterable[str], tips: Sequence[str], by: Stamp) -> None:
        """Remove unreachable objects from the packs that have them."""
        gone = frozenset(cids)
        if any(gone & self._contents(stem) for stem in self._marked()):
            self._replace(self._marked(), tips, by, gone)

    def release(self) -> None:
        """Remove the marks: from now on git cleans up these packs like others."""
        for stem in self._marked():
            os.unlink(f"{stem}.keep")

    def sweep(self) -> None:
        """Remove the drafts of killed processes."""
        for name in _names(self._drafts):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._drafts, name))
        for stem in self._marked():
            if not os.path.exists(f"{stem}.pack"):
                os.unlink(f"{stem}.keep")

    def _replace(self, old: Sequence[str], tips: Sequence[str], by: Stamp, gone: frozenset[str]) -> None:
        """Replace packs by one without some objects, whose collector has these tips."""
        collector = self._collector(tips, by)
        cids = frozenset[str]().union(*map(self._contents, old)) - gone - self._collectors(old)
        new = self._install(self._packed((), [*sorted(cids), collector]), collector)
        self._reached("packs-joined")
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._folder, "multi-pack-index"))  # it may name the old packs; git does the same
        for stem in old:
            for end in (".idx", ".rev", ".pack", ".keep") if stem != new else ():
                with suppress(FileNotFoundError):
                    os.unlink(stem + end)

    def _collectors(self, stems: Iterable[str]) -> set[str]:
        return {cid for stem in stems for cid in _COLLECTOR.findall(_text(f"{stem}.keep"))}

    def _parents(self, cid: str) -> Sequence[object]:
        return getattr(self._handle.repo.get(cid), "parent_ids", ())

    def _collector(self, tips: Sequence[str], by: Stamp) -> str:
        parents = "".join(f"parent {tip}\n" for tip in sorted(set(tips)))
        stamp = f"{by.name} <{by.email}> {by.at} +0000"
        text = f"tree {_EMPTY_TREE}\n{parents}author {stamp}\ncommitter {stamp}\n\nRefs of clia/archive.git\n"
        tree = self._handle.repo.write(2, b"")  # the empty tree
        collector = self._handle.repo.write(_COMMIT, text.encode("utf-8"))
        self._handle.share(tree, collector)
        return str(collector)

    def _packed(self, words: Sequence[str], lines: Sequence[str]) -> str:
        """Write a pack beside the repository; return its path without an ending."""
        self._handle.sharing.make_directory(self._drafts)
        draft = os.path.join(self._drafts, "pack")
        base = ("pack-objects", "-q", "--delta-base-offset", *words, draft)
        return f"{draft}-{self._listed(*base, data=lines)[-1]}"

    def _install(self, draft: str, collector: str) -> str:
        """Move a pack into the repository: its mark first, its index last."""
        stem = os.path.join(self._folder, os.path.basename(draft))
        with open(f"{stem}.keep", "w", encoding="ascii") as file:
            file.write(f"{_MARK}{collector}\n")
            file.flush()
            os.fsync(file.fileno())
        self._handle.sharing.apply(f"{stem}.keep")
        self._reached("pack-marked")
        for end in _PARTS:
            if os.path.exists(draft + end):
                self._handle.sharing.apply(draft + end)
                os.replace(draft + end, stem + end)
        if self._handle.durable:
            sync_directory(self._folder)
        return stem

    def _marked(self) -> list[str]:
        """Return the packs with our mark, without an ending."""
        stems = (os.path.join(self._folder, name.removesuffix(".keep")) for name in _names(self._folder) if name.endswith(".keep"))
        return [stem for stem in sorted(stems) if _COLLECTOR.match(_text(f"{stem}.keep"))]

    def _contents(self, stem: str) -> frozenset[str]:
        try:
            with open(f"{stem}.idx", "rb") as file:
                out = self._command.run("show-index", data=file.read())
        except FileNotFoundError:
            return frozenset()
        return frozenset(line.split()[1] for line in out.decode("ascii").splitlines())

    def _listed(self, *words: str, data: Sequence[str]) -> list[str]:
        out = self._command.run(*words, data="".join(f"{line}\n" for line in data).encode("ascii"))
        return out.decode("ascii").splitlines()


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _objects(stem: str) -> int:
    """The number of objects in a pack, by the size of its index."""
    try:
        return (os.path.getsize(f"{stem}.idx") - _INDEX_HEADER) // _INDEX_ENTRY
    except FileNotFoundError:
        return 0
