"""The verbs of a space that are about behaviours: versions, what was observed of them, and what follows.

Invariant: nothing is decided here. A verb's rules live in the module of ``clia.behaviours`` that its line names, and that is loaded
when it is first needed: most commands, and every hook, have nothing to do with it.
"""

from __future__ import annotations

from functools import cached_property

from clia.errors import Conflict, InvalidInput, NoSuchObject, NotFound
from clia.git.records import Stamp
from clia.space.behaviour_chains import read_behaviour
from clia.values import refs as names
from clia.values.commit_messages import check_flag, check_text
from clia.values.typed_objects import PROMPT, SESSION_FLOW, Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.behaviours.index import ObservationIndex
    from clia.behaviours.library import AdoptionOrder, BehaviourDraft, BehaviourLibrary
    from clia.behaviours.model import BehaviourStats, BehaviourVersion, Comparison, KnownBehaviour, Replayed, Suggestion
    from clia.behaviours.replaying import PastSession
    from clia.behaviours.suggesting import Policy
    from clia.federation.tracking import PeerTracking
    from clia.sessions.checkpoints import Checkpoints
    from clia.sessions.flows import Flows
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.service import Running
    from clia.space.behaviour_chains import BehaviourChains
    from clia.space.core import Core
    from clia.space.history import History

    Progress = Callable[[int, int], None]


