"""The hand-over between sessions and whoever does their work: what is to be done, when, and what becomes of the outcome.

Invariant: everything here is a function of its arguments. A request is tried until it has an answer, is given up with a
reason that the flow sees, or is gone; it is never dropped in silence. A question to people is never handed over.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime
from typing import NamedTuple

from clia.errors import AlreadyExists, CliaError, Denied, InvalidInput, NotFound, StaleRequest
from clia.kernel.json_values import CannotCross, crossing
from clia.ports.engine import TIMER
from clia.ports.queue import Task
from clia.sessions.model import is_human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from typing import Any

    from clia.sessions.model import Request

SESSION = "session"
"""The kind of request that waits for another agent's session."""
REASON_MAX = 2000
_LAST = datetime.max.replace(tzinfo=UTC).timestamp() - 86400.0
_RETRY_AFTER_MAX = 3600.0
# Trying again would end the same way.
_FINAL = (InvalidInput, NotFound, Denied, AlreadyExists)


class Patience(NamedTuple):
    """How often a request is tried, and how long is waited in between."""

    attempts: int = 5
    backoff: float = 1.0
    backoff_max: float = 300.0


class Resume(NamedTuple):
    """The flow goes on with a value."""

    value: Any


class Retry(NamedTuple):
    """Not this time: again at a time."""

    at: float
    error: str


class GiveUp(NamedTuple):
    """The request fails inside the flow."""

    reason: str


class Gone(NamedTuple):
    """The request was answered by someone else, or its session ended: there is nothing left to do."""


Outcome = Resume | Retry | GiveUp | Gone


def tasks(requests: Iterable[Request], kinds: Container[str], is_live: Callable[[str], bool]) -> list[Task]:
    """Those of the pending requests that handlers of these kinds can answer, each with the time from which it can be.

    One that waits for another agent's session is none while that session is live.
    """
    return [
        Task(each.agent, each.id, each.kind, due(each))
        for each in requests
        if each.kind in kinds and not is_human(each.kind) and not _waits(each, is_live)
    ]


def due(request: Request) -> float:
    """From when a request can be answered, in seconds since the epoch. One that says it wrongly is due: its handler tells."""
    try:
        return timer_due(request) if request.kind == TIMER else 0.0
    except InvalidInput:
        return 0.0


def timer_due(request: Request) -> float:
    """When a timer's time is up; ``InvalidInput`` where its payload does not say."""
    payload = request.payload if isinstance(request.payload, dict) else {}
    if set(payload) == {"seconds"}:
        seconds = payload["seconds"]
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
            raise _bad_timer("seconds", "is a number, and not negative")
        seconds = min(seconds, 2**53)  # an integer of any size, and no float takes it
        asked = datetime.fromisoformat(request.since).timestamp()
        # Asked at some moment of a second that is not known any closer: its end is never too early.
        return _within_time(asked + seconds + (0.0 if "." in request.since else 1.0), "seconds")
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


def _waits(request: Request, is_live: Callable[[str], bool]) -> bool:
    agent = awaited(request)
    return agent is not None and is_live(agent)


def backoff(request: str, attempt: int, patience: Patience) -> float:
    """How long to wait after an attempt: doubled each time up to a limit, and spread by the request's id, so that requests
    that failed together do not come back together."""
    longest = min(patience.backoff_max, patience.backoff * 2.0 ** min(attempt - 1, 62))
    spread = int.from_bytes(hashlib.sha256(f"{request} {attempt}".encode()).digest()[:4], "big") / 2**32
    return longest * (0.5 + spread / 2)


def used_up(attempt: int, patience: Patience) -> GiveUp | None:
    """For a claim: the end of a request whose attempts all ended with their worker."""
    if attempt <= patience.attempts:
        return None
    return GiveUp(f"given up after {_times(patience.attempts)}: whoever tried it did not come back")


def after_value(value: Any) -> Resume | GiveUp:
    """What becomes of what a handler returned. Nonsense is its mistake, and would only be made again."""
    try:
        return Resume(crossing(value, "the value"))
    except (CannotCross, RecursionError) as err:
        return GiveUp(_cut(f"the handler's answer cannot be used: {err}"))


def after_error(error: Exception, task: Task, attempt: int, now: float, patience: Patience) -> Retry | GiveUp | Gone:
    """What becomes of a request whose handler raised."""
    if is_gone(error):
        return Gone()
    said = describe(error)
    if isinstance(error, _FINAL):
        return GiveUp(_cut(said))
    if attempt >= patience.attempts:
        return GiveUp(_cut(f"given up after {_times(attempt)}: {said}" if attempt > 1 else said))
    pause = max(backoff(f"{task.agent}/{task.request}", attempt, patience), _asked_pause(error))
    return Retry(now + pause, _cut(said))


def is_gone(error: Exception) -> bool:
    """Whether an error says that nobody waits for the answer any more."""
    return isinstance(error, StaleRequest) or (isinstance(error, NotFound) and error.code == "no-such-request")


def after_refusal(error: CliaError) -> GiveUp | Gone | None:
    """What becomes of an answer that the session did not take; None: it may be taken another time."""
    if is_gone(error):
        return Gone()
    return GiveUp(_cut(f"the answer was refused: {error.message}")) if isinstance(error, InvalidInput) else None


def describe(error: Exception) -> str:
    """An error in one line; ours in their own words."""
    text = error.message if isinstance(error, CliaError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split()) or type(error).__name__


def _asked_pause(error: Exception) -> float:
    """How long the other side asked to be left alone."""
    asked = error.fields.get("retry_after") if isinstance(error, CliaError) else None
    return min(float(asked), _RETRY_AFTER_MAX) if isinstance(asked, (int, float)) else 0.0


def _within_time(moment: float, field: str) -> float:
    if moment > _LAST:
        raise _bad_timer(field, "lies beyond the end of the calendar")
    return moment


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def _cut(text: str) -> str:
    return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}…"


def _bad_timer(field: str, problem: str) -> InvalidInput:
    return InvalidInput(f"a timer's {field} {problem}", code="invalid-payload", fields={"field": field})
