"""Which configuration holds when an agent acts: one that a person chose.

Invariant: the environment and the options of an agent's process choose nothing. The configuration of ``clia run``, as a person
started it last, is kept in the store, and holds for every process of that agent; for an agent without a run, the one of the last
run. Without any run, it is the file in the git directory.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.space.core import Core
    from clia.store.interface import Store

_ROW = "run-configuration"
_AGENTS_MAX = 500


def config_for_agent(core: Core, agent: str, default: str | None, named: str | None) -> str | None:
    """The operator's file for a process of an agent: that of the run, else ``default``. ``named``: what its environment names."""
    chosen = _of_run(core.store, agent) or default
    if named is not None and named != chosen:
        core.notify(f"the configuration {named} is ignored, because the agent {agent} acts: {chosen or 'none'} is used")
    return chosen


def keep_config(store: Store, agent: str, path: str | None) -> None:
    """Keep the configuration of a run that a person starts."""
    chosen = None if path is None else os.path.abspath(path)
    row = store.get(_ROW)
    entries = {} if row is None else dict(row.value)
    if list(entries.items())[-1:] == [(agent, chosen)]:
        return
    with store.writing() as transaction:
        row = transaction.values.get(_ROW)
        entries = {} if row is None else dict(row.value)
        entries.pop(agent, None)
        entries[agent] = chosen  # the last one is the newest
        transaction.values.put(_ROW, dict(list(entries.items())[-_AGENTS_MAX:]))


def _of_run(store: Store, agent: str) -> str | None:
    row = store.get(_ROW)
    if row is None or not row.value:
        return None
    path = row.value[agent] if agent in row.value else list(row.value.values())[-1]
    return path if isinstance(path, str) else None
