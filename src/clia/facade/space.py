"""The façade of a space: its core verbs, and services for the rest.

Invariant: this module contains no rules. Those of a verb are in the module that implements it, imported when it is needed.

Services are attributes: ``space.traces.search("key")``. Some can be called to list their items: ``space.sessions()``.
A verb of a service that used to be on ``Space`` keeps that name as an ``alias``.
"""

from __future__ import annotations

from clia.values.commit_messages import check_text
from clia.values.refs import is_id
from clia.verbs import ADMIN, VIEWER, alias, for_people, service, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import Annotated, Any, Self

    from clia.api.parameters import (
        AcceptIncomplete,
        Agent,
        Agents,
        Base,
        Changes,
        CommitLimit,
        FilePath,
        Files,
        FirstLine,
        Form,
        From,
        Heads,
        IdentitySlug,
        Into,
        Kind,
        LastLine,
        LineLimit,
        Message,
        Meta,
        NewAgent,
        Onto,
        Other,
        OwnOnly,
        Parent,
        Paths,
        RemoteName,
        Revision,
        SeenHead,
    )
    from clia.behaviours.service import BehaviourService
    from clia.capture.permissions.budgets import BudgetService
    from clia.capture.service import Captures
    from clia.facade.components import Components
    from clia.facade.local import LocalService, ViewService
    from clia.facade.undo import UndoService
    from clia.federation.service import PeerService
    from clia.git.records import Checkout, Pushed
    from clia.hub.service import HubService
    from clia.identities.service import IdentityService
    from clia.provenance.model import ExplainedLines
    from clia.provenance.service import ProvenanceService
    from clia.sessions.health import Ailment
    from clia.sessions.service import SessionBackend, SessionService
    from clia.space.core import Core
    from clia.space.model import (
        AgentCommit,
        AgentState,
        BlamedLine,
        Conflicts,
        Content,
        Landed,
        Maintained,
        Merged,
        Spawned,
        UpToDate,
    )
    from clia.space.remotes import Adopted
    from clia.space.service import AgentService, ChangeService, HistoryService, RelationService, TraceService, TypeService
    from clia.space.verification import Report
    from clia.trust.checkpoints.service import WitnessService
    from clia.trust.service import TrustService
    from clia.values.typed_objects import Briefing
    from clia.verbs import Count
    from clia.workers.fleet import FleetService

    Progress = Callable[[int, int], None]


