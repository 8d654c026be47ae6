"""Rules as guardrails state them."""

from __future__ import annotations

from typing import Any

import pytest

from clia.rules.model import KEYS, RuleMatch, parse_rule, rules_of_guardrail

RULE = {"on": "tool", "match": {"tool": "Bash", "command": ["deploy *", "ship"]}, "do": "ask", "risk": "high"}


def test_a_rule_is_parsed_with_its_place() -> None:
    (rule,) = rules_of_guardrail({"text": "Ask first.", "rules": [RULE]}, "f.json", "/guardrails/2")
    assert (rule.on, rule.do, rule.risk, rule.problem) == (("tool",), "ask", "high", "")
    assert rule.match == RuleMatch(tool=("Bash",), command=("deploy *", "ship"))
    assert (rule.text, rule.path, rule.pointer) == ("Ask first.", "f.json", "/guardrails/2/rules/0")


def test_rules_of_nested_items_are_found_and_those_of_disabled_ones_are_not() -> None:
    group = {"title": "All", "items": [{"text": "a", "rules": [RULE]}, {"text": "b", "level": "disabled", "rules": [RULE]}, "c"]}
    (rule,) = rules_of_guardrail(group, "f", "/guardrails/0")
    assert (rule.text, rule.pointer) == ("a", "/guardrails/0/items/0/rules/0")


@pytest.mark.parametrize(
    ("rule", "at", "words"),
    [
        ("deny", "", "must be an object"),
        ({}, "/on", "must be one of tool"),
        ({"on": [], "do": "deny"}, "/on", "must be one of"),
        ({"on": "tools", "do": "deny"}, "/on", "must be one of"),
        ({"on": [{}], "do": "deny"}, "/on", "must be one of"),
        ({"on": "tool"}, "/do", "must be one of allow"),
        ({"on": "tool", "do": "forbid"}, "/do", "must be one of"),
        ({"on": "tool", "do": "deny", "when": 1}, "", "unknown key 'when'"),
        ({"on": "tool", "do": "deny", "match": []}, "/match", "must be an object"),
        ({"on": "tool", "do": "deny", "match": {"comand": "x"}}, "/match", "unknown key 'comand'"),
        ({"on": "tool", "do": "deny", "match": {"command": ""}}, "/match/command", "non-empty"),
        ({"on": "tool", "do": "deny", "match": {"command": []}}, "/match/command", "empty list"),
        ({"on": "tool", "do": "deny", "match": {"command": [1]}}, "/match/command", "non-empty"),
        ({"on": "tool", "do": "deny", "match": {"branch": "main"}}, "/match/branch", "does not apply to `tool`"),
        ({"on": ["land", "tool"], "do": "deny", "match": {"paths": "x", "command": "y"}}, "/match/command", "`land`"),
        ({"on": "land", "do": "require"}, "/need", "must be one of decision"),
        ({"on": "land", "do": "require", "need": "luck"}, "/need", "must be one of"),
        ({"on": "land", "do": "deny", "need": "tests"}, "/need", "only for `require`"),
        ({"on": "tool", "do": "require", "need": "decision"}, "/do", "use `ask`"),
        ({"on": "tool", "do": "deny", "risk": "huge"}, "/risk", "must be one of low"),
    ],
)
def test_a_rule_that_does_not_parse_asks_and_names_its_field(rule: Any, at: str, words: str) -> None:
    parsed = parse_rule(rule, "text", "f", "/guardrails/0/rules/0")
    assert parsed.do == "ask"
    assert parsed.match == RuleMatch()
    assert parsed.pointer == f"/guardrails/0/rules/0{at}"
    assert words in parsed.problem


def test_an_unreadable_rule_keeps_its_actions_if_they_are_known() -> None:
    assert parse_rule({"on": ["land", "x"], "do": "deny"}, "", "f", "").on == ("land",)
    assert parse_rule({"on": "never", "do": "deny"}, "", "f", "").on == tuple(KEYS)
    (rule,) = rules_of_guardrail({"text": "a", "rules": {"on": "tool"}}, "f", "/guardrails/0")
    assert (rule.on, rule.do, rule.pointer) == (tuple(KEYS), "ask", "/guardrails/0/rules")
