"""clia: the system of record for AI agents, kept in the git repository they work in.

Invariant: importing this package loads no third-party module and next to nothing of clia itself; each public name is
loaded when it is first used (PEP 562). The names are frozen by a test.
"""

from __future__ import annotations

from clia import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.app.lineage import lineage
    from clia.cli.agent_program import agent_cli

__version__ = "0.1.0"

__all__ = ["__version__", "agent_cli", "errors", "lineage"]

_HOMES = {
    "agent_cli": "clia.cli.agent_program",
    "lineage": "clia.app.lineage",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'clia' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
