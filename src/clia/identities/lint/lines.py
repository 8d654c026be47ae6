"""Where in a file a JSON pointer points: the line that a person or a forge is shown."""

from __future__ import annotations

from typing import cast

from clia.errors import InvalidInput
from clia.values import documents, pointer
from clia.values.json_spans import children, skip_blanks


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
    at = skip_blanks(text, 0)
    for part in parts:
        child = next((each for each in children(text, at) if each.key == part), None)
        if child is None:
            return at
        at = child.start
    return at
