"""Which backend stands behind which port."""

from __future__ import annotations

import os
from contextlib import suppress
from secrets import token_hex
from typing import NamedTuple
from uuid import uuid4

from clia.errors import Conflict, InvalidInput, NotFound
from clia.facade.config import read_config
from clia.facade.forge_address import peer_address
from clia.facade.joining import (
    HUB,
    HUB_HEADS,
    HUB_SECONDS,
    OUTAGE_FILE,
    agree_on_store,
    check_heads,
    keep_mark,
    mark_of,
    other_hub,
    recognize,
)
from clia.facade.settings import check_address, clock_of, person_of
from clia.facade.space import Parts, Space
from clia.federation.service import FederationResources
from clia.federation.signing import Ed25519Verifier, KeyFiles
from clia.federation.transport import GitTransport
from clia.git.command import GitCommand
from clia.git.graph import GitGraph
from clia.git.libgit2 import GitHandle
from clia.git.notes import GitNotes
from clia.git.objects import GitObjects
from clia.git.records import Stamp, TransferLimits
from clia.git.refs import GitRefs
from clia.git.workbench import GitWorkbench
from clia.hub.clone_ids import clone_id, unique_clone_id
from clia.hub.records import BRANCHES, PUBLISHED_REFS
from clia.hub.sync import HubSync
from clia.hub.unpublished import UnpublishedWork
from clia.redaction import secrets
from clia.sessions.replay import KeptRuns
from clia.sessions.service import Running
from clia.space.core import Cleaner, Core
from clia.space.traces import ENTRY_MAX
from clia.store.file_locks import FileLocks
from clia.store.store_queue import StoreQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.engine.records import Engine, FlowCall, FlowProgram, FlowRun, Problem
    from clia.facade.config import Config, FlowLimits
    from clia.facade.joining import HubWish, Mark
    from clia.facade.settings import Settings
    from clia.hub.remote import RemoteHub
    from clia.store.interface import Locks, Queue, Store
    from clia.values.clock import Clock


_HUB_ID, _STORE_ID, _PROBE = "hub/id", "store/id", "store/probe"
"""Which hub the machines that share a store have, and what the store is called: the hub says that to every machine."""

_engines: dict[FlowLimits, Engine] = {}
_SHELF = KeptRuns()
"""One for all spaces of a process: what is kept takes up workers of the one engine."""


def _nothing() -> None:
    """Nothing else is to be closed."""


class Git(NamedTuple):
    """One repository, through every port that it serves."""

    handle: GitHandle
    objects: GitObjects
    refs: GitRefs
    graph: GitGraph
    notes: GitNotes
    workbench: GitWorkbench
    command: GitCommand

    def setting(self, key: str) -> str | None:
        """A value of git's configuration, as git reads it."""
        config = self.handle.repo.config
        return config[key] if key in config else None  # noqa: SIM401  # libgit2's configuration has no get


def connect(root: str, settings: Settings) -> Git:
    environment = os.environ if settings.environment is None else settings.environment
    handle = GitHandle(root, durable=False)
    durable = settings.durable
    if durable is None:
        config = handle.repo.config
        durable = config.get_bool("clia.durable") if "clia.durable" in config else True
    handle.set_durable(durable)
    command = GitCommand(handle.common_dir, environment, durable=durable)
    objects = GitObjects(handle, command)
    refs = GitRefs(handle, command, settings.reached or _nowhere)
    graph = GitGraph(handle, objects)
    return Git(handle, objects, refs, graph, GitNotes(handle, objects, refs, graph), GitWorkbench(handle, command), command)


class _State(NamedTuple):
    """Where live state is kept, who keeps others out of it, and which clone this is where others share it."""

    store: Store
    locks: Locks
    queue: Queue
    clone: str | None = None
    close: Callable[[], None] = _nothing
    clock: Clock | None = None  # the one that all machines go by


