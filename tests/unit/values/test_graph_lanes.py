from __future__ import annotations

import pytest

from clia.errors import InvalidInput
from clia.values.graph_lanes import GraphNode, GraphRow, layout
from support.graphs import graph_nodes


def lanes(text: str) -> dict[str, int]:
    return {row.node.id: row.lane for row in layout(graph_nodes(text))}


def test_no_commits_have_no_rows() -> None:
    assert layout([]) == []


def test_a_row_has_an_entry_for_every_lane() -> None:
    nodes = graph_nodes("m3: m2 a1\na1: m1\nm2: m1\nm1:")
    assert layout(nodes) == [
        GraphRow(nodes[0], 0, (), (0, 1), (0, 1)),
        GraphRow(nodes[1], 1, (0, 1), (0, 1), (1,)),
        GraphRow(nodes[2], 0, (0, 1), (0,), (0,), bend=1),
        GraphRow(nodes[3], 0, (0,), (), ()),
    ]
    merge, agent, people, root = layout(nodes)
    assert [row.tip for row in (merge, agent, people, root)] == [True, False, False, False]
    assert [row.ends for row in (merge, agent, people, root)] == [False, False, False, True]
    assert [row.through for row in (merge, agent, people, root)] == [(), (0,), (), ()]
    assert [row.opened for row in (merge, agent, people, root)] == [(1,), (), (), ()]
    assert [row.width for row in (merge, agent, people, root)] == [2, 2, 2, 1]


def test_a_first_parent_keeps_the_lane() -> None:
    assert lanes("m4: m3 x1\nx1: m2\nm3: m2\nm2: m1\nm1:") == {"m4": 0, "x1": 1, "m3": 0, "m2": 0, "m1": 0}


def test_earlier_lines_of_other_groups_bend_into_the_lane_of_the_commits_own_group() -> None:
    rows = layout(graph_nodes("a2: a1\na1: b1\nb3: b2\nb2: b1\nb1:"))
    assert [(row.node.id, row.lane, row.bend) for row in rows] == [
        ("a2", 0, None),
        ("a1", 0, None),
        ("b3", 1, None),
        ("b2", 1, 0),
        ("b1", 1, None),
    ]


def test_a_merged_agent_that_continues_stays_in_one_lane() -> None:
    lane_of = lanes("m3: m2 a2\na4: a3\na3: a2\na2: a1\na1: m2\nm2: m1\nm1:")
    assert {lane_of[name] for name in ("a4", "a3", "a2", "a1")} == {2}
    assert {lane_of[name] for name in ("m3", "m2", "m1")} == {0}


def test_a_group_returns_to_its_lane_even_if_its_commits_are_not_connected() -> None:
    lane_of = lanes("a3:\nb3:\nc1:\nb2:\na2:\nb1:\na1:")
    assert {lane_of["a1"], lane_of["a2"], lane_of["a3"]} == {0}
    assert {lane_of["b1"], lane_of["b2"], lane_of["b3"]} == {1}


def test_lines_of_other_groups_lead_to_the_earlier_lane_of_a_group() -> None:
    assert lanes("a5:\nm2: a1\na1:") == {"a5": 0, "m2": 1, "a1": 0}
    assert lanes("a5:\nm2: m1 a1\na2: a1\na1:\nm1:") == {"a5": 0, "m2": 1, "a2": 2, "a1": 0, "m1": 1}


def test_the_newer_of_two_branches_of_people_stays_straight() -> None:
    rows = layout(graph_nodes("m4: m1\nm3: m2\nm2: m1\nm1:"))
    assert [(row.lane, row.bend) for row in rows] == [(0, None), (1, None), (1, None), (0, None)]


def test_a_persons_commit_on_an_agents_branch_is_in_the_agents_lane() -> None:
    assert lanes("a2: m1\nm1: a1\na1:") == {"a2": 0, "m1": 0, "a1": 0}


def test_a_lane_that_ended_is_used_again() -> None:
    agents = "".join(f"m{n + 1}: m{n} a{n}x{n}\na{n}x{n}: m{n}\n" for n in range(50, 0, -1))
    rows = layout(graph_nodes(agents + "m1:"))
    assert len(rows) == 101
    assert max(row.width for row in rows) == 2


def test_parallel_agents_take_one_lane_each() -> None:
    nodes = [
        GraphNode(f"{agent}-{n}", (f"{agent}-{n - 1}" if n else "root",), str(agent)) for n in (2, 1, 0) for agent in range(50)
    ]
    rows = layout([*nodes, GraphNode("root", ())])
    assert [row.lane for row in rows[:50]] == list(range(50))
    assert max(row.width for row in rows) == 50


def test_lanes_of_parents_outside_the_window_run_off_the_bottom_once() -> None:
    rows = layout(graph_nodes("m3: m2 x9\na1: x9\nm2: y9"))
    assert [row.edges for row in rows] == [(0, 1), (1,), (0,)]
    assert rows[-1].below == (0, 1)


def test_a_parent_named_twice_is_one_line() -> None:
    rows = layout(graph_nodes("m2: m1 m1\nm1:"))
    assert [(row.lane, row.below, row.edges) for row in rows] == [(0, (0,), (0, 0)), (0, (), ())]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("m2: m1\nm1:\nm2:", {"commit": "m2"}),
        ("m1:\nm2: m1", {"commit": "m2", "parent": "m1"}),
        ("m9:\nm1:\nm2: m9 m1", {"commit": "m2", "parent": "m9"}),
        ("m3: m2\nm1:\nm2: m3", {"commit": "m2", "parent": "m3"}),
        ("m1:\nm2: x9 m1", {"commit": "m2", "parent": "m1"}),
        ("m1: m1", {"commit": "m1", "parent": "m1"}),
    ],
)
def test_a_repeated_or_misplaced_commit_is_refused(text: str, fields: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        layout(graph_nodes(text))
    assert caught.value.code == "invalid-graph"
    assert caught.value.fields == fields
    assert fields["commit"] in caught.value.message
