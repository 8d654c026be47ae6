"""Running other programs, in a place of their own.

Invariant: one program at a time is at work in a place, over all processes of a machine. Nothing that was started outlives
the call that started it, nor the death of the process that called: neither the program nor what it started in its group.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

EXITED, TIMED_OUT, CANCELLED = "exited", "timed-out", "cancelled"


class Order(NamedTuple):
    """What to run. ``words[0]`` is found on the PATH of ``environment``, which is all that the program sees."""

    words: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    stdin: bytes = b""
    seconds: float = 600.0


class Ended(NamedTuple):
    """How a program ended; ``code`` is 128 and the signal's number for one that a signal ended."""

    how: str  # EXITED, TIMED_OUT or CANCELLED
    code: int


class User(NamedTuple):
    """Whoever has a program run and attends to it: their own channels, and how their signals are heard."""

    stdin: int
    stdout: int
    stderr: int
    terminal: bool  # they sit at one: the program gets one of its own
    signals: Callable[[Callable[[int], None]], AbstractContextManager[None]]  # has each one told, by its number


class Programs(Protocol):
    def alone(self, place: str, cancelled: Callable[[], bool]) -> AbstractContextManager[bool]:
        """Holds a place against every other process; waits for it. False: cancelled before it was free.

        A program that runs in it holds it too: its place is free when it has ended.
        """

    def run(self, order: Order, place: str, said: Callable[[bytes], None], cancelled: Callable[[], bool]) -> Ended:
        """Runs a program in a place that is held. What it prints, on either channel, goes to ``said`` as it comes, and an
        empty text now and then. ``FileError`` where it cannot be started."""

    def attend(self, order: Order, place: str, user: User, said: Callable[[str, bytes], None]) -> Ended:
        """Runs a program at the channels of its user, in a place that is held, however long it takes.

        ``stdin`` and ``seconds`` of the order do not count. What the program prints is shown byte for byte as it comes, and
        then goes to ``said`` with the channel's name: ``terminal``, ``stdout`` or ``stderr``; an empty text now and then.
        """

    def check(self, order: Order) -> None:
        """``FileError`` where there is no such program, or none that may be run."""

    def clear(self, directory: str) -> None:
        """Removes a directory and all below it; nothing where there is none."""
