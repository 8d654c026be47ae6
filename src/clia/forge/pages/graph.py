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

from starlette.routing import Route

from clia.errors import CliaError, NotFound
from clia.forge.pages.common import core_of, known_agent, page, show
from clia.forge.problems import status_of
from clia.forge.rendering import graph_svg
from clia.values import refs as names
from clia.values.typed_objects import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from typing import Any

    from starlette.responses import Response

    from clia.forge.pages.common import Visit
    from clia.forge.rendering.graph_svg import Graph
    from clia.space.core import Core
    from clia.space.model import AgentCommit

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
        words = [
            *(("agents", name) for name in options.agents),
            *([("collapse", "1")] if options.collapse else []),
            *([("from", options.start)] if options.start else []),
            *([("to", options.end)] if options.end else []),
            *([("view", "table")] if options.table else []),
            *([("first", options.first)] if options.first or "first" in changes else []),
        ]
        return f"?{urlencode(words, errors='replace')}"


class CommitWindow(NamedTuple):
    """The commits of a graph, and the agents whose head is among them."""

    commits: Sequence[AgentCommit]
    heads: Mapping[str, str]


class GraphPath(NamedTuple):
    """The requested path, or why there is none."""

    commits: Sequence[str] = ()
    said: str = ""
    error: CliaError | None = None


class CommitMarks(NamedTuple):
    """The trace and session of a commit."""

    traced: bool
    session: str | None  # session number


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


_windows, _graphs, _signs, _numbers = RecentCache(8), RecentCache(16), RecentCache(64), RecentCache(4096)


def routes() -> list[Route]:
    return [Route("/s/{space}/graph", _graph, methods=["GET"], name="graph")]


