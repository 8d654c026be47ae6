"""Foreign text and times as HTML.

Invariant: every control, bidirectional or invisible character and lone surrogate is replaced by one visible character, so that
positions in the text and in the output agree. Marks are applied before escaping, never to markup. Times depend only on the
arguments; an invalid time is shown as text.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from markupsafe import Markup, escape

from clia.redaction.secrets import MARK
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Moment = datetime | str | float  # a string in ISO 8601, a number of seconds since 1970

# Controls except tab and line feed, default-ignorable and bidirectional characters, surrogates (which have no UTF-8).
# The zero-width joiner and the first sixteen variation selectors stay, because emoji use them.
_HIDDEN = (
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5)),
    *((0x180B, 0x180F), (0x200B, 0x200C), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0xD800, 0xDFFF), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
    (0xE0000, 0xE0FFF),
)
# Several at once, to need fewer tags for binary output.
_HIDDEN_FEW = re.compile(f"[{''.join(f'{re.escape(chr(first))}-{re.escape(chr(last))}' for first, last in _HIDDEN)}]{{1,16}}")
# Unicode control pictures, and a generic substitute.
_STAND_INS = {
    code: 0x2400 + code if code < 0x20 else 0x2421 if code == 0x7F else 0x2426
    for first, last in _HIDDEN
    for code in range(first, last + 1)
}
_REDACTED = re.compile(re.escape(MARK.format(kind="KIND")).replace("KIND", "([a-z0-9-]{1,64})"))
_EMPTY, _HIT = Markup(""), Markup('<mark class="hit">')


class TextRun(NamedTuple):
    """Foreign text in one style."""

    text: str
    classes: str = ""  # trusted
    marks: tuple[Markup, ...] = ()  # opening <mark> tags, outermost first


class Spot(NamedTuple):
    """A range in a text and its opening <mark> tag."""

    start: int
    end: int
    mark: Markup


def visible(text: str) -> str:
    """The text with invisible characters replaced, one for one."""
    return text if _is_simple(text) else text.translate(_STAND_INS)


def one_line(text: str) -> str:
    """A name or path on one line."""
    return visible(text).replace("\n", "\u240a").replace("\t", "\u2409")


def _is_simple(text: str) -> bool:
    return text.isascii() and text.isprintable()  # fast path for most text


def escaped(text: str) -> Markup:
    """Foreign text without style or marks."""
    return html([TextRun(text)])


def html(runs: Iterable[TextRun]) -> Markup:
    parts: list[str] = []
    for text, classes, marks in runs:
        markup = escape(text)  # leaves invisible characters as they are
        shown = markup if _is_simple(text) else _HIDDEN_FEW.sub(lambda match: _control(match[0]), markup)
        if classes or marks:
            parts += (_span(classes) if classes else "", *marks, shown, "</mark>" * len(marks), "</span>" if classes else "")
        else:
            parts.append(shown)
    return Markup("".join(parts))  # noqa: S704 - each part is escaped or trusted; Markup.join would escape again


@lru_cache(maxsize=4096)
def _control(chars: str) -> str:
    codes = " ".join(f"U+{ord(char):04X}" for char in chars)
    return f'<span class="ctl" title="{codes}">{visible(chars)}</span>'


@lru_cache(maxsize=8192)
def _span(classes: str) -> Markup:
    return Markup('<span class="{}">').format(classes)


def text_of(runs: Iterable[TextRun]) -> str:
    """The visible text of the runs."""
    return visible("".join([run.text for run in runs]))


def marked(runs: Sequence[TextRun], spots: Sequence[Spot]) -> list[TextRun]:
    """Split runs at the edges of spots, which are sorted and do not overlap."""
    if not spots:
        return list(runs)
    pieces: list[TextRun] = []
    start, index = 0, 0
    for run in runs:
        position, end = start, start + len(run.text)
        while position < end:
            while index < len(spots) and spots[index].end <= position:
                index += 1
            spot = spots[index] if index < len(spots) and spots[index].start < end else Spot(end, end, _EMPTY)
            inside = spot.start <= position
            until = min(spot.end, end) if inside else spot.start
            marks = (*run.marks, spot.mark) if inside else run.marks
            pieces.append(TextRun(run.text[position - start : until - start], run.classes, marks))
            position = until
        start = end
    return pieces


def redactions(text: str) -> list[Spot]:
    """The spots of redacted secrets."""
    return [Spot(*match.span(), _redaction(match[1])) for match in _REDACTED.finditer(text)]


@lru_cache(maxsize=256)
def _redaction(kind: str) -> Markup:
    return Markup('<mark class="redacted" title="redacted secret: {}">').format(kind)


def folded(text: str) -> str:
    """Case-folded text of the same length."""
    # Keep the length: dotted capital I would become two characters; final sigma depends on context.
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


def needle(find: str) -> str:
    """A search text, normalized like the text that it is searched in; matches stay within a line."""
    return folded(visible(find.replace("\n", " ")))


class Marker:
    """Renders lines with redactions and a limited number of search matches marked."""

    def __init__(self, find: str = "", most: int = 5000) -> None:
        self._needle = needle(find)
        self._left = most

    def holds(self, text: str) -> bool:
        """Whether a visible text contains the search text."""
        return bool(self._needle) and self._needle in folded(text)

    def line(self, runs: Sequence[TextRun]) -> Markup:
        text = text_of(runs)
        return html(marked(marked(runs, redactions(text)), self._found(text)))

    def _found(self, text: str) -> list[Spot]:
        spots: list[Spot] = []
        if self._left > 0 and self.holds(text):
            within, at = folded(text), 0
            while len(spots) < self._left and (at := within.find(self._needle, at)) >= 0:
                spots.append(Spot(at, at + len(self._needle), _HIT))
                at += len(self._needle)
            self._left -= len(spots)
        return spots


_UNITS = ((365 * 86400, "y"), (30 * 86400, "mo"), (86400, "d"), (3600, "h"), (60, "min"))


def ago(then: Moment, now: Moment) -> str:
    """The time between two moments in its largest unit: ``3 min``, ``2 d``; "" if one is invalid."""
    start, end = moment(then), moment(now)
    if start is None or end is None:
        return ""
    seconds = int((end - start).total_seconds())
    size, unit = next((unit for unit in _UNITS if abs(seconds) >= unit[0]), (1, "s"))
    return f"{'in ' if seconds < 0 else ''}{abs(seconds) // size} {unit}"


def stamp(when: Moment, now: Moment | None = None) -> Markup:
    """A ``<time>`` element in UTC; with ``now``, relative, with the exact time as its title."""
    time = moment(when)
    if time is None:
        return escaped(str(when))
    exact = timestamp(time)
    shown = f"{exact[:10]} {exact[11:-1]} UTC"
    if now is None:
        return Markup('<time datetime="{}">{}</time>').format(exact, shown)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, shown, ago(time, now))


def moment(when: Moment) -> datetime | None:
    """A time in UTC, which is also the default zone; None if invalid."""
    try:
        if isinstance(when, datetime):
            time = when
        else:
            time = datetime.fromisoformat(when) if isinstance(when, str) else datetime.fromtimestamp(when, UTC)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError, TypeError):
        return None
