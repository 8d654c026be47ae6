"""The lineage pages and their API: chain, merged documents, where each value comes from, and what is wrong with documents."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.forge import lineages
from clia.forge.lineages import RelativePaths
from clia.forge.pages import lineage as page
from clia.forge.rendering import lineage_tree
from support.forge import ATTACK, OpenForge, assert_harmless, open_forge
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Iterator
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
def forge(tmp_path: Path) -> Iterator[OpenForge]:
    """Scout has documents above the space and in it."""
    with open_forge(tmp_path) as made:
        write(
            tmp_path, "scout", "agent", {"title": "Scout", "purpose": "Look.", "guardrails": ["Ask first."], "persona": {"a/b": 1}}
        )
        own = {"title": "Scout of the shop", "guardrails": ["Never push."], "tags": ["shop"], "purpose": " "}
        write(tmp_path / "repo", "scout", "agent", own)
        write(tmp_path / "repo", "scout", "agenda", {"title": "The plan", "backlog": ["one", "two"]})
        yield made


def look(forge: OpenForge, rest: str = "", status: int = 200, **more: Any) -> Response:
    answer = forge.browser().get(f"{forge.base}/lineage{rest}", **more)
    assert answer.status_code == status, answer.text
    assert_harmless(answer.text)
    return answer


def told(forge: OpenForge, at: str, document: str = "profile", status: int = 200) -> str:
    """The panel about one value, in plain words."""
    text = look(forge, f"/scout?document={document}&at={at}", status, headers=PANEL).text
    assert "<html" not in text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def ask(forge: OpenForge, rest: str = "", status: int = 200) -> Any:
    answer = forge.browser().get(API + rest)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/json" if status == 200 else "application/problem+json")
    return answer.json()


# The pages


def test_every_agent_that_is_visible_here_is_listed(forge: OpenForge, tmp_path: Path) -> None:
    write(tmp_path / "repo", "root", "agent", {"title": "Root"})
    text = look(forge).text
    assert 'href="/s/repo/lineage/scout"' in text
    assert "Scout of the shop" in text
    assert "/lineage/root" not in text
    assert 'href="/s/repo/lineage/root"' in look(forge, "?all=1").text


def test_where_nobody_has_documents_it_says_how_to_make_some(tmp_path: Path) -> None:
    with open_forge(tmp_path) as made:
        assert "clia agents init SLUG" in look(made).text


def test_chain_files_and_tree_of_each_document(forge: OpenForge) -> None:
    profile = look(forge, "/scout").text
    assert re.findall(r"(\.\./)?\.clia/agents/scout/\S+?\.agent\.triad\.json", profile.partition("</ol>")[0]) == ["../", ""]
    for text in ("Scout of the shop", "Ask first.", "Never push.", "ancestor", "set by file 1", "set by file 2"):
        assert text in profile
    assert "The plan" in look(forge, "/scout?document=plan").text
    assert "No file defines this document." in look(forge, "/scout?document=agency").text


def test_every_value_of_the_tree_leads_to_its_story(forge: OpenForge) -> None:
    text = look(forge, "/scout").text
    links = [each.replace("&amp;", "&") for each in re.findall(r'<a class="value" href="([^"]+)#at"', text)]
    assert "?document=profile&at=/persona/a~1b" in links
    assert "?document=profile&at=/guardrails/1" in links
    for each in links:
        whole = look(forge, f"/scout{each}").text
        assert 'id="at" aria-current="true"' in whole
        assert "Shadowed" in whole


def test_the_story_of_a_value(forge: OpenForge) -> None:
    title = told(forge, "/title")
    assert "last-non-empty : the innermost non-empty value wins" in title
    winner, shadowed = title.split("Shadowed")
    assert ".clia/agents/scout/repo.agent.triad.json:2" in winner
    assert re.search(r"1 \.\./\.clia/agents/scout/\S+:2 /title \w+ overridden Scout ", shadowed)
    assert re.search(r"2 \.clia/agents/scout/repo\.agent\.triad\.json:\d+ /purpose \w+ empty", told(forge, "/purpose"))
    assert "no file sets it: the requested slug" in told(forge, "/slug")
    assert "none: merged from several values" in told(forge, "/guardrails")
    assert told(forge, "/guardrails").count("/guardrails/0") == 2
    assert "each field has its own rule" in told(forge, "")
    assert "union-by-text" in told(forge, "/backlog/1", "plan")


def test_a_panel_alone_is_only_for_who_has_the_page(forge: OpenForge) -> None:
    whole = look(forge, "/scout?at=/title", headers={**PANEL, "hx-target": "body"}).text
    assert "<html" in whole
    answer = look(forge, "/scout?at=/title", headers=PANEL)
    assert "HX-Target" in answer.headers["vary"]


@pytest.mark.parametrize(
    ("at", "status"), [("/nowhere", 404), ("/guardrails/9", 404), ("/guardrails/-1", 404), ("title", 422), ("/%ff%00", 404)]
)
def test_a_value_that_is_not_there(forge: OpenForge, at: str, status: int) -> None:
    assert told(forge, at, status=status)
    whole = look(forge, f"/scout?at={at}", status).text
    assert 'role="alert"' in whole
    assert "Never push." in whole, "the document is still shown"


@pytest.mark.parametrize(
    "rest", ["/nobody", "/No%20Slug", "/..%2F..", "/scout?document=diary", "/scout?under=/nowhere", "/%3Cscript%3E"]
)
def test_what_is_not_there_is_not_found(forge: OpenForge, rest: str) -> None:
    assert str(forge.forge.sites["repo"].path) not in look(forge, rest, 404).text


def test_documents_are_text_whatever_they_hold(forge: OpenForge, tmp_path: Path) -> None:
    nasty = {
        "title": ATTACK,
        ATTACK: [ATTACK, {ATTACK: ATTACK}],
        "guardrails": [f"\u202e{ATTACK}"],
        "extensions": {"x-badge": ATTACK},
    }
    nasty |= {"role": ATTACK, "status": ATTACK, "notes": "<b>\x1b[31m"}
    write(tmp_path / "repo", "scout", "agent", nasty | {"inherits": [ATTACK]})
    write(tmp_path / "repo", "scout", "agenda", nasty)
    assert "&lt;script&gt;" in look(forge).text
    for document in ("profile", "plan"):
        text = look(forge, f"/scout?document={document}").text
        assert "&lt;script&gt;" in text
        assert "\u202e" not in text
        for each in re.findall(r'<a class="value" href="([^"]+)#at"', text):
            address = each.replace("&amp;", "&")
            look(forge, f"/scout{address}")
            look(forge, f"/scout{address}", headers=PANEL)


def test_a_directory_with_an_odd_name_is_no_error(tmp_path: Path) -> None:
    with open_forge(tmp_path) as made:
        home = tmp_path / "repo/.clia/agents/scout"
        home.mkdir(parents=True)
        (home / f"{ATTACK.replace('/', '')}\udcff.agent.triad.json").write_text('{"title": "Odd"}')
        (tmp_path / "repo/.clia/agents/No \udcff Slug<b>").mkdir()
        assert "Odd" in look(made, "/scout").text
        assert "invalid-slug" in look(made).text
        assert ask(made, "/scout/profile")["document"]["title"] == "Odd"


def test_a_document_that_is_no_json_is_named_with_its_place(forge: OpenForge, tmp_path: Path) -> None:
    write(tmp_path / "repo", "scout", "agent", '{\n "title": "x",\n oops }')
    text = look(forge, "/scout").text
    assert "invalid-json" in text
    assert ".clia/agents/scout/repo.agent.triad.json:3" in text
    assert "Ask first." in text, "the other layers are merged"
    assert "repo.agent.triad.json:3" in look(forge).text
    found = ask(forge, "/scout/profile")["diagnostics"]
    assert [(each["code"], each["path"], each["line"]) for each in found] == [
        ("invalid-json", ".clia/agents/scout/repo.agent.triad.json", 3)
    ]


def test_lines_are_looked_for_as_long_as_that_is_quick(forge: OpenForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "repo", "scout", "agent", {"inherits": [f"missing-{n}.json" for n in range(4)]})
    monkeypatch.setattr(lineages, "LINES_BYTES", 2 * path.stat().st_size)
    assert [each["line"] for each in ask(forge, "/scout/profile")["diagnostics"]] == [3, 4, None, None]


def test_a_root_chain_that_cannot_be_is_named_with_its_place(forge: OpenForge, tmp_path: Path) -> None:
    asked = {"title": "x", "rootChain": {"mode": "explicit", "roots": [{"path": ATTACK}]}}
    write(tmp_path / "repo", "scout", "agent", asked)
    text = look(forge, "/scout", 422).text
    assert "invalid-root-chain" in text
    assert "/rootChain/roots/0/path" in text
    assert re.search(r"repo\.agent\.triad\.json:\d", text)
    assert "invalid-root-chain" in look(forge).text
    problem = ask(forge, "/scout/profile", 422)
    assert (problem["code"], problem["fields"]["pointer"]) == ("invalid-root-chain", "/rootChain/roots/0/path")
    assert str(tmp_path) not in json.dumps(problem)


@pytest.mark.parametrize(
    "text", ["[]", '"x"', "", '{"title": 7, "guardrails": 5}', '{"a":' * 200 + "1" + "}" * 200, "\ufeff{}", "\x00"]
)
def test_whatever_stands_in_a_document_the_page_is_there(forge: OpenForge, tmp_path: Path, text: str) -> None:
    for kind in ("agent", "agenda", "agency"):
        write(tmp_path / "repo", "scout", kind, text)
    for rest in ("", "/scout", "/scout?document=plan", "/scout?document=agency"):
        look(forge, rest)


def test_a_long_list_goes_on_behind_a_link(forge: OpenForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_tree, "CHILDREN", 7)
    write(tmp_path / "repo", "scout", "agenda", {"backlog": [f"item {n}." for n in range(20)]})
    address, seen = "?document=plan", []
    while address:
        text = look(forge, f"/scout{address}").text.partition('class="doc"')[2]
        seen += re.findall(r"item \d+\.", text)
        more = re.search(r'<a href="([^"]+)">… \d+ more</a>', text.partition("backlog")[2] if address == "?document=plan" else text)
        address = more[1].replace("&amp;", "&") if more else ""
    assert seen == [f"item {n}." for n in range(20)]


def test_a_document_that_is_too_deep_or_too_large_goes_on_behind_links(
    forge: OpenForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "repo", "scout", "agenda", json.dumps({"x": json.loads('{"a":' * 60 + '"the bottom"' + "}" * 60)}))
    address, steps = "?document=plan", 0
    while "the bottom" not in (text := look(forge, f"/scout{address}").text):
        address = re.findall(r'<a href="([^"]+)">… show contents', text)[-1].replace("&amp;", "&")
        steps += 1
    assert steps == 60 // lineage_tree.LEVELS
    monkeypatch.setattr(lineage_tree, "LINES", 5)
    write(tmp_path / "repo", "scout", "agenda", {f"f{n}": {"inside": n} for n in range(50)})
    assert "show contents" in look(forge, "/scout?document=plan").text


def test_a_long_story_is_cut_and_says_so(forge: OpenForge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PLACES", 3)
    write(tmp_path / "repo", "scout", "agenda", {"backlog": [f"item {n}" for n in range(10)]})
    assert "7 more" in told(forge, "/backlog", "plan")
    monkeypatch.setattr(page, "LINES_BYTES", 0)
    assert "agenda.triad.json /backlog/0" in told(forge, "/backlog/0", "plan"), "without a line"


def test_a_viewer_may_look_and_a_stranger_may_not(forge: OpenForge) -> None:
    viewer, stranger = forge.browser("vic", "viewer"), forge.stranger()
    for rest in ("", "/scout", "/scout?at=/title"):
        assert viewer.get(f"/s/repo/lineage{rest}").status_code == 200
        assert stranger.get(f"/s/repo/lineage{rest}").status_code == 303
    for rest in ("", "/scout/profile", "/scout/profile/explain?at="):
        assert viewer.get(API + rest).status_code == 200
        assert stranger.get(API + rest).status_code == 401
    assert viewer.get("/api/v1/spaces/elsewhere/lineage").status_code == 404


# The API


def test_the_api_lists_agents_with_paths_of_the_space(forge: OpenForge, tmp_path: Path) -> None:
    write(tmp_path / "repo", "root", "agent", {})
    made = ask(forge)
    assert [(each["slug"], each["title"], each["contexts"], each["directory"]) for each in made["agents"]] == [
        ("scout", "Scout of the shop", 2, ".")
    ]
    assert [each["slug"] for each in ask(forge, "?all=true")["agents"]] == ["root", "scout"]


def test_the_api_gives_what_the_library_gives(forge: OpenForge, tmp_path: Path) -> None:
    lineage = clia.lineage(tmp_path / "repo", "scout")
    for document, kind in (("profile", "agent"), ("plan", "agenda"), ("agency", "agency")):
        made = ask(forge, f"/scout/{document}")
        assert (made["kind"], made["document"]) == (kind, lineage.merged(kind).document)
        assert [each["path"] for each in made["chain"]] == ["..", "."]
    story, known = ask(forge, "/scout/profile/explain?at=/title"), lineage.explain("/title").to_json()
    assert story["winner"]["path"] == ".clia/agents/scout/repo.agent.triad.json"
    for each in ("pointer", "value", "valueSha256", "rule", "story", "note"):
        assert story[each] == known[each]
    for part in ("contributors", "shadowed"):
        assert [{**each, "path": ""} for each in story[part]] == [{**each, "path": ""} for each in known[part]]
    assert story["winner"]["sha256"] == known["winner"]["sha256"]


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
def test_the_api_refuses_with_the_librarys_codes(forge: OpenForge, tmp_path: Path, rest: str, status: int, code: str) -> None:
    problem = ask(forge, rest, status)
    assert problem["code"] == code
    assert str(tmp_path) not in json.dumps(problem), "no path of the machine"


def test_the_api_describes_itself(forge: OpenForge) -> None:
    paths = forge.browser().get("/api/v1/openapi.json").json()["paths"]
    prefix = "/api/v1/spaces/{space}/lineage"
    names = {
        path.removeprefix(prefix): [each["name"] for each in paths[path]["get"]["parameters"]] for path in paths if prefix in path
    }
    assert names == {
        "": ["space", "all"],
        "/{slug}/{document}": ["space", "slug", "document"],
        "/{slug}/{document}/explain": ["space", "slug", "document", "at"],
    }


# Paths


def test_paths_are_said_from_the_space_on() -> None:
    paths = RelativePaths("/w/r/s")
    assert (
        paths.in_text("/w/r/s/x.json: bad, see /w/r/y and /w; not /w/r/sub or a/w/r")
        == "x.json: bad, see ../y and ../..; not ../sub or a/w/r"
    )
    assert paths.in_text("in /w/r/s, or /etc/passwd") == "in ., or /etc/passwd"
    assert (paths.short("/w/r/s"), paths.short("/w/x"), paths.whole("../../x")) == (".", "../../x", "/w/x")
    assert RelativePaths("/").in_text("/w/x") == "/w/x"


def test_a_value_is_found_by_its_pointer_or_not_at_all() -> None:
    document = {"a/b": [{"c": 1}], "d": "text"}
    assert lineage_tree.branch(document, {}, "/a~1b/0/c").value == 1
    for pointer in ("/a", "/a~1b/1", "/d/0", "/a~1b/00"):
        refused("no-such-value", partial(lineage_tree.branch, document, {}, pointer))