def assemble(git: Git, space_id: str, settings: Settings, place: str) -> Space:
    state = _state(git, space_id, settings)
    core = Core(
        space_id=space_id,
        objects=git.objects,
        refs=git.refs,
        graph=git.graph,
        notes=git.notes,
        store=state.store,
        locks=state.locks,
        clock=state.clock or clock_of(settings),
        person=person_of(settings, git.setting),
        clean=_cleaner(settings.redact),
        reached=settings.reached or _nowhere,
        clone=state.clone,
    )
    hub, hub_sync = hub_of(git), None
    if hub is not None:
        core, hub_sync = _met(git, hub, core)
    chunks = _redact_chunk if settings.redact else _keep_chunk
    entry_max = settings.entry_max or _number(git, "clia.traceEntryMax") or ENTRY_MAX
    config = read_config(_config_path(git, settings), required=settings.config is not None)
    home = os.path.join(git.handle.common_dir, "clia")
    where = (home, _address(git, settings), config.flows)
    workplace = os.path.join(home, "work")
    running = Running(_Lazily(config.flows), _SHELF, where, state.queue, _seed, config, workplace, core.clock)
    parts = Parts(git.workbench, chunks, entry_max, place, running, _abroad(git, home, config), hub_sync, state.close)
    return Space(core, parts)


def hub_of(git: Git) -> RemoteHub | None:
    """The hub that the repository's settings name."""
    remote = git.setting(HUB)
    if remote is None:
        return None
    from clia.hub.remote import RemoteHub, RemoteHubOptions

    if git.setting(f"remote.{remote}.url") is None:
        raise NotFound(
            f"the setting {HUB} names the remote {remote!r}, which there is not",
            code="no-such-remote",
            hints=["clia hub set URL", f"or work without a hub: git config --unset {HUB}"],
            fields={"remote": remote},
        )
    heads = git.setting(HUB_HEADS) or BRANCHES
    if heads not in (BRANCHES, PUBLISHED_REFS):
        message = f"the setting {HUB_HEADS} must be {BRANCHES} or {PUBLISHED_REFS}, not {heads!r}"
        raise InvalidInput(message, code="invalid-setting", fields={"field": HUB_HEADS})
    seconds = _number(git, "clia.hubSeconds") or HUB_SECONDS
    options = RemoteHubOptions(remote, heads, float(seconds), os.path.join(git.handle.common_dir, "clia", OUTAGE_FILE))
    return RemoteHub(git.handle, git.command, git.refs, options)


def _met(git: Git, hub: RemoteHub, alone: Core) -> tuple[Core, HubSync]:
    """The space over refs that the hub shares, and what keeps the two in step."""
    from clia.hub.refs import HubRefs

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


def _abroad(git: Git, home: str, config: Config) -> FederationResources:
    """What federation needs: keys beside the store, where no commit reaches them."""
    options = config.federation
    limits = TransferLimits(options.transfer_mb * 1024 * 1024, options.transfer_seconds)
    ring, transport = KeyFiles(os.path.join(home, "keys")), GitTransport(git.handle, git.command)
    return FederationResources(ring, Ed25519Verifier(), transport, limits, lambda: token_hex(16), lambda: peer_address(home))


def _config_path(git: Git, settings: Settings) -> str | None:
    """The operator's own file: beside the store, where no agent's commit can reach."""
    if settings.config is not None:
        return settings.config
    path = os.path.join(git.handle.common_dir, "clia", "config.toml")
    return path if os.path.exists(path) else None


def _engine(limits: FlowLimits) -> Engine:
    """One engine for all spaces of a process: its workers take milliseconds to start, and stay until the process ends.

    Of threads that come at the same time one wins. What the others made has no workers yet, and is let go.
    """
    there = _engines.get(limits)
    if there is not None:
        return there
    from clia.engine.monty import MontyEngine
    from clia.engine.records import EngineLimits

    return _engines.setdefault(limits, MontyEngine(EngineLimits(limits.turn_seconds, limits.memory_mb * 1024 * 1024)))


