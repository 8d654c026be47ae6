"""Export of an SQLite store that is moved to a server.

Invariant: one SQLite transaction renames the tables and marks the file, so that no process, not even one that has it open, goes
on working with it; each is told where the state is now. All rows stay in the file.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

from clia.errors import StoreError
from clia.store import sql_schema as schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from clia.store.sql_store import GuardedConnection

_BATCH = 500
# Tombstones are not exported: versions start again.
_VALUES = """SELECT key, version, value FROM clia_values WHERE space = ? AND key > ? AND value IS NOT NULL ORDER BY key LIMIT ?"""
_FIRST_VALUE = "SELECT key, version, value FROM clia_values WHERE space = ? AND key = '' AND value IS NOT NULL"
_STREAMS = "SELECT stream, last FROM clia_streams WHERE space = ? ORDER BY stream"
_ENTRIES = "SELECT position, body FROM clia_entries WHERE space = ? AND stream = ? AND position > ? ORDER BY position LIMIT ?"
_TABLES = r"SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'clia\_%' ESCAPE '\'"


class SqliteExport(NamedTuple):
    """The rows of a space, except names that start with one of ``without``."""

    connection: GuardedConnection
    space: str
    without: tuple[str, ...]

    def values(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield batches of (key, version, text)."""
        rows = self.connection.fetch(_FIRST_VALUE, self.space)
        while True:
            exported = [row for row in rows if not row[0].startswith(self.without)]
            if exported:
                yield exported
            rows = self.connection.fetch(_VALUES, self.space, rows[-1][0] if rows else "", _BATCH)
            if not rows:
                return

    def streams(self) -> list[tuple[Any, ...]]:
        """Return (stream, last position), also of empty streams."""
        return [row for row in self.connection.fetch(_STREAMS, self.space) if not row[0].startswith(self.without)]

    def entries(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield batches of (stream, position, text)."""
        for stream, _ in self.streams():
            after = 0
            while rows := self.connection.fetch(_ENTRIES, self.space, stream, after, _BATCH):
                yield [(stream, *row) for row in rows]
                after = rows[-1][0]


def retire(connection: GuardedConnection) -> None:
    """Make the store unusable when the transaction commits."""
    for (name,) in connection.fetch(_TABLES):
        connection.fetch(f"ALTER TABLE {name} RENAME TO moved_{name}")  # our own names
    connection.fetch(f"PRAGMA user_version = {schema.MOVED}")


def is_moved(path: str) -> bool:
    """Whether the file is marked as moved; False if it is missing or unreadable."""
    with suppress(sqlite3.Error, ValueError):
        connection = sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro", uri=True, isolation_level=None)
        try:
            return bool(connection.execute("PRAGMA user_version").fetchone()[0] == schema.MOVED)
        finally:
            connection.close()
    return False


def moved(path: str) -> StoreError:
    return StoreError(
        f"{path}: the live state has moved to PostgreSQL",
        code="store-moved",
        hints=[
            "restart programs that were running before the move",
            "git config clia.store shows its address; if unset, run clia init --store postgresql://… again",
            f"to start with an empty store instead: move {path} aside and run 'clia rebuild'",
        ],
        fields={"path": path},
    )
