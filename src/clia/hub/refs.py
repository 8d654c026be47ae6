"""Refs that several machines share through a hub.

Invariant: what this clone reads are its own refs. A shared ref moves at the hub first, by compare and swap, and then here;
whoever lost the race has the winner's value afterwards, where that goes on from its own. While the hub is away, or this clone
owes it something, refs move here alone, and the ledger says so before they do.
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
    from clia.hub.interface import Ledger, Move
    from clia.hub.remote import RemoteHub


class HubRefs:
    """``Refs`` over those of one clone and a hub. ``reached`` is told when the hub has moved and this clone has not."""

    shared = True

    def __init__(self, hub: RemoteHub, graph: GitGraph, ledger: Ledger, reached: Callable[[str], None]) -> None:
        self._here: GitRefs = hub.here
        self._hub = hub
        self._graph = graph
        self._ledger = ledger
        self._reached = reached
        self.get, self.under, self.look = self._here.get, self._here.under, self._here.look
        self.followed_by, self.busy = self._here.followed_by, self._here.busy
        self.forget_past = self._here.forget_past

    def move(self, name: str, old: str | None, new: str | None, why: str) -> None:
        if not names.is_shared(name):
            self._here.move(name, old, new, why)
        elif not self.move_together([(name, old, new)], why):
            self._ledger.owe(name)
            self._here.move(name, old, new, why)

    def move_together(self, moves: Sequence[Move], why: str) -> bool:
        if not all(names.is_shared(ref) for ref, _, _ in moves):
            return False
        for ref, old, new in moves:
            self._here.check(ref, old, new)
            actual = self._here.get(ref)
            if actual != old:
                raise stale(ref, old, actual)
        self._ledger.expect(moves)
        if not self._is_in_step(moves):
            return self._alone(moves)
        try:
            self._hub.send(moves)
        except TransportError:
            return self._alone(moves)
        except StaleRef:
            for ref, _, _ in moves:
                self._catch_up(ref)
            self._take_back([(ref, None, self._hub.known(ref)) for ref, _, _ in moves])
            raise
        except CliaError:  # the hub does not want it
            self._take_back([(ref, new, old) for ref, old, new in moves])
            raise
        self._reached("hub-moved")
        for ref, old, new in moves:
            self._move_here(ref, old, new, why)
        return True

    def _alone(self, moves: Sequence[Move]) -> bool:
        """They are to be made here, each by itself, and all of them are owed: the hub may be back before the last one."""
        for ref, _, _ in moves:
            self._ledger.owe(ref)
        return False

    def told(self, name: str, cid: str) -> bool:
        return names.is_shared(name) and self._hub.known(name) == cid

    def _take_back(self, moves: Sequence[Move]) -> None:
        """What was said of the refs was not done; where that cannot be said now, others only look once more than needed."""
        with suppress(StoreError):
            self._ledger.expect(moves)

    def _is_in_step(self, moves: Sequence[Move]) -> bool:
        """Whether the hub has what is here. Where it has not, what is owed goes first; ``StaleRef`` where the hub has more."""
        if any(self._ledger.owes(ref) for ref, _, _ in moves):
            return False
        doubtful = [(ref, old) for ref, old, _ in moves if self._hub.known(ref) != old]
        if not doubtful:
            return True
        if not self._hub.read(*(ref for ref, _ in doubtful)):
            return False
        for ref, old in doubtful:
            self._catch_up(ref)
            actual = self._here.get(ref)
            if actual != old:
                raise stale(ref, old, actual)
        return all(self._hub.known(ref) == old for ref, old in doubtful)

    def _move_here(self, ref: str, old: str | None, new: str | None, why: str) -> None:
        with suppress(StaleRef):  # another process of this clone has read the hub meanwhile, and followed it
            self._here.move(ref, old, new, why)

    def _catch_up(self, ref: str) -> None:
        """Follows the hub, where it goes on from what is here and no worktree of people would be left behind."""
        ours, theirs = self._here.get(ref), self._hub.known(ref)
        if theirs is None or ours == theirs or self._here.followed_by(ref) is not None:
            return
        if ours is None or self._graph.descends(theirs, ours):
            self._move_here(ref, ours, theirs, "clia: follow the hub")
