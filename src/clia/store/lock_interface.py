"""Locks that the system frees when their holder dies. Holding one is the proof that its owner lives."""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager

OF_ONE_CLONE = ("@gate", "@space")
"""Locks about the files of one clone: what other machines do does not matter to them."""


class Locks(Protocol):
    def hold(self, name: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Waits for the lock; shared holders do not keep one another out. Not to be taken twice by one thread."""

    def attempt(self, name: str) -> AbstractContextManager[bool]:
        """The lock if it is free: True in the block. False: someone alive holds it."""
