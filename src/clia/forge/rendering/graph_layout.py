"""The layout of a commit graph: positions of commits and routes of edges.

Invariant: all commits of an agent, and all human commits, are in one lane, newest first. Between two rows a lane carries edges to
one commit only, and an edge passes no other commit, so following an edge leads to the parent. The layout depends only on the input.

Algorithm: in its agent's lane, a commit owns the rows up to the agent's next newer commit. An edge that starts there crosses over
immediately. An edge that starts higher first runs in a trunk shared by all such edges to that commit: the lane of the first of them
if it is free, else a lane without commits.
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
"""Kinds with their own mark; other kinds use the mark of their nearest ancestor."""

LINE, FORK, MERGE = "line", "fork", "merge"


class Node(NamedTuple):
    """A commit. ``elided`` counts the hidden commits between it and its parents."""

    commit: AgentCommit
    lane: int
    row: int
    mark: str  # one of MARKS, or PEOPLE or LANDING
    heads: tuple[str, ...] = ()  # agents whose head it is
    opens: bool = False  # newest in its lane, without a head
    traced: bool = False
    in_session: bool = False
    on_path: bool = False
    elided: int = 0


class GraphEdge(NamedTuple):
    """An edge from a commit to a parent. ``points`` are (lane, row): it runs down a lane, or changes lanes within one row.

    With a single point, the parent is outside of the graph, and the edge ends in a stub.
    """

    child: str
    parent: str
    points: tuple[tuple[int, int], ...]
    role: str  # LINE within an agent, FORK where an agent started, MERGE of other work
    elided: int = 0
    on_path: bool = False

    @property
    def stub(self) -> bool:
        return len(self.points) == 1


class GraphLane(NamedTuple):
    """The lane of an agent, or of people (None); other agents may use its free rows."""

    agent: str | None
    column: int
    top: int  # the row of its newest commit
    last: int  # last row in use


class GraphLayout(NamedTuple):
    """A graph: nodes newest first, ``width`` lanes, ``height`` rows."""

    nodes: tuple[Node, ...]
    edges: tuple[GraphEdge, ...]
    lanes: tuple[GraphLane, ...]
    width: int
    height: int


class _Gap(NamedTuple):
    """The hidden commits between two shown ones: ``elided`` is their number, ``step`` the first."""

    step: str
    elided: int


class _Shown(NamedTuple):
    """A shown commit and the targets of its edges: parents, or what follows a gap."""

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
) -> GraphLayout:
    """Lay out ``commits``, which are sorted newest first, each before its parents; parents may be missing.

    ``heads``: the newest commit of each agent; ``path``: commits to highlight; ``types``: parents of registered kinds;
    ``traced`` and ``sessions``: commits with a trace or a session. With ``collapse``, only heads, tips, roots, forks, spawns,
    merges and the ends of the path are shown.
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
    return GraphLayout(tuple(nodes), tuple(routes.edges(gaps, steps)), routes.lanes, routes.width, len(rows))


def path_between(commits: Sequence[AgentCommit], a: str, b: str) -> list[str]:
    """A shortest path from ``a`` to ``b`` over parents and children; empty if there is none within ``commits``."""
    near: dict[str, list[str]] = {commit.cid: [] for commit in commits}
    for commit in commits:
        for parent in commit.parents:
            if parent in near:
                near[commit.cid].append(parent)
                near[parent].append(commit.cid)
    if a not in near or b not in near:
        return []
    before = {b: b}  # search from the end, so that the result starts at a
    waiting = deque([b])
    while waiting and a not in before:
        at = waiting.popleft()
        for other in near[at]:
            if other not in before:
                before[other] = at
                waiting.append(other)
    if a not in before:
        return []
    path = [a]
    while path[-1] != b:
        path.append(before[path[-1]])
    return path


def _marks(commits: Sequence[AgentCommit], types: Mapping[str, str | None]) -> dict[str, str]:
    """The mark of each commit; rejects duplicates and wrong order."""
    of_kind: dict[str, str] = {}
    marks: dict[str, str] = {}
    for node in commits:
        if node.cid in marks:
            raise _invalid(f"duplicate commit {node.cid}", commit=node.cid)
        kind = node.kind
        if kind is None:
            marks[node.cid] = AGENT_COMMIT if node.agent is not None else PEOPLE if node.landed is None else LANDING
        else:
            marks[node.cid] = of_kind.get(kind) or of_kind.setdefault(kind, _mark(kind, types))
        for parent in node.parents:
            if parent in marks:
                raise _invalid(f"commit {node.cid} comes after its parent {parent}", commit=node.cid, parent=parent)
    return marks


def _mark(kind: str, types: Mapping[str, str | None]) -> str:
    at: str | None = kind
    for _ in range(len(types) + 1):  # a damaged registry may contain a cycle
        if at is None or at in MARKS:
            break
        at = types.get(at)
    return at if at in MARKS else AGENT_COMMIT


def _invalid(problem: str, **fields: str) -> InvalidInput:
    hint = "pass each commit once, newest first and before its parents"
    return InvalidInput(problem, code="invalid-graph", hints=[hint], fields=fields)


