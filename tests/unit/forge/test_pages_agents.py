"""The pages of an agent: its identity, commits and files, the actions of administrators, and merge conflicts."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia.capture.service import CapturedSession
from clia.forge.pages import commits
from support import git
from support.forge import ATTACK, assert_harmless, open_forge
from support.plain_git import fast_import
from support.session_flows import APPROVAL, PRODUCT
from support.session_spaces import root_of
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path

    from clia.space.model import Content
    from support.forge import OpenForge

NASTY = f"notes {ATTACK.replace('/', '')}.txt"


@pytest.fixture
def forge(empty_forge: OpenForge) -> OpenForge:
    briefing = clia.Briefing(f"Look {ATTACK}", f"Find what is slow.\n{ATTACK}", meta={"why": ATTACK})
    empty_forge.space.spawn("scout", briefing)
    return empty_forge


def test_the_page_shows_the_agent_its_commits_and_relations(forge: OpenForge) -> None:
    space = forge.space
    cid = space.commit("scout", "finding", {"a.txt": b"one\n"}, message="Found it", meta={"x": 1})
    space.spawn_from("digger", BRIEFING, "scout")
    space.spawn("judge", BRIEFING)
    space.relations.add_review("judge", "scout")
    space.trace("scout", "console", "hello")
    page = forge.browser().get(f"{forge.base}/agents/scout")
    assert page.status_code == 200
    assert "Find what is slow." in page.text
    assert "Found it" in page.text
    assert f"{forge.base}/commits/{cid}" in page.text
    assert 'kind kind-finding">finding' in page.text
    assert f'<dt>sub-agents</dt><dd><a href="{forge.base}/agents/digger">' in page.text
    assert f'<dt>reviewed by</dt><dd><a href="{forge.base}/agents/judge">' in page.text
    assert "1 entry pending" in page.text
    assert_harmless(page.text)


def test_the_commits_of_an_agent_are_paged(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clia.forge.pages.agents.PAGE", 2)
    for number in range(4):
        forge.space.commit("scout", "test", {"n": b"%d" % number}, message=f"number {number}")
    browser = forge.browser()
    pages = [browser.get(f"{forge.base}/agents/scout?from={start}").text for start in (0, 2, 4)]
    assert ["number 3" in page for page in pages] == [True, False, False]
    assert ["number 1" in page for page in pages] == [False, True, False]
    assert ["?from=4" in page for page in pages] == [False, True, False]
    assert f'rel="prev" href="{forge.base}/agents/scout?from=2"' in pages[2]


def test_the_page_links_the_session_and_its_pending_question(forge: OpenForge) -> None:
    space = forge.space
    space.sessions.define("plan", APPROVAL)
    space.start("scout", "plan", {"goal": "x"})
    space.resume("scout", "do it")
    page = forge.browser().get(f"{forge.base}/agents/scout").text
    assert f'href="{forge.base}/sessions/scout/1"' in page
    assert f'href="{forge.base}/inbox/scout/1.2"' in page
    assert "status-suspended" in page


def test_the_page_shows_a_captured_session_of_a_tool(forge: OpenForge) -> None:
    """And does not suggest starting a flow."""
    forge.space.captures.keep(CapturedSession("claude-code", "5f0c7d21-1111", "", "scout", "/x", last="2026-11-15T10:00:00.000Z"))
    page = forge.browser().get(f"{forge.base}/agents/scout").text
    assert "5f0c7d21-1111" in page
    assert "status-open" in page
    assert "clia session start" not in page


def test_an_agent_with_only_questions_is_not_shown_as_unused(forge: OpenForge) -> None:
    """A hint to start a flow is shown only if nothing ever ran; otherwise the pending or the last question."""
    space, browser = forge.space, forge.browser()

    def state() -> str:
        return browser.get(f"{forge.base}/agents/scout").text.partition('id="agent-state"')[2].partition("</section>")[0]

    assert "clia session start scout" in state()
    first, second = space.ask("scout", {"question": "First?"}), space.ask("scout", {"question": f"Second? {ATTACK}"})
    waiting = state()
    assert "none, 2 pending questions" in waiting
    assert f'<a href="{forge.base}/inbox/scout/{first.id}">First?</a>' in waiting
    assert_harmless(waiting)
    space.decide("scout", 1, request_id=first.id)
    space.cancel("scout", "not needed", session_id=second.session)
    ended = state()
    assert "only questions" in ended
    assert f'<a href="{forge.base}/inbox/scout/{second.id}">Second? ' in ended
    assert "status-cancelled" in ended
    assert_harmless(ended)
    assert [section.count("clia session start") for section in (waiting, ended)] == [0, 0]
    assert browser.get(f"{forge.base}/inbox/scout/{second.id}").status_code == 200


def test_a_session_with_a_damaged_row_is_shown_as_unreadable(forge: OpenForge) -> None:
    forge.space.sessions.define("plan", APPROVAL)
    forge.space.start("scout", "plan", {"goal": "x"})
    with forge.space.local.store.writing() as change:
        change.values.put("live/scout/1", {"status": "suspended"})
    page = forge.browser().get(f"{forge.base}/agents/scout").text
    assert "unreadable" in page
    assert "clia session start" not in page


def test_the_page_shows_the_frozen_profile_and_links_its_origins(tmp_path: Path) -> None:
    folder = tmp_path / "repo/.clia/agents/scout"
    folder.mkdir(parents=True)
    git("init", "-q", cwd=tmp_path / "repo")
    (folder / "scout.agent.triad.json").write_text('{"guardrails": ["No <b>haste</b>"]}')
    with open_forge(tmp_path) as forge:
        forge.space.spawn("scout", BRIEFING)
        page = forge.browser().get(f"{forge.base}/agents/scout").text
        assert "No &lt;b&gt;haste&lt;/b&gt;" in page
        assert f'href="{forge.base}/lineage/scout"' in page


@pytest.mark.parametrize("name", ["nobody", "No-Name", "%2e%2e", "%00", "a%2Fb", "é", "a" * 200])
@pytest.mark.parametrize("page", ["", "/files", "/files/a", "/trace", "/merges/scout"])
def test_an_unknown_agent_is_a_404(forge: OpenForge, name: str, page: str) -> None:
    assert forge.browser().get(f"{forge.base}/agents/{name}{page}").status_code == 404


def test_the_page_of_one_agent_does_not_list_all_agents(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    viewer = forge.browser("vi", "viewer")
    monkeypatch.setattr(type(forge.space), "agents", lambda *_, **__: pytest.fail("all agents were listed"))
    assert viewer.get(f"{forge.base}/agents/scout/files").status_code == 200


def test_a_branch_created_by_git_is_shown_as_far_as_possible(forge: OpenForge) -> None:
    root = root_of(forge.space)
    tree = git("hash-object", "-t", "tree", "-w", "/dev/null", cwd=root).strip()
    commit = git("-c", "user.name=x", "-c", "user.email=x", "commit-tree", "-m", "by hand", tree, cwd=root).strip()
    git("update-ref", "refs/heads/agents/wild", commit, cwd=root)
    page = forge.browser().get(f"{forge.base}/agents/wild")
    assert page.status_code == 200
    assert "The briefing is not in this clone" in page.text


# Files


def test_folders_and_files_are_linked_and_shown_as_text(forge: OpenForge) -> None:
    content: dict[str, Content] = {
        "src/a b.py": f"x = 1\n{ATTACK}\n".encode(),
        NASTY: b"n",
        "top": b"t",
        "run": clia.File(b"#!/bin/sh\n", executable=True),
    }
    forge.space.commit("scout", "test", content)
    browser = forge.browser()
    top = browser.get(f"{forge.base}/agents/scout/files").text
    assert_harmless(top)
    assert f'href="{forge.base}/agents/scout/files/src"' in top
    assert "executable" in top
    folder = browser.get(f"{forge.base}/agents/scout/files/src").text
    assert f'href="{forge.base}/agents/scout/files/src/a%20b.py"' in folder
    assert "top" not in folder.partition("<main")[2].partition("agent-folder")[2]
    file = browser.get(f"{forge.base}/agents/scout/files/src/a%20b.py").text
    assert "x = 1" in file
    assert 'id="L2"' in file
    assert_harmless(file)


def test_blame_names_the_commit_of_each_line_on_request(forge: OpenForge) -> None:
    one = forge.space.commit("scout", "finding", {"a": b"first\n"})
    two = forge.space.commit("scout", "test", {"a": b"first\nsecond\n"})
    browser = forge.browser()
    plain = browser.get(f"{forge.base}/agents/scout/files/a").text
    assert one not in plain
    blamed = browser.get(f"{forge.base}/agents/scout/files/a?blame=1").text
    assert f"{forge.base}/commits/{one}" in blamed
    assert f"{forge.base}/commits/{two}" in blamed


def test_blame_shows_lines_of_people_apart_with_the_briefing_and_trace_of_agents(forge: OpenForge) -> None:
    fast_import(root_of(forge.space), "refs/heads/main", {b"shared": b"by a person\n"})
    forge.space.spawn_at("helper", clia.Briefing("Help out", ""), "main")
    forge.space.trace("helper", "console", "thought")
    commit = forge.space.commit_with_trace("helper", "finding", changes={"shared": b"by a person\nby an agent\n"})
    blamed = forge.browser().get(f"{forge.base}/agents/helper/files/shared?blame=1").text
    assert '<span class="person">Tess</span>' in blamed
    assert "Help out" in blamed
    assert f"/commits/{commit}#trace" in blamed


def test_binary_empty_and_undecodable_files_and_links_are_labelled(forge: OpenForge) -> None:
    content: dict[str, Content] = {
        "bin": b"\0\1\2<script>",
        "empty": b"",
        "latin": b"caf\xe9",
        "link": clia.Link("bin"),
    }
    forge.space.commit("scout", "test", content)
    browser = forge.browser()

    def page(name: str, query: str = "") -> str:
        answer = browser.get(f"{forge.base}/agents/scout/files/{name}{query}")
        assert answer.status_code == 200
        return answer.text

    assert "Binary file, 11 bytes" in page("bin", "?blame=1")
    assert "The file is empty" in page("empty", "?blame=1")
    assert "caf\ufffd" in page("latin")
    assert "link, 3 bytes" in page("link", "?blame=1")


def test_a_long_file_is_truncated_and_the_rest_is_counted(forge: OpenForge) -> None:
    long = b"".join(b"line %d\n" % number for number in range(commits.FILE_LINES_MAX + 7))
    forge.space.commit("scout", "test", {"long": long, "wide": b"x" * (commits.LINE_MAX + 9), "fat": (b"y" * 1999 + b"\n") * 400})
    browser = forge.browser()
    page = browser.get(f"{forge.base}/agents/scout/files/long?blame=1").text
    assert "7 more lines, not shown" in page
    assert "too long for blame" in page
    assert "9 more characters" in browser.get(f"{forge.base}/agents/scout/files/wide").text
    assert "more lines, not shown" in browser.get(f"{forge.base}/agents/scout/files/fat").text


@pytest.mark.parametrize(
    "path", ["nothing", "z/b", "%2e%2e", ".git/config", "%2e%2e/%2e%2e/etc/passwd", "z%00x", "/z", "src//z", "%2e/z", "%ff"]
)
def test_an_unknown_path_is_a_404_whatever_it_looks_like(forge: OpenForge, path: str) -> None:
    forge.space.commit("scout", "test", {"z": b"", "src/z": b""})
    assert forge.browser().get(f"{forge.base}/agents/scout/files/{path}").status_code == 404


def test_a_file_name_that_is_not_utf8_is_shown_without_a_link(forge: OpenForge) -> None:
    root = root_of(forge.space)
    blob = git("hash-object", "-w", "/dev/null", cwd=root).strip()
    listing = f"100644 blob {blob}\t".encode() + b"odd\xff\0"
    tree = subprocess.run(["git", "mktree", "-z"], cwd=root, input=listing, capture_output=True, check=True).stdout.decode().strip()
    commit = git("-c", "user.name=x", "-c", "user.email=x", "commit-tree", "-m", "odd", tree, cwd=root).strip()
    git("update-ref", "refs/heads/agents/wild", commit, cwd=root)
    page = forge.browser().get(f"{forge.base}/agents/wild/files")
    assert page.status_code == 200
    assert "does not fit in a URL" in page.text
    assert forge.browser().get(f"{forge.base}/commits/{commit}").status_code == 200


# Actions


def test_an_administrator_can_spawn_a_sub_agent(forge: OpenForge) -> None:
    browser = forge.browser()
    fields = {"name": "digger", "title": "Dig", "text": "deep\r\ndown", "slug": ""}
    answer = browser.post(f"{forge.base}/agents/scout/sub-agents", fields)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{forge.base}/agents/digger")
    assert forge.space.relations.parent("digger") == "scout"
    assert forge.space.agents.briefing("digger") == clia.Briefing("Dig", "deep\ndown")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"name": "No Name", "title": "x"}, 422),
        ({"name": "digger", "title": " "}, 422),
        ({"name": "scout", "title": "x"}, 409),
        ({"name": "digger", "title": "x", "slug": "not-known"}, 422),
        ({}, 422),
    ],
)
def test_a_refused_form_is_shown_again_with_its_input(forge: OpenForge, fields: dict[str, str], status: int) -> None:
    answer = forge.browser().post(f"{forge.base}/agents/scout/sub-agents", {"text": f"typed {ATTACK}", **fields})
    assert answer.status_code == status
    assert 'id="spawn-problem"' in answer.text
    assert "typed &lt;script&gt;" in answer.text
    assert_harmless(answer.text)
    assert forge.space.agents() == ["scout"]


def test_an_administrator_can_fork_the_session(forge: OpenForge) -> None:
    browser = forge.browser()
    answer_before_start = browser.post(f"{forge.base}/agents/scout/forks", {"name": "twin"})
    assert answer_before_start.status_code == 422
    forge.space.sessions.define("product", PRODUCT)
    forge.space.start("scout", "product")
    answer = browser.post(f"{forge.base}/agents/scout/forks", {"name": "twin"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{forge.base}/sessions/twin/1")
    assert forge.space.session("twin").status == "suspended"


def _spawn_conflicting_agents(space: clia.Space) -> None:
    space.commit("scout", "test", {"a.txt": b"base\n", "b": b"b"})
    space.spawn_from("digger", BRIEFING, "scout")
    space.commit("scout", "test", changes={"a.txt": f"ours {ATTACK}\n".encode()})
    space.commit("digger", "test", changes={"a.txt": b"theirs\n"})


def test_an_administrator_can_merge_another_agent(forge: OpenForge) -> None:
    forge.space.spawn_from("digger", BRIEFING, "scout")
    forge.space.commit("digger", "finding", {"a": b"a"})
    browser = forge.browser()
    answer = browser.post(f"{forge.base}/agents/scout/merges", {"from": "digger", "message": "Take it"})
    assert answer.status_code == 303
    head = forge.space.show("scout")
    assert answer.headers["location"] == f"{forge.base}/commits/{head.cid}"
    assert (head.kind, head.merged, head.message) == ("session-merge", "digger", "Take it")
    again = browser.post(f"{forge.base}/agents/scout/merges", {"from": "digger"})
    assert again.headers["location"] == f"{forge.base}/commits/{head.cid}"
    assert browser.get(f"{forge.base}/agents/scout/merges/digger").text.count("No conflicts") == 1


def test_conflicts_are_shown_with_both_sides_and_the_command_to_resolve_them(forge: OpenForge) -> None:
    _spawn_conflicting_agents(forge.space)
    head = forge.space.head("scout")
    browser = forge.browser()
    answer = browser.post(f"{forge.base}/agents/scout/merges", {"from": "digger"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{forge.base}/agents/scout/merges/digger")
    assert forge.space.head("scout") == head
    page = browser.get(answer.headers["location"]).text
    assert "1 conflict: nothing was committed" in page
    assert "theirs" in page
    assert page.count('class="diff"') == 2
    theirs = forge.space.head("digger")
    assert f"clia resolve scout digger --ours {head[:12]} --theirs {theirs[:12]} --take theirs" in page
    assert_harmless(page)


def test_conflicts_of_unrelated_agents_show_both_files(forge: OpenForge) -> None:
    forge.space.spawn("digger", BRIEFING)
    forge.space.commit("scout", "test", {"a": b"ours\n", "bin": b"\0\1"})
    forge.space.commit("digger", "test", {"a": b"theirs\n", "bin": b"\0\2"})
    page = forge.browser().get(f"{forge.base}/agents/scout/merges/digger").text
    assert "2 conflicts" in page
    assert ">ours\n</pre>" in page
    assert "binary, 2 bytes" in page


@pytest.mark.parametrize(("other", "status"), [("nobody", 422), ("scout", 422), ("", 422), ("No Name", 422)])
def test_a_merge_with_an_unknown_agent_is_refused(forge: OpenForge, other: str, status: int) -> None:
    answer = forge.browser().post(f"{forge.base}/agents/scout/merges", {"from": other})
    assert answer.status_code == status
    assert 'id="merge-problem"' in answer.text


def test_an_administrator_can_archive_and_restore_an_agent(forge: OpenForge) -> None:
    browser = forge.browser()
    assert browser.post(f"{forge.base}/agents/scout/archive").status_code == 303
    assert forge.space.agents(archived=True) == ["scout"]
    page = browser.get(f"{forge.base}/agents/scout")
    assert page.status_code == 200
    assert "Restore scout" in page.text
    assert browser.get(f"{forge.base}/agents/scout/files").status_code == 200
    assert browser.post(f"{forge.base}/agents/scout/archive").status_code == 422
    assert browser.post(f"{forge.base}/agents/scout/restore").status_code == 303
    assert forge.space.agents() == ["scout"]


def test_an_agent_with_a_live_session_cannot_be_archived(forge: OpenForge) -> None:
    forge.space.sessions.define("product", PRODUCT)
    forge.space.start("scout", "product")
    answer = forge.browser().post(f"{forge.base}/agents/scout/archive")
    assert answer.status_code == 409
    assert "is at work" in answer.text


@pytest.mark.parametrize("action", ["sub-agents", "forks", "merges", "archive", "restore"])
def test_only_administrators_can_act_and_only_from_our_own_pages(forge: OpenForge, action: str) -> None:
    fields = {"name": "digger", "title": "x", "from": "scout"}
    address = f"{forge.base}/agents/scout/{action}"
    for role in ("viewer", "decider"):
        browser = forge.browser(role, role)
        assert browser.post(address, fields).status_code == 403
        assert "actions-title" not in browser.get(f"{forge.base}/agents/scout").text
    assert forge.browser().post(address, fields, csrf="wrong").status_code == 403
    assert forge.stranger().post(address, fields).status_code == 401
    assert forge.space.agents() == ["scout"]
    assert forge.stranger().get(f"{forge.base}/agents/scout").headers["location"].startswith("/login?next=")


def test_the_page_shows_how_an_identity_differs_from_the_recorded_one(forge: OpenForge) -> None:
    path = root_of(forge.space).parent / ".clia/agents/worker/worker@x.agent.triad.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"slug": "worker", "guardrails": ["Never deploy.", f"Old {ATTACK}"]}))
    forge.space.spawn("clerk", BRIEFING, slug="worker")
    browser = forge.browser()
    page = browser.get(f"{forge.base}/agents/clerk").text
    assert "Never deploy." in page
    assert "clia reprofile" not in page
    path.write_text(json.dumps({"slug": "worker", "guardrails": ["Never deploy.", f"New {ATTACK}"]}))
    page = browser.get(f"{forge.base}/agents/clerk").text
    assert page.count("missing at its place now") == page.count("not recorded yet") == 1
    assert "clia reprofile clerk" in page
    assert_harmless(page)
    path.write_text("{")
    assert "worker@x.agent.triad.json" in browser.get(f"{forge.base}/agents/clerk").text
