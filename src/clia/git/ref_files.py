"""Refs as git's files have them: a file each, and many in the packed file.

Invariant: what is read is what the files say now; nothing is remembered. A part of a large packed file costs what that part
costs: git sorts the file, so that where the part begins is found by halving. A loose ref overrides a packed one.
"""

from __future__ import annotations

import mmap
import os
import re
import time
from itertools import islice

from clia.git.git_errors import git_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ID = re.compile(r"[0-9a-f]{40}")
_SETTLED = 2_000_000_000
"""Nanoseconds. Two files written within one tick of the disk's clock may look alike; one that is older than this was not."""
NO_FILE = "none"


def read_loose(common_dir: str, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
    """Name and target of every ref below a prefix that has a file of its own, sorted, those after a name."""
    for name in sorted(each for each in _names(common_dir, prefix.rstrip("/")) if each > after):
        try:
            file = os.open(os.path.join(common_dir, *name.split("/")), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # it went away
        try:
            cid = os.read(file, 64).decode("ascii", "replace").strip()
        except OSError:
            continue
        finally:
            os.close(file)
        if _ID.fullmatch(cid):
            yield name, cid


def _names(common_dir: str, below: str) -> Iterator[str]:
    try:
        with os.scandir(os.path.join(common_dir, *below.split("/"))) as found:
            entries = [(each.name, each.is_dir(follow_symlinks=False)) for each in found]
    except OSError:
        return
    for name, is_folder in entries:
        if is_folder:
            yield from _names(common_dir, f"{below}/{name}")
        elif not name.endswith(".lock"):  # the next value of a ref, or what a dead writer left of it
            yield f"{below}/{name}"


def read_packed(common_dir: str, prefix: str, after: str = "", limit: int | None = None) -> list[tuple[str, str]]:
    """Name and target of the packed refs below a prefix, sorted, those after a name; at most so many."""
    first, low, high = (_bytes(each) for each in (prefix, after, prefix))
    try:
        with open(_path(common_dir), "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return []
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                if not _is_sorted(data):
                    return _cut(sorted(each for each in _refs(data[:]) if each[0].startswith(prefix)), after, limit)
                start = _at_or_after(data, low + b"\0" if low >= first else first)
                if limit is None:
                    return _refs(data[start : _at_or_after(data, high + b"\xff")])
                return _first(data, start, prefix, limit)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as err:
        raise git_error("packed refs cannot be read", err) from None


def packed_state(common_dir: str) -> str | None:
    """What tells this packed file from any other; None while that cannot be said: it was written a moment ago."""
    try:
        info = os.stat(_path(common_dir))
    except FileNotFoundError:
        return NO_FILE
    except OSError as err:
        raise git_error("packed refs cannot be read", err) from None
    if abs(time.time_ns() - info.st_ctime_ns) < _SETTLED:
        return None
    return f"{info.st_dev} {info.st_ino} {info.st_size} {info.st_mtime_ns} {info.st_ctime_ns}"


def _path(common_dir: str) -> str:
    return os.path.join(common_dir, "packed-refs")


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _is_sorted(data: mmap.mmap) -> bool:
    line = data[: max(0, data.find(b"\n"))]
    return line.startswith(b"# pack-refs with:") and b" sorted" in line


def _at_or_after(data: mmap.mmap, name: bytes) -> int:
    """Where the first line begins whose ref is not before a name."""
    low, high = data.find(b"\n") + 1, len(data)  # the header sorts with nothing
    while low < high:
        start = _line_before(data, (low + high) // 2, low)
        end = _line_end(data, start)
        if data[start + 41 : end] < name:
            low = _next_ref(data, end + 1)
        else:
            high = start
    return low


def _line_before(data: mmap.mmap, place: int, low: int) -> int:
    """Where the ref's line begins that a place is in: a line after it may say what a tag points at."""
    start = max(low, data.rfind(b"\n", low, place) + 1)
    while start > low and data[start] == ord("^"):
        start = max(low, data.rfind(b"\n", low, start - 1) + 1)
    return start


def _line_end(data: mmap.mmap, start: int) -> int:
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end


def _next_ref(data: mmap.mmap, start: int) -> int:
    while start < len(data) and data[start] == ord("^"):
        start = _line_end(data, start) + 1
    return min(start, len(data))


def _refs(lines: bytes) -> list[tuple[str, str]]:
    text = lines.decode("utf-8", "surrogateescape")
    return [(line[41:], line[:40]) for line in text.split("\n") if line and line[0] not in "#^"]


def _first(data: mmap.mmap, start: int, prefix: str, limit: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    while start < len(data) and len(found) < limit:
        end = _line_end(data, start)
        name, cid = _refs(data[start:end])[0]
        if not name.startswith(prefix):
            break
        found.append((name, cid))
        start = _next_ref(data, end + 1)
    return found


def _cut(found: list[tuple[str, str]], after: str, limit: int | None) -> list[tuple[str, str]]:
    return list(islice((each for each in found if each[0] > after), limit))
