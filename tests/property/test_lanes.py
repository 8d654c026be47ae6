"""Every line of a commit graph joins the right commits, in the layout and in the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from clia.cli.graph_drawing import graph_lines
from clia.values.graph_lanes import GraphNode, layout

if TYPE_CHECKING:
    import random

    from clia.values.graph_lanes import GraphRow

Edge = tuple[str, str]


@st.composite
def graphs(draw: st.DrawFn) -> list[GraphNode]:
    """Any graph: up to three parents, some of them outside the window, with random groups."""
    size = draw(st.integers(0, 18))
    outside = [f"out{n}" for n in range(3)]
    nodes = []
    for at in range(size):
        later = [f"n{n}" for n in range(at + 1, size)] or outside
        parents = draw(st.lists(st.sampled_from(later[:6]) | st.sampled_from([*later, *outside]), max_size=3, unique=True))
        nodes.append(GraphNode(f"n{at}", tuple(parents), draw(st.sampled_from(["", "", "a", "b", "c"]))))
    return nodes


@st.composite
def histories(draw: st.DrawFn) -> list[GraphNode]:
    """Realistic histories: each group is a chain of first parents from another's commit; merges have other heads."""
    steps = draw(st.lists(st.tuples(st.sampled_from("mabcde"), st.sampled_from("mabcde"), st.booleans()), max_size=30))
    heads, nodes = {"m": "n0"}, [GraphNode("n0", (), "m")]
    for number, (group, other_group, merges) in enumerate(steps, start=1):
        start = heads.get(group) or heads.get(other_group) or heads["m"]
        merged = [heads[other_group]] if merges and other_group in heads and heads[other_group] != start else []
        heads[group] = f"n{number}"
        nodes.append(GraphNode(heads[group], (start, *merged), group))
    window = draw(st.integers(1, len(nodes)))
    return nodes[::-1][:window]


def edges_of(nodes: list[GraphNode]) -> list[Edge]:
    return sorted((node.id, parent) for node in nodes for parent in node.parents)


def followed(rows: list[GraphRow], start: int, lane: int) -> str | None:
    """The commit that the line leaving row ``start`` in ``lane`` arrives at; None where it leaves the window."""
    for row in rows[start + 1 :]:
        assert lane in row.above
        if lane == row.lane:
            return row.node.id
        assert (lane in row.through) != (lane == row.bend)
        lane = row.lane if lane == row.bend else lane
        assert lane in row.below
    return None


@given(graphs() | histories())
def test_every_line_ends_at_its_parent(nodes: list[GraphNode]) -> None:
    rows = layout(nodes)
    inside = {node.id for node in nodes}
    assert [row.node for row in rows] == nodes
    for at, row in enumerate(rows):
        assert len(row.edges) == len(row.node.parents)
        for parent, lane in zip(row.node.parents, row.edges, strict=True):
            assert lane in row.below
            assert followed(rows, at, lane) == (parent if parent in inside else None)


@given(graphs() | histories())
def test_lanes_start_and_end_at_commits_only(nodes: list[GraphNode]) -> None:
    rows = layout(nodes)
    lanes_above: tuple[int, ...] = ()
    for row in rows:
        assert row.above == lanes_above
        assert row.below == tuple(sorted({*row.through, *row.edges}))
        assert set(row.opened) == set(row.edges) - {row.lane, *row.above}
        assert row.lane not in row.through
        assert row.bend is None or (row.bend in row.above and row.bend not in row.below and row.lane in row.edges)
        assert row.tip == (not any(row.node.id in node.parents for node in nodes))
        lanes_above = row.below
    leaving = {parent for node in nodes for parent in node.parents} - {node.id for node in nodes}
    assert len(lanes_above) == len(leaving)  # one lane per awaited commit


@given(histories())
def test_an_agent_whose_commits_are_a_chain_has_one_lane(nodes: list[GraphNode]) -> None:
    lanes_of: dict[str, set[int]] = {}
    for row in layout(nodes):
        lanes_of.setdefault(row.node.group, set()).add(row.lane)
    assert all(len(lanes) == 1 for lanes in lanes_of.values())


