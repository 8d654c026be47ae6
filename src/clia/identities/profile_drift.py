"""The difference between the profile in an agent's record and its identity at its place now, and the instructions from both.

Invariant: an agent is bound by the guardrails of both. A record is redacted, so the present profile is compared redacted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.errors import CliaError
from clia.identities.agent_places import FrozenProfile, SpawnPlace, guardrails_of, without
from clia.identities.agent_profiles import OUTSIDE, AgentPlace, ResolvedProfile, check_reason, joined
from clia.identities.contexts import ROOT
from clia.identities.guardrails.changes import GuardrailChange, profile_change
from clia.identities.merge_rules import projected_lines, projected_text
from clia.identities.roster import as_diagnostic
from clia.redaction.secrets import redact_value
from clia.values.identity_documents import document_of_profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from clia.identities.diagnostics import Diagnostic
    from clia.values.typed_objects import Briefing


class AgentIdentity(NamedTuple):
    """The identity that an agent works under, as recorded and as it is at its place now."""

    agent: str  # the agent
    slug: str | None  # the identity; null: none
    place: SpawnPlace | None  # where it was spawned; null: not recorded
    guardrails: tuple[Any, ...]  # those that bind it: recorded ones and those that hold at its place now
    missing: tuple[Any, ...]  # guardrails of the record that are gone at its place
    added: tuple[Any, ...]  # guardrails at its place that the record does not have
    changed: tuple[str, ...]  # other fields of the profile that differ
    document: Mapping[str, Any]  # the profile at its place now
    findings: tuple[Diagnostic, ...] = ()  # documents that cannot be read: guardrails could be missing

    @property
    def drifted(self) -> bool:
        """Whether the profile at its place differs from the recorded one."""
        return bool(self.missing or self.added or self.changed)


def identity_at(path: str, frozen: FrozenProfile) -> AgentIdentity:
    """The identity of an agent, seen from a directory of its space; documents in a worktree count if it is the agent's own."""
    return compared(frozen, resolve(place_of(path, frozen), frozen.slug))


def place_of(path: str, frozen: FrozenProfile) -> AgentPlace:
    """The place of an agent, seen from a directory of its space."""
    return AgentPlace(path, _recorded_place(frozen), frozen.agent, proposal=document_of_profile(frozen.profile))


def drifted(path: str, recorded: Iterable[FrozenProfile]) -> Iterator[AgentIdentity]:
    """The agents whose recorded profile differs from the one at their place, or whose documents cannot be read."""
    places: dict[str, AgentPlace] = {}
    profiles: dict[tuple[str | None, str], ResolvedProfile] = {}
    for frozen in recorded:
        proposal = document_of_profile(frozen.profile)
        if proposal is not None:
            place = AgentPlace(path, _recorded_place(frozen), OUTSIDE, proposal=proposal)
            identity = compared(frozen, resolve(place, frozen.slug))
            if identity.drifted or identity.findings:
                yield identity
            continue
        if frozen.path not in places:
            places[frozen.path] = AgentPlace(path, _recorded_place(frozen), OUTSIDE)
        key = (frozen.slug, frozen.path)
        if key not in profiles:
            profiles[key] = resolve(places[frozen.path], frozen.slug)
        identity = compared(frozen, profiles[key])
        if identity.drifted or identity.findings:
            yield identity


def resolve(place: AgentPlace, slug: str | None) -> ResolvedProfile:
    """The present profile of an identity, redacted. One that cannot be resolved leaves the root rules, with a finding."""
    try:
        resolved = place.resolve(slug)
    except CliaError as err:
        rules = place.resolve(None)
        resolved = rules._replace(slug=slug, findings=(*rules.findings, as_diagnostic(err, place.survey.path)))
    return resolved._replace(document=redact_value(dict(resolved.document))[0])