@page
def _graph(visit: Visit) -> Response:
    options = _options(visit)
    tips = _tips(visit, options.agents)
    key = _key(visit, tips)
    window: CommitWindow = _windows.get(key, lambda: _window(visit, tips))
    way = _way(visit, window, options)
    graph: Graph = _graphs.get(
        (key, options.collapse, tuple(way.commits)),
        lambda: graph_svg.layout(
            window.commits, window.heads, collapse=options.collapse, path=way.commits, types=visit.site.space.types()
        ),
    )
    first = _first(visit, graph, options, way)
    graph, signs = _signed(visit, graph, first)
    return show(
        visit,
        "graph.html",
        200 if way.error is None else _status(way.error),
        options=options._replace(first=first),
        graph=graph,
        first=first,
        last=min(first + PAGE, graph.height),
        rows=_rows(graph, first),
        signs=signs,
        way=way,
        older=options.address(first=first + PAGE) if first + PAGE < graph.height else None,
        newer=options.address(first=max(0, first - PAGE)) if first else None,
        full=len(window.commits) == LIMIT,
        commits=len(window.commits),
        offered=_offered(visit, options.agents),
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


def _status(err: CliaError) -> int:
    """Show an unknown name as an error in the form, not as a missing page."""
    return 422 if isinstance(err, NotFound) else status_of(err)


# Data


def _tips(visit: Visit, agents: Sequence[str]) -> list[tuple[str, str]]:
    """The heads of the graph by agent name; "" for the checked-out commit."""
    core = core_of(visit)
    if agents:
        return [(name, visit.site.space.find(name)) for name in agents]
    tips = [(ref.removeprefix(names.HEADS), head) for ref, head in core.refs.under(names.HEADS)]
    user_head = core.objects.expand("HEAD")
    return [(name, head) for name, head in tips if names.is_name(name)] + ([("", user_head)] if user_head else [])


def _key(visit: Visit, tips: Sequence[tuple[str, str]]) -> Hashable:
    types = core_of(visit).refs.get(names.TYPES)
    digest = hashlib.sha256(repr((tips, types)).encode("utf-8")).hexdigest()
    return visit.site.path, visit.site.space.id, digest


def _window(visit: Visit, tips: Sequence[tuple[str, str]]) -> CommitWindow:
    # By id, so that the cached value matches these heads.
    commits = visit.site.space.window([head for _, head in tips], LIMIT) if tips else []
    cids = {commit.cid for commit in commits}
    return CommitWindow(commits, {name: head for name, head in tips if name and head in cids})


def _way(visit: Visit, window: CommitWindow, options: GraphOptions) -> GraphPath:
    """The path between two commits, if both are named."""
    if not (options.start and options.end):
        one = bool(options.start or options.end)
        return GraphPath(said="Enter both ends of the path." if one else "")
    try:
        start, end = visit.site.space.find(options.start), visit.site.space.find(options.end)
    except CliaError as err:
        return GraphPath(error=err)
    cids = graph_svg.path_between(window.commits, start, end)
    if cids:
        return GraphPath(cids)
    return GraphPath(said=f"No path between them within the newest {len(window.commits):,} commits.")


def _first(visit: Visit, graph: Graph, options: GraphOptions, way: GraphPath) -> int:
    """The first row: as in the URL, else at the start of the path."""
    if visit.query("first") or not way.commits:
        return min(options.first, max(0, graph.height - 1))
    row = next((node.row for node in graph.nodes if node.on_path), 0)
    return row - row % PAGE


# Traces and sessions


def _signed(visit: Visit, graph: Graph, first: int) -> tuple[Graph, Mapping[str, CommitMarks]]:
    """The graph with trace and session marks in the visible rows."""
    core = core_of(visit)
    nodes = graph.nodes[first : first + PAGE]
    owners = sorted({owner for node in nodes if (owner := _owner(node.commit))})
    tips = [(name, core.refs.get(names.traces(name)), core.refs.get(names.sessions(name))) for name in owners]
    key = (visit.site.path, visit.site.space.id, tuple(tips), tuple(node.commit.cid for node in nodes))
    signs: Mapping[str, CommitMarks] = _signs.get(key, lambda: _bound(core, [node.commit for node in nodes], tips))
    marked = [
        node._replace(traced=sign.traced, in_session=sign.session is not None) if (sign := signs.get(node.commit.cid)) else node
        for node in nodes
    ]
    return graph._replace(nodes=(*graph.nodes[:first], *marked, *graph.nodes[first + PAGE :])), signs


def _owner(commit: AgentCommit) -> str | None:
    """The agent whose notes may refer to a commit."""
    owner = commit.agent or commit.landed
    return owner if names.is_name(owner) else None


def _bound(
    core: Core, commits: Sequence[AgentCommit], tips: Sequence[tuple[str, str | None, str | None]]
) -> dict[str, CommitMarks]:
    traced = {name for name, trace, _ in tips if trace is not None}
    sessions = {name for name, _, session in tips if session is not None}
    signs = {}
    for commit in commits:
        owner = _owner(commit)
        if owner is None:
            continue
        has_trace = owner in traced and core.notes.get(names.traces(owner), commit.cid) is not None
        blob = core.notes.get(names.sessions(owner), commit.cid) if owner in sessions else None
        number = None if blob is None else _number(core, blob)
        if has_trace or number is not None:
            signs[commit.cid] = CommitMarks(has_trace, number)
    return signs


def _number(core: Core, blob: str) -> str | None:
    """The session number of a checkpoint note; None if it is not one."""

    def read() -> str | None:
        body = parse(core.objects.blob(blob))
        number = body.get("session") if body is not None and body.get("type") == "session" else None
        return number if isinstance(number, str) and number.isascii() and number.isdigit() else None

    session_number: str | None = _numbers.get(blob, read)
    return session_number


# Rendering


def _rows(graph: Graph, first: int) -> list[graph_svg.RowView]:
    return graph_svg.rows(graph._replace(nodes=graph.nodes[first : first + PAGE]))


def _picture(visit: Visit, graph: Graph, first: int) -> Any:
    space = visit.site.space
    agents = {*space.agents(), *space.agents(archived=True)}
    return graph_svg.svg(graph, base=visit.base, first=first, rows=PAGE, now=visit.forge.clock(), agents=agents)


def _offered(visit: Visit, chosen: Sequence[str]) -> list[str]:
    """The selected agents, then other active ones."""
    return sorted({*chosen, *visit.site.space.agents()[:OFFERED]})
