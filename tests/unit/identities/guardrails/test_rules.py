"""The rules of an identity's guardrails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clia import lineage
from clia.errors import InvalidInput
from clia.identities.guardrails.rules import explain_rule, rules_in_force, rules_of, rules_of_record
from clia.rules.evaluation import RuledAction
from clia.values.canonical import digest, text_digest
from support import clia
from support.waivers import about

if TYPE_CHECKING:
    from support import Tree

ASK = {"on": "tool", "match": {"command": "deploy *"}, "do": "ask"}
DENY = {"on": "tool", "match": {"command": "deploy prod"}, "do": "deny"}
DEPLOY = RuledAction("tool", tool="Bash", command="deploy prod")


def guardrail(*rules: Any, text: str = "Ask before a deploy.") -> dict[str, Any]:
    return {"text": text, "rules": list(rules)}


def outcome(tree: Tree, where: str) -> str:
    return explain_rule("scout", rules_of(lineage(tree.path(where), "scout").profile()), DEPLOY).do


def nested(tree: Tree, inner: Any) -> None:
    tree.repository("w")
    tree.repository("w/in")
    tree.agent("w", guardrails=[guardrail(ASK)])
    tree.agent("w/in", guardrails=inner)


def test_an_inner_document_tightens(tree: Tree) -> None:
    nested(tree, [guardrail(DENY)])
    assert (outcome(tree, "w"), outcome(tree, "w/in")) == ("ask", "deny")


@pytest.mark.parametrize(
    "inner",
    [
        [guardrail({**ASK, "do": "allow"})],
        [guardrail()],
        [{"text": "Ask before a deploy.", "level": "disabled", "rules": [ASK]}],
        ["Ask before a deploy."],
        [],
    ],
)
def test_an_inner_document_does_not_loosen(tree: Tree, inner: Any) -> None:
    nested(tree, inner)
    assert outcome(tree, "w/in") == "ask"


def test_each_rule_names_its_file(tree: Tree) -> None:
    nested(tree, [guardrail(DENY)])
    explanation = explain_rule("scout", rules_of(lineage(tree.path("w/in"), "scout").profile()), DEPLOY)
    assert [match.rule.path.startswith(tree.path("w/in/.clia")) for match in explanation.matches] == [True]
    assert [match.rule.path.startswith(tree.path("w/.clia")) for match in explanation.overruled] == [True]
    assert explanation.matches[0].rule.pointer == "/guardrails/0/rules/0"


def test_rules_of_a_waived_guardrail_do_not_apply(tree: Tree) -> None:
    entry: dict[str, Any] = {"timestamp": "2026-01-01T00:00:00Z", "summary": "Fine.", "contributions": [{"by": "ada"}]}
    entry["extensions"] = about(tree.root / "w", "Ask before a deploy.")
    nested(tree, [])
    tree.agent("w", "ada", profileType="operator")
    tree.agency("w", entries=[entry])
    waiver = {"guardrail": text_digest("Ask before a deploy."), "approval": digest(entry)}
    tree.agent("w/in", waivers=[waiver])
    assert (outcome(tree, "w"), outcome(tree, "w/in")) == ("ask", "")
    tree.agent("w/in", waivers=[{**waiver, "approval": "0" * 64}])
    assert outcome(tree, "w/in") == "ask"


def test_a_record_keeps_its_rules_and_limits_allowances() -> None:
    allow = {**ASK, "do": "allow"}
    recorded = rules_of_record("scout", {"document": {"guardrails": [guardrail(DENY), "text"]}})
    assert [rule.path for rule in recorded] == ["profile of scout"]
    current = rules_of_record("now", {"document": {"guardrails": [guardrail(DENY), guardrail(ASK), guardrail(allow)]}})
    assert [(rule.do, rule.path) for rule in rules_in_force(current, recorded)] == [
        ("deny", "profile of now"),
        ("ask", "profile of now"),
    ]
    assert [rule.do for rule in rules_in_force((), recorded)] == ["deny"]
    assert [rule.do for rule in rules_in_force(current, None)] == ["deny", "ask", "allow"]
    assert [rule.do for rule in rules_in_force(current, current)] == ["deny", "ask", "allow"]
    assert rules_of_record("scout", {"document": None}) == ()


def test_a_rule_that_does_not_parse_is_reported_once(tree: Tree) -> None:
    nested(tree, [guardrail({**ASK, "do": "forbid"})])
    merged = lineage(tree.path("w/in"), "scout").profile()
    (finding,) = [item for item in merged.diagnostics if item.code == "invalid-rule"]
    assert (finding.severity, finding.pointer) == ("error", "/guardrails/0/rules/0/do")
    assert finding.path is not None
    assert finding.path.startswith(tree.path("w/in"))
    result = clia("agents", "lint", "--path", tree.path("w/in"))
    assert result.code == 1
    assert result.out.count("/guardrails/0/rules/0/do") == 2  # place and message of one finding
    assert "schema" not in result.out


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown action"):
        explain_rule("scout", (), RuledAction("dream"))


def test_the_command_explains_a_verdict(tree: Tree) -> None:
    nested(tree, [guardrail(DENY)])
    words = ("--slug", "scout", "--path", tree.path("w/in"))
    shown = clia("agents", "explain-rule", *words, "--on", "tool", "--tool", "Bash", "--command", "sh -c 'deploy prod'").out
    assert shown.startswith("deny\n")
    assert "Overruled, because the stricter rule applies" in shown
    assert clia("agents", "explain-rule", *words, "--on", "land").out == "no rule applies\n"
    listed = clia("agents", "rules", *words)
    assert (listed.code, listed.out.count("Ask before a deploy.")) == (0, 2)
