"""The guardrails that a space has accepted: what identities were bound by when agents were spawned.

A person's plain commit can remove a guardrail from a document. Agents that are spawned afterwards are compared with what was
accepted before: a loss stops them until a person decides on it, here or on a landing.

Invariant: events of one chain, whose order has no meaning, so that clones can unite theirs. A guardrail is accepted if an event
states it and no decision on its loss has seen that event. Nothing else removes one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.approvals.evidence import Evidence, approval_in, is_recorded
from clia.approvals.history import CoreHistory
from clia.errors import CliaError, InvalidInput, NotAllowed
from clia.identities.agent_places import SpawnPlace, guardrails_of, without
from clia.identities.agent_profiles import OUTSIDE, AgentPlace
from clia.identities.contexts import AGENTS, ROOT
from clia.identities.guardrails.changes import LOOSENED, GuardrailLoss, LossPlace, profile_change
from clia.identities.merge_rules import projected_text
from clia.identities.profile_drift import resolve
from clia.identities.working_path import below
from clia.space.events import append_event, read_events
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.values.people import is_listed
from clia.values.slugs import is_slug
from clia.values.types import DECISION, GUARDRAIL_CHANGE
from clia.verbs import channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from clia.approvals.evidence import Approvers
    from clia.sessions.lifecycle import Lifecycle
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.model import AgentCommit

STATED, LOST = "guardrails", "guardrails-lost"
"""Events: guardrails that an identity has at a place, and a person's decision that some are lost."""
_WALK_MAX = 20_000
_SHOWN = 10


class AcceptedLoss(NamedTuple):
    """A person's decision that guardrails are lost."""

    decision: str | None  # the commit of the decision; null: nothing was lost
    by: str  # who decided
    lost: tuple[GuardrailLoss, ...]  # what is lost


class _Accepted(NamedTuple):
    """A guardrail of an identity at a place, with the events that state it."""

    item: Any
    events: tuple[str, ...]
    heads: tuple[str, ...]  # what was checked out then


class _PlacedLosses(NamedTuple):
    """What an identity has lost at a directory."""

    place: LossPlace
    losses: tuple[GuardrailLoss, ...]
    items: tuple[_Accepted, ...]  # the accepted guardrails that are gone
    now: tuple[Any, ...]
    heads: tuple[str, ...]  # what was checked out when they were accepted


