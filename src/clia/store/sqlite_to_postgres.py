"""Moving the live state from the SQLite store to a PostgreSQL server.

Invariant: at any time exactly one store is in use, and it is complete. During the move no other process works in the clone, and
no operation is unfinished. The state is copied to the server in one transaction; then the SQLite file is retired in another; then
git's settings name the server. A crash in between changes nothing, or leaves only the last step to the next run.
"""

from __future__ import annotations

import os

from clia.store.export import PROCESS_KEYS, REBUILT
from clia.store.interface import FOREIGN
from clia.store.sqlite_store import is_moved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.store.postgres_store import PostgresStore
    from clia.store.sqlite_store import SqliteStore


def is_in_use(path: str) -> bool:
    """Whether there is a SQLite store that was not moved yet."""
    return os.path.exists(path) and not is_moved(path)


def copy_state(old: SqliteStore, new: PostgresStore, reached: Callable[[str], None], *, shared: bool) -> None:
    """Copy the live state to the server, and retire the file. ``shared``: machines share the new store and therefore all agents."""
    excluded = (*PROCESS_KEYS, *REBUILT, *((FOREIGN,) if shared else ()))
    with old.exporting(excluded) as rows:
        new.import_store(rows)
        reached("store-copied")
    reached("store-shut")
