"""Which requests of sessions workers handle, and when each is due.

Invariant: every function is pure. Questions to people are never handed to a worker.
"""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime

from clia.engine.records import TIMER
from clia.errors import InvalidInput
from clia.sessions.model import is_human
from clia.store.interface import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from clia.sessions.model import Request

SESSION = "session"
"""The kind of request that waits for another agent's session."""
_LAST = datetime.max.replace(tzinfo=UTC).timestamp() - 86400.0


def tasks(requests: Sequence[Request], kinds: Container[str], is_live: Callable[[str], bool], now: float) -> list[Task]:
    """The pending requests that these kinds of handlers can answer, each with its due time.

    A request for another agent's session waits while that session is live, unless the two would deadlock.
    """
    closing = circles(requests)
    handled = [request for request in requests if request.kind in kinds and not is_human(request.kind)]
    return [
        Task(request.agent, request.id, request.kind, due(request, now))
        for request in handled
        if (request.agent, request.id) in closing or (agent := awaited(request)) is None or not is_live(agent)
    ]


def due(request: Request, now: float) -> float:
    """When a request is due, in seconds since the epoch: the time it was made, or a timer's time.

    An invalid timer is due at once, so its handler can report it. So is a request from a clock ahead of this one.
    """
    since = min(_asked_at(request), now)
    with suppress(InvalidInput):
        return max(since, timer_due(request)) if request.kind == TIMER else since
    return since


def timer_due(request: Request) -> float:
    """When a timer fires; ``InvalidInput`` if its payload is invalid."""
    payload = request.payload if isinstance(request.payload, dict) else {}
    if set(payload) == {"seconds"}:
        seconds = payload["seconds"]
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
            raise _bad_timer("seconds", "is a number, and not negative")
        seconds = min(seconds, 2**53)  # an integer may be too large for a float
        # A time without a fraction is anywhere in its second: add one, so the timer never fires early.
        return _within_time(_asked_at(request) + seconds + (0.0 if "." in request.since else 1.0), "seconds")
    if set(payload) == {"until"}:
        try:
            moment = datetime.fromisoformat(payload["until"])
        except (TypeError, ValueError):
            raise _bad_timer("until", "is a time such as 2026-05-01T12:00:00Z") from None
        if moment.tzinfo is None:
            raise _bad_timer("until", "needs an offset from UTC, or a Z")
        return _within_time(moment.timestamp(), "until")
    raise _bad_timer("payload", 'is {"seconds": NUMBER} or {"until": TIME}')


def awaited(request: Request) -> str | None:
    """The agent whose session a request waits for."""
    payload = request.payload
    if request.kind != SESSION or not isinstance(payload, dict) or payload.get("wait", True) is not True:
        return None
    agent = payload.get("agent")
    return agent if isinstance(agent, str) and agent != request.agent else None


def circles(requests: Iterable[Request]) -> dict[tuple[str, str], tuple[str, ...]]:
    """The requests that close a cycle of sessions waiting for each other, by agent and id, with the agents of the cycle.

    It is the last request of the cycle: answering it lets the others finish.
    """
    awaits: dict[str, list[str]] = {}
    closing = {}
    waiting = [(request, agent) for request in requests if (agent := awaited(request))]
    for request, agent in sorted(waiting, key=lambda pair: (_asked_at(pair[0]), pair[0].agent, pair[0].id)):
        chain = _chain(awaits, agent, request.agent)
        if chain:
            closing[request.agent, request.id] = (request.agent, *chain[:-1])
        else:
            awaits.setdefault(request.agent, []).append(agent)
    return closing


def _chain(awaits: Mapping[str, Sequence[str]], first: str, last: str) -> list[str]:
    """The chain of agents from one to another, each waiting for the next; empty if there is none."""
    came_from: dict[str, str | None] = {first: None}
    left = [first]
    while left and last not in came_from:
        at = left.pop()
        new = [agent for agent in awaits.get(at, ()) if agent not in came_from]
        came_from.update(dict.fromkeys(new, at))
        left += new
    chain: list[str] = []
    agent = last if last in came_from else None
    while agent is not None:
        chain.insert(0, agent)
        agent = came_from[agent]
    return chain


def _asked_at(request: Request) -> float:
    return datetime.fromisoformat(request.since).timestamp()


def _within_time(moment: float, field: str) -> float:
    if moment > _LAST:
        raise _bad_timer(field, "lies beyond the end of the calendar")
    return moment


def _bad_timer(field: str, problem: str) -> InvalidInput:
    return InvalidInput(f"a timer's {field} {problem}", code="invalid-payload", fields={"field": field})
