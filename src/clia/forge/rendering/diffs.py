"""A git patch as HTML, file by file.

Invariant: hunk headers determine where a hunk ends, so content cannot pass for a header. Output is bounded per file and in total,
and omitted lines are counted. The numbers of added and deleted lines are always complete.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from itertools import accumulate, zip_longest
from typing import NamedTuple

from markupsafe import Markup

from clia.forge.rendering.highlighting import HighlightBudget
from clia.forge.rendering.texts import Spot, TextRun, escaped, html, marked, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FILE_LINES_MAX, LINES_MAX, FILES_MAX = 2000, 20_000, 1000
FOLD_LINES = 400
_CHARACTERS_MAX = 2000  # of a line
_COMPARED_MAX = 200  # maximum line length for word diffs
_COMPARISONS = 200_000  # word pairs per patch, which determine difflib's run time
_SIMILAR = 0.4  # below this ratio nearly all words would be marked
_HUNK = re.compile(r"(@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@) ?(.*)", re.DOTALL)
_MODE = re.compile(r"(old|new|deleted file|new file) mode ([0-7]{6})")
_ESCAPED = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_PATHS = tuple((f"{name} ", name.rpartition(" ")[2]) for name in ("rename from", "rename to", "copy from", "copy to", "---", "+++"))
_STATUSES = (("new file ", "added"), ("deleted file ", "deleted"), ("rename from ", "renamed"), ("copy from ", "copied"))
_CLASSES = {"+": "add", "-": "del", " ": "ctx", "\\": "note"}
_ROW = Markup('<tr class="{}"><td class="num">{}</td><td class="num">{}</td><td class="sign">{}</td><td>{}</td></tr>')
_HUNK_ROW = Markup('<tbody><tr class="hunk"><td colspan="3">{}</td><td>{}</td></tr>')
_WORD = Markup('<mark class="word">')
_HEAD = Markup(
    '<thead class="visually-hidden"><tr><th scope="col">old line</th><th scope="col">new line</th>'
    '<th scope="col">change</th><th scope="col">text</th></tr></thead>'
)
_CELL = Markup('<td class="num {}">{}</td><td class="{}"><span class="visually-hidden">{}</span>{}</td>')
_NO_CELL = Markup('<td class="num none"></td><td class="none"></td>')
_SPLIT_HUNK_ROW = Markup('<tbody><tr class="hunk"><td colspan="4">{} {}</td></tr>')
_SPLIT_HEAD = Markup(
    '<thead class="visually-hidden"><tr><th scope="col">old line</th><th scope="col">old text</th>'
    '<th scope="col">new line</th><th scope="col">new text</th></tr></thead>'
)
_WORDS_OF = {"+": "added: ", "-": "deleted: ", " ": "", "\\": ""}


class DiffLine(NamedTuple):
    """One line of a hunk; ``\\`` is git's note that a file ends without a newline."""

    sign: str
    old: int | None
    new: int | None
    text: str


class Hunk(NamedTuple):
    head: str
    section: str  # git's section heading, such as a function name
    lines: list[DiffLine]


class FilePatch(NamedTuple):
    path: str
    old_path: str | None  # source of a rename or copy
    status: str  # added, deleted, modified, renamed, copied
    modes: tuple[str, str] | None  # if they differ
    binary: bool
    added: int
    deleted: int
    hunks: list[Hunk]
    rest: int  # lines not in ``hunks``


class FileView(NamedTuple):
    """A file of a patch for a page. Paths are foreign text."""

    path: str
    old_path: str | None
    status: str
    modes: tuple[str, str] | None
    binary: bool
    added: int
    deleted: int
    folded: bool
    rest: int  # lines not in ``body``
    body: Markup  # a table, or empty


class PatchView(NamedTuple):
    files: list[FileView]
    rest: int  # files that are not shown
    added: int
    deleted: int


def view(patch: str, *, split: bool = False) -> PatchView:
    """``split``: the old and the new lines side by side."""
    files = parse(patch)
    left, tables = LINES_MAX, _Tables(split=split)
    views = []
    for parsed in files[:FILES_MAX]:
        file = _cut(parsed, left)
        lines = sum(len(hunk.lines) for hunk in file.hunks)
        left -= lines
        body = tables.of(file) if lines or file.rest else Markup("")
        old_path = None if file.old_path is None else one_line(file.old_path)
        shown = (one_line(file.path), old_path, file.status, file.modes, file.binary, file.added, file.deleted)
        views.append(FileView(*shown, lines + file.rest > FOLD_LINES, file.rest, body))
    added, deleted = sum(parsed.added for parsed in files), sum(parsed.deleted for parsed in files)
    return PatchView(views, max(0, len(files) - FILES_MAX), added, deleted)


