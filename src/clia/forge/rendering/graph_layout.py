"""Where each commit of a graph stands and the way each line takes: records for a picture, not the picture.

Invariant: all commits of an agent, and all of people, stand in one lane, newest first. Between two rows a lane carries lines
to one commit only, and a line passes no other commit; so whoever follows a line arrives at the parent it stands for.
The layout depends on what is passed in alone.

How: in the lane of its agent, a commit owns the rows between the agent's next newer commit and itself. A line that starts
there goes over at once. One that starts higher first runs in a trunk, which all such lines to that commit share: the lane
of the first of them if nothing stands there any more, else a lane without commits.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.values.types import AGENT_COMMIT, BUILT_IN, DECISION, SESSION_MERGE, SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from clia.space.model import AgentCommit

PEOPLE, LANDING = "people", "landing"
MARKS = frozenset((SPAWN, "finding", "refactor", "test", SESSION_MERGE, DECISION, AGENT_COMMIT))
"""The kinds with a mark of their own; any other kind has the mark of its nearest ancestor among them."""

LINE, FORK, MERGE = "line", "fork", "merge"


class Node(NamedTuple):
    """One commit. ``elided`` counts the commits left out between it and its parents."""

    commit: AgentCommit
    lane: int
    row: int
    mark: str  # one of MARKS, or PEOPLE or LANDING
    heads: tuple[str, ...] = ()  # the agents whose newest commit it is
    opens: bool = False  # it is the newest in its lane, and no head names that lane
    traced: bool = False
    in_session: bool = False
    on_path: bool = False
    elided: int = 0


class Edge(NamedTuple):
    """The line from a commit to a parent. ``points`` are (lane, row): it goes down in a lane, or one row on to another lane.

    With one point only, the parent is outside of the graph, and the line is to end in a stub.
    """

    child: str
    parent: str
    points: tuple[tuple[int, int], ...]
    role: str  # LINE within an agent, FORK from where an agent began, MERGE of what was taken in
    elided: int = 0
    on_path: bool = False

    @property
    def stub(self) -> bool:
        return len(self.points) == 1


class Lane(NamedTuple):
    """The lane of one agent, or with None that of people; in rows that it does not need, another may have it."""

    agent: str | None
    column: int
    top: int  # the row of its newest commit
    last: int  # the last row it needs


class Graph(NamedTuple):
    """A whole graph: nodes newest first, ``width`` lanes, ``height`` rows."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    lanes: tuple[Lane, ...]
    width: int
    height: int


class _Gap(NamedTuple):
    """What is left out between a commit and the next one shown: ``elided`` commits, of which ``step`` is the first."""

    step: str
    elided: int


class _Shown(NamedTuple):
    """A commit to be shown, and those that its lines lead to: its parents, or what comes after a gap."""

    commit: AgentCommit
    ends: Sequence[str]


def layout(
    commits: Sequence[AgentCommit],
    heads: Mapping[str, str],
    *,
    collapse: bool = False,
    path: Sequence[str] = (),
    types: Mapping[str, str | None] = BUILT_IN,
    traced: Container[str] = (),
    sessions: Container[str] = (),
) -> Graph:
    """The graph of ``commits``, which come newest first, each before its parents; parents may be missing.

    ``heads`` has the newest commit of each agent, ``path`` the commits to be highlighted, ``types`` the parents of registered
    kinds, ``traced`` and ``sessions`` the commits with a trace and those of a session. With ``collapse`` only heads, tips,
    roots, forks, spawns and merges are shown, and the ends of the path.
    """
    marks = _marks(commits, types)
    shown = _shown(commits, heads, marks, path) if collapse else None
    gaps: dict[tuple[str, str], _Gap] = {}
    rows = _linked(commits, shown, gaps)
    routes = _Routes(rows)
    named: dict[str, tuple[str, ...]] = {}
    for name in sorted(heads):
        named[heads[name]] = (*named.get(heads[name], ()), name)
    left_out: Counter[str] = Counter()
    for (child, _), gap in gaps.items():
        left_out[child] += gap.elided
    tops = {lane.top for lane in routes.lanes if lane.agent not in heads}
    highlighted = frozenset(path)
    nodes = [
        Node(
            commit,
            routes.lane_of[commit.agent],
            row,
            marks[commit.cid],
            named.get(commit.cid, ()),
            row in tops,
            commit.cid in traced,
            commit.cid in sessions,
            commit.cid in highlighted,
            left_out[commit.cid] if gaps else 0,
        )
        for row, (commit, _) in enumerate(rows)
    ]
    steps = {*pairwise(path), *pairwise(path[::-1])}
    return Graph(tuple(nodes), tuple(routes.edges(gaps, steps)), routes.lanes, routes.width, len(rows))


