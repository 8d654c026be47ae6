"""The worker: claims the requests of sessions, runs their handlers and returns the answers.

Invariant: a request is attempted at least once and answered once. Heartbeats renew the claims of a worker; after its death they
expire and others continue. A handler that exceeds its time limit is abandoned: its thread cannot be killed, and its result is
dropped. While the store is unavailable the worker waits. Durations use the monotonic clock, shared times the store's clock.
"""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import NamedTuple, TypeVar

from clia.errors import BackendError, CliaError, Conflict, NotFound
from clia.values.background import retry_while_unavailable
from clia.values.records import json_form
from clia.workers import due_requests, retries, rule_checks
from clia.workers.attempts import ANSWERED, DROPPED, GIVEN_UP, GONE, RETRIED, Attempt, OutcomeReporter
from clia.workers.effects import EXCLUSIVE, llm
from clia.workers.effects.context import Context, Tools, is_away
from clia.workers.retries import Gone, Resume, RetryPolicy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.behaviours.service import BehaviourService
    from clia.facade.config import Config
    from clia.facade.space import Space
    from clia.sessions.model import Request
    from clia.store.interface import Claim, Queue, Task
    from clia.workers.effects import Effects
    from clia.workers.retries import Outcome

T = TypeVar("T")
_PRUNE_INTERVAL = 60.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 8.0
_SILENCE_SECONDS = 2.0  # seconds after which the store is reported as not answering
_MAX_HANGING = 4  # abandoned threads, per allowed concurrent attempt


@json_form(progress="said")
class RunningAttempt(NamedTuple):
    """An attempt that is running."""

    agent: str  # the agent
    request: str  # request id
    kind: str  # kind of request
    attempt: int  # number of the attempt, from 1
    progress: str  # reported by the handler


class WorkerStatus(NamedTuple):
    """What a worker does, and has done since its start."""

    running: tuple[RunningAttempt, ...] = ()  # attempts that are running
    waiting: int = 0  # tasks not running here
    next_at: float | None = None  # when the next one is due, in seconds since the epoch
    answered: int = 0  # requests that it answered
    retried: int = 0  # attempts that failed and are retried
    given_up: int = 0  # requests that it gave up; the flow got an error
    gone: int = 0  # answered by others, or the session ended
    hanging: int = 0  # abandoned handlers that have not returned
    trouble: str | None = None  # why the worker is stuck now
    last: str | None = None  # the last attempt without an answer
    problems: tuple[tuple[str, str], ...] = ()  # kinds that cannot be handled, and why
    adopted: tuple[str, ...] = ()  # behaviour versions that an operator's policy adopted, with their names


class WorkerDependencies(NamedTuple):
    """The collaborators of a worker."""

    space: Space
    effects: Effects
    queue: Queue
    tools: Tools
    config: Config
    name: str  # unique
    tell: Callable[[WorkerStatus], None] = lambda _: None
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    reached: Callable[[str], None] = lambda _: None
    kinds: frozenset[str] | None = None  # handle only these


class PolicyFollower:
    """Adopts behaviour versions by policy, in a background thread of a worker.

    Invariant: a policy only adopts versions that people allowed to run. A behaviour that cannot be judged is tried again later.
    """

    def __init__(self, behaviours: BehaviourService, config: Config, wait: Callable[[threading.Event, float], bool]) -> None:
        self._behaviours = behaviours
        self._policies = config.behaviours
        self._seconds = config.worker.behaviours_seconds
        self._wait = wait
        self.adopted: tuple[str, ...] = ()  # names and versions, since the start
        self.trouble: str | None = None  # the last error

    def any(self) -> bool:
        """Whether any policy adopts without a person."""
        return any(policy.adopt for policy in self._policies.values())

    def keep_following(self, stop: threading.Event, notify: Callable[[], None]) -> None:
        """Judge at the start, so that ``clia worker --once`` also does it, then periodically."""
        while True:
            self.trouble = self._follow_once(notify)
            if self.trouble is not None:
                notify()
            if self._wait(stop, self._seconds):
                return

    def _follow_once(self, notify: Callable[[], None]) -> str | None:
        """Judge each behaviour once; returns the last error."""
        trouble, default = None, self._policies.get("*")
        try:
            names = [behaviour.name for behaviour in self._behaviours()]
        except Exception as err:  # noqa: BLE001  # the thread continues and tries again
            return f"policies: {retries.describe(err)}"
        for name in names:
            policy = self._policies.get(name) or default
            if policy is None or not policy.adopt:
                continue
            try:
                version = self._behaviours.follow_policy(name)
            except NotFound:  # no current version, or removed
                continue
            except Exception as err:  # noqa: BLE001  # as above
                trouble = f"policy of {name}: {retries.describe(err)}"
                continue
            if version is not None:
                self.adopted += (f"{name} {version.cid}",)
                notify()
        return trouble


