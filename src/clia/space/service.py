"""Services of a space: types, agents, history, changes, relations and traces.

Invariant: this module contains no rules. Those of a verb are in the module of ``clia.space`` that implements it.
"""

from __future__ import annotations

from collections import Counter

from clia.errors import Conflict, InvalidInput
from clia.space.relations import MERGES, REVIEWS, SUB_AGENT
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.verbs import ADMIN, VIEWER, for_people, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Annotated, Any

    from clia.api.parameters import Agent, From, Into, NewAgent, Onto, Other, Paths, Revision
    from clia.approvals.evidence import Approval
    from clia.facade.components import Components
    from clia.git.records import FileChange
    from clia.identities.journal import JournalResult
    from clia.space.agent_agendas import AgendaTick
    from clia.space.attribution.authorship import Authorship, CommitLines
    from clia.space.attribution.running_turns import RunningTurn
    from clia.space.changes import AgentChange, ChangeSummary, Clash
    from clia.space.landing import LandingEvent
    from clia.space.model import AgentCommit, BlamedLine, BoundTrace, Conflicts, Renamed, TraceChange, TraceHit
    from clia.space.purging import Purged
    from clia.space.relinking import Relinked
    from clia.store.interface import Edge
    from clia.values.typed_objects import Briefing, ConsoleTrace, TypedObject
    from clia.verbs import Count


