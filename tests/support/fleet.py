"""Heartbeat rows of processes in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clia.workers.fleet import FLEET, WORKER, Heartbeat

if TYPE_CHECKING:
    import clia

NOW = 1_800_000_000.0


def beat(name: str = "w1", **more: Any) -> Heartbeat:
    """The heartbeat of a worker that was just alive."""
    row = Heartbeat(f"id-{name}", WORKER, name, "north", "c1", 7, "0.1.0", NOW - 60, NOW, NOW, 5.0, 12, ["echo"], 4)
    return row._replace(**more)


def put(space: clia.Space, *rows: Heartbeat) -> None:
    with space.local.store.writing() as change:
        for number, row in enumerate(rows):
            value = row._asdict() | {"running": [list(attempt) for attempt in row.running]}
            change.values.put(f"{FLEET}{number:03d}", value)
