"""The hand-over between sessions and whoever does their work: what is to be done, when, and what becomes of the outcome.

Invariant: everything here is a function of its arguments. A request is tried until it has an answer, is given up with a
reason that the flow sees, or is gone; it is never dropped in silence. A question to people is never handed over.
"""

from __future__ import annotations

import hashlib
import math
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
# Trying again would end the same way.
_FINAL = (InvalidInput, NotFound, Denied, AlreadyExists)
_AT_THE_HUB = frozenset(("hub-away", "hub-busy", "hub-diverged", "hub-refused", "hub-unsettled"))
_NOT_HERE = frozenset(("agent-held", "agent-not-here", "branch-checked-out", "news-elsewhere", "work-elsewhere"))
_OUT_OF_REACH = _AT_THE_HUB | _NOT_HERE
_PUT_OFF = 15.0  # seconds; another machine may be quicker


class RetryPolicy(NamedTuple):
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
    counts: bool = True  # False: the request has nothing to do with it, and is tried as often as before


class GiveUp(NamedTuple):
    """The request fails inside the flow."""

    reason: str


class Gone(NamedTuple):
    """The request was answered by someone else, or its session ended: there is nothing left to do."""


Outcome = Resume | Retry | GiveUp | Gone


def tasks(requests: Sequence[Request], kinds: Container[str], is_live: Callable[[str], bool], now: float) -> list[Task]:
    """Those of the pending requests that handlers of these kinds can answer, each with the time from which it can be.

    One that waits for another agent's session is none while that session is live, unless the two would wait for ever.
    """
    closing = circles(requests)
    return [
        Task(each.agent, each.id, each.kind, due(each, now))
        for each in requests
        if each.kind in kinds and not is_human(each.kind) and ((each.agent, each.id) in closing or not _waits(each, is_live))
    ]


def due(request: Request, now: float) -> float:
    """Since or from when a request can be answered, in seconds since the epoch: when it was asked, or a timer's time.

    One that says it wrongly is due: its handler tells. One asked by a clock that is ahead of ours is due now.
    """
    asked = min(_asked_at(request), now)
    try:
        return max(asked, timer_due(request)) if request.kind == TIMER else asked
    except InvalidInput:
        return asked


def timer_due(request: Request) -> float:
    """When a timer's time is up; ``InvalidInput`` where its payload does not say."""
    payload = request.payload if isinstance(request.payload, dict) else {}
    if set(payload) == {"seconds"}:
        seconds = payload["seconds"]
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
            raise _bad_timer("seconds", "is a number, and not negative")
        seconds = min(seconds, 2**53)  # an integer of any size, and no float takes it
        # Asked at some moment of a second that is not known any closer: its end is never too early.
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
    """By agent and id, the requests that close a circle of sessions which wait for one another, each with the agents of its
    circle from its own on. Of a circle it is the last one asked: without it the others can come to an end."""
    awaits: dict[str, list[str]] = {}
    closing = {}
    for request in sorted(filter(awaited, requests), key=lambda each: (_asked_at(each), each.agent, each.id)):
        agent = awaited(request)
        assert agent is not None  # noqa: S101  # the others were left out
        chain = _chain(awaits, agent, request.agent)
        if chain:
            closing[request.agent, request.id] = (request.agent, *chain[:-1])
        else:
            awaits.setdefault(request.agent, []).append(agent)
    return closing


def _chain(awaits: Mapping[str, Sequence[str]], first: str, last: str) -> list[str]:
    """The agents from one to another, each waiting for the next; empty: there is no such way."""
    came_from: dict[str, str | None] = {first: None}
    left = [first]
    while left and last not in came_from:
        at = left.pop()
        new = [each for each in awaits.get(at, ()) if each not in came_from]
        came_from.update(dict.fromkeys(new, at))
        left += new
    chain: list[str] = []
    at_last = last if last in came_from else None
    while at_last is not None:
        chain.insert(0, at_last)
        at_last = came_from[at_last]
    return chain


def _asked_at(request: Request) -> float:
    return datetime.fromisoformat(request.since).timestamp()


def _waits(request: Request, is_live: Callable[[str], bool]) -> bool:
    agent = awaited(request)
    return agent is not None and is_live(agent)


