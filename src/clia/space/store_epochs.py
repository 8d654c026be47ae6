"""The epochs of a clone's store, as its repository names them: ``refs/clia-local/store``.

Invariant: each epoch is an event on a chain that only this clone has, so the chain tells when the store was first used, and each
time that it was rebuilt, restored or accepted as an older copy. The id of an epoch is that of its commit.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import StaleRef
from clia.store.epochs import BEFORE, NEWER, SAME, UNRELATED
from clia.values import refs as names
from clia.values.paths import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.space.core import Core


class StoreEpochs(NamedTuple):
    """``core`` has the refs of this clone only."""

    core: Core

    def current(self) -> str | None:
        """The id of this clone's current epoch. A copy of a clone has the chain of the original, and no epoch yet."""
        tip = self._tip()
        return tip if tip is not None and self._body(tip).get("clone") == self.core.clone else None

    def _tip(self) -> str | None:
        """Return the newest epoch; an earlier version of clia writes it under the former name."""
        tip, former = self.core.refs.get(names.STORE), self.core.refs.get(names.FORMER_STORE)
        if tip is None or former is None:
            return tip or former
        return former if self.core.graph.descends(former, tip) else tip

    def _body(self, epoch: str) -> Mapping[str, Any]:
        from clia.space.events import event_of  # rare: most commands only compare ids

        return event_of(self.core.objects.commit(epoch)) or {}

    def write(self, why: str) -> str:
        """Write the epoch that follows the current one."""
        from clia.space.events import write_event  # rare: a store has one epoch, as a rule

        core, tip = self.core, self._tip()
        number = 1 + (0 if tip is None else self._body(tip).get("number", 0))
        location = printable(core.store.location)
        body = {"event": "store-epoch", "number": number, "why": why, "store": location, "clone": core.clone}
        return write_event(core, tip, core.person_stamp(), body, f"store epoch {number}: {why}")

    def settle(self, epoch: str) -> None:
        """Make an epoch the current one, unless a later one is."""
        while True:
            before, tip = self.core.refs.get(names.STORE), self._tip()
            if tip == epoch or (tip is not None and not self.core.graph.descends(epoch, tip)):
                return
            with suppress(StaleRef):  # another process did it
                self.core.refs.move(names.STORE, before, epoch, "clia: store epoch")
                return

    def rename(self) -> None:
        """Rename the ref that an earlier version of clia wrote."""
        core = self.core
        former, tip = core.refs.get(names.FORMER_STORE), core.refs.get(names.STORE)
        if former is None:
            return
        if tip is None or core.graph.descends(former, tip):
            core.refs.move(names.STORE, tip, former, "clia: rename")
        elif not core.graph.descends(tip, former):
            return  # another clone's, which a fetch brought
        core.refs.move(names.FORMER_STORE, former, None, "clia: rename")

    def relation(self, epoch: str) -> str:
        """How an epoch relates to the current one."""
        core, tip = self.core, self._tip()
        if tip == epoch:
            return SAME
        if core.objects.kind(epoch) != "commit":
            return UNRELATED
        if tip is None or core.graph.descends(epoch, tip):
            return NEWER
        return BEFORE if core.graph.descends(tip, epoch) else UNRELATED
