"""The force of a guardrail's wording: which rules are weaker than others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.identities.guardrails.lint import FORCE, statements


def weaker(local: object, outer: object) -> bool:
    (inner_rule,), (outer_rule,) = statements([local], "/g"), statements([outer], "/g")
    return bool(set(inner_rule.rule_keys()) & set(outer_rule.rule_keys())) and inner_rule.is_weaker_than(outer_rule)


@pytest.mark.parametrize(
    ("outer", "local"),
    [
        ("Agents MUST write tests.", "agents should  write tests"),
        ("Agents must write tests", "Agents may write tests"),
        ("Never push to main.", "Avoid pushing to main."),
        ("Never use eval", "avoid using eval"),
        ("Never commit secrets", "Try to avoid committing secrets"),
        ("Do not force-push", "Should not force-push"),
        ("Don\u2019t merge red builds", "Shouldn't merge red builds"),
        ("Always ask", "usually ask"),
        ("A review is **required**.", "A review is recommended."),
        ("Tests must pass and docs must build", "Tests must pass and docs should build"),
        ("Never bring it up", "Avoid bringing it up"),
        ("Never deploy on Friday", "May deploy on Friday"),
        ("Be kind", {"text": "Be kind", "level": "optional"}),
        ({"text": "Be kind", "level": "required"}, {"text": "be kind", "level": "recommended"}),
        ({"id": "g1", "text": "Be kind"}, {"id": "g1", "text": "Be kinder", "level": "disabled"}),
    ],
)
def test_a_rule_with_less_force_is_weaker(outer: object, local: object) -> None:
    assert weaker(local, outer)
    assert not weaker(outer, local)


def test_a_negated_rule_is_weaker_in_both_directions() -> None:
    never, always = "Never deploy on Friday", "Always deploy on Friday"
    assert weaker(always, never)
    assert weaker(never, always)


@pytest.mark.parametrize(
    ("outer", "local"),
    [
        ("Agents must write tests", "Agents must write tests"),
        ("Agents must write tests", "Agents should write documentation"),
        ("Agents must write tests", "Agents shall write tests"),
        ("Never push", "Must not push"),
        ("Agents may rest", "Agents must rest"),
        ("Be kind", "Be kinder"),
        ({"text": "Be kind", "level": "urgent"}, {"text": "Be kind", "level": "relaxed"}),
        ({"text": "Be kind", "level": "optional"}, "Be kind"),
        ({"id": "g1", "text": "One must rest"}, {"id": "g1", "text": "Another thing"}),
    ],
)
def test_rules_that_are_not_comparable_are_not_weaker(outer: object, local: object) -> None:
    assert not weaker(local, outer)


def test_statements_in_groups_have_their_own_pointers() -> None:
    value = ["a", "", {"title": "T", "items": ["b", {"text": "c", "items": []}, {"items": ["d"]}]}, 5, {"x": 1}]
    assert [(statement.pointer, statement.text) for statement in statements(value, "/g")] == [
        ("/g/0", "a"),
        ("/g/2/items/0", "b"),
        ("/g/2/items/1", "c"),
        ("/g/2/items/2/items/0", "d"),
    ]
    assert [statement.pointer for statement in statements("alone", "/g")] == ["/g"]
    assert list(statements(None, "/g")) == []


@given(st.text(), st.sampled_from(sorted(FORCE)))
def test_no_text_is_weaker_than_itself(text: str, phrase: str) -> None:
    for statement in statements([f"{text} {phrase} {text}"], "/g"):
        assert not statement.is_weaker_than(statement)
