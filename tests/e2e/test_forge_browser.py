"""The forge in a real browser: a request from the question to the resumed session, by mouse, by keyboard and
without scripts; several people and tabs; a killed server; logging in and out."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import clia
from clia.users.service import users_of
from support import git
from support.browser import Person, chromium, visited
from support.forge_scene import PERSON, RELEASE, SHORT, people
from support.forge_server import Api, ForgeProcess
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

    from clia.space.model import AgentCommit

USERS = {
    "ada": ("admin", "Ada Lovelace", "ada@example.org"),
    "grace": ("decider", "Grace Hopper", "grace@example.org"),
    "eve": ("viewer", "Eve", ""),
}
GRACE = "Grace Hopper <grace@example.org>"
CHOICE = {"question": "Go on?", "choices": ["yes", "no"]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


class InboxStage:
    """A space served by a separate process; this process acts as an agent and starts browsers."""

    def __init__(self, root: Path, browser: Browser) -> None:
        self._browser = browser
        self.root = root
        self._stack = ExitStack()
        self.space = self._stack.enter_context(clia.init(root, settings=clia.Settings(durable=False, person=PERSON)))
        for name in ("scout", "digger"):
            self.space.spawn(name, BRIEFING)
        for name, source in (("short", SHORT), ("release", RELEASE)):
            self.space.sessions.define(name, source)
        people(root, USERS)
        self.forge = self._stack.enter_context(ForgeProcess(root))
        self.guests: list[Person] = []

    def person(self, name: str | None = "grace", **more: Any) -> Person:
        """A logged-in user; None: not logged in."""
        secret = None if name is None else users_of(self.space).make_session(name).secret
        guest = Person(self._browser, self.forge.pages, secret, **more)
        self.guests.append(guest)
        return guest

    def ask(self, agent: str = "scout", **payload: Any) -> clia.Request:
        return self.space.ask(agent, CHOICE | payload)

    def decision(self, agent: str = "scout") -> AgentCommit:
        """The newest commit of an agent, which must be a decision."""
        commit = self.space.show(self.space.head(agent))
        assert commit.kind == "decision"
        return commit

    def listeners(self) -> float:
        """The number of connections to the stream of events, from the server's metrics."""
        token = users_of(self.space).make_token("ada")[0]
        match = re.search(r"^clia_event_listeners (.+)$", Api(self.forge.address, token)("GET", "/metrics").text, re.MULTILINE)
        assert match is not None
        return float(match[1])

    def dies(self) -> None:
        self.forge.stop(signal.SIGKILL)

    def restart(self) -> None:
        """Restart the server on the same port, as a service manager does."""
        self.forge = self._stack.enter_context(ForgeProcess(self.root, "--port", self.forge.port))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def stage(browser: Browser, tmp_path: Path) -> Iterator[InboxStage]:
    new_stage = InboxStage(tmp_path.resolve() / "repo", browser)
    try:
        yield new_stage
        for guest in new_stage.guests:
            guest.leave()
    finally:
        new_stage.close()


def card(page: Page, request: clia.Request) -> Locator:
    return page.locator(f'[id="q.{request.agent}.{request.id}"]')


def settled(page: Page) -> Page:
    """A page whose scripts run and that is connected to the stream of events."""
    page.wait_for_load_state()
    page.wait_for_function("() => sessionStorage.getItem('clia-place') !== null")
    return page


def mark(page: Page) -> None:
    """Mark the page, to notice a reload afterwards."""
    page.evaluate("window.still_here = true")


def assert_not_reloaded(page: Page) -> None:
    assert page.evaluate("window.still_here === true")


# A request, from the question to the resumed session