class TypeService:
    """Types and typed objects."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @verb("GET", "/types", VIEWER, "types", "types")
    def __call__(self) -> dict[str, str | None]:
        """Every type with its parent."""
        return self._components.registry.types().known()

    @verb("POST", "/types", ADMIN, "types", "register_type")
    def register(self, name: str, parent: str | None) -> None:
        """Add a type under an existing parent, or a top-level type of objects. A name can be registered once."""
        self._components.registry.register(name, parent)

    @verb("GET", "/type-ids", VIEWER, "types", "type_ids")
    def ids(self) -> dict[str, str]:
        """The id of each registered type with a parent, which is the same in every space and in announcements to peers."""
        return self._components.registry.ids()

    @verb("GET", "/types/{name}/is-a/{ancestor}", VIEWER, "types")
    def is_a(self, name: str, ancestor: str) -> bool:
        """Whether a type is another type, or descends from it."""
        return self._components.registry.types().is_a(name, ancestor)

    def check_kind(self, kind: str) -> None:
        """``UnknownKind`` unless commits may have this kind."""
        self._components.registry.check_kind(kind)

    @verb("POST", "/objects", ADMIN, "types")
    def write(self, thing: TypedObject | Mapping[str, Any]) -> str:
        """Store a typed object; return its id, which is the same in every space."""
        return self._components.registry.write(thing)

    @verb("GET", "/objects/{cid}", VIEWER, "types")
    def read(self, cid: str) -> TypedObject | dict[str, Any]:
        """The typed object with an id."""
        return self._components.registry.read(cid)


class AgentService:
    """Agents: their names, records and life cycle."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @verb("GET", "/agents", VIEWER, "agents", "agents")
    def __call__(
        self, *, archived: Annotated[bool, "the archived agents"] = False, after: str = "", limit: int | None = None
    ) -> list[str]:
        """The names of the active agents, or of the archived ones, sorted. ``after`` and ``limit`` select one page."""
        return self._components.agents.names(archived=archived, after=after, limit=limit)

    @verb("GET", "/agents/{name}/genesis", VIEWER, "agents")
    def genesis(self, name: Agent) -> str:
        """The commit that the agent was spawned with."""
        return self._components.agents.genesis(name)

    @verb("GET", "/agents/{name}/briefing", VIEWER, "agents", "briefing_of")
    def briefing(self, name: Agent) -> Briefing:
        """The briefing that the agent was spawned from."""
        return self._components.agents.briefing_of(name)

    @verb("GET", "/agents/{name}/record", VIEWER, "agents", "record_of", wire={"return": "dict[str, TypedObject | dict[str, Any]]"})
    def record(self, name: Agent) -> dict[str, Any]:
        """The record of the agent, by file name: its briefing and the profile it was spawned with."""
        return self._components.agents.record(name)

    @verb("POST", "/agents/{name}/journal-entries", ADMIN, "agents", "add_journal_entry", agent="name")
    def journal(
        self,
        name: Agent,
        note: Annotated[str, "what happened, in a few sentences"],
        *,
        tags: Annotated[Sequence[str], "search tags"] = (),
        dirs_touched: Annotated[Sequence[str], "directories that the work changed"] = (),
        signature: Annotated[str, "signature (default: the one of the profile)"] = "auto",
        key: Annotated[str | None, "idempotency key: a second entry with the same key is not written"] = None,
    ) -> JournalResult:
        """Append an entry to the journal of the agent's identity, as a commit on the agent's branch."""
        from clia.identities.journal import Note  # most verbs write no journal

        return self._components.agent_journals.append(name, Note(note, tags, signature, dirs_touched, key))

    @verb("POST", "/agents/{name}/agenda-ticks", ADMIN, "agents", "finish_agenda_item", moves="name")
    def finish(
        self, name: Agent, item: Annotated[str | None, "id of the item (default: the one that the agent was spawned for)"] = None
    ) -> AgendaTick:
        """Mark an item of the agenda of the agent's identity as done, as a commit on the agent's branch."""
        return self._components.agent_agendas.finish(name, item)

    @verb("POST", "/agents/{name}/claim", ADMIN, "agents")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def claim(self, name: Agent) -> None:
        """Move an agent of another clone to this one, which works on it from now on."""
        self._components.core.claim(name)

    @verb("POST", "/agents/{name}/archive", ADMIN, "agents", moves="name")
    @for_people("ask a person: clia ask AGENT QUESTION", own=True)
    def archive(self, name: Agent) -> None:
        """Remove an agent from the branch list. Its commits are kept."""
        self._components.agents.archive(name)

    @verb("POST", "/agents/{name}/restore", ADMIN, "agents")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def restore(self, name: Agent) -> None:
        """Restore an archived agent."""
        self._components.agents.restore(name)

    @verb("POST", "/agents/{name}/name", ADMIN, "agents", "rename_agent", moves="name")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def rename(self, name: Agent, new: NewAgent) -> Renamed:
        """Give an agent another name. Its commits keep the former one, which leads to the new one."""
        captures = self._components.captures
        captured = [row for row in captures.sessions() if row.agent == name]
        running = next((f"the session {row.session} of {row.tool}" for row in captured if row.open), None)
        if running is None and captures.is_running(name):
            running = "a program of clia run"
        if running is not None:
            hints = ["end it first, then record what it did with: clia ingest"]
            message = f"the agent {name!r} is at work: {running} has not ended"
            raise Conflict(message, code="agent-at-work", hints=hints, fields={"agent": name})
        return self._components.renaming.rename(name, new, lambda: self._captured_rows(name, new))

    def _captured_rows(self, name: str, new: str) -> tuple[tuple[str, Any], ...]:
        """The rows of the agent's captured sessions, under the new name: a tool that resumes one continues there."""
        keys = [row.key for row in self._components.captures.sessions() if row.agent == name]
        rows = [(key, self._components.core.store.get(key)) for key in keys]
        return tuple([(key, row.value | {"agent": new}) for key, row in rows if row is not None])

    @verb("POST", "/agents/{name}/deletion", ADMIN, "agents", "delete_agent", moves="name")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def delete(self, name: Agent) -> None:
        """Delete an agent that did nothing. Others can be archived."""
        self._components.renaming.delete(name)


