"""A worker whose handler waits for a file to be removed, so that a test can disturb its machine meanwhile."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from clia.facade.config import Config
from clia.hub.service import periodic_sync
from support import crashes
from support.effects import worker_for
from support.machines import OPTIONS, Machines

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from clia.workers.effects.context import Context

_BUSY = """
SELECT count(*) FROM pg_stat_activity AS each WHERE application_name = %s AND datname = current_database()
   AND (state <> 'idle' OR EXISTS (SELECT 1 FROM pg_locks WHERE pg_locks.pid = each.pid AND locktype = 'advisory'))
"""


def start(machines: Machines, machine: str, name: str) -> BaseProcess:
    """Start a worker that runs until it is idle; the paper lists its answers."""
    return crashes.start(work, machines._replace(store=f"{machines.store}&application_name={name}"), machine, name)


def hold(machines: Machines, name: str) -> Path:
    """Create the file that keeps a worker's handlers from returning."""
    file = Path(machines.top, f"hold-{name}")
    file.touch()
    return file


def is_busy(store: str, name: str) -> bool:
    """Whether the server runs a query or holds a lock for a worker."""
    with psycopg.connect(store, autocommit=True) as connection:
        row = connection.execute(_BUSY, [name]).fetchone()
    return row is not None and row[0] > 0


def work(machines: Machines, machine: str, name: str) -> None:
    hold_file, never = Path(machines.top, f"hold-{name}"), threading.Event()

    def step(context: Context, payload: Any) -> Any:
        machines.paper.note("tried", name, context.agent, context.request.id)
        while hold_file.exists():
            never.wait(0.02)
        return payload * 10

    with machines.open(machine) as space, closing(space.local.queue) as queue, periodic_sync(space, 0.5):
        worker = worker_for(space, machines.root(machine), {"step": step}, Config(worker=OPTIONS), queue=queue, name=name)
        status = worker.run(until_idle=True)
    machines.paper.note("ended", name, str(status.answered), str(status.gone), str(status.given_up))
