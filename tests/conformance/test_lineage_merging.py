"""Conformance cases 13 to 35 of the lineage design: merging, inheritance and chains of contexts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import clia as library
from clia.errors import InvalidInput
from support import Tree, clia


def nested(tree: Tree, *layers: dict[str, Any], kind: str = "agent") -> str:
    """Contexts w, w/1, w/1/2 … with one document each; returns the innermost directory."""
    tree.repository("w")
    directory = "w"
    for number, content in enumerate(layers):
        directory = directory if number == 0 else f"{directory}/{number}"
        tree.document(directory, "scout", kind, {"slug": "scout", **content})
    return tree.path(directory)


def profile(tree: Tree, *layers: dict[str, Any]) -> Any:
    return library.lineage(nested(tree, *layers), "scout").profile()


def codes(identity: Any) -> list[str]:
    return [diagnostic.code for diagnostic in identity.diagnostics]


def test_case_13_a_title_of_spaces_leaves_the_outer_title(tree: Tree) -> None:
    assert profile(tree, {"title": "outer"}, {"title": " \t\n"})["title"] == "outer"


def test_case_14_a_union_keeps_order_and_drops_duplicates_and_blanks(tree: Tree) -> None:
    assert profile(tree, {"guardrails": ["A", "B"]}, {"guardrails": ["B", "", "C"]})["guardrails"] == ["A", "B", "C"]


@pytest.mark.parametrize("shape", ["list", "primary"])
def test_case_15_the_mix_keeps_first_order_and_most_local_weight(tree: Tree, shape: str) -> None:
    outer: Any = [{"type": "code", "weight": 5}, {"type": "doc", "weight": 1}]
    inner: Any = [{"type": "code", "weight": 2}, {"type": "test", "weight": 1}]
    expected: Any = [{"type": "code", "weight": 2}, {"type": "doc", "weight": 1}, {"type": "test", "weight": 1}]
    if shape == "primary":
        outer, inner, expected = ({"primary": primary} for primary in (outer, inner, expected))
    assert profile(tree, {"contributionMix": outer}, {"contributionMix": inner})["contributionMix"] == expected
    runs = {
        clia("agents", "profile", "--slug", "scout", "--json", "--path", tree.path("w/1"), env={"PYTHONHASHSEED": seed}).out
        for seed in ("0", "1", "4242")
    }
    assert len(runs) == 1


def test_case_16_updated_is_null_if_no_document_has_it(tree: Tree) -> None:
    merged = profile(tree, {"title": "x"})
    assert merged["updated"] is None
    assert merged.origins()["/updated"]["path"] is None


def test_case_17_an_inner_agenda_without_agent_keeps_the_outer_role(tree: Tree) -> None:
    path = nested(tree, {"agent": {"role": "lead"}}, {"title": "inner"}, kind="agenda")
    assert library.lineage(path, "scout").plan()["agent"] == {"role": "lead"}


def test_case_18_links_with_only_href_are_both_kept(tree: Tree) -> None:
    merged = profile(tree, {"links": [{"href": "a"}]}, {"links": [{"href": "b"}, {"url": "a"}]})
    assert merged["links"] == [{"url": "a"}, {"href": "b"}]


def test_case_19_entries_with_one_timestamp_differ_by_content(tree: Tree) -> None:
    moment = "2026-01-01T00:00:00Z"
    first_entry, two = ({"timestamp": moment, "summary": summary} for summary in ("one", "two"))
    path = nested(tree, {"entries": [first_entry]}, {"entries": [two, first_entry]}, kind="agency")
    merged = library.lineage(path, "scout").agency()
    assert merged["entries"] == [first_entry, two]
    assert len(merged.origins()["/entries/0/summary"]["contributors"]) == 2
    assert len(merged.origins()["/entries/1/summary"]["contributors"]) == 1


def test_case_20_a_decision_without_contributions_is_kept(tree: Tree) -> None:
    decision = {"type": "decision", "id": "d1", "decision": "ship it"}
    assert library.lineage(nested(tree, {"entries": [decision]}, kind="agency"), "scout").agency()["entries"] == [decision]


def test_case_21_strings_and_objects_are_both_accepted_and_kept(tree: Tree) -> None:
    agent = {
        "sections": ["plain section", {"title": "Title", "items": ["item"]}],
        "checklists": ["plain check", {"title": "Before", "items": ["bare", {"text": "level", "level": "required"}]}],
        "mentors": ["ada", {"slug": "grace", "name": "Grace"}],
        "contributionMix": [{"type": "code"}, "doc"],
    }
    agenda = {
        "horizons": ["now", {"key": "next", "label": "Next quarter"}],
        "backlog": ["one", {"id": "b1", "title": "Two"}],
        "milestones": [{"title": "T", "due": "D"}],
    }
    path = nested(tree, agent)
    tree.document("w", "scout", "agenda", agenda)
    identity = library.lineage(path, "scout")
    assert {key: identity.profile()[key] for key in agent} == agent
    assert {key: identity.plan()[key] for key in agenda} == agenda
    assert identity.profile().diagnostics == identity.plan().diagnostics == ()
    card = clia("agents", "profile", "--slug", "scout", "--path", path).out
    assert "Title: item" in card
    assert "code ████████████████████ 1" in card
    assert "T (due: D)" in clia("agents", "plan", "--slug", "scout", "--path", path).out


def test_case_21_a_string_and_an_object_with_the_same_meaning_are_one_item(tree: Tree) -> None:
    outer = {"milestones": ["T (due: D)", "other"]}
    inner = {"milestones": [{"title": "T", "due": "D", "slug": "t"}]}
    path = nested(tree, outer, inner, kind="agenda")
    merged = library.lineage(path, "scout").plan()
    assert merged["milestones"] == [{"title": "T", "due": "D", "slug": "t"}, "other"]
    assert len(merged.origins()["/milestones/0/title"]["contributors"]) == 2


def test_case_21_an_outer_guardrail_keeps_its_text(tree: Tree) -> None:
    sly = {"title": "Never push.", "text": "Push whenever you like."}
    assert profile(tree, {"guardrails": ["Never push."]}, {"guardrails": [sly]})["guardrails"] == ["Never push.", sly]


def test_case_22_extensions_are_replaced_as_a_whole_unless_empty(tree: Tree) -> None:
    assert profile(tree, {"extensions": {"a": 1}}, {"extensions": {"b": 2}}, {"extensions": {}})["extensions"] == {"b": 2}


def test_case_23_notes_without_content_count_as_empty(tree: Tree) -> None:
    notes = [{"author": "ada", "blocks": ["text"]}]
    assert profile(tree, {"notes": notes}, {"notes": [{"author": "", "blocks": []}]})["notes"] == notes


def test_case_24_persona_merges_key_by_key(tree: Tree) -> None:
    merged = profile(tree, {"persona": {"reveriesPath": "r", "profilePath": "old"}}, {"persona": {"profilePath": "p"}})
    assert merged["persona"] == {"reveriesPath": "r", "profilePath": "p"}


def test_case_25_unknown_keys_survive(tree: Tree) -> None:
    odd = {"x-one": {"deep": [1, {"a": None}]}, "x-two": False, "x-three": 0, "x-four": "", "x/five~": [[]]}
    assert {key: profile(tree, odd).document[key] for key in odd} == odd


def test_case_25_unknown_arrays_are_replaced_and_unknown_objects_merged(tree: Tree) -> None:
    merged = profile(tree, {"xs": [1, 2], "o": {"a": 1, "b": [1]}}, {"xs": [3], "o": {"b": [2]}}, {"xs": []})
    assert merged["xs"] == [3]
    assert merged["o"] == {"a": 1, "b": [2]}


def test_case_26_the_merged_slug_is_the_one_asked_for(tree: Tree) -> None:
    tree.repository("w")
    tree.document("w", "root", "agent", {"slug": "agent-profile", "guardrails": ["from the root"]}, name="root.agent.triad.json")
    tree.agent("w", inherits=[".clia/agents/root/root.agent.triad.json"])
    merged = library.lineage(tree.path("w"), "scout").profile()
    assert merged["slug"] == "scout"
    assert merged["guardrails"] == ["from the root"]


@pytest.mark.parametrize(
    "text", ['{"title": "a", "title": "b"}', '{"x": {"a": 1, "a": 1}}', '{"x": NaN}', '{"x": -Infinity}', '{"x": 1e999}']
)
def test_case_27_ambiguous_json_is_an_error(tree: Tree, text: str) -> None:
    tree.repository("w")
    tree.write("w/.clia/agents/scout/scout.agent.triad.json", text)
    ran = clia("agents", "profile", "--slug", "scout", "--json", "--path", tree.path("w"))
    assert ran.code == 2
    assert json.loads(ran.err)["code"] == "invalid-json"


def test_case_27_large_integers_stay_exact(tree: Tree) -> None:
    tree.repository("w")
    number = 2**80 + 1
    tree.write("w/.clia/agents/scout/scout.agent.triad.json", f'{{"big": {number}}}')
    assert f'"big": {number}' in clia("agents", "profile", "--slug", "scout", "--json", "--path", tree.path("w")).out


def test_case_28_inherited_root_guardrails_come_first_from_anywhere_below(tree: Tree) -> None:
    tree.repository("r")
    tree.document("r", "root", "agent", {"guardrails": ["root rule"]}, name="root@r.agent.triad.json")
    tree.agent("r", guardrails=["own rule"], inherits=[".clia/agents/root/root@r.agent.triad.json"])
    tree.directory("r/sub/dir")
    assert library.lineage(tree.path("r/sub/dir"), "scout").profile()["guardrails"] == ["root rule", "own rule"]


def inheriting(tree: Tree, **documents: list[str]) -> Any:
    """Documents in docs/, each with its name as guardrail; `self` is the agent's."""
    tree.repository("w")
    for name, targets in documents.items():
        content = {"guardrails": [name], "inherits": [f"docs/{target}.agent.triad.json" for target in targets]}
        if name == "self":
            tree.document("w", "scout", "agent", content)
        else:
            tree.write(f"w/docs/{name}.agent.triad.json", json.dumps(content))
    return library.lineage(tree.path("w"), "scout").profile()


