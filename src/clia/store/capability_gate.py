"""The capability gate as SQL tables; one query decides, for SQLite and PostgreSQL alike.

Invariant: without facts the answer is no. The first ``load`` creates the tables, so a store without peers has none and a store
of an older version gets them as well.
"""

from __future__ import annotations

from clia.store import validation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.store.interface import GateFacts, GateQuestion
    from clia.store.sql_store import GuardedConnection

# {text} and {packed}: see ``sql_schema``. Created in one transaction: either all tables exist or none.
_TABLES = (
    """CREATE TABLE IF NOT EXISTS clia_grants (space {text} NOT NULL, cid {text} NOT NULL, peer {text} NOT NULL,
       type {text} NOT NULL, trigger {text} NOT NULL, execute INTEGER NOT NULL, expires BIGINT)""",
    "CREATE INDEX IF NOT EXISTS clia_grants_peer ON clia_grants (space, peer, trigger)",
    """CREATE TABLE IF NOT EXISTS clia_trusted (space {text} NOT NULL, peer {text} NOT NULL, PRIMARY KEY (space, peer)){packed}""",
    """CREATE TABLE IF NOT EXISTS clia_subtypes (space {text} NOT NULL, type {text} NOT NULL, parent {text} NOT NULL,
       PRIMARY KEY (space, type, parent)){packed}""",
)
_CLEAR = [f"DELETE FROM {table} WHERE space = ?" for table in ("clia_grants", "clia_trusted", "clia_subtypes")]  # noqa: S608 (constants)
_GRANT = "INSERT INTO clia_grants VALUES (?, ?, ?, ?, ?, ?, ?)"
_TRUST = "INSERT INTO clia_trusted VALUES (?, ?) ON CONFLICT DO NOTHING"
_SUBTYPE = "INSERT INTO clia_subtypes VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
# UNION, not UNION ALL, so that a cycle ends. The type in question is not part of it: as a literal it would have another
# collation than the column in PostgreSQL.
_ALLOWING = """
WITH RECURSIVE wider (type) AS (
    SELECT parent FROM clia_subtypes WHERE space = ? AND type = ?
    UNION
    SELECT s.parent FROM wider JOIN clia_subtypes s ON s.type = wider.type WHERE s.space = ?
)
SELECT DISTINCT g.cid FROM clia_grants g JOIN clia_trusted t ON t.space = g.space AND t.peer = g.peer
WHERE g.space = ? AND g.peer = ? AND g.trigger = ? AND (g.type = ? OR g.type IN (SELECT type FROM wider))
    AND (g.expires IS NULL OR g.expires > ?) AND g.execute >= ?
ORDER BY g.cid
"""


class SqlGate:
    """The capability gate of one transaction. Denies by default. Its facts are a cache of refs and are replaced as a whole."""

    def __init__(self, connection: GuardedConnection, space: str) -> None:
        self._db = connection
        self._space = space
        self._tables_exist = False

    def load(self, facts: GateFacts) -> None:
        """Replace all facts."""
        self._db.check_writable()
        space, name = self._space, validation.check_name
        grants = [
            (space, *map(name, grant[:4]), int(grant.execute), None if grant.expires is None else validation.clamp(grant.expires))
            for grant in facts.grants
        ]
        trusted = [(space, name(peer)) for peer in facts.trusted]
        subtypes = [(space, name(type_), name(parent)) for type_, parent in facts.parents]
        if not self._has_tables():
            self._db.make_tables(_TABLES)
            self._tables_exist = True
        for sql in _CLEAR:
            self._db.write(sql, space)
        self._db.write_many(_GRANT, grants)
        self._db.write_many(_TRUST, trusted)
        self._db.write_many(_SUBTYPE, subtypes)

    def allowing(self, question: GateQuestion) -> list[str]:
        """Return the grants that allow it, sorted; an empty list denies.

        A grant applies if it names the peer, the peer is trusted, trigger and type match (the type itself or one of its
        ancestors; cycles in hostile facts are harmless), it has not expired, and it allows ``execute`` if that is asked.
        """
        peer, type_, trigger = map(validation.check_name, question[:3])
        if not self._has_tables():
            return []
        space, at = self._space, validation.clamp(question.at)
        wider = (space, type_, space)
        rows = self._db.fetch(_ALLOWING, *wider, space, peer, trigger, type_, at, int(question.execute))
        return [cid for (cid,) in rows]

    def _has_tables(self) -> bool:
        self._tables_exist = self._tables_exist or self._db.has_table("clia_grants")
        return self._tables_exist
