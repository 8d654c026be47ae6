"""Moving the live state from the SQLite store to a PostgreSQL server.

Invariant: at any time exactly one store is in use, and it has everything. No other process works in the clone, and nothing is
unfinished. The state is copied to the server in one transaction; then the SQLite file is retired, in one transaction; then git's
settings name the server. A crash in between changes nothing, or leaves only the last step to the next run.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import NamedTuple

from clia.errors import CliaError
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
_OF_PROCESSES = ("claim/", "fleet/", "queue/")  # who lives says so anew
# These say what no clone can read from its refs again.
_TOLD = ("feed/refs", FOREIGN, "sweep/")
_MADE_ANEW = tuple(each for each in CLONE_KEYS if each not in _TOLD)


class Moved(NamedTuple):
    """What came along, apart from the past."""

    sessions: int  # live ones
    traces: int  # entries that wait for their commit
    users: int


def move_store(git: Git, space_id: str, settings: Settings) -> Moved | None:
    """Brings what is live beside the repository to the PostgreSQL that the settings name, and keeps its address.

    None where there is nothing to be moved: the store is elsewhere already, or was never used.
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
        hub_state.bring_state(git, space_id, settings)  # also: the machines that share it have this hub
    without = (*_OF_PROCESSES, *_MADE_ANEW, *((FOREIGN,) if shared else ()))  # where all is shared, so are agents
    with (
        opening.assemble(git, space_id, settings._replace(store=None), git.handle.path) as space,
        space.alone(),
        closing(SqliteStore(path, space_id, durable=git.handle.durable)) as old,
        closing(PostgresStore(settings.store, space_id if shared else own, own=own)) as new,
    ):
        moved = _carry(old, new, without, settings.reached or _nothing)
        git.handle.repo.config[STORE] = settings.store
        new.confirm_import()
    return moved


def left_behind(space: Space) -> int:
    """How many live sessions are in the store beside the repository, while the space works with another one."""
    from clia.store.sqlite_store import SqliteStore

    path = os.path.join(space.home, _FILE)
    in_use = space.core.store
    if isinstance(in_use, SqliteStore) or not _is_open(path):
        return 0
    try:
        with closing(SqliteStore(path, space.id)) as beside:
            return len(beside.scan(LIVE))
    except CliaError:
        return 0  # it cannot be read, and nobody works with it


def _carry(old: SqliteStore, new: PostgresStore, without: tuple[str, ...], reached: Callable[[str], None]) -> Moved:
    with old.reading() as view:
        traces = sum(len(view.streams.read(each)) for each in view.streams.names(_TRACES))
        moved = Moved(len(view.values.scan(LIVE)), traces, len(view.values.scan(_USERS)))
    with old.exporting(without) as rows:
        new.import_store(rows)
        reached("store-copied")
    reached("store-shut")
    return moved


def _is_open(path: str) -> bool:
    """Whether an SQLite store is there that was not left yet."""
    from clia.store.sqlite_store import is_moved

    return os.path.exists(path) and not is_moved(path)


def _nothing(step: str) -> None:
    """Nobody watches the steps."""
    del step
