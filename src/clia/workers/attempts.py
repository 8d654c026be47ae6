"""One attempt at a request, from its claim to its outcome.

Invariant: an attempt ends once. The first to end it (its handler, its timeout, or the stopping worker) decides the outcome;
later ones are dropped. An answer is offered to the session even if the claim was lost: the session accepts one answer.
"""

from __future__ import annotations

import threading
from typing import NamedTuple, TypeVar

from clia.errors import BackendError, CliaError, Nondeterminism, StaleRequest
from clia.workers import retries
from clia.workers.effects.context import is_away
from clia.workers.retries import GiveUp, Gone, Resume, Retry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.facade.space import Space
    from clia.store.interface import Claim, Queue
    from clia.workers.effects.context import Context
    from clia.workers.retries import Outcome, RetryPolicy

T = TypeVar("T")
AttemptEnd = tuple[str, str | None]
"""How an attempt ended, and why without an answer."""
ANSWERED, RETRIED, GIVEN_UP, GONE, DROPPED = "answered", "retried", "given-up", "gone", "dropped"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0
_TRIES = 5


class Attempt:
    """One attempt at one task. The handler gets its context; the other fields are the worker's."""

    def __init__(self, claim: Claim, ends: tuple[float, float] | None, context: Context) -> None:
        self.claim = claim
        self.ends = ends  # time limit, and when it ends on the monotonic clock
        self.context = context
        self.progress = ""
        self.lost = False  # another worker has the task
        self.gone = False  # the session does not wait for it any more
        self.thread: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._ended = False

    def try_end(self) -> bool:
        """End the attempt; False if it has already ended."""
        with self._mutex:
            first, self._ended = not self._ended, True
        return first

    @property
    def overdue_at(self) -> float | None:
        """When it times out; None if it has no limit or has ended."""
        return None if self.ends is None or self._ended else self.ends[1]

    @property
    def key(self) -> tuple[str, str]:
        return self.claim.task.agent, self.claim.task.request


class OutcomeReporter(NamedTuple):
    """Reports outcomes to the session and the queue."""

    space: Space
    queue: Queue
    patience: RetryPolicy
    now: Callable[[], float]
    pause: Callable[[float], bool]  # waits; True if the worker stops now
    reached: Callable[[str], None]
    clean: Callable[[str], str]  # removes secrets
    worker: str

    def report(self, attempt: Attempt, outcome: Outcome) -> AttemptEnd:
        """Carry out an outcome. Retries while the store is unavailable."""
        recorded = retries.recordable(outcome, self.clean)
        try:
            if isinstance(recorded, Retry):
                return self._retry(attempt, recorded)
            end: AttemptEnd = (GONE, None)
            if not isinstance(recorded, Gone):
                try:
                    end = self._retrying(lambda: self._resume_session(attempt, recorded))
                except CliaError as err:  # retry later, with a pause
                    return self._retry(attempt, self._retry_later(attempt, err))
            self.reached("answered")
            self._retrying(lambda: self.queue.done(attempt.claim))
        except _WorkerStopped:
            return DROPPED, None  # the claim expires and another worker retries
        return end

    def _retry_later(self, attempt: Attempt, error: CliaError) -> Retry:
        error_text = retries.recordable_text(retries.describe(error), self.clean)
        if retries.is_out_of_reach(error):
            return retries.put_off(error, attempt.claim.task, self.now(), self.patience)._replace(error=error_text)
        return Retry(self.now() + self.patience.backoff_max, error_text)

    def _retry(self, attempt: Attempt, outcome: Retry) -> AttemptEnd:
        claim = attempt.claim
        self._retrying(lambda: self.queue.retry(claim, outcome.at, outcome.error, counts=outcome.counts))
        return RETRIED, f"attempt {claim.attempt} failed: {outcome.error}"

    def _resume_session(self, attempt: Attempt, outcome: Resume | GiveUp) -> AttemptEnd:
        agent, request = attempt.key
        try:
            if isinstance(outcome, Resume):
                self.space.resume(agent, outcome.value, request, by=self.worker)
                return (ANSWERED, None)
            self.space.sessions.give_up(agent, outcome.reason, request, by=self.worker)
        except Nondeterminism:
            return (GONE, None)  # the session has diverged
        except CliaError as err:
            instead = retries.after_refusal(err)
            if isinstance(err, StaleRequest) and err.answered_by == self.worker:
                return (ANSWERED, None)  # by this call, whose response was lost
            if isinstance(instead, Gone):
                return (GONE, None)
            if instead is None or isinstance(outcome, GiveUp):
                raise
            return self._resume_session(attempt, GiveUp(retries.recordable_text(instead.reason, self.clean)))
        return GIVEN_UP, f"given up: {outcome.reason}"

    def _retrying(self, call: Callable[[], T]) -> T:
        """Return the call's value. Retries while the store is unavailable, and a few times after other backend errors.

        Do not wait for an unreachable hub: another machine may reach it.
        """
        tries, pause = 1, _FIRST_PAUSE
        while True:
            try:
                return call()
            except BackendError as err:
                if retries.is_out_of_reach(err) or (not is_away(err) and tries >= _TRIES):
                    raise
                tries += not is_away(err)
            if self.pause(pause):
                raise _WorkerStopped
            pause = min(pause * 2, _LONGEST_PAUSE)


class _WorkerStopped(Exception):
    """The worker stops now. Internal to this module."""
