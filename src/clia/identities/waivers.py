"""Waivers: guardrails that an operator has suspended, on the record.

Invariant: a waiver counts only if every context that owns the guardrail has an agency entry that approves it, made by a profile of
type ``operator``. A waived guardrail stays in the merged document and is marked; an unapproved waiver changes nothing.
"""

from __future__ import annotations

from typing import Any

from clia.errors import CliaError
from clia.files import FILE, LocalFiles
from clia.identities.contexts import AGENCY, AGENTS, candidates
from clia.identities.diagnostics import Diagnostic, diagnostic
from clia.identities.merge import MergedItems, TakenValue
from clia.identities.merge_rules import projected_text as projected
from clia.identities.working_path import below, repositories_above
from clia.values import documents
from clia.values.canonical import digest, text_digest
from clia.values.slugs import is_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.identities.lineage import MergedDocument
    from clia.identities.merge import Source


def guardrail_digest(item: Any) -> str:
    """The hash by which a waiver names a guardrail."""
    return text_digest(projected(item))


def check_waivers(merged: MergedDocument, approvals: Approvals) -> tuple[list[tuple[dict[str, Any], Source]], list[Diagnostic]]:
    """The mark of each waived guardrail with the source of its waiver, and a diagnostic for each waiver that does not count.

    A mark has the SHA-256 of the guardrail's text, the text, and the SHA-256 of each approving agency entry.
    """
    marks: list[tuple[dict[str, Any], Source]] = []
    diagnostics: list[Diagnostic] = []
    owners = _guardrail_owners(merged, approvals)
    for guardrail, declared in _declared_waivers(merged).items():
        first = declared[0][1]
        path, pointer = merged.layers[first[0]].path, first[1]
        if guardrail not in owners:
            message = f"{path}: no guardrail has the hash {guardrail[:16]}…"
            diagnostics.append(diagnostic("waiver-unknown-guardrail", path, message, pointer))
            continue
        text, places = owners[guardrail]
        declaring = {approvals.home(merged.layers[source[0]].path) for _, source in declared}
        needed = sorted({place for place in places if place not in declaring} or places)
        hashes = sorted({approval for approval, _ in declared})
        missing = [place for place in needed if not any(approvals.has(place, approval) for approval in hashes)]
        if missing:
            message = f"{path}: the waiver of {text!r} is not approved by an operator in the agency of {', '.join(missing)}"
            diagnostics.append(diagnostic("waiver-unapproved", path, message, pointer))
        else:
            marks.append(({"guardrail": guardrail, "text": text, "approvals": hashes, "declaredIn": path}, first))
    return marks, diagnostics


def _declared_waivers(merged: MergedDocument) -> dict[str, list[tuple[str, Source]]]:
    """Guardrail hash -> (approval hash, source of the waiver)."""
    waivers: dict[str, list[tuple[str, Source]]] = {}
    for waiver, taken in _items(merged, "waivers"):
        if isinstance(waiver, dict) and isinstance(guardrail := waiver.get("guardrail"), str):
            approval = waiver.get("approval")
            waivers.setdefault(guardrail, []).append((approval if isinstance(approval, str) else "", taken.source))
    return waivers


def _guardrail_owners(merged: MergedDocument, approvals: Approvals) -> dict[str, tuple[str, set[str]]]:
    """Guardrail hash -> its text and the directories whose documents declare it."""
    owners: dict[str, tuple[str, set[str]]] = {}
    for item, taken in _items(merged, "guardrails"):
        places = {approvals.home(merged.layers[layer].path) for layer, _ in [taken.source, *taken.also]}
        # A string and an object may have the same text; then both directories own it.
        owners.setdefault(guardrail_digest(item), (projected(item), set()))[1].update(places)
    return owners


def _items(merged: MergedDocument, field: str) -> Iterator[tuple[Any, TakenValue]]:
    provenance = merged.provenance.get(field)
    return zip(merged[field], provenance.items, strict=True) if isinstance(provenance, MergedItems) else iter(())


class Approvals:
    """Looks up approving entries; reads each agency once."""

    def __init__(self, files: LocalFiles, is_operator: Callable[[str, str], bool]) -> None:
        self._files = files
        self._is_operator = is_operator  # (domain directory, slug)
        self._entries: dict[str, dict[str, str]] = {}

    def home(self, path: str) -> str:
        """The real directory of a document."""
        return self._files.real(path).rpartition("/")[0] or "/"

    def has(self, home: str, approval: str) -> bool:
        """Whether the domain that owns ``home`` has an operator's entry with this hash."""
        before, agents, _ = home.rpartition(f"/{AGENTS}/")
        domain = (before or "/") if agents else next(iter(repositories_above(self._files, home)), home)
        if domain not in self._entries:
            self._entries[domain] = dict(self._read(domain))
        author = self._entries[domain].get(approval)
        return author is not None and self._is_operator(domain, author)

    def _read(self, domain: str) -> Iterator[tuple[str, str]]:
        """(hash, author) of every agency entry in one domain directory."""
        agents = below(domain, AGENTS)
        for agent in sorted(self._files.entries(agents) or ()):
            if not is_slug(agent.name):
                continue
            home = f"{agents}/{agent.name}"
            names, _ = candidates(self._files.entries(home) or (), AGENCY)
            for entry in (entry for name, kind in names if kind == FILE for entry in self._agency_entries(f"{home}/{name}")):
                yield digest(entry), _author(entry, agent.name)

    def _agency_entries(self, path: str) -> list[dict[str, Any]]:
        try:
            entries = documents.parse(self._files.read(path, documents.MAX_BYTES) or b"", path).get("entries")
        except CliaError:
            return []  # reported when that agency is read; it approves nothing
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _author(entry: dict[str, Any], fallback: str) -> str:
    """The author of an entry: the first contributor it names, or the identity of the agency."""
    contributions = entry.get("contributions")
    objects = [item for item in contributions if isinstance(item, dict)] if isinstance(contributions, list) else []
    return next((item["by"] for item in objects if isinstance(item.get("by"), str)), fallback)
