"""The entries of a trace that explain an edit."""

from __future__ import annotations

import json
import posixpath
from typing import Any, NamedTuple

from clia.provenance.model import FILE, LINE, TRACE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SHOWN_MAX, TEXT_MAX = 5, 300
_DISTINCTIVE = 4
"""A line counts as found in an entry if it has this many characters without indentation."""
_TOLD = ("prompt", "said", "thinking", "note")
"""Kinds of entries that say why, and precede what an agent did."""


class MatchedEntries(NamedTuple):
    """Entries of a trace, by position, and how they match."""

    positions: tuple[int, ...]
    matched: str


def match_entries(entries: Sequence[Mapping[str, Any]], paths: Iterable[str], lines: Iterable[str]) -> MatchedEntries:
    """The entries that explain lines of a file: what wrote them, what was said before, and what was asked for.

    Entries with the text of a line come first, then those that name the file. Without any, the last ones of the trace are shown.
    """
    texts = [_searchable(entry) for entry in entries]
    wanted = [text for line in lines if len(text := line.strip()) >= _DISTINCTIVE]
    named = [path for path in dict.fromkeys(paths) if path]
    names = {*named, *(posixpath.basename(path) for path in named)}
    with_path = [number for number, text in enumerate(texts) if any(name in text for name in names)]
    with_line = [number for number, text in enumerate(texts) if any(line in text for line in wanted)]
    both = [number for number in with_line if number in set(with_path)]
    for chosen, matched in ((both or with_line, LINE), (with_path, FILE)):
        if chosen:
            return MatchedEntries(_with_reasons(entries, chosen), matched)
    return MatchedEntries(tuple(range(max(0, len(entries) - 3), len(entries))), TRACE)


def _with_reasons(entries: Sequence[Mapping[str, Any]], chosen: Sequence[int]) -> tuple[int, ...]:
    """The first and last of the chosen entries, the prompt before them, and what was said just before."""
    positions = {chosen[0], *chosen[-2:]}
    for kinds in (("prompt",), _TOLD[1:]):
        before = (number for number in range(chosen[0] - 1, -1, -1) if entries[number].get("kind") in kinds)
        positions |= set(list(before)[:1])
    return tuple(sorted(positions)[-SHOWN_MAX:])


def shortened(entry: Mapping[str, Any], lines: Iterable[str]) -> dict[str, Any]:
    """An entry with a text that fits a screen, cut around the first of the lines that it contains."""
    text = str(entry.get("text", ""))
    if len(text) <= TEXT_MAX:
        short = text
    else:
        at = max(
            0, min((text.find(line.strip()) for line in lines if line.strip() and line.strip() in text), default=0) - TEXT_MAX // 3
        )
        short = f"{'…' if at else ''}{text[at : at + TEXT_MAX]}{'…' if at + TEXT_MAX < len(text) else ''}"
    fields = {key: value for key, value in entry.items() if key in ("at", "kind", "cut", "redacted")}
    return {**fields, "text": short}


def _searchable(entry: Mapping[str, Any]) -> str:
    data = entry.get("data")
    text = str(entry.get("text", ""))
    return text if data is None else f"{text}\n{_plain(data)}"


def _plain(data: Any) -> str:
    """The texts in the data of an entry, unescaped."""
    if isinstance(data, str):
        return data
    if isinstance(data, dict):
        return "\n".join(map(_plain, data.values()))
    if isinstance(data, list):
        return "\n".join(map(_plain, data))
    return json.dumps(data)
