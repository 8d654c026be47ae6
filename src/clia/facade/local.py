"""The interface of a space for programs on its machine, in addition to the verbs: ``space.local`` and ``space.views``.

The forge, workers, the MCP server and commands use these instead of the parts of a space. Nothing here is served to clients.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from clia.errors import AgentNotFound, CliaError, CorruptJournal, NotFound
from clia.git.records import FOLDER, TreeEntry
from clia.space.core import UNREADABLE
from clia.values import refs as names
from clia.verbs import actor, require_person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.facade.backup import Backup
    from clia.facade.components import Components
    from clia.facade.config import Config
    from clia.identities.agent_profiles import NewProfile
    from clia.programs.run_directories import RunDirectories
    from clia.sessions.checkpoints import CheckpointedSession
    from clia.sessions.model import Session
    from clia.space.agents import AgentOrigin
    from clia.space.attribution.health import LineFinding
    from clia.space.core import Person
    from clia.space.feed import Feed
    from clia.store.interface import Queue, Store
    from clia.values.clock import Clock
    from clia.values.identity_documents import DocumentVersion
    from clia.values.typed_objects import Briefing


CAPTURED = "captured from a running tool"
"""Why a captured agent is spawned with an incomplete profile: a document that cannot be read must not stop the recording."""


class LocalService:
    """The configuration, clock, store and event feed of a space, for programs on its machine."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @property
    def config(self) -> Config:
        """The operator's configuration."""
        return self._components.config

    def keep_config(self, agent: str) -> None:
        """Let the processes of an agent use this configuration from now on, if a person runs it."""
        from clia.facade.agent_config import keep_config

        if actor(self.agent) is None:
            keep_config(self.store, agent, self.config.path)

    @property
    def clock(self) -> Clock:
        """The clock of the space; machines that share a store have one."""
        return self._components.core.clock

    @property
    def person(self) -> Person:
        """The person accountable for what agents do here."""
        return self._components.core.person

    def default_branch(self) -> str:
        """The branch that work lands on unless another one is named."""
        return self._components.landing.default_branch()

    def check_identity(self) -> None:
        """Raise ``no-git-identity`` if git does not know who is accountable, before work starts that will be recorded."""
        self._components.core.identify()

    @property
    def store(self) -> Store:
        """The store, for rows that a program keeps under its own prefix."""
        return self._components.core.store

    @property
    def agent(self) -> str | None:
        """The agent that acts through this space; None: a person."""
        return self._components.options.agent

    def store_problem(self) -> CliaError | None:
        """Why nothing can be written: the store is lost, an older copy or another one. None if it is the right one."""
        guard = self._components.core.store.guard
        return None if guard is None else guard.problem()

    @property
    def queue(self) -> Queue:
        """The requests that wait for workers."""
        return self._components.queue

    @property
    def run_directories(self) -> RunDirectories:
        """Where programs work as agents, on this machine."""
        return self._components.run_directories

    def spawn_captured(
        self, name: str, briefing: Briefing, directory: str, at: str | None, *, slug: str | None = None, parent: str | None = None
    ) -> None:
        """Spawn an agent for a session of a tool that runs in a directory. Documents that cannot be read do not stop it.

        ``slug``: its identity, if documents have it there.
        """
        components = self._components
        known_slug = slug if slug is not None and self.has_identity(slug, directory) else None
        origin, _ = new_origin(components, name, known_slug, CAPTURED, parent, directory)
        if parent is not None:
            components.core.fresh(parent)
        start = components.core.require_head(parent) if at is None and parent is not None else at
        components.agents.spawn(name, briefing, at=start, parent=parent, origin=origin)

    def has_identity(self, slug: str, directory: str) -> bool:
        """Whether documents of an identity are visible in a directory."""
        from clia.identities.lineage import lineage
        from clia.values.slugs import is_slug

        if not is_slug(slug):
            return False
        try:
            lineage(directory, slug)
        except AgentNotFound:
            return False
        except CliaError:  # it has documents
            return True
        return True

    def open_feed(self) -> Feed:
        """The event feed; close it before the space."""
        from clia.space.feed import Feed
        from clia.store.notifications import notifier_for

        core = self._components.core
        return Feed(core, notifier_for(core.store))

    def upkeep(self) -> bool:
        """Do the upkeep that is due in the background; False if another process does it."""
        from clia.facade.background_upkeep import begin

        begin(self._components.home)
        self._components.checkpoint_writer.make_if_due()
        return self._components.maintenance.run()

    def unarchive_all(self) -> list[str]:
        """Bring the refs of all agents back from the archive repository, and put none away in future."""
        return self._components.maintenance.unarchive_all()

    def put_away(self, agents: list[str]) -> list[str]:
        """Move the refs of agents to the archive repository; return those that have none in the main one any more."""
        return self._components.archiving.put_away(agents)

    def back_up(self, directory: str, progress: Callable[[int, int, str], None] | None = None) -> Backup:
        """Write a backup of the space to a new or empty directory, while work continues."""
        from clia.facade.backup import back_up

        return back_up(self._components, directory, progress)

    def broken_checkouts(self) -> list[str]:
        """The directories of agents' checkouts that do not find the repository, because it was moved."""
        return self._components.git.porcelain.broken_worktrees()

    def line_findings(self) -> list[LineFinding]:
        """Why lines have no author here, or the wrong one."""
        return self._components.attribution_health.examine()

    def sessions_left_behind(self) -> int:
        """The number of live sessions in the store beside the repository while the space uses another store."""
        from clia.sessions.records import LIVE
        from clia.store.sqlite_store import STORE_FILE, SqliteStore
        from clia.store.sqlite_to_postgres import is_in_use

        path = os.path.join(self._components.home, STORE_FILE)
        if isinstance(self.store, SqliteStore) or not is_in_use(path):
            return 0
        try:
            with closing(SqliteStore(path, self._components.core.space_id)) as beside:
                return len(beside.scan(LIVE))
        except CliaError:
            return 0  # unreadable, and not in use

    def redacted(self, value: Any) -> Any:
        """A value as it would be recorded."""
        return self._components.core.clean.value(value)


