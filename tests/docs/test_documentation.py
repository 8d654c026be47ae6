"""The documentation: its commands, links and coverage."""

from __future__ import annotations

import doctest
import json
import pkgutil
import re
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import markdown  # type: ignore[import-untyped]  # it comes with mkdocs and has no types
import pytest
import yaml

import clia
from clia.cli.registry import TREE, Group
from docs import pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = pages.documents()
COLD = pages.cold_commands()
LOOPBACK = "127.0.0.1"
"""The only host outside example.org that a page may name: it means the reader's machine."""
WRITTEN = [page for page in PAGES if not pages.is_generated(page)]


def name_of(page: Path) -> str:
    return str(page.relative_to(pages.ROOT))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def server_variables(address: str) -> dict[str, str]:
    """Variables with the address of the PostgreSQL server."""
    from psycopg.conninfo import conninfo_to_dict  # 430 ms, and two pages need it

    named = {"host": "PGHOST", "user": "PGUSER", "dbname": "PGDATABASE", "options": "PGOPTIONS"}
    return {named[key]: str(value) for key, value in conninfo_to_dict(address).items()}


@every_page
def test_the_commands_of_a_page_print_what_it_shows(page: Path, request: pytest.FixtureRequest) -> None:
    needs_server = name_of(page) in ("docs/how-to/postgres.md", "docs/how-to/forge.md", "docs/how-to/many-machines.md")
    more = server_variables(request.getfixturevalue("postgres_address")) if needs_server else {}
    with pages.fresh() as (work, home):
        failures = pages.run(text_of(page), work, home, more, cold=COLD[page])
    assert not failures, "\n\n".join(f"{name_of(page)} {failure}" for failure in failures)


def test_the_tutorial_and_every_guide_have_commands() -> None:
    run = {name_of(page) for page in PAGES if pages.steps(text_of(page))}
    guides = {name_of(page) for page in (pages.ROOT / "docs" / "how-to").glob("*.md")}
    assert guides
    tutorials = {f"docs/tutorial{which}.md" for which in ("", "-space", "-sessions", "-forge", "-agents")}
    other_pages = {"README.md", "docs/index.md", *tutorials}
    assert guides | other_pages | {"docs/explanation/lineage.md", "docs/explanation/space.md"} <= run


@every_page
def test_every_block_has_a_language_that_is_checked(page: Path) -> None:
    for block in pages.blocks(text_of(page)):
        assert block.language in pages.LANGUAGES, f"{name_of(page)} line {block.line}"
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "yaml":
            yaml.safe_load(block.text)


# Links


class Parsed(NamedTuple):
    links: list[str]
    headings: list[str]
    anchors: set[str]  # as on the site


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found = Parsed([], [], set())
        self._in_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if re.fullmatch(r"h[1-6]", tag):
            self._in_heading = True
            self.found.headings.append("")
            self.found.anchors.add(attributes.get("id") or "")
        self.found.links.extend(value for key in ("href", "src") if (value := attributes.get(key)) is not None)

    def handle_endtag(self, tag: str) -> None:
        self._in_heading = self._in_heading and not re.fullmatch(r"h[1-6]", tag)

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self.found.headings[-1] += data


@cache
def parsed(page: Path) -> Parsed:
    reader = Reader()
    reader.feed(markdown.markdown(text_of(page), extensions=["tables", "fenced_code", "toc"]))
    return reader.found


def forge_anchor(heading: str) -> str:
    """The anchor that forges give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def broken(page: Path, link: str) -> str | None:
    """The problem of a link, on the site or on a forge; None if it is valid."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_file():
        return "there is no such file"
    docs = pages.ROOT / "docs"
    if page.is_relative_to(docs) and not target.is_relative_to(docs):
        return "the site has no such page"
    if parts.fragment and parts.fragment not in parsed(target).anchors:
        return "the site has no such heading"
    if parts.fragment and parts.fragment not in map(forge_anchor, parsed(target).headings):
        return "a forge has no such heading"
    return None


@every_page
def test_every_link_and_anchor_has_a_target(page: Path) -> None:
    broken_links = {link: reason for link in parsed(page).links if (reason := broken(page, link))}
    assert not broken_links


def test_contributing_and_the_design_pages_name_files_that_exist() -> None:
    missing = set()
    for page in (pages.ROOT / "CONTRIBUTING.md", *(pages.ROOT / "docs" / "design").glob("*.md")):
        named = re.findall(r"`((?:src|tests|tools|docs|benchmarks)/[\w./-]+)`", text_of(page))
        # Capitals are placeholders: src/clia/forge/pages/NAME.py.
        missing |= {(page.name, path) for path in named if path == path.lower() and not (pages.ROOT / path).exists()}
    assert missing == set()


def test_a_broken_link_is_found() -> None:
    index = pages.ROOT / "docs" / "index.md"
    assert broken(index, "tutorial.md") is None
    assert broken(index, "#install") is None
    assert broken(index, "none.md") == "there is no such file"
    assert broken(index, "tutorial.md#none") == "the site has no such heading"
    assert broken(index, "../README.md") == "the site has no such page"


@every_page
def test_no_page_names_a_machine_or_a_host(page: Path) -> None:
    text = text_of(page)
    hosts = {urlsplit(url).hostname or "" for url in re.findall(r"https?://[^\s)\"'`>]+", text)}
    assert {host for host in hosts if not host.endswith((".example.org", ".localhost")) and host != LOOPBACK} == set()
    assert not re.search(rf"(?<!\w)/(?:home|root|tmp|usr|var|Users)/|{re.escape(str(pages.ROOT))}", text)


# Coverage


def commands(group: Group, words: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, Group):
            yield from commands(command, f"{words} {name}")
        else:
            yield f"{words} {name}"


@pytest.mark.parametrize("command", list(commands(TREE, "clia")))
def test_every_command_is_on_a_hand_written_page(command: str) -> None:
    assert any(re.search(rf"{re.escape(command)}\b", text_of(page)) for page in WRITTEN)


@pytest.mark.parametrize("command", list(commands(TREE, "clia")))
def test_every_command_is_in_the_reference(command: str) -> None:
    assert f"\n## {command}\n" in text_of(pages.ROOT / "docs" / "reference" / "commands.md")


def test_the_examples_in_docstrings_work() -> None:
    examples = 0
    for module in pkgutil.walk_packages(clia.__path__, "clia."):
        results = doctest.testmod(import_module(module.name))
        assert results.failed == 0, module.name
        examples += results.attempted
    assert examples
