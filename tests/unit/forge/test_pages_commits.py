"""The page of a commit: its facts, neighbours, diff and traces, and forks from it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

import clia
from clia.forge.pages import commits
from support import git
from support.forge import ATTACK, assert_harmless
from support.plain_git import fast_import, rev
from support.session_flows import APPROVAL
from support.session_spaces import root_of
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from support.forge import OpenForge

NASTY = f"notes {ATTACK.replace('/', '')}.txt"


@pytest.fixture
def forge(empty_forge: OpenForge) -> OpenForge:
    empty_forge.space.spawn("scout", BRIEFING)
    return empty_forge


def test_facts_message_neighbours_and_diff_are_shown_as_text(forge: OpenForge) -> None:
    space = forge.space
    first = space.commit("scout", "test", {"a": b"one\ntwo\n"})
    meta = {"why": ATTACK, ATTACK: 1}
    message = f"Subject {ATTACK}\n\nBody {ATTACK}"
    second = space.commit("scout", "finding", {"a": f"one\n{ATTACK}\n".encode(), NASTY: b"x\n"}, message=message, meta=meta)
    third = space.commit("scout", "test", {"a": b""})
    answer = forge.browser().get(f"{forge.base}/commits/{second}")
    assert answer.status_code == 200
    page = answer.text
    assert_harmless(page)
    assert f'<dt>parent</dt><dd><span class="id"><a class="mono" href="{forge.base}/commits/{first}">' in page
    assert f'<dt>child</dt><dd><span class="id"><a class="mono" href="{forge.base}/commits/{third}">' in page
    assert "Body &lt;script&gt;" in page
    assert "2 files changed" in page
    assert '<tr class="del">' in page
    assert 'id="file-2"' in page
    assert 'href="#file-2"' in page


@pytest.mark.parametrize("name", ["scout", "agents/scout", "short", "HEAD"])
def test_other_names_of_a_commit_redirect_to_its_full_id(forge: OpenForge, name: str) -> None:
    cid = forge.space.commit("scout", "test", {"a": b"a"})
    root = root_of(forge.space)
    git("update-ref", "--no-deref", "HEAD", cid, cwd=root)
    answer = forge.browser().get(f"{forge.base}/commits/{cid[:9] if name == 'short' else name}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{forge.base}/commits/{cid}")


@pytest.mark.parametrize(
    "name", ["nothing", "0" * 40, "%00", "a b", "..%2f..", "%2e%2e", "--all", "^HEAD", "HEAD^{tree}", "é", "x" * 5000]
)
@pytest.mark.parametrize("page", ["", "/trace"])
def test_an_unknown_commit_is_a_404(forge: OpenForge, name: str, page: str) -> None:
    assert forge.browser().get(f"{forge.base}/commits/{name}{page}").status_code == 404


def test_a_blob_is_not_a_commit(forge: OpenForge) -> None:
    briefing = forge.space.show("scout").briefing
    assert forge.browser().get(f"{forge.base}/commits/{briefing}").status_code == 404


def test_a_commit_by_a_person_is_shown_too(forge: OpenForge) -> None:
    root = root_of(forge.space)
    tree = git("hash-object", "-t", "tree", "-w", "/dev/null", cwd=root).strip()
    command = ["git", "-c", "user.name=<b>Ann</b>", "-c", "user.email=ann", "commit-tree", tree]
    message = f"By hand {ATTACK}\n\nClia-Value: not json\nClia-Agent: ../..\nClia-Type: <b>\nClia-Request: 1.1\nClia-Meta: [1]\n"
    process = subprocess.run(command, cwd=root, input=message.encode(), capture_output=True, check=True)
    answer = forge.browser().get(f"{forge.base}/commits/{process.stdout.decode().strip()}")
    assert answer.status_code == 200
    assert "<b>" not in answer.text
    assert "none (root commit)" in answer.text
    assert "No files changed" in answer.text
    assert_harmless(answer.text)


def test_a_commit_shows_how_many_of_its_lines_agents_wrote(forge: OpenForge) -> None:
    forge.space.commit("scout", "finding", changes={"lines": b"one()\ntwo()\n"})
    fast_import(root_of(forge.space), "refs/heads/main", {b"lines": b"one()\ntwo()\nmine()\n"})
    commit = rev(root_of(forge.space), "main")
    assert "2 of 3 lines by 1 agent" in forge.browser().get(f"{forge.base}/commits/{commit}").text


def test_a_decision_shows_its_question_answer_and_author(forge: OpenForge) -> None:
    space = forge.space
    space.sessions.define("plan", APPROVAL)
    space.start("scout", "plan", {"goal": ATTACK})
    space.resume("scout", ATTACK)
    cid = space.decide("scout", "approve", f"Fine {ATTACK}", by="Ada").cid
    page = forge.browser().get(f"{forge.base}/commits/{cid}").text
    assert_harmless(page)
    assert f'href="{forge.base}/inbox/scout/1.2"' in page
    assert "<dt>decided by</dt><dd>Ada</dd>" in page
    assert "<dt>asked</dt>" in page
    assert '<div class="prose">Go on?</div>' in page
    assert "<dt>meta</dt>" not in page, "it is shown as the question"
    assert "approve" in page


def test_a_large_diff_shows_its_first_files_and_counts_the_rest(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "LINES_MAX", 10)
    monkeypatch.setattr(commits, "LISTED_MAX", 3)
    files = {f"f{number}": b"a\nb\nc\nd\n" for number in range(5)}
    cid = forge.space.commit("scout", "test", files)
    page = forge.browser().get(f"{forge.base}/commits/{cid}").text
    assert "5 files changed" in page
    assert "diffs of 3 more files" in page
    assert "2 more files." in page
    assert page.count('class="diff"') == 2


def test_a_binary_change_and_a_rename_are_labelled(forge: OpenForge) -> None:
    forge.space.commit("scout", "test", {"old": b"some lines\nof text\n" * 9, "bin": b"\0a"})
    cid = forge.space.commit("scout", "test", {"new": b"some lines\nof text\n" * 9, "bin": b"\0b"})
    page = forge.browser().get(f"{forge.base}/commits/{cid}").text
    assert "old → " in page
    assert "Binary file" in page


def test_all_versions_of_a_trace_can_be_read(forge: OpenForge) -> None:
    space = forge.space
    space.trace("scout", "console", f"first {ATTACK}")
    cid = space.commit_with_trace("scout", "test", {"a": b"a"})
    before = space.traces.id_of(cid)
    after = space.traces.attach(cid, [{"text": f"another {ATTACK}"}])
    browser = forge.browser()
    page = browser.get(f"{forge.base}/commits/{cid}").text
    assert_harmless(page)
    assert "another &lt;script&gt;" in page
    assert "attached 2 times" in page
    for version in (before, after):
        assert f"{forge.base}/commits/{cid}/trace?version={version}" in page
    old = browser.get(f"{forge.base}/commits/{cid}/trace?version={before}").text
    assert "first &lt;script&gt;" in old
    assert "another" not in old
    assert f"/commits/{cid}/trace?version={before}&amp;at=0#e0" in old
    assert browser.get(f"{forge.base}/commits/{cid}/trace?version={space.show(cid).briefing}").status_code == 404


def test_an_administrator_can_spawn_an_agent_at_the_commit(forge: OpenForge) -> None:
    cid = forge.space.commit("scout", "test", {"a": b"a"})
    forge.space.commit("scout", "test", {"a": b"b"})
    address = f"{forge.base}/commits/{cid}/agents"
    answer = forge.browser().post(address, {"name": "digger", "title": "Dig", "parent": "on"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{forge.base}/agents/digger")
    assert forge.space.files("digger") == {"a": b"a"}
    assert forge.space.relations.parent("digger") == "scout"
    forge.browser().post(address, {"name": "free", "title": "Dig"})
    assert forge.space.relations.parent("free") is None
    again = forge.browser().post(address, {"name": "digger", "title": ATTACK})
    assert again.status_code == 409
    assert_harmless(again.text)


def test_an_administrator_can_fork_the_session_at_the_commit(forge: OpenForge) -> None:
    space = forge.space
    space.sessions.define("plan", APPROVAL)
    early_commit = space.commit("scout", "test", {"a": b"a"})
    space.start("scout", "plan", {"goal": "x"})
    cid = space.commit("scout", "test", {"a": b"b"})
    space.resume("scout", "do it")
    space.commit("scout", "test", {"a": b"c"})
    browser = forge.browser()
    assert "Fork the session at this commit" not in browser.get(f"{forge.base}/commits/{early_commit}~1").text
    assert "Fork the session at this commit" in browser.get(f"{forge.base}/commits/{cid}").text
    answer = browser.post(f"{forge.base}/commits/{cid}/forks", {"name": "twin"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{forge.base}/sessions/twin/1")
    assert space.session("twin").resumes == []
    genesis = space.agents.genesis("scout")
    assert browser.post(f"{forge.base}/commits/{genesis}/forks", {"name": "other"}).status_code == 422
    assert browser.post(f"{forge.base}/commits/{cid}/forks", {"name": "No Name"}).status_code == 422


@pytest.mark.parametrize("action", ["agents", "forks"])
def test_only_administrators_can_fork_from_a_commit(forge: OpenForge, action: str) -> None:
    cid = forge.space.head("scout")
    for role in ("viewer", "decider"):
        browser = forge.browser(role, role)
        assert browser.post(f"{forge.base}/commits/{cid}/{action}", {"name": "digger", "title": "x"}).status_code == 403
        assert 'id="fork"' not in browser.get(f"{forge.base}/commits/{cid}").text
    assert forge.browser().post(f"{forge.base}/commits/{cid}/{action}", {"name": "digger"}, csrf="no").status_code == 403
    assert forge.space.agents() == ["scout"]


def test_a_merge_shows_both_parents_and_the_merged_agent(forge: OpenForge) -> None:
    forge.space.spawn_from("digger", BRIEFING, "scout")
    theirs = forge.space.commit("digger", "test", {"a": b"a"})
    merged = forge.space.merge("scout", "digger")
    assert isinstance(merged, clia.Merged)
    page = forge.browser().get(f"{forge.base}/commits/{merged.cid}").text
    assert page.count("<dt>parent</dt>") == 2
    assert theirs in page
    assert "compared with its first parent" in page
    assert f'<dt>merged</dt><dd><a href="{forge.base}/agents/digger">' in page
