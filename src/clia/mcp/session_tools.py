"""Tools about flows and sessions.

Invariant: a question to people is never answered here: only a decision of a person does that.
"""

from __future__ import annotations

from clia.api.records import FLOW, GIVEN, MAYBE_TEXT, REQUEST, RULE, SESSION
from clia.api.shapes import ANY, FLAG, STRING, TEXT, Listed, Optional
from clia.api.verbs import ADMIN, VIEWER
from clia.errors import InvalidInput
from clia.mcp.toolbox import ABSENT, ADDS, AGENT, ENDS, Field, Told, Tool, agent_field
from clia.sessions.model import is_for_people, question_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.mcp.calls import Call

_WHICH = Field("session_id", MAYBE_TEXT, "which session (default: the live one, else the last)", None)


def _flow(call: Call, name: str) -> Any:
    return call.space.flow(name)


def _start(call: Call, flow: str, input: Any, timezone: str, agent: str | None) -> Any:  # noqa: A002  # as the flow calls it
    return call.space.start(call.agent(agent), flow, input, timezone=timezone)


def _session(call: Call, session_id: str | None, given: bool, agent: str | None) -> Mapping[str, Any]:
    found = call.space.session(call.agent(agent), session_id)
    return {"session": found, "given": found if given else None}


def _resume(call: Call, value: Any, error: str | None, request_id: str | None, agent: str | None) -> Any:
    name, by = call.agent(agent), call.caller.by
    if error is not None and value is not ABSENT:
        raise InvalidInput("give a value or an error, not both", code="invalid-field", fields={"field": "error"})
    if error is not None:
        return call.space.give_up(name, error, request_id, by=by)
    if value is ABSENT:
        raise InvalidInput("value is missing", code="missing-field", fields={"field": "value"})
    return call.space.resume(name, value, request_id, by=by)


def _cancel(call: Call, reason: str, session_id: str | None, agent: str | None) -> Any:
    return call.space.cancel(call.agent(agent), reason, session_id=session_id)


def _fork(call: Call, as_agent: str, at: str | None, agent: str | None) -> Any:
    return call.space.fork(call.agent(agent), as_agent, at)


def _pending(call: Call, agent: str | None) -> Mapping[str, Any]:
    space = call.space
    found = [
        {
            "request": each,
            "question": question_of(each),
            "for_people": is_for_people(each),
            "rule": space.rule(each),
            "url": call.place.inbox(each.agent, each.id),
        }
        for each in space.pending(agent)
    ]
    return {"requests": found}


_PENDING = Told(request=REQUEST, question=STRING, for_people=FLAG, rule=RULE, url=Optional(STRING))

SESSION_TOOLS = (
    Tool(
        "pending",
        "What waits for an answer",
        "Every request that waits, the oldest first: of one agent, or of all. Those for_people are answered by a person's decision;"
        " the others by resume.",
        VIEWER,
        (agent_field("whose; leave it out for all of the space"),),
        Told(requests=Listed(_PENDING)),
        _pending,
    ),
    Tool(
        "flow",
        "One flow",
        "A flow with its source and its versions, by name or by the id of a version.",
        VIEWER,
        (Field("name", TEXT, "the flow's name, or a version's id"),),
        FLOW,
        _flow,
    ),
    Tool(
        "start",
        "Start a session",
        "Runs a flow for an agent up to its first request; it survives restarts. An agent has at most one live session.",
        ADMIN,
        (
            Field("flow", TEXT, "the flow's name, or a version's id"),
            Field("input", ANY, "what the flow is given, any JSON", None),
            Field("timezone", TEXT, "the session's time zone", "UTC"),
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
        "Where an agent's session is: status, pending requests, result or failure; with given also its input and all answers.",
        VIEWER,
        (_WHICH, Field("given", FLAG, "with what it was given", False), AGENT),
        Told(session=SESSION, given=Optional(GIVEN)),
        _session,
    ),
    Tool(
        "resume",
        "Answer a request of a session",
        "Answers a request that is no question to people, and lets the flow go on; or gives it up with an error, which is raised in"
        " the flow. A question to people is refused: only a person decides it.",
        ADMIN,
        (
            Field("value", ANY, "the answer, any JSON", ABSENT),
            Field("error", MAYBE_TEXT, "instead of a value: why there is none", None),
            Field("request_id", MAYBE_TEXT, "which request; may be left out while just one is pending", None),
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
        "Ends a session that nobody needs any more; its requests are no longer asked. This cannot be undone.",
        ADMIN,
        (Field("reason", TEXT, "why", ""), _WHICH, AGENT),
        SESSION,
        _cancel,
        ENDS,
    ),
    Tool(
        "fork",
        "Fork a session",
        "A new agent whose session is where this one is, or was at a commit: to try something else from there.",
        ADMIN,
        (
            Field("as_agent", TEXT, "the new agent's name"),
            Field("at", MAYBE_TEXT, "a commit of the agent (default: now)", None),
            AGENT,
        ),
        SESSION,
        _fork,
        ADDS,
        "replaying the session",
    ),
)
