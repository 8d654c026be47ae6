"""The pages of behaviours in a real browser: accessibility, live updates, use without scripts, and concurrent adoptions."""

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


class BehaviourStage(NamedTuple):
    """A served space in which two versions ran for two months, and a third, hostile one was proposed."""

    browser: Browser
    space: clia.Space
    forge: ForgeProcess
    flaky: str
    steady: str
    hostile: str

    def person(self, name: str = "ada", **more: Any) -> Person:
        return Person(self.browser, self.forge.pages, users_of(self.space).make_session(name).secret, **more)


def _tried(space: clia.Space, days: list[datetime]) -> tuple[str, str, str]:
    """A session of each version every two days, finished or failed."""
    flaky = space.behaviours.add("review", FLAKY, "session-flow", why="the first").cid
    steady = space.behaviours.propose("review", STEADY, why="does not give up", notes="No check of the input.", agent="scout").cid
    space.behaviours.adopt("review", steady, trial=True, why="worth a try")
    for number in range(40):
        days[0] += timedelta(days=2)
        for version in (flaky, steady):
            space.start("scout", version, number)
    proposal = space.behaviours.propose(
        "review", HOSTILE, parent=steady, why=ATTACK, notes=ATTACK, evidence=["scout"], agent="scout"
    )
    return flaky, steady, proposal.cid


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BehaviourStage]:
    root = tmp_path_factory.mktemp("behaviours").resolve() / "repo"
    days = [datetime.now(UTC) - timedelta(days=90)]
    with ExitStack() as stack:
        settings = clia.Settings(durable=False, person=PERSON, clock=lambda: days[0])
        space = stack.enter_context(clia.init(root, settings=settings))
        space.spawn("scout", BRIEFING)
        cids = _tried(space, days)
        people(root, USERS)
        days[0] = datetime.now(UTC)  # so that logins have not expired
        forge = stack.enter_context(ForgeProcess(root))
        yield BehaviourStage(stack.enter_context(chromium()), space, forge, *cids)


def _settled(page: Page) -> Page:
    """A page that is connected to the stream of events."""
    page.wait_for_function("() => sessionStorage.getItem('clia-place') !== null")
    return page


def _assert_whole(page: Page) -> None:
    """Check that plots are inside the visible page and contain all of their labels."""
    cut = page.evaluate(
        """() => [...document.querySelectorAll("svg.beside")].flatMap((svg) => {
          const room = svg.getBoundingClientRect(), seen = svg.parentElement.getBoundingClientRect();
          const rest = [...svg.querySelectorAll("text")].map((each) => [each.textContent, each.getBoundingClientRect()]);
          return [["the plot", room, seen], ...rest.map((each) => [...each, room])]
            .filter(([, has, within]) => has.left < within.left - 1 || has.right > within.right + 1).map(([said]) => said);
        })"""
    )
    assert cut == [], f"{page.url}: {cut}"


def test_the_pages_are_accessible_at_every_width_and_in_light_and_dark(stage: BehaviourStage) -> None:
    """axe-core has no serious findings, no page scrolls sideways, and a viewer sees no form that changes anything."""
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
        page.set_viewport_size({"width": 701, "height": 800})  # tables are still marked up as tables
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


def test_the_content_of_a_version_is_always_text(stage: BehaviourStage) -> None:
    """Body, reason and notes of a hostile proposal. The content security policy is off, because it would hide markup."""
    ada = stage.person(bypass_csp=True)
    page = ada.tab()
    for path in ("behaviours/review", f"behaviour-versions/{stage.hostile}"):
        visited(page, f"/s/repo/{path}")
        injected = page.evaluate(
            "() => [window.pwned, document.querySelectorAll('main img, [onload], a[href^=javascript]').length]"
        )
        assert injected == [None, 0], path
        assert "onerror=window.pwned" in page.content(), f"{path} does not show it"
    expect(page.locator("#unreviewed")).to_contain_text("Not reviewed. Proposed by an agent.")
    ada.leave()


def test_adoption_on_evidence_works_without_scripts_and_a_stale_tab_is_refused(stage: BehaviourStage) -> None:
    """A page from before the other adoption changes nothing and explains it; a connected page shows the adoption."""
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
    behaviour = stage.space.behaviours.get("review")
    assert behaviour.current == stage.steady
    assert behaviour.history[0].evidence  # the commits that the suggestion cites

    late.get_by_role("button", name="Adopt").click()
    expect(late.get_by_role("alert")).to_contain_text("has changed")
    assert stage.space.behaviours.get("review").history == behaviour.history
    ada.leave()
    eve.leave()


def test_a_commit_links_to_the_version_that_made_it(stage: BehaviourStage) -> None:
    """By keyboard, from the commit to the page of the version."""
    prompt = stage.space.behaviours.add("careful", "Be careful with {{task}}.", "prompt")
    stage.space.spawn("digger", stage.space.behaviours.brief("careful", "Dig", "the cellar", agent="digger"))
    cid = stage.space.commit("digger", "test", {"a.txt": b"1"}, meta={"outcome": "pass"})
    eve = stage.person("eve")
    page = eve.tab(f"/s/repo/commits/{cid}")
    link = page.get_by_role("link", name=prompt.cid[:12])
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("careful")
    expect(page.locator("#version")).to_contain_text("100 % of 1 (21 % to 100 %)")
    expect(page.get_by_role("region", name="Body of the version")).to_contain_text("Be careful with {{task}}.")
    eve.leave()