class Worker:
    """``run`` works in the calling thread until another thread calls ``stop``."""

    def __init__(self, deps: WorkerDependencies) -> None:
        self._deps = deps
        self._options = deps.config.worker
        self._retry_policy = RetryPolicy(self._options.attempts, self._options.backoff_seconds, self._options.backoff_max_seconds)
        self._reporter = OutcomeReporter(
            deps.space,
            deps.queue,
            self._retry_policy,
            self._now,
            lambda seconds: deps.wait(self._halted, seconds),
            deps.reached,
            self._clean,
            f"worker {deps.name}",
        )
        self._wake, self._stopping, self._halted = threading.Event(), threading.Event(), threading.Event()
        self.wake = self._wake.set  # thread-safe: look for work now
        self._mutex, self._tell_lock = threading.Lock(), threading.Lock()
        self._running: dict[tuple[str, str], Attempt] = {}
        self._hanging: list[Attempt] = []
        self._counts = dict.fromkeys((ANSWERED, RETRIED, GIVEN_UP, GONE, DROPPED), 0)
        self._status = WorkerStatus()
        self._requests: dict[tuple[str, str], Request] = {}
        self._pruned_at = -math.inf
        self._query_since: float | None = None  # when the pending store call started
        self._last: str | None = None
        self._waits_for_hub = False  # whether tasks wait for the hub
        self._policies = PolicyFollower(deps.space.behaviours, deps.config, deps.wait)

    def stop(self) -> None:
        """Stop gracefully; a second call stops now."""
        (self._halted if self._stopping.is_set() else self._stopping).set()
        self._wake.set()

    def run(self, *, once: bool = False, until_idle: bool = False) -> WorkerStatus:
        """Work until stopped. ``once``: until everything due at the start was attempted. ``until_idle``: until no task is left
        that this worker could handle, now or later."""
        stop = threading.Event()
        loops: dict[str, Callable[[threading.Event], None]] = {
            "clia-heartbeat": self._renew_claims,
            "clia-watch": self._watch_store,
        }
        if self._policies.any():
            loops["clia-policies"] = lambda event: self._policies.keep_following(event, self._notify)
        threads = [threading.Thread(target=loop, args=(stop,), name=name, daemon=True) for name, loop in loops.items()]
        for thread in threads:
            thread.start()
        try:
            self._loop(once=once, until_idle=until_idle)
        finally:
            self._shut_down()
            stop.set()
            for thread in threads:
                thread.join()
        return self.status()

    def status(self) -> WorkerStatus:
        with self._mutex:
            running = tuple(
                RunningAttempt(*attempt.key, attempt.claim.task.kind, attempt.claim.attempt, attempt.progress)
                for attempt in self._running.values()
            )
            self._hanging = [attempt for attempt in self._hanging if attempt.thread is not None and attempt.thread.is_alive()]
            counts = self._counts
            return self._status._replace(
                running=running,
                answered=counts[ANSWERED],
                retried=counts[RETRIED],
                given_up=counts[GIVEN_UP],
                gone=counts[GONE],
                hanging=len(self._hanging),
                problems=tuple(sorted(self._deps.effects.problems.items())),
                last=self._policies.trouble or self._last,
                adopted=self._policies.adopted,
                trouble=self._status.trouble or ("the store does not answer" if self._store_is_silent() else None),
            )

    # The loop

    def _loop(self, *, once: bool, until_idle: bool) -> None:
        only: set[tuple[str, str]] | None = None
        pause = self._options.poll_seconds
        while not self._stopping.is_set():
            self._wake.clear()
            busy = bool(self._running)  # read first: an attempt that ends now may create tasks
            try:
                tasks = self._look()
                if once and only is None:
                    only = {(task.agent, task.request) for task in tasks if task.not_before <= self._now()}
                startable = tasks if only is None else [task for task in tasks if (task.agent, task.request) in only]
                self._end_overdue()
                started = self._start_attempts(startable)
                waiting = [task for task in tasks if task not in started]
                next_at = self._next_time(self._startable(waiting))
                over = not (busy or started) and (
                    (once and (self._next_time(startable) or math.inf) > self._now())
                    or (until_idle and not startable and not self._waits_for_hub)
                )
            except BackendError as err:
                if not is_away(err):
                    raise
                self._status = self._status._replace(trouble=err.message)
                self._notify()
                self._deps.wait(self._wake, pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = self._options.poll_seconds
            self._status = WorkerStatus(waiting=len(waiting), next_at=next_at, trouble=self._overloaded())
            self._notify()
            if over:
                return
            self._deps.wait(self._wake, self._seconds_to_wait(next_at))

    def _next_time(self, tasks: Sequence[Task]) -> float | None:
        return self._query(lambda: self._deps.queue.next_time(tasks, self._now()))

    def _query(self, call: Callable[[], T]) -> T:
        """Call the store; the status reports a call that does not return."""
        self._query_since = self._deps.tools.monotonic()
        try:
            return call()
        finally:
            self._query_since = None

    def _look(self) -> list[Task]:
        """Return the waiting tasks; cancel attempts whose request is gone."""
        space, kinds = self._deps.space, self._deps.kinds
        running = self._attempts()
        requests = self._query(space.pending)
        self._requests = {(request.agent, request.id): request for request in requests}
        for attempt in running:
            if attempt.key not in self._requests:
                attempt.gone = True
                attempt.context.cancelled.set()
        self._prune_queue()
        handled = {kind for kind in self._deps.effects if kinds is None or kind in kinds}
        sessions = {request.agent for request in requests if not request.session.startswith("ask-")}
        live = sessions.intersection(map(due_requests.awaited, requests))  # with a live session that some request waits for
        elsewhere = self._query(space.hub.elsewhere)  # left to the machine with their unpublished work
        unseen = self._query(lambda: space.hub.elsewhere({request.agent for request in requests})) - elsewhere
        near = [request for request in requests if request.agent not in elsewhere]
        tasks = due_requests.tasks(near, handled, live.__contains__, self._now())
        self._waits_for_hub = any(task.agent in unseen for task in tasks)
        tasks = [task for task in tasks if task.agent not in unseen]
        with self._mutex:
            return [task for task in tasks if (task.agent, task.request) not in self._running]

    def _prune_queue(self) -> None:
        """Drop queue state of tasks whose session ended between attempts."""
        monotonic, queue = self._deps.tools.monotonic, self._deps.queue
        if monotonic() < self._pruned_at + _PRUNE_INTERVAL:
            return
        queued = {(state.task.agent, state.task.request) for state in self._query(queue.waiting)}
        live = {(request.agent, request.id) for request in self._query(self._deps.space.pending)}
        # Keep claims that are newer than the list of requests.
        tried = ((state.task.agent, state.task.request) for state in self._query(queue.waiting))
        keep = sorted(live.union(place for place in tried if place not in queued))
        self._query(lambda: queue.forget(keep))
        self._pruned_at = monotonic()

    # Attempts

    def _startable(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks without those that must wait for an exclusive attempt of this worker."""
        busy = {attempt.claim.task.agent for attempt in self._attempts() if attempt.claim.task.kind in EXCLUSIVE}
        return [task for task in tasks if task.kind not in EXCLUSIVE or task.agent not in busy]

    def _start_attempts(self, tasks: Sequence[Task]) -> set[Task]:
        """Start attempts up to the concurrency limit; return their tasks."""
        left = list(tasks)
        started: set[Task] = set()
        while self._room() and not self._stopping.is_set():
            free = self._startable(left)
            claim = self._query(lambda: self._deps.queue.claim(free, self._deps.name, self._now(), self._options.lease_seconds))  # noqa: B023  # called in this iteration
            if claim is None:
                break
            left.remove(claim.task)
            started.add(claim.task)
            self._start(claim, self._requests[claim.task.agent, claim.task.request])
        return started

    def _room(self) -> int:
        with self._mutex:
            return 0 if self._overloaded() else self._options.concurrency - len(self._running)

    def _overloaded(self) -> str | None:
        hanging = len(self._hanging)
        too_many = hanging >= _MAX_HANGING * self._options.concurrency
        return f"{hanging} handlers hang; no more attempts are started" if too_many else None

    def _start(self, claim: Claim, request: Request) -> None:
        deps = self._deps
        seconds = deps.effects.seconds(request.kind, request.payload)
        ends = None if seconds is None else (seconds, deps.tools.monotonic() + seconds)
        options, cancelled = deps.effects.options(request.kind), threading.Event()

        def progress(text: str) -> None:
            attempt.progress = text
            self._notify()

        def run() -> None:
            try:
                outcome = self._outcome(attempt)
                if attempt.try_end():
                    self._finish(attempt, outcome)
            finally:
                self._remove(attempt)
                self._wake.set()

        context = Context(deps.space, request, claim.attempt, deps.config, options, deps.tools, cancelled, progress)
        attempt = Attempt(claim, ends, context)
        attempt.thread = threading.Thread(target=run, name=f"clia-{request.kind}", daemon=True)
        with self._mutex:
            self._running[attempt.key] = attempt
        attempt.thread.start()

    def _outcome(self, attempt: Attempt) -> Outcome | None:
        """Return the outcome of the handler; None if it cannot be loaded."""
        claim, context = attempt.claim, attempt.context
        if (used_up := retries.used_up(claim.attempt, self._retry_policy)) is not None:
            return used_up
        kind = claim.task.kind
        try:
            handle = self._deps.effects[kind]
        except CliaError as err:
            self._deps.effects.drop(kind, err.message)
            return None
        self._deps.reached("claimed")
        try:
            agent, space = attempt.key[0], self._deps.space
            pending = retry_while_unavailable(lambda: space.pending(agent), context.cancelled)
            if all(other.id != context.request.id for other in pending):
                return Gone()  # another worker answered before our claim
            try:
                space.hub.meet(agent)  # adopts what an earlier attempt did on another machine
                space.sessions.check_agreement(agent, context.request.session)
            except Conflict as err:
                return retries.put_off(err, claim.task, self._now(), self._retry_policy)
            space.trust.require_signing()  # else the answer could not be recorded
            rule_checks.check_rules(context)
            value = handle(context, context.request.payload)
        except Exception as err:  # noqa: BLE001  # a handler may raise anything
            return retries.after_error(err, claim.task, claim.attempt, self._now(), self._retry_policy)
        except BaseException as err:  # noqa: BLE001  # including SystemExit: a handler must not end the worker
            error = RuntimeError(f"the handler raised {type(err).__name__}")
            return retries.after_error(error, claim.task, claim.attempt, self._now(), self._retry_policy)
        self._deps.reached("handled")
        return retries.after_value(value)

    def _finish(self, attempt: Attempt, outcome: Outcome | None) -> None:
        stopped = self._stopping.is_set() and attempt.context.cancelled.is_set() and not attempt.gone
        outcome_name, why = DROPPED, None
        if isinstance(outcome, Resume) or not (attempt.lost or outcome is None or stopped):
            late = attempt.gone and not isinstance(outcome, Resume)
            outcome_name, why = self._reporter.report(attempt, Gone() if late else outcome)
        elif not attempt.lost:  # another worker has a lost one
            self._release(attempt)
        task = attempt.claim.task
        with self._mutex:
            self._counts[outcome_name] += 1
            if why is not None:
                self._last = f"{task.agent} {task.request} {task.kind}: {why}"

    def _release(self, attempt: Attempt) -> None:
        with suppress(CliaError):  # otherwise the claim expires
            self._deps.queue.release(attempt.claim)

    def _end_overdue(self) -> None:
        """Fail attempts that exceeded their time limit, and abandon their threads."""
        now = self._deps.tools.monotonic()
        for attempt in self._attempts():
            if attempt.ends is not None and attempt.ends[1] <= now and attempt.try_end():
                attempt.context.cancelled.set()
                with self._mutex:
                    self._hanging.append(attempt)
                task = attempt.claim.task
                error = BackendError(f"{task.kind}: timed out after {attempt.ends[0]:g} s", code="effect-timed-out")
                outcome = retries.after_error(error, task, attempt.claim.attempt, self._now(), self._retry_policy)
                self._finish(attempt, outcome)
                self._remove(attempt)

    def _remove(self, attempt: Attempt) -> None:
        with self._mutex:
            if self._running.get(attempt.key) is attempt:
                del self._running[attempt.key]

    # Heartbeat and shutdown

    def _renew_claims(self, stop: threading.Event) -> None:
        """Renew claims periodically; cancel attempts whose claim was lost."""
        lease = self._options.lease_seconds
        while not stop.wait(lease / 3):
            for attempt in self._attempts():
                with suppress(CliaError):  # retried at the next beat
                    claim = self._deps.queue.keep(attempt.claim, self._now(), lease)
                    if claim is not None:
                        attempt.claim = claim
                    else:
                        attempt.lost = True
                        attempt.context.cancelled.set()

    def _watch_store(self, stop: threading.Event) -> None:
        """Report once that the store does not answer: calls to it may take long to fail."""
        reported = False
        while not self._deps.wait(stop, _SILENCE_SECONDS / 4):
            silent = self._store_is_silent()
            if silent and not reported:
                self._notify()
            reported = silent

    def _store_is_silent(self) -> bool:
        asked_at = self._query_since
        return asked_at is not None and self._deps.tools.monotonic() - asked_at >= _SILENCE_SECONDS

    def _shut_down(self) -> None:
        """Let attempts end within the grace period, then cancel them, then release their claims."""
        self._await_running(self._options.grace_seconds)
        for attempt in self._attempts():
            attempt.context.cancelled.set()
        self._await_running(self._options.grace_seconds)
        left = self._attempts()
        for attempt in left:
            if attempt.try_end():
                self._release(attempt)
        if left:
            self._halted.set()  # stop retrying reports
        self._notify()

    def _attempts(self) -> list[Attempt]:
        with self._mutex:
            return list(self._running.values())

    def _await_running(self, seconds: float) -> None:
        monotonic = self._deps.tools.monotonic
        ends_at = monotonic() + seconds
        while self._running and not self._halted.is_set() and monotonic() < ends_at:
            self._wake.clear()
            if self._running:
                self._deps.wait(self._wake, min(self._options.poll_seconds, seconds))

    # Time and status

    def _now(self) -> float:
        return self._deps.tools.clock().timestamp()

    def _seconds_to_wait(self, next_at: float | None) -> float:
        """Return how long to wait: until the next poll, timeout or due task."""
        now = self._deps.tools.monotonic()
        overdue = [attempt.overdue_at - now for attempt in self._attempts() if attempt.overdue_at is not None]
        times = [self._options.poll_seconds, *overdue]
        if next_at is not None and self._room() > 0:
            times.append(next_at - self._now())
        return max(_SHORTEST_PAUSE, min(times))

    def _notify(self) -> None:
        with self._tell_lock:  # several threads report; the last report must be current
            self._deps.tell(self.status())

    def _clean(self, text: str) -> str:
        """Remove secrets from a text, including the LLM key, whatever it looks like."""
        tools = self._deps.tools
        return tools.cleaning.text(llm.hide(text, llm.key_of(self._deps.config, tools.environment)))
