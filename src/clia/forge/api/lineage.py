"""Identities over HTTP, as seen from the directory of a space. Read only.

Invariant: responses are those of ``clia agents list|profile|plan|agency|explain --json``, except that paths are relative. Problems
of a document are returned next to what could be merged.
"""

from __future__ import annotations

import json

from starlette.responses import Response
from starlette.routing import Route

from clia.errors import InvalidInput
from clia.forge.api.reading import check_known, invalid
from clia.forge.auth import require
from clia.forge.lineages import RelativePaths, explained, explanation_json, findings, kind_of, lineage_at, roster_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from starlette.requests import Request

    from clia.forge.forge import Forge, Site
    from clia.identities.diagnostics import Diagnostic

PREFIX = "/api/v1/spaces/{space}/lineage"
_FLAGS = {"true": True, "false": False}


def lineage_routes() -> list[Route]:
    return [
        Route(PREFIX, _endpoint(_agents, "all"), methods=["GET"], name="api:lineage"),
        Route(f"{PREFIX}/{{slug}}/{{document}}", _endpoint(_document), methods=["GET"], name="api:lineage-document"),
        Route(f"{PREFIX}/{{slug}}/{{document}}/explain", _endpoint(_explain, "at"), methods=["GET"], name="api:lineage-explain"),
    ]


def _endpoint(view: Callable[[Request, Site, RelativePaths], Any], *query: str) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        forge: Forge = request.app.state.forge
        require(request.state.identity, "viewer")
        site = forge.site(request.path_params["space"])
        check_known(request.query_params, query)
        for key in query:
            if len(request.query_params.getlist(key)) > 1:
                raise invalid(key, f"{key} is repeated")
        value = view(request, site, RelativePaths(site.path))
        return Response(json.dumps(value, separators=(",", ":")), media_type="application/json")

    return endpoint


def _agents(request: Request, site: Site, paths: RelativePaths) -> Any:
    text = request.query_params.get("all", "false")
    if text not in _FLAGS:
        raise invalid("all", "all must be true or false")
    roster = roster_at(site, everything=_FLAGS[text])
    agents = [{**agent._asdict(), "directory": paths.short(agent.directory)} for agent in roster.agents]
    return {"agents": agents, "diagnostics": _diagnostics(paths, roster.diagnostics)}


def _document(request: Request, site: Site, paths: RelativePaths) -> Any:
    kind = kind_of(request.path_params["document"])
    merged = lineage_at(site, request.path_params["slug"]).merged(kind)
    return {
        "slug": request.path_params["slug"],
        "kind": kind,
        "chain": [paths.in_json(context.to_json()) for context in merged.chain],
        "document": merged.document,
        "diagnostics": _diagnostics(paths, merged.diagnostics),
    }


def _explain(request: Request, site: Site, paths: RelativePaths) -> Any:
    kind = kind_of(request.path_params["document"])
    at = request.query_params.get("at")
    if at is None:
        hints = ["a JSON pointer into the merged document: /title, /guardrails/0"]
        raise InvalidInput("at is missing", code="missing-field", hints=hints, fields={"field": "at"})
    return explanation_json(paths, explained(lineage_at(site, request.path_params["slug"]).merged(kind), at))


def _diagnostics(paths: RelativePaths, diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    return [diagnostic._asdict() for diagnostic in findings(paths, diagnostics)]
