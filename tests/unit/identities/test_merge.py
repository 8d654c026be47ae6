"""Edge cases of merging that ordinary documents do not reach."""

from __future__ import annotations

from typing import Any

import pytest

from clia.identities.inheritance import CONTEXT, Layer
from clia.identities.merge import merge, same
from clia.identities.origins import explain
from clia.values.canonical import digest

MERGED_LISTS = (
    "mentors tags responsibilities guardrails sections checklists principles themes horizons initiatives milestones backlog "
    "dependencies risks entries emojiTags focusDomains operationModes"
)


def layered(*documents: dict[str, Any]) -> list[Layer]:
    return [Layer(f"/{number}", document, "/", CONTEXT, None) for number, document in enumerate(documents)]


def merged(*documents: dict[str, Any]) -> dict[str, Any]:
    return merge("agent", "scout", layered(*documents))[0]


@pytest.mark.parametrize("field", MERGED_LISTS.split(" "))
def test_every_list_field_is_merged_without_duplicates(field: str) -> None:
    assert merged({field: ["A", "B"]}, {field: ["B", "C"]})[field] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (True, 1, False),
        (0, False, False),
        (1, 1.0, True),
        ([{"a": True}], [{"a": 1}], False),
        ({"a": [1, 2]}, {"a": [1.0, 2]}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ("1", 1, False),
        (2**80, 2**80 + 1, False),
    ],
)
def test_numbers_are_compared_by_value_and_differ_from_booleans(left: Any, right: Any, expected: bool) -> None:
    assert same(left, right) is expected
    assert len(merged({"backlog": [left]}, {"backlog": [right]})["backlog"]) == (1 if expected else 2)


def test_an_object_that_replaced_a_string_is_not_added_again() -> None:
    milestone = {"title": "T", "due": "D"}
    assert merged({"milestones": ["T (due: D)"]}, {"milestones": [milestone]}, {"milestones": [milestone]})["milestones"] == [
        milestone
    ]


def test_an_empty_object_hides_nothing() -> None:
    assert merged({"x": "text"}, {"x": {}})["x"] == "text"
    assert merged({"x": {"a": {"b": 1}}}, {"x": {"a": None}})["x"] == {"a": {"b": 1}}


def test_a_value_that_is_not_an_object_hides_the_objects_of_outer_layers() -> None:
    assert merged({"x": {"a": 1}}, {"x": "text"}, {"x": {"b": 2}})["x"] == {"b": 2}
    assert merged({"x": {"a": 1}}, {"x": "text"})["x"] == "text"


def test_a_plain_contribution_mix_merges_into_the_primary_group() -> None:
    outer, inner = [{"type": "code", "weight": 5}], {"primary": [{"type": "code", "weight": 2}], "secondary": [{"type": "doc"}]}
    assert merged({"contributionMix": outer}, {"contributionMix": inner})["contributionMix"] == inner


def test_explain_shows_every_overridden_weight() -> None:
    layers = layered(*({"contributionMix": [{"type": "code", "weight": weight}]} for weight in (5, 4, 3)))
    document, provenance, _ = merge("agent", "scout", layers)
    explanation = explain(document, provenance, layers, "/contributionMix/0")
    assert explanation.value == {"type": "code", "weight": 3}
    assert [value.value["weight"] for value in explanation.shadowed] == [5, 4]


def test_contributors_are_listed_outermost_first() -> None:
    layers = layered({"guardrails": ["a", "b"]}, {"guardrails": ["b", "c"]}, {"guardrails": ["a"]})
    document, provenance, _ = merge("agent", "scout", layers)
    explanation = explain(document, provenance, layers, "/guardrails")
    assert [contributor.path for contributor in explanation.contributors] == ["/0", "/0", "/1", "/1", "/2"]


def test_the_digest_of_a_large_number_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 2**80, "b": 1}) == digest({"b": 1, "a": 2**80})
    assert digest({"a": 2**80}) != digest({"a": 2**80 + 1})