class BehaviourVerbs:
    """A part of ``Space``."""

    _core: Core
    _chains: BehaviourChains
    _flows: Flows
    _history: History
    _lifecycle: Lifecycle
    _running: Running
    _tracking: PeerTracking

    _checkpoints: Checkpoints

    @cached_property
    def _library(self) -> BehaviourLibrary:
        from clia.behaviours.library import BehaviourLibrary

        return BehaviourLibrary(self._core, self._chains, self._flows)

    @cached_property
    def _observed(self) -> ObservationIndex:
        from clia.behaviours.index import ObservationIndex

        return ObservationIndex(self._core)

    # Versions

    def add_behaviour(
        self, name: str, body: str, kind: str | None = None, *, why: str = "", notes: str = "", by: str | None = None
    ) -> BehaviourVersion:
        """A person's own version of a behaviour, which is current at once. ``kind``: prompt or session-flow, for a new one."""
        return self._library.add(self._draft(name, body, kind, None, why, notes), self._stamp(by))

    def _draft(self, name: str, body: str, kind: str | None, parent: str | None, why: str, notes: str) -> BehaviourDraft:
        from clia.behaviours.library import BehaviourDraft

        return BehaviourDraft(check_text(name, "name"), check_text(body, "body"), kind, parent, why, notes)

    def behaviours(self) -> list[KnownBehaviour]:
        """Every behaviour here with its versions, sorted by name."""
        return self._library.all()

    def behaviour(self, name: str) -> KnownBehaviour:
        """A behaviour by its name: its versions, and what happened to them."""
        return self._library.get(check_text(name, "behaviour"))

    def behaviour_version(self, text: str) -> BehaviourVersion:
        """A version: a name's current one, one by its id or the start of it, or ``PEER/NAME``: a peer's current one."""
        return self._library.version(self._tracking.readable(check_text(text, "behaviour")))

    def behaviour_diff(self, one: str, other: str) -> str:
        """What a version's body changes in another's, as a patch."""
        return self._library.diff(self.behaviour_version(one), self.behaviour_version(other))

    def propose_behaviour(  # noqa: PLR0913  # what a proposal says; all but the body may be left out
        self,
        name: str,
        body: str,
        kind: str | None = None,
        *,
        parent: str | None = None,
        evidence: Sequence[str] = (),
        why: str = "",
        notes: str = "",
        agent: str | None = None,
    ) -> BehaviourVersion:
        """A candidate, with the commits that prompted it; it runs when a person has adopted it. ``agent``: who proposes it."""
        from_ = None if parent is None else self._library.version(check_text(parent, "parent"), check_text(name, "name")).cid
        if agent is not None:
            self._core.require_known(agent)
        by = None if agent is None else self._core.agent_stamp(agent)
        return self._library.propose(self._draft(name, body, kind, from_, why, notes), self._said(evidence), by)

    def _said(self, evidence: Sequence[str], measure: str | None = None) -> dict[str, Any]:
        from clia.behaviours.library import checked_evidence
        from clia.behaviours.measures import check_measure

        found = checked_evidence(evidence, self._named)
        said: dict[str, Any] = {"evidence": found} if found else {}
        return said if measure is None else said | {"measure": check_measure(check_text(measure, "measure"))}

    def _stamp(self, by: str | None) -> Stamp | None:
        """Who does it, where that is not the person that is accountable here."""
        if by is None:
            return None
        from clia.sessions.decisions import person_named

        return Stamp(*person_named(self._lifecycle.by(by)), self._core.now())

    def adopt_behaviour(  # noqa: PLR0913  # what an adoption says; all but the version may be left out
        self,
        name: str,
        version: str | None = None,
        *,
        trial: bool = False,
        expect: str | None = None,
        evidence: Sequence[str] = (),
        measure: str | None = None,
        why: str = "",
        by: str | None = None,
    ) -> BehaviourVersion:
        """Makes a version what its name means: new sessions and spawns use it. ``trial``: lets it run by its id only.

        ``PEER/NAME`` takes over a peer's current version. ``expect``: what must be current now (``none``: nothing), else
        ``StaleRef``. ``evidence`` and ``measure``: the commits that it rests on, and what they were judged by.
        """
        check_flag(trial, "trial")
        said = self._said(evidence, measure)
        named = names.remote_agent(check_text(name, "behaviour"))
        if named is not None:
            peer, own = named
            found, data = self._of_peer(name, own)
            order = self._order(own, expect, why, by, said | {"from": peer})
            return self._library.adopt(own, found, order, trial=trial, data=data)
        if version is None:
            raise InvalidInput(f"say which version of {name!r}", code="version-needed", fields={"field": "version"})
        chosen = self._library.version(check_text(version, "version"), name)
        return self._library.adopt(name, chosen.cid, self._order(name, expect, why, by, said), trial=trial)

    def _of_peer(self, text: str, name: str) -> tuple[str, bytes]:
        """A peer's current version, checked as one that is added here."""
        found = self._library.version(self._tracking.readable(text))
        self._library.check_body(name, found.kind, found.body)
        return found.cid, self._core.objects.blob(found.cid)

    def _order(self, name: str, expect: str | None, why: str, by: str | None, said: Mapping[str, Any]) -> AdoptionOrder:
        """``expect``: a full id that is no version is compared as it is."""
        from clia.behaviours.library import NOTHING, AdoptionOrder

        if expect is not None and expect != NOTHING and not names.is_id(expect):
            expect = self._library.version(check_text(expect, "expect"), name).cid
        return AdoptionOrder(why, expect, said, self._stamp(by))

    def retire_behaviour(
        self, name: str, version: str | None = None, *, expect: str | None = None, why: str = "", by: str | None = None
    ) -> BehaviourVersion:
        """A version, the current one unless told, starts no more; sessions of it that are under way go on."""
        chosen = self._library.current(name) if version is None else self._library.version(check_text(version, "version"), name)
        return self._library.retire(name, chosen.cid, self._order(name, expect, why, by, {}))

    def _whole_id(self, text: str) -> str:
        """The id of the version that a text is the start of; any other text as it is."""
        if names.is_id(text) or not names.is_start_of_id(text):
            return text
        try:
            return self._library.version(text).cid
        except NoSuchObject:
            return text  # and who uses it says what is missing

    # Prompts

    def brief(self, prompt: str, title: str, task: str = "", *, agent: str = "") -> Briefing:
        """The briefing that a prompt makes for a task: what ``spawn`` takes. A name's current version, or one by its id."""
        from clia.behaviours.prompts import briefing

        found = self.behaviour_version(prompt)
        if found.kind != PROMPT:
            raise _not_a_prompt(found.cid, found.name)
        self._tracking.runnable(prompt if names.remote_agent(prompt) else found.cid)
        return briefing(found.cid, found.body, check_text(title, "title"), check_text(task, "task"), check_text(agent, "agent"))

    def _check_prompt(self, briefing: Briefing) -> None:
        """A briefing may say that it is a prompt's only where that prompt may be used here."""
        cid = getattr(briefing, "behaviour", None)  # what is no briefing at all is refused where it is used
        if cid is None:
            return
        found = read_behaviour(self._core.objects, check_text(cid, "behaviour"))
        if found is None:
            raise NoSuchObject(f"the briefing's behaviour {cid} is no behaviour", code="not-a-behaviour", fields={"cid": cid})
        if found.kind != PROMPT:
            raise _not_a_prompt(cid, found.name)
        self._tracking.runnable(cid)

    # What was observed

    def behaviour_stats(
        self, text: str | None = None, *, over: str | None = None, progress: Progress | None = None
    ) -> list[BehaviourStats]:
        """What was observed of a behaviour's versions, of one version, or of everything that ever ran; from git alone.

        ``over``: day, week or month, for the rates over time.
        """
        from clia.behaviours.measures import check_span, stats_of

        if over is not None:
            check_span(over)
        if text is None:
            known = {each.cid: each for behaviour in self._library.all() for each in behaviour.versions}
            found = self._observed.every(progress)
            cids = [*known, *sorted(found.keys() - known.keys())]
        else:
            listed = self._versions_of(text)
            known = {each.cid: each for each in listed}
            found, cids = self._observed.sums(known, progress), [*known]
        made = ((cid, known.get(cid) or self._library.stray(cid)) for cid in cids if names.is_id(cid))
        nothing = self._observed.nothing()
        return [
            stats_of(cid, each.name if each else None, each.state if each else None, found.get(cid, nothing), over)
            for cid, each in made
        ]

    def _versions_of(self, text: str) -> tuple[BehaviourVersion, ...]:
        if names.is_name(check_text(text, "behaviour")) and self._core.refs.get(names.behaviour(text)) is not None:
            return self._library.get(text).versions
        return (self.behaviour_version(text),)

    def observation_gaps(self) -> int:
        """How much of the record could not be told, since this clone has it only in part."""
        return self._observed.gaps()

    def compare_behaviours(self, before: str, after: str, *, progress: Progress | None = None) -> Comparison:
        """Two versions side by side: rates, the probability that the later is better, and what is shown."""
        from clia.behaviours.measures import compared, stats_of
        from clia.behaviours.model import Comparison

        one, other = self.behaviour_version(before), self.behaviour_version(after)
        if one.cid == other.cid:
            raise InvalidInput("a version cannot be compared with itself", code="same-version", fields={"cid": one.cid})
        sums = self._observed.sums([one.cid, other.cid], progress)
        stats = [stats_of(each.cid, each.name, each.state, sums[each.cid]) for each in (one, other)]
        return Comparison(stats[0], stats[1], compared(sums[one.cid], sums[other.cid]))

    def suggest_behaviour(self, name: str, measure: str | None = None, *, progress: Progress | None = None) -> Suggestion:
        """Whether to adopt, keep or retire a version, with the commits that say so; or that there is not enough data."""
        from clia.behaviours.library import current_of
        from clia.behaviours.measures import check_measure
        from clia.behaviours.suggesting import suggest

        known = self._library.get(check_text(name, "behaviour"))
        policy = self._policy(name)
        if measure is not None:
            policy = policy._replace(measure=check_measure(check_text(measure, "measure")))
        sums = self._observed.sums([each.cid for each in known.versions], progress)
        return suggest(known, current_of(known), sums, policy)

    def _policy(self, name: str) -> Policy:
        from clia.behaviours.suggesting import Policy

        policies = self._running.config.behaviours
        return policies.get(name) or policies.get("*") or Policy()

    def follow_policy(self, name: str) -> BehaviourVersion | None:
        """Adopts what is suggested, where the operator's policy lets that happen without a person; None where nothing is adopted.

        Only what people let run is ever suggested, so nothing that nobody has looked at is adopted.
        """
        from clia.behaviours.model import ADOPT

        self._library.get(check_text(name, "behaviour"))
        if not self._policy(name).adopt:
            return None
        found = self.suggest_behaviour(name)
        if found.action != ADOPT or found.cid is None:
            return None
        said = {"evidence": list(found.evidence), "measure": found.measure}
        why = f"by the operator's policy: {found.why}"
        try:
            return self._library.adopt(name, found.cid, self._order(name, found.expect, why, None, said), by_person=False)
        except Conflict:
            return None  # somebody was quicker, or no person has let it run

    # Trying out

    def replay_behaviour(self, agent: str, with_: str, session_id: str | None = None) -> Replayed:
        """How a past session would have gone under another version of its flow. Nothing is written, nothing has an effect."""
        from clia.behaviours.replaying import replayed

        other = self.behaviour_version(check_text(with_, "with"))
        if other.kind != SESSION_FLOW:
            raise InvalidInput(
                f"{other.cid[:12]} is a {other.kind}: only a flow can be replayed", code="not-a-flow", fields={"cid": other.cid}
            )
        self._tracking.check_trying(other.cid)
        past = self._past(agent, session_id)
        self._tracking.check_trying(past.journal.origin.flow)  # it runs, too: what it asked for is recorded nowhere else
        sources = self._flows.source(past.journal.origin.flow), other.body
        return replayed(self._running.engine, past, sources, other.cid)

    def _past(self, agent: str, session_id: str | None) -> PastSession:
        """A session by the store; where that has lost it, as far as git has it."""
        from clia.behaviours.replaying import PastSession, past_in_git

        self._core.require_known(agent)
        try:
            found = self._lifecycle.session(agent, session_id)
        except NotFound:
            return past_in_git(self._core, self._checkpoints, agent, self._history.find(agent), session_id)
        return PastSession(agent, found.id, self._lifecycle.recorded(agent, found.id), found.status)

    def _named(self, text: str) -> str:
        """The commit that is named as evidence: of an agent's work, or an event on a chain."""
        if names.is_id(text) and self._core.objects.kind(text) == "commit":
            return text
        return self._history.find(text)


def _not_a_prompt(cid: str, name: str) -> InvalidInput:
    return InvalidInput(
        f"{name!r} is a flow: a session runs it; only a prompt makes a briefing",
        code="not-a-prompt",
        hints=[f"clia session start AGENT {name}"],
        fields={"cid": cid, "behaviour": name},
    )
