"""Where in a file a JSON pointer points: the line that a person or a forge is shown."""

from __future__ import annotations

import json
import re
from typing import cast

from clia.errors import InvalidInput
from clia.kernel import documents, pointer

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def line_of(data: bytes, path: str, at: str | None) -> int:
    """The line of a pointer, or of what makes the document unreadable; 1 where there is no better answer."""
    try:
        documents.parse(data, path)
        text = documents.decode(data, path)
        return text.count("\n", 0, _offset(text, pointer.split(at or ""))) + 1
    except InvalidInput as error:
        return cast("int", error.fields.get("line") or 1)


def _offset(text: str, parts: list[str]) -> int:
    """Where the value stands, or the innermost part of it that is there (a missing key: its object)."""
    at = _BLANK.match(text, 0).end()  # type: ignore[union-attr]  # it matches the empty string too
    for part in parts:
        child = _child(text, at, part)
        if child is None:
            return at
        at = child
    return at


def _child(text: str, at: int, part: str) -> int | None:
    """Where a child's value starts; only for texts that have been parsed before."""
    if text[at] not in "{[":
        return None
    is_object, index = text[at] == "{", 0
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        name = str(index)
        if is_object:
            name, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)  # over the colon
        if name == part:
            return at
        _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        at = _skip(text, at + 1) if text[at] == "," else at
        index += 1
    return None


def _skip(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string too
