"""Profiles of agents: resolved at the place of an agent, when it is spawned and later.

Invariant: an agent gets all guardrails of its identity and of the root directives at its place, or is not spawned, unless a person
accepts the loss and gives a reason. A sub-agent without an identity of its own works under its parent's, at its parent's place,
with at least the guardrails that the parent was spawned with.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from clia.errors import AgentNotFound, CliaError, Conflict, InvalidInput
from clia.files import FILE, DirectoryEntry, LocalFiles
from clia.git.ref_contents import files_in_head
from clia.identities.agent_places import (
    FrozenProfile,
    SpawnPlace,
    existing,
    guardrails_of,
    read_frozen,
    spawn_place,
    survey_at_place,
    without,
)
from clia.identities.contexts import AGENT, AGENTS, ROOT, candidates, root_contexts
from clia.identities.diagnostics import ERROR, Diagnostic, diagnostic
from clia.identities.guardrails.changes import allowances
from clia.identities.lineage import Lineage, trusted_owners
from clia.identities.merge_rules import projected_text
from clia.identities.roster import is_active
from clia.identities.working_path import below, inside, is_repository, linked_worktree, parents, survey
from clia.values import documents
from clia.values.slugs import check_slug, is_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from clia.identities.lineage import MergedDocument
    from clia.values.identity_documents import DocumentVersion


class NewProfile(NamedTuple):
    """What the record of a new agent says about its identity."""

    place: SpawnPlace
    profile: dict[str, Any] | None  # None: no identity, and no root directives
    notices: tuple[str, ...] = ()  # for the person who spawns it


class ResolvedProfile(NamedTuple):
    """The profile of an identity at a place."""

    slug: str | None
    document: Mapping[str, Any]
    findings: tuple[Diagnostic, ...]  # errors: guardrails could be missing

    def frozen(self, accept: str | None, shorten: Callable[[str], str]) -> dict[str, Any]:
        """The profile to record; ``Conflict`` if it is incomplete and no person accepted that."""
        profile: dict[str, Any] = {"slug": self.slug, "document": dict(self.document)}
        if not self.findings:
            return profile
        wrong = [shorten(item.message) for item in self.findings]
        if accept is not None:
            return {**profile, "incomplete": {"reason": accept, "findings": wrong}}
        raise incomplete(self.slug, wrong)


def incomplete(slug: str | None, wrong: list[str]) -> Conflict:
    """The error of an agent whose guardrails could be incomplete."""
    whose = "an agent without an identity" if slug is None else slug
    return Conflict(
        f"the profile of {whose} is incomplete, so guardrails could be missing: {wrong[0]}",
        code="incomplete-profile",
        hints=[*wrong[1:], "fix the document, then check it: clia agents lint", "or accept it: --accept-incomplete REASON"],
        fields={"slug": slug, "findings": wrong},
    )


class AgentPlace:
    """A directory of a space, seen as the place of one agent."""

    def __init__(
        self,
        path: str,
        at: SpawnPlace,
        agent: str | None = None,
        files: LocalFiles | None = None,
        proposal: DocumentVersion | None = None,
    ) -> None:
        """``agent``: documents in a worktree count only if it is this agent's; None: those of any worktree.

        ``proposal``: read this text instead of the document at its path.
        """
        self.files = files = files or LocalFiles()
        self.at = at
        start = files.real(os.path.abspath(path))
        worktree = linked_worktree(files, start)
        top = next((parent for parent in parents(start) if is_repository(files, parent)), None)
        trusted = trusted_owners()
        if proposal is not None:
            tops = (top,) if worktree is None else (worktree.top, worktree.main(files))
            self.files = files = ProposedFiles(proposal, tuple(item for item in tops if item is not None))
        if worktree is not None and (agent is None or worktree.agent == agent):
            self.survey = survey_at_place(files, start, worktree, at.path, trusted)
            return
        if worktree is not None:
            top = worktree.main(files)
            start = worktree.common
        self.survey = survey(files, start if top is None else existing(files, top, at.path), trusted=trusted)

    def lineage(self, slug: str | None) -> Lineage:
        """The lineage of an identity here."""
        return Lineage(self.files, self.survey, slug)

    def resolve(self, slug: str | None) -> ResolvedProfile:
        """The profile of an identity here; without a slug, that of an agent without an identity."""
        merged = self.lineage(slug).profile()
        resolved = ResolvedProfile(slug, merged.document, (*_errors(merged), *self.missing_roots()))
        return self._with_present_guardrails(resolved) if isinstance(self.files, ProposedFiles) else resolved

    def _with_present_guardrails(self, proposed: ResolvedProfile) -> ResolvedProfile:
        """A profile with a proposed document, and the guardrails without it: a trial loses none."""
        present = Lineage(LocalFiles(), self.survey, proposed.slug).profile()
        rules = joined(guardrails_of(present.document), guardrails_of(proposed.document))
        document = {**proposed.document, **({"guardrails": rules} if rules else {})}
        return proposed._replace(document=document, findings=(*proposed.findings, *_errors(present)))

    def root_findings(self) -> list[Diagnostic]:
        """Why root rules could be missing."""
        return [*_errors(self.lineage(None).profile()), *self.missing_roots()]

    def missing_roots(self) -> list[Diagnostic]:
        """Root rules that the last commit of an enclosing repository has, but its directory does not."""
        roots, _ = root_contexts(self.files, self.survey)
        present = {context.directory for context in roots if context.documents[AGENT] is not None}
        rules = guardrails_of(self.lineage(None).profile().document)
        findings: list[Diagnostic] = []
        for directory, home, committed in self._committed_roots():
            if directory not in present:
                findings.append(diagnostic("root-missing", home, f"{home} is in the last commit, but not in the directory"))
                continue
            for item in without(committed, rules):
                message = f"{home} lacks a guardrail of the last commit: {projected_text(item)}"
                findings.append(diagnostic("root-weakened", home, message))
        return findings

    def _committed_roots(self) -> Iterable[tuple[str, str, list[Any]]]:
        """Each directory with root directives in the last commit of a repository around it, where they should be, and their rules.

        All repositories around a directory count: an agent could hide committed rules by a repository of its own.
        """
        for top in self.survey.repositories:
            homes = {below(item, f"{AGENTS}/{ROOT}"): item for item in self.survey.ancestors if inside(item, top)}
            paths = {home: home.removeprefix(top).lstrip("/") for home in homes}
            try:
                files = files_in_head(top, list(paths.values()), documents.MAX_BYTES)
            except CliaError:  # not a repository of git, or one that git does not trust
                continue
            for home, directory in homes.items():
                inner = files.get(paths[home], {})
                chosen = candidates([DirectoryEntry(name, FILE) for name in inner], AGENT)[0]
                if chosen:
                    yield directory, home, _rules_in(inner[chosen[0][0]], home)


def _rules_in(data: bytes | None, path: str) -> list[Any]:
    """The guardrails of a committed document; none if it cannot be read, which is reported where it is read from the directory."""
    try:
        return guardrails_of(documents.parse(data or b"", path))
    except CliaError:
        return []


def _errors(merged: MergedDocument) -> list[Diagnostic]:
    return [item for item in merged.diagnostics if item.severity == ERROR]


class ProposedFiles(LocalFiles):
    """The files of a repository, with the proposed text of one document."""

    def __init__(self, proposal: DocumentVersion, tops: tuple[str, ...]) -> None:
        self._data = proposal.text.encode()
        self._paths = {self.real(below(top, proposal.path)) for top in tops}
        self.was_read = False

    def read(self, path: str, limit: int) -> bytes | None:
        if super().read(path, 0) is None or self.real(path) not in self._paths:
            return super().read(path, limit)
        self.was_read = True
        return self._data


OUTSIDE = ""
"""No agent's name: documents in worktrees do not count."""


