"""The attribution note of a commit: which of its lines agents wrote.

A note is canonical JSON without any text of a file:
``{"files": {PATH: [[START, COUNT, AGENT, COMMIT], …]}, "type": "attribution", "unknown": [PATH, …], "version": 1}``.
Lines count from 1 in the commit's version of the file; COMMIT is the agent's own. Lines that are in no range are people's, except
in files that are ``unknown``. A path that is not UTF-8, or contains ``%``, is percent-encoded.

Invariant: merging two notes of a commit is commutative, associative and idempotent, so clones that exchange notes agree.
"""

from __future__ import annotations

import json
from typing import NamedTuple
from urllib.parse import quote, unquote

from clia.values import refs as names
from clia.values.canonical import canonical_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

ATTRIBUTION_LOCK = "@attribution"
_TYPE, _VERSION = "attribution", 1


class LineAuthor(NamedTuple):
    """The agent that wrote a line, and its commit."""

    agent: str
    commit: str


class CommitAttribution(NamedTuple):
    """The authors of the lines that a commit adds: path, line number from 1, author. People's lines are not listed."""

    files: Mapping[str, Mapping[int, LineAuthor]]
    unknown: frozenset[str] = frozenset()  # paths of files that could not be compared


def quoted(path: str) -> str:
    """Return a path as it is written in JSON."""
    return path if "%" not in path and _is_unicode(path) else quote(path, errors="surrogateescape")


def unquoted(text: str) -> str:
    return unquote(text, errors="surrogateescape") if "%" in text else text


def _is_unicode(path: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in path)


def to_bytes(attribution: CommitAttribution) -> bytes:
    files = {quoted(path): list(_ranges(lines)) for path, lines in attribution.files.items() if lines}
    unknown = sorted(map(quoted, attribution.unknown))
    return canonical_bytes({"type": _TYPE, "version": _VERSION, "files": files, "unknown": unknown})


def _ranges(lines: Mapping[int, LineAuthor]) -> Iterable[list[Any]]:
    """Yield the lines as ranges with one author each."""
    start = end = 0
    author: LineAuthor | None = None
    for line in sorted(lines):
        if author is not None and (line != end or lines[line] != author):
            yield [start, end - start, *author]
            author = None
        if author is None:
            start, author = line, lines[line]
        end = line + 1
    if author is not None:
        yield [start, end - start, *author]


def from_bytes(data: bytes) -> CommitAttribution | None:
    """Read a note; None if it is not valid, or of a later version."""
    try:
        body = json.loads(data)
        if body["type"] != _TYPE or body["version"] != _VERSION:
            return None
        files = {unquoted(path): dict(_lines(ranges)) for path, ranges in body["files"].items()}
        return CommitAttribution(files, frozenset(map(unquoted, body["unknown"])))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _lines(ranges: Any) -> Iterable[tuple[int, LineAuthor]]:
    for start, count, agent, commit in ranges:
        if not names.is_name(agent) or not names.is_id(commit) or not 0 < count <= _LINES_MAX:
            raise ValueError
        author = LineAuthor(agent, commit)
        yield from ((line, author) for line in range(start, start + count))


_LINES_MAX = 10_000_000
"""A longer range is not of a file that is compared; a forged note must not fill the memory."""


def merge(one: CommitAttribution, other: CommitAttribution) -> CommitAttribution:
    """Join two attributions of a commit. An agent's line wins over an unclaimed one; of two agents' commits, the greater id."""
    files: dict[str, dict[int, LineAuthor]] = {path: dict(lines) for path, lines in one.files.items()}
    for path, lines in other.files.items():
        ours = files.setdefault(path, {})
        for line, author in lines.items():
            ours[line] = max(ours.get(line, author), author, key=lambda candidate: (candidate.commit, candidate.agent))
    return CommitAttribution(files, one.unknown & other.unknown)


def merge_notes(one: bytes, other: bytes) -> bytes:
    """Join two notes of a commit. A note that cannot be read yields to one that can."""
    if one == other:
        return one
    first, second = from_bytes(one), from_bytes(other)
    if first is None or second is None:
        return max(one, other) if first is None and second is None else other if first is None else one
    return to_bytes(merge(first, second))
