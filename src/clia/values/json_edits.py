"""Adding to and removing from JSON text, at any place in it.

Invariant: every byte outside the one part that is added or removed stays as it was, so that other people's keys, spellings,
order, indentation and line endings survive. Only for texts that have been parsed before: the path must be there.
"""

from __future__ import annotations

import json

from clia.values.json_spans import children, skip_blanks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.values.json_spans import Child

    Path = Sequence[str | int]


def add(text: str, path: Path, value: Any, key: str | None = None) -> str:
    """``text`` with ``value`` at the end of the container at ``path``: a member named ``key``, or an item of an array."""
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
    if _on_one_line(text):
        return f"{text[: opening + 1]}{name}{json.dumps(value, ensure_ascii=False)}{text[end - 1 :]}"
    base = _line_indent(text, opening)
    indent = base + _step(text)
    made = f"{newline}{indent}{name}{_lines(text, value, indent, newline)}{newline}{base}"
    return f"{text[: opening + 1]}{made}{text[end - 1 :]}"


def remove(text: str, path: Path) -> str:
    """``text`` without the member or item at ``path``, and without the comma and the blanks that belonged to it."""
    *above, last = path
    opening, end = _span(text, above)
    present = list(children(text, opening))
    at = next(index for index, each in enumerate(present) if each.key == str(last))
    if len(present) == 1:
        return text[: opening + 1] + text[end - 1 :]
    if at == 0:
        return text[: _element(text, opening, present, 0)] + text[_element(text, opening, present, 1) :]
    return text[: present[at - 1].end] + text[present[at].end :]


def _span(text: str, path: Path) -> tuple[int, int]:
    """Where the value at ``path`` starts and ends."""
    start = skip_blanks(text, 0)
    end = len(text.rstrip(" \t\r\n"))
    for step in path:
        found = next(each for each in children(text, start) if each.key == str(step))
        start, end = found.start, found.end
    return start, end


def _element(text: str, opening: int, present: Sequence[Child], index: int) -> int:
    """Where an element starts: a member with its name, which stands before its value."""
    if index == 0:
        return skip_blanks(text, opening + 1)
    return skip_blanks(text, skip_blanks(text, present[index - 1].end) + 1)  # over the comma


def _lines(text: str, value: Any, indent: str, newline: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=_step(text)).replace("\n", f"{newline}{indent}")


def _on_one_line(text: str) -> bool:
    return "\n" not in text.strip(" \t\r\n") and bool(list(children(text, skip_blanks(text, 0))))


def _step(text: str) -> str:
    """What a level is indented by: as the first member of the document is."""
    opening = skip_blanks(text, 0)
    before = text[opening + 1 : skip_blanks(text, opening + 1)]
    empty = not list(children(text, opening))
    return before.rpartition("\n")[2] if "\n" in before and not empty else "  "


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
