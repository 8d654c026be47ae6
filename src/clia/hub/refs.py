"""Refs that several machines share through a hub.

Invariant: reads use the refs of this clone. A shared ref moves at the hub first, by compare-and-swap, and then here; after a
lost race this clone has the winner's value if it is a descendant. While the hub is unreachable, or this clone has unpublished
work, refs move only here, after that was recorded.

Machines that share a store tell each other about refs the hub does not have yet: a machine that moves a ref without the hub records
that first (``owed/``), and announces every move before it makes it (``last/``). A record may claim more than was done, never less;
it counts only where refs agree with it.
"""

from __future__ import annotations

from contextlib import suppress

from clia.errors import CliaError, GitError, StaleRef, StoreError, TransportError
from clia.git.refs import stale
from clia.hub.errors import nothing_elsewhere
from clia.hub.model import Elsewhere
from clia.space.remotes import lock_of
from clia.values import refs as names
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from clia.git.graph import GitGraph
    from clia.git.refs import GitRefs
    from clia.hub.model import Move
    from clia.hub.remote import RemoteHub
    from clia.store.interface import Store
    from clia.values.clock import Clock

UNPUBLISHED, ANNOUNCED = "owed/", "last/"
SCAN_FROM = 500  # from this many agents one scan is faster than a round trip each


class HubRefs:
    """``Refs`` of one clone and its hub. ``reached`` is called when the hub has moved and this clone has not."""

    shared = True

    def __init__(
        self,
        hub: RemoteHub,
        graph: GitGraph,
        unpublished: UnpublishedWork,
        reached: Callable[[str], None],
        notify: Callable[[str], None],
    ) -> None:
        self._local: GitRefs = hub.local_refs
        self._hub = hub
        self._graph = graph
        self._unpublished = unpublished
        self._reached = reached
        self._notify = notify
        self.get, self.under, self.missing, self.look = self._local.get, self._local.under, self._local.missing, self._local.look
        self.followed_by, self.busy = self._local.followed_by, self._local.busy
        self.past, self.with_past, self.forget_past = self._local.past, self._local.with_past, self._local.forget_past

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
        sent = self._matches_hub(moves)
        try:
            if sent:
                self._send(moves, why)
        except TransportError:
            sent = False
        except StaleRef:
            for ref, _, _ in moves:
                self._catch_up(ref)
            self._withdraw([(ref, None, self._hub.tracked(ref)) for ref, _, _ in moves])
            raise
        except CliaError:  # refused by the hub
            self._withdraw([(ref, new, old) for ref, old, new in moves])
            raise
        if not sent:
            # Record all at once: the hub may be reachable again before the caller has made the last move.
            for ref, _, _ in moves:
                self._unpublished.record(ref)
            return False
        self._reached("hub-moved")
        self._follow(moves, why)
        return True

    def _send(self, moves: Sequence[Move], why: str) -> None:
        """Move refs at the hub, and log that: otherwise a process that dies now would leave moves that no machine logged."""
        log = self._local.log
        if log is None:
            self._hub.send(moves)
            return
        noted = [log.begin(ref, old, new, why, at_hub=True) for ref, old, new in moves]
        notes = [note for note in noted if note is not None]
        try:
            self._hub.send(moves)
        except CliaError as err:
            for note in notes:
                log.doubt(note) if isinstance(err, TransportError) else log.cancel(note)
            raise
        for note in notes:
            log.end(note)

    def _follow(self, moves: Sequence[Move], why: str) -> None:
        """Repeat moves here that were made at the hub.

        A failure is not an error: the caller would repeat moves that are recorded.
        """
        try:
            for ref, old, new in moves:
                self._move_local(ref, old, new, why, is_logged=True)
        except GitError as err:
            self._notify(f"recorded at the hub, but not here yet ({err.message}); clia hub sync completes it")

    def is_at_hub(self, name: str, cid: str) -> bool:
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

    def _move_local(self, ref: str, old: str | None, new: str | None, why: str, *, is_logged: bool = False) -> None:
        with suppress(StaleRef):  # another process of this clone has already followed the hub
            self._local.move(ref, old, new, why, is_logged=is_logged)

    def _catch_up(self, ref: str) -> None:
        """Fast-forward to the hub, unless a user's worktree has the branch checked out."""
        ours, theirs = self._local.get(ref), self._hub.tracked(ref)
        if theirs is None or ours == theirs or self._local.followed_by(ref) is not None:
            return
        if ours is None or self._graph.descends(theirs, ours):
            self._move_local(ref, ours, theirs, "clia: follow the hub")


