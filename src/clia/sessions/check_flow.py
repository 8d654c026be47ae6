"""Checking a flow where there is no space: in an editor, before a commit, in CI."""

from __future__ import annotations

from contextlib import closing

from clia.engine.monty import MontyEngine
from clia.sessions.flows import check_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.engine.records import Problem


def check_flow(source: str, *, types: bool = True) -> list[Problem]:
    """What cannot work in a flow, in its own lines; nothing is run."""
    with closing(MontyEngine()) as engine:
        return check_source(engine, source, types=types)
