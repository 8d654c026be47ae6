"""Smoke: does every agent of a tree resolve, the same way twice, with an origin for every value?

Invariant: the second run sees every directory listing backwards, so that an order that leaks into the answer is found.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from clia.errors import AgentNotFound, CliaError
from clia.identities.contexts import KINDS
from clia.identities.diagnostics import diagnostic, has_errors, in_order
from clia.identities.lint import history
from clia.identities.lint.report import Report
from clia.identities.roster import as_diagnostic, default_chain, is_reserved
from clia.identities.view import Lineage
from clia.values.pointer import leaves

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.file_interface import Entry, Files
    from clia.identities.history_interface import History
    from clia.identities.lint import Watch
    from clia.identities.roster import AgentTree, Target


class Resolved(NamedTuple):
    slug: str
    directory: str  # the innermost domain directory, or where it was looked for
    contexts: int
    ok: bool

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def smoke(files: Files, past: History, tree: AgentTree, watch: Watch | None = None) -> Report[Resolved]:
    """Resolves every agent of a tree, active or not, and checks that nothing was removed without an archive."""
    targets = [each for each in tree.targets if not is_reserved(each.slug)]
    agents: dict[tuple[str, str], Resolved] = {}
    found = list(tree.diagnostics)
    for number, target in enumerate(targets):
        if watch is not None:
            watch(number, len(targets), target.slug)
        try:
            resolved, findings = _resolve(files, target)
        except AgentNotFound:
            found += default_chain(files, target.place, target.slug)[1]
            continue
        except CliaError as error:
            findings = [as_diagnostic(error, target.place.path)]
            resolved = Resolved(target.slug, target.place.path, 0, ok=False)
        found += findings
        agents[(resolved.slug, resolved.directory)] = resolved
    found += history.removed(files, past, tree)
    return Report(tree.top.path, tuple(each for _, each in sorted(agents.items())), tuple(in_order(found)))


def _resolve(files: Files, target: Target) -> tuple[Resolved, list[Diagnostic]]:
    lineage = Lineage(files, target.place, target.slug)
    report = lineage.context()
    directory = report.chain[-1].directory
    found = [*report.diagnostics, *_without_origin(lineage, directory)]
    if _everything(lineage) != _everything(Lineage(_Backwards(files), target.place, target.slug)):
        found.append(diagnostic("merge-unstable", directory, f"two merges of {target.slug} at {directory} differ"))
    return Resolved(target.slug, directory, len(report.chain), ok=not has_errors(found)), found


def _everything(lineage: Lineage) -> str:
    merged = {kind: lineage.merged(kind).to_json(root_chain=True, show_origin=True) for kind in KINDS}
    return json.dumps([lineage.context().to_json(), merged], ensure_ascii=False)


def _without_origin(lineage: Lineage, directory: str) -> Iterator[Diagnostic]:
    for kind in KINDS:
        merged = lineage.merged(kind)
        origins = merged.origins()
        for pointer, _ in leaves(merged.document):
            if pointer not in origins:
                message = f"{lineage.slug} at {directory}: {pointer} of the {kind} document has no origin"
                yield diagnostic("origin-missing", directory, message, pointer)


class _Backwards:
    """The same files, every directory listed from its end."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.real, self.kind, self.read, self.owner = files.real, files.kind, files.read, files.owner

    def entries(self, directory: str) -> list[Entry] | None:
        found = self._files.entries(directory)
        return None if found is None else list(found)[::-1]
