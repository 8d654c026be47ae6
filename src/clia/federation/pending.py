"""Refusals, and pending moves: what a peer announced that is not applied here.

The refusal log is for people; nothing is decided by it. Invariant: the reason of a pending move is the one that a sync would meet:
the gate's answer first, then what was wrong with the object.
"""

from __future__ import annotations

from functools import cache

from clia.federation.acceptance import CLASH, DENIED, is_clash
from clia.federation.model import Refused, Untaken
from clia.federation.statements import is_shared_ref, tracking_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clia.federation.capabilities import Capabilities
    from clia.federation.peers import PinnedPeer
    from clia.federation.statements import RefClaim
    from clia.space.core import Core

REFUSALS_KEPT = 500
_TEXT_MAX = 500
_STREAM = "federation/refused/"


class RefusalLog:
    """The newest refusals of each peer, in the store."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def add(self, space: str, refused: Sequence[Refused]) -> None:
        if not refused:
            return
        stream = _STREAM + space
        with self._core.store.writing() as transaction:
            end = transaction.streams.append(stream, [_shortened(refusal)._asdict() for refusal in refused[-REFUSALS_KEPT:]])
            transaction.streams.forget(stream, max(0, end - REFUSALS_KEPT))

    def of(self, space: str) -> list[Refused]:
        """Newest first."""
        with self._core.store.reading() as view:
            found = view.streams.read(_STREAM + space)
        return [Refused(**each.body) for each in reversed(found)]


def _shortened(refused: Refused) -> Refused:
    """Limit the length of text that comes from a peer."""
    return refused._replace(message=refused.message[:_TEXT_MAX], ref=refused.ref and refused.ref[:_TEXT_MAX])


NOT_SYNCED = "not-synced"


class PendingMoves:
    def __init__(self, capabilities: Capabilities, refusals: RefusalLog) -> None:
        self._capabilities = capabilities
        self._refusals = refusals

    def of(self, peer: PinnedPeer, tracked: Mapping[str, str]) -> list[Untaken]:
        """The pending moves of a peer, sorted by place."""
        refusals = self._refusals.of(peer.space)
        last = {
            tracking_path(refusal.ref): refusal
            for refusal in reversed(refusals)
            if refusal.ref is not None and is_shared_ref(refusal.ref)
        }
        # Thousands of claims have few types: ask once per type.
        denied = cache(lambda type_, trigger: self._capabilities.explain(peer.name, type_, trigger).missing)
        found = []
        clashing = {each.type for each in peer.position.waiting.values() if is_clash(each, tracked)}
        for claim in peer.position.waiting.values():
            if claim.new == tracked.get(claim.ref):
                continue
            missing = denied(claim.parent or claim.type, claim.trigger) if claim.new is not None else ()
            refused = last.get(claim.place)
            if claim.type in clashing:
                why = (CLASH, f"type {claim.type} has another meaning here", "")
            elif missing:
                why = (DENIED, "; ".join(each.message for each in missing), missing[0].hint)
            elif refused is not None and refused.code != DENIED:
                why = (refused.code, refused.message, "")
            else:
                why = _not_synced(peer.name, claim)
            found.append(Untaken(claim.place, tracked.get(claim.ref), claim.new, claim.type, claim.trigger, *why))
        return sorted(found)


def _not_synced(peer: str, claim: RefClaim) -> tuple[str, str, str]:
    why = "allowed; it will be fetched" if claim.new is not None else "no longer shared; it will be removed"
    return NOT_SYNCED, f"{why} by the next sync", f"clia sync {peer}"
