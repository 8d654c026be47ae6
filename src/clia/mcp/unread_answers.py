"""Questions whose answer the asking session has not read yet.

A tool that is killed while it waits does not know the id of its question: it asks again when it is resumed. If a person has
answered meanwhile, it gets that answer. Only the session that asked gets it: an answer to an earlier session may be out of date.
"""

from __future__ import annotations

from clia.mcp.caller import announced
from clia.values.canonical import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.mcp.calls import ToolCall

_ROW = "mcp/asked/"
_MOST = 50


def note(call: ToolCall, agent: str, payload: Mapping[str, Any], request: str) -> None:
    """Remember which session asked a question. ``payload``: as it is recorded, without secrets."""
    session = _session(call)
    if session:
        with call.space.local.store.writing() as transaction:
            row = transaction.values.get(_ROW + agent)
            questions = {} if row is None else row.value
            newest = {**questions, request: {"session": session, "payload": digest(payload)}}
            transaction.values.put(_ROW + agent, dict(list(newest.items())[-_MOST:]))


def find(call: ToolCall, agent: str, payload: Mapping[str, Any]) -> str | None:
    """The question that this session asked in the same words and whose outcome it has not read."""
    row = call.space.local.store.get(_ROW + agent)
    wanted = {"session": _session(call), "payload": digest(payload)}
    return next((request for request, question in (row.value if row is not None else {}).items() if question == wanted), None)


def read(call: ToolCall, agent: str, request: str) -> None:
    """Forget a question whose outcome is returned to the session that asked it."""
    store = call.space.local.store
    row = store.get(_ROW + agent)
    if row is not None and request in row.value and row.value[request]["session"] == _session(call):
        with store.writing() as transaction:
            row = transaction.values.get(_ROW + agent)
            questions = {} if row is None else row.value
            transaction.values.put(_ROW + agent, {key: value for key, value in questions.items() if key != request})


def _session(call: ToolCall) -> str:
    return announced(call.space, call.origin, call.place.session).session if call.place.at_hand else ""