def test_case_29_inherited_documents_precede_their_heir_depth_first(tree: Tree) -> None:
    assert inheriting(tree, self=["x", "y"], x=["z"], y=[], z=[])["guardrails"] == ["z", "x", "y", "self"]


def test_case_30_a_cycle_reads_each_document_once_and_is_named(tree: Tree) -> None:
    merged = inheriting(tree, self=["a"], a=["b"], b=["a"])
    assert merged["guardrails"] == ["b", "a", "self"]
    assert "inherits-cycle" in codes(merged)


def test_case_30_a_diamond_reads_the_shared_document_once(tree: Tree) -> None:
    merged = inheriting(tree, self=["a", "b"], a=["top"], b=["top"], top=[])
    assert [Path(layer.path).name.partition(".")[0] for layer in merged.layers] == ["top", "a", "b", "scout@w"]
    assert codes(merged) == []


def test_case_30_a_long_chain_of_inheritance_works(tree: Tree) -> None:
    length = 3000
    chain = {f"d{number}": [f"d{number + 1}"] for number in range(length)}
    merged = inheriting(tree, self=["d0"], **chain, **{f"d{length}": []})
    assert len(merged["guardrails"]) == length + 2


def test_case_31_an_inherited_file_that_is_a_context_keeps_its_inner_place(tree: Tree) -> None:
    tree.repository("w")
    inner = tree.agent("w/in", title="inner", guardrails=["inner"])
    tree.agent("w", title="outer", guardrails=["outer"], inherits=[os.path.relpath(inner, tree.path("w"))])
    merged = library.lineage(tree.path("w/in"), "scout").profile()
    assert merged["title"] == "inner"
    assert merged["guardrails"] == ["outer", "inner"]


