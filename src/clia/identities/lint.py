"""Lint: every check on the identities of a tree, from one table.

Invariant: each check gives only the codes that the table lists for it. Findings are sorted, each once. Root directives are checked
as documents; other reserved names and inactive identities are not checked. Whatever is wrong with an identity, its subject has
every readable document; if its root chain is invalid, the default chain is checked.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from clia.errors import AgentNotFound, CliaError
from clia.files import LINK, LocalFiles
from clia.identities import git_history, inheritance
from clia.identities.contexts import (
    AGENCY,
    AGENT,
    KINDS,
    ROOT,
    ContextSearch,
    IdentityContext,
    kind_of,
    root_contexts,
    root_directives,
)
from clia.identities.diagnostics import ERROR, INFO, WARNING, Diagnostic, diagnostic, in_order
from clia.identities.guardrails import lint as lint_guardrails
from clia.identities.inheritance import CONTEXT, ROOT_RULES, Layer
from clia.identities.lineage import Lineage
from clia.identities.merge import merge
from clia.identities.roster import IdentityTarget, IdentityTree, as_diagnostic, default_chain, is_active
from clia.identities.schemas import problems
from clia.identities.working_path import WorkingPath, inside
from clia.values.pointer import token
from clia.values.records import json_form

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from clia.identities.checks import ResolvedIdentity
    from clia.identities.git_history import GitHistory

RowType = TypeVar("RowType", bound="CheckedIdentity | ResolvedIdentity")


@json_form("path", "agents", "findings", "summary")
class FindingsReport(NamedTuple, Generic[RowType]):
    """The findings of a check."""

    path: str  # the working path
    agents: tuple[RowType, ...]  # the identities that were checked
    findings: tuple[Diagnostic, ...]  # in order of path, severity and code

    @property
    def summary(self) -> dict[str, int]:
        """The number of findings by severity."""
        return count_severities(self.findings)


def count_severities(findings: Iterable[Diagnostic]) -> dict[str, int]:
    """The number of findings by severity."""
    severities = [finding.severity for finding in findings]
    return {severity: severities.count(severity) for severity in (ERROR, WARNING, INFO)}


class LintSubject(NamedTuple):
    slug: str
    place: WorkingPath
    files: LocalFiles
    contexts: tuple[IdentityContext, ...]  # of the default chain
    layers: Mapping[str, Sequence[Layer]]  # by kind, outermost first
    lineage: Lineage | None  # None: the root chain is invalid
    status: object
    reading: tuple[Diagnostic, ...]  # diagnostics of resolving the identity

    def is_active(self) -> bool:
        return is_active(self.status)


def load_subject(files: LocalFiles, target: IdentityTarget) -> LintSubject | list[Diagnostic]:
    """The subject, or diagnostics if the identity cannot be loaded."""
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
    return LintSubject(slug, place, files, report.default, layers, lineage, status, report.diagnostics)


def _along_default_chain(files: LocalFiles, target: IdentityTarget, trouble: Diagnostic) -> LintSubject | list[Diagnostic]:
    slug, place = target
    contexts, discovery = default_chain(files, place, slug)
    if not contexts:
        return [trouble, *discovery]
    reader = inheritance.DocumentReader(files, place)
    roots, trouble_of_roots = ([], []) if slug == ROOT else root_contexts(files, place)
    layers = {kind: inheritance.build_layers(reader, kind, contexts, (), roots) for kind in KINDS}
    document, _, merging = merge(AGENT, slug, layers[AGENT])
    reading = (trouble, *discovery, *trouble_of_roots, *reader.diagnostics, *merging)
    return LintSubject(slug, place, files, contexts, layers, None, document.get("status"), reading)


_HIDDEN_RANGES = (
    ("\x00", "\x08"), ("\x0b", "\x0c"), ("\x0e", "\x1a"), ("\x1c", "\x1f"), ("\x7f", "\x9a"), ("\x9c", "\x9f"),  # controls
    ("\u00ad", "\u00ad"), ("\u034f", "\u034f"), ("\u180b", "\u180f"),  # soft hyphen, grapheme joiner, Mongolian selectors
    ("\u061c", "\u061c"), ("\u200e", "\u200f"), ("\u202a", "\u202e"), ("\u2066", "\u2069"),  # bidirectional controls
    ("\u200b", "\u200d"), ("\u2060", "\u2065"), ("\ufeff", "\ufeff"),  # zero width
    ("\u115f", "\u1160"), ("\u3164", "\u3164"), ("\uffa0", "\uffa0"),  # Hangul fillers
    ("\u206a", "\u206f"), ("\ufff9", "\ufffb"),  # deprecated formatting, annotations
    ("\ufe00", "\ufe0f"), ("\U000e0100", "\U000e01ef"), ("\U000e0000", "\U000e007f"),  # variation selectors, tags
)  # fmt: skip
_HIDDEN = re.compile("[" + "".join(f"{first}-{last}" for first, last in _HIDDEN_RANGES) + "]")
_ESCAPE = re.compile("[\x1b\x9b]")
_COMMENT = "<!--"
_JOINER, _TEXT_STYLE, _EMOJI_STYLE = "\u200d", "\ufe0e", "\ufe0f"
# A subdivision flag: a black flag, its code in tag letters, an end tag.
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_NAMED_CHARACTERS = 4


def check_texts(kind: str, layer: Layer) -> Iterator[Diagnostic]:
    """Check each string of a profile or agenda, including keys, because models read them; journals are records."""
    path = layer.path
    for pointer, text in () if kind == AGENCY else _strings(layer.document, ""):
        if text.isascii() and text.isprintable() and _COMMENT not in text:
            continue
        hidden = hidden_characters(text)
        if hidden:
            names = ", ".join(f"U+{ord(char):04X} {unicodedata.name(char, 'control')}" for char in hidden[:_NAMED_CHARACTERS])
            more = f" and {len(hidden) - _NAMED_CHARACTERS} more" if len(hidden) > _NAMED_CHARACTERS else ""
            yield diagnostic("hidden-text", path, f"{path}: {pointer} contains {names}{more}", pointer)
        if _COMMENT in text:
            yield diagnostic("html-comment", path, f"{path}: {pointer} contains an HTML comment", pointer)
        if _ESCAPE.search(text):
            yield diagnostic("ansi-escape", path, f"{path}: {pointer} contains a terminal escape", pointer)


def hidden_characters(text: str) -> list[str]:
    """The distinct hidden characters of a text, in order of first appearance, except in emoji."""
    shown = _FLAG.sub("", text)
    matches = (match for match in _HIDDEN.finditer(shown) if not _is_part_of_emoji(shown, match.start()))
    return list(dict.fromkeys(match.group() for match in matches))


def _is_part_of_emoji(text: str, at: int) -> bool:
    char = text[at]
    before = text[at - 1] if at else ""
    if char in (_TEXT_STYLE, _EMOJI_STYLE):
        return _is_pictorial(before) or (before != "" and before in "#*0123456789\u203c\u2049\u2139\u3030\u303d")
    if char == _JOINER:
        if before in (_TEXT_STYLE, _EMOJI_STYLE):
            before = text[at - 2] if at > 1 else ""
        return _is_pictorial(before) and _is_pictorial(text[at + 1 : at + 2])
    return False


def _is_pictorial(char: str) -> bool:
    """Whether a character is a symbol or skin tone; the emoji planes count as a whole, as they grow every year."""
    return char != "" and ("\U0001f000" <= char <= "\U0001faff" or unicodedata.category(char) in ("So", "Sm"))


def _strings(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for key, child in value.items():
            pointer = f"{at}/{token(key)}"
            yield pointer, key
            yield from _strings(child, pointer)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _strings(child, f"{at}/{index}")


def check_schema(kind: str, layer: Layer) -> Iterator[Diagnostic]:
    """Check a document against its schema; a fragment without a kind in its name has none."""
    path = layer.path
    if kind_of(path) == kind:
        for pointer, problem in problems(kind, layer.document):
            yield diagnostic("schema", path, f"{path}: {pointer or 'the document'} {problem}", pointer)


def check_links(subject: LintSubject) -> Iterator[Diagnostic]:
    """Check links next to the documents, such as an avatar, which other tools read."""
    search = ContextSearch(subject.files, subject.place, subject.slug)
    for context in subject.contexts:
        boundary = search.boundary(context.directory)
        for entry in subject.files.entries(context.home) or ():
            path = f"{context.home}/{entry.name}"
            if entry.kind == LINK:
                real = subject.files.real(path)
                if not inside(real, boundary):
                    yield diagnostic("symlink-escape", path, f"{path} leads to {real}, outside {boundary}")


def check_slugs(subject: LintSubject) -> Iterator[Diagnostic]:
    """Check that slugs match directory names; root directives and inherited documents may have any slug."""
    if subject.slug == ROOT:
        return
    # A directory linked under a second name may use both.
    names = {context.directory: {subject.slug, context.real_home.rpartition("/")[2]} for context in subject.contexts}
    for layer in (layer for kind in KINDS for layer in subject.layers[kind]):
        slug = layer.document.get("slug")
        expected = names.get(layer.directory, {subject.slug})
        if layer.origin == CONTEXT and isinstance(slug, str) and slug not in expected:
            message = f"{layer.path}: the slug is {slug!r}, but the directory is {subject.slug!r}"
            yield diagnostic("slug-mismatch", layer.path, message, "/slug")


def check_inherits_root(subject: LintSubject) -> Iterator[Diagnostic]:
    """Check that a document of the chain inherits the root directives, directly or indirectly."""
    directives = root_directives(subject.files, subject.place)
    if directives is None or not subject.is_active():
        return
    repository, path = directives
    real = subject.files.real(path)
    if any(layer.only is None and real in (layer.path, subject.files.real(layer.path)) for layer in subject.layers[AGENT]):
        return
    # Report the outermost document in that repository, where one line fixes every path below.
    own = [layer.path for layer in subject.layers[AGENT] if layer.origin == CONTEXT and inside(layer.directory, repository)]
    if own:
        message = f"{own[0]} does not inherit the root directives {path}: only their guardrails apply"
        yield diagnostic("inherits-root-missing", own[0], message, "/inherits")


if TYPE_CHECKING:
    # (done, total, current slug)
    LintProgress = Callable[[int, int, str], None]


class LintCheck(NamedTuple):
    """A check on an identity, or on a document: ``run(subject)`` or ``run(kind, layer)``."""

    codes: tuple[str, ...]
    run: Callable[..., Iterable[Diagnostic]]


# Codes of worktrees of agents.
AGENT_CODES = ("guardrails-missing", "guardrail-removed", "agent-record-unreadable")

CHECKS = (
    LintCheck(
        (
            "invalid-json", "document-too-large", "document-too-deep", "wrong-type", "scalar-for-list", "unreadable", "not-a-file",
            "not-a-directory", "symlink-escape", "untrusted-owner", "unsafe-submodule-path", "invalid-gitmodules",
            "ambiguous-triad", "legacy-name", "inherits-missing", "inherits-remote", "inherits-outside", "inherits-cycle",
            "inherits-kind-mismatch", "inherits-legacy-place", "inherits-legacy-name", "invalid-root-chain", "root-without-agent",
            "guardrails-pinned", "invalid-rule", "root-symlink", *AGENT_CODES,
        ),
        lambda subject: subject.reading,
    ),
    LintCheck(("symlink-escape",), check_links),
    LintCheck(("slug-mismatch",), check_slugs),
    LintCheck(("inherits-root-missing",), check_inherits_root),
    LintCheck(("guardrail-weakened",), lint_guardrails.check_weakened),
    LintCheck(("unmatchable-rule",), lint_guardrails.check_unmatchable),
    LintCheck(("guardrail-removed",), lint_guardrails.check_removed),
    LintCheck(("guardrail-dropped",), lint_guardrails.check_dropped),
    LintCheck(("waiver-unapproved", "waiver-unknown-guardrail"), lint_guardrails.check_waivers),
    LintCheck(("checklist-disabled",), lint_guardrails.check_disabled),
)  # fmt: skip

DOCUMENT_CHECKS = (
    LintCheck(("schema",), check_schema),
    LintCheck(("hidden-text", "html-comment", "ansi-escape"), check_texts),
)

# Codes from finding identities, and from git history.
TREE_CODES = ("invalid-slug", "unreadable", "unsafe-submodule-path", "invalid-gitmodules")
HISTORY_CODES = ("removed-without-archive", "history-shallow", "history-unavailable")

# A schema error at the same pointer as one of these adds nothing.
_MORE_SPECIFIC = frozenset(("wrong-type", "scalar-for-list", "slug-mismatch", "invalid-root-chain", "invalid-rule"))


class CheckedIdentity(NamedTuple):
    """An identity that lint looked at."""

    slug: str  # the identity
    directory: str  # the innermost domain directory
    active: bool  # inactive identities are not checked


def lint_tree(
    files: LocalFiles, past: GitHistory, tree: IdentityTree, slugs: Collection[str] = (), watch: LintProgress | None = None
) -> FindingsReport[CheckedIdentity]:
    """All findings of a tree, limited to ``slugs`` if any are given."""
    path = tree.top.path
    targets = [target for target in tree.targets if not slugs or target.slug in slugs]
    missing = sorted({*slugs} - {target.slug for target in targets})
    if missing:
        fields = {"slug": missing[0], "path": path, "searched": [path]}
        raise AgentNotFound(f"no identity {missing[0]!r} at {path}, above or below", fields=fields)
    checker = Checker()
    checked: dict[tuple[str, str], CheckedIdentity] = {}
    diagnostics = list(tree.diagnostics)
    for number, target in enumerate(targets):
        if watch is not None:
            watch(number, len(targets), target.slug)
        subject = load_subject(files, target)
        if not isinstance(subject, LintSubject):
            diagnostics += subject
            continue
        directory = subject.contexts[-1].directory
        checked[subject.slug, directory] = CheckedIdentity(subject.slug, directory, subject.is_active())
        if subject.is_active():
            diagnostics += checker.findings(subject)
    diagnostics += git_history.removal_findings(files, past, tree, slugs)
    agents = tuple(identity for _, identity in sorted(checked.items()))
    return FindingsReport(path, agents, tuple(in_order(_without_duplicates(diagnostics))))


class Checker:
    """Runs the checks on subjects; a shared document is checked once."""

    def __init__(self) -> None:
        self._documents: dict[tuple[str, str], list[Diagnostic]] = {}

    def findings(self, subject: LintSubject) -> list[Diagnostic]:
        diagnostics: list[Diagnostic] = []
        for check in CHECKS:
            try:
                diagnostics += check.run(subject)
            except CliaError as error:  # an unreadable file fails one check, not all
                diagnostics.append(as_diagnostic(error, subject.place.path))
        for kind in KINDS:
            for layer in subject.layers[kind]:
                if layer.origin == ROOT_RULES:
                    continue  # they are checked as documents of their own
                if (kind, layer.path) not in self._documents:
                    findings = [item for check in DOCUMENT_CHECKS for item in check.run(kind, layer)]
                    self._documents[kind, layer.path] = findings
                diagnostics += self._documents[kind, layer.path]
        return in_order(_without_duplicates(diagnostics))


def _without_duplicates(diagnostics: list[Diagnostic]) -> Iterator[Diagnostic]:
    explained = {(item.path, item.pointer) for item in diagnostics if item.code in _MORE_SPECIFIC}
    return (item for item in diagnostics if item.code != "schema" or (item.path, item.pointer) not in explained)
