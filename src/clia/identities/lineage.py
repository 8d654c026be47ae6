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
from clia.identities.diagnostics import Diagnostic, diagnostic, in_order
from clia.identities.merge import ComputedValue, merge
from clia.identities.merge_rules import MARKS
from clia.identities.working_path import WorkingPath, WorktreeLayer, below, linked_worktree, survey
from clia.values.pointer import leaves
from clia.values.records import fields_json
from clia.values.slugs import check_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.identities.guardrails.waivers import Approvals
    from clia.identities.inheritance import Layer
    from clia.identities.merge import Provenance
    from clia.identities.origins import Explanation


class ContextReport(NamedTuple):
    """The contexts that count for an identity, those that do not, and why."""

    slug: str  # the identity
    path: str  # the working path, links resolved
    mode: str  # `default`, `explicit` or `hybrid`
    default: tuple[IdentityContext, ...]  # contexts by containment, outermost first
    chain: tuple[IdentityContext, ...]  # contexts that count, outermost first; the local one is last
    roots: tuple[IdentityContext, ...]  # directories of root directives, whose guardrails hold for every identity
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
    """An identity at a working path: its chain of contexts and its merged profile, agenda and agency.

    Without a slug it is that of an agent without an identity: the guardrails of the root directives.
    """

    def __init__(
        self,
        files: LocalFiles,
        place: WorkingPath,
        slug: str | None,
        *,
        allow_uncontained: bool = False,
        mark_waivers: bool = True,
    ) -> None:
        self.slug = None if slug is None else check_slug(slug)
        self.place = place
        self._files = files
        self._reader = inheritance.DocumentReader(files, place)
        self._roots, trouble = ([], []) if slug == contexts.ROOT else contexts.root_contexts(files, place)
        self._mark_waivers = mark_waivers
        self._merged: dict[str, MergedDocument] = {}
        self._default: tuple[IdentityContext, ...] = ()
        self._chain = contexts.ContextChain(contexts.DEFAULT, ())
        self._diagnostics = list(place.diagnostics)
        self._root_trouble = trouble
        self._excluded: tuple[ExcludedPath, ...] = ()
        if slug is not None:
            self._find_contexts(slug, allow_uncontained=allow_uncontained)
        self._read_for_chain = list(self._reader.diagnostics)

    def _find_contexts(self, slug: str, *, allow_uncontained: bool) -> None:
        place = self.place
        search = ContextSearch(self._files, place, slug)
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
        self._diagnostics += search.diagnostics
        self._excluded = tuple(sorted(set(search.excluded)))

    def context(self) -> ContextReport:
        """The chain, and why each context is in or out; the diagnostics cover all three kinds."""
        diagnostics = tuple(in_order(item for kind in KINDS for item in self.merged(kind).diagnostics))
        mode, chain, injected, _ = self._chain
        roots = tuple(self._roots)
        return ContextReport(
            self.slug or "", self.place.path, mode, self._default, chain, roots, injected, self._excluded, diagnostics
        )

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
        from clia.identities.guardrails.waivers import Approvals  # few identities have waivers

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
        layers = inheritance.build_layers(self._reader, kind, self._chain.contexts, self._chain.pinned, self._roots)
        document, provenance, diagnostics = merge(kind, self.slug, layers)
        diagnostics += [item for item in self._diagnostics if kind_of(item.path or "") in (None, kind)]
        diagnostics += self._reader.diagnostics[before:]
        if kind == AGENT:
            diagnostics += [*self._read_for_chain, *self._root_trouble]
            frozen = self.place.local and self.place.local.frozen
            if frozen and frozen.binds(self.slug):
                diagnostics += frozen.losses(document)
        merged = MergedDocument(kind, document, provenance, layers, self._chain.contexts, in_order(diagnostics))
        if kind == AGENT and _has_rules(document.get("guardrails")):
            from clia.identities.guardrails.rules import rule_diagnostics  # few identities have rules

            merged.diagnostics = tuple(in_order([*diagnostics, *rule_diagnostics(merged)]))
        if kind == AGENT and self._mark_waivers and document.get("waivers"):
            from clia.identities.guardrails.waivers import check_waivers

            marks, _ = check_waivers(merged, self.approvals())
            if marks:
                document[MARKS] = [mark for mark, _ in marks]
                provenance[MARKS] = ComputedValue("guardrails waived by an operator", [source for _, source in marks])
        return merged


def _has_rules(guardrails: Any) -> bool:
    """Whether a guardrail may have rules."""
    return isinstance(guardrails, list) and any("rules" in item or "items" in item for item in guardrails if isinstance(item, dict))


def survey_path(path: str | os.PathLike[str] = ".", *, ceiling: str | os.PathLike[str] | None = None) -> WorkingPath:
    """Survey a working path as the current user."""
    top = None if ceiling is None else os.path.abspath(ceiling)
    return survey(LocalFiles(), os.path.abspath(path), ceiling=top, trusted=trusted_owners())


def lineage(
    path: str | os.PathLike[str],
    slug: str,
    *,
    ceiling: str | os.PathLike[str] | None = None,
    allow_uncontained: bool = False,
    agents_dir: str | os.PathLike[str] | None = None,
) -> Lineage:
    """The lineage of ``slug`` at ``path``.

    ``ceiling`` is the outermost directory to search. ``allow_uncontained`` permits documents to set
    ``enforceContainment: false``. ``agents_dir`` is a directory of identities that counts if no repository encloses the path.
    """
    check_slug(slug)  # before it becomes part of a path
    place = with_agents_dir(place_of(path, ceiling=ceiling), agents_dir)
    return Lineage(LocalFiles(), place, slug, allow_uncontained=allow_uncontained)


def with_agents_dir(place: WorkingPath, agents_dir: str | os.PathLike[str] | None) -> WorkingPath:
    """The path with a further directory of identities, where the journal would be written; unused inside a repository."""
    if agents_dir is None:
        return place
    directory = os.path.abspath(agents_dir)
    if place.repositories:
        unused = diagnostic("agents-dir-unused", directory, f"identities are read in the repository {place.repositories[-1]}")
        return place._replace(diagnostics=(*place.diagnostics, unused))
    return place._replace(agents_dir=LocalFiles().real(directory))


def place_of(path: str | os.PathLike[str] = ".", *, ceiling: str | os.PathLike[str] | None = None) -> WorkingPath:
    """Survey a path for reading. In an agent's worktree: as if at the place where the agent was spawned.

    With a ceiling only the directories below it count.
    """
    files = LocalFiles()
    worktree = linked_worktree(files, files.real(os.path.abspath(path)))
    if worktree is None or worktree.agent is None:
        return survey_path(path, ceiling=ceiling)
    from clia.identities import agent_places  # only in worktrees of agents

    frozen = agent_places.read_frozen(worktree)
    if ceiling is not None:
        return survey_path(path, ceiling=ceiling)._replace(local=WorktreeLayer(worktree.top, None, frozen))
    at = "" if frozen is None else frozen.path
    place = agent_places.survey_at_place(files, os.path.abspath(path), worktree, at, trusted_owners())
    return place._replace(local=place.local and place.local._replace(frozen=frozen))


def trusted_owners() -> frozenset[int] | None:
    """The calling user and root, whose contexts count outside repositories; None: everyone's."""
    return frozenset((os.getuid(), 0)) if hasattr(os, "getuid") else None
