"""SqliteExport an SQLite store for a store on a server.

Invariant: in one transaction of SQLite the tables get other names and the file a mark. So nobody works on with what was left,
not even a process that has the file open: whoever comes is told where the state went. Every row stays in the file.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

from clia.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from clia.store.sql_store import GuardedConnection

MOVED = 2**31 - 1
"""The ``user_version`` of a file whose state has moved: also code that knows nothing of moving refuses it."""
_BATCH = 500
# Deleted values leave nothing behind: their versions begin anew.
_VALUES = """SELECT key, version, value FROM clia_values WHERE space = ? AND key > ? AND value IS NOT NULL ORDER BY key LIMIT ?"""
_FIRST_VALUE = "SELECT key, version, value FROM clia_values WHERE space = ? AND key = '' AND value IS NOT NULL"
_STREAMS = "SELECT stream, last FROM clia_streams WHERE space = ? ORDER BY stream"
_ENTRIES = "SELECT position, body FROM clia_entries WHERE space = ? AND stream = ? AND position > ? ORDER BY position LIMIT ?"
_TABLES = r"SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'clia\_%' ESCAPE '\'"


class SqliteExport(NamedTuple):
    """What an SQLite store holds of a space, as rows, but the names that begin with one of ``without``."""

    connection: GuardedConnection
    space: str
    without: tuple[str, ...]

    def values(self) -> Iterator[list[tuple[Any, ...]]]:
        """Key, version, text: in batches, as all there is."""
        rows = self.connection.fetch(_FIRST_VALUE, self.space)
        while True:
            kept = [row for row in rows if not row[0].startswith(self.without)]
            if kept:
                yield kept
            rows = self.connection.fetch(_VALUES, self.space, rows[-1][0] if rows else "", _BATCH)
            if not rows:
                return

    def streams(self) -> list[tuple[Any, ...]]:
        """Each stream with its last position, also those that hold nothing any more."""
        return [row for row in self.connection.fetch(_STREAMS, self.space) if not row[0].startswith(self.without)]

    def entries(self) -> Iterator[list[tuple[Any, ...]]]:
        """Stream, position, text: in batches."""
        for stream, _ in self.streams():
            after = 0
            while rows := self.connection.fetch(_ENTRIES, self.space, stream, after, _BATCH):
                yield [(stream, *row) for row in rows]
                after = rows[-1][0]


def shut(connection: GuardedConnection) -> None:
    """Nobody works with the store any more, once the transaction has ended."""
    for (name,) in connection.fetch(_TABLES):
        connection.fetch(f"ALTER TABLE {name} RENAME TO moved_{name}")  # our own names
    connection.fetch(f"PRAGMA user_version = {MOVED}")


def is_moved(path: str) -> bool:
    """Whether the file has the mark. One that is not there, or cannot be read, has none."""
    with suppress(sqlite3.Error, ValueError):
        connection = sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro", uri=True, isolation_level=None)
        try:
            return bool(connection.execute("PRAGMA user_version").fetchone()[0] == MOVED)
        finally:
            connection.close()
    return False


def moved(path: str) -> StoreError:
    return StoreError(
        f"{path}: what was live here has moved to PostgreSQL",
        code="store-moved",
        hints=[
            "a program that was at work before must be started again",
            "git config clia.store says where it is; if not: clia init --store postgresql://… once more",
            f"to begin with an empty store instead: move {path} aside and run 'clia rebuild'",
        ],
        fields={"path": path},
    )
