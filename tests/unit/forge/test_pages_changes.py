"""The pages of work that has not landed: the list, the change of an agent, and landing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from support.forge import ATTACK, assert_harmless
from support.plain_git import fast_import
from support.session_spaces import root_of

if TYPE_CHECKING:
    from support.forge import OpenForge

NASTY = f"notes {ATTACK.replace('/', '')}.py"
SOURCE = b"def count(box):\n    return 3  # apples\n"


@pytest.fixture
def forge(empty_forge: OpenForge) -> OpenForge:
    """Two agents from one commit of main change the same line; scout also adds a file."""
    space = empty_forge.space
    fast_import(root_of(space), "refs/heads/main", {b"shop.py": SOURCE})
    for name, number in (("scout", b"4"), ("rival", b"5")):
        space.spawn_at(name, clia.Briefing(f"Count {name} {ATTACK}"), "main")
        space.commit(name, "finding", changes={"shop.py": SOURCE.replace(b"3", number)}, message=f"{name} counts {ATTACK}")
    space.commit("scout", "test", changes={NASTY: b"x = 1\n"}, message="make test: 3 passed")
    return empty_forge


def test_the_list_shows_what_has_not_landed_with_its_size(forge: OpenForge) -> None:
    page = forge.browser().get(f"{forge.base}/changes")
    assert page.status_code == 200
    assert "2 agents have work" in page.text
    assert f'href="{forge.base}/changes/scout?onto=main"' in page.text
    assert page.text.count("lands cleanly") == 2
    assert '<span class="plus">+2</span> <span class="minus">\u22121</span>' in page.text
    assert "rival</a> and" in page.text
    assert_harmless(page.text)


def test_a_change_shows_commits_tests_files_and_authors(forge: OpenForge) -> None:
    page = forge.browser().get(f"{forge.base}/changes/scout").text
    assert "make test: 3 passed" in page
    assert "2 files changed" in page
    assert "2 of 2 lines by 1 agent" in page
    assert "lands cleanly" in page
    assert 'value="fast-forward"' in page
    assert_harmless(page)


def test_the_diff_has_syntax_colours_and_can_be_side_by_side(forge: OpenForge) -> None:
    browser = forge.browser()
    unified, split = (browser.get(f"{forge.base}/changes/scout{query}").text for query in ("", "?view=split"))
    for page in (unified, split):
        assert '<span class="hl-keyword">return</span>' in page
        assert 'class="hl-comment">' in page
    assert '<table class="diff split">' in split
    assert '<table class="diff">' in unified
    assert '<span class="visually-hidden">deleted: </span>' in split
    assert_harmless(split)


def test_three_requests_lead_from_the_overview_to_landed_work(forge: OpenForge) -> None:
    browser = forge.browser()
    assert f'href="{forge.base}/changes"' in browser.get(f"{forge.base}/").text
    head = forge.space.head("scout")
    assert f'name="head" value="{head}"' in browser.get(f"{forge.base}/changes/scout").text
    answer = browser.post(f"{forge.base}/changes/scout/landings", {"head": head, "onto": "main", "how": "", "message": ""})
    assert answer.status_code == 303
    landed = forge.space.show("main")
    assert answer.headers["location"] == f"{forge.base}/commits/{landed.cid}"
    assert landed.landed == "scout"
    assert "has all work of scout" in browser.get(f"{forge.base}/changes/scout").text


def test_work_that_was_recorded_after_the_page_is_not_landed_unseen(forge: OpenForge) -> None:
    browser, head, before = forge.browser(), forge.space.head("scout"), forge.space.find("main")
    forge.space.commit("scout", "finding", changes={"more.py": b"2\n"})
    answer = browser.post(f"{forge.base}/changes/scout/landings", {"head": head, "onto": "main"})
    assert answer.status_code == 409
    assert "scout has done more work since you looked" in answer.text
    assert forge.space.find("main") == before


def test_a_landing_that_lost_a_race_changes_nothing_and_shows_the_conflict(forge: OpenForge) -> None:
    browser, head = forge.browser(), forge.space.head("rival")
    forge.space.land("scout", "main")
    before = forge.space.find("main")
    answer = browser.post(f"{forge.base}/changes/rival/landings", {"head": head, "onto": "main"})
    assert answer.headers["location"] == f"{forge.base}/changes/rival?onto=main#conflicts"
    assert forge.space.find("main") == before
    page = browser.get(f"{forge.base}/changes/rival").text
    assert "1 file conflicts with" in page
    assert "main: changed" in page
    assert "rival: changed" in page
    assert "landings" not in page, "there is no form to land it"


def test_only_administrators_land(forge: OpenForge) -> None:
    browser = forge.browser("vera", "viewer")
    page = browser.get(f"{forge.base}/changes/scout")
    assert page.status_code == 200
    assert "An administrator can land it" in page.text
    assert browser.post(f"{forge.base}/changes/scout/landings", {"onto": "main"}).status_code == 403
    assert forge.stranger().post(f"{forge.base}/changes/scout/landings", {"onto": "main"}).status_code in (303, 401, 403)


def test_an_unknown_branch_is_named(forge: OpenForge) -> None:
    page = forge.browser().get(f"{forge.base}/changes?onto=mian")
    assert page.status_code == 200
    assert "no branch &#39;mian&#39;; did you mean &#39;main&#39;?" in page.text
    assert forge.browser().get(f"{forge.base}/changes/scout?onto=mian").status_code == 404
    assert forge.browser().get(f"{forge.base}/changes/nobody").status_code == 404
