"""The pages of the forge, by topic."""

from __future__ import annotations

from clia.forge.pages import (
    agents,
    authorship,
    behaviours,
    changes,
    commits,
    graph,
    inbox,
    lineage,
    overview,
    peers,
    rules,
    sessions,
    traces,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.routing import Route


def page_routes() -> list[Route]:
    """The routes of all pages."""
    modules = (overview, inbox, changes, agents, traces, sessions, graph, commits, authorship, lineage, rules, behaviours, peers)
    return [route for module in modules for route in module.routes()]
