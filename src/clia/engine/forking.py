"""What a forked process must not do with an engine that it inherited.

Invariant: in a process that was forked off, nothing of the engine that the parent had in use is ever spoken to or taken
apart. The engine's threads exist in the parent only, so that a call would wait for ever; and taking its parts apart would stop
the parent's own calls, for the two processes share what the system watches for them.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from clia.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ForkSensitive(Protocol):
    """Something of ours that holds parts of the engine."""

    def abandon(self) -> list[Any]:
        """Forgets all of them, and says which they were."""


_holders: weakref.WeakSet[ForkSensitive] = weakref.WeakSet()
_in_use: list[int] = []  # the process that the engine's threads belong to


def register(holder: ForkSensitive) -> None:
    _holders.add(holder)


def claim() -> None:
    """Before the first worker: from here on the engine's threads belong to this process."""
    if not _in_use:
        _in_use.append(os.getpid())
        os.register_at_fork(after_in_child=_abandon_all)
    if _in_use[0] != os.getpid():
        raise EngineError(
            "a process that was forked off after its parent ran a flow cannot run one",
            code="engine-forked",
            hints=["start the process anew (multiprocessing: spawn), or fork before the first flow runs"],
        )


def _abandon_all() -> None:
    import ctypes  # only here: few processes ever fork

    for holder in list(_holders):
        for part in holder.abandon():
            # One reference that nobody gives back: not even the end of the interpreter takes the part apart.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))
