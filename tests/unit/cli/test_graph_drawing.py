from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest
from rich.text import Text

from clia.cli.graph_drawing import graph_lines, tree_lines
from clia.values.graph_lanes import layout
from support.graphs import graph_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable


def drawn(lines: Iterable[Text]) -> str:
    return "".join(f"{line.plain}\n" for line in lines)


def picture(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


LINEAR = "m3: m2\nm2: m1\nm1:"
FORK = "a2: a1\nb1: m1\na1: m1\nm1:"
SESSION_MERGE = "a4: a3 b2\na3: a2\nb2: b1\na2: a1\nb1: a1\na1:"
CRISS_CROSS = "a3: a2 b2\nb3: b2 a2\na2: a1\nb2: a1\na1:"
TWO_ROOTS = "a2: a1\na1:\nb2: b1\nb1:"
OCTOPUS = "x1: b2\na2: a1 b2 c1 d1\nb2: b1\nc1: a1\nd1: a1\nb1: a1\na1:"
CUT_OFF = "a9: a8 b8\nc9: m1\nb8: b7"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(
            LINEAR,
            """
            ● m3
            ● m2
            ● m1
            """,
            id="linear",
        ),
        pytest.param(
            FORK,
            """
            ● a2
            │ ● b1
            ●─┤ a1
              ● m1
            """,
            id="fork",
        ),
        pytest.param(
            SESSION_MERGE,
            """
            ●─╮ a4
            ● │ a3
            │ ● b2
            ● │ a2
            ├─● b1
            ● a1
            """,
            id="session merge",
        ),
        pytest.param(
            CRISS_CROSS,
            """
            ●─╮ a3
            ├─│─● b3
            │ ╰─┤
            ●   │ a2
            ├───● b2
            ● a1
            """,
            id="criss-cross",
        ),
        pytest.param(
            TWO_ROOTS,
            """
            ● a2
            ● a1

            ● b2
            ● b1
            """,
            id="two roots",
        ),
        pytest.param(
            OCTOPUS,
            """
            ● x1
            ├─●─┬─╮ a2
            ● │ │ │ b2
            │ ├─● │ c1
            │ ├───● d1
            ●─┤ b1
              ● a1
            """,
            id="octopus",
        ),
        pytest.param(
            CUT_OFF,
            """
            ●─╮ a9
            │ │ ● c9
            │ ● │ b8
            ┆ ┆ ┆
            """,
            id="window cut off",
        ),
    ],
)
def test_a_graph_is_drawn_as_expected(nodes: str, expected: str) -> None:
    assert drawn(graph_lines(layout(graph_nodes(nodes)), lambda node: node.id)) == picture(expected)


def test_crossings_and_joins_are_clear_in_ascii_too() -> None:
    drawing = drawn(graph_lines(layout(graph_nodes(CRISS_CROSS)), lambda node: node.id, ascii=True))
    assert drawing == picture(
        """
        *-. a3
        +-|-* b3
        | '-+
        *   | a2
        +---* b2
        * a1
        """
    )
    assert drawn(graph_lines(layout(graph_nodes(CUT_OFF)), lambda node: node.id, ascii=True)).endswith(": : :\n")


def test_commits_that_only_share_a_lane_do_not_look_connected() -> None:
    drawing = drawn(graph_lines(layout(graph_nodes("m3: m2\nb1: m2\nc1: m2\nm2:")), lambda node: node.id))
    assert drawing == picture(
        """
        ● m3
        ├─● b1
        │
        ├─● c1
        ● m2
        """
    )


def test_a_lane_has_one_colour_and_its_neighbour_another() -> None:
    lines = list(graph_lines(layout(graph_nodes(SESSION_MERGE)), lambda node: node.id))
    first = [(line.plain[span.start : span.end], span.style) for line in lines[:3] for span in line.spans]
    assert first == [("●", "cyan"), ("─╮", "green"), ("●", "cyan"), ("│", "green"), ("│", "cyan"), ("●", "green")]


def test_a_label_is_escaped_and_stays_on_its_line() -> None:
    drawing = drawn(graph_lines(layout(graph_nodes(LINEAR)), lambda node: f"{node.id} \x1b[2J\n● m0"))
    assert drawing.splitlines()[0] == "● m3 \\u{1b}[2J\\n● m0"
    assert len(drawing.splitlines()) == 3


def test_a_styled_label_keeps_its_style_and_its_other_lines_are_next_to_the_lanes() -> None:
    lines = list(graph_lines(layout(graph_nodes(FORK)), lambda node: Text(f"{node.id}\nmore", style="bold")))
    assert drawn(lines) == picture(
        """
        ● a2
        │ more
        │ ● b1
        │ │ more
        ●─┤ a1
          │ more
          ● m1
            more
        """
    )
    assert [line.plain[span.start : span.end] for line in lines[:2] for span in line.spans if span.style == "bold"] == [
        "a2",
        "more",
    ]


def test_no_commits_draw_nothing() -> None:
    assert drawn(graph_lines([], lambda node: node.id)) == ""


def test_sub_agents_are_drawn_below_their_agents() -> None:
    drawing = drawn(tree_lines(["lead", "scout", "clerk", "solo", "aide"], {"lead": ["scout", "clerk"], "scout": ["aide"]}))
    assert drawing == picture(
        """
        lead
        ├── scout
        │   └── aide
        └── clerk
        solo
        """
    )


def test_the_tree_does_not_depend_on_the_order_of_agents_or_on_repeated_edges() -> None:
    assert drawn(tree_lines(["scout", "lead", "lead"], {"lead": ["scout", "scout"]})) == "lead\n└── scout\n"


def test_an_agent_with_two_parents_has_its_sub_agents_once() -> None:
    children = {"a": ["c"], "b": ["c", "e"], "c": ["d"]}
    assert drawn(tree_lines(["a", "b"], children)) == picture(
        """
        a
        └── c
            └── d
        b
        ├── c ↻
        └── e
        """
    )


def test_agents_in_a_cycle_are_all_drawn_and_the_cycle_is_marked() -> None:
    children = {"x": ["y"], "y": ["x"], "self": ["self"]}
    assert drawn(tree_lines(["root", "y", "x", "self"], children, ascii=True)) == picture(
        """
        root
        y
        `-- x
            `-- y (*)
        self
        `-- self (*)
        """
    )


def test_labels_of_agents_are_escaped_and_may_be_styled() -> None:
    styled: dict[str, str | Text] = {"a": Text("A", style="bold"), "b\n": "b\n"}
    lines = list(tree_lines(["a"], {"a": ["b\n"]}, lambda name: styled[name]))
    assert drawn(lines) == "A\n└── b\\n\n"
    assert "bold" in [span.style for span in lines[0].spans]


def test_agents_may_be_nested_deeper_than_python_recurses() -> None:
    children = {str(number): [str(number + 1)] for number in range(2000)}
    assert len(list(tree_lines(["0"], children))) == 2001
