"""The lineage pages and their API: chains, merged documents, origins of values, and problems in documents."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.forge.pages import lineage as page
from clia.forge.rendering import lineage_tree
from clia.identities import service as lineages
from clia.identities.service import RelativePaths
from support.forge import ATTACK, OpenForge, assert_harmless, open_forge
from support.spaces import refused

if TYPE_CHECKING:
    from pathlib import Path

    from httpx2 import Response

PANEL = {"hx-request": "true", "hx-request-type": "partial", "hx-target": "aside#explanation"}
API = "/api/v1/spaces/repo/lineage"


def write(directory: Path, slug: str, kind: str, document: dict[str, Any] | str) -> Path:
    home = directory / ".clia/agents" / slug
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{directory.name}.{kind}.triad.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=1), encoding="utf-8")
    return path


@pytest.fixture
def forge(empty_forge: OpenForge, tmp_path: Path) -> OpenForge:
    """``scout`` has documents above the space and in it."""
    outer = {"title": "Scout", "purpose": "Look.", "guardrails": ["Ask first."], "persona": {"a/b": 1}}
    write(tmp_path, "scout", "agent", outer)
    own = {"title": "Scout of the shop", "guardrails": ["Never push."], "tags": ["shop"], "purpose": " "}
    write(tmp_path / "repo", "scout", "agent", own)
    write(tmp_path / "repo", "scout", "agenda", {"title": "The plan", "backlog": ["one", "two"]})
    return empty_forge


def get_page(forge: OpenForge, rest: str = "", status: int = 200, **more: Any) -> Response:
    answer = forge.browser().get(f"{forge.base}/lineage{rest}", **more)
    assert answer.status_code == status, answer.text
    assert_harmless(answer.text)
    return answer


def explanation(forge: OpenForge, at: str, document: str = "profile", status: int = 200) -> str:
    """The text of the panel about one value."""
    text = get_page(forge, f"/scout?document={document}&at={at}", status, headers=PANEL).text
    assert "<html" not in text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def get_api(forge: OpenForge, rest: str = "", status: int = 200) -> Any:
    answer = forge.browser().get(API + rest)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/json" if status == 200 else "application/problem+json")
    return answer.json()


# The pages


def test_every_visible_identity_is_listed(forge: OpenForge, tmp_path: Path) -> None:
    write(tmp_path / "repo", "root", "agent", {"title": "Root"})
    text = get_page(forge).text
    assert 'href="/s/repo/lineage/scout"' in text
    assert "Scout of the shop" in text
    assert "/lineage/root" not in text
    assert 'href="/s/repo/lineage/root"' in get_page(forge, "?all=1").text


def test_without_documents_the_page_says_how_to_create_some(tmp_path: Path) -> None:
    with open_forge(tmp_path) as opened:
        assert "clia agents init SLUG" in get_page(opened).text


def test_each_document_has_its_chain_files_and_tree(forge: OpenForge) -> None:
    profile = get_page(forge, "/scout").text
    assert re.findall(r"(\.\./)?\.clia/agents/scout/\S+?\.agent\.triad\.json", profile.partition("</ol>")[0]) == ["../", ""]
    for text in ("Scout of the shop", "Ask first.", "Never push.", "ancestor", "set by file 1", "set by file 2"):
        assert text in profile
    assert "The plan" in get_page(forge, "/scout?document=plan").text
    assert "No file defines this document." in get_page(forge, "/scout?document=agency").text


def test_every_value_of_the_tree_links_to_its_explanation(forge: OpenForge) -> None:
    text = get_page(forge, "/scout").text
    links = [address.replace("&amp;", "&") for address in re.findall(r'<a class="value" href="([^"]+)#at"', text)]
    assert "?document=profile&at=/persona/a~1b" in links
    assert "?document=profile&at=/guardrails/1" in links
    for address in links:
        page_text = get_page(forge, f"/scout{address}").text
        assert 'id="at" aria-current="true"' in page_text
        assert "Shadowed" in page_text


def test_a_value_is_explained_by_its_winner_and_shadowed_values(forge: OpenForge) -> None:
    title = explanation(forge, "/title")
    assert "last-non-empty : the innermost non-empty value wins" in title
    winner, shadowed = title.split("Shadowed")
    assert ".clia/agents/scout/repo.agent.triad.json:2" in winner
    assert re.search(r"1 \.\./\.clia/agents/scout/\S+:2 /title \w+ overridden Scout ", shadowed)
    assert re.search(r"2 \.clia/agents/scout/repo\.agent\.triad\.json:\d+ /purpose \w+ empty", explanation(forge, "/purpose"))
    assert "no file sets it: the requested slug" in explanation(forge, "/slug")
    assert "none: merged from several values" in explanation(forge, "/guardrails")
    assert explanation(forge, "/guardrails").count("/guardrails/0") == 2
    assert "each field has its own rule" in explanation(forge, "")
    assert "union-by-text" in explanation(forge, "/backlog/1", "plan")


def test_only_a_partial_request_gets_the_panel_alone(forge: OpenForge) -> None:
    page_text = get_page(forge, "/scout?at=/title", headers={**PANEL, "hx-target": "body"}).text
    assert "<html" in page_text
    answer = get_page(forge, "/scout?at=/title", headers=PANEL)
    assert "HX-Target" in answer.headers["vary"]


@pytest.mark.parametrize(
    ("at", "status"), [("/nowhere", 404), ("/guardrails/9", 404), ("/guardrails/-1", 404), ("title", 422), ("/%ff%00", 404)]
)
def test_an_unknown_value_is_reported_beside_the_document(forge: OpenForge, at: str, status: int) -> None:
    assert explanation(forge, at, status=status)
    page_text = get_page(forge, f"/scout?at={at}", status).text
    assert 'role="alert"' in page_text
    assert "Never push." in page_text, "the document is still shown"


@pytest.mark.parametrize(
    "rest", ["/nobody", "/No%20Slug", "/..%2F..", "/scout?document=diary", "/scout?under=/nowhere", "/%3Cscript%3E"]
)
def test_an_unknown_identity_or_document_is_not_found(forge: OpenForge, rest: str) -> None:
    assert str(forge.forge.sites["repo"].path) not in get_page(forge, rest, 404).text


def test_the_content_of_documents_is_shown_as_text(forge: OpenForge, tmp_path: Path) -> None:
    hostile = {
        "title": ATTACK,
        ATTACK: [ATTACK, {ATTACK: ATTACK}],
        "guardrails": [f"\u202e{ATTACK}"],
        "extensions": {"x-badge": ATTACK},
    }
    hostile |= {"role": ATTACK, "status": ATTACK, "notes": "<b>\x1b[31m"}
    write(tmp_path / "repo", "scout", "agent", hostile | {"inherits": [ATTACK]})
    write(tmp_path / "repo", "scout", "agenda", hostile)
    assert "&lt;script&gt;" in get_page(forge).text
    for document in ("profile", "plan"):
        text = get_page(forge, f"/scout?document={document}").text
        assert "&lt;script&gt;" in text
        assert "\u202e" not in text
        for link in re.findall(r'<a class="value" href="([^"]+)#at"', text):
            address = link.replace("&amp;", "&")
            get_page(forge, f"/scout{address}")
            get_page(forge, f"/scout{address}", headers=PANEL)


def test_an_unusual_directory_name_is_not_an_error(tmp_path: Path) -> None:
    with open_forge(tmp_path) as opened:
        home = tmp_path / "repo/.clia/agents/scout"
        home.mkdir(parents=True)
        (home / f"{ATTACK.replace('/', '')}\udcff.agent.triad.json").write_text('{"title": "Odd"}')
        (tmp_path / "repo/.clia/agents/No \udcff Slug<b>").mkdir()
        assert "Odd" in get_page(opened, "/scout").text
        assert "invalid-slug" in get_page(opened).text
        assert get_api(opened, "/scout/profile")["document"]["title"] == "Odd"


def test_a_document_that_is_not_json_is_reported_with_its_position(forge: OpenForge, tmp_path: Path) -> None:
    write(tmp_path / "repo", "scout", "agent", '{\n "title": "x",\n oops }')
    text = get_page(forge, "/scout").text
    assert "invalid-json" in text
    assert ".clia/agents/scout/repo.agent.triad.json:3" in text
    assert "Ask first." in text, "the other layers are merged"
    assert "repo.agent.triad.json:3" in get_page(forge).text
    diagnostics = get_api(forge, "/scout/profile")["diagnostics"]
    assert [(diagnostic["code"], diagnostic["path"], diagnostic["line"]) for diagnostic in diagnostics] == [
        ("invalid-json", ".clia/agents/scout/repo.agent.triad.json", 3)
    ]


def test_line_numbers_are_looked_up_within_a_size_limit(forge: OpenForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "repo", "scout", "agent", {"inherits": [f"missing-{n}.json" for n in range(4)]})
    monkeypatch.setattr(lineages, "LINES_BYTES", 2 * path.stat().st_size)
    assert [diagnostic["line"] for diagnostic in get_api(forge, "/scout/profile")["diagnostics"]] == [3, 4, None, None]


def test_an_invalid_root_chain_is_reported_with_its_position(forge: OpenForge, tmp_path: Path) -> None:
    document = {"title": "x", "rootChain": {"mode": "explicit", "roots": [{"path": ATTACK}]}}
    write(tmp_path / "repo", "scout", "agent", document)
    text = get_page(forge, "/scout", 422).text
    assert "invalid-root-chain" in text
    assert "/rootChain/roots/0/path" in text
    assert re.search(r"repo\.agent\.triad\.json:\d", text)
    assert "invalid-root-chain" in get_page(forge).text
    problem = get_api(forge, "/scout/profile", 422)
    assert (problem["code"], problem["fields"]["pointer"]) == ("invalid-root-chain", "/rootChain/roots/0/path")
    assert str(tmp_path) not in json.dumps(problem)


@pytest.mark.parametrize(
    "text", ["[]", '"x"', "", '{"title": 7, "guardrails": 5}', '{"a":' * 200 + "1" + "}" * 200, "\ufeff{}", "\x00"]
)
def test_the_page_is_shown_whatever_a_document_contains(forge: OpenForge, tmp_path: Path, text: str) -> None:
    for kind in ("agent", "agenda", "agency"):
        write(tmp_path / "repo", "scout", kind, text)
    for rest in ("", "/scout", "/scout?document=plan", "/scout?document=agency"):
        get_page(forge, rest)


def test_a_long_list_continues_behind_a_link(forge: OpenForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_tree, "CHILDREN", 7)
    write(tmp_path / "repo", "scout", "agenda", {"backlog": [f"item {n}." for n in range(20)]})
    address, items = "?document=plan", []
    while address:
        text = get_page(forge, f"/scout{address}").text.partition('class="doc"')[2]
        items += re.findall(r"item \d+\.", text)
        link = re.search(r'<a href="([^"]+)">… \d+ more</a>', text.partition("backlog")[2] if address == "?document=plan" else text)
        address = link[1].replace("&amp;", "&") if link else ""
    assert items == [f"item {n}." for n in range(20)]


def test_a_document_that_is_too_deep_or_too_large_continues_behind_links(
    forge: OpenForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "repo", "scout", "agenda", json.dumps({"x": json.loads('{"a":' * 60 + '"the bottom"' + "}" * 60)}))
    address, steps = "?document=plan", 0
    while "the bottom" not in (text := get_page(forge, f"/scout{address}").text):
        address = re.findall(r'<a href="([^"]+)">… show contents', text)[-1].replace("&amp;", "&")
        steps += 1
    assert steps == 60 // lineage_tree.LEVELS
    monkeypatch.setattr(lineage_tree, "LINES", 5)
    write(tmp_path / "repo", "scout", "agenda", {f"f{n}": {"inside": n} for n in range(50)})
    assert "show contents" in get_page(forge, "/scout?document=plan").text


def test_a_long_explanation_is_truncated(forge: OpenForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PLACES", 3)
    write(tmp_path / "repo", "scout", "agenda", {"backlog": [f"item {n}" for n in range(10)]})
    assert "7 more" in explanation(forge, "/backlog", "plan")
    monkeypatch.setattr(page, "LINES_BYTES", 0)
    assert "agenda.triad.json /backlog/0" in explanation(forge, "/backlog/0", "plan"), "without a line"


def test_a_viewer_can_see_the_lineage_and_a_stranger_cannot(forge: OpenForge) -> None:
    viewer, stranger = forge.browser("vic", "viewer"), forge.stranger()
    for rest in ("", "/scout", "/scout?at=/title"):
        assert viewer.get(f"/s/repo/lineage{rest}").status_code == 200
        assert stranger.get(f"/s/repo/lineage{rest}").status_code == 303
    for rest in ("", "/scout/profile", "/scout/profile/explain?at="):
        assert viewer.get(API + rest).status_code == 200
        assert stranger.get(API + rest).status_code == 401
    assert viewer.get("/api/v1/spaces/elsewhere/lineage").status_code == 404


# The API


def test_the_api_lists_identities_with_relative_paths(forge: OpenForge, tmp_path: Path) -> None:
    write(tmp_path / "repo", "root", "agent", {})
    listing = get_api(forge)
    assert [(agent["slug"], agent["title"], agent["contexts"], agent["directory"]) for agent in listing["agents"]] == [
        ("scout", "Scout of the shop", 2, ".")
    ]
    assert [agent["slug"] for agent in get_api(forge, "?all=true")["agents"]] == ["root", "scout"]


def test_the_api_returns_what_the_library_returns(forge: OpenForge, tmp_path: Path) -> None:
    lineage = clia.lineage(tmp_path / "repo", "scout")
    for document, kind in (("profile", "agent"), ("plan", "agenda"), ("agency", "agency")):
        merged = get_api(forge, f"/scout/{document}")
        assert (merged["kind"], merged["document"]) == (kind, lineage.merged(kind).document)
        assert [item["path"] for item in merged["chain"]] == ["..", "."]
    story, expected = get_api(forge, "/scout/profile/explain?at=/title"), lineage.explain("/title").to_json()
    assert story["winner"]["path"] == ".clia/agents/scout/repo.agent.triad.json"
    for field in ("pointer", "value", "valueSha256", "rule", "story", "note"):
        assert story[field] == expected[field]
    for part in ("contributors", "shadowed"):
        assert [{**item, "path": ""} for item in story[part]] == [{**item, "path": ""} for item in expected[part]]
    assert story["winner"]["sha256"] == expected["winner"]["sha256"]


@pytest.mark.parametrize(
    ("rest", "status", "code"),
    [
        ("?all=1", 422, "invalid-field"),
        ("?al=true", 422, "unknown-field"),
        ("/nobody/profile", 404, "agent-not-found"),
        ("/No%20Slug/profile", 422, "invalid-slug"),
        ("/scout/diary", 404, "no-such-document"),
        ("/scout/profile?at=/title", 422, "unknown-field"),
        ("/scout/profile/explain", 422, "missing-field"),
        ("/scout/profile/explain?at=title", 422, "invalid-pointer"),
        ("/scout/profile/explain?at=/no", 404, "no-such-value"),
        ("/scout/profile/explain?at=/title&at=/role", 422, "invalid-field"),
    ],
)
def test_the_api_refuses_with_the_codes_of_the_library(forge: OpenForge, tmp_path: Path, rest: str, status: int, code: str) -> None:
    problem = get_api(forge, rest, status)
    assert problem["code"] == code
    assert str(tmp_path) not in json.dumps(problem), "no absolute path"


def test_the_api_describes_its_routes(forge: OpenForge) -> None:
    paths = forge.browser().get("/api/v1/openapi.json").json()["paths"]
    prefix = "/api/v1/spaces/{space}/lineage"
    names = {
        path.removeprefix(prefix): [parameter["name"] for parameter in paths[path]["get"]["parameters"]]
        for path in paths
        if prefix in path
    }
    assert names == {
        "": ["space", "all"],
        "-search": ["space", "text", "slugs", "page_size", "cursor"],
        "/{slug}/agenda/items": ["space", "slug", "page_size", "cursor"],
        "/{slug}/agenda/items/{item}/briefing": ["space", "slug", "item", "title", "text"],
        "/{slug}/{document}": ["space", "slug", "document"],
        "/{slug}/{document}/explain": ["space", "slug", "document", "at"],
    }


# Paths


def test_paths_are_relative_to_the_space() -> None:
    paths = RelativePaths("/w/r/s")
    assert (
        paths.in_text("/w/r/s/x.json: bad, see /w/r/y and /w; not /w/r/sub or a/w/r")
        == "x.json: bad, see ../y and ../..; not ../sub or a/w/r"
    )
    assert paths.in_text("in /w/r/s, or /etc/passwd") == "in ., or /etc/passwd"
    assert (paths.short("/w/r/s"), paths.short("/w/x"), paths.whole("../../x")) == (".", "../../x", "/w/x")
    assert RelativePaths("/").in_text("/w/x") == "/w/x"


def test_a_value_is_found_by_its_pointer_or_refused() -> None:
    document = {"a/b": [{"c": 1}], "d": "text"}
    assert lineage_tree.branch(document, {}, "/a~1b/0/c").value == 1
    for pointer in ("/a", "/a~1b/1", "/d/0", "/a~1b/00"):
        refused("no-such-value", partial(lineage_tree.branch, document, {}, pointer))