class Space:
    """A git repository with agents in it. Returned by ``clia.open`` and ``clia.init``; usable as a context manager."""

    def __init__(self, components: Components) -> None:
        self._components = components
        components.envelope.recover_all()

    types: service[TypeService] = service("clia.space.service:TypeService")
    agents: service[AgentService] = service("clia.space.service:AgentService")
    history: service[HistoryService] = service("clia.space.service:HistoryService")
    changes: service[ChangeService] = service("clia.space.service:ChangeService")
    relations: service[RelationService] = service("clia.space.service:RelationService")
    traces: service[TraceService] = service("clia.space.service:TraceService")
    sessions: service[SessionService] = service("clia.sessions.service:SessionService")
    behaviours: service[BehaviourService] = service("clia.behaviours.service:BehaviourService")
    peers: service[PeerService] = service("clia.federation.service:PeerService")
    hub: service[HubService] = service("clia.hub.service:HubService")
    trust: service[TrustService] = service("clia.trust.service:TrustService")
    provenance: service[ProvenanceService] = service("clia.provenance.service:ProvenanceService")
    witnesses: service[WitnessService] = service("clia.trust.checkpoints.service:WitnessService")
    fleet: service[FleetService] = service("clia.workers.fleet:FleetService")
    identities: service[IdentityService] = service("clia.identities.service:IdentityService")
    budgets: service[BudgetService] = service("clia.capture.permissions.budgets:BudgetService")
    captures: service[Captures] = service("clia.capture.service:Captures")
    undoing: service[UndoService] = service("clia.facade.undo:UndoService")
    local: service[LocalService] = service("clia.facade.local:LocalService")
    views: service[ViewService] = service("clia.facade.local:ViewService")

    @property
    def id(self) -> str:
        """The id of the space, the same in every clone."""
        return self._components.core.space_id

    @property
    def has_hub(self) -> bool:
        """Whether this clone shares its refs with other machines."""
        return self._components.hub_sync is not None

    @property
    def core(self) -> Core:
        """The store, refs, locks and clock, for packages of clia with their own rows in the store."""
        return self._components.core

    @property
    def home(self) -> str:
        """The directory of clia's own files in the git directory."""
        return self._components.home

    @property
    def running(self) -> SessionBackend:
        """The backend of sessions, for workers."""
        return self._components.session_backend

    def alone(self) -> AbstractContextManager[None]:
        """Lock out every other process of the clone while the block runs, to move the store."""
        return self._components.envelope.alone()

    def close(self) -> None:
        """Close the store and the runs kept for it."""
        self._components.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Agents

    @verb("POST", "/agents", ADMIN, "agents")
    def spawn(
        self, name: NewAgent, briefing: Briefing, *, slug: IdentitySlug = None, accept_incomplete: AcceptIncomplete = None
    ) -> Spawned:
        """Create an agent with an empty tree."""
        return self._spawn(name, briefing, slug, accept_incomplete)

    @verb("POST", "/agents/{parent}/sub-agents", ADMIN, "agents", agent="parent")
    def spawn_from(
        self,
        name: NewAgent,
        briefing: Briefing,
        parent: Parent,
        *,
        slug: IdentitySlug = None,
        accept_incomplete: AcceptIncomplete = None,
    ) -> Spawned:
        """Create a sub-agent at the head of its parent. Without an identity of its own it works under its parent's."""
        core = self._components.core
        core.fresh(parent)
        return self._spawn(name, briefing, slug, accept_incomplete, core.require_head(parent), parent)

    @verb("POST", "/commits/{commit}/agents", ADMIN, "agents")
    def spawn_at(
        self,
        name: NewAgent,
        briefing: Briefing,
        commit: Revision,
        parent: Parent | None = None,
        *,
        slug: IdentitySlug = None,
        accept_incomplete: AcceptIncomplete = None,
    ) -> Spawned:
        """Create an agent at any commit."""
        self._components.core.fresh(check_text(commit, "commit"))
        return self._spawn(name, briefing, slug, accept_incomplete, self._components.history.find(commit), parent)

    def _spawn(
        self, name: str, briefing: Briefing, slug: str | None, accept: str | None, at: str | None = None, parent: str | None = None
    ) -> Spawned:
        """Spawn an agent with its profile. A version that the briefing names must be one that may run here."""
        version = getattr(briefing, "behaviour", None)  # anything but a briefing is refused later
        proposal = None if version is None else self.behaviours.check_briefing(version)
        from clia.facade.local import spawn_origin

        origin, warnings = spawn_origin(self._components, name, slug, accept, parent, proposal)
        return self._components.agents.spawn(name, briefing, at=at, parent=parent, origin=origin)._replace(warnings=warnings)

    @verb("GET", "/states", VIEWER, "agents")
    def states(self, *, after: str = "", limit: int | None = None) -> list[AgentState]:
        """Each active agent, or one page of them by name: its head, its last commit and whether that has landed."""
        return self._components.maintenance.states(after=after, limit=limit)

    @verb("GET", "/agents/{name}/head", VIEWER, "agents", shows="name")
    def head(self, name: Agent) -> str:
        """The agent's newest commit."""
        return self._components.core.require_head(name)

    # Commits

    @verb("POST", "/agents/{name}/commits", ADMIN, "commits", moves="name", base="base", agent="name")
    def commit(
        self,
        name: Agent,
        kind: Kind,
        files: Files = None,
        *,
        changes: Changes = None,
        message: Message = "",
        meta: Meta = None,
        base: Base = None,
    ) -> str:
        """Make a typed commit and return its id. A repeated call on the same ``base`` returns the commit that exists."""
        return self._components.commit(name, kind, (files, changes), self._components.words(message, meta), self._base(base))

    def _base(self, text: str | None) -> str | None:
        """The full id of a base; a full id is not looked up, since it is compared with the head."""
        if text is None or is_id(check_text(text, "base")):
            return text
        return self._components.history.find(text)

    @verb("POST", "/agents/{name}/traced-commits", ADMIN, "commits", moves="name", base="base", agent="name")
    def commit_with_trace(
        self,
        name: Agent,
        kind: Kind,
        files: Files = None,
        *,
        changes: Changes = None,
        message: Message = "",
        meta: Meta = None,
        base: Base = None,
    ) -> str:
        """Make a commit and bind the pending trace entries to it."""
        words = self._components.words(message, meta)
        return self._components.commit(name, kind, (files, changes), words, self._base(base), with_trace=True)

    def commit_dir(
        self,
        name: str,
        kind: str,
        directory: str | os.PathLike[str],
        *,
        message: str = "",
        meta: Mapping[str, Any] | None = None,
        base: str | None = None,
        with_trace: bool = False,
    ) -> str:
        """Commit the files of a directory, staged as ``git add -A`` would stage them."""
        words, base = self._components.words(message, meta), self._base(base)
        return self._components.commit_dir(name, kind, self._components.directory(directory), words, base, with_trace=with_trace)

    def checkout(self, name: str, directory: str | os.PathLike[str]) -> str:
        """Make a worktree with the agent's files; return the commit that is checked out."""
        return self._components.checkouts.checkout(name, self._components.directory(directory))

    def checkout_at(self, directory: str | os.PathLike[str]) -> Checkout | None:
        """The agent's checkout that a directory is in, and its top; None if it is in none."""
        return self._components.checkouts.checkout_at(self._components.directory(directory))

    @verb("POST", "/agents/{name}/landings", ADMIN, "commits", moves="name", agent="name")
    @for_people("ask a person to land it: clia ask AGENT QUESTION", own=True)
    def land(
        self,
        name: Agent,
        onto: Onto = None,
        squash: bool = False,
        *,
        no_ff: bool = False,
        how: Form = None,
        message: str = "",
        head: SeenHead = None,
    ) -> Landed | UpToDate | Conflicts:
        """Bring the agent's work to a branch that is not an agent's: as one commit, by a merge or by a fast-forward."""
        form = "squash" if squash else "merge" if no_ff else how
        return self._components.steps.land(name, onto, form, message, head)

    # History

    @verb("GET", "/find", VIEWER, "commits")
    def find(self, text: Revision) -> str:
        """The commit that a text names: an agent, an id or its start, or a branch."""
        return self._components.history.find(text)

    @verb("GET", "/log", VIEWER, "commits")
    def log(self, text: Revision, *, own: OwnOnly = False, limit: CommitLimit = None) -> list[AgentCommit]:
        """The commits that are reachable from a head, newest first."""
        return self._components.history.log(text, own=own, limit=limit)

    @verb("GET", "/commits/{text}", VIEWER, "commits")
    def show(self, text: Revision) -> AgentCommit:
        """One commit with its trailers."""
        return self._components.history.show(text)

    @verb("GET", "/files", VIEWER, "commits")
    def files(self, text: Revision) -> dict[str, Content]:
        """The files at a commit, in the form that ``commit`` takes."""
        return self._components.history.files(text)

    @verb("GET", "/diff", VIEWER, "commits")
    def diff(self, text: Revision, other: Other = None, *, paths: Paths = ()) -> str:
        """A patch: between two commits, of all an agent did, or of one commit."""
        return self._components.history.diff(text, other, paths)

    @verb("GET", "/fork-point", VIEWER, "commits")
    def fork_point(self, one: Revision, other: Revision) -> str | None:
        """The newest commit that two heads share."""
        return self._components.history.fork_point(one, other)

    @verb("GET", "/blame", VIEWER, "commits")
    def blame(self, text: Revision, path: str, *, start: FirstLine = 1, limit: LineLimit = None) -> list[BlamedLine]:
        """Each line of a file with the agent, kind, briefing, behaviour and trace behind it."""
        return self._components.history.blame(text, path, start=start, limit=limit)

    @verb("GET", "/why", VIEWER, "commits")
    def why(self, path: FilePath, line: FirstLine, commit: Revision = "HEAD", *, end: LastLine = None) -> ExplainedLines:
        """Who wrote lines of a file, for which briefing, with which trace, who approved them, and whether all of it verifies."""
        return self.provenance.why(path, line, commit, end=end)

    # Merges

    @verb("POST", "/agents/{into}/merges/{from}", ADMIN, "merges", moves="into", agent="into")
    def merge(self, into: Into, from_: From, *, message: Message = "", meta: Meta = None) -> Merged | UpToDate | Conflicts:
        """Merge another agent's work, as a session-merge commit."""
        return self._components.merging.merge(into, from_, self._components.words(message, meta))

    @verb("POST", "/agents/{into}/resolutions/{from}", ADMIN, "merges", moves="into", base="ours", agent="into")
    def resolve(  # noqa: PLR0913  # the names users were promised
        self,
        into: Into,
        from_: From,
        files: Files = None,
        *,
        ours: Annotated[str, "the head of the agent to merge into, from the conflicts"],
        theirs: Annotated[str, "the head of the other agent, from the conflicts"],
        changes: Changes = None,
        message: Message = "",
        meta: Meta = None,
    ) -> Merged:
        """Conclude a merge that had conflicts.

        ``StaleRef`` if either head has moved since.
        """
        return self._components.merging.resolve(into, from_, (ours, theirs), files, changes, self._components.words(message, meta))

    # Upkeep

    @verb("GET", "/verify", VIEWER, "upkeep")
    def verify(self, *, progress: Callable[[str], None] | None = None) -> Report:
        """Check everything against git; change nothing."""
        return self._components.steps.verify(progress)

    @verb("POST", "/rebuild", ADMIN, "upkeep")
    def rebuild(self, *, progress: Progress | None = None) -> Count:
        """Rebuild the indexes from git: relations, grants and observations; return the number of relations."""
        return self._components.steps.rebuild(progress)

    @verb("POST", "/maintain", ADMIN, "upkeep")
    def maintain(self, *, archive_idle_days: int | None = None, dry_run: bool = False) -> Maintained:
        """Pack the repository, put idle agents away, move old worktrees and, if asked, archive idle agents with landed work."""
        if not dry_run:
            self._components.steps.prepare_maintenance(archives=archive_idle_days is not None)
        return self._components.maintenance.maintain(self._components.run_directories.move_all, archive_idle_days, dry_run=dry_run)

    def doctor(self, *, repair: bool = False) -> list[Ailment]:
        """Problems of sessions and refs; with ``repair``, fix those that can be fixed."""
        return self.sessions.repair() if repair else self.sessions.examine()

    @verb("POST", "/publish", ADMIN, "upkeep")
    def publish(
        self, agents: Agents, remote: RemoteName = "origin", *, traces: bool = True, federation: bool = False, heads: Heads = None
    ) -> list[Pushed]:
        """Push agents to a remote, never forced. ``federation``: also the space's keys and the grants to peers."""
        return self._components.exchange.publish(agents, remote, traces=traces, federation=federation, heads=heads)

    @verb("POST", "/adopt", ADMIN, "upkeep")
    def adopt(self, remote: RemoteName = "origin", *, fetch: bool = True) -> list[Adopted]:
        """Adopt what other clones published on a remote."""
        return self._components.exchange.adopt(remote, self._components.keys.continues, fetch=fetch)

    # Core verbs that services implement

    relate = alias(lambda space: space.relations.add)
    trace = alias(lambda space: space.traces.add)
    start = alias(lambda space: space.sessions.start)
    session = alias(lambda space: space.sessions.get)
    pending = alias(lambda space: space.sessions.pending)
    ask = alias(lambda space: space.sessions.ask)
    decide = alias(lambda space: space.sessions.decide)
    resume = alias(lambda space: space.sessions.resume)
    fork = alias(lambda space: space.sessions.fork)
    cancel = alias(lambda space: space.sessions.cancel)

    # Names from before there were services, which documentation promised (tests/unit/facade/test_space_aliases.py).

    register_type = alias(lambda space: space.types.register)
    is_a = alias(lambda space: space.types.is_a)
    write = alias(lambda space: space.types.write)
    read = alias(lambda space: space.types.read)
    genesis = alias(lambda space: space.agents.genesis)
    briefing_of = alias(lambda space: space.agents.briefing)
    record_of = alias(lambda space: space.agents.record)
    claim = alias(lambda space: space.agents.claim)
    archive = alias(lambda space: space.agents.archive)
    restore = alias(lambda space: space.agents.restore)
    session_log = alias(lambda space: space.history.own)
    window = alias(lambda space: space.history.window)
    changed = alias(lambda space: space.history.changed)
    landings = alias(lambda space: space.history.landings)
    last_refused = alias(lambda space: space.history.last_refused)
    conflicts = alias(lambda space: space.history.conflicts)
    unrelate = alias(lambda space: space.relations.retract)
    sub_agents = alias(lambda space: space.relations.sub_agents)
    parent_agent = alias(lambda space: space.relations.parent)
    agent_tree = alias(lambda space: space.relations.tree)
    reviews = alias(lambda space: space.relations.add_review)
    reviewers = alias(lambda space: space.relations.reviewers)
    reviewing = alias(lambda space: space.relations.reviewing)
    merged_sessions = alias(lambda space: space.relations.merged)
    merged_into = alias(lambda space: space.relations.merged_into)
    trace_once = alias(lambda space: space.traces.add_once)
    trace_pending = alias(lambda space: space.traces.pending)
    trace_for = alias(lambda space: space.traces.of)
    trace_cid_for = alias(lambda space: space.traces.id_of)
    session_traces = alias(lambda space: space.traces.of_agent)
    attach_trace = alias(lambda space: space.traces.attach)
    trace_history = alias(lambda space: space.traces.history)
    trace_search = alias(lambda space: space.traces.search)
    trace_purge = alias(lambda space: space.traces.purge)
    relink = alias(lambda space: space.traces.relink)
    define = alias(lambda space: space.sessions.define)
    flows = alias(lambda space: space.sessions.flows)
    flow = alias(lambda space: space.sessions.flow)
    check_flow = alias(lambda space: space.sessions.check_flow)
    journal = alias(lambda space: space.sessions.journal)
    give_up = alias(lambda space: space.sessions.give_up)
    rule = alias(lambda space: space.sessions.rule)
    check_answer = alias(lambda space: space.sessions.check_answer)
    attempts = alias(lambda space: space.sessions.attempts)
    behaviour = alias(lambda space: space.behaviours.get)
    behaviour_version = alias(lambda space: space.behaviours.version)
    behaviour_diff = alias(lambda space: space.behaviours.diff)
    add_behaviour = alias(lambda space: space.behaviours.add)
    propose_behaviour = alias(lambda space: space.behaviours.propose)
    adopt_behaviour = alias(lambda space: space.behaviours.adopt)
    retire_behaviour = alias(lambda space: space.behaviours.retire)
    brief = alias(lambda space: space.behaviours.brief)
    behaviour_stats = alias(lambda space: space.behaviours.stats)
    observation_gaps = alias(lambda space: space.behaviours.gaps)
    compare_behaviours = alias(lambda space: space.behaviours.compare)
    suggest_behaviour = alias(lambda space: space.behaviours.suggest)
    follow_policy = alias(lambda space: space.behaviours.follow_policy)
    replay_behaviour = alias(lambda space: space.behaviours.replay)
    key = alias(lambda space: space.peers.key)
    rotate_key = alias(lambda space: space.peers.rotate_key)
    add_peer = alias(lambda space: space.peers.add)
    change_peer = alias(lambda space: space.peers.change)
    share = alias(lambda space: space.peers.share)
    remove_peer = alias(lambda space: space.peers.remove)
    peer = alias(lambda space: space.peers.get)
    refusals = alias(lambda space: space.peers.refusals)
    waiting = alias(lambda space: space.peers.waiting)
    grant = alias(lambda space: space.peers.grant)
    revoke = alias(lambda space: space.peers.revoke)
    grants = alias(lambda space: space.peers.grants)
    explain = alias(lambda space: space.peers.explain)
    allowed = alias(lambda space: space.peers.allowed)
    announce = alias(lambda space: space.peers.announce)
    sync = alias(lambda space: space.peers.sync)
    remotes = alias(lambda space: space.peers.remotes)
    remote_behaviours = alias(lambda space: space.peers.behaviours)
    hub_status = alias(lambda space: space.hub.status)
    hub_sync = alias(lambda space: space.hub.sync)
    meet = alias(lambda space: space.hub.meet)
    elsewhere = alias(lambda space: space.hub.elsewhere)
