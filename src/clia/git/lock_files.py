"""Lock files as git uses them (``<file>.lock``), with a proof of who made them.

Invariant: clia breaks a lock only if it made it and the process that did is dead. The age of a lock proves nothing: its owner may
be stopped, and would later overwrite or remove what others wrote meanwhile. So each lock of clia's is a second name (hard link) of
a file in ``clia/ref-locks`` that was created before the lock. The name of that file has the process id, boot id and host of its
owner, who keeps it locked with ``flock``: the kernel releases that at death, also in another container. A lock of another boot is
broken only on the same host and on a local file system.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import time
from contextlib import contextmanager, suppress
from functools import cache
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.git.sharing import Sharing

FOLDER = "ref-locks"
_LOCAL_FILE_SYSTEMS = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay", "bcachefs"))
_UNKNOWN = "unknown"
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


class CannotProve(OSError):
    """The file system has no hard links, so a lock could not be recognised later."""


class LockOwner(NamedTuple):
    """Who made a lock of clia's, as the name of its file says."""

    pid: int
    boot: str
    host: str
    file: str  # the first name of the lock file


class HeldLock(NamedTuple):
    """A lock that this process holds. Its content replaces the locked file with ``publish``."""

    path: str
    handle: int

    def write(self, data: bytes, *, durable: bool) -> None:
        while data:
            data = data[os.write(self.handle, data) :]
        if durable:
            os.fsync(self.handle)

    def publish(self, path: str) -> None:
        os.rename(self.path, path)


class LockFiles:
    """The lock files of one repository."""

    def __init__(self, common_dir: str, sharing: Sharing, folder: str = FOLDER) -> None:
        self._folder = os.path.join(common_dir, "clia", folder)
        self._common_dir = common_dir
        self._sharing = sharing
        self._swept = False

    @contextmanager
    def hold(self, path: str, data: bytes = b"", *, durable: bool = False) -> Iterator[HeldLock]:
        """Hold a lock file with some content; ``FileExistsError`` if another process holds it, ``CannotProve`` without hard links.

        A lock that a dead process of clia left is removed.
        """
        if not self._swept:
            self._swept = True
            self._sweep()
        handle, file = self.create()
        lock, held = HeldLock(path, handle), False
        try:
            lock.write(data, durable=durable and bool(data))
            try:
                self._link(file, path)
            except OSError as err:
                raise CannotProve(err.errno, err.strerror) if err.errno in _NO_LINKS else _named(err, path) from None
            held = True
            yield lock
        finally:
            if held and _inode(path) == _inode(file) is not None:  # not published
                os.unlink(path)
            with suppress(OSError):
                os.unlink(file)
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may have it open too
            os.close(handle)

    def _link(self, file: str, path: str) -> None:
        try:
            os.link(file, path)
        except FileExistsError:
            if not self.break_if_dead(path):
                raise
            os.link(file, path)

    def create(self) -> tuple[int, str]:
        """Create and lock a file that names this process; for a lock it gets a second name."""
        name = f"{os.getpid()}@{_boot_id()}@{_host()}@{secrets.token_hex(6)}"
        file = os.path.join(self._folder, name)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            handle = os.open(file, flags, 0o666)
        except FileNotFoundError:
            self._make_folder()
            handle = os.open(file, flags, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process is looking whether it is abandoned
            fcntl.flock(handle, fcntl.LOCK_EX)
        self._sharing.apply(file)
        return handle, file

    def replace(self, path: str, data: bytes, *, durable: bool) -> None:
        """Replace a file whose lock is held, and keep the lock."""
        handle, file = self.create()
        try:
            HeldLock(file, handle).write(data, durable=durable)
            os.rename(file, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(file)
            raise
        finally:
            os.close(handle)

    def break_if_dead(self, path: str) -> bool:
        """Remove a lock that a dead process of clia left; return whether it is gone."""
        if self.owner(path) is None:
            return False
        # One process at a time: another one may break the lock and take it again. It may also be stopped: do not wait for it.
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            owner = self.owner(path)
            if owner is None or not self._is_dead(owner):
                return False
            os.unlink(path)
            os.unlink(owner.file)
        except OSError:
            return False
        finally:
            os.close(folder)
        return True

    def owner(self, path: str) -> LockOwner | None:
        """Return who made a lock, if clia made it."""
        inode = _inode(path)
        if inode is None:
            return None
        owners = (_parse(entry) for entry in _entries(self._folder) if _inode(entry) == inode)
        return next((owner for owner in owners if owner is not None), None)

    def describe(self, path: str) -> str:
        """Return who holds a lock, and since when, as far as this is known."""
        try:
            age = f"{max(0, round(time.time() - os.stat(path).st_mtime))} s old"
        except OSError:
            return "released meanwhile"
        owner = self.owner(path)
        if owner is not None:
            return f"{age}, of clia process {owner.pid} on {owner.host}"
        with suppress(OSError, ValueError, IndexError), open(os.path.join(self._common_dir, "gc.pid"), encoding="utf-8") as file:
            pid, host = file.read().split()[:2]
            return f"{age}; git gc is process {int(pid)} on {host}"
        return f"{age}, of another program"

    def _is_dead(self, owner: LockOwner) -> bool:
        if owner.boot != _boot_id() and not (owner.host == _host() and _is_local(self._folder)):
            return False
        # Without a boot id, compare the host only.
        return (owner.boot != _UNKNOWN or owner.host == _host()) and is_locked(owner.file) is False

    def _make_folder(self) -> None:
        # Private, like everything below ``clia``, unless the repository is shared.
        for path in (os.path.dirname(self._folder), self._folder):
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
                self._sharing.apply(path)

    def _sweep(self) -> None:
        """Remove files that dead processes left without a lock."""
        for file in self.left():
            with suppress(OSError):
                if os.stat(file).st_nlink == 1:
                    os.unlink(file)

    def left(self) -> list[str]:
        """Return the files of dead processes."""
        owners = map(_parse, _entries(self._folder))
        return [owner.file for owner in owners if owner is not None and self._is_dead(owner)]


def _named(err: OSError, path: str) -> OSError:
    return OSError(err.errno, f"cannot create lock file {path}: {err.strerror}")


def _parse(file: str) -> LockOwner | None:
    words = os.path.basename(file).split("@")
    return LockOwner(int(words[0]), words[1], words[2], file) if len(words) == 4 and words[0].isdigit() else None


def _entries(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_locked(file: str) -> bool | None:
    """Whether a process holds a lock on the file (``flock``); None if the file cannot be opened."""
    try:
        handle = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


@cache
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return _UNKNOWN


@cache
def _host() -> str:
    return socket.gethostname().replace("@", "-").replace("/", "-")[:64] or _UNKNOWN


def _is_local(path: str) -> bool:
    """Return whether only one machine at a time can use the file system of a path; False if it is unknown."""
    try:
        device = os.stat(path).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                mount, _, source = line.partition(" - ")
                if mount.split(" ")[2] == f"{os.major(device)}:{os.minor(device)}":
                    return source.split(" ")[0] in _LOCAL_FILE_SYSTEMS
    except (OSError, IndexError):
        return False
    return False