def _cut(file: FilePatch, left: int) -> FilePatch:
    """The first ``left`` lines of a file."""
    hunks, rest = [], file.rest
    for hunk in file.hunks:
        lines = hunk.lines[:left]
        if lines:
            hunks.append(hunk._replace(lines=lines))
        rest += len(hunk.lines) - len(lines)
        left -= len(lines)
    return file._replace(hunks=hunks, rest=rest)


def parse(patch: str) -> list[FilePatch]:
    """Parse the output of ``git diff``; keeps the first lines of each file and counts the others."""
    lines = patch.split("\n")
    files, at = [], 0
    while at < len(lines):
        start = at
        at += 1
        if not lines[start].startswith("diff --git "):
            continue
        while at < len(lines) and not lines[at].startswith(("diff --git ", "@@ ")):
            at += 1
        reader = _HunkReader(lines, at)
        files.append(_file(lines[start:at], reader))
        at = reader.at
    return files


class _HunkReader:
    """Reads the hunks of one file, starting at ``at``."""

    def __init__(self, lines: Sequence[str], at: int) -> None:
        self.at = at
        self.hunks: list[Hunk] = []
        self.added = self.deleted = self.rest = 0
        self._lines = lines
        self._kept = 0
        while self.at < len(lines) and (head := _HUNK.match(lines[self.at])):
            self.at += 1
            hunk_lines = list(self._hunk(int(head[2]), int(head[3] or 1), int(head[4]), int(head[5] or 1)))
            if hunk_lines:
                self.hunks.append(Hunk(head[1], head[6], hunk_lines))

    def _hunk(self, old: int, old_count: int, new: int, new_count: int) -> Iterator[DiffLine]:
        old_end, new_end = old + old_count, new + new_count
        while self.at < len(self._lines):
            line = self._lines[self.at]
            sign = line[:1] or " "
            if sign not in _CLASSES or (sign != "\\" and old >= old_end and new >= new_end):
                return
            self.at += 1
            parsed = DiffLine(sign, old if sign in "- " else None, new if sign in "+ " else None, line[1:])
            old, new = old + (sign in "- "), new + (sign in "+ ")
            self.added += sign == "+"
            self.deleted += sign == "-"
            if self._kept < FILE_LINES_MAX:
                self._kept += 1
                yield parsed
            else:
                self.rest += 1


def _file(head: Sequence[str], reader: _HunkReader) -> FilePatch:
    paths = {name: _path(line.removeprefix(start)) for line in head for start, name in _PATHS if line.startswith(start)}
    modes = {match[1]: match[2] for match in map(_MODE.fullmatch, head) if match}
    both = head[0].removeprefix("diff --git ")  # "a/X b/X": half of it if both are equal
    path = _path(both[: len(both) // 2])[2:]
    return FilePatch(
        path=paths.get("to") or _inside(paths.get("+++")) or _inside(paths.get("---")) or path,
        old_path=paths.get("from"),
        status=next((status for start, status in _STATUSES if any(line.startswith(start) for line in head)), "modified"),
        modes=(modes["old"], modes["new"]) if {"old", "new"} <= modes.keys() else None,
        binary=any(line.startswith(("Binary files ", "GIT binary patch")) for line in head),
        added=reader.added,
        deleted=reader.deleted,
        hunks=reader.hunks,
        rest=reader.rest,
    )


def _inside(path: str | None) -> str | None:
    """A path without git's ``a/`` or ``b/``; None for ``/dev/null``."""
    return None if path in (None, "/dev/null") else path[2:]


def _path(text: str) -> str:
    """Unquote a path: git quotes special characters and adds a tab after a path with spaces."""
    text = text.removesuffix("\t")
    if not text.startswith('"'):
        return text
    # Escapes are bytes: collect them as Latin-1, then decode as UTF-8.
    quoted = text[1:].removesuffix('"').encode("utf-8", "replace").decode("latin-1")
    return _ESCAPED.sub(_unescaped, quoted).encode("latin-1").decode("utf-8", "replace")


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8) & 0xFF) if len(code) == 3 else _ESCAPES.get(code, code)


