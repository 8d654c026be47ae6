"""What rules say about an action."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from clia.rules.evaluation import RuledAction, describe, evaluate, reason
from clia.rules.model import parse_rule

if TYPE_CHECKING:
    from clia.rules.model import GuardrailRule


def rule(do: str, on: Any = "tool", need: Any = None, text: str = "Ask first.", **match: Any) -> GuardrailRule:
    document = {"on": on, "do": do, "match": match or None, "need": need}
    return parse_rule({key: value for key, value in document.items() if value is not None}, text, "f.json", "/guardrails/0/rules/0")


def shell(line: str) -> RuledAction:
    return RuledAction("tool", tool="Bash", command=line)


def test_without_a_matching_rule_there_is_no_verdict() -> None:
    verdict = evaluate([rule("deny", command="deploy *"), rule("deny", on="land")], shell("ls"))
    assert (verdict.do, verdict.rule, verdict.matches) == ("", None, ())
    assert reason(verdict) == "no rule applies"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_strictest_rule_wins_in_any_order_and_the_others_are_listed(order: tuple[int, ...]) -> None:
    rules = [rule("allow", command="deploy *"), rule("ask", command="deploy *"), rule("deny", command="deploy prod")]
    verdict = evaluate([rules[at] for at in order], shell("deploy prod"))
    assert verdict.do == "deny"
    assert verdict.rule == rules[2]
    assert {match.rule.do for match in verdict.overruled} == {"ask", "allow"}


def test_an_allowance_needs_every_command_of_the_line() -> None:
    rules = [rule("allow", tool="Bash", command=["git status *", "ls *"])]
    assert evaluate(rules, shell("git status && ls -l")).do == "allow"
    for line in (
        "git status && rm x",
        "git status $(rm x)",
        "A=b git status",
        "git status > x",
        "git status | sh",
        "sh -c 'git status'",
    ):
        assert evaluate(rules, shell(line)).do == "", line


def test_an_allowance_of_paths_needs_every_file_and_never_covers_a_shell() -> None:
    rules = [rule("allow", tool="Edit", paths="docs/**"), rule("allow", paths="docs/**")]
    assert evaluate(rules, RuledAction("tool", tool="Edit", paths=("docs/a",))).do == "allow"
    assert evaluate(rules, RuledAction("tool", tool="Edit", paths=("docs/a", "src/b"))).do == ""
    assert evaluate(rules, RuledAction("tool", tool="Edit")).do == ""
    assert evaluate(rules, RuledAction("tool", tool="Bash", command="cat docs/a", paths=("docs/a",))).do == ""


def test_tools_are_known_by_what_they_do() -> None:
    deny_shell, deny_edit = [rule("deny", tool="Bash")], [rule("deny", tool="Edit")]
    assert evaluate(deny_shell, RuledAction("tool", tool="run_shell_command", command="x")).do == "deny"
    assert evaluate(deny_edit, RuledAction("tool", tool="apply_patch")).do == "deny"
    assert evaluate(deny_shell, RuledAction("tool", tool="Read")).do == ""
    assert evaluate([rule("deny", tool="mcp__*")], RuledAction("tool", tool="mcp__db__query")).do == "deny"


def test_asking_on_the_record_requires_a_decision_and_needs_are_combined() -> None:
    rules = [rule("ask", on="land", paths="infra/**"), rule("require", on=["land", "push"], need=["tests", "trace"])]
    verdict = evaluate(rules, RuledAction("land", paths=("infra/a",)))
    assert (verdict.do, verdict.need) == ("require", ("decision", "tests", "trace"))
    assert evaluate(rules, RuledAction("push", paths=("infra/a",))).need == ("tests", "trace")


def test_rules_match_branches_kinds_programs_and_effects() -> None:
    assert evaluate([rule("deny", on="push", branch="release/*")], RuledAction("push", branch="release/1")).do == "deny"
    assert evaluate([rule("deny", on="commit", kind="finding")], RuledAction("commit", kinds=("note", "finding"))).do == "deny"
    assert evaluate([rule("ask", on="command", program="claude")], RuledAction("command", program="claude")).do == "ask"
    assert evaluate([rule("ask", on="command", program="claude")], RuledAction("command", program="codex")).do == ""
    effect = [rule("deny", on="effect", effect="command")]
    assert evaluate(effect, RuledAction("command", program="x", effect="command")).do == "deny"
    assert evaluate(effect, RuledAction("effect", effect="llm")).do == ""


def test_a_rule_that_does_not_parse_asks_whatever_else_allows() -> None:
    broken = parse_rule({"on": "tool", "do": "forbid"}, "No deploys.", "f.json", "/guardrails/0/rules/0")
    verdict = evaluate([rule("allow", tool="Read"), broken], RuledAction("tool", tool="Read"))
    assert verdict.do == "ask"
    assert "does not parse" in reason(verdict)
    assert evaluate([broken], RuledAction("land")).do == ""


def test_a_verdict_says_which_rule_of_which_file() -> None:
    verdict = evaluate([rule("deny", command="deploy *")], shell("cd x && env deploy prod"))
    assert reason(verdict) == "Ask first. (rule f.json /guardrails/0/rules/0)"
    assert describe(verdict.matches[0]) == 'deny (may match): "Ask first." f.json /guardrails/0/rules/0: deploy prod'


def test_the_highest_risk_is_reported() -> None:
    rules = [parse_rule({"on": "tool", "do": "ask", "risk": risk}, "", "f", "") for risk in ("low", "high", "medium")]
    assert evaluate(rules, shell("x")).risk == "high"
