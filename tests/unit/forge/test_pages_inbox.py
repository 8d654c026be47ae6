"""The inbox: questions for people, and the answers of users."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import StaleRequest
from clia.forge.pages import inbox
from clia.trust.statements import question_digest
from support.fake_secrets import FAKES
from support.forge import ATTACK, assert_harmless, open_forge
from support.session_flows import APPROVAL, PARTS, QUESTION
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from pathlib import Path

    from support.forge import OpenForge

CHOICES = {"question": "Deploy?", "choices": ["approve", "reject"]}
SCHEMA = {
    "question": "What is it called?",
    "schema": {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1}, "count": {"type": "integer", "minimum": 1}},
        "required": ["name", "count"],
    },
}


@pytest.fixture
def forge(forge: OpenForge) -> OpenForge:
    forge.space.sessions.define("question", QUESTION)
    return forge


def ask(forge: OpenForge, payload: Any, agent: str = "scout") -> str:
    """Ask a question, and return its address."""
    return f"{forge.base}/inbox/{agent}/{forge.space.ask(agent, payload).id}"


def questions(page: str) -> list[str]:
    return [html.unescape(title) for title in re.findall(r'<h2 class="wrap" id="q\.[^"]*:title">([^<]*)</h2>', page)]


def decision(forge: OpenForge, agent: str = "scout") -> Any:
    commit = forge.space.show(agent)
    assert commit.kind == "decision"
    return commit


# Pages


def test_questions_are_listed_oldest_first_with_their_context(forge: OpenForge) -> None:
    space = forge.space
    space.start("scout", "question", {"payload": {**CHOICES, "plan": {"steps": ["drain"]}}})
    ask(forge, {"question": "Second?"}, "smith")
    page = forge.browser().get(f"{forge.base}/inbox").text
    assert questions(page) == ["Deploy?", "Second?"]
    for part in ("/s/repo/agents/scout", "/s/repo/sessions/scout/1", "/s/repo/inbox/scout/1.1", "flow question", "drain"):
        assert part in page
    assert "<title>(2) Inbox" in page
    assert re.search(r'<button type="submit" name="v" value="&#34;approve&#34;">approve</button>', page)


def test_an_empty_inbox_has_a_message(forge: OpenForge) -> None:
    assert "No pending questions" in forge.browser().get(f"{forge.base}/inbox").text


def test_the_inbox_can_be_filtered_by_agent_flow_and_question(forge: OpenForge) -> None:
    ask(forge, {"question": "Red?"})
    ask(forge, {"question": "Blue?"}, "smith")
    forge.space.start("scout", "question", {"payload": {"question": "Green?"}})
    browser = forge.browser()
    results = [questions(browser.get(f"{forge.base}/inbox?q={word}").text) for word in ("SMITH", "red", "question", "nothing")]
    assert results == [["Blue?"], ["Red?"], ["Green?"], []]


def test_questions_are_paged(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "PAGE", 2)
    for number in range(3):
        ask(forge, {"question": f"Number {number}?"})
    browser = forge.browser()
    assert questions(browser.get(f"{forge.base}/inbox").text) == ["Number 0?", "Number 1?"]
    assert questions(browser.get(f"{forge.base}/inbox?page=2").text) == ["Number 2?"]


def test_later_links_to_the_next_question_and_changes_nothing(forge: OpenForge) -> None:
    first, second = ask(forge, {"question": "One?"}), ask(forge, {"question": "Two?"})
    browser = forge.browser()
    assert f'<a class="later" href="{second}" data-later>' in browser.get(first).text
    assert f'<a class="later" href="{first}" data-later>' in browser.get(second).text
    assert len(forge.space.pending()) == 2


def test_requests_for_workers_are_folded_away(forge: OpenForge) -> None:
    forge.space.start("scout", "question", {"kind": "llm", "payload": {"prompt": ATTACK}})
    page = forge.browser().get(f"{forge.base}/inbox").text
    assert questions(page) == []
    assert "Waiting for workers" in page
    assert "/s/repo/inbox/scout/1.1" in page


def test_a_request_for_workers_has_no_form_and_accepts_no_decision(forge: OpenForge) -> None:
    forge.space.start("scout", "question", {"kind": "llm", "payload": {"prompt": "a plan"}})
    browser, address, head = forge.browser(), f"{forge.base}/inbox/scout/1.1", forge.space.head("scout")
    page = browser.get(address).text
    assert "Not a question to people" in page
    assert f'action="{address}"' not in page
    answer = browser.post(address, {"v": '"yes"'})
    assert (answer.status_code, "not-a-human-request" in answer.text) == (409, True)
    assert "clia session resume scout VALUE --request 1.1" in answer.text
    several = browser.post(f"{forge.base}/inbox", {"pick": "scout/1.1", "v": '"yes"'})
    assert several.status_code == 409
    assert forge.space.head("scout") == head


def test_the_content_of_a_question_is_shown_as_text(forge: OpenForge) -> None:
    ask(forge, {"question": ATTACK, ATTACK: {"deep": [ATTACK]}, "note": ATTACK, "choices": [ATTACK, "no"]})
    ask(
        forge,
        {
            "question": f"{ATTACK}\n{ATTACK}",
            "schema": {"type": "object", "title": ATTACK, "properties": {ATTACK: {"type": "string"}}},
        },
    )
    address = ask(forge, ATTACK)
    browser = forge.browser()
    for link in (f"{forge.base}/inbox", address):
        page = browser.get(link).text
        assert "&lt;script&gt;alert(1)" in page
        assert_harmless(page)
    first = address.replace("ask-3.1", "ask-1.1")
    for link in (address, first):
        forge.space.decide("scout", ATTACK, ATTACK, by=ATTACK.replace("\n", ""), request_id=link.rpartition("/")[2])
    for link in (f"{forge.base}/inbox", address, first):
        page = browser.get(link).text
        assert "&lt;script&gt;alert(1)" in page
        assert_harmless(page)


def test_a_question_with_an_invalid_rule_hides_no_other(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[answers.human-legal]\nschema = {type = 5}\n")
    with open_forge(tmp_path, config=str(config)) as forge:
        forge.space.spawn("scout", BRIEFING)
        forge.space.sessions.define("question", QUESTION)
        forge.space.start("scout", "question", {"kind": "human-legal", "payload": {"question": "Legal?"}})
        ask(forge, {"question": "Plain?"})
        page = forge.browser().get(f"{forge.base}/inbox")
        assert page.status_code == 200
        assert questions(page.text) == ["Legal?", "Plain?"]
        assert "is not a valid JSON Schema" in page.text
        assert forge.browser().post(f"{forge.base}/inbox/scout/1.1", {"v": "1"}).status_code == 422


# Decisions


def test_a_decision_is_recorded_by_the_user_and_shown_afterwards(forge: OpenForge) -> None:
    address = ask(forge, CHOICES)
    browser = forge.browser("ada", "decider", "Ada Lovelace", "ada@example.org")
    answer = browser.post(address, {"v": '"approve"', "rationale": "It is\r\nsafe."})
    commit = decision(forge)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/s/repo/inbox?decided={commit.cid}")
    assert (commit.by, commit.value, commit.message) == ("Ada Lovelace <ada@example.org>", '"approve"', "It is\nsafe.")
    page = browser.get(answer.headers["location"]).text
    assert 'id="decided-notice"' in page
    assert page.count(f"/s/repo/commits/{commit.cid}") == 2, "in the notice and in the list of decisions"
    assert "It is\nsafe." in page
    assert questions(page) == []


def test_a_redacted_answer_is_reported_with_what_the_flow_gets(forge: OpenForge) -> None:
    browser = forge.browser()
    answer = browser.post(ask(forge, {"question": "Which key?"}), {"v": f"use {FAKES[0].text}", "v.as_text": "on"})
    page = html.unescape(browser.get(answer.headers["location"]).text)
    assert "Secrets in it were redacted before it was recorded" in page
    assert FAKES[0].secret not in page
    session = forge.space.sessions.get("scout", "ask-1")
    assert session.result == "use [redacted:github-token]"
    assert "1 secret in its input, answers or result" in browser.get(f"{forge.base}/sessions/scout/ask-1").text
    browser.post(ask(forge, {"question": "Which key?", "secret": "keep"}), {"v": FAKES[0].text, "v.as_text": "on"})
    assert forge.space.sessions.get("scout", "ask-2").result == FAKES[0].text


def test_decisions_are_listed_newest_first_even_without_the_feed(forge: OpenForge) -> None:
    for number in range(22):
        address = ask(forge, {"question": f"Number {number}?"})
        forge.space.decide("scout", number, f"Reason {number}.", request_id=address.rpartition("/")[2])
    browser = forge.browser()

    def rationales() -> list[str]:
        return re.findall(r"Reason (\d+)\.", browser.get(f"{forge.base}/inbox").text)

    assert rationales() == [str(number) for number in range(21, 1, -1)]
    forge.forge.sites["repo"].feed.trim(0)
    assert rationales() == [str(number) for number in range(21, 1, -1)]


def test_a_decision_without_a_rationale_shows_none(forge: OpenForge) -> None:
    browser = forge.browser()
    browser.post(ask(forge, CHOICES), {"v": '"reject"'})
    assert decision(forge).message.startswith("decision: ")
    assert "decision: " not in browser.get(f"{forge.base}/inbox").text


def test_fields_are_read_by_the_requests_schema(forge: OpenForge) -> None:
    answer = forge.browser().post(ask(forge, SCHEMA), {"v.name": "Ada", "v.count": "3"})
    assert answer.status_code == 303
    assert json.loads(decision(forge).value) == {"name": "Ada", "count": 3}


def test_a_form_can_be_answered_as_json(forge: OpenForge) -> None:
    address = ask(forge, SCHEMA)
    browser = forge.browser()
    assert 'name="_as" value="json"' in browser.get(f"{address}?as=json").text
    assert browser.post(address, {"_as": "json", "v": '{"name": "Ada", "count": 3}'}).status_code == 303
    assert json.loads(decision(forge).value) == {"name": "Ada", "count": 3}


def test_a_question_without_a_rule_accepts_json_or_text(forge: OpenForge) -> None:
    browser = forge.browser()
    assert browser.post(ask(forge, {"question": "What?"}), {"v": "[1, 2]"}).status_code == 303
    assert decision(forge).value == "[1,2]"
    assert browser.post(ask(forge, {"question": "What?"}), {"v": "[1, 2]", "v.as_text": "on"}).status_code == 303
    assert decision(forge).value == '"[1, 2]"'


@pytest.mark.parametrize(
    ("payload", "fields", "reason"),
    [
        (CHOICES, {"v": '"later"'}, "choose one of the options"),
        (CHOICES, {}, "choose one of the options"),
        (SCHEMA, {"v.name": "Ada", "v.count": "0"}, "less than the minimum"),
        (SCHEMA, {"v.name": "", "v.count": "x"}, "not a whole number"),
        ({"question": "What?"}, {"v": "{"}, "not JSON"),
        ({"question": "What?"}, {"v": ""}, "required"),
        ({"question": "What?"}, {"v": '"a\\u0000"', "rationale": "a\0"}, "NUL"),
    ],
)
def test_an_invalid_answer_is_shown_again_with_the_reason_and_changes_nothing(
    forge: OpenForge, payload: Any, fields: dict[str, str], reason: str
) -> None:
    address = ask(forge, payload)
    head = forge.space.head("scout")
    answer = forge.browser().post(address, {"rationale": f"my reason {ATTACK}", **fields})
    assert answer.status_code == 422
    assert reason in html.unescape(answer.text)
    assert "rationale" in fields or "my reason &lt;script&gt;" in answer.text
    assert "data-edited" in answer.text, "a refresh does not discard the input"
    assert (forge.space.head("scout"), len(forge.space.pending())) == (head, 1)
    assert_harmless(answer.text)


def test_a_viewer_sees_questions_and_cannot_decide(forge: OpenForge) -> None:
    address = ask(forge, CHOICES)
    browser = forge.browser("vera", "viewer")
    page = browser.get(address).text
    assert questions(page) == ["Deploy?"]
    assert f'action="{address}"' not in page
    assert browser.post(address, {"v": '"approve"'}).status_code == 403
    assert browser.post(f"{forge.base}/inbox", {"v": '"approve"', "pick": "scout/ask-1.1"}).status_code == 403
    assert len(forge.space.pending()) == 1


def test_a_form_of_another_site_decides_nothing(forge: OpenForge) -> None:
    address = ask(forge, CHOICES)
    assert forge.browser().post(address, {"v": '"approve"'}, csrf="").status_code == 403
    assert forge.stranger().post(address, {"v": '"approve"'}).status_code == 401
    assert len(forge.space.pending()) == 1


# Answered questions


def test_a_decided_question_stays_readable(forge: OpenForge) -> None:
    """A flow's question is kept only in the decision's commit; the list, the page and its title show it."""
    forge.space.start("scout", "question", {"payload": {**CHOICES, "plan": {"steps": ["drain the queue"]}}})
    forge.space.decide("scout", "approve", "Safe.", by="Ada")
    browser, address = forge.browser(), f"{forge.base}/inbox/scout/1.1"
    decided = browser.get(f"{forge.base}/inbox").text.partition('id="decided"')[2]
    assert f'<a class="wrap" href="{address}">Deploy?</a>' in decided
    page = browser.get(address).text
    assert questions(page) == ["Deploy?"]
    assert "<title>Deploy?" in page
    assert "drain the queue" in page
    assert re.findall(r'<span class="chip([^"]*)">(✓ )?(\w+)', page) == [(" taken", "✓ ", "approve"), ("", "", "reject")]
    for part in ("Answered by Ada", "Safe.", f"/s/repo/commits/{decision(forge).cid}"):
        assert part in page, part


def test_the_chosen_option_is_distinguished_from_similar_ones(forge: OpenForge) -> None:
    forge.space.start("scout", "question", {"payload": {"question": "Which?", "choices": [1, True, "1"]}})
    forge.space.decide("scout", True)
    page = forge.browser().get(f"{forge.base}/inbox/scout/1.1").text
    assert [bool(taken) for taken in re.findall(r'<span class="chip( taken)?">', page)] == [False, True, False]


def test_a_long_question_is_shortened_in_the_decision_and_complete_if_it_was_asked_directly(forge: OpenForge) -> None:
    """A decision keeps only the question of a large payload; the session of ``ask`` has all of it."""
    large = {"question": "Long?", "log": "drain " * 40_000, "choices": ["yes", "no"]}
    forge.space.start("scout", "question", {"payload": large})
    forge.space.decide("scout", "yes")
    cut = {"asked": {"question": "Long?"}, "cut": True, "asked_sha256": question_digest(large), "kind": "human"}
    assert decision(forge).meta == cut
    browser = forge.browser()
    page = browser.get(f"{forge.base}/inbox/scout/1.1").text
    assert questions(page) == ["Long?"]
    assert "too long to store" in page
    address = ask(forge, large)
    forge.space.decide("scout", "yes", request_id=address.rpartition("/")[2])
    page = browser.get(address).text
    assert questions(page) == ["Long?"]
    assert "too long to store" not in page
    assert "drain drain" in page


def test_a_decision_without_its_question_is_shown_by_its_request(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    """As written by older versions."""
    forge.space.start("scout", "question", {"payload": CHOICES})
    forge.space.decide("scout", "approve", "Safe.", by="Ada")
    show = forge.space.show
    monkeypatch.setattr(forge.space, "show", lambda cid: show(cid)._replace(meta={}))
    browser = forge.browser()
    assert '<a href="/s/repo/inbox/scout/1.1">scout <span class="mono">1.1</span></a>' in browser.get(f"{forge.base}/inbox").text
    page = browser.get(f"{forge.base}/inbox/scout/1.1").text
    assert questions(page) == ["Request 1.1"]
    assert "<title>Request 1.1" in page
    assert "Answered by Ada" in page


@pytest.mark.parametrize("payload", [None, 5, [], ["a"], {}, {"question": 5}, "", " ", {"choices": []}, {"choices": [{"a": [1]}]}])
def test_the_answer_to_any_payload_can_be_read(forge: OpenForge, payload: Any) -> None:
    forge.space.start("scout", "question", {"payload": payload})
    forge.space.decide("scout", {"a": [1]})
    browser = forge.browser()
    pages = ("inbox", "inbox/scout/1.1", "sessions/scout/1", f"commits/{decision(forge).cid}")
    assert [browser.get(f"{forge.base}/{page}").status_code for page in pages] == [200] * 4


# Late answers


def test_a_late_answer_shows_the_first_one_and_keeps_its_input(forge: OpenForge) -> None:
    address = ask(forge, CHOICES)
    forge.browser("ada", "decider", "Ada").post(address, {"v": '"approve"', "rationale": "Safe."})
    commit = decision(forge)
    answer = forge.browser("bob", "decider", "Bob").post(address, {"v": '"reject"', "rationale": f"Too early {ATTACK}"})
    assert answer.status_code == 409
    for part in (
        "Answered by Ada",
        "approve",
        "Safe.",
        f"/s/repo/commits/{commit.cid}",
        "Too early &lt;script&gt;",
        "&#34;reject&#34;",
    ):
        assert part in answer.text, part
    assert decision(forge).cid == commit.cid
    assert_harmless(answer.text)


def test_simultaneous_answers_are_handled_like_late_ones(forge: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other answer arrives after ours was checked."""
    address = ask(forge, CHOICES)
    space = forge.space
    decide = space.decide

    def decide_late(agent: str, value: Any, rationale: str = "", **more: Any) -> Any:
        decide(agent, "approve", "First.", by="Ada", request_id=more["request_id"])
        monkeypatch.undo()
        return decide(agent, value, rationale, **more)

    monkeypatch.setattr(space, "decide", decide_late)
    answer = forge.browser("bob").post(address, {"v": '"reject"', "rationale": "Mine."})
    assert answer.status_code == 409
    assert "Answered by Ada" in answer.text
    assert "Mine." in answer.text


