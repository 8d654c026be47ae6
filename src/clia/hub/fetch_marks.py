"""Marks of running fetches, to tell which locks of tracking refs a killed fetch left.

``git fetch`` locks the tracking refs itself, and leaves the locks if it is killed. A mark is created before the fetch and removed
after it; one that is left by a dead process proves that a fetch of clia was killed. Its locks are younger than the mark and have
content; those of ``git pack-refs`` and ``git gc`` are empty. Tracking refs only repeat what the hub has: the next fetch corrects
them, whatever happens to them.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from math import inf

from clia.git.lock_files import LockFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.git.libgit2 import GitHandle

_FOLDER = "fetches"
_GRACE_SECONDS = 1.0
"""A killed fetch ends this long after the process that started it."""


class FetchMarks:
    def __init__(self, handle: GitHandle) -> None:
        self._common_dir = handle.common_dir
        self._files = LockFiles(handle.common_dir, handle.sharing, _FOLDER)
        self._ref_locks = LockFiles(handle.common_dir, handle.sharing)
        self._kept = False

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Mark that a fetch is running."""
        handle, file = self._files.create()
        self._kept = False
        try:
            yield
        finally:
            os.close(handle)
            if not self._kept:
                with suppress(OSError):
                    os.unlink(file)

    def keep(self) -> None:
        """Keep the mark of the running fetch, because it was killed."""
        self._kept = True

    def break_locks(self, below: str) -> None:
        """Remove the locks below a folder of refs that killed fetches or dead processes of clia left."""
        marks = {file: status.st_mtime for file in self._files.left() if (status := _status(file)) is not None}
        start, end = min(marks.values(), default=inf), time.time() - _GRACE_SECONDS
        remaining = False
        for path in self._locks(below):
            if self._ref_locks.owner(path) is not None:  # clia itself moves tracking refs, too
                self._ref_locks.break_if_dead(path)
                continue
            status = _status(path)
            if status is None or status.st_mtime < start or not status.st_size:
                continue
            if status.st_mtime > end:
                remaining = True
                continue
            with suppress(OSError):
                os.unlink(path)
        for file in [] if remaining else marks:
            with suppress(OSError):
                os.unlink(file)

    def _locks(self, below: str) -> Iterator[str]:
        for directory, _, files in os.walk(os.path.join(self._common_dir, *below.split("/"))):
            yield from (os.path.join(directory, name) for name in files if name.endswith(".lock"))


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
