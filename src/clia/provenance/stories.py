"""What the record shows about one commit: its signature, its agent, and the acts of people behind it."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from clia.approvals.evidence import answer_of
from clia.errors import CliaError
from clia.provenance.model import DECISION, LANDING, REVIEW, AgentOfCommit, CommitStory, LineApproval
from clia.space.core import UNREADABLE
from clia.space.events import read_events
from clia.trust.statements import LAND
from clia.values import refs as names
from clia.values.typed_objects import Behaviour, Briefing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from clia.space.core import Core
    from clia.space.model import AgentCommit
    from clia.trust.commit_checks import CommitCheck, CommitChecks

_OWN_MAX, _DECISIONS_MAX = 2000, 3
_LANDED, _DECISION_KIND = "landed", "decision"


class _LandingOf(NamedTuple):
    """A landing, and the event that records it; None: the event is not in this clone."""

    cid: str
    onto: str | None
    event: str | None


class CommitStories:
    """Reads commits with their checks; each commit once."""

    def __init__(self, core: Core, checks: CommitChecks, reviewers: Callable[[str], Sequence[str]]) -> None:
        """``reviewers``: the agents that review an agent."""
        self._core = core
        self.checks = checks
        self._reviewers = reviewers
        self._checked: dict[str, CommitCheck] = {}
        self._landings: dict[str, list[_LandingOf]] = {}

    def check(self, cid: str) -> CommitCheck:
        if cid not in self._checked:
            self._checked[cid] = self.checks.check(cid)
        return self._checked[cid]

    def of(self, cid: str) -> CommitStory:
        """One commit and its check."""
        commit, check = self._core.read(cid), self.check(cid)
        person = f"{commit.committer.name} <{commit.committer.email}>"
        facts = (cid, commit.subject, commit.kind, commit.committer.at, person)
        return CommitStory(*facts, check.state, check.signer, check.key, check.findings)

    def agent_of(self, commit: AgentCommit, name: str) -> AgentOfCommit:
        """The agent of a commit, as it was then."""
        briefing = self._typed(commit.briefing)
        task = briefing if isinstance(briefing, Briefing) else None
        meta = task.meta if task is not None and isinstance(task.meta, dict) else {}
        profile_id = commit.profile or self._recorded(name, "profile")
        profile, behaviour = self._typed(profile_id), self._typed(commit.behaviour)
        slug = profile.get("slug") if isinstance(profile, dict) else None
        worked_by = behaviour.name if isinstance(behaviour, Behaviour) else commit.behaviour
        capture = commit.meta.get("capture")
        program = meta.get("tool") or commit.meta.get("program") or (capture.get("tool") if isinstance(capture, dict) else None)
        title = None if task is None else task.title
        return AgentOfCommit(
            *(name, _text(slug), profile_id, _text(program), _text(meta.get("model"))),
            *(commit.briefing, title, worked_by),
        )

    def _recorded(self, name: str, field: str) -> str | None:
        """A field of the agent's newest own commit, for commits that do not state it."""
        head = self._head(name)
        with suppress(*UNREADABLE):
            newest = next(iter(self._core.own_commits(name, head)), None) if head is not None else None
            return None if newest is None else getattr(newest, field)
        return None

    def _typed(self, cid: str | None) -> Any:
        with suppress(*UNREADABLE):
            return None if cid is None else self._core.typed(cid)
        return None

    def _head(self, name: str) -> str | None:
        refs = self._core.refs
        if not names.is_name(name):
            return None
        own = refs.get(names.head(name)) or refs.get(names.archived(name)) or refs.get(names.PUBLISHED + name)
        if own is not None:
            return own
        ending = f"/agents/{name}"  # a plain clone has the branches of its remote only
        return next((cid for ref, cid in refs.under("refs/remotes/") if ref.endswith(ending)), None)

    # Acts

    def approvals(self, commit: AgentCommit, agent: str, path: str | None, onto: Iterable[str]) -> tuple[LineApproval, ...]:
        """The decisions, the landing and the reviews behind a commit of an agent, newest first.

        ``path``: the file that a decision must have seen, or any; ``onto``: commits of which one has the work in its history.
        """
        landing = self._landing_of(commit, agent, tuple(onto))
        approvals: list[LineApproval] = []
        if landing is not None:
            landed = self._core.read(landing.cid)
            by = f"{landed.committer.name} <{landed.committer.email}>"
            strength = "unsigned" if landing.event is None else self.checks.strength_of_act(landing.event, LAND)
            branch = None if landing.onto is None else landing.onto.removeprefix(names.BRANCHES)
            acts = (None, None, None, branch, strength, True, False, self.check(landing.cid).findings)
            approvals.append(LineApproval(LANDING, by, landed.committer.at, landing.cid, *acts))
        # Decisions follow the landing: if both have the same time, the landing is newer, and the sort is stable.
        approvals.extend(self._decided(commit, agent, path, landing))
        approvals.sort(key=lambda approval: approval.at or 0, reverse=True)
        nothing = (None, None, None, None, None, None, None, True, False, ())
        return (*approvals, *(LineApproval(REVIEW, name, *nothing) for name in self._reviewed_by(agent)))

    def _reviewed_by(self, agent: str) -> Sequence[str]:
        with suppress(CliaError):  # the agent is not here
            return self._reviewers(agent)
        return ()

    def _landing_of(self, commit: AgentCommit, agent: str, onto: tuple[str, ...]) -> _LandingOf | None:
        """The newest landing of an agent that has a commit and that is in a history."""
        core = self._core
        for landing in self._landings_of(agent):
            inside = any(core.contains(tip, landing.cid) for tip in onto)
            if inside and self._has_work(landing, commit.cid):
                return landing
        return None

    def _has_work(self, landing: _LandingOf, cid: str) -> bool:
        landed = self._core.read(landing.cid)
        head = landed.range.partition("..")[2] if landed.range else landing.cid
        return cid == landing.cid or self._core.contains(head, cid)

    def _landings_of(self, agent: str) -> list[_LandingOf]:
        if agent not in self._landings:
            tip = self._core.refs.get(names.events(agent)) if names.is_name(agent) else None
            events = read_events(self._core, tip) if tip is not None else ()
            bodies = ((event.cid, event.body) for event in events if event.body.get("event") == _LANDED)
            self._landings[agent] = [
                _LandingOf(body["cid"], body.get("onto"), cid)
                for cid, body in bodies
                if isinstance(body.get("cid"), str) and self._core.objects.kind(body["cid"]) == "commit"
            ]
        return self._landings[agent]

    def note_landing(self, agent: str, cid: str) -> None:
        """Add a landing that a commit of a branch states itself: a plain clone may lack the event."""
        landings = self._landings_of(agent)
        if cid not in {landing.cid for landing in landings}:
            landings.append(_LandingOf(cid, None, None))

    def _decided(self, commit: AgentCommit, agent: str, path: str | None, landing: _LandingOf | None) -> Iterator[LineApproval]:
        """Decisions after a commit, of which those that saw its content count most; without any, the last one before it."""
        listed = [] if landing is None else list(self._core.read(landing.cid).decisions)
        later, earlier = self._decisions_around(commit, agent)
        cids = list(dict.fromkeys([*listed, *later]))
        decisions = [self._core.read(cid) for cid in cids if self._core.objects.kind(cid) == "commit"]
        decisions = [decision for decision in decisions if decision.kind == _DECISION_KIND]
        on_content = [decision for decision in decisions if self._saw(decision, commit, path)]
        for decision in (on_content or decisions)[: None if path is None else _DECISIONS_MAX]:
            yield self._approval(decision, covers=bool(on_content), before=False)
        if not decisions and earlier is not None:
            yield self._approval(earlier, covers=False, before=True)

    def _decisions_around(self, commit: AgentCommit, agent: str) -> tuple[list[str], AgentCommit | None]:
        """The decisions of an agent after a commit, newest first, and the last one before it."""
        head, later, passed = self._head(agent), list[str](), False
        with suppress(*UNREADABLE):
            for own in islice(self._core.own_commits(agent, head), _OWN_MAX) if head is not None else ():
                if own.cid == commit.cid:
                    passed = True
                elif own.kind == _DECISION_KIND and not passed:
                    later.append(own.cid)
                elif own.kind == _DECISION_KIND:
                    return later, own
        return (later if passed else []), None

    def _saw(self, decision: AgentCommit, commit: AgentCommit, path: str | None) -> bool:
        """Whether a decision was made on the content that a commit gave a file."""
        entry = self._core.objects.entry
        if path is None:
            return self._core.contains(decision.cid, commit.cid)
        with suppress(*UNREADABLE):
            return entry(decision.tree, path) == entry(commit.tree, path)
        return False

    def _approval(self, decision: AgentCommit, *, covers: bool, before: bool) -> LineApproval:
        check, payload = self.check(decision.cid), decision.meta.get("asked")
        question = payload.get("question") if isinstance(payload, dict) else payload
        about = _text(question), decision.message.strip() or None
        strength, at = check.strength or "unsigned", decision.committer.at
        facts = (DECISION, decision.by or "", at, decision.cid, answer_of(decision))
        return LineApproval(*facts, *about, None, strength, covers, before, check.findings)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
