"""Terminal escape sequences that change colours or erase text.

`grep --color` and `jq -C` print them anywhere, even inside a secret, so secrets are matched on text without them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

from clia.redaction.patterns import TOKEN_HEAD, compiled

ESC = "\x1b"
# SGR, erase (J, K, X) and the character set that `tput sgr0` selects; at the end of the text also an incomplete one.
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;:]{0,64}+(?:[mJKX]|\Z)|\([0AB]|\(?\Z)")
_RUN = re.compile(rf"(?:{_ESCAPE.pattern})+")
_INCOMPLETE = re.compile(r"\x1b(?:\[[0-9;:]{0,64}|\(?)\Z")
_WORD = re.compile("[A-Za-z0-9_-]")
_SHORTEST = f"{ESC}[m"


class ColouredText:
    """A text with escape sequences, and ``plain``, the same text without them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._escapes = [match.span() for match in _ESCAPE.finditer(text)]
        self._remove(self._escapes)

    def _remove(self, removed: list[tuple[int, int]]) -> None:
        parts, at, length = [], 0, 0
        self._places: list[int] = []  # in ``plain``, of what was removed
        self._lengths = [0]  # of all that was removed up to and including each
        for start, end in removed:
            parts.append(self.text[at:start])
            self._places.append(start - length)
            length += end - start
            self._lengths.append(length)
            at = end
        parts.append(self.text[at:])
        self.plain = "".join(parts)

    def with_boundaries(self) -> ColouredText | None:
        """The same text, with an ESC kept in ``plain`` where a token starts at a colour in the middle of a word.

        None if there is no such place.
        """
        head = compiled(TOKEN_HEAD)
        starts = {place for place in self._places if place and _WORD.match(self.plain, place - 1) and head.match(self.plain, place)}
        if not starts:
            return None
        other = ColouredText(self.text)
        removed = zip(self._escapes, self._places, strict=True)
        other._remove([(start + (place in starts), end) for (start, end), place in removed])
        return other

    def span(self, start: int, end: int) -> tuple[int, int]:
        """A span of ``plain`` as a span of ``text``."""
        return self._index(start), self._index(end - 1) + 1

    def _index(self, at: int) -> int:
        return at + self._lengths[bisect_right(self._places, at)]

    def escape_end(self, at: int) -> int:
        """An index in ``text``, moved to the end of the sequence that it is inside of."""
        number = bisect_left(self._escapes, (at, 0))
        return max(at, self._escapes[number - 1][1]) if number else at

    def escapes(self, start: int, end: int) -> str:
        """The sequences, or the parts of them, between two indexes of ``text``."""
        first, last = bisect_left(self._escapes, (start, 0)), bisect_left(self._escapes, (end, 0))
        parts = [self.text[start : self.escape_end(start)]]
        return "".join([*parts, *(self.text[low:high] for low, high in self._escapes[first:last])])


def incomplete_escape(text: str) -> str:
    """The start of an escape sequence that a text ends with, or ""."""
    match = _INCOMPLETE.search(text)
    return match[0] if match else ""


def shortened(text: str, limit: int) -> str:
    """The end of a text, about ``limit`` characters, with every run of escape sequences as short as possible."""
    rest = incomplete_escape(text)
    body = _RUN.sub(_SHORTEST, text[: len(text) - len(rest)])
    return (body[-limit:].removeprefix("[m") if len(body) > limit else body) + rest
