"""Lineage pages: identities, their documents, and the origin of each merged value.

Invariant: viewing only reads files. An unusable document is reported with file, line and pointer, and the rest is shown without it.
Document contents are untrusted text.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from starlette.routing import Route

from clia.errors import AgentNotFound, CliaError, InvalidInput, NotFound
from clia.forge.lineages import DOCUMENTS, LINES_BYTES, PROFILE, RelativePaths, explained, findings, kind_of, lineage_at, roster_at
from clia.forge.pages.common import page, show
from clia.forge.problems import status_of
from clia.forge.rendering import jsons
from clia.forge.rendering.lineage_tree import TreeView, branch, to_html
from clia.identities.checks import line_of
from clia.identities.diagnostics import CODES, ERROR, Diagnostic
from clia.values.names import is_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from starlette.responses import Response

    from clia.forge.lineages import DocumentFinding
    from clia.forge.pages.common import Visit
    from clia.identities.layers import Layer
    from clia.identities.lineage import Lineage, MergedDocument
    from clia.identities.origins import Explanation, ValueOrigin

PLACES, FINDINGS = 50, 200
"""Maximum locations per section of an explanation, and findings per page."""
_PANEL = "#explanation"


class ValueLocation(NamedTuple):
    """The location of a value; ``number`` is the index of the file in the list."""

    number: int
    path: str
    line: int | None
    pointer: str
    sha256: str
    value: str
    note: str


class ValueStory(NamedTuple):
    """An explanation for the panel."""

    told: Explanation
    winner: ValueLocation | None
    others: Sequence[ValueLocation]
    shadowed: Sequence[ValueLocation]
    more: int  # locations not listed


class MergedFile(NamedTuple):
    """A document in the merge."""

    path: str
    origin: str
    inherited_by: str | None
    only: str
    bytes: int


def routes() -> list[Route]:
    return [
        Route("/s/{space}/lineage", _agents, methods=["GET"], name="lineage"),
        Route("/s/{space}/lineage/{slug}", _agent, methods=["GET"], name="lineage-agent"),
    ]


@page
def _agents(visit: Visit) -> Response:
    paths = RelativePaths(visit.site.path)
    everything = visit.query("all") == "1"
    roster = roster_at(visit.site, everything=everything)
    agents = [agent._replace(directory=paths.short(agent.directory)) for agent in roster.agents]
    return show(visit, "lineage.html", agents=agents, everything=everything, is_slug=is_slug, **_found(paths, roster.diagnostics))


@page
def _agent(visit: Visit) -> Response:
    slug = visit.param("slug")
    if not is_slug(slug):
        raise AgentNotFound(f"unknown agent {slug!r}", fields={"slug": slug})
    document = visit.query("document") or PROFILE
    kind = kind_of(document)
    try:
        lineage = lineage_at(visit.site, slug)
    except InvalidInput as err:
        return _unusable(visit, slug, err)
    merged = lineage.merged(kind)
    if _wants_panel(visit):
        return _panel(visit, merged, slug, document)
    return _whole(visit, lineage, merged, document)


def _unusable(visit: Visit, slug: str, err: CliaError) -> Response:
    """The page for an invalid document: nothing was merged, and the location is shown."""
    paths, path = RelativePaths(visit.site.path), err.fields.get("path")
    document_path = None if path is None else paths.whole(str(path))
    hints = [CODES[err.code].hint] if err.code in CODES else []
    diagnostic = Diagnostic(err.code, ERROR, document_path, err.fields.get("pointer"), err.message, "; ".join(err.hints or hints))
    return show(visit, "lineage_unusable.html", status_of(err), slug=slug, **_found(paths, [diagnostic]))


def _whole(visit: Visit, lineage: Lineage, merged: MergedDocument, document: str) -> Response:
    paths = RelativePaths(visit.site.path)
    report = lineage.context()
    at = visit.query("at") if "at" in visit.request.query_params else None
    view = TreeView(f"?document={quote(document)}", visit.query("under"), visit.number("first", 0), at)
    top = branch(merged.document, merged.provenance, view.under)
    story, problem = _explained(merged, paths, at)
    return show(
        visit,
        "lineage_agent.html",
        200 if problem is None else status_of(problem),
        slug=lineage.slug,
        document=document,
        documents=list(DOCUMENTS),
        report=report,
        chain=[each._replace(directory=paths.short(each.directory)) for each in report.chain],
        injected={each.real_home for each in report.injected},
        excluded=[each._replace(path=paths.short(each.path)) for each in report.excluded],
        files=[_file(paths, layer) for layer in merged.layers],
        view=view,
        whole=view.opening(""),
        tree=to_html(top, view),
        at=at,
        story=story,
        problem=problem,
        **_found(paths, report.diagnostics),
    )


# Panel


def _wants_panel(visit: Visit) -> bool:
    """Whether htmx requests only the panel."""
    headers = visit.request.headers
    return headers.get("hx-request-type") == "partial" and headers.get("hx-target", "").endswith(_PANEL)


def _panel(visit: Visit, merged: MergedDocument, slug: str, document: str) -> Response:
    at = visit.query("at")
    story, problem = _explained(merged, RelativePaths(visit.site.path), at)
    status = 200 if problem is None else status_of(problem)
    answer = show(visit, "lineage_panel.html", status, at=at, story=story, problem=problem, slug=slug, document=document)
    answer.headers["vary"] = "HX-Request-Type, HX-Target"  # the same URL also serves the full page
    return answer


def _explained(merged: MergedDocument, paths: RelativePaths, at: str | None) -> tuple[ValueStory | None, CliaError | None]:
    if at is None:
        return None, None
    try:
        explanation = explained(merged, at)
    except (NotFound, InvalidInput) as err:
        return None, err
    listing = _Listing(merged.layers, paths)
    others = [contributor for contributor in explanation.contributors if contributor != explanation.winner]
    more = max(0, len(others) - PLACES) + max(0, len(explanation.shadowed) - PLACES)
    winner = None if explanation.winner is None else listing.where(explanation.winner)
    return ValueStory(explanation, winner, listing.all(others), listing.all(explanation.shadowed), more), None


class _Listing:
    """Lists locations; finding a line reads the file, so the bytes read are limited."""

    def __init__(self, layers: Sequence[Layer], paths: RelativePaths) -> None:
        self._layers = {layer.path: (number, layer.data) for number, layer in enumerate(layers, 1)}
        self._paths = paths
        self._left = LINES_BYTES

    def all(self, places: Iterable[ValueOrigin]) -> list[ValueLocation]:
        return [self.where(place) for place in list(places)[:PLACES]]

    def where(self, place: ValueOrigin) -> ValueLocation:
        number, data = self._layers[place.path]
        self._left -= len(data)
        line = line_of(data, place.path, place.pointer) if self._left >= 0 else None
        short = self._paths.short(place.path)
        return ValueLocation(number, short, line, place.pointer, place.sha256, _line(place.value), place.note)


def _line(value: Any) -> str:
    return value if isinstance(value, str) else jsons.plain(value)


# Findings


def _file(paths: RelativePaths, layer: Layer) -> MergedFile:
    only = ", ".join(sorted(layer.only)) if layer.only is not None else ""
    by = None if layer.inherited_by is None else paths.short(layer.inherited_by)
    return MergedFile(paths.short(layer.path), layer.origin, by, only, len(layer.data))


def _found(paths: RelativePaths, diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """The first findings, errors first."""
    ordered = sorted(diagnostics, key=lambda diagnostic: diagnostic.severity != ERROR)
    listed: list[DocumentFinding] = findings(paths, ordered[:FINDINGS])
    return {"findings": listed, "more_findings": len(ordered) - len(listed)}