def path_between(commits: Sequence[AgentCommit], a: str, b: str) -> list[str]:
    """The commits on a shortest way from ``a`` to ``b``, over parents or children; none where there is no way among ``commits``."""
    near: dict[str, list[str]] = {each.cid: [] for each in commits}
    for each in commits:
        for parent in each.parents:
            if parent in near:
                near[each.cid].append(parent)
                near[parent].append(each.cid)
    if a not in near or b not in near:
        return []
    before = {b: b}  # from the end, so that the way back leads from a
    waiting = deque([b])
    while waiting and a not in before:
        at = waiting.popleft()
        for other in near[at]:
            if other not in before:
                before[other] = at
                waiting.append(other)
    if a not in before:
        return []
    found = [a]
    while found[-1] != b:
        found.append(before[found[-1]])
    return found


def _marks(commits: Sequence[AgentCommit], types: Mapping[str, str | None]) -> dict[str, str]:
    """The mark of each commit; also where commits are told that come twice or after a parent."""
    of_kind: dict[str, str] = {}
    found: dict[str, str] = {}
    for each in commits:
        if each.cid in found:
            raise _invalid(f"commit {each.cid} is in the graph twice", commit=each.cid)
        kind = each.kind
        if kind is None:
            found[each.cid] = AGENT_COMMIT if each.agent is not None else PEOPLE if each.landed is None else LANDING
        else:
            found[each.cid] = of_kind.get(kind) or of_kind.setdefault(kind, _mark(kind, types))
        for parent in each.parents:
            if parent in found:
                raise _invalid(f"commit {each.cid} comes after its parent {parent}", commit=each.cid, parent=parent)
    return found


def _mark(kind: str, types: Mapping[str, str | None]) -> str:
    at: str | None = kind
    for _ in range(len(types) + 1):  # a damaged registry may go round in a circle
        if at is None or at in MARKS:
            break
        at = types.get(at)
    return at if at in MARKS else AGENT_COMMIT


def _invalid(problem: str, **fields: str) -> InvalidInput:
    hint = "give the commits newest first, each once and before its parents"
    return InvalidInput(problem, code="invalid-graph", hints=[hint], fields=fields)


def _shown(commits: Sequence[AgentCommit], heads: Mapping[str, str], marks: Mapping[str, str], path: Sequence[str]) -> set[str]:
    """What a collapsed graph keeps: whatever is left out has one parent and one child, and no more to say than its number."""
    children = Counter(parent for each in commits for parent in set(each.parents))
    kept = {*heads.values(), *path[:1], *path[-1:]}
    return {
        each.cid
        for each in commits
        if each.cid in kept or children[each.cid] != 1 or len(each.parents) != 1 or marks[each.cid] in (SPAWN, SESSION_MERGE)
    }


def _linked(commits: Sequence[AgentCommit], shown: set[str] | None, gaps: dict[tuple[str, str], _Gap]) -> list[_Shown]:
    """Each commit to be shown, and where its lines lead; ``shown`` None is all of them. Adds what is left out to ``gaps``."""
    if shown is None:
        return [_Shown(each, _unique(each.parents)) for each in commits]
    by_id = {each.cid: each for each in commits}
    found = []
    for each in commits:
        if each.cid not in shown:
            continue
        ways = [_followed(parent, by_id, shown) for parent in _unique(each.parents)]
        times = Counter(end for end, _ in ways)
        ends = []
        for end, gap in ways:
            if gap.elided and times[end] > 1:  # two ways to one commit would be drawn as one
                shown.add(gap.step)
                ends.append(gap.step)
                continue
            ends.append(end)
            if gap.elided:
                gaps[each.cid, end] = gap
        found.append(_Shown(each, ends))
    return found


def _unique(parents: tuple[str, ...]) -> Sequence[str]:
    return parents if len(parents) < 2 else list(dict.fromkeys(parents))


