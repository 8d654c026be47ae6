"""The components of an open space.

Invariant: a component is built, and its module imported, when it is first used. Opening a space builds the core and the envelope
only. Threads may share a space: each component is built once.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from operator import attrgetter
from threading import RLock
from typing import Generic, TypeVar, overload

from clia.errors import CliaError, Denied, FileError, InvalidInput
from clia.facade.backends import federation_resources, session_backend
from clia.space.core import CommitText, UnapprovedChange
from clia.space.envelope import Envelope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Self

    from clia.approvals.accepted_guardrails import AcceptedGuardrails
    from clia.approvals.guardrails import GuardrailApprovals
    from clia.approvals.recorded_rules import RecordedRules
    from clia.behaviours.index import ObservationIndex
    from clia.behaviours.library import BehaviourLibrary
    from clia.capture.service import Captures
    from clia.facade.backends import LiveState, SpaceOptions
    from clia.facade.config import Config
    from clia.facade.verb_steps import VerbSteps
    from clia.federation.announcing import Announcer, PeerTokens
    from clia.federation.capabilities import Capabilities
    from clia.federation.keys import SpaceKeys
    from clia.federation.peers import Peers
    from clia.federation.service import FederationResources
    from clia.federation.syncing import PeerSync
    from clia.federation.tracking import PeerTracking
    from clia.federation.verification import FederationChecks
    from clia.git.archive import KeptPacks
    from clia.git.line_diff import GitLineDiffs
    from clia.git.porcelain import GitPorcelain
    from clia.git.repository import Git
    from clia.hub.sync import HubSync
    from clia.programs.run_directories import RunDirectories
    from clia.sessions.agreement import Agreement
    from clia.sessions.checkpoints import Checkpoints
    from clia.sessions.decisions import Decisions
    from clia.sessions.flows import Flows
    from clia.sessions.forks import Forks
    from clia.sessions.health import Health
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.reopening import Reopening
    from clia.sessions.repairs import Repairs
    from clia.sessions.replay import Replay
    from clia.sessions.service import SessionBackend
    from clia.sessions.transitions import Transitions
    from clia.space.agent_agendas import AgentAgendas
    from clia.space.agent_journals import AgentJournals
    from clia.space.agents import Agents
    from clia.space.attribution.attributions import Attributions
    from clia.space.attribution.health import AttributionHealth
    from clia.space.attribution.index import AttributionIndex
    from clia.space.attribution.running_turns import TurnCommit
    from clia.space.behaviour_chains import BehaviourChains
    from clia.space.changes import AgentChanges
    from clia.space.commits import CheckoutPlaces, Commits, Worktree
    from clia.space.core import Core
    from clia.space.history import History
    from clia.space.landing import Landing
    from clia.space.lost_moves import LostMoves
    from clia.space.merging import Merging, TreeMerging
    from clia.space.model import Content
    from clia.space.purging import Purging
    from clia.space.relations import Relations
    from clia.space.relinking import Relinking
    from clia.space.remotes import RemoteExchange
    from clia.space.renaming import Renaming
    from clia.space.reprofiling import Reprofiling
    from clia.space.reverting import Reverts
    from clia.space.traces import Traces
    from clia.space.type_registry import Registry
    from clia.space.upkeep import Archiving, Upkeep
    from clia.space.verification import Checks
    from clia.store.interface import Queue
    from clia.trust.checkpoints.exchange import CheckpointExchange
    from clia.trust.checkpoints.making import CheckpointWriter
    from clia.trust.enrolling import TrustKeys
    from clia.trust.statements import RecordedAct

    Contents = tuple[Mapping[str, Content] | None, Mapping[str, Content | None] | None]

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
        self.hub_sync = hub_sync
        self.options = options
        self._state = state
        self.envelope = envelope = Envelope(core, lambda: git.porcelain, hub_sync.sync_agent if hub_sync else None)
        if hub_sync is not None:
            hub_sync.continues_keys = lambda tip: self.keys.continues(tip)  # noqa: PLW0108  # builds the keys only if needed
            hub_sync.hold, hub_sync.hold_recovered = envelope.held, envelope.at_work
            hub_sync.checkpoints = lambda: self.checkpoint_exchange

    def close(self) -> None:
        """Close the store and the runs kept for it."""
        with self.building:
            if "replay" in self.__dict__:
                self.replay.close()
            self._end_agent_keys()
        self._state.close()
        self.core.store.close()

    def _end_agent_keys(self) -> None:
        """End the agents' keys that this process certified."""
        keys = self.options.agent_keys.end() if self.options.agent_keys is not None else []
        if keys:
            with suppress(CliaError):  # they expire by themselves
                self.trust_keys.end_agent_keys(keys)

    @property
    def porcelain(self) -> GitPorcelain:
        """The git command, on worktrees and remotes; loaded when it is used."""
        return self.git.porcelain

    @property
    def home(self) -> str:
        """The directory of clia's own files in the git directory."""
        return os.path.join(self.git.handle.common_dir, "clia")

    def directory(self, path: str | os.PathLike[str]) -> str:
        """The absolute path of a directory that a caller names."""
        try:
            return os.path.abspath(os.fspath(path))
        except TypeError:
            raise InvalidInput(f"{path!r} is not a directory", code="not-a-directory", fields={"path": repr(path)}) from None

    @part
    def config(self) -> Config:
        """The operator's configuration."""
        from clia.facade.config import read_config

        return read_config(None, required=False)

    # Agents, commits, history

    @part
    def registry(self) -> Registry:
        from clia.space.type_registry import Registry

        def federated_id(name: str, parent: str) -> str:
            from clia.federation.statements import define_cid  # few spaces register types

            return define_cid(name, parent)

        return Registry(self.core, self.envelope, federated_id)

    checkpoints: part[Checkpoints] = built("clia.sessions.checkpoints:Checkpoints", "core")
    agents: part[Agents] = built("clia.space.agents:Agents", "core envelope checkpoints")
    traces: part[Traces] = built("clia.space.traces:Traces", "core envelope options.redact_chunk options.entry_max")
    merging: part[Merging] = built("clia.space.merging:Merging", "core envelope commits tree_merging")

    @part
    def landing(self) -> Landing:
        from clia.git.repository import LAND
        from clia.space.landing import Landing, landing_form

        chosen = self.git.setting(LAND)
        default = "" if chosen is None else landing_form(chosen)
        trees, guard = self.tree_merging, self.approvals
        checked_out = self.git.refs.checked_out
        return Landing(self.core, self.envelope, self.attributions, trees, guard, default, checked_out, self.state_act)

    def state_act(self, act: RecordedAct) -> list[tuple[str, str]]:
        """The trailers with a person's statement of an act; builds the keys only if needed."""
        return self.trust_keys.prover.act(act)

    changes: part[AgentChanges] = built("clia.space.changes:AgentChanges", "core agents history landing tree_merging line_diffs")
    renaming: part[Renaming] = built("clia.space.renaming:Renaming", "core envelope agents relations porcelain")

    @part
    def reverts(self) -> Reverts:
        from clia.space.reverting import Reverts

        def check(before: str, after: str) -> None:
            losses = self.approvals.change(before, after).losses
            if losses:
                message = f"undoing it would take {len(losses)} guardrails from the branch, which needs an approval"
                hints = ["let an agent take them away, and land its work: clia land asks for the approval"]
                raise Denied(message, code="guardrails-approval", hints=hints, fields={"losses": len(losses)})

        return Reverts(self.core, self.envelope, self.tree_merging, check)

    reprofiling: part[Reprofiling] = built("clia.space.reprofiling:Reprofiling", "core envelope agents commits")
    relations: part[Relations] = built("clia.space.relations:Relations", "core envelope")
    lost_moves: part[LostMoves] = built("clia.space.lost_moves:LostMoves", "core envelope relations")
    line_diffs: part[GitLineDiffs] = built("clia.git.line_diff:GitLineDiffs", "git.handle")
    attribution_index: part[AttributionIndex] = built("clia.space.attribution.index:AttributionIndex", "core line_diffs")
    attributions: part[Attributions] = built(
        "clia.space.attribution.attributions:Attributions", "core envelope line_diffs attribution_index running_commits"
    )

    @part
    def commits(self) -> Commits:
        from clia.space.commits import Commits

        changed = lambda name, commit: self.approvals.recorded(name, commit)  # noqa: E731, PLW0108  # built only if needed
        return Commits(self.core, self.envelope, self.registry, self.traces, self.checkpoints, changed)

    @part
    def approvals(self) -> GuardrailApprovals:
        """Approvals of changes that take guardrails away."""
        from clia.facade.approval_parts import guardrail_approvals

        return guardrail_approvals(self)

    @part
    def accepted_guardrails(self) -> AcceptedGuardrails:
        """The guardrails that earlier agents had."""
        from clia.facade.approval_parts import accepted_guardrails

        return accepted_guardrails(self)

    @part
    def recorded_rules(self) -> RecordedRules:
        """Rules of guardrails on commits and landings."""
        from clia.facade.approval_parts import recorded_rules

        return recorded_rules(self)

    words = CommitText

    def commit(
        self, name: str, kind: str, contents: Contents, words: CommitText, base: str | None, *, with_trace: bool = False
    ) -> str:
        """Commit files (all, or changes), if the rules of the agent allow it. What tools did is recorded without this check."""
        return self.commit_tree(name, kind, self.commits.worktree(name, *contents), words, base, with_trace=with_trace)

    def commit_tree(
        self, name: str, kind: str, worktree: Worktree, words: CommitText, base: str | None, *, with_trace: bool = False
    ) -> str:
        """Commit the tree that a function makes of the head's, if the rules of the agent allow it."""
        with self._ruled_commit(name, kind, with_trace=with_trace) as checked:
            tree = lambda before: checked(before, worktree(before))  # noqa: E731
            return self.commits.commit(name, kind, tree, words, base=base, with_trace=with_trace)

    def commit_dir(self, name: str, kind: str, directory: str, words: CommitText, base: str | None, *, with_trace: bool) -> str:
        """Commit the files of a directory, if the rules of the agent allow it."""
        if not os.path.isdir(directory):
            raise FileError(f"{directory} is not a directory", fields={"path": directory, "reason": "not a directory"})
        with self._ruled_commit(name, kind, with_trace=with_trace) as checked:
            stage = lambda top, before: checked(before, self.porcelain.snapshot(top, before))  # noqa: E731
            return self.checkouts.commit_dir(name, kind, directory, words, base=base, with_trace=with_trace, stage=stage)

    @contextmanager
    def _ruled_commit(self, name: str, kind: str, *, with_trace: bool) -> Iterator[Callable[[str, str], str]]:
        """A function that takes the trees before and after a commit, and returns the latter if the rules allow the commit."""

        def checked(before: str, after: str) -> str:
            if self.may_have_rules(name):
                self.recorded_rules.check_commit(name, kind, (before, after), with_trace=with_trace)
            return after

        try:
            yield checked
        except UnapprovedChange as unapproved:
            raise unapproved.refusal() from None

    def may_have_rules(self, name: str) -> bool:
        """Whether an agent may have rules: it has a profile, or there are identities. Loads nothing."""
        origin = self.agents.origin_of(name)
        if origin.profile is not None or (origin.place or {}).get("path"):
            return True
        parts = self.options.place.split(os.sep)
        above = (os.sep.join(parts[:end]) or os.sep for end in range(len(parts), 0, -1))
        return any(os.path.isdir(f"{directory}/.clia/agents") for directory in above)

    def running_commits(self) -> dict[str, TurnCommit]:
        """The commits of captured tools whose turns are still running."""
        return self.captures.running_commits()

    @part
    def history(self) -> History:
        from clia.space.history import History

        porcelain, attributions, diffs = lambda: self.porcelain, lambda: self.attributions, lambda: self.line_diffs
        return History(self.core, self.agents, self.traces, porcelain, attributions, diffs)

    @part
    def tree_merging(self) -> TreeMerging:
        """Merges of trees, in which journals are joined entry by entry, and agendas item by item."""
        from clia.identities.contexts import AGENDA
        from clia.identities.journal_union import is_document, is_journal, merge_journals
        from clia.space.merging import FileRule, TreeMerging

        def merge_agendas(path: str, base: bytes | None, ours: bytes, theirs: bytes) -> bytes | None:
            from clia.identities.agenda_union import merge_agendas  # few merges have a conflict in an agenda

            return merge_agendas(path, base, ours, theirs)

        is_agenda = lambda path: is_document(path, AGENDA)  # noqa: E731
        return TreeMerging(self.core, (FileRule(is_journal, merge_journals), FileRule(is_agenda, merge_agendas)))

    @part
    def checkouts(self) -> CheckoutPlaces:
        from clia.space.commits import CheckoutPlaces

        return CheckoutPlaces(self.core, self.commits, self.porcelain, lambda: self.agent_journals)

    @part
    def agent_agendas(self) -> AgentAgendas:
        from clia.identities.contexts import AGENDA
        from clia.identities.service import lineage_at
        from clia.space.agent_agendas import AgentAgendas

        place = self.options.place
        return AgentAgendas(self.core, self.commits, self.agents, lambda slug: lineage_at(place, slug).merged(AGENDA).document)

    agent_journals: part[AgentJournals] = built("clia.space.agent_journals:AgentJournals", "core commits agents git.handle")

    @part
    def steps(self) -> VerbSteps:
        from clia.facade.verb_steps import VerbSteps

        return VerbSteps(self)

    @part
    def exchange(self) -> RemoteExchange:
        from clia.space.remotes import RemoteExchange

        own_logs = lambda: self.trust_keys.own_logs()  # noqa: E731, PLW0108  # built only if needed
        checkpoints = lambda: self.checkpoint_exchange  # noqa: E731
        return RemoteExchange(self.core, self.envelope, self.porcelain, self.git.setting, own_logs, checkpoints)

    checks: part[Checks] = built("clia.space.verification:Checks", "core envelope relations lost_moves porcelain")
    maintenance: part[Upkeep] = built("clia.space.upkeep:Upkeep", "core agents landing archiving git")
    archiving: part[Archiving] = built("clia.space.upkeep:Archiving", "core envelope agents git.refs kept_packs porcelain")
    kept_packs: part[KeptPacks] = built("clia.git.archive:KeptPacks", "git.handle git.command core.reached")
    attribution_health: part[AttributionHealth] = built(
        "clia.space.attribution.health:AttributionHealth", "core attributions line_diffs"
    )
    relinking: part[Relinking] = built("clia.space.relinking:Relinking", "core envelope traces porcelain attributions")
    purging: part[Purging] = built("clia.space.purging:Purging", "core envelope porcelain archiving state_act")

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
        return Lifecycle(self.core, self.envelope, self.flows, self.replay, self.transitions, seed, self.checkpoints, check)

    @part
    def decisions(self) -> Decisions:
        from clia.sessions.decisions import Decisions
        from clia.sessions.service import answer_checker

        prover = lambda: self.trust_keys.prover  # noqa: E731  # built only if needed
        return Decisions(self.core, self.envelope, self.commits, self.lifecycle, answer_checker(self.config), prover)

    reopening: part[Reopening] = built("clia.sessions.reopening:Reopening", "core envelope lifecycle")
    agreement: part[Agreement] = built("clia.sessions.agreement:Agreement", "core checkpoints")
    repairs: part[Repairs] = built("clia.sessions.repairs:Repairs", "core envelope agreement lifecycle")
    health: part[Health] = built(
        "clia.sessions.health:Health", "core envelope agents lifecycle lost_moves traces repairs reopening"
    )
    forks: part[Forks] = built("clia.sessions.forks:Forks", "core envelope agents traces checkpoints lifecycle")

    # Trust

    @part
    def trust_keys(self) -> TrustKeys:
        """The keys of machines and people, and the statements that are made here."""
        from clia.trust.enrolling import TrustKeys

        return TrustKeys(self.core, self.envelope, self.git, self.options.prove)

    checkpoint_writer: part[CheckpointWriter] = built("clia.trust.checkpoints.making:CheckpointWriter", "core git trust_keys")
    checkpoint_exchange: part[CheckpointExchange] = built(
        "clia.trust.checkpoints.exchange:CheckpointExchange", "core git trust_keys checkpoint_writer"
    )

    # Behaviours

    chains: part[BehaviourChains] = built("clia.space.behaviour_chains:BehaviourChains", "core envelope state_act")
    library: part[BehaviourLibrary] = built("clia.behaviours.library:BehaviourLibrary", "core chains flows")
    observations: part[ObservationIndex] = built("clia.behaviours.index:ObservationIndex", "core")

    # Federation

    @part
    def resources(self) -> FederationResources:
        return federation_resources(self)

    keys: part[SpaceKeys] = built("clia.federation.keys:SpaceKeys", "core envelope resources.ring resources.verifier")
    peers: part[Peers] = built("clia.federation.peers:Peers", "core envelope resources.verifier")
    capabilities: part[Capabilities] = built("clia.federation.capabilities:Capabilities", "core envelope registry peers state_act")
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
