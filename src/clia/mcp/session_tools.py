"""Flow and session tools.

Invariant: these tools never answer a question to people; only a person's decision does.
"""

from __future__ import annotations

from clia.api.records import FLOW, GIVEN, MAYBE_TEXT, REQUEST, RULE
from clia.api.shapes import ANY, FLAG, STRING, TEXT, Listed, Optional
from clia.api.special_shapes import SESSION
from clia.errors import InvalidInput
from clia.mcp.toolbox import ABSENT, ADDS, AGENT, ENDS, ResultShape, Tool, ToolArgument, agent_field
from clia.sessions.model import is_for_people, question_of
from clia.verbs import ADMIN, VIEWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.mcp.calls import ToolCall

_WHICH = ToolArgument("session_id", MAYBE_TEXT, "session id (default: the live session, else the last)", None)


def _flow(call: ToolCall, name: str) -> Any:
    return call.space.flow(name)


def _start(call: ToolCall, flow: str, input: Any, timezone: str, agent: str | None) -> Any:  # noqa: A002  # as the flow calls it
    return call.space.start(call.agent(agent), flow, input, timezone=timezone)


def _session(call: ToolCall, session_id: str | None, given: bool, agent: str | None) -> Mapping[str, Any]:
    sessions, name = call.space.sessions, call.agent(agent)
    session = call.space.session(name, session_id)
    return {"session": session, "given": sessions.record(name, session.id) if given else None}


def _resume(call: ToolCall, value: Any, error: str | None, request_id: str | None, agent: str | None) -> Any:
    name, by = call.agent(agent), call.caller.by
    if error is not None and value is not ABSENT:
        raise InvalidInput("value and error are mutually exclusive", code="invalid-field", fields={"field": "error"})
    if error is not None:
        return call.space.give_up(name, error, request_id, by=by)
    if value is ABSENT:
        raise InvalidInput("value is missing", code="missing-field", fields={"field": "value"})
    return call.space.resume(name, value, request_id, by=by)


def _cancel(call: ToolCall, reason: str, session_id: str | None, agent: str | None) -> Any:
    return call.space.cancel(call.agent(agent), reason, session_id=session_id)


def _fork(call: ToolCall, as_agent: str, at: str | None, agent: str | None) -> Any:
    return call.space.fork(call.agent(agent), as_agent, at)


def _pending(call: ToolCall, agent: str | None) -> Mapping[str, Any]:
    space = call.space
    requests = [
        {
            "request": request,
            "question": question_of(request),
            "for_people": is_for_people(request),
            "rule": space.rule(request),
            "url": call.place.inbox(request.agent, request.id),
        }
        for request in space.pending(agent)
    ]
    return {"requests": requests}


_PENDING = ResultShape(request=REQUEST, question=STRING, for_people=FLAG, rule=RULE, url=Optional(STRING))

SESSION_TOOLS = (
    Tool(
        "pending",
        "Pending requests",
        "Lists pending requests, oldest first, of one agent or all. A person's decision answers those that are for_people;"
        " resume answers the others.",
        VIEWER,
        (agent_field("only requests of this agent (default: all)"),),
        ResultShape(requests=Listed(_PENDING)),
        _pending,
    ),
    Tool(
        "flow",
        "One flow",
        "Shows a flow with its source and versions, by name or version id.",
        VIEWER,
        (ToolArgument("name", TEXT, "flow name or version id"),),
        FLOW,
        _flow,
    ),
    Tool(
        "start",
        "Start a session",
        "Runs a flow for an agent until its first request; the session survives restarts. An agent has at most one live session.",
        ADMIN,
        (
            ToolArgument("flow", TEXT, "flow name or version id"),
            ToolArgument("input", ANY, "input of the flow, any JSON", None),
            ToolArgument("timezone", TEXT, "time zone of the session", "UTC"),
            AGENT,
        ),
        SESSION,
        _start,
        ADDS,
        "running the flow",
    ),
    Tool(
        "session",
        "One session",
        "Shows an agent's session: status, pending requests, result or failure; with given also its input and all answers.",
        VIEWER,
        (_WHICH, ToolArgument("given", FLAG, "include input and answers", False), AGENT),
        ResultShape(session=SESSION, given=Optional(GIVEN)),
        _session,
    ),
    Tool(
        "resume",
        "Answer a request of a session",
        "Answers a request that is not for people and resumes the flow, or gives up on it with an error that is raised in"
        " the flow. Questions to people are refused: only a person can decide them.",
        ADMIN,
        (
            ToolArgument("value", ANY, "the answer, any JSON", ABSENT),
            ToolArgument("error", MAYBE_TEXT, "error message, instead of a value", None),
            ToolArgument("request_id", MAYBE_TEXT, "request id (default: the only pending request)", None),
            AGENT,
        ),
        SESSION,
        _resume,
        ADDS,
        "running the flow",
    ),
    Tool(
        "cancel",
        "Cancel a session",
        "Ends a session and closes its pending requests. This cannot be undone.",
        ADMIN,
        (ToolArgument("reason", TEXT, "why", ""), _WHICH, AGENT),
        SESSION,
        _cancel,
        ENDS,
    ),
    Tool(
        "fork",
        "Fork a session",
        "Creates an agent whose session continues from the current step of this one, or from a commit, to try an alternative.",
        ADMIN,
        (
            ToolArgument("as_agent", TEXT, "name of the new agent"),
            ToolArgument("at", MAYBE_TEXT, "a commit of the agent (default: the current step)", None),
            AGENT,
        ),
        SESSION,
        _fork,
        ADDS,
        "replaying the session",
    ),
)