def check_reason(accept: str | None) -> None:
    """Refuse an empty reason for an incomplete profile."""
    if accept is not None and not accept.strip():
        raise InvalidInput("the reason for an incomplete profile must not be empty", code="empty-value")


def spawn_profile(  # what a spawn says about the identity of the new agent
    path: str,
    name: str,
    slug: str | None,
    parent: FrozenProfile | None,
    accept: str | None,
    shorten: Callable[[str], str],
    proposal: DocumentVersion | None = None,
) -> NewProfile:
    """The profile of the identity ``slug``, else of the one with the agent's name, else of the parent's identity.

    ``parent`` is what the record of the parent says; without it, an agent in whose worktree the path is counts for the place.
    ``accept`` is the reason to spawn with an incomplete profile. ``proposal``: work under its identity, resolved with its text.
    """
    check_reason(accept)
    above = parent or _owner_of(path)
    if proposal is None:
        new = _new_profile(AgentPlace(path, _place_of(path, above)), name, slug, parent, accept, shorten)
    else:
        new = _tried(path, _place_of(path, above), proposal, slug, accept, shorten)
    return new if above is None or new.profile is None else new._replace(profile=_as_bound(new.profile, above))


def _tried(
    path: str, at: SpawnPlace, proposal: DocumentVersion, slug: str | None, accept: str | None, shorten: Callable[[str], str]
) -> NewProfile:
    """The profile with the proposed text of a document."""
    if slug not in (None, proposal.slug):
        raise InvalidInput(
            f"version {proposal.version[:12]} is a document of {proposal.slug}, not of {slug}",
            code="wrong-identity",
            hints=[f"leave out the identity, or use: --identity {proposal.slug}"],
            fields={"field": "slug", "slug": slug, "document": proposal.path},
        )
    place = AgentPlace(path, at, proposal=proposal)
    new = _named(place, proposal.slug, accept, shorten)
    if not (isinstance(place.files, ProposedFiles) and place.files.was_read):
        raise Conflict(
            f"{proposal.path} does not count for an agent that is spawned here, so its proposed text cannot be tried",
            code="document-not-used",
            hints=[
                "spawn it where the document is: in its directory, or below",
                "the document must exist: a proposal changes its text",
            ],
            fields={"document": proposal.path, "version": proposal.version},
        )
    return new._replace(profile={**(new.profile or {}), "proposal": proposal.to_json()})