class AcceptedGuardrails(NamedTuple):
    """Compares guardrails with what was accepted before, and records both."""

    core: Core
    envelope: Envelope
    directory: str  # where the space is opened
    lifecycle: Callable[[], Lifecycle]
    approvers: Approvers
    checked_out: Callable[[], str | None]  # the branch or commit of HEAD

    # Spawning

    def check(self, name: str, slug: str | None, place: SpawnPlace, guardrails: Sequence[Any]) -> None:
        """``NotAllowed`` if an agent would be spawned without a guardrail that was accepted before. What is new is recorded."""
        losses = _merged(self.undecided(name, slug, place, guardrails))
        if losses:
            raise _refusal(slug, losses)
        self.record(slug, place)

    def undecided(
        self, name: str, slug: str | None, place: SpawnPlace, guardrails: Sequence[Any] = (), *, keep: bool = True
    ) -> list[_PlacedLosses]:
        """What is gone without a decision; ``guardrails`` are those that bind the agent anyway. ``keep``: record decided losses."""
        bound = [self.core.clean.value(item) for item in guardrails]
        undecided: list[_PlacedLosses] = []
        for placed in self._losses(name, slug, place):
            texts = {projected_text(item) for item in bound}
            left = [loss for loss in placed.losses if loss.kind == LOOSENED or loss.text not in texts]
            decision = self._decision_on(placed._replace(losses=tuple(left))) if left else None
            if decision is not None and keep:
                self._append_lost(placed, decision.by or "", f"decision {decision.cid[:12]}", decision.cid)
            elif decision is None and left:
                undecided.append(placed._replace(losses=tuple(left)))
        return undecided

    def record(self, slug: str | None, place: SpawnPlace) -> None:
        """Record the guardrails that hold at a place and around it, as far as they are new."""
        accepted = self._state()
        for identity, path in self._subjects(slug, place):
            items = self._now(identity, path)
            new = without(items, [entry.item for entry in accepted.get((identity, path), ())])
            if new:
                body = {"event": STATED, "identity": identity, "path": path, "guardrails": new, "head": self._head()}
                self._append(body, f"guardrails of {identity} at {path or '.'}")

    # Decisions

    def gone(self) -> list[GuardrailLoss]:
        """What is gone without a decision, of every identity at every place."""
        return _merged(self._gone())

    def _gone(self) -> list[_PlacedLosses]:
        paths = {path: None for _, path in self._state()}
        identities = sorted({identity for identity, _ in self._state()})
        places = (self.undecided("", identity, SpawnPlace("", path=path)) for path in paths for identity in identities)
        return list({placed.place: placed for listed in places for placed in listed}.values())

    def accept(self, reason: str, by: str) -> AcceptedLoss:
        """Record a person's decision that what is gone is lost."""
        text = check_text(reason, "reason").strip()
        if not text:
            raise InvalidInput("say why the guardrails may be lost", code="empty-value", fields={"field": "reason"})
        if names.is_name(by) and self.core.head(by) is not None:
            raise NotAllowed(f"{by!r} is an agent, and a person decides on lost guardrails", code="not-a-person")
        if not is_listed(by, self.approvers.people):
            raise NotAllowed(f"{by} may not approve here", code="not-an-approver", fields={"by": by})
        gone, decision = self._gone(), None
        for placed in gone:
            decision = self._append_lost(placed, by, self.core.clean.text(text, "reason"), None)
        return AcceptedLoss(decision, by, tuple(_merged(gone)))

    def _append_lost(self, placed: _PlacedLosses, by: str, reason: str, decision: str | None) -> str:
        body: dict[str, Any] = {
            "event": LOST,
            "kind": GUARDRAIL_CHANGE,
            "identity": placed.place.identity,
            "path": _path_of(placed.place),
            "losses": [{"kind": loss.kind, "guardrail": loss.text, "now": loss.now} for loss in placed.losses],
            "gone": sorted({event for item in placed.items for event in item.events}),
            "guardrails": [item.item for item in placed.items],
            "by": by,
            "reason": reason,
            "channel": channel(),
        }
        if decision is not None:
            body["decision"] = decision
        if placed.now:
            stated = {"event": STATED, "identity": placed.place.identity, "path": _path_of(placed.place)}
            self._append(stated | {"guardrails": list(placed.now), "head": self._head()}, f"guardrails of {placed.place.identity}")
        return self._append(body, f"decision: {placed.place.identity} loses {len(placed.losses)} at {placed.place.directory}")

    def _append(self, body: dict[str, Any], subject: str) -> str:
        core = self.core
        core.fresh(names.GUARDRAILS_LOCK)
        with self.envelope.among_others(), core.locks.hold(names.GUARDRAILS_LOCK):
            return append_event(core, names.GUARDRAILS, core.person_stamp(), body, subject)

    # Reading

    def is_empty(self) -> bool:
        """Whether nothing was accepted yet."""
        return self.core.refs.get(names.GUARDRAILS) is None

    def _state(self) -> dict[tuple[str, str], list[_Accepted]]:
        """The accepted guardrails by identity and directory."""
        stated: dict[tuple[str, str], list[tuple[Any, str, str]]] = {}
        gone: dict[tuple[str, str], list[tuple[Any, frozenset[str]]]] = {}
        for event in read_events(self.core, self.core.refs.get(names.GUARDRAILS)):
            identity, path, items = (event.body.get(key) for key in ("identity", "path", "guardrails"))
            if not isinstance(identity, str) or not isinstance(path, str) or not isinstance(items, list):
                continue
            if event.body.get("event") == STATED:
                head = event.body.get("head")
                entries = [(item, event.cid, head if isinstance(head, str) else "") for item in items]
                stated.setdefault((identity, path), []).extend(entries)
            elif event.body.get("event") == LOST:
                listed = event.body.get("gone")
                events = frozenset(listed if isinstance(listed, list) else ())
                gone.setdefault((identity, path), []).extend((item, events) for item in items)
        return {place: _remaining(entries, gone.get(place, [])) for place, entries in stated.items()}

    def _losses(self, name: str, slug: str | None, place: SpawnPlace) -> Iterator[_PlacedLosses]:
        """What is gone of the accepted guardrails that hold for an identity at a place."""
        wanted = {ROOT, slug or (name if is_slug(name) else ROOT)}
        for (identity, path), accepted in sorted(self._state().items()):
            if identity not in wanted or not accepted or not f"{place.path}/".startswith(f"{path}/" if path else ""):
                continue
            now = self._now(identity, path)
            change = profile_change(identity, [entry.item for entry in accepted], now)
            where = LossPlace(identity, path or ".")
            losses = tuple(loss._replace(places=(where,)) for loss in change.losses)
            if losses:
                texts = {loss.text for loss in losses}
                items = tuple(entry for entry in accepted if projected_text(entry.item) in texts)
                new = without(now, [entry.item for entry in accepted])
                heads = {head for entry in items or accepted for head in entry.heads if head}
                yield _PlacedLosses(where, losses, items, tuple(new), tuple(sorted(heads)))

    def _subjects(self, slug: str | None, place: SpawnPlace) -> Iterator[tuple[str, str]]:
        """The identities and directories that decide about the guardrails of an identity at a place."""
        parts = place.path.split("/") if place.path else []
        paths = ["/".join(parts[:count]) for count in range(len(parts) + 1)]
        top = AgentPlace(self.directory, SpawnPlace(""), OUTSIDE)
        for path in paths:
            directory = below(top.survey.path, path) if path else top.survey.path
            if path in ("", place.path) or top.files.entries(below(directory, AGENTS)) is not None:
                yield from ((identity, path) for identity in dict.fromkeys((ROOT, slug or ROOT)))

    def _now(self, identity: str, path: str) -> list[Any]:
        """The guardrails of an identity at a directory of the main worktree, redacted."""
        place = AgentPlace(self.directory, SpawnPlace("", path=path), OUTSIDE)
        document = resolve(place, None if identity == ROOT else identity).document
        return [self.core.clean.value(item) for item in guardrails_of(document)]

    # Decisions on landings

    def _head(self) -> str:
        """The commit that is checked out; empty if there is none."""
        head = self.checked_out()
        if head is None:
            return ""
        return head if names.is_id(head) else self.core.refs.get(head) or ""

    def _decision_on(self, placed: _PlacedLosses) -> AgentCommit | None:
        """A decision that came with the checked out history since the guardrails were accepted, and names all that is lost."""
        head = self._head()
        if not head:
            return None
        hidden = [cid for cid in placed.heads if self.core.objects.kind(cid) == "commit"]
        for commit in self._decisions(head, hidden):
            approval = approval_in(commit)
            listed = commit.meta.get("asked", {}).get("losses")
            texts = {str(loss.get("guardrail")) for loss in listed if isinstance(loss, dict)} if isinstance(listed, list) else set()
            if (
                approval is not None
                and approval.approved
                and {loss.text for loss in placed.losses} <= texts
                and self._counts(commit)
            ):
                return commit
        return None

    def _decisions(self, head: str, hidden: list[str]) -> Iterator[AgentCommit]:
        """The decisions in a history, and those that its landings name."""
        core = self.core
        for number, entry in enumerate(core.graph.walk([head], hidden)):
            if number >= _WALK_MAX:
                return
            commit = core.read(entry.cid)
            if commit.kind == DECISION:
                yield commit
            for cid in commit.decisions if commit.landed is not None else ():
                if core.objects.kind(cid) == "commit":
                    yield core.read(cid)

    def _counts(self, decision: AgentCommit) -> bool:
        """Whether a person who may decide made a decision that a session here recorded."""
        core = self.core
        is_agent = lambda name: names.is_name(name) and core.head(name) is not None  # noqa: E731
        recorded = lambda commit: is_recorded(self.lifecycle(), commit)  # noqa: E731
        evidence = Evidence(CoreHistory(core), self.approvers, (decision,), lambda *_: False, is_agent, recorded)
        return evidence.objection(decision) is None


