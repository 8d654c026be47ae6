"""Lists in pages.

Invariant: whoever follows the cursors to the end has seen every entry that was there all the time, once. A cursor names the last
entries that were seen; where all of those are gone meanwhile, their place counts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import NamedTuple

from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

SIZE, MOST = 500, 5000
_NAMED = 8
"""How many of the entries that were seen last a cursor names: so many may go at once."""


class PageOf(NamedTuple):
    items: list[Any]
    next: str | None


def page_size(text: str | None) -> int:
    if text is None:
        return SIZE
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    if not 1 <= number <= MOST:
        raise InvalidInput(f"page_size is a number from 1 to {MOST}", code="invalid-field", fields={"field": "page_size"})
    return number


def page_of(items: Sequence[Any], cursor: str | None, size: int) -> PageOf:
    """The entries after a cursor, as JSON values."""
    start = 0 if cursor is None else _start(items, *_read(cursor))
    shown = list(items[start : start + size])
    end = start + len(shown)
    return PageOf(shown, _cursor(end, items[max(0, end - _NAMED) : end]) if end < len(items) else None)


def _start(items: Sequence[Any], place: int, seen: Sequence[str]) -> int:
    """Right after the last of the seen entries that is there still: most often where it was, else nearest to there."""
    if 0 < place <= len(items) and _digest(items[place - 1]) == seen[-1]:
        return place
    found: dict[str, list[int]] = {each: [] for each in seen}
    for index, item in enumerate(items):
        found.get(_digest(item), []).append(index)
    for back, each in enumerate(reversed(seen), 1):
        if found[each]:
            return min(found[each], key=lambda index: abs(index - (place - back))) + 1
    return min(max(place - len(seen), 0), len(items))


def _cursor(place: int, last: Sequence[Any]) -> str:
    text = json.dumps([place, *map(_digest, last)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode("ascii")).decode("ascii").rstrip("=")


def _read(cursor: str) -> tuple[int, list[str]]:
    try:
        place, *seen = json.loads(base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), b"-_", validate=True))
        if type(place) is int and 0 < place < 2**53 and 0 < len(seen) <= _NAMED and all(type(each) is str for each in seen):
            return place, seen
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidInput("this is no cursor of ours", code="invalid-cursor", fields={"field": "cursor"})


def _digest(item: Any) -> str:
    return hashlib.sha256(json.dumps(item, sort_keys=True).encode("ascii")).hexdigest()[:16]
