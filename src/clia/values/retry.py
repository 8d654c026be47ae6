"""Retrying calls while a backend is unavailable."""

from __future__ import annotations

from clia.errors import BackendError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from typing import Any

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