def test_a_question_appears_is_decided_by_mouse_and_the_session_continues(stage: InboxStage) -> None:
    """It appears in an open inbox without a reload, counted in the title; the commit names the logged-in user; her other tab and
    another user's show the answer in place."""
    grace, ada = stage.person("grace"), stage.person("ada")
    page, second, other_user = (
        settled(tab) for tab in (grace.tab("/s/repo/inbox"), grace.tab("/s/repo/inbox"), ada.tab("/s/repo/inbox"))
    )
    for tab in (page, second, other_user):
        mark(tab)
        expect(tab.get_by_text("No pending questions.")).to_be_visible()
    session = stage.space.start("scout", "short", "Shall we ship it?")
    (request,) = session.pending
    for tab in (page, second, other_user):
        expect(card(tab, request).get_by_role("heading", name="Shall we ship it?")).to_be_visible()
        expect(tab).to_have_title(re.compile(r"^\(1\) "))
        assert_not_reloaded(tab)
    card(page, request).get_by_label("Why").fill("The tests are green.")
    card(page, request).get_by_role("button", name="yes").click()
    expect(page.locator("#decided-notice")).to_contain_text("Decided.")
    expect(page).to_have_title(re.compile(r"^Inbox"))
    decision = stage.decision()
    assert (decision.by, decision.value, decision.message) == (GRACE, '"yes"', "The tests are green.")
    assert f"Clia-By: {GRACE}" in git("log", "-1", "--format=%B", "agents/scout", cwd=stage.root)
    after = stage.space.session("scout")
    assert (after.status, after.result) == ("finished", "yes")
    for tab in (second, other_user):
        expect(card(tab, request)).to_contain_text(f"Answered by {GRACE}")
        expect(card(tab, request).get_by_role("button", name="yes")).to_have_count(0)
        expect(tab).to_have_title(re.compile(r"^Inbox"))
        expect(tab.locator("#decided")).to_contain_text("The tests are green.")
        assert_not_reloaded(tab)
    page.locator("#decided").get_by_role("link", name=decision.cid[:12]).click()
    expect(page).to_have_url(re.compile(f"/s/repo/commits/{decision.cid}$"))
    expect(page.get_by_role("main")).to_contain_text(GRACE)


def test_a_loaded_part_does_not_change_the_title_of_the_page(stage: InboxStage) -> None:
    """The overview loads a part of the health page, which has its own title."""
    stage.ask()
    page = stage.person().tab()
    page.add_init_script('document.addEventListener("htmx:finally:swap", () => { window.swapped = true; })')
    page.goto("/s/repo/")
    page.wait_for_function("() => window.swapped")
    expect(page.locator("#findings")).to_contain_text("no session problems found")
    expect(page).to_have_title("(1) Overview · repo · clia")


def test_everything_can_be_done_with_the_keyboard(stage: InboxStage) -> None:
    """j and k move between questions, Tab inside of one, Space ticks, Enter answers."""
    stage.ask("scout")
    stage.ask("digger", question="And now?")
    first, second = stage.space.pending()  # as listed; the clock of a machine may be set back between two questions
    page = settled(stage.person().tab("/s/repo/inbox"))
    keys = page.keyboard
    keys.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    keys.press("j")
    expect(card(page, first)).to_be_focused()
    keys.press("j")
    expect(card(page, second)).to_be_focused()
    keys.press("k")
    expect(card(page, first)).to_be_focused()
    keys.press("j")
    _tab_to(page, card(page, second).get_by_label("Why"))
    keys.type("jk: no key acts where one types")
    expect(card(page, second).get_by_label("Why")).to_be_focused()
    _tab_to(page, card(page, second).get_by_role("button", name="no"))
    keys.press("Enter")
    expect(page.locator("#decided-notice")).to_contain_text(second.agent)
    decision = stage.decision(second.agent)
    assert (decision.by, decision.value, decision.message) == (GRACE, '"no"', "jk: no key acts where one types")
    settled(page)
    keys.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    keys.press("j")
    _tab_to(page, card(page, first).get_by_role("button", name="yes"))
    keys.press("Space")
    expect(page.locator("#decided-notice")).to_contain_text(first.agent)
    assert stage.decision(first.agent).value == '"yes"'


def _tab_to(page: Page, locator: Locator) -> None:
    for _ in range(30):
        if locator.evaluate("(each) => each === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab does not lead to {locator}")


