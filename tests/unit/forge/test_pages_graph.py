"""The graph page: picture and table, paging, paths, signs and the layout cache."""

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
    from pathlib import Path

    from httpx2 import Response


@pytest.fixture
def forge(empty_forge: OpenForge) -> OpenForge:
    """The agent ``scout`` has a finding with a trace, and merged ``builder``, which started there."""
    space = empty_forge.space
    space.spawn("scout", BRIEFING)
    space.trace("scout", "console", "looked around")
    space.commit_with_trace("scout", "finding", changes={"a": b"1"}, message="found it")
    space.spawn_from("builder", BRIEFING, "scout")
    space.commit("builder", "refactor", changes={"b": b"1"}, message="made it tidy")
    space.merge("scout", "builder")
    return empty_forge


def ids(answer: Response) -> list[str]:
    """The commits of the picture, in order."""
    return re.findall(r'<a class="commit" href="/s/repo/commits/([0-9a-f]{40})"', answer.text)


def get_page(forge: OpenForge, query: str = "", status: int = 200) -> Response:
    answer = forge.browser().get(f"{forge.base}/graph{query}")
    assert answer.status_code == status, answer.text
    assert_harmless(answer.text)
    return answer


def test_the_picture_has_every_commit_and_links_commits_and_agents(forge: OpenForge) -> None:
    answer = get_page(forge)
    assert ids(answer) == [commit.cid for commit in forge.space.history.window()]
    assert f'href="/s/repo/commits/{forge.space.head("scout")}"' in answer.text
    assert 'href="/s/repo/agents/builder"' in answer.text
    assert answer.text.count('class="graph-legend"') == 1
    assert 'data-live="head archived restored gone"' in answer.text


def test_a_space_without_commits_shows_what_to_do(tmp_path: Path) -> None:
    with open_forge(tmp_path) as opened:
        answer = get_page(opened)
        assert "No commits yet." in answer.text
        assert get_page(opened, "?view=table&collapse=1&first=7").status_code == 200


def test_the_table_has_the_content_of_the_picture(forge: OpenForge) -> None:
    table = get_page(forge, "?view=table").text
    assert 'class="graph"' not in table
    merge = forge.space.show("scout")
    row = next(table_row for table_row in table.split("<tr>") if f'commits/{merge.cid}"' in table_row and "head of" in table_row)
    for text in ("session-merge", *merge.parents, "/s/repo/agents/scout"):
        assert text in row
    assert "?view=table" in get_page(forge).text, "the picture links to it"


