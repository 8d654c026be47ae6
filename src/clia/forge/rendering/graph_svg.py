"""A commit graph as SVG, complete or a window of rows.

Invariant: repository data (names, kinds, subjects, ids) becomes text or a quoted part of a URL, never an element, attribute or
class. A window shows exactly what the complete picture shows there. Presentation attributes give a plain picture, classes refine
it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple
from unicodedata import east_asian_width
from urllib.parse import quote

from markupsafe import Markup, escape

from clia.forge.rendering.graph_layout import LANDING, PEOPLE
from clia.forge.rendering.texts import ago, visible
from clia.values.commit_messages import check_count
from clia.values.refs import is_name
from clia.values.types import AGENT_COMMIT, DECISION, SESSION_MERGE, SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from clia.forge.rendering.graph_layout import GraphEdge, GraphLane, GraphLayout, Node
    from clia.forge.rendering.texts import Moment

ROW, LANE, MARGIN = 24, 18, 14
"""Pixels: row height, lane width, and left edge to the middle of the first lane."""

NAMES = 84  # height of the names of lanes that start above a window
SHORT = 10
# Column offsets from the right edge of the lanes; the last is the end.
_KIND, _SUBJECT, _AGENT, _AGE, _TEXT = 92, 208, 720, 880, 940
_CHARACTER = 7.2  # average character width, used to truncate text

_CIRCLE = "m-7.5 0a7.5 7.5 0 1 0 15 0a7.5 7.5 0 1 0-15 0z"
_ROUNDED = "m-3.5-7h7a3.5 3.5 0 0 1 3.5 3.5v7a3.5 3.5 0 0 1-3.5 3.5h-7a3.5 3.5 0 0 1-3.5-3.5v-7a3.5 3.5 0 0 1 3.5-3.5z"
_DOME = "m-8 6.5a8 13 0 0 1 16 0z"
_SHAPES = {
    SPAWN: ("S", "m0-9l8.5 15.5h-17z"),  # triangle
    "finding": ("F", _CIRCLE),
    "refactor": ("R", "m-7-7h14v14h-14z"),  # square
    "test": ("T", "m-4.5-7.5h9l4.5 7.5l-4.5 7.5h-9l-4.5-7.5z"),  # hexagon
    SESSION_MERGE: ("M", "m0-9.5l9.5 9.5l-9.5 9.5l-9.5-9.5z"),  # diamond
    DECISION: ("D", "m0-8.5l8.5 6.5l-3.2 9.5h-10.6l-3.2-9.5z"),  # pentagon
    AGENT_COMMIT: ("C", _ROUNDED),
    PEOPLE: ("P", _DOME),
    LANDING: ("L", _DOME),
}
_LEGEND = {SESSION_MERGE: "merge", AGENT_COMMIT: "other kinds", PEOPLE: "human commit", LANDING: "landed on a human branch"}


class _Links(NamedTuple):
    """The URL prefix of links, and the agents that have a page."""

    prefix: str
    agents: Container[str] | None


def letter(node: Node) -> str:
    """The letter in the mark of a commit."""
    return _SHAPES[node.mark][0]


def legend() -> Markup:
    """The legend: every mark with its letter and meaning."""
    items = "".join(
        f'<li><svg class="mark kind-{mark}" width="20" height="20" viewBox="0 0 20 20" aria-hidden="true" focusable="false">'
        f"{_mark(mark, 10, 10)}</svg> {_LEGEND.get(mark, mark)}</li>"
        for mark in _SHAPES
    )
    return Markup(f'<ul class="graph-legend">{items}</ul>')  # noqa: S704  # nothing in it comes from outside


def svg(
    graph: GraphLayout, *, base: str, first: int = 0, rows: int | None = None, now: Moment, agents: Container[str] | None = None
) -> Markup:
    """Draw ``rows`` rows from ``first``; links start with ``base``, ages are relative to ``now``.

    ``agents``: those that have a page (None: all); others may come from a peer's work.
    """
    check_count(first, "first")
    until = graph.height if rows is None else min(graph.height, first + check_count(rows, "rows"))
    nodes = graph.nodes[first:until]
    edges = [edge for edge in graph.edges if edge.points[0][1] < until and edge.points[-1][1] >= first] if nodes else []
    lanes = [lane for lane in graph.lanes if lane.top < first <= lane.last] if nodes else []
    side = MARGIN + graph.width * LANE
    width, height, above = side + _TEXT, len(nodes) * ROW, NAMES if lanes else 0
    links = _Links(str(escape(base.rstrip("/"))), agents)
    description = f"Graph of {graph.height} commits" + (f", {first + 1} to {until}" if 0 < len(nodes) < graph.height else "")
    box = f'width="{width}" height="{above + height}" viewBox="0 0 {width} {above + height}" font-size="13" fill="currentColor"'
    parts = [
        # A group, not an image: screen readers would skip the links in an image.
        f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" role="group" aria-label="{description}" {box}>',
        *[_lane_name(lane, links) for lane in lanes],
        f'<svg class="graph-rows" y="{above}" width="{width}" height="{height}" viewBox="0 {first * ROW} {width} {height}">',
        '<g class="edges" fill="none" stroke="currentColor" stroke-width="1.5">',
        *_lines(edges, first, until - 1),
        "</g>",
        *[_row(node, links, side, now) for node in nodes],
        *[_number(edge) for edge in edges if edge.elided and edge.points[0][1] >= first - 1],
        "</svg></svg>",
    ]
    return Markup("".join(parts))  # noqa: S704  # each part escapes what it takes from outside


# Edges


def _x(lane: int) -> int:
    return MARGIN + lane * LANE


def _y(row: int) -> int:
    return row * ROW + ROW // 2


def _lines(edges: Sequence[GraphEdge], first: int, last: int) -> list[str]:
    """The visible edges; those on the path come last, on top."""
    straight = {edge.child for edge in edges if not edge.stub and edge.points[0][0] == edge.points[1][0]}
    stubs: dict[str, int] = {}
    drawn: dict[tuple[str, int, str], int] = {}
    below: list[str] = []
    above: list[str] = []
    for edge in edges:
        name = f"edge {edge.role}{' elided' if edge.elided else ''}{' on-path' if edge.on_path else ''}"
        if edge.stub:
            number = stubs[edge.child] = stubs.get(edge.child, -1 + (edge.child in straight)) + 1
            path = _stub(edge, number)
        else:
            path = _way(edge, name, (first, last), drawn)
        if path:
            dashes = ' stroke-dasharray="3 3"' if edge.elided and not edge.stub else ""
            (above if edge.on_path else below).append(f'<path class="{name}{" stub" if edge.stub else ""}" d="{path}"{dashes}/>')
    return below + above


def _way(edge: GraphEdge, name: str, window: tuple[int, int], drawn: dict[tuple[str, int, str], int]) -> str:
    """An edge, clipped to the window. ``drawn`` has the lane positions where the rest is already drawn."""
    first, last = window
    parts = []
    pen = None
    for (lane, row), (other, to) in pairwise(edge.points):
        if to < first or row > last:
            continue
        start, end = max(row, first - 1), min(to, last + 1)
        if lane == other:
            key = (edge.parent, lane, name)
            end = min(end, drawn.get(key, end))
            if start >= end:
                continue
            drawn[key] = start
            step = f"V{_y(end)}"
        else:
            across = (other - lane) * LANE
            step = f"v5c0 7 {across} 7 {across} 14v5"  # flat in the middle, to pass between marks
        if pen != (lane, start):
            parts.append(f"M{_x(lane)} {_y(start)}")
        parts.append(step)
        pen = (other, end)
    return "".join(parts)


def _stub(edge: GraphEdge, number: int) -> str:
    """The stub of an edge that leaves the graph, in shrinking dashes; several fan out."""
    lane, row = edge.points[0]
    lean = min(number * 4, LANE)
    return f"M{_x(lane)} {_y(row)}l{lean / 2:g} 10m{lean / 8:g} 1.5l{lean / 8:g} 2m{lean / 8:g} 1.5l{lean / 8:g} 1"


def _number(edge: GraphEdge) -> str:
    """The number of hidden commits, half a row below the start of an edge."""
    (lane, row), (other, _) = edge.points[0], edge.points[min(1, len(edge.points) - 1)]
    x, y = (_x(lane) + _x(other)) / 2, (row + 1) * ROW
    half = 3 * len(str(edge.elided)) + 2
    return (
        f'<g class="elided-number"><title>{_commits(edge.elided)}</title>'
        f'<rect x="{x - half:g}" y="{y - 5}" width="{2 * half}" height="10" rx="4" fill="Canvas"/>'
        f'<text x="{x:g}" y="{y + 3}" text-anchor="middle" font-size="9">{edge.elided}</text></g>'
    )


def _lane_name(lane: GraphLane, links: _Links) -> str:
    x, y = _x(lane.column), NAMES - 6
    name = _plain(lane.agent or PEOPLE)
    text = f'<text x="{x}" y="{y}" transform="rotate(-60 {x} {y})">{escape(_cut(name, 14))}<title>{escape(name)}</title></text>'
    return f'<g class="lane-name">{_agent_link(lane.agent, links, text)}</g>'


def _agent_link(agent: str | None, links: _Links, content: str) -> str:
    """A link if the name belongs to a local agent; trailers are untrusted."""
    if agent is None or not is_name(agent) or not (links.agents is None or agent in links.agents):
        return content
    return f'<a href="{links.prefix}/agents/{agent}" aria-label="agent {agent}">{content}</a>'


# Rows


def _row(node: Node, links: _Links, side: int, now: Moment) -> str:
    commit = node.commit
    top = node.row * ROW
    agent, kind, subject = _plain(commit.agent or PEOPLE), _plain(commit.kind or ""), _plain(commit.subject)
    age = ago(commit.committer.at, now)
    badges, taken = _badges(node, links, side + _SUBJECT, top)
    shown = _cut(subject, int((_AGENT - _SUBJECT - taken) / _CHARACTER) - (14 if node.elided else 1))
    signs = f"{', with a trace' if node.traced else ''}{', in a session' if node.in_session else ''}"
    short = escape(_plain(commit.cid[:SHORT]))
    elided = f'<tspan class="elided" dx="8">{_commits(node.elided)}</tspan>' if node.elided else ""
    return (
        f'<g class="row kind-{node.mark}{" on-path" if node.on_path else ""}">'
        f'<a class="commit" href="{links.prefix}/commits/{quote(commit.cid, safe="", errors="replace")}">'
        # On the area, not the link: the accessible name of a link is its content.
        f'<rect class="hit" y="{top}" width="{side + _TEXT}" height="{ROW}" fill="none" pointer-events="all">'
        f"<title>{short} {escape(f'{kind} {subject}, {agent}, {age}{signs}')}</title></rect>"
        f"{_mark(node.mark, _x(node.lane), _y(node.row))}{_signs(node)}"
        f'<text y="{top + 16}"><tspan class="id" x="{side}">{short}</tspan>'
        f'<tspan class="kind" x="{side + _KIND}">{escape(_cut(kind, 16))}</tspan>'
        f'<tspan class="subject" x="{side + _SUBJECT + taken}">{escape(shown)}</tspan>'
        f"{elided}"
        f'<tspan class="agent" x="{side + _AGENT}">{escape(_cut(agent, 20))}</tspan>'
        f'<tspan class="age" x="{side + _AGE}">{age}</tspan></text></a>{badges}</g>'
    )


def _mark(mark: str, x: int, y: int) -> str:
    letter, shape = _SHAPES[mark]
    return (
        f'<path class="mark" d="M{x} {y}{shape}" fill="Canvas" stroke="currentColor" stroke-width="1.5"/>'
        f'<text class="letter" x="{x}" y="{y + (4 if mark == SPAWN else 3)}" text-anchor="middle" font-size="9">{letter}</text>'
    )


def _signs(node: Node) -> str:
    x, y = _x(node.lane), _y(node.row)
    trace = f'<path class="sign trace" d="M{x + 5} {y - 9}h5m-5 2.5h5m-5 2.5h3" stroke="currentColor"/>' if node.traced else ""
    session = f'<path class="sign session" d="M{x + 5} {y + 4}l5 3l-5 3z"/>' if node.in_session else ""
    return trace + session


def _badges(node: Node, links: _Links, x: float, top: int) -> tuple[str, int]:
    """Badges for lanes and heads at a commit, as many as fit, and their width."""
    names: list[str | None] = [*node.heads, *([node.commit.agent] if node.opens else [])]
    parts, taken = [], 0
    for number, agent in enumerate(names):
        label = _plain(agent or PEOPLE)
        text, left = _cut(label, 24), len(names) - number
        if taken > 170:
            parts.append(f'<text class="more" x="{x + taken}" y="{top + 16}">+{left}</text>')
            taken += 32
            break
        width = int(_width(text) * _CHARACTER) + 14
        badge = (
            f'<rect x="{x + taken}" y="{top + 4}" width="{width}" height="16" rx="8" fill="none" stroke="currentColor"/>'
            f'<text x="{x + taken + 7}" y="{top + 16}">{escape(text)}<title>{escape(label)}</title></text>'
        )
        parts.append(f'<g class="head">{_agent_link(agent, links, badge)}</g>')
        taken += width + 6
    return "".join(parts), taken


# Text


def _plain(text: str) -> str:
    """A truncated text with invisible characters replaced."""
    return visible(text[:300])


def _width(text: str) -> int:
    """The width in average characters."""
    return len(text) if text.isascii() else sum([2 if east_asian_width(char) in "WF" else 1 for char in text])


def _cut(text: str, room: int) -> str:
    if _width(text) <= room:
        return text
    end = 0
    left = room - 1
    while left > 0 and (left := left - _width(text[end])) >= 0:
        end += 1
    return text[:end] + "…"


def _commits(number: int) -> str:
    return "1 commit" if number == 1 else f"{number} commits"
