"""The merged profile as a prompt: what every Markdown export says.

Invariant: a copy is made only of what could be read whole; only the fields of the table are exported, guardrails first;
origins are paths inside the tree, never of the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.errors import InvalidDocument
from clia.identities.contexts import AGENTS
from clia.identities.diagnostics import ERROR
from clia.identities.exports import markdown, text
from clia.identities.places import depth, inside
from clia.values.canonical import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.identities.view import MergedDocument

FIELDS = (
    "guardrails",
    "role",
    "purpose",
    "responsibilities",
    "principles",
    "focusDomains",
    "operationModes",
    "checklists",
    "sections",
)


def check_whole(merged: MergedDocument) -> None:
    """Refuses a document with a layer that could not be used: it could be the one with the guardrails."""
    wrong = [each.message for each in merged.diagnostics if each.severity == ERROR]
    if wrong:
        raise InvalidDocument(
            f"the {merged.kind} document of {merged['slug']} cannot be read whole: {wrong[0]}",
            hints=[*wrong[1:], "a copy could lack guardrails, so nothing was written; see clia agents lint"],
            fields={"slug": merged["slug"], "findings": wrong},
        )


def body(merged: MergedDocument, opening: str, shown: Callable[[str], str], level: int) -> str:
    """The profile as Markdown."""
    title = merged.get("title") or merged["slug"]
    return markdown.render(title, opening, markdown.merged_sections(merged, FIELDS, shown), level)


def summary(merged: MergedDocument) -> str:
    """The agent in one line: the first paragraph of its purpose, else its role or title."""
    for field in ("purpose", "role", "title"):
        value = merged.get(field)
        if isinstance(value, str) and value.strip():
            return text.line(text.paragraphs(value)[0])
    return f"The agent {merged['slug']}"


def content_hash(merged: MergedDocument) -> str:
    """SHA-256 of the merged profile; the same wherever the tree is checked out."""
    document: dict[str, Any] = dict(merged.document)
    if "waivedGuardrails" in document:
        marks = document["waivedGuardrails"]
        document["waivedGuardrails"] = [{key: mark[key] for key in mark if key != "declaredIn"} for mark in marks]
    return digest(document)


def shown_from(root: str, repositories: Sequence[str]) -> Callable[[str], str]:
    """How a file is named in an export: relative to ``root``, without a name of any directory above the tree.

    ``repositories`` enclose the working path, outermost first.
    """
    tree = repositories[0] if repositories else None

    def shown(path: str) -> str:
        if inside(path, root):
            return _below(path, root)
        domain, found, rest = path.rpartition(f"/{AGENTS}/")
        if found and inside(root, domain or "/"):
            return "../" * (depth(root) - depth(domain or "/")) + f"{AGENTS}/{rest}"
        if tree is not None and inside(path, tree):
            return _relative(path, root) if inside(root, tree) else _below(path, tree)
        return f"{AGENTS}/{rest}" if found else path.rpartition("/")[2]

    return shown


def _below(path: str, root: str) -> str:
    return path.removeprefix(root).removeprefix("/")


def _relative(path: str, root: str) -> str:
    ours, theirs = root.split("/"), path.split("/")
    common = 0
    while common < min(len(ours), len(theirs)) and ours[common] == theirs[common]:
        common += 1
    return "/".join([*[".."] * (len(ours) - common), *theirs[common:]])
