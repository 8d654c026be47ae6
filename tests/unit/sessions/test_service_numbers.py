"""Numbers are normalized before a flow sees them, so that a replay from the record sees the same numbers."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from clia.values.canonical import canonical_bytes
from clia.values.json_values import CannotCross, inward
from support.session_spaces import STORES, SessionSpace, pending_requests, session_space_on, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from pathlib import Path

SHOWN = """\
def main(input):
    shown = [repr(input), type(input).__name__]
    answer = request("number", {"shown": shown, "same": input})
    shown = shown + [repr(answer), type(answer).__name__]
    return request("suspend", {"shown": shown, "same": answer})
"""
UNCHANGED: list[Any] = [1, 0, -7, 2**53 - 1, 1.5, -0.25, 1e-7, 5e-324, 1e21, 1.7976931348623157e308, 0.1, 123456789.125]
NORMALIZED: list[tuple[Any, Any]] = [(1.0, 1), (-0.0, 0), (0.0, 0), (1e15, 10**15), (-3.0, -3), (float(2**53 - 1), 2**53 - 1)]


def type_and_repr(value: Any) -> tuple[str, str]:
    return type(value).__name__, repr(value)


@pytest.mark.parametrize(("number", "normalized"), [*NORMALIZED, *((value, value) for value in UNCHANGED)], ids=repr)
def test_a_number_has_one_representation(number: Any, normalized: Any) -> None:
    assert type_and_repr(inward(number, "value")) == type_and_repr(normalized)
    assert inward({"a": [number, (number,)]}, "value") == {"a": [normalized, [normalized]]}
    assert type_and_repr(json.loads(canonical_bytes(normalized))) == type_and_repr(normalized), "the record preserves it"


@pytest.mark.parametrize("bad", [1e20, -1e20, 2.0**53, 2**53, -(2**53), math.nan, math.inf])
def test_a_number_without_an_exact_representation_is_refused(bad: float) -> None:
    with pytest.raises(CannotCross) as caught:
        inward({"a": [bad]}, "value")
    assert "value.a[0]" in str(caught.value)


@pytest.mark.parametrize("value", [1.0, -0.0, 1e15, 1e21, 0.1, 5e-324, {"x": [1.0, 2.5]}], ids=repr)
@pytest.mark.parametrize("store", STORES)
def test_a_flow_sees_the_same_number_after_the_store_is_lost(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, value: Any
) -> None:
    home = session_space_on(request, tmp_path, store)
    with home.open() as space:
        with_agents(space, "scout", shown=SHOWN)
        expected = {str(space.head("scout")): pending_requests(space.start("scout", "shown", value))}
        with home.open() as other:
            other.resume("scout", value)  # replayed by another process
        waits = pending_requests(space.session("scout"))
        expected[space.commit("scout", "finding", changes={"a": b"1"})] = waits
        expected[space.decide("scout", value).cid] = waits
    home.lose_store()
    with home.open() as space:
        for number, (commit, waits) in enumerate(expected.items()):
            assert repr(pending_requests(space.fork("scout", f"fork-{number}", commit))) == repr(waits)


def test_every_verb_refuses_a_number_that_would_change(tmp_path: Path) -> None:
    with SessionSpace(tmp_path / "repo").open() as space:
        with_agents(space, "scout", shown=SHOWN)
        refused("invalid-json", lambda: space.start("scout", "shown", 1e20))
        refused("invalid-json", lambda: space.ask("scout", {"n": 1e20}))
        space.start("scout", "shown", 1)
        refused("invalid-answer", lambda: space.resume("scout", [1e20]))
        refused("invalid-answer", lambda: space.decide("scout", {"a": 1e20}))
        assert space.session("scout").resumes == []