def test_the_page_of_an_answered_request_shows_the_answer(forge: OpenForge) -> None:
    forge.space.sessions.define("approval", APPROVAL)
    forge.space.start("scout", "approval", {"goal": "x"})
    forge.space.resume("scout", "the plan", by="worker 7")
    forge.space.decide("scout", "approve", "Fine.", by="Ada")
    browser = forge.browser()
    by_worker = browser.get(f"{forge.base}/inbox/scout/1.1")
    by_person = browser.get(f"{forge.base}/inbox/scout/1.2")
    assert (by_worker.status_code, by_person.status_code) == (200, 200)
    assert "Answered by worker 7" in by_worker.text
    assert "Answered by Ada" in by_person.text
    assert "data-answered" in by_person.text


def test_a_request_that_was_given_up_shows_the_reason(forge: OpenForge) -> None:
    forge.space.start("scout", "question", {"kind": "llm", "payload": {}})
    forge.space.sessions.give_up("scout", f"no model {ATTACK}", by="worker 7")
    page = forge.browser().get(f"{forge.base}/inbox/scout/1.1").text
    assert "Given up by worker 7" in page
    assert "no model &lt;script&gt;" in page


def test_a_question_of_a_cancelled_session_is_shown_as_unanswered(forge: OpenForge) -> None:
    forge.space.start("scout", "question", {"payload": CHOICES})
    forge.space.cancel("scout", "not needed")
    browser = forge.browser()
    page = browser.get(f"{forge.base}/inbox/scout/1.1")
    assert page.status_code == 200
    assert "session 1 is cancelled" in page.text
    answer = browser.post(f"{forge.base}/inbox/scout/1.1", {"v": '"approve"', "rationale": "kept"})
    assert answer.status_code == 409
    assert "kept" in answer.text


