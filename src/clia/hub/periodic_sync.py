"""Keeping a clone and its hub in step while something long runs in it.

Invariant: what the hub has is taken over, and what is owed is published, soon after that is possible. Nothing that goes wrong on
the way ends it: the next turn tries again, and ``clia hub status`` tells why.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress

from clia.values.background import background_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.facade.space import Space


_GRACE = 10.0  # whoever stops does not wait for a hub that is silent


@contextmanager
def kept_in_step(
    space: Space, seconds: float, wait: Callable[[threading.Event, float], bool] = threading.Event.wait
) -> Iterator[None]:
    """Meanwhile a thread of its own brings the space and its hub together, every so many seconds; nothing where there is no hub."""
    if not space.has_hub:
        yield
        return
    fine = threading.Event()  # whether the hub was there the last time

    def go_on(over: threading.Event) -> None:
        while not wait(over, seconds):
            sync()

    def sync() -> None:
        fine.clear()
        with suppress(Exception):  # whatever it is, the next turn tries again
            space.hub_sync()
            fine.set()

    try:
        with background_thread("clia-hub", go_on, _GRACE):
            yield
    finally:
        if fine.is_set():
            sync()  # what is owed goes before we do
