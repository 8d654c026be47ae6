"""``session``: how another agent's session ended. ``{"agent": NAME}``; with ``"wait": false``, how it stands now.

Invariant: no worker waits for it: the request is no task while that session is live, unless the two wait for one another,
which is refused. A session that failed or was cancelled is an answer, not an error.
"""

from __future__ import annotations

from clia.errors import Conflict
from clia.sessions.handover import circles
from clia.workers.effects.payloads import Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.errors import CliaError
    from clia.workers.effects.context import Context


def handle(context: Context, payload: Any) -> dict[str, Any]:
    said = Payload("session", payload, "agent", "wait")
    agent, waits = said.text("agent"), said.truth("wait", True)
    if agent == context.agent and waits:
        raise said.refusal("agent", "is the agent itself, which would wait for ever")
    found = context.space.session(agent)
    if waits and found.live:
        raise _still_live(context, said, agent)
    value = {"agent": agent, "session": found.id, "status": found.status, "result": found.result}
    return value if found.failure is None else {**value, "error": str(found.failure.get("message", ""))}


def _still_live(context: Context, said: Payload, agent: str) -> CliaError:
    """A circle; or a session that was started since the request became a task, and is waited for again."""
    circle = circles(context.space.pending()).get((context.agent, context.request.id))
    if circle is None:
        return Conflict(f"session: the session of {agent} goes on", code="session-live", fields={"agent": agent})
    way = ", ".join(f"{one} waits for {other}" for one, other in zip(circle, (*circle[1:], circle[0]), strict=True))
    return said.refusal("agent", f"cannot be waited for, because none of them would ever end: {way}")
