"""Numbers are spelled in one way before a flow sees them, so that it sees the same again when its record is read back."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from clia.values.canonical import canonical_bytes
from clia.values.json_values import CannotCross, inward
from support.session_spaces import STORES, Place, asked, place, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from pathlib import Path

SHOWN = """\
def main(input):
    seen = [repr(input), type(input).__name__]
    given = request("number", {"seen": seen, "same": input})
    seen = seen + [repr(given), type(given).__name__]
    return request("suspend", {"seen": seen, "same": given})
"""
KEPT: list[Any] = [1, 0, -7, 2**53 - 1, 1.5, -0.25, 1e-7, 5e-324, 1e21, 1.7976931348623157e308, 0.1, 123456789.125]
SPELLED: list[tuple[Any, Any]] = [(1.0, 1), (-0.0, 0), (0.0, 0), (1e15, 10**15), (-3.0, -3), (float(2**53 - 1), 2**53 - 1)]


def exactly(value: Any) -> tuple[str, str]:
    return type(value).__name__, repr(value)


@pytest.mark.parametrize(("given", "meant"), [*SPELLED, *((each, each) for each in KEPT)], ids=repr)
def test_a_number_has_one_spelling(given: Any, meant: Any) -> None:
    assert exactly(inward(given, "value")) == exactly(meant)
    assert inward({"a": [given, (given,)]}, "value") == {"a": [meant, [meant]]}
    assert exactly(json.loads(canonical_bytes(meant))) == exactly(meant), "what a record keeps"


@pytest.mark.parametrize("bad", [1e20, -1e20, 2.0**53, 2**53, -(2**53), math.nan, math.inf])
def test_a_number_without_an_exact_spelling_cannot_cross(bad: float) -> None:
    with pytest.raises(CannotCross) as caught:
        inward({"a": [bad]}, "value")
    assert "value.a[0]" in str(caught.value)


@pytest.mark.parametrize("given", [1.0, -0.0, 1e15, 1e21, 0.1, 5e-324, {"x": [1.0, 2.5]}], ids=repr)
@pytest.mark.parametrize("store", STORES)
def test_a_flow_sees_the_same_number_before_and_after_the_store_is_lost(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, given: Any
) -> None:
    here = place(request, tmp_path, store)
    with here.open() as space:
        with_agents(space, "scout", shown=SHOWN)
        stood = {str(space.head("scout")): asked(space.start("scout", "shown", given))}
        with here.open() as other:
            other.resume("scout", given)  # replayed by another process
        waits = asked(space.session("scout"))
        stood[space.commit("scout", "finding", changes={"a": b"1"})] = waits
        stood[space.decide("scout", given).cid] = waits
    here.lose_store()
    with here.open() as space:
        for number, (commit, waits) in enumerate(stood.items()):
            assert repr(asked(space.fork("scout", f"fork-{number}", commit))) == repr(waits)


def test_a_number_that_would_change_is_refused_by_every_verb(tmp_path: Path) -> None:
    with Place(tmp_path / "repo").open() as space:
        with_agents(space, "scout", shown=SHOWN)
        refused("invalid-json", lambda: space.start("scout", "shown", 1e20))
        refused("invalid-json", lambda: space.ask("scout", {"n": 1e20}))
        space.start("scout", "shown", 1)
        refused("invalid-answer", lambda: space.resume("scout", [1e20]))
        refused("invalid-answer", lambda: space.decide("scout", {"a": 1e20}))
        assert space.session("scout").resumes == []
