"""Everything lineage can say about a document: one table of codes, and the record that carries one finding.

Invariant: a code's severity, title and hint are defined here and nowhere else; text, JSON, SARIF, GitHub and the
reference documentation are all made from this table.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ERROR, WARNING, INFO = "error", "warning", "info"


class DiagnosticCode(NamedTuple):
    name: str
    severity: str
    title: str
    hint: str


class Diagnostic(NamedTuple):
    """One finding. ``pointer`` is a JSON pointer into the file at ``path``; None where the whole file is meant."""

    code: str
    severity: str
    path: str | None
    pointer: str | None
    message: str
    hint: str

    def to_json(self) -> dict[str, str | None]:
        return self._asdict()


_TABLE = (
    # Reading
    DiagnosticCode(
        "invalid-json",
        ERROR,
        "The document is not JSON with one meaning",
        "fix the document; the other layers were merged without it",
    ),
    DiagnosticCode(
        "document-too-large", ERROR, "The document is larger than the limit", "split it, or move old entries to an archive"
    ),
    DiagnosticCode("document-too-deep", ERROR, "The document is nested deeper than the limit", "flatten it"),
    DiagnosticCode(
        "wrong-type", ERROR, "A field has a type that it cannot have", "see `clia agents schema` for the shape of each field"
    ),
    DiagnosticCode(
        "scalar-for-list",
        WARNING,
        "A single value stands where a list is meant",
        "write it as a list with one item; it was read as one",
    ),
    DiagnosticCode("unreadable", ERROR, "A file or directory cannot be read", "check its permissions"),
    DiagnosticCode(
        "not-a-file", ERROR, "A directory or special file stands where a document should be", "move it away, or rename it"
    ),
    DiagnosticCode("not-a-directory", ERROR, "A file stands where the agent's directory should be", "move it away, or rename it"),
    DiagnosticCode(
        "symlink-escape", ERROR, "A symlink leaves the repository", "copy the files into the repository, or link inside it"
    ),
    DiagnosticCode(
        "untrusted-owner",
        WARNING,
        "A context outside every repository belongs to somebody else",
        "take ownership of it, or put it into a repository",
    ),
    DiagnosticCode(
        "unsafe-submodule-path",
        WARNING,
        "A submodule path in .gitmodules is unsafe and was ignored",
        "use a relative path below the repository",
    ),
    DiagnosticCode(
        "invalid-gitmodules",
        WARNING,
        ".gitmodules cannot be read as git configuration",
        "git itself will refuse it too: fix the line named",
    ),
    DiagnosticCode(
        "ambiguous-triad", WARNING, "Several documents of one kind stand in one directory", "keep one; the first by name is read"
    ),
    DiagnosticCode(
        "legacy-name",
        WARNING,
        "A document has the old name without `.triad`",
        "rename it: *.agent.triad.json, *.agenda.triad.json, *.agency.triad.json",
    ),
    # Inheritance
    DiagnosticCode(
        "inherits-missing", WARNING, "An inherited document does not exist", "fix the path: it is relative to the repository root"
    ),
    DiagnosticCode(
        "inherits-remote", ERROR, "An inherited document is a URL; nothing is ever fetched", "put the document into the repository"
    ),
    DiagnosticCode(
        "inherits-outside", ERROR, "An inherited path leaves every enclosing repository", "put the document into the repository"
    ),
    DiagnosticCode(
        "inherits-cycle",
        WARNING,
        "Documents inherit each other in a circle",
        "remove one of the references; each document is read once",
    ),
    DiagnosticCode(
        "inherits-kind-mismatch", ERROR, "A document inherits one of another kind", "inherit only documents of the same kind"
    ),
    DiagnosticCode(
        "inherits-legacy-place", WARNING, "`inherits` stands in `extensions`", "move it to the top level; it was honoured"
    ),
    DiagnosticCode(
        "inherits-legacy-name",
        WARNING,
        "An inherited document has the old name without `.triad`",
        "rename it, and change the reference",
    ),
    DiagnosticCode(
        "inherits-root-missing",
        WARNING,
        "An active agent does not inherit the root directives",
        "add the root directives document to `inherits`",
    ),
    # Root chains
    DiagnosticCode(
        "invalid-root-chain",
        ERROR,
        "A root chain cannot be used; nothing of this agent resolves",
        "fix the root chain: each root is a directory that contains the working path",
    ),
    DiagnosticCode(
        "root-without-agent",
        WARNING,
        "A root of the root chain has no directory of this agent",
        "create one there, or drop the root",
    ),
    DiagnosticCode(
        "guardrails-pinned",
        INFO,
        "Guardrails of a context outside the explicit chain still hold",
        "an agent may add guardrails, not drop them",
    ),
    DiagnosticCode(
        "guardrail-dropped",
        WARNING,
        "An explicit root chain leaves out a context with guardrails",
        "name that context in the chain; its guardrails hold either way",
    ),
    # Policy
    DiagnosticCode("slug-mismatch", ERROR, "The slug in the document is not the directory's name", "make them equal"),
    DiagnosticCode(
        "invalid-slug", ERROR, "A slug or directory name has the wrong form", "use lower-case letters, digits and single hyphens"
    ),
    DiagnosticCode(
        "guardrail-weakened", ERROR, "A guardrail is repeated with less force", "restore the force, or ask for a waiver"
    ),
    DiagnosticCode(
        "waiver-unapproved",
        ERROR,
        "A waiver has no approval that counts",
        "an operator approves it with an entry in the agency of the context that owns the guardrail",
    ),
    DiagnosticCode(
        "waiver-unknown-guardrail",
        WARNING,
        "A waiver names a guardrail that is not in force",
        "remove it, or fix the hash: `clia agents explain /guardrails/0` shows it",
    ),
    DiagnosticCode(
        "checklist-disabled",
        ERROR,
        "A checklist item is lowered to `disabled`",
        "restore its level, or remove it where it is declared",
    ),
    DiagnosticCode("schema", ERROR, "The document does not follow its schema", "see `clia agents schema`"),
    DiagnosticCode(
        "hidden-text",
        ERROR,
        "Text that a model will read holds characters a person cannot see",
        "remove the zero-width or bidirectional characters",
    ),
    DiagnosticCode("html-comment", WARNING, "Text that a model will read holds an HTML comment", "say it openly, or remove it"),
    DiagnosticCode("ansi-escape", ERROR, "Text that a model will read holds a terminal escape sequence", "remove it"),
    DiagnosticCode(
        "removed-without-archive",
        ERROR,
        "A triad was removed and not archived",
        "restore it from git, then use `clia agents consolidate`",
    ),
    DiagnosticCode(
        "history-shallow",
        INFO,
        "The clone is shallow: removed triads may be missed",
        "fetch the whole history (`git fetch --unshallow`)",
    ),
    DiagnosticCode(
        "history-unavailable",
        INFO,
        "No git history could be read: removed triads were not checked",
        "run it inside a git repository with git installed",
    ),
    DiagnosticCode(
        "merge-unstable",
        ERROR,
        "Two merges of the same files gave different bytes",
        "were files changed meanwhile? If not, it is a defect of clia: report it",
    ),
    DiagnosticCode(
        "origin-missing",
        ERROR,
        "A merged value cannot name where it came from",
        "it is a defect of clia: report it",
    ),
    DiagnosticCode(
        "export-too-long",
        WARNING,
        "An exported file is longer than a tool reads",
        "shorten the profile: Codex cuts AGENTS.md at 32 KiB",
    ),
    DiagnosticCode("agents-dir-unused", INFO, "`--agents-dir` was not needed: the path lies in a repository", "leave it out"),
)

CODES = {code.name: code for code in _TABLE}
_RANK = {ERROR: 0, WARNING: 1, INFO: 2}


def diagnostic(code: str, path: str | None, message: str, pointer: str | None = None, hint: str | None = None) -> Diagnostic:
    """A finding with its severity, and unless given its hint, from the table."""
    known = CODES[code]
    return Diagnostic(code, known.severity, path, pointer, message, known.hint if hint is None else hint)


def has_errors(found: Iterable[Diagnostic]) -> bool:
    return any(item.severity == ERROR for item in found)


def in_order(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each finding once, sorted by file, place and code: the same bytes on every run."""
    return sorted(
        dict.fromkeys(found),
        key=lambda item: (item.path or "", item.pointer or "", _RANK[item.severity], item.code, item.message),
    )
