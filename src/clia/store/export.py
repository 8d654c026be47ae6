"""The rows of a space, exported from one store and written to another.

Text is copied as it is. Deleted values are not exported, so their versions start again.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.store.epochs import row_from
from clia.store.interface import CLONE_KEYS, EPOCH, FOREIGN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from clia.store.epochs import EpochRow
    from clia.store.sql_store import GuardedConnection, StoreKeys

PROCESS_KEYS = ("claim/", "fleet/", "queue/")
"""Rows that live processes write again."""
_NOT_IN_REFS = (EPOCH, "feed/refs", FOREIGN, "rewound/", "sweep/")  # cannot be rebuilt from refs
REBUILT = tuple(key for key in CLONE_KEYS if key not in _NOT_IN_REFS)
"""Rows that are rebuilt from git."""
_BATCH = 500
_VALUES = "SELECT key, version, value FROM clia_values WHERE space = ? AND key {} ? AND value IS NOT NULL ORDER BY key LIMIT ?"
_EPOCH_ROW = "SELECT version, value FROM clia_values WHERE space = ? AND key = ? AND value IS NOT NULL"
_STREAMS = "SELECT stream, last FROM clia_streams WHERE space = ? ORDER BY stream"
_ENTRIES = "SELECT position, body FROM clia_entries WHERE space = ? AND stream = ? AND position > ? ORDER BY position LIMIT ?"


class StoreExport(NamedTuple):
    """The rows of a space in one transaction, except names that start with one of ``without``."""

    connection: GuardedConnection
    keys: StoreKeys
    without: tuple[str, ...]

    def epoch(self) -> EpochRow | None:
        """Return the row that says which repository the store belongs to."""
        rows = self.connection.fetch(_EPOCH_ROW, self.keys.own, EPOCH)
        return row_from(*rows[0]) if rows else None

    def values(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield batches of (key, version, text)."""
        for space in dict.fromkeys(self.keys):
            operator, last = ">=", ""
            while rows := self.connection.fetch(_VALUES.format(operator), space, last, _BATCH):
                yield [row for row in rows if self._is_exported(space, row[0])]
                operator, last = ">", rows[-1][0]

    def streams(self) -> list[tuple[Any, ...]]:
        """Return (stream, last position), also of empty streams."""
        rows = ((space, row) for space in dict.fromkeys(self.keys) for row in self.connection.fetch(_STREAMS, space))
        return [row for space, row in rows if self._is_exported(space, row[0])]

    def entries(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield batches of (stream, position, text)."""
        for stream, _ in self.streams():
            space, after = self.keys.of(stream), 0
            while rows := self.connection.fetch(_ENTRIES, space, stream, after, _BATCH):
                yield [(stream, *row) for row in rows]
                after = rows[-1][0]

    def _is_exported(self, space: str, name: str) -> bool:
        return self.keys.of(name) == space and not name.startswith(self.without)


def write_rows(connection: GuardedConnection, export: StoreExport, space: str) -> list[str]:
    """Write all rows of an export under a key that has none; return the values that are a clone's own."""
    clone_keys: list[str] = []
    for batch in export.values():
        connection.write_many("INSERT INTO clia_values VALUES (?, ?, ?, ?)", [(space, *row) for row in batch])
        clone_keys += [row[0] for row in batch if row[0].startswith(CLONE_KEYS)]
    connection.write_many("INSERT INTO clia_streams VALUES (?, ?, ?)", [(space, *row) for row in export.streams()])
    for batch in export.entries():
        connection.write_many("INSERT INTO clia_entries VALUES (?, ?, ?, ?)", [(space, *row) for row in batch])
    return clone_keys
