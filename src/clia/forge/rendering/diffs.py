"""A git patch as HTML, file by file.

Invariant: lines are told apart by the counts of their hunk, never by what they say, so no content passes for a header. What is
rendered is bounded, a file and in all; what is left out is counted. Numbers of added and deleted lines are always whole.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from itertools import accumulate
from typing import NamedTuple

from markupsafe import Markup

from clia.forge.rendering.texts import Run, Spot, escaped, html, marked, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FILE_LINES_MAX, LINES_MAX, FILES_MAX = 2000, 20_000, 1000
FOLD_LINES = 400
_CHARACTERS_MAX = 2000  # of a line
_COMPARED_MAX = 200  # characters of a line whose changed words are looked for
_COMPARISONS = 200_000  # pairs of words in a whole patch: they are what difflib's time goes with
_SIMILAR = 0.4  # below, marking words would mark nearly all of them
_HUNK = re.compile(r"(@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@) ?(.*)", re.DOTALL)
_MODE = re.compile(r"(old|new|deleted file|new file) mode ([0-7]{6})")
_ESCAPED = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_PATHS = tuple((f"{name} ", name.rpartition(" ")[2]) for name in ("rename from", "rename to", "copy from", "copy to", "---", "+++"))
_STATUSES = (("new file ", "added"), ("deleted file ", "deleted"), ("rename from ", "renamed"), ("copy from ", "copied"))
_CLASSES = {"+": "add", "-": "del", " ": "ctx", "\\": "note"}
_ROW = Markup('<tr class="{}"><td class="num">{}</td><td class="num">{}</td><td class="sign">{}</td><td>{}</td></tr>')
_WORD = Markup('<mark class="word">')
_HEAD = Markup(
    '<thead class="visually-hidden"><tr><th scope="col">old line</th><th scope="col">new line</th>'
    '<th scope="col">change</th><th scope="col">text</th></tr></thead>'
)


class Line(NamedTuple):
    """One line of a hunk; ``\\`` is git's note that a file ends without a newline."""

    sign: str
    old: int | None
    new: int | None
    text: str


class Hunk(NamedTuple):
    head: str
    section: str  # what git found above it: a function, a heading
    lines: list[Line]


class FilePatch(NamedTuple):
    path: str
    old_path: str | None  # where it was renamed or copied from
    status: str  # added, deleted, modified, renamed, copied
    modes: tuple[str, str] | None  # where they differ
    binary: bool
    added: int
    deleted: int
    hunks: list[Hunk]
    rest: int  # lines beyond those in the hunks


class FileView(NamedTuple):
    """What a page shows of one file. The paths are foreign text."""

    path: str
    old_path: str | None
    status: str
    modes: tuple[str, str] | None
    binary: bool
    added: int
    deleted: int
    folded: bool
    rest: int  # lines that are not in ``body``; it says so at its end
    body: Markup  # a table; empty where there are no lines


class PatchView(NamedTuple):
    files: list[FileView]
    rest: int  # files that are not shown
    added: int
    deleted: int


def view(patch: str) -> PatchView:
    files = parse(patch)
    left, comparing = LINES_MAX, _Comparing()
    made = []
    for each in files[:FILES_MAX]:
        file = _cut(each, left)
        lines = sum(len(hunk.lines) for hunk in file.hunks)
        left -= lines
        body = _table(file, comparing) if lines or file.rest else Markup("")
        old_path = None if file.old_path is None else one_line(file.old_path)
        shown = (one_line(file.path), old_path, file.status, file.modes, file.binary, file.added, file.deleted)
        made.append(FileView(*shown, lines + file.rest > FOLD_LINES, file.rest, body))
    return PatchView(made, max(0, len(files) - FILES_MAX), sum(each.added for each in files), sum(each.deleted for each in files))


def _cut(file: FilePatch, left: int) -> FilePatch:
    """The first ``left`` lines of a file."""
    hunks, rest = [], file.rest
    for hunk in file.hunks:
        kept = hunk.lines[:left]
        if kept:
            hunks.append(hunk._replace(lines=kept))
        rest += len(hunk.lines) - len(kept)
        left -= len(kept)
    return file._replace(hunks=hunks, rest=rest)


def parse(patch: str) -> list[FilePatch]:
    """The files of a patch as ``git diff`` writes it; of each file the first lines, the others counted."""
    lines = patch.split("\n")
    files, at = [], 0
    while at < len(lines):
        start = at
        at += 1
        if not lines[start].startswith("diff --git "):
            continue
        while at < len(lines) and not lines[at].startswith(("diff --git ", "@@ ")):
            at += 1
        reading = _Reading(lines, at)
        files.append(_file(lines[start:at], reading))
        at = reading.at
    return files


class _Reading:
    """The hunks of one file, read from ``at`` on."""

    def __init__(self, lines: Sequence[str], at: int) -> None:
        self.at = at
        self.hunks: list[Hunk] = []
        self.added = self.deleted = self.rest = 0
        self._lines = lines
        self._kept = 0
        while self.at < len(lines) and (head := _HUNK.match(lines[self.at])):
            self.at += 1
            kept = list(self._hunk(int(head[2]), int(head[3] or 1), int(head[4]), int(head[5] or 1)))
            if kept:
                self.hunks.append(Hunk(head[1], head[6], kept))

    def _hunk(self, old: int, old_count: int, new: int, new_count: int) -> Iterator[Line]:
        old_end, new_end = old + old_count, new + new_count
        while self.at < len(self._lines):
            line = self._lines[self.at]
            sign = line[:1] or " "
            if sign not in _CLASSES or (sign != "\\" and old >= old_end and new >= new_end):
                return
            self.at += 1
            made = Line(sign, old if sign in "- " else None, new if sign in "+ " else None, line[1:])
            old, new = old + (sign in "- "), new + (sign in "+ ")
            self.added += sign == "+"
            self.deleted += sign == "-"
            if self._kept < FILE_LINES_MAX:
                self._kept += 1
                yield made
            else:
                self.rest += 1


