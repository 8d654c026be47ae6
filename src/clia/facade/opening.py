"""Open a space with its store, hub and settings.

Invariant: opening completes or undoes operations of crashed processes, and changes nothing else.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import nullcontext, suppress
from functools import cache

from clia.errors import InvalidInput, NotFound, UnsupportedFormat
from clia.facade.backends import LiveState, SpaceOptions, connect, core_with_hub, ignore_step
from clia.facade.components import Components
from clia.facade.settings import Settings, acting_agent, check_address, clock_of, person_of
from clia.facade.space import Space
from clia.git.libgit2 import find_repository
from clia.git.repository import HUB, STORE, is_on
from clia.redaction import secrets
from clia.space.core import Cleaner, Core
from clia.space.store_epochs import StoreEpochs
from clia.space.traces import ENTRY_MAX
from clia.store import private_files
from clia.store.epochs import MARK_FILE, StoreGuard, StoreMark
from clia.store.private_files import FileLocks
from clia.values import refs as names
from clia.values.commit_messages import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.git.repository import Git
    from clia.store.interface import Locks, Store

FORMAT = 1
UPKEEP = "clia.upkeep"
"""The git setting that says whether upkeep runs in the background; on by default."""
MOVES = 32
"""Number of ref moves after which upkeep is started."""
COUNT_FILE = "moves"
"""The length of this file is the number of ref moves since the last upkeep."""
SPACE = "Clia-Space"


def open_space(path: str | os.PathLike[str] = ".", *, settings: Settings | None = None) -> Space:
    """The space of the repository at or above ``path``."""
    chosen = settings or Settings()
    git = connect(repository_at(path), chosen)
    tip = git.refs.get(names.SPACE)
    if tip is None:
        raise no_such_space(git.handle.path)
    return assemble(git, space_id_of(git, tip), chosen, os.path.abspath(path))


def no_such_space(path: str) -> NotFound:
    return NotFound(f"not a clia space yet: {path}", code="no-such-space", hints=["run: clia init"], fields={"path": path})


def repository_at(path: str | os.PathLike[str]) -> str:
    directory = os.path.abspath(path)
    root = find_repository(directory)
    if root is None:
        raise NotFound(
            f"not inside a git repository: {directory}",
            code="no-such-repository",
            hints=["create one with: git init, then: clia init"],
            fields={"path": directory},
        )
    return root


def space_id_of(git: Git, tip: str) -> str:
    try:
        data = json.loads(_space_text(git, tip))
        version, space_id = data["format"], data["id"]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{names.SPACE} has no readable space.json", code="invalid-space", fields={"ref": names.SPACE}) from None
    if version != FORMAT or not isinstance(space_id, str):
        raise UnsupportedFormat(
            f"this space has format {version}, but this version of clia supports format {FORMAT}",
            hints=["upgrade clia"],
            fields={"format": version},
        )
    return space_id


def _space_text(git: Git, tip: str) -> bytes | str:
    commit = git.objects.commit(tip)
    for key, value in parse(commit.message)[1]:
        if key == SPACE:
            return value
    entry = git.objects.entry(commit.tree, "space.json")
    return git.objects.blob(entry.cid) if entry else "{}"


def assemble(git: Git, space_id: str, settings: Settings, place: str) -> Space:
    _prepare_home(git)
    state = _live_state(git, space_id, settings)
    log = git.refs.log
    core = Core(
        space_id=space_id,
        objects=git.objects,
        refs=git.refs,
        graph=git.graph,
        notes=git.notes,
        store=state.store,
        locks=state.locks,
        clock=state.clock or clock_of(settings),
        identify=cache(lambda: person_of(settings, git.setting)),
        clean=_cleaner(settings.redact),
        reached=settings.reached or ignore_step,
        notify=settings.notify or ignore_step,
        clone=state.clone,
        logged=nullcontext if log is None else log.batch,
    )
    if log is not None:
        log.recover()
    mark = StoreMark(os.path.join(git.handle.common_dir, "clia", MARK_FILE))
    state.store.guard = StoreGuard(state.store, mark, StoreEpochs(core))
    hub_sync = None
    if git.setting(HUB) is not None:
        core, hub_sync = core_with_hub(git, core)
    chunks = secrets.redact_entry if settings.redact else _keep_chunk
    entry_max = settings.entry_max or git.positive_number("clia.traceEntryMax") or ENTRY_MAX
    options = SpaceOptions(place, chunks, entry_max, store_address(git, settings), acting_agent(settings), settings.prove)
    options = options._replace(agent_keys=settings.agent_keys)
    components = Components(git, core, state, options, hub_sync)
    if is_on(git.setting(UPKEEP)):
        git.refs.counted = lambda: _count_move(git, components.home)
    path = _config_path(components, settings)
    if path is not None:  # an error in the file is reported when the space is opened
        from clia.facade.config import read_config

        components.__dict__["config"] = read_config(
            path, required=path in (settings.config, settings.person_config) or options.agent is not None
        )
    return Space(components)


def _prepare_home(git: Git) -> None:
    """Create the directory of clia's own files, and give it the permissions that the repository is configured for."""
    home, sharing = os.path.join(git.handle.common_dir, "clia"), git.handle.sharing
    with suppress(OSError):  # it exists, or the repository is read-only
        os.mkdir(home, private_files.DIRECTORY_MODE)
    if not sharing.bits:
        private_files.tighten_tree(home)
        return
    with suppress(OSError):
        if stat.S_IMODE(os.stat(home).st_mode) != sharing.directory_mode(private_files.DIRECTORY_MODE):
            private_files.share_tree(home, sharing.apply)


