"""Hands in front of a page that changes by itself, in a real browser: nothing changes between a press and its release, so that no
click is lost; and everything that is new comes after it."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import expect

import clia
from clia.users.service import users_of
from support.browser import Person, chromium
from support.forge_server import PERSON, QUESTION, ForgeProcess, made_place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page, Route

# What happens on the page, in its order. A page that was loaded is put in before anybody else can do anything, unless it is held
# back; so are the parts that htmx loads, and so is the notice of a stream that broke.
SEEN = """\
window.seen = [];
const after = (type, name, what) => {
  const before = type.prototype[name];
  type.prototype[name] = function (...given) {
    const found = before.apply(this, given);
    Promise.resolve(found).then(() => window.seen.push(what));
    return found;
  };
};
after(DOMParser, "parseFromString", "page");
after(Response, "text", "answer");
addEventListener("pointerup", () => window.seen.push("release"), true);
document.addEventListener("htmx:after:swap", () => window.seen.push("swap"));
window.EventSource = class extends EventSource {
  constructor(...given) {
    super(...given);
    this.addEventListener("error", () => window.seen.push("lost"));
  }
};
"""


class Desk(NamedTuple):
    """Somebody in front of a forge of two spaces, and an agent that asks in the first."""

    person: Person
    space: clia.Space
    forge: ForgeProcess

    def tab(self, path: str) -> Page:
        """A page that hears of everything, and has taken over whatever happened while it was loaded."""
        page = self.person.tab()
        page.add_init_script(SEEN)
        page.goto(path)
        heard(page, "page")
        return page

    def news(self, page: Page) -> clia.Request:
        """Something happens, and the page has loaded what is new; whether it shows it is the question."""
        page.evaluate("window.seen = []")
        request = self.space.ask("digger", QUESTION)
        heard(page, "page")
        return request


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def desk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    top = tmp_path_factory.mktemp("hands").resolve()
    place, other = made_place(top / "repo", "scout", "digger"), made_place(top / "other")
    with clia.open(place.root, settings=clia.Settings(durable=False, person=PERSON)) as space:
        for _ in range(2):
            space.ask("scout", QUESTION)
        secret = users_of(space).make_session("tess").secret
        with ForgeProcess(place.root, "--space", str(place.root), "--space", str(other.root)) as forge:
            person = Person(browser, forge.address, secret)
            yield Desk(person, space, forge)
            person.leave()


def heard(page: Page, what: str) -> None:
    page.wait_for_function("(what) => window.seen.includes(what)", arg=what)


def order(page: Page, *of: str) -> list[str]:
    return [each for each in page.evaluate("window.seen") if each in of]


def press(page: Page, on: Locator) -> None:
    on.hover()
    page.mouse.down()


def test_a_link_leads_where_it_says_though_there_is_news_while_it_is_clicked(desk: Desk) -> None:
    """On the page of all spaces, whose list is loaded again with each change."""
    page = desk.tab("/")
    press(page, page.get_by_role("main").get_by_role("link", name="repo"))
    desk.news(page)
    page.mouse.up()
    expect(page).to_have_url(f"{desk.forge.address}/s/repo/")


def test_a_key_opens_what_it_was_pressed_on_though_there_is_news(desk: Desk) -> None:
    """A browser acts on the space bar when it is let go, on what has the focus then."""
    page = desk.tab("/s/repo/inbox")
    fold = page.locator("#several details")
    fold.locator("summary").focus()
    page.keyboard.down("Space")
    desk.news(page)
    page.keyboard.up("Space")
    expect(fold).to_have_attribute("open", "")
    expect(page.locator("#count")).to_contain_text("3 pending questions")


def test_what_is_new_comes_with_the_release(desk: Desk) -> None:
    page = desk.tab("/s/repo/inbox")
    press(page, page.get_by_role("heading", name="Decided"))
    request = desk.news(page)
    card = page.locator(f'[id="q.digger.{request.id}"]')
    assert card.count() == 0
    page.mouse.up()
    expect(card).to_be_visible()
    expect(page).to_have_title(re.compile(r"^\(3\) "))


@pytest.mark.parametrize(
    "instead", ['new PointerEvent("pointermove", { pointerId: 1, buttons: 0 })', 'new Event("contextmenu")', 'new Event("blur")']
)
def test_a_release_that_the_page_is_not_told_of_does_not_hold_it_for_ever(desk: Desk, instead: str) -> None:
    """The button is let go over a menu, a scroll bar or another window."""
    page = desk.tab("/s/repo/inbox")
    press(page, page.get_by_role("heading", name="Decided"))
    request = desk.news(page)
    card = page.locator(f'[id="q.digger.{request.id}"]')
    assert card.count() == 0
    page.evaluate(f"window.dispatchEvent({instead})")
    expect(card).to_be_visible()
    page.mouse.up()


def test_the_number_of_questions_does_not_move_the_links_beside_it_during_a_click(desk: Desk) -> None:
    """On a page that has nothing else to load again."""
    page = desk.person.tab()
    page.add_init_script(SEEN + 'after(Response, "json", "number");\n')
    page.goto("/s/repo/lineage")
    heard(page, "number")
    page.evaluate("window.seen = []")
    badge = page.locator("#inbox-badge .count")
    press(page, page.get_by_role("heading").first)
    desk.space.ask("digger", QUESTION)
    heard(page, "number")
    assert badge.inner_text() == "2"
    page.mouse.up()
    expect(badge).to_have_text("3")


def test_a_part_that_is_loaded_later_is_put_in_after_the_release(desk: Desk) -> None:
    """The overview shows what was found in sessions as soon as that is known, and what stands below moves."""
    page = desk.person.tab()
    page.add_init_script(SEEN)
    held: list[Route] = []
    page.route("**/s/repo/health", lambda route: held.append(route))  # noqa: PLW0108  # Playwright marks what it is given
    with page.expect_request("**/s/repo/health"):
        page.goto("/s/repo/")
    heard(page, "page")
    press(page, page.get_by_role("heading", name="Health"))
    page.evaluate("window.seen = []")
    held[0].continue_()
    heard(page, "answer")
    page.mouse.up()
    heard(page, "swap")
    assert order(page, "release", "swap") == ["release", "swap"]
    expect(page.locator("#findings")).to_contain_text("no session problems found")


def test_the_first_part_that_is_loaded_is_asked_for_as_every_other_one(desk: Desk) -> None:
    """Our script may come later than htmx, which begins at once: what we add to its requests is in them all the same."""
    page = desk.person.tab()
    late: list[Route] = []
    page.route("**/static/forge.js", lambda route: late.append(route))  # noqa: PLW0108  # Playwright marks what it is given
    with page.expect_request("**/s/repo/health") as asked:
        with page.expect_request_finished(lambda request: request.url.endswith("/htmx.min.js")):
            page.goto("/s/repo/", wait_until="commit")
        late[0].continue_()
    assert asked.value.headers["x-csrf-token"] == page.locator('meta[name="csrf-token"]').get_attribute("content")


def test_a_notice_does_not_push_the_page_away_during_a_click(desk: Desk) -> None:
    desk.person.expects("ERR_")  # whatever a connection to a server that was killed says
    page = desk.tab("/")
    press(page, page.get_by_role("heading", name="Spaces"))
    desk.forge.stop(signal.SIGKILL)
    heard(page, "lost")
    assert page.locator("#live").inner_text() == ""
    page.mouse.up()
    expect(page.locator("#live")).to_contain_text("Connection lost")
