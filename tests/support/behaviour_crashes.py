"""Processes that read the index of observations concurrently, or are killed in a rebuild. Call them with ``crashes.apart``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clia
from clia.behaviours import index
from clia.testing import components
from support.crashes import KILLED, exit_code_of, kill_self, run_all
from support.session_spaces import SessionSpace
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Callable


def as_text(space: clia.Space) -> str:
    """All observations, with the commits behind them."""
    return json.dumps(
        {cid: observation.to_json() for cid, observation in components(space).observations.every().items()}, sort_keys=True
    )


def _write_sources_one_by_one() -> None:
    """Write every source in its own transaction, which gives more steps for kills and races."""
    index.BATCH_SIZE = 1  # this process does nothing else


def _check(root: str, expected: str) -> None:
    with clia.open(root, settings=settings()) as space:
        assert as_text(space) == expected


def _rebuild_and_die(root: str, after: int) -> None:
    _write_sources_one_by_one()
    write: Callable[..., None] = index.ObservationIndex.write
    count = 0

    def write_or_die(self: index.ObservationIndex, updates: Any) -> None:
        nonlocal count
        if count == after:
            kill_self()
        count += 1
        write(self, updates)

    index.ObservationIndex.write = write_or_die  # type: ignore[method-assign]  # as above
    with clia.open(root, settings=settings()) as space:
        components(space).observations.rebuild()


def crash_at_each_step(root: str, expected: str) -> int:
    """Kill a rebuild at each of its steps, and read the index after each; return the number of steps."""
    steps = 0
    while (code := exit_code_of(partial(_rebuild_and_die, root, steps))) == KILLED:
        run_all([partial(_check, root, expected)])
        steps += 1
    assert code == 0
    run_all([partial(_check, root, expected)])
    return steps


def read_at_once(root: str, expected: str) -> None:
    """Several processes read with an empty store; some of them rebuild the index repeatedly."""

    def work(rebuilds: int) -> None:
        _write_sources_one_by_one()
        with clia.open(root, settings=settings()) as space:
            for _ in range(rebuilds):
                components(space).observations.rebuild()
            for _ in range(5):
                assert as_text(space) == expected

    SessionSpace(Path(root)).lose_store()
    run_all([partial(work, 0), partial(work, 3), partial(work, 0), partial(work, 3)])
    run_all([partial(_check, root, expected)])
