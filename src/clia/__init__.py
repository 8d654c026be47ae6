"""clia: the system of record for AI agents, kept in the git repository they work in.

Invariant: importing this package loads no third-party module and next to nothing of clia itself; each public name is
loaded when it is first used (PEP 562). The names are frozen by a test.
"""

from __future__ import annotations

from clia import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.behaviours.model import BehaviourStats, BehaviourVersion, Comparison, KnownBehaviour, Rate, Replayed, Suggestion
    from clia.cli.main import agent_cli
    from clia.facade.opening import open_space as open  # noqa: A004  # clia.open is the promised name
    from clia.facade.settings import Settings
    from clia.facade.setup import init_space as init
    from clia.facade.space import Space
    from clia.federation.model import Announced, Grant, Key, Peer, Remote, Synced
    from clia.hub.model import Elsewhere, Fork, HubStatus, HubSynced
    from clia.identities.lineage import lineage
    from clia.sessions.model import Decision, Flow, Request, Session
    from clia.space.model import Conflicts, File, Landed, Link, Merged, Submodule, UpToDate
    from clia.values.typed_objects import Behaviour, Briefing, ConsoleTrace
    from clia.workers.fleet import Fleet

__version__ = "0.1.0"

__all__ = [
    "Announced",
    "Behaviour",
    "BehaviourStats",
    "BehaviourVersion",
    "Briefing",
    "Comparison",
    "Conflicts",
    "ConsoleTrace",
    "Decision",
    "Elsewhere",
    "File",
    "Fleet",
    "Flow",
    "Fork",
    "Grant",
    "HubStatus",
    "HubSynced",
    "Key",
    "KnownBehaviour",
    "Landed",
    "Link",
    "Merged",
    "Peer",
    "Rate",
    "Remote",
    "Replayed",
    "Request",
    "Session",
    "Settings",
    "Space",
    "Submodule",
    "Suggestion",
    "Synced",
    "UpToDate",
    "__version__",
    "agent_cli",
    "errors",
    "init",
    "lineage",
    "open",
]

_OBJECTS, _MODEL, _SESSIONS = "clia.values.typed_objects", "clia.space.model", "clia.sessions.model"
_FEDERATION, _BEHAVIOURS, _HUB = "clia.federation.model", "clia.behaviours.model", "clia.hub.model"
_HOMES = {
    "Announced": _FEDERATION,
    "Behaviour": _OBJECTS,
    "BehaviourStats": _BEHAVIOURS,
    "BehaviourVersion": _BEHAVIOURS,
    "Briefing": _OBJECTS,
    "Comparison": _BEHAVIOURS,
    "Conflicts": _MODEL,
    "ConsoleTrace": _OBJECTS,
    "Decision": _SESSIONS,
    "Elsewhere": _HUB,
    "File": _MODEL,
    "Fleet": "clia.workers.fleet",
    "Flow": _SESSIONS,
    "Fork": _HUB,
    "Grant": _FEDERATION,
    "HubStatus": _HUB,
    "HubSynced": _HUB,
    "Key": _FEDERATION,
    "KnownBehaviour": _BEHAVIOURS,
    "Landed": _MODEL,
    "Link": _MODEL,
    "Merged": _MODEL,
    "Peer": _FEDERATION,
    "Rate": _BEHAVIOURS,
    "Remote": _FEDERATION,
    "Replayed": _BEHAVIOURS,
    "Request": _SESSIONS,
    "Session": _SESSIONS,
    "Settings": "clia.facade.settings",
    "Space": "clia.facade.space",
    "Submodule": _MODEL,
    "Suggestion": _BEHAVIOURS,
    "Synced": _FEDERATION,
    "UpToDate": _MODEL,
    "agent_cli": "clia.cli.main",
    "init": "clia.facade.setup:init_space",
    "lineage": "clia.identities.lineage",
    "open": "clia.facade.opening:open_space",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'clia' has no attribute {name!r}")
    from importlib import import_module

    module, _, other = home.partition(":")
    value = getattr(import_module(module), other or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
