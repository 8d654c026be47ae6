"""Locks as files of a directory, held with ``flock``.

Invariant: the kernel releases a lock when its holder dies, also by SIGKILL. The files stay and mean nothing.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from clia.errors import FileError
from clia.store import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


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
            private_files.release_lock(handle)

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
            private_files.release_lock(handle)

    def _open(self, name: str) -> int:
        path = os.path.join(self._directory, name)
        try:
            return private_files.open_lock(path)
        except OSError as err:
            raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None
