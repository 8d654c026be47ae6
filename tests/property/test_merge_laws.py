"""Laws of merging, for documents of every shape."""

from __future__ import annotations

import json
import random  # noqa: TC003  # Hypothesis reads the annotation at run time
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from clia.identities.inheritance import CONTEXT, Layer
from clia.identities.merge import is_empty, merge, same
from clia.identities.merge_rules import projected_text
from clia.identities.origins import explain, leaf_origins
from clia.values.pointer import leaves
from support.documents import agencies, agendas, agents, values

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = {"agent": agents(), "agenda": agendas(), "agency": agencies()}
kinds_and_documents = st.sampled_from(sorted(KINDS)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(KINDS[kind], min_size=1, max_size=5))
)


def identity(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def layered(documents: Sequence[dict[str, Any]]) -> list[Layer]:
    return [Layer(f"/{number}.json", document, f"/{number}", CONTEXT, None) for number, document in enumerate(documents)]


def merged(kind: str, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return merge(kind, "scout", layered(documents))[0]


@given(kinds_and_documents)
def test_merging_a_document_with_itself_changes_nothing(case: tuple[str, list[dict[str, Any]]]) -> None:
    kind, (document, *_) = case
    single = merged(kind, [document])
    assert identity(merged(kind, [document, document])) == identity(single)
    assert identity(merged(kind, [single, single])) == identity(single)


@given(kinds_and_documents)
def test_every_leaf_of_the_output_has_an_origin_with_its_value(case: tuple[str, list[dict[str, Any]]]) -> None:
    kind, documents = case
    layers = layered(documents)
    document, provenance, _ = merge(kind, "scout", layers)
    origins = leaf_origins(document, provenance, layers)
    assert sorted(origins) == sorted(pointer for pointer, _ in leaves(document))
    by_path = {layer.path: dict(all_values(layer.document)) for layer in layers}
    for pointer, value in leaves(document):
        origin = origins[pointer]
        if origin["path"] is not None:
            assert identity(by_path[origin["path"]][origin["pointer"]]) == identity(value)


def all_values(value: Any, at: str = "") -> list[tuple[str, Any]]:
    values_at = [(at, value)]
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        values_at += all_values(child, f"{at}/{str(key).replace('~', '~0').replace('/', '~1')}")
    return values_at


@given(kinds_and_documents)
def test_every_value_can_be_explained(case: tuple[str, list[dict[str, Any]]]) -> None:
    kind, documents = case
    layers = layered(documents)
    document, provenance, _ = merge(kind, "scout", layers)
    for pointer, value in all_values(document):
        story = explain(document, provenance, layers, pointer)
        assert identity(story.value) == identity(value)
        assert story.contributors or story.note or is_empty(value) or pointer == ""
        assert story.winner is None or story.winner in story.contributors
        assert not set(map(repr, story.shadowed)) & set(map(repr, story.contributors))


@given(kinds_and_documents)
def test_merging_never_changes_its_input(case: tuple[str, list[dict[str, Any]]]) -> None:
    kind, documents = case
    before = json.dumps(documents)
    merged(kind, documents)
    assert json.dumps(documents) == before


@given(kinds_and_documents)
def test_no_guardrail_and_no_entry_is_ever_lost(case: tuple[str, list[dict[str, Any]]]) -> None:
    kind, documents = case
    result = merged(kind, documents)
    for field in ("guardrails", "entries", "tags", "milestones", "sections"):
        merged_items = result.get(field) or []
        for document in documents:
            items = document.get(field)
            for item in items if isinstance(items, list) else ():
                assert (
                    is_empty(item)
                    or any(same(item, merged_item) for merged_item in merged_items)
                    or replaced_by_object(field, item, merged_items)
                )


def replaced_by_object(field: str, item: Any, merged_items: list[Any]) -> bool:
    """Whether an object now has the text of a plain string; never for guardrails, entries and tags."""
    return field in ("milestones", "sections") and isinstance(item, str) and item in map(projected_text, merged_items)


@given(kinds_and_documents, st.randoms(use_true_random=False))
def test_the_order_of_keys_inside_a_value_does_not_matter_to_a_union(
    case: tuple[str, list[dict[str, Any]]], shuffle: random.Random
) -> None:
    kind, documents = case
    reordered = [shuffled(document, shuffle) for document in documents]
    plain, from_shuffled = merged(kind, documents), merged(kind, reordered)
    assert identity(plain) == identity(from_shuffled)


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        items = [(key, shuffled(child, order)) for key, child in value.items()]
        order.shuffle(items)
        return dict(items)
    return [shuffled(child, order) for child in value] if isinstance(value, list) else value


@given(values, values)
def test_same_means_equal_canonical_values(left: Any, right: Any) -> None:
    assert same(left, left)
    assert same(left, right) == same(right, left)
    assert same(left, right) == (canonical(left) == canonical(right))


def canonical(value: Any) -> str:
    """Numbers by value, everything else as JSON."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(Fraction(value))
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{canonical(child)}" for key, child in sorted(value.items())) + "}"
    return "[" + ",".join(map(canonical, value)) + "]" if isinstance(value, list) else json.dumps(value)
