"""Agency entries about approvals: what a person allowed, in the agent's branch.

Invariant: an entry is written once, from the decision's commit, and names it. An approved waiver is recorded in the agency of the
identity that owns the guardrail, so that the waiver counts where this branch lands; anything else in that of the agent's identity.
An identity of an enclosing repository or of a submodule is not in the agent's files, so a person records a waiver there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.errors import CliaError
from clia.identities.contexts import AGENTS, ROOT
from clia.identities.guardrails.changes import WAIVED
from clia.identities.guardrails.waivers import DECIDED, WAIVES, guardrail_owners, waived_in
from clia.identities.journal import Note, journal_entry
from clia.identities.lineage import Lineage
from clia.identities.tree_files import TOP, TreeFiles
from clia.identities.working_path import below, survey
from clia.space.agent_journals import JournalPlace
from clia.values.canonical import text_digest
from clia.values.clock import timestamp
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clia.identities.tree_files import SubmoduleTree
    from clia.space.agent_journals import AgentJournals
    from clia.space.core import Core
    from clia.space.model import AgentCommit

_TEXTS_SHOWN = 5
_TOP_DIRECTORY = "."


class ApprovalEntries(NamedTuple):
    """Writes what a decision on guardrails approves into journals."""

    core: Core
    journals: AgentJournals
    submodule_tree: SubmoduleTree

    def write(self, agent: str, decision: AgentCommit, slug: str | None) -> None:
        """Write the entries of a decision. ``slug``: the agent's identity. A failure is a notice: the decision stays."""
        try:
            entries = self._entries(agent, decision, slug)
            if entries:
                self.journals.record(agent, entries, f"decision {decision.cid}", f"journal: {_who(decision)} approved a change")
        except CliaError as err:
            self.core.notify(f"approved, but the journal could not be written: {err.message}")

    def _entries(self, agent: str, decision: AgentCommit, slug: str | None) -> dict[JournalPlace, dict[str, Any]]:
        losses = _losses(decision)
        waives = self._waives(agent, losses)
        places = dict(waives)
        if slug is not None and any(loss.get("kind") != WAIVED for loss in losses):
            places.setdefault(JournalPlace(slug), [])
        moment = timestamp(self.core.clock())
        about = {DECIDED: decision.cid, "x-agent": agent}
        entries = {}
        for place, waived in places.items():
            note = Note(_summary(agent, decision, losses), kind=DECISION, idempotency_key=f"decision {decision.cid}", about=about)
            entry = journal_entry(place.slug, note, _who(decision), self.journals.source(), moment)
            entry["contributions"][0]["by"] = _who(decision)
            if waived:
                entry["extensions"][WAIVES] = waived
            entries[place] = entry
        return entries

    def _waives(self, agent: str, losses: list[dict[str, Any]]) -> dict[JournalPlace, list[dict[str, str]]]:
        """The approved waivers by the journal of each owner of the guardrail."""
        tree = self.core.objects.commit(self.core.require_head(agent)).tree
        files = TreeFiles(self.core.objects, tree, self.submodule_tree)
        waives: dict[JournalPlace, list[dict[str, str]]] = {}
        for guardrail, identity, directory in _waived_places(losses):
            try:
                lineage = Lineage(files, survey(files, TOP if directory == _TOP_DIRECTORY else f"{TOP}/{directory}"), identity)
                approvals = lineage.approvals()
                owners, homes = guardrail_owners(lineage.profile(), approvals, guardrail)
            except CliaError:
                continue  # the documents cannot be read any more: nothing is waived
            for owner in sorted(owners - homes or owners):
                place = _place_of(owner, approvals.domain(owner))
                domain = approvals.domain(owner)
                for home in sorted(homes):
                    item = {"guardrail": guardrail, "in": waived_in(home, domain)}
                    if place is not None and item not in waives.setdefault(place, []):
                        waives[place].append(item)
        return waives


def _place_of(owner: str, domain: str) -> JournalPlace | None:
    """The journal at a directory that states a guardrail; None outside of the tree."""
    if domain != TOP and not domain.startswith(f"{TOP}/"):
        return None
    inner = owner.removeprefix(below(domain, f"{AGENTS}/"))
    return JournalPlace(inner if inner != owner and "/" not in inner else ROOT, domain.removeprefix(TOP).lstrip("/"))


def _losses(decision: AgentCommit) -> list[dict[str, Any]]:
    losses = decision.meta.get("asked", {}).get("losses")
    return [loss for loss in losses if isinstance(loss, dict)] if isinstance(losses, list) else []


def _waived_places(losses: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """The digest of each waived guardrail, with an identity and a directory where the waiver applies."""
    for loss in losses:
        for place in loss.get("places", ()) if loss.get("kind") == WAIVED else ():
            identity, _, directory = str(place).partition(" in ")
            yield text_digest(str(loss.get("guardrail"))), identity, directory


def _who(decision: AgentCommit) -> str:
    return decision.by or "a person"


def _summary(agent: str, decision: AgentCommit, losses: list[Mapping[str, Any]] | list[dict[str, Any]]) -> str:
    texts = [f"{loss.get('kind')}: {loss.get('guardrail')!r}" for loss in losses[:_TEXTS_SHOWN]]
    more = [f"and {len(losses) - _TEXTS_SHOWN} more"] if len(losses) > _TEXTS_SHOWN else []
    shown = "; ".join([*texts, *more])
    return f"{_who(decision)} approved a change of guardrails by {agent}, decision {decision.cid[:12]}: {shown}"