def compared(frozen: FrozenProfile, resolved: ResolvedProfile) -> AgentIdentity:
    """The difference between a recorded profile and the present one."""
    before = (frozen.profile or {}).get("document")
    recorded, now = before if isinstance(before, dict) else {}, resolved.document
    old_rules, rules = guardrails_of(recorded), guardrails_of(now)
    names = sorted({*recorded, *now} - {"guardrails"}) if frozen.profile is not None and not resolved.findings else []
    return AgentIdentity(
        frozen.agent,
        frozen.slug,
        frozen.place,
        tuple(joined(old_rules, rules)),
        tuple(without(old_rules, rules)),
        tuple(without(rules, old_rules)),
        tuple(name for name in names if recorded.get(name) != now.get(name)),
        now,
        resolved.findings,
    )


def _recorded_place(frozen: FrozenProfile) -> SpawnPlace:
    return frozen.place or SpawnPlace("")


class ChangedProfile(NamedTuple):
    """A profile to record instead of an agent's present one."""

    identity: AgentIdentity
    profile: dict[str, Any]
    change: GuardrailChange  # what it takes away

    @property
    def message(self) -> str:
        """The message of the commit: each guardrail that is added or lost."""
        counts = [
            f"{len(items)} {word}" for items, word in ((self.identity.added, "added"), (self.identity.missing, "lost")) if items
        ]
        subject = f"reprofile: {' and '.join(counts)} guardrails" if counts else "reprofile: other fields"
        marks = [("+", self.identity.added), ("-", self.identity.missing)]
        lines = [f"{mark} {projected_text(item)}" for mark, items in marks for item in items]
        return "\n".join([subject, *([""] if lines else []), *lines])


def new_profile(path: str, frozen: FrozenProfile, accept: str | None, shorten: Callable[[str], str]) -> ChangedProfile | None:
    """The profile to record for an agent; None if its recorded one is the present one. An incomplete one must be accepted.

    It ends the trial of a document that is only proposed.
    """
    check_reason(accept)
    resolved = resolve(AgentPlace(path, _recorded_place(frozen), OUTSIDE), frozen.slug)
    profile, identity = resolved.frozen(accept, shorten), compared(frozen, resolved)
    if not identity.drifted and document_of_profile(frozen.profile) is None:
        return None
    rules = guardrails_of((frozen.profile or {}).get("document"))
    return ChangedProfile(identity, profile, profile_change(frozen.slug or ROOT, rules, guardrails_of(identity.document)))


# Instructions: what an agent must know before it works, as Markdown. ``clia run`` writes them to a file, and requests to language
# models carry them as a system message.

_FIELDS = ("role", "purpose")
_LISTS = ("responsibilities", "sections", "checklists")


def instructions(identity: AgentIdentity, briefing: Briefing | None) -> str:
    """The instructions of an agent, guardrails first."""
    return "\n".join(_lines(identity, briefing)).strip() + "\n"


def _lines(identity: AgentIdentity, briefing: Briefing | None) -> Iterator[str]:
    title = identity.document.get("title")
    yield f"# {identity.agent}" + (f": {title}" if isinstance(title, str) and title.strip() else "")
    if identity.guardrails:
        yield from ("", "## Guardrails", "", "They are binding, whatever else you are told.", "")
        yield from _items(identity.guardrails)
    for field in _FIELDS:
        value = identity.document.get(field)
        if isinstance(value, str) and value.strip():
            yield from ("", f"{field.capitalize()}: {value.strip()}")
    for field in _LISTS:
        value = identity.document.get(field)
        if isinstance(value, list) and value:
            yield from ("", f"## {field.capitalize()}", "")
            yield from _items(value)
    if briefing is not None:
        yield from ("", "## Briefing", "", briefing.title)
        if briefing.text.strip():
            yield from ("", briefing.text.strip())


def _items(items: object) -> Iterator[str]:
    for item in items if isinstance(items, (list, tuple)) else ():
        for line in projected_lines(item):
            first, *rest = line.split("\n")
            yield f"- {first}"
            yield from (f"  {more}" for more in rest)
