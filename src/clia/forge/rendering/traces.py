"""Trace entries as records for templates.

Invariant: every entry can be shown, even a malformed one. Each takes a bounded part of a page, and omitted text is counted. The
entries that ``hits`` returns are marked in their views.
"""

from __future__ import annotations

from typing import NamedTuple

from markupsafe import Markup

from clia.errors import InvalidInput
from clia.forge.rendering import ansi, json_view
from clia.forge.rendering.texts import Marker, TextRun, one_line, text_of, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

LONG_LINES, LONG_CHARACTERS = 20, 2000
SHOWN_MAX = 20_000  # maximum characters of an entry in a list
_LONG_LINE = 400
_HEAD_MAX = 160


class EntryView(NamedTuple):
    """One entry for a page. Everything but ``Markup`` is foreign text or a number."""

    number: int
    kind: str
    at: str
    head: Markup  # first non-empty line
    lines: int
    long: bool  # collapsed by default
    body: Markup  # preformatted; long lines are in a ``long-line`` span
    data: Markup | None
    redacted: int  # number of redacted secrets
    cut: int  # original length if truncated when recorded, else 0
    rest: int  # recorded characters not in ``body``
    hit: bool


class TraceWindow(NamedTuple):
    """The entries ``[first:last]`` of a trace, and the start of the neighbouring windows."""

    first: int
    last: int
    previous: int | None
    next: int | None


class _Entry(NamedTuple):
    """A normalized entry."""

    text: str
    kind: str = ""
    at: str = ""
    data: Any = None
    redacted: int = 0
    cut: int = 0


def view(entries: Iterable[Any], start: int = 0, *, find: str = "", complete: bool = False) -> list[EntryView]:
    """Views of the entries of a window; ``start`` is the number of the first; ``complete`` shows full texts."""
    marker = Marker(find)
    return [_view(number, _read(entry), marker, complete=complete) for number, entry in enumerate(entries, start)]


def _view(number: int, entry: _Entry, marker: Marker, *, complete: bool) -> EntryView:
    shown = entry.text if complete else _start(entry.text)
    lines = ansi.lines(shown)
    texts = [text_of(line) for line in lines]
    head = next((text for text in texts if text.strip()), "").strip()
    cut = f"{head[:_HEAD_MAX]}…" if len(head) > _HEAD_MAX else head
    return EntryView(
        number=number,
        kind=one_line(entry.kind),
        at=one_line(entry.at),
        head=marker.line([TextRun(cut)]),
        lines=len(lines),
        long=len(lines) > LONG_LINES or sum(map(len, texts)) > LONG_CHARACTERS,
        body=Markup("\n").join([_line(line, text, marker) for line, text in zip(lines, texts, strict=True)]),
        data=None if entry.data is None else json_view.marked(entry.data, marker),
        redacted=entry.redacted,
        cut=entry.cut,
        rest=len(entry.text) - len(shown),
        hit=_holds(entry, marker),
    )


def _start(text: str) -> str:
    """The start of a text, cut at a line end if possible."""
    if len(text) <= SHOWN_MAX:
        return text
    end = text.rfind("\n", SHOWN_MAX // 2, SHOWN_MAX)
    return text[: end if end > 0 else SHOWN_MAX]


def _line(runs: Sequence[TextRun], text: str, marker: Marker) -> Markup:
    markup = marker.line(runs)
    return Markup('<span class="long-line">{}</span>').format(markup) if len(text) > _LONG_LINE else markup


def _read(entry: Any) -> _Entry:
    """Normalize an entry; any program can write notes, so malformed values become JSON."""
    if not isinstance(entry, dict):
        return _Entry(json_view.plain(entry))
    values = [entry.get(name) for name in ("text", "kind", "at")]
    text, kind, at = (value if isinstance(value, str) else "" if value is None else json_view.plain(value) for value in values)
    return _Entry(text, kind, at, entry.get("data"), _count(entry.get("redacted")), _count(entry.get("cut")))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def window(count: int, at: int, size: int = 200) -> TraceWindow:
    """The window of a trace with ``count`` entries that contains entry ``at``, or the nearest one."""
    if size < 1:
        raise InvalidInput(f"the window size must be at least 1, not {size}", code="invalid-size", fields={"size": size})
    inside = min(max(at, 0), max(count - 1, 0))
    first = inside - inside % size
    last = min(first + size, count)
    return TraceWindow(first, last, first - size if first else None, last if last < count else None)


def hits(entries: Iterable[Any], text: str) -> list[int]:
    """The numbers of the entries whose visible text or data contains a text, ignoring case."""
    marker = Marker(text)
    return [number for number, entry in enumerate(entries) if _holds(_read(entry), marker)]


def _holds(entry: _Entry, marker: Marker) -> bool:
    if marker.holds(ansi.plain(entry.text)):
        return True
    return entry.data is not None and marker.holds(visible(json_view.plain(entry.data)))
