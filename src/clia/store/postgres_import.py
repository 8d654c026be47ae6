"""Moving live state into a shared PostgreSQL store: from one clone's key (``merge_clone_state``) or from an SQLite file
(``import_store``), each in one transaction.

Invariant: a name that both sides hold is a refusal, and nothing is changed. Only history and data that can be recreated are
replaced: the feed and its read positions, answers kept for repeated requests, the log of refusals, the secret that signs logins.
Positions and versions are never reused.

Each merge of a clone's state is counted, in a row outside of every space (the *era*). A store opened on that state checks the count
and stops working when it changes: otherwise a program that was started before the hub was set would write to a place that no other
program reads. An imported store is a copy until the source is closed for good; an unused copy is replaced by the next import,
because the process that made it died and work continued at the source.
"""

from __future__ import annotations

import hashlib

from clia.errors import Conflict
from clia.store.interface import CLONE_KEYS, FEED
from clia.store.validation import NAME_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, LiteralString

    from clia.store.export import StoreExport
    from clia.store.sql_store import GuardedConnection, StoreKeys

_MAX_LISTED = 20
_AFTER_ALL = "\U0010ffff" * (NAME_BYTES // 4 + 1)  # longer than any name, so it sorts after every name with the same prefix
# The ranges between a clone's own keys: queries by range never scan the rows that stay.
_GAPS = tuple(zip(("", *(key + _AFTER_ALL for key in sorted(CLONE_KEYS))), (*sorted(CLONE_KEYS), _AFTER_ALL), strict=True))
_FEED_NAMES = (FEED, "hook/")  # positions are meaningless in another feed
_PROCESS_NAMES = ("fleet/",)  # live processes write them again
_REPLACEABLE = ("federation/refused/", "forge/secret", "once/", "known/")

_TABLES = {"clia_values": "key", "clia_streams": "stream", "clia_entries": "stream"}
_IN_BOTH = (
    """SELECT o.key FROM clia_values o JOIN clia_values s ON s.key = o.key WHERE o.space = ? AND s.space = ?
       AND o.key >= ? AND o.key < ? AND o.value IS NOT NULL AND s.value IS NOT NULL""",
    """SELECT o.stream FROM clia_streams o JOIN clia_streams s ON s.stream = o.stream WHERE o.space = ? AND s.space = ?
       AND o.stream >= ? AND o.stream < ?
       AND EXISTS (SELECT 1 FROM clia_entries e WHERE e.space = o.space AND e.stream = o.stream)""",
)
_MOVE = (
    """INSERT INTO clia_values SELECT ?, key, version, value FROM clia_values WHERE space = ? AND key >= ? AND key < ?
       ON CONFLICT (space, key) DO UPDATE SET value = excluded.value,
           version = greatest(excluded.version, clia_values.version + CASE WHEN excluded.value IS NULL THEN 0 ELSE 1 END)
       WHERE clia_values.value IS NULL""",
    """INSERT INTO clia_streams SELECT ?, stream, last FROM clia_streams WHERE space = ? AND stream >= ? AND stream < ?
       ON CONFLICT (space, stream) DO UPDATE SET last = greatest(clia_streams.last, excluded.last)
       WHERE NOT EXISTS (SELECT 1 FROM clia_entries e WHERE e.space = clia_streams.space AND e.stream = clia_streams.stream)""",
)
_MOVE_ENTRIES = "UPDATE clia_entries SET space = ? WHERE space = ? AND stream >= ? AND stream < ?"
_DROP_SPACE = [f"DELETE FROM {table} WHERE space = ?" for table in _TABLES]  # noqa: S608 (constants)
_IN_RANGE = [f"FROM {table} WHERE space = ? AND {name} >= ? AND {name} < ?" for table, name in _TABLES.items()]
_HAS_STATE = f"SELECT {' OR '.join(f'EXISTS (SELECT 1 {rows})' for rows in _IN_RANGE for _ in _GAPS)}"
_REMOVE = [f"DELETE {rows}" for rows in _IN_RANGE]
_REMOVE_IN_BOTH = (
    """DELETE FROM clia_values o USING clia_values s WHERE o.space = ? AND s.space = ? AND s.key = o.key
       AND o.key >= ? AND o.key < ?""",
    """DELETE FROM clia_entries e USING clia_streams s WHERE e.space = ? AND s.space = ? AND s.stream = e.stream
       AND e.stream >= ? AND e.stream < ?""",
)
_ERAS = "taken over"  # in the column of the space, whose names are ids
_NEXT_ERA = """INSERT INTO clia_values VALUES (?, ?, 1, NULL)
               ON CONFLICT (space, key) DO UPDATE SET version = clia_values.version + 1"""
_HAS_FEED = "SELECT 1 FROM clia_streams WHERE space = ? AND stream = ?"

_MOVE_CLONE_KEYS = """UPDATE clia_values v SET space = ? WHERE space = ? AND key = ANY (?)
                      AND NOT EXISTS (SELECT 1 FROM clia_values o WHERE o.space = ? AND o.key = v.key)"""
_DROP_EQUAL = """DELETE FROM clia_values o USING clia_values s
                 WHERE o.space = ? AND s.space = ? AND s.key = o.key AND s.value = o.value"""
_BODIES = "SELECT position, body FROM clia_entries WHERE space = {0}.space AND stream = {0}.stream"
_EQUAL_STREAMS = f"""SELECT o.stream FROM clia_streams o JOIN clia_streams s ON s.stream = o.stream AND s.last = o.last
                     WHERE o.space = ? AND s.space = ?
                     AND NOT EXISTS ({_BODIES.format("o")} EXCEPT {_BODIES.format("s")})
                     AND NOT EXISTS ({_BODIES.format("s")} EXCEPT {_BODIES.format("o")})"""  # noqa: S608 (constants)
_DROP_STREAM = (
    "DELETE FROM clia_entries WHERE space = ? AND stream = ?",
    "DELETE FROM clia_streams WHERE space = ? AND stream = ?",
)
# Caches and heartbeats change without any work being done.
_STABLE = f"!~ '^({'|'.join((*CLONE_KEYS, 'arrival/', 'claim/', 'fleet/', 'queue/'))})'"
_DIGEST = f"""SELECT md5(coalesce(string_agg(hash, ',' ORDER BY hash), '')) FROM (
    SELECT md5(key || ' ' || value) AS hash FROM clia_values WHERE space = ? AND value IS NOT NULL AND key {_STABLE}
    UNION ALL SELECT md5(stream || ' ' || last) FROM clia_streams WHERE space = ? AND stream {_STABLE}
    UNION ALL SELECT md5(stream || ' ' || position || ' ' || body) FROM clia_entries WHERE space = ? AND stream {_STABLE}
) AS hashes"""  # noqa: S608 (constants)
_GET = "SELECT value FROM clia_values WHERE space = ? AND key = ?"
_PUT = """INSERT INTO clia_values VALUES (?, ?, 1, ?)
          ON CONFLICT (space, key) DO UPDATE SET version = clia_values.version + 1, value = excluded.value"""


_MERGE_REFUSED = "this clone and the shared store hold conflicting live state"
_MERGE_HINTS = (
    "finish what is under way here before setting the hub: clia session list, clia trace pending AGENT",
    "if the hub is already set, leave it first: git config --unset clia.hub; then run clia hub set again",
)
_IMPORT_REFUSED = "the store on the server and the one beside the repository hold conflicting live state"
_IMPORT_HINTS = (
    "if work with the server's store (CLIA_STORE) came first, finish it there",
    "or discard the state beside the repository: move .git/clia/space.db aside and run the command again",
)


# Merging the state of a clone


def merge_and_start_era(connection: GuardedConnection, old: str, new: str) -> int:
    """Move the state of one key to another; return the number of names. The caller holds the locks of both keys.

    All stores that are open on the old key are refused from now on.
    """
    moved = 0
    if connection.fetch(_HAS_STATE, *(text for _ in _TABLES for gap in _GAPS for text in (old, *gap)))[0][0]:
        names = _names_in_both(connection, old, new)
        if names:
            raise _conflict(names, _MERGE_REFUSED, _MERGE_HINTS, old)
        moved = _move_state(connection, old, new)
    connection.write(_NEXT_ERA, _ERAS, _hashed(old))
    return moved


def era_query(key: str) -> LiteralString:
    """Return a query, without arguments, of how often a key's state was merged. No row: never."""
    query: Any = f"SELECT version FROM clia_values WHERE space = '{_ERAS}' AND key = '{_hashed(key)}'"  # noqa: S608
    return query  # type: ignore[no-any-return]


def _hashed(key: str) -> str:
    """Return letters and digits for any key."""
    return hashlib.sha256(key.encode()).hexdigest()


def _names_in_both(connection: GuardedConnection, old: str, new: str) -> list[str]:
    """Drop the replaceable state under the old key; return the names that both keys still hold."""
    dropped = (*_PROCESS_NAMES, *_FEED_NAMES) if connection.fetch(_HAS_FEED, new, FEED) else _PROCESS_NAMES
    for first, end in _ranges(dropped):
        for sql in _REMOVE:
            connection.write(sql, old, first, end)
    for first, end in _ranges(_REPLACEABLE):
        for sql in _REMOVE_IN_BOTH:
            connection.write(sql, old, new, first, end)
    return sorted({name for sql in _IN_BOTH for gap in _GAPS for (name,) in connection.fetch(sql, old, new, *gap)})


def _move_state(connection: GuardedConnection, old: str, new: str) -> int:
    """Move the state of one key to another; return the number of names."""
    moved = sum(connection.write(sql, new, old, *gap) for sql in _MOVE for gap in _GAPS)
    for gap in _GAPS:
        connection.write(_MOVE_ENTRIES, new, old, *gap)
        for sql in _REMOVE:
            connection.write(sql, old, *gap)
    return moved


def _ranges(prefixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the ranges of prefixes, without a clone's own keys."""
    for prefix in prefixes:
        for first, end in _GAPS:
            low, high = max(first, prefix), min(end, prefix + _AFTER_ALL)
            if low < high:
                yield low, high


def _conflict(names: list[str], message: str, hints: tuple[str, ...], kept_by: str) -> Conflict:
    fields: dict[str, Any] = {"keys": names[:_MAX_LISTED], "count": len(names), "kept": kept_by}
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Conflict(f"{message}: {listed}", code="state-in-the-way", hints=hints, fields=fields)


# Importing an SQLite store


def copy_mark(keys: StoreKeys) -> str:
    """Return the key that marks imported state as a copy, unique per clone."""
    return f"arrival/{keys.own}"


def import_store(connection: GuardedConnection, export: StoreExport, keys: StoreKeys) -> None:
    """Import the rows of another store. The caller holds the lock of the space."""
    from clia.store.export import write_rows  # once in the life of a store

    alone = keys.own == keys.shared
    if alone:  # replace an unused copy
        rows = connection.fetch(_GET, keys.shared, copy_mark(keys))
        if rows and rows[0][0] == f'"{_digest(connection, keys)}"':
            for sql in _DROP_SPACE:
                connection.write(sql, keys.shared)
    staging = f"{keys.own}/passage"
    clone_keys = write_rows(connection, export, staging)
    connection.write(_MOVE_CLONE_KEYS, keys.own, staging, clone_keys, keys.own)
    connection.write(_DROP_EQUAL, staging, keys.shared)
    for (stream,) in connection.fetch(_EQUAL_STREAMS, staging, keys.shared):
        for sql in _DROP_STREAM:
            connection.write(sql, staging, stream)
    names = _names_in_both(connection, staging, keys.shared)
    if names:
        raise _conflict(names, _IMPORT_REFUSED, _IMPORT_HINTS, "beside the repository")
    _move_state(connection, staging, keys.shared)
    for sql in _DROP_SPACE:
        connection.write(sql, staging)
    if alone:
        connection.write(_PUT, keys.shared, copy_mark(keys), f'"{_digest(connection, keys)}"')


def _digest(connection: GuardedConnection, keys: StoreKeys) -> str:
    return str(connection.fetch(_DIGEST, *[keys.shared] * 3)[0][0])
