"""Flow and session tools.

Invariant: these tools never answer a question to people; only a person's decision does.
"""

from __future__ import annotations

from typing import Annotated, Any

from clia.api.shapes import Listed
from clia.errors import InvalidInput
from clia.mcp.toolbox import ABSENT, ResultShape, served, tool
from clia.sessions.model import Request, is_for_people, question_of
from clia.sessions.service import SessionRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.mcp.calls import ToolCall
    from clia.sessions.model import Session

_PENDING = ResultShape(request=Request, question=str, for_people=bool, rule="rule", url=str | None)


@tool("Pending requests", "pending", returns=ResultShape(requests=Listed(_PENDING)))
def pending(call: ToolCall, agent: str | None = None) -> Mapping[str, Any]:
    """A person's decision answers those that are for_people; resume answers the others."""
    requests = [
        {
            "request": request,
            "question": question_of(request),
            "for_people": is_for_people(request),
            "rule": call.space.sessions.rule(request),
            "url": call.place.inbox(request.agent, request.id),
        }
        for request in call.space.pending(agent)
    ]
    return {"requests": requests}


flow = served("flow", "One flow", "Includes its source and versions.", names={"text": "name"})
start = served("start", "Start a session", "The session survives restarts.", you="agent", slow="running the flow")


@tool("One session", "session", you="agent", returns=ResultShape(session="session", given=SessionRecord | None))
def session(
    call: ToolCall, agent: str, given: Annotated[bool, "include input and answers"] = False, **arguments: Any
) -> Mapping[str, Any]:
    """Includes status, pending requests, result or failure; with given also its input and all answers."""
    session = call.space.session(agent, **arguments)
    return {"session": session, "given": call.space.sessions.record(agent, session.id) if given else None}


@tool("Answer a request of a session", "resume", you="agent", slow="running the flow")
def resume(
    call: ToolCall,
    agent: str,
    value: Any = ABSENT,
    error: Annotated[str | None, "error message, instead of a value"] = None,
    request_id: str | None = None,
) -> Session:
    """Then the flow continues; an error, instead of a value, is raised in the flow. Questions to people are refused: only a person
    can decide them."""
    by = call.caller.by
    if error is not None and value is not ABSENT:
        raise InvalidInput("value and error are mutually exclusive", code="invalid-field", fields={"field": "error"})
    if error is not None:
        return call.space.sessions.give_up(agent, error, request_id, by=by)
    if value is ABSENT:
        raise InvalidInput("value is missing", code="missing-field", fields={"field": "value"})
    return call.space.resume(agent, value, request_id, by=by)


cancel = served(
    "cancel", "Cancel a session", "Its pending requests are closed. This cannot be undone.", you="agent", destructive=True
)
fork = served("fork", "Fork a session", "Use it to try an alternative.", you="agent", slow="replaying the session")