class KnownAgent(NamedTuple):
    """An existing agent, active or archived, or a tracked agent of a peer."""

    name: str
    head: str
    archived: bool


class Children(NamedTuple):
    """Commits that have a commit as parent."""

    commits: list[str]
    more: bool  # there may be others; the walk is bounded


class CommitMarks(NamedTuple):
    """The trace and the session that are bound to a commit of an agent."""

    traced: bool
    session: str | None  # session number of its checkpoint


class Branch(NamedTuple):
    """A branch that is not an agent's."""

    name: str
    head: str
    subject: str  # of the newest commit
    author: str
    at: int  # seconds since the epoch


class ViewService:
    """Bounded reads for pages and tools, which read only what is shown."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self._core = components.core
        self._session_number = lru_cache(4096)(components.checkpoints.number_in)  # by content, which does not change

    # Agents

    def has_agent(self, text: str) -> bool:
        """Whether a name is that of an agent, active or archived, or of a tracked ``PEER/AGENT``; asks no other machine."""
        refs, remote = self._core.refs, names.remote_agent(text)
        if remote is not None:
            return refs.get(names.remote(remote[0], f"agents/{remote[1]}")) is not None
        return names.is_name(text) and bool(refs.get(names.head(text)) or refs.get(names.archived(text)))

    def agent(self, text: str) -> KnownAgent:
        """An agent, adopted from another machine if necessary, or a tracked ``PEER/AGENT``; raises ``NoSuchAgent``."""
        if names.remote_agent(text) is not None:
            return KnownAgent(text, self._core.source_head(text), archived=False)
        self._core.require_known(text)
        head = self._core.refs.get(names.head(text))
        return KnownAgent(text, head or self._components.history.find(text), archived=head is None)

    def heads(self) -> list[tuple[str, str]]:
        """The head of each active agent by name; the checked-out commit under the name ""."""
        heads = [(ref.removeprefix(names.HEADS), head) for ref, head in self._core.refs.under(names.HEADS)]
        heads = [(name, head) for name, head in heads if names.is_name(name)]
        return heads + [("", head) for head in self._components.history.here()]

    def last_question(self, agent: str) -> Session | None:
        """The newest question that an agent asked outside of its flows, if it can be read."""
        from clia.sessions.checkpoints import session_counts
        from clia.sessions.records import ASK

        number = session_counts(self._core.store, agent).get("asks", 0)
        try:
            return self._components.lifecycle.session(agent, f"{ASK}{number}")
        except (NotFound, CorruptJournal):
            return None

    # Commits

    def has_commit(self, cid: str) -> bool:
        """Whether this clone has a commit."""
        return self._core.objects.kind(cid) == "commit"

    def event(self, cid: str) -> dict[str, Any] | None:
        """The event that a commit records; None if it records none."""
        from clia.space.events import event_of

        return event_of(self._core.objects.commit(cid))

    def children(self, cid: str, walked: int, listed: int) -> Children:
        """The children of a commit among the newest ``walked`` commits of agents and of the checked-out branch."""
        history, agents = self._components.history, self._components.agents
        heads = {history.find(name) for name in (*agents.names(), *agents.names(archived=True))}
        starts = [*sorted(heads), *history.here()]
        try:
            commits = list(islice(self._core.graph.walk(starts, [cid]), walked))
        except UNREADABLE:
            commits = self._core.graph.newest(starts, walked, lenient=True)
        children = [commit.cid for commit in commits if cid in commit.parents]
        return Children(children[:listed], len(commits) == walked or len(children) > listed)

    def checkpoint(self, agent: str, cid: str) -> CheckpointedSession | None:
        """The session in the checkpoint of a commit; raises ``CorruptJournal`` if it cannot be read."""
        return self._components.checkpoints.at(agent, cid)

    def note_tips(self, agent: str) -> tuple[str | None, str | None]:
        """The refs of an agent's traces and checkpoints: they move whenever ``marks`` of its commits may change."""
        return self._core.refs.get(names.traces(agent)), self._core.refs.get(names.sessions(agent))

    def marks(self, agent: str, cid: str) -> CommitMarks:
        """The trace and the session that are bound to a commit of an agent, as far as the notes can be read."""
        traced, session = False, None
        with suppress(*UNREADABLE):
            traced = self._core.notes.get(names.traces(agent), cid) is not None
        with suppress(*UNREADABLE):
            blob = self._core.notes.get(names.sessions(agent), cid)
            session = None if blob is None else self._session_number(blob)
        return CommitMarks(traced, session)

    # Files

    def entry(self, commit: str, path: str) -> TreeEntry | None:
        """A file or folder at a commit, the root at ""; None if there is none."""
        tree = self._core.objects.commit(commit).tree
        return self._core.objects.entry(tree, path) if path else TreeEntry(FOLDER, tree)

    def folder(self, tree: str) -> Mapping[str, int]:
        """The mode of each name in a folder."""
        entries = self._core.objects.entries(tree).items()
        return {path.partition("/")[0]: FOLDER if "/" in path else entry.mode for path, entry in entries}

    def branches(self) -> list[Branch]:
        """The branches of people, the one that was committed to last first."""
        core = self._core
        heads = [(ref, core.read(cid)) for ref, cid in core.refs.under(names.BRANCHES) if not ref.startswith(names.HEADS)]
        branches = [
            Branch(ref.removeprefix(names.BRANCHES), tip.cid, tip.subject, tip.author.name, tip.committer.at) for ref, tip in heads
        ]
        return sorted(branches, key=lambda branch: (-branch.at, branch.name))

    def blob(self, cid: str) -> bytes:
        """The content of a file."""
        self._core.objects.require([cid])
        return self._core.objects.blob(cid)

    def size(self, cid: str) -> int:
        """The size of a file in bytes."""
        return self._core.objects.size(cid)

    def worktree_of(self, branch: str) -> str | None:
        """The worktree that has a branch checked out."""
        return self._core.refs.followed_by(branch)

    # Behaviours and peers

    def is_behaviour(self, cid: str) -> bool:
        """Whether this clone has a behaviour version with this id."""
        from clia.space.behaviour_chains import read_behaviour

        return read_behaviour(self._core.objects, cid) is not None

    def has_key(self) -> bool:
        """Whether the space has a key that peers pin; ``peers.key`` would create one."""
        from clia.federation.keys import key_tokens

        tip = self._core.refs.get(names.KEYS)
        return tip is not None and bool(key_tokens(self._core.graph, tip))

    def peer_of(self, agent: str, cid: str) -> str | None:
        """The peer whose agent made a commit; None for an agent of this space."""
        core = self._core
        peers = (ref.removeprefix(names.PEERS) for ref, _ in core.refs.under(names.PEERS))
        tips = [(peer, core.refs.get(names.remote(peer, f"agents/{agent}"))) for peer in peers]
        owner = next((peer for peer, tip in tips if tip and core.graph.descends(tip, cid)), None)
        head = core.refs.get(names.head(agent)) or core.refs.get(names.archived(agent)) if owner else None
        ours = head is not None and any(own.cid == cid for own in core.own_commits(agent, head))
        return None if ours else owner


