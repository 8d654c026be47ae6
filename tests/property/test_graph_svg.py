"""Whatever the history: every line of the picture leads where it should, and a window shows what the whole shows there."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from clia.forge.rendering.graph_layout import layout, path_between
from clia.forge.rendering.graph_svg import LANE, MARGIN, ROW, svg
from support.graphs import commit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clia.forge.rendering.graph_layout import Graph, GraphEdge
    from clia.space.model import AgentCommit

KINDS = ("spawn", "finding", "session-merge", "decision", "odd", None)
AGENTS = (None, "a", "b", "c")
Step = tuple[int, int, int]  # from a lane and a row to a lane in the row below


@st.composite
def any_graphs(draw: st.DrawFn) -> list[AgentCommit]:
    """Any graph: up to four parents, some of them outside, agents and kinds as they fall."""
    size = draw(st.integers(0, 18))
    outside = [f"out{n}" for n in range(3)]
    found = []
    for at in range(size):
        later = [f"n{n}" for n in range(at + 1, size)] or outside
        parents = draw(st.lists(st.sampled_from(later[:6]) | st.sampled_from([*later, *outside]), max_size=4))
        found.append(commit(f"n{at}", parents, draw(st.sampled_from(AGENTS)), draw(st.sampled_from(KINDS))))
    return found


@st.composite
def histories(draw: st.DrawFn) -> list[AgentCommit]:
    """What agents make: each is a chain that starts at another's commit; merges name other heads; the oldest may be cut off."""
    who = st.sampled_from([None, "a", "b", "c", "d", "e"])
    steps = draw(st.lists(st.tuples(who, who, st.booleans()), max_size=30))
    heads: dict[str | None, str] = {None: "n0"}
    made = [commit("n0")]
    for number, (agent, other, merges) in enumerate(steps, start=1):
        start = heads.get(agent) or heads.get(other) or heads[None]
        merged = [heads[other]] if merges and other in heads and heads[other] != start else []
        kind = None if agent is None else "spawn" if agent not in heads else "session-merge" if merged else "finding"
        heads[agent] = f"n{number}"
        made.append(commit(heads[agent], [start, *merged], agent, kind))
    return made[::-1][: draw(st.integers(1, len(made)))]


graphs = any_graphs() | histories()


def heads_of(found: list[AgentCommit]) -> dict[str, str]:
    """The newest commit of each agent."""
    return {each.agent: each.cid for each in reversed(found) if each.agent is not None}


def steps_of(edge: GraphEdge) -> list[Step]:
    """A line, row by row."""
    found: list[Step] = []
    for (lane, row), (other, below) in pairwise(edge.points):
        assert (lane == other and row < below) or row + 1 == below
        found += [(lane, at, lane) for at in range(row, below - 1)]
        found.append((lane, below - 1, other))
    return found


@given(graphs, st.booleans())
def test_every_line_joins_two_commits_or_ends_in_a_stub(found: list[AgentCommit], collapse: bool) -> None:
    graph = layout(found, heads_of(found), collapse=collapse)
    inside = {each.cid for each in found}
    place = {node.commit.cid: (node.lane, node.row) for node in graph.nodes}
    for edge in graph.edges:
        assert edge.points[0] == place[edge.child]
        assert edge.stub == (edge.parent not in inside)
        assert edge.stub or edge.points[-1] == place[edge.parent]
    if not collapse:
        drawn = [(edge.child, edge.parent) for edge in graph.edges]
        assert drawn == [(each.cid, parent) for each in found for parent in dict.fromkeys(each.parents)]


@given(graphs, st.booleans())
def test_commits_stand_apart_newest_first_and_each_agent_in_one_lane(found: list[AgentCommit], collapse: bool) -> None:
    graph = layout(found, heads_of(found), collapse=collapse)
    order = [node.commit for node in graph.nodes]
    assert order == [each for each in found if each in order]
    assert [node.row for node in graph.nodes] == list(range(graph.height))
    assert all(edge.points[0][1] < edge.points[-1][1] for edge in graph.edges if not edge.stub)
    lanes = {(node.commit.agent, node.lane) for node in graph.nodes}
    assert lanes == {(lane.agent, lane.column) for lane in graph.lanes}
    assert len({lane.agent for lane in graph.lanes}) == len(graph.lanes)
    assert all(0 <= lane < graph.width for edge in graph.edges for lane, _ in edge.points)


