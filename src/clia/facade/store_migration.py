"""Moving the live state from the SQLite store to a PostgreSQL server.

Invariant: at any time exactly one store is in use, and it is complete. During the move no other process works in the clone, and
no operation is unfinished. The state is copied to the server in one transaction; then the SQLite file is retired in another; then
git's settings name the server. A crash in between changes nothing, or leaves only the last step to the next run.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import NamedTuple

from clia.errors import CliaError
from clia.facade.backends import ignore_step
from clia.facade.settings import HUB
from clia.hub.clone_ids import clone_id
from clia.sessions.records import LIVE
from clia.space.core import FOREIGN
from clia.space.traces import stream
from clia.store.interface import CLONE_KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.facade.backends import Git
    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.store.postgres_store import PostgresStore
    from clia.store.sqlite_store import SqliteStore

STORE = "clia.store"
_FILE, _USERS, _TRACES = "space.db", "user/", stream("")
_PROCESS_KEYS = ("claim/", "fleet/", "queue/")  # live processes write these again
_NOT_IN_REFS = ("feed/refs", FOREIGN, "sweep/")  # cannot be rebuilt from refs
_REBUILT = tuple(key for key in CLONE_KEYS if key not in _NOT_IN_REFS)


class Moved(NamedTuple):
    """What was moved, apart from history."""

    sessions: int  # live sessions
    traces: int  # pending entries
    users: int  # users of the forge


def move_store(git: Git, space_id: str, settings: Settings) -> Moved | None:
    """Move the live state beside the repository to the PostgreSQL server in the settings, and save its address.

    None if there is nothing to move: the store is already elsewhere, or was never used.
    """
    path = os.path.join(git.handle.common_dir, "clia", _FILE)
    if settings.store is None or git.setting(STORE) is not None or not _is_open(path):
        return None
    from clia.facade import hub_state, opening
    from clia.store.postgres_store import PostgresStore
    from clia.store.sqlite_store import SqliteStore

    own = f"{space_id}/{clone_id(git.handle.common_dir)}"
    shared = git.setting(HUB) is not None
    if shared:
        hub_state.bring_state(git, space_id, settings)  # also checks that the machines that share it have this hub
    excluded = (*_PROCESS_KEYS, *_REBUILT, *((FOREIGN,) if shared else ()))  # with a shared store, agents are shared, too
    with (
        opening.assemble(git, space_id, settings._replace(store=None), git.handle.path) as space,
        space.alone(),
        closing(SqliteStore(path, space_id, durable=git.handle.durable)) as old,
        closing(PostgresStore(settings.store, space_id if shared else own, own=own)) as new,
    ):
        moved = _copy_state(old, new, excluded, settings.reached or ignore_step)
        git.handle.repo.config[STORE] = settings.store
        new.confirm_import()
    return moved


def left_behind(space: Space) -> int:
    """The number of live sessions in the store beside the repository while the space uses another store."""
    from clia.store.sqlite_store import SqliteStore

    path = os.path.join(space.home, _FILE)
    in_use = space.core.store
    if isinstance(in_use, SqliteStore) or not _is_open(path):
        return 0
    try:
        with closing(SqliteStore(path, space.id)) as beside:
            return len(beside.scan(LIVE))
    except CliaError:
        return 0  # unreadable, and not in use


def _copy_state(old: SqliteStore, new: PostgresStore, excluded: tuple[str, ...], reached: Callable[[str], None]) -> Moved:
    with old.reading() as view:
        traces = sum(len(view.streams.read(name)) for name in view.streams.names(_TRACES))
        moved = Moved(len(view.values.scan(LIVE)), traces, len(view.values.scan(_USERS)))
    with old.exporting(excluded) as rows:
        new.import_store(rows)
        reached("store-copied")
    reached("store-shut")
    return moved


def _is_open(path: str) -> bool:
    """Whether there is a SQLite store that was not moved yet."""
    from clia.store.sqlite_store import is_moved

    return os.path.exists(path) and not is_moved(path)
