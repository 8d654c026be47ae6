"""The feed of a space: a stream of its store that says what happened, and a bell that rings when more did.

Invariant: the stream is the truth, and a bell is only a reason to look at it: one that rings for nothing does no harm, and
whoever waits looks before the first ring.
"""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FEED = "feed"
"""The stream. A store that several machines share rings whenever a transaction has appended to it."""


class Bell(Protocol):
    """For one thread that waits. Closing it, from any thread, ends the waiting."""

    def wait(self, has_more: Callable[[], bool], timeout: float) -> bool:
        """True as soon as there is more; False after ``timeout`` seconds, or when closed."""

    def close(self) -> None: ...