def _file(head: Sequence[str], reading: _Reading) -> FilePatch:
    paths = {name: _path(line.removeprefix(start)) for line in head for start, name in _PATHS if line.startswith(start)}
    modes = {match[1]: match[2] for match in map(_MODE.fullmatch, head) if match}
    path = paths.get("to") or _inside(paths.get("+++")) or _inside(paths.get("---")) or _named(head[0])
    return FilePatch(
        path=path,
        old_path=paths.get("from"),
        status=next((status for start, status in _STATUSES if any(line.startswith(start) for line in head)), "modified"),
        modes=(modes["old"], modes["new"]) if {"old", "new"} <= modes.keys() else None,
        binary=any(line.startswith(("Binary files ", "GIT binary patch")) for line in head),
        added=reading.added,
        deleted=reading.deleted,
        hunks=reading.hunks,
        rest=reading.rest,
    )


def _inside(path: str | None) -> str | None:
    """A path without git's ``a/`` or ``b/``; None for the file that is not there."""
    return None if path in (None, "/dev/null") else path[2:]


def _named(head: str) -> str:
    """The path of ``diff --git a/X b/X``: where both are the same, one is half of the line."""
    both = head.removeprefix("diff --git ")
    return _path(both[: len(both) // 2])[2:]


def _path(text: str) -> str:
    """A path as git writes it: in quotes and with escapes where it has odd characters, with a tab after it where it has blanks."""
    text = text.removesuffix("\t")
    if not text.startswith('"'):
        return text
    # Bytes as characters of the same number, then read as the UTF-8 that they are.
    quoted = text[1:].removesuffix('"').encode("utf-8", "replace").decode("latin-1")
    return _ESCAPED.sub(_unescaped, quoted).encode("latin-1").decode("utf-8", "replace")


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8) & 0xFF) if len(code) == 3 else _ESCAPES.get(code, code)


def _table(file: FilePatch, comparing: _Comparing) -> Markup:
    parts = [Markup('<table class="diff">'), _HEAD]
    for hunk in file.hunks:
        parts.append(
            Markup('<tbody><tr class="hunk"><td colspan="3">{}</td><td>{}</td></tr>').format(hunk.head, escaped(hunk.section))
        )
        spots = comparing.spots(hunk.lines)
        parts += [_row(line, spots.get(index, ())) for index, line in enumerate(hunk.lines)]
        parts.append(Markup("</tbody>"))
    if file.rest:
        said = f"{file.rest:,} more {'line' if file.rest == 1 else 'lines'}, not shown"
        parts.append(Markup('<tbody><tr class="rest"><td colspan="4">{}</td></tr></tbody>').format(said))
    return Markup("").join([*parts, Markup("</table>")])


def _row(line: Line, spots: Sequence[Spot]) -> Markup:
    old, new = ("" if number is None else number for number in (line.old, line.new))
    return _ROW.format(_CLASSES[line.sign], old, new, line.sign, _code(line.text, spots))


def _code(text: str, spots: Sequence[Spot]) -> Markup:
    rest = len(text) - _CHARACTERS_MAX
    if rest > 0:
        return escaped(text[:_CHARACTERS_MAX]) + Markup('<span class="cut"> … {:,} more characters</span>').format(rest)
    return html(marked([Run(text)], spots))


class _Comparing:
    """Finds the words that changed between two lines, as long as its budget lasts."""

    def __init__(self) -> None:
        self._left = _COMPARISONS

    def spots(self, lines: Sequence[Line]) -> dict[int, list[Spot]]:
        """For each line, by its place, that has a counterpart: where its own words are."""
        made: dict[int, list[Spot]] = {}
        for old, new in _pairs(lines):
            one, other = lines[old].text, lines[new].text
            if max(len(one), len(other)) <= _COMPARED_MAX and self._left > 0:
                made[old], made[new] = self._compared(_WORDS.findall(one), _WORDS.findall(other))
        return made

    def _compared(self, old: Sequence[str], new: Sequence[str]) -> tuple[list[Spot], list[Spot]]:
        self._left -= len(old) * len(new)
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        if matcher.ratio() < _SIMILAR:
            return [], []
        changes = [each for each in matcher.get_opcodes() if each[0] != "equal"]
        return (
            _places(old, [(start, end) for _, start, end, _, _ in changes]),
            _places(new, [(start, end) for _, _, _, start, end in changes]),
        )


def _pairs(lines: Sequence[Line]) -> Iterator[tuple[int, int]]:
    """Deleted lines and the added ones that follow them, one to one."""
    deleted: list[int] = []
    taken = 0
    for index, line in enumerate(lines):
        if line.sign == "-":
            if taken:
                deleted, taken = [], 0
            deleted.append(index)
        elif line.sign == "+" and taken < len(deleted):
            yield deleted[taken], index
            taken += 1
        elif line.sign == " ":
            deleted, taken = [], 0


def _places(words: Sequence[str], changes: Iterable[tuple[int, int]]) -> list[Spot]:
    starts = [0, *accumulate(map(len, words))]
    return [Spot(starts[start], starts[end], _WORD) for start, end in changes if end > start]
