"""For any history, every line of the picture joins the right commits, and a window shows the same as the full picture."""

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

    from clia.forge.rendering.graph_layout import GraphEdge, GraphLayout
    from clia.space.model import AgentCommit

KINDS = ("spawn", "finding", "session-merge", "decision", "odd", None)
AGENTS = (None, "a", "b", "c")
Step = tuple[int, int, int]  # from a lane and a row to a lane in the row below


@st.composite
def any_graphs(draw: st.DrawFn) -> list[AgentCommit]:
    """Any graph: up to four parents, some of them outside, with random agents and kinds."""
    size = draw(st.integers(0, 18))
    outside = [f"out{n}" for n in range(3)]
    commits = []
    for at in range(size):
        later = [f"n{n}" for n in range(at + 1, size)] or outside
        parents = draw(st.lists(st.sampled_from(later[:6]) | st.sampled_from([*later, *outside]), max_size=4))
        commits.append(commit(f"n{at}", parents, draw(st.sampled_from(AGENTS)), draw(st.sampled_from(KINDS))))
    return commits


@st.composite
def histories(draw: st.DrawFn) -> list[AgentCommit]:
    """Realistic histories: each agent is a chain from another's commit; merges have other heads; the oldest may be cut off."""
    names = st.sampled_from([None, "a", "b", "c", "d", "e"])
    steps = draw(st.lists(st.tuples(names, names, st.booleans()), max_size=30))
    heads: dict[str | None, str] = {None: "n0"}
    commits = [commit("n0")]
    for number, (agent, other_agent, merges) in enumerate(steps, start=1):
        start = heads.get(agent) or heads.get(other_agent) or heads[None]
        merged = [heads[other_agent]] if merges and other_agent in heads and heads[other_agent] != start else []
        kind = None if agent is None else "spawn" if agent not in heads else "session-merge" if merged else "finding"
        heads[agent] = f"n{number}"
        commits.append(commit(heads[agent], [start, *merged], agent, kind))
    return commits[::-1][: draw(st.integers(1, len(commits)))]


graphs = any_graphs() | histories()


def heads_of(commits: list[AgentCommit]) -> dict[str, str]:
    """The newest commit of each agent."""
    return {agent_commit.agent: agent_commit.cid for agent_commit in reversed(commits) if agent_commit.agent is not None}


def steps_of(edge: GraphEdge) -> list[Step]:
    """The steps of a line, row by row."""
    steps: list[Step] = []
    for (lane, row), (next_lane, below) in pairwise(edge.points):
        assert (lane == next_lane and row < below) or row + 1 == below
        steps += [(lane, at, lane) for at in range(row, below - 1)]
        steps.append((lane, below - 1, next_lane))
    return steps


@given(graphs, st.booleans())
def test_every_line_joins_two_commits_or_ends_in_a_stub(commits: list[AgentCommit], collapse: bool) -> None:
    graph = layout(commits, heads_of(commits), collapse=collapse)
    inside = {agent_commit.cid for agent_commit in commits}
    place = {node.commit.cid: (node.lane, node.row) for node in graph.nodes}
    for edge in graph.edges:
        assert edge.points[0] == place[edge.child]
        assert edge.stub == (edge.parent not in inside)
        assert edge.stub or edge.points[-1] == place[edge.parent]
    if not collapse:
        drawn_edges = [(edge.child, edge.parent) for edge in graph.edges]
        assert drawn_edges == [
            (agent_commit.cid, parent) for agent_commit in commits for parent in dict.fromkeys(agent_commit.parents)
        ]


@given(graphs, st.booleans())
def test_commits_are_in_separate_rows_newest_first_and_each_agent_has_one_lane(commits: list[AgentCommit], collapse: bool) -> None:
    graph = layout(commits, heads_of(commits), collapse=collapse)
    order = [node.commit for node in graph.nodes]
    assert order == [agent_commit for agent_commit in commits if agent_commit in order]
    assert [node.row for node in graph.nodes] == list(range(graph.height))
    assert all(edge.points[0][1] < edge.points[-1][1] for edge in graph.edges if not edge.stub)
    lanes = {(node.commit.agent, node.lane) for node in graph.nodes}
    assert lanes == {(lane.agent, lane.column) for lane in graph.lanes}
    assert len({lane.agent for lane in graph.lanes}) == len(graph.lanes)
    assert all(0 <= lane < graph.width for edge in graph.edges for lane, _ in edge.points)