class HistoryService:
    """Commits, landings and merges of the past."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @verb("GET", "/agents/{name}/log", VIEWER, "commits", "session_log")
    def own(self, name: Agent) -> list[AgentCommit]:
        """The agent's own commits, newest first."""
        return list(self._components.history.own(name))

    @verb("GET", "/window", VIEWER, "commits")
    def window(self, texts: Sequence[str] = (), limit: int = 200) -> list[AgentCommit]:
        """The newest commits of some or all agents and of the checked-out branch, for a graph."""
        history = self._components.history
        return history.window(texts or [*self._components.relations.newest(limit), *history.here()], limit)

    @verb("GET", "/changed", VIEWER, "commits")
    def changed(self, text: Revision, other: Other = None, *, paths: Paths = ()) -> list[FileChange]:
        """The files that a diff touches, with the number of changed lines."""
        return self._components.history.changes(text, other, paths)

    def blame_worktree(self, path: str, running: Sequence[RunningTurn] = ()) -> list[BlamedLine]:
        """Each line of a file of the worktree, with its author; also lines that are not committed yet."""
        return self._components.history.blame_worktree(path, running)

    def attribute(self) -> int:
        """Find the agents' lines in the new commits on people's branches; return how many commits got a note."""
        return self._components.attributions.catch_up_branches()

    @verb("GET", "/authorship", VIEWER, "commits")
    def authorship(self, text: str, *, limit: int = 1000) -> Authorship:
        """Who wrote the lines that the newest commits of a history, or of a range ``A..B``, add: agents or people."""
        return self._components.history.authorship(text, limit)

    def added_lines(self, text: str, *, limit: int | None = None) -> Iterator[CommitLines]:
        """The lines that each commit of a history, or of a range ``A..B``, adds, newest first, with the agents that wrote them."""
        return self._components.history.added_lines(text, limit)

    @verb("GET", "/agents/{name}/landings", VIEWER, "commits")
    def landings(self, name: Agent) -> list[LandingEvent]:
        """Every landing of the agent, newest first."""
        return self._components.landing.landings(name)

    @verb("GET", "/agents/{name}/approvals", VIEWER, "requests", "approvals")
    def approvals(self, name: Agent) -> list[Approval]:
        """People's decisions on guardrails that the agent's work takes away, newest first."""
        return self._components.approvals.decided(name)

    @verb("GET", "/agents/{into}/refused-merges/{from}", VIEWER, "merges")
    def last_refused(self, into: Into, from_: From) -> tuple[str, str] | None:
        """Both heads of the last refused merge of two agents."""
        return self._components.merging.last_refused(into, from_)

    @verb("GET", "/agents/{into}/conflicts/{from}", VIEWER, "merges")
    def conflicts(self, into: Into, from_: From) -> Conflicts | None:
        """The conflicts that a merge would have, without merging; None if it would succeed."""
        return self._components.merging.conflicts(into, from_)


