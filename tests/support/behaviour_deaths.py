"""Processes that read what was observed, at once or until they die; run apart, since a process that ran a flow may not fork."""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clia
from clia.behaviours import index
from clia.testing import components
from support.crashes import exit_code_of, kill_self, run_all
from support.session_spaces import Place
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Callable


def as_text(space: clia.Space) -> str:
    """All that is known, with the commits behind it."""
    return json.dumps({cid: each.to_json() for cid, each in components(space).observations.every().items()}, sort_keys=True)


def _each_alone() -> None:
    """Every source is written in a transaction of its own: so many steps to die at, or to be overtaken at."""
    index.BATCH_SIZE = 1  # this process is there for nothing else


def _check(root: str, expected: str) -> None:
    with clia.open(root, settings=settings()) as space:
        assert as_text(space) == expected


def _rebuild_and_die(root: str, after: int) -> None:
    _each_alone()
    write: Callable[..., None] = index.ObservationIndex.write
    done = 0

    def deadly(self: index.ObservationIndex, updates: Any) -> None:
        nonlocal done
        if done == after:
            kill_self()
        done += 1
        write(self, updates)

    index.ObservationIndex.write = deadly  # type: ignore[method-assign]  # as above
    with clia.open(root, settings=settings()) as space:
        components(space).observations.rebuild()


def die_at_each_step(root: str, expected: str) -> None:
    """Says how many steps a rebuild has: as many deaths, each followed by a look."""
    steps = 0
    while (code := exit_code_of(partial(_rebuild_and_die, root, steps))) == -signal.SIGKILL:
        run_all([partial(_check, root, expected)])
        steps += 1
    assert code == 0
    run_all([partial(_check, root, expected)])
    sys.stdout.write(str(steps))


def read_at_once(root: str, expected: str) -> None:
    """Several processes with an empty store before them, some of which forget everything again and again."""

    def work(times: int) -> None:
        _each_alone()
        with clia.open(root, settings=settings()) as space:
            for _ in range(times):
                components(space).observations.rebuild()
            for _ in range(5):
                assert as_text(space) == expected

    Place(Path(root)).lose_store()
    run_all([partial(work, 0), partial(work, 3), partial(work, 0), partial(work, 3)])
    run_all([partial(_check, root, expected)])
