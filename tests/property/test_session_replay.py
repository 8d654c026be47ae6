"""The record of a session leads to the same run again, for any requests and answers in any order."""

from __future__ import annotations

import json
import math
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clia.redaction.secrets import redact_value
from clia.sessions.answers import same_json
from clia.sessions.records import Resumed, request_hash, resumed_json
from clia.values.canonical import canonical_bytes
from clia.values.json_values import CannotCross, crossing, inward
from support.session_flows import CHANCE, PARTS
from support.session_spaces import SessionSpace, pending_requests, with_agents

if TYPE_CHECKING:
    from collections.abc import Iterator

    import clia

EXAMPLES = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=10)
ECHO = """\
def main(input):
    seen = [repr(input)]
    for turn in range(4):
        seen = seen + [repr(request("suspend", {"input": input, "seen": seen}))]
    return seen
"""


def can_cross(value: Any) -> bool:
    try:
        inward(value, "value")
    except CannotCross:
        return False
    return True


VALUES = JSON.filter(can_cross)


@contextmanager
def a_space() -> Iterator[tuple[SessionSpace, clia.Space]]:
    with tempfile.TemporaryDirectory() as directory:
        place = SessionSpace(Path(directory) / "repo")
        with place.open() as space:
            yield place, with_agents(space, "scout", echo=ECHO, parts=PARTS, chance=CHANCE)


def spelled(value: Any) -> str:
    """A value with the type of each number in it."""
    return json.dumps(value, sort_keys=True)


# Values


@given(JSON)
def test_a_converted_value_reads_back_the_same_from_every_kind_of_record(value: Any) -> None:
    try:
        converted = inward(value, "value")
    except CannotCross:
        assert any(isinstance(leaf_value, float) and 2**53 <= abs(leaf_value) < 1e21 for leaf_value in leaves(value))
        return
    assert spelled(json.loads(canonical_bytes(converted))) == spelled(converted), "checkpoints"
    assert spelled(json.loads(json.dumps(converted, ensure_ascii=False))) == spelled(converted), "streams"
    assert spelled(inward(converted, "value")) == spelled(converted), "conversion must be idempotent"
    assert converted == value
    assert spelled(crossing(converted, "value")) == spelled(converted)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for child in value.values() for leaf in leaves(child)]
    return [leaf for child in value for leaf in leaves(child)] if isinstance(value, list) else [value]


@given(st.recursive(SCALARS | st.floats() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)))
def test_a_value_crosses_or_is_refused_with_its_pointer(value: Any) -> None:
    unsupported = [leaf_value for leaf_value in leaves(value) if cannot(leaf_value)]
    if not unsupported:
        assert json.loads(json.dumps(crossing(value, "value"), allow_nan=False)) == value
        return
    with pytest.raises(CannotCross) as caught:
        crossing(value, "value")
    assert str(caught.value).startswith("value")


def cannot(leaf: Any) -> bool:
    return (isinstance(leaf, float) and not math.isfinite(leaf)) or (isinstance(leaf, int) and abs(leaf) >= 2**53)


@given(VALUES, VALUES)
def test_values_equal_as_json_have_equal_canonical_text(left: Any, right: Any) -> None:
    left, right = inward(left, "value"), inward(right, "value")
    assert same_json(left, right) == (canonical_bytes(left) == canonical_bytes(right))
    assert same_json(left, left)
    assert same_json([left, {"a": left}], [left, {"a": left}])


@given(VALUES)
def test_a_resume_is_stored_in_its_shortest_form_and_read_back(value: Any) -> None:
    converted = inward(value, "value")
    for resumed in (
        Resumed(1, "a", converted),
        Resumed(1, "a", converted, None, None, "Tess"),
        Resumed(2, "b", None, "gave up"),
        Resumed(3, "c", converted, None, "0" * 40, "Tess", "2026-05-01T00:00:00Z"),
    ):
        assert Resumed(*json.loads(json.dumps(resumed_json(resumed)))) == resumed
        assert resumed_json(resumed)[-1] is not None or len(resumed_json(resumed)) == 3


@given(VALUES, VALUES)
def test_different_requests_have_different_hashes(payload: Any, other_payload: Any) -> None:
    from clia.engine.records import FlowCall

    first = FlowCall(1, "x", None, payload, 3)
    assert request_hash(first) == request_hash(first._replace(line=9)), "the line must not be part of the hash"
    assert request_hash(first) == request_hash(first._replace(payload=json.loads(json.dumps(payload))))
    assert request_hash(first) != request_hash(first._replace(number=2))
    assert request_hash(first) != request_hash(first._replace(kind="y"))
    assert request_hash(first) != request_hash(first._replace(tag="t"))
    if spelled(payload) != spelled(other_payload):
        assert request_hash(first) != request_hash(first._replace(payload=other_payload))


# Runs


@EXAMPLES
@given(VALUES, st.lists(VALUES, min_size=4, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_a_session_replays_to_the_same_state_after_the_store_is_lost(first: Any, answers: list[Any], decides: list[bool]) -> None:
    with a_space() as (place, space):
        pending_at = {str(space.head("scout")): pending_requests(space.start("scout", "echo", first))}
        for value, decide in zip(answers, decides, strict=True):
            pending = pending_requests(space.session("scout"))
            pending_at[space.commit("scout", "finding", changes={"n": str(len(pending_at)).encode()})] = pending
            if decide:
                pending_at[space.decide("scout", value).cid] = pending
            else:
                space.resume("scout", value)
        session = space.session("scout")
        assert session.status == "finished"
        assert spelled(session.resumes) == spelled([redact_value(inward(answer, "v"))[0] for answer in answers])
        place.lose_store()
        with place.open() as reopened:
            for number, (commit, pending) in enumerate(pending_at.items()):
                assert spelled(pending_requests(reopened.fork("scout", f"fork-{number}", commit))) == spelled(pending)
            name = f"fork-{len(pending_at) - 1}"
            assert reopened.resume(name, answers[-1]).result == session.result


@EXAMPLES
@given(st.permutations([1, 2, 3, 4, 5, 6]), st.integers(0, 6), st.booleans())
def test_answers_in_any_order_with_a_fork_at_any_point_give_one_result(order: list[int], cut: int, lose: bool) -> None:
    with a_space() as (place, space):
        space.start("scout", "parts", 6)
        for number in order[:cut]:
            space.resume("scout", number * 10, f"1.{number}")
        at = space.commit("scout", "finding", changes={"a": b"1"})
        if lose:
            place.lose_store()
        with place.open() as reopened:
            reopened.fork("scout", "other", at)
            for number in sorted(order[cut:]):
                reopened.resume("other", number * 10, f"1.{number}")
            assert reopened.resume("other", "end", "1.7").result == {"parts": [10, 20, 30, 40, 50, 60], "last": "end"}
            assert reopened.session("other").resumes == [
                *(n * 10 for n in order[:cut]),
                *(n * 10 for n in sorted(order[cut:])),
                "end",
            ]