@pytest.mark.parametrize(
    "path", ["scout/1.9", "scout/2.1", "scout/x", "scout/1.x", "scout/ask-9.1", "nobody/1.1", "No%20body/1.1", "scout/%00"]
)
def test_an_unknown_request_is_not_found(forge: OpenForge, path: str) -> None:
    forge.space.start("scout", "question", {"payload": CHOICES})
    forge.space.decide("scout", "approve")
    browser = forge.browser()
    assert browser.get(f"{forge.base}/inbox/{path}").status_code == 404
    assert browser.post(f"{forge.base}/inbox/{path}", {"v": "1"}).status_code == 404


# Several answers at once


def test_questions_with_the_same_choices_can_be_answered_together(forge: OpenForge) -> None:
    first, second = ask(forge, CHOICES), ask(forge, CHOICES, "smith")
    ask(forge, {"question": "Other?", "choices": ["a", "b"]})
    browser = forge.browser("ada", display="Ada")
    page = browser.get(f"{forge.base}/inbox").text
    assert "2 questions with the choices" in page
    assert page.count('name="pick"') == 2, "the question with other choices cannot be selected"
    picked = ["scout/ask-1.1", "smith/ask-1.1"]
    answer = browser.post(f"{forge.base}/inbox", {"pick": picked, "v": '"approve"', "rationale": "Both."})
    assert answer.status_code == 200
    for address, agent in ((first, "scout"), (second, "smith")):
        commit = decision(forge, agent)
        assert (commit.value, commit.message, commit.by) == ('"approve"', "Both.", "Ada")
        assert address in answer.text
        assert f"/s/repo/commits/{commit.cid}" in answer.text
    assert questions(answer.text) == ["Other?"]


