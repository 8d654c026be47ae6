"""The pages of traces: paging, search, folding, long lines and single entries, with and without scripts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from support.fake_secrets import ALNUM
from support.forge import ATTACK, assert_harmless
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from support.forge import OpenForge

TOKEN = "ghp_" + ALNUM[:36]


@pytest.fixture
def forge(empty_forge: OpenForge) -> OpenForge:
    empty_forge.space.spawn("scout", BRIEFING)
    return empty_forge


def _numbers(page: str) -> list[int]:
    """The entries on a page, in order."""
    return [int(number) for number in re.findall(r'<li class="entry[^"]*" id="e(\d+)">', page)]


def _commit_with_trace(forge: OpenForge, *texts: str) -> str:
    return forge.space.traces.attach(
        forge.space.commit("scout", "test", {"a": texts[0].encode()}), [{"text": text} for text in texts]
    )


def test_pending_entries_come_first_then_the_newest_trace(forge: OpenForge) -> None:
    _commit_with_trace(forge, "oldest", "older")
    _commit_with_trace(forge, "newer")
    forge.space.trace("scout", "tool-call", f"pending {ATTACK}", data={"x": ATTACK})
    page = forge.browser().get(f"{forge.base}/agents/scout/trace").text
    assert_harmless(page)
    positions = [page.index(f"{text}</pre>") for text in ("newer", "oldest", "older")]
    assert positions == sorted(positions)
    assert page.index("pending &lt;script&gt;") < positions[0]
    assert _numbers(page) == [0, 1, 2, 3]
    head = forge.space.head("scout")
    assert f'href="{forge.base}/commits/{head}/trace?at=0#e0"' in page
    assert "1 entry pending, 2 commits have a trace" in page


def test_an_empty_trace_shows_how_to_add_entries(forge: OpenForge) -> None:
    browser = forge.browser()
    assert "clia trace add" in browser.get(f"{forge.base}/agents/scout/trace").text
    assert "clia trace attach" in browser.get(f"{forge.base}/commits/{forge.space.head('scout')}/trace").text


def test_colours_redactions_truncation_and_folding_are_shown(forge: OpenForge) -> None:
    entries = [
        {"text": "\x1b[31mred\x1b[0m", "kind": "console"},
        {"text": f"a token {TOKEN}"},
        {"text": "\n".join(f"line {number}" for number in range(50))},
        {"text": "y" * 30_000},
    ]
    cid = forge.space.head("scout")
    forge.space.traces.attach(cid, entries)
    browser = forge.browser()
    page = browser.get(f"{forge.base}/commits/{cid}/trace").text
    assert '<span class="ansi-fg-1">red</span>' in page
    assert 'class="redacted"' in page
    assert "1 redacted" in page
    assert TOKEN not in page
    assert page.count('<details class="entry-fold">') == 2
    assert f'href="{forge.base}/commits/{cid}/trace?entry=3">10,000 more characters' in page
    assert "y" * 30_000 not in page
    assert "y" * 30_000 in browser.get(f"{forge.base}/commits/{cid}/trace?entry=3").text
    unfolded = browser.get(f"{forge.base}/commits/{cid}/trace?unfold=1").text
    assert '<details class="entry-fold">' not in unfolded


def test_wrapping_can_be_disabled_and_every_link_keeps_that(forge: OpenForge) -> None:
    for number in range(250):
        forge.space.trace("scout", "console", f"entry {number}")
    browser = forge.browser()
    assert 'class="trace no-wrap"' not in browser.get(f"{forge.base}/agents/scout/trace").text
    page = browser.get(f"{forge.base}/agents/scout/trace?wrap=0").text
    assert 'class="trace no-wrap"' in page
    assert "/agents/scout/trace?wrap=0&amp;at=200" in page


def test_ten_thousand_entries_are_paged_with_links(forge: OpenForge) -> None:
    cid = forge.space.head("scout")
    forge.space.traces.attach(cid, [{"text": f"entry {number} \x1b[32mok\x1b[0m"} for number in range(10_000)])
    browser = forge.browser()
    for address in (f"{forge.base}/commits/{cid}/trace", f"{forge.base}/agents/scout/trace"):
        page = browser.get(address).text
        assert _numbers(page) == list(range(200))
        assert len(page) < 200_000
        assert f'href="{address}?at=200"' in page
        assert f'hx-get="{address}?at=200&amp;part=1"' in page
    middle = browser.get(f"{forge.base}/commits/{cid}/trace?at=5100").text
    assert _numbers(middle) == list(range(5000, 5200))
    assert f'rel="prev" href="{forge.base}/commits/{cid}/trace?at=4800"' in middle
    last = browser.get(f"{forge.base}/commits/{cid}/trace?at=99999999999999").text
    assert _numbers(last) == list(range(200))
    assert _numbers(browser.get(f"{forge.base}/commits/{cid}/trace?at=10000").text)[-1] == 9999
    part = browser.get(f"{forge.base}/commits/{cid}/trace?at=9800&part=1").text
    assert _numbers(part) == list(range(9800, 10_000))
    assert "<html" not in part
    assert "hx-get" not in part


def test_a_page_may_contain_the_end_of_one_trace_and_the_start_of_the_next(
    forge: OpenForge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clia.forge.pages.traces.SIZE", 3)
    _commit_with_trace(forge, "a0", "a1")
    _commit_with_trace(forge, "b0", "b1")
    browser = forge.browser()
    first = browser.get(f"{forge.base}/agents/scout/trace").text
    second = browser.get(f"{forge.base}/agents/scout/trace?at=3").text
    assert re.findall(r">([ab]\d)</pre>", first) == ["b0", "b1", "a0"]
    assert re.findall(r">([ab]\d)</pre>", second) == ["a1"]
    assert first.count("Attached to") == 2
    assert second.count("Attached to") == 0


def test_search_covers_the_whole_trace_and_links_the_matches(forge: OpenForge) -> None:
    cid = forge.space.head("scout")
    words = {3: "a NEEDLE here", 10: "needle", 450: "needle", 451: "x"}
    entries = [{"text": words.get(number, f"hay {number}")} for number in range(600)]
    entries[599]["data"] = {"found": ["needle"]}  # type: ignore[assignment]
    forge.space.traces.attach(cid, entries)
    browser = forge.browser()
    address = f"{forge.base}/commits/{cid}/trace"
    first = browser.get(f"{address}?q=needle")
    assert (first.status_code, first.headers["location"]) == (303, f"{address}?q=needle&hit=0#e3")
    page = browser.get(f"{address}?q=needle&hit=0").text
    assert "match 1 of 4" in page
    assert "Hit before" not in page
    assert '<mark class="hit">NEEDLE</mark>' in page
    assert f'href="{address}?q=needle&amp;hit=1#e10"' in page
    middle = browser.get(f"{address}?q=needle&hit=2").text
    assert _numbers(middle)[0] == 400
    assert 'class="entry is-hit is-current" id="e450"' in middle
    assert f'href="{address}?q=needle&amp;hit=1#e10"' in middle
    last = browser.get(f"{address}?q=needle&hit=99").text
    assert "match 4 of 4" in last
    between = browser.get(f"{address}?q=needle&at=200").text
    assert f'href="{address}?q=needle&amp;hit=1#e10"' in between
    assert f'href="{address}?q=needle&amp;hit=2#e450"' in between
    assert "no matches" in browser.get(f"{address}?q=nowhere").text


def test_the_search_text_is_escaped_on_the_page(forge: OpenForge) -> None:
    cid = forge.space.head("scout")
    forge.space.traces.attach(cid, [{"text": f"x {ATTACK} y"}])
    browser = forge.browser()
    answer = browser.client.get(f"{forge.base}/commits/{cid}/trace", params={"q": ATTACK}, follow_redirects=True)
    assert answer.status_code == 200
    assert "match 1 of 1" in answer.text
    assert_harmless(answer.text)
    no_match = browser.client.get(f"{forge.base}/agents/scout/trace", params={"q": f"no {ATTACK}" * 50}, follow_redirects=True)
    assert no_match.status_code == 200
    assert_harmless(no_match.text)


@pytest.mark.parametrize("query", ["entry=1", "entry=x", "entry=-1", "version=x", "version=" + "0" * 40])
def test_an_unknown_entry_or_version_is_a_404(forge: OpenForge, query: str) -> None:
    cid = forge.space.head("scout")
    forge.space.traces.attach(cid, [{"text": "only"}])
    assert forge.browser().get(f"{forge.base}/commits/{cid}/trace?{query}").status_code == 404


@pytest.mark.parametrize(
    "query", ["at=x", "at=-5", "hit=x&q=only", "hit=-1&q=only", "wrap=x", "unfold=x", "part=x", "q=%ff", "q=%00"]
)
def test_an_invalid_query_does_no_harm(forge: OpenForge, query: str) -> None:
    cid = forge.space.head("scout")
    forge.space.traces.attach(cid, [{"text": "only"}])
    assert forge.browser().get(f"{forge.base}/commits/{cid}/trace?{query}").status_code == 200


def test_a_short_name_redirects_to_the_trace_of_the_full_id(forge: OpenForge) -> None:
    cid = forge.space.head("scout")
    answer = forge.browser().get(f"{forge.base}/commits/scout/trace?q=a%20b")
    assert answer.headers["location"] == f"{forge.base}/commits/{cid}/trace?q=a%20b"


def test_traces_are_only_shown_to_users(forge: OpenForge) -> None:
    assert forge.stranger().get(f"{forge.base}/agents/scout/trace").headers["location"].startswith("/login")
    assert forge.browser("eve", "viewer").get(f"{forge.base}/agents/scout/trace").status_code == 200
