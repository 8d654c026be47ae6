"""The commit graph page.

Invariant: the graph shows what the current heads reach. Commits never change, so a layout is cached until a head moves. Traces and
sessions may be attached later, so they are looked up for the visible rows.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import NamedTuple
from urllib.parse import urlencode

from clia.errors import CliaError
from clia.forge.pages.common import form_status, known_agent, page, render
from clia.forge.rendering import graph_layout, graph_svg
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from typing import Any

    from starlette.responses import Response
    from starlette.routing import Route

    from clia.forge.pages.common import Visit
    from clia.forge.rendering.graph_layout import GraphLayout
    from clia.space.model import AgentCommit

    CommitWindow = tuple[Sequence[AgentCommit], Mapping[str, str]]  # and the agents whose head is among them
    Signs = Mapping[str, tuple[bool, str | None]]  # whether a commit has a trace, and its session number

LIMIT, PAGE = 5000, 200
"""Maximum commits in the graph, and rows per page."""
OFFERED = 300
"""Maximum agents offered in the form; the URL may name others."""


class GraphOptions(NamedTuple):
    """The options in the URL; ``start`` and ``end`` define a path."""

    agents: tuple[str, ...]
    collapse: bool
    start: str
    end: str
    table: bool
    first: int

    def address(self, **changes: Any) -> str:
        """The URL with changed options; any change but ``first`` goes back to the top."""
        options = self._replace(**({"first": 0} | changes))
        words: list[tuple[str, str | int]] = [
            *(("agents", name) for name in options.agents),
            ("collapse", "1" if options.collapse else ""),
            ("from", options.start),
            ("to", options.end),
            ("view", "table" if options.table else ""),
            ("first", options.first if options.first or "first" in changes else ""),
        ]
        return f"?{urlencode([word for word in words if word[1] != ''], errors='replace')}"


class GraphPath(NamedTuple):
    """The requested path, or why there is none."""

    commits: Sequence[str] = ()
    message: str = ""
    error: CliaError | None = None


class RecentCache:
    """A small cache; concurrent requests for a key compute its value once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, tuple[Lock, list[Any]]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        with self._lock:
            making, entry = self._kept.setdefault(key, (Lock(), []))
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        with making:
            if not entry:  # also if the first computation failed
                entry.append(make())
        return entry[0]


_windows, _graphs, _signs = RecentCache(8), RecentCache(16), RecentCache(64)


def routes() -> list[Route]:
    return [page("/graph", "graph", _graph)]


def _graph(visit: Visit) -> Response:
    options = _options(visit)
    # The heads by agent name; "" for the checked-out commit.
    tips = [(name, visit.space.find(name)) for name in options.agents] if options.agents else visit.space.views.heads()
    digest = hashlib.sha256(repr((tips, visit.space.types())).encode("utf-8")).hexdigest()
    key = visit.site.path, visit.space.id, digest
    commits, heads = _windows.get(key, lambda: _window(visit, tips))
    path = _way(visit, commits, options)
    graph: GraphLayout = _graphs.get(
        (key, options.collapse, tuple(path.commits)),
        lambda: graph_layout.layout(commits, heads, collapse=options.collapse, path=path.commits, types=visit.space.types()),
    )
    first = _first(visit, graph, options, path)
    graph, signs = _signed(visit, graph, first)
    return render(
        visit,
        "graph.html",
        200 if path.error is None else form_status(path.error),
        options=options._replace(first=first),
        graph=graph,
        first=first,
        last=min(first + PAGE, graph.height),
        nodes=graph.nodes[first : first + PAGE],
        letter=graph_svg.letter,
        signs=signs,
        way=path,
        older=options.address(first=first + PAGE) if first + PAGE < graph.height else None,
        newer=options.address(first=max(0, first - PAGE)) if first else None,
        full=len(commits) == LIMIT,
        commits=len(commits),
        offered=sorted({*options.agents, *visit.space.agents()[:OFFERED]}),
        picture=None if options.table else _picture(visit, graph, first),
        named=any(lane.top < first <= lane.last for lane in graph.lanes),
        legend=graph_svg.legend(),
    )


def _options(visit: Visit) -> GraphOptions:
    agents = [name for name in visit.request.query_params.getlist("agents") if name]
    return GraphOptions(
        tuple(sorted({known_agent(visit, name).name for name in agents})),
        visit.query("collapse") == "1",
        visit.query("from").strip(),
        visit.query("to").strip(),
        visit.query("view") == "table",
        visit.number("first", 0),
    )


def _picture(visit: Visit, graph: GraphLayout, first: int) -> Any:
    agents = {*visit.space.agents(), *visit.space.agents(archived=True)}
    return graph_svg.svg(graph, base=visit.address(), first=first, rows=PAGE, now=visit.forge.clock(), agents=agents)


# Data


def _window(visit: Visit, tips: Sequence[tuple[str, str]]) -> CommitWindow:
    # By id, so that the cached value matches these heads.
    commits = visit.space.history.window([head for _, head in tips], LIMIT) if tips else []
    cids = {commit.cid for commit in commits}
    return commits, {name: head for name, head in tips if name and head in cids}


def _way(visit: Visit, commits: Sequence[AgentCommit], options: GraphOptions) -> GraphPath:
    """The path between two commits, if both are named."""
    if not (options.start and options.end):
        return GraphPath(message="Enter both ends of the path." if options.start or options.end else "")
    try:
        start, end = visit.space.find(options.start), visit.space.find(options.end)
    except CliaError as err:
        return GraphPath(error=err)
    cids = graph_layout.path_between(commits, start, end)
    if cids:
        return GraphPath(cids)
    return GraphPath(message=f"No path between them within the newest {len(commits):,} commits.")


def _first(visit: Visit, graph: GraphLayout, options: GraphOptions, path: GraphPath) -> int:
    """The first row: as in the URL, else at the start of the path."""
    if visit.query("first") or not path.commits:
        return min(options.first, max(0, graph.height - 1))
    row = next((node.row for node in graph.nodes if node.on_path), 0)
    return row - row % PAGE


# Traces and sessions


def _signed(visit: Visit, graph: GraphLayout, first: int) -> tuple[GraphLayout, Signs]:
    """The graph with trace and session marks in the visible rows."""
    nodes = graph.nodes[first : first + PAGE]
    owners = sorted({owner for node in nodes if (owner := _owner(node.commit))})
    tips = tuple((name, visit.space.views.note_tips(name)) for name in owners)
    key = (visit.site.path, visit.space.id, tips, tuple(node.commit.cid for node in nodes))

    def read() -> Signs:
        cids = [(node.commit.cid, owner) for node in nodes if (owner := _owner(node.commit))]
        marks = {cid: visit.space.views.marks(owner, cid) for cid, owner in cids}
        return {cid: mark for cid, mark in marks.items() if mark.traced or mark.session is not None}

    signs: Signs = _signs.get(key, read)
    marked = [
        node._replace(traced=sign[0], in_session=sign[1] is not None) if (sign := signs.get(node.commit.cid)) else node
        for node in nodes
    ]
    return graph._replace(nodes=(*graph.nodes[:first], *marked, *graph.nodes[first + PAGE :])), signs


def _owner(commit: AgentCommit) -> str | None:
    """The agent whose notes may refer to a commit."""
    owner = commit.agent or commit.landed
    return owner if names.is_name(owner) else None
