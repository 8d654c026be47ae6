"""Every page of the forge in a real browser: on desktop and phone, in light and dark, and with hostile text of agents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

import clia
from clia.store.interface import Task
from clia.users.service import users_of
from clia.workers.fleet import WORKER, Underway
from clia.workers.heartbeats import HeartbeatWriter, ProcessInfo
from support import forge_scene
from support.browser import DESK, PHONE, Person, assert_accessible, assert_fits, chromium, picture, visited, with_axe
from support.fleet import beat, put
from support.forge_server import ForgeProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from playwright.sync_api import Browser, Page

TRACE, COMMITS = 10_000, 5_000
PAGES = {
    "spaces": "/",
    "login": "/login",
    "overview": "/s/shop/",
    "archived": "/s/shop/?archived=1",
    "health": "/s/shop/health",
    "inbox": "/s/shop/inbox",
    "filtered": "/s/shop/inbox?q=nothing-like-it",
    "question": "/s/shop/inbox/{waits}",
    "question-json": "/s/shop/inbox/{waits}?as=json",
    "answered": "/s/shop/inbox/{answered}",
    "agent": "/s/shop/agents/scout",
    "agent-archived": "/s/shop/agents/clerk",
    "files": "/s/shop/agents/scout/files",
    "file": "/s/shop/agents/scout/files/prices.py",
    "conflict": "/s/shop/agents/lead/merges/reviewer",
    "trace": "/s/shop/agents/scout/trace",
    "commit": "/s/shop/commits/{traced}",
    "commit-trace": "/s/shop/commits/{traced}/trace?q=failed",
    "decision": "/s/shop/commits/{decision}",
    "sessions": "/s/shop/sessions",
    "session": "/s/shop/sessions/lead/1",
    "session-failed": "/s/shop/sessions/reviewer/1",
    "graph": "/s/shop/graph",
    "graph-table": "/s/shop/graph?view=table",
    "graph-path": "/s/shop/graph?collapse=1&from=lead&to=scout",
    "lineage": "/s/shop/lineage",
    "lineage-identity": "/s/shop/lineage/scout?at=/role",
    "lineage-agenda": "/s/shop/lineage/scout?document=plan",
    "fleet": "/s/shop/fleet",
    "branches": "/s/shop/branches",
    "branch-authorship": "/s/shop/authorship?rev=HEAD",
    "branch-files": "/s/shop/files?rev=scout",
    "branch-file": "/s/shop/files?rev=scout&path=prices.py",
    "missing": "/s/shop/agents/nobody",
}
WIDTHS = (640, 701, 768, 1101, 1280)
"""Window widths from phone to desktop. Layouts change above 700 and above 1100 pixels."""
LONG = "worker-of-the-night-shift-in-the-second-rack-" + "x" * 20
PICTURES = {"inbox": "inbox", "graph": "graph", "session": "session", "agent": "agent", "lineage-identity": "lineage"}
HOSTILE = [
    "/s/hostile/",
    "/s/hostile/inbox",
    "/s/hostile/inbox/villain/1.2",
    "/s/hostile/inbox/victim/1.2",
    "/s/hostile/inbox/victim/1.3",
    "/s/hostile/inbox/victim/1.3?as=json",
    "/s/hostile/agents/villain",
    "/s/hostile/agents/villain/files",
    "/s/hostile/agents/villain/files/{path}",
    "/s/hostile/agents/villain/merges/victim",
    "/s/hostile/agents/villain/trace",
    "/s/hostile/agents/villain/trace?q={path}",
    "/s/hostile/commits/{cid}",
    "/s/hostile/commits/{cid}/trace?unfold=1",
    "/s/hostile/commits/{decision}",
    "/s/hostile/sessions/villain/1",
    "/s/hostile/sessions/victim/1",
    "/s/hostile/sessions/failed/1",
    "/s/hostile/graph",
    "/s/hostile/graph?view=table",
    "/s/hostile/graph?from={path}&to={path}",
    "/s/hostile/lineage",
    "/s/hostile/lineage/villain",
    "/s/hostile/lineage/villain?at=/role",
    "/s/hostile/lineage/villain?document=plan",
    "/s/hostile/fleet",
    "/login?next={path}&key={path}",
]


class Gallery(NamedTuple):
    """A forge over spaces with every kind of content, and its visitors."""

    shop: Path
    browser: Browser
    address: str
    secrets: Mapping[str, str]
    names: Mapping[str, str]
    hostile: Mapping[str, str]


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    top = tmp_path_factory.mktemp("gallery").resolve()
    shop, hostile = forge_scene.shop(top / "company" / "shop"), forge_scene.hostile(top / "hostile")
    attacker = '" onmouseover="window.pwned=1" autofocus onfocus="window.pwned=1'  # brackets are not allowed in a name
    forge_scene.people(shop.root, {"ada": ("admin", "Ada Lovelace", "ada@example.org"), "mallory": ("admin", attacker, "")})
    with clia.open(shop.root, settings=clia.Settings(durable=False, person=forge_scene.PERSON)) as space:
        secrets = {name: users_of(space).make_session(name).secret for name in ("ada", "mallory")}
        work_on(space)
    with clia.open(hostile.root, settings=clia.Settings(durable=False, person=forge_scene.PERSON)) as space:
        put(space, beat("<img src=x onerror=window.pwned=1>", seen_at=space.fleet().at))
    with ForgeProcess(shop.root, "--space", str(shop.root), "--space", str(hostile.root)) as forge, chromium() as browser:
        yield Gallery(shop.root, browser, forge.pages, secrets, shop.names, hostile.names)


def work_on(space: clia.Space) -> None:
    """Machines and workers in every state."""
    now = space.fleet().at
    doing = [Underway("scout", "1.1", "command", 2, now - 400)]
    kinds = ["command", "commit", "llm", "merge", "session", "spawn", "timer"]
    apart = {"machine": "south.example.org", "clone": "c2", "forks": ["lead"], "away_since": now - 300}
    rows = [
        beat("north-4711-a1b2c3", seen_at=now, clock=now, running=doing, kinds=kinds, answered=1234, retried=5, forks=[]),
        beat("south-4712-d4e5f6", seen_at=now, clock=now + 90, trouble="PostgreSQL (host=db): it does not answer", **apart),
        beat("killed", seen_at=now - 600, clock=now - 600, **apart),
        beat(LONG, seen_at=now, clock=now, kinds=kinds, machine="ip-10-0-0-17.eu-central-1.compute.internal", clone="c3"),
    ]
    put(space, *rows)
    space.local.queue.claim([Task("scout", "1.1", "command", now)], LONG, now, 3600.0)


@pytest.fixture(scope="module")
def ada(gallery: Gallery) -> Iterator[Person]:
    """A user whose browser reports errors."""
    person = with_axe(Person(gallery.browser, gallery.address, gallery.secrets["ada"]))
    person.expects("status of 404")  # of the missing page
    yield person
    person.leave()


@pytest.fixture(scope="module")
def tab(ada: Person) -> Page:
    """One tab for all pages: opening a tab takes longer than loading a page."""
    return ada.tab()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_accessible_at_every_width_and_in_light_and_dark(gallery: Gallery, ada: Person, tab: Page, name: str) -> None:
    """axe-core has no serious findings, no page scrolls sideways, and the browser reports no errors."""
    tab.set_viewport_size(DESK)
    tab.emulate_media(color_scheme="light")
    visited(tab, PAGES[name].format(**gallery.names), 404 if name == "missing" else 200)
    if name in PICTURES:
        picture(tab, PICTURES[name])
    assert_accessible(tab)
    tab.emulate_media(color_scheme="dark")
    if name == "commit-trace":
        picture(tab, "dark")
    assert_accessible(tab, "color-contrast")
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 800})
        assert_fits(tab)
    tab.set_viewport_size(PHONE)
    assert_fits(tab)
    assert_accessible(tab)
    tab.emulate_media(color_scheme="light")
    assert_accessible(tab, "color-contrast")
    ada.assert_nothing_wrong()


def test_text_of_agents_is_never_executed(gallery: Gallery) -> None:
    """The content security policy is off, because it would hide markup."""
    person = Person(gallery.browser, gallery.address, gallery.secrets["mallory"], bypass_csp=True)
    person.expects("status of 422")  # of the graph with an invalid path
    page = person.tab()
    for path in HOSTILE:
        visited(page, path.format(**{key: quote(value) for key, value in gallery.hostile.items()}), 422 if "from=" in path else 200)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        injected = page.evaluate(
            "() => [window.pwned, document.querySelectorAll('img, svg[onload], a[href^=javascript], script:not([src])').length]"
        )
        assert injected == [None, 0], path
        assert "onerror=window.pwned" in page.content(), f"{path} does not show it"
    person.leave()


@pytest.fixture(scope="module")
def crowd(gallery: Gallery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Person, str]]:
    """A user in a large space, and a commit with a long trace."""
    root = tmp_path_factory.mktemp("crowd").resolve() / "many"
    clia.init(root, settings=forge_scene.settings()).close()
    forge_scene.many_commits(root, COMMITS)
    traced = forge_scene.long_trace(root, TRACE)
    forge_scene.people(root, {"ada": ("admin", "Ada", "")})
    with clia.open(root, settings=forge_scene.settings(0)) as space:
        secret = users_of(space).make_session("ada").secret
    with ForgeProcess(root) as forge:
        person = Person(gallery.browser, forge.pages, secret)
        yield person, traced
        person.leave()


def test_a_trace_of_ten_thousand_entries_is_read_in_windows_and_searched(crowd: tuple[Person, str]) -> None:
    """The page has a window of entries; scrolling loads the next one without a reload; a search finds distant entries."""
    person, traced = crowd
    page = person.tab(f"/s/many/commits/{traced}/trace")
    entries = page.locator(".entry")
    first = entries.count()
    assert 0 < first <= 500
    page.evaluate("window.still_here = true")
    page.locator("#more").scroll_into_view_if_needed()
    expect(entries).to_have_count(first * 2)
    assert page.evaluate("window.still_here")
    page.get_by_role("searchbox", name="Search").fill("needle")
    page.get_by_role("searchbox", name="Search").press("Enter")
    expect(page.get_by_role("status").filter(has_text="match 1 of 1")).to_be_visible()
    expect(page.locator(f"#e{TRACE - 100}").locator("mark.hit")).to_have_text("needle")
    page.close()


def test_a_graph_of_five_thousand_commits_is_shown_in_windows(crowd: tuple[Person, str]) -> None:
    """The page stays small for any length of history; rows link to commits, and a click shows older ones."""
    person, _ = crowd
    page = person.tab("/s/many/graph")
    assert page.locator("body *").count() < 6000
    expect(page.get_by_text(f"The newest {COMMITS:,} commits")).to_be_visible()
    newest = page.locator(".graph-scroll a").first.get_attribute("href")
    page.get_by_role("link", name="Older →").first.click()
    expect(page.get_by_role("link", name="← Newer").first).to_be_visible()
    assert page.locator(".graph-scroll a").first.get_attribute("href") != newest
    page.locator(".graph-scroll a[href*='/commits/']").first.click()
    expect(page).to_have_url(re.compile("/s/many/commits/"))
    page.close()


def test_a_click_on_a_merged_value_shows_its_origin(ada: Person) -> None:
    """Rule, winner and shadowed values appear beside the document, without leaving the page."""
    page = ada.tab()
    page.add_init_script('document.addEventListener("htmx:after:init", () => { window.begun = true; })')
    visited(page, "/s/shop/lineage/scout")
    page.wait_for_function("() => window.begun")  # until then a click follows the link
    page.evaluate("window.still_here = true")
    page.locator(".doc").get_by_text("Explorer of the shop").click()
    panel = page.locator("#explanation")
    expect(panel).to_contain_text("Winner")
    expect(panel).to_contain_text("/role")
    expect(panel.locator(".places")).to_contain_text("Explorer")
    assert page.evaluate("window.still_here")
    page.close()


def test_the_fleet_page_refreshes_without_an_event(gallery: Gallery, ada: Person) -> None:
    """A started worker appears on the page. The test advances the browser's clock instead of waiting."""
    page = ada.tab()
    page.clock.install()
    visited(page, "/s/shop/fleet")
    page.evaluate("window.still_here = true")
    workers = page.get_by_role("region", name="Workers")
    expect(workers).to_contain_text("north-4711-a1b2c3")
    with clia.open(gallery.shop, settings=clia.Settings(durable=False, person=forge_scene.PERSON)) as space:
        HeartbeatWriter(space, ProcessInfo(WORKER, "newcomer")).beat()
    page.clock.run_for(8000)
    expect(workers).to_contain_text("newcomer")
    assert page.evaluate("window.still_here")
    page.close()


def test_links_lead_from_page_to_page(gallery: Gallery, ada: Person) -> None:
    """From the spaces to an agent, a commit and its trace; and from the graph to a session."""
    page = ada.tab("/")
    commit = f"/s/shop/commits/{gallery.names['traced']}"
    for name, address in (
        ("shop", "/s/shop/"),
        ("scout", "/s/shop/agents/scout"),
        (gallery.names["traced"][:12], commit),
        ("All 3 entries", f"{commit}/trace"),
        ("Graph", "/s/shop/graph"),
        ("session 1", "/s/shop/sessions/lead/1"),
        ("Answer in the inbox", "/s/shop/inbox/lead/1.3"),
    ):
        page.get_by_role("banner" if name == "Graph" else "main").get_by_role("link", name=name).first.click()
        expect(page).to_have_url(gallery.address + address)
    page.close()
