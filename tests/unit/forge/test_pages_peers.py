"""The pages of peers: their keys, what is accepted or refused and why, and the actions of administrators."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

import clia
from clia.forge.pages.peers import FOLLOW
from support.forge import ATTACK, assert_harmless, open_forge
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.forge import Browser, OpenForge


class PeersScene(NamedTuple):
    """A forge, and another space with hostile content."""

    forge: OpenForge
    other: clia.Space
    root: Path

    @property
    def peers(self) -> str:
        return f"{self.forge.base}/peers"

    def page(self, browser: Browser, *parts: str, query: str = "") -> str:
        answer = browser.get("/".join([self.peers, *parts]) + query)
        assert answer.status_code == 200, answer.text
        assert_harmless(answer.text)
        assert '<span class="count">0</span>' in answer.text  # of the inbox, in the page's frame
        return answer.text

    def send(self, browser: Browser, action: str, fields: dict[str, str | list[str]] | None = None) -> None:
        answer = browser.post(f"{self.peers}/{action}", fields)
        assert answer.status_code == 303, answer.text


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[PeersScene]:
    root = tmp_path.resolve() / "other"
    with open_forge(tmp_path) as opened, clia.init(root, settings=settings()) as other:
        opened.space.spawn("mine", BRIEFING)
        other.spawn("scout", BRIEFING)
        other.commit("scout", "finding", {"a.txt": b"1"}, message=f"Found {ATTACK}")
        other.peers.add("forge", opened.space.peers.key().text)
        other.sessions.define("greet", f"# {ATTACK}\ndef main(input):\n    return 1\n")
        other.peers.share("forge", agents=["*"], behaviours=["*"])
        other.peers.announce("forge")
        yield PeersScene(opened, other, root)


def test_an_administrator_can_follow_a_peer_from_the_page(scene: PeersScene) -> None:
    """Add, sync, see why nothing arrived, grant, sync again, merge, revoke, share, announce and remove, without scripts."""
    browser, space = scene.forge.browser(), scene.forge.space
    fields = {"name": "other", "key": scene.other.peers.key().text, "url": str(scene.root), "trusted": "on"}
    assert browser.post(scene.peers, fields).headers["location"] == f"{scene.peers}/other"
    page = scene.page(browser, "other")
    assert f"clia peer add NAME --key {space.peers.key().text}" in page.partition('id="silent"')[2]
    assert scene.other.peers.key().fingerprint in page
    scene.send(browser, "other/sync")
    page = scene.page(browser, "other")
    assert 'id="silent"' not in page
    assert "capability-denied" in page
    assert "clia cap grant other briefing spawn" in page.partition('id="waiting"')[2]
    assert "The peer must share agents" in page
    scene.send(browser, "other/follow")
    assert "allowed; it will be fetched" in scene.page(browser, "other")
    scene.send(browser, "other/sync")
    head = scene.other.head("scout")
    page = scene.page(browser, "other")
    assert f'href="{scene.peers}/other/agents/scout"' in page
    assert f"{scene.forge.base}/commits/{head}" in page
    assert "no expiry" in page.partition('id="grants"')[2]
    assert re.findall(r'scope="row" data-label="what">([^<]*)<', page) == ["behaviours/greet"]
    page = scene.page(browser, "other", "agents", "scout")
    assert "Found &lt;script&gt;" in page
    assert BRIEFING.text in page.partition('id="briefing"')[2]
    merged = browser.post(f"{scene.peers}/other/agents/scout/merges", {"into": "mine"})
    assert merged.headers["location"] == f"{scene.forge.base}/commits/{space.head('mine')}"
    grant = space.peers.grants("other")[0]
    scene.send(browser, "other/revoke", {"cid": grant.cid})
    assert grant not in space.peers.grants("other")
    scene.send(browser, "other/grants", {"type": "behaviour", "trigger": ["behaviour"], "execute": "on", "expires": "2027-01-31"})
    assert [(item.execute, item.expires) for item in space.peers.grants("other") if item.type == "behaviour"] == [
        (True, 1801353600)
    ]
    scene.send(browser, "other/share", {"agents": "mine", "behaviours": "*", "traces": "on"})
    assert space.peers.get("other").share == (("mine",), True, False, ("*",))
    scene.send(browser, "other/announce")
    scene.send(browser, "other/change", {"url": "", "trusted": "no"})
    assert (space.peers.get("other").trusted, space.peers.get("other").url) == (False, str(scene.root))
    assert browser.post(f"{scene.peers}/other/remove", {"name": "else"}).status_code == 422
    scene.send(browser, "other/remove", {"name": "other"})
    assert "No peers yet" in scene.page(browser)


def test_merged_work_of_a_peer_never_has_a_broken_link(scene: PeersScene) -> None:
    """On the pages of the agent, the commits and the graph, while the peer is tracked and after it is removed."""
    browser, space = scene.forge.browser(), scene.forge.space
    space.peers.add("other", scene.other.peers.key().text, str(scene.root))
    for type_, trigger in FOLLOW:
        space.peers.grant("other", type_, trigger)
    space.peers.sync("other")
    space.merge("mine", "other/scout")
    base, theirs = scene.forge.base, scene.other.head("scout")
    pages = [f"{base}/agents/mine", f"{base}/commits/{space.head('mine')}", f"{base}/commits/{theirs}", f"{base}/graph"]
    pages.append(f"{base}/graph?view=table")

    def links() -> set[str]:
        addresses: set[str] = set()
        for address in pages:
            answer = browser.get(address)
            assert answer.status_code == 200, address
            assert_harmless(answer.text)
            addresses |= set(re.findall(rf'href="({base}/(?:agents|peers|commits)/[^"#?]*)"', answer.text))
        assert [link for link in addresses if browser.get(link).status_code != 200] == []
        return addresses

    assert f"{base}/peers/other/agents/scout" in links()
    assert f'<dt>agent</dt><dd><a href="{base}/peers/other/agents/scout">' in browser.get(f"{base}/commits/{theirs}").text
    space.peers.remove("other")
    assert not any("/peers/" in link for link in links())


def test_conflicts_with_a_peers_work_are_shown(scene: PeersScene) -> None:
    browser, space = scene.forge.browser(), scene.forge.space
    space.peers.add("other", scene.other.peers.key().text, str(scene.root))
    for type_, trigger in FOLLOW:
        space.peers.grant("other", type_, trigger)
    space.peers.sync("other")
    space.commit("mine", "finding", {"a.txt": b"2"})
    answer = browser.post(f"{scene.forge.base}/agents/mine/merges", {"from": "other/scout"})
    page = browser.get(answer.headers["location"])
    assert (answer.status_code, page.status_code) == (303, 200)
    assert "clia resolve mine other/scout" in page.text
    assert f'href="{scene.peers}/other/agents/scout"' in page.text


def test_a_peers_behaviours_are_shown_with_whether_they_may_run(scene: PeersScene) -> None:
    browser, space = scene.forge.browser("vera", "viewer"), scene.forge.space
    space.peers.add("other", scene.other.peers.key().text, str(scene.root))
    space.peers.grant("other", "behaviour", "behaviour")
    space.peers.sync("other")

    def behaviours_section() -> str:
        return scene.page(browser, "other").partition('id="behaviours"')[2].partition("</section>")[0]

    assert "# &lt;script&gt;" in behaviours_section()
    assert 'data-label="may run here">no ' in behaviours_section()
    space.peers.grant("other", "behaviour", "behaviour", execute=True)
    assert 'data-label="may run here">yes<' in behaviours_section()


def test_an_agent_without_an_accepted_briefing_is_shown(scene: PeersScene) -> None:
    space = scene.forge.space
    space.peers.add("other", scene.other.peers.key().text, str(scene.root))
    space.peers.grant("other", "agent-commit", "head-move")
    space.peers.sync("other")
    page = scene.page(scene.forge.browser(), "other", "agents", "scout")
    assert BRIEFING.text not in page
    assert "clia cap grant other briefing spawn" in page


def test_viewers_can_read_and_change_nothing(scene: PeersScene) -> None:
    """They see no forms, and can ask why something is denied."""
    space = scene.forge.space
    space.peers.add("other", scene.other.peers.key().text, str(scene.root), trusted=False)
    browser = scene.forge.browser("vera", "viewer")
    pages = [scene.page(browser), scene.page(browser, "other")]
    assert [re.findall(r'<form method="post" action="([^"]*)"', page) for page in pages] == [["/logout"]] * 2
    explanation = scene.page(browser, query="?peer=other&type=finding&trigger=head-move").partition('id="explain"')[2]
    assert "Denied" in explanation
    assert "other is not trusted" in explanation
    assert "finding</code> → <code>agent-commit" in explanation
    assert "no-such-peer" in scene.page(browser, query="?peer=nobody&type=finding&trigger=head-move")
    before = space.peers(), space.peers.grants()
    for action in ("sync", "announce", "share", "grants", "follow", "revoke", "change", "remove"):
        assert browser.post(f"{scene.peers}/other/{action}", {"name": "other"}).status_code == 403
    assert browser.post(scene.peers, {"name": "x", "key": "y"}).status_code == 403
    assert browser.post(f"{scene.forge.base}/peers-key/rotate", {"word": "rotate"}).status_code == 403
    assert (space.peers(), space.peers.grants(), len(space.peers.key().chain)) == (*before, 1)


def test_errors_are_shown_beside_the_form(scene: PeersScene, tmp_path: Path) -> None:
    """An invalid key, an unreachable peer, an invalid date, a missing trigger; nothing changes."""
    browser, space = scene.forge.browser(), scene.forge.space
    answer = browser.post(scene.peers, {"name": "other", "key": ATTACK})
    assert answer.status_code == 422
    assert 'id="add-problem"' in answer.text
    assert_harmless(answer.text)
    space.peers.add("other", scene.other.peers.key().text, str(tmp_path / "gone"))
    answer = browser.post(f"{scene.peers}/other/sync", {})
    assert (answer.status_code, 'id="sync-problem"' in answer.text, "last sync" in answer.text) == (503, True, True)
    spawn = {"type": "finding", "trigger": "spawn"}
    for fields in ({"type": "finding"}, {**spawn, "expires": "soon"}, {**spawn, "type": "x"}):
        answer = browser.post(f"{scene.peers}/other/grants", fields)
        assert (answer.status_code, 'id="grant-problem"' in answer.text) == (422, True)
    assert space.peers.grants() == []
    assert browser.get(f"{scene.peers}/nobody").status_code == 404
    assert browser.get(f"{scene.peers}/other/agents/scout").status_code == 404


def test_only_an_administrator_creates_the_key_and_viewing_does_not(tmp_path: Path) -> None:
    with open_forge(tmp_path) as opened:
        viewer, admin = opened.browser("vera", "viewer"), opened.browser()
        at = f"{opened.base}/peers"
        assert [browser.get(at).text.count("clia:") for browser in (viewer, admin)] == [0, 0]
        assert viewer.post(f"{opened.base}/peers-key").status_code == 403
        assert admin.post(f"{opened.base}/peers-key").status_code == 303
        assert opened.space.peers.key().text in viewer.get(at).text


def test_the_key_is_replaced_after_typing_a_confirmation(tmp_path: Path) -> None:
    """The new key continues the old one; only a clone without the old key can start a new identity."""
    with open_forge(tmp_path) as opened:
        browser, space = opened.browser(), opened.space
        at, rotate = f"{opened.base}/peers", f"{opened.base}/peers-key/rotate"
        first = space.peers.key()
        page = browser.get(at).text
        assert first.fingerprint in page
        assert ('id="rotate"' in page, 'id="lost"' in page) == (True, False)
        for form, fields in (("rotate", {"word": "yes"}), ("rotate", {}), ("lost", {"word": "rotate", "lost": "on"})):
            answer = browser.post(rotate, fields)
            assert answer.status_code in (409, 422)
            assert f'id="{form}-problem"' in answer.text
            assert space.peers.key() == first
        assert browser.post(rotate, {"word": " rotate "}).headers["location"] == at
        assert space.peers.key().chain[:-1] == first.chain
        assert space.peers.key().fingerprint in browser.get(at).text
        shutil.rmtree(tmp_path / "repo" / ".git" / "clia" / "keys")
        page = browser.get(at).text
        assert ('id="rotate"' in page, 'id="lost"' in page) == (False, True)
        assert browser.post(rotate, {"word": "lost", "lost": "on"}).status_code == 422
        assert browser.post(rotate, {"word": "rotate", "lost": "on"}).status_code == 303
        assert (space.peers.key().chain, space.peers.key().mine) == ((space.peers.key().key,), True)
