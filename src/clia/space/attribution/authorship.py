"""Who wrote the lines of a file, of a commit and of a range of commits."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from clia.errors import CliaError, InvalidInput
from clia.git.records import NOT_COMMITTED
from clia.space.attribution.index import FILE_MAX
from clia.space.attribution.line_matching import added_lines
from clia.space.attribution.notes import LineAuthor
from clia.space.core import UNREADABLE
from clia.space.model import BlamedLine
from clia.values import refs as names
from clia.values.typed_objects import Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from clia.git.line_diff import ChangedFile, GitLineDiffs
    from clia.git.records import LineOrigin
    from clia.space.attribution.attributions import Attributed, Attributions
    from clia.space.core import Core
    from clia.space.model import AgentCommit
    from clia.space.traces import Traces
    from clia.verbs import Count

BY_AGENT, BY_PERSON, BY_UNKNOWN = "agent", "person", "unknown"


class _AgentOfLines(NamedTuple):
    """A commit behind lines, as an agent's."""

    commit: str
    agent: str
    kind: str | None = None
    briefing: str | None = None
    behaviour: str | None = None
    trace: str | None = None


class LineAuthors:
    """The authors of lines that come from some commits."""

    def __init__(
        self,
        core: Core,
        attributions: Attributions,
        traces: Traces,
        commits: Mapping[str, AgentCommit],
        more: AbstractSet[str] = frozenset(),  # commits of agents behind lines that are not committed yet
    ) -> None:
        self._core = core
        self._commits = dict(commits)
        own = attributions.agents_own(commits.values())
        people = {cid: commit for cid, commit in commits.items() if cid not in own}
        self._people = people.keys()
        self._attributed = _attributed(core, attributions, list(people))
        sources = {
            author.commit
            for note in self._attributed.commits.values()
            for lines in note.files.values()
            for author in lines.values()
        }
        for cid in (sources | more) - self._commits.keys():
            if core.objects.kind(cid) == "commit":
                self._commits[cid] = core.read(cid)
        self._trace_ids = traces.cids_for(self._commits.values())
        self._owners = {cid: traces.owner(self._trace_ids.get(cid)) for cid in people}
        self._titles: dict[str, str | None] = {}

    def blamed(self, number: int, line: LineOrigin) -> BlamedLine:
        commit = self._commits[line.commit]
        origin = self._origin(line, commit)
        if origin is not None:
            title, via = self._title(origin.briefing), line.commit if origin.commit != line.commit else None
            facts = (origin.commit, origin.agent, origin.kind, origin.briefing, origin.behaviour, origin.trace)
            return BlamedLine(number, line.text, *facts, BY_AGENT, origin.agent, title, via)
        by = BY_UNKNOWN if self._is_unknown(line) else BY_PERSON
        return BlamedLine(number, line.text, commit.cid, None, None, None, None, None, by, commit.author.name)

    @cached_property
    def _person(self) -> str:
        """The name of the person who works here; reading needs no identity."""
        try:
            return self._core.person.name
        except InvalidInput:
            return ""

    def uncommitted(self, number: int, text: str, author: LineAuthor | None, otherwise: str) -> BlamedLine:
        """A line of the worktree that is not committed yet; without an author it is a person's or unknown."""
        if author is None:
            nobody = (None, None, None, None, None)
            return BlamedLine(number, text, NOT_COMMITTED, *nobody, otherwise, self._person)
        source = self._commits.get(author.commit)
        if source is not None:
            origin = self._as_agents(source, author.agent)
        else:  # of a turn that is still running
            own = self._core.own_commits(author.agent, self._core.require_head(author.agent))
            last = next((commit for commit in own if commit.briefing is not None), None)
            facts = (None, None) if last is None else (last.briefing, last.behaviour)
            origin = _AgentOfLines(NOT_COMMITTED, author.agent, None, *facts)
        fields = (origin.commit, origin.agent, origin.kind, origin.briefing, origin.behaviour, origin.trace)
        return BlamedLine(number, text, *fields, BY_AGENT, author.agent, self._title(origin.briefing), NOT_COMMITTED)

    def _origin(self, line: LineOrigin, commit: AgentCommit) -> _AgentOfLines | None:
        if line.commit not in self._people:
            return self._as_agents(commit, str(commit.agent))
        note, owner = self._attributed.commits.get(line.commit), self._owners[line.commit]
        author = None if note is None else note.files.get(line.path, {}).get(line.number)
        if author is not None and author.agent != owner:
            source = self._commits.get(author.commit)
            return _AgentOfLines(*author[::-1]) if source is None else self._as_agents(source, author.agent)
        claimant = commit.landed or owner  # the agent whose work was landed, or whose trace is bound to this very commit
        return self._as_agents(commit, claimant) if claimant is not None and (author is not None or note is None) else None

    def _is_unknown(self, line: LineOrigin) -> bool:
        note = self._attributed.commits.get(line.commit)
        return line.commit in self._attributed.unknown or (note is not None and line.path in note.unknown)

    def _as_agents(self, commit: AgentCommit, agent: str) -> _AgentOfLines:
        trace = self._trace_ids.get(commit.cid)
        return _AgentOfLines(commit.cid, agent, commit.kind, commit.briefing, commit.behaviour, trace)

    def _title(self, briefing: str | None) -> str | None:
        if briefing is None:
            return None
        if briefing not in self._titles:
            try:
                thing = self._core.typed(briefing)
            except UNREADABLE:
                thing = None
            self._titles[briefing] = thing.title if isinstance(thing, Briefing) else None
        return self._titles[briefing]


