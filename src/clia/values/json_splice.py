"""Adding to an array inside JSON text without touching anything else.

Invariant: every byte outside the array stays as it was, so unknown keys, number spellings, indentation and line endings
survive, and a diff shows just what was added.
"""

from __future__ import annotations

import json

from clia.values.json_spans import children, skip_blanks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.values.json_spans import Child


def append_to_array(text: str, key: str, items: Sequence[Any]) -> str:
    """``text``, a valid JSON object, with ``items`` added at the end of its array ``key``.

    A missing or null array is created. The caller has checked that the value is an array, null or missing.
    """
    opening = text.index("{")
    members = {each.key: each for each in children(text, opening)}
    newline = "\r\n" if "\r\n" in text else "\n"
    array = members.get(key)
    if array is not None and text[array.start] == "[":
        return _extend(text, array, items, newline)
    indent = (_line_indent(text, next(iter(members.values())).start) if members else "") or "  "
    made = f"[{newline}{_lines(items, indent + indent, newline)}{newline}{indent}]"
    if array is not None:
        return text[: array.start] + made + text[array.end :]
    member = f"{newline}{indent}{json.dumps(key)}: {made}"
    if members:
        last = list(members.values())[-1].end
        return f"{text[:last]},{member}{text[last:]}"
    return f"{text[: opening + 1]}{member}{newline}{text[skip_blanks(text, opening + 1) :]}"


def _extend(text: str, array: Child, items: Sequence[Any], newline: str) -> str:
    present = list(children(text, array.start))
    if not present:
        base = _line_indent(text, array.start)
        body = f"{newline}{_lines(items, base + (base or '  '), newline)}{newline}{base}"
        return f"{text[: array.start + 1]}{body}{text[array.end - 1 :]}"
    before_first = text[array.start + 1 : present[0].start]
    if "\n" not in before_first:
        added = "".join(f", {json.dumps(item, ensure_ascii=False)}" for item in items)
    else:
        added = f",{newline}{_lines(items, before_first.rpartition(chr(10))[2], newline)}"
    return text[: present[-1].end] + added + text[present[-1].end :]


def _lines(items: Sequence[Any], indent: str, newline: str) -> str:
    """The items, one below the other, each line behind ``indent``."""
    step = "\t" if indent.startswith("\t") else "  "
    shown = (json.dumps(item, ensure_ascii=False, indent=step) for item in items)
    return f",{newline}".join(newline.join(indent + line for line in each.split("\n")) for each in shown)


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]
