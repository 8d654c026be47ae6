"""Lint: every check on the agents of a tree, from one table.

Invariant: the table names the codes each check may give, and a check gives no other; findings come out sorted and each
once, whatever the order of directories. Root directives are checked as documents, other reserved names and inactive
agents not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clia.errors import AgentNotFound, CliaError
from clia.identities.contexts import AGENCY, KINDS
from clia.identities.diagnostics import in_order
from clia.identities.lint import guardrails, history, inheritance, names, reading, shapes, texts
from clia.identities.lint.report import Report
from clia.identities.lint.subject import Subject, look
from clia.identities.roster import as_diagnostic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.file_interface import Files
    from clia.identities.history_interface import History
    from clia.identities.layers import Layer
    from clia.identities.roster import AgentTree

    # (how many are done, of how many, what is looked at now)
    Watch = Callable[[int, int, str], None]


class Check(NamedTuple):
    """A check on one agent, or on one of its documents."""

    codes: tuple[str, ...]
    run: Callable[[Subject], Iterable[Diagnostic]]


class DocumentCheck(NamedTuple):
    codes: tuple[str, ...]
    run: Callable[[str, Layer], Iterable[Diagnostic]]  # (kind, layer)


def _shape(kind: str, layer: Layer) -> Iterable[Diagnostic]:
    return shapes.shape(layer.path, kind, layer.document)


def _text(kind: str, layer: Layer) -> Iterable[Diagnostic]:
    """Journals are a record of what was said; profiles and plans are what a model is told."""
    return () if kind == AGENCY else texts.texts(layer.path, layer.document)


CHECKS = (
    Check(
        (
            "invalid-json", "document-too-large", "document-too-deep", "wrong-type", "scalar-for-list", "unreadable", "not-a-file",
            "not-a-directory", "symlink-escape", "untrusted-owner", "unsafe-submodule-path", "invalid-gitmodules",
            "ambiguous-triad", "legacy-name", "inherits-missing", "inherits-remote", "inherits-outside", "inherits-cycle",
            "inherits-kind-mismatch", "inherits-legacy-place", "inherits-legacy-name", "invalid-root-chain", "root-without-agent",
            "guardrails-pinned",
        ),
        reading.resolving,
    ),
    Check(("symlink-escape",), reading.links),
    Check(("slug-mismatch",), names.slugs),
    Check(("inherits-root-missing",), inheritance.inherits_root),
    Check(("guardrail-weakened",), guardrails.weakened),
    Check(("guardrail-dropped",), guardrails.dropped),
    Check(("waiver-unapproved", "waiver-unknown-guardrail"), guardrails.waivers),
    Check(("checklist-disabled",), guardrails.disabled),
)  # fmt: skip

DOCUMENT_CHECKS = (
    DocumentCheck(("schema",), _shape),
    DocumentCheck(("hidden-text", "html-comment", "ansi-escape"), _text),
)

# Found on the way to the agents, and in the past of their repositories.
TREE_CODES = ("invalid-slug", "unreadable", "unsafe-submodule-path", "invalid-gitmodules")
HISTORY_CODES = ("removed-without-archive", "history-shallow", "history-unavailable")

# Where one of these stands, a schema error at the same place says nothing new.
_PLAINER = frozenset(("wrong-type", "scalar-for-list", "slug-mismatch", "invalid-root-chain"))


class Checked(NamedTuple):
    slug: str
    directory: str  # its innermost domain directory
    active: bool  # an inactive agent was left alone

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def lint(files: Files, past: History, tree: AgentTree, slugs: Collection[str] = (), watch: Watch | None = None) -> Report[Checked]:
    """All findings of a tree; ``slugs`` narrows it to some agents."""
    targets = [each for each in tree.targets if not slugs or each.slug in slugs]
    _check_known(slugs, {each.slug for each in targets}, tree.top.path)
    checker = Checker()
    checked: dict[tuple[str, str], Checked] = {}
    found = list(tree.diagnostics)
    for number, target in enumerate(targets):
        if watch is not None:
            watch(number, len(targets), target.slug)
        subject = look(files, target)
        if not isinstance(subject, Subject):
            found += subject
            continue
        directory = subject.contexts[-1].directory
        checked[(subject.slug, directory)] = Checked(subject.slug, directory, subject.is_active())
        if subject.is_active():
            found += checker.findings(subject)
    found += history.removed(files, past, tree, slugs)
    return Report(tree.top.path, tuple(each for _, each in sorted(checked.items())), tuple(in_order(_plain(found))))


class Checker:
    """Runs the tables on subjects; a document that several subjects share is checked once."""

    def __init__(self) -> None:
        self._documents: dict[tuple[str, str], list[Diagnostic]] = {}

    def findings(self, subject: Subject) -> list[Diagnostic]:
        found: list[Diagnostic] = []
        for check in CHECKS:
            try:
                found += check.run(subject)
            except CliaError as error:  # a file that cannot be read makes one check fail, not all
                found.append(as_diagnostic(error, subject.place.path))
        for kind in KINDS:
            for layer in subject.layers[kind]:
                found += self._document(kind, layer)
        return in_order(_plain(found))

    def _document(self, kind: str, layer: Layer) -> list[Diagnostic]:
        key = (kind, layer.path)
        if key not in self._documents:
            self._documents[key] = [item for check in DOCUMENT_CHECKS for item in check.run(kind, layer)]
        return self._documents[key]


def _plain(found: list[Diagnostic]) -> Iterator[Diagnostic]:
    said = {(each.path, each.pointer) for each in found if each.code in _PLAINER}
    return (each for each in found if each.code != "schema" or (each.path, each.pointer) not in said)


def _check_known(asked: Collection[str], known: Collection[str], path: str) -> None:
    missing = sorted(set(asked) - set(known))
    if missing:
        raise AgentNotFound(
            f"no agent {missing[0]!r} at {path}, above or below", fields={"slug": missing[0], "path": path, "searched": [path]}
        )
