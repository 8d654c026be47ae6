"""Diagnostics: the table of codes, and the record of one finding.

The severity, title and hint of a code are defined here only; text, JSON, SARIF and GitHub output and the reference
documentation are generated from this table.
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
    """One finding about a document."""

    code: str  # one of the codes of diagnostics
    severity: str  # `error`, `warning` or `info`
    path: str | None  # the file or directory that it is about
    pointer: str | None  # JSON pointer into the file; null: the whole file
    message: str  # one sentence for a person
    hint: str  # what to do

    def to_json(self) -> dict[str, str | None]:
        return self._asdict()


_TABLE = (
    # Reading
    ("invalid-json", ERROR, "The document is not valid, unambiguous JSON", "fix it; the other layers were merged without it"),
    ("document-too-large", ERROR, "The document is larger than the limit", "split it, or move old entries to an archive"),
    ("document-too-deep", ERROR, "The document is nested deeper than the limit", "flatten it"),
    ("wrong-type", ERROR, "A field has the wrong type", "`clia agents schema` shows the type of each field"),
    ("scalar-for-list", WARNING, "A single value is used where a list is expected", "write it as a list with one item"),
    ("unreadable", ERROR, "A file or directory cannot be read", "check its permissions"),
    ("not-a-file", ERROR, "A document path is a directory or a special file", "move it away, or rename it"),
    ("not-a-directory", ERROR, "The identity's directory is a file", "move it away, or rename it"),
    ("symlink-escape", ERROR, "A symlink leaves the repository", "copy the files into the repository, or link inside it"),
    ("untrusted-owner", WARNING, "A context outside every repository belongs to another user",
     "take ownership of it, or move it into a repository"),
    ("unsafe-submodule-path", WARNING, "A submodule path in .gitmodules is unsafe and was ignored",
     "use a relative path below the repository"),
    ("invalid-gitmodules", WARNING, ".gitmodules is not valid git configuration", "fix the line; git refuses it too"),
    ("ambiguous-triad", WARNING, "A directory has several agent or agenda documents", "keep one; the first by name is used"),
    ("legacy-name", WARNING, "A document uses the old name without `.triad`",
     "rename it: *.agent.triad.json, *.agenda.triad.json, *.agency.triad.json"),
    # Inheritance
    ("inherits-missing", WARNING, "An inherited document does not exist", "fix the path: it is relative to the repository root"),
    ("inherits-remote", ERROR, "An inherited document is a URL; URLs are never fetched", "copy the document into the repository"),
    ("inherits-outside", ERROR, "An inherited path leaves every enclosing repository", "copy the document into the repository"),
    ("inherits-cycle", WARNING, "Documents inherit each other in a cycle", "remove one of the references; each is read once"),
    ("inherits-kind-mismatch", ERROR, "A document inherits one of another kind", "inherit only documents of the same kind"),
    ("inherits-legacy-place", WARNING, "`inherits` is inside `extensions`", "move it to the top level; it was applied"),
    ("inherits-legacy-name", WARNING, "An inherited document uses the old name without `.triad`",
     "rename it, and update the reference"),
    ("inherits-root-missing", WARNING, "An active identity does not inherit the root directives, except for their guardrails",
     "add the root directives document to `inherits`"),
    # Root rules
    ("root-symlink", ERROR, "The root directives are behind a symlink, so others could take their place",
     "replace the link with the directory or file"),
    ("root-missing", ERROR, "The last commit has root directives that are not in the working directory",
     "restore them: git checkout HEAD -- .clia/agents/root"),
    ("root-weakened", ERROR, "Root directives in the working directory lack a guardrail of the last commit",
     "restore it: git checkout HEAD -- .clia/agents/root; or commit the change"),
    ("guardrails-missing", ERROR, "A guardrail that the agent was spawned with is missing",
     "restore it where it was declared; `clia reprofile AGENT` records an approved change"),
    ("agent-record-unreadable", ERROR, "The record of the agent whose worktree this is cannot be read",
     "fetch it from the clone that spawned the agent: clia sync, or clia init"),
    # Root chains
    ("invalid-root-chain", ERROR, "A root chain is invalid, so the identity does not resolve",
     "fix the root chain: each root must be a directory that contains the working path"),
    ("root-without-agent", WARNING, "A root of the root chain has no directory for this identity",
     "create one, or remove the root"),
    ("guardrails-pinned", INFO, "Guardrails of a context outside the explicit chain still apply",
     "an identity can add guardrails, not remove them"),
    ("guardrail-dropped", WARNING, "An explicit root chain omits a context with guardrails",
     "add the context to the chain; its guardrails apply either way"),
    # Policy
    ("slug-mismatch", ERROR, "The slug in the document differs from the directory name", "make them equal"),
    ("invalid-slug", ERROR, "A slug or directory name is invalid", "use lower-case letters, digits and single hyphens"),
    ("invalid-rule", ERROR, "A rule of a guardrail does not parse, so it asks a person about everything it could be about",
     "fix the rule; `clia agents rules` lists the rules with their problems"),
    ("unmatchable-rule", WARNING, "A rule of a guardrail can never match, so it enforces nothing",
     "fix its `match`; test it with `clia agents explain-rule`"),
    ("guardrail-weakened", ERROR, "A guardrail is repeated in a weaker form", "restore its strength, or request a waiver"),
    ("guardrail-removed", ERROR, "A document in an agent's worktree lacks a guardrail of the original",
     "restore it, or merge the branch that has it; landing the loss needs a person's approval"),
    ("waiver-unapproved", ERROR, "A waiver is not approved",
     "a person approves the change that adds it, or an operator where the guardrail is: clia agents journal --waives HASH"),
    ("waiver-unknown-guardrail", WARNING, "A waiver names a guardrail that is not in force",
     "remove it, or fix the hash: `clia agents explain /guardrails/0` shows it"),
    ("checklist-disabled", ERROR, "A checklist item is set to `disabled`", "restore its level, or remove it where it is declared"),
    ("schema", ERROR, "The document does not match its schema", "see `clia agents schema`"),
    ("hidden-text", ERROR, "Text for a model contains invisible characters", "remove the zero-width or bidirectional characters"),
    ("html-comment", WARNING, "Text for a model contains an HTML comment", "write it as visible text, or remove it"),
    ("ansi-escape", ERROR, "Text for a model contains a terminal escape sequence", "remove it"),
    ("removed-without-archive", ERROR, "A document was removed without an archive",
     "restore it from git, then use `clia agents consolidate`"),
    ("history-shallow", INFO, "The clone is shallow: removed documents may be missed",
     "fetch the whole history: git fetch --unshallow"),
    ("history-unavailable", INFO, "The git history is unavailable: removed documents were not checked",
     "run the command inside a git repository, with git installed"),
    ("merge-unstable", ERROR, "Two merges of the same files gave different results",
     "if no file changed in between, this is a bug in clia: report it"),
    ("origin-missing", ERROR, "A merged value has no origin", "this is a bug in clia: report it"),
    ("export-too-long", WARNING, "An exported file is longer than a tool reads",
     "shorten the profile: Codex truncates AGENTS.md at 32 KiB"),
    ("agents-dir-unused", INFO, "`--agents-dir` is unused: the path is inside a repository", "omit the option"),
)  # fmt: skip

CODES = {row[0]: DiagnosticCode(*row) for row in _TABLE}
_RANK = {ERROR: 0, WARNING: 1, INFO: 2}


def diagnostic(code: str, path: str | None, message: str, pointer: str | None = None, hint: str | None = None) -> Diagnostic:
    """A finding with the severity from the table, and its hint unless one is given."""
    entry = CODES[code]
    return Diagnostic(code, entry.severity, path, pointer, message, entry.hint if hint is None else hint)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(item.severity == ERROR for item in diagnostics)


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each finding once, sorted by file, pointer, severity and code, so that output is stable."""
    return sorted(
        dict.fromkeys(diagnostics),
        key=lambda item: (item.path or "", item.pointer or "", _RANK[item.severity], item.code, item.message),
    )