@pytest.mark.parametrize(
    ("target", "code", "exit_code"),
    [
        ("docs/none.agent.triad.json", "inherits-missing", 0),
        ("https://example.org/x.agent.triad.json", "inherits-remote", 2),
        ("git@example.org:x.agent.triad.json", "inherits-remote", 2),
        ("../outside.agent.triad.json", "inherits-outside", 2),
        ("{root}/outside.agent.triad.json", "inherits-outside", 2),
        ("docs/link.agent.triad.json", "inherits-outside", 2),
        ("docs/plan.agenda.triad.json", "inherits-kind-mismatch", 2),
        (17, "wrong-type", 2),
    ],
)
def test_case_32_an_inherited_path_that_cannot_be_used_is_named(tree: Tree, target: Any, code: str, exit_code: int) -> None:
    tree.repository("w")
    tree.write("outside.agent.triad.json", '{"guardrails": ["outside"]}')
    tree.write("w/docs/plan.agenda.triad.json", '{"guardrails": ["agenda"]}')
    (tree.root / "w/docs/link.agent.triad.json").symlink_to(tree.root / "outside.agent.triad.json")
    declared = target.format(root=tree.root) if isinstance(target, str) else target
    path = tree.agent("w", guardrails=["own"], inherits=[declared])
    ran = clia("agents", "profile", "--slug", "scout", "--json", "--path", tree.path("w"))
    assert ran.code == exit_code
    assert ran.json()["guardrails"] == ["own"]
    error = json.loads(ran.err)
    assert (error["code"], error["path"], error["pointer"]) == (code, str(path), "/inherits/0")


