"""The built site: every page, and no resources from other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs import pages

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
