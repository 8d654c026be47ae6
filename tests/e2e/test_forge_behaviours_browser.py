"""The pages of behaviours in a real browser: read by everyone, live, without scripts, and two people who adopt at once."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import pytest
from playwright.sync_api import expect

import clia
from clia.users.service import users_of
from support.browser import PHONE, Person, assert_accessible, assert_fits, chromium, picture, visited, with_axe
from support.forge_scene import ATTACK, PERSON, people
from support.forge_server import ForgeProcess
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from playwright.sync_api import Browser, Page

USERS = {"ada": ("admin", "Ada Lovelace", "ada@example.org"), "eve": ("viewer", "Eve", "")}
FLAKY = "def main(input):\n    if input % 3 == 0:\n        raise ValueError('too early')\n    return input\n"
STEADY = "def main(input):\n    return input\n"
HOSTILE = f"# {ATTACK}\ndef main(input):\n    return 0\n"


class Stage(NamedTuple):
    """A space in which two versions were tried over two months, and a third was proposed to do harm; served by a process."""

    browser: Browser
    space: clia.Space
    forge: ForgeProcess
    flaky: str
    steady: str
    hostile: str

    def person(self, name: str = "ada", **more: Any) -> Person:
        return Person(self.browser, self.forge.address, users_of(self.space).make_session(name).secret, **more)


def _tried(space: clia.Space, days: list[datetime]) -> tuple[str, str, str]:
    """Every two days a session of each version, to its end or its failure."""
    flaky = space.add_behaviour("review", FLAKY, "session-flow", why="the first").cid
    steady = space.propose_behaviour("review", STEADY, why="does not give up", notes="No check of the input.", agent="scout").cid
    space.adopt_behaviour("review", steady, trial=True, why="worth a try")
    for number in range(40):
        days[0] += timedelta(days=2)
        for version in (flaky, steady):
            space.start("scout", version, number)
    made = space.propose_behaviour("review", HOSTILE, parent=steady, why=ATTACK, notes=ATTACK, evidence=["scout"], agent="scout")
    return flaky, steady, made.cid


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("behaviours").resolve() / "repo"
    days = [datetime.now(UTC) - timedelta(days=90)]
    with ExitStack() as stack:
        settings = clia.Settings(durable=False, person=PERSON, clock=lambda: days[0])
        space = stack.enter_context(clia.init(root, settings=settings))
        space.spawn("scout", BRIEFING)
        cids = _tried(space, days)
        people(root, USERS)
        days[0] = datetime.now(UTC)  # for logins that are not over
        forge = stack.enter_context(ForgeProcess(root))
        yield Stage(stack.enter_context(chromium()), space, forge, *cids)


def _settled(page: Page) -> Page:
    """A page that hears of everything from now on."""
    page.wait_for_function("() => sessionStorage.getItem('clia-place') !== null")
    return page


def _assert_whole(page: Page) -> None:
    """Plots side by side have all of their words within them, and stand within what a reader sees of the page."""
    cut = page.evaluate(
        """() => [...document.querySelectorAll("svg.beside")].flatMap((svg) => {
          const room = svg.getBoundingClientRect(), seen = svg.parentElement.getBoundingClientRect();
          const rest = [...svg.querySelectorAll("text")].map((each) => [each.textContent, each.getBoundingClientRect()]);
          return [["the plot", room, seen], ...rest.map((each) => [...each, room])]
            .filter(([, has, within]) => has.left < within.left - 1 || has.right > within.right + 1).map(([said]) => said);
        })"""
    )
    assert cut == [], f"{page.url}: {cut}"


def test_everyone_can_read_the_pages_at_any_width_and_in_any_light(stage: Stage) -> None:
    """axe-core finds nothing serious, nothing has to be scrolled sideways, and a viewer is shown no form that changes anything."""
    eve = with_axe(stage.person("eve"))
    page = eve.tab()
    compare = f"behaviours/review/compare?before={stage.flaky}&after={stage.steady}"
    for path in ("behaviours", "behaviours/review", f"behaviour-versions/{stage.hostile}", compare):
        page.set_viewport_size({"width": 1280, "height": 800})
        visited(page, f"/s/repo/{path}")
        if path == "behaviours/review":
            picture(page, "behaviours")
        assert page.locator("main form[method=post]").count() == 0
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert_accessible(page)
        page.set_viewport_size({"width": 701, "height": 800})  # tables are tables still
        assert_fits(page)
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="dark")
        assert_fits(page)
        _assert_whole(page)
        assert_accessible(page)
        page.emulate_media(color_scheme="light")
    expect(page.locator("#compared")).to_contain_text("over 99.9 % likely that the later is better")
    expect(page.locator("#compared")).to_contain_text("the later is better")
    eve.leave()


def test_what_a_version_holds_is_never_more_than_text(stage: Stage) -> None:
    """Body, reason and notes of a proposal that wants to do harm; the policy is off, which would hide that it is markup."""
    ada = stage.person(bypass_csp=True)
    page = ada.tab()
    for path in ("behaviours/review", f"behaviour-versions/{stage.hostile}"):
        visited(page, f"/s/repo/{path}")
        found = page.evaluate("() => [window.pwned, document.querySelectorAll('main img, [onload], a[href^=javascript]').length]")
        assert found == [None, 0], path
        assert "onerror=window.pwned" in page.content(), f"{path} does not show it"
    expect(page.locator("#unreviewed")).to_contain_text("Not reviewed. Proposed by an agent.")
    ada.leave()


def test_without_scripts_evidence_leads_to_adoption_and_the_second_of_two_tabs_loses_the_race(stage: Stage) -> None:
    """The page that was made before the other adoption changes nothing and says so; a page that listens shows what happened."""
    ada, eve = stage.person(java_script_enabled=False), stage.person("eve")
    ada.expects("status of 409")
    live = _settled(eve.tab("/s/repo/behaviours"))
    early, late = ada.tab("/s/repo/behaviours/review"), ada.tab(f"/s/repo/behaviour-versions/{stage.hostile}")
    expect(early.locator("#suggestion")).to_contain_text("Suggested: adopt")
    expect(early.locator("#standing")).to_contain_text(stage.steady[:12])
    expect(early.locator("#over-time svg[role=img]")).to_be_visible()
    early.get_by_role("link", name="by month").click()
    expect(early.locator("#over-time svg title").first).to_contain_text("finished by month")
    early.get_by_label("Why").fill("it was shown to be better")
    early.get_by_role("button", name="Adopt").click()
    expect(early.locator("#suggestion")).to_contain_text("retire")
    expect(early.locator("#change-version")).to_have_value(stage.flaky)
    expect(early.locator("#do .primary")).to_have_text("Retire")
    expect(early.locator("#history li").first).to_contain_text("it was shown to be better")
    expect(live.locator("#behaviours tbody tr")).to_contain_text(stage.steady[:12])
    known = stage.space.behaviour("review")
    assert known.current == stage.steady
    assert known.history[0].evidence  # the commits that the suggestion rested on

    late.get_by_role("button", name="Adopt").click()
    expect(late.get_by_role("alert")).to_contain_text("has changed")
    assert stage.space.behaviour("review").history == known.history
    ada.leave()
    eve.leave()


def test_a_commit_leads_to_the_version_that_it_was_made_with(stage: Stage) -> None:
    """By keyboard, from the commit to the page of what ran."""
    prompt = stage.space.add_behaviour("careful", "Be careful with {{task}}.", "prompt")
    stage.space.spawn("digger", stage.space.brief("careful", "Dig", "the cellar", agent="digger"))
    made = stage.space.commit("digger", "test", {"a.txt": b"1"}, meta={"outcome": "pass"})
    eve = stage.person("eve")
    page = eve.tab(f"/s/repo/commits/{made}")
    link = page.get_by_role("link", name=prompt.cid[:12])
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("careful")
    expect(page.locator("#version")).to_contain_text("100 % of 1 (21 % to 100 %)")
    expect(page.get_by_role("region", name="Body of the version")).to_contain_text("Be careful with {{task}}.")
    eve.leave()
