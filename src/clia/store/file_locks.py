"""Locks as files of a directory, held with ``flock``.

Invariant: the kernel frees a lock at its holder's death, kill -9 included; the files themselves stay and mean nothing.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from clia.errors import FileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class FileLocks:
    """``Locks`` of all processes of one machine."""

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
            _release(handle)

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
            _release(handle)

    def _open(self, name: str) -> int:
        path = os.path.join(self._directory, name)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            try:
                return os.open(path, flags, 0o666)
            except FileNotFoundError:
                os.makedirs(self._directory, exist_ok=True)
                return os.open(path, flags, 0o666)
        except OSError as err:
            raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None


def _release(handle: int) -> None:
    """Lets go even where a child of a fork still has the file open."""
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)