@given(graphs, st.booleans())
def test_a_line_crosses_no_commit_and_overlaps_only_lines_to_the_same_commit(commits: list[AgentCommit], collapse: bool) -> None:
    graph = layout(commits, heads_of(commits), collapse=collapse)
    occupied = {(node.lane, node.row) for node in graph.nodes}
    targets: dict[tuple[int, int], set[str]] = {}
    for edge in graph.edges:
        steps = steps_of(edge)
        assert not occupied & {(lane, row + 1) for _, row, lane in steps[:-1]}
        for _, row, lane in steps:
            targets.setdefault((lane, row + 1), set()).add(edge.parent)
    assert all(len(parents) == 1 for parents in targets.values())


@given(histories())
def test_names_of_agents_do_not_change_the_layout(commits: list[AgentCommit]) -> None:
    renamed = [
        agent_commit._replace(agent=agent_commit.agent and f"{'xyzuv'['abcde'.index(agent_commit.agent)]}")
        for agent_commit in commits
    ]
    original, after_renaming = layout(commits, {}), layout(renamed, {})
    assert [(node.lane, node.row) for node in original.nodes] == [(node.lane, node.row) for node in after_renaming.nodes]
    assert [edge[2:] for edge in original.edges] == [edge[2:] for edge in after_renaming.edges]


def read_back(picture: str) -> tuple[list[str], set[Step], set[str]]:
    """Parse a picture: the commits in order, the steps of its lines, and the stubs."""
    root = ET.fromstring(picture)  # noqa: S314  # our own picture
    name = "{http://www.w3.org/2000/svg}"
    links = [link.get("href", "") for link in root.iter(f"{name}a") if link.get("class") == "commit"]
    ways = [path for path in root.iter(f"{name}path") if (path.get("class") or "").startswith("edge")]
    steps: set[Step] = set()
    for path in ways:
        if "stub" not in (path.get("class") or ""):
            steps |= set(read_path(path.get("d", "")))
    return links, steps, {path.get("d", "") for path in ways if "stub" in (path.get("class") or "")}


