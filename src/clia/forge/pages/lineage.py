"""Lineage pages: identities, their documents, and the origin of each merged value.

Invariant: viewing only reads files. An unusable document is reported with file, line and pointer; everything else is shown without
it. Document contents are untrusted text.
"""

from __future__ import annotations

from urllib.parse import quote

from clia.errors import AgentNotFound, CliaError, InvalidInput, NotFound
from clia.forge.pages.common import page, render
from clia.forge.problems import status_of
from clia.forge.rendering import json_view
from clia.forge.rendering.lineage_tree import TreeView, branch, to_html
from clia.identities.checks import line_of
from clia.identities.diagnostics import CODES, ERROR, Diagnostic
from clia.identities.service import DOCUMENTS, LINES_BYTES, PROFILE, RelativePaths, findings, kind_of, lineage_at, roster_at
from clia.values.slugs import is_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from starlette.responses import Response
    from starlette.routing import Route

    from clia.forge.pages.common import Visit
    from clia.identities.inheritance import Layer
    from clia.identities.lineage import Lineage, MergedDocument
    from clia.identities.origins import ValueOrigin

    Location = tuple[int, str, int | None, ValueOrigin]  # index of the file in the list, relative path, line, value

PLACES, FINDINGS = 50, 200
"""Maximum locations per section of an explanation, and findings per page."""


def routes() -> list[Route]:
    return [page("/lineage", "lineage", _identities), page("/lineage/{slug}", "lineage-identity", _identity)]


def _identities(visit: Visit) -> Response:
    paths = RelativePaths(visit.site.path)
    show_all = visit.query("all") == "1"
    roster = roster_at(visit.site.path, everything=show_all)
    identities = [identity._replace(directory=paths.short(identity.directory)) for identity in roster.agents]
    return render(
        visit, "lineage.html", identities=identities, everything=show_all, is_slug=is_slug, **_findings(paths, roster.diagnostics)
    )


def _identity(visit: Visit) -> Response:
    slug = visit.param("slug")
    if not is_slug(slug):
        raise AgentNotFound(f"unknown identity {slug!r}", fields={"slug": slug})
    document = visit.query("document") or PROFILE
    kind = kind_of(document)
    try:
        lineage = lineage_at(visit.site.path, slug)
    except InvalidInput as err:
        return _unusable(visit, slug, err)
    merged = lineage.merged(kind)
    paths = RelativePaths(visit.site.path)
    at = visit.query("at") if "at" in visit.request.query_params else None
    context: dict[str, Any] = {"slug": slug, "document": document, "at": at, "explanation": None, "problem": None}
    headers = visit.request.headers
    is_panel = headers.get("hx-request-type") == "partial" and headers.get("hx-target", "").endswith("#explanation")
    if at is not None or is_panel:
        try:
            context |= _explained(merged, paths, at or "")
        except (NotFound, InvalidInput) as err:
            context["problem"] = err
    if is_panel:
        answer = render(visit, "lineage_panel.html", _status(context), **context)
        answer.headers["vary"] = "HX-Request-Type, HX-Target"  # the same URL also serves the full page
        return answer
    return _whole(visit, lineage, merged, context)


def _status(context: dict[str, Any]) -> int:
    return 200 if context["problem"] is None else status_of(context["problem"])


def _unusable(visit: Visit, slug: str, err: CliaError) -> Response:
    """The page for an invalid document: nothing was merged, and the location is shown."""
    paths, path = RelativePaths(visit.site.path), err.fields.get("path")
    document_path = None if path is None else paths.whole(str(path))
    hints = [CODES[err.code].hint] if err.code in CODES else []
    diagnostic = Diagnostic(err.code, ERROR, document_path, err.fields.get("pointer"), err.message, "; ".join(err.hints or hints))
    return render(visit, "lineage_unusable.html", status_of(err), slug=slug, **_findings(paths, [diagnostic]))


def _whole(visit: Visit, lineage: Lineage, merged: MergedDocument, context: dict[str, Any]) -> Response:
    paths = RelativePaths(visit.site.path)
    report = lineage.context()
    view = TreeView(f"?document={quote(context['document'])}", visit.query("under"), visit.number("first", 0), context["at"])
    return render(
        visit,
        "lineage_identity.html",
        _status(context),
        documents=list(DOCUMENTS),
        report=report,
        chain=[link._replace(directory=paths.short(link.directory)) for link in report.chain],
        injected={link.real_home for link in report.injected},
        excluded=[exclusion._replace(path=paths.short(exclusion.path)) for exclusion in report.excluded],
        files=[
            (paths.short(layer.path), layer.inherited_by and paths.short(layer.inherited_by), ", ".join(sorted(layer.only or ())))
            for layer in merged.layers
        ],
        view=view,
        tree=to_html(branch(merged.document, merged.provenance, view.under), view),
        **context,
        **_findings(paths, report.diagnostics),
    )


def _explained(merged: MergedDocument, paths: RelativePaths, at: str) -> dict[str, Any]:
    """The explanation of a value, with the locations that it names."""
    explanation = merged.explain(at)
    locate = _Locations(merged.layers, paths).locate
    others = [contributor for contributor in explanation.contributors if contributor != explanation.winner]
    return {
        "explanation": explanation,
        "winner": None if explanation.winner is None else locate(explanation.winner),
        "others": [locate(origin) for origin in others[:PLACES]],
        "shadowed": [locate(origin) for origin in explanation.shadowed[:PLACES]],
        "more": max(0, len(others) - PLACES) + max(0, len(explanation.shadowed) - PLACES),
        "as_text": lambda value: value if isinstance(value, str) else json_view.plain(value),
    }


class _Locations:
    """Finds locations of values; finding a line reads the file, so the bytes read are limited."""

    def __init__(self, layers: Sequence[Layer], paths: RelativePaths) -> None:
        self._layers = {layer.path: (number, layer.data) for number, layer in enumerate(layers, 1)}
        self._paths = paths
        self._left = LINES_BYTES

    def locate(self, origin: ValueOrigin) -> Location:
        number, data = self._layers[origin.path]
        self._left -= len(data)
        line = line_of(data, origin.path, origin.pointer) if self._left >= 0 else None
        return number, self._paths.short(origin.path), line, origin


def _findings(paths: RelativePaths, diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """The first findings, errors first."""
    ordered = sorted(diagnostics, key=lambda diagnostic: diagnostic.severity != ERROR)
    listed = findings(paths, ordered[:FINDINGS])
    return {"findings": listed, "more_findings": len(ordered) - len(listed)}