def _attributed(core: Core, attributions: Attributions, commits: Sequence[str]) -> Attributed:
    """The attributions of commits of people. Commits whose note a partial clone lacks are unknown."""
    notes = core.notes.among(names.ATTRIBUTION, commits)
    lacking = {cid for cid, blob in notes.items() if core.objects.kind(blob) is None}
    attributed = attributions.of([cid for cid in commits if cid not in lacking])
    return attributed._replace(unknown=attributed.unknown | lacking)


class CommitAuthorship(NamedTuple):
    """Who wrote the lines that a commit adds. The lines of a merge are those that none of its parents has."""

    commit: str  # the commit
    subject: str  # first line of its message
    author: str  # name of its author
    lines: Count  # lines that it adds
    agents: dict[str, Count]  # lines of each agent
    unknown: Count  # lines that could not be compared
    missing: Count  # changed files that a partial clone lacks, whose lines are not counted

    @property
    def by_agents(self) -> int:
        return sum(self.agents.values())


class Authorship(NamedTuple):
    """Who wrote the lines that commits add."""

    lines: Count  # lines that the commits add
    by_agents: Count  # lines by agents
    agents: dict[str, Count]  # lines of each agent, the most first
    unknown: Count  # lines that could not be compared
    missing: Count  # changed files that a partial clone lacks, whose lines are not counted
    commits: list[CommitAuthorship]  # the commits, newest first
    more: bool  # whether older commits were left out


def in_words(summary: Authorship | CommitAuthorship) -> str:
    """A summary as one phrase: ``312 of 940 lines by 3 agents, 2 lines unknown``."""
    by = "agents" if not summary.agents else "1 agent" if len(summary.agents) == 1 else f"{len(summary.agents)} agents"
    lines, unknown = (f"{count:,} {'line' if count == 1 else 'lines'}" for count in (summary.lines, summary.unknown))
    missing = f"{summary.missing:,} {'file' if summary.missing == 1 else 'files'}"
    parts = [f", {unknown} unknown" if summary.unknown else "", f", {missing} missing here" if summary.missing else ""]
    return f"{summary.by_agents:,} of {lines} by {by}{''.join(parts)}"


