"""Waivers: guardrails that an operator has suspended, on the record.

Invariant: a waiver counts only if every context that owns the guardrail has an agency entry that approves it: one by a profile of
type ``operator`` that the waiver names, or one that records a person's decision on exactly this waiver. Either names the commit of
a decision that is in the repository and waives this guardrail. A waived guardrail stays in the merged document and is marked; an
unapproved waiver changes nothing.
"""

from __future__ import annotations

import os.path
from typing import Any, NamedTuple

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
    from collections.abc import Callable, Iterator, Mapping

    from clia.identities.lineage import MergedDocument
    from clia.identities.merge import Source


def guardrail_digest(item: Any) -> str:
    """The hash by which a waiver names a guardrail."""
    return text_digest(projected(item))


def check_waivers(merged: MergedDocument, approvals: Approvals) -> tuple[list[tuple[dict[str, Any], Source]], list[Diagnostic]]:
    """The mark of each waived guardrail with the source of its waiver, and a diagnostic for each waiver that does not count.

    A mark has the SHA-256 of the guardrail's text, the text, the SHA-256 of the agency entries that its waivers name, and the
    decisions that approve it.
    """
    marks: list[tuple[dict[str, Any], Source]] = []
    diagnostics: list[Diagnostic] = []
    owners = _guardrail_owners(merged, approvals)
    for guardrail, declared in _declared_waivers(merged).items():
        first = declared[0].source
        path, pointer = merged.layers[first[0]].path, first[1]
        if guardrail not in owners:
            message = f"{path}: no guardrail has the hash {guardrail[:16]}…"
            diagnostics.append(diagnostic("waiver-unknown-guardrail", path, message, pointer))
            continue
        text, places = owners[guardrail]
        homes = {approvals.home(merged.layers[waiver.source[0]].path): waiver for waiver in declared}
        needed = sorted({place for place in places if place not in homes} or places)
        hashes = sorted({waiver.approval for waiver in declared if waiver.approval})
        decisions = {place: approvals.decisions(place, guardrail, homes) for place in needed}
        missing = [
            place for place in needed if not decisions[place] and not any(approvals.has(place, name, guardrail) for name in hashes)
        ]
        if missing:
            message = f"{path}: the waiver of {text!r} is not approved by an operator in the agency of {', '.join(missing)}"
            diagnostics.append(diagnostic("waiver-unapproved", path, message, pointer))
        else:
            mark = {"guardrail": guardrail, "text": text, "approvals": hashes, "declaredIn": path}
            decided = sorted(set().union(*decisions.values()))
            marks.append(({**mark, "decisions": decided} if decided else mark, first))
    return marks, diagnostics


class DeclaredWaiver(NamedTuple):
    """A waiver in a document."""

    approval: str  # hash of the agency entry that it names, or empty
    decision: str  # commit of the decision that it names, or empty: any on this waiver
    source: Source


def _declared_waivers(merged: MergedDocument) -> dict[str, list[DeclaredWaiver]]:
    """The waivers of each guardrail, by its hash."""
    waivers: dict[str, list[DeclaredWaiver]] = {}
    for waiver, taken in _items(merged, "waivers"):
        if isinstance(waiver, dict) and isinstance(guardrail := waiver.get("guardrail"), str):
            names = [name if isinstance(name := waiver.get(key), str) else "" for key in ("approval", "decision")]
            for source in (taken.source, *taken.also):  # each document with it declares it
                waivers.setdefault(guardrail, []).append(DeclaredWaiver(names[0], names[1], source))
    return waivers


DECIDED, WAIVES = "x-decision", "x-waives"
"""Extensions of an agency entry about a decision: its commit, and the waivers that it approves."""


def waived_in(home: str, domain: str) -> str:
    """How an agency entry of a domain directory names the directory of the document with a waiver."""
    return os.path.relpath(home, domain)


