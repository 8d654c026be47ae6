"""The guardrails of root directives hold for every identity."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

import clia as library
from clia.files import LocalFiles
from clia.identities.lineage import Lineage, survey_path
from support import clia

if TYPE_CHECKING:
    from support import Tree

SECRETS, DEPLOYS = "Never commit secrets.", "Deploys need a person's approval."


def guardrails(tree: Tree, where: str = "w", slug: str = "scout") -> Any:
    return library.lineage(tree.path(where), slug).profile()["guardrails"]


def codes(tree: Tree, where: str = "w", slug: str = "scout") -> list[str]:
    return [finding.code for finding in library.lineage(tree.path(where), slug).profile().diagnostics]


def test_an_identity_that_inherits_nothing_has_the_root_rules_of_every_enclosing_context(tree: Tree) -> None:
    for directory in ("w", "w/r", "w/r/s"):
        tree.repository(directory)
        tree.agent(directory, "root", title="Everyone's title", guardrails=[f"root of {directory}"])
    tree.agent("w/r", guardrails=["own"])
    tree.directory("w/r/s/src")
    assert guardrails(tree, "w/r/s/src") == ["root of w", "root of w/r", "own", "root of w/r/s"]
    merged = library.lineage(tree.path("w/r/s/src"), "scout").profile()
    assert merged["title"] is None
    assert merged.origins()["/guardrails/0"]["path"] == tree.path("w/.clia/agents/root/root@w.agent.triad.json")
    roots = library.lineage(tree.path("w/r/s/src"), "scout").context().roots
    assert [context.directory for context in roots] == [tree.path(name) for name in ("w", "w/r", "w/r/s")]


def test_what_root_directives_inherit_holds_too(tree: Tree) -> None:
    tree.repository("w")
    tree.write("w/policy.agent.triad.json", json.dumps({"guardrails": [SECRETS], "purpose": "policy"}))
    tree.agent("w", "root", guardrails=[DEPLOYS], inherits=["policy.agent.triad.json"])
    tree.agent("w")
    assert guardrails(tree) == [SECRETS, DEPLOYS]
    assert library.lineage(tree.path("w"), "scout").profile()["purpose"] is None


def test_inherits_adds_the_other_fields_and_no_second_origin(tree: Tree) -> None:
    tree.repository("w")
    root = tree.agent("w", "root", guardrails=[SECRETS], sections=["Logging"])
    tree.agent("w", inherits=[".clia/agents/root/root@w.agent.triad.json"], guardrails=["own"])
    merged = library.lineage(tree.path("w"), "scout").profile()
    assert (merged["guardrails"], merged["sections"]) == ([SECRETS, "own"], ["Logging"])
    assert merged.origins()["/guardrails/0"]["contributors"] == [{"path": str(root), "pointer": "/guardrails/0"}]
    assert [place.path for place in merged.explain("/guardrails/0").contributors] == [str(root)]


def test_an_explicit_chain_does_not_drop_root_rules(tree: Tree) -> None:
    for directory in ("w", "w/r"):
        tree.repository(directory)
        tree.agent(directory, "root", guardrails=[f"root of {directory}"])
        tree.agent(directory, rootChain={"mode": "explicit", "roots": []})
    assert guardrails(tree, "w/r") == ["root of w", "root of w/r"]
    result = clia("agents", "lint", "--path", tree.path("w/r"), "--format", "json")
    assert "guardrail-dropped" not in result.out


def test_an_agent_without_an_identity_has_the_root_rules(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root", title="Directives", guardrails=[SECRETS])
    profile = Lineage(LocalFiles(), survey_path(tree.path("w")), None).profile()
    assert (profile["slug"], profile["title"], profile["guardrails"]) == (None, None, [SECRETS])


def test_root_itself_is_read_as_before(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root", title="Directives", guardrails=[SECRETS])
    assert guardrails(tree, slug="root") == [SECRETS]


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda home: (home / "root@w.agent.triad.json").write_text('{"guardrails": ['), "invalid-json"),
        (lambda home: (home / "root@w.agent.triad.json").write_text('{"guardrails": 5}'), "wrong-type"),
        (lambda home: home.rename(home.parent / "other") and home.touch(), "not-a-directory"),
        (lambda home: home.rename(home.parent / "other") and home.symlink_to("other"), "root-symlink"),
        (lambda home: home.rename(home.parents[2] / "outside") and home.symlink_to("/tmp"), "symlink-escape"),
        (lambda home: home.rename(home.parent / "other") and home.symlink_to("nowhere"), "not-a-directory"),
    ],
)  # fmt: skip
def test_root_directives_that_cannot_be_read_are_an_error_of_every_identity(tree: Tree, spoil: Any, code: str) -> None:
    tree.repository("w")
    home = tree.agent("w", "root", guardrails=[SECRETS]).parent
    tree.agent("w", guardrails=["own"])
    assert codes(tree) == []
    spoil(home)
    assert code in codes(tree)
    result = clia("agents", "profile", "--slug", "scout", "--json", "--path", tree.path("w"))
    assert result.code == 2
    assert "own" in result.out
    assert clia("agents", "export", "--slug", "scout", "--to", "agents-md", "--path", tree.path("w")).code == 2


def test_a_rule_that_root_and_an_inherited_root_share_is_not_weakened_by_itself(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root", guardrails=["You must ask.", "You should ask."])
    tree.agent("w", inherits=[".clia/agents/root/root@w.agent.triad.json"])
    assert "guardrail-weakened" not in clia("agents", "lint", "--path", tree.path("w")).out


def test_lint_compares_an_identity_with_root_rules_that_it_does_not_inherit(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root", guardrails=["You must ask before a deploy."])
    tree.agent("w", guardrails=["You may ask before a deploy."])
    result = clia("agents", "lint", "--path", tree.path("w"))
    assert "guardrail-weakened" in result.out
    assert "only their guardrails apply" in result.out


def test_an_uncontained_root_is_named_once(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w/a", rootChain={"mode": "hybrid", "roots": [{"path": "b"}], "policy": {"enforceContainment": False}})
    tree.agent("w/b", title="b")
    tree.agent("w", "root", guardrails=[SECRETS])
    result = clia("agents", "context", "--slug", "scout", "--explain", "--allow-uncontained", "--path", tree.path("w/a"))
    assert "in: root-chain\n" in result.out
    assert "Root rules\n  root@w" in result.out


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can change the owner of a directory")
def test_root_directives_of_another_user_outside_every_repository_do_not_count(tree: Tree) -> None:
    tree.repository("shared/w")
    tree.agent("shared/w", guardrails=["own"])
    tree.agent("shared", "root", guardrails=["planted"])
    for path in (tree.root / "shared/.clia", *(tree.root / "shared/.clia").rglob("*")):
        os.chown(path, 12345, 12345)
    assert guardrails(tree, "shared/w") == ["own"]
    assert "untrusted-owner" in codes(tree, "shared/w")
