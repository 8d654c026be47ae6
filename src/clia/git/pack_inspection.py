"""How much there is in packs that arrived, once it is unpacked.

Invariant: only headers of objects and trees are read; whatever a pack holds, looking at it takes time in proportion to what is
in it, not to what it would become. A small pack can hold a file of zeros without end, or ten folders that are one folder, ten
levels deep: that is ten thousand million paths.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pygit2

    from clia.git.transport_records import Limits

SUM = 64
"""All objects together may be so many times the limit: histories are stored as differences, and unpack to many times their size."""
STRUCTURE_MAX = 64 * 1024 * 1024
"""Commits, trees and tags are read whole, by git and by us."""
PATHS_MAX = 1_000_000
DEPTH_MAX = 2048
"""No longer path can be written to a disk."""
_LARGE = 65536  # smaller files cannot make a tree large, with so few paths
_ENTRY = re.compile(rb"([0-7]+) [^\0]+\0(.{20})", re.DOTALL)
_COMMIT, _TREE, _BLOB = 1, 2, 3


class _Tree(NamedTuple):
    """What a tree becomes when it is written out."""

    paths: int
    depth: int
    size: int  # of its large files that arrived


def oversized(repo: pygit2.Repository, indexes: Iterable[str], limits: Limits) -> str | None:
    """What is too much in the packs of these indexes; None where nothing is."""
    import pygit2

    total = 0
    trees: list[bytes] = []
    large: dict[bytes, int] = {}
    for raw in _names(indexes):
        kind, size = (int(each) for each in repo.odb.read_header(pygit2.Oid(raw=raw)))
        total += size
        if size > (limits.bytes if kind == _BLOB else STRUCTURE_MAX):
            return f"the object {raw.hex()} is of {size} bytes"
        if total > SUM * limits.bytes:
            return f"its objects are of more than {SUM * limits.bytes} bytes"
        if kind == _TREE:
            trees.append(raw)
        elif kind == _BLOB and size > _LARGE:
            large[raw] = size
    return _oversized_tree(repo, trees, large, SUM * limits.bytes)


def kind_of(repo: pygit2.Repository, cid: str) -> int | None:
    """The kind of an object, without reading it: it may be large."""
    import pygit2

    try:
        return int(repo.odb.read_header(pygit2.Oid(hex=cid))[0])
    except (KeyError, ValueError):
        return None


def is_commit(repo: pygit2.Repository, cid: str) -> bool:
    return kind_of(repo, cid) == _COMMIT


def _names(indexes: Iterable[str]) -> Iterator[bytes]:
    """The ids in indexes of packs, in git's second format: a heading, 256 counts, then the names."""
    for path in indexes:
        with open(path, "rb") as file:
            count = int.from_bytes(file.read(8 + 1024)[-4:], "big")
            for _ in range(count):
                yield file.read(20)


def _oversized_tree(repo: pygit2.Repository, trees: Iterable[bytes], large: dict[bytes, int], most: int) -> str | None:
    known: dict[bytes, _Tree] = {}
    for top in trees:
        waiting = [top]  # not by recursion: it may be deep
        while waiting:
            raw = waiting[-1]
            below = None if raw in known else _below(repo, raw)
            unknown = [each for is_folder, each in below or () if is_folder and each not in known]
            if unknown:
                waiting += unknown
                continue
            waiting.pop()
            if below is None:
                continue
            made = known[raw] = _whole(below, known, large)
            if made.paths > PATHS_MAX or made.depth > DEPTH_MAX or made.size > most:
                return f"the tree {raw.hex()} is of {made.paths} paths, {made.depth} levels and {made.size} bytes"
    return None


def _below(repo: pygit2.Repository, raw: bytes) -> list[tuple[bool, bytes]]:
    """What stands in a tree: whether it is a folder, and its id. One that is not there is nothing: git has seen to what must be."""
    try:
        kind, data = repo.read(raw.hex())
    except KeyError:
        return []
    if int(kind) != _TREE:
        return []
    return [(int(found[1], 8) == 0o40000, found[2]) for found in _ENTRY.finditer(bytes(data))]


def _whole(below: list[tuple[bool, bytes]], known: dict[bytes, _Tree], large: dict[bytes, int]) -> _Tree:
    paths = depth = size = 0
    for is_folder, each in below:
        inner = known[each] if is_folder else _Tree(0, 0, large.get(each, 0))
        paths, depth, size = paths + 1 + inner.paths, max(depth, inner.depth), size + inner.size
    return _Tree(paths, depth + 1, size)
