"""Handover between sessions and workers: which requests are due, when, and what an outcome means.

Invariant: every function is pure. A request is retried until it is answered, given up with a reason that the flow sees, or gone; it
is never dropped silently. Questions to people are never handed to a worker.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from clia.engine.records import TIMER
from clia.errors import AlreadyExists, CliaError, Denied, InvalidInput, NotFound, StaleRequest
from clia.sessions.model import is_human
from clia.store.interface import Task
from clia.values.json_values import CannotCross, crossing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from typing import Any

    from clia.sessions.model import Request

SESSION = "session"
"""The kind of request that waits for another agent's session."""
REASON_MAX = 2000
_LAST = datetime.max.replace(tzinfo=UTC).timestamp() - 86400.0
_RETRY_AFTER_MAX = 3600.0
# A retry would fail the same way.
_FINAL = (InvalidInput, NotFound, Denied, AlreadyExists)
_AT_THE_HUB = frozenset(("hub-away", "hub-busy", "hub-diverged", "hub-refused", "hub-unsettled"))
_NOT_HERE = frozenset(("agent-held", "agent-not-here", "branch-checked-out", "news-elsewhere", "work-elsewhere"))
_OUT_OF_REACH = _AT_THE_HUB | _NOT_HERE
_PUT_OFF = 15.0  # seconds; another machine may be faster


class RetryPolicy(NamedTuple):
    """How often a request is tried, and the delay between attempts."""

    attempts: int = 5
    backoff: float = 1.0
    backoff_max: float = 300.0


class Resume(NamedTuple):
    """Resume the flow with a value."""

    value: Any


class Retry(NamedTuple):
    """Try again later."""

    at: float
    error: str
    counts: bool = True  # False: not the request's fault, so the attempt does not count


class GiveUp(NamedTuple):
    """Raise an error in the flow."""

    reason: str


class Gone(NamedTuple):
    """The request was answered elsewhere or its session ended: nothing to do."""


Outcome = Resume | Retry | GiveUp | Gone


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

    An invalid timer is due at once, so its handler can report it. So is a request from a clock ahead of ours.
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


def backoff(request: str, attempt: int, patience: RetryPolicy) -> float:
    """The delay after an attempt: exponential up to a limit, with jitter from the request's id."""
    longest = min(patience.backoff_max, patience.backoff * 2.0 ** min(attempt - 1, 62))
    spread = int.from_bytes(hashlib.sha256(f"{request} {attempt}".encode()).digest()[:4], "big") / 2**32
    return longest * (0.5 + spread / 2)


def used_up(attempt: int, patience: RetryPolicy) -> GiveUp | None:
    """For a claim: give up a request whose attempts were all lost with their worker, or whose answers were refused."""
    why = "its workers were lost, or their answers could not be recorded"
    return GiveUp(f"given up after {_times(patience.attempts)}: {why}") if attempt > patience.attempts else None


def after_value(value: Any) -> Resume | GiveUp:
    """The outcome of a value that a handler returned. An unusable value would only be returned again."""
    try:
        return Resume(crossing(value, "the value"))
    except (CannotCross, RecursionError) as err:
        return GiveUp(f"the handler's answer cannot be used: {err}")


def after_error(error: Exception, task: Task, attempt: int, now: float, patience: RetryPolicy) -> Retry | GiveUp | Gone:
    """The outcome of an error that a handler raised."""
    if is_gone(error):
        return Gone()
    if is_out_of_reach(error):
        return put_off(error, task, now, patience)
    problem = describe(error)
    if isinstance(error, _FINAL):
        return GiveUp(problem)
    if attempt >= patience.attempts:
        return GiveUp(f"given up after {_times(attempt)}: {problem}" if attempt > 1 else problem)
    pause = backoff(f"{task.agent}/{task.request}", attempt, patience)
    requested = error.fields.get("retry_after") if isinstance(error, CliaError) else None  # the delay that the other side wants
    return Retry(now + (max(pause, min(requested, _RETRY_AFTER_MAX)) if isinstance(requested, (int, float)) else pause), problem)


def put_off(error: Exception, task: Task, now: float, patience: RetryPolicy) -> Retry:
    """The outcome for a request that this machine cannot answer now. It is not a failure and does not count as an attempt."""
    least = min(_PUT_OFF, patience.backoff_max)
    return Retry(now + max(least, backoff(f"{task.agent}/{task.request}", 1, patience)), describe(error), counts=False)


def is_gone(error: Exception) -> bool:
    """Whether an error means that the request no longer waits."""
    return isinstance(error, StaleRequest) or (isinstance(error, NotFound) and error.code == "no-such-request")


def is_out_of_reach(error: Exception) -> bool:
    """Whether an error means that this machine cannot work on the agent now; another machine, or a retry, may."""
    return isinstance(error, CliaError) and error.code in _OUT_OF_REACH


def after_refusal(error: CliaError) -> GiveUp | Gone | None:
    """The outcome of an answer that the session refused; None if it may be accepted later."""
    if is_gone(error):
        return Gone()
    return GiveUp(f"the answer was refused: {error.message}") if isinstance(error, InvalidInput) else None


def recordable(outcome: Outcome, clean: Callable[[str], str]) -> Outcome:
    """An outcome whose text may be stored: redacted first, then cut, so no secret is cut in two."""
    if isinstance(outcome, Retry):
        return outcome._replace(error=recordable_text(outcome.error, clean))
    return GiveUp(recordable_text(outcome.reason, clean)) if isinstance(outcome, GiveUp) else outcome


def recordable_text(text: str, clean: Callable[[str], str]) -> str:
    cleaned = clean(_storable(text))
    return cleaned if len(cleaned) <= REASON_MAX else f"{cleaned[:REASON_MAX]}…"


def describe(error: BaseException) -> str:
    """An error in one line."""
    name = type(error).__name__
    try:
        text = str(error.message) if isinstance(error, CliaError) else f"{name}: {error}"
    except BaseException:  # noqa: BLE001  # another's error: even its words may raise anything
        text = f"{name}, which cannot say what is wrong"
    return " ".join(_storable(text).split()) or name


def _storable(text: str) -> str:
    """A text that any store accepts: no lone surrogates, no NUL."""
    return text.replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode("utf-8")


def _within_time(moment: float, field: str) -> float:
    if moment > _LAST:
        raise _bad_timer(field, "lies beyond the end of the calendar")
    return moment


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def _bad_timer(field: str, problem: str) -> InvalidInput:
    return InvalidInput(f"a timer's {field} {problem}", code="invalid-payload", fields={"field": field})
