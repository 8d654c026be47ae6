"""The profile that a new agent is spawned with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support import Tree

RULE = "No force pushes"


@pytest.fixture
def space(tree: Tree) -> Iterator[clia.Space]:
    with clia.init(tree.path("w"), settings=settings()) as opened:
        tree.agent("w", "scout", guardrails=[RULE])
        yield opened


def profile(space: clia.Space, agent: str) -> Any:
    return space.record_of(agent).get("profile.json")


def guardrails(space: clia.Space, agent: str) -> Any:
    return profile(space, agent)["document"]["guardrails"]


def test_an_agent_is_not_spawned_if_a_document_of_its_identity_cannot_be_read(space: clia.Space, tree: Tree) -> None:
    tree.write("w/.clia/agents/root/root.agent.triad.json", '{"guardrails": [')
    tree.agent("w", "scout", guardrails=[RULE], inherits=[".clia/agents/root/root.agent.triad.json"])
    for spawn in (
        lambda: space.spawn("scout", BRIEFING),
        lambda: space.spawn("other", BRIEFING, slug="scout"),
        lambda: space.spawn("other", BRIEFING, slug="scout", accept_incomplete=None),
    ):
        error = refused("incomplete-profile", spawn)
        assert ".clia/agents/root/root.agent.triad.json" in error.message
        assert str(tree.root) not in error.message
    refused("empty-value", lambda: space.spawn("scout", BRIEFING, accept_incomplete=" "))
    assert space.agents() == []
    space.spawn("unknown", BRIEFING)
    assert profile(space, "unknown") is None


def test_an_accepted_incomplete_profile_names_the_reason_and_what_could_not_be_read(space: clia.Space, tree: Tree) -> None:
    tree.agent("w", "scout", guardrails=[RULE], inherits=["https://example.org/root.json"])
    space.spawn("scout", BRIEFING, accept_incomplete="the root moves today")
    assert guardrails(space, "scout") == [RULE]
    incomplete = profile(space, "scout")["incomplete"]
    assert incomplete["reason"] == "the root moves today"
    assert "https://example.org/root.json" in incomplete["findings"][0]


def test_a_sub_agent_works_under_its_parents_identity(space: clia.Space) -> None:
    space.spawn("scout", BRIEFING)
    space.spawn_from("helper", BRIEFING, "scout")
    space.spawn_at("other", BRIEFING, "scout", "scout")
    space.spawn_at("stranger", BRIEFING, "scout")
    assert profile(space, "helper") == profile(space, "other") == profile(space, "scout")
    assert space.show("helper").profile == space.show("scout").profile
    assert profile(space, "stranger") is None


def test_a_named_identity_and_one_with_the_agents_name_come_before_the_parents(space: clia.Space, tree: Tree) -> None:
    tree.agent("w", "reviewer", guardrails=["Read every line"])
    space.spawn("scout", BRIEFING)
    space.spawn_from("reviewer", BRIEFING, "scout")
    space.spawn_from("helper", BRIEFING, "scout", slug="reviewer")
    assert [profile(space, name)["slug"] for name in ("reviewer", "helper")] == ["reviewer", "reviewer"]


def test_a_sub_agent_gets_new_guardrails_of_the_identity_and_loses_none_of_its_parent(space: clia.Space, tree: Tree) -> None:
    space.spawn("scout", BRIEFING)
    tree.agent("w", "scout", guardrails=[RULE, "Run the tests"])
    space.spawn_from("careful", BRIEFING, "scout")
    assert guardrails(space, "careful") == [RULE, "Run the tests"]
    tree.agent("w", "scout", guardrails=["Run the tests"])
    space.spawn_from("bound", BRIEFING, "scout")
    assert guardrails(space, "bound") == [RULE]
    tree.write("w/.clia/agents/scout/scout@w.agent.triad.json", "{")
    space.spawn_from("later", BRIEFING, "careful")
    assert guardrails(space, "later") == [RULE, "Run the tests"]
