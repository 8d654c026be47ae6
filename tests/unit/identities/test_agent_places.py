"""Lineage in the worktrees of agents: as if at the place where the agent was spawned."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia.files import LocalFiles
from clia.git import worktree_links
from clia.identities import working_path
from clia.identities.agent_places import SpawnPlace, read_place, spawn_place
from clia.space.agents import AgentOrigin
from support import clia as command
from support import git
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support import Tree

USER = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always")
OUTER, LOCAL, OWN = "Never commit secrets.", "Four eyes on payments.", "Write tests."


def commit_all(path: Path) -> None:
    git("add", "--all", cwd=path)
    git(*USER, "commit", "--quiet", "--message", "files", cwd=path)


@pytest.fixture
def nested(tree: Tree) -> Iterator[clia.Space]:
    """The space of the submodule services/payments in acme: three guardrails at payments/api, two of them from above."""
    source = tree.directory("source")
    git("init", "--quiet", cwd=source)
    tree.agent("source", guardrails=[LOCAL])
    tree.agent("source/api", guardrails=[OWN])
    commit_all(source)
    acme = tree.directory("acme")
    git("init", "--quiet", cwd=acme)
    tree.agent("acme", "root", guardrails=[OUTER])
    git(*USER, "submodule", "--quiet", "add", str(source), "services/payments", cwd=acme)
    commit_all(acme)
    clia.init(tree.path("acme/services/payments"), settings=settings()).close()
    with clia.open(tree.path("acme/services/payments/api"), settings=settings()) as space:
        space.spawn_at("scout", BRIEFING, space.find("HEAD"))
        yield space


def guardrails(path: str, slug: str = "scout") -> Any:
    return clia.lineage(path, slug).profile()["guardrails"]


def codes(path: str, slug: str = "scout") -> list[str]:
    return [finding.code for finding in clia.lineage(path, slug).profile().diagnostics]


def test_the_name_of_the_file_in_the_git_directory_is_the_one_that_worktrees_write() -> None:
    assert working_path.AGENT_FILE == worktree_links.RECORD


def test_the_place_is_recorded(nested: clia.Space) -> None:
    place = nested.record_of("scout")["place.json"]
    assert place == {"type": "place", "repository": "acme", "submodule": "services/payments", "path": "api"}


def test_a_checkout_outside_of_the_enclosing_repository_has_all_guardrails(nested: clia.Space, tree: Tree) -> None:
    nested.checkout("scout", tree.path("elsewhere/wt"))
    assert guardrails(tree.path("acme/services/payments/api")) == [OUTER, LOCAL, OWN]
    for path in ("elsewhere/wt", "elsewhere/wt/api"):
        assert guardrails(tree.path(path)) == [OUTER, LOCAL, OWN]
        assert codes(tree.path(path)) == []
    ran = command("agents", "profile", "--slug", "scout", "--json", cwd=tree.root / "elsewhere/wt")
    assert ran.json()["guardrails"] == [OUTER, LOCAL, OWN]


def test_documents_of_the_worktree_are_the_local_layer_and_remove_no_guardrail(nested: clia.Space, tree: Tree) -> None:
    nested.checkout("scout", tree.path("wt"))
    own = {"slug": "scout", "title": "Own", "guardrails": ["More."]}
    tree.document("wt/api", "scout", "agent", own, name="scout@api.agent.triad.json")
    for top, item in (("acme/services/payments", "old"), ("wt", "new")):
        tree.document(f"{top}/api", "scout", "agenda", {"backlog": [item]}, name="scout@api.agenda.triad.json")
    lineage = clia.lineage(tree.path("wt"), "scout")
    assert lineage.profile()["guardrails"] == [OUTER, LOCAL, OWN, "More."]
    assert lineage.profile()["title"] == "Own"
    assert lineage.plan()["backlog"] == ["new"]
    shutil.rmtree(tree.root / "wt/.clia")
    shutil.rmtree(tree.root / "wt/api")
    assert guardrails(tree.path("wt")) == [OUTER, LOCAL, OWN]


def test_a_document_may_inherit_from_the_repository_around_the_main_worktree(nested: clia.Space, tree: Tree) -> None:
    tree.agent("acme", "shared", guardrails=["Shared."])
    nested.checkout("scout", tree.path("wt"))
    inherits = {"slug": "scout", "inherits": [".clia/agents/shared/shared@acme.agent.triad.json"]}
    chain = {"rootChain": {"mode": "explicit", "roots": [{"path": "services"}]}}
    tree.document("wt/api", "scout", "agent", {**inherits, **chain}, name="scout@api.agent.triad.json")
    assert guardrails(tree.path("wt")) == [OUTER, LOCAL, OWN, "Shared."]


def test_a_guardrail_that_is_gone_at_the_place_is_reported(nested: clia.Space, tree: Tree) -> None:
    nested.checkout("scout", tree.path("wt"))
    tree.agent("acme", "root", guardrails=[])
    assert OUTER not in guardrails(tree.path("wt"))
    assert codes(tree.path("wt")) == ["guardrails-missing"]
    ran = command("agents", "profile", "--slug", "scout", cwd=tree.root / "wt")
    assert (ran.code, OUTER in ran.out + ran.err) == (2, True)
    assert "guardrails-missing" in command("agents", "lint", cwd=tree.root / "wt").out
    assert codes(tree.path("wt"), "root") == []  # another identity
    ceiling = command("agents", "profile", "--slug", "scout", "--ceiling", tree.path("wt"), cwd=tree.root / "wt")
    assert "guardrails-missing" in ceiling.out + ceiling.err


def test_the_place_does_not_depend_on_the_branch_that_a_program_checks_out(nested: clia.Space, tree: Tree) -> None:
    nested.checkout("scout", tree.path("wt"))
    git("checkout", "--quiet", "-b", "other", cwd=tree.root / "wt")
    git("init", "--quiet", "inner", cwd=tree.root / "wt")
    assert guardrails(tree.path("wt")) == guardrails(tree.path("wt/inner")) == [OUTER, LOCAL, OWN]


def test_an_agent_of_an_older_space_has_the_top_of_its_repository_as_its_place(
    nested: clia.Space, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AgentOrigin, "objects", lambda origin: {"profile.json": {"type": "profile", **origin.profile}})
    nested.spawn_at("old", BRIEFING, nested.find("HEAD"), slug="scout")
    assert sorted(nested.record_of("old")) == ["briefing.json", "profile.json"]
    nested.checkout("old", tree.path("wt"))
    assert guardrails(tree.path("wt")) == [OUTER, LOCAL]
    assert codes(tree.path("wt")) == ["guardrails-missing"]
    assert guardrails(tree.path("wt/api")) == [OUTER, LOCAL, OWN]


def test_an_agent_that_is_put_away_is_read_from_the_archive_repository(nested: clia.Space, tree: Tree) -> None:
    nested.checkout("scout", tree.path("wt"))
    record = git("rev-parse", "refs/clia/agents/scout", cwd=tree.root / "acme/services/payments").strip()
    nested.local.put_away(["scout"])
    assert guardrails(tree.path("wt")) == [OUTER, LOCAL, OWN]
    assert record


def test_a_record_that_cannot_be_read_is_an_error(nested: clia.Space, tree: Tree) -> None:
    nested.checkout("scout", tree.path("wt"))
    git("update-ref", "-d", "refs/clia/agents/scout", cwd=tree.root / "acme/services/payments")
    assert codes(tree.path("wt")) == ["agent-record-unreadable"]
    assert guardrails(tree.path("wt")) == [OUTER, LOCAL]


def test_a_worktree_of_a_person_is_read_where_it_is(nested: clia.Space, tree: Tree) -> None:
    git("worktree", "add", "--quiet", tree.path("feature"), cwd=tree.root / "acme/services/payments")
    assert guardrails(tree.path("feature/api")) == [LOCAL, OWN]
    with clia.open(tree.path("feature/api"), settings=settings()) as space:
        space.spawn("other", BRIEFING, slug="scout")
        assert space.record_of("other")["profile.json"]["document"]["guardrails"] == [OUTER, LOCAL, OWN]
        assert space.record_of("other")["place.json"]["submodule"] == "services/payments"


def test_an_agent_spawned_in_the_worktree_of_another_stays_inside_its_place(nested: clia.Space, tree: Tree) -> None:
    nested.checkout("scout", tree.path("wt"))
    shutil.rmtree(tree.root / "wt/.clia")
    with clia.open(tree.path("wt"), settings=settings()) as space:
        space.spawn("other", BRIEFING, slug="scout")
        assert space.record_of("other")["place.json"]["path"] == "api"
        assert space.record_of("other")["profile.json"]["document"]["guardrails"] == [OUTER, LOCAL, OWN]


def test_a_journal_is_written_in_the_worktree(nested: clia.Space, tree: Tree) -> None:
    nested.checkout("scout", tree.path("wt"))
    ran = command(
        "agents", "journal", "--slug", "scout", "--note", "done", "--write-scope", "workspace", "--json", cwd=tree.root / "wt"
    )
    assert os.path.commonpath([ran.json()["path"], tree.path("wt")]) == tree.path("wt")


BAD_PATHS = [{"repository": "a", "submodule": "", "path": path} for path in (5, "/x", "../x", "a/../b")]


@pytest.mark.parametrize("value", [None, [], {}, *BAD_PATHS])
def test_a_place_that_leaves_the_repository_is_not_used(value: Any) -> None:
    assert read_place(value) is None


def test_the_place_of_a_directory(tree: Tree) -> None:
    tree.repository("w/s")
    tree.directory("w/s/a/b")
    assert spawn_place(LocalFiles(), tree.path("w/s/a/b")) == SpawnPlace("s", "", "a/b")
    tree.repository("w")
    assert spawn_place(LocalFiles(), tree.path("w/s/a/b")) == SpawnPlace("w", "s", "a/b")
    assert spawn_place(LocalFiles(), tree.path("w/s")) == SpawnPlace("w", "s", "")
