from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import clia
from clia.federation.capabilities import is_capability
from clia.testing import components
from support.federation import OWNER, Pair, codes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """One agent of two commits is told and tracked."""
    made = Pair(tmp_path)
    made.agent(made.owner, "scout", "one")
    made.owner.announce("bee")
    made.grant()
    assert codes(made.sync().refused) == []
    yield made
    made.owner.close()
    made.hearer.close()


def learned(pair: Pair) -> list[str]:
    return [each.place.removeprefix("types/") for each in pair.sync().moves]


def test_a_revocation_between_two_types_stops_the_second(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aa", "bb", "cc"):
        pair.owner.register_type(name, "finding")
    pair.owner.announce("bee")
    pair.hearer.grant("ay", "agent-commit", "type")
    learn = components(pair.hearer).registry.learn

    def then_revoked(*words: str) -> bool:
        found = learn(*words)
        pair.hearer.revoke("ay", "agent-commit", "type")
        return found

    monkeypatch.setattr(components(pair.hearer).registry, "learn", then_revoked)
    assert learned(pair) == ["aa"]
    assert {"aa", "bb", "cc"} & pair.hearer.types().keys() == {"aa"}


@pytest.fixture
def still(pair: Pair) -> Iterator[tuple[clia.Space, list[datetime]]]:
    """The hearer, by a clock that stands; and that clock."""
    clock = [datetime(2027, 1, 1, tzinfo=UTC)]
    settings = clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=lambda: clock[0])
    with clia.open(pair.place("hearer"), settings=settings) as space:
        yield space, clock


def test_an_answer_of_the_gate_is_not_given_again_once_anything_has_changed(
    still: tuple[clia.Space, list[datetime]],
) -> None:
    """Within one second: a revocation, trust, a new type; and the next second."""
    space, clock = still
    allowed = components(space).capabilities.asking(components(space).peers.get("ay"))

    def answers() -> tuple[bool, bool]:
        return allowed("finding", "head-move"), allowed("audit", "head-move")

    assert answers() == (True, False)
    space.register_type("audit", "finding")
    assert answers() == (True, True)
    space.change_peer("ay", trusted=False)
    assert answers() == (False, False)
    space.change_peer("ay", trusted=True)
    assert answers() == (True, True)
    space.revoke("ay", "agent-commit", "head-move")
    assert answers() == (False, False)
    space.grant("ay", "finding", "head-move", expires=int(clock[0].timestamp()) + 1)
    assert answers() == (True, True)
    clock[0] += timedelta(seconds=1)
    assert answers() == (False, False)


def test_what_is_no_capability_grants_nothing() -> None:
    good = {"peer": OWNER, "trigger": "spawn", "agentic_type": "finding", "execute": False, "expires": None}
    assert is_capability(good)
    assert is_capability(good | {"execute": True, "expires": 5})
    for change in (
        {"expires": True},
        {"expires": "5"},
        {"expires": 5.0},
        {"execute": 1},
        {"execute": None},
        {"peer": ""},
        {"peer": 5},
        {"peer": "x" * 101},
        {"peer": "a\n"},
        {"trigger": "x"},
        {"agentic_type": None},
    ):
        assert not is_capability(good | change), change
