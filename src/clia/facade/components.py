"""The parts of one open space.

Invariant: a part is built, and its module imported, when it is first used. Opening a space builds the core and the envelope only.
Threads may share a space: each part is built once.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import Generic, TypeVar, overload

from clia.space.envelope import Envelope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from clia.behaviours.index import ObservationIndex
    from clia.behaviours.library import BehaviourLibrary
    from clia.capture.service import Captures
    from clia.facade.backends import Git, LiveState, Options
    from clia.facade.config import Config
    from clia.federation.announcing import Announcer, SigningKeys
    from clia.federation.capabilities import Capabilities
    from clia.federation.checks import FederationChecks
    from clia.federation.keys import SpaceKeys
    from clia.federation.peer_tokens import PeerTokens
    from clia.federation.peers import Peers
    from clia.federation.pending import PendingMoves, RefusalLog
    from clia.federation.service import FederationResources
    from clia.federation.syncing import PeerSync
    from clia.federation.tracking import PeerTracking
    from clia.hub.sync import HubSync
    from clia.sessions.checkpoints import Checkpoints
    from clia.sessions.decisions import Decisions
    from clia.sessions.flows import Flows
    from clia.sessions.forks import Forks
    from clia.sessions.health import Health
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.replay import Replay
    from clia.sessions.service import SessionBackend
    from clia.sessions.transitions import Transitions
    from clia.space.adoption import RemoteExchange
    from clia.space.agents import Agents
    from clia.space.behaviour_chains import BehaviourChains
    from clia.space.checkouts import CheckoutPlaces
    from clia.space.checks import Checks
    from clia.space.commits import Commits
    from clia.space.core import Core
    from clia.space.history import History
    from clia.space.landing import Landing, Relinking
    from clia.space.maintenance import Upkeep
    from clia.space.merging import Merging
    from clia.space.purging import Purging
    from clia.space.registry import Registry
    from clia.space.relations import Relations
    from clia.space.traces import Traces
    from clia.store.interface import Queue

T = TypeVar("T")


class part(Generic[T]):  # noqa: N801  # used as a decorator
    """A property that is computed once, also where threads ask at the same time."""

    def __init__(self, build: Callable[[Any], T]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, components: None, owner: type) -> Self: ...
    @overload
    def __get__(self, components: Components, owner: type) -> T: ...
    def __get__(self, components: Components | None, owner: type) -> T | Self:
        if components is None:
            return self
        with components.building:
            if self._name not in components.__dict__:
                components.__dict__[self._name] = self._build(components)
        built: T = components.__dict__[self._name]
        return built


class Components:
    """``hub_sync``: the hub of the space; None if it has none."""

    def __init__(self, git: Git, core: Core, state: LiveState, options: Options, hub_sync: HubSync | None) -> None:
        self.building = RLock()
        self.git = git
        self.core = core
        self.workbench = git.workbench
        self.hub_sync = hub_sync
        self.options = options
        self._state = state
        self.envelope = envelope = Envelope(core, git.workbench, hub_sync.sync_agent if hub_sync else None)
        if hub_sync is not None:
            hub_sync.continues_keys = lambda tip: self.keys.continues(tip)  # noqa: PLW0108  # builds the keys when they are needed
            hub_sync.hold, hub_sync.hold_recovered = envelope.held, envelope.at_work

    def close(self) -> None:
        """Release the store and the runs that are kept for it."""
        with self.building:
            if "replay" in self.__dict__:
                self.replay.close()
        self._state.close()
        self.core.store.close()

    @property
    def home(self) -> str:
        """The directory of clia's own files in the git directory."""
        return os.path.join(self.git.handle.common_dir, "clia")

    @part
    def config(self) -> Config:
        """The operator's configuration."""
        from clia.facade.config import read_config

        return read_config(None, required=False)

    # Agents, commits, history

    @part
    def registry(self) -> Registry:
        from clia.space.registry import Registry

        return Registry(self.core, self.envelope)

    @part
    def checkpoints(self) -> Checkpoints:
        from clia.sessions.checkpoints import Checkpoints

        return Checkpoints(self.core)

    @part
    def agents(self) -> Agents:
        from clia.space.agents import Agents

        return Agents(self.core, self.envelope, self.checkpoints)

    @part
    def traces(self) -> Traces:
        from clia.space.traces import Traces

        return Traces(self.core, self.envelope, self.options.redact_chunk, self.options.entry_max)

    @part
    def commits(self) -> Commits:
        from clia.space.commits import Commits

        return Commits(self.core, self.envelope, self.registry, self.traces, self.checkpoints)

    @part
    def merging(self) -> Merging:
        from clia.space.merging import Merging

        return Merging(self.core, self.envelope, self.commits)

    @part
    def landing(self) -> Landing:
        from clia.space.landing import Landing

        return Landing(self.core, self.envelope, self.merging)

    @part
    def relations(self) -> Relations:
        from clia.space.relations import Relations

        return Relations(self.core, self.envelope)

    @part
    def history(self) -> History:
        from clia.space.history import History

        return History(self.core, self.agents, self.traces, self.workbench)

    @part
    def checkouts(self) -> CheckoutPlaces:
        from clia.space.checkouts import CheckoutPlaces

        return CheckoutPlaces(self.core, self.commits, self.workbench)

    @part
    def exchange(self) -> RemoteExchange:
        from clia.space.adoption import RemoteExchange

        return RemoteExchange(self.core, self.envelope, self.workbench)

    @part
    def checks(self) -> Checks:
        from clia.space.checks import Checks

        return Checks(self.core, self.envelope, self.relations, self.workbench)

    @part
    def maintenance(self) -> Upkeep:
        from clia.space.maintenance import Upkeep

        return Upkeep(self.core, self.agents, self.landing, self.workbench)

    @part
    def relinking(self) -> Relinking:
        from clia.space.landing import Relinking

        return Relinking(self.core, self.traces, self.workbench)

    @part
    def purging(self) -> Purging:
        from clia.space.purging import Purging

        return Purging(self.core, self.envelope, self.workbench)

    @part
    def captures(self) -> Captures:
        from clia.capture.service import Captures

        return Captures(self)

    # Sessions

    @part
    def queue(self) -> Queue:
        if self._state.queue is not None:
            return self._state.queue
        from clia.store.store_queue import StoreQueue

        return StoreQueue(self.core.store)

    @part
    def session_backend(self) -> SessionBackend:
        from clia.facade.backends import session_backend

        return session_backend(self)

    @part
    def flows(self) -> Flows:
        from clia.sessions.flows import Flows

        return Flows(self.core, self.chains, self.session_backend.engine)

    @part
    def replay(self) -> Replay:
        from clia.sessions.replay import Replay

        backend = self.session_backend
        return Replay(backend.engine, self.core.store, self.flows.source, backend.shelf, backend.place)

    @part
    def transitions(self) -> Transitions:
        from clia.sessions.transitions import Transitions

        return Transitions(self.core, self.envelope, self.traces)

    @part
    def lifecycle(self) -> Lifecycle:
        from clia.sessions.lifecycle import Lifecycle

        seed = self.session_backend.seed
        check = lambda flow, cid=None: self.tracking.check_running(flow, cid)  # noqa: E731  # federation is loaded if it is needed
        return Lifecycle(self.core, self.envelope, self.flows, self.replay, self.transitions, seed, check)

    @part
    def decisions(self) -> Decisions:
        from clia.sessions.decisions import Decisions
        from clia.sessions.service import answer_checker

        check = answer_checker(self.config)
        return Decisions(self.core, self.envelope, self.commits, self.lifecycle, self.transitions, check)

    @part
    def health(self) -> Health:
        from clia.sessions.health import Health

        check = self.lifecycle.check_beginning
        return Health(self.core, self.envelope, self.agents, self.checkpoints, self.replay, self.transitions, check)

    @part
    def forks(self) -> Forks:
        from clia.sessions.forks import Forks

        parts = (self.replay, self.transitions)
        return Forks(self.core, self.envelope, self.agents, self.traces, self.checkpoints, self.lifecycle, parts)

    # Behaviours

    @part
    def chains(self) -> BehaviourChains:
        from clia.space.behaviour_chains import BehaviourChains

        return BehaviourChains(self.core, self.envelope)

    @part
    def library(self) -> BehaviourLibrary:
        from clia.behaviours.library import BehaviourLibrary

        return BehaviourLibrary(self.core, self.chains, self.flows)

    @part
    def observations(self) -> ObservationIndex:
        from clia.behaviours.index import ObservationIndex

        return ObservationIndex(self.core)

    # Federation

    @part
    def federation_resources(self) -> FederationResources:
        from clia.facade.backends import federation_resources

        return federation_resources(self)

    @part
    def keys(self) -> SpaceKeys:
        from clia.federation.keys import SpaceKeys

        return SpaceKeys(self.core, self.envelope, self.federation_resources.ring, self.federation_resources.verifier)

    @part
    def peers(self) -> Peers:
        from clia.federation.peers import Peers

        return Peers(self.core, self.envelope, self.federation_resources.verifier)

    @part
    def capabilities(self) -> Capabilities:
        from clia.federation.capabilities import Capabilities

        return Capabilities(self.core, self.envelope, self.registry, self.peers, self.federation_resources.nonce)

    @part
    def signing(self) -> SigningKeys:
        from clia.federation.announcing import SigningKeys

        return SigningKeys(self.keys, self.federation_resources.ring, self.federation_resources.verifier)

    @part
    def announcing(self) -> Announcer:
        from clia.federation.announcing import Announcer

        return Announcer(self.core, self.envelope, self.registry, self.signing, self.federation_resources.transport)

    @part
    def peer_tokens(self) -> PeerTokens:
        from clia.federation.peer_tokens import PeerTokens

        return PeerTokens(self.core, self.peers, self.signing, (self.announcing, self.federation_resources.transport))

    @part
    def refusals(self) -> RefusalLog:
        from clia.federation.pending import RefusalLog

        return RefusalLog(self.core)

    @part
    def tracking(self) -> PeerTracking:
        from clia.federation.tracking import PeerTracking

        return PeerTracking(self.core, self.peers, self.capabilities, self.chains)

    @part
    def syncing(self) -> PeerSync:
        from clia.federation.peer_tokens import FETCH_TOKEN
        from clia.federation.syncing import PeerSync, SyncDependencies

        parts = SyncDependencies(
            registry=self.registry,
            peers=self.peers,
            capabilities=self.capabilities,
            refusals=self.refusals,
            verifier=self.federation_resources.verifier,
            transport=self.federation_resources.transport,
            fetch_token=lambda peer: self.peer_tokens.token(peer, FETCH_TOKEN),
            limits=self.federation_resources.limits,
        )
        return PeerSync(self.core, self.envelope, parts)

    @part
    def pending_moves(self) -> PendingMoves:
        from clia.federation.pending import PendingMoves

        return PendingMoves(self.capabilities, self.refusals)

    @part
    def federation_checks(self) -> FederationChecks:
        from clia.federation.checks import CheckDependencies, FederationChecks

        backend = self.federation_resources
        return FederationChecks(
            self.core, CheckDependencies(self.keys, self.peers, self.capabilities, backend.ring, backend.verifier)
        )
