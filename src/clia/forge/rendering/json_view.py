"""A JSON value as HTML: indented, coloured, foldable.

Invariant: equal values give equal HTML, regardless of key order. Lines, levels and characters are bounded, and the rest is counted.
The surrounding element must preserve whitespace (``white-space: pre-wrap``).
"""

from __future__ import annotations

import json
from typing import NamedTuple

from markupsafe import Markup

from clia.forge.rendering.texts import Marker, TextRun, html, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FOLD_LINES = 20
_LINES_MAX, _LEVELS_MAX, _CHARACTERS_MAX = 2000, 32, 20_000
_NEW_LINE, _FOLD_END = Markup("\n"), Markup("</details>")
_FOLD, _FOLD_OPEN = Markup('<details class="json-fold"><summary>'), Markup('<details class="json-fold" open><summary>')
_SUMMARY_END = Markup("</summary>")


class _Block(NamedTuple):
    """Complete lines."""

    parts: list[Markup]
    lines: int
    hit: bool


def to_html(value: Any, find: str = "") -> Markup:
    """Render a value; long containers are folded unless they are the root or contain a match."""
    return marked(value, Marker(find))


def marked(value: Any, marker: Marker) -> Markup:
    """Render a value with a shared marker."""
    block = _JsonWriter(marker).value(value, 0, [], "")
    return Markup('<div class="json">{}</div>').format(Markup("").join(block.parts))


def plain(value: Any) -> str:
    """The value on one line, for search."""
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (ValueError, RecursionError, TypeError):
        return ""


class _JsonWriter:
    """Writes lines within a limit."""

    def __init__(self, marker: Marker) -> None:
        self._marker = marker
        self._left = _LINES_MAX

    def value(self, value: Any, level: int, before: list[TextRun], after: str) -> _Block:
        """A value with its key and trailing comma."""
        if value and isinstance(value, (dict, list, tuple)):
            if level >= _LEVELS_MAX:
                return self._line(level, [*before, *_scalar(plain(value) or "…", "json-deep"), TextRun(after)])
            return self._container(value, level, before, after)
        kind = "string" if isinstance(value, str) else "number" if type(value) in (int, float) else "word"
        kind = "mark" if isinstance(value, (dict, list, tuple)) else kind  # an empty container
        return self._line(level, [*before, *_scalar(plain(value), f"json-{kind}"), TextRun(after)])

    def _container(self, value: Any, level: int, before: list[TextRun], after: str) -> _Block:
        start, end, name = ("{", "}", "key") if isinstance(value, dict) else ("[", "]", "item")
        count = f" {len(value):,} {name}{'' if len(value) == 1 else 's'}"
        head = self._line(level, [*before, TextRun(start, "json-mark")])
        inside = self._members(value, level + 1)
        tail = self._line(level, [TextRun(end, "json-mark"), TextRun(after)])
        lines, hit = head.lines + inside.lines + tail.lines, head.hit or inside.hit
        if lines <= FOLD_LINES:
            return _Block([*head.parts, *inside.parts, *tail.parts], lines, hit)
        fold = _FOLD_OPEN if level == 0 or inside.hit else _FOLD
        summary = [head.parts[0], html([TextRun(count, "json-count")]), _SUMMARY_END]
        return _Block([fold, *summary, *inside.parts, *tail.parts[:-1], _FOLD_END], lines, hit)

    def _members(self, value: Any, level: int) -> _Block:
        parts: list[Markup] = []
        lines, hit = 0, False
        is_dict = isinstance(value, dict)
        named = sorted(value.items(), key=lambda item: str(item[0])) if is_dict else [(None, item) for item in value]
        for index, (key, item) in enumerate(named):
            over = self._left <= 0
            if over:
                block = self._line(level, [TextRun(f"… {len(named) - index:,} more", "json-count")])
            else:
                before = [] if key is None else [*_scalar(plain(str(key)), "json-key"), TextRun(": ")]
                block = self.value(item, level, before, "," if index + 1 < len(named) else "")
            parts += block.parts
            lines, hit = lines + block.lines, hit or block.hit
            if over:
                break
        return _Block(parts, lines, hit)

    def _line(self, level: int, runs: Sequence[TextRun]) -> _Block:
        self._left -= 1
        runs = [TextRun("  " * level), *runs]
        return _Block([self._marker.line(runs), _NEW_LINE], 1, self._marker.holds(text_of(runs)))


def _scalar(text: str, classes: str) -> list[TextRun]:
    rest = len(text) - _CHARACTERS_MAX
    if rest <= 0:
        return [TextRun(text, classes)]
    return [TextRun(text[:_CHARACTERS_MAX], classes), TextRun(f" … {rest:,} more characters", "json-count")]
