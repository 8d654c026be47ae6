"""Unpublished work: what machines that share a store tell each other about refs the hub does not have yet.

Invariant: a machine that moves a ref without the hub records that first (``owed/``), and announces every move before it makes
it (``last/``). A record may claim more than was done, never less; it counts only where refs agree with it.
"""

from __future__ import annotations

from clia.hub.errors import nothing_elsewhere
from clia.hub.records import Elsewhere
from clia.space.adoption import lock_of
from clia.values import refs as names
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from clia.hub.records import Move
    from clia.store.interface import Store
    from clia.values.clock import Clock

UNPUBLISHED, ANNOUNCED = "owed/", "last/"
_SCAN_FROM = 500  # from this many agents one scan is faster than a round trip each


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
        """Record the new values of refs, before they are moved anywhere, so that other machines know if they lag behind."""
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
        wanted = set(agents)
        if len(wanted) > _SCAN_FROM:
            rows = ((key.removeprefix(ANNOUNCED), value) for key, value in self._store.scan(ANNOUNCED))
            return [(name, dict(value)) for name, value in rows if name in wanted]
        with self._store.reading() as view:
            found = [(name, view.values.get(ANNOUNCED + name)) for name in sorted(wanted)]
        return [(name, dict(row.value)) for name, row in found if row is not None]

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
        row = None if lock is None else self._store.get(UNPUBLISHED + lock)
        rows = self._store.scan(UNPUBLISHED) if lock is None else [] if row is None else [(UNPUBLISHED + lock, row.value)]
        named = ((key.removeprefix(UNPUBLISHED), value) for key, value in rows)
        return [
            Elsewhere(name, _clone_of(value), value.get("since", ""))
            for name, value in named
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
