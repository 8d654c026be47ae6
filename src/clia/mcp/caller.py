"""The captured session that a call comes from, and its agent.

What clients say about the session of a call:

- Claude Code: ``sessionId`` and ``claudecode/toolUseId`` in ``_meta``. It starts a server with ``CLAUDE_CODE_SESSION_ID``, which is
  out of date after ``/clear``. The hook that announced the call names the sub-agent.
- Codex: ``x-codex-turn-metadata`` in ``_meta``, with ``session_id`` and, for a sub-agent, another ``thread_id``.
- Gemini CLI and others: nothing. Their hooks announce each call with its arguments.

Invariant: a call is attributed to one session or to none, and never to another session in the same directory.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.capture.announcements import announced_by_content, announced_by_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mcp.server.context import ServerRequestContext

    from clia.capture.service import CapturedSession
    from clia.facade.space import Space


class CallOrigin(NamedTuple):
    """What a client says about the origin of a call; empty where it says nothing."""

    client: str = ""  # its name
    session: str = ""
    sub: str = ""  # the sub-agent
    call: str = ""  # the id of the call, as in the hook that announced it
    tool: str = ""
    arguments: Mapping[str, Any] = {}


UNKNOWN = CallOrigin()


def origin_of(context: ServerRequestContext[Any, Any], tool: str = "", arguments: Mapping[str, Any] | None = None) -> CallOrigin:
    params, meta = context.session.client_params, dict(context.meta or {})
    turn = meta.get("x-codex-turn-metadata")
    turn = turn if isinstance(turn, dict) else {}
    session = _text(meta.get("sessionId")) or _text(turn.get("session_id"))
    thread = _text(turn.get("thread_id"))
    name = "" if params is None else params.client_info.name
    call = _text(meta.get("claudecode/toolUseId"))
    return CallOrigin(name, session, "" if thread == session else thread, call, tool, arguments or {})


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def announced(space: Space, origin: CallOrigin, started_by: str = "") -> CallOrigin:
    """The origin with what the hook that announced the call adds. ``started_by``: the session that started the server."""
    caller = None
    if origin.call:
        caller = announced_by_id(os.path.dirname(space.home), origin.call)
    elif origin.tool and not origin.session:
        caller = announced_by_content(space, origin.tool, origin.arguments)
    session, sub = caller or (origin.session or started_by, origin.sub)
    return origin._replace(session=session, sub=sub)


def captured_session(space: Space, origin: CallOrigin) -> CapturedSession | None:
    """The recorded session or sub-agent that a call comes from."""
    rows = {row.sub: row for row in space.captures.sessions() if row.session == origin.session}
    subs = [row for row in rows.values() if row.sub and row.open]
    sub = origin.sub or next((row.sub for row in subs if origin.call and _made(space, row, origin.call)), "")
    return rows.get(sub) or rows.get("")


def _made(space: Space, captured: CapturedSession, call: str) -> bool:
    """Whether the trace of an agent has a call since its last commit."""
    return any(entry.get("key") == f"call:{call}" for entry in space.traces.pending(captured.agent))


def only_open_session(space: Space, path: str, client: str) -> str | None:
    """The agent of the only open session in a directory, of the client's own kind if there is one."""
    top = space.captures.top_of(path)
    sessions = [row for row in space.captures.sessions() if row.open and not row.sub and row.place == top]
    own = [row for row in sessions if row.tool.partition("-")[0] in client]
    agents = {row.agent for row in own or sessions}
    return agents.pop() if len(agents) == 1 else None