def guardrail_owners(merged: MergedDocument, approvals: Approvals, guardrail: str) -> tuple[set[str], set[str]]:
    """The directories whose documents state a guardrail, and those whose documents waive it."""
    declared = _declared_waivers(merged).get(guardrail, ())
    homes = {approvals.home(merged.layers[waiver.source[0]].path) for waiver in declared}
    return _guardrail_owners(merged, approvals).get(guardrail, ("", set()))[1], homes


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
        self._reads_commits = files.is_disk  # not of a tree, which has no repository around it
        self._is_operator = is_operator  # (domain directory, slug)
        self._entries: dict[str, list[tuple[dict[str, Any], str]]] = {}

    def home(self, path: str) -> str:
        """The real directory of a document."""
        return self._files.real(path).rpartition("/")[0] or "/"

    def has(self, home: str, approval: str, guardrail: str) -> bool:
        """Whether the domain that owns ``home`` has an operator's entry with this hash, whose decision waives a guardrail."""
        domain = self.domain(home)
        entries = {digest(entry): (entry, author) for entry, author in self._entries_of(domain)}
        entry, author = entries.get(approval, ({}, ""))
        decision = _about(entry).get(DECIDED)
        is_named = isinstance(decision, str) and any(item.get("guardrail") == guardrail for item in _waives(entry))
        return is_named and self._is_operator(domain, author) and self._is_decided(domain, str(decision), guardrail, None)

    def decisions(self, home: str, guardrail: str, homes: Mapping[str, DeclaredWaiver]) -> set[str]:
        """The decisions that the agency of the domain that owns ``home`` records on waivers of a guardrail, by their directory."""
        domain = self.domain(home)
        wanted = {waived_in(place, domain): waiver.decision for place, waiver in homes.items()}
        decided: set[str] = set()
        for entry, _ in self._entries_of(domain):
            decision = _about(entry).get(DECIDED)
            for item in _waives(entry) if isinstance(decision, str) and decision else ():
                place = item.get("in") if item.get("guardrail") == guardrail else None
                if isinstance(place, str) and wanted.get(place) in ("", decision):
                    waived = next(home for home in homes if waived_in(home, domain) == place)
                    if self._is_decided(domain, str(decision), guardrail, waived):
                        decided.add(str(decision))
        return decided

    def _is_decided(self, domain: str, decision: str, guardrail: str, home: str | None) -> bool:
        """Whether the commit of a decision is here, and waives a guardrail at the directory of a waiver."""
        if not self._reads_commits:
            return False
        repository = next(iter(repositories_above(self._files, domain)), None)
        if repository is None:
            return False
        from clia.identities.guardrails.waiver_decisions import is_decided  # libgit2: only where a waiver is approved

        directory = None if home is None else self.domain(home)
        inner = None if directory is None else os.path.relpath(directory, repository)
        return is_decided(repository, decision, guardrail, None if inner is None or inner.startswith("..") else inner)

    def domain(self, home: str) -> str:
        """The domain directory of an identity's directory; for another directory, the repository."""
        before, agents, _ = home.rpartition(f"/{AGENTS}/")
        return (before or "/") if agents else next(iter(repositories_above(self._files, home)), home)

    def _entries_of(self, domain: str) -> list[tuple[dict[str, Any], str]]:
        if domain not in self._entries:
            self._entries[domain] = list(self._read(domain))
        return self._entries[domain]

    def _read(self, domain: str) -> Iterator[tuple[dict[str, Any], str]]:
        """Every agency entry in one domain directory, with its author."""
        agents = below(domain, AGENTS)
        for agent in sorted(self._files.entries(agents) or ()):
            if not is_slug(agent.name):
                continue
            home = f"{agents}/{agent.name}"
            names, _ = candidates(self._files.entries(home) or (), AGENCY)
            for entry in (entry for name, kind in names if kind == FILE for entry in self._agency_entries(f"{home}/{name}")):
                yield entry, _author(entry, agent.name)

    def _agency_entries(self, path: str) -> list[dict[str, Any]]:
        try:
            entries = documents.parse(self._files.read(path, documents.MAX_BYTES) or b"", path).get("entries")
        except CliaError:
            return []  # reported when that agency is read; it approves nothing
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _about(entry: Mapping[str, Any]) -> dict[str, Any]:
    extensions = entry.get("extensions")
    return extensions if isinstance(extensions, dict) else {}


def _waives(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    waives = _about(entry).get(WAIVES)
    return [item for item in waives if isinstance(item, dict)] if isinstance(waives, list) else []


def _author(entry: dict[str, Any], fallback: str) -> str:
    """The author of an entry: the first contributor it names, or the identity of the agency."""
    contributions = entry.get("contributions")
    objects = [item for item in contributions if isinstance(item, dict)] if isinstance(contributions, list) else []
    return next((item["by"] for item in objects if isinstance(item.get("by"), str)), fallback)
