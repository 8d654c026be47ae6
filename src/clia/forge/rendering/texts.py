"""Foreign text as HTML: escaped, controls visible, some of it marked.

Invariant: what a reader sees is what the text holds. Each character that would act or hide (controls, bidirectional and
invisible ones, lone surrogates) is shown by one character of ours, so that places in the text and in what is shown agree.
Marks are put on the text before it is escaped, never on markup.


Moments for people: how long ago, and when exactly.

Invariant: what is shown depends on the arguments alone; now is passed in. What is no moment is shown as the text it is.
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

# Controls but tab and line feed; what Unicode lets a renderer leave out or turn around; surrogates, which have no UTF-8.
# The zero-width joiner and the first sixteen variation selectors stay: emoji are made with them.
_HIDDEN = (
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5)),
    *((0x180B, 0x180F), (0x200B, 0x200C), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0xD800, 0xDFFF), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
    (0xE0000, 0xE0FFF),
)
# Some at once: fewer tags where a binary file was printed.
_HIDDEN_FEW = re.compile(f"[{''.join(f'{re.escape(chr(first))}-{re.escape(chr(last))}' for first, last in _HIDDEN)}]{{1,16}}")
# Unicode has a picture for each of the old controls, and one for what has none.
_STAND_INS = {
    code: 0x2400 + code if code < 0x20 else 0x2421 if code == 0x7F else 0x2426
    for first, last in _HIDDEN
    for code in range(first, last + 1)
}
_REDACTED = re.compile(re.escape(MARK.format(kind="KIND")).replace("KIND", "([a-z0-9-]{1,64})"))
_EMPTY, _HIT = Markup(""), Markup('<mark class="hit">')


class Run(NamedTuple):
    """A piece of foreign text that looks the same all over."""

    text: str
    classes: str = ""  # ours
    marks: tuple[Markup, ...] = ()  # opening tags of <mark>, the outermost first


class Spot(NamedTuple):
    """A place in a text, and the opening tag of the <mark> around it."""

    start: int
    end: int
    mark: Markup


def visible(text: str) -> str:
    """The text as it is shown, character for character."""
    return text if _is_simple(text) else text.translate(_STAND_INS)


def one_line(text: str) -> str:
    """A name or a path: no line of it passes for another."""
    return visible(text).replace("\n", "\u240a").replace("\t", "\u2409")


def _is_simple(text: str) -> bool:
    return text.isascii() and text.isprintable()  # by far the most text, and quick to tell


def escaped(text: str) -> Markup:
    """Foreign text that is neither coloured nor marked."""
    return html([Run(text)])


def html(runs: Iterable[Run]) -> Markup:
    parts: list[str] = []
    for text, classes, marks in runs:
        shown = _shown(text)
        if classes or marks:
            parts += (_span(classes) if classes else "", *marks, shown, "</mark>" * len(marks), "</span>" if classes else "")
        else:
            parts.append(shown)
    return Markup("".join(parts))  # noqa: S704 - each part is a tag of ours or escaped; Markup.join would escape it again


def _shown(text: str) -> str:
    made = escape(text)
    return made if _is_simple(text) else _HIDDEN_FEW.sub(lambda match: _control(match[0]), made)  # escaping leaves them alone


@lru_cache(maxsize=4096)
def _control(chars: str) -> str:
    codes = " ".join(f"U+{ord(char):04X}" for char in chars)
    return f'<span class="ctl" title="{codes}">{visible(chars)}</span>'


@lru_cache(maxsize=8192)
def _span(classes: str) -> Markup:
    return Markup('<span class="{}">').format(classes)


def text_of(runs: Iterable[Run]) -> str:
    """What the runs show."""
    return visible("".join([run.text for run in runs]))


def marked(runs: Sequence[Run], spots: Sequence[Spot]) -> list[Run]:
    """The runs, cut where a spot starts or ends. The spots are in order and apart."""
    if not spots:
        return list(runs)
    made: list[Run] = []
    start, index = 0, 0
    for run in runs:
        here, end = start, start + len(run.text)
        while here < end:
            while index < len(spots) and spots[index].end <= here:
                index += 1
            spot = spots[index] if index < len(spots) and spots[index].start < end else Spot(end, end, _EMPTY)
            inside = spot.start <= here
            until = min(spot.end, end) if inside else spot.start
            marks = (*run.marks, spot.mark) if inside else run.marks
            made.append(Run(run.text[here - start : until - start], run.classes, marks))
            here = until
        start = end
    return made


def redactions(text: str) -> list[Spot]:
    """Where a secret was taken out."""
    return [Spot(*match.span(), _redaction(match[1])) for match in _REDACTED.finditer(text)]


@lru_cache(maxsize=256)
def _redaction(kind: str) -> Markup:
    return Markup('<mark class="redacted" title="a secret was taken out: {}">').format(kind)


def folded(text: str) -> str:
    """Without the difference of capital and small letters, character for character."""
    # The capital I with a dot would become two characters, and a sigma depends on what follows it.
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


def needle(find: str) -> str:
    """What a person looks for, as it stands in a text that is visible and folded. It is found within a line."""
    return folded(visible(find.replace("\n", " ")))


class Marker:
    """Makes lines with redactions marked, and what a person looks for: in so many places, for a page with more helps nobody."""

    def __init__(self, find: str = "", most: int = 5000) -> None:
        self._needle = needle(find)
        self._left = most

    def holds(self, text: str) -> bool:
        """Whether a visible text has what is looked for."""
        return bool(self._needle) and self._needle in folded(text)

    def line(self, runs: Sequence[Run]) -> Markup:
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
    """The time between two moments in its largest unit: ``3 min``, ``2 d``; "" where one of them is no moment."""
    start, end = moment(then), moment(now)
    if start is None or end is None:
        return ""
    seconds = int((end - start).total_seconds())
    if seconds < 0:
        return f"in {_duration(-seconds)}"
    return _duration(seconds)


def _duration(seconds: int) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def stamp(when: Moment, now: Moment | None = None) -> Markup:
    """A moment in UTC as a ``<time>``; with ``now``, how long ago it was, and the moment as its title."""
    found = moment(when)
    if found is None:
        return escaped(str(when))
    exact = timestamp(found)
    shown = f"{exact[:10]} {exact[11:-1]} UTC"
    if now is None:
        return Markup('<time datetime="{}">{}</time>').format(exact, shown)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, shown, ago(found, now))


def moment(when: Moment) -> datetime | None:
    """A moment in UTC; a time without a zone is taken for UTC. None where the value says no moment."""
    try:
        if isinstance(when, str):
            made = datetime.fromisoformat(when)
        elif isinstance(when, datetime):
            made = when
        else:
            made = datetime.fromtimestamp(when, UTC)
        return (made if made.tzinfo else made.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError, TypeError):
        return None
