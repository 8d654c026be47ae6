"""The profile that a new agent is spawned with."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import clia
from support import git
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support import Tree

USER = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
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


def test_root_directives_that_cannot_be_read_stop_every_spawn(space: clia.Space, tree: Tree) -> None:
    space.spawn("parent", BRIEFING)
    tree.write("w/.clia/agents/root/root.agent.triad.json", '{"guardrails": [')
    for spawn in (
        lambda: space.spawn("unknown", BRIEFING),
        lambda: space.spawn("scout", BRIEFING),
        lambda: space.spawn_from("child", BRIEFING, "parent"),
    ):
        assert "root.agent.triad.json" in refused("incomplete-profile", spawn).message
    space.spawn("unknown", BRIEFING, accept_incomplete="the root moves today")
    assert profile(space, "unknown")["incomplete"]["reason"] == "the root moves today"


def thinned(home: Path) -> None:
    """The document is there, with another guardrail."""
    next(home.iterdir()).write_text(json.dumps({"slug": "root", "guardrails": ["Be kind."]}))


def linked_above(home: Path, above: int) -> None:
    """A directory above the identity is a link to another one, whose root directives are thinner."""
    directory = home.parents[above]
    directory.rename(directory.parent / "real")
    thinned(next((directory.parent / "real").rglob("root")))
    directory.symlink_to("real")


def hidden_by_a_repository(home: Path) -> None:
    """They are gone, in what looks like the top of another repository."""
    shutil.rmtree(home)
    git("init", "--quiet", cwd=home.parents[2])


DAMAGE: dict[str, Callable[[Path], None]] = {
    "thinned": thinned,
    "the folder of identities is a link": lambda home: linked_above(home, 0),
    "the folder above is a link": lambda home: linked_above(home, 1),
    "hidden by a repository": hidden_by_a_repository,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_root_rules_that_are_taken_away_in_the_directory_stop_every_spawn(space: clia.Space, tree: Tree, damage: str) -> None:
    home = tree.agent("w/services", "root", guardrails=[RULE]).parent
    git("add", "--all", cwd=tree.root / "w")
    git(*USER, "commit", "--quiet", "--message", "root", cwd=tree.root / "w")
    DAMAGE[damage](home)
    if damage == "hidden by a repository":
        clia.init(tree.path("w/services"), settings=settings()).close()
    with clia.open(tree.path("w/services"), settings=settings()) as inner:
        refused("incomplete-profile", lambda: inner.spawn("unknown", BRIEFING))
        assert inner.agents() == []


@pytest.mark.parametrize("damage", ["removed", "renamed", "link"])
def test_root_directives_of_the_last_commit_that_are_missing_stop_every_spawn(space: clia.Space, tree: Tree, damage: str) -> None:
    home = tree.agent("w", "root", guardrails=[RULE]).parent
    git("add", "--all", cwd=tree.root / "w")
    git(*USER, "commit", "--quiet", "--message", "root", cwd=tree.root / "w")
    space.spawn("before", BRIEFING)
    assert guardrails(space, "before") == [RULE]
    home.rename(tree.root / ("w/.clia/agents/Root" if damage == "renamed" else "aside"))
    if damage == "link":
        tree.agent("w", "thin", guardrails=[])
        home.symlink_to("thin")
    error = refused("incomplete-profile", lambda: space.spawn("unknown", BRIEFING))
    assert ".clia/agents/root" in error.message
    space.spawn("accepted", BRIEFING, accept_incomplete="reorganized")
    assert profile(space, "accepted")["incomplete"]["findings"]


ALLOWED = {"text": "Tests may run.", "rules": [{"on": "tool", "match": {"command": "make test"}, "do": "allow"}]}
EVERYTHING = {"text": "Go on.", "rules": [{"on": "tool", "do": "deny", "match": {"tool": "X"}}, {"on": "tool", "do": "allow"}]}


def test_what_an_agent_spawns_allows_no_more_than_the_agent_may(space: clia.Space, tree: Tree) -> None:
    """The agent writes a rule that allows everything, in its checkout or at its place."""
    tree.agent("w", "scout", guardrails=[RULE, ALLOWED])
    space.spawn("parent", BRIEFING, slug="scout")
    space.checkout("parent", tree.path("wt"))
    tree.agent("wt", "scout", guardrails=[EVERYTHING])
    tree.agent("w", "free", guardrails=[EVERYTHING])
    kept = {**EVERYTHING, "rules": EVERYTHING["rules"][:1]}
    with clia.open(tree.path("wt"), settings=settings()) as inside:
        inside.spawn("kid", BRIEFING, slug="scout")
    space.spawn_from("other", BRIEFING, "parent", slug="free")
    assert guardrails(space, "kid") == [RULE, ALLOWED, kept]
    assert guardrails(space, "other") == [kept]
    space.spawn("people", BRIEFING, slug="free")
    assert guardrails(space, "people") == [EVERYTHING]


def test_an_agent_without_an_identity_has_the_root_rules_and_so_have_its_sub_agents(space: clia.Space, tree: Tree) -> None:
    tree.agent("w", "root", guardrails=["Ask first"])
    space.spawn("unknown", BRIEFING)
    space.spawn_from("child", BRIEFING, "unknown")
    assert (profile(space, "unknown")["slug"], guardrails(space, "unknown")) == (None, ["Ask first"])
    assert guardrails(space, "child") == ["Ask first"]
    tree.agent("w", "root", guardrails=["Ask twice"])
    space.spawn_from("later", BRIEFING, "unknown")
    assert guardrails(space, "later") == ["Ask first", "Ask twice"]


def test_a_sub_agent_keeps_the_place_of_its_parent_or_goes_deeper(tree: Tree) -> None:
    clia.init(tree.path("w"), settings=settings()).close()
    tree.directory("w/services/payments/api")
    tree.agent("w/services/payments", "root", guardrails=["Four eyes"])
    with clia.open(tree.path("w/services/payments"), settings=settings()) as inner:
        inner.spawn("parent", BRIEFING)
        assert inner.record_of("parent")["place.json"] == {
            "type": "place", "repository": "w", "submodule": "", "path": "services/payments",
        }  # fmt: skip
    for where, place in (("w", "services/payments"), ("w/services/payments/api", "services/payments/api")):
        with clia.open(tree.path(where), settings=settings()) as space:
            name = f"child-{len(place)}"
            space.spawn_from(name, BRIEFING, "parent")
            assert space.record_of(name)["place.json"]["path"] == place
            assert guardrails(space, name) == ["Four eyes"]


def test_spawning_under_an_inactive_identity_warns(space: clia.Space, tree: Tree) -> None:
    tree.agent("w", "retired", status="archived")
    assert space.spawn("retired", BRIEFING).warnings == ("the identity retired is not active: its status is archived",)
    assert space.spawn("scout", BRIEFING).warnings == ()


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
    assert guardrails(space, "bound") == [RULE, "Run the tests"]
    tree.write("w/.clia/agents/scout/scout@w.agent.triad.json", "{")
    space.spawn_from("later", BRIEFING, "careful")
    assert guardrails(space, "later") == [RULE, "Run the tests"]
