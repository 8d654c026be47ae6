"""Checks on identities at a path: list, lint, smoke, doctor, schemas.

Invariant: nothing is written. The calling user is read here, and the environment is passed to git only. Smoke resolves every
identity twice, the second time with reversed directory listings, to find results that depend on their order.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from clia.errors import AgentNotFound, CliaError, InvalidInput, require_extra
from clia.files import DirectoryEntry, LocalFiles
from clia.identities import git_history
from clia.identities import lint as linting
from clia.identities import roster as rosters
from clia.identities.contexts import KINDS, IdentityContext
from clia.identities.diagnostics import Diagnostic, diagnostic, has_errors, in_order
from clia.identities.git_history import GitHistory
from clia.identities.inheritance import INHERITED
from clia.identities.lineage import Lineage, place_of, with_agents_dir
from clia.identities.lint import Checker, FindingsReport, LintSubject, count_severities, load_subject
from clia.identities.roster import IdentityTarget, IdentityTree, Roster, as_diagnostic, default_chain, is_reserved
from clia.identities.schemas import schema
from clia.values import documents
from clia.values import pointer as pointers
from clia.values.json_text import children, skip_blanks
from clia.values.pointer import leaves
from clia.values.records import fields_json, json_form
from clia.values.slugs import check_slug

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from clia.identities.lint import LintProgress

    Path = str | os.PathLike[str]


def line_of(data: bytes, path: str, pointer: str | None) -> int:
    """The line of a pointer or its innermost existing part, or of a syntax error; 1 if it is unknown."""
    try:
        documents.parse(data, path)
        text = documents.decode(data, path)
        at = skip_blanks(text, 0)
        for part in pointers.split(pointer or ""):
            start = next((child.start for child in children(text, at) if child.key == part), None)
            if start is None:
                break
            at = start
        return text.count("\n", 0, at) + 1
    except InvalidInput as error:
        return cast("int", error.fields.get("line") or 1)


@json_form(by="inheritedBy")
class InheritedDocument(NamedTuple):
    """A document that another one inherits from."""

    document: str  # its kind
    path: str  # its file
    by: str  # the file that inherits from it


class ExaminedIdentity(NamedTuple):
    """An identity as ``clia agents doctor`` shows it."""

    slug: str  # the identity
    title: str | None  # merged title
    status: str | None  # merged status
    active: bool  # false: lint skips it
    mode: str | None  # of its root chain; null: the root chain is invalid
    chain: tuple[IdentityContext, ...]  # contexts that count, outermost first
    inherits: tuple[InheritedDocument, ...]  # documents that it inherits from
    findings: tuple[Diagnostic, ...]  # problems of its documents


@json_form("path", "repository", "agents", "findings", "summary")
class DoctorReport(NamedTuple):
    """The identities that are visible at a path, and their problems."""

    path: str  # the working path
    repository: str | None  # the innermost one that contains the path
    agents: tuple[ExaminedIdentity, ...]  # the identities
    findings: tuple[Diagnostic, ...]  # problems that are not specific to one identity

    def all_findings(self) -> list[Diagnostic]:
        return in_order([*self.findings, *(item for agent in self.agents for item in agent.findings)])

    @property
    def summary(self) -> dict[str, int]:
        """The number of all findings by severity."""
        return count_severities(self.all_findings())

    def to_json(self) -> dict[str, Any]:
        return fields_json(self)


def doctor(path: Path, *, environment: Mapping[str, str], ceiling: Path | None = None) -> DoctorReport:
    """The chain, inheritance and findings of each identity visible at a path, active or not. Root directives are shown with the
    identities that inherit them.
    """
    files = LocalFiles()
    tree = rosters.seen_from(files, place_of(path, ceiling=ceiling))
    checker = Checker()
    general = list(tree.diagnostics)
    agents = []
    for target in tree.targets:
        subject = load_subject(files, target)
        if not isinstance(subject, LintSubject):
            general += subject
        elif is_reserved(subject.slug):
            general += checker.findings(subject)
        else:
            agents.append(_examine_identity(subject, checker))
    general += git_history.removal_findings(files, GitHistory(environment), tree)
    repository = next(reversed(tree.top.repositories), None)
    return DoctorReport(tree.top.path, repository, tuple(agents), tuple(in_order(general)))


def _examine_identity(subject: LintSubject, checker: Checker) -> ExaminedIdentity:
    lineage = subject.lineage
    report = lineage.context() if lineage else None
    inherits = [
        InheritedDocument(kind, layer.path, layer.inherited_by or "")
        for kind in KINDS
        for layer in subject.layers[kind]
        if layer.origin == INHERITED
    ]
    return ExaminedIdentity(
        subject.slug,
        lineage.profile().get("title") if lineage else None,
        subject.status if isinstance(subject.status, str) else None,
        subject.is_active(),
        report.mode if report else None,
        report.chain if report else subject.contexts,
        tuple(inherits),
        tuple(checker.findings(subject)),
    )


class ResolvedIdentity(NamedTuple):
    """An identity as ``clia agents smoke`` found it."""

    slug: str  # the identity
    directory: str  # the innermost domain directory, or the searched path
    contexts: int  # number of its contexts
    ok: bool  # whether it resolves, twice the same way, with an origin of each value


def smoke_tree(
    files: LocalFiles, past: GitHistory, tree: IdentityTree, watch: LintProgress | None = None
) -> FindingsReport[ResolvedIdentity]:
    """Resolve every identity of a tree, active or not, and check that removed documents are archived."""
    targets = [target for target in tree.targets if not is_reserved(target.slug)]
    agents: dict[tuple[str, str], ResolvedIdentity] = {}
    diagnostics = list(tree.diagnostics)
    for number, target in enumerate(targets):
        if watch is not None:
            watch(number, len(targets), target.slug)
        try:
            resolved, findings = _resolve_twice(files, target)
        except AgentNotFound:
            diagnostics += default_chain(files, target.place, target.slug)[1]
            continue
        except CliaError as error:
            findings = [as_diagnostic(error, target.place.path)]
            resolved = ResolvedIdentity(target.slug, target.place.path, 0, ok=False)
        diagnostics += findings
        agents[(resolved.slug, resolved.directory)] = resolved
    diagnostics += git_history.removal_findings(files, past, tree)
    return FindingsReport(tree.top.path, tuple(identity for _, identity in sorted(agents.items())), tuple(in_order(diagnostics)))


def _resolve_twice(files: LocalFiles, target: IdentityTarget) -> tuple[ResolvedIdentity, list[Diagnostic]]:
    lineage = Lineage(files, target.place, target.slug)
    report = lineage.context()
    directory = report.chain[-1].directory
    diagnostics = [*report.diagnostics, *_missing_origins(lineage, directory)]
    if _resolved_json(lineage) != _resolved_json(Lineage(_ReversedFiles(), target.place, target.slug)):
        diagnostics.append(diagnostic("merge-unstable", directory, f"two merges of {target.slug} at {directory} differ"))
    return ResolvedIdentity(target.slug, directory, len(report.chain), ok=not has_errors(diagnostics)), diagnostics


def _resolved_json(lineage: Lineage) -> str:
    merged = {kind: lineage.merged(kind).to_json(root_chain=True, show_origin=True) for kind in KINDS}
    return json.dumps([lineage.context().to_json(), merged], ensure_ascii=False)


def _missing_origins(lineage: Lineage, directory: str) -> Iterator[Diagnostic]:
    for kind in KINDS:
        merged = lineage.merged(kind)
        origins = merged.origins()
        for pointer, _ in leaves(merged.document):
            if pointer not in origins:
                message = f"{lineage.slug} at {directory}: {pointer} of the {kind} document has no origin"
                yield diagnostic("origin-missing", directory, message, pointer)


class _ReversedFiles(LocalFiles):
    """Lists every directory in reverse order."""

    def entries(self, directory: str) -> list[DirectoryEntry] | None:
        entries = super().entries(directory)
        return entries and entries[::-1]


def roster(path: Path = ".", *, ceiling: Path | None = None, agents_dir: Path | None = None, everything: bool = False) -> Roster:
    """The identities visible at a path."""
    place = with_agents_dir(place_of(path, ceiling=ceiling), agents_dir)
    return rosters.roster(LocalFiles(), place, everything=everything)


def search(
    path: Path, text: str, *, slugs: Sequence[str] = (), ceiling: Path | None = None, agents_dir: Path | None = None
) -> list[rosters.SearchHit]:
    """The values that contain a text in the documents of the identities visible at a path."""
    for slug in slugs:
        check_slug(slug)
    place = with_agents_dir(place_of(path, ceiling=ceiling), agents_dir)
    return rosters.search(LocalFiles(), place, text, slugs)


def lint(
    path: Path,
    *,
    environment: Mapping[str, str],
    slugs: Sequence[str] = (),
    ceiling: Path | None = None,
    watch: linting.LintProgress | None = None,
) -> FindingsReport[linting.CheckedIdentity]:
    """Lint the identities visible at a path or declared below it; ``missing-extra`` without the extra ``lint``."""
    require_extra("lint")
    for slug in slugs:
        check_slug(slug)
    return linting.lint_tree(LocalFiles(), GitHistory(environment), _identity_tree(path, ceiling), slugs, watch)


def smoke(
    path: Path, *, environment: Mapping[str, str], ceiling: Path | None = None, watch: linting.LintProgress | None = None
) -> FindingsReport[ResolvedIdentity]:
    """Check that every identity of a tree resolves, twice the same, with an origin for every value."""
    return smoke_tree(LocalFiles(), GitHistory(environment), _identity_tree(path, ceiling), watch)


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schemas of the documents, by kind."""
    return {kind: schema(kind) for kind in KINDS}


def lines_of(findings: Iterable[Diagnostic]) -> dict[Diagnostic, int]:
    """The line of each finding whose file can be read."""
    files = LocalFiles()
    contents: dict[str, bytes | None] = {}
    lines: dict[Diagnostic, int] = {}
    for finding in findings:
        path = finding.path
        if path is None:
            continue
        if path not in contents:
            contents[path] = None
            with suppress(CliaError):
                contents[path] = files.read(path, documents.MAX_BYTES)
        data = contents[path]
        if data is not None:
            lines[finding] = line_of(data, path, finding.pointer)
    return lines


def _identity_tree(path: Path, ceiling: Path | None) -> IdentityTree:
    survey_at = partial(place_of, ceiling=ceiling)
    return rosters.tree_of(LocalFiles(), survey_at(path), survey_at)
