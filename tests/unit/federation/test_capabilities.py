"""Grants, revocations, and the gate that checks them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from clia.federation.capabilities import is_capability
from clia.testing import components
from support.federation import OWNER, Pair

if TYPE_CHECKING:
    import pytest

    import clia


def test_a_revocation_between_two_types_stops_the_second(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aa", "bb", "cc"):
        pair.owner.types.register(name, "finding")
    pair.owner.peers.announce("bee")
    pair.hearer.peers.grant("ay", "agent-commit", "type")
    learn = components(pair.hearer).registry.learn

    def learn_then_revoke(*words: str) -> bool:
        learned = learn(*words)
        pair.hearer.peers.revoke("ay", "agent-commit", "type")
        return learned

    monkeypatch.setattr(components(pair.hearer).registry, "learn", learn_then_revoke)
    assert pair.learned_types() == ["aa"]
    assert {"aa", "bb", "cc"} & pair.hearer.types().keys() == {"aa"}


def test_a_cached_answer_of_the_gate_is_not_used_after_a_change(
    stopped_clock: tuple[clia.Space, list[datetime]],
) -> None:
    """A revocation, trust or a new type within the same second, and the next second."""
    space, clock = stopped_clock
    allowed = components(space).capabilities.asking(components(space).peers.get("ay"))

    def answers() -> tuple[bool, bool]:
        return allowed("finding", "head-move"), allowed("audit", "head-move")

    assert answers() == (True, False)
    space.types.register("audit", "finding")
    assert answers() == (True, True)
    space.peers.change("ay", trusted=False)
    assert answers() == (False, False)
    space.peers.change("ay", trusted=True)
    assert answers() == (True, True)
    space.peers.revoke("ay", "agent-commit", "head-move")
    assert answers() == (False, False)
    space.peers.grant("ay", "finding", "head-move", expires=int(clock[0].timestamp()) + 1)
    assert answers() == (True, True)
    clock[0] += timedelta(seconds=1)
    assert answers() == (False, False)


def test_an_invalid_capability_grants_nothing() -> None:
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
