"""Changes of HEAD, index and files of an agent's worktree. After a kill at any moment, the next call completes them.

A git process that is killed leaves ``index.lock`` and ``HEAD.lock``, and nothing tells them from those of a process that lives. So
git works on a copy of HEAD and index, and clia replaces both under locks that can be proved to be its own (``lock_files``). The
files come first, then the index, then HEAD: a killed change is repeated from the same state. Files that it has written already,
whole or in part, are removed before, because git would take them for work of the user. They have nothing that the commit lacks.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from clia.errors import GitError
from clia.git import worktree_links
from clia.git.libgit2 import writing
from clia.git.lock_files import CannotProve, HeldLock, LockFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clia.git.command import GitCommand, GitResult
    from clia.git.libgit2 import GitHandle

CHECKOUT = (
    "-c",
    "core.splitIndex=false",
    "-c",
    "advice.detachedHead=false",
    "checkout",
    "--quiet",
    "--detach",
    "--no-overwrite-ignore",
)
_INDEX, _HEAD, _LOG, _LOCKED = "index", "HEAD", "logs/HEAD", "locked"
# Files of the worktree's git directory that git reads besides the index.
_COPIED = (_INDEX, _HEAD, "config.worktree", "info/sparse-checkout")
_PATIENCE, _PAUSE = 20, 0.05  # git status, for example, holds the lock of the index for an instant


class _AdminCopy(NamedTuple):
    """A private copy of a worktree's git directory, and the locks of the original's index and HEAD."""

    place: str
    admin: str
    folder: str
    index_lock: HeldLock
    head_lock: HeldLock

    @property
    def variables(self) -> dict[str, str]:
        return {"GIT_DIR": self.folder, "GIT_WORK_TREE": self.place}

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def has_index(self) -> bool:
        return os.path.exists(self.path(_INDEX))

    def publish(self, commit: str, why: str, *, durable: bool) -> None:
        """Replace index and HEAD of the worktree by those of the copy, where HEAD is at the commit."""
        with open(self.path(_INDEX), "rb") as file:
            self.index_lock.write(file.read(), durable=durable)
        status = os.stat(self.path(_INDEX))
        os.utime(self.index_lock.handle, ns=(status.st_atime_ns, status.st_mtime_ns))  # git reads files again that are not older
        self.index_lock.publish(os.path.join(self.admin, _INDEX))
        self._log(why)
        self.head_lock.write(commit.encode("ascii") + b"\n", durable=durable)
        self.head_lock.publish(os.path.join(self.admin, _HEAD))

    def _log(self, why: str) -> None:
        with open(self.path(_LOG), "rb") as file:
            line = file.read().rstrip(b"\n").rpartition(b"\n")[2].partition(b"\t")[0]
        with suppress(FileNotFoundError):  # a worktree without a reflog gets none
            handle = os.open(os.path.join(self.admin, _LOG), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            with open(handle, "ab") as log:
                log.write(b"%s\t%s\n" % (line, why.encode()) if line else b"")


class WorktreeUpdates:
    """Changes of the worktrees of one repository."""

    def __init__(self, handle: GitHandle, command: GitCommand) -> None:
        self._handle = handle
        self._command = command
        self._locks = LockFiles(handle.common_dir, handle.sharing)

    def check_out(self, place: str, admin: str, commit: str, *, resumes: bool) -> GitResult:
        """Bring a worktree to a commit, as ``git checkout --detach``. ``resumes``: an earlier call was killed."""
        with writing("a checkout"), self._copied(place, admin) as copy:
            if resumes:
                self._remove_written(copy, commit)
            result = self._command.attempt(*CHECKOUT, commit, "--", cwd=place, variables=copy.variables)
            if not result.code:
                copy.publish(commit, "clia: checked out", durable=self._handle.durable)
            return result

    def point_head_at(self, place: str, admin: str, old: str | None, new: str) -> None:
        """Detach HEAD at a commit and set the index to it. No file is changed."""
        with writing("a checkout"), self._copied(place, admin) as copy:
            why = f"clia: committed over {old}"
            self._command.run("update-ref", "--no-deref", "-m", why, _HEAD, new, cwd=place, variables=copy.variables)
            self._command.run("-c", "core.splitIndex=false", "reset", "--quiet", "--", ".", cwd=place, variables=copy.variables)
            self._command.attempt("update-index", "-q", "--refresh", cwd=place, variables=copy.variables)
            copy.publish(new, why, durable=self._handle.durable)

    @contextmanager
    def _copied(self, place: str, admin: str) -> Iterator[_AdminCopy]:
        with ExitStack() as stack:
            index, head = (stack.enter_context(self._locked(os.path.join(admin, f"{name}.lock"))) for name in (_INDEX, _HEAD))
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="clia-"))
            for name in ("info", "logs"):
                os.mkdir(os.path.join(folder, name))
            for name in _COPIED:
                with suppress(FileNotFoundError):
                    shutil.copy2(os.path.join(admin, name), os.path.join(folder, name))
            with open(os.path.join(folder, "commondir"), "wb") as file:
                file.write(os.fsencode(self._handle.common_dir) + b"\n")
            with open(os.path.join(folder, _LOG), "wb"):
                yield _AdminCopy(place, admin, folder, index, head)

    @contextmanager
    def _locked(self, path: str) -> Iterator[HeldLock]:
        """Hold a lock of git's. Those of dead processes of clia are broken, others waited for."""
        for number in range(_PATIENCE):
            with ExitStack() as stack:
                try:
                    lock = stack.enter_context(self._locks.hold(path))
                except CannotProve:
                    lock = stack.enter_context(_plain_lock(path))
                except FileExistsError:
                    if not self._locks.break_if_dead(path) and number + 1 < _PATIENCE:
                        time.sleep(_PAUSE)
                    continue
                yield lock
                return
        message = f"{path} exists ({self._locks.describe(path)}): a git process is running there, or died"
        raise GitError(message, hints=["wait until it ends; if no git process is running there, delete the file"])

    # After a kill

    def clear_unfinished(self, place: str) -> None:
        """Remove what a ``git worktree add`` left that was killed before the worktree had files."""
        for admin in worktree_links.admin_dirs(self._handle.common_dir):
            link = worktree_links.link_back(admin)
            is_its = os.path.realpath(os.path.dirname(link)) == os.path.realpath(place) if link else _is_named(admin, place)
            if is_its and _is_initializing(admin) and (not os.path.isdir(place) or set(os.listdir(place)) <= {".git"}):
                shutil.rmtree(admin, ignore_errors=True)
                with suppress(OSError):
                    os.unlink(os.path.join(place, ".git"))

    def finish(self, admin: str) -> None:
        """Complete a ``git worktree add`` that was killed when the worktree had its HEAD."""
        if _is_initializing(admin):
            os.unlink(os.path.join(admin, _LOCKED))

    def _remove_written(self, copy: _AdminCopy, commit: str) -> None:
        """Remove the files that a killed checkout of the commit has written, or begun to write."""
        differing = self._differing(copy, commit)
        if copy.has_index():
            wanted = self._names(copy, "diff-index", "--cached", "-z", "--name-only", "--no-renames", commit)
            wanted -= self._names(copy, "diff-index", "--cached", "-z", "--name-only", "--no-renames", _HEAD)
            begun = differing - (self._names(copy, "ls-files", "-z") - self._differing(copy, None))
        else:
            wanted = self._names(copy, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
            begun = differing
        for path in wanted:
            full = os.path.join(copy.place, path)
            with suppress(FileNotFoundError, NotADirectoryError):
                mode = os.lstat(full).st_mode
                is_written = path not in differing and not stat.S_ISDIR(mode)
                if is_written or (path in begun and stat.S_ISREG(mode) and self._is_begun(copy, commit, path)):
                    os.unlink(full)

    def _differing(self, copy: _AdminCopy, commit: str | None) -> set[str]:
        """The files that differ from a commit; None: from the index."""
        scratch = {"GIT_INDEX_FILE": copy.path("scratch")}
        with suppress(FileNotFoundError):
            os.unlink(scratch["GIT_INDEX_FILE"])
        if commit is None:
            shutil.copy2(copy.path(_INDEX), scratch["GIT_INDEX_FILE"])
        else:
            self._command.run("read-tree", commit, cwd=copy.place, variables=copy.variables | scratch)
        self._command.attempt("update-index", "-q", "--refresh", cwd=copy.place, variables=copy.variables | scratch)
        return self._names(copy, "diff-files", "-z", "--name-only", "--no-renames", variables=scratch)

    def _names(self, copy: _AdminCopy, *words: str, variables: Mapping[str, str] | None = None) -> set[str]:
        out = self._command.run(*words, cwd=copy.place, variables=copy.variables | dict(variables or {}))
        return {os.fsdecode(name) for name in out.split(b"\0")[:-1]}

    def _is_begun(self, copy: _AdminCopy, commit: str, path: str) -> bool:
        """Whether a file is the beginning of the commit's version."""
        version = self._command.run("cat-file", "--filters", f"{commit}:{path}", cwd=copy.place, variables=copy.variables)
        with open(os.path.join(copy.place, path), "rb") as file:
            return version.startswith(file.read(len(version) + 1))


@contextmanager
def _plain_lock(path: str) -> Iterator[HeldLock]:
    """A lock on a file system without hard links; a killed process leaves it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    inode = os.fstat(handle).st_ino
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield HeldLock(path, handle)
    finally:
        with suppress(FileNotFoundError):
            if os.lstat(path).st_ino == inode:  # not published
                os.unlink(path)
        os.close(handle)


def _is_initializing(admin: str) -> bool:
    """Return whether ``git worktree add`` has not finished a worktree."""
    with suppress(OSError), open(os.path.join(admin, _LOCKED), "rb") as file:
        return file.read(32).strip() == b"initializing"
    return False


def _is_named(admin: str, place: str) -> bool:
    return os.path.basename(admin) == os.path.basename(place)