@given(graphs, st.booleans())
def test_a_line_passes_no_other_commit_and_shares_its_way_with_lines_to_the_same_one_only(
    found: list[AgentCommit], collapse: bool
) -> None:
    graph = layout(found, heads_of(found), collapse=collapse)
    taken = {(node.lane, node.row) for node in graph.nodes}
    led_to: dict[tuple[int, int], set[str]] = {}
    for edge in graph.edges:
        steps = steps_of(edge)
        assert not taken & {(lane, row + 1) for _, row, lane in steps[:-1]}
        for _, row, lane in steps:
            led_to.setdefault((lane, row + 1), set()).add(edge.parent)
    assert all(len(parents) == 1 for parents in led_to.values())


@given(histories())
def test_names_of_agents_do_not_change_the_layout(found: list[AgentCommit]) -> None:
    other = [each._replace(agent=each.agent and f"{'xyzuv'['abcde'.index(each.agent)]}") for each in found]
    one, two = layout(found, {}), layout(other, {})
    assert [(node.lane, node.row) for node in one.nodes] == [(node.lane, node.row) for node in two.nodes]
    assert [edge[2:] for edge in one.edges] == [edge[2:] for edge in two.edges]


def read_back(picture: str) -> tuple[list[str], set[Step], set[str]]:
    """From a picture alone: the commits in order, the steps of its lines, and the stubs."""
    root = ET.fromstring(picture)  # noqa: S314  # our own picture
    name = "{http://www.w3.org/2000/svg}"
    links = [each.get("href", "") for each in root.iter(f"{name}a") if each.get("class") == "commit"]
    ways = [each for each in root.iter(f"{name}path") if (each.get("class") or "").startswith("edge")]
    steps: set[Step] = set()
    for each in ways:
        if "stub" not in (each.get("class") or ""):
            steps |= set(read_way(each.get("d", "")))
    return links, steps, {each.get("d", "") for each in ways if "stub" in (each.get("class") or "")}


