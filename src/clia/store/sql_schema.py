"""The tables of the SQL stores: their first form, and the numbered steps that led on from it.

Invariant: a step only adds, so that code from before it works on beside it, and code that knows it does with a store that
has not taken it yet (``NEEDED``). Each step is taken once, whole or not at all, in order. The steps that a store has taken
are in a table of their own. The mark that every release has looked at (``clia_schema.version``, SQLite's ``user_version``)
says which code may work with the store at all: code that knows less than it refuses.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import UnsupportedFormat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# {text}: the database's type of text that sorts by code point. {packed}: kept in the order of the key, where that is offered.
# A deleted value keeps its version: else one that was deleted and put again could pass for the one read before.
FIRST_FORM = (
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


class Step(NamedTuple):
    """Adds tables or indexes. Not columns: the first release names none when it writes a row, and SQLite refuses such a row."""

    number: int
    statements: tuple[str, ...]
    oldest: int = 1  # the least that code must know to work with a store that has taken it


STEPS = (
    # Each agent leaves the row of its last intent, deleted: looking for one that was not walked over all of them at each start
    # (measured with 100,000 agents: 48 ms in SQLite, 31 ms in PostgreSQL; with it below 0.1 ms).
    Step(2, ("CREATE INDEX clia_values_live ON clia_values (space, key) WHERE value IS NOT NULL",)),
)
KNOWN = STEPS[-1].number
NEEDED = 1
"""The steps up to this one must have been taken for this code to work; the others only help it."""
STEPS_TABLE = "clia_steps"
MAKE_STEPS_TABLE = f"CREATE TABLE IF NOT EXISTS {STEPS_TABLE} (number INTEGER NOT NULL PRIMARY KEY)"
LAST_STEP = f"SELECT max(number) FROM {STEPS_TABLE}"  # noqa: S608 (a constant)


def missing(taken: int) -> list[Step]:
    """What a store still has to take, given the last step that it took."""
    return [step for step in STEPS if step.number > taken]


def taking(step: Step) -> Sequence[str]:
    """The statements that take a step, in one transaction, but for raising the mark."""
    return (MAKE_STEPS_TABLE, *step.statements, f"INSERT INTO {STEPS_TABLE} VALUES ({step.number})")  # noqa: S608 (a constant)


def check_mark(mark: int, **store: str) -> None:
    """``UnsupportedFormat`` where only newer code may work with a store; ``store`` names it in the error's fields."""
    if mark > KNOWN:
        (where,) = store.values()
        raise UnsupportedFormat(
            f"{where}: the store has format {mark}, this clia knows {KNOWN}",
            hints=["use the newer clia that wrote it"],
            fields={**store, "version": mark, "known": KNOWN},
        )