def test_case_32_an_absolute_path_inside_the_repository_is_inherited(tree: Tree) -> None:
    tree.repository("w")
    target = tree.write("w/docs/x.agent.triad.json", '{"guardrails": ["x"]}')
    tree.agent("w", inherits=[str(target)])
    assert library.lineage(tree.path("w"), "scout").profile()["guardrails"] == ["x"]


def test_case_32_the_old_location_of_inherits_works_with_a_warning(tree: Tree) -> None:
    tree.repository("w")
    tree.write("w/docs/x.agent.json", '{"guardrails": ["x"]}')
    tree.agent("w", extensions={"inherits": ["docs/x.agent.json"]})
    merged = library.lineage(tree.path("w"), "scout").profile()
    assert merged["guardrails"] == ["x"]
    assert sorted(codes(merged)) == ["inherits-legacy-name", "inherits-legacy-place"]


def test_case_32_a_path_is_searched_in_the_inner_repository_and_then_outward(tree: Tree) -> None:
    tree.repository("w")
    tree.repository("w/s")
    tree.write("w/docs/both.agent.triad.json", '{"guardrails": ["outer both"]}')
    tree.write("w/s/docs/both.agent.triad.json", '{"guardrails": ["inner both"]}')
    tree.write("w/docs/outer.agent.triad.json", '{"guardrails": ["only outer"]}')
    tree.agent("w/s", inherits=["docs/both.agent.triad.json", "docs/outer.agent.triad.json"])
    assert library.lineage(tree.path("w/s"), "scout").profile()["guardrails"] == ["inner both", "only outer"]


def chained(tree: Tree, root_chain: dict[str, Any] | None) -> str:
    """Contexts w, w/r and w/r/s in nested repositories; the innermost sets ``root_chain``."""
    for directory in ("w", "w/r", "w/r/s"):
        tree.repository(directory)
        extra: dict[str, Any] = {"rootChain": root_chain} if directory == "w/r/s" and root_chain is not None else {}
        tree.agent(
            directory, title=directory, purpose=directory if directory == "w" else "", guardrails=[f"rule of {directory}"], **extra
        )
    return tree.path("w/r/s")


def shown(tree: Tree, contexts: Any) -> list[str]:
    return [os.path.relpath(context.directory, tree.root) for context in contexts]


def roots(*paths: str) -> list[dict[str, str]]:
    return [{"kind": "path", "path": path} for path in paths]