def _as_bound(profile: dict[str, Any], above: FrozenProfile) -> dict[str, Any]:
    """A profile of what an agent spawns. A rule that allows calls counts only if the agent has it, which may edit documents."""
    document = profile.get("document")
    allowed = [rule for item in guardrails_of((above.profile or {}).get("document")) for rule in allowances(item)]
    items = []
    for item in guardrails_of(document):
        new = without(allowances(item), allowed)
        items.append({**item, "rules": without(_rules_of(item), new)} if new else item)
    return profile if items == guardrails_of(document) else {**profile, "document": {**(document or {}), "guardrails": items}}


def _rules_of(item: dict[str, Any]) -> list[Any]:
    return item["rules"] if isinstance(item["rules"], list) else [item["rules"]]


def _owner_of(path: str) -> FrozenProfile | None:
    """The agent in whose worktree a path is."""
    files = LocalFiles()
    worktree = linked_worktree(files, files.real(os.path.abspath(path)))
    return None if worktree is None else read_frozen(worktree)


def _new_profile(
    place: AgentPlace, name: str, slug: str | None, parent: FrozenProfile | None, accept: str | None, shorten: Callable[[str], str]
) -> NewProfile:
    if slug is not None:
        return _named(place, check_slug(slug), accept, shorten)
    if is_slug(name):
        try:
            return _named(place, name, accept, shorten)
        except AgentNotFound:
            pass
    if parent is not None and parent.profile is not None:
        return NewProfile(place.at, _of_parent(place, parent, accept, shorten))
    resolved = place.resolve(None)
    is_bound = resolved.findings or guardrails_of(resolved.document)
    return NewProfile(place.at, resolved.frozen(accept, shorten) if is_bound else None)


def _place_of(path: str, above: FrozenProfile | None) -> SpawnPlace:
    """The place of a new agent: where it is spawned, but not outside of the place of the agent that spawns it."""
    files = LocalFiles()
    current_place = spawn_place(files, files.real(os.path.abspath(path)))
    outer = "" if above is None else above.path
    return current_place if not outer or inside(f"/{current_place.path}", f"/{outer}") else current_place._replace(path=outer)


def _named(place: AgentPlace, slug: str, accept: str | None, shorten: Callable[[str], str]) -> NewProfile:
    resolved = place.resolve(slug)
    status = resolved.document.get("status")
    notices = () if is_active(status) else (f"the identity {slug} is not active: its status is {status}",)
    return NewProfile(place.at, resolved.frozen(accept, shorten), notices)


def _of_parent(place: AgentPlace, parent: FrozenProfile, accept: str | None, shorten: Callable[[str], str]) -> dict[str, Any]:
    """The current profile of the parent's identity with the guardrails that it has lost; the parent's if it cannot be read."""
    recorded = {key: value for key, value in (parent.profile or {}).items() if key != "type"}
    before = recorded.get("document")
    roots = ResolvedProfile(parent.slug, {}, tuple(place.root_findings()))
    accepted = roots.frozen(accept, shorten).get("incomplete")  # root rules bind sub-agents, too
    try:
        current = place.resolve(parent.slug)
    except (AgentNotFound, InvalidInput):
        current = place.resolve(None)
        is_usable = False
    else:
        is_usable = not current.findings
    document = dict(current.document) if is_usable else dict(before) if isinstance(before, dict) else {}
    document["guardrails"] = joined(guardrails_of(before), guardrails_of(current.document))
    profile = {"slug": parent.slug, "document": document} if is_usable else {**recorded, "document": document}
    return profile if accepted is None else {**profile, "incomplete": accepted}


def joined(before: list[Any], now: list[Any]) -> list[Any]:
    """The guardrails of today, after those that were there before and are not any more."""
    return [*without(before, now), *now]
