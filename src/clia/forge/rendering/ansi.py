"""Terminal output as HTML or plain text.

Invariant: each line shows the final state of a terminal line: colours, attributes, carriage returns, backspaces and erasures within
the line are applied; other sequences are dropped, incomplete ones shown. Colours become sixteen CSS classes. Time is linear in the
length of the text. One character is one column.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain, groupby, islice
from typing import NamedTuple

from clia.forge.rendering.texts import TextRun, escaped, html, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from markupsafe import Markup

# No backtracking: an unterminated sequence ends at the next escape.
_TOKEN = re.compile(
    r"(?:\x1b\[|\x9b)(?P<codes>[0-?]*+)[ -/]*+(?P<command>[@-~])"
    r"|(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\n\x07\x1b\x80-\x9f]*+(?:\x07|\x1b\\|\x9c)"  # titles, links, images
    r"|\x1b[ -/]*+[0-OQ-WYZ\\`-~]"
    r"|\r+|\x08+"
)
_ACTING = re.compile(r"[\x1b\x90\x98\x9b\x9d-\x9f\r\b]")
_MOVING = re.compile(r"\r[^\r\n]|\x08|(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[GK]")
_SIXTEEN = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229)),
    *((127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255)),
)
_CUBE = (0, 95, 135, 175, 215, 255)
_CODES_MAX = 256  # per sequence, to bound the cache
_COLOUR_VALUES = {"5": 1, "2": 3}  # numbers after `38;5` and `38;2`


class _Style(NamedTuple):
    fg: int | None = None
    bg: int | None = None
    bold: bool = False
    italic: bool = False
    underline: bool = False
    inverse: bool = False


_PLAIN = _Style()
_NEW_LINE = TextRun("\n")
_CHANGES: dict[int, dict[str, Any]] = {
    0: _PLAIN._asdict(),
    1: {"bold": True},
    3: {"italic": True},
    4: {"underline": True},
    7: {"inverse": True},
    21: {"underline": True},
    22: {"bold": False},
    23: {"italic": False},
    24: {"underline": False},
    27: {"inverse": False},
    39: {"fg": None},
    49: {"bg": None},
    **{30 + index: {"fg": index} for index in range(8)},
    **{40 + index: {"bg": index} for index in range(8)},
    **{90 + index: {"fg": 8 + index} for index in range(8)},
    **{100 + index: {"bg": 8 + index} for index in range(8)},
}


def to_html(text: str) -> Markup:
    if not _ACTING.search(text):
        return escaped(text)
    first, *others = lines(text)
    return html(chain(first, chain.from_iterable((_NEW_LINE, *line) for line in others)))


def plain(text: str) -> str:
    """The text that ``to_html`` shows, for search."""
    if not _ACTING.search(text):
        return visible(text)
    if not _MOVING.search(text):
        return visible(_TOKEN.sub("", text))
    return visible("\n".join(["".join([run.text for run in line]) for line in lines(text)]))


def lines(text: str) -> list[list[TextRun]]:
    """The lines of a text, each as runs of one style."""
    rows: list[list[TextRun]] = []
    style, look = _PLAIN, ""
    for full_line in text.split("\n"):  # sequences end with the line, but colours continue
        text_line = full_line.rstrip("\r")  # trailing carriage returns have no effect
        if not _ACTING.search(text_line):
            rows.append([TextRun(text_line, look)] if text_line else [])
            continue
        line, at = _Line(), 0
        for token in _TOKEN.finditer(text_line):
            if token.start() > at:
                line.write(text_line[at : token.start()], look)
            at = token.end()
            codes, command = token.groups()
            if command == "m":
                style = _changed(style, codes[:_CODES_MAX])
                look = _classes(style)
            else:
                line.act(command or token[0], codes)
        line.write(text_line[at:], look)
        rows.append(line.runs())
    return rows


class _Line:
    """One terminal line. It is split into cells only if something is overwritten."""

    def __init__(self) -> None:
        self._written: list[TextRun] = []  # in order, all of it at the end
        self._chars: list[str] = []
        self._looks: list[str] = []
        self._column: int | None = None  # None: at the end

    def write(self, text: str, look: str) -> None:
        if self._column is None:
            self._written.append(TextRun(text, look))
            return
        self._spread()
        end = self._column + len(text)
        self._chars[self._column : end] = text
        self._looks[self._column : end] = [look] * len(text)
        self._column = end

    def act(self, command: str, codes: str | None) -> None:
        if command[0] == "\r":
            self._column = 0
        elif command[0] == "\b":
            self._column = max(0, self._here() - len(command))
        elif command == "G":
            self._spread()
            self._column = min(max(_number(codes or ""), 1) - 1, len(self._chars))
        elif command == "K" and codes in ("", "0") and self._column is not None:
            self._erase(self._here())
        elif command == "K" and codes == "2":
            # A terminal keeps the column; programs that erase a line return to its start anyway.
            self._erase(0)

    def runs(self) -> list[TextRun]:
        if self._chars:
            self._spread()
            self._written = [TextRun(*cell) for cell in zip(self._chars, self._looks, strict=True)]
        pieces = groupby(self._written, lambda run: run.classes)
        joined = [TextRun("".join([run.text for run in group]), look) for look, group in pieces]
        return [run for run in joined if run.text]

    def _here(self) -> int:
        self._spread()
        return len(self._chars) if self._column is None else self._column

    def _erase(self, start: int) -> None:
        self._spread()
        del self._chars[start:], self._looks[start:]
        self._column = start

    def _spread(self) -> None:
        for run in self._written:
            self._chars += run.text
            self._looks += [run.classes] * len(run.text)
        self._written = []


@lru_cache(maxsize=4096)
def _changed(style: _Style, codes: str) -> _Style:
    """The style after ``ESC [ codes m``."""
    if codes.strip("0123456789:;"):
        return style  # a private sequence that also ends in m
    fields = iter(codes.split(";"))
    for field in fields:
        number, *details = field.split(":")
        code = _number(number)
        if code in (38, 48, 58):
            colour = _colour(details) if details else _colour(list(_asked(fields)))
            if colour is not None and code != 58:
                style = style._replace(fg=colour) if code == 38 else style._replace(bg=colour)
        elif field == "4:0":
            style = style._replace(underline=False)
        else:
            style = style._replace(**_CHANGES.get(code, {}))
    return style


def _asked(fields: Iterator[str]) -> Iterator[str]:
    """The parameters of an extended colour."""
    space = next(fields, "")
    yield space
    yield from islice(fields, _COLOUR_VALUES.get(space, 0))


def _colour(details: Sequence[str]) -> int | None:
    """One of sixteen colours, from ``5 n`` or ``2 [space] r g b``; None if invalid."""
    space, *values = details
    count = _COLOUR_VALUES.get(space, 0)
    numbers = [_number(value) for value in values[-count:]]
    if not count or len(numbers) != count or max(numbers) > 255:
        return None
    if space == "5":
        return _indexed(numbers[0])
    red, green, blue = (number >> 4 for number in numbers)
    return _nearest(red * 17, green * 17, blue * 17)


def _indexed(index: int) -> int:
    if index < 16:
        return index
    if index >= 232:
        return _nearest(*[8 + 10 * (index - 232)] * 3)
    index -= 16
    return _nearest(_CUBE[index // 36], _CUBE[index // 6 % 6], _CUBE[index % 6])


@lru_cache(maxsize=8192)
def _nearest(red: int, green: int, blue: int) -> int:
    def distance(index: int) -> int:
        r, g, b = _SIXTEEN[index]
        return (r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2

    return min(range(16), key=distance)


def _number(text: str) -> int:
    """A number in a sequence: empty is 0, too long is out of range."""
    if not text:
        return 0
    return int(text) if text.isdecimal() and len(text) <= 3 else 1000


@lru_cache(maxsize=8192)
def _classes(style: _Style) -> str:
    fg, bg, *attributes = style
    if fg == bg:
        fg = bg = None  # keep text visible if both colours map to the same class
    colours = [f"ansi-{name}-{index}" for name, index in (("fg", fg), ("bg", bg)) if index is not None]
    return " ".join(colours + [f"ansi-{name}" for name, on in zip(("b", "i", "u", "inv"), attributes, strict=True) if on])
