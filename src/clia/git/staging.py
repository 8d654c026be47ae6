"""Staging the files of a directory that was changed by programs: only what the rules accept reaches the object database.

Invariant: git writes the contents into a quarantine first. What moves from there into the repository is what was checked, even
if a file changes meanwhile. A file that cannot be read or is refused is left out and named, and never fails the others. Of a file
that is left out the tree keeps the version that it had. The worktree and its index are only read.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.errors import GitError
from clia.git.records import EXECUTABLE, FILE, LINK, SUBMODULE, TreeEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import IO

    from clia.git.command import GitCommand, GitResult
    from clia.git.libgit2 import GitHandle
    from clia.git.objects import GitObjects

TOO_LARGE, SECRET, UNREADABLE, SPECIAL = "too-large", "secret", "unreadable", "special-file"
_FOLDER = "staging"
# A split index would leave shared files behind. Line ends that git cannot restore are the user's choice.
_SETTINGS = ("-c", "core.splitIndex=false", "-c", "core.safecrlf=false", "-c", "advice.addEmbeddedRepo=false")
_LOOSE_MAX = "2g"  # files up to this size become loose objects, which can be moved one by one; git maps them into memory
_PIECE = 64 * 1024
_FAILURES_MAX = 20
"""Files that git may fail to stage one by one before the directory as a whole counts as unreadable."""
_GONE = TreeEntry(0, "0" * 40)


class LeftOut(NamedTuple):
    """A file that was not staged."""

    path: str
    code: str
    reason: str


class StagedFiles(NamedTuple):
    tree: str
    left_out: tuple[LeftOut, ...]


class StagingRules(ABC):
    """Which files of a directory are staged."""

    @abstractmethod
    def wants(self, path: str, status: os.stat_result) -> bool:
        """Return whether to stage a file that the index does not have; of a nested repository, ``path`` is its directory."""

    @abstractmethod
    def size_max(self, path: str) -> int | None:
        """Return the largest size of a file in bytes; None: no limit."""

    @abstractmethod
    def secrets(self, path: str, pieces: Iterable[bytes]) -> Mapping[str, str]:
        """Return the secrets in a file's content: what each is, by its digest."""

    @abstractmethod
    def secret_in_path(self, path: str) -> str | None:
        """Return what the secret in a path is; None without one. The names of files are in trees."""


class DirectoryPlace(NamedTuple):
    """A directory to stage."""

    top: str
    variables: Mapping[str, str]  # for git, with a private index
    nested: Sequence[str]  # paths of other worktrees inside it
    provided: Sequence[str]  # paths that were put into it, and are not staged unless the tree has them