def _followed(parent: str, by_id: Mapping[str, AgentCommit], shown: Container[str]) -> tuple[str, _Gap]:
    at, elided = parent, 0
    while at in by_id and at not in shown:
        at = by_id[at].parents[0]
        elided += 1
    return at, _Gap(parent, elided)


class _Span:
    """The rows for which something needs a lane; ``lane`` is known once all spans are."""

    __slots__ = ("first", "lane", "last", "top")

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last, self.top = first, last, first
        self.lane = 0


class _Routes:
    """Which lane each agent has, and the way of each line."""

    def __init__(self, rows: Sequence[_Shown]) -> None:
        self._rows = rows
        self._row_of = {commit.cid: row for row, (commit, _) in enumerate(rows)}
        self._spans: dict[str | None, _Span] = {}
        self._newer: list[int] = []  # for each row, that of the agent's next newer commit, or -1
        for row, (commit, _) in enumerate(rows):
            span = self._spans.get(commit.agent)
            if span is None:
                self._newer.append(-1)
                self._spans[commit.agent] = _Span(row, row)
            else:
                self._newer.append(span.last)
                span.last = row
        self._trunks: dict[int, _Span] = {}  # by the row of the commit that they lead to
        tracks = self._reserve()
        self.width = _assign([*self._spans.values(), *tracks])
        self.lane_of = {agent: span.lane for agent, span in self._spans.items()}
        self.lanes = tuple(Lane(agent, span.lane, span.top, span.last) for agent, span in self._spans.items())

    def _reserve(self) -> list[_Span]:
        """Rows for the lines that run beside the commits; returns the trunks that need a lane of their own."""
        tracks = []
        oldest = {span.last: span for span in self._spans.values()}  # by the row of the agent's oldest commit
        for row, (_, ends) in enumerate(self._rows):
            for end in ends:
                parent = self._row_of.get(end)
                if parent is None:
                    continue
                newer = self._newer[parent]
                if newer < 0:
                    span = self._spans[self._rows[parent][0].agent]
                    span.first = min(span.first, row + 1)
                elif row < newer and parent not in self._trunks:
                    trunk = oldest.pop(row, None)  # below the agent's oldest commit its lane is free, for one line
                    if trunk is None:
                        trunk = _Span(row + 1, newer)
                        tracks.append(trunk)
                    trunk.last = newer
                    self._trunks[parent] = trunk
        return tracks

    def edges(self, gaps: Mapping[tuple[str, str], _Gap], path: Container[tuple[str, str]]) -> Iterator[Edge]:
        """Every line, by the row it starts in; ``path`` has the steps to be highlighted."""
        for row, (commit, ends) in enumerate(self._rows):
            cid, agent = commit.cid, commit.agent
            start = (self.lane_of[agent], row)
            for number, end in enumerate(ends):
                step, elided = gaps.get((cid, end)) or (end, 0)
                role = MERGE if number else LINE
                points: tuple[tuple[int, int], ...] = (start,)
                parent = self._row_of.get(end)
                if parent is not None:
                    other = self._rows[parent].commit.agent
                    points = (start, *self._way(start, (self.lane_of[other], parent)))
                    role = role if number or other == agent else FORK
                yield Edge(cid, end, points, role, elided, (cid, step) in path)

    def _way(self, start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
        """The points of a line after its first: each is in the lane of the one before it, or one row below."""
        newer = self._newer[end[1]]
        found = []
        if start[1] < newer:
            trunk = self._trunks[end[1]].lane
            if trunk != start[0] and start[1] + 1 != newer:
                found.append((trunk, start[1] + 1))
            found.append(start := (trunk, newer))
        if start[0] != end[0] and start[1] + 1 != end[1]:
            found.append((end[0], start[1] + 1))
        return [*found, end]


def _assign(spans: Iterable[_Span]) -> int:
    """A lane for each span, the first that is free, with an empty row between two in one lane; returns how many there are."""
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    width = 0
    for span in sorted(spans, key=lambda each: each.first):
        while busy and busy[0][0] + 1 < span.first:
            heappush(free, heappop(busy)[1])
        if free:
            span.lane = heappop(free)
        else:
            span.lane = width
            width += 1
        heappush(busy, (span.last, span.lane))
    return width