class _Lazily:
    """The engine, loaded when the first flow runs: it takes a hundred milliseconds, and most commands run none."""

    def __init__(self, limits: FlowLimits) -> None:
        self._limits = limits

    def _loaded(self) -> Engine:
        return _engine(self._limits)

    @property
    def version(self) -> str:
        return self._loaded().version

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        return self._loaded().start(program, patient=patient)

    def load(self, program: FlowProgram, dump: bytes, pending: Sequence[FlowCall]) -> FlowRun:
        return self._loaded().load(program, dump, pending)

    def check(self, source: str, *, types: bool = False) -> list[Problem]:
        return self._loaded().check(source, types=types)

    def close(self) -> None:
        """Other spaces may run flows on it."""


def _state(git: Git, space_id: str, settings: Settings) -> _State:
    home = os.path.join(git.handle.common_dir, "clia")
    where, locks = _address(git, settings), FileLocks(os.path.join(home, "locks"))
    store: Store
    if where is None:
        from clia.store.sqlite_store import SqliteStore

        store = SqliteStore(os.path.join(home, "space.db"), space_id, durable=git.handle.durable)
        return _State(store, locks, StoreQueue(store))
    from clia.store.clock import StoreClock
    from clia.store.postgres_store import PostgresStore

    if git.setting(HUB) is None:
        # Live state belongs to one clone: its intents are about refs that no other clone has.
        clone = clone_id(git.handle.common_dir)
        store = PostgresStore(where, f"{space_id}/{clone}", stays=lambda: git.setting(HUB) is None)
        return _State(store, locks, StoreQueue(store))
    state = _shared_state(where, space_id, unique_clone_id(git.handle.common_dir, locks), locks)
    return state if settings.clock is not None else state._replace(clock=StoreClock(state.store, clock_of(settings)))


def _address(git: Git, settings: Settings) -> str | None:
    """Where the store on a server is; None: it is beside the repository."""
    where = git.setting("clia.store") if settings.store is None else settings.store
    check_address(where)
    return where


def _shared_state(where: str, space_id: str, clone: str, files: Locks) -> _State:
    """With a hub every machine can work on every agent: what is live is the space's, and a lock keeps all machines out."""
    from clia.store.postgres_locks import PostgresLocks
    from clia.store.postgres_store import PostgresStore
    from clia.store.procrastinate_queue import ProcrastinateQueue

    store = PostgresStore(where, space_id, own=f"{space_id}/{clone}")
    locks, queue = PostgresLocks(where, space_id, files), ProcrastinateQueue(store, where, space_id)

    def close() -> None:
        queue.close()
        locks.close()

    return _State(store, locks, queue, clone, close)


def check_state(git: Git, space_id: str, settings: Settings, wish: HubWish, before: Mark | None) -> None:
    """Before anything is written at a hub: that what is live can be kept where its machines keep it, and that they have this hub.

    ``before``: what this clone had joined until now. One that works with a store of its own goes on so.
    """
    where, mark = _address(git, settings), mark_of(git)
    shared = None if mark is None or wish.new_store else mark.store
    if where is None:
        if mark is not None and shared is not None and (before is None or before.id != mark.id):
            raise _other_store("the machines of this space share a database, and this one comes without")
        return
    from clia.store.postgres_store import PostgresStore

    store = PostgresStore(where, space_id, own=f"{space_id}/{clone_id(git.handle.common_dir)}")
    try:
        _check_writable(store)
        hub, name = _hub_of_store(store), store.get(_STORE_ID)
        if hub is not None and not wish.new_hub and (mark is None or mark.id != hub):
            raise _two_hubs()
        if shared is not None and (name is None or name.value != shared):
            raise _other_store()
    finally:
        store.close()


class _Undone(Exception):
    """Nothing of a transaction is to stay."""


