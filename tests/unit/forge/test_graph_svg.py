from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.errors import InvalidInput
from clia.forge.rendering.graph_layout import FORK, LINE, MERGE, Graph, layout, path_between
from clia.forge.rendering.graph_svg import legend, letter, svg
from support.graphs import commit, commits
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from pathlib import Path


def graph(text: str, heads: dict[str, str] | None = None, **more: Any) -> Graph:
    return layout(commits(text), heads or {}, **more)


def lanes(made: Graph) -> dict[str, int]:
    return {node.commit.cid: node.lane for node in made.nodes}


def ways(made: Graph) -> dict[tuple[str, str], tuple[tuple[int, int], ...]]:
    return {(edge.child, edge.parent): edge.points for edge in made.edges}


def picture(made: Graph, **more: Any) -> str:
    return str(svg(made, base="/s/home", **{"now": 0} | more))


# Layout


def test_no_commits_are_an_empty_picture() -> None:
    made = graph("")
    assert made == Graph((), (), (), 0, 0)
    assert 'aria-label="Graph of 0 commits"' in picture(made)
    assert made.nodes == ()


def test_agents_and_people_have_a_lane_each_though_one_began_where_the_other_ended() -> None:
    made = graph("b1: a2\na2: a1\na1: m1\nm1:")
    assert lanes(made) == {"b1": 0, "a2": 1, "a1": 1, "m1": 0}  # b needs its lane no more when people begin
    assert {edge.role for edge in made.edges} == {FORK, LINE}
    assert ways(made)["b1", "a2"] == ((0, 0), (1, 1))


def test_an_agent_named_people_is_not_mistaken_for_people() -> None:
    made = layout([commit("1", ["2"], "people", "finding"), commit("2")], {})
    assert [(lane.agent, lane.column) for lane in made.lanes] == [("people", 0), (None, 1)]


def test_a_merged_agent_that_went_on_is_met_by_a_line_beside_its_lane() -> None:
    made = graph("m2: m1 a1\na3: a2\na2: a1\na1: m1\nm1:")
    assert ways(made)["m2", "a1"] == ((0, 0), (2, 1), (2, 2), (1, 3))
    assert ways(made)["m2", "m1"] == ((0, 0), (0, 4))
    assert ways(made)["a1", "m1"] == ((1, 3), (0, 4))
    assert [edge.role for edge in made.edges if edge.child == "m2"] == [LINE, MERGE]


def test_a_finished_agent_is_met_in_its_own_lane() -> None:
    made = graph("m2: m1 a2\nm1:\na2: a1\na1:")
    assert ways(made)["m2", "a2"] == ((0, 0), (1, 1), (1, 2))
    assert made.width == 2


def test_branches_of_people_share_one_lane_and_their_lines_stay_apart() -> None:
    made = graph("m4: m1\nm3: m2\nm2: m1\nm1:")
    assert set(lanes(made).values()) == {0}
    assert ways(made)["m4", "m1"] == ((0, 0), (1, 1), (1, 2), (0, 3))


def test_an_octopus_reaches_each_of_its_parents_once() -> None:
    made = graph("m2: m1 a1 b1 c1 a1\na1: m1\nb1: m1\nc1: m1\nm1:")
    assert [edge.parent for edge in made.edges if edge.child == "m2"] == ["m1", "a1", "b1", "c1"]
    assert lanes(made) == {"m2": 0, "a1": 1, "b1": 2, "c1": 3, "m1": 0}


def test_lanes_are_used_again_so_that_many_short_lives_need_few() -> None:
    lines = [f"a{'x' * n}1: a{'x' * n}0\na{'x' * n}0: m1 ! spawn" for n in range(200)]
    made = graph("\n".join(["m3: m2", *lines, "m2: m1", "m1:"]))
    assert len(made.lanes) == 201
    assert made.width <= 4


def test_forty_parallel_agents_take_a_lane_each() -> None:
    work = [commit(f"{n}-{a}", [f"{n - 1}-{a}" if n else "root"], f"agent-{a}", "finding") for n in (2, 1, 0) for a in range(40)]
    made = layout([*work, commit("root")], {})
    assert made.width == 41
    assert all(len(edge.points) <= 3 for edge in made.edges)


