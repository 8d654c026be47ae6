"""Periodic sync with the hub while a worker or forge runs.

Invariant: a failed sync never ends the loop; the next one retries, and ``clia hub status`` shows the reason.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress

from clia.values.background import background_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.facade.space import Space

_GRACE_SECONDS = 10.0  # a process that stops does not wait longer for a silent hub


@contextmanager
def periodic_sync(
    space: Space, interval: float, wait: Callable[[threading.Event, float], bool] = threading.Event.wait
) -> Iterator[None]:
    """Sync the space with its hub every ``interval`` seconds while the block runs. No effect without a hub."""
    if not space.has_hub:
        yield
        return
    succeeded = threading.Event()  # the last sync

    def run(stop: threading.Event) -> None:
        while not wait(stop, interval):
            sync()

    def sync() -> None:
        succeeded.clear()
        with suppress(Exception):  # the next sync retries
            space.hub_sync()
            succeeded.set()

    try:
        with background_thread("clia-hub", run, _GRACE_SECONDS):
            yield
    finally:
        if succeeded.is_set():
            sync()  # publish the last work
