"""Agents are not spawned with fewer guardrails than earlier ones, unless a person decided on the loss."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import clia
from support import clia as command
from support import git
from support.memory_trees import document
from support.plain_git import commit_file
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULE, ROOT_RULE, OTHER = "Never deploy without approval.", "Never read secrets.", "Say why."
SCOUT = ".clia/agents/scout/scout.agent.triad.json"
REVIEWER = ".clia/agents/reviewer/reviewer.agent.triad.json"
ROOT = ".clia/agents/root/root.agent.triad.json"


def write(repo: Path, path: str, *rules: Any, **fields: Any) -> None:
    """Commit a document by plain git in the main directory."""
    (repo / path).parent.mkdir(parents=True, exist_ok=True)
    slug = path.split("/")[-2]
    commit_file(repo, path, json.dumps({"slug": slug, "guardrails": list(rules), **fields}))


@pytest.fixture
def space(repo: Path) -> Iterator[clia.Space]:
    with clia.init(repo, settings=settings()) as opened:
        write(repo, ROOT, ROOT_RULE)
        write(repo, SCOUT, RULE)
        write(repo, REVIEWER, OTHER)
        opened.spawn("one", BRIEFING, slug="scout")
        yield opened


def rules_of(space: clia.Space, agent: str) -> list[Any]:
    profile = space.record_of(agent).get("profile.json") or {}
    return list((profile.get("document") or {}).get("guardrails") or [])


def lost(error: clia.errors.CliaError) -> list[str]:
    return [text.partition(" (")[0] for text in error.fields["losses"]]


@pytest.mark.parametrize("slug", ["scout", "reviewer", None])
def test_a_root_rule_that_a_plain_commit_removes_stops_every_spawn_and_names_the_loss(
    space: clia.Space, repo: Path, slug: str | None
) -> None:
    write(repo, ROOT)
    error = refused("guardrail-change", lambda: space.spawn("two", BRIEFING, slug=slug))
    assert lost(error) == [f"removed: {ROOT_RULE!r}"]
    assert any("clia agents accept-loss -m WHY" in hint for hint in error.hints)
    assert space.agents() == ["one"]


@pytest.mark.parametrize("how", ["removed", "renamed", "deleted", "allowed", "weakened"])
def test_a_rule_of_an_identity_counts_however_it_goes_away(space: clia.Space, repo: Path, how: str) -> None:
    if how == "renamed":
        git("mv", ".clia/agents/scout", ".clia/agents/ranger", cwd=repo)
        git("commit", "--quiet", "--message=x", cwd=repo)
    elif how == "deleted":
        git("rm", "--quiet", "-r", ".clia/agents/scout", cwd=repo)
        git("commit", "--quiet", "--message=x", cwd=repo)
    elif how == "allowed":
        write(repo, SCOUT, RULE, {"text": "Go.", "rules": [{"on": "tool", "do": "allow", "match": {"tool": "Edit"}}]})
    else:
        write(repo, SCOUT, *(["Avoid deploying without approval."] if how == "weakened" else []))
    name = "scout" if how in ("renamed", "deleted") else "two"
    slug = None if how in ("renamed", "deleted") else "scout"
    error = refused("guardrail-change", lambda: space.spawn(name, BRIEFING, slug=slug))
    assert len(lost(error)) == 1
    space.spawn("other", BRIEFING, slug="reviewer")


def test_a_person_accepts_the_loss_with_one_command_that_records_it(space: clia.Space, repo: Path) -> None:
    write(repo, SCOUT, "Be kind.")
    ran = command("agents", "accept-loss", "-m", "Agreed in review.", cwd=repo)
    assert ran.code == 0, ran.err
    assert f"lost removed: {RULE!r} (scout in .)" in ran.out.replace("\n", " ")
    message = git("log", "-1", "--format=%B", "refs/clia/guardrails", cwd=repo)
    assert all(text in message for text in (RULE, "Agreed in review.", "guardrail-change"))
    space.spawn("two", BRIEFING, slug="scout")
    assert rules_of(space, "two") == [ROOT_RULE, "Be kind."]
    again = command("agents", "accept-loss", "-m", "Agreed.", cwd=repo)
    assert "no guardrails are lost" in again.out


def test_a_loss_that_was_accepted_counts_again_after_the_guardrail_is_back(space: clia.Space, repo: Path) -> None:
    write(repo, SCOUT)
    space.identities.accept_loss("Agreed.")
    write(repo, SCOUT, RULE)
    space.spawn("two", BRIEFING, slug="scout")
    write(repo, SCOUT)
    refused("guardrail-change", lambda: space.spawn("three", BRIEFING, slug="scout"))


def test_an_agent_accepts_nothing(space: clia.Space, repo: Path) -> None:
    write(repo, SCOUT)
    ran = command("agents", "accept-loss", "-m", "Mine.", cwd=repo, env={"CLIA_AGENT": "one"})
    assert (ran.code, "person-needed" in ran.err) == (1, True), ran.err
    refused("not-a-person", lambda: space.identities.accept_loss("Mine.", by="one"))
    refused("empty-value", lambda: space.identities.accept_loss("  "))
    refused("guardrail-change", lambda: space.spawn("two", BRIEFING, slug="scout"))


def test_a_loss_that_landed_with_an_approval_needs_no_other_decision(space: clia.Space, repo: Path) -> None:
    space.spawn_at("worker", BRIEFING, "main", slug="scout")
    (body,) = document("scout").values()
    space.commit("worker", "refactor", changes={SCOUT: json.dumps(body).encode()})
    space.decide("worker", "approve", by="Ada <ada@example.org>")
    assert isinstance(space.land("worker", "main"), clia.Landed)
    space.spawn("two", BRIEFING, slug="scout")
    assert RULE not in rules_of(space, "two")
    write(repo, ROOT)
    refused("guardrail-change", lambda: space.spawn("three", BRIEFING, slug="scout"))


def test_a_rejected_change_that_a_person_commits_anyway_is_not_covered(space: clia.Space, repo: Path) -> None:
    space.spawn_at("worker", BRIEFING, "main", slug="scout")
    (body,) = document("scout").values()
    space.commit("worker", "refactor", changes={SCOUT: json.dumps(body).encode()})
    space.decide("worker", "reject", by="Ada <ada@example.org>")
    git("merge", "--quiet", "--no-edit", "agents/worker", cwd=repo)
    refused("guardrail-change", lambda: space.spawn("two", BRIEFING, slug="scout"))


def test_an_inner_place_is_not_asked_about_what_another_place_lost(space: clia.Space, repo: Path) -> None:
    inner = "services/" + SCOUT
    write(repo, inner, "Four eyes.")
    with clia.open(repo / "services", settings=settings()) as there:
        there.spawn("inner", BRIEFING, slug="scout")
        write(repo, inner)
        space.spawn("outer", BRIEFING, slug="scout")
        refused("guardrail-change", lambda: there.spawn("more", BRIEFING, slug="scout"))
        write(repo, inner, "Four eyes.")
        write(repo, SCOUT)
        refused("guardrail-change", lambda: there.spawn("more", BRIEFING, slug="scout"))


def test_what_only_an_inner_agent_was_bound_by_counts_above_it_too(space: clia.Space, repo: Path) -> None:
    """The first agent of an identity is spawned in a directory; then a rule of the top goes away."""
    write(repo, "services/" + REVIEWER, "Inner.")
    with clia.open(repo / "services", settings=settings()) as there:
        there.spawn("inner", BRIEFING, slug="reviewer")
    write(repo, REVIEWER)
    refused("guardrail-change", lambda: space.spawn("top", BRIEFING, slug="reviewer"))


def test_a_space_without_earlier_agents_or_guardrails_is_not_asked(repo: Path) -> None:
    with clia.init(repo, settings=settings()) as space:
        space.spawn("first", BRIEFING)
        assert git("for-each-ref", "refs/clia/guardrails", cwd=repo) == ""
        write(repo, SCOUT, RULE)
        write(repo, SCOUT)
        space.spawn("two", BRIEFING, slug="scout")


def test_a_captured_agent_is_bound_by_what_is_gone(space: clia.Space, repo: Path) -> None:
    """The recording of a tool's session is never refused."""
    write(repo, ROOT)
    space.local.spawn_captured("captured", BRIEFING, str(repo), None, slug="scout")
    assert rules_of(space, "captured") == [ROOT_RULE, RULE]


