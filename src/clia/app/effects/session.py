"""``session``: how another agent's session ended. ``{"agent": NAME}``; with ``"wait": false``, how it stands now.

Invariant: no worker waits for it: the request is no task while that session is live. A session that failed or was
cancelled is an answer, not an error.
"""

from __future__ import annotations

from clia.app.effects.payloads import Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.app.effects.context import Context


def handle(context: Context, payload: Any) -> dict[str, Any]:
    said = Payload("session", payload, "agent", "wait")
    agent, waits = said.text("agent"), said.truth("wait", True)
    if agent == context.agent and waits:
        raise said.refusal("agent", "is the agent itself, which would wait for ever")
    found = context.space.session(agent)
    value = {"agent": agent, "session": found.id, "status": found.status, "result": found.result}
    return value if found.failure is None else {**value, "error": str(found.failure.get("message", ""))}
