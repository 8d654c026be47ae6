"""The components of an open space.

Invariant: a component is built, and its module imported, when it is first used. Opening a space builds the core and the envelope
only. Threads may share a space: each component is built once.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from operator import attrgetter
from threading import RLock
from typing import Generic, TypeVar, overload

from clia.facade.backends import federation_resources, session_backend
from clia.space.envelope import Envelope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from clia.behaviours.index import ObservationIndex
    from clia.behaviours.library import BehaviourLibrary
    from clia.capture.service import Captures
    from clia.facade.backends import LiveState, SpaceOptions
    from clia.facade.config import Config
    from clia.federation.announcing import Announcer, PeerTokens
    from clia.federation.capabilities import Capabilities
    from clia.federation.keys import SpaceKeys
    from clia.federation.peers import Peers
    from clia.federation.service import FederationResources
    from clia.federation.syncing import PeerSync
    from clia.federation.tracking import PeerTracking
    from clia.federation.verification import FederationChecks
    from clia.git.line_diff import GitLineDiffs
    from clia.git.repository import Git
    from clia.hub.sync import HubSync
    from clia.programs.run_directories import RunDirectories
    from clia.sessions.agreement import Agreement
    from clia.sessions.checkpoints import Checkpoints
    from clia.sessions.flows import Flows
    from clia.sessions.forks import Forks
    from clia.sessions.health import Health
    from clia.sessions.lifecycle import Decisions, Lifecycle
    from clia.sessions.repairs import Repairs
    from clia.sessions.replay import Replay
    from clia.sessions.service import SessionBackend
    from clia.sessions.transitions import Transitions
    from clia.space.agents import Agents, Upkeep
    from clia.space.attribution import Attributions
    from clia.space.attribution_index import AttributionIndex
    from clia.space.behaviour_chains import BehaviourChains
    from clia.space.commits import CheckoutPlaces, Commits
    from clia.space.core import Core
    from clia.space.history import History
    from clia.space.lost_moves import LostMoves
    from clia.space.merging import Landing, Merging, Relinking, TreeMerging
    from clia.space.purging import Purging
    from clia.space.relations import Relations
    from clia.space.remotes import RemoteExchange
    from clia.space.traces import Traces
    from clia.space.type_registry import Registry
    from clia.space.verification import Checks
    from clia.store.interface import Queue

T = TypeVar("T")


class part(Generic[T]):  # noqa: N801  # used as a decorator
    """A thread-safe cached property."""

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
        component: T = components.__dict__[self._name]
        return component


def built(home: str, needs: str) -> Any:
    """A component of the class ``home`` (``module:Class``); ``needs`` names its arguments in order, which are components."""
    module, _, name = home.partition(":")
    load = cache(lambda: getattr(import_module(module), name))
    arguments = [attrgetter(need) for need in needs.split()]
    return part(lambda components: load()(*[argument(components) for argument in arguments]))


class Components:
    """The components of a space. ``hub_sync``: None without a hub."""

    def __init__(self, git: Git, core: Core, state: LiveState, options: SpaceOptions, hub_sync: HubSync | None) -> None:
        self.building = RLock()
        self.git = git
        self.core = core
        self.porcelain = git.porcelain
        self.hub_sync = hub_sync
        self.options = options
        self._state = state
        self.envelope = envelope = Envelope(core, git.porcelain, hub_sync.sync_agent if hub_sync else None)
        if hub_sync is not None:
            hub_sync.continues_keys = lambda tip: self.keys.continues(tip)  # noqa: PLW0108  # builds the keys only if needed
            hub_sync.hold, hub_sync.hold_recovered = envelope.held, envelope.at_work

    def close(self) -> None:
        """Close the store and the runs kept for it."""
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

    registry: part[Registry] = built("clia.space.type_registry:Registry", "core envelope")
    checkpoints: part[Checkpoints] = built("clia.sessions.checkpoints:Checkpoints", "core")
    agents: part[Agents] = built("clia.space.agents:Agents", "core envelope checkpoints")
    traces: part[Traces] = built("clia.space.traces:Traces", "core envelope options.redact_chunk options.entry_max")
    commits: part[Commits] = built("clia.space.commits:Commits", "core envelope registry traces checkpoints")
    merging: part[Merging] = built("clia.space.merging:Merging", "core envelope commits tree_merging")
    landing: part[Landing] = built("clia.space.merging:Landing", "core envelope attributions tree_merging")
    relations: part[Relations] = built("clia.space.relations:Relations", "core envelope")
    lost_moves: part[LostMoves] = built("clia.space.lost_moves:LostMoves", "core envelope relations")
    line_diffs: part[GitLineDiffs] = built("clia.git.line_diff:GitLineDiffs", "git.handle")
    attribution_index: part[AttributionIndex] = built("clia.space.attribution_index:AttributionIndex", "core line_diffs")
    attributions: part[Attributions] = built("clia.space.attribution:Attributions", "core envelope line_diffs attribution_index")

    @part
    def history(self) -> History:
        from clia.space.history import History

        return History(self.core, self.agents, self.traces, self.porcelain, lambda: self.attributions, lambda: self.line_diffs)

    @part
    def tree_merging(self) -> TreeMerging:
        """Merges of trees, in which journals are joined entry by entry."""
        from clia.identities.journal_union import is_journal, merge_journals
        from clia.space.merging import FileRule, TreeMerging

        return TreeMerging(self.core, (FileRule(is_journal, merge_journals),))

    checkouts: part[CheckoutPlaces] = built("clia.space.commits:CheckoutPlaces", "core commits porcelain")
    exchange: part[RemoteExchange] = built("clia.space.remotes:RemoteExchange", "core envelope porcelain")
    checks: part[Checks] = built("clia.space.verification:Checks", "core envelope relations lost_moves porcelain")
    maintenance: part[Upkeep] = built("clia.space.agents:Upkeep", "core agents landing porcelain")
    relinking: part[Relinking] = built("clia.space.merging:Relinking", "core traces porcelain attributions")
    purging: part[Purging] = built("clia.space.purging:Purging", "core envelope porcelain")

    @part
    def captures(self) -> Captures:
        from clia.capture.service import Captures

        return Captures(self)

    @part
    def run_directories(self) -> RunDirectories:
        from clia.programs.run_directories import RunDirectories

        return RunDirectories(self)

    # Sessions

    @part
    def queue(self) -> Queue:
        if self._state.queue is not None:
            return self._state.queue
        from clia.store.store_queue import StoreQueue

        return StoreQueue(self.core.store)

    @part
    def session_backend(self) -> SessionBackend:
        return session_backend(self)

    flows: part[Flows] = built("clia.sessions.flows:Flows", "core chains session_backend.engine")

    @part
    def replay(self) -> Replay:
        from clia.sessions.replay import Replay

        backend = self.session_backend
        return Replay(backend.engine, self.core.store, self.flows.source, backend.shelf, backend.place)

    transitions: part[Transitions] = built("clia.sessions.transitions:Transitions", "core envelope traces")

    @part
    def lifecycle(self) -> Lifecycle:
        from clia.sessions.lifecycle import Lifecycle

        seed = self.session_backend.seed
        check = lambda flow, cid=None: self.tracking.check_running(flow, cid)  # noqa: E731  # loads federation only if needed
        agree = self.checkpoints.agree
        return Lifecycle(self.core, self.envelope, self.flows, self.replay, self.transitions, seed, agree, check)

    @part
    def decisions(self) -> Decisions:
        from clia.sessions.lifecycle import Decisions
        from clia.sessions.service import answer_checker

        return Decisions(self.core, self.envelope, self.commits, self.lifecycle, answer_checker(self.config))

    agreement: part[Agreement] = built("clia.sessions.agreement:Agreement", "core checkpoints")
    repairs: part[Repairs] = built("clia.sessions.repairs:Repairs", "core envelope agreement lifecycle")
    health: part[Health] = built("clia.sessions.health:Health", "core envelope agents lifecycle lost_moves repairs")
    forks: part[Forks] = built("clia.sessions.forks:Forks", "core envelope agents traces checkpoints lifecycle")

    # Behaviours

    chains: part[BehaviourChains] = built("clia.space.behaviour_chains:BehaviourChains", "core envelope")
    library: part[BehaviourLibrary] = built("clia.behaviours.library:BehaviourLibrary", "core chains flows")
    observations: part[ObservationIndex] = built("clia.behaviours.index:ObservationIndex", "core")

    # Federation

    @part
    def resources(self) -> FederationResources:
        return federation_resources(self)

    keys: part[SpaceKeys] = built("clia.federation.keys:SpaceKeys", "core envelope resources.ring resources.verifier")
    peers: part[Peers] = built("clia.federation.peers:Peers", "core envelope resources.verifier")
    capabilities: part[Capabilities] = built(
        "clia.federation.capabilities:Capabilities", "core envelope registry peers resources.nonce"
    )
    announcing: part[Announcer] = built("clia.federation.announcing:Announcer", "core envelope registry keys resources")
    peer_tokens: part[PeerTokens] = built("clia.federation.announcing:PeerTokens", "core peers keys announcing resources")

    @part
    def tracking(self) -> PeerTracking:
        from clia.federation.tracking import PeerTracking

        return PeerTracking(self.core, self.chains, lambda: self.peers, lambda: self.capabilities)

    federation_checks: part[FederationChecks] = built(
        "clia.federation.verification:FederationChecks", "core keys peers capabilities resources"
    )

    @part
    def syncing(self) -> PeerSync:
        from clia.federation.announcing import FETCH_TOKEN
        from clia.federation.syncing import PeerSync

        fetch_token = lambda peer: self.peer_tokens.token(peer, FETCH_TOKEN)  # noqa: E731  # builds the tokens only if needed
        return PeerSync(self.core, self.envelope, self.registry, self.peers, self.capabilities, self.resources, fetch_token)
