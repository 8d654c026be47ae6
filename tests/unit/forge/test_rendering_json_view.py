"""JSON values as HTML."""

from __future__ import annotations

from typing import Any

import pytest

from clia.forge.rendering import json_view
from support.markup import shown, within


def test_a_value_is_indented_with_its_keys_in_order() -> None:
    markup = json_view.to_html({"b": [1, {}], "a": None})
    assert shown(markup) == '{\n  "a": null,\n  "b": [\n    1,\n    {}\n  ]\n}\n'
    assert markup == json_view.to_html({"a": None, "b": [1, {}]})


@pytest.mark.parametrize(
    ("value", "text", "tag"),
    [
        ("é", '"é"', "span.json-string"),
        (1.5, "1.5", "span.json-number"),
        (True, "true", "span.json-word"),
        (None, "null", "span.json-word"),
        ([], "[]", "span.json-mark"),
        ({}, "{}", "span.json-mark"),
    ],
)
def test_a_scalar_has_the_class_of_its_type(value: Any, text: str, tag: str) -> None:
    assert within(json_view.to_html(value), tag) == [text]


def test_markup_and_controls_in_keys_and_values_are_text() -> None:
    markup = json_view.to_html({"<i>": '"</div><script>\u202e\ud800'})
    assert shown(markup) == '{\n  "<i>": "\\"</div><script>␦␦"\n}\n'
    markup.encode("utf-8")


def test_values_longer_than_twenty_lines_are_folded_and_only_the_outermost_is_open() -> None:
    assert "<details" not in json_view.to_html(list(range(18)))
    markup = json_view.to_html({"one": list(range(19)), "two": [1]})
    assert markup.count('<details class="json-fold" open>') == 1
    assert markup.count('<details class="json-fold">') == 1
    assert '<summary><span class="json-mark">{</span><span class="json-count"> 2 keys</span></summary>' in markup
    assert '&#34;one&#34;</span>: <span class="json-mark">[</span><span class="json-count"> 19 items</span></summary>' in markup


def test_a_fold_with_a_match_is_open_and_the_match_is_marked() -> None:
    markup = json_view.to_html({"one": [*range(30), "Needle"], "two": list(range(30))}, "needle")
    assert markup.count(" open>") == 2
    assert markup.count('<details class="json-fold">') == 1
    assert within(markup, "mark.hit") == ["Needle"]


def test_redactions_are_marked() -> None:
    assert within(json_view.to_html({"token": "[redacted:github-token]"}), "mark.redacted") == ["[redacted:github-token]"]


def test_a_huge_value_is_truncated_and_the_rest_is_counted() -> None:
    markup = json_view.to_html({"first": list(range(5000)), "second": 2, "third": 3})
    assert markup.count("\n") < 2100
    assert within(markup, "span.json-count")[-2:] == ["… 3,002 more", "… 2 more"]


def test_a_long_text_is_truncated_and_the_rest_is_counted() -> None:
    assert within(json_view.to_html("x" * 30_000), "span.json-count") == [" … 10,002 more characters"]


def test_a_deep_value_continues_on_one_line() -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    assert within(json_view.to_html(value), "span.json-deep") == ["[" * 8 + "1" + "]" * 8]


def test_a_value_beyond_the_recursion_limit_is_shown_as_far_as_possible() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert within(json_view.to_html(value), "span.json-deep") == ["…"]
    assert json_view.plain(value) == ""
