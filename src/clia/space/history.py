"""Reading what happened: logs, single commits, differences, fork points, blame."""

from __future__ import annotations

import difflib

from clia.errors import Ambiguous, NoSuchObject
from clia.kernel import refs as names
from clia.space.model import BlamedLine, agent_commit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.ports.workbench import FileChange, LineOrigin, Workbench
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.model import AgentCommit, Content
    from clia.space.traces import Traces


class History:
    def __init__(self, core: Core, agents: Agents, traces: Traces, workbench: Workbench) -> None:
        self._core = core
        self._agents = agents
        self._traces = traces
        self._workbench = workbench

    def find(self, text: str) -> str:
        """The commit that a name means: an agent's head, an id or its start, a branch, or what git makes of it."""
        core = self._core
        if names.is_name(text):
            head = core.refs.get(names.head(text)) or core.refs.get(names.archived(text))
            if head is not None:
                return head
        found = self._short(text)
        if found is not None and core.objects.kind(found) == "commit":
            return found
        raise NoSuchObject(
            f"{text!r} is no agent and no commit here",
            hints=["clia list shows the agents; clia log AGENT shows commits"],
            fields={"text": text},
        )

    def _short(self, text: str) -> str | None:
        try:
            return self._core.objects.expand(f"agents/{text}") or self._core.objects.expand(text)
        except Ambiguous:
            return self._core.objects.expand(f"{text}^{{commit}}")

    def show(self, text: str) -> AgentCommit:
        return self._core.read(self.find(text))

    def log(self, text: str, *, own: bool = False, limit: int | None = None) -> list[AgentCommit]:
        """Commits from a head, newest first; ``own``: only those the agent made itself."""
        found = self.own(text) if own else map(agent_commit, self._core.graph.walk([self.find(text)]))
        return [commit for commit, _ in zip(found, _counter(limit), strict=False)]

    def own(self, name: str) -> Iterator[AgentCommit]:
        return self._core.own_commits(name, self._agents.any_head(name))

    def here(self) -> list[str]:
        """The commit that is checked out, if any."""
        found = self._core.objects.expand("HEAD")
        return [] if found is None else [found]

    def window(self, texts: Sequence[str], limit: int) -> list[AgentCommit]:
        """The newest commits that any of the heads reaches, for a graph."""
        walked = map(agent_commit, self._core.graph.walk(sorted({self.find(each) for each in texts})))
        return [commit for commit, _ in zip(walked, range(limit), strict=False)]

    def fork_point(self, one: str, other: str) -> str | None:
        return self._core.graph.merge_base(self.find(one), self.find(other))

    def diff(self, text: str, other: str | None = None, paths: Sequence[str] = ()) -> str:
        """The difference between two commits; of one agent, all it did; of one commit, what it changed."""
        old, new = self._ends(text, other)
        return self._workbench.patch(old, new, paths).decode("utf-8", "replace")

    def changes(self, text: str, other: str | None = None, paths: Sequence[str] = ()) -> list[FileChange]:
        old, new = self._ends(text, other)
        return self._workbench.changes(old, new, paths)

    def _ends(self, text: str, other: str | None) -> tuple[str | None, str]:
        if other is not None:
            return self.find(text), self.find(other)
        core = self._core
        head = self.find(text)
        if names.is_name(text) and head in (core.refs.get(names.head(text)), core.refs.get(names.archived(text))):
            return self._agents.genesis(text), head
        parents = core.objects.commit(head).parents
        return (parents[0] if parents else None), head

    def files(self, text: str) -> dict[str, Content]:
        """The worktree at a commit, as a value that ``commit`` takes."""
        core = self._core
        found = core.objects.entries(core.objects.commit(self.find(text)).tree)
        return {path: core.content(each) for path, each in found.items()}

    def blame(self, text: str, path: str) -> list[BlamedLine]:
        """Each line with the agent, kind, briefing, behaviour and trace behind it. Landed work is followed to its origin."""
        seen: dict[str, AgentCommit] = {}
        origins = [self._followed(each, seen) for each in self._workbench.blame(self.find(text), path)]
        traced: dict[str, str | None] = {}
        return [self._line(number, each, seen, traced) for number, each in enumerate(origins, 1)]

    def _line(self, number: int, origin: LineOrigin, seen: dict[str, AgentCommit], traced: dict[str, str | None]) -> BlamedLine:
        commit = self._commit(origin.commit, seen)
        if commit.agent and origin.commit not in traced:
            traced[origin.commit] = self._traces.cid_for(origin.commit)
        who = commit.agent or commit.landed
        trace = traced.get(origin.commit)
        return BlamedLine(number, origin.text, commit.cid, who, commit.kind, commit.briefing, commit.behaviour, trace)

    def _commit(self, cid: str, seen: dict[str, AgentCommit]) -> AgentCommit:
        if cid not in seen:
            seen[cid] = self._core.read(cid)
        return seen[cid]

    def _followed(self, origin: LineOrigin, seen: dict[str, AgentCommit]) -> LineOrigin:
        """The agent's own commit behind a line that a squashed landing brought."""
        commit = self._commit(origin.commit, seen)
        if commit.agent is not None or commit.landed is None or not commit.range:
            return origin
        head = commit.range.partition("..")[2]
        found = self._same_line(origin, commit, head)
        return origin if found is None else found

    def _same_line(self, origin: LineOrigin, landed: AgentCommit, head: str) -> LineOrigin | None:
        core = self._core
        if core.objects.kind(head) != "commit":
            return None
        there = core.objects.entry(core.objects.commit(head).tree, origin.path)
        here = core.objects.entry(landed.tree, origin.path)
        if there is None or here is None:
            return None
        number = origin.number
        if there.cid != here.cid:
            number = _matched(core.objects.blob(here.cid), core.objects.blob(there.cid), origin.number)
        lines = self._workbench.blame(head, origin.path)
        return lines[number - 1]._replace(text=origin.text) if 0 < number <= len(lines) else None


def _counter(limit: int | None) -> Iterator[int]:
    from itertools import count, islice

    return islice(count(), limit)


def _matched(here: bytes, there: bytes, number: int) -> int:
    """The number that a line of one version has in another; 0 where it is not there."""
    matcher = difflib.SequenceMatcher(None, here.split(b"\n"), there.split(b"\n"), autojunk=False)
    for start, other, size in matcher.get_matching_blocks():
        if start <= number - 1 < start + size:
            return other + number - start
    return 0
