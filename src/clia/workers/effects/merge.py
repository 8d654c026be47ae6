"""``merge``: the asking agent takes in another's work. ``{"from": NAME, "message": …}``.

Invariant: however often it is tried, the agent has one merge commit for the request. A conflict is an answer: nothing was
committed, and the flow decides.
"""

from __future__ import annotations

from clia.space.model import Conflicts, Merged
from clia.workers.effects.payloads import Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.workers.effects.context import Context


def handle(context: Context, payload: Any) -> dict[str, Any]:
    said = Payload("merge", payload, "from", "message")
    other, message = said.text("from"), said.text("message", "")
    earlier = context.marked()
    if earlier is not None:
        return {"merged": earlier.cid}
    done = context.space.merge(context.agent, other, message=message, meta=context.mark())
    if isinstance(done, Merged):
        return {"merged": done.cid}
    return {"conflicts": [each.path for each in done.paths]} if isinstance(done, Conflicts) else {"up_to_date": done.head}
