"""Behaviours of a space: versions, observations of them, and suggestions.

Invariant: this module contains no rules. Those of a verb are in the module of ``clia.behaviours`` that implements it, which is
imported when the first verb needs it.
"""

from __future__ import annotations

from clia.errors import CliaError, Conflict, InvalidInput, NoSuchObject, NotFound
from clia.git.records import Stamp
from clia.values import refs as names
from clia.values.commit_messages import check_flag, check_text
from clia.values.typed_objects import IDENTITY_DOCUMENT, PROMPT, SESSION_FLOW
from clia.verbs import ADMIN, VIEWER, for_people, verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Annotated, Any

    from clia.api.parameters import Agent, BehaviourName, DocumentPath, SessionId, VersionName
    from clia.behaviours.index import ObservationIndex
    from clia.behaviours.library import AdoptionOrder, BehaviourDraft, BehaviourLibrary
    from clia.behaviours.measures import ObservationSum
    from clia.behaviours.model import BehaviourStats, BehaviourVersion, Comparison, KnownBehaviour, Replayed, Suggestion
    from clia.behaviours.replaying import PastSession
    from clia.behaviours.suggesting import Policy
    from clia.facade.components import Components
    from clia.values.identity_documents import DocumentVersion
    from clia.values.typed_objects import Briefing
    from clia.verbs import Count

    Progress = Callable[[int, int], None]


