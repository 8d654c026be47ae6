from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from clia.errors import InvalidInput
from clia.files import LocalFiles
from clia.identities import checks
from clia.identities.roster import roster, seen_from
from clia.identities.working_path import survey
from support import clia

if TYPE_CHECKING:
    from clia.identities.roster import Roster
    from support import Tree


def listed(tree: Tree, where: str, *, include_reserved: bool = False) -> Roster:
    return checks.roster(tree.path(where), ceiling=tree.path(), everything=include_reserved)


def test_agents_of_all_enclosing_directories_are_listed_by_name(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "scout", title="Scout", role="finder", status="active", extensions={"x-badge": "[S]", "x-emoji": "🧭"})
    tree.agent("w/s", "scout", title="Local scout")
    tree.agency("w/s", "clerk")
    tree.agent("w/t", "elsewhere")
    tree.directory("w/s/src")
    json_roster = listed(tree, "w/s/src").to_json()
    assert json_roster["path"] == tree.path("w/s/src")
    assert json_roster["diagnostics"] == []
    empty = {"title": None, "role": None, "status": None, "badge": None, "emoji": None}
    assert json_roster["agents"] == [
        {"slug": "clerk", **empty, "contexts": 1, "directory": tree.path("w/s")},
        {
            "slug": "scout",
            "title": "Local scout",
            "role": "finder",
            "status": "active",
            "badge": "[S]",
            "emoji": "🧭",
            "contexts": 2,
            "directory": tree.path("w/s"),
        },
    ]


def test_reserved_names_are_listed_only_on_request(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root", title="Directives")
    tree.agent("w", "_drafts")
    tree.document("w", "templates/basic", "agent")
    tree.agent("w", "scout")
    assert [identity.slug for identity in listed(tree, "w").agents] == ["scout"]
    full_roster = listed(tree, "w", include_reserved=True)
    assert [(identity.slug, identity.title, identity.contexts) for identity in full_roster.agents] == [
        ("_drafts", None, 0),
        ("root", "Directives", 1),
        ("scout", None, 1),
        ("templates", None, 0),
    ]
    assert full_roster.diagnostics == ()


def test_a_name_that_is_not_a_slug_is_reported_and_skipped(tree: Tree) -> None:
    tree.repository("w")
    for name in ("No Slug", "a..b", "é"):
        tree.agent("w", name)
    tree.directory("w/.clia/agents/.hidden")
    tree.write("w/.clia/agents/README.md", "")
    roster_of_w = listed(tree, "w")
    assert roster_of_w.agents == ()
    assert [(diagnostic.code, os.path.basename(diagnostic.path or "")) for diagnostic in roster_of_w.diagnostics] == [
        ("invalid-slug", "No Slug"),
        ("invalid-slug", "a..b"),
        ("invalid-slug", "é"),
    ]


def test_an_agent_that_does_not_resolve_is_listed_with_the_reason(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "scout", title="x", rootChain={"mode": "sideways"})
    tree.directory("w/.clia/agents/empty")
    tree.write("w/.clia/agents/broken/x.agent.triad.json", "{")
    roster_of_w = listed(tree, "w")
    assert [(identity.slug, identity.title, identity.contexts) for identity in roster_of_w.agents] == [
        ("broken", None, 1),
        ("scout", None, 1),
    ]
    assert [diagnostic.code for diagnostic in roster_of_w.diagnostics] == ["invalid-json", "invalid-root-chain"]


def test_a_directory_of_links_that_leave_the_repository_is_reported_and_is_not_an_agent(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("outside", "scout")
    (tree.directory("w/.clia/agents") / "scout").symlink_to(tree.root / "outside/.clia/agents/scout")
    roster_of_w = listed(tree, "w")
    assert roster_of_w.agents == ()
    assert [diagnostic.code for diagnostic in roster_of_w.diagnostics] == ["symlink-escape"]


def test_a_directory_of_another_user_above_every_repository_is_a_warning_and_not_an_agent(tree: Tree) -> None:
    tree.agent("w", "scout")
    tree.agent("w", "No Slug")
    place = survey(LocalFiles(), tree.path("w"), ceiling=tree.path(), trusted=frozenset([os.getuid() + 1]))
    roster_of_shared = roster(LocalFiles(), place)
    assert roster_of_shared.agents == ()
    assert [diagnostic.code for diagnostic in roster_of_shared.diagnostics] == ["untrusted-owner"]


def test_an_agents_directory_that_cannot_be_listed_is_a_finding(tree: Tree) -> None:
    tree.repository("w")
    (tree.directory("w/.clia") / "agents").symlink_to("agents")
    assert [diagnostic.code for diagnostic in listed(tree, "w").diagnostics] == ["unreadable"]
    assert seen_from(LocalFiles(), survey(LocalFiles(), tree.path("w"), ceiling=tree.path())).targets == ()


def test_the_emoji_of_the_profile_is_used_if_the_extensions_have_none(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", emoji="🎛️", extensions={"x-badge": 5})
    (agent,) = listed(tree, "w").agents
    assert (agent.emoji, agent.badge) == ("🎛️", None)


def test_a_search_finds_items_and_texts_of_every_document_with_their_files(tree: Tree) -> None:
    tree.repository("w")
    outer = tree.agent("w", guardrails=["Never deploy on Friday."], purpose="Deploys")
    tree.agent("w", "root", guardrails=[{"text": "Ask before a DEPLOY.", "why": "it broke"}])
    tree.document("w/s", "scout", "agenda", {"backlog": [{"title": "Map", "notes": ["the deploy"]}]})
    tree.write("w/.clia/agents/broken/broken.agent.triad.json", "{")
    hits = checks.search(tree.path("w/s"), "deploy", slugs=["scout"])
    assert [(hit.document, hit.pointer) for hit in hits] == [
        ("agent", "/guardrails/0"),
        ("agent", "/guardrails/1"),
        ("agent", "/purpose"),
        ("agenda", "/backlog/0"),
    ]
    assert [hit.path for hit in hits][1:3] == [str(outer), str(outer)]
    assert {hit.slug for hit in checks.search(tree.path("w/s"), "it broke")} == {"root", "scout", "broken"}
    assert checks.search(tree.path("w/s"), "submarine") == []
    for text in ("", " \n"):
        with pytest.raises(InvalidInput):
            checks.search(tree.path("w"), text)
    ran = clia("agents", "search", "friday", "--path", tree.path("w"))
    assert (ran.code, ran.out) == (0, "scout agent /guardrails/1  Never deploy on Friday.\n")
    assert clia("agents", "search", "submarine", "--path", tree.path("w")).code == 1
