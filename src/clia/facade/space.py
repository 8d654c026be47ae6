"""The façade of a space: every verb, each in one line.

Invariant: nothing is decided here. A verb's rules live in the module of ``clia.space`` that its line names.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.behaviours.service import BehaviourVerbs
from clia.capture.service import Captures
from clia.errors import AgentNotFound, FileError, InvalidInput
from clia.facade.trace_verbs import TraceVerbs
from clia.federation.service import FederationVerbs
from clia.hub.service import HubVerbs
from clia.sessions.checkpoints import Checkpoints
from clia.sessions.service import SessionVerbs
from clia.space.adoption import RemoteExchange
from clia.space.agents import Agents
from clia.space.behaviour_chains import BehaviourChains
from clia.space.checkouts import CheckoutPlaces
from clia.space.checks import Checks
from clia.space.commits import Commits
from clia.space.core import CommitText
from clia.space.envelope import Envelope
from clia.space.feed import trim
from clia.space.history import History
from clia.space.landing import Landing, Relinking
from clia.space.maintenance import Upkeep
from clia.space.merging import Merging, Resolution
from clia.space.purging import Purging
from clia.space.registry import Registry
from clia.space.relations import MERGES, REVIEWS, SUB_AGENT, Relations
from clia.space.traces import Traces
from clia.values.commit_messages import check_text
from clia.values.names import check_slug, is_slug
from clia.values.refs import is_id
from clia.workers.fleet_verbs import FleetVerbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self

    from clia.federation.service import FederationResources
    from clia.git.records import Checkout, FileChange, Pushed
    from clia.git.workbench import GitWorkbench
    from clia.hub.sync import HubSync
    from clia.sessions.service import Running
    from clia.space.adoption import Adopted
    from clia.space.checks import Report
    from clia.space.core import Core
    from clia.space.landing import Relinked
    from clia.space.maintenance import AgentState, Maintained
    from clia.space.model import (
        AgentCommit,
        BlamedLine,
        Conflicts,
        Content,
        Landed,
        Merged,
        Spawned,
        UpToDate,
    )
    from clia.space.traces import Chunks
    from clia.store.interface import Edge
    from clia.values.typed_objects import Briefing, TypedObject

    Progress = Callable[[int, int], None]


class Parts(NamedTuple):
    """What a space needs beside its core."""

    workbench: GitWorkbench
    redact_chunk: Chunks
    entry_max: int
    place: str  # where lineage is asked who an agent is
    running: Running  # what sessions need
    abroad: FederationResources  # what federation needs
    hub_sync: HubSync | None = None  # the hub, where there is one
    close: Callable[[], None] = lambda: None  # lets go of what is neither the store nor a run


class Space(SessionVerbs, TraceVerbs, FederationVerbs, BehaviourVerbs, FleetVerbs, HubVerbs):
    """A git repository with agents in it. Made by ``clia.open`` and ``clia.init``; usable as a context manager."""

    def __init__(self, core: Core, parts: Parts) -> None:
        self._core = core
        self._place = parts.place
        self._hub_sync, self._close = parts.hub_sync, parts.close
        self._envelope = envelope = Envelope(core, parts.workbench, parts.hub_sync.sync_agent if parts.hub_sync else None)
        self._registry = Registry(core, envelope)
        self._checkpoints = checkpoints = Checkpoints(core)
        self._agents = Agents(core, envelope, checkpoints)
        self._traces = Traces(core, envelope, parts.redact_chunk, parts.entry_max)
        self._commits = Commits(core, envelope, self._registry, self._traces, checkpoints)
        self._captures = Captures(core, self._agents, self._commits, self._registry, parts.workbench)
        self._merging = Merging(core, envelope, self._commits)
        self._landing = Landing(core, envelope, self._merging)
        self._relations = Relations(core, envelope)
        self._history = History(core, self._agents, self._traces, parts.workbench)
        self._places = CheckoutPlaces(core, self._commits, parts.workbench)
        self._exchange = RemoteExchange(core, envelope, parts.workbench)
        self._checks = Checks(core, envelope, self._relations, parts.workbench)
        self._upkeep = Upkeep(core, self._agents, self._landing, parts.workbench)
        self._relinking = Relinking(core, self._traces, parts.workbench)
        self._purging = Purging(core, envelope, parts.workbench)
        self._chains = BehaviourChains(core, envelope)
        self._set_up_sessions(checkpoints, parts.running)
        self._set_up_federation(parts.abroad)
        if parts.hub_sync is not None:
            parts.hub_sync.continues_keys = self._keys.continues
            parts.hub_sync.hold, parts.hub_sync.hold_recovered = envelope.held, envelope.at_work
        envelope.recover_all()

    @property
    def id(self) -> str:
        """The space's id, the same in every clone."""
        return self._core.space_id

    @property
    def captures(self) -> Captures:
        """Sessions of tools that are captured: for ingest."""
        return self._captures

    def close(self) -> None:
        """Lets go of the store, and of the run that is held."""
        self._replay.close()
        self._close()
        self._core.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Types and typed objects

    def register_type(self, name: str, parent: str) -> None:
        """Adds a type under a parent that exists; a name is registered once."""
        self._registry.register(name, parent)

    def is_a(self, name: str, ancestor: str) -> bool:
        """Whether a type is another, or descends from it."""
        return self._registry.types().is_a(name, ancestor)

    def types(self) -> dict[str, str | None]:
        """Every type with its parent."""
        return self._registry.types().known()

    def write(self, thing: TypedObject | Mapping[str, Any]) -> str:
        """Keeps a typed object; its id, the same in every space."""
        return self._registry.write(thing)

    def read(self, cid: str) -> TypedObject | dict[str, Any]:
        """The typed object of an id."""
        return self._registry.read(cid)

    # Agents

    def spawn(self, name: str, briefing: Briefing, *, slug: str | None = None) -> Spawned:
        """A new agent over the empty tree."""
        self._check_prompt(briefing)
        return self._agents.spawn(name, briefing, profile=self._profile(name, slug))

    def spawn_from(self, name: str, briefing: Briefing, parent: str, *, slug: str | None = None) -> Spawned:
        """A new agent at another's head, as its sub-agent."""
        self._check_prompt(briefing)
        self._core.fresh(parent)
        head = self._core.require_head(parent)
        return self._agents.spawn(name, briefing, at=head, parent=parent, profile=self._profile(name, slug))

    def spawn_at(
        self, name: str, briefing: Briefing, commit: str, parent: str | None = None, *, slug: str | None = None
    ) -> Spawned:
        """A new agent at any commit."""
        self._check_prompt(briefing)
        self._core.fresh(check_text(commit, "commit"))
        at = self._history.find(commit)
        return self._agents.spawn(name, briefing, at=at, parent=parent, profile=self._profile(name, slug))

    def _profile(self, name: str, slug: str | None) -> dict[str, Any] | None:
        """The merged profile, where lineage knows the agent."""
        from clia.identities.lineage import lineage

        if slug is None and not is_slug(name):
            return None
        try:
            document = lineage(self._place, check_slug(slug or name)).profile().document
        except AgentNotFound:
            if slug is not None:
                raise
            return None
        return {"slug": slug or name, "document": document}

    def agents(self, *, archived: bool = False, after: str = "", limit: int | None = None) -> list[str]:
        """The names of the agents at work, or of those archived; sorted. ``after`` a name and at most ``limit``: one page."""
        return self._agents.names(archived=archived, after=after, limit=limit)

    def states(self, *, after: str = "", limit: int | None = None) -> list[AgentState]:
        """Each agent at work with its head, what it did last, and whether that has landed; all of them, or one page by name."""
        return self._upkeep.states(after=after, limit=limit)

    def head(self, name: str) -> str:
        """The agent's newest commit."""
        return self._core.require_head(name)

    def genesis(self, name: str) -> str:
        """The commit the agent was spawned with."""
        return self._agents.genesis(name)

    def briefing_of(self, name: str) -> Briefing:
        """What the agent was spawned from."""
        return self._agents.briefing_of(name)

    def record_of(self, name: str) -> dict[str, Any]:
        """The agent's record: briefing and frozen profile, by file name."""
        return self._agents.record(name)

    def claim(self, name: str) -> None:
        """Moves an agent of another clone here: from now on it is worked on from this one."""
        self._core.claim(name)

    def archive(self, name: str) -> None:
        """Takes an agent out of the branch list; nothing is lost."""
        self._agents.archive(name)

    def restore(self, name: str) -> None:
        """Brings an archived agent back."""
        self._agents.restore(name)

    # Commits

    def commit(
        self,
        name: str,
        kind: str,
        files: Mapping[str, Content] | None = None,
        *,
        changes: Mapping[str, Content | None] | None = None,
        message: str = "",
        meta: Mapping[str, Any] | None = None,
        base: str | None = None,
    ) -> str:
        """A typed commit: ``files`` is the whole worktree, or ``changes`` what is different; its id."""
        worktree = self._commits.worktree(name, files, changes)
        return self._commits.commit(name, kind, worktree, CommitText(message, meta), base=self._base(base))

    def _base(self, text: str | None) -> str | None:
        """The full id of a base; any full id will do, it is compared with the head."""
        if text is None or is_id(check_text(text, "base")):
            return text
        return self._history.find(text)

    def commit_with_trace(
        self,
        name: str,
        kind: str,
        files: Mapping[str, Content] | None = None,
        *,
        changes: Mapping[str, Content | None] | None = None,
        message: str = "",
        meta: Mapping[str, Any] | None = None,
        base: str | None = None,
    ) -> str:
        """A commit with everything that was traced since the last drain bound to it."""
        worktree = self._commits.worktree(name, files, changes)
        return self._commits.commit(name, kind, worktree, CommitText(message, meta), base=self._base(base), with_trace=True)

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
        """A commit of a directory's files, staged as ``git add -A`` would."""
        where = _absolute(directory)
        if not os.path.isdir(where):
            raise FileError(f"{where} is not a directory", fields={"path": where, "reason": "not a directory"})
        return self._places.commit_dir(name, kind, where, CommitText(message, meta), base=self._base(base), with_trace=with_trace)

    def checkout(self, name: str, directory: str | os.PathLike[str]) -> str:
        """A worktree with the agent's files; the commit it stands on."""
        return self._places.checkout(name, _absolute(directory))

    def checkout_at(self, directory: str | os.PathLike[str]) -> Checkout | None:
        """Whose checkout a directory is in, and its top; None where it is in none."""
        return self._places.checkout_at(_absolute(directory))

    def land(
        self, name: str, onto: str, squash: bool = False, *, no_ff: bool = False, message: str = ""
    ) -> Landed | UpToDate | Conflicts:
        """Brings the agent's work to a branch of people."""
        return self._landing.land(name, onto, squash=squash, no_ff=no_ff, message=message)

    def landings(self, name: str) -> list[dict[str, Any]]:
        """Every landing of the agent, newest first."""
        return self._landing.landings(name)

    # History

    def find(self, text: str) -> str:
        """The commit that a name means: an agent, an id or its start, a branch."""
        return self._history.find(text)

    def session_log(self, name: str) -> list[AgentCommit]:
        """The agent's own commits, newest first."""
        return list(self._history.own(name))

    def log(self, text: str, *, own: bool = False, limit: int | None = None) -> list[AgentCommit]:
        """Every commit a head reaches, newest first."""
        return self._history.log(text, own=own, limit=limit)

    def window(self, texts: Sequence[str] = (), limit: int = 200) -> list[AgentCommit]:
        """The newest commits of some or all agents, and of the branch that is checked out, for a graph."""
        return self._history.window(texts or [*self._relations.newest(limit), *self._history.here()], limit)

    def show(self, text: str) -> AgentCommit:
        """One commit and what its trailers say."""
        return self._history.show(text)

    def files(self, text: str) -> dict[str, Content]:
        """The worktree at a commit, as a value that ``commit`` takes."""
        return self._history.files(text)

    def diff(self, text: str, other: str | None = None, *, paths: Sequence[str] = ()) -> str:
        """A patch: between two commits, of all an agent did, or of one commit."""
        return self._history.diff(text, other, paths)

    def changed(self, text: str, other: str | None = None, *, paths: Sequence[str] = ()) -> list[FileChange]:
        """Which files a diff touches, and by how much."""
        return self._history.changes(text, other, paths)

    def fork_point(self, one: str, other: str) -> str | None:
        """The newest commit that two heads share."""
        return self._history.fork_point(one, other)

    def blame(self, text: str, path: str) -> list[BlamedLine]:
        """Each line of a file with the agent, kind, briefing, behaviour and trace behind it."""
        return self._history.blame(text, path)

    # Merges

    def merge(
        self, into: str, from_: str, *, message: str = "", meta: Mapping[str, Any] | None = None
    ) -> Merged | UpToDate | Conflicts:
        """One agent takes in another's work, as a session-merge commit."""
        return self._merging.merge(into, from_, CommitText(message, meta))

    def resolve(  # noqa: PLR0913  # the names users were promised
        self,
        into: str,
        from_: str,
        files: Mapping[str, Content] | None = None,
        *,
        ours: str,
        theirs: str,
        changes: Mapping[str, Content | None] | None = None,
        message: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> Merged:
        """Concludes a conflicted merge; ``StaleRef`` where either head has moved since."""
        return self._merging.resolve(into, from_, (ours, theirs), Resolution(files, changes), CommitText(message, meta))

    def last_refused(self, into: str, from_: str) -> tuple[str, str] | None:
        """Both heads of the last merge of these two that was refused."""
        return self._merging.last_refused(into, from_)

    def conflicts(self, into: str, from_: str) -> Conflicts | None:
        """What a merge would run into, without trying it; None where it would not."""
        return self._merging.conflicts(into, from_)

    # Relations

    def relate(self, src: str, kind: str, dst: str) -> str:
        """States ``src -kind-> dst``; the id of what states it."""
        return self._relations.relate(src, kind, dst)

    def unrelate(self, src: str, kind: str, dst: str) -> str:
        """Takes an edge back."""
        return self._relations.unrelate(src, kind, dst)

    def relations(self, touching: str | None = None) -> list[Edge]:
        """Every edge, or those at one agent."""
        return self._relations.edges(touching)

    def sub_agents(self, name: str) -> list[str]:
        """The agents spawned from this one."""
        return self._relations.targets(name, SUB_AGENT)

    def parent_agent(self, name: str) -> str | None:
        """The agent this one was spawned from."""
        return next(iter(self._relations.sources(name, SUB_AGENT)), None)

    def agent_tree(self, name: str) -> list[str]:
        """Every descendant of an agent."""
        return self._relations.reachable(name, SUB_AGENT)

    def reviews(self, reviewer: str, reviewee: str) -> str:
        """States that one agent reviews another."""
        return self._relations.relate(reviewer, REVIEWS, reviewee)

    def reviewers(self, name: str) -> list[str]:
        """Who reviews an agent."""
        return self._relations.sources(name, REVIEWS)

    def reviewing(self, name: str) -> list[str]:
        """Whom an agent reviews."""
        return self._relations.targets(name, REVIEWS)

    def merged_sessions(self, name: str) -> list[str]:
        """Whose sessions an agent has merged."""
        return self._relations.targets(name, MERGES)

    def merged_into(self, name: str) -> list[str]:
        """Who has merged an agent's session."""
        return self._relations.sources(name, MERGES)

    # Upkeep

    def verify(self, *, progress: Callable[[str], None] | None = None) -> Report:
        """Checks everything against git; changes nothing."""
        found = self._checks.verify(self._registry.types(), progress)
        return found.joined(*self._abroad_checks.verify(progress, whole=self._checks.is_whole()))

    def rebuild(self, *, progress: Progress | None = None) -> int:
        """Makes the index anew from git; how many edges stand. What the gate decides by and what was observed is made anew, too."""
        self._capabilities.forget_compiled()
        edges = self._relations.rebuild(progress)
        self._observed.rebuild(progress)
        return edges

    def relink(self, *, onto: str | None = None) -> list[Relinked]:
        """Binds traces to the commits that a squash or rebase made of traced ones."""
        return self._relinking.relink(None if onto is None else self._history.find(onto))

    def maintain(self, *, archive_idle_days: int | None = None, dry_run: bool = False) -> Maintained:
        """Packs the repository and, where asked, archives agents whose work is merged or landed."""
        if not dry_run:
            trim(self._core.store)
            self._peers.sweep()
        return self._upkeep.maintain(archive_idle_days=archive_idle_days, dry_run=dry_run)

    def publish(
        self, agents: Sequence[str], remote: str = "origin", *, traces: bool = True, federation: bool = False
    ) -> list[Pushed]:
        """Sends agents to a remote; nothing is forced. ``federation``: also the space's keys and what is granted to peers."""
        return self._exchange.publish(agents, remote, traces=traces, federation=federation)

    def adopt(self, remote: str = "origin", *, fetch: bool = True) -> list[Adopted]:
        """Takes over what other clones published on a remote."""
        self._exchange.set_up(remote)
        if fetch:
            self._exchange.fetch(remote)
        return self._exchange.adopt(remote, self._keys.continues)


def _absolute(directory: str | os.PathLike[str]) -> str:
    try:
        return os.path.abspath(os.fspath(directory))
    except TypeError:
        raise InvalidInput(f"{directory!r} is no directory", code="not-a-directory", fields={"path": repr(directory)}) from None