def spawn_origin(
    components: Components,
    name: str,
    slug: str | None,
    accept: str | None,
    parent: str | None,
    proposal: DocumentVersion | None = None,
) -> tuple[AgentOrigin, tuple[str, ...]]:
    """The origin of an agent that a verb spawns; if an agent acts, it is under its identity, unless another is named."""
    acting = actor(components.options.agent)
    if accept is not None:
        require_person(acting, "fix the document, then check it: clia agents lint")
    above = acting if parent is None and acting is not None and names.is_name(acting) else parent
    return new_origin(components, name, slug, accept, above, proposal=proposal)


def new_origin(  # what a spawn says about the identity of the new agent
    components: Components,
    name: str,
    slug: str | None,
    accept: str | None,
    parent: str | None,
    path: str | None = None,
    *,
    proposal: DocumentVersion | None = None,
) -> tuple[AgentOrigin, tuple[str, ...]]:
    """The origin of a new agent that is spawned in a directory, by default that of the space; and warnings."""
    from clia.identities.agent_places import FrozenProfile
    from clia.identities.agent_profiles import spawn_profile
    from clia.identities.service import RelativePaths
    from clia.space.agents import AgentOrigin

    path = path or components.options.place
    frozen = None if parent is None else FrozenProfile(parent, *components.agents.origin_of(parent))
    with RelativePaths(path).errors() as paths:
        new = spawn_profile(path, name, slug, frozen, accept, paths.in_text, proposal)
    if new.profile is not None or components.core.refs.get(names.GUARDRAILS) is not None:
        new = _checked_guardrails(components, name, new, captured=accept == CAPTURED)
    return AgentOrigin(new.place._asdict(), new.profile), new.notices


def _checked_guardrails(components: Components, name: str, new: NewProfile, *, captured: bool) -> NewProfile:
    """A new profile that loses none of the guardrails that earlier agents had. A captured agent is bound by those that are gone."""
    from clia.identities.agent_places import guardrails_of, without

    accepted, profile = components.accepted_guardrails, new.profile or {}
    slug = profile.get("slug")
    guardrails = guardrails_of(profile.get("document"))
    if not captured and "incomplete" in profile:
        return new  # a person accepted that documents cannot be read
    if not captured:
        accepted.check(name, slug, new.place, guardrails)
        return new
    gone = [item.item for placed in accepted.undecided(name, slug, new.place, guardrails) for item in placed.items]
    lost = [item for number, item in enumerate(gone) if without([item], gone[:number])]
    accepted.record(slug, new.place)
    if not lost:
        return new
    document = {**(profile.get("document") or {}), "guardrails": [*lost, *guardrails]}
    return new._replace(profile={"slug": slug, **profile, "document": document})
