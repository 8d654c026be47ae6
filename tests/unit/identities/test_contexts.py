"""Edge cases of discovery, inheritance and root chains."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from clia import lineage
from clia.files import LocalFiles
from clia.identities import lineage as app
from clia.identities.working_path import is_repository, survey
from support import clia

if TYPE_CHECKING:
    import pytest

    from support import Tree


def chain_of(tree: Tree, resolved: Any) -> list[str]:
    return [os.path.relpath(context.directory, tree.root) for context in resolved.context().chain]


def explicit(*paths: str, **more: Any) -> dict[str, Any]:
    return {"mode": "explicit", "roots": [{"kind": "path", "path": path} for path in paths], **more}


def test_three_nested_contexts_give_the_innermost_title(tree: Tree) -> None:
    tree.repository("w")
    for where, title in (("w", "outer"), ("w/r", "middle"), ("w/r/s", "inner")):
        tree.agent(where, title=title)
    tree.directory("w/r/s/src")
    scout = lineage(tree.path("w/r/s/src"), "scout")
    assert scout.profile()["title"] == "inner"


def test_a_directory_reached_twice_keeps_its_inner_position(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w/a", title="middle")
    tree.agent("w/a/b", title="inner")
    tree.directory("w/.clia/agents")
    (tree.root / "w/.clia/agents/scout").symlink_to("../../a/b/.clia/agents/scout")
    scout = lineage(tree.path("w/a/b"), "scout")
    assert chain_of(tree, scout) == ["w/a", "w/a/b"]
    assert scout.profile()["title"] == "inner"


def test_all_journals_of_a_directory_are_merged_by_name(tree: Tree) -> None:
    tree.repository("w")
    for name, texts in (("b", ["second"]), ("a", ["first"]), ("c", ["second", "third"])):
        entries = [{"summary": text} for text in texts]
        tree.document("w", "scout", "agency", {"entries": entries}, name=f"scout@{name}.agency.triad.json")
    scout = lineage(tree.path("w"), "scout")
    assert [entry["summary"] for entry in scout.agency()["entries"]] == ["first", "second", "third"]
    assert scout.agency().diagnostics == ()
    (context,) = scout.context().to_json()["chain"]
    assert [os.path.basename(path) for path in context["moreJournals"]] == [f"scout@{name}.agency.triad.json" for name in "bc"]
    assert scout.agency().explain("/entries/1").contributors[1].path.endswith("scout@c.agency.triad.json")


def test_a_linked_git_directory_is_a_boundary_too(tree: Tree) -> None:
    tree.directory("w")
    (tree.root / "w/.git").symlink_to(tree.directory("elsewhere"))
    assert is_repository(LocalFiles(), tree.path("w"))


def test_a_directory_named_gitmodules_is_ignored(tree: Tree) -> None:
    tree.repository("w")
    tree.directory("w/.gitmodules")
    assert survey(LocalFiles(), tree.path("w")).diagnostics == ()


def test_a_huge_gitmodules_is_reported(tree: Tree) -> None:
    tree.repository("w")
    tree.write("w/.gitmodules", b"#" * (16 * 1024 * 1024 + 1))
    assert [diagnostic.code for diagnostic in survey(LocalFiles(), tree.path("w")).diagnostics] == ["invalid-gitmodules"]


def test_a_network_path_is_never_inherited(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", inherits=["//example.org/x.agent.triad.json"])
    assert [diagnostic.code for diagnostic in lineage(tree.path("w"), "scout").profile().diagnostics] == ["inherits-remote"]


def test_an_inherited_document_resolves_its_own_references_in_its_own_repository(tree: Tree) -> None:
    tree.repository("w")
    tree.repository("w/policy")
    tree.write("w/policy/docs/base.agent.triad.json", '{"guardrails": ["policy base"]}')
    tree.write("w/docs/base.agent.triad.json", '{"guardrails": ["outer base"]}')
    tree.write("w/policy/rules.agent.triad.json", '{"guardrails": ["rules"], "inherits": ["docs/base.agent.triad.json"]}')
    tree.agent("w", guardrails=["own"], inherits=["policy/rules.agent.triad.json"])
    assert lineage(tree.path("w"), "scout").profile()["guardrails"] == ["policy base", "rules", "own"]


def chained(tree: Tree, root_chain: dict[str, Any], **outer: Any) -> Any:
    for where in ("w", "w/r", "w/r/s"):
        tree.repository(where)
        extra = {"rootChain": root_chain} if where == "w/r/s" else outer
        tree.agent(where, title=where, guardrails=[where], **extra)
    return lineage(tree.path("w/r/s"), "scout")


def test_pinned_guardrails_keep_the_position_of_their_context(tree: Tree) -> None:
    scout = chained(tree, explicit("."))
    assert scout.profile()["guardrails"] == ["w", "w/r", "w/r/s"]
    outer_chain = chained(tree, explicit("../.."))
    assert chain_of(tree, outer_chain) == ["w", "w/r/s"]
    assert outer_chain.profile()["guardrails"] == ["w", "w/r", "w/r/s"]


def test_a_document_inherited_by_two_dropped_contexts_is_read_once(tree: Tree) -> None:
    tree.write("w/docs/x.agent.triad.json", '{"guardrails": ["x"], "purpose": "from x"}')
    scout = chained(tree, explicit(), inherits=["docs/x.agent.triad.json"])
    assert scout.profile()["guardrails"] == ["x", "w", "w/r", "w/r/s"]
    assert scout.profile()["purpose"] is None
    assert len([layer for layer in scout.profile().layers if layer.path.endswith("x.agent.triad.json")]) == 1
    tree.agent("w/r/s", rootChain=explicit(), inherits=["docs/x.agent.triad.json"])
    assert lineage(tree.path("w/r/s"), "scout").profile()["purpose"] == "from x"


def test_a_dropped_context_hides_nothing_and_is_not_hidden(tree: Tree) -> None:
    story = chained(tree, explicit()).explain("/title")
    assert story.value == "w/r/s"
    assert story.shadowed == ()


def test_the_local_context_is_last_even_after_a_deeper_root(tree: Tree) -> None:
    for where in ("w", "w/a/b/c/d"):
        tree.repository(where)
        tree.agent(where, title=where)
    policy = {"enforceContainment": False}
    tree.agent("w", title="local", rootChain={"mode": "hybrid", "roots": [{"path": "a/b/c/d"}], "policy": policy})
    scout = lineage(tree.path("w"), "scout", allow_uncontained=True)
    assert chain_of(tree, scout) == ["w/a/b/c/d", "w"]
    assert scout.profile()["title"] == "local"


def test_without_a_repository_roots_are_relative_to_the_domain_directory(tree: Tree) -> None:
    tree.agent("w", title="w", purpose="from w")
    tree.agent("w/a", title="a", purpose="from a")
    tree.agent("w/a/b", title="b", rootChain=explicit("../.."))
    scout = lineage(tree.path("w/a/b"), "scout")
    assert chain_of(tree, scout) == ["w", "w/a/b"]
    assert scout.profile()["purpose"] == "from w"


def test_root_is_trusted_as_well_as_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    assert app.trusted_owners() == frozenset((1234, 0))


def test_an_operator_names_a_directory_of_identities_outside_of_a_repository(tree: Tree) -> None:
    tree.directory("plain")
    for shelf in ("shelf", "other/.clia/agents"):
        words = ("--slug", "scout", "--path", tree.path("plain"), "--agents-dir", tree.path(shelf))
        assert clia("agents", "profile", *words).code == 2
        assert clia("agents", "journal", *words, "--note", "read me", env={"HOME": tree.path()}).code == 0
        read = clia("agents", "agency", *words, "--json")
        assert [entry["summary"] for entry in read.json()["entries"]] == ["read me"]
        context = clia("agents", "context", *words, "--json").json()
        assert context["chain"][-1]["reasons"] == ["agents-dir"]


def test_an_agents_directory_is_unused_in_a_repository(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="here")
    tree.write("shelf/scout/scout.agent.triad.json", '{"title": "there"}')
    ran = clia("agents", "profile", "--slug", "scout", "--path", tree.path("w"), "--agents-dir", tree.path("shelf"), "--json")
    assert (ran.code, ran.json()["title"]) == (0, "here")
    assert "agents-dir-unused" in ran.err
