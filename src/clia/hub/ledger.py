"""What machines of a space tell each other about the hub, through the store that they share.

Invariant: whoever moves a ref without the hub has said so before (``owed/``), and whoever moves one at all has said what it is to
be (``last/``). A note may say more than was done, and never less: what it says of refs is only believed where refs agree.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.hub.refusals import nothing_elsewhere
from clia.space.adoption import lock_of
from clia.values import refs as names
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from clia.hub.interface import Move
    from clia.store.interface import Store
    from clia.values.clock import Clock

OWED, LAST = "owed/", "last/"
_MANY = 500  # agents for which all notes are read at once: each by itself is a way to the server and back


class Elsewhere(NamedTuple):
    """Work that another machine has not published yet."""

    agent: str
    clone: str
    since: str


class StoreLedger:
    """``Ledger`` in the store: a value for each lock under which something was moved that the hub does not know."""

    def __init__(self, store: Store, clone: str, clock: Clock, *, shared: bool) -> None:
        """``shared``: other machines have the same store."""
        self.clone = clone
        self.has_owed = False  # whether anything was noted down through this object
        self._shared = shared
        self._store = store
        self._clock = clock

    def owes(self, ref: str) -> bool:
        return self.owes_under(lock_of(ref))

    def owes_under(self, lock: str) -> bool:
        """Whether this machine owes anything that is moved under a lock."""
        row = self._store.get(OWED + lock)
        return row is not None and _clone_of(row.value) == self.clone

    def owe(self, ref: str) -> None:
        self.has_owed = True
        key, since = OWED + lock_of(ref), timestamp(self._clock())  # asked before: the clock may have to ask the store
        with self._store.writing() as transaction:
            row = transaction.values.get(key)
            if row is None or _clone_of(row.value) != self.clone:
                transaction.values.put(key, {"clone": self.clone, "since": since})

    def expect(self, moves: Sequence[Move]) -> None:
        if not self._shared:
            return
        with self._store.writing() as transaction:
            for ref, _, new in moves:
                row = transaction.values.get(LAST + lock_of(ref))
                transaction.values.put(LAST + lock_of(ref), {**(row.value if row else {}), ref: new})

    def correct(self, lock: str, refs: Mapping[str, str | None]) -> None:
        """The hub was read, and refs are so: what was noted of them otherwise was never done, or is past."""
        row = self._store.get(LAST + lock) if self._shared else None
        if row is None or all(refs.get(ref) == cid for ref, cid in row.value.items()):
            return
        with self._store.writing() as transaction:
            transaction.values.put(LAST + lock, {ref: refs.get(ref) for ref in row.value})

    def last(self, name: str) -> dict[str, str | None] | None:
        """The last values that any machine was about to give to refs of an agent; None where no machine has said any."""
        row = self._store.get(LAST + name) if self._shared else None
        return None if row is None else dict(row.value)

    def last_of(self, agents: Iterable[str]) -> list[tuple[str, dict[str, str | None]]]:
        """The like of several agents: of those that any machine has said some of."""
        if not self._shared:
            return []
        wanted = set(agents)
        if len(wanted) > _MANY:
            found = ((key.removeprefix(LAST), value) for key, value in self._store.scan(LAST))
            return [(name, dict(value)) for name, value in found if name in wanted]
        with self._store.reading() as view:
            rows = [(name, view.values.get(LAST + name)) for name in sorted(wanted)]
        return [(name, dict(row.value)) for name, row in rows if row is not None]

    def may_be_elsewhere(self, name: str) -> bool:
        """Whether an agent that is not here may be at the hub: whoever shares the store has said of each that it moved."""
        return not self._shared or self._store.get(LAST + name) is not None

    def last_of_chains(self) -> dict[str, str | None]:
        """The like of what is no agent's."""
        return {ref: cid for _, row in self._store.scan(f"{LAST}@") for ref, cid in row.items()}

    def paid(self, lock: str, *, by_anyone: bool = False) -> None:
        """The hub has what this machine owed; ``by_anyone``: and what any other did."""
        with self._store.writing() as transaction:
            row = transaction.values.get(OWED + lock)
            if row is not None and (by_anyone or _clone_of(row.value) == self.clone):
                transaction.values.delete(OWED + lock)

    def forgive(self, lock: str, refs: Mapping[str, str | None]) -> None:
        """Whatever another machine has done to it counts no more: refs are so."""
        with self._store.writing() as transaction:
            transaction.values.delete(OWED + lock)
            if self._shared:
                transaction.values.put(LAST + lock, dict(refs))

    def elsewhere(self, lock: str | None = None) -> list[Elsewhere]:
        """What other machines have not published; of one lock, or of all agents."""
        row = None if lock is None else self._store.get(OWED + lock)
        found = self._store.scan(OWED) if lock is None else [] if row is None else [(OWED + lock, row.value)]
        rows = ((key.removeprefix(OWED), value) for key, value in found)
        return [
            Elsewhere(name, _clone_of(value), value.get("since", "")) for name, value in rows if self._is_of_others(name, value)
        ]

    def is_owed_elsewhere(self, lock: str) -> bool:
        """Whether another machine owes something, of an agent or of a chain."""
        row = self._store.get(OWED + lock)
        return row is not None and _clone_of(row.value) not in ("", self.clone)

    def lock_owed_elsewhere(self, name: str) -> str:
        """The lock of an agent, or of a chain such as ``(types)``, that another machine owes work of."""
        chain = lock_of(f"refs/clia/{name.strip('()')}")  # behaviours/x, types
        for lock in (name, chain):
            if self.is_owed_elsewhere(lock):
                return lock
        raise nothing_elsewhere(name)

    def _is_of_others(self, name: str, value: Any) -> bool:
        return names.is_name(name) and _clone_of(value) not in ("", self.clone)


def _clone_of(value: Any) -> str:
    return str(value.get("clone", "")) if isinstance(value, dict) else ""