def test_reading_and_deciding_work_without_scripts(stage: InboxStage) -> None:
    stage.space.start("scout", "short", "Shall we ship it?")
    (request,) = stage.space.pending()
    page = stage.person(java_script_enabled=False).tab("/s/repo/")
    page.get_by_role("link", name="Shall we ship it?").click()
    page.get_by_label("Why").fill("Read on paper.")
    page.get_by_role("button", name="no").click()
    expect(page.locator("#decided-notice")).to_contain_text("Decided.")
    page.locator("#decided-notice").get_by_role("link").first.click()
    expect(card(page, request)).to_contain_text(f"Answered by {GRACE}")
    expect(card(page, request)).to_contain_text("Read on paper.")
    assert (stage.decision().by, stage.space.session("scout").result) == (GRACE, "no")
    for path in ("graph", "lineage", "sessions", "agents/scout", f"commits/{stage.space.head('scout')}"):
        visited(page, f"/s/repo/{path}")


def test_an_invalid_field_is_reported_beside_it_and_typed_text_is_kept(stage: InboxStage) -> None:
    """The browser checks what it can; the forge's checks are shown at the field."""
    stage.space.start("scout", "release", {"version": "2.1", "changes": []})
    stage.space.resume("scout", "notes", by="a worker")
    stage.space.decide("scout", "approve", by="Ada")
    (request,) = stage.space.pending()
    head = stage.space.head("scout")
    grace = stage.person()
    grace.expects("status of 422")
    page = settled(grace.tab(f"/s/repo/inbox/scout/{request.id}"))
    form = card(page, request).locator("form")
    form.evaluate("(each) => { each.noValidate = true; }")
    form.get_by_label("percent").fill("101")
    form.get_by_label("Region").select_option("south")
    form.get_by_label("note").fill("by and by")
    form.get_by_label("Why").fill("It is time.")
    form.get_by_role("button", name="Decide").click()
    percent = form.get_by_label("percent")
    expect(percent).to_have_attribute("aria-invalid", "true")
    expect(form.locator(".form-error")).to_have_count(1)
    expect(percent).to_have_accessible_description(re.compile("100"))
    expect(percent).to_have_value("101")
    expect(form.get_by_label("note")).to_have_value("by and by")
    expect(form.get_by_label("Why")).to_have_value("It is time.")
    assert stage.space.head("scout") == head
    percent.fill("10")
    form.get_by_role("button", name="Decide").click()
    expect(page.locator("#decided-notice")).to_be_visible()
    assert stage.space.session("scout").result["rollout"] == {"percent": 10, "region": "south", "note": "by and by"}
    assert stage.decision().message == "It is time."


def test_a_request_without_a_form_is_answered_with_json(stage: InboxStage) -> None:
    request = stage.space.ask("scout", {"question": "What is it called?"})
    grace = stage.person()
    grace.expects("status of 422")
    page = settled(grace.tab("/s/repo/inbox"))
    answer = card(page, request).locator("textarea[name=v]")
    answer.fill('{"name": ')
    card(page, request).get_by_role("button", name="Decide").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(answer).to_have_value('{"name": ')
    answer.fill('{"name": ["a", 1]}')
    card(page, request).get_by_role("button", name="Decide").click()
    expect(page.locator("#decided-notice")).to_be_visible()
    assert stage.space.session("scout", request.session).result == {"name": ["a", 1]}


# Several people, tabs and questions


def test_of_two_decisions_the_second_is_refused_with_the_first_answer(stage: InboxStage) -> None:
    """The second user's text stays readable, and nothing of it is recorded."""
    request = stage.ask()
    ada = stage.person("ada", java_script_enabled=False)  # her page does not change while she types
    ada.expects("status of 409")
    late = ada.tab("/s/repo/inbox")
    page = settled(stage.person("grace").tab("/s/repo/inbox"))
    card(page, request).get_by_label("Why").fill("First.")
    card(page, request).get_by_role("button", name="yes").click()
    expect(page.locator("#decided-notice")).to_be_visible()
    head = stage.space.head("scout")
    card(late, request).get_by_label("Why").fill("Second.")
    card(late, request).get_by_role("button", name="no").click()
    for text in (f"Answered by {GRACE}", "First.", "yes", "Your answer was not recorded.", "Second."):
        expect(card(late, request)).to_contain_text(text)
    assert stage.space.head("scout") == head


