"""Edges as SQL tables: an index of the relations between agents.

Invariant: several origins may state the same edge; it is live until all of them are retracted, in any order.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.store import validation
from clia.store.interface import Edge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from clia.store.sql_store import GuardedConnection


def standing(columns: str, where: str, tables: str = "clia_edges e") -> str:
    """Return a query of the live edges."""
    # OFFSET forces a look-up per edge; without statistics PostgreSQL would read all retractions.
    not_retracted = "NOT EXISTS (SELECT 1 FROM clia_retractions r WHERE r.space = e.space AND r.origin = e.origin LIMIT 1 OFFSET 0)"
    return f"SELECT {columns} FROM {tables} WHERE e.space = ? AND {where} AND {not_retracted}"  # noqa: S608 (constants)


def reachable(step: str) -> str:
    """Return a query of all reachable nodes, with arguments space, start, kind, space, kind; ``step`` extends ``reached``."""
    first = standing("dst", "src = ? AND kind = ?")
    return f"WITH RECURSIVE reached (node) AS ({first} UNION {step}) SELECT node FROM reached ORDER BY node"  # noqa: S608 (constants)


_ADD = "INSERT INTO clia_edges VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_RETRACT = "INSERT INTO clia_retractions VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_DROP = ("DELETE FROM clia_edges WHERE space = ? AND source = ?", "DELETE FROM clia_retractions WHERE space = ? AND source = ?")
_CLEAR = ("DELETE FROM clia_edges WHERE space = ?", "DELETE FROM clia_retractions WHERE space = ?")
_TARGETS = standing("DISTINCT dst", "src = ? AND kind = ?") + " ORDER BY dst"
_SOURCES = standing("DISTINCT src", "dst = ? AND kind = ?") + " ORDER BY src"
REACHABLE = reachable(standing("e.dst", "e.kind = ?", "reached JOIN clia_edges e ON e.src = reached.node"))
_ORIGINS = standing("DISTINCT origin", "src = ? AND kind = ? AND dst = ?") + " ORDER BY origin"
_EDGE = "src, kind, dst, origin, source"
_EDGES = standing(_EDGE, "1 = 1")
# Not sorted: SQLite would read the whole table in order instead of looking up both ends.
_TOUCHING = f"{standing(_EDGE, 'src = ?')} UNION {standing(_EDGE, 'dst = ?')}"


class Edges(NamedTuple):
    """An index of edges. Several origins may state the same edge; it is live until all of them are retracted.

    A retraction may arrive before the statement it retracts: order does not matter. All lists are sorted.
    """

    db: GuardedConnection
    space: str

    def add(self, edges: Iterable[Edge]) -> None:
        """Add edges. Idempotent."""
        self.db.check_writable()
        self.db.write_many(_ADD, [(self.space, *map(validation.check_name, edge)) for edge in edges])

    def retract(self, source: str, origins: Iterable[str]) -> None:
        """Retract every edge, present or future, that the origins state. ``source`` is the chain with the retraction."""
        self.db.check_writable()
        validation.check_name(source)
        self.db.write_many(_RETRACT, [(self.space, validation.check_name(origin), source) for origin in origins])

    def drop(self, source: str) -> None:
        """Delete every edge and retraction read from a chain."""
        self.db.check_writable()
        for sql in _DROP:
            self.db.write(sql, self.space, validation.check_name(source))

    def clear(self) -> None:
        """Delete everything."""
        self.db.check_writable()
        for sql in _CLEAR:
            self.db.write(sql, self.space)

    def targets(self, src: str, kind: str) -> list[str]:
        """Return the distinct targets of edges of a kind."""
        return self._column(_TARGETS, src, kind)

    def sources(self, dst: str, kind: str) -> list[str]:
        """Return the distinct sources of edges of a kind."""
        return self._column(_SOURCES, dst, kind)

    def reachable(self, src: str, kind: str) -> list[str]:
        """Return every node reachable over edges of a kind. Contains ``src`` only if it is on a cycle."""
        return self._column(REACHABLE, src, kind, self.space, kind)

    def origins(self, src: str, kind: str, dst: str) -> list[str]:
        """Return the origins that state an edge and are not retracted."""
        return self._column(_ORIGINS, src, kind, dst)

    def standing(self, touching: str | None = None) -> list[Edge]:
        """Return the live edges (optionally those that start or end at ``touching``), one per origin and source."""
        if touching is None:
            rows = self.db.fetch(_EDGES, self.space)
        else:
            rows = self.db.fetch(_TOUCHING, self.space, validation.check_name(touching), self.space, touching)
        return sorted(Edge(*row) for row in rows)

    def _column(self, sql: str, *names: str) -> list[str]:
        return [name for (name,) in self.db.fetch(sql, self.space, *map(validation.check_name, names))]
