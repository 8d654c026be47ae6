"""Why something that a peer says is not carried out here, as of now.

Invariant: the reason is the one that a sync would meet: the gate's word first, then what was wrong with the thing itself.
"""

from __future__ import annotations

from functools import cache

from clia.federation.acceptance import CLASH, DENIED, is_clash
from clia.federation.model import Untaken
from clia.federation.statements import is_shared_ref, place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.federation.capabilities import Capabilities
    from clia.federation.peers import Pinned
    from clia.federation.refusals import Refusals
    from clia.federation.statements import Claim

NOT_SYNCED = "not-synced"


class Standing:
    def __init__(self, capabilities: Capabilities, refusals: Refusals) -> None:
        self._capabilities = capabilities
        self._refusals = refusals

    def of(self, peer: Pinned, tracked: Mapping[str, str]) -> list[Untaken]:
        """What waits of a peer, sorted by place."""
        refusals = self._refusals.of(peer.space)
        last = {place_of(each.ref): each for each in reversed(refusals) if each.ref is not None and is_shared_ref(each.ref)}
        # Thousands of claims are of a few types: each is asked for once.
        denied = cache(lambda type_, trigger: self._capabilities.explain(peer.name, type_, trigger).missing)
        found = []
        clashing = {each.type for each in peer.position.waiting.values() if is_clash(each, tracked)}
        for claim in peer.position.waiting.values():
            if claim.new == tracked.get(claim.ref):
                continue
            missing = denied(claim.parent or claim.type, claim.trigger) if claim.new is not None else ()
            refused = last.get(claim.place)
            if claim.type in clashing:
                why = (CLASH, f"the type {claim.type} is another one here", "")
            elif missing:
                why = (DENIED, "; ".join(each.message for each in missing), missing[0].hint)
            elif refused is not None and refused.code != DENIED:
                why = (refused.code, refused.message, "")
            else:
                why = _to_come(peer.name, claim)
            found.append(Untaken(claim.place, tracked.get(claim.ref), claim.new, claim.type, claim.trigger, *why))
        return sorted(found)


def _to_come(peer: str, claim: Claim) -> tuple[str, str, str]:
    why = "it is allowed, and comes" if claim.new is not None else "it is no longer shared, and goes"
    return NOT_SYNCED, f"{why} with the next sync", f"clia sync {peer}"