def test_typed_text_is_kept_when_another_user_answers(stage: InboxStage) -> None:
    request = stage.ask()
    page = settled(stage.person("grace").tab("/s/repo/inbox"))
    mark(page)
    card(page, request).get_by_label("Why").fill("half a thou")
    stage.space.decide("scout", "no", "Quicker.", by="Ada", request_id=request.id)
    expect(card(page, request)).to_contain_text("Answered by Ada")
    expect(card(page, request).get_by_label("Why")).to_have_value("half a thou")
    expect(card(page, request).get_by_role("button", name="yes")).to_be_disabled()
    assert_not_reloaded(page)


def test_later_only_folds_the_question(stage: InboxStage) -> None:
    """It is folded in this tab, stays pending, and can be shown again."""
    request, later_request = stage.ask("scout"), stage.ask("digger")
    heads = [stage.space.head(name) for name in ("scout", "digger")]
    page = settled(stage.person().tab("/s/repo/inbox"))
    card(page, request).get_by_role("link", name="Later").click()
    expect(card(page, request).get_by_role("button", name="yes")).to_be_hidden()
    expect(card(page, later_request)).to_be_focused()
    expect(page).to_have_title(re.compile(r"^\(2\) "))
    page.reload()
    expect(card(page, request).get_by_role("button", name="yes")).to_be_hidden()
    assert [waiting.id for waiting in stage.space.pending("scout")] == [request.id]
    assert [stage.space.head(name) for name in ("scout", "digger")] == heads
    card(page, request).get_by_role("button", name="Show again").click()
    card(page, request).get_by_role("button", name="yes").click()
    expect(page.locator("#decided-notice")).to_be_visible()


def test_several_questions_are_answered_together(stage: InboxStage) -> None:
    """Each ticked question gets a separate decision; the others stay pending."""
    requests = [stage.ask("scout"), stage.ask("digger"), stage.ask("digger", question="This one not")]
    page = settled(stage.person().tab("/s/repo/inbox"))
    for request in requests[:2]:
        page.locator(f'[id="q.{request.agent}.{request.id}:pick"]').check()
    several = page.locator("#several")
    several.locator("summary").click()
    several.get_by_label("Why").fill("All of them.")
    several.get_by_role("button", name="no").click()
    expect(page.get_by_text("Results of 2 answers")).to_be_visible()
    assert [waiting.id for waiting in stage.space.pending()] == [requests[2].id]
    for name in ("scout", "digger"):
        decision = stage.decision(name)
        assert (decision.by, decision.value, decision.message) == (GRACE, '"no"', "All of them.")
    expect(card(page, requests[2])).to_be_visible()
    expect(page).to_have_title(re.compile(r"^\(1\) "))


def test_seven_tabs_share_one_stream_and_are_all_updated(stage: InboxStage) -> None:
    """A browser opens six connections to a host: with a stream per tab, none would be left for the seventh. When the tab that
    holds the stream is closed, another one takes over."""
    grace = stage.person()
    tabs = [settled(grace.tab("/s/repo/inbox" if number % 2 else "/s/repo/")) for number in range(7)]
    for page in tabs:
        mark(page)
    assert len(grace.streams) == 1
    assert stage.listeners() == 1
    request = stage.ask()
    for page in tabs:
        expect(page).to_have_title(re.compile(r"^\(1\) "))
        assert_not_reloaded(page)
    tabs[0].close()
    stage.ask("digger")
    for page in tabs[1:]:
        expect(page).to_have_title(re.compile(r"^\(2\) "))
    card(tabs[1], request).get_by_role("button", name="yes").click()
    for page in tabs[1:]:
        expect(page).to_have_title(re.compile(r"^\(1\) "))
    assert stage.listeners() == 1


