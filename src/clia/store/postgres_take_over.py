"""Live state that one clone kept for itself becomes what clones share, in one transaction of PostgreSQL.

Invariant: a name that both hold is a refusal, and nothing is changed: neither is dropped, no two streams become one. What only
tells of the past, or can be had again, gives way instead: the feed with the places that were read up to, answers kept for
a repeated request, the log of refusals, the secret that logins are signed with.

Each time is counted in the same transaction, in a row that belongs to no space. A store of one clone's state knows the number
from when it was opened, and works with no other: else what a program of before the hub writes would be where nobody looks.
A clone that has left its hub begins with the number of that day.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from clia.errors import Conflict
from clia.store.feed_interface import FEED
from clia.store.interface import OWN
from clia.store.rules import NAME_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, LiteralString

    from clia.store.sql_store import Guarded

_SHOWN = 20
_BEYOND = "\U0010ffff" * (NAME_BYTES // 4 + 1)  # no name is that long, so that each sorts before it
# Between what is a clone's own, from and up to: looked for by these, rows of 100,000 agents that stay are never walked over.
_GAPS = tuple(zip(("", *(each + _BEYOND for each in sorted(OWN))), (*sorted(OWN), _BEYOND), strict=True))
# Positions in a feed mean nothing in another one.
_NEWS = (FEED, "hook/")
_OVER = ("fleet/",)  # who lives says so anew
_GIVING_WAY = ("federation/refused/", "forge/secret", "once/")

_TABLES = {"clia_values": "key", "clia_streams": "stream"}
_IN_BOTH = (
    """SELECT o.key FROM clia_values o JOIN clia_values s ON s.key = o.key WHERE o.space = ? AND s.space = ?
       AND o.key >= ? AND o.key < ? AND o.value IS NOT NULL AND s.value IS NOT NULL""",
    """SELECT o.stream FROM clia_streams o JOIN clia_streams s ON s.stream = o.stream WHERE o.space = ? AND s.space = ?
       AND o.stream >= ? AND o.stream < ?
       AND EXISTS (SELECT 1 FROM clia_entries e WHERE e.space = o.space AND e.stream = o.stream)""",
)
# No version and no position comes twice: not even that of something deleted.
_BRING = (
    """INSERT INTO clia_values SELECT ?, key, version, value FROM clia_values WHERE space = ? AND key >= ? AND key < ?
       ON CONFLICT (space, key) DO UPDATE SET value = excluded.value,
           version = greatest(excluded.version, clia_values.version + CASE WHEN excluded.value IS NULL THEN 0 ELSE 1 END)
       WHERE clia_values.value IS NULL""",
    """INSERT INTO clia_streams SELECT ?, stream, last FROM clia_streams WHERE space = ? AND stream >= ? AND stream < ?
       ON CONFLICT (space, stream) DO UPDATE SET last = greatest(clia_streams.last, excluded.last)
       WHERE NOT EXISTS (SELECT 1 FROM clia_entries e WHERE e.space = clia_streams.space AND e.stream = clia_streams.stream)""",
    "UPDATE clia_entries SET space = ? WHERE space = ? AND stream >= ? AND stream < ?",
)
_REMOVE = (
    "DELETE FROM clia_values WHERE space = ? AND key >= ? AND key < ?",
    "DELETE FROM clia_streams WHERE space = ? AND stream >= ? AND stream < ?",
    "DELETE FROM clia_entries WHERE space = ? AND stream >= ? AND stream < ?",
)
_REMOVE_WHERE_BOTH = (
    """DELETE FROM clia_values o USING clia_values s WHERE o.space = ? AND s.space = ? AND s.key = o.key
       AND o.key >= ? AND o.key < ?""",
    """DELETE FROM clia_entries e USING clia_streams s WHERE e.space = ? AND s.space = ? AND s.stream = e.stream
       AND e.stream >= ? AND e.stream < ?""",
)
_COUNTS = "taken over"  # in the place of a space, whose names are ids
_COUNT = """INSERT INTO clia_values VALUES (?, ?, 1, NULL)
            ON CONFLICT (space, key) DO UPDATE SET version = clia_values.version + 1"""
_HAS_FEED = "SELECT 1 FROM clia_streams WHERE space = ? AND stream = ?"


class Ours(NamedTuple):
    """What is said where something is in the way."""

    message: str
    hints: tuple[str, ...]
    kept: str | None = None  # where what was to be brought is still; None: under its key


_ALONE = Ours(
    "live state of this clone and of those that share the store is in each other's way",
    (
        "finish here what is under way before the hub is set: clia session list, clia trace pending AGENT",
        "a clone that has the hub already leaves it for that: git config --unset clia.hub; then clia hub set once more",
    ),
)


def question(old: str) -> tuple[str, list[str]]:
    """Whether a key holds anything to be brought: one statement."""
    looks, words = [], []
    for table, name in _TABLES.items():
        for first, end in _GAPS:
            looks.append(f"EXISTS (SELECT 1 FROM {table} WHERE space = ? AND {name} >= ? AND {name} < ?)")  # noqa: S608 (constants)
            words += [old, first, end]
    return f"SELECT {' OR '.join(looks)}", words


def era(old: str) -> LiteralString:
    """A query of how often a key's state was taken over, without a row where it never was. Without words: it goes with other
    statements to the server."""
    made: Any = f"SELECT version FROM clia_values WHERE space = '{_COUNTS}' AND key = '{_hashed(old)}'"  # noqa: S608
    return made  # type: ignore[no-any-return]


def next_era(connection: Guarded, old: str) -> None:
    """Whoever works under the key now is refused from now on; the caller holds its lock."""
    connection.write(_COUNT, _COUNTS, _hashed(old))


def _hashed(key: str) -> str:
    """Letters and digits, whatever the key is."""
    return hashlib.sha256(key.encode()).hexdigest()


def bring(connection: Guarded, old: str, new: str, ours: Ours = _ALONE) -> int:
    """How many names were brought; the caller holds the locks of both keys."""
    _give_way(connection, old, new)
    both = sorted({name for sql in _IN_BOTH for gap in _GAPS for (name,) in connection.fetch(sql, old, new, *gap)})
    if both:
        raise _in_the_way(both, old, ours)
    brought = sum(connection.write(sql, new, old, *gap) for sql in _BRING[:2] for gap in _GAPS)
    for gap in _GAPS:
        connection.write(_BRING[2], new, old, *gap)
        for sql in _REMOVE:
            connection.write(sql, old, *gap)
    return brought


def _give_way(connection: Guarded, old: str, new: str) -> None:
    dropped = (*_OVER, *_NEWS) if connection.fetch(_HAS_FEED, new, FEED) else _OVER
    for first, end in _ranges(dropped):
        for sql in _REMOVE:
            connection.write(sql, old, first, end)
    for first, end in _ranges(_GIVING_WAY):
        for sql in _REMOVE_WHERE_BOTH:
            connection.write(sql, old, new, first, end)


def _ranges(prefixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """From and up to, without what is a clone's own."""
    for prefix in prefixes:
        for first, end in _GAPS:
            low, high = max(first, prefix), min(end, prefix + _BEYOND)
            if low < high:
                yield low, high


def _in_the_way(names: list[str], old: str, ours: Ours) -> Conflict:
    fields: dict[str, Any] = {"keys": names[:_SHOWN], "count": len(names), "kept": ours.kept or old}
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Conflict(f"{ours.message}: {shown}", code="state-in-the-way", hints=ours.hints, fields=fields)