def test_parents_outside_end_in_stubs_that_fan_out_and_hold_no_lane() -> None:
    made = graph("a2: a1 x9 y9\na1: z9\nb1: z9")
    assert [edge.parent for edge in made.edges if edge.stub] == ["x9", "y9", "z9", "z9"]
    assert made.width == 2
    found = re.findall(r'class="edge [a-z]+ stub" d="([^"]+)"', picture(made))
    assert len(found) == len(set(found)) == 4


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("m2: m1\nm1:\nm2:", {"commit": "m2"}),
        ("m1:\nm2: m1", {"commit": "m2", "parent": "m1"}),
        ("m1: m1", {"commit": "m1", "parent": "m1"}),
    ],
)
def test_a_commit_that_comes_twice_or_after_its_parent_is_named(text: str, fields: dict[str, str]) -> None:
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
def test_a_kind_without_a_mark_has_that_of_its_nearest_ancestor(kind: str | None, mark: str) -> None:
    types = {"review": "finding", "security-review": "review", "chore": "agent-commit", "circle": "circle", "briefing": None}
    (node,) = layout([commit("1", (), "a", kind)], {}, types=types).nodes
    assert node.mark == mark


def test_commits_of_people_and_landed_work_have_marks_of_their_own() -> None:
    made = layout([commit("1", landed="scout"), commit("2")], {})
    assert [(node.mark, letter(node)) for node in made.nodes] == [
        ("landing", "L"),
        ("people", "P"),
    ]


# Collapsed


def test_collapsing_keeps_heads_forks_spawns_and_merges_and_says_how_many_it_left_out() -> None:
    ours = "a8: a7\na7: a6\na6: a3\na3: a2\na2: a1\na1: a0\na0: m1 ! spawn\nm1:"
    text = f"a9: a8 b2 ! session-merge\nb2: b1\nb1: b0\nb0: a3 ! spawn\n{ours}"
    made = graph(text, {"a": "a9", "b": "b2"}, collapse=True)
    assert [node.commit.cid for node in made.nodes] == ["a9", "b2", "b0", "a3", "a0", "m1"]
    found = {(edge.child, edge.parent): edge.elided for edge in made.edges}
    assert found == {("a9", "a3"): 3, ("a9", "b2"): 0, ("b2", "b0"): 1, ("b0", "a3"): 0, ("a3", "a0"): 2, ("a0", "m1"): 0}
    shown = picture(made)
    assert re.findall(r"<title>(\d+ commits?)</title>", shown) == ["3 commits", "1 commit", "2 commits"]
    assert re.findall(r'<tspan class="elided"[^>]*>([^<]+)<', shown) == ["3 commits", "1 commit", "2 commits"]
    assert shown.count("stroke-dasharray") == 3


def test_two_ways_between_the_same_commits_stay_two_when_collapsed() -> None:
    made = graph("m5: m4 m3\nm4: m2\nm3: m2\nm2: m1\nm1:", collapse=True)
    assert [node.commit.cid for node in made.nodes] == ["m5", "m4", "m3", "m2", "m1"]
    made = graph("m5: m1 m4\nm4: m3\nm3: m1\nm1:", collapse=True)
    assert [(edge.child, edge.parent, edge.elided) for edge in made.edges] == [("m5", "m1", 0), ("m5", "m4", 0), ("m4", "m1", 1)]


def test_a_collapsed_line_may_lead_out_of_the_graph() -> None:
    made = graph("a3: a2\na2: a1\na1: a0", {"a": "a3"}, collapse=True)
    (edge,) = made.edges
    assert (edge.stub, edge.elided, edge.parent) == (True, 2, "a0")
    assert "<title>2 commits</title>" in picture(made)


# Paths


def test_a_path_goes_down_to_the_common_commit_and_up_again() -> None:
    found = commits("a2: a1\nb2: b1\nb1: m1\na1: m1\nm1: m0\nm0:")
    assert path_between(found, "a2", "b2") == ["a2", "a1", "m1", "b1", "b2"]
    assert path_between(found, "b2", "a2") == ["b2", "b1", "m1", "a1", "a2"]
    assert path_between(found, "m0", "m0") == ["m0"]


def test_without_a_way_there_is_no_path() -> None:
    found = commits("a1: x\nb1: x")
    assert path_between(found, "a1", "b1") == []
    assert path_between(found, "a1", "x") == []
    assert path_between(found, "x", "a1") == []


