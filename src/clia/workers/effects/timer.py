"""``timer``: answers when its time is up. ``{"seconds": 5}`` since it was asked, or ``{"until": "2026-05-01T12:00:00Z"}``.

Invariant: no worker waits for it: the queue does not hand it out before its time.
"""

from __future__ import annotations

from clia.sessions.handover import timer_due
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.workers.effects.context import Context


def handle(context: Context, payload: Any) -> dict[str, str]:
    del payload  # the request has it, and when it was asked
    timer_due(context.request)
    return {"at": timestamp(context.tools.clock())}
