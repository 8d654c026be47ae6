"""Adding to an array inside JSON text without touching anything else.

Invariant: every byte outside the array stays as it was, so unknown keys, number spellings, indentation and line endings
survive, and a diff shows just what was added.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_BLANK = re.compile(r"[ \t\r\n]*")


class _Span(NamedTuple):
    start: int
    end: int


def append_to_array(text: str, key: str, items: Sequence[Any]) -> str:
    """``text``, a valid JSON object, with ``items`` added at the end of its array ``key``.

    A missing or null array is created. The caller has checked that the value is an array, null or missing.
    """
    members, close = _members(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    span = members.get(key)
    if span is not None and text[span.start] == "[":
        return _extend(text, span, items, newline)
    outer = _indent_of(text, close, members)
    array = f"[{newline}{_lines(items, outer + outer, newline)}{newline}{outer}]"
    if span is not None:
        return text[: span.start] + array + text[span.end :]
    last = max((each.end for each in members.values()), default=None)
    if last is None:
        opening = text.index("{") + 1
        return f"{text[:opening]}{newline}{outer}{json.dumps(key)}: {array}{newline}{text[close:]}"
    return f"{text[:last]},{newline}{outer}{json.dumps(key)}: {array}{text[last:]}"


def _extend(text: str, span: _Span, items: Sequence[Any], newline: str) -> str:
    ends = _item_ends(text, span.start)
    if not ends:
        base = _line_indent(text, span.start)
        indent = base + (base or "  ")
        body = f"{newline}{_lines(items, indent, newline)}{newline}{base}"
        return f"{text[: span.start + 1]}{body}{text[span.end - 1 :]}"
    before_first = text[span.start + 1 : _skip(text, span.start + 1)]
    if "\n" not in before_first:
        added = "".join(f", {json.dumps(item, ensure_ascii=False)}" for item in items)
    else:
        added = f",{newline}{_lines(items, before_first.rpartition(chr(10))[2], newline)}"
    return text[: ends[-1]] + added + text[ends[-1] :]


def _lines(items: Sequence[Any], indent: str, newline: str) -> str:
    """The items, one below the other, each line behind ``indent``."""
    step = "\t" if indent.startswith("\t") else "  "
    shown = (json.dumps(item, ensure_ascii=False, indent=step) for item in items)
    return f",{newline}".join(newline.join(indent + line for line in each.split("\n")) for each in shown)


def _members(text: str) -> tuple[dict[str, _Span], int]:
    """Where each top-level value stands, and where the object closes."""
    decoder = json.JSONDecoder()
    found: dict[str, _Span] = {}
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)  # over the colon
        _, end = decoder.raw_decode(text, at)
        found[key] = _Span(at, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found, at


def _item_ends(text: str, start: int) -> list[int]:
    decoder = json.JSONDecoder()
    ends: list[int] = []
    at = _skip(text, start + 1)
    while text[at] != "]":
        _, end = decoder.raw_decode(text, at)
        ends.append(end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return ends


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _indent_of(text: str, close: int, members: dict[str, _Span]) -> str:
    first = min((each.start for each in members.values()), default=close)
    return (_line_indent(text, first) if members else "") or "  "
