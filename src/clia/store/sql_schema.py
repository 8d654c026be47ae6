"""The tables of the SQL stores: the first schema and the numbered migration steps since.

Invariant: a step only adds, so older code works beside it, and newer code works with a store without it (``NEEDED``). Each step
runs once, atomically and in order; a table lists the completed ones. The format mark that every release checks
(``clia_schema.version``, SQLite's ``user_version``) says which code may use the store; code that knows less refuses.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import UnsupportedFormat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# {text}: a text type that sorts by code point. {packed}: rows stored in key order, if supported.
# A deleted value keeps its version, so that a value put again is not mistaken for the earlier one.
MOVED = 2**31 - 1
"""The ``user_version`` of an SQLite store that was moved to a server: older code refuses it as well."""
FIRST_SCHEMA = (
    """CREATE TABLE clia_streams (space {text} NOT NULL, stream {text} NOT NULL, last BIGINT NOT NULL,
       PRIMARY KEY (space, stream)){packed}""",
    """CREATE TABLE clia_entries (space {text} NOT NULL, stream {text} NOT NULL, position BIGINT NOT NULL, body {text} NOT NULL,
       PRIMARY KEY (space, stream, position))""",
    """CREATE TABLE clia_values (space {text} NOT NULL, key {text} NOT NULL, version BIGINT NOT NULL, value {text},
       PRIMARY KEY (space, key))""",
    """CREATE TABLE clia_edges (space {text} NOT NULL, src {text} NOT NULL, kind {text} NOT NULL, dst {text} NOT NULL,
       origin {text} NOT NULL, source {text} NOT NULL, PRIMARY KEY (space, src, kind, dst, origin, source)){packed}""",
    "CREATE INDEX clia_edges_back ON clia_edges (space, dst, kind, src, origin)",
    "CREATE INDEX clia_edges_source ON clia_edges (space, source)",
    """CREATE TABLE clia_retractions (space {text} NOT NULL, origin {text} NOT NULL, source {text} NOT NULL,
       PRIMARY KEY (space, origin, source)){packed}""",
    "CREATE INDEX clia_retractions_source ON clia_retractions (space, source)",
)


class MigrationStep(NamedTuple):
    """Adds tables or indexes. Not columns: the first release inserts rows without column names, which SQLite would refuse."""

    number: int
    statements: tuple[str, ...]
    min_known: int = 1  # the format that code must know to use the store after this step


STEPS = (
    # Each agent leaves the tombstone of its last intent. Without this index each start scans them all (with 100,000 agents:
    # 48 ms in SQLite, 31 ms in PostgreSQL; with it below 0.1 ms).
    MigrationStep(2, ("CREATE INDEX clia_values_live ON clia_values (space, key) WHERE value IS NOT NULL",)),
)
KNOWN = STEPS[-1].number
NEEDED = 1
"""This code needs the steps up to this one; later ones only make it faster."""
STEPS_TABLE = "clia_steps"
CREATE_STEPS_TABLE = f"CREATE TABLE IF NOT EXISTS {STEPS_TABLE} (number INTEGER NOT NULL PRIMARY KEY)"
LAST_STEP = f"SELECT max(number) FROM {STEPS_TABLE}"  # noqa: S608 (a constant)


def missing(last: int) -> list[MigrationStep]:
    """Return the steps after the last completed one."""
    return [step for step in STEPS if step.number > last]


def statements_of(step: MigrationStep) -> Sequence[str]:
    """Return the statements of a step, to be run in one transaction; the caller raises the mark."""
    return (CREATE_STEPS_TABLE, *step.statements, f"INSERT INTO {STEPS_TABLE} VALUES ({step.number})")  # noqa: S608 (a constant)


def check_mark(mark: int, **store: str) -> None:
    """``UnsupportedFormat`` if the store needs newer code; ``store`` names it in the error's fields."""
    if mark > KNOWN:
        (where,) = store.values()
        message = f"{where}: store format {mark} is newer than this clia supports ({KNOWN})"
        raise UnsupportedFormat(message, hints=["upgrade clia"], fields={**store, "version": mark, "known": KNOWN})
