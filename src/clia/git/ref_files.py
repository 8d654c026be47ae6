"""Write and remove refs in git's files, by its rules: under ``<ref>.lock``, with a reflog, and packed refs under their own lock.

libgit2 does the same, but its lock files cannot be told from those of other programs (``lock_files``).
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from time import time

from clia.git.lock_files import LockFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from clia.git.libgit2 import GitHandle
    from clia.git.lock_files import HeldLock

_LOGGED = ("refs/heads/", "refs/remotes/", "refs/notes/")
_NOTHING = "0" * 40
PACKED = "packed-refs"


class RefFiles:
    """The files of the refs of one repository."""

    def __init__(self, handle: GitHandle) -> None:
        self._handle = handle
        self._common_dir = handle.common_dir
        self.locks = LockFiles(handle.common_dir, handle.sharing)

    def path(self, name: str) -> str:
        return os.path.join(self._common_dir, *name.split("/"))

    def lock_path(self, name: str) -> str:
        return f"{self.path(name)}.lock"

    def hold(self, name: str, value: str | None) -> AbstractContextManager[HeldLock]:
        """Hold a ref's lock; its file already has the value that the ref is about to get."""
        path = self.lock_path(name)
        self._handle.sharing.make_directory(os.path.dirname(path))
        return self.locks.hold(path, f"{value}\n".encode("ascii") if value else b"", durable=self._handle.durable)

    def is_plain(self, name: str) -> bool:
        """Return whether a ref is no symbolic one."""
        try:
            with open(self.path(name), "rb") as file:
                return not file.read(4).startswith(b"ref:")
        except OSError:
            return True

    def publish(self, lock: HeldLock, name: str, old: str | None, new: str, why: str) -> None:
        """Give a ref the value in its lock file, then log the move: the last line of a reflog never claims too much.

        A log that cannot be written is not an error, because the ref has moved.
        """
        path = self.path(name)
        _over_empty_directories(path, lambda: lock.publish(path))
        self._sync(os.path.dirname(path))
        line = self._log_line(old, new, why)
        with suppress(OSError):
            self._log(name, line)
            if name.startswith("refs/heads/") and self._is_head(name):
                self._log("HEAD", line)

    def remove(self, name: str) -> None:
        """Remove a ref and its reflog; the caller holds its lock.

        The packed value goes first, because the loose one overrides it. Until the loose one is gone, too, the packed refs stay
        locked: ``git pack-refs`` would pack it and bring the ref back.
        """
        packed = os.path.join(self._common_dir, PACKED)
        with self.locks.hold(f"{packed}.lock"):
            self._unlink(os.path.join(self._common_dir, "logs", *name.split("/")))  # as git: no log without its ref
            remaining = _without(_content(packed), name)
            if remaining is not None:
                self.locks.replace(packed, remaining, durable=self._handle.durable)
                self._sync(self._common_dir)
            self._unlink(self.path(name))

    def _unlink(self, path: str) -> None:
        with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
            os.unlink(path)
            self._sync(os.path.dirname(path))

    def _log(self, name: str, line: bytes) -> None:
        path = os.path.join(self._common_dir, "logs", *name.split("/"))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        creates = self._creates_log(name)
        if not creates and not os.path.isfile(path):
            return
        if creates:
            self._handle.sharing.make_directory(os.path.dirname(path))
        is_new = creates and not os.path.exists(path)

        def append() -> None:
            handle = os.open(path, flags | (os.O_CREAT if creates else 0), 0o666)
            try:
                if 0 < (written := os.write(handle, line)) < len(line):  # the disk is full: leave no half of a line
                    os.ftruncate(handle, os.fstat(handle).st_size - written)
            finally:
                os.close(handle)

        _over_empty_directories(path, append)
        if is_new:
            self._handle.sharing.apply(path)

    def _creates_log(self, name: str) -> bool:
        """Return whether a ref without a reflog gets one (``core.logAllRefUpdates``)."""
        config, key = self._handle.repo.config, "core.logallrefupdates"
        configured = config[key] if key in config else None  # noqa: SIM401  # it has no get
        value = str(not self._handle.repo.is_bare if configured is None else configured).lower()
        return value == "always" or (value in ("true", "yes", "on", "1", "") and (name == "HEAD" or name.startswith(_LOGGED)))

    def _log_line(self, old: str | None, new: str, why: str) -> bytes:
        try:
            by = self._handle.repo.default_signature
            who, when, offset = f"{by.name} <{by.email}>", by.time, by.offset
        except (KeyError, ValueError):
            who, when, offset = "unknown <unknown>", int(time()), 0
        zone = f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}{abs(offset) % 60:02}"
        text = f"{old or _NOTHING} {new} {who} {when} {zone}\t{' '.join(why.split())}\n"
        return text.encode("utf-8", "surrogateescape")

    def _is_head(self, name: str) -> bool:
        with suppress(OSError), open(os.path.join(self._common_dir, "HEAD"), "rb") as file:
            return file.readline().strip() == f"ref: {name}".encode("utf-8", "surrogateescape")
        return False

    def _sync(self, directory: str) -> None:
        if not self._handle.durable:
            return
        with suppress(FileNotFoundError):  # git removes empty directories
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _without(packed: bytes, name: str) -> bytes | None:
    """Return packed refs without one of them; None if it is not there."""
    end = f" {name}\n".encode("utf-8", "surrogateescape")
    if end not in packed:
        return None
    lines_kept: list[bytes] = []
    removed = False
    for line in packed.splitlines(keepends=True):
        removed = line.endswith(end) if not line.startswith(b"^") else removed
        if not removed:
            lines_kept.append(line)
    return b"".join(lines_kept)


def _over_empty_directories(path: str, write: Callable[[], None]) -> None:
    """Write a file in place of a directory, if that holds nothing but directories: git leaves them."""
    try:
        write()
    except OSError as err:
        if err.errno not in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST) or not os.path.isdir(path):
            raise
        for directory, _, _ in os.walk(path, topdown=False):
            os.rmdir(directory)
        write()