def _shown(commits: Sequence[AgentCommit], heads: Mapping[str, str], marks: Mapping[str, str], path: Sequence[str]) -> set[str]:
    """The commits of a collapsed graph; hidden ones have exactly one parent and one child."""
    children = Counter(parent for commit in commits for parent in set(commit.parents))
    cids = {*heads.values(), *path[:1], *path[-1:]}
    return {
        commit.cid
        for commit in commits
        if commit.cid in cids
        or children[commit.cid] != 1
        or len(commit.parents) != 1
        or marks[commit.cid] in (SPAWN, SESSION_MERGE)
    }


def _linked(commits: Sequence[AgentCommit], shown: set[str] | None, gaps: dict[tuple[str, str], _Gap]) -> list[_Shown]:
    """The shown commits (None: all) with the targets of their edges. Adds hidden commits to ``gaps``."""
    if shown is None:
        return [_Shown(commit, _unique(commit.parents)) for commit in commits]
    by_id = {commit.cid: commit for commit in commits}
    links = []
    for commit in commits:
        if commit.cid not in shown:
            continue
        ways = [_followed(parent, by_id, shown) for parent in _unique(commit.parents)]
        times = Counter(end for end, _ in ways)
        ends = []
        for end, gap in ways:
            if gap.elided and times[end] > 1:  # two edges to one commit would coincide
                shown.add(gap.step)
                ends.append(gap.step)
                continue
            ends.append(end)
            if gap.elided:
                gaps[commit.cid, end] = gap
        links.append(_Shown(commit, ends))
    return links


def _unique(parents: tuple[str, ...]) -> Sequence[str]:
    return parents if len(parents) < 2 else list(dict.fromkeys(parents))


def _followed(parent: str, by_id: Mapping[str, AgentCommit], shown: Container[str]) -> tuple[str, _Gap]:
    at, elided = parent, 0
    while at in by_id and at not in shown:
        at = by_id[at].parents[0]
        elided += 1
    return at, _Gap(parent, elided)


class _RowSpan:
    """Rows that need a lane; ``lane`` is assigned later."""

    __slots__ = ("first", "lane", "last", "top")

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last, self.top = first, last, first
        self.lane = 0


class _Routes:
    """Assigns lanes and routes edges."""

    def __init__(self, rows: Sequence[_Shown]) -> None:
        self._rows = rows
        self._row_of = {commit.cid: row for row, (commit, _) in enumerate(rows)}
        self._spans: dict[str | None, _RowSpan] = {}
        self._newer: list[int] = []  # per row, the row of the agent's next newer commit, or -1
        for row, (commit, _) in enumerate(rows):
            span = self._spans.get(commit.agent)
            if span is None:
                self._newer.append(-1)
                self._spans[commit.agent] = _RowSpan(row, row)
            else:
                self._newer.append(span.last)
                span.last = row
        self._trunks: dict[int, _RowSpan] = {}  # by target row
        tracks = self._reserve()
        self.width = _assign([*self._spans.values(), *tracks])
        self.lane_of = {agent: span.lane for agent, span in self._spans.items()}
        self.lanes = tuple(GraphLane(agent, span.lane, span.top, span.last) for agent, span in self._spans.items())

    def _reserve(self) -> list[_RowSpan]:
        """Create trunks; returns those that need their own lane."""
        tracks = []
        oldest = {span.last: span for span in self._spans.values()}  # by row of the agent's oldest commit
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
                    trunk = oldest.pop(row, None)  # below the agent's oldest commit, its lane is free for one trunk
                    if trunk is None:
                        trunk = _RowSpan(row + 1, newer)
                        tracks.append(trunk)
                    trunk.last = newer
                    self._trunks[parent] = trunk
        return tracks

    def edges(self, gaps: Mapping[tuple[str, str], _Gap], path: Container[tuple[str, str]]) -> Iterator[GraphEdge]:
        """All edges in row order; ``path`` has the steps to highlight."""
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
                yield GraphEdge(cid, end, points, role, elided, (cid, step) in path)

    def _way(self, start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
        """The points of an edge after its first: each in the same lane, or one row below."""
        newer = self._newer[end[1]]
        points = []
        if start[1] < newer:
            trunk = self._trunks[end[1]].lane
            if trunk != start[0] and start[1] + 1 != newer:
                points.append((trunk, start[1] + 1))
            points.append(start := (trunk, newer))
        if start[0] != end[0] and start[1] + 1 != end[1]:
            points.append((end[0], start[1] + 1))
        return [*points, end]


def _assign(spans: Iterable[_RowSpan]) -> int:
    """Assign each span the first free lane, with an empty row between spans; returns the number of lanes."""
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    width = 0
    for span in sorted(spans, key=lambda item: item.first):
        while busy and busy[0][0] + 1 < span.first:
            heappush(free, heappop(busy)[1])
        if free:
            span.lane = heappop(free)
        else:
            span.lane = width
            width += 1
        heappush(busy, (span.last, span.lane))
    return width
