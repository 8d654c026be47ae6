"""Many concurrent listeners and deciders: no event is lost or repeated, and there are no errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.forge_load import Load, prepared, run, served
from support.space_driver import postgres_url

if TYPE_CHECKING:
    from pathlib import Path


def test_every_listener_sees_every_decision_once(tmp_path: Path, soak: bool) -> None:
    load = Load(200, 20, seconds=30.0) if soak else Load(40, 6, decisions=5)
    place = tmp_path.resolve() / "repo"
    token = prepared(place, load.deciders, durable=soak)
    with served(place) as address:
        outcome = run(address, token, "repo", load)
    assert (outcome.lost, outcome.twice, outcome.errors) == (0, 0, [])
    assert outcome.decided >= load.deciders * load.decisions > 0 or (soak and outcome.decided > 0)


def test_listeners_at_one_forge_see_what_is_decided_through_another(tmp_path: Path, postgres_address: str, soak: bool) -> None:
    """Two processes on one PostgreSQL; half of the listeners and deciders at each would see the same."""
    load = Load(100, 10, seconds=10.0) if soak else Load(15, 3, decisions=3)
    place, store = tmp_path.resolve() / "repo", postgres_url(postgres_address)
    token = prepared(place, load.deciders, durable=False, store=store)
    with served(place, "--store", store) as deciding, served(place, "--store", store) as listening:
        outcome = run(deciding, token, "repo", load, listening=listening)
    assert (outcome.lost, outcome.twice, outcome.errors) == (0, 0, [])
    assert outcome.decided > 0
