"""The hub of a space when it is opened or joined: its settings, and the store that its machines share.

Invariant: machines that share a store share a hub. The ids of a store and a hub are written once, and are checked first.
"""

from __future__ import annotations

import os
from contextlib import suppress
from uuid import uuid4

from clia.errors import Conflict, InvalidInput, NotFound
from clia.facade.joining import (
    OUTAGE_FILE,
    agree_on_store,
    check_heads,
    keep_mark,
    mark_of,
    other_hub,
    recognize,
)
from clia.facade.opening import positive_number, store_address
from clia.facade.settings import HUB, HUB_HEADS, HUB_SECONDS, clock_of, person_of
from clia.git.libgit2 import find_repository
from clia.git.notes import GitNotes
from clia.git.records import Stamp
from clia.hub.clone_ids import clone_id
from clia.hub.records import BRANCHES, PUBLISHED_REFS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.facade.backends import Git
    from clia.facade.joining import HubTarget, Mark
    from clia.facade.settings import Settings
    from clia.hub.remote import RemoteHub
    from clia.hub.sync import HubSync
    from clia.space.core import Core
    from clia.store.interface import Store

_HUB_ID, _STORE_ID, _PROBE = "hub/id", "store/id", "store/probe"
"""Keys in a shared store: the id of the hub of its machines, and its own id, which the hub records for every machine."""


def hub_of(git: Git) -> RemoteHub | None:
    """The hub that the repository's settings name."""
    remote = git.setting(HUB)
    if remote is None:
        return None
    from clia.hub.remote import RemoteHub, RemoteHubOptions

    if git.setting(f"remote.{remote}.url") is None:
        raise NotFound(
            f"the setting {HUB} names the remote {remote!r}, which does not exist",
            code="no-such-remote",
            hints=["clia hub set URL", f"or work without a hub: git config --unset {HUB}"],
            fields={"remote": remote},
        )
    heads = git.setting(HUB_HEADS) or BRANCHES
    if heads not in (BRANCHES, PUBLISHED_REFS):
        message = f"the setting {HUB_HEADS} must be {BRANCHES} or {PUBLISHED_REFS}, not {heads!r}"
        raise InvalidInput(message, code="invalid-setting", fields={"field": HUB_HEADS})
    seconds = positive_number(git, "clia.hubSeconds") or HUB_SECONDS
    options = RemoteHubOptions(remote, heads, float(seconds), os.path.join(git.handle.common_dir, "clia", OUTAGE_FILE))
    return RemoteHub(git.handle, git.command, git.refs, options)


def address_at(path: str, settings: Settings) -> str | None:
    """The hub address of the repository at or above a path; None without a hub. Does not open the store."""
    from clia.facade.backends import connect

    root = find_repository(os.path.abspath(path))
    try:
        hub = None if root is None else hub_of(connect(root, settings))
    except NotFound:  # the remote was removed
        return None
    return None if hub is None else hub.address()


def core_with_hub(git: Git, alone: Core) -> tuple[Core, HubSync | None]:
    """The core with refs that are shared through the hub, and the sync with the hub; unchanged without a hub."""
    hub = hub_of(git)
    if hub is None:
        return alone, None
    from clia.hub.refs import HubRefs, UnpublishedWork
    from clia.hub.sync import HubSync

    check_heads(git)
    if alone.clone is not None:
        _check_is_the_store(git, alone.store)
    unpublished = UnpublishedWork(alone.store, clone_id(git.handle.common_dir), alone.clock, shared=alone.clone is not None)
    refs = HubRefs(hub, git.graph, unpublished, alone.reached)
    hub_sync: HubSync | None = None
    notes = GitNotes(git.handle, git.objects, refs, git.graph)
    core = alone._replace(
        refs=refs,
        notes=notes,
        seek=lambda name: hub_sync.seek(name) if hub_sync else None,
        fresh=lambda name: hub_sync.refresh(name) if hub_sync else None,
        catch_up=lambda: hub_sync is not None and hub_sync.catch_up(),
    )
    hub_sync = HubSync(core, alone, hub, unpublished)
    hub_sync.check_hub = lambda: recognize(git, hub)
    hub_sync.ensure_mark = lambda: keep_mark(git, hub, None if alone.clone is None else _hub_of_store(alone.store))
    return core, hub_sync