def test_after_a_restart_of_a_killed_server_the_page_shows_what_it_missed(stage: InboxStage) -> None:
    """The page reports the lost connection, reconnects, and shows the questions and decisions since."""
    before = stage.ask("scout")
    grace = stage.person()
    grace.expects(
        "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|"
        "ERR_EMPTY_RESPONSE|ERR_CONTENT_LENGTH_MISMATCH"  # requests in progress when it was killed
    )
    page = settled(grace.tab("/s/repo/inbox"))
    mark(page)
    stage.dies()
    expect(page.locator("#live")).to_contain_text("Connection lost")
    request = stage.ask("digger", question="Is anybody there?")
    stage.space.decide("scout", "no", by="Ada", request_id=before.id)
    stage.restart()
    expect(card(page, request).get_by_role("heading", name="Is anybody there?")).to_be_visible()
    expect(card(page, before)).to_contain_text("Answered by Ada")
    expect(page.locator("#live")).to_be_empty()
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    assert_not_reloaded(page)
    card(page, request).get_by_role("button", name="yes").click()
    expect(page.locator("#decided-notice")).to_be_visible()
    assert stage.decision("digger").by == GRACE


# Roles


def test_a_viewer_reads_and_cannot_decide(stage: InboxStage) -> None:
    """Viewers see no button, and a forged form is refused."""
    request = stage.ask()
    head = stage.space.head("scout")
    eve = stage.person("eve")
    eve.expects("status of 403")
    page = settled(eve.tab("/s/repo/inbox"))
    expect(card(page, request)).to_contain_text("You need the decider role to answer.")
    for path in ("inbox", f"inbox/scout/{request.id}", "", "agents/scout", f"sessions/scout/{request.session}", f"commits/{head}"):
        visited(page, f"/s/repo/{path}")
        assert page.locator("main form[method=post]").count() == 0, path
    forged = page.evaluate(
        """async (address) => {
          const token = document.querySelector('meta[name="csrf-token"]').content;
          const body = new URLSearchParams({ _csrf: token, v: "yes", rationale: "" });
          return (await fetch(address, { method: "POST", body })).status;
        }""",
        f"/s/repo/inbox/scout/{request.id}",
    )
    assert forged == 403
    assert stage.space.head("scout") == head
    assert stage.space.pending()


def test_the_printed_link_logs_in_once_and_logging_out_ends_it(stage: InboxStage) -> None:
    link = stage.forge.said["link"]
    person, thief = stage.person(None), stage.person(None)
    thief.expects("status of 403")
    page = person.tab(link)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{stage.forge.pages}/s/repo/")
    expect(page.get_by_role("banner")).to_contain_text("Ada Lovelace")
    stolen = thief.tab(link)
    stolen.get_by_role("button", name="Log in").click()
    expect(stolen.get_by_role("alert")).to_contain_text("has been used")
    stolen.goto("/s/repo/inbox")
    expect(stolen).to_have_url(re.compile("/login"))
    (cookie,) = [cookie for cookie in person.context.cookies() if cookie["name"] == "clia_login"]
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{stage.forge.pages}/login")
    thief.context.add_cookies([{"name": "clia_login", "value": cookie["value"], "url": stage.forge.pages}])
    for tab in (page, stolen):
        tab.goto("/s/repo/")
        expect(tab).to_have_url(re.compile(r"/login\?next="))


def test_a_deep_link_leads_to_its_question_through_the_login_and_after_the_answer(stage: InboxStage) -> None:
    request = stage.ask()
    stage.ask("digger", question="Another")
    page = stage.person(None).tab()
    address = f"/s/repo/inbox/scout/{request.id}"
    page.goto(address)
    page.get_by_label("Login key").fill(users_of(stage.space).login_link("grace"))
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(stage.forge.pages + address)
    expect(page.locator("[data-request]")).to_have_count(1)
    settled(page)
    mark(page)
    stage.space.decide("scout", "no", "Elsewhere.", by="Ada", request_id=request.id)
    expect(card(page, request)).to_contain_text("Answered by Ada")
    assert_not_reloaded(page)
    page.reload()
    for text in ("Go on?", "Answered by Ada", "Elsewhere.", "no"):
        expect(card(page, request)).to_contain_text(text)
