"""The entries of a console trace, as records that a template shows.

Invariant: any entry can be shown, also one that another program wrote wrongly; one entry costs a bounded part of a page, and
what is left out is counted. An entry that ``hits`` names says so in its view.
"""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from clia.errors import InvalidInput
from clia.forge.rendering import ansi, jsons
from clia.forge.rendering.texts import Marker, Run, one_line, text_of, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

LONG_LINES, LONG_CHARACTERS = 20, 2000
SHOWN_MAX = 20_000  # characters of an entry on a page with others
_LONG_LINE = 400
_HEAD_MAX = 160
_EMPTY = Markup("")


class EntryView(NamedTuple):
    """What a page shows of one entry. Everything that is no ``Markup`` is foreign text or a number."""

    number: int
    kind: str
    at: str
    head: Markup  # the first line that says something
    lines: int
    long: bool  # to be folded
    body: Markup  # for an element that keeps blanks and lines; longer lines are in a ``long-line``
    data: Markup | None
    redacted: int  # secrets that were taken out
    cut: int  # characters that it had before it was cut at recording; 0: it is whole
    rest: int  # characters that are recorded but not in ``body``
    hit: bool


class Window(NamedTuple):
    """The entries ``[first:last]`` of a trace, and where the neighbours start."""

    first: int
    last: int
    previous: int | None
    next: int | None


class _Entry(NamedTuple):
    """An entry as it should be."""

    text: str
    kind: str = ""
    at: str = ""
    data: Any = None
    redacted: int = 0
    cut: int = 0


def view(entries: Iterable[Any], start: int = 0, *, find: str = "", whole: bool = False) -> list[EntryView]:
    """The entries of one window, the first of which has the number ``start``; ``whole`` leaves nothing of them out."""
    marker = Marker(find)
    return [_view(number, _read(entry), marker, whole=whole) for number, entry in enumerate(entries, start)]


def _view(number: int, entry: _Entry, marker: Marker, *, whole: bool) -> EntryView:
    shown = entry.text if whole else _start(entry.text)
    lines = ansi.lines(shown)
    texts = [text_of(line) for line in lines]
    head = next((text for text in texts if text.strip()), "").strip()
    cut = f"{head[:_HEAD_MAX]}…" if len(head) > _HEAD_MAX else head
    return EntryView(
        number=number,
        kind=one_line(entry.kind),
        at=one_line(entry.at),
        head=marker.line([Run(cut)]),
        lines=len(lines),
        long=len(lines) > LONG_LINES or sum(map(len, texts)) > LONG_CHARACTERS,
        body=Markup("\n").join([_line(line, text, marker) for line, text in zip(lines, texts, strict=True)]),
        data=None if entry.data is None else jsons.marked(entry.data, marker),
        redacted=entry.redacted,
        cut=entry.cut,
        rest=len(entry.text) - len(shown),
        hit=_holds(entry, marker),
    )


def _start(text: str) -> str:
    """What a page shows of a text: whole lines, where they are not too long for that."""
    if len(text) <= SHOWN_MAX:
        return text
    end = text.rfind("\n", SHOWN_MAX // 2, SHOWN_MAX)
    return text[: end if end > 0 else SHOWN_MAX]


def _line(runs: Sequence[Run], text: str, marker: Marker) -> Markup:
    made = marker.line(runs)
    return Markup('<span class="long-line">{}</span>').format(made) if len(text) > _LONG_LINE else made


def _read(entry: Any) -> _Entry:
    """Notes can be written by any program: what is not of its kind is shown as JSON."""
    if not isinstance(entry, dict):
        return _Entry(jsons.plain(entry))
    text, kind, at = (_text(entry.get(name)) for name in ("text", "kind", "at"))
    return _Entry(text, kind, at, entry.get("data"), _count(entry.get("redacted")), _count(entry.get("cut")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else jsons.plain(value)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def window(count: int, at: int, size: int = 200) -> Window:
    """The window of a trace of ``count`` entries that the entry ``at`` is in; the nearest where there is no such entry."""
    if size < 1:
        raise InvalidInput(f"a window has at least one entry, not {size}", code="invalid-size", fields={"size": size})
    inside = min(max(at, 0), max(count - 1, 0))
    first = inside - inside % size
    last = min(first + size, count)
    return Window(first, last, first - size if first else None, last if last < count else None)


def hits(entries: Iterable[Any], text: str) -> list[int]:
    """The numbers of the entries whose text, as it is shown, or data holds a text; capital or small letters are the same."""
    marker = Marker(text)
    return [number for number, entry in enumerate(entries) if _holds(_read(entry), marker)]


def _holds(entry: _Entry, marker: Marker) -> bool:
    if marker.holds(ansi.plain(entry.text)):
        return True
    return entry.data is not None and marker.holds(visible(jsons.plain(entry.data)))


def mark_hits(text: str, find: str) -> Markup:
    """A text of one or more lines, not of a terminal, with what a person looks for marked."""
    marker = Marker(find)
    return Markup("\n").join([marker.line([Run(line)]) for line in text.split("\n")])