def check_state(git: Git, space_id: str, settings: Settings, target: HubTarget, before: Mark | None) -> None:
    """Check, before writing to a hub, that this clone uses the store and the hub of the space's machines.

    ``before``: the mark of the hub that this clone had joined. A clone with its own store may keep it.
    """
    address, mark = store_address(git, settings), mark_of(git)
    shared = None if mark is None or target.new_store else mark.store
    if address is None:
        if mark is not None and shared is not None and (before is None or before.id != mark.id):
            raise _other_store("the machines of this space share a database, but this one has no store address")
        return
    from clia.store.postgres_store import PostgresStore

    store = PostgresStore(address, space_id, own=f"{space_id}/{clone_id(git.handle.common_dir)}")
    try:
        _check_writable(store)
        hub, name = _hub_of_store(store), store.get(_STORE_ID)
        if hub is not None and not target.new_hub and (mark is None or mark.id != hub):
            raise _two_hubs()
        if shared is not None and (name is None or name.value != shared):
            raise _other_store()
    finally:
        store.close()


class _Undone(Exception):
    """Rolls back a transaction."""


def _check_writable(store: Store) -> None:
    with suppress(_Undone), store.writing() as transaction:
        transaction.values.put(_PROBE, True)
        raise _Undone


def bring_state(git: Git, space_id: str, settings: Settings, *, replace: bool = False, new_hub: bool = False) -> None:
    """Move a clone's own state in PostgreSQL to the space; ``Conflict`` if another clone has the same keys.

    ``replace``: this store replaces the one that machines shared before, which is lost; ``new_hub``: the same for their hub.
    """
    address = store_address(git, settings)
    person, now = person_of(settings, git.setting), clock_of(settings)()
    by = Stamp(person.name, person.email, int(now.timestamp()))
    if address is None:
        if replace:
            agree_on_store(git, None, by, replace=True)
        return
    from clia.store.postgres_store import PostgresStore

    own = f"{space_id}/{clone_id(git.handle.common_dir)}"
    store = PostgresStore(address, space_id, own=own)
    try:
        mark = mark_of(git)
        _check_one_hub(store, None if mark is None else mark.id, replace=new_hub)
        name = _name_of(store)
        if agree_on_store(git, name, by, replace=replace) != name:
            raise _other_store()
        store.merge_clone_state(own)
    finally:
        store.close()


def _check_one_hub(store: Store, hub: str | None, *, replace: bool) -> None:
    """Machines that share a store must share a hub: with two, they would diverge silently."""
    with store.writing() as transaction:
        row = transaction.values.get(_HUB_ID)
        if row is None or replace:
            transaction.values.put(_HUB_ID, hub)
        elif row.value != hub:
            raise _two_hubs()


def _two_hubs() -> Conflict:
    return other_hub("the machines that share this store have another hub")


def _hub_of_store(store: Store) -> str | None:
    row = store.get(_HUB_ID)
    return None if row is None or row.value is None else str(row.value)


def _name_of(store: Store) -> str:
    """The id of a store; created once, and copied with the database."""
    with store.writing() as transaction:
        row = transaction.values.get(_STORE_ID)
        if row is not None:
            return str(row.value)
        name = str(uuid4())
        transaction.values.put(_STORE_ID, name)
    return name


def _check_is_the_store(git: Git, store: Store) -> None:
    mark = mark_of(git)
    if mark is None or mark.store is None:
        return
    row = store.get(_STORE_ID)
    if row is None or row.value != mark.store:
        raise _other_store()


def _other_store(message: str = "the machines of this space use another database") -> Conflict:
    return Conflict(
        message,
        code="other-store",
        hints=[
            "give its address with --store; git config clia.store shows it on another machine",
            "if it is lost, or each machine should have its own: clia hub set URL --new-store on a working machine",
        ],
        fields={"field": "store"},
    )
