from __future__ import annotations

import os
from typing import TYPE_CHECKING

from clia.identities import checks
from clia.identities.files import LocalFiles
from clia.identities.roster import roster, seen_from
from clia.identities.working_path import survey

if TYPE_CHECKING:
    from clia.identities.roster import Roster
    from support import Tree


def listed(tree: Tree, where: str, *, everything: bool = False) -> Roster:
    return checks.roster(tree.path(where), ceiling=tree.path(), everything=everything)


def test_agents_of_all_enclosing_directories_are_listed_by_name(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "scout", title="Scout", role="finder", status="active", extensions={"x-badge": "[S]", "x-emoji": "🧭"})
    tree.agent("w/s", "scout", title="Local scout")
    tree.agency("w/s", "clerk")
    tree.agent("w/t", "elsewhere")
    tree.directory("w/s/src")
    found = listed(tree, "w/s/src").to_json()
    assert found["path"] == tree.path("w/s/src")
    assert found["diagnostics"] == []
    empty = {"title": None, "role": None, "status": None, "badge": None, "emoji": None}
    assert found["agents"] == [
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


def test_reserved_names_are_listed_only_when_asked_for(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root", title="Directives")
    tree.agent("w", "_drafts")
    tree.document("w", "templates/basic", "agent")
    tree.agent("w", "scout")
    assert [each.slug for each in listed(tree, "w").agents] == ["scout"]
    everything = listed(tree, "w", everything=True)
    assert [(each.slug, each.title, each.contexts) for each in everything.agents] == [
        ("_drafts", None, 0),
        ("root", "Directives", 1),
        ("scout", None, 1),
        ("templates", None, 0),
    ]
    assert everything.diagnostics == ()


def test_a_name_that_is_no_slug_is_mentioned_and_skipped(tree: Tree) -> None:
    tree.repository("w")
    for name in ("No Slug", "a..b", "é"):
        tree.agent("w", name)
    tree.directory("w/.clia/agents/.hidden")
    tree.write("w/.clia/agents/README.md", "")
    found = listed(tree, "w")
    assert found.agents == ()
    assert [(each.code, os.path.basename(each.path or "")) for each in found.diagnostics] == [
        ("invalid-slug", "No Slug"),
        ("invalid-slug", "a..b"),
        ("invalid-slug", "é"),
    ]


def test_an_agent_that_does_not_resolve_is_listed_with_the_reason(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "scout", title="x", rootChain={"mode": "sideways"})
    tree.directory("w/.clia/agents/empty")
    tree.write("w/.clia/agents/broken/x.agent.triad.json", "{")
    found = listed(tree, "w")
    assert [(each.slug, each.title, each.contexts) for each in found.agents] == [("broken", None, 1), ("scout", None, 1)]
    assert [each.code for each in found.diagnostics] == ["invalid-json", "invalid-root-chain"]


def test_a_directory_of_links_that_lead_out_gives_the_reason_and_no_agent(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("outside", "scout")
    (tree.directory("w/.clia/agents") / "scout").symlink_to(tree.root / "outside/.clia/agents/scout")
    found = listed(tree, "w")
    assert found.agents == ()
    assert [each.code for each in found.diagnostics] == ["symlink-escape"]


def test_what_a_stranger_planted_above_every_repository_is_neither_an_agent_nor_an_error(tree: Tree) -> None:
    tree.agent("w", "scout")
    tree.agent("w", "No Slug")
    place = survey(LocalFiles(), tree.path("w"), ceiling=tree.path(), trusted=frozenset([os.getuid() + 1]))
    found = roster(LocalFiles(), place)
    assert found.agents == ()
    assert [each.code for each in found.diagnostics] == ["untrusted-owner"]


def test_an_agents_directory_that_cannot_be_listed_is_a_finding(tree: Tree) -> None:
    tree.repository("w")
    (tree.directory("w/.clia") / "agents").symlink_to("agents")
    assert [each.code for each in listed(tree, "w").diagnostics] == ["unreadable"]
    assert seen_from(LocalFiles(), survey(LocalFiles(), tree.path("w"), ceiling=tree.path())).targets == ()


def test_the_emoji_of_the_profile_stands_in_for_one_in_the_extensions(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", emoji="🎛️", extensions={"x-badge": 5})
    (agent,) = listed(tree, "w").agents
    assert (agent.emoji, agent.badge) == ("🎛️", None)
