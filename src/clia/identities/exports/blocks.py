"""Managed blocks: the part of somebody else's file that clia writes.

Invariant: every byte outside the agent's own block stays as it is. A file whose markers do not pair up is refused: where
a block ends is never guessed.
"""

from __future__ import annotations

import re

_MARKER = re.compile(rb"<!-- clia:(begin|end) ([a-z0-9]+(?:-[a-z0-9]+)*)(?:: [^\r\n]*)? -->[ \t]*")
_TRACE = re.compile(rb"<!--\s*/?\s*clia:", re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"


class Damaged(Exception):
    """The markers of a file do not pair up; the message says where."""


def with_block(data: bytes, slug: str, body: str) -> bytes:
    """The file with the agent's block in its place; at the end where it had none. ``body`` ends with a newline."""
    begin = f'<!-- clia:begin {slug}: made by "clia agents export", edits inside are lost -->'
    newline = _newline(data)
    block = f"{begin}\n\n{body}\n<!-- clia:end {slug} -->".encode().replace(b"\n", newline)
    found = find_blocks(data).get(slug)
    if found is not None:
        return data[: found[0]] + block + data[found[1] :]
    if data in (b"", _BOM):
        return data + block + newline
    return data + (b"" if data.endswith((b"\n", b"\r")) else newline) + newline + block + newline


def find_blocks(data: bytes) -> dict[str, tuple[int, int]]:
    """Slug -> start and end of its block, both markers in it, the last line's end not; ``Damaged`` where that is unclear."""
    found: dict[str, tuple[int, int]] = {}
    opened: tuple[str, int, int] | None = None
    at = len(_BOM) if data.startswith(_BOM) else 0
    for number, each in enumerate(data[at:].splitlines(keepends=True), 1):
        start, end = at, at + len(each.rstrip(b"\r\n"))
        at += len(each)
        marker = _MARKER.fullmatch(data, start, end)
        if marker is None:
            if _TRACE.search(each):
                raise Damaged(f"line {number} holds part of a clia marker")
            continue
        verb, slug = marker.group(1).decode(), marker.group(2).decode()
        if verb == "begin":
            if opened is not None:
                raise Damaged(f"line {number} begins the block of {slug} inside that of {opened[0]}")
            if slug in found:
                raise Damaged(f"line {number} begins a second block of {slug}")
            opened = (slug, start, number)
        elif opened is None or opened[0] != slug:
            raise Damaged(f"line {number} ends a block of {slug} that is not open there")
        else:
            found[slug] = (opened[1], end)
            opened = None
    if opened is not None:
        raise Damaged(f"the block of {opened[0]} that begins in line {opened[2]} does not end")
    return found


def _newline(data: bytes) -> bytes:
    """How the file's first line ends: so shall ours."""
    first = data.partition(b"\n")[0]
    return b"\r\n" if first.endswith(b"\r") and b"\n" in data else b"\n"
