"""What a person must know of a request: what is asked, and what is said beside it.

Invariant: everything here is a function of its arguments; whoever shows a request to people, at a terminal or on a page, shows
the same question.
"""

from __future__ import annotations

from clia.sessions.model import SUSPEND, is_human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.engine.records import FlowCall
    from clia.sessions.model import Request

_QUESTIONS = ("question", "prompt", "title")


def is_for_people(request: Request | FlowCall) -> bool:
    """Whether a person answers this request: a question to people, or a flow that suspended itself."""
    return is_human(request.kind) or request.kind == SUSPEND


def question_of(request: Request) -> str:
    """What is asked, in one text."""
    return question_in(request.payload) or request.tag or request.kind


def question_in(payload: Any) -> str:
    """The question that a payload puts in words; "" where it puts none."""
    if isinstance(payload, str) and payload.strip():
        return payload
    key = _question_key(payload)
    return str(payload[key]) if key is not None else ""


def context_of(request: Request) -> list[tuple[str, Any]]:
    """What a request says beside its question and its choices."""
    payload = request.payload
    found = [("tag", request.tag)] if request.tag and question_of(request) != request.tag else []
    if isinstance(payload, dict):
        told = {_question_key(payload), "choices", "schema"}
        return found + [(key, value) for key, value in payload.items() if key not in told]
    if payload is None or question_of(request) == payload:
        return found
    return [*found, ("payload", payload)]


def _question_key(payload: Any) -> str | None:
    if not isinstance(payload, dict):
        return None
    return next((key for key in _QUESTIONS if isinstance(payload.get(key), str) and payload[key].strip()), None)
