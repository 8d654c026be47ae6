"""Read-only access to the hub for commands and pages that show its status.

Invariant: only tracking refs move here; adopting and publishing is left to a sync. Only ``fetch_hub`` contacts the hub.
"""

from __future__ import annotations

import os

from clia.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.hub.remote import RemoteHub
    from clia.workers.fleet import Fleet, HubStanding

MIN_GIT_VERSION = (2, 31)
"""The first git with ``fetch --atomic``."""


def fetch_hub(path: str | os.PathLike[str], settings: Settings) -> None:
    """Fetch everything from the hub of the space at or above a path; records an outage if it is unreachable."""
    hub = _hub_at(path, settings)
    if hub is not None:
        hub.fetch(retry_now=True)


def address_at(path: str | os.PathLike[str], settings: Settings) -> str | None:
    """Return the hub address of the repository at or above a path; None without a hub. Does not open the store."""
    try:
        hub = _hub_at(path, settings)
    except NotFound:  # the remote was removed
        return None
    return None if hub is None else hub.address()


def _hub_at(path: str | os.PathLike[str], settings: Settings) -> RemoteHub | None:
    from clia.facade.backends import connect
    from clia.facade.hub_state import hub_of
    from clia.git.libgit2 import find_repository

    root = find_repository(os.path.abspath(path))
    return None if root is None else hub_of(connect(root, settings))


def has_unpublished(space: Space) -> bool:
    """Whether this object made changes that are unpublished because the hub is unreachable."""
    hub_sync = space.hub.exchange
    return hub_sync is not None and hub_sync.unpublished.recorded_any and hub_sync.hub.outage() is not None


def standing_of(space: Space, fleet: Fleet) -> HubStanding | None:
    """Return the hub status of this clone; forks as of the last heartbeat."""
    from clia.workers.fleet import HubStanding, unpublished_by_clone

    hub_sync = space.hub.exchange
    if hub_sync is None:
        return None
    clone, away = hub_sync.unpublished.clone, hub_sync.hub.outage()
    unpublished = unpublished_by_clone(space.local.store).get(clone, ())
    hubs = [machine.hub for machine in fleet.machines if machine.clone == clone and machine.hub is not None]
    forks = {name for hub in hubs for name in hub.forks}
    return HubStanding(unpublished, None if away is None else away.since, tuple(sorted(forks)))


def is_old_git(version: str | None) -> bool:
    """Whether a git version is too old for a hub."""
    parts = [part for part in (version or "").split(".")[:2] if part.isascii() and part.isdigit()]
    return len(parts) == 2 and tuple(map(int, parts)) < MIN_GIT_VERSION
