"""The lineage of an identity at a working path.

Invariant: a ``Lineage`` searches contexts once and reads each document once, so all its answers describe the same state. The
working directory and the calling user are read here; the modules below receive them as values.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, NamedTuple, TypedDict

from clia.errors import AgentNotFound, CliaError, InvalidInput
from clia.files import LocalFiles
from clia.identities import contexts, inheritance
from clia.identities.contexts import AGENCY, AGENDA, AGENT, AGENTS, KINDS, ContextSearch, ExcludedPath, IdentityContext, kind_of
from clia.identities.diagnostics import Diagnostic, in_order
from clia.identities.merge import ComputedValue, merge
from clia.identities.merge_rules import MARKS
from clia.identities.working_path import WorkingPath, below, survey
from clia.values.pointer import leaves
from clia.values.records import fields_json
from clia.values.slugs import check_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.identities.inheritance import Layer
    from clia.identities.merge import Provenance
    from clia.identities.origins import Explanation
    from clia.identities.waivers import Approvals


class ContextReport(NamedTuple):
    """The contexts that count for an identity, those that do not, and why."""

    slug: str  # the identity
    path: str  # the working path, links resolved
    mode: str  # `default`, `explicit` or `hybrid`
    default: tuple[IdentityContext, ...]  # contexts by containment, outermost first
    chain: tuple[IdentityContext, ...]  # contexts that count, outermost first; the local one is last
    injected: tuple[IdentityContext, ...]  # contexts that a root chain named
    excluded: tuple[ExcludedPath, ...]  # directories and files that do not count
    diagnostics: tuple[Diagnostic, ...]  # problems of the documents

    def to_json(self) -> dict[str, Any]:
        return fields_json(self)


class MergedJson(TypedDict, total=False):
    """A merged document: the fields of its kind, and these on demand."""

    contextChain: list[dict[str, str]]
    """With `--root-chain`: `prefix` and `path` of the contexts that it was merged from"""
    origins: dict[str, Any]
    """With `--show-origin`: JSON pointer of each leaf, and its origin: `path` and `pointer` of the winner (null if no file provides
    it, then with a `note`), the `rule` and all `contributors`"""


class MergedDocument:
    """A merged document: a mapping that knows the origin of each value."""

    def __init__(
        self,
        kind: str,
        document: dict[str, Any],
        provenance: dict[str, Provenance],
        layers: Sequence[Layer],
        chain: Sequence[IdentityContext],
        diagnostics: Sequence[Diagnostic],
    ) -> None:
        self.kind = kind
        self.document = document
        self.provenance = provenance
        self.layers = tuple(layers)
        self.chain = tuple(chain)
        self.diagnostics = tuple(diagnostics)

    def __getitem__(self, field: str) -> Any:
        return self.document[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)

    def __contains__(self, field: object) -> bool:
        return field in self.document

    def keys(self) -> Any:
        """The field names."""
        return self.document.keys()

    def get(self, field: str, default: Any = None) -> Any:
        """The merged value of a field."""
        return self.document.get(field, default)

    def origins(self) -> dict[str, Any]:
        """JSON pointer of every leaf -> its origin."""
        from clia.identities.origins import leaf_origins  # not needed for a plain read

        return leaf_origins(self.document, self.provenance, self.layers)

    def explain(self, pointer: str) -> Explanation:
        """The rule, winner, contributors and shadowed values of one value."""
        from clia.identities.origins import explain

        return explain(self.document, self.provenance, self.layers, pointer)._replace(diagnostics=self.diagnostics)

    def context_chain(self) -> list[dict[str, str]]:
        """Prefix and path of each merged context, outermost first."""
        return [{"prefix": context.prefix, "path": context.directory} for context in self.chain]

    def to_json(self, *, root_chain: bool = False, show_origin: bool = False) -> Annotated[dict[str, Any], MergedJson]:
        """The merged document, optionally with ``contextChain`` and ``origins``."""
        shown = dict(self.document)
        if root_chain:
            shown["contextChain"] = self.context_chain()
        if show_origin:
            rule: Any = {"path": None, "pointer": None, "rule": "context-chain", "contributors": [], "note": "the final chain"}
            chain = leaves(shown["contextChain"], "/contextChain") if root_chain else ()
            shown["origins"] = {**self.origins(), **{pointer: rule for pointer, _ in chain}}
        return shown


class Lineage:
    """An identity at a working path: its chain of contexts and its merged profile, agenda and agency."""

    def __init__(
        self, files: LocalFiles, place: WorkingPath, slug: str, *, allow_uncontained: bool = False, mark_waivers: bool = True
    ) -> None:
        self.slug = check_slug(slug)
        self.place = place
        self._files = files
        self._reader = inheritance.DocumentReader(files, place.trusted)
        search = ContextSearch(files, place, slug)
        default = search.default_chain()
        if not default:
            searched = [below(ancestor, f"{AGENTS}/{slug}") for ancestor in reversed(place.ancestors)]
            trouble = [item.message for item in in_order(search.diagnostics)]
            hints = [*trouble, f"searched: {', '.join(searched)}", f"create it: clia agents init {slug}"]
            fields = {"slug": slug, "path": place.path, "searched": searched}
            raise AgentNotFound(f"no identity {slug!r} at {place.path} or above", hints=hints, fields=fields)
        self._default = tuple(default)
        self._reader.knows(default)
        self._chain = contexts.resolve_chain(search, self._reader, default, allow_uncontained=allow_uncontained)
        self._diagnostics = [*place.diagnostics, *search.diagnostics]
        self._read_for_chain = list(self._reader.diagnostics)
        self._mark_waivers = mark_waivers
        self._excluded = tuple(sorted(set(search.excluded)))
        self._merged: dict[str, MergedDocument] = {}

    def context(self) -> ContextReport:
        """The chain, and why each context is in or out; the diagnostics cover all three kinds."""
        diagnostics = tuple(in_order(item for kind in KINDS for item in self.merged(kind).diagnostics))
        mode, chain, injected, _ = self._chain
        return ContextReport(self.slug, self.place.path, mode, self._default, chain, injected, self._excluded, diagnostics)

    def profile(self) -> MergedDocument:
        """The merged agent document: title, purpose, guardrails and more."""
        return self.merged(AGENT)

    def plan(self) -> MergedDocument:
        """The merged agenda."""
        return self.merged(AGENDA)

    def agency(self) -> MergedDocument:
        """The merged journal."""
        return self.merged(AGENCY)

    def explain(self, pointer: str, document: str = AGENT) -> Explanation:
        """Where one value of a merged document comes from."""
        return self.merged(document).explain(pointer)

    def merged(self, kind: str) -> MergedDocument:
        """The merged document of one kind; cached."""
        if kind not in KINDS:
            raise InvalidInput(f"unknown document kind {kind!r}", code="unknown-kind", hints=[f"one of {', '.join(KINDS)}"])
        if kind not in self._merged:
            self._merged[kind] = self._merge(kind)
        return self._merged[kind]

    def approvals(self) -> Approvals:
        """The lookup of operators' approvals for waivers of this identity's guardrails."""
        from clia.identities.waivers import Approvals  # few identities have waivers

        def is_operator(directory: str, slug: str) -> bool:
            try:
                place = survey(self._files, directory, trusted=self.place.trusted)
                # Operator status never depends on a waiver; this also ends the recursion.
                return bool(Lineage(self._files, place, slug, mark_waivers=False).profile().get("profileType") == "operator")
            except CliaError:
                return False

        return Approvals(self._files, is_operator)

    def _merge(self, kind: str) -> MergedDocument:
        before = len(self._reader.diagnostics)
        layers = inheritance.build_layers(self._reader, kind, self._chain.contexts, self._chain.pinned)
        document, provenance, diagnostics = merge(kind, self.slug, layers)
        diagnostics += [item for item in self._diagnostics if kind_of(item.path or "") in (None, kind)]
        diagnostics += self._reader.diagnostics[before:]
        if kind == AGENT:
            diagnostics += self._read_for_chain
        merged = MergedDocument(kind, document, provenance, layers, self._chain.contexts, in_order(diagnostics))
        if kind == AGENT and self._mark_waivers and document.get("waivers"):
            from clia.identities.waivers import check_waivers

            marks, _ = check_waivers(merged, self.approvals())
            if marks:
                document[MARKS] = [mark for mark, _ in marks]
                provenance[MARKS] = ComputedValue("guardrails waived by an operator", [source for _, source in marks])
        return merged


def survey_path(path: str | os.PathLike[str] = ".", *, ceiling: str | os.PathLike[str] | None = None) -> WorkingPath:
    """Survey a working path as the current user."""
    top = None if ceiling is None else os.path.abspath(ceiling)
    return survey(LocalFiles(), os.path.abspath(path), ceiling=top, trusted=trusted_owners())


def lineage(
    path: str | os.PathLike[str], slug: str, *, ceiling: str | os.PathLike[str] | None = None, allow_uncontained: bool = False
) -> Lineage:
    """The lineage of ``slug`` at ``path``.

    ``ceiling`` is the outermost directory to search. ``allow_uncontained`` permits documents to set
    ``enforceContainment: false``.
    """
    check_slug(slug)  # before it becomes part of a path
    return Lineage(LocalFiles(), survey_path(path, ceiling=ceiling), slug, allow_uncontained=allow_uncontained)


def trusted_owners() -> frozenset[int] | None:
    """The calling user and root, whose contexts count outside repositories; None: everybody's."""
    return frozenset((os.getuid(), 0)) if hasattr(os, "getuid") else None
