"""The files that a session found in a directory and that git does not track.

They are not committed: the session did not make them. When it changes one, the file is its work from then on, but the lines that it
had are not. So of each of these files the record has its state, to see whether it changed, and digests of its lines. It never has
their text, and is a file in the git directory that only its account can read. Lost, the next look at the directory counts all files
as found.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

from clia.git.line_diff import hunks, unchanged
from clia.space.attribution.line_matching import lines_of
from clia.store.private_files import make_directory, open_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LINES_MAX = 1_000_000
"""Size of a file up to which its lines are remembered."""
_TOTAL_MAX = 16_000_000
"""Size of all files that are read at one look to remember their lines."""
_MISSING_MAX = 1000
"""Missing files that are remembered: they may come back, for example from a stash."""
_DIGEST = 6


class FoundFile(NamedTuple):
    """The state of a file, and the digests of its lines; empty if they are not remembered."""

    mode: int
    size: int
    modified: int  # nanoseconds
    inode: int
    lines: str = ""

    def is_same(self, path: str, status: os.stat_result) -> bool:
        """Whether the file at a path is as it was found; a stash may have removed and restored it."""
        if self[:4] == state_of(status)[:4]:
            return True
        may_be = bool(self.lines) and (self.mode, self.size) == (status.st_mode, status.st_size)
        return may_be and "".join(line_digests(_content(path))) == self.lines


def state_of(status: os.stat_result) -> FoundFile:
    return FoundFile(status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino)


class FoundFiles:
    """The records of all sessions in a git directory. ``folder``: where they are."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self, key: str) -> Mapping[str, FoundFile] | None:
        """The files that a session found; None if that is not known."""
        try:
            with open(self._path(key), encoding="ascii") as file:
                return {path: FoundFile(*fields) for path, fields in json.load(file).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def write(self, key: str, files: Mapping[str, FoundFile]) -> None:
        """Replace the record of a session. It is not synced: a lost one only makes the next look less exact."""
        path = self._path(key)
        draft = f"{path}.{os.getpid()}"
        with suppress(OSError):  # a full disk
            make_directory(self._folder)
            with open(draft, "w", encoding="ascii", opener=open_file) as file:
                json.dump(files, file)
            os.replace(draft, path)

    def purge(self, key: str, text: str) -> None:
        """Remove paths that contain a text."""
        files = self.read(key) or {}
        remaining = {path: file for path, file in files.items() if text not in path}
        if remaining != files:
            self.write(key, remaining)

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, blake2b(key.encode(), digest_size=16).hexdigest())


def with_missing(
    files: Mapping[str, FoundFile], before: Mapping[str, FoundFile], is_missing: Callable[[str], bool]
) -> dict[str, FoundFile]:
    """The files, and the last of those before that are missing now."""
    missing = [path for path in before if path not in files and is_missing(path)][-_MISSING_MAX:]
    return {path: before[path] for path in missing} | dict(files)


def with_lines(top: str, files: Mapping[str, FoundFile], before: Mapping[str, FoundFile]) -> dict[str, FoundFile]:
    """The files with the digests of their lines. Only files that changed are read."""
    remembered: dict[str, FoundFile] = {}
    left = _TOTAL_MAX
    for path, file in files.items():
        previous = before.get(path)
        if previous is not None and previous[:4] == file[:4]:
            remembered[path] = previous
            continue
        is_read = stat.S_ISREG(file.mode) and file.size <= min(LINES_MAX, left)
        left -= file.size if is_read else 0
        remembered[path] = file._replace(lines="".join(line_digests(_content(os.path.join(top, path))))) if is_read else file
    return remembered


def found_lines(data: bytes, lines: str) -> set[int]:
    """The indexes of the lines that a file had when it was found, as git's diff aligns them."""
    old = [lines[start : start + 2 * _DIGEST] for start in range(0, len(lines), 2 * _DIGEST)]
    new = line_digests(data)
    before, now = ("".join(f"{line}\n" for line in digests).encode() for digests in (old, new))
    shared = unchanged(len(old), len(new), hunks(before, now)) if old else ()
    return {start + number for _, start, count in shared for number in range(count)}


def moved_lines(data: bytes, files: Iterable[FoundFile]) -> str:
    """The digests of the lines of the file that a new file was moved from; empty if it has less than half of the lines of each."""
    digests, moved, most = set(line_digests(data)), "", 1
    for file in files:
        old = {file.lines[start : start + 2 * _DIGEST] for start in range(0, len(file.lines), 2 * _DIGEST)}
        shared = len(old & digests)
        if shared > most and 2 * shared >= len(old):
            moved, most = file.lines, shared
    return moved


def line_digests(data: bytes) -> list[str]:
    """The digest of each line of a text file; none of a binary one."""
    lines = [] if b"\0" in data else lines_of(data)
    return [blake2b(line.removesuffix(b"\r"), digest_size=_DIGEST).hexdigest() for line in lines]


def _content(path: str) -> bytes:
    """The start of a regular file; nothing if it cannot be read, or is a pipe or link by now."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            return file.read(LINES_MAX + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    except OSError:
        return b""
