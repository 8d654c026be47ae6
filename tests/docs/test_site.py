"""The built site: every page, and no resources from other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from docs import pages
from support.browser import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTSIDE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"(?:url\(|@import)\s*[\"']?\s*(?:https?:)?//[^\s\"')]+", re.IGNORECASE)
IN_SCRIPTS = re.compile(r"https?://[^\s\"']+")
FETCHING = {"src", "srcset", "href", "data", "poster", "action", "background", "formaction", "manifest"}


class Assets(HTMLParser):
    """The resources that a browser fetches from other hosts for a page; plain links do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self._tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        for key, value in attrs:
            if key in FETCHING and (tag, key) != ("a", "href") and OUTSIDE.match(value or ""):
                self.outside.append(f"<{tag} {key}={value}>")
            elif key == "style":
                self.outside += IN_STYLES.findall(value or "")

    def handle_data(self, data: str) -> None:
        if self._tag == "script":
            self.outside += IN_SCRIPTS.findall(data)
        elif self._tag == "style":
            self.outside += IN_STYLES.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""


def outside(html: str) -> list[str]:
    reader = Assets()
    reader.feed(html)
    return reader.outside


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    mkdocs = [str(Path(sys.executable).parent / "mkdocs"), "build", "--strict", "--quiet", "--site-dir", str(directory)]
    result = subprocess.run(mkdocs, cwd=pages.ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return directory


def test_the_site_has_every_page(site: Path) -> None:
    for page in (pages.ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(pages.ROOT / "docs")).with_suffix(".html").is_file()


def test_no_page_fetches_from_other_hosts(site: Path) -> None:
    html = {path: outside(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert {path.name: addresses for path, addresses in html.items() if addresses} == {}
    styles = {path: IN_STYLES.findall(path.read_text(encoding="utf-8")) for path in site.rglob("*.css")}
    assert styles
    assert {path.name: addresses for path, addresses in styles.items() if addresses} == {}


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example.org/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/x.css">',
        '<img src="http://example.org/x.png"/>',
        '<p style="background: url(https://example.org/x.png)">x</p>',
        "<style>@import 'https://example.org/x.css';</style>",
        "<script>load('https://example.org/x.js')</script>",
    ],
)
def test_foreign_resources_are_found(html: str) -> None:
    assert outside(html)


def test_a_plain_link_is_not_a_resource() -> None:
    assert outside('<a href="https://example.org/">x</a><img src="img/x.png">') == []


_TYPED = "(field, text) => { field.value = text; field.dispatchEvent(new Event('input')); }"


def _levels(entries: list[Any]) -> list[int]:
    """The number of entries of each menu level."""
    inner = [value for entry in entries for value in entry.values() if isinstance(value, list)]
    return [len(entries), *(count for level in inner for count in _levels(level))]


def test_no_menu_level_has_more_than_twelve_entries() -> None:
    text = (pages.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert max(_levels(yaml.safe_load(text)["nav"])) <= 12


def test_code_is_coloured(site: Path) -> None:
    page = (site / "how-to" / "mcp.html").read_text(encoding="utf-8")
    assert '<span class="kn">import</span>' in page
    assert ".codehilite .k" in (site / "assets" / "code.css").read_text(encoding="utf-8")


@pytest.mark.parametrize("served", [False, True], ids=["from a folder", "served"])
def test_search_finds_a_section(site: Path, served: bool) -> None:
    with chromium() as browser, _address(site, served=served) as address:
        page = browser.new_page()
        page.goto(f"{address}/how-to/land.html")
        page.locator("#mkdocs-search-query").evaluate(_TYPED, "no-git-identity")
        page.wait_for_selector("#mkdocs-search-results a", state="attached")
        link = page.locator("#mkdocs-search-results a").first
        assert "no-git-identity" in (link.text_content() or "")
        assert (link.get_attribute("href") or "").endswith("reference/troubleshooting.html#no-git-identity")
        page.locator("#mkdocs-search-query").evaluate(_TYPED, "qqqqq")
        page.wait_for_function("document.getElementById('mkdocs-search-results').textContent === 'no results'")


@contextmanager
def _address(site: Path, *, served: bool) -> Iterator[str]:
    """The address of the site: its folder, or a server on this machine."""
    if not served:
        yield site.as_uri()
        return
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
