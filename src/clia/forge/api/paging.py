"""Lists in pages.

Invariant: a client that follows the cursors to the end sees every entry that existed all the time, exactly once. A cursor names the
last entries of its page, by digest; if all of them are gone, their position counts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import NamedTuple

from clia.forge.api.reading import invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

SIZE, MOST = 500, 5000
_NAMED = 8
"""Entries that a cursor names: all but one of them may be deleted at once."""


class PageOf(NamedTuple):
    items: list[Any]
    next: str | None


def page_size(text: str | None) -> int:
    if text is None:
        return SIZE
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    if not 1 <= number <= MOST:
        raise invalid("page_size", f"page_size must be a number from 1 to {MOST}")
    return number


def page_of(items: Sequence[Any], cursor: str | None, size: int) -> PageOf:
    """The entries after a cursor, as JSON values."""
    start = 0 if cursor is None else _start(items, *_read(cursor))
    shown = list(items[start : start + size])
    end = start + len(shown)
    return PageOf(shown, _cursor(end, items[max(0, end - _NAMED) : end]) if end < len(items) else None)


def _start(items: Sequence[Any], place: int, named: Sequence[str]) -> int:
    """The index after the last named entry that still exists: usually where it was, else the nearest to there."""
    if 0 < place <= len(items) and _digest(items[place - 1]) == named[-1]:
        return place
    indices: dict[str, list[int]] = {digest: [] for digest in named}
    for index, item in enumerate(items):
        indices.get(_digest(item), []).append(index)
    for back, digest in enumerate(reversed(named), 1):
        if indices[digest]:
            return min(indices[digest], key=lambda index: abs(index - (place - back))) + 1
    return min(max(place - len(named), 0), len(items))


def _cursor(place: int, last: Sequence[Any]) -> str:
    text = json.dumps([place, *map(_digest, last)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode("ascii")).decode("ascii").rstrip("=")


def _read(cursor: str) -> tuple[int, list[str]]:
    try:
        place, *named = json.loads(base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), b"-_", validate=True))
        if type(place) is int and 0 < place < 2**53 and 0 < len(named) <= _NAMED and all(type(digest) is str for digest in named):
            return place, named
    except (ValueError, TypeError, RecursionError):
        pass
    raise invalid("cursor", "invalid cursor", "invalid-cursor")


def _digest(item: Any) -> str:
    return hashlib.sha256(json.dumps(item, sort_keys=True).encode("ascii")).hexdigest()[:16]
