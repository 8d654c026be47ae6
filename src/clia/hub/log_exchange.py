"""Exchange of the machines' logs of moves with the hub.

Invariant: each machine adds to its own log only, so a sync never forks one. A log is replaced only by one that continues it.
"""

from __future__ import annotations

from contextlib import suppress

from clia.errors import StaleRef
from clia.trust.machine_log import continues
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.hub.model import Move
    from clia.hub.remote import RemoteHub
    from clia.space.core import Core


def exchange_logs(alone: Core, hub: RemoteHub) -> None:
    """Fetch the logs of other machines, and push those that the hub lacks. ``alone``: the space with the refs of this clone."""
    ours = dict(alone.refs.under(names.LOGS))
    signs = bool(ours) or alone.refs.get(names.KEYS) is not None  # a machine that did nothing yet has no log
    if not signs or not hub.read(names.LOGS):
        return
    theirs = {str(names.tracked(ref)): cid for ref, cid in alone.refs.under(names.tracking(hub.remote, names.LOGS))}
    for ref, cid in theirs.items():
        if ref not in ours or (ours[ref] != cid and _continues(alone, ref, cid, ours[ref])):
            with suppress(StaleRef):  # another process did it
                alone.refs.move(ref, ours.get(ref), cid, "clia: follow the hub")
    moves: list[Move] = [
        (ref, theirs.get(ref), cid)
        for ref, cid in ours.items()
        if theirs.get(ref) != cid and (ref not in theirs or _continues(alone, ref, cid, theirs[ref]))
    ]
    if moves:
        hub.send(moves)


def _continues(alone: Core, ref: str, new: str, old: str) -> bool:
    return continues(alone.objects, ref.removeprefix(names.LOGS), new, old)
