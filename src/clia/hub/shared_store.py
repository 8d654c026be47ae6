"""The store that the machines of a hub share.

Invariant: machines that share a store share a hub. The ids of a store and a hub are written once, and are checked first.
"""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from clia.errors import Conflict
from clia.hub.joining import agree_on_store, mark_of, other_hub
from clia.store.clone_ids import clone_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.git.records import Stamp
    from clia.git.repository import Git
    from clia.hub.joining import HubTarget, Mark
    from clia.store.interface import Store

_HUB_ID, _STORE_ID, _PROBE = "hub/id", "store/id", "store/probe"
"""Keys in a shared store: the id of the hub of its machines, and its own id, which the hub records for every machine."""


def check_state(git: Git, space_id: str, address: str | None, target: HubTarget, before: Mark | None) -> None:
    """Check, before writing to a hub, that this clone uses the store and the hub of the space's machines.

    ``address``: that of the store; None if it is beside the repository. ``before``: the mark of the hub that this clone had
    joined. A clone with its own store may keep it.
    """
    mark = mark_of(git)
    shared = None if mark is None or target.new_store else mark.store
    if address is None:
        if mark is not None and shared is not None and (before is None or before.id != mark.id):
            raise _other_store("the machines of this space share a database, but this one has no store address")
        return
    from clia.store.postgres_store import PostgresStore

    store = PostgresStore(address, space_id, own=f"{space_id}/{clone_id(git.handle.common_dir)}")
    try:
        _check_writable(store)
        hub, name = hub_of_store(store), store.get(_STORE_ID)
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


def bring_state(git: Git, space_id: str, address: str | None, by: Stamp, *, replace: bool = False, new_hub: bool = False) -> None:
    """Move a clone's own state in PostgreSQL to the space; ``Conflict`` if another clone has the same keys.

    ``replace``: this store replaces the one that machines shared before, which is lost; ``new_hub``: the same for their hub.
    """
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


def hub_of_store(store: Store) -> str | None:
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


def check_is_the_store(git: Git, store: Store) -> None:
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
