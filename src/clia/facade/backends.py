"""The backends of a space: git, the hub, live state, the engine and the keys.

Invariant: nothing here imports the façade, and each backend is imported when it is first needed.
"""

from __future__ import annotations

import os
from secrets import token_hex
from threading import Lock
from typing import NamedTuple

from clia.facade.settings import clock_of, person_of
from clia.git.records import Stamp
from clia.git.repository import open_repository
from clia.trust.machine_keys import AGENT_KEY, machine_key_of
from clia.trust.move_log import MoveLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.engine.records import Engine, FlowCall, FlowProgram, FlowRun, Problem
    from clia.facade.components import Components
    from clia.facade.config import FlowLimits
    from clia.facade.settings import Settings
    from clia.federation.service import FederationResources
    from clia.git.repository import Git
    from clia.hub.sync import HubSync
    from clia.sessions.replay import KeptRuns
    from clia.sessions.service import SessionBackend
    from clia.space.core import Core
    from clia.space.traces import Chunks
    from clia.store.interface import Locks, Queue, Store
    from clia.trust.agent_keys import AgentKeys
    from clia.trust.proving import Prover
    from clia.values.clock import Clock

_SHELVES_LOCK = Lock()
_engines: dict[FlowLimits, Engine] = {}
_shelves: list[KeptRuns] = []


def ignore_step(step: str) -> None:
    """The default for ``Settings.reached``."""
    del step


def _nothing() -> None:
    """The default for ``LiveState.close``: only the store is open."""


def connect(root: str, settings: Settings) -> Git:
    """The repository at a path, opened with the settings of a space."""
    environment = os.environ if settings.environment is None else settings.environment
    git = open_repository(root, environment, settings.reached or ignore_step, durable=settings.durable)
    machine, reached = machine_key_of(git), settings.reached or ignore_step

    def stamp() -> Stamp:
        person = person_of(settings, git.setting)
        return Stamp(person.name, person.email, int(clock_of(settings)().timestamp()))

    git.objects.sign = machine.sign
    path = environment.get(AGENT_KEY) or None
    if path is not None or settings.agent_keys is not None:
        from clia.trust.agent_keys import AgentKeys, sign_as_agents  # few processes have a key of an agent

        sign_as_agents(git, machine, settings.agent_keys or AgentKeys(path))
    git.refs.log = MoveLog(git, machine, stamp, reached, settings.notify or ignore_step)
    return git


def core_with_hub(git: Git, alone: Core) -> tuple[Core, HubSync | None]:
    """The core with refs that are shared through the hub, and the sync with the hub; unchanged without a hub."""
    from clia.git.notes import GitNotes
    from clia.hub.joining import check_heads, keep_mark, recognize
    from clia.hub.refs import HubRefs, UnpublishedWork
    from clia.hub.remote import hub_of
    from clia.hub.shared_store import check_is_the_store, hub_of_store
    from clia.hub.sync import HubSync
    from clia.store.clone_ids import clone_id

    hub = hub_of(git)
    if hub is None:
        return alone, None

    check_heads(git)
    if alone.clone is not None:
        check_is_the_store(git, alone.store)
    unpublished = UnpublishedWork(alone.store, clone_id(git.handle.common_dir), alone.clock, shared=alone.clone is not None)
    refs = HubRefs(hub, git.graph, unpublished, alone.reached, alone.notify)
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
    hub_sync.ensure_mark = lambda: keep_mark(git, hub, None if alone.clone is None else hub_of_store(alone.store))
    return core, hub_sync


class LiveState(NamedTuple):
    """Storage of live state: the store, its locks and, if machines share it, the queue and the id of this clone."""

    store: Store
    locks: Locks
    queue: Queue | None = None  # None: the store's own
    clone: str | None = None
    close: Callable[[], None] = _nothing
    clock: Clock | None = None  # the clock that all machines use


class SpaceOptions(NamedTuple):
    """Options of a space's components."""

    place: str  # the directory where identities are resolved
    redact_chunk: Chunks
    entry_max: int
    store: str | None  # the address of a store on a server
    agent: str | None = None  # the agent that acts; None: a person
    prove: Prover | None = None  # proves the statements of people with their own keys
    agent_keys: AgentKeys | None = None  # the keys of agents that this process certifies


def session_backend(components: Components) -> SessionBackend:
    """The resources that sessions need in addition to the space."""
    from clia.sessions.service import SessionBackend

    config, home = components.config, components.home
    return SessionBackend(
        engine=_LazyEngine(config.flows),
        shelf=_shelf(),
        place=(home, components.options.store, config.flows),
        queue=components.queue,
        seed=lambda: token_hex(16),
        config=config,
        clock=components.core.clock,
    )


def federation_resources(components: Components) -> FederationResources:
    """The resources that federation needs in addition to the space. Keys are next to the store, outside of every commit."""
    from clia.federation.service import FederationResources
    from clia.federation.signing import Ed25519Verifier, KeyFiles
    from clia.federation.transport import GitTransport
    from clia.forge.address_file import peer_address
    from clia.git.records import TransferLimits

    git, home, options = components.git, components.home, components.config.federation
    return FederationResources(
        ring=KeyFiles(os.path.join(home, "keys")),
        verifier=Ed25519Verifier(),
        transport=GitTransport(git.handle, git.command),
        limits=TransferLimits(options.transfer_mb * 1024 * 1024, options.transfer_seconds),
        nonce=lambda: token_hex(16),
        address=lambda: peer_address(home),
    )


def engine_with(limits: FlowLimits) -> Engine:
    """The engine of the process, shared by all spaces: its workers take milliseconds to start and live as long as the process.

    If threads race, one engine is kept; the others have no workers yet and are dropped.
    """
    engine = _engines.get(limits)
    if engine is not None:
        return engine
    from clia.engine.monty import MontyEngine
    from clia.engine.records import EngineLimits

    return _engines.setdefault(limits, MontyEngine(EngineLimits(limits.turn_seconds, limits.memory_mb * 1024 * 1024)))


def _shelf() -> KeptRuns:
    """The kept runs of the process, shared by all spaces because they occupy workers of the shared engine."""
    if not _shelves:
        from clia.sessions.replay import KeptRuns

        with _SHELVES_LOCK:
            if not _shelves:
                _shelves.append(KeptRuns())
    return _shelves[0]


class _LazyEngine:
    """The engine, loaded when the first flow runs: loading takes 100 ms, and most commands run no flow."""

    def __init__(self, limits: FlowLimits) -> None:
        self._limits = limits

    def _loaded(self) -> Engine:
        return engine_with(self._limits)

    @property
    def version(self) -> str:
        return self._loaded().version

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        return self._loaded().start(program, patience=patience)

    def load(self, program: FlowProgram, dump: bytes, pending: Sequence[FlowCall]) -> FlowRun:
        return self._loaded().load(program, dump, pending)

    def check(self, source: str, *, types: bool = False) -> list[Problem]:
        return self._loaded().check(source, types=types)

    def close(self) -> None:
        """Do nothing: other spaces of the process may use the engine."""
