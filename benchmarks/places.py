"""Where the spaces of a benchmark are.

Work without fsync is in memory if there is room: on disk most of the time would be the creation of files, which differs by a factor
of thirty between machines. Work with fsync, and work that other programs write, is on disk.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = Path("/dev/shm")  # noqa: S108  # directories in it get unpredictable names
ROOM = 2 * 2**30
FILES = 200


@contextmanager
def place(*, disk: bool = False) -> Iterator[Path]:
    """A separate directory."""
    top = Path(tempfile.mkdtemp(prefix="clia-bench-", dir=None if disk else memory())).resolve()
    try:
        yield top
    finally:
        shutil.rmtree(top)


def memory() -> Path | None:
    """A file system in memory with room in it."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM
    return MEMORY if roomy else None


def facts() -> dict[str, str]:
    """The locations of the benchmark, and the time to create a file there: written to a temporary name and renamed, as git does."""
    with place(disk=True) as directory:
        facts = {"with fsync": "on the disk", "a file there": _shown(_file(directory))}
    if memory() is None:
        return {**facts, "without fsync": "on the disk"}
    with place() as directory:
        return {**facts, "without fsync": "in memory", "a file in memory": _shown(_file(directory))}


def _file(top: Path) -> float:
    times = []
    for number in range(FILES):
        started = time.perf_counter()
        new = top / f"{number}.new"
        new.write_bytes(b"a small object")
        folder = top / f"{number}"
        folder.mkdir()
        new.rename(folder / "object")
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def _shown(milliseconds: float) -> str:
    return f"{milliseconds:.2f} ms"
