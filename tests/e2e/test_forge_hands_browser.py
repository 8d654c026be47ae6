"""A user clicks on a page that updates itself, in a real browser: nothing changes between press and release, so that no
click is lost; updates are applied afterwards."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import expect

import clia
from clia.users.service import users_of
from support.browser import Person, chromium
from support.forge_server import PERSON, QUESTION, ForgeProcess, new_forge_space

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page, Route

# The events on the page, in order. A loaded page is inserted before anything else happens, unless it is held
# back; so are the parts that htmx loads, and the notice of a broken stream.
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


class BrowserDesk(NamedTuple):
    """A user of a forge with two spaces, and an agent that asks in the first."""

    person: Person
    space: clia.Space
    forge: ForgeProcess

    def tab(self, path: str) -> Page:
        """A connected page that has applied every update since it was loaded."""
        page = self.person.tab()
        page.add_init_script(SEEN)
        page.goto(path)
        heard(page, "page")
        return page

    def news(self, page: Page) -> clia.Request:
        """Cause an update and wait until the page has loaded it, whether or not it is shown."""
        page.evaluate("window.seen = []")
        request = self.space.ask("digger", QUESTION)
        heard(page, "page")
        return request


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def desk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserDesk]:
    top = tmp_path_factory.mktemp("hands").resolve()
    place, other_place = new_forge_space(top / "repo", "scout", "digger"), new_forge_space(top / "other")
    with clia.open(place.root, settings=clia.Settings(durable=False, person=PERSON)) as space:
        for _ in range(2):
            space.ask("scout", QUESTION)
        secret = users_of(space).make_session("tess").secret
        with ForgeProcess(place.root, "--space", str(place.root), "--space", str(other_place.root)) as forge:
            person = Person(browser, forge.pages, secret)
            yield BrowserDesk(person, space, forge)
            person.leave()


def heard(page: Page, event: str) -> None:
    page.wait_for_function("(what) => window.seen.includes(what)", arg=event)


def order(page: Page, *of: str) -> list[str]:
    return [event for event in page.evaluate("window.seen") if event in of]


def press(page: Page, on: Locator) -> None:
    on.hover()
    page.mouse.down()


def test_a_click_follows_its_link_although_an_update_arrives(desk: BrowserDesk) -> None:
    """On the page of all spaces, whose list is reloaded with each change."""
    page = desk.tab("/")
    press(page, page.get_by_role("main").get_by_role("link", name="repo"))
    desk.news(page)
    page.mouse.up()
    expect(page).to_have_url(f"{desk.forge.pages}/s/repo/")


def test_a_key_acts_on_its_element_although_an_update_arrives(desk: BrowserDesk) -> None:
    """A browser acts on the space bar when it is released, on the focused element."""
    page = desk.tab("/s/repo/inbox")
    fold = page.locator("#several details")
    fold.locator("summary").focus()
    page.keyboard.down("Space")
    desk.news(page)
    page.keyboard.up("Space")
    expect(fold).to_have_attribute("open", "")
    expect(page.locator("#count")).to_contain_text("3 pending questions")


def test_updates_are_applied_at_the_release(desk: BrowserDesk) -> None:
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
def test_a_missed_release_does_not_block_updates_forever(desk: BrowserDesk, instead: str) -> None:
    """The button is released over a menu, a scroll bar or another window."""
    page = desk.tab("/s/repo/inbox")
    press(page, page.get_by_role("heading", name="Decided"))
    request = desk.news(page)
    card = page.locator(f'[id="q.digger.{request.id}"]')
    assert card.count() == 0
    page.evaluate(f"window.dispatchEvent({instead})")
    expect(card).to_be_visible()
    page.mouse.up()


def test_the_number_of_questions_does_not_move_the_links_beside_it_during_a_click(desk: BrowserDesk) -> None:
    """On a page that has nothing else to reload."""
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


def test_a_part_that_is_loaded_late_is_inserted_after_the_release(desk: BrowserDesk) -> None:
    """The overview inserts the findings on sessions when they arrive, which moves what is below."""
    page = desk.person.tab()
    page.add_init_script(SEEN)
    held_routes: list[Route] = []
    page.route("**/s/repo/health", lambda route: held_routes.append(route))  # noqa: PLW0108  # Playwright marks what it is given
    with page.expect_request("**/s/repo/health"):
        page.goto("/s/repo/")
    heard(page, "page")
    press(page, page.get_by_role("heading", name="Health"))
    page.evaluate("window.seen = []")
    held_routes[0].continue_()
    heard(page, "answer")
    page.mouse.up()
    heard(page, "swap")
    assert order(page, "release", "swap") == ["release", "swap"]
    expect(page.locator("#findings")).to_contain_text("no session problems found")


def test_the_request_for_the_first_part_has_our_headers(desk: BrowserDesk) -> None:
    """Our script may load after htmx, which starts at once; its requests still have what we add."""
    page = desk.person.tab()
    late: list[Route] = []
    page.route("**/static/forge.js", lambda route: late.append(route))  # noqa: PLW0108  # Playwright marks what it is given
    with page.expect_request("**/s/repo/health") as request_info:
        with page.expect_request_finished(lambda request: request.url.endswith("/htmx.min.js")):
            page.goto("/s/repo/", wait_until="commit")
        late[0].continue_()
    assert request_info.value.headers["x-csrf-token"] == page.locator('meta[name="csrf-token"]').get_attribute("content")


def test_a_notice_does_not_move_the_page_during_a_click(desk: BrowserDesk) -> None:
    desk.person.expects("ERR_")  # errors of connections to a killed server
    page = desk.tab("/")
    press(page, page.get_by_role("heading", name="Spaces"))
    desk.forge.stop(signal.SIGKILL)
    heard(page, "lost")
    assert page.locator("#live").inner_text() == ""
    page.mouse.up()
    expect(page.locator("#live")).to_contain_text("Connection lost")
