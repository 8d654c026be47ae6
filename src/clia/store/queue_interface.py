"""Who answers a request: claims, so that of many workers one at a time tries.

Invariant: a claim that is not kept up runs out, and the work goes to someone else; so work is done at least once. That its
result counts once is not the queue's matter: the session takes one answer to a request.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Task(NamedTuple):
    """One request that a worker can answer."""

    agent: str
    request: str
    kind: str
    not_before: float = 0.0  # seconds since the epoch: since when it is due, or from when


class Claim(NamedTuple):
    """One worker's right to try a task, until ``until``."""

    task: Task
    worker: str
    attempt: int  # from 1
    until: float  # seconds since the epoch


class Waiting(NamedTuple):
    """What is known of a task that was tried: for people who look."""

    task: Task
    attempts: int
    worker: str | None  # who has it now
    until: float | None
    next_at: float | None  # not to be tried before
    error: str | None  # what the last attempt said


class Queue(Protocol):
    def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
        """One of the tasks that nobody has and whose time has come, for ``lease`` seconds; the one longest due first."""

    def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
        """The claim for another ``lease`` seconds; None where it was lost to someone else."""

    def retry(self, claim: Claim, at: float, error: str, *, counts: bool = True) -> None:
        """Gives the task back, not to be tried before a time. Nothing where the claim was lost.

        Where it does not count, the task is as often tried as before the claim.
        """

    def release(self, claim: Claim) -> None:
        """Gives the task back as if it had not been tried: the worker stops. Nothing where the claim was lost."""

    def done(self, claim: Claim) -> None:
        """Forgets the task: it is answered, or gone."""

    def next_time(self, tasks: Sequence[Task], now: float) -> float | None:
        """When the next of the tasks that wait becomes due, for a worker that has nothing to do; None: nothing waits."""

    def waiting(self) -> list[Waiting]:
        """Every task that was tried and is not done, sorted by agent and request."""

    def forget(self, live: Sequence[tuple[str, str]]) -> int:
        """Drops what is known of requests other than these (agent, request); how many were dropped."""

    def watch(self, wake: Callable[[], None]) -> None:
        """From now on calls ``wake``, from any thread, when someone else has put work in; never where nobody tells of it."""

    def close(self) -> None:
        """Lets go of what it holds open. What is still claimed goes to others, at the latest when its time is up."""
