"""Which configuration holds when an agent acts: one that a person chose.

Invariant: the environment and the options of an agent's process choose nothing. The configuration of ``clia run``, as a person
started it last, is kept in the store, and holds for every process of that agent; for an agent without a run, the one of the last
run. Without any run, it is the file in the git directory.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.facade.settings import Settings
    from clia.store.interface import Store

_ROW = "run-configuration"
_AGENTS_MAX = 500


def config_path(home: str, settings: Settings, store: Store, agent: str | None, notify: Callable[[str], None]) -> str | None:
    """The operator's file: as set, else ``config.toml`` in clia's directory; None if there is none. ``agent``: who acts."""
    if settings.config is not None:
        return settings.config
    default = os.path.join(home, "config.toml")
    present = default if os.path.exists(default) else None
    if agent is None:
        return settings.person_config or present
    chosen = _of_run(store, agent) or present
    if settings.person_config not in (None, chosen):
        notify(f"the configuration {settings.person_config} is ignored, because the agent {agent} acts: {chosen or 'none'} is used")
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