@given(graphs(), st.randoms(use_true_random=False))
def test_names_do_not_change_the_layout(nodes: list[GraphNode], order: random.Random) -> None:
    names = sorted({name for node in nodes for name in (node.id, *node.parents)})
    numbers = dict(zip(names, order.sample(range(1000), len(names)), strict=True))
    renamed = [
        GraphNode(str(numbers[node.id]), tuple(str(numbers[parent]) for parent in node.parents), node.group * 2) for node in nodes
    ]
    assert [row[1:] for row in layout(renamed)] == [row[1:] for row in layout(nodes)]


@given(graphs() | histories())
def test_the_edges_can_be_parsed_from_the_picture(nodes: list[GraphNode]) -> None:
    lines = [line.plain for line in graph_lines(layout(nodes), lambda node: f"={node.id}")]
    inside = {node.id for node in nodes}
    drawn_edges, drawn_children = read_back(lines)
    assert sorted(drawn_edges) == [edge for edge in edges_of(nodes) if edge[1] in inside]
    awaited: dict[str, list[str]] = {}
    for child, parent in edges_of(nodes):
        if parent not in inside:
            awaited.setdefault(parent, []).append(child)
    assert sorted(drawn_children) == sorted(awaited.values())


@given(graphs())
def test_ascii_pictures_have_the_same_shape(nodes: list[GraphNode]) -> None:
    rows = layout(nodes)
    fancy = [line.plain for line in graph_lines(rows, lambda node: node.id)]
    simple = [line.plain for line in graph_lines(rows, lambda node: node.id, ascii=True)]
    assert all(line.isascii() for line in simple)
    assert [line.translate(str.maketrans("●│─├┤┼╭╮┬╰╯┆", "*|-+++...'':")) for line in fancy] == simple


UP = "●│├┤┼╰╯┆"  # characters with a stroke to the line above


def read_back(lines: list[str]) -> tuple[list[Edge], list[list[str]]]:
    """Parse a picture: its edges, and the children of the lines that leave it at the bottom, by lane."""
    pictures = [line.partition("=")[0].ljust(200) for line in lines]
    edges: list[Edge] = []
    carried: dict[int, set[str]] = {}  # the children whose lines are in a column
    for line, picture, following in zip(lines, pictures, [*pictures[1:], " " * 200], strict=False):
        columns = {column: char for column, char in enumerate(picture) if char not in " ─"}
        assert carried.keys() <= columns.keys()
        if "┆" in picture:
            assert set(columns.values()) == {"┆"}
            break
        if "●" in picture:
            edges += read_commit(picture, following, line.partition("=")[2], carried)
        for column in [column for column, char in columns.items() if char in "╰╯"]:
            (target,) = met_from(picture, column)
            carried[target] |= carried.pop(column)
        below = {column for column in columns if following[column] in UP}
        corners = {
            column for column, char in columns.items() if char in "╰╯" and following[column] == "●"
        }  # with a new head below it
        assert below - corners == carried.keys()
    return edges, [sorted(children) for children in carried.values()]


def read_commit(picture: str, following: str, name: str, carried: dict[int, set[str]]) -> list[Edge]:
    at = picture.index("●")
    edges = [(child, name) for child in carried.pop(at, ())]
    assert picture.count("●") == 1
    for column in met_from(picture, at):
        assert (column in carried) == (picture[column] in "├┤┼")
        carried.setdefault(column, set()).add(name)
    if following[at] in UP:
        carried[at] = {name}
    return edges


def met_from(picture: str, start: int) -> list[int]:
    """The columns where horizontal lines from ``start`` have a joint or a corner."""
    columns = []
    for step in (-2, 2):
        column = start
        while picture[column + step // 2] == "─":
            column += step
            if picture[column] in "├┤┼╭╮┬":
                columns.append(column)
    return columns