def test_rows_are_paged_completely(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", 2)
    expected, displayed, address = [commit.cid for commit in forge.space.history.window()], [], "?"
    while True:
        answer = get_page(forge, address)
        displayed += ids(answer)
        older = re.search(r'rel="next" href="([^"]+)"', answer.text)
        if older is None:
            break
        address = older[1].replace("&amp;", "&")
    assert displayed == expected
    assert 'rel="prev"' in answer.text
    assert "data-live" not in answer.text.partition('id="graph"')[2].partition(">")[0], "older rows are not updated live"


@pytest.mark.parametrize("first", ["99999999", "-1", "x", "1e3", "999999999999999999"])
def test_an_invalid_first_row_is_not_an_error(forge: OpenForge, first: str) -> None:
    assert ids(get_page(forge, f"?first={first}"))


def test_only_forks_heads_and_merges_stay_when_collapsed(forge: OpenForge) -> None:
    forge.space.commit("builder", "test", changes={"c": b"1"}, message="in between")
    forge.space.commit("builder", "test", changes={"c": b"2"}, message="the last")
    text = get_page(forge, "?collapse=1").text
    assert "the last" in text
    assert "in between" not in text
    assert "1 commit" in text


def test_the_graph_can_be_limited_to_some_agents(forge: OpenForge) -> None:
    forge.space.spawn("loner", BRIEFING)
    assert forge.space.head("loner") in ids(get_page(forge))
    assert ids(get_page(forge, "?agents=builder")) == [commit.cid for commit in forge.space.log("builder")]
    both = get_page(forge, "?agents=builder&agents=loner&agents=loner")
    assert forge.space.head("loner") in ids(both)
    assert forge.space.head("scout") not in ids(both)


def test_an_archived_agent_can_be_selected(forge: OpenForge) -> None:
    head = forge.space.head("builder")
    forge.space.agents.archive("builder")
    assert ids(get_page(forge, "?agents=builder"))[0] == head


@pytest.mark.parametrize("name", ["nobody", "No Name", "..%2F..%2Fx", "%00", "a" * 3000])
def test_an_unknown_agent_is_not_found(forge: OpenForge, name: str) -> None:
    get_page(forge, f"?agents={name}", 404)


def test_a_path_is_marked_and_listed(forge: OpenForge) -> None:
    genesis = forge.space.agents.genesis("scout")
    assert "on-path" not in get_page(forge).text
    answer = get_page(forge, f"?from={genesis[:10]}&to=builder")
    assert "Path: 4 commits" in answer.text
    assert answer.text.count("on-path") > 4
    table = get_page(forge, f"?from={genesis[:10]}&to=builder&view=table")
    assert table.text.count("on the path") == 4


def test_a_path_opens_the_page_that_shows_its_start(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", 1)
    genesis = forge.space.agents.genesis("scout")
    assert ids(get_page(forge, f"?from={genesis}&to={genesis}")) != ids(get_page(forge))
    assert ids(get_page(forge, f"?from={genesis}&to={genesis}&first=0")) == ids(get_page(forge))


def test_a_missing_path_is_reported(forge: OpenForge) -> None:
    forge.space.spawn("loner", BRIEFING)
    assert "No path between them" in get_page(forge, "?from=loner&to=scout").text
    assert "Enter both ends" in get_page(forge, "?from=loner").text


@pytest.mark.parametrize("name", ["nobody", "%3Cscript%3Ealert(1)%3C%2Fscript%3E", "..", "%00", "a" * 3000, "%ed%a0%80"])
def test_an_unknown_end_of_a_path_is_a_form_error(forge: OpenForge, name: str) -> None:
    answer = get_page(forge, f"?from=scout&to={name}", 422)
    assert 'role="alert"' in answer.text
    assert ids(answer), "the graph is still shown"


def test_traces_and_sessions_are_linked(forge: OpenForge) -> None:
    space = forge.space
    space.sessions.define("approval", APPROVAL)
    space.start("builder", "approval", {"goal": "x"})
    session_commit = space.commit("builder", "test", changes={"d": b"1"}, message="in the session")
    traced = next(commit.cid for commit in space.log("scout") if commit.subject == "found it")
    for query in ("", "?view=table"):
        text = get_page(forge, query).text
        assert re.findall(r'href="(/s/repo/commits/\w+/trace)"', text) == [f"/s/repo/commits/{traced}/trace"]
        assert f'href="/s/repo/sessions/builder/1" aria-label="Session 1 of builder, at {session_commit[:10]}"' in text


def test_a_trace_attached_later_appears(forge: OpenForge) -> None:
    head = forge.space.head("builder")
    assert f"commits/{head}/trace" not in get_page(forge).text
    forge.space.traces.attach(head, [{"text": "what was seen"}])
    assert f"commits/{head}/trace" in get_page(forge).text


def test_text_of_agents_and_people_is_escaped(forge: OpenForge) -> None:
    space = forge.space
    space.types.register("odd-kind", "finding")
    space.commit("scout", "odd-kind", changes={"x": b"1"}, message=f"{ATTACK}\x1b[31m\u202e", meta={"x": ATTACK})
    for query in ("", "?view=table", "?collapse=1", "?from=scout&to=builder"):
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in get_page(forge, query).text
        assert "\u202e" not in get_page(forge, query).text


def test_a_viewer_can_see_the_graph_and_a_stranger_cannot(forge: OpenForge) -> None:
    assert forge.browser("vic", "viewer").get(f"{forge.base}/graph").status_code == 200
    answer = forge.stranger().get(f"{forge.base}/graph?view=table")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?next=")
    assert forge.browser().get("/s/elsewhere/graph").status_code == 404


def test_a_layout_is_computed_once_until_a_head_moves(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    layout = graph_layout.layout

    def count_layouts(*args: object, **more: object) -> object:
        calls.append(1)
        return layout(*args, **more)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(graph_layout, "layout", count_layouts)
    get_page(forge)
    get_page(forge, "?view=table")
    get_page(forge, "?first=1")
    assert len(calls) == 1
    get_page(forge, "?collapse=1")
    assert len(calls) == 2
    forge.space.commit("builder", "finding", changes={"z": b"1"}, message="moved on")
    assert "moved on" in get_page(forge).text
    assert len(calls) == 3


def test_two_spaces_are_never_mixed_up(tmp_path: Path) -> None:
    with open_forge(tmp_path, "one", "two") as opened:
        for name, site in opened.forge.sites.items():
            site.space.spawn("scout", BRIEFING)
            site.space.commit("scout", "finding", changes={"a": b"1"}, message=f"only in {name}")
        browser = opened.browser()
        for name, other in (("one", "two"), ("two", "one")):
            text = browser.get(f"/s/{name}/graph").text
            assert f"only in {name}" in text
            assert f"only in {other}" not in text


def test_a_value_requested_concurrently_is_computed_once() -> None:
    cache, calls, begin = page.RecentCache(2), [], Barrier(4)
    answers = []

    def make() -> int:
        calls.append(1)
        return len(calls)

    def ask() -> None:
        begin.wait()
        answers.append(cache.get("key", make))

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [1, 1, 1, 1]


def test_the_oldest_value_is_evicted_and_a_failure_is_not_cached() -> None:
    cache = page.RecentCache(2)
    assert [cache.get(key, key.upper) for key in "abc"] == ["A", "B", "C"]
    assert cache.get("a", lambda: "recomputed") == "recomputed"
    assert cache.get("c", lambda: "never computed") == "C"
    with pytest.raises(ZeroDivisionError):
        cache.get("d", lambda: 1 // 0)
    assert cache.get("d", lambda: 4) == 4
