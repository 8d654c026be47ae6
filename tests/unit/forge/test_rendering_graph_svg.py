"""The commit graph: its layout, collapsed view, paths and picture."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import InvalidInput
from clia.forge.rendering.graph_layout import FORK, LINE, MERGE, GraphLayout, layout, path_between
from clia.forge.rendering.graph_svg import legend, letter, svg
from support.graphs import commit, commits
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from pathlib import Path


def graph(text: str, heads: dict[str, str] | None = None, **more: Any) -> GraphLayout:
    return layout(commits(text), heads or {}, **more)


def lanes(drawn: GraphLayout) -> dict[str, int]:
    return {node.commit.cid: node.lane for node in drawn.nodes}


def routes(drawn: GraphLayout) -> dict[tuple[str, str], tuple[tuple[int, int], ...]]:
    return {(edge.child, edge.parent): edge.points for edge in drawn.edges}


def picture(drawn: GraphLayout, **more: Any) -> str:
    return str(svg(drawn, base="/s/home", **{"now": 0} | more))


# Layout


def test_no_commits_are_an_empty_picture() -> None:
    drawn = graph("")
    assert drawn == GraphLayout((), (), (), 0, 0)
    assert 'aria-label="Graph of 0 commits"' in picture(drawn)
    assert drawn.nodes == ()


def test_agents_and_people_have_separate_lanes_even_if_one_starts_where_another_ended() -> None:
    drawn = graph("b1: a2\na2: a1\na1: m1\nm1:")
    assert lanes(drawn) == {"b1": 0, "a2": 1, "a1": 1, "m1": 0}  # the lane of b is free when people begin
    assert {edge.role for edge in drawn.edges} == {FORK, LINE}
    assert routes(drawn)["b1", "a2"] == ((0, 0), (1, 1))


def test_an_agent_named_people_is_not_mistaken_for_people() -> None:
    drawn = layout([commit("1", ["2"], "people", "finding"), commit("2")], {})
    assert [(lane.agent, lane.column) for lane in drawn.lanes] == [("people", 0), (None, 1)]


def test_a_merged_agent_that_continued_is_reached_by_a_line_beside_its_lane() -> None:
    drawn = graph("m2: m1 a1\na3: a2\na2: a1\na1: m1\nm1:")
    assert routes(drawn)["m2", "a1"] == ((0, 0), (2, 1), (2, 2), (1, 3))
    assert routes(drawn)["m2", "m1"] == ((0, 0), (0, 4))
    assert routes(drawn)["a1", "m1"] == ((1, 3), (0, 4))
    assert [edge.role for edge in drawn.edges if edge.child == "m2"] == [LINE, MERGE]


def test_a_finished_agent_is_reached_in_its_own_lane() -> None:
    drawn = graph("m2: m1 a2\nm1:\na2: a1\na1:")
    assert routes(drawn)["m2", "a2"] == ((0, 0), (1, 1), (1, 2))
    assert drawn.width == 2


def test_branches_of_people_share_one_lane_with_separate_lines() -> None:
    drawn = graph("m4: m1\nm3: m2\nm2: m1\nm1:")
    assert set(lanes(drawn).values()) == {0}
    assert routes(drawn)["m4", "m1"] == ((0, 0), (1, 1), (1, 2), (0, 3))


def test_an_octopus_merge_reaches_each_parent_once() -> None:
    drawn = graph("m2: m1 a1 b1 c1 a1\na1: m1\nb1: m1\nc1: m1\nm1:")
    assert [edge.parent for edge in drawn.edges if edge.child == "m2"] == ["m1", "a1", "b1", "c1"]
    assert lanes(drawn) == {"m2": 0, "a1": 1, "b1": 2, "c1": 3, "m1": 0}


def test_lanes_are_reused_so_that_many_short_branches_need_few() -> None:
    lines = [f"a{'x' * n}1: a{'x' * n}0\na{'x' * n}0: m1 ! spawn" for n in range(200)]
    drawn = graph("\n".join(["m3: m2", *lines, "m2: m1", "m1:"]))
    assert len(drawn.lanes) == 201
    assert drawn.width <= 4


def test_forty_parallel_agents_have_a_lane_each() -> None:
    work = [
        commit(f"{number}-{column}", [f"{number - 1}-{column}" if number else "root"], f"agent-{column}", "finding")
        for number in (2, 1, 0)
        for column in range(40)
    ]
    drawn = layout([*work, commit("root")], {})
    assert drawn.width == 41
    assert all(len(edge.points) <= 3 for edge in drawn.edges)


def test_parents_outside_the_graph_end_in_stubs_and_occupy_no_lane() -> None:
    drawn = graph("a2: a1 x9 y9\na1: z9\nb1: z9")
    assert [edge.parent for edge in drawn.edges if edge.stub] == ["x9", "y9", "z9", "z9"]
    assert drawn.width == 2
    stubs = re.findall(r'class="edge [a-z]+ stub" d="([^"]+)"', picture(drawn))
    assert len(stubs) == len(set(stubs)) == 4


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("m2: m1\nm1:\nm2:", {"commit": "m2"}),
        ("m1:\nm2: m1", {"commit": "m2", "parent": "m1"}),
        ("m1: m1", {"commit": "m1", "parent": "m1"}),
    ],
)
def test_a_duplicate_commit_or_one_after_its_parent_is_refused(text: str, fields: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        graph(text)
    assert caught.value.code == "invalid-graph"
    assert caught.value.fields == fields


@pytest.mark.parametrize(
    ("kind", "mark"),
    [
        ("spawn", "spawn"),
        ("session-merge", "session-merge"),
        ("decision", "decision"),
        ("review", "finding"),
        ("security-review", "finding"),
        ("chore", "agent-commit"),
        ("never-registered", "agent-commit"),
        ("circle", "agent-commit"),
        ("briefing", "agent-commit"),
        (None, "agent-commit"),
    ],
)
def test_a_kind_without_a_mark_has_the_mark_of_its_nearest_ancestor(kind: str | None, mark: str) -> None:
    types = {"review": "finding", "security-review": "review", "chore": "agent-commit", "circle": "circle", "briefing": None}
    (node,) = layout([commit("1", (), "a", kind)], {}, types=types).nodes
    assert node.mark == mark


def test_commits_of_people_and_landed_work_have_their_own_marks() -> None:
    drawn = layout([commit("1", landed="scout"), commit("2")], {})
    assert [(node.mark, letter(node)) for node in drawn.nodes] == [
        ("landing", "L"),
        ("people", "P"),
    ]


# Collapsed


def test_collapsing_keeps_heads_forks_spawns_and_merges_and_counts_the_rest() -> None:
    ours = "a8: a7\na7: a6\na6: a3\na3: a2\na2: a1\na1: a0\na0: m1 ! spawn\nm1:"
    text = f"a9: a8 b2 ! session-merge\nb2: b1\nb1: b0\nb0: a3 ! spawn\n{ours}"
    drawn = graph(text, {"a": "a9", "b": "b2"}, collapse=True)
    assert [node.commit.cid for node in drawn.nodes] == ["a9", "b2", "b0", "a3", "a0", "m1"]
    elided_counts = {(edge.child, edge.parent): edge.elided for edge in drawn.edges}
    assert elided_counts == {("a9", "a3"): 3, ("a9", "b2"): 0, ("b2", "b0"): 1, ("b0", "a3"): 0, ("a3", "a0"): 2, ("a0", "m1"): 0}
    markup = picture(drawn)
    assert re.findall(r"<title>(\d+ commits?)</title>", markup) == ["3 commits", "1 commit", "2 commits"]
    assert re.findall(r'<tspan class="elided"[^>]*>([^<]+)<', markup) == ["3 commits", "1 commit", "2 commits"]
    assert markup.count("stroke-dasharray") == 3


def test_two_paths_between_the_same_commits_stay_separate_when_collapsed() -> None:
    drawn = graph("m5: m4 m3\nm4: m2\nm3: m2\nm2: m1\nm1:", collapse=True)
    assert [node.commit.cid for node in drawn.nodes] == ["m5", "m4", "m3", "m2", "m1"]
    drawn = graph("m5: m1 m4\nm4: m3\nm3: m1\nm1:", collapse=True)
    assert [(edge.child, edge.parent, edge.elided) for edge in drawn.edges] == [("m5", "m1", 0), ("m5", "m4", 0), ("m4", "m1", 1)]


def test_a_collapsed_line_may_leave_the_graph() -> None:
    drawn = graph("a3: a2\na2: a1\na1: a0", {"a": "a3"}, collapse=True)
    (edge,) = drawn.edges
    assert (edge.stub, edge.elided, edge.parent) == (True, 2, "a0")
    assert "<title>2 commits</title>" in picture(drawn)


# Paths


def test_a_path_goes_down_to_the_common_commit_and_up_again() -> None:
    history = commits("a2: a1\nb2: b1\nb1: m1\na1: m1\nm1: m0\nm0:")
    assert path_between(history, "a2", "b2") == ["a2", "a1", "m1", "b1", "b2"]
    assert path_between(history, "b2", "a2") == ["b2", "b1", "m1", "a1", "a2"]
    assert path_between(history, "m0", "m0") == ["m0"]


def test_unconnected_commits_have_no_path() -> None:
    history = commits("a1: x\nb1: x")
    assert path_between(history, "a1", "b1") == []
    assert path_between(history, "a1", "x") == []
    assert path_between(history, "x", "a1") == []


def test_a_path_is_highlighted_above_other_lines_even_when_collapsed() -> None:
    history = commits("m2: m1 a3\na3: a2\na2: a1\na1: m1\nm1:")
    path = path_between(history, "a3", "m1")
    assert path == ["a3", "m2", "m1"]
    markup = picture(layout(history, {}, path=path))
    edges = re.findall(r'<path class="(edge [^"]*)"', markup)
    assert [edge_class.endswith("on-path") for edge_class in edges] == [False, False, False, True, True]
    assert len(re.findall(r'<g class="row [^"]* on-path">', markup)) == 3
    path = ["a3", "a2", "a1", "m1"]
    drawn = layout(history, {}, path=path, collapse=True)
    assert [(edge.child, edge.parent, edge.elided) for edge in drawn.edges if edge.on_path] == [("a3", "m1", 2)]


# Picture


def test_a_commit_is_a_link_with_a_description() -> None:
    cid = "0123456789abcdef0123456789abcdef01234567"
    history = [commit(cid, (), "scout", "finding", subject='slow "query" <b>', at=100)]
    markup = picture(layout(history, {"scout": cid}, traced={cid}, sessions={cid}), now=100 + 7200)
    assert f'<a class="commit" href="/s/home/commits/{cid}"' in markup
    title = "0123456789 finding slow &#34;query&#34; &lt;b&gt;, scout, 2 h, with a trace, in a session"
    assert f"<title>{title}</title>" in markup
    assert '<g class="row kind-finding">' in markup
    assert re.search(r'<text class="letter"[^>]*>F<', markup)
    assert 'class="sign trace"' in markup
    assert 'class="sign session"' in markup
    assert re.search(r'<tspan class="age"[^>]*>2 h<', markup)


def test_marks_without_a_trace_or_a_session_have_no_signs() -> None:
    assert "sign" not in picture(graph("a1:"))


def test_each_kind_has_its_own_letter_and_all_but_landed_work_its_own_shape() -> None:
    letters = re.findall(r'class="letter"[^>]*>(.)<', legend())
    shapes = re.findall(r'<path class="mark" d="([^"]+)"', legend())
    assert len(set(letters)) == len(letters) == 9
    assert len(set(shapes)) == 8
    assert shapes[-1] == shapes[-2]  # both are commits of people


def test_heads_are_labelled_and_link_to_the_agent() -> None:
    markup = picture(graph("m9:\na2: a1\na1:\nb1:", {"a": "a2", "other": "a2", "gone": "x"}))
    links = re.findall(r'<g class="head"><a href="([^"]+)"', markup)
    assert links == ["/s/home/agents/a", "/s/home/agents/other", "/s/home/agents/b"]
    labels = re.findall(r'<g class="head">.*?<text [^>]*>([^<]+)<title>', markup)
    assert labels == ["people", "a", "other", "b"]  # without a head, the newest commit of b has the label


def test_a_commit_with_many_heads_shows_some_and_counts_the_others() -> None:
    markup = picture(layout([commit("1")], {f"agent-with-a-long-name-{n:02}": "1" for n in range(12)}))
    assert markup.count('<g class="head">') == 1
    assert '<text class="more"' in markup
    assert ">+12</text>" in markup  # eleven agents and people


def test_an_invalid_agent_name_is_shown_but_not_linked() -> None:
    markup = picture(layout([commit("1", (), "../../login", "finding"), commit("2", (), "<x>", "finding")], {}))
    assert "/agents/" not in markup
    assert "../../login" in markup
    assert "&lt;x&gt;" in markup


def test_long_and_wide_texts_are_truncated_and_complete_in_a_title() -> None:
    subject = "a" * 40 + "語" * 100
    markup = picture(layout([commit("1", (), "x" * 60, "k" * 40, subject=subject)], {}))
    (cut,) = re.findall(r'<tspan class="subject"[^>]*>([^<]+)<', markup)
    assert cut.endswith("…")
    assert subject.startswith(cut[:-1])
    assert len(cut) < 60
    assert re.search(f"<title>[^<]*{subject},[^<]*</title>", markup)
    assert "x" * 21 + "…" in markup
    assert "k" * 15 + "…" in markup


def test_a_huge_subject_does_not_make_a_huge_picture() -> None:
    assert len(picture(layout([commit("1", subject="x" * 1_000_000)], {}))) < 5_000


def test_invisible_and_bidirectional_characters_are_made_visible() -> None:
    markup = picture(layout([commit("1", subject="up\u202edown\x1b[31m")], {}))
    assert "\u202e" not in markup
    assert "\x1b" not in markup


def test_nothing_is_styled_inline() -> None:
    markup = picture(graph("m3: m2 a1 ! x\na1: m1\nm2: m1\nm1: m0", {"a": "a1"}, collapse=True), first=1)
    assert "style" not in markup
    assert "<script" not in markup


# Paging

LONG = "\n".join([*(f"a{n}: a{n - 1}" for n in range(30, 0, -1)), "a0: m2 ! spawn", "m2: m1", "m1:"])


def test_a_window_shows_its_rows_and_names_the_lanes_from_above_it() -> None:
    drawn = graph(LONG, {"a": "a30"})
    markup = picture(drawn, first=10, rows=5)
    assert re.findall(r'href="/s/home/commits/([a-z0-9]+)"', markup) == ["a20", "a19", "a18", "a17", "a16"]
    assert 'aria-label="Graph of 33 commits, 11 to 15"' in markup
    assert re.findall(r'<g class="lane-name"><a href="([^"]+)"', markup) == ["/s/home/agents/a"]
    assert "lane-name" not in picture(drawn, rows=5)
    tail = picture(drawn, first=32, rows=5)
    assert re.findall(r'<g class="lane-name">.*?>([a-z]+)<title>', tail) == ["people"]


def test_a_line_through_a_window_is_cut_to_it() -> None:
    text = "\n".join(["m9: m8", *(f"a{n}:" for n in range(500)), "m8:"])
    markup = picture(graph(text), first=100, rows=10)
    (line,) = re.findall(r'<path class="edge line" d="([^"]+)"', markup)
    start, end = map(int, re.fullmatch(r"M14 (\d+)V(\d+)", line).groups())  # type: ignore[union-attr]  # no match fails the test
    assert (start // 24, end // 24) == (99, 110)


def test_a_window_beyond_the_end_is_empty_and_one_across_it_ends_there() -> None:
    drawn = graph(LONG)
    assert "commits/" not in picture(drawn, first=33)
    assert "commits/" not in picture(drawn, rows=0)
    assert picture(drawn, first=31, rows=99).count('<a class="commit"') == 2


@pytest.mark.parametrize("wrong", [{"first": -1}, {"rows": -5}, {"rows": "all"}])
def test_an_invalid_window_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        picture(graph("m1:"), **wrong)
    assert caught.value.fields.keys() == wrong.keys()


def test_a_thousand_lines_to_one_commit_are_drawn_once_in_a_window() -> None:
    forks = [commit(f"f{n}", ["root"], f"agent-{n}", "finding") for n in range(1000)]
    between = [commit(f"b{n}", [f"b{n + 1}"], "busy", "finding") for n in range(300)]
    drawn = layout([*forks, *between, commit("b300", (), "busy", "finding"), commit("root")], {})
    markup = picture(drawn, first=1100, rows=50)
    assert markup.count('<path class="edge fork"') == 1


# Tables and real spaces


def test_a_table_has_the_content_of_the_picture() -> None:
    drawn = graph("a1: m1 ! review\nm1:", {"a": "a1"}, types={"review": "finding"}, traced={"a1"})
    first, second = drawn.nodes
    assert (first.commit.cid, first.commit.agent, first.commit.kind, letter(first)) == ("a1", "a", "review", "F")
    assert (first.commit.subject, first.commit.committer.at, first.commit.parents) == ("work a1", 0, ("m1",))
    assert (first.heads, first.traced, first.in_session, first.on_path, first.elided) == (("a",), True, False, False, 0)
    assert (second.commit.cid, second.commit.agent, second.commit.kind, letter(second)) == ("m1", None, None, "P")


def test_the_window_of_a_real_space_is_drawn(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with clia.init(tmp_path, settings=settings()) as space:
        space.spawn("scout", BRIEFING)
        space.commit("scout", "finding", {"a.txt": b"a"})
        space.spawn_from("helper", BRIEFING, "scout")
        space.commit("helper", "test", {"a.txt": b"a", "b.txt": b"b"})
        space.merge("scout", "helper")
        heads = {name: space.head(name) for name in space.agents()}
        drawn = layout(space.history.window(), heads, types=space.types())
    assert [node.mark for node in drawn.nodes] == ["session-merge", "test", "spawn", "finding", "spawn"]
    assert [node.heads for node in drawn.nodes][:2] == [("scout",), ("helper",)]
    assert [edge.role for edge in drawn.edges] == [LINE, MERGE, LINE, FORK, LINE]
    assert all(upper.row + 1 == lower.row for upper, lower in pairwise(drawn.nodes))
