"""What a check looks at: one agent, seen from one place.

Invariant: whatever is wrong with the agent, the subject holds every document that could be read; an agent whose root
chain cannot be used is looked at along its default chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clia.errors import AgentNotFound, CliaError
from clia.identities import layers as layering
from clia.identities.contexts import AGENT, KINDS
from clia.identities.directives import ROOT
from clia.identities.merge import merge
from clia.identities.roster import as_diagnostic, default_chain, is_active
from clia.identities.view import Lineage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clia.identities.contexts import Context
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.file_interface import Files
    from clia.identities.layers import Layer
    from clia.identities.places import Place
    from clia.identities.roster import Target


class Subject(NamedTuple):
    slug: str
    place: Place
    files: Files
    contexts: tuple[Context, ...]  # of the default chain
    layers: Mapping[str, Sequence[Layer]]  # by kind, outermost first
    lineage: Lineage | None  # None: the root chain cannot be used
    status: object
    reading: tuple[Diagnostic, ...]  # what resolving the agent had to say

    def is_directives(self) -> bool:
        """Whether these are root directives: documents that others inherit, and no agent."""
        return self.slug == ROOT

    def is_active(self) -> bool:
        return is_active(self.status)


def look(files: Files, target: Target) -> Subject | list[Diagnostic]:
    """The subject, or why there is none."""
    slug, place = target
    try:
        lineage = Lineage(files, place, slug)
        report = lineage.context()
    except AgentNotFound:
        return default_chain(files, place, slug)[1]
    except CliaError as error:
        return _along_default_chain(files, target, as_diagnostic(error, place.path))
    layers = {kind: lineage.merged(kind).layers for kind in KINDS}
    status = lineage.profile().get("status")
    return Subject(slug, place, files, report.default, layers, lineage, status, report.diagnostics)


def _along_default_chain(files: Files, target: Target, trouble: Diagnostic) -> Subject | list[Diagnostic]:
    slug, place = target
    contexts, met = default_chain(files, place, slug)
    if not contexts:
        return [trouble, *met]
    reader = layering.Reader(files, place.trusted)
    layers = {kind: layering.build(reader, kind, contexts, ()) for kind in KINDS}
    document, _, found = merge(AGENT, slug, layers[AGENT])
    reading = (trouble, *met, *reader.diagnostics, *found)
    return Subject(slug, place, files, contexts, layers, None, document.get("status"), reading)