class ChangeService:
    """The work of agents as changes to a branch, like pull requests."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @verb("GET", "/changes", VIEWER, "changes", "changes")
    def __call__(self, onto: Onto = None) -> list[ChangeSummary]:
        """The agents whose work a branch does not have yet, the newest first, with the size of each change."""
        return self._components.changes.all(onto)

    @verb("GET", "/agents/{name}/change", VIEWER, "changes", "change", shows="name")
    def get(self, name: Agent, onto: Onto = None) -> AgentChange:
        """What an agent did that a branch does not have yet: commits, files, and what landing it would do now."""
        return self._components.changes.get(name, onto)

    @verb("GET", "/clashes", VIEWER, "changes", "clashes")
    def clashes(self, onto: Onto = None) -> list[Clash]:
        """The pairs of agents whose unlanded work has conflicts with each other."""
        return self._components.changes.clashes(onto)


class RelationService:
    """Relations between agents."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @verb("GET", "/relations", VIEWER, "relations", "relations")
    def __call__(self, touching: Annotated[str | None, "only relations of this agent (default: all)"] = None) -> list[Edge]:
        """Every relation, or those of one agent."""
        return self._components.relations.edges(touching)

    @verb("POST", "/relations", ADMIN, "relations", "relate", agent="src")
    def add(
        self,
        src: Annotated[str, "the source agent"],
        kind: Annotated[str, "the relation: reviews, depends-on, …"],
        dst: Annotated[str, "the target agent"],
    ) -> str:
        """Add a relation from one agent to another; return the id of the event."""
        return self._components.relations.relate(src, kind, dst)

    @verb("POST", "/relations/retract", ADMIN, "relations", "unrelate")
    def retract(self, src: Agent, kind: str, dst: Agent) -> str:
        """Retract a relation; return the id of the event."""
        return self._components.relations.unrelate(src, kind, dst)

    @verb("GET", "/agents/{name}/sub-agents", VIEWER, "relations")
    def sub_agents(self, name: Agent) -> list[str]:
        """The agents that were spawned from an agent."""
        return self._targets(name, SUB_AGENT)

    @verb("GET", "/agents/{name}/parent", VIEWER, "relations", "parent_agent")
    def parent(self, name: Agent) -> str | None:
        """The agent that an agent was spawned from."""
        return next(iter(self._sources(name, SUB_AGENT)), None)

    @verb("GET", "/agents/{name}/tree", VIEWER, "relations", "agent_tree")
    def tree(self, name: Agent) -> list[str]:
        """Every descendant of an agent."""
        return self._components.relations.reachable(name, SUB_AGENT)

    @verb("POST", "/agents/{reviewer}/reviews/{reviewee}", ADMIN, "relations", "reviews")
    def add_review(self, reviewer: Agent, reviewee: Agent) -> str:
        """Record that one agent reviews another."""
        return self._components.relations.relate(reviewer, REVIEWS, reviewee)

    @verb("GET", "/agents/{name}/reviewers", VIEWER, "relations")
    def reviewers(self, name: Agent) -> list[str]:
        """The agents that review an agent."""
        return self._sources(name, REVIEWS)

    @verb("GET", "/agents/{name}/reviewing", VIEWER, "relations")
    def reviewing(self, name: Agent) -> list[str]:
        """The agents that an agent reviews."""
        return self._targets(name, REVIEWS)

    @verb("GET", "/agents/{name}/merged", VIEWER, "relations", "merged_sessions")
    def merged(self, name: Agent) -> list[str]:
        """The agents whose sessions an agent has merged."""
        return self._targets(name, MERGES)

    @verb("GET", "/agents/{name}/merged-into", VIEWER, "relations")
    def merged_into(self, name: Agent) -> list[str]:
        """The agents that have merged an agent's session."""
        return self._sources(name, MERGES)

    def _targets(self, name: str, kind: str) -> list[str]:
        return self._components.relations.targets(name, kind)

    def _sources(self, name: str, kind: str) -> list[str]:
        return self._components.relations.sources(name, kind)