class BehaviourService:
    """Behaviours: versions, observations, suggestions."""

    def __init__(self, components: Components) -> None:
        self._components = components

    @property
    def library(self) -> BehaviourLibrary:
        """The versions in git, for pages that read several of them."""
        return self._components.library

    @property
    def observations(self) -> ObservationIndex:
        """The index of observations, for pages that read several of them."""
        return self._components.observations

    # Versions

    @verb("PUT", "/behaviours/{name}", ADMIN, "behaviours", "add_behaviour")
    @for_people("propose it instead: clia behaviour propose NAME --from FILE --agent AGENT")
    def add(
        self,
        name: BehaviourName,
        body: str,
        kind: str | None = None,
        *,
        document: DocumentPath = None,
        why: str = "",
        notes: str = "",
        by: str | None = None,
    ) -> BehaviourVersion:
        """Add a version of a behaviour and make it current. ``kind``: prompt or session-flow, for a new behaviour.

        The first version of an identity's document is its present text; other texts are proposed.
        """
        draft = self._draft(name, body, kind, None, why, notes, document)
        path = self._components.library.document_of(draft)
        if path is not None:
            self._components.steps.check_document_text(path, body)
        return self._components.library.add(draft, self._stamp(by))

    def _draft(  # the fields of a draft
        self, name: str, body: str, kind: str | None, parent: str | None, why: str, notes: str, document: str | None
    ) -> BehaviourDraft:
        from clia.behaviours.library import BehaviourDraft

        path = None if document is None else check_text(document, "document")
        return BehaviourDraft(check_text(name, "name"), check_text(body, "body"), kind, parent, why, notes, path)

    @verb("GET", "/behaviours", VIEWER, "behaviours", "behaviours")
    def __call__(self) -> list[KnownBehaviour]:
        """Every behaviour with its versions, sorted by name."""
        return self._components.library.all()

    @verb("GET", "/behaviours/{name}", VIEWER, "behaviours", "behaviour")
    def get(self, name: BehaviourName) -> KnownBehaviour:
        """A behaviour by its name: its versions and their history."""
        return self._components.library.get(check_text(name, "behaviour"))

    @verb("GET", "/behaviour-versions/{text}", VIEWER, "behaviours", "behaviour_version")
    def version(self, text: VersionName) -> BehaviourVersion:
        """A version: the current one of a name, one by its id or the start of it, or ``PEER/NAME``: a peer's current one."""
        return self._components.library.version(self._components.tracking.readable(check_text(text, "behaviour")))

    @verb("GET", "/behaviour-diffs/{one}/{other}", VIEWER, "behaviours", "behaviour_diff")
    def diff(self, one: VersionName, other: VersionName) -> str:
        """The difference between the bodies of two versions, as a patch."""
        return self._components.library.diff(self.version(one), self.version(other))

    @verb("POST", "/behaviours/{name}/proposals", ADMIN, "behaviours", "propose_behaviour", agent="agent")
    def propose(  # noqa: PLR0913  # the fields of a proposal; only the body is required
        self,
        name: Annotated[str, "behaviour name; a new name also needs kind"],
        body: Annotated[
            str, "the full text: flow source, prompt (may contain {{task}}, {{agent}}, {{title}}), or document of an identity"
        ],
        kind: Annotated[str | None, "prompt, session-flow or identity-document; only for a new behaviour"] = None,
        *,
        parent: Annotated[str | None, "the version that it derives from (default: the current one)"] = None,
        evidence: Annotated[Sequence[str], "commit ids that show the problem, as in the behaviour's evidence"] = (),
        why: Annotated[str, "what is wrong with the version that it replaces, and how this one fixes it"] = "",
        notes: Annotated[str, "purpose and when to use it; stored with the version"] = "",
        document: DocumentPath = None,
        agent: Annotated[str | None, "the agent that proposes it"] = None,
    ) -> BehaviourVersion:
        """Propose a candidate, with the commits that prompted it. It runs once a person has adopted it."""
        library = self._components.library
        from_ = None if parent is None else library.version(check_text(parent, "parent"), check_text(name, "name")).cid
        if agent is not None:
            self._components.core.require_known(agent)
        by = None if agent is None else self._components.core.agent_stamp(agent)
        return library.propose(self._draft(name, body, kind, from_, why, notes, document), self._details(evidence), by)

    def _details(self, evidence: Sequence[str], measure: str | None = None) -> dict[str, Any]:
        from clia.behaviours.library import checked_evidence
        from clia.behaviours.measures import check_measure

        commits = checked_evidence(evidence, self._named)
        details: dict[str, Any] = {"evidence": commits} if commits else {}
        return details if measure is None else details | {"measure": check_measure(check_text(measure, "measure"))}

    def _stamp(self, by: str | None) -> Stamp | None:
        """The author of a change; None for the accountable person of this clone."""
        if by is None:
            return None
        from clia.sessions.decisions import person_named

        return Stamp(*person_named(self._components.lifecycle.by(by)), self._components.core.now())

    @verb("POST", "/behaviours/{name}/adopt", ADMIN, "behaviours", "adopt_behaviour")
    @for_people("proposals wait for people; list behaviours with: clia behaviour list")
    def adopt(  # noqa: PLR0913  # the fields of an adoption; only the version is required
        self,
        name: BehaviourName,
        version: str | None = None,
        *,
        trial: bool = False,
        expect: str | None = None,
        evidence: Sequence[str] = (),
        measure: str | None = None,
        why: str = "",
        by: str | None = None,
    ) -> BehaviourVersion:
        """Make a version the current one: new sessions and spawns use it. ``trial``: allow it to run by its id only.

        ``PEER/NAME`` adopts a peer's current version. ``expect``: the version that must be current (``none``: no version), else
        ``StaleRef``. ``evidence`` and ``measure``: the commits that support it, and how they were judged.
        """
        check_flag(trial, "trial")
        details = self._details(evidence, measure)
        remote = names.remote_agent(check_text(name, "behaviour"))
        if remote is not None:
            peer, own_name = remote
            cid, data = self._of_peer(name, own_name)
            order = self._order(own_name, expect, why, by, details | {"from": peer})
            return self._components.library.adopt(own_name, cid, order, trial=trial, data=data)
        if version is None:
            raise InvalidInput(f"no version of {name!r} given", code="version-needed", fields={"field": "version"})
        chosen = self._components.library.version(check_text(version, "version"), name)
        order = self._order(name, expect, why, by, details)
        if chosen.kind == IDENTITY_DOCUMENT and not trial:
            self._components.library.check_order(name, order)
            self._components.steps.land_document(chosen, why)
        return self._components.library.adopt(name, chosen.cid, order, trial=trial)

    def _of_peer(self, text: str, name: str) -> tuple[str, bytes]:
        """A peer's current version, with the same checks as a version that is added here."""
        version = self._components.library.version(self._components.tracking.readable(text))
        if version.kind == IDENTITY_DOCUMENT:
            raise InvalidInput(
                f"{text!r} is a document of a peer's identity; propose its text for one of yours",
                code="not-adoptable",
                hints=[f"read it: clia behaviour show {text}"],
                fields={"behaviour": text},
            )
        self._components.library.check_body(name, version.kind, version.body)
        return version.cid, self._components.core.objects.blob(version.cid)

    def _order(self, name: str, expect: str | None, why: str, by: str | None, details: Mapping[str, Any]) -> AdoptionOrder:
        """``expect``: a full id is compared as it is, even if it is not a version."""
        from clia.behaviours.library import NOTHING, AdoptionOrder

        if expect is not None and expect != NOTHING and not names.is_id(expect):
            expect = self._components.library.version(check_text(expect, "expect"), name).cid
        return AdoptionOrder(why, expect, details, self._stamp(by))

    @verb("POST", "/behaviours/{name}/retire", ADMIN, "behaviours", "retire_behaviour")
    @for_people("propose a better one: clia behaviour propose NAME --from FILE --agent AGENT")
    def retire(
        self, name: BehaviourName, version: str | None = None, *, expect: str | None = None, why: str = "", by: str | None = None
    ) -> BehaviourVersion:
        """Retire a version, by default the current one. It cannot be started any more; running sessions continue."""
        library = self._components.library
        chosen = library.current(name) if version is None else library.version(check_text(version, "version"), name)
        return library.retire(name, chosen.cid, self._order(name, expect, why, by, {}))

    # Prompts

    @verb("POST", "/behaviour-briefings", VIEWER, "behaviours")
    def brief(self, prompt: str, title: str, task: str = "", *, agent: Agent = "") -> Briefing:
        """The briefing that a prompt renders for a task, for ``spawn``. ``prompt``: a name, or the id of a version.

        A version of an identity's document leaves the task as it is; the agent's profile is resolved with it.
        """
        from clia.behaviours.prompts import briefing
        from clia.values.typed_objects import Briefing

        version = self.version(prompt)
        if version.kind == SESSION_FLOW:
            raise _not_a_prompt(version.cid, version.name)
        self._components.tracking.runnable(prompt if names.remote_agent(prompt) else version.cid)
        if version.kind == IDENTITY_DOCUMENT:
            return Briefing(check_text(title, "title"), check_text(task, "task"), version.cid)
        return briefing(version.cid, version.body, check_text(title, "title"), check_text(task, "task"), check_text(agent, "agent"))

    def check_briefing(self, cid: str) -> DocumentVersion | None:
        """Raise an error unless a briefing may name a version here: a prompt, or an identity's document, which is returned."""
        from clia.space.behaviour_chains import read_behaviour
        from clia.values.identity_documents import DocumentVersion, document_path

        behaviour = read_behaviour(self._components.core.objects, check_text(cid, "behaviour"))
        if behaviour is None:
            raise NoSuchObject(f"the briefing's behaviour {cid} is not a behaviour", code="not-a-behaviour", fields={"cid": cid})
        path = document_path(behaviour)
        if behaviour.kind != PROMPT and path is None:
            raise _not_a_prompt(cid, behaviour.name)
        self._components.tracking.runnable(cid)
        return None if path is None else DocumentVersion(cid, path, behaviour.body)

    def check_runnable(self, text: str) -> None:
        """Raise an error unless a flow or prompt may be run here."""
        self._components.tracking.runnable(text)

    # Observations

    @verb("GET", "/behaviour-stats", VIEWER, "behaviours", "behaviour_stats")
    def stats(
        self,
        text: VersionName | None = None,
        *,
        over: Annotated[str | None, "day, week or month: include rates over time"] = None,
        progress: Progress | None = None,
    ) -> list[BehaviourStats]:
        """Statistics of a behaviour's versions, of one version, or of everything that ever ran; from git alone."""
        from clia.behaviours.measures import check_span, stats_of

        if over is not None:
            check_span(over)
        if text is None:
            versions = {version.cid: version for behaviour in self._components.library.all() for version in behaviour.versions}
            sums = {**self._components.observations.every(progress), **self._sums(versions.values(), progress)}
            cids = [*versions, *sorted(cid for cid in sums.keys() - versions.keys() if self._profile(cid) is None)]
        else:
            versions = {version.cid: version for version in self._versions_of(text)}
            sums, cids = self._sums(versions.values(), progress), [*versions]
        pairs = ((cid, versions.get(cid) or self._components.library.stray(cid)) for cid in cids if names.is_id(cid))
        unobserved = self._components.observations.nothing()
        return [
            stats_of(cid, version.name if version else None, version.state if version else None, sums.get(cid, unobserved), over)
            for cid, version in pairs
        ]

    @verb("GET", "/identity-stats", VIEWER, "behaviours", "identity_stats")
    def of_identities(
        self,
        slug: Annotated[str | None, "only this identity"] = None,
        *,
        over: Annotated[str | None, "day, week or month: include rates over time"] = None,
        progress: Progress | None = None,
    ) -> list[BehaviourStats]:
        """Statistics of the profiles that agents worked under, the newest last; the name is that of the identity."""
        from clia.behaviours.measures import check_span, stats_of

        if over is not None:
            check_span(over)
        sums = self._components.observations.every(progress)
        slugs = {cid: profile["slug"] for cid in sums if (profile := self._profile(cid)) is not None}
        stats = [stats_of(cid, name, "profile", sums[cid], over) for cid, name in slugs.items() if slug in (None, name)]
        return sorted(stats, key=lambda profile: (profile.name or "", profile.first or "", profile.cid))

    def _sums(self, versions: Iterable[BehaviourVersion], progress: Progress | None) -> dict[str, ObservationSum]:
        """The observations of versions. Those of an identity's document are the ones of the profiles resolved with it."""
        from clia.behaviours.measures import add_sum
        from clia.values.identity_documents import document_of_profile

        kinds = {version.cid: version.kind for version in versions}
        sums = self._components.observations.sums(kinds, progress)
        documents = {cid for cid, kind in kinds.items() if kind == IDENTITY_DOCUMENT}
        if not documents:
            return sums
        sums |= {cid: self._components.observations.nothing() for cid in documents}
        for cid, observed in self._components.observations.every(progress).items():
            tried = document_of_profile(self._profile(cid))
            if tried is not None and tried.version in documents:
                add_sum(sums[tried.version], observed)
        return sums

    def _profile(self, cid: str) -> dict[str, Any] | None:
        """The profile with an id; None if the object is another one, or not here."""
        try:
            profile = self._components.core.typed(cid) if names.is_id(cid) else None
        except CliaError:
            return None
        is_profile = isinstance(profile, dict) and profile.get("type") == "profile" and isinstance(profile.get("slug"), str)
        return profile if is_profile else None  # type: ignore[return-value]  # it is a dict

    def _versions_of(self, text: str) -> tuple[BehaviourVersion, ...]:
        if names.is_name(check_text(text, "behaviour")) and self._components.core.refs.get(names.behaviour(text)) is not None:
            return self._components.library.get(text).versions
        return (self.version(text),)

    @verb("GET", "/observation-gaps", VIEWER, "behaviours", "observation_gaps")
    def gaps(self) -> Count:
        """The number of records that could not be read because this clone is partial."""
        return self._components.observations.gaps()

    @verb("GET", "/behaviour-comparisons/{before}/{after}", VIEWER, "behaviours", "compare_behaviours")
    def compare(self, before: VersionName, after: VersionName, *, progress: Progress | None = None) -> Comparison:
        """Two versions side by side: rates, and the probability that the later one is better."""
        from clia.behaviours.measures import compared, stats_of
        from clia.behaviours.model import Comparison

        earlier, later = self.version(before), self.version(after)
        if earlier.cid == later.cid:
            raise InvalidInput("a version cannot be compared with itself", code="same-version", fields={"cid": earlier.cid})
        sums = self._sums((earlier, later), progress)
        stats = [stats_of(version.cid, version.name, version.state, sums[version.cid]) for version in (earlier, later)]
        return Comparison(stats[0], stats[1], compared(sums[earlier.cid], sums[later.cid]))

    @verb("GET", "/behaviours/{name}/suggestion", VIEWER, "behaviours", "suggest_behaviour")
    def suggest(
        self,
        name: BehaviourName,
        measure: Annotated[str | None, "finished, approved, merged, passed or kept (default: as configured)"] = None,
        *,
        progress: Progress | None = None,
    ) -> Suggestion:
        """Suggest to adopt, keep or retire a version, with the commits that support it, if there is enough data."""
        from clia.behaviours.library import current_of
        from clia.behaviours.measures import check_measure
        from clia.behaviours.suggesting import suggest

        behaviour = self._components.library.get(check_text(name, "behaviour"))
        policy = self.policy(name)
        if measure is not None:
            policy = policy._replace(measure=check_measure(check_text(measure, "measure")))
        sums = self._sums(behaviour.versions, progress)
        return suggest(behaviour, current_of(behaviour), sums, policy)

    def policy(self, name: str) -> Policy:
        """The operator's policy for a behaviour."""
        from clia.behaviours.suggesting import Policy

        policies = self._components.config.behaviours
        return policies.get(name) or policies.get("*") or Policy()

    @verb("POST", "/behaviours/{name}/follow-policy", ADMIN, "behaviours")
    @for_people("proposals wait for people; list behaviours with: clia behaviour list")
    def follow_policy(self, name: BehaviourName) -> BehaviourVersion | None:
        """Adopt what is suggested, if the operator's policy allows that without a person; None if nothing is adopted.

        Only versions that people allowed to run are suggested, so nothing unreviewed is adopted.
        """
        from clia.behaviours.model import ADOPT

        behaviour = self._components.library.get(check_text(name, "behaviour"))
        if not self.policy(name).adopt or behaviour.kind == IDENTITY_DOCUMENT:
            return None  # only people change documents of identities
        suggestion = self.suggest(name)
        if suggestion.action != ADOPT or suggestion.cid is None:
            return None
        facts = {"evidence": list(suggestion.evidence), "measure": suggestion.measure}
        order = self._order(name, suggestion.expect, f"by the operator's policy: {suggestion.why}", None, facts)
        try:
            return self._components.library.adopt(name, suggestion.cid, order, by_person=False)
        except Conflict:
            return None  # the current version has changed, or no person has allowed this one to run

    # Replay

    @verb("POST", "/agents/{agent}/replays", ADMIN, "behaviours", "replay_behaviour")
    def replay(self, agent: Agent, with_: VersionName, session_id: SessionId = None) -> Replayed:
        """Replay a past session with another version of its flow. Nothing is written and no effect is carried out."""
        from clia.behaviours.replaying import replayed

        version = self.version(check_text(with_, "with"))
        if version.kind != SESSION_FLOW:
            raise InvalidInput(
                f"{version.cid[:12]} is a {version.kind}: only a flow can be replayed",
                code="not-a-flow",
                fields={"cid": version.cid},
            )
        self._components.tracking.check_trying(version.cid)
        past = self._past(agent, session_id)
        self._components.tracking.check_trying(past.journal.origin.flow)  # it runs again to recover its requests
        sources = self._components.flows.source(past.journal.origin.flow), version.body
        return replayed(self._components.session_backend.engine, past, sources, version.cid)

    def _past(self, agent: str, session_id: str | None) -> PastSession:
        """A session from the store. If the store has lost it, the part of it that git has."""
        from clia.behaviours.replaying import PastSession, past_in_git

        components = self._components
        components.core.require_known(agent)
        try:
            session = components.lifecycle.session(agent, session_id)
        except NotFound:
            head = components.history.find(agent)
            return past_in_git(components.core, components.checkpoints, agent, head, session_id)
        return PastSession(agent, session.id, components.lifecycle.recorded(agent, session.id), session.status)

    def _named(self, text: str) -> str:
        """The commit named as evidence: an agent's commit, or an event on a chain."""
        if names.is_id(text) and self._components.core.objects.kind(text) == "commit":
            return text
        return self._components.history.find(text)


def _not_a_prompt(cid: str, name: str) -> InvalidInput:
    return InvalidInput(
        f"{name!r} is not a prompt; a briefing needs a prompt or an identity's document",
        code="not-a-prompt",
        hints=[f"clia session start AGENT {name}"],
        fields={"cid": cid, "behaviour": name},
    )