def test_a_path_is_highlighted_on_top_of_other_lines_also_when_collapsed() -> None:
    found = commits("m2: m1 a3\na3: a2\na2: a1\na1: m1\nm1:")
    path = path_between(found, "a3", "m1")
    assert path == ["a3", "m2", "m1"]
    shown = picture(layout(found, {}, path=path))
    edges = re.findall(r'<path class="(edge [^"]*)"', shown)
    assert [each.endswith("on-path") for each in edges] == [False, False, False, True, True]
    assert len(re.findall(r'<g class="row [^"]* on-path">', shown)) == 3
    path = ["a3", "a2", "a1", "m1"]
    made = layout(found, {}, path=path, collapse=True)
    assert [(edge.child, edge.parent, edge.elided) for edge in made.edges if edge.on_path] == [("a3", "m1", 2)]


# Picture


def test_a_commit_is_a_link_that_says_what_it_is() -> None:
    cid = "0123456789abcdef0123456789abcdef01234567"
    found = [commit(cid, (), "scout", "finding", subject='slow "query" <b>', at=100)]
    shown = picture(layout(found, {"scout": cid}, traced={cid}, sessions={cid}), now=100 + 7200)
    assert f'<a class="commit" href="/s/home/commits/{cid}"' in shown
    said = "0123456789 finding slow &#34;query&#34; &lt;b&gt;, scout, 2 h, with a trace, in a session"
    assert f"<title>{said}</title>" in shown
    assert '<g class="row kind-finding">' in shown
    assert re.search(r'<text class="letter"[^>]*>F<', shown)
    assert 'class="sign trace"' in shown
    assert 'class="sign session"' in shown
    assert re.search(r'<tspan class="age"[^>]*>2 h<', shown)


def test_marks_without_a_trace_or_a_session_have_no_signs() -> None:
    assert "sign" not in picture(graph("a1:"))


def test_each_kind_has_its_own_letter_and_all_but_landed_work_a_shape_of_its_own() -> None:
    letters = re.findall(r'class="letter"[^>]*>(.)<', legend())
    shapes = re.findall(r'<path class="mark" d="([^"]+)"', legend())
    assert len(set(letters)) == len(letters) == 9
    assert len(set(shapes)) == 8
    assert shapes[-1] == shapes[-2]  # both are of people


def test_heads_are_labelled_and_link_to_the_agent() -> None:
    shown = picture(graph("m9:\na2: a1\na1:\nb1:", {"a": "a2", "other": "a2", "gone": "x"}))
    links = re.findall(r'<g class="head"><a href="([^"]+)"', shown)
    assert links == ["/s/home/agents/a", "/s/home/agents/other", "/s/home/agents/b"]
    labels = re.findall(r'<g class="head">.*?<text [^>]*>([^<]+)<title>', shown)
    assert labels == ["people", "a", "other", "b"]  # the head of b was not named: its newest commit has the label


def test_a_commit_with_many_heads_shows_some_and_counts_the_others() -> None:
    shown = picture(layout([commit("1")], {f"agent-with-a-long-name-{n:02}": "1" for n in range(12)}))
    assert shown.count('<g class="head">') == 1
    assert '<text class="more"' in shown
    assert ">+12</text>" in shown  # eleven agents and people


def test_what_is_no_agents_name_is_shown_but_never_linked() -> None:
    shown = picture(layout([commit("1", (), "../../login", "finding"), commit("2", (), "<x>", "finding")], {}))
    assert "/agents/" not in shown
    assert "../../login" in shown
    assert "&lt;x&gt;" in shown


def test_long_and_wide_texts_are_cut_to_their_column_and_said_whole_in_a_title() -> None:
    subject = "a" * 40 + "語" * 100
    shown = picture(layout([commit("1", (), "x" * 60, "k" * 40, subject=subject)], {}))
    (cut,) = re.findall(r'<tspan class="subject"[^>]*>([^<]+)<', shown)
    assert cut.endswith("…")
    assert subject.startswith(cut[:-1])
    assert len(cut) < 60
    assert re.search(f"<title>[^<]*{subject},[^<]*</title>", shown)
    assert "x" * 21 + "…" in shown
    assert "k" * 15 + "…" in shown


def test_a_huge_subject_does_not_make_a_huge_picture() -> None:
    assert len(picture(layout([commit("1", subject="x" * 1_000_000)], {}))) < 5_000


def test_characters_that_hide_or_turn_others_are_made_visible() -> None:
    shown = picture(layout([commit("1", subject="up\u202edown\x1b[31m")], {}))
    assert "\u202e" not in shown
    assert "\x1b" not in shown


