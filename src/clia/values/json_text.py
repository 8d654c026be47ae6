"""Write JSON files, and edit JSON text in place.

Invariant: every byte outside the added or removed part is unchanged, so that unknown keys, number formats, order, indentation and
line endings survive. The text must have been parsed before, and the path must exist.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Path = Sequence[str | int]


def pretty_bytes(value: Any) -> bytes:
    """The content of a new JSON file."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")


def add(text: str, path: Path, value: Any, key: str | None = None) -> str:
    """Return ``text`` with ``value`` at the end of the container at ``path``: a member named ``key``, or an array item."""
    opening, end = _span(text, path)
    present = list(children(text, opening))
    newline = "\r\n" if "\r\n" in text else "\n"
    name = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    if present:
        first = _element(text, opening, present, 0)
        before, last = text[opening + 1 : first], present[-1].end
        if "\n" not in before:
            return f"{text[:last]}, {name}{json.dumps(value, ensure_ascii=False)}{text[last:]}"
        indent = before.rpartition("\n")[2]
        return f"{text[:last]},{newline}{indent}{name}{_lines(text, value, indent, newline)}{text[last:]}"
    if "\n" not in text.strip(" \t\r\n") and any(children(text, skip_blanks(text, 0))):  # a document on one line
        return f"{text[: opening + 1]}{name}{json.dumps(value, ensure_ascii=False)}{text[end - 1 :]}"
    base = _line_indent(text, opening)
    indent = base + _step(text)
    return f"{text[: opening + 1]}{newline}{indent}{name}{_lines(text, value, indent, newline)}{newline}{base}{text[end - 1 :]}"


def put(text: str, path: Path, value: Any) -> str:
    """Return ``text`` with ``value`` in place of the value at ``path``."""
    start, end = _span(text, path)
    newline = "\r\n" if "\r\n" in text else "\n"
    on_one_line = "\n" not in text[start:end] and "\n" not in text[max(text.rfind("[", 0, start), 0) : start]
    content = json.dumps(value, ensure_ascii=False) if on_one_line else _lines(text, value, _line_indent(text, start), newline)
    return f"{text[:start]}{content}{text[end:]}"


def remove(text: str, path: Path) -> str:
    """Return ``text`` without the member or item at ``path``, its comma and its blanks."""
    *above, last = path
    opening, end = _span(text, above)
    present = list(children(text, opening))
    at = next(index for index, member in enumerate(present) if member.key == str(last))
    if len(present) == 1:
        return text[: opening + 1] + text[end - 1 :]
    if at == 0:
        return text[: _element(text, opening, present, 0)] + text[_element(text, opening, present, 1) :]
    return text[: present[at - 1].end] + text[present[at].end :]


def _span(text: str, path: Path) -> tuple[int, int]:
    """Return where the value at ``path`` starts and ends."""
    start = skip_blanks(text, 0)
    end = len(text.rstrip(" \t\r\n"))
    for step in path:
        start, end = next((child.start, child.end) for child in children(text, start) if child.key == str(step))
    return start, end


def _element(text: str, opening: int, present: Sequence[JsonChild], index: int) -> int:
    """Return where an element starts; a member starts with its name."""
    if index == 0:
        return skip_blanks(text, opening + 1)
    return skip_blanks(text, skip_blanks(text, present[index - 1].end) + 1)  # over the comma


def _lines(text: str, value: Any, indent: str, newline: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=_step(text)).replace("\n", f"{newline}{indent}")


def _step(text: str) -> str:
    """Return the indentation of a level, taken from the first member of the document."""
    opening = skip_blanks(text, 0)
    before = text[opening + 1 : skip_blanks(text, opening + 1)]
    return before.rpartition("\n")[2] if "\n" in before and any(children(text, opening)) else "  "


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class JsonChild(NamedTuple):
    """A member of an object or item of an array, and where its value starts and ends."""

    key: str  # of an item: its index, as in a JSON pointer
    start: int
    end: int


def skip_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def children(text: str, at: int) -> Iterator[JsonChild]:
    """Yield the children of the container at ``at``; nothing for a scalar."""
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
        yield JsonChild(key, at, end)
        at = skip_blanks(text, end)
        at = skip_blanks(text, at + 1) if text[at] == "," else at
        index += 1


def append_to_array(text: str, key: str, items: Sequence[Any]) -> str:
    """Return ``text``, a JSON object, with ``items`` added at the end of its array ``key``.

    A missing or null array is created. Any other value must have been refused before.
    """
    opening = text.index("{")
    members = {member.key: member for member in children(text, opening)}
    newline = "\r\n" if "\r\n" in text else "\n"
    array = members.get(key)
    if array is not None and text[array.start] == "[":
        return _extend(text, array, items, newline)
    indent = (_line_indent(text, next(iter(members.values())).start) if members else "") or "  "
    new_array = f"[{newline}{_item_lines(items, indent + indent, newline)}{newline}{indent}]"
    if array is not None:
        return text[: array.start] + new_array + text[array.end :]
    member = f"{newline}{indent}{json.dumps(key)}: {new_array}"
    if members:
        last = list(members.values())[-1].end
        return f"{text[:last]},{member}{text[last:]}"
    return f"{text[: opening + 1]}{member}{newline}{text[skip_blanks(text, opening + 1) :]}"


def _extend(text: str, array: JsonChild, items: Sequence[Any], newline: str) -> str:
    present = list(children(text, array.start))
    if not present:
        base = _line_indent(text, array.start)
        body = f"{newline}{_item_lines(items, base + (base or '  '), newline)}{newline}{base}"
        return f"{text[: array.start + 1]}{body}{text[array.end - 1 :]}"
    before_first = text[array.start + 1 : present[0].start]
    if "\n" not in before_first:
        added = "".join(f", {json.dumps(item, ensure_ascii=False)}" for item in items)
    else:
        added = f",{newline}{_item_lines(items, before_first.rpartition(chr(10))[2], newline)}"
    return text[: present[-1].end] + added + text[present[-1].end :]


def _item_lines(items: Sequence[Any], indent: str, newline: str) -> str:
    """Return the items below each other, with each line indented."""
    step = "\t" if indent.startswith("\t") else "  "
    shown = (json.dumps(item, ensure_ascii=False, indent=step) for item in items)
    return f",{newline}".join(newline.join(indent + line for line in text.split("\n")) for text in shown)