def test_case_33_an_explicit_chain_drops_contexts_but_never_their_guardrails(tree: Tree) -> None:
    path = chained(tree, {"mode": "explicit", "roots": roots("r")})
    identity = library.lineage(path, "scout")
    report = identity.context()
    assert report.mode == "explicit"
    assert shown(tree, report.default) == ["w", "w/r", "w/r/s"]
    assert shown(tree, report.chain) == ["w/r", "w/r/s"]
    assert [layer.reasons for layer in report.chain] == [("ancestor", "root-chain"), ("ancestor", "local")]
    assert [(exclusion.path, exclusion.reason) for exclusion in report.excluded] == [(tree.path("w"), "not-in-root-chain")]
    assert identity.profile()["guardrails"] == ["rule of w", "rule of w/r", "rule of w/r/s"]
    assert identity.profile()["purpose"] is None
    assert "guardrails-pinned" in codes(identity.profile())


def test_case_33_what_a_dropped_context_inherits_is_pinned_too(tree: Tree) -> None:
    path = chained(tree, {"mode": "explicit", "roots": []})
    tree.write("w/docs/root.agent.triad.json", '{"guardrails": ["root rule"], "purpose": "dropped"}')
    tree.agent("w", guardrails=["rule of w"], inherits=["docs/root.agent.triad.json"])
    merged = library.lineage(path, "scout").profile()
    assert merged["guardrails"] == ["root rule", "rule of w", "rule of w/r", "rule of w/r/s"]
    assert merged["purpose"] is None


def test_case_34_a_hybrid_chain_adds_roots_without_duplicates(tree: Tree) -> None:
    path = chained(tree, {"mode": "hybrid", "roots": roots("r", ".", "r")})
    report = library.lineage(path, "scout").context()
    assert report.mode == "hybrid"
    assert shown(tree, report.chain) == ["w", "w/r", "w/r/s"]
    assert shown(tree, report.injected) == ["w/r", "w/r/s"]


def test_case_34_a_root_without_the_agent_adds_nothing_and_is_named(tree: Tree) -> None:
    path = chained(tree, {"mode": "hybrid", "roots": roots("r")})
    tree.agent("w", "other", title="other")
    (tree.root / "w/r/.clia/agents/scout/scout@r.agent.triad.json").unlink()
    report = library.lineage(path, "scout").context()
    assert shown(tree, report.chain) == ["w", "w/r/s"]
    assert "root-without-agent" in codes(report)


@pytest.mark.parametrize(
    "root_chain",
    [
        {"mode": "hybrid", "roots": roots("sibling")},
        {"mode": "explicit", "roots": roots("missing")},
        {"mode": "explicit", "roots": roots("../outside")},
        {"mode": "sideways"},
        {"mode": "explicit", "roots": [{"kind": "url", "path": "r"}]},
        {"mode": "explicit", "roots": [{"kind": "path"}]},
        {"mode": "explicit", "roots": "r"},
        {"mode": "explicit", "roots": roots("sibling"), "policy": {"enforceContainment": False}},
        {"mode": "explicit", "roots": [], "policy": {"enforceContainment": "no"}},
        [],
        "explicit",
    ],
)
@pytest.mark.parametrize("command", ["context", "profile", "plan", "agency"])
def test_case_35_a_root_that_does_not_contain_the_path_fails_without_output(tree: Tree, root_chain: Any, command: str) -> None:
    path = chained(tree, root_chain)
    tree.agent("w/sibling", title="sibling")
    tree.agent("outside", title="outside")
    ran = clia("agents", command, "--slug", "scout", "--json", "--path", path)
    assert (ran.code, ran.out) == (2, "")
    error = json.loads(ran.err)["error"]
    assert error["code"] == "invalid-root-chain"
    assert error["fields"]["path"].startswith(path)
    assert error["fields"]["pointer"].startswith("/rootChain")


def test_case_35_only_the_operator_can_lift_containment(tree: Tree) -> None:
    path = chained(tree, {"mode": "hybrid", "roots": roots("sibling"), "policy": {"enforceContainment": False}})
    tree.agent("w/sibling", title="sibling", guardrails=["sibling"])
    with pytest.raises(InvalidInput):
        library.lineage(path, "scout")
    report = library.lineage(path, "scout", allow_uncontained=True).context()
    assert shown(tree, report.chain) == ["w", "w/r", "w/sibling", "w/r/s"]
    assert shown(tree, report.injected) == ["w/sibling"]
