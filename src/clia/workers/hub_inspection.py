"""Looking at the hub, for those who show how things stand with it.

Invariant: nothing here moves but what is known of the hub; what is to be taken over or published is left to a sync. Only
``ask_hub`` asks it, and nothing here looks at every ref.
"""

from __future__ import annotations

import os

from clia.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.hub.remote import RemoteHub
    from clia.hub.sync import HubSync
    from clia.workers.fleet import Fleet, HubStanding

LEAST_GIT = (2, 31)
"""The first git that fetches several refs all at once or not at all (``--atomic``); pushing so is older."""


def ask_hub(path: str | os.PathLike[str], settings: Settings) -> None:
    """Reads all that the hub of the space at or above a path has; one that cannot be reached is noted as away."""
    hub = _hub_at(path, settings)
    if hub is not None:
        hub.fetch(retry_now=True)


def address_at(path: str | os.PathLike[str], settings: Settings) -> str | None:
    """Where the hub of the repository at or above a path is; None where it has none. No store is looked at."""
    try:
        hub = _hub_at(path, settings)
    except NotFound:  # the setting names a remote that was removed
        return None
    return None if hub is None else hub.address()


def _hub_at(path: str | os.PathLike[str], settings: Settings) -> RemoteHub | None:
    from clia.facade.backends import connect
    from clia.facade.hub_state import hub_of
    from clia.git.libgit2 import find_repository

    root = find_repository(os.path.abspath(path))
    return None if root is None else hub_of(connect(root, settings))


def hub_sync_of(space: Space) -> HubSync | None:
    """What keeps a space and its hub in step; its verbs tell of every ref, and looking at that many takes long."""
    return space.hub.exchange


def address_of(space: Space) -> str | None:
    """Where the hub of a space is, without any password; None where there is none."""
    hub_sync = hub_sync_of(space)
    return None if hub_sync is None else hub_sync.address()


def is_away(space: Space) -> bool:
    """Whether the hub could not be reached when somebody tried last."""
    hub_sync = hub_sync_of(space)
    return hub_sync is not None and hub_sync.outage() is not None


def left_owing(space: Space) -> bool:
    """Whether what was done through this object is not at the hub, because that is away."""
    hub_sync = hub_sync_of(space)
    return hub_sync is not None and hub_sync.unpublished.recorded_any and hub_sync.outage() is not None


def worktree_of(space: Space, ref: str) -> str | None:
    """The worktree of people that has a branch checked out."""
    return space.core.refs.followed_by(ref)


def standing_of(space: Space, fleet: Fleet) -> HubStanding | None:
    """How this clone stands with its hub; what has forked is as its forge or worker said last."""
    from clia.workers.fleet import HubStanding, unpublished_by_clone

    hub_sync = hub_sync_of(space)
    if hub_sync is None:
        return None
    clone, away = hub_sync.unpublished.clone, hub_sync.outage()
    owed = unpublished_by_clone(space.core.store).get(clone, ())
    forks = {name for each in fleet.machines if each.clone == clone and each.hub is not None for name in each.hub.forks}
    return HubStanding(owed, None if away is None else away.since, tuple(sorted(forks)))


def is_old_git(version: str | None) -> bool:
    """Whether a version of git is known to be too old for a hub."""
    parts = [part for part in (version or "").split(".")[:2] if part.isascii() and part.isdigit()]
    return len(parts) == 2 and tuple(map(int, parts)) < LEAST_GIT
