"""Force of words, hidden text, lines: the pure parts of lint."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.identities.checks import line_of
from clia.identities.layers import CONTEXT, Layer
from clia.identities.lint import check_texts, hidden_characters
from clia.identities.lint_guardrails import FORCE, statements
from clia.values import documents, pointer


def weaker(local: object, outer: object) -> bool:
    (here,), (there,) = statements([local], "/g"), statements([outer], "/g")
    return bool(set(here.rule_keys()) & set(there.rule_keys())) and here.is_weaker_than(there)


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
def test_less_force_is_found_and_more_force_is_not(outer: object, local: object) -> None:
    assert weaker(local, outer)
    assert not weaker(outer, local)


def test_a_rule_turned_round_is_less_in_either_direction() -> None:
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
def test_what_the_tables_do_not_know_is_not_guessed(outer: object, local: object) -> None:
    assert not weaker(local, outer)


def test_statements_are_found_in_groups_with_their_places() -> None:
    value = ["a", "", {"title": "T", "items": ["b", {"text": "c", "items": []}, {"items": ["d"]}]}, 5, {"x": 1}]
    assert [(each.pointer, each.text) for each in statements(value, "/g")] == [
        ("/g/0", "a"),
        ("/g/2/items/0", "b"),
        ("/g/2/items/1", "c"),
        ("/g/2/items/2/items/0", "d"),
    ]
    assert [each.pointer for each in statements("alone", "/g")] == ["/g"]
    assert list(statements(None, "/g")) == []


@given(st.text(), st.sampled_from(sorted(FORCE)))
def test_any_text_can_be_compared_with_itself(text: str, phrase: str) -> None:
    for each in statements([f"{text} {phrase} {text}"], "/g"):
        assert not each.is_weaker_than(each)


@pytest.mark.parametrize(
    "text",
    ["a\u200bb", "a\u200cb", "a\u200db", "\ufeffa", "a\u2060b", "a\u00adb", "a\u202eb", "\u2066a\u2069", "a\u200fb", "a\u061cb",
     "a\U000e0061b", "👍" + "\ufe0f\ufe0e", "👍" + "\U000e0101", "a\ufe0fb", "👩\u200d", "\u200d💻", "a\x07b", "a\x00b", "a\u3164b",
     "\U0001f3f4\U000e0061\U000e0062\U000e0063\U000e0064\U000e0065\U000e0066\U000e0067\U000e0068\U000e007f"],
)  # fmt: skip
def test_characters_a_person_cannot_see_are_found(text: str) -> None:
    assert hidden_characters(text)


@pytest.mark.parametrize(
    "text",
    ["plain\n\ttext\r\n", "naïve café", "👩‍💻", "👩🏽‍💻", "❤️", "🏳️‍🌈", "👨‍👩‍👧‍👦", "1️⃣ #️⃣", "🙂‍↔️", "‼️ \u2139\ufe0f ©️", "שלום",
     "مرحبا", "日本語",
     "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"],
)  # fmt: skip
def test_emoji_and_other_scripts_are_fine(text: str) -> None:
    assert hidden_characters(text) == []


def test_keys_and_deep_strings_are_read_and_named_by_pointer() -> None:
    document = {"a/b": [{"x\u200by": 1}, "z\u202e"], "fine": "ok"}
    found = list(check_texts("agent", Layer("p", document, "d", CONTEXT, None)))
    assert [(each.code, each.pointer) for each in found] == [("hidden-text", "/a~1b/0/x\u200by"), ("hidden-text", "/a~1b/1")]
    assert "U+202E RIGHT-TO-LEFT OVERRIDE" in found[1].message
    assert "\u202e" not in found[1].message


def test_a_line_is_that_of_the_value_or_of_what_is_nearest_to_it() -> None:
    text = '\ufeff{\r\n "a": [\r\n  {"x": "}"},\r\n  {"y~/": 1}\r\n ],\r\n "b": 2\r\n}'
    lines = {"": 1, "/a": 2, "/a/0/x": 3, "/a/1/y~0~1": 4, "/a/7": 2, "/b": 6, "/b/c": 6, "/gone": 1}
    assert {at: line_of(text.encode(), "p", at) for at in lines} == lines
    assert line_of(b'{\n "a": 1\n "b": 2}', "p", None) == 3
    assert line_of(b"[]", "p", "/a") == 1


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=3), _JSON, max_size=4))
def test_each_leaf_stands_on_the_line_that_is_named(value: dict[str, object]) -> None:
    text = json.dumps(value, indent=1)
    documents.parse(text.encode(), "p")
    lines = re.split("\n", text)
    for at, leaf in pointer.leaves(value):
        assert json.dumps(leaf) in lines[line_of(text.encode(), "p", at) - 1]
