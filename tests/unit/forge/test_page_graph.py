"""The graph page: picture and table, windows of rows, paths, signs, and what it keeps in mind."""

from __future__ import annotations

import re
from threading import Barrier, Thread
from typing import TYPE_CHECKING

import pytest

from clia.forge.pages import graph as page
from clia.forge.rendering import graph_layout
from support.forge import ATTACK, OpenForge, assert_harmless, open_forge
from support.session_flows import APPROVAL
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from httpx2 import Response


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[OpenForge]:
    """Scout found something with a trace, builder began there and was merged back."""
    with open_forge(tmp_path) as made:
        space = made.space
        space.spawn("scout", BRIEFING)
        space.trace("scout", "console", "looked around")
        space.commit_with_trace("scout", "finding", changes={"a": b"1"}, message="found it")
        space.spawn_from("builder", BRIEFING, "scout")
        space.commit("builder", "refactor", changes={"b": b"1"}, message="made it tidy")
        space.merge("scout", "builder")
        yield made


def ids(answer: Response) -> list[str]:
    """The commits of a picture, in its order."""
    return re.findall(r'<a class="commit" href="/s/repo/commits/([0-9a-f]{40})"', answer.text)


def look(forge: OpenForge, query: str = "", status: int = 200) -> Response:
    answer = forge.browser().get(f"{forge.base}/graph{query}")
    assert answer.status_code == status, answer.text
    assert_harmless(answer.text)
    return answer


def test_the_picture_shows_every_commit_and_leads_to_commits_and_agents(forge: OpenForge) -> None:
    answer = look(forge)
    assert ids(answer) == [each.cid for each in forge.space.window()]
    assert f'href="/s/repo/commits/{forge.space.head("scout")}"' in answer.text
    assert 'href="/s/repo/agents/builder"' in answer.text
    assert answer.text.count('class="graph-legend"') == 1
    assert 'data-live="head archived restored gone"' in answer.text


def test_a_space_without_commits_says_what_to_do(tmp_path: Path) -> None:
    with open_forge(tmp_path) as made:
        answer = look(made)
        assert "No commits yet." in answer.text
        assert look(made, "?view=table&collapse=1&first=7").status_code == 200


def test_the_table_says_what_the_picture_says(forge: OpenForge) -> None:
    table = look(forge, "?view=table").text
    assert 'class="graph"' not in table
    merge = forge.space.show("scout")
    row = next(each for each in table.split("<tr>") if f'commits/{merge.cid}"' in each and "head of" in each)
    for text in ("session-merge", *merge.parents, "/s/repo/agents/scout"):
        assert text in row
    assert "?view=table" in look(forge).text, "the picture leads to it"


