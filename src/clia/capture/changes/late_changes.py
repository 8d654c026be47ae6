"""What people changed after a turn was broken off, because its tool was killed.

Nothing reports when a tool is killed. So if its process has ended, a file that changed after the last event of the turn may have
lines of both: those that a call said it writes are the tool's, and all other new ones are a person's. A file that no call named is
the tool's if a call was running, and else a person's.
"""

from __future__ import annotations

import os

from clia.capture.changes.found_files import line_digests
from clia.capture.processes import has_ended
from clia.git.records import EXECUTABLE, FILE, TreeEntry
from clia.space.attribution.line_matching import added_lines, lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from clia.capture.service import CapturedSession
    from clia.git.objects import GitObjects

_LINES_MAX = 4000
_ALL = "*"
_DIGEST = 12


def with_written(wrote: Mapping[str, str], paths: Iterable[str], texts: Iterable[str]) -> dict[str, str]:
    """The digests of the lines that calls write, by path, with those of one more call. Of very long files all lines count."""
    data = "\n".join(texts).encode("utf-8", "surrogatepass").replace(b"\0", b"")
    added = [line.removeprefix(b"+") for line in lines_of(data) if line.startswith(b"+")]  # of a patch
    new = [*line_digests(data), *line_digests(b"\n".join(added))]
    merged = dict(wrote)
    for path in paths:
        before = merged.get(path, "")
        lines = dict.fromkeys([*_split(before), *new])
        merged[path] = _ALL if before == _ALL or len(lines) > _LINES_MAX else "".join(lines)
    return merged


def _split(digests: str) -> list[str]:
    return [digests[start : start + _DIGEST] for start in range(0, len(digests), _DIGEST)]


def late_lines(captured: CapturedSession, path: str) -> Callable[[bytes], set[int]] | None:
    """A function from the content of a file to the lines that may be a person's; None if all are the turn's."""
    lines = captured.wrote.get(path)
    if lines == _ALL or (lines is None and captured.calls) or not has_ended(captured.process):
        return None
    try:
        if os.lstat(os.path.join(captured.place, path)).st_ctime_ns <= captured.stored:
            return None
    except OSError:
        return None
    known_lines = {*_split(lines or "")}
    return lambda data: {number for number, line in enumerate(line_digests(data)) if line not in known_lines}


def without_late(objects: GitObjects, captured: CapturedSession, before: str, now: str, touched: Collection[str]) -> str:
    """The tree of a directory without the lines that people wrote after a turn was broken off. ``before``: at the last look."""
    changes: dict[str, TreeEntry | None] = {}
    for path in sorted(touched):
        entry, old = objects.entry(now, path), objects.entry(before, path)
        is_late = late_lines(captured, path) if entry is not None and entry.mode in (FILE, EXECUTABLE) else None
        if entry is None or is_late is None:
            continue
        data = objects.blob(entry.cid)
        has_lines = old is not None and old.mode in (FILE, EXECUTABLE)
        added = added_lines(data, [objects.blob(old.cid)] if old is not None and has_lines else [])
        late = added & is_late(data) if b"\0" not in data[:8000] else added
        if not added - late:
            changes[path] = old
        elif late:
            text = b"\n".join(line for number, line in enumerate(lines_of(data)) if number not in late)
            end = b"" if not data.endswith(b"\n") and len(lines_of(data)) - 1 not in late else b"\n"
            changes[path] = TreeEntry(entry.mode, objects.write_blob(text + end))
    return objects.update_tree(now, changes) if changes else now
