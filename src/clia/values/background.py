"""Background threads, and retries while a backend is unavailable."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from clia.errors import BackendError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


@contextmanager
def background_thread(name: str, run: Callable[[threading.Event], None], grace: float | None = None) -> Iterator[None]:
    """Run ``run(stop)`` in a thread while the block runs; ``stop`` is set when the block ends.

    ``grace``: how many seconds to wait then for the thread to end; None: no limit.
    """
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(stop,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(grace)


_FIRST_PAUSE, _LONGEST_PAUSE, _RETRIES = 0.25, 4.0, 12  # about half a minute in all


def retry_while_unavailable(call: Callable[[], Any], cancelled: threading.Event) -> Any:
    """Call the function. Retry retryable backend errors for about half a minute, unless ``cancelled`` is set."""
    pause = _FIRST_PAUSE
    for _ in range(_RETRIES):
        try:
            return call()
        except BackendError as err:
            if not err.retryable or cancelled.wait(pause):
                raise
        pause = min(pause * 2, _LONGEST_PAUSE)
    return call()
