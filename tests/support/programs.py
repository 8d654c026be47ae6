"""Programs that run as agents, without a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from clia.capture.run_program import RunEnvironment, RunOptions, RunReport, run_program
from clia.programs.runner import UserStreams
from support.terminal import no_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import clia


SECRET = "0123456789abcdef"  # noqa: S105  # of every run; nothing else knows it


def run(
    space: clia.Space,
    *words: str,
    agent: str = "scout",
    environment: Mapping[str, str] | None = None,
    approve: Callable[[str], bool] = lambda _: False,
    tell: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> RunReport:
    """Run a program with /dev/null as the user's terminal."""
    with open(os.devnull, "r+b", 0) as null:
        user = UserStreams(null.fileno(), null.fileno(), null.fileno(), False, no_signals)
        world = RunEnvironment(user, environment or os.environ, tell, approve=approve, secret=SECRET)
        return run_program(space, RunOptions(agent, words, **options), world)
