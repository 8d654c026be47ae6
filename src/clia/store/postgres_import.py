"""Live state of a store elsewhere becomes rows of PostgreSQL, in one transaction.

Invariant: positions stay what they were, as sessions remember them, and go on from there. The rows come in under a key that
only this transaction sees, and from there as the state of a clone does (``postgres_take_over``): what is here with another
content is a refusal. Until the other store was left for good, what came is a copy. One that nobody has worked on gives way
to the next: the process that brought it died, and work went on where it came from.
"""

from __future__ import annotations

from typing import Protocol

from clia.store.interface import OWN
from clia.store.postgres_take_over import Ours, bring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from clia.store.sql_store import Guarded, Spaces

_IN_THE_WAY = Ours(
    "the store on the server and the one beside the repository hold different things",
    (
        "work with the one on the server (CLIA_STORE) came first: end there what is under way",
        "or do without what is beside the repository: move .git/clia/space.db aside, then the command again",
    ),
    "beside the repository",
)
_VALUE = "INSERT INTO clia_values VALUES (?, ?, ?, ?)"
_STREAM = "INSERT INTO clia_streams VALUES (?, ?, ?)"
_ENTRY = "INSERT INTO clia_entries VALUES (?, ?, ?, ?)"
_ITS_OWN = """UPDATE clia_values v SET space = ? WHERE space = ? AND key = ANY (?)
              AND NOT EXISTS (SELECT 1 FROM clia_values o WHERE o.space = ? AND o.key = v.key)"""
_DROP_SAME = """DELETE FROM clia_values o USING clia_values s
                WHERE o.space = ? AND s.space = ? AND s.key = o.key AND s.value = o.value"""
_BODIES = "SELECT position, body FROM clia_entries WHERE space = {0}.space AND stream = {0}.stream"
_SAME_STREAMS = f"""SELECT o.stream FROM clia_streams o JOIN clia_streams s ON s.stream = o.stream AND s.last = o.last
                    WHERE o.space = ? AND s.space = ?
                    AND NOT EXISTS ({_BODIES.format("o")} EXCEPT {_BODIES.format("s")})
                    AND NOT EXISTS ({_BODIES.format("s")} EXCEPT {_BODIES.format("o")})"""  # noqa: S608 (constants)
_DROP_STREAM = (
    "DELETE FROM clia_entries WHERE space = ? AND stream = ?",
    "DELETE FROM clia_streams WHERE space = ? AND stream = ?",
)
_ALL = (
    "DELETE FROM clia_values WHERE space = ?",
    "DELETE FROM clia_streams WHERE space = ?",
    "DELETE FROM clia_entries WHERE space = ?",
)
# What processes say of themselves, and caches, change although nobody has worked.
_STILL = f"!~ '^({'|'.join((*OWN, 'arrival/', 'claim/', 'fleet/', 'queue/'))})'"
_DIGEST = f"""SELECT md5(coalesce(string_agg(hash, ',' ORDER BY hash), '')) FROM (
    SELECT md5(key || ' ' || value) AS hash FROM clia_values WHERE space = ? AND value IS NOT NULL AND key {_STILL}
    UNION ALL SELECT md5(stream || ' ' || last) FROM clia_streams WHERE space = ? AND stream {_STILL}
    UNION ALL SELECT md5(stream || ' ' || position || ' ' || body) FROM clia_entries WHERE space = ? AND stream {_STILL}
) AS hashes"""  # noqa: S608 (constants)
_GET = "SELECT value FROM clia_values WHERE space = ? AND key = ?"
_PUT = """INSERT INTO clia_values VALUES (?, ?, 1, ?)
          ON CONFLICT (space, key) DO UPDATE SET version = clia_values.version + 1, value = excluded.value"""


class Rows(Protocol):
    """What another store holds, with the texts as they are kept."""

    def values(self) -> Iterable[Sequence[tuple[Any, ...]]]:
        """Batches of key, version, text."""

    def streams(self) -> Sequence[tuple[Any, ...]]:
        """Stream, last position."""

    def entries(self) -> Iterable[Sequence[tuple[Any, ...]]]:
        """Batches of stream, position, text."""


def key(spaces: Spaces) -> str:
    """Where it stands that what came is a copy: a name that no other clone has."""
    return f"arrival/{spaces.own}"


def take_in(connection: Guarded, rows: Rows, spaces: Spaces) -> None:
    """The caller holds the lock of the space."""
    alone = spaces.own == spaces.shared
    if alone:
        _drop_copy(connection, spaces)
    passage = f"{spaces.own}/passage"
    its_own = _pass(connection, rows, passage)
    connection.write(_ITS_OWN, spaces.own, passage, its_own, spaces.own)
    connection.write(_DROP_SAME, passage, spaces.shared)
    for (stream,) in connection.fetch(_SAME_STREAMS, passage, spaces.shared):
        for sql in _DROP_STREAM:
            connection.write(sql, passage, stream)
    bring(connection, passage, spaces.shared, _IN_THE_WAY)
    for sql in _ALL:
        connection.write(sql, passage)
    if alone:
        connection.write(_PUT, spaces.shared, key(spaces), f'"{_digest(connection, spaces)}"')


def _pass(connection: Guarded, rows: Rows, passage: str) -> list[str]:
    """Writes all rows under one key; which values are a clone's own."""
    its_own: list[str] = []
    for batch in rows.values():
        connection.write_many(_VALUE, [(passage, *row) for row in batch])
        its_own += [row[0] for row in batch if row[0].startswith(OWN)]
    connection.write_many(_STREAM, [(passage, *row) for row in rows.streams()])
    for batch in rows.entries():
        connection.write_many(_ENTRY, [(passage, *row) for row in batch])
    return its_own


def _drop_copy(connection: Guarded, spaces: Spaces) -> None:
    found = connection.fetch(_GET, spaces.shared, key(spaces))
    if found and found[0][0] == f'"{_digest(connection, spaces)}"':
        for sql in _ALL:
            connection.write(sql, spaces.shared)


def _digest(connection: Guarded, spaces: Spaces) -> str:
    return str(connection.fetch(_DIGEST, *[spaces.shared] * 3)[0][0])