def read_way(way: str) -> Iterable[Step]:
    lane = row = 0
    for move, x, y, across, down in re.findall(r"(M(\d+) (\d+)|v5c0 7 (-?\d+) 7 \4 14v5|V(\d+))", way):
        if move.startswith("M"):
            lane, row = (int(x) - MARGIN) // LANE, int(y) // ROW
        elif across:
            yield lane, row, lane + int(across) // LANE
            lane, row = lane + int(across) // LANE, row + 1
        else:
            yield from [(lane, at, lane) for at in range(row, int(down) // ROW)]
            row = int(down) // ROW


@given(graphs, st.booleans(), st.integers(1, 7))
def test_windows_tile_to_the_whole(found: list[AgentCommit], collapse: bool, size: int) -> None:
    graph = layout(found, heads_of(found), collapse=collapse)
    links, steps, stubs = read_back(svg(graph, base="/s/x", now=0))
    assert steps == {step for edge in graph.edges for step in steps_of(edge)}
    seen: list[str] = []
    ended: set[str] = set()
    for first in range(0, graph.height, size):
        window = read_back(svg(graph, base="/s/x", first=first, rows=size, now=0))
        seen += window[0]
        ended |= window[2]
        last = min(first + size, graph.height) - 1
        assert window[1] == {step for step in steps if step[1] <= last and step[1] + 1 >= first}
        assert all(first <= int(each.split()[1].split("l")[0]) // ROW <= last for each in window[2])
    assert (seen, ended) == (links, stubs)


def reached(edges: Iterable[tuple[str, str]], start: str) -> set[str]:
    near: dict[str, list[str]] = {}
    for child, parent in edges:
        near.setdefault(child, []).append(parent)
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for each in near.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


@given(graphs)
def test_collapsing_keeps_heads_and_who_reaches_whom_and_counts_what_it_leaves_out(found: list[AgentCommit]) -> None:
    heads = heads_of(found)
    whole, small = layout(found, heads), layout(found, heads, collapse=True)
    kept = {node.commit.cid for node in small.nodes}
    assert kept >= set(heads.values())
    assert kept >= {each.cid for each in found if len(set(each.parents)) != 1 or each.kind in ("spawn", "session-merge")}
    assert len(kept) + sum(edge.elided for edge in small.edges) == len(found)
    assert sum(node.elided for node in small.nodes) == sum(edge.elided for edge in small.edges)
    outside = {edge.parent for edge in whole.edges if edge.stub}
    before = [(edge.child, edge.parent) for edge in whole.edges]
    after = [(edge.child, edge.parent) for edge in small.edges]
    assert len(set(after)) == len(after)
    for each in kept:
        assert reached(after, each) == reached(before, each) & (kept | outside)


def distances(graph: Graph, start: str) -> dict[str, int]:
    found, waiting = {start: 0}, [start]
    pairs = [(edge.child, edge.parent) for edge in graph.edges if not edge.stub]
    while waiting:
        at = waiting.pop(0)
        for one, other in [*pairs, *[(parent, child) for child, parent in pairs]]:
            if one == at and other not in found:
                found[other] = found[at] + 1
                waiting.append(other)
    return found


@given(graphs.filter(bool), st.data())
def test_a_path_is_a_shortest_one_and_is_highlighted_wholly(found: list[AgentCommit], data: st.DataObject) -> None:
    a, b = (data.draw(st.sampled_from([each.cid for each in found])) for _ in "ab")
    path = path_between(found, a, b)
    far = distances(layout(found, {}), a)
    assert len(path) == (far[b] + 1 if b in far else 0)
    assert not path or (path[0], path[-1]) == (a, b)
    graph = layout(found, {}, path=path)
    lit = {frozenset((edge.child, edge.parent)) for edge in graph.edges if edge.on_path}
    assert lit == {frozenset(pair) for pair in pairwise(path)}
    assert {node.commit.cid for node in graph.nodes if node.on_path} == set(path)
    small = layout(found, {}, path=path, collapse=True)
    left_out = set(path) - {node.commit.cid for node in small.nodes}
    assert sum(edge.elided for edge in small.edges if edge.on_path) == len(left_out)


TEXT = st.text(max_size=30) | st.sampled_from(
    [
        '"><script>x</script>',
        "' onload='x",
        "</title></svg><img src=x>",
        "javascript:x",
        "..",
        "&amp;",
        "\ud800",
        "\u202eevil",
        "\0",
    ]
)
TAGS = {"svg", "g", "a", "rect", "path", "text", "tspan", "title"}
ATTRIBUTES = {
    *(
        "class",
        "role",
        "aria-label",
        "width",
        "height",
        "viewBox",
        "font-size",
        "fill",
        "stroke",
        "stroke-width",
        "stroke-dasharray",
    ),
    *("href", "x", "y", "dx", "rx", "d", "transform", "text-anchor", "pointer-events"),
}


SAID = st.lists(st.tuples(TEXT, TEXT, TEXT, TEXT), min_size=1, max_size=5, unique_by=lambda each: each[0])


@given(SAID, st.integers(0, 2))
def test_whatever_a_repository_says_is_text(said: list[tuple[str, str, str, str]], first: int) -> None:
    ids = [cid for cid, *_ in said]
    found = [commit(cid, ids[at + 1 : at + 2], who, kind, subject=text) for at, (cid, who, kind, text) in enumerate(said)]
    heads = {who: cid for cid, who, *_ in said}
    graph = layout(found, heads, types={each.kind or "": each.agent for each in found})
    picture = svg(graph, base='/s/"><script>', first=first, now=0)
    root = ET.fromstring(re.sub("[\ufffe\uffff]", "", picture))  # noqa: S314  # our own; HTML knows these two, XML does not
    tags = {each.tag.removeprefix("{http://www.w3.org/2000/svg}") for each in root.iter()}
    classes = {name for each in root.iter() for name in (each.get("class") or "").split()}
    links = [link for each in root.iter() if (link := each.get("href")) is not None]
    assert tags <= TAGS
    assert {name for each in root.iter() for name in each.attrib} <= ATTRIBUTES
    assert all(re.fullmatch(r"[a-z-]+", name) for name in classes)
    assert all(re.fullmatch(r'/s/"><script>/(commits|agents)/[^/<>"]*', link) for link in links)
    assert [node.commit.subject for node in graph.nodes] == [each.subject for each in found]
