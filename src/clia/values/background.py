"""Something that goes on beside something else.

Invariant: what goes on ends with what it goes on beside, and is waited for no longer than it was given.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager

from clia.errors import BackendError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


@contextmanager
def background_thread(name: str, go_on: Callable[[threading.Event], None], grace: float | None = None) -> Iterator[None]:
    """Runs ``go_on`` in a thread of its own until the block ends; it is given an event that tells when that is.

    ``grace``: so many seconds it may take then; None: as many as it takes.
    """
    over = threading.Event()
    thread = threading.Thread(target=go_on, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(grace)


_FIRST_PAUSE, _LONGEST_PAUSE, _RETRIES = 0.25, 4.0, 12  # about half a minute in all


def retry_while_unavailable(call: Callable[[], Any], cancelled: threading.Event) -> Any:
    """Call, and retry retryable backend errors for about half a minute, unless ``cancelled`` is set."""
    pause = _FIRST_PAUSE
    for _ in range(_RETRIES):
        try:
            return call()
        except BackendError as err:
            if not err.retryable or cancelled.wait(pause):
                raise
        pause = min(pause * 2, _LONGEST_PAUSE)
    return call()