def read_path(data: str) -> Iterable[Step]:
    lane = row = 0
    for move, x, y, across, down in re.findall(r"(M(\d+) (\d+)|v5c0 7 (-?\d+) 7 \4 14v5|V(\d+))", data):
        if move.startswith("M"):
            lane, row = (int(x) - MARGIN) // LANE, int(y) // ROW
        elif across:
            yield lane, row, lane + int(across) // LANE
            lane, row = lane + int(across) // LANE, row + 1
        else:
            yield from [(lane, at, lane) for at in range(row, int(down) // ROW)]
            row = int(down) // ROW


@given(graphs, st.booleans(), st.integers(1, 7))
def test_windows_add_up_to_the_full_picture(commits: list[AgentCommit], collapse: bool, size: int) -> None:
    graph = layout(commits, heads_of(commits), collapse=collapse)
    links, steps, stubs = read_back(svg(graph, base="/s/x", now=0))
    assert steps == {step for edge in graph.edges for step in steps_of(edge)}
    window_links: list[str] = []
    window_stubs: set[str] = set()
    for first in range(0, graph.height, size):
        window = read_back(svg(graph, base="/s/x", first=first, rows=size, now=0))
        window_links += window[0]
        window_stubs |= window[2]
        last = min(first + size, graph.height) - 1
        assert window[1] == {step for step in steps if step[1] <= last and step[1] + 1 >= first}
        assert all(first <= int(stub.split()[1].split("l")[0]) // ROW <= last for stub in window[2])
    assert (window_links, window_stubs) == (links, stubs)


def ancestors_of(edges: Iterable[tuple[str, str]], start: str) -> set[str]:
    parents_of: dict[str, list[str]] = {}
    for child, parent in edges:
        parents_of.setdefault(child, []).append(parent)
    ancestors: set[str] = set()
    waiting = [start]
    while waiting:
        for parent_id in parents_of.get(waiting.pop(), ()):
            if parent_id not in ancestors:
                ancestors.add(parent_id)
                waiting.append(parent_id)
    return ancestors


@given(graphs)
def test_collapsing_keeps_heads_and_reachability_and_counts_elided_commits(commits: list[AgentCommit]) -> None:
    heads = heads_of(commits)
    full, small = layout(commits, heads), layout(commits, heads, collapse=True)
    kept_ids = {node.commit.cid for node in small.nodes}
    assert kept_ids >= set(heads.values())
    assert kept_ids >= {
        agent_commit.cid
        for agent_commit in commits
        if len(set(agent_commit.parents)) != 1 or agent_commit.kind in ("spawn", "session-merge")
    }
    assert len(kept_ids) + sum(edge.elided for edge in small.edges) == len(commits)
    assert sum(node.elided for node in small.nodes) == sum(edge.elided for edge in small.edges)
    outside = {edge.parent for edge in full.edges if edge.stub}
    before = [(edge.child, edge.parent) for edge in full.edges]
    after = [(edge.child, edge.parent) for edge in small.edges]
    assert len(set(after)) == len(after)
    for cid in kept_ids:
        assert ancestors_of(after, cid) == ancestors_of(before, cid) & (kept_ids | outside)


def distances(graph: GraphLayout, start: str) -> dict[str, int]:
    distance, waiting = {start: 0}, [start]
    pairs = [(edge.child, edge.parent) for edge in graph.edges if not edge.stub]
    while waiting:
        at = waiting.pop(0)
        for start_id, end_id in [*pairs, *[(parent, child) for child, parent in pairs]]:
            if start_id == at and end_id not in distance:
                distance[end_id] = distance[at] + 1
                waiting.append(end_id)
    return distance


@given(graphs.filter(bool), st.data())
def test_a_path_is_shortest_and_fully_highlighted(commits: list[AgentCommit], data: st.DataObject) -> None:
    a, b = (data.draw(st.sampled_from([agent_commit.cid for agent_commit in commits])) for _ in "ab")
    path = path_between(commits, a, b)
    distance = distances(layout(commits, {}), a)
    assert len(path) == (distance[b] + 1 if b in distance else 0)
    assert not path or (path[0], path[-1]) == (a, b)
    graph = layout(commits, {}, path=path)
    highlighted = {frozenset((edge.child, edge.parent)) for edge in graph.edges if edge.on_path}
    assert highlighted == {frozenset(pair) for pair in pairwise(path)}
    assert {node.commit.cid for node in graph.nodes if node.on_path} == set(path)
    small = layout(commits, {}, path=path, collapse=True)
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


ROWS = st.lists(st.tuples(TEXT, TEXT, TEXT, TEXT), min_size=1, max_size=5, unique_by=lambda row: row[0])


@given(ROWS, st.integers(0, 2))
def test_text_of_a_repository_is_escaped(rows: list[tuple[str, str, str, str]], first: int) -> None:
    ids = [cid for cid, *_ in rows]
    commits = [commit(cid, ids[at + 1 : at + 2], agent, kind, subject=text) for at, (cid, agent, kind, text) in enumerate(rows)]
    heads = {agent: cid for cid, agent, *_ in rows}
    graph = layout(commits, heads, types={agent_commit.kind or "": agent_commit.agent for agent_commit in commits})
    picture = svg(graph, base='/s/"><script>', first=first, now=0)
    root = ET.fromstring(re.sub("[\ufffe\uffff]", "", picture))  # noqa: S314  # our own; these two characters are valid in HTML and not in XML
    tags = {element.tag.removeprefix("{http://www.w3.org/2000/svg}") for element in root.iter()}
    classes = {name for element in root.iter() for name in (element.get("class") or "").split()}
    links = [link for element in root.iter() if (link := element.get("href")) is not None]
    assert tags <= TAGS
    assert {name for element in root.iter() for name in element.attrib} <= ATTRIBUTES
    assert all(re.fullmatch(r"[a-z-]+", name) for name in classes)
    assert all(re.fullmatch(r'/s/"><script>/(commits|agents)/[^/<>"]*', link) for link in links)
    assert [node.commit.subject for node in graph.nodes] == [agent_commit.subject for agent_commit in commits]