def _check_writable(store: Store) -> None:
    with suppress(_Undone), store.writing() as transaction:
        transaction.values.put(_PROBE, True)
        raise _Undone


def bring_state(git: Git, space_id: str, settings: Settings, *, anew: bool = False, new_hub: bool = False) -> None:
    """What a clone kept for itself in PostgreSQL becomes the space's; ``Conflict`` where another has the like already.

    ``anew``: the store that machines shared before is gone for good, and this one takes its place; ``new_hub``: so is their hub.
    """
    where = _address(git, settings)
    person, now = person_of(settings, git.setting), clock_of(settings)()
    by = Stamp(person.name, person.email, int(now.timestamp()))
    if where is None:
        if anew:
            agree_on_store(git, None, by, anew=True)
        return
    from clia.store.postgres_store import PostgresStore

    own = f"{space_id}/{clone_id(git.handle.common_dir)}"
    store = PostgresStore(where, space_id, own=own)
    try:
        mark = mark_of(git)
        _check_one_hub(store, None if mark is None else mark.id, anew=new_hub)
        name = _name_of(store)
        if agree_on_store(git, name, by, anew=anew) != name:
            raise _other_store()
        store.merge_clone_state(own)
    finally:
        store.close()


def _check_one_hub(store: Store, hub: str | None, *, anew: bool) -> None:
    """Machines that share a store share a hub: two would go two ways without a word."""
    with store.writing() as transaction:
        known = transaction.values.get(_HUB_ID)
        if known is None or anew:
            transaction.values.put(_HUB_ID, hub)
        elif known.value != hub:
            raise _two_hubs()


def _two_hubs() -> Conflict:
    return other_hub("the machines that share this store have another hub")


def _hub_of_store(store: Store) -> str | None:
    known = store.get(_HUB_ID)
    return None if known is None or known.value is None else str(known.value)


def _name_of(store: Store) -> str:
    """What tells a store from any other, for the machines of a space; made once, and copied along with the database."""
    with store.writing() as transaction:
        known = transaction.values.get(_STORE_ID)
        if known is not None:
            return str(known.value)
        name = str(uuid4())
        transaction.values.put(_STORE_ID, name)
    return name


def _check_is_the_store(git: Git, store: Store) -> None:
    mark = mark_of(git)
    if mark is None or mark.store is None:
        return
    known = store.get(_STORE_ID)
    if known is None or known.value != mark.store:
        raise _other_store()


def _other_store(message: str = "the machines of this space keep what is live in another database") -> Conflict:
    return Conflict(
        message,
        code="other-store",
        hints=[
            "give its address with --store: git config clia.store tells it on a machine that works",
            "if it is gone for good, or each machine is to have its own: clia hub set URL --new-store, on one that works",
        ],
        fields={"field": "store"},
    )


def _seed() -> str:
    """Another one for each session."""
    return token_hex(16)


def _number(git: Git, key: str) -> int | None:
    text = git.setting(key)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InvalidInput(f"the setting {key} must be a positive number, not {text!r}", code="invalid-setting")
    return int(text)


def _cleaner(redact: bool) -> Cleaner:
    if redact:
        return Cleaner(secrets.redact, secrets.redact_value)
    return Cleaner(lambda text: (text, 0), lambda value: (value, 0))


def _redact_chunk(text: str, state: Sequence[str] | None) -> tuple[str, int, Sequence[str]]:
    before = secrets.RedactionState(*state) if state else secrets.START
    clean, after = secrets.redact_chunk(text, before)
    if secrets.swallowed(text, before):  # each entry is read alone: what it lost shows in it
        return secrets.mark(before) + clean.text, clean.count + 1, after
    return clean.text, clean.count, after


def _keep_chunk(text: str, state: Sequence[str] | None) -> tuple[str, int, Sequence[str]]:
    del state
    return text, 0, secrets.START


def _nowhere(step: Any) -> None:
    """Nobody watches the steps."""
    del step
