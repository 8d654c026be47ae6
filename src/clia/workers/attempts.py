"""One attempt at a request, from its claim to what becomes of it.

Invariant: an attempt has one end. Whoever takes it first (its handler that returned, its time that ran out, the worker
that stops) says how it ended, and what comes later is dropped. An answer is offered to the session also where the claim
was lost meanwhile: the session takes one answer, and only it knows whether it has one.
"""

from __future__ import annotations

import threading
from typing import NamedTuple, TypeVar

from clia.errors import BackendError, CliaError, Nondeterminism, StaleRequest
from clia.sessions import handover as hand_over
from clia.sessions.handover import GiveUp, Gone, Resume, Retry
from clia.workers.effects.context import is_away

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.facade.space import Space
    from clia.sessions.handover import Outcome, RetryPolicy
    from clia.store.interface import Claim, Queue
    from clia.workers.effects.context import Context

T = TypeVar("T")
ANSWERED, RETRIED, GIVEN_UP, GONE, DROPPED = "answered", "retried", "given-up", "gone", "dropped"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0
_TRIES = 5


class Attempt:
    """One try of one task. Its context is the handler's; the rest is the worker's."""

    def __init__(self, claim: Claim, ends: tuple[float, float] | None, context: Callable[[Attempt], Context]) -> None:
        self.claim = claim
        self.ends = ends  # after how long, and when on a clock that is never set
        self.context = context(self)
        self.said = ""
        self.lost = False  # someone else has the task now
        self.gone = False  # nobody waits for the answer
        self.thread: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._taken = False

    def take(self) -> bool:
        """Whether the caller is the first to end this attempt."""
        with self._mutex:
            first, self._taken = not self._taken, True
        return first

    @property
    def overdue_at(self) -> float | None:
        """When it is given up; None where nothing is waited for: it has no such time, or has ended and is being handed in."""
        return None if self.ends is None or self._taken else self.ends[1]

    @property
    def place(self) -> tuple[str, str]:
        return self.claim.task.agent, self.claim.task.request


class End(NamedTuple):
    """What became of an attempt, and why it brought no answer."""

    word: str
    why: str | None = None


class Desk(NamedTuple):
    """Where outcomes are handed in."""

    space: Space
    queue: Queue
    patience: RetryPolicy
    now: Callable[[], float]
    pause: Callable[[float], bool]  # waits; whether it is to be given up, because the worker stops at once
    reached: Callable[[str], None]
    clean: Callable[[str], str]  # takes secrets out
    worker: str

    def hand_in(self, attempt: Attempt, outcome: Outcome) -> End:
        """Does what an outcome says, and says what it was. A store that is away is waited for."""
        made = hand_over.recordable(outcome, self.clean)
        try:
            if isinstance(made, Retry):
                return self._retry(attempt, made)
            try:
                end = End(GONE) if isinstance(made, Gone) else self._insist(lambda: self._tell_session(attempt, made))
            except CliaError as err:  # it cannot be told now: later, and not at once for ever
                return self._retry(attempt, self._later(attempt, err))
            self.reached("answered")
            self._insist(lambda: self.queue.done(attempt.claim))
        except _Halted:
            return End(DROPPED)  # the claim runs out, and someone tries again
        return end

    def _later(self, attempt: Attempt, error: CliaError) -> Retry:
        said = hand_over.recordable_text(hand_over.describe(error), self.clean)
        if hand_over.is_out_of_reach(error):
            return hand_over.put_off(error, attempt.claim.task, self.now(), self.patience)._replace(error=said)
        return Retry(self.now() + self.patience.backoff_max, said)

    def _retry(self, attempt: Attempt, outcome: Retry) -> End:
        claim = attempt.claim
        self._insist(lambda: self.queue.retry(claim, outcome.at, outcome.error, counts=outcome.counts))
        return End(RETRIED, f"attempt {claim.attempt} failed: {outcome.error}")

    def _tell_session(self, attempt: Attempt, outcome: Resume | GiveUp) -> End:
        agent, request = attempt.place
        try:
            if isinstance(outcome, Resume):
                self.space.resume(agent, outcome.value, request, by=self.worker)
                return End(ANSWERED)
            self.space.give_up(agent, outcome.reason, request, by=self.worker)
        except Nondeterminism:
            return End(GONE)  # the session has diverged, and is over
        except CliaError as err:
            instead = hand_over.after_refusal(err)
            if isinstance(err, StaleRequest) and err.answered_by == self.worker:
                return End(ANSWERED)  # by this very call, whose end was lost
            if isinstance(instead, Gone):
                return End(GONE)
            if instead is None or isinstance(outcome, GiveUp):
                raise
            return self._tell_session(attempt, GiveUp(hand_over.recordable_text(instead.reason, self.clean)))
        return End(GIVEN_UP, f"given up: {outcome.reason}")

    def _insist(self, call: Callable[[], T]) -> T:
        """The call's value; as often as needed where the store is away, a few times where another part below fails.

        For a hub nobody waits with a claim in hand: another machine may not need it.
        """
        tries, pause = 1, _FIRST_PAUSE
        while True:
            try:
                return call()
            except BackendError as err:
                if hand_over.is_out_of_reach(err) or (not is_away(err) and tries >= _TRIES):
                    raise
                tries += not is_away(err)
            if self.pause(pause):
                raise _Halted
            pause = min(pause * 2, _LONGEST_PAUSE)


class _Halted(Exception):
    """The worker stops at once; never leaves this module."""