def test_a_run_is_refused_where_a_later_guardrail_is_gone_and_the_doctor_names_it(space: clia.Space, repo: Path) -> None:
    write(repo, ROOT, ROOT_RULE, "Later.")
    space.spawn("two", BRIEFING, slug="reviewer")
    write(repo, ROOT, ROOT_RULE)
    ran = command("run", "one", "--", "true", cwd=repo)
    assert (ran.code, "guardrail-change" in ran.err) == (1, True), ran.err
    assert [loss.text for loss in space.identities.lost_guardrails()] == ["Later."]
    assert "removed: 'Later.' (reviewer in ., root in .)" in " ".join(command("doctor", cwd=repo).out.split())
    space.identities.accept_loss("Agreed.")
    assert command("run", "one", "--", "true", cwd=repo).code == 0


def test_uncommitted_documents_count_as_they_are_read(space: clia.Space, repo: Path) -> None:
    (repo / SCOUT).write_text(json.dumps({"slug": "scout"}))
    refused("guardrail-change", lambda: space.spawn("two", BRIEFING, slug="scout"))


def test_secrets_in_guardrails_are_compared_as_recorded(space: clia.Space, repo: Path) -> None:
    from support.fake_secrets import ALNUM

    write(repo, SCOUT, RULE, f"Use ghp_{ALNUM[:36]} never.")
    space.spawn("two", BRIEFING, slug="scout")
    space.spawn("three", BRIEFING, slug="scout")
    assert ALNUM[:36] not in git("log", "--format=%B", "refs/clia/guardrails", cwd=repo)


def test_clones_that_share_a_hub_share_what_is_accepted() -> None:
    """The chain is united like that of types; ``tests/conformance/test_refs.py`` lists the shared refs."""
    from clia.hub.sync import _CHAINS  # the chains that machines exchange
    from clia.values import refs

    assert refs.GUARDRAILS in _CHAINS
    assert refs.is_shared(refs.GUARDRAILS)
