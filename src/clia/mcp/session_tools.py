"""Flow and session tools.

Invariant: these tools never answer a question to people; only a person's decision does.
"""

from __future__ import annotations

from typing import Annotated, Any

from clia.api.shapes import Listed
from clia.errors import InvalidInput
from clia.mcp.toolbox import ABSENT, AgentName, ResultShape, tool
from clia.sessions.answers import Rule
from clia.sessions.model import Request, Session, is_for_people, question_of
from clia.sessions.service import SessionRecord
from clia.verbs import ADMIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.mcp.calls import ToolCall
    from clia.sessions.model import Flow

SessionId = Annotated[str | None, "session id (default: the live session, else the last)"]
_PENDING = ResultShape(request=Request, question=str, for_people=bool, rule=Rule, url=str | None)


@tool("Pending requests", returns=ResultShape(requests=Listed(_PENDING)))
def pending(call: ToolCall, agent: Annotated[str | None, "only requests of this agent (default: all)"] = None) -> Mapping[str, Any]:
    """Lists pending requests, oldest first, of one agent or all. A person's decision answers those that are for_people; resume
    answers the others."""
    requests = [
        {
            "request": request,
            "question": question_of(request),
            "for_people": is_for_people(request),
            "rule": call.space.rule(request),
            "url": call.place.inbox(request.agent, request.id),
        }
        for request in call.space.pending(agent)
    ]
    return {"requests": requests}


@tool("One flow")
def flow(call: ToolCall, name: Annotated[str, "flow name or version id"]) -> Flow:
    """Shows a flow with its source and versions, by name or version id."""
    return call.space.flow(name)


@tool("Start a session", ADMIN, slow="running the flow")
def start(
    call: ToolCall,
    flow: Annotated[str, "flow name or version id"],
    input: Annotated[Any, "input of the flow, any JSON"] = None,  # noqa: A002  # as the flow calls it
    timezone: Annotated[str, "time zone of the session"] = "UTC",
    agent: AgentName = None,
) -> Session:
    """Runs a flow for an agent until its first request; the session survives restarts. An agent has at most one live session."""
    return call.space.start(call.agent(agent), flow, input, timezone=timezone)


@tool("One session", returns=ResultShape(session=Session, given=SessionRecord | None))
def session(
    call: ToolCall,
    session_id: SessionId = None,
    given: Annotated[bool, "include input and answers"] = False,
    agent: AgentName = None,
) -> Mapping[str, Any]:
    """Shows an agent's session: status, pending requests, result or failure; with given also its input and all answers."""
    name = call.agent(agent)
    session = call.space.session(name, session_id)
    return {"session": session, "given": call.space.sessions.record(name, session.id) if given else None}


@tool("Answer a request of a session", ADMIN, slow="running the flow")
def resume(
    call: ToolCall,
    value: Annotated[Any, "the answer, any JSON"] = ABSENT,
    error: Annotated[str | None, "error message, instead of a value"] = None,
    request_id: Annotated[str | None, "request id (default: the only pending request)"] = None,
    agent: AgentName = None,
) -> Session:
    """Answers a request that is not for people and resumes the flow, or gives up on it with an error that is raised in the flow.
    Questions to people are refused: only a person can decide them."""
    name, by = call.agent(agent), call.caller.by
    if error is not None and value is not ABSENT:
        raise InvalidInput("value and error are mutually exclusive", code="invalid-field", fields={"field": "error"})
    if error is not None:
        return call.space.give_up(name, error, request_id, by=by)
    if value is ABSENT:
        raise InvalidInput("value is missing", code="missing-field", fields={"field": "value"})
    return call.space.resume(name, value, request_id, by=by)


@tool("Cancel a session", ADMIN, destructive=True)
def cancel(call: ToolCall, reason: Annotated[str, "why"] = "", session_id: SessionId = None, agent: AgentName = None) -> Session:
    """Ends a session and closes its pending requests. This cannot be undone."""
    return call.space.cancel(call.agent(agent), reason, session_id=session_id)


@tool("Fork a session", ADMIN, slow="replaying the session")
def fork(
    call: ToolCall,
    as_agent: Annotated[str, "name of the new agent"],
    at: Annotated[str | None, "a commit of the agent (default: the current step)"] = None,
    agent: AgentName = None,
) -> Session:
    """Creates an agent whose session continues from the current step of this one, or from a commit, to try an alternative."""
    return call.space.fork(call.agent(agent), as_agent, at)
