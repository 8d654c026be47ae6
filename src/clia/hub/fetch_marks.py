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
        """Remove the locks below a folder of refs that killed fetches left."""
        marks = [(file, since) for file in self._files.left() if (since := _changed(file)) is not None]
        if not marks:
            return
        start, end = min(since for _, since in marks), time.time() - _GRACE_SECONDS
        remaining = False
        for directory, _, files in os.walk(os.path.join(self._common_dir, *below.split("/"))):
            for path in (os.path.join(directory, name) for name in files if name.endswith(".lock")):
                changed = _changed(path)
                if changed is None or changed < start or not os.path.getsize(path):
                    continue
                remaining = remaining or changed > end
                if changed <= end:
                    with suppress(OSError):
                        os.unlink(path)
        for file, _ in [] if remaining else marks:
            with suppress(OSError):
                os.unlink(file)


def _changed(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None