class TraceService:
    """Traces: the words and actions of agents between commits."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @verb("POST", "/agents/{name}/trace", ADMIN, "traces", "trace", agent="name")
    def add(
        self,
        name: Agent,
        kind: Annotated[str, "lowercase word: said, thinking, tool-call, tool-result, note"],
        text: Annotated[str, "the text of the entry"],
        *,
        data: Annotated[Mapping[str, Any] | None, "structured data"] = None,
    ) -> Count:
        """Append an entry to the agent's trace and return its position. Secrets are redacted first."""
        return self._components.traces.add(name, kind, text, data)

    @verb("POST", "/agents/{name}/keyed-trace", ADMIN, "traces", "trace_once", agent="name")
    def add_once(self, name: Agent, entries: Iterable[Mapping[str, Any]]) -> Count:
        """Append the entries whose ``key`` is new in the agent's trace; return how many."""
        return self._components.traces.add_once(name, entries)

    @verb("GET", "/agents/{name}/trace", VIEWER, "traces", "trace_pending")
    def pending(self, name: Agent) -> list[dict[str, Any]]:
        """The entries recorded since the agent's last commit with a trace."""
        return self._components.traces.pending(name)

    @verb("GET", "/commits/{commit}/trace", VIEWER, "traces", "trace_for")
    def of(self, commit: Revision) -> ConsoleTrace | None:
        """The trace bound to a commit."""
        return self._components.traces.trace_for(self._components.history.find(commit))

    @verb("GET", "/commits/{commit}/trace-id", VIEWER, "traces", "trace_cid_for")
    def id_of(self, commit: Revision) -> str | None:
        """The id of the trace bound to a commit."""
        return self._components.traces.cid_for(self._components.history.find(commit))

    @verb("GET", "/agents/{name}/traces", VIEWER, "traces", "session_traces")
    def of_agent(self, name: Agent) -> list[BoundTrace]:
        """The traces of the agent's own commits, newest first."""
        return self._components.traces.session_traces(name, self._components.history.own(name))

    @verb("PUT", "/commits/{commit}/trace", ADMIN, "traces", "attach_trace")
    def attach(self, commit: Revision, entries: Iterable[Mapping[str, Any]] | ConsoleTrace, *, agent: str | None = None) -> str:
        """Bind a trace to any commit; return its id."""
        return self._components.traces.attach(self._components.history.find(commit), entries, agent)

    @verb("GET", "/commits/{commit}/trace-history", VIEWER, "traces", "trace_history")
    def history(self, commit: Revision) -> list[TraceChange]:
        """Every trace that was ever bound to a commit, newest first."""
        return self._components.traces.history(self._components.history.find(commit))

    @verb("GET", "/trace-search", VIEWER, "traces", "trace_search")
    def search(
        self,
        text: Annotated[str, "text to find, ignoring case"],
        *,
        agent: Annotated[str | None, "only traces of this agent (default: all)"] = None,
        regex: Annotated[bool, "the text is a regular expression"] = False,
    ) -> list[TraceHit]:
        """Every entry that contains a text, bound or pending."""
        all_agents = self._components.agents
        agents = [names.check_name(agent)] if agent else sorted({*all_agents.names(), *all_agents.names(archived=True)})
        if not check_text(text, "text", nul=True):
            raise InvalidInput("the search text is empty", code="empty-search")
        if regex:
            from clia.space.pattern_search import matching

            return matching(text, self._searchable(agents))
        needle = text.casefold()
        return list(self._components.traces.search(lambda entry: needle in entry.casefold(), agents))

    @verb("GET", "/agents/{name}/trace-kinds", VIEWER, "traces", "trace_kinds")
    def kinds(self, name: Agent) -> dict[str, Count]:
        """The number of the agent's trace entries of each kind, bound and pending; the most frequent kind first."""
        bound = [entry for bound_trace in self.of_agent(name) for entry in bound_trace.trace.entries]
        return dict(Counter(str(entry.get("kind")) for entry in [*bound, *self.pending(name)]).most_common())

    @verb("POST", "/agents/{agent}/trace-purge", ADMIN, "traces", "trace_purge")
    @for_people("ask a person: clia ask AGENT QUESTION")
    def purge(self, agent: Agent, text: str) -> Purged:
        """Replace a leaked text in the agent's traces, their history and what capture keeps of its sessions."""
        components = self._components
        components.purging.check(agent, text)
        purged = components.purging.purge(agent, text)  # first: it is refused without the proof that the policy asks for
        captured = components.captures.purge(agent, text, components.git.handle.common_dir)
        # Again, for entries of events that were ingested meanwhile and for pages that held the rows of captured sessions.
        again = components.purging.purge(agent, text)
        remaining = dict.fromkeys((*captured, *purged.remaining, *again.remaining))
        traces, pending = purged.traces + again.traces, purged.pending + again.pending
        return again._replace(traces=traces, pending=pending, remaining=tuple(remaining))

    @verb("POST", "/relink", ADMIN, "upkeep")
    def relink(self, *, onto: str | None = None) -> list[Relinked]:
        """Bind traces to the commits that a squash or rebase made from traced ones."""
        return self._components.relinking.relink(None if onto is None else self._components.history.find(onto))

    def _searchable(self, agents: Sequence[str]) -> Iterator[tuple[str, TraceHit]]:
        """Every entry, with its searchable text."""
        from clia.space.traces import searchable

        for hit in self._components.traces.search(lambda _: True, agents):  # a generator: the next trace is read on demand
            yield searchable(hit.entry), hit
