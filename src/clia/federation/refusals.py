"""What was not taken from peers, and why: a log in the store, the newest of each peer.

Invariant: it is for people to read; nothing is decided by it, so losing it loses nothing else.
"""

from __future__ import annotations

from clia.federation.model import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.space.core import Core

KEPT = 500
_LONGEST = 500
_STREAM = "federation/refused/"


class Refusals:
    def __init__(self, core: Core) -> None:
        self._core = core

    def add(self, space: str, refused: Sequence[Refused]) -> None:
        if not refused:
            return
        stream = _STREAM + space
        with self._core.store.writing() as transaction:
            end = transaction.streams.append(stream, [_short(each)._asdict() for each in refused[-KEPT:]])
            transaction.streams.forget(stream, max(0, end - KEPT))

    def of(self, space: str) -> list[Refused]:
        """Newest first."""
        with self._core.store.reading() as view:
            found = view.streams.read(_STREAM + space)
        return [Refused(**each.body) for each in reversed(found)]


def _short(refused: Refused) -> Refused:
    """What another side made up is not kept at any length."""
    return refused._replace(message=refused.message[:_LONGEST], ref=refused.ref and refused.ref[:_LONGEST])
