"""Landing of an agent's work on branches that are not agents'.

Invariant: a branch is moved by compare-and-swap or not at all; the landing commit's trailers and the agent's event chain name the
landed commits. A worktree with the branch checked out is updated as in a fast-forward; uncommitted changes in its way stop the
landing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, NamedTuple, Protocol, TypedDict

from clia.errors import CliaError, Conflict, InvalidInput, NotFound, StaleRef, did_you_mean
from clia.git.records import TreeMerge
from clia.git.tree_changes import changed_paths
from clia.space.core import UnapprovedChange
from clia.space.envelope import Intent, RefMove
from clia.space.events import read_events, write_event
from clia.space.merging import TreeMerging, conflict_paths
from clia.space.model import (
    BRIEFING,
    LANDED,
    PROFILE,
    RANGE,
    Conflicts,
    Landed,
    UpToDate,
    agent_commit,
)
from clia.space.model import DECISION as DECISION_TRAILER
from clia.space.reverting import LANDING_UNDONE, branch_lock
from clia.trust.statements import LAND, RecordedAct
from clia.values import refs as names
from clia.values.typed_objects import Briefing
from clia.values.types import DECISION, JOURNAL_ENTRY, SESSION_MERGE, SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from clia.git.records import PathConflict
    from clia.space.attribution.attributions import Attributions
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.model import AgentCommit

FAST_FORWARD, MERGE, SQUASH = "fast-forward", "merge", "squash"
LANDING_EVENTS = ("landed", LANDING_UNDONE)
MAIN = "main"
_WITHOUT_WORK = (SPAWN, SESSION_MERGE, DECISION)
"""Kinds of commits whose subjects do not say what was done."""
_LISTED_MAX = 50


def landing_form(text: str) -> str:
    """The name of a form of landing; ``InvalidInput`` for an unknown one."""
    if text in (FAST_FORWARD, MERGE, SQUASH):
        return text
    message = f"work lands by {SQUASH}, {MERGE} or {FAST_FORWARD}, not by {text!r}"
    raise InvalidInput(message, code="invalid-landing", hints=[f"git config clia.land {SQUASH}"], fields={"field": "how"})


def _branch_of_people(onto: str) -> str:
    """The ref of a branch that work can land on."""
    ref = names.branch(onto)
    if ref.startswith(names.HEADS):
        hints = ["use clia merge to merge agents"]
        raise InvalidInput(f"{onto!r} is an agent's branch", code="not-a-branch-of-people", hints=hints)
    return ref


class LandingGuard(Protocol):
    """Decides whether a landing needs an approval, and has it."""

    def check(self, agent: str, onto: str, trees: tuple[str | None, str], head: str) -> str | None:
        """The decision that approves the landing; None if it needs none. ``UnapprovedChange`` if it has none.

        ``trees``: those of the branch before and after.
        """


class LandingPlan(NamedTuple):
    """What landing an agent's work on a branch comes to, before rules and approvals are checked."""

    ref: str  # the branch
    tip: str | None  # its head; None: it has no commit yet
    head: str  # the agent's head
    base: str | None  # the agent's commit whose work the branch has; None: the branch has nothing of it
    tree: str | None  # of the branch afterwards; None: see ``conflicts``, or it has landed
    landed: bool = False  # whether the branch has all of the agent's work
    contained: bool = False  # whether the branch has all of the agent's commits: their landing may have been undone
    conflicts: tuple[PathConflict, ...] = ()

    @property
    def refused(self) -> TreeMerge:
        """The merge with conflicts."""
        return TreeMerge("", self.conflicts)


class LandingFields(TypedDict, total=False):
    """A landing of an agent."""

    event: str  # `landed`
    onto: str  # the branch
    cid: str  # the branch's new head
    head: str  # the agent's head then
    base: str  # the branch's head before
    how: str  # `fast-forward`, `merge` or `squash`
    approved: str  # the decision that approves what it takes from guardrails


LandingEvent = Annotated[dict[str, Any], LandingFields]


