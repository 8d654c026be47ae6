"""Refs that several machines share through a hub.

Invariant: reads use the refs of this clone. A shared ref moves at the hub first, by compare-and-swap, and then here; after a
lost race this clone has the winner's value if it is a descendant. While the hub is unreachable, or this clone has unpublished
work, refs move only here, after that was recorded.
"""

from __future__ import annotations

from contextlib import suppress

from clia.errors import CliaError, StaleRef, StoreError, TransportError
from clia.git.refs import stale
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.git.graph import GitGraph
    from clia.git.refs import GitRefs
    from clia.hub.records import Move
    from clia.hub.remote import RemoteHub
    from clia.hub.unpublished import UnpublishedWork


class HubRefs:
    """``Refs`` of one clone and its hub. ``reached`` is called when the hub has moved and this clone has not."""

    shared = True

    def __init__(self, hub: RemoteHub, graph: GitGraph, unpublished: UnpublishedWork, reached: Callable[[str], None]) -> None:
        self._local: GitRefs = hub.local_refs
        self._hub = hub
        self._graph = graph
        self._unpublished = unpublished
        self._reached = reached
        self.get, self.under, self.look = self._local.get, self._local.under, self._local.look
        self.followed_by, self.busy = self._local.followed_by, self._local.busy
        self.forget_past = self._local.forget_past

    def move(self, name: str, old: str | None, new: str | None, why: str) -> None:
        if not names.is_shared(name):
            self._local.move(name, old, new, why)
        elif not self.move_together([(name, old, new)], why):
            self._unpublished.record(name)
            self._local.move(name, old, new, why)

    def move_together(self, moves: Sequence[Move], why: str) -> bool:
        if not all(names.is_shared(ref) for ref, _, _ in moves):
            return False
        for ref, old, new in moves:
            self._local.check(ref, old, new)
            actual = self._local.get(ref)
            if actual != old:
                raise stale(ref, old, actual)
        self._unpublished.announce(moves)
        if not self._matches_hub(moves):
            return self._leave_unpublished(moves)
        try:
            self._hub.send(moves)
        except TransportError:
            return self._leave_unpublished(moves)
        except StaleRef:
            for ref, _, _ in moves:
                self._catch_up(ref)
            self._withdraw([(ref, None, self._hub.tracked(ref)) for ref, _, _ in moves])
            raise
        except CliaError:  # refused by the hub
            self._withdraw([(ref, new, old) for ref, old, new in moves])
            raise
        self._reached("hub-moved")
        for ref, old, new in moves:
            self._move_local(ref, old, new, why)
        return True

    def _leave_unpublished(self, moves: Sequence[Move]) -> bool:
        """Record all moves at once: the hub may be reachable again before the caller has made the last one."""
        for ref, _, _ in moves:
            self._unpublished.record(ref)
        return False

    def told(self, name: str, cid: str) -> bool:
        return names.is_shared(name) and self._hub.tracked(name) == cid

    def _withdraw(self, moves: Sequence[Move]) -> None:
        """Undo an announcement. If that fails, other machines fetch once more than needed."""
        with suppress(StoreError):
            self._unpublished.announce(moves)

    def _matches_hub(self, moves: Sequence[Move]) -> bool:
        """Whether the hub has the old values. False if unpublished work comes first; ``StaleRef`` if the hub is ahead."""
        if any(self._unpublished.has(ref) for ref, _, _ in moves):
            return False
        doubtful = [(ref, old) for ref, old, _ in moves if self._hub.tracked(ref) != old]
        if not doubtful:
            return True
        if not self._hub.read(*(ref for ref, _ in doubtful)):
            return False
        for ref, old in doubtful:
            self._catch_up(ref)
            actual = self._local.get(ref)
            if actual != old:
                raise stale(ref, old, actual)
        return all(self._hub.tracked(ref) == old for ref, old in doubtful)

    def _move_local(self, ref: str, old: str | None, new: str | None, why: str) -> None:
        with suppress(StaleRef):  # another process of this clone has already followed the hub
            self._local.move(ref, old, new, why)

    def _catch_up(self, ref: str) -> None:
        """Fast-forward to the hub, unless a user's worktree has the branch checked out."""
        ours, theirs = self._local.get(ref), self._hub.tracked(ref)
        if theirs is None or ours == theirs or self._local.followed_by(ref) is not None:
            return
        if ours is None or self._graph.descends(theirs, ours):
            self._move_local(ref, ours, theirs, "clia: follow the hub")