def test_rows_come_in_windows_that_follow_one_another(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", 2)
    every, seen, address = [each.cid for each in forge.space.window()], [], "?"
    while True:
        answer = look(forge, address)
        seen += ids(answer)
        older = re.search(r'rel="next" href="([^"]+)"', answer.text)
        if older is None:
            break
        address = older[1].replace("&amp;", "&")
    assert seen == every
    assert 'rel="prev"' in answer.text
    assert "data-live" not in answer.text.partition('id="graph"')[2].partition(">")[0], "older rows stay where they are"


@pytest.mark.parametrize("first", ["99999999", "-1", "x", "1e3", "999999999999999999"])
def test_a_row_that_is_not_there_is_no_error(forge: OpenForge, first: str) -> None:
    assert ids(look(forge, f"?first={first}"))


def test_collapsed_only_forks_heads_and_merges_stay(forge: OpenForge) -> None:
    forge.space.commit("builder", "test", changes={"c": b"1"}, message="in between")
    forge.space.commit("builder", "test", changes={"c": b"2"}, message="the last")
    text = look(forge, "?collapse=1").text
    assert "the last" in text
    assert "in between" not in text
    assert "1 commit" in text


def test_only_what_some_agents_reach(forge: OpenForge) -> None:
    forge.space.spawn("loner", BRIEFING)
    assert forge.space.head("loner") in ids(look(forge))
    assert ids(look(forge, "?agents=builder")) == [each.cid for each in forge.space.log("builder")]
    both = look(forge, "?agents=builder&agents=loner&agents=loner")
    assert forge.space.head("loner") in ids(both)
    assert forge.space.head("scout") not in ids(both)


def test_an_archived_agent_can_be_asked_for(forge: OpenForge) -> None:
    head = forge.space.head("builder")
    forge.space.archive("builder")
    assert ids(look(forge, "?agents=builder"))[0] == head


@pytest.mark.parametrize("name", ["nobody", "No Name", "..%2F..%2Fx", "%00", "a" * 3000])
def test_an_agent_that_is_not_there_is_not_found(forge: OpenForge, name: str) -> None:
    look(forge, f"?agents={name}", 404)


def test_a_path_is_marked_and_listed(forge: OpenForge) -> None:
    genesis = forge.space.genesis("scout")
    assert "on-path" not in look(forge).text
    answer = look(forge, f"?from={genesis[:10]}&to=builder")
    assert "Path: 4 commits" in answer.text
    assert answer.text.count("on-path") > 4
    table = look(forge, f"?from={genesis[:10]}&to=builder&view=table")
    assert table.text.count("on the path") == 4


def test_a_path_begins_on_the_page_that_shows_it(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", 1)
    genesis = forge.space.genesis("scout")
    assert ids(look(forge, f"?from={genesis}&to={genesis}")) != ids(look(forge))
    assert ids(look(forge, f"?from={genesis}&to={genesis}&first=0")) == ids(look(forge))


def test_where_no_path_leads_that_is_said(forge: OpenForge) -> None:
    forge.space.spawn("loner", BRIEFING)
    assert "No path between them" in look(forge, "?from=loner&to=scout").text
    assert "Enter both ends" in look(forge, "?from=loner").text


@pytest.mark.parametrize("name", ["nobody", "%3Cscript%3Ealert(1)%3C%2Fscript%3E", "..", "%00", "a" * 3000, "%ed%a0%80"])
def test_an_end_of_a_path_that_is_not_there_is_a_mistake_in_the_form(forge: OpenForge, name: str) -> None:
    answer = look(forge, f"?from=scout&to={name}", 422)
    assert 'role="alert"' in answer.text
    assert ids(answer), "the graph is still shown"


def test_traces_and_sessions_are_one_click_away(forge: OpenForge) -> None:
    space = forge.space
    space.define("approval", APPROVAL)
    space.start("builder", "approval", {"goal": "x"})
    worked = space.commit("builder", "test", changes={"d": b"1"}, message="in the session")
    found = next(each.cid for each in space.log("scout") if each.subject == "found it")
    for query in ("", "?view=table"):
        text = look(forge, query).text
        assert re.findall(r'href="(/s/repo/commits/\w+/trace)"', text) == [f"/s/repo/commits/{found}/trace"]
        assert f'href="/s/repo/sessions/builder/1" aria-label="Session 1 of builder, at {worked[:10]}"' in text


def test_a_trace_that_is_bound_later_appears(forge: OpenForge) -> None:
    head = forge.space.head("builder")
    assert f"commits/{head}/trace" not in look(forge).text
    forge.space.attach_trace(head, [{"text": "what was seen"}])
    assert f"commits/{head}/trace" in look(forge).text


def test_what_agents_and_people_wrote_is_text(forge: OpenForge) -> None:
    space = forge.space
    space.register_type("odd-kind", "finding")
    space.commit("scout", "odd-kind", changes={"x": b"1"}, message=f"{ATTACK}\x1b[31m\u202e", meta={"x": ATTACK})
    for query in ("", "?view=table", "?collapse=1", "?from=scout&to=builder"):
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in look(forge, query).text
        assert "\u202e" not in look(forge, query).text


def test_a_viewer_may_look_and_a_stranger_may_not(forge: OpenForge) -> None:
    assert forge.browser("vic", "viewer").get(f"{forge.base}/graph").status_code == 200
    answer = forge.stranger().get(f"{forge.base}/graph?view=table")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?next=")
    assert forge.browser().get("/s/elsewhere/graph").status_code == 404


def test_a_layout_is_made_once_until_a_head_moves(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    layout = graph_layout.layout

    def counted(*args: object, **more: object) -> object:
        made.append(1)
        return layout(*args, **more)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(graph_layout, "layout", counted)
    look(forge)
    look(forge, "?view=table")
    look(forge, "?first=1")
    assert len(made) == 1
    look(forge, "?collapse=1")
    assert len(made) == 2
    forge.space.commit("builder", "finding", changes={"z": b"1"}, message="moved on")
    assert "moved on" in look(forge).text
    assert len(made) == 3


def test_two_spaces_are_never_mixed_up(tmp_path: Path) -> None:
    with open_forge(tmp_path, "one", "two") as made:
        for name, site in made.forge.sites.items():
            site.space.spawn("scout", BRIEFING)
            site.space.commit("scout", "finding", changes={"a": b"1"}, message=f"only in {name}")
        browser = made.browser()
        for name, other in (("one", "two"), ("two", "one")):
            text = browser.get(f"/s/{name}/graph").text
            assert f"only in {name}" in text
            assert f"only in {other}" not in text


def test_what_several_ask_for_at_once_is_made_once() -> None:
    recent, made, begin = page.RecentCache(2), [], Barrier(4)
    answers = []

    def make() -> int:
        made.append(1)
        return len(made)

    def ask() -> None:
        begin.wait()
        answers.append(recent.get("key", make))

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [1, 1, 1, 1]


def test_the_oldest_is_forgotten_and_a_failure_is_not_kept() -> None:
    recent = page.RecentCache(2)
    assert [recent.get(key, key.upper) for key in "abc"] == ["A", "B", "C"]
    assert recent.get("a", lambda: "anew") == "anew"
    assert recent.get("c", lambda: "never made") == "C"
    with pytest.raises(ZeroDivisionError):
        recent.get("d", lambda: 1 // 0)
    assert recent.get("d", lambda: 4) == 4
