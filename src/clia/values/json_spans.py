"""Where the parts of a JSON text stand. Only for texts that have been parsed before."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class Child(NamedTuple):
    """One member of an object or item of an array, and where its value starts and ends."""

    key: str  # an item's position, as a pointer says it
    start: int
    end: int


def skip_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def children(text: str, at: int) -> Iterator[Child]:
    """The children of the container that opens at ``at``; nothing where a scalar stands there."""
    if text[at] not in "{[":
        return
    is_object, index = text[at] == "{", 0
    at = skip_blanks(text, at + 1)
    while text[at] not in "}]":
        key = str(index)
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = skip_blanks(text, skip_blanks(text, at) + 1)  # over the colon
        _, end = _DECODER.raw_decode(text, at)
        yield Child(key, at, end)
        at = skip_blanks(text, end)
        at = skip_blanks(text, at + 1) if text[at] == "," else at
        index += 1