def test_each_of_several_answers_has_its_own_outcome(forge: OpenForge) -> None:
    ask(forge, CHOICES)
    ask(forge, CHOICES, "smith")
    forge.space.decide("smith", "reject", by="Bob", request_id="ask-1.1")
    picked = ["scout/ask-1.1", "smith/ask-1.1", "nobody/1.1", ATTACK]
    answer = forge.browser().post(f"{forge.base}/inbox", {"pick": picked, "v": '"approve"'})
    assert answer.status_code == 200
    assert decision(forge).value == '"approve"'
    assert "answered by Bob" in answer.text
    assert answer.text.count("not recorded") == 3
    assert_harmless(answer.text)


def test_failed_answers_are_an_error_and_keep_the_rationale(forge: OpenForge) -> None:
    ask(forge, CHOICES)
    ask(forge, CHOICES, "smith")
    answer = forge.browser().post(f"{forge.base}/inbox", {"pick": ["scout/ask-1.1"], "v": '"maybe"', "rationale": "kept"})
    assert answer.status_code == 422
    assert "kept</textarea>" in answer.text
    assert re.search(r'value="scout/ask-1\.1"[^>]* checked', answer.text)
    assert len(forge.space.pending()) == 2


@pytest.mark.parametrize("picked", [[], [f"scout/{number}.1" for number in range(101)]])
def test_no_or_too_many_selected_questions_are_refused(forge: OpenForge, picked: list[str]) -> None:
    ask(forge, CHOICES)
    assert forge.browser().post(f"{forge.base}/inbox", {"pick": picked, "v": '"approve"'}).status_code == 422
    assert len(forge.space.pending()) == 1


def test_parallel_questions_of_a_session_are_answered_one_by_one(forge: OpenForge) -> None:
    forge.space.sessions.define("parts", PARTS.replace('"part"', '"human"').replace('"last"', '"human"'))
    forge.space.start("scout", "parts", 2)
    browser = forge.browser()
    assert browser.post(f"{forge.base}/inbox/scout/1.2", {"v": "2"}).status_code == 303
    assert [request.id for request in forge.space.pending()] == ["1.1"]
    assert browser.post(f"{forge.base}/inbox/scout/1.2", {"v": "3"}).status_code == 409
    with pytest.raises(StaleRequest):
        forge.space.decide("scout", 3, request_id="1.2")
