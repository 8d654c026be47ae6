"""Protect a forked process from the engine objects that it inherited.

Invariant: a forked process never calls or destroys engine objects of its parent. The engine's threads exist in the parent only,
so a call would wait forever; and destroying the objects would break the parent's calls, because both share file descriptors.
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
    """An object that holds engine objects."""

    def abandon(self) -> list[Any]:
        """Forget the engine objects and return them."""


_holders: weakref.WeakSet[ForkSensitive] = weakref.WeakSet()
_in_use: list[int] = []  # id of the process that has the engine's threads


def register(holder: ForkSensitive) -> None:
    _holders.add(holder)


def claim() -> None:
    """Claim the engine's threads for this process, before the first worker starts."""
    if not _in_use:
        _in_use.append(os.getpid())
        os.register_at_fork(after_in_child=_abandon_all)
    if _in_use[0] != os.getpid():
        raise EngineError(
            "a process forked after its parent ran a flow cannot run flows",
            code="engine-forked",
            hints=["start a new process (multiprocessing: spawn), or fork before the first flow runs"],
        )


def _abandon_all() -> None:
    import ctypes  # only here: few processes ever fork

    for holder in list(_holders):
        for part in holder.abandon():
            # An extra reference, so that not even interpreter shutdown destroys the object.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))