def backoff(request: str, attempt: int, patience: RetryPolicy) -> float:
    """How long to wait after an attempt: doubled each time up to a limit, and spread by the request's id, so that requests
    that failed together do not come back together."""
    longest = min(patience.backoff_max, patience.backoff * 2.0 ** min(attempt - 1, 62))
    spread = int.from_bytes(hashlib.sha256(f"{request} {attempt}".encode()).digest()[:4], "big") / 2**32
    return longest * (0.5 + spread / 2)


def used_up(attempt: int, patience: RetryPolicy) -> GiveUp | None:
    """For a claim: the end of a request whose attempts all ended with their worker, or with an answer that was not taken."""
    if attempt <= patience.attempts:
        return None
    why = "whoever tried it did not come back, or could not hand in what came of it"
    return GiveUp(f"given up after {_times(patience.attempts)}: {why}")


def after_value(value: Any) -> Resume | GiveUp:
    """What becomes of what a handler returned. Nonsense is its mistake, and would only be made again."""
    try:
        return Resume(crossing(value, "the value"))
    except (CannotCross, RecursionError) as err:
        return GiveUp(f"the handler's answer cannot be used: {err}")


def after_error(error: Exception, task: Task, attempt: int, now: float, patience: RetryPolicy) -> Retry | GiveUp | Gone:
    """What becomes of a request whose handler raised."""
    if is_gone(error):
        return Gone()
    if is_out_of_reach(error):
        return put_off(error, task, now, patience)
    said = describe(error)
    if isinstance(error, _FINAL):
        return GiveUp(said)
    if attempt >= patience.attempts:
        return GiveUp(f"given up after {_times(attempt)}: {said}" if attempt > 1 else said)
    pause = max(backoff(f"{task.agent}/{task.request}", attempt, patience), _asked_pause(error))
    return Retry(now + pause, said)


def put_off(error: Exception, task: Task, now: float, patience: RetryPolicy) -> Retry:
    """What becomes of a request that this machine cannot answer now: it is no failure, and takes as long as it takes."""
    least = min(_PUT_OFF, patience.backoff_max)
    return Retry(now + max(least, backoff(f"{task.agent}/{task.request}", 1, patience)), describe(error), counts=False)


def is_gone(error: Exception) -> bool:
    """Whether an error says that nobody waits for the answer any more."""
    return isinstance(error, StaleRequest) or (isinstance(error, NotFound) and error.code == "no-such-request")


def is_out_of_reach(error: Exception) -> bool:
    """Whether an error says that the agent's work is not to be had on this machine now: another one may do it, or we later."""
    return isinstance(error, CliaError) and error.code in _OUT_OF_REACH


def after_refusal(error: CliaError) -> GiveUp | Gone | None:
    """What becomes of an answer that the session did not take; None: it may be taken another time."""
    if is_gone(error):
        return Gone()
    return GiveUp(f"the answer was refused: {error.message}") if isinstance(error, InvalidInput) else None


def recordable(outcome: Outcome, clean: Callable[[str], str]) -> Outcome:
    """An outcome whose words may be kept and shown: without secrets first, and cut then, so that no secret is cut in two."""
    if isinstance(outcome, Retry):
        return outcome._replace(error=recordable_text(outcome.error, clean))
    return GiveUp(recordable_text(outcome.reason, clean)) if isinstance(outcome, GiveUp) else outcome


def recordable_text(text: str, clean: Callable[[str], str]) -> str:
    made = clean(_whole(text))
    return made if len(made) <= REASON_MAX else f"{made[:REASON_MAX]}…"


def describe(error: BaseException) -> str:
    """An error in one line; ours in their own words."""
    name = type(error).__name__
    try:
        text = str(error.message) if isinstance(error, CliaError) else f"{name}: {error}"
    except BaseException:  # noqa: BLE001  # another's error: even its words may raise anything
        text = f"{name}, which cannot say what is wrong"
    return " ".join(_whole(text).split()) or name


def _whole(text: str) -> str:
    """A text that any store can keep: no half of a character, and no NUL."""
    return text.replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode("utf-8")


def _asked_pause(error: Exception) -> float:
    """How long the other side asked to be left alone."""
    asked = error.fields.get("retry_after") if isinstance(error, CliaError) else None
    return float(min(asked, _RETRY_AFTER_MAX)) if isinstance(asked, (int, float)) else 0.0


def _within_time(moment: float, field: str) -> float:
    if moment > _LAST:
        raise _bad_timer(field, "lies beyond the end of the calendar")
    return moment


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def _bad_timer(field: str, problem: str) -> InvalidInput:
    return InvalidInput(f"a timer's {field} {problem}", code="invalid-payload", fields={"field": field})