class UnpublishedWork:
    """Records in the store, one per lock. ``shared``: other machines use the same store."""

    def __init__(self, store: Store, clone: str, clock: Clock, *, shared: bool) -> None:
        self.clone = clone
        self.recorded_any = False  # through this object
        self._shared = shared
        self._store = store
        self._clock = clock

    def has(self, ref: str) -> bool:
        """Whether this machine has unpublished work under the lock of a ref."""
        return self.has_under(lock_of(ref))

    def has_under(self, lock: str) -> bool:
        row = self._store.get(UNPUBLISHED + lock)
        return row is not None and _clone_of(row.value) == self.clone

    def record(self, ref: str) -> None:
        """Record unpublished work, before the ref is moved."""
        self.recorded_any = True
        key, since = UNPUBLISHED + lock_of(ref), timestamp(self._clock())  # before: the clock may have to ask the store
        with self._store.writing() as transaction:
            row = transaction.values.get(key)
            if row is None or _clone_of(row.value) != self.clone:
                transaction.values.put(key, {"clone": self.clone, "since": since})

    def announce(self, moves: Sequence[Move]) -> None:
        """Record the new values of refs before they move anywhere, so that other machines notice if they lag behind."""
        if not self._shared:
            return
        with self._store.writing() as transaction:
            for ref, _, new in moves:
                row = transaction.values.get(ANNOUNCED + lock_of(ref))
                transaction.values.put(ANNOUNCED + lock_of(ref), {**(row.value if row else {}), ref: new})

    def correct(self, lock: str, refs: Mapping[str, str | None]) -> None:
        """Replace announced values by those of the hub: a different announcement was never carried out, or is outdated."""
        row = self._store.get(ANNOUNCED + lock) if self._shared else None
        if row is None or all(refs.get(ref) == cid for ref, cid in row.value.items()):
            return
        with self._store.writing() as transaction:
            transaction.values.put(ANNOUNCED + lock, {ref: refs.get(ref) for ref in row.value})

    def announced(self, name: str) -> dict[str, str | None] | None:
        """Return the last announced values of an agent's refs; None if no machine announced any."""
        row = self._store.get(ANNOUNCED + name) if self._shared else None
        return None if row is None else dict(row.value)

    def announced_for(self, agents: Iterable[str]) -> list[tuple[str, dict[str, str | None]]]:
        """Return the last announced values for those of the agents that have any."""
        if not self._shared:
            return []
        names = set(agents)
        if len(names) > SCAN_FROM:
            rows = ((key.removeprefix(ANNOUNCED), value) for key, value in self._store.scan(ANNOUNCED))
            return [(name, dict(value)) for name, value in rows if name in names]
        with self._store.reading() as view:
            stored = [(name, view.values.get(ANNOUNCED + name)) for name in sorted(names)]
        return [(name, dict(row.value)) for name, row in stored if row is not None]

    def announced_chains(self) -> dict[str, str | None]:
        """Return the last announced values of refs that belong to no agent."""
        return {ref: cid for _, row in self._store.scan(f"{ANNOUNCED}@") for ref, cid in row.items()}

    def may_exist_elsewhere(self, name: str) -> bool:
        """Whether an agent that is unknown here may be at the hub: machines that share the store announce each one."""
        return not self._shared or self._store.get(ANNOUNCED + name) is not None

    def mark_published(self, lock: str, *, by_anyone: bool = False) -> None:
        """Delete this machine's record; ``by_anyone``: any machine's."""
        with self._store.writing() as transaction:
            row = transaction.values.get(UNPUBLISHED + lock)
            if row is not None and (by_anyone or _clone_of(row.value) == self.clone):
                transaction.values.delete(UNPUBLISHED + lock)

    def discard(self, lock: str, refs: Mapping[str, str | None]) -> None:
        """Give up another machine's unpublished work; ``refs`` are the values that count now."""
        with self._store.writing() as transaction:
            transaction.values.delete(UNPUBLISHED + lock)
            if self._shared:
                transaction.values.put(ANNOUNCED + lock, dict(refs))

    def elsewhere(self, lock: str | None = None) -> list[Elsewhere]:
        """Return the unpublished work of other machines, for one lock or for all agents."""
        if lock is None:
            rows = [(key.removeprefix(UNPUBLISHED), value) for key, value in self._store.scan(UNPUBLISHED)]
        else:
            row = self._store.get(UNPUBLISHED + lock)
            rows = [] if row is None else [(lock, row.value)]
        return [
            Elsewhere(name, _clone_of(value), value.get("since", ""))
            for name, value in rows
            if names.is_name(name) and self._is_foreign(value)
        ]

    def is_elsewhere(self, lock: str) -> bool:
        """Whether another machine has unpublished work under a lock, of an agent or a chain."""
        row = self._store.get(UNPUBLISHED + lock)
        return row is not None and self._is_foreign(row.value)

    def lock_elsewhere(self, name: str) -> str:
        """Return the lock of an agent, or of a chain such as ``(types)``, with unpublished work on another machine."""
        chain = lock_of(f"refs/clia/{name.strip('()')}")  # behaviours/x, types
        for lock in (name, chain):
            if self.is_elsewhere(lock):
                return lock
        raise nothing_elsewhere(name)

    def _is_foreign(self, value: Any) -> bool:
        return _clone_of(value) not in ("", self.clone)


def _clone_of(value: Any) -> str:
    return str(value.get("clone", "")) if isinstance(value, dict) else ""