class DirectoryStaging:
    """Stages one directory once."""

    def __init__(
        self, handle: GitHandle, objects: GitObjects, command: GitCommand, place: DirectoryPlace, rules: StagingRules
    ) -> None:
        self._handle = handle
        self._objects = objects
        self._command = command
        self._place = place
        self._rules = rules
        self._quarantine = _Quarantine(handle)
        self._left_out: list[LeftOut] = []
        self._failures = 0

    def stage(self, tree: str, head: Callable[[], str | None]) -> StagedFiles:
        """Return the tree of the directory. ``tree``: what is recorded of it; ``head`` returns the commit at its HEAD."""
        if not os.path.exists(self._place.variables["GIT_INDEX_FILE"]):
            self._git("read-tree", tree)
        with self._quarantine.open():
            changed, removed = self._changed()
            self._set(dict.fromkeys(removed, _GONE))
            self._add(list(self._fitting(dict.fromkeys((*changed, *self._untracked(tree))))))
            entries = self._entries(tree)
            if entries:
                refused = self._refused(tree, entries, head)
                self._set({path: self._objects.entry(tree, path) or _GONE for path in refused})
                self._quarantine.admit(entry.cid for path, entry in entries.items() if path not in refused)
        new = self._git("write-tree", variables={}).decode("ascii").strip()
        return StagedFiles(new, tuple(sorted(self._left_out)))

    # Which files

    def _changed(self) -> tuple[list[str], list[str]]:
        """Return the paths in the index whose files differ from it, or may, and those whose files are gone."""
        out = self._git("diff-files", "-z", "--raw", "--no-renames", "--ignore-submodules=dirty").split(b"\0")
        states = [(state.endswith(b"D"), os.fsdecode(path)) for state, path in zip(out[::2], out[1::2], strict=False)]
        inside = [(is_gone, path) for is_gone, path in states if not self._is_outside(path)]
        return [path for is_gone, path in inside if not is_gone], [path for is_gone, path in inside if is_gone]

    def _untracked(self, tree: str) -> Iterator[str]:
        """Yield the paths that the index does not have, git does not ignore, and the rules want."""
        out = self._git("ls-files", "-z", "--others", "--exclude-standard")
        for path in (os.fsdecode(name).rstrip("/") for name in out.split(b"\0")[:-1]):
            if not self._is_outside(path) and not (self._is_provided(path) and self._objects.entry(tree, path) is None):
                with suppress(OSError):  # it is gone
                    if self._rules.wants(path, os.lstat(self._full(path))):
                        yield path

    def _is_outside(self, path: str) -> bool:
        return _is_below(path, self._place.nested)

    def _is_provided(self, path: str) -> bool:
        return _is_below(path, self._place.provided)

    def _full(self, path: str) -> str:
        return os.path.join(self._place.top, path)

    def _fitting(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the paths that git can store, or that are gone."""
        large: dict[str, int] = {}
        for path in paths:
            try:
                status = os.lstat(self._full(path))
            except OSError:
                yield path
                continue
            kind, limit = stat.S_IFMT(status.st_mode), self._rules.size_max(path)
            if kind not in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
                self._leave_out(path, SPECIAL, "neither a file nor a directory")
            elif kind == stat.S_IFREG and not os.access(self._full(path), os.R_OK, effective_ids=True):
                self._leave_out(path, UNREADABLE, "the file cannot be read")
            elif kind == stat.S_IFREG and limit is not None and status.st_size > limit:
                large[path] = status.st_size
            else:
                yield path
        filtered = self._filtered(list(large)) if large else set()
        for path, size in large.items():
            if path in filtered:
                yield path  # what git stores may be small, as with git-lfs
            else:
                self._leave_out_large(path, size)

    def _filtered(self, paths: Sequence[str]) -> set[str]:
        """Return those of the paths whose content goes through a filter program."""
        out = self._git("check-attr", "-z", "--stdin", "filter", data=_joined(paths)).split(b"\0")
        values = zip(map(os.fsdecode, out[::3]), out[2::3], strict=False)
        return {path for path, value in values if value not in (b"unspecified", b"unset", b"set")}

    def _leave_out(self, path: str, code: str, reason: str) -> None:
        self._left_out.append(LeftOut(path, code, reason))

    def _leave_out_large(self, path: str, size: int) -> None:
        limit = self._rules.size_max(path) or 0
        self._leave_out(path, TOO_LARGE, f"{_megabytes(size)} MB, more than the limit of {_megabytes(limit)} MB")

    # Their contents

    def _add(self, paths: Sequence[str]) -> None:
        """Stage the paths into the quarantine. If git refuses one of them, the others are staged."""
        if not paths:
            return
        words = ("-c", f"core.bigFileThreshold={_LOOSE_MAX}", "update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        result = self._attempt(*words, data=_joined(paths))
        if not result.code:
            return
        if len(paths) > 1:
            middle = len(paths) // 2
            self._add(paths[:middle])
            self._add(paths[middle:])
            return
        self._failures += 1
        if self._failures > _FAILURES_MAX:
            raise result.failure(*_SETTINGS, *words)
        reason = next((line.removeprefix("error: ") for line in result.err.splitlines() if line.startswith("error: ")), result.err)
        self._leave_out(paths[0], UNREADABLE, f"git cannot read it: {reason}")

    def _entries(self, tree: str) -> dict[str, TreeEntry]:
        """Return the entries of the index that the tree does not have."""
        out = self._git("diff-index", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", tree).split(b"\0")
        changes = ((fields.split(b" "), os.fsdecode(path)) for fields, path in zip(out[::2], out[1::2], strict=False))
        entries = {path: TreeEntry(int(fields[1], 8), fields[3].decode("ascii")) for fields, path in changes}
        return {path: entry for path, entry in entries.items() if entry.mode}

    def _refused(self, tree: str, entries: Mapping[str, TreeEntry], head: Callable[[], str | None]) -> set[str]:
        """Return the paths whose contents the rules refuse. What the commit at HEAD has is in the repository anyway."""
        commit = head()
        committed = None if commit is None else self._objects.commit(commit).tree
        refused = {path for path in entries if self._is_provided(path) and self._objects.entry(tree, path) is None}
        refused |= {path for path in entries if path not in refused and self._has_secret_name(path, tree, committed)}
        with self._contents() as contents:
            for path, entry in entries.items():
                is_new = committed is None or self._objects.entry(committed, path) != entry
                is_checked = is_new and entry.mode in (FILE, EXECUTABLE, LINK) and path not in refused
                if is_checked and not self._accepts(path, entry, self._objects.entry(tree, path), contents):
                    refused.add(path)
        return refused

    def _has_secret_name(self, path: str, tree: str, committed: str | None) -> bool:
        """Whether the name of a file that git does not have yet contains a secret."""
        if any(at is not None and self._objects.entry(at, path) is not None for at in (tree, committed)):
            return False
        secret = self._rules.secret_in_path(path)
        if secret is not None:
            self._leave_out(path, SECRET, f"its name seems to contain a secret: {secret}")
        return secret is not None

    def _accepts(self, path: str, entry: TreeEntry, recorded: TreeEntry | None, contents: _Contents) -> bool:
        limit, size = self._rules.size_max(path), contents.request(entry.cid)
        if limit is not None and size > limit:  # it has grown, or a filter made it larger
            self._leave_out_large(path, size)
            return False
        secrets = dict(self._rules.secrets(path, contents.pieces()))
        if secrets and recorded is not None and recorded.mode != SUBMODULE:
            contents.request(recorded.cid)
            for digest in self._rules.secrets(path, contents.pieces()):
                secrets.pop(digest, None)
        for secret in list(secrets.values())[:1]:
            more = f" and {len(secrets) - 1} more" if len(secrets) > 1 else ""
            self._leave_out(path, SECRET, f"it seems to contain a secret: {secret}{more}")
        return not secrets

    @contextmanager
    def _contents(self) -> Iterator[_Contents]:
        words, environment = self._command.whole("cat-file", "--batch")
        environment = {**environment, **self._quarantine.variables}
        pipe = subprocess.PIPE
        with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
            assert process.stdin is not None  # noqa: S101  # for mypy: both are pipes
            assert process.stdout is not None  # noqa: S101
            yield _Contents(process.stdin, process.stdout)

    def _set(self, entries: Mapping[str, TreeEntry]) -> None:
        """Set or remove entries of the index."""
        lines = (b"%o %s\t%s\0" % (entry.mode, entry.cid.encode("ascii"), os.fsencode(path)) for path, entry in entries.items())
        if entries:
            self._git("update-index", "--add", "--replace", "-z", "--index-info", data=b"".join(lines))

    def _git(self, *words: str, data: bytes = b"", variables: Mapping[str, str] | None = None) -> bytes:
        result = self._attempt(*words, data=data, variables=variables)
        if result.code:
            raise result.failure(*_SETTINGS, *words)
        return result.out

    def _attempt(self, *words: str, data: bytes = b"", variables: Mapping[str, str] | None = None) -> GitResult:
        quarantine = self._quarantine.variables if variables is None else variables
        environment = {**self._place.variables, **quarantine}
        return self._command.attempt(*_SETTINGS, *words, data=data, cwd=self._place.top, variables=environment)


class _Contents:
    """Reads objects one after the other, in pieces."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests = requests
        self._answers = answers
        self._left = -1  # bytes of the current object

    def request(self, cid: str) -> int:
        """Go to an object and return its size."""
        for _ in self.pieces():
            pass
        self._requests.write(cid.encode("ascii") + b"\n")
        self._requests.flush()
        header = self._answers.readline().split()
        if len(header) != 3:
            raise GitError(f"cannot read object {cid}", code="corrupt-object", fields={"cid": cid})
        self._left = int(header[2])
        return self._left

    def pieces(self) -> Iterator[bytes]:
        """Yield the rest of the current object."""
        while self._left > 0:
            piece = self._answers.read(min(_PIECE, self._left))
            if not piece:
                raise GitError("git stopped while it read an object")
            self._left -= len(piece)
            yield piece
        if self._left == 0:
            self._answers.read(1)  # the line end after the object
            self._left = -1


class _Quarantine:
    """An object directory of its own, which borrows the repository's. A killed process leaves it to the next one to remove."""

    def __init__(self, handle: GitHandle) -> None:
        self._handle = handle
        self._folder = os.path.join(handle.common_dir, "clia", _FOLDER)
        self._objects = os.path.join(handle.common_dir, "objects")
        self._path = ""

    @property
    def variables(self) -> dict[str, str]:
        return {"GIT_OBJECT_DIRECTORY": self._path} if self._path else {}

    @contextmanager
    def open(self) -> Iterator[None]:
        with self._created() as path:
            os.mkdir(os.path.join(path, "info"))
            quoted = self._objects.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            with open(os.path.join(path, "info", "alternates"), "wb") as file:
                file.write(os.fsencode(f'"{quoted}"\n'))
            self._path = path
            try:
                yield
            finally:
                self._path = ""

    @contextmanager
    def _created(self) -> Iterator[str]:
        """Create the directory, locked while this process lives, and remove those of dead processes."""
        self._handle.sharing.make_directory(self._folder)
        with _locked(self._folder):
            for name in os.listdir(self._folder):
                with suppress(OSError), _locked(os.path.join(self._folder, name), fcntl.LOCK_NB):
                    shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)
            path = tempfile.mkdtemp(dir=self._folder)
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)

    def admit(self, cids: Iterable[str]) -> None:
        """Move objects into the repository. Those that it has already are not in the quarantine."""
        for cid in dict.fromkeys(cids):
            source = os.path.join(self._path, cid[:2], cid[2:])
            if os.path.exists(source):
                target = os.path.join(self._objects, cid[:2], cid[2:])
                self._handle.sharing.make_directory(os.path.dirname(target))
                _move(source, target)


def _move(source: str, target: str) -> None:
    try:
        os.rename(source, target)
    except FileNotFoundError:  # git gc has removed the empty folder
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)


@contextmanager
def _locked(directory: str, flags: int = 0) -> Iterator[None]:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | flags)
        yield
    finally:
        os.close(handle)


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _joined(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f}".removesuffix(".0")