def _count_move(git: Git, home: str) -> None:
    """Count a move of a ref, and start upkeep if it is due."""
    with suppress(OSError):  # a full disk: the move is done
        handle = private_files.open_file(os.path.join(home, COUNT_FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(handle, b".")
            count = os.fstat(handle).st_size
        finally:
            os.close(handle)
        if count % MOVES == 0:
            from clia.facade.background_upkeep import start_if_due

            start_if_due(git.handle.path, home, git.command.environment, count)


def _config_path(components: Components, settings: Settings) -> str | None:
    """The operator's configuration file. The default one is beside the store, so that no agent can commit to it."""
    if settings.config is not None:
        return settings.config
    default = os.path.join(components.home, "config.toml")
    present, agent = default if os.path.exists(default) else None, components.options.agent
    if agent is None:
        return settings.person_config or present
    from clia.facade.agent_config import config_for_agent  # only where an agent acts

    return config_for_agent(components.core, agent, present, settings.person_config)


def _live_state(git: Git, space_id: str, settings: Settings) -> LiveState:
    home = os.path.join(git.handle.common_dir, "clia")
    patience = git.positive_number("clia.lockSeconds") or private_files.LOCK_SECONDS
    address, locks = store_address(git, settings), FileLocks(os.path.join(home, "locks"), patience, settings.notify)
    store: Store
    if address is None:
        from clia.store.sqlite_store import STORE_FILE, SqliteStore

        store = SqliteStore(os.path.join(home, STORE_FILE), space_id, durable=git.handle.durable)
        return LiveState(store, locks)
    from clia.store.clone_ids import clone_id, unique_clone_id
    from clia.store.postgres_store import PostgresStore, StoreClock

    if git.setting(HUB) is None:
        # Live state belongs to one clone: its intents refer to refs that no other clone has.
        clone = clone_id(git.handle.common_dir)
        store = PostgresStore(address, f"{space_id}/{clone}", is_current=lambda: git.setting(HUB) is None)
        return LiveState(store, locks)
    state = _shared_state(address, space_id, unique_clone_id(git.handle.common_dir, locks), locks)
    return state if settings.clock is not None else state._replace(clock=StoreClock(state.store, clock_of(settings)))


def store_address(git: Git, settings: Settings) -> str | None:
    """The address of the store on a server; None: the store is beside the repository."""
    address = git.setting(STORE) if settings.store is None else settings.store
    check_address(address)
    return address


def _shared_state(address: str, space_id: str, clone: str, files: Locks) -> LiveState:
    """Live state with a hub: any machine may work on any agent, so it belongs to the space and locks hold on all machines."""
    from clia.store.postgres_locks import PostgresLocks
    from clia.store.postgres_store import PostgresStore
    from clia.store.procrastinate_queue import ProcrastinateQueue

    store = PostgresStore(address, space_id, own=f"{space_id}/{clone}")
    locks, queue = PostgresLocks(address, space_id, files), ProcrastinateQueue(store, address, space_id)

    def close() -> None:
        queue.close()
        locks.close()

    return LiveState(store, locks, queue, clone, close)


def _cleaner(redact: bool) -> Cleaner:
    if redact:
        return Cleaner(secrets.redact, secrets.redact_value)
    return Cleaner(lambda text: (text, 0), lambda value: (value, 0))


def _keep_chunk(text: str, state: Sequence[str] | None) -> tuple[str, int, Sequence[str]]:
    del state
    return text, 0, secrets.START
