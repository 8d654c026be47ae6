"""The retry policy of workers: what follows from a handler's value or error.

Invariant: every function is pure. A request is retried until it is answered, given up with a reason that the flow sees, or gone; it
is never dropped silently.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from clia.errors import AlreadyExists, CliaError, Conflict, Denied, InvalidInput, NotFound, StaleRequest
from clia.values.json_values import CannotCross, crossing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from clia.store.interface import Task

REASON_MAX = 2000
_RETRY_AFTER_MAX = 3600.0
# A retry would fail the same way.
_FINAL = (InvalidInput, NotFound, Denied, AlreadyExists)
_AT_THE_HUB = frozenset(("hub-away", "hub-busy", "hub-diverged", "hub-refused", "hub-unsettled"))
_NOT_HERE = frozenset(("agent-held", "agent-not-here", "branch-checked-out", "news-elsewhere", "work-elsewhere"))
_CANNOT_SIGN = frozenset(
    ("no-signing-key", "signing-key-locked", "signing-key-unreadable", "key-exposed", "signing-command-failed")
)
_OUT_OF_REACH = _AT_THE_HUB | _NOT_HERE | _CANNOT_SIGN
_PUT_OFF = 15.0  # seconds; another machine may be faster
_LOOK_AGAIN = 2.0  # seconds, while a person is asked
WAITS = "waits-for-people"
"""The code of the error of a request that must wait until a person has answered."""


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
    if isinstance(error, Conflict) and error.code in (WAITS, "budget-used-up"):
        return Retry(now + _LOOK_AGAIN, describe(error), counts=False)
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
        text = f"{name} with an unreadable message"
    return " ".join(_storable(text).split()) or name


def _storable(text: str) -> str:
    """A text that any store accepts: no lone surrogates, no NUL."""
    return text.replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode("utf-8")


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"