class AddedLines(NamedTuple):
    """The lines that a commit adds to a file, and their authors. Lines count from 1."""

    path: str
    blob: str  # the file
    added: list[int]  # the lines
    by_agents: Mapping[int, LineAuthor]  # the agents' lines among them
    unknown: bool  # whether the lines could not be compared


class CommitLines(NamedTuple):
    """The lines that a commit adds. Those of a merge are in none of its parents."""

    commit: AgentCommit
    files: list[AddedLines]
    missing: int  # changed files that a partial clone lacks


class LineCounting:
    """Finds and counts the lines that commits add, by author."""

    def __init__(self, core: Core, attributions: Attributions, diffs: GitLineDiffs) -> None:
        self._core = core
        self._attributions = attributions
        self._diffs = diffs

    def summary(self, commits: Sequence[AgentCommit], *, more: bool) -> Authorship:
        counts = list(map(_counted, self.lines(commits)))
        agents = Counter[str]()
        for count in counts:
            agents.update(count.agents)
        lines, unknown, missing = (sum(getattr(count, field) for count in counts) for field in ("lines", "unknown", "missing"))
        return Authorship(lines, agents.total(), dict(agents.most_common()), unknown, missing, counts, more)

    def lines(self, commits: Sequence[AgentCommit]) -> Iterator[CommitLines]:
        """The lines that each commit adds, and their authors."""
        with suppress(CliaError):  # the repository may be read-only
            self._attributions.catch_up([commits[0].cid] if commits else [])
        own = self._attributions.agents_own(commits)
        attributed = _attributed(self._core, self._attributions, [commit.cid for commit in commits if commit.cid not in own])
        for commit in commits:
            owner = LineAuthor(commit.agent, commit.cid) if commit.agent is not None and commit.cid in own else None
            yield self._lines_of(commit, owner, attributed)

    def _lines_of(self, commit: AgentCommit, owner: LineAuthor | None, attributed: Attributed) -> CommitLines:
        try:
            files = self._diffs.changed_files(commit.cid)
        except UNREADABLE:  # it cannot be compared with a parent, or renames cannot be found
            return CommitLines(commit, [], 1)
        note = attributed.commits.get(commit.cid)
        added_lines: list[AddedLines] = []
        missing = 0
        for file in files:
            try:
                added = [line + 1 for line in sorted(self._added(file))]
            except UNREADABLE:
                missing += 1
                continue
            authors = {} if note is None else note.files.get(file.path, {})
            by_agents = {line: owner or authors[line] for line in added if owner is not None or line in authors}
            unknown = owner is None and (commit.cid in attributed.unknown or (note is not None and file.path in note.unknown))
            added_lines.append(AddedLines(file.path, file.blob, added, by_agents, unknown))
        return CommitLines(commit, added_lines, missing)

    def _added(self, file: ChangedFile) -> Iterable[int]:
        """The indexes of the lines that a commit adds to a file; a binary file has none."""
        objects = self._core.objects
        data = objects.blob(file.blob)
        if b"\0" in data[:8000]:
            return ()
        old = [None if previous.blob is None else objects.blob(previous.blob) for previous in file.previous]
        if len(data) <= FILE_MAX:
            return added_lines(data, old)
        # Too large to compare; the number is at least right for a file that grew.
        return range(max(0, data.count(b"\n") - max([text.count(b"\n") for text in old if text is not None], default=0)))


def _counted(lines: CommitLines) -> CommitAuthorship:
    agents = Counter(author.agent for file in lines.files if not file.unknown for author in file.by_agents.values())
    unknown = sum(len(file.added) for file in lines.files if file.unknown)
    commit, count = lines.commit, sum(len(file.added) for file in lines.files)
    ordered = dict(agents.most_common())
    return CommitAuthorship(commit.cid, commit.subject, commit.author.name, count, ordered, unknown, lines.missing)