def test_nothing_is_styled_inline() -> None:
    shown = picture(graph("m3: m2 a1 ! x\na1: m1\nm2: m1\nm1: m0", {"a": "a1"}, collapse=True), first=1)
    assert "style" not in shown
    assert "<script" not in shown


# Windows

LONG = "\n".join([*(f"a{n}: a{n - 1}" for n in range(30, 0, -1)), "a0: m2 ! spawn", "m2: m1", "m1:"])


def test_a_window_shows_its_rows_and_names_the_lanes_that_began_above_it() -> None:
    made = graph(LONG, {"a": "a30"})
    shown = picture(made, first=10, rows=5)
    assert re.findall(r'href="/s/home/commits/([a-z0-9]+)"', shown) == ["a20", "a19", "a18", "a17", "a16"]
    assert 'aria-label="Graph of 33 commits, 11 to 15"' in shown
    assert re.findall(r'<g class="lane-name"><a href="([^"]+)"', shown) == ["/s/home/agents/a"]
    assert "lane-name" not in picture(made, rows=5)
    tail = picture(made, first=32, rows=5)
    assert re.findall(r'<g class="lane-name">.*?>([a-z]+)<title>', tail) == ["people"]


def test_a_line_that_passes_through_a_window_is_cut_to_it() -> None:
    text = "\n".join(["m9: m8", *(f"a{n}:" for n in range(500)), "m8:"])
    shown = picture(graph(text), first=100, rows=10)
    (way,) = re.findall(r'<path class="edge line" d="([^"]+)"', shown)
    start, end = map(int, re.fullmatch(r"M14 (\d+)V(\d+)", way).groups())  # type: ignore[union-attr]  # no match is a failure
    assert (start // 24, end // 24) == (99, 110)


def test_a_window_beyond_the_end_is_empty_and_one_across_it_stops_there() -> None:
    made = graph(LONG)
    assert "commits/" not in picture(made, first=33)
    assert "commits/" not in picture(made, rows=0)
    assert picture(made, first=31, rows=99).count('<a class="commit"') == 2


@pytest.mark.parametrize("wrong", [{"first": -1}, {"rows": -5}, {"rows": "all"}])
def test_a_window_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        picture(graph("m1:"), **wrong)
    assert caught.value.fields.keys() == wrong.keys()


def test_a_thousand_lines_to_one_commit_are_one_line_in_a_window_they_pass_through() -> None:
    forks = [commit(f"f{n}", ["root"], f"agent-{n}", "finding") for n in range(1000)]
    between = [commit(f"b{n}", [f"b{n + 1}"], "busy", "finding") for n in range(300)]
    made = layout([*forks, *between, commit("b300", (), "busy", "finding"), commit("root")], {})
    shown = picture(made, first=1100, rows=50)
    assert shown.count('<path class="edge fork"') == 1


# Tables, and a real space


def test_a_table_says_what_the_picture_says() -> None:
    made = graph("a1: m1 ! review\nm1:", {"a": "a1"}, types={"review": "finding"}, traced={"a1"})
    first, second = made.nodes
    assert (first.commit.cid, first.commit.agent, first.commit.kind, letter(first)) == ("a1", "a", "review", "F")
    assert (first.commit.subject, first.commit.committer.at, first.commit.parents) == ("work a1", 0, ("m1",))
    assert (first.heads, first.traced, first.in_session, first.on_path, first.elided) == (("a",), True, False, False, 0)
    assert (second.commit.cid, second.commit.agent, second.commit.kind, letter(second)) == ("m1", None, None, "P")


def test_the_window_of_a_real_space_is_laid_out(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with clia.init(tmp_path, settings=settings()) as space:
        space.spawn("scout", BRIEFING)
        space.commit("scout", "finding", {"a.txt": b"a"})
        space.spawn_from("helper", BRIEFING, "scout")
        space.commit("helper", "test", {"a.txt": b"a", "b.txt": b"b"})
        space.merge("scout", "helper")
        heads = {name: space.head(name) for name in space.agents()}
        made = layout(space.window(), heads, types=space.types())
    assert [node.mark for node in made.nodes] == ["session-merge", "test", "spawn", "finding", "spawn"]
    assert [node.heads for node in made.nodes][:2] == [("scout",), ("helper",)]
    assert [edge.role for edge in made.edges] == [LINE, MERGE, LINE, FORK, LINE]
    assert all(one.row + 1 == other.row for one, other in pairwise(made.nodes))
