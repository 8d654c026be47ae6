"""Processes that have said that they live, as their rows stand in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clia.workers.fleet import FLEET, WORKER, Heartbeat

if TYPE_CHECKING:
    import clia

NOW = 1_800_000_000.0


def beat(name: str = "w1", **more: Any) -> Heartbeat:
    """What a worker says that just beat."""
    row = Heartbeat(f"id-{name}", WORKER, name, "north", "c1", 7, "0.1.0", NOW - 60, NOW, NOW, 5.0, 12, ["echo"], 4)
    return row._replace(**more)


def put(space: clia.Space, *rows: Heartbeat) -> None:
    with space.core.store.writing() as change:
        for number, row in enumerate(rows):
            made = row._asdict() | {"running": [list(each) for each in row.running]}
            change.values.put(f"{FLEET}{number:03d}", made)
