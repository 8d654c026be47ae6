"""Private files: what clia keeps beside a repository is for its owner only.

Files are created with mode 0600 and directories with 0700, whatever the umask. What an earlier version created with more
permissions is tightened when its owner opens the space. Permissions are never added.

Locks are held on such files with ``flock``: the kernel releases a lock when its holder dies, also by SIGKILL. The files stay and
mean nothing.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress

from clia.errors import FileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
_OTHERS = 0o077
_WORKTREES = "work"  # modes of checked-out files belong to git; their directory is private


def make_directory(path: str) -> None:
    """Create a private directory, and its missing parents; one that exists stays as it is."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        with suppress(FileExistsError):  # created by another process
            os.mkdir(directory, DIRECTORY_MODE)


def open_file(path: str, flags: int) -> int:
    """Open a file, created private; usable as the ``opener`` of ``open``."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def open_lock(path: str) -> int:
    """Open a lock file, created if missing, together with its directory."""
    try:
        return open_file(path, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        make_directory(os.path.dirname(path))
        return open_file(path, os.O_RDWR | os.O_CREAT)


def release_lock(handle: int) -> None:
    """Release the lock on a file and close it. Closing is not enough: a forked child may have it open too."""
    import fcntl  # POSIX only, and only writers need it

    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def make_file(path: str) -> None:
    """Create an empty private file without opening it; one that exists is tightened.

    Closing a handle on an SQLite file would drop the locks that this process holds on it.
    """
    try:
        os.mknod(path, FILE_MODE | stat.S_IFREG)
    except FileExistsError:
        tighten(path)


def tighten(path: str) -> None:
    """Remove the permissions of others from a file or directory of ours; no effect on anything else."""
    with suppress(OSError):
        status = os.lstat(path)
        if status.st_uid == os.geteuid() and status.st_mode & _OTHERS and not stat.S_ISLNK(status.st_mode):
            os.chmod(path, stat.S_IMODE(status.st_mode) & ~_OTHERS)


def tighten_tree(directory: str) -> None:
    """Tighten a directory and everything in it, if others can access the directory. Otherwise it costs one ``stat``."""
    with suppress(OSError):
        if not os.lstat(directory).st_mode & _OTHERS:
            return
    tighten(directory)
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            tighten(os.path.join(parent, name))
        if parent == directory and _WORKTREES in directories:
            directories.remove(_WORKTREES)


class FileLocks:
    """``Locks`` for all processes of one machine."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    @contextmanager
    def hold(self, name: str, *, shared: bool = False) -> Iterator[None]:
        import fcntl  # POSIX only, and only writers need it

        handle = self._open(name)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            release_lock(handle)

    @contextmanager
    def attempt(self, name: str) -> Iterator[bool]:
        import fcntl

        handle = self._open(name)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free = True
            except BlockingIOError:
                free = False
            yield free
        finally:
            release_lock(handle)

    def _open(self, name: str) -> int:
        path = os.path.join(self._directory, name)
        try:
            return open_lock(path)
        except OSError as err:
            raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None
