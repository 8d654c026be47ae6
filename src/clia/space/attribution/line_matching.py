"""Matching the lines of a commit with lines that agents wrote.

Invariant: a line is given to an agent only if that agent wrote a line with the same bytes, or the same bytes without whitespace.
Each line that an agent wrote counts once: it is used up by the line of the commit that ``diff`` aligns it with. The result depends
only on the contents of the files and on the order of the versions.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

from clia.git.line_diff import hunks, unchanged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from clia.git.line_diff import LineChange

    Key = Callable[[Sequence[bytes]], list[bytes]]

_WORD = re.compile(rb"[0-9A-Za-z_\x80-\xff]")
_WHITESPACE = b" \t\r\f\v"


class WrittenVersion(NamedTuple):
    """An agent's version of a file: its lines, and the indexes of those that the agent wrote in this version."""

    lines: Sequence[bytes]
    written: AbstractSet[int]


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines of a file without their newlines."""
    return data.removesuffix(b"\n").split(b"\n") if data else []


def added_lines(data: bytes, previous: Iterable[bytes | None]) -> set[int]:
    """Return the indexes of the lines that are in none of the previous versions of a file; None: it did not exist."""
    added: set[int] | None = None
    for old in previous:
        if old is not None:
            changed = set(_new_lines(hunks(old, data)))
            added = changed if added is None else added & changed
    return set(range(len(lines_of(data)))) if added is None else added


def _new_lines(changes: Iterable[LineChange]) -> Iterator[int]:
    """Yield the indexes of the lines that changes add, in order."""
    for hunk in changes:
        yield from range(hunk.new_start, hunk.new_start + hunk.new_count)


def written_lines(data: bytes, previous: Sequence[bytes | None]) -> set[int]:
    """Return the added lines without those that were only moved: a text that the same change removes is not written."""
    before = previous[0] if previous else None
    if before is None:
        return added_lines(data, previous)
    changes = hunks(before, data)
    added = added_lines(data, previous[1:])
    lines, old = lines_of(data), lines_of(before)
    removed = Counter(line for hunk in changes for line in old[hunk.old_start : hunk.old_start + hunk.old_count])
    written: set[int] = set()
    for line in filter(added.__contains__, _new_lines(changes)):
        if removed[lines[line]] > 0:
            removed[lines[line]] -= 1
        else:
            written.add(line)
    return written


def match_lines(lines: Sequence[bytes], added: AbstractSet[int], versions: Sequence[WrittenVersion]) -> dict[int, int]:
    """Return, for each added line that an agent wrote, the index of the version that it comes from.

    Equal lines are matched first, then lines that differ in whitespace only. Of several versions, the first one counts: the
    caller passes the newest first.
    """
    matches: dict[int, int] = {}
    keys: tuple[Key, ...] = (list, bare_lines)
    for key in keys:
        open_lines = set(added) - matches.keys()
        if not open_lines:
            break
        own = key(lines)
        for number, version in enumerate(versions):
            theirs, wanted = key(version.lines), {own[line] for line in open_lines}
            if wanted.isdisjoint([theirs[line] for line in version.written]):
                continue
            matched = _Alignment(own, open_lines, theirs, version.written).matched()
            matches |= dict.fromkeys(matched, number)
            open_lines -= matched
    return matches


class _Alignment:
    """One version of an agent, aligned with the lines of a commit. ``open_lines`` are the lines that have no author yet."""

    def __init__(
        self, own: Sequence[bytes], open_lines: AbstractSet[int], theirs: Sequence[bytes], written: AbstractSet[int]
    ) -> None:
        self._own = own
        self._open = open_lines
        self._matched: set[int] = set()
        self._older: set[int] = set()  # open lines that the agent found in the file
        self._free = Counter(theirs[line] for line in written)  # written lines that no line of the commit uses
        self._kept: Counter[bytes] = Counter()  # written lines that an older line of the commit uses
        self._align(unchanged(len(theirs), len(own), hunks(_joined(theirs), _joined(own))), written)

    def _align(self, blocks: Iterable[tuple[int, int, int]], written: AbstractSet[int]) -> None:
        """Note which written lines the blocks of equal lines use. Only written and open lines are visited: files may be long."""
        ordered, open_lines = sorted(written), sorted(self._open)
        for their_start, own_start, count in blocks:
            shift = their_start - own_start
            for line in _within(ordered, their_start, count):
                self._free[self._own[line - shift]] -= 1
                if line - shift in self._open:
                    self._matched.add(line - shift)
                else:
                    self._kept[self._own[line - shift]] += 1
            self._older.update(line for line in _within(open_lines, own_start, count) if line + shift not in written)

    def matched(self) -> set[int]:
        for line in sorted(self._open - self._matched):
            text = self._own[line]
            if line in self._older:
                # Which of two equal lines is the new one depends on how a diff is drawn.
                if self._kept[text] > 0:
                    self._kept[text] -= 1
                    self._matched.add(line)
            elif self._free[text] > 0 and is_distinctive(text):
                self._take(line)
        self._take_neighbours()
        return self._matched

    def _take(self, line: int) -> None:
        self._free[self._own[line]] -= 1
        self._matched.add(line)

    def _take_neighbours(self) -> None:
        """Match blank lines and brackets next to a matched line; alone, they say nothing about their author."""
        rest = sorted(self._open - self._matched - self._older)
        for lines, step in ((rest, -1), (rest[::-1], 1)):
            for line in lines:
                if line not in self._matched and line + step in self._matched and self._free[self._own[line]] > 0:
                    self._take(line)


def _within(lines: Sequence[int], start: int, count: int) -> Sequence[int]:
    """Return those of some ascending line numbers that are in a range."""
    first = bisect_left(lines, start)
    return lines[first : bisect_left(lines, start + count, first)]


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in lines])


def is_distinctive(line: bytes) -> bool:
    return _WORD.search(line) is not None


def bare_lines(lines: Sequence[bytes]) -> list[bytes]:
    """Return lines without their whitespace."""
    return b"\n".join(lines).translate(None, _WHITESPACE).split(b"\n")