class Landing:
    def __init__(  # noqa: PLR0913, PLR0917  # its parts, and how the operator configured it
        self,
        core: Core,
        envelope: Envelope,
        attributions: Attributions,
        trees: TreeMerging,
        guard: LandingGuard,
        default: str = "",
        checked_out: Callable[[], str | None] = lambda: None,
        state: Callable[[RecordedAct], list[tuple[str, str]]] = lambda _: [],
    ) -> None:
        """``default``: how work lands unless the caller says it; ``checked_out``: the branch that HEAD names; ``state``: returns
        the trailers with a person's statement of an act.
        """
        self._state = state
        self._core = core
        self._envelope = envelope
        self._attributions = attributions
        self._trees = trees
        self._guard = guard
        self._default = default or SQUASH
        self._checked_out = checked_out

    def land(
        self,
        name: str,
        onto: str | None = None,
        *,
        how: str | None = None,
        message: str = "",
        head: str | None = None,
        by_agent: bool = False,
    ) -> Landed | UpToDate | Conflicts:
        """``onto``: by default the branch that is checked out, or main; ``how``: by default as configured; ``head``: the agent's
        head that the caller looked at; ``by_agent``: an agent lands it, or clia on its own: no person states it.
        """
        text = self._core.clean.text(message, "message")
        chosen = landing_form(self._default if how is None else how)
        names.check_name(name)
        branch = self.default_branch() if onto is None else onto
        try:
            landed = self._land(name, branch, text, chosen, head, by_agent=by_agent)
        except UnapprovedChange as unapproved:
            raise unapproved.refusal() from None
        if isinstance(landed, Landed):
            with suppress(CliaError):  # the next blame or worker does it
                self._attributions.catch_up([landed.cid])
        return landed

    def default_branch(self) -> str:
        """The branch that is checked out if it is not an agent's, else main; ``no-default-branch`` if neither exists."""
        ref = self._checked_out()
        if ref is not None and ref.startswith(names.BRANCHES) and not ref.startswith(names.HEADS):
            return ref.removeprefix(names.BRANCHES)
        if self._core.refs.get(names.branch(MAIN)) is not None:
            return MAIN
        state = "HEAD is detached" if ref is None else f"{ref.removeprefix(names.BRANCHES)} is an agent's branch"
        hints = ["name the branch that receives the work: --onto BRANCH"]
        raise InvalidInput(f"no branch to land on: {state}, and there is no branch main", code="no-default-branch", hints=hints)

    def _land(
        self, name: str, onto: str, text: str, chosen: str, seen: str | None, *, by_agent: bool
    ) -> Landed | UpToDate | Conflicts:
        core = self._core
        ref = _branch_of_people(onto)
        with self._envelope.at_work(name), core.locks.hold(branch_lock(ref)):
            self.check_seen(name, seen)
            plan = self.plan(name, onto, core.own_head(name))
            head, tip, tree = plan.head, plan.tip, plan.tree
            if plan.landed:
                return UpToDate(str(tip))
            if tree is None:
                return Conflicts(onto, name, str(tip), head, conflict_paths(core, plan.refused))
            approved = self._guard.check(name, onto, (core.objects.commit(tip).tree if tip else None, tree), head)
            how = MERGE if chosen == FAST_FORWARD and not self.is_forward(plan) else chosen
            if plan.contained:  # its landing was undone: git has the commits, but not their changes
                how = SQUASH
            if how == FAST_FORWARD and text:
                hints = ["leave the message out", "or create a commit that has it: --squash or --no-ff"]
                text_error = "a fast-forward creates no commit, so the message would be lost"
                raise InvalidInput(text_error, code="message-unused", hints=hints, fields={"field": "message"})
            body: dict[str, Any] = {"event": "landed", "onto": ref, "head": head, "base": tip, "how": how}
            body |= {"approved": approved} if approved is not None else {}
            paths = tuple(changed_paths(core.objects, core.objects.commit(tip).tree if tip else None, tree))
            proofs = self._state(RecordedAct(LAND, name, body, head, tree, paths=paths, by_agent=by_agent))
            new = head if how == FAST_FORWARD else self._write(name, onto, (tip, head), tree, text, how)
            warnings = self._move(name, body | {"cid": new}, proofs)
        return Landed(new, how, tuple(warnings))

    def check_seen(self, name: str, seen: str | None) -> None:
        """``StaleRef`` if the agent has done more than journal entries since a head that a person looked at."""
        if seen is None:
            return
        core, head = self._core, self._core.own_head(name)
        later = [agent_commit(commit) for commit in core.graph.walk([head], [seen])] if core.contains(head, seen) else []
        if seen != head and not (later and all(commit.kind == JOURNAL_ENTRY for commit in later)):
            message = f"{name} has done more work since you looked: its head is {head[:12]}, not {seen[:12]}"
            hints = [f"look again, then land: clia changes {name}"]
            fields = {"agent": name, "ref": names.head(name), "expected": seen, "actual": head}
            raise StaleRef(message, hints=hints, fields=fields)

    def plan(self, name: str, onto: str, head: str) -> LandingPlan:
        """What landing a head of an agent comes to. No ref is changed."""
        core, ref = self._core, _branch_of_people(onto)
        tip = self._tip(ref)
        if tip is None:
            return LandingPlan(ref, None, head, None, core.objects.commit(head).tree)
        undone = self._undone(name, ref, tip)
        before, contained = undone or self._landed_before(name, ref, tip, head), core.graph.descends(tip, head)
        plan = LandingPlan(ref, tip, head, before or core.graph.merge_base(tip, head), None, contained=contained)
        if (contained and undone is None) or self._is_landed(name, ref, tip, head):
            return plan._replace(landed=True)
        merged = self._trees.merge(tip, head, before)
        return plan._replace(conflicts=merged.conflicts) if merged.conflicts else plan._replace(tree=merged.tree)

    def is_forward(self, plan: LandingPlan) -> bool:
        """Whether the branch can move to the agent's head."""
        return plan.tip is None or self._core.graph.descends(plan.head, plan.tip)

    def objection(self, name: str, onto: str, plan: LandingPlan) -> tuple[str, ...]:
        """Why rules or a missing approval would refuse the landing; nobody is asked."""
        before = self._core.objects.commit(plan.tip).tree if plan.tip else None
        try:
            self._guard.check(name, onto, (before, str(plan.tree)), plan.head)
        except UnapprovedChange as unapproved:
            return unapproved.reasons
        return ()

    def _landed_before(self, name: str, ref: str, tip: str, head: str) -> str | None:
        """The head of the agent's last squashed landing, if the branch contains it without git knowing."""
        core = self._core
        for body in self.landings(name):
            if body["onto"] == ref and body.get("how") == SQUASH and core.contains(tip, body["cid"]):
                landed = str(body["head"])
                base = core.graph.merge_base(tip, head)
                # Only if it is newer than the merge base: the two may have been merged since.
                newer = base is None or (base != landed and core.graph.descends(landed, base))
                return landed if newer and core.contains(head, landed) else None
        return None

    def _undone(self, name: str, ref: str, tip: str) -> str | None:
        """The branch's head before the agent's newest landing there, if that was undone; None if it stands, or there is none."""
        for body in self._landing_events(name):
            if body.get("onto") == ref:
                base = body.get("base")
                undone = body.get("event") == LANDING_UNDONE and isinstance(base, str) and self._core.contains(tip, base)
                return str(base) if undone else None
        return None

    def _tip(self, ref: str) -> str | None:
        """The branch's head; None if it is checked out but has no commit yet."""
        tip = self._core.refs.get(ref)
        if tip is None and self._core.refs.followed_by(ref) is None:
            branches = [branch.removeprefix(names.BRANCHES) for branch, _ in self._core.refs.under(names.BRANCHES)]
            people = [branch for branch in branches if not branch.startswith("agents/")]
            branch = ref.removeprefix(names.BRANCHES)
            message = f"no branch {branch!r}{did_you_mean(branch, people)}"
            hints = [f"branches here: {', '.join(people) or 'none'}"]
            raise NotFound(message, code="no-such-branch", hints=hints, fields={"ref": ref})
        return tip

    def _write(self, name: str, onto: str, heads: tuple[str | None, str], tree: str, text: str, how: str) -> str:
        core = self._core
        tip, head = heads
        base = core.graph.merge_base(tip, head) if tip else None
        last = core.last_own(name, head)
        trailers = [(LANDED, name), (RANGE, f"{base or core.own_root(name, head)}..{head}")]
        commits = list(map(agent_commit, core.graph.walk([head], [tip] if tip else [])))
        decisions = [(DECISION_TRAILER, commit.cid) for commit in commits if commit.kind == DECISION]
        parents = [cid for cid in ((tip,) if how == SQUASH else (tip, head)) if cid is not None]
        all_trailers = [*trailers, (BRIEFING, last.briefing), (PROFILE, last.profile), *reversed(decisions)]
        default = f"land {name} onto {onto}"
        return core.write_commit(
            name, tree, parents, text or self._summary(name, last, commits, default, how), all_trailers, default
        )

    def _summary(self, name: str, last: AgentCommit, commits: list[AgentCommit], default: str, how: str) -> str:
        """What was done: the subject of the only squashed commit, else the title of the briefing and the subjects of all."""
        own_names = {name}
        for commit in commits:  # the newest first
            own_names |= {str(commit.formerly)} if commit.agent in own_names and commit.formerly is not None else set()
        subjects = [
            commit.subject for commit in reversed(commits) if commit.agent in own_names and commit.kind not in _WITHOUT_WORK
        ]
        if len(subjects) == 1 and how == SQUASH:
            return str(subjects[0])
        briefing = self._core.typed(last.briefing) if last.briefing else None
        title = briefing.title if isinstance(briefing, Briefing) else default
        title = f"Merge {name}: {title}" if how == MERGE else title
        listed = [f"- {subject}" for subject in subjects[:_LISTED_MAX]]
        listed += [f"- and {len(subjects) - _LISTED_MAX} more"] if len(subjects) > _LISTED_MAX else []
        return "\n".join([title, *(["", *listed] if listed else [])])

    def _move(self, name: str, body: Mapping[str, Any], proofs: list[tuple[str, str]]) -> list[str]:
        core = self._core
        ref, tip, new = body["onto"], body["base"], body["cid"]
        busy = core.refs.busy(ref)
        if busy is not None:
            raise Conflict(f"{ref} cannot be moved now: {busy}", code="branch-busy", fields={"ref": ref, "reason": busy})
        follow = self._envelope.followers(ref, tip or core.empty_tree(), new)
        chain = names.events(name)
        last = core.refs.get(chain)
        event = write_event(core, last, core.agent_stamp(name), body, f"landed on {ref}", proofs)
        after = (RefMove(chain, last, event),)
        return self._envelope.carry_out(Intent(name, "land", RefMove(ref, tip, new), after=after, follow=follow))

    def has_landed(self, name: str, onto: str) -> bool:
        """Whether a branch has all of the agent's work."""
        head, tip = self._core.own_head(name), self._core.refs.get(names.branch(onto))
        if tip is None:
            return False
        contained = self._core.graph.descends(tip, head) and self._undone(name, names.branch(onto), tip) is None
        return contained or self._is_landed(name, names.branch(onto), tip, head)

    def _is_landed(self, name: str, ref: str, tip: str, head: str) -> bool:
        """Whether a branch still contains a landing of this head."""
        landed = (body["cid"] for body in self.landings(name) if body["onto"] == ref and body["head"] == head)
        return any(self._core.contains(tip, cid) for cid in landed)

    def landed_on(self, name: str, head: str) -> str | None:
        """A branch that contains all of the agent's work."""
        for body in self.landings(name):
            tip = self._core.refs.get(body["onto"]) if body["head"] == head else None
            if tip is not None and self._core.contains(tip, body["cid"]):
                return str(body["onto"])
        return None

    def landings(self, name: str) -> list[LandingEvent]:
        """The landings of an agent that were not undone, newest first."""
        undone: set[str] = set()
        landings: list[LandingEvent] = []
        for body in self._landing_events(name):
            if body["event"] == LANDING_UNDONE:
                undone.add(body["cid"])
            elif body["cid"] not in undone:
                landings.append(body)
        return landings

    def _landing_events(self, name: str) -> Iterator[LandingEvent]:
        """The landings of an agent, and which of them were undone, newest first."""
        tip = self._core.refs.get(names.events(names.check_name(name)))
        for event in read_events(self._core, tip):
            body = dict(event.body)
            if body.get("event") in LANDING_EVENTS and all(isinstance(body.get(key), str) for key in ("onto", "cid", "head")):
                yield body
