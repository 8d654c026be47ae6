"""Reading and writing small files that other programs edit too.

Invariant: a file has its old content or its new content, never a mixture, whenever the process dies. The next writer
removes leftover temporary files. Failures are ``FileError`` with the path; a missing file is a value, not an error.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.errors import AlreadyExists, FileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE, DIRECTORY, LINK, OTHER, MISSING = "file", "directory", "link", "other", "missing"


class DirectoryEntry(NamedTuple):
    """A name in a directory and its kind; links are not followed."""

    name: str
    kind: str


_KINDS = {stat.S_IFREG: FILE, stat.S_IFDIR: DIRECTORY, stat.S_IFLNK: LINK}
TEMPORARY_PREFIX = ".clia-writing-"
_SPARE = 4096  # for a file that grows, or whose size the system does not report


class LocalFiles:
    """Reads files; never changes anything."""

    is_disk = True  # false: of a tree, which has no repository around it

    def real(self, path: str) -> str:
        """The path with every link resolved."""
        try:
            return os.path.realpath(path)
        except (OSError, ValueError) as err:
            raise _error(path, err) from None

    def kind(self, path: str) -> str:
        """The kind of the name itself: a link is ``LINK``."""
        try:
            mode = os.lstat(path).st_mode
        except (OSError, ValueError) as err:
            if _is_gone(err):
                return MISSING
            raise _error(path, err) from None
        return _KINDS.get(stat.S_IFMT(mode), OTHER)

    def entries(self, directory: str) -> list[DirectoryEntry] | None:
        """The names in a directory, in no particular order; None if it does not exist."""
        try:
            with os.scandir(directory) as entries:
                return [DirectoryEntry(entry.name, _entry_kind(entry)) for entry in entries]
        except (OSError, ValueError) as err:
            if _is_gone(err):
                return None
            raise _error(directory, err) from None

    def read(self, path: str, limit: int) -> bytes | None:
        """At most ``limit + 1`` bytes of a regular file, so that callers detect larger ones; None if it does not exist."""
        try:
            # Non-blocking: a named pipe must not hang the reader.
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as err:
            if _is_gone(err):
                return None
            raise _error(path, err) from None
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise FileError(f"{path} is not a regular file", fields={"path": path, "reason": "not a regular file"})
            data = b""
            block = status.st_size + _SPARE  # a buffer of ``limit`` bytes costs more than reading the file
            while chunk := os.read(handle, min(block, limit + 1 - len(data))):
                data += chunk
            return data
        except OSError as err:
            raise _error(path, err) from None
        finally:
            os.close(handle)

    def owner(self, path: str) -> int | None:
        """The user id of the owner; None if the name does not exist or the system has no owners."""
        if os.name != "posix":
            return None
        try:
            return os.lstat(path).st_uid
        except OSError:
            return None


class WritableLocalFiles(LocalFiles):
    """Reads and writes files; ``reached`` is called with each named step of a write (tests kill the process there)."""

    def __init__(self, reached: Callable[[str], object] = lambda _: None) -> None:
        self._reached = reached

    @contextmanager
    def exclusive(self, directory: str) -> Iterator[None]:
        """Hold a directory against other writers; the kernel releases it if the process dies."""
        import fcntl  # POSIX only, and only writers need it

        try:
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as err:
            raise _error(directory, err) from None
        try:
            # Lock the directory itself, to leave no lock file in the repository.
            fcntl.flock(handle, fcntl.LOCK_EX)
            with suppress(OSError):
                for name in os.listdir(directory):
                    if name.startswith(TEMPORARY_PREFIX):  # of a killed writer
                        with suppress(OSError):
                            os.unlink(os.path.join(directory, name))
            yield
        finally:
            os.close(handle)

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents."""
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            try:
                with suppress(FileExistsError):
                    os.mkdir(directory)
                _sync_directory(os.path.dirname(directory))
            except OSError as err:
                raise _error(directory, err) from None

    def replace(self, path: str, data: bytes) -> None:
        """Replace the content atomically; durable on return."""
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
        except FileNotFoundError:
            mode = None
        except OSError as err:
            raise _error(path, err) from None
        self._write(path, data, mode, os.replace)

    def create(self, path: str, data: bytes) -> None:
        """As ``replace``, but ``AlreadyExists`` if the file exists."""
        self._write(path, data, None, _link_new)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below it; links are removed, not followed."""
        import shutil  # 5 ms, rarely needed

        try:
            shutil.rmtree(path)
            _sync_directory(os.path.dirname(path))
        except OSError as err:
            raise _error(path, err) from None

    def _write(self, path: str, data: bytes, mode: int | None, publish: Callable[[str, str], None]) -> None:
        directory, name = os.path.split(path)
        temporary = os.path.join(directory, f"{TEMPORARY_PREFIX}{os.getpid()}-{name}")
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            self._reached("temporary-created")
            try:
                with open(handle, "wb") as out:
                    out.write(data)
                    self._reached("temporary-written")
                    out.flush()
                    if mode is not None:
                        os.fchmod(out.fileno(), mode)
                    os.fsync(out.fileno())
                self._reached("temporary-synced")
                publish(temporary, path)
                self._reached("published")
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            _sync_directory(directory)
            self._reached("directory-synced")
        except FileExistsError:
            raise AlreadyExists(f"{path} already exists", fields={"path": path}) from None
        except OSError as err:
            raise _error(path, err) from None


def _link_new(temporary: str, path: str) -> None:
    os.link(temporary, path)
    os.unlink(temporary)


def _sync_directory(directory: str) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _entry_kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return LINK
    if entry.is_file(follow_symlinks=False):
        return FILE
    return DIRECTORY if entry.is_dir(follow_symlinks=False) else OTHER


def _is_gone(err: Exception) -> bool:
    return isinstance(err, OSError) and err.errno in (errno.ENOENT, errno.ENOTDIR)


def _error(path: str, err: Exception) -> FileError:
    reason = (err.strerror if isinstance(err, OSError) else None) or str(err)
    return FileError(f"{path}: {reason}", fields={"path": path, "reason": reason})