class _Tables:
    """Renders files as tables, within the budgets of a page."""

    def __init__(self, *, split: bool) -> None:
        self._split = split
        self._comparing = _Comparing()
        self._highlighting = HighlightBudget()

    def of(self, file: FilePatch) -> Markup:
        parts = [Markup('<table class="diff{}">').format(" split" if self._split else ""), _SPLIT_HEAD if self._split else _HEAD]
        for hunk in file.hunks:
            parts.append((_SPLIT_HUNK_ROW if self._split else _HUNK_ROW).format(hunk.head, escaped(hunk.section)))
            parts += self._rows(hunk.lines, self._codes(file.path, hunk.lines))
            parts.append(Markup("</tbody>"))
        if file.rest:
            note = f"{file.rest:,} more {'line' if file.rest == 1 else 'lines'}, not shown"
            parts.append(Markup('<tbody><tr class="rest"><td colspan="4">{}</td></tr></tbody>').format(note))
        return Markup("").join([*parts, Markup("</table>")])

    def _codes(self, path: str, lines: Sequence[DiffLine]) -> list[Markup]:
        """The text of each line, with syntax colours and changed words."""
        spots = self._comparing.spots(lines)
        runs: dict[int, list[TextRun]] = {}
        for side in ("- ", "+ "):
            indexes = [index for index, line in enumerate(lines) if line.sign in side]
            coloured = self._highlighting.lines(path, [lines[index].text for index in indexes])
            runs |= dict(zip(indexes, coloured, strict=True)) if coloured is not None else {}
        return [_code(line.text, runs.get(index), spots.get(index, ())) for index, line in enumerate(lines)]

    def _rows(self, lines: Sequence[DiffLine], codes: Sequence[Markup]) -> Iterator[Markup]:
        if not self._split:
            for line, code in zip(lines, codes, strict=True):
                yield _ROW.format(_CLASSES[line.sign], _number(line.old), _number(line.new), line.sign, code)
            return
        for old, new in _side_by_side(lines):
            cells = [
                _cell(lines[index], codes[index], left=left) if index is not None else _NO_CELL
                for index, left in ((old, True), (new, False))
            ]
            yield Markup("<tr>{}{}</tr>").format(*cells)


def _number(number: int | None) -> int | str:
    return "" if number is None else number


def _cell(line: DiffLine, code: Markup, *, left: bool) -> Markup:
    number = _number(line.old if left else line.new)
    return _CELL.format(_CLASSES[line.sign], number, _CLASSES[line.sign], _WORDS_OF[line.sign], code)


def _side_by_side(lines: Sequence[DiffLine]) -> Iterator[tuple[int | None, int | None]]:
    """The indexes of the old and the new line of each row."""
    deleted: list[int] = []
    added: list[int] = []
    for index, line in enumerate([*lines, DiffLine(" ", None, None, "")]):
        if line.sign == "-":
            if added:
                yield from zip_longest(deleted, added)
                deleted, added = [], []
            deleted.append(index)
        elif line.sign == "+":
            added.append(index)
        elif line.sign == " ":
            yield from zip_longest(deleted, added)
            deleted, added = [], []
            if index < len(lines):
                yield index, index


def _code(text: str, runs: Sequence[TextRun] | None, spots: Sequence[Spot]) -> Markup:
    rest = len(text) - _CHARACTERS_MAX
    if rest > 0:
        return escaped(text[:_CHARACTERS_MAX]) + Markup('<span class="cut"> … {:,} more characters</span>').format(rest)
    return html(marked([TextRun(text)] if runs is None else runs, spots))


class _Comparing:
    """Finds changed words between two lines, within a budget."""

    def __init__(self) -> None:
        self._left = _COMPARISONS

    def spots(self, lines: Sequence[DiffLine]) -> dict[int, list[Spot]]:
        """The changed spots by line index, for lines with a counterpart."""
        by_line: dict[int, list[Spot]] = {}
        for old, new in _pairs(lines):
            old_text, new_text = lines[old].text, lines[new].text
            if max(len(old_text), len(new_text)) <= _COMPARED_MAX and self._left > 0:
                by_line[old], by_line[new] = self._compared(_WORDS.findall(old_text), _WORDS.findall(new_text))
        return by_line

    def _compared(self, old: Sequence[str], new: Sequence[str]) -> tuple[list[Spot], list[Spot]]:
        self._left -= len(old) * len(new)
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        if matcher.ratio() < _SIMILAR:
            return [], []
        changes = [opcode for opcode in matcher.get_opcodes() if opcode[0] != "equal"]
        return (
            _places(old, [(start, end) for _, start, end, _, _ in changes]),
            _places(new, [(start, end) for _, _, _, start, end in changes]),
        )


def _pairs(lines: Sequence[DiffLine]) -> Iterator[tuple[int, int]]:
    """Pair deleted lines with the added ones that follow."""
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
