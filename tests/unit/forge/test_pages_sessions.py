"""The pages of sessions: the list, the timeline, pending requests, and the actions of administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.forge import ATTACK, assert_harmless
from support.session_flows import APPROVAL, COUNTING, PRODUCT, QUESTION
from support.session_spaces import with_agents
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from support.forge import OpenForge

FAILING = """\
def main(input):
    request("first", input)
    raise ValueError(input)
"""


@pytest.fixture
def forge(empty_forge: OpenForge) -> OpenForge:
    flows = {"plan": APPROVAL, "product": PRODUCT, "failing": FAILING, "count": COUNTING}
    with_agents(empty_forge.space, "scout", "digger", **flows)
    return empty_forge


def test_the_list_has_live_sessions_first_and_can_be_filtered(forge: OpenForge) -> None:
    space = forge.space
    space.start("digger", "plan", {"goal": "x"})
    space.resume("digger", "y")
    space.start("scout", "product")
    space.cancel("scout", "enough")
    browser = forge.browser("eve", "viewer")
    page = browser.get(f"{forge.base}/sessions").text
    assert page.index("/sessions/digger/1") < page.index("/sessions/scout/1")
    assert f'href="{forge.base}/inbox/digger/1.2"' in page
    ended = browser.get(f"{forge.base}/sessions?status=cancelled").text
    assert "/sessions/scout/1" in ended
    assert "/sessions/digger/1" not in ended
    assert "/sessions/scout/1" not in browser.get(f"{forge.base}/sessions?agent=digger").text
    assert "No matching sessions" in browser.get(f"{forge.base}/sessions?status=%3Cb%3E").text


def test_an_empty_list_shows_how_to_start_a_session(forge: OpenForge) -> None:
    assert "clia session start" in forge.browser().get(f"{forge.base}/sessions").text


def test_sessions_are_paged(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clia.forge.pages.sessions.PAGE", 2)
    for _ in range(3):
        forge.space.start("scout", "product")
        forge.space.cancel("scout")
    browser = forge.browser()
    first = browser.get(f"{forge.base}/sessions").text
    assert "?from=2" in first
    assert browser.get(f"{forge.base}/sessions?from=2").text.count("/sessions/scout/") == 1


def test_requests_answers_and_pending_questions_are_shown(forge: OpenForge) -> None:
    space = forge.space
    space.start("scout", "plan", {"goal": f"goal {ATTACK}"})
    space.resume("scout", {"answer": f"plan {ATTACK}"}, by="a worker")
    browser = forge.browser()
    page = browser.get(f"{forge.base}/sessions/scout/1").text
    assert_harmless(page)
    assert "goal &lt;script&gt;" in page
    assert "by a worker" in page
    assert f'href="{forge.base}/inbox/scout/1.2"' in page
    assert '<tr id="line-4" class="waits-here">' in page
    assert "/sessions/scout/1/resume" not in page
    cid = space.decide("scout", "approve", f"Good {ATTACK}", by="Ada").cid
    page = browser.get(f"{forge.base}/sessions/scout/1").text
    assert_harmless(page)
    assert f'href="{forge.base}/commits/{cid}"' in page
    assert "by Ada" in page
    assert "Good &lt;script&gt;" in page
    assert f'<p class="wrap"><a href="{forge.base}/inbox/scout/1.2">Go on?</a></p>' in page
    assert "Result" in page
    assert "waits-here" not in page


def test_a_failure_is_shown_with_its_line(forge: OpenForge) -> None:
    forge.space.start("scout", "failing", ATTACK)
    forge.space.resume("scout", 1)
    page = forge.browser().get(f"{forge.base}/sessions/scout/1").text
    assert_harmless(page)
    assert "Failure" in page
    assert '<tr id="line-3" class="failed-here">' in page


def test_a_long_timeline_starts_at_its_end(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clia.forge.pages.sessions.EVENTS", 3)
    forge.space.start("scout", "count", 9)
    for number in range(5):
        forge.space.resume("scout", number)
    browser = forge.browser()
    last = browser.get(f"{forge.base}/sessions/scout/1").text
    assert 'id="event-6"' in last
    assert 'id="event-3"' not in last
    assert f'href="{forge.base}/sessions/scout/1?from=0"' in last
    assert 'id="event-1"' in browser.get(f"{forge.base}/sessions/scout/1?from=0").text


def test_a_question_beside_the_session_has_its_own_page(forge: OpenForge) -> None:
    request = forge.space.ask("scout", {"question": f"Well {ATTACK}?"})
    page = forge.browser().get(f"{forge.base}/sessions/scout/{request.session}")
    assert page.status_code == 200
    assert f"/inbox/scout/{request.id}" in page.text
    assert "Fork here" not in page.text
    assert_harmless(page.text)


@pytest.mark.parametrize("address", ["scout/1", "scout/x", "nobody/1", "No Name/1", "scout/%00", "scout/" + "9" * 500, "scout/é"])
def test_an_unknown_session_is_a_404(forge: OpenForge, address: str) -> None:
    assert forge.browser().get(f"{forge.base}/sessions/{address}").status_code == 404


def test_an_administrator_can_resume_with_json_or_text(forge: OpenForge) -> None:
    space = forge.space
    space.start("scout", "plan", {"goal": "x"})
    browser = forge.browser("ada", "admin", "Ada", "ada@example.org")
    address = f"{forge.base}/sessions/scout/1"
    assert "/resume" in browser.get(address).text
    answer = browser.post(f"{address}/resume", {"request": "1.1", "v": '{"a": [1]}'})
    assert (answer.status_code, answer.headers["location"]) == (303, address)
    assert space.session("scout").resumes == [{"a": [1]}]
    assert space.session("scout").given()[0].by == "Ada <ada@example.org>"
    space.start("digger", "plan", {"goal": "x"})
    browser.post(f"{forge.base}/sessions/digger/1/resume", {"request": "1.1", "v": "plain", "v.as_text": "on"})
    assert space.session("digger").resumes == ["plain"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"request": "1.1", "v": "{no json"}, 422),
        ({"request": "1.1", "v": ""}, 422),
        ({"request": "1.7", "v": "1"}, 422),
        ({"request": "2.1", "v": "1"}, 422),
        ({"v": "1"}, 422),
    ],
)
def test_a_refused_resume_is_shown_again(forge: OpenForge, fields: dict[str, str], status: int) -> None:
    forge.space.start("scout", "plan", {"goal": "x"})
    answer = forge.browser().post(f"{forge.base}/sessions/scout/1/resume", fields)
    assert answer.status_code == status
    assert 'id="resume-problem"' in answer.text
    assert forge.space.session("scout").resumes == []
    if fields.get("v") == "{no json":
        assert "{no json</textarea>" in answer.text


def test_a_late_answer_names_the_first_one(forge: OpenForge) -> None:
    forge.space.start("scout", "product")
    forge.space.resume("scout", 2, by="a worker")
    answer = forge.browser().post(f"{forge.base}/sessions/scout/1/resume", {"request": "1.1", "v": "3"})
    assert answer.status_code == 409
    assert "a worker" in answer.text


def test_a_question_for_people_cannot_be_resumed(forge: OpenForge) -> None:
    forge.space.sessions.define("question", QUESTION)
    forge.space.start("scout", "question", {"payload": {"question": "Well?"}})
    answer = forge.browser().post(f"{forge.base}/sessions/scout/1/resume", {"request": "1.1", "v": "1"})
    assert answer.status_code == 403
    assert forge.space.session("scout").status == "suspended"


def test_an_administrator_can_give_up_a_request(forge: OpenForge) -> None:
    forge.space.start("scout", "product")
    browser = forge.browser()
    answer = browser.post(f"{forge.base}/sessions/scout/1/give-up", {"request": "1.1", "reason": f"no {ATTACK}"})
    assert answer.status_code == 303
    page = browser.get(f"{forge.base}/sessions/scout/1").text
    assert_harmless(page)
    assert "given up: no &lt;script&gt;" in page
    assert forge.space.session("scout").status == "failed"


def test_an_administrator_can_retry_a_failed_session(forge: OpenForge) -> None:
    forge.space.start("scout", "product")
    forge.space.sessions.give_up("scout", "no luck")
    browser = forge.browser()
    address = f"{forge.base}/sessions/scout/1"
    page = browser.get(address).text
    assert "Retry session 1" in page
    assert "Cancel session 1" not in page
    assert "Retry session 1" not in forge.browser("viewer", "viewer").get(address).text
    retried = browser.post(f"{address}/retry", {"reason": f"again {ATTACK}"})
    assert (retried.status_code, retried.headers["location"]) == (303, address)
    page = browser.get(address).text
    assert_harmless(page)
    assert "request 1.1 again: again &lt;script&gt;" in page
    assert forge.space.session("scout").status == "suspended"
    assert forge.space.sessions.journal("scout")[-1]["by"] == "ada"
    again = browser.post(f"{address}/retry", {"reason": "x"})
    assert again.status_code == 409
    assert 'id="retry-problem"' in again.text


def test_an_administrator_can_fork_and_cancel_a_session(forge: OpenForge) -> None:
    forge.space.start("scout", "product")
    browser = forge.browser()
    address = f"{forge.base}/sessions/scout/1"
    forked = browser.post(f"{address}/forks", {"name": "twin"})
    assert forked.headers["location"] == f"{forge.base}/sessions/twin/1"
    assert f'href="{address}"' in browser.get(forked.headers["location"]).text
    assert browser.post(f"{address}/forks", {"name": "twin"}).status_code == 409
    cancelled = browser.post(f"{address}/cancel", {"reason": f"enough {ATTACK}"})
    assert (cancelled.status_code, cancelled.headers["location"]) == (303, address)
    page = browser.get(address).text
    assert_harmless(page)
    assert "Cancellation reason" in page
    assert "enough &lt;script&gt;" in page
    again = browser.post(f"{address}/cancel")
    assert again.status_code in (409, 422)
    assert 'id="cancel-problem"' in again.text
    assert browser.post(f"{address}/forks", {"name": "late"}).status_code == 422


@pytest.mark.parametrize("action", ["resume", "give-up", "forks", "cancel", "retry"])
def test_only_administrators_can_act_and_only_from_our_own_pages(forge: OpenForge, action: str) -> None:
    forge.space.start("scout", "product")
    fields = {"request": "1.1", "v": "1", "reason": "x", "name": "twin"}
    address = f"{forge.base}/sessions/scout/1"
    for role in ("viewer", "decider"):
        browser = forge.browser(role, role)
        assert browser.post(f"{address}/{action}", fields).status_code == 403
        page = browser.get(address).text
        assert f"/sessions/scout/1/{action}" not in page
    assert forge.browser().post(f"{address}/{action}", fields, csrf="wrong").status_code == 403
    assert forge.space.session("scout").to_json()["status"] == "suspended"
    assert forge.space.session("scout").resumes == []
    assert forge.space.agents() == ["digger", "scout"]


def test_an_unreadable_event_is_shown_as_it_is(forge: OpenForge) -> None:
    forge.space.start("scout", "product")
    with forge.forge.home.writing() as change:
        change.streams.append(
            "session/scout/1", [{"event": "resumed", "resume": "<b>odd</b>"}, {"event": "<b>"}, {"event": "copied"}]
        )
    answer = forge.browser().get(f"{forge.base}/sessions/scout/1")
    assert answer.status_code == 200
    assert "&lt;b&gt;odd&lt;/b&gt;" in answer.text
    assert "<b>" not in answer.text


def test_a_session_of_an_archived_agent_can_still_be_read(forge: OpenForge) -> None:
    forge.space.spawn("old", BRIEFING)
    forge.space.start("old", "product")
    forge.space.cancel("old")
    forge.space.agents.archive("old")
    assert forge.browser().get(f"{forge.base}/sessions/old/1").status_code == 200