def _remaining(stated: Iterable[tuple[Any, str, str]], gone: Sequence[tuple[Any, frozenset[str]]]) -> list[_Accepted]:
    """The guardrails with the events that no decision on their loss has seen."""
    accepted: list[_Accepted] = []
    for item, event, head in stated:
        if any(event in events and not without([item], [lost]) for lost, events in gone):
            continue
        at = next((number for number, entry in enumerate(accepted) if not without([item], [entry.item])), None)
        if at is None:
            accepted.append(_Accepted(item, (event,), (head,)))
        else:
            accepted[at] = _Accepted(item, (*accepted[at].events, event), (*accepted[at].heads, head))
    return accepted


def _merged(placed: Iterable[_PlacedLosses]) -> list[GuardrailLoss]:
    """Each loss once, with all its places; a root rule is lost for each identity."""
    places: dict[GuardrailLoss, list[LossPlace]] = {}
    for item in placed:
        for loss in item.losses:
            places.setdefault(loss._replace(places=()), []).append(item.place)
    return [loss._replace(places=tuple(sorted(where))) for loss, where in places.items()]


def _path_of(place: LossPlace) -> str:
    return "" if place.directory == "." else place.directory


def _refusal(slug: str | None, losses: Sequence[GuardrailLoss]) -> CliaError:
    whose = "an agent without an identity" if slug is None else slug
    count = "1 guardrail" if len(losses) == 1 else f"{len(losses)} guardrails"
    listed = [str(loss) for loss in losses]
    more = [f"and {len(listed) - _SHOWN} more"] if len(listed) > _SHOWN else []
    hints = [*listed[:_SHOWN], *more, "restore them, or a person accepts the loss: clia agents accept-loss -m WHY"]
    message = f"{whose} would lose {count} that earlier agents had, which needs a person's decision"
    return NotAllowed(message, code=GUARDRAIL_CHANGE, hints=hints, fields={"slug": slug, "losses": listed})
