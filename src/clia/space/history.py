"""Reading history: logs, commits, differences, fork points and blame."""

from __future__ import annotations

import posixpath
import re
from heapq import nlargest
from itertools import islice

from clia.errors import Ambiguous, InvalidInput, NoSuchObject, did_you_mean
from clia.space.core import UNREADABLE
from clia.space.model import agent_commit
from clia.values import refs as names
from clia.values.commit_messages import check_count, check_text
from clia.values.paths import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from clia.git.line_diff import GitLineDiffs
    from clia.git.porcelain import GitPorcelain
    from clia.git.records import Commit, FileChange
    from clia.space.agents import Agents
    from clia.space.attribution.attributions import Attributions
    from clia.space.attribution.authorship import Authorship, CommitLines, LineCounting
    from clia.space.attribution.blame import FileBlame
    from clia.space.attribution.running_turns import RunningTurn
    from clia.space.core import Core
    from clia.space.model import AgentCommit, BlamedLine, Content
    from clia.space.traces import Traces

_AT_ONCE = 200
"""Commits whose lines are compared in one go."""


class History:
    def __init__(
        self,
        core: Core,
        agents: Agents,
        traces: Traces,
        porcelain: Callable[[], GitPorcelain],
        attributions: Callable[[], Attributions],
        diffs: Callable[[], GitLineDiffs],
    ) -> None:
        self._core = core
        self._agents = agents
        self._traces = traces
        self._porcelain = porcelain
        self._attributions = attributions  # loaded for blame only
        self._diffs = diffs

    def find(self, text: str) -> str:
        """Resolve a name to a commit: an agent's head, an id or a prefix of one, a branch, or any git revision."""
        core = self._core
        check_text(text, "commit")
        head = self._head(text) or self._tracked(text)
        if head is not None:
            return head
        cid = self._expanded(text)
        if cid is not None and core.objects.kind(cid) == "commit":
            return cid
        if names.is_name(text):
            core.seek(text)  # another machine may have created it since the last sync
            head = self._head(text)
            if head is not None:
                return head
        if self._core.objects.is_unborn(text):
            hints = ["commit a file first, or name an agent"]
            raise NoSuchObject(f"{text!r} has no commits yet", hints=hints, fields={"text": text})
        hint = "clia list shows the agents; clia log AGENT shows commits"
        if names.remote_agent(text) is not None:
            hint = "clia remotes shows the agents of peers"
        others = (ref.removeprefix(names.BRANCHES).removeprefix("agents/") for ref, _ in self._core.refs.under(names.BRANCHES))
        message = f"{text!r} is neither an agent nor a commit here{did_you_mean(text, others)}"
        raise NoSuchObject(message, hints=[hint], fields={"text": text})

    def _head(self, text: str) -> str | None:
        """The head of an agent, at work or archived."""
        if not names.is_name(text):
            return None
        refs, name = self._core.refs, self._core.current_name(text)
        return refs.get(names.head(name)) or refs.get(names.archived(name))

    def _tracked(self, text: str) -> str | None:
        """The head of ``PEER/AGENT`` if it is tracked here; another branch may have the same name."""
        remote = names.remote_agent(text)
        return self._core.refs.get(names.remote(remote[0], f"agents/{remote[1]}")) if remote else None

    def _expanded(self, text: str) -> str | None:
        try:
            return self._core.objects.expand(f"agents/{text}") or self._core.objects.expand(text) or self._of_idle(text)
        except Ambiguous:
            return self._core.objects.expand(f"{text}^{{commit}}")

    def _of_idle(self, text: str) -> str | None:
        """Resolve a revision such as ``scout~2`` of an agent whose refs git does not see."""
        branch, mark, rest = re.split(r"([~^:])", f"{text}~0", maxsplit=1)
        head = self._head(branch.removeprefix(names.BRANCHES).removeprefix("agents/"))
        return head and self._core.objects.expand(f"{head}{mark}{rest}")

    def show(self, text: str) -> AgentCommit:
        return self._core.read(self.find(text))

    def log(self, text: str, *, own: bool = False, limit: int | None = None) -> list[AgentCommit]:
        """Commits from a head, newest first; ``own``: only the agent's own."""
        if limit is not None:
            check_count(limit, "limit")
        if own:
            return list(islice(self.own(text), limit))
        graph, start = self._core.graph, [self.find(text)]
        return list(map(agent_commit, graph.walk(start) if limit is None else graph.newest(start, limit)))

    def own(self, name: str) -> Iterator[AgentCommit]:
        """The own commits of an agent here, or of ``PEER/AGENT`` as tracked here."""
        remote = names.remote_agent(check_text(name, "agent"))
        if remote is not None:
            return self._core.own_commits(remote[1], self._core.source_head(name))
        current = self._core.current_name(names.check_name(name))
        return self._own(current, self._agents.any_head(current))

    def _own(self, name: str, head: str) -> Iterator[AgentCommit]:
        """The own commits of an agent, also those under its former names."""
        former: tuple[str, str] | None = name, head
        while former is not None:
            name, head = former
            yield from self._core.own_commits(name, head)
            former = self._core.former_name(name, head)

    def here(self) -> list[str]:
        """The commit that is checked out, if any."""
        head = self._core.objects.expand("HEAD")
        return [] if head is None else [head]

    def window(self, texts: Sequence[str], limit: int) -> list[AgentCommit]:
        """The newest commits reachable from any of the heads, for a graph, without those that cannot be read."""
        check_count(limit, "limit")
        starts = sorted({text if names.is_id(text) else self.find(text) for text in texts})
        if len(starts) > limit:  # commits that the newest heads do not reach are too old to be listed
            starts = nlargest(limit, starts, key=self._time_of)
        return list(map(agent_commit, self._core.graph.newest(starts, limit, lenient=True)))

    def _time_of(self, cid: str) -> int:
        try:
            return self._core.objects.commit(cid).committer.at
        except UNREADABLE:
            return 0

    def fork_point(self, one: str, other: str) -> str | None:
        return self._core.graph.merge_base(self.find(one), self.find(other))

    def diff(self, text: str, other: str | None = None, paths: Sequence[str] = ()) -> str:
        """The difference between two commits; of one agent: all its work; of one commit: its own change."""
        old, new = self._ends(text, other)
        return self._porcelain().patch(old, new, _checked(paths)).decode("utf-8", "replace")

    def changes(self, text: str, other: str | None = None, paths: Sequence[str] = ()) -> list[FileChange]:
        old, new = self._ends(text, other)
        return self._porcelain().changes(old, new, _checked(paths))

    def _ends(self, text: str, other: str | None) -> tuple[str | None, str]:
        if other is not None:
            return self.find(text), self.find(other)
        core = self._core
        head = self.find(text)
        if names.is_name(text) and head == self._head(text):
            return self._first(self._core.current_name(text)), head
        if head == self._tracked(text):
            *_, first = [None, *(commit.cid for commit in self.own(text))]
            return first, head
        return next(iter(core.objects.commit(head).parents), None), head

    def _first(self, name: str) -> str:
        """The commit that an agent was spawned with, under its first name."""
        genesis = self._agents.genesis(name)
        former = self._core.former_name(name, genesis)
        while former is not None:
            name, head = former
            genesis, former = self._core.own_root(name, head), self._core.former_name(name, head)
        return genesis

    def files(self, text: str) -> dict[str, Content]:
        """The files at a commit, as ``commit`` accepts them."""
        core = self._core
        tree = core.objects.commit(self.find(text)).tree
        core.objects.require_files(tree)
        entries = core.objects.entries(tree)
        return {path: core.content(entry) for path, entry in entries.items()}

    def blame(self, text: str, path: str, *, start: int = 1, limit: int | None = None) -> list[BlamedLine]:
        """Each line with its author. Lines that people committed are traced to the commits of the agents that wrote them."""
        _checked([path])
        check_count(start, "start")
        if limit is not None:
            check_count(limit, "limit")
        return self._blame().of_commit(self.find(text), text, path, start, limit)

    def blame_worktree(self, path: str, running: Sequence[RunningTurn]) -> list[BlamedLine]:
        """Each line of a file in the worktree with its author, also those that are not committed yet."""
        _checked([path])
        return self._blame().of_worktree(posixpath.normpath(path), running)

    def _blame(self) -> FileBlame:
        from clia.space.attribution.blame import FileBlame

        return FileBlame(self._core, self._traces, self._porcelain(), self._attributions(), self._fetch_promised)

    def authorship(self, text: str, limit: int) -> Authorship:
        """Who wrote the lines that the newest commits of a history, or of a range ``A..B``, add."""
        check_count(limit, "limit")
        newest = list(islice(self._commits(text, limit + 1), limit + 1))
        commits = list(map(agent_commit, newest[:limit]))
        self._fetch_promised(commits)
        return self._counting().summary(commits, more=len(newest) > limit)

    def added_lines(self, text: str, limit: int | None = None) -> Iterator[CommitLines]:
        """The lines that the newest commits of a history, or of a range ``A..B``, add, and their authors."""
        if limit is not None:
            check_count(limit, "limit")
        newest = islice(self._commits(text, limit), limit)
        while commits := list(map(agent_commit, islice(newest, _AT_ONCE))):
            self._fetch_promised(commits)
            yield from self._counting().lines(commits)

    def _commits(self, text: str, limit: int | None) -> Iterable[Commit]:
        """The commits of a history or of a range ``A..B``, the newest first; ``limit``: how many the caller reads at most."""
        start, dots, end = text.partition("..")
        if end.startswith("."):
            raise InvalidInput(f"{text!r} is not a range: write A..B with two dots", code="invalid-range", fields={"text": text})
        graph = self._core.graph
        if dots:
            return graph.walk([self.find(end or "HEAD")], [self.find(start or "HEAD")])
        return graph.walk([self.find(text)]) if limit is None else graph.newest([self.find(text)], limit)

    def _counting(self) -> LineCounting:
        from clia.space.attribution.authorship import LineCounting

        return LineCounting(self._core, self._attributions(), self._diffs())

    def _fetch_promised(self, commits: Sequence[AgentCommit]) -> None:
        """In a partial clone, fetch the data about the authors of commits' lines: notes, the files of the commits and those of
        agents."""
        if self._porcelain().is_partial():
            cids = [commit.cid for commit in commits]
            self._porcelain().fetch_promised(self._attributions().unread(), [])
            attributions = self._core.notes.among(names.ATTRIBUTION, cids)
            self._porcelain().fetch_promised(cids, [*attributions.values(), *self._traces.cids_for(commits).values()])


def _checked(paths: Sequence[str]) -> Sequence[str]:
    """Check that a path can be in a tree: git's own error would name a path of this machine."""
    for path in paths:
        if not check_text(path, "path", escaped=True) or path.startswith("/") or posixpath.normpath(path).split("/")[0] == "..":
            message = f"{path!r} is not a path in a commit: paths are relative to its top directory"
            raise InvalidInput(message, code="invalid-path", fields={"field": "path", "path": printable(path)})
    return paths
