"""The list of spaces, the overview of a space, its health, and the form to spawn an agent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import clia
from clia.forge.pages import overview
from clia.store.interface import Task
from support.forge import ATTACK, assert_harmless, open_forge
from support.session_flows import QUESTION
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path

    from support.forge import OpenForge


@pytest.fixture
def forge(empty_forge: OpenForge) -> OpenForge:
    return empty_forge


def names(page: str) -> list[str]:
    """The agents of the list, in order."""
    return re.findall(r'<th scope="row" data-label="Agent"><a [^>]*>([^<]*)</a>', page)


def test_a_stranger_is_redirected_to_the_login_and_back(forge: OpenForge) -> None:
    answer = forge.stranger().get(f"{forge.base}/?q=a")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fs%2Frepo%2F%3Fq%3Da"
    assert forge.stranger().get("/").status_code == 303


def test_the_only_space_is_opened_at_once(forge: OpenForge) -> None:
    answer = forge.browser().get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/s/repo/")


def test_several_spaces_are_listed_with_their_pending_questions(tmp_path: Path) -> None:
    with open_forge(tmp_path, "one", "two") as forge:
        two = forge.forge.sites["two"].space
        two.spawn("scout", BRIEFING)
        two.ask("scout", {"question": "Go?"})
        page = forge.browser().get("/").text
        assert '<a href="/s/one/">one</a>' in page
        assert '<a href="/s/two/inbox">1</a>' in page
        assert "<title>(1) Spaces" in page
        forge.forge.sites["one"].space.spawn("smith", BRIEFING)
        forge.forge.sites["one"].space.ask("smith", {"question": "Stop?"})
        assert "<title>(2) Spaces" in forge.browser().get("/").text
        assert_harmless(page)


def test_an_unknown_space_is_not_found(forge: OpenForge) -> None:
    assert forge.browser().get("/s/other/").status_code == 404


def test_each_agent_is_shown_with_its_state_pending_request_and_last_commit(forge: OpenForge) -> None:
    space = forge.space
    for name in ("idle", "asks", "works", "done"):
        space.spawn(name, BRIEFING)
    space.sessions.define("question", QUESTION)
    space.start("works", "question", {"kind": "llm", "payload": {}})
    space.start("asks", "question", {"payload": {"question": "May I?"}})
    space.start("done", "question", {"payload": {"question": "And?"}})
    decision = space.decide("done", "yes", "It is right.")
    page = forge.browser().get(f"{forge.base}/").text
    assert names(page) == ["asks", "done", "idle", "works"], "agents that wait for people come first"
    rows = dict(zip(names(page), page.split('<th scope="row" data-label="Agent">')[1:], strict=True))
    assert ">waits for people<" in rows["asks"]
    assert '<a href="/s/repo/inbox/asks/1.1">May I?</a>' in rows["asks"]
    assert ">waits for a worker<" in rows["works"]
    assert ">llm<" in rows["works"]
    assert ">finished<" in rows["done"]
    assert f'<a href="/s/repo/commits/{decision.cid}">It is right.</a>' in rows["done"]
    assert "kind-decision" in rows["done"]
    assert ">no session<" in rows["idle"]
    assert "<title>(1) Overview" in page


def test_the_agent_that_waits_longest_for_people_comes_first(forge: OpenForge) -> None:
    for name in ("a", "b", "c"):
        forge.space.spawn(name, BRIEFING)
    for name in ("c", "b"):
        forge.space.ask(name, {"question": "Go?"})
    assert names(forge.browser().get(f"{forge.base}/").text) == ["c", "b", "a"]


def test_agents_are_paged_and_can_be_filtered(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "PAGE", 2)
    for name in ("ant", "bat", "bee", "cat", "cow"):
        forge.space.spawn(name, BRIEFING)
    browser = forge.browser()
    assert names(browser.get(f"{forge.base}/").text) == ["ant", "bat"]
    last = browser.get(f"{forge.base}/?page=3").text
    assert names(last) == ["cow"]
    assert 'href="?page=2"' in last
    assert names(browser.get(f"{forge.base}/?page=99").text) == ["cow"], "a page beyond the end is the last one"
    assert names(browser.get(f"{forge.base}/?page=x").text) == ["ant", "bat"]
    filtered = browser.get(f"{forge.base}/?q=A").text
    assert names(filtered) == ["ant", "bat"]
    assert 'href="?q=A&amp;page=2"' in filtered
    no_match = browser.get(f"{forge.base}/", params={"q": ATTACK})
    assert no_match.status_code == 200
    assert names(no_match.text) == []
    assert_harmless(no_match.text)


def test_archived_agents_are_listed_behind_a_link(forge: OpenForge) -> None:
    for name in ("present", "archived"):
        forge.space.spawn(name, BRIEFING)
    forge.space.agents.archive("archived")
    browser = forge.browser()
    page = browser.get(f"{forge.base}/").text
    assert names(page) == ["present"]
    assert "/s/repo/?archived=1" in page
    assert names(browser.get(f"{forge.base}/?archived=1").text) == ["archived"]


def test_text_of_agents_is_escaped(forge: OpenForge) -> None:
    forge.space.spawn("scout", clia.Briefing(title=ATTACK, text=ATTACK))
    forge.space.ask("scout", {"question": ATTACK})
    forge.space.commit("scout", "finding", changes={"a": b"1"}, message=ATTACK)
    page = forge.browser().get(f"{forge.base}/").text
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2
    assert_harmless(page)


def test_an_empty_space_shows_what_to_do(forge: OpenForge) -> None:
    page = forge.browser().get(f"{forge.base}/").text
    assert "No agents yet" in page
    assert "clia spawn NAME" in page


# Health


def test_health_shows_session_problems_and_failed_attempts(forge: OpenForge) -> None:
    space = forge.space
    browser = forge.browser()
    assert "no session problems found" in browser.get(f"{forge.base}/health").text
    space.spawn("scout", BRIEFING)
    space.sessions.define("question", QUESTION)
    space.start("scout", "question", {"kind": "llm", "payload": {}})
    request = space.pending()[0]
    queue = space.local.queue
    claim = queue.claim([Task("scout", request.id, "llm")], "worker", 0.0, 60.0)
    assert claim is not None
    queue.retry(claim, 0.0, f"no answer {ATTACK}")
    with space.local.store.writing() as change:  # the row contradicts the events
        row = dict(change.values.get("live/scout/1").value)  # type: ignore[union-attr]
        change.values.put("live/scout/1", {**row, "status": "finished"})
    page = browser.get(f"{forge.base}/health").text
    assert "session problem" in page
    assert "nothing is wrong" not in page
    assert "no answer &lt;script&gt;" in page
    assert_harmless(page)
    assert "1 request has failed attempts" in browser.get(f"{forge.base}/").text


def test_the_number_of_pending_questions_can_be_requested_alone(forge: OpenForge) -> None:
    browser = forge.browser()
    assert browser.get(f"{forge.base}/waiting").json() == {"waiting": 0}
    forge.space.spawn("scout", BRIEFING)
    forge.space.ask("scout", {"question": "Go?"})
    assert browser.get(f"{forge.base}/waiting").json() == {"waiting": 1}
    assert forge.stranger().get(f"{forge.base}/waiting").status_code == 303


# Spawning

FORM = {"name": "scout", "title": "Look around", "text": "Find\r\nit.", "from": "", "slug": ""}


def test_an_administrator_can_spawn_an_agent(forge: OpenForge) -> None:
    answer = forge.browser().post(f"{forge.base}/", FORM)
    assert (answer.status_code, answer.headers["location"]) == (303, "/s/repo/agents/scout")
    assert forge.space.agents.briefing("scout").text == "Find\nit."


def test_an_agent_spawned_from_another_is_its_sub_agent(forge: OpenForge) -> None:
    forge.space.spawn("elder", BRIEFING)
    head = forge.space.commit("elder", "finding", changes={"a": b"1"}, message="a")
    assert forge.browser().post(f"{forge.base}/", FORM | {"from": "elder"}).status_code == 303
    assert forge.space.relations.parent("scout") == "elder"
    assert forge.browser().post(f"{forge.base}/", FORM | {"name": "other", "from": head[:12]}).status_code == 303
    assert forge.space.files("other") == {"a": b"1"}
    assert forge.space.relations.parent("other") is None


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"name": "Not a name"}, 422),
        ({"name": ""}, 422),
        ({"title": ""}, 422),
        ({"title": "two\nlines"}, 422),
        ({"from": "nobody"}, 404),
        ({"slug": "nobody"}, 404),
        ({"name": "taken"}, 409),
    ],
)
def test_an_invalid_form_is_shown_again_with_its_input(forge: OpenForge, change: dict[str, str], status: int) -> None:
    forge.space.spawn("taken", BRIEFING)
    answer = forge.browser().post(f"{forge.base}/", {**FORM, "text": f"kept {ATTACK}", **change})
    assert answer.status_code == status
    assert 'class="problem" role="alert"' in answer.text
    assert "kept &lt;script&gt;" in answer.text
    assert forge.space.agents() == ["taken"]
    assert_harmless(answer.text)


@pytest.mark.parametrize("role", ["viewer", "decider"])
def test_other_roles_neither_see_the_form_nor_can_send_it(forge: OpenForge, role: str) -> None:
    browser = forge.browser("guest", role)
    assert "Spawn an agent" not in browser.get(f"{forge.base}/").text
    assert browser.post(f"{forge.base}/", FORM).status_code == 403
    assert forge.space.agents() == []


def test_a_form_of_another_site_spawns_nothing(forge: OpenForge) -> None:
    assert forge.browser().post(f"{forge.base}/", FORM, csrf="forged").status_code == 403
    assert forge.space.agents() == []
