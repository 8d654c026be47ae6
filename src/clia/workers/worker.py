"""The worker: takes requests that sessions wait for, has them answered by handlers, and brings the answers back.

Invariant: a request is tried at least once and answered once. What a worker has it keeps up by a heartbeat; when it dies,
its claims run out and others go on. A handler that hangs is given up after its time: its thread cannot be killed, and is
left to itself; what it may still say is dropped. While the store is away nothing is lost: the worker waits for it. What
passes within this process is measured by a clock that nobody sets; the time of day is for what processes share.
"""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import NamedTuple, TypeVar

from clia.behaviours.suggesting import PolicyFollower
from clia.errors import BackendError, CliaError, Conflict
from clia.sessions import handover as hand_over
from clia.sessions.handover import Gone, Resume, RetryPolicy
from clia.values.background import retry_while_unavailable
from clia.workers.attempts import ANSWERED, DROPPED, GIVEN_UP, GONE, RETRIED, Attempt, Desk, End
from clia.workers.effects import EXCLUSIVE, llm
from clia.workers.effects.context import Context, Tools, is_away

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clia.facade.config import Config, WorkerOptions
    from clia.facade.space import Space
    from clia.sessions.handover import Outcome, Retry
    from clia.sessions.model import Request
    from clia.store.interface import Claim, Queue, Task
    from clia.workers.effects import Effects

T = TypeVar("T")
_FORGET_EVERY = 60.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 8.0
_SILENCE = 2.0  # a store that does not answer for so many seconds is said to be away
_HANGING_MAX = 4  # threads that are left to themselves, for each that may work


class RunningAttempt(NamedTuple):
    """One attempt that runs now."""

    agent: str
    request: str
    kind: str
    attempt: int
    said: str  # what its handler last said of its progress


class WorkerStatus(NamedTuple):
    """What a worker does, and has done since it was started."""

    running: tuple[RunningAttempt, ...] = ()
    waiting: int = 0  # tasks that nobody here works on
    next_at: float | None = None  # when the next of them can be tried, in seconds since the epoch
    answered: int = 0
    retried: int = 0
    given_up: int = 0
    gone: int = 0  # answered by others, or their session ended
    hanging: int = 0  # handlers whose time ran out and that still have not returned
    trouble: str | None = None  # why nothing goes on at this moment
    last: str | None = None  # what became of the last attempt that brought no answer
    problems: tuple[tuple[str, str], ...] = ()  # kinds that cannot be answered here, and why
    adopted: tuple[str, ...] = ()  # versions of behaviours that a policy of the operator's made current, each with its name


class WorkerDependencies(NamedTuple):
    """What a worker works with."""

    space: Space
    effects: Effects
    queue: Queue
    tools: Tools
    config: Config
    name: str  # another one for each worker
    tell: Callable[[WorkerStatus], None] = lambda _: None
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    reached: Callable[[str], None] = lambda _: None
    kinds: frozenset[str] | None = None  # only these


class Worker:
    """``run`` works in the calling thread until it is told to ``stop``, from any other thread."""

    def __init__(self, parts: WorkerDependencies) -> None:
        self._parts = parts
        self._options: WorkerOptions = parts.config.worker
        self._patience = RetryPolicy(self._options.attempts, self._options.backoff_seconds, self._options.backoff_max_seconds)
        name = f"worker {parts.name}"
        self._desk = Desk(parts.space, parts.queue, self._patience, self._now, self._pause, parts.reached, self._clean, name)
        self._wake, self._stopping, self._halted = threading.Event(), threading.Event(), threading.Event()
        self.wake = self._wake.set  # from any thread: work may have come, and the worker looks now
        self._mutex, self._telling = threading.Lock(), threading.Lock()
        self._running: dict[tuple[str, str], Attempt] = {}
        self._hanging: list[Attempt] = []
        self._counts = dict.fromkeys((ANSWERED, RETRIED, GIVEN_UP, GONE, DROPPED), 0)
        self._seen = WorkerStatus()
        self._requests: dict[tuple[str, str], Request] = {}
        self._forgot_at = -math.inf
        self._asked_at: float | None = None  # since when an answer of the store is waited for
        self._last: str | None = None
        self._waits_for_hub = False  # whether there is something that this worker can answer when the hub is back
        self._policies = PolicyFollower(parts.space.behaviours, parts.config, parts.wait)

    def stop(self) -> None:
        """Once: what runs may end within the grace. Again: now."""
        (self._halted if self._stopping.is_set() else self._stopping).set()
        self._wake.set()

    def run(self, *, once: bool = False, until_idle: bool = False) -> WorkerStatus:
        """Works until told to stop. ``once``: until all that is due at the start was tried. ``until_idle``: until nothing is
        left that this worker could answer, now or later."""
        beating = threading.Event()
        beats: dict[str, Callable[[threading.Event], None]] = {
            "clia-heartbeat": self._keep_claims,
            "clia-watch": self._notice_silence,
        }
        if self._policies.any():
            beats["clia-policies"] = lambda over: self._policies.keep_following(over, self._show)
        threads = [threading.Thread(target=beat, args=(beating,), name=name, daemon=True) for name, beat in beats.items()]
        for each in threads:
            each.start()
        try:
            self._loop(once=once, until_idle=until_idle)
        finally:
            self._wind_down()
            beating.set()
            for each in threads:
                each.join()
        return self.status()

    def status(self) -> WorkerStatus:
        with self._mutex:
            running = tuple(_doing(each) for each in self._running.values())
            self._hanging = [each for each in self._hanging if each.thread is not None and each.thread.is_alive()]
            counts = self._counts
            return self._seen._replace(
                running=running,
                answered=counts[ANSWERED],
                retried=counts[RETRIED],
                given_up=counts[GIVEN_UP],
                gone=counts[GONE],
                hanging=len(self._hanging),
                problems=tuple(sorted(self._parts.effects.problems.items())),
                last=self._policies.trouble or self._last,
                adopted=self._policies.adopted,
                trouble=self._seen.trouble or ("the store does not answer" if self._is_silent() else None),
            )

    # The loop

    def _loop(self, *, once: bool, until_idle: bool) -> None:
        only: set[tuple[str, str]] | None = None
        pause = self._options.poll_seconds
        while not self._stopping.is_set():
            self._wake.clear()
            busy = bool(self._running)  # before the look: what ends meanwhile may ask for more
            try:
                tasks = self._look()
                if once and only is None:
                    only = {(each.agent, each.request) for each in tasks if each.not_before <= self._now()}
                wanted = tasks if only is None else [each for each in tasks if (each.agent, each.request) in only]
                self._end_overdue()
                started = self._take(wanted)
                left = [each for each in tasks if each not in started]
                next_at = self._next_time(self._open(left))
                over = not busy and not started and self._is_over(once, until_idle, wanted)
            except BackendError as err:
                if not is_away(err):
                    raise
                self._say(self._seen._replace(trouble=err.message))
                self._parts.wait(self._wake, pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = self._options.poll_seconds
            self._say(WorkerStatus(waiting=len(left), next_at=next_at, trouble=self._overloaded()))
            if over:
                return
            self._parts.wait(self._wake, self._until(next_at))

    def _is_over(self, once: bool, until_idle: bool, wanted: Sequence[Task]) -> bool:
        return (once and (self._next_time(wanted) or math.inf) > self._now()) or (
            until_idle and not wanted and not self._waits_for_hub
        )

    def _next_time(self, tasks: Sequence[Task]) -> float | None:
        return self._asking(lambda: self._parts.queue.next_time(tasks, self._now()))

    def _asking(self, call: Callable[[], T]) -> T:
        """What a call to the store gives; while it does not return, the worker's status can say so."""
        self._asked_at = self._parts.tools.monotonic()
        try:
            return call()
        finally:
            self._asked_at = None

    def _look(self) -> list[Task]:
        """The tasks that wait; on the way, attempts that nobody waits for any more are told so."""
        space, kinds = self._parts.space, self._parts.kinds
        with self._mutex:
            running = list(self._running.values())
        requests = self._asking(space.pending)
        self._requests = {(each.agent, each.id): each for each in requests}
        for attempt in running:
            if attempt.place not in self._requests:
                attempt.gone = True
                attempt.context.cancelled.set()
        self._forget()
        handled = {kind for kind in self._parts.effects if kinds is None or kind in kinds}
        live = self._live_agents(requests)
        elsewhere = self._asking(space.elsewhere)  # whoever has their last work answers for these
        unseen = self._asking(lambda: space.elsewhere({each.agent for each in requests})) - elsewhere
        near = [each for each in requests if each.agent not in elsewhere]
        found = hand_over.tasks(near, handled, live.__contains__, self._now())
        self._waits_for_hub = any(each.agent in unseen for each in found)
        found = [each for each in found if each.agent not in unseen]
        with self._mutex:
            return [each for each in found if (each.agent, each.request) not in self._running]

    def _live_agents(self, requests: Sequence[Request]) -> set[str]:
        """Of the agents that some request waits for, those whose session is live."""
        awaited = {agent for agent in map(hand_over.awaited, requests) if agent is not None}
        live = {each.agent for each in requests if not each.session.startswith("ask-")}
        return awaited & live

    def _forget(self) -> None:
        """Drops what is known of tasks whose session ended while they waited for another attempt."""
        monotonic, queue = self._parts.tools.monotonic, self._parts.queue
        if monotonic() < self._forgot_at + _FORGET_EVERY:
            return
        known = {(each.task.agent, each.task.request) for each in self._asking(queue.waiting)}
        live = {(each.agent, each.id) for each in self._asking(self._parts.space.pending)}
        # What was claimed since is newer than the list of requests, and says nothing.
        tried = ((each.task.agent, each.task.request) for each in self._asking(queue.waiting))
        kept = sorted(live.union(place for place in tried if place not in known))
        self._asking(lambda: queue.forget(kept))
        self._forgot_at = monotonic()

    # Attempts

    def _open(self, tasks: Sequence[Task]) -> list[Task]:
        """Without those that must wait for another attempt of this worker."""
        with self._mutex:
            held = {each.claim.task.agent for each in self._running.values() if each.claim.task.kind in EXCLUSIVE}
        return [each for each in tasks if each.kind not in EXCLUSIVE or each.agent not in held]

    def _take(self, tasks: Sequence[Task]) -> set[Task]:
        """Starts as many attempts as there is room for; which."""
        left = list(tasks)
        started: set[Task] = set()
        while self._room() and not self._stopping.is_set():
            claim = self._asking(lambda: self._claim(left))
            if claim is None:
                break
            left.remove(claim.task)
            started.add(claim.task)
            self._start(claim, self._requests[claim.task.agent, claim.task.request])
        return started

    def _claim(self, tasks: Sequence[Task]) -> Claim | None:
        return self._parts.queue.claim(self._open(tasks), self._parts.name, self._now(), self._options.lease_seconds)

    def _room(self) -> int:
        with self._mutex:
            return 0 if self._is_overloaded() else self._options.concurrency - len(self._running)

    def _is_overloaded(self) -> bool:
        return len(self._hanging) >= _HANGING_MAX * self._options.concurrency

    def _overloaded(self) -> str | None:
        return f"{len(self._hanging)} handlers hang: nothing more is started" if self._is_overloaded() else None

    def _start(self, claim: Claim, request: Request) -> None:
        parts = self._parts
        seconds = parts.effects.seconds(request.kind, request.payload)
        ends = None if seconds is None else (seconds, parts.tools.monotonic() + seconds)
        options = parts.effects.options(request.kind)

        def context(attempt: Attempt) -> Context:
            return Context(
                parts.space,
                request,
                claim.attempt,
                parts.config,
                options,
                parts.tools,
                threading.Event(),
                lambda text: self._progress(attempt, text),
            )

        attempt = Attempt(claim, ends, context)
        attempt.thread = threading.Thread(target=self._carry_out, args=(attempt,), name=f"clia-{request.kind}", daemon=True)
        with self._mutex:
            self._running[attempt.place] = attempt
        attempt.thread.start()

    def _carry_out(self, attempt: Attempt) -> None:
        """An attempt's thread."""
        try:
            outcome = self._outcome(attempt)
            if attempt.take():
                self._conclude(attempt, outcome)
        finally:
            self._leave(attempt)
            self._wake.set()

    def _outcome(self, attempt: Attempt) -> Outcome | None:
        """What the handler makes of the request; None where it has no handler after all."""
        claim, context = attempt.claim, attempt.context
        used_up = hand_over.used_up(claim.attempt, self._patience)
        if used_up is not None:
            return used_up
        kind = claim.task.kind
        try:
            handle = self._parts.effects[kind]
        except CliaError as err:
            self._parts.effects.drop(kind, err.message)
            return None
        self._parts.reached("claimed")
        try:
            if not self._still_waits(attempt):
                return Gone()
            put_off = self._met(attempt)
            if put_off is not None:
                return put_off
            value = handle(context, context.request.payload)
        except Exception as err:  # noqa: BLE001  # a handler may raise anything, and the worker goes on
            return hand_over.after_error(err, claim.task, claim.attempt, self._now(), self._patience)
        except BaseException as err:  # noqa: BLE001  # also what is meant to end a program: it is not the handler's to end
            said = RuntimeError(f"the handler raised {type(err).__name__}")
            return hand_over.after_error(said, claim.task, claim.attempt, self._now(), self._patience)
        self._parts.reached("handled")
        return hand_over.after_value(value)

    def _still_waits(self, attempt: Attempt) -> bool:
        """Another worker may have answered between our look and our claim; an answer comes before its claim is dropped."""
        agent, request = attempt.place
        found = retry_while_unavailable(lambda: self._parts.space.pending(agent), attempt.context.cancelled)
        return any(each.id == request for each in found)

    def _met(self, attempt: Attempt) -> Retry | None:
        """The agent is as the hub has it, with what an earlier attempt did on another machine; else the handler is not called."""
        try:
            self._parts.space.meet(attempt.claim.task.agent)
        except Conflict as err:
            return hand_over.put_off(err, attempt.claim.task, self._now(), self._patience)
        return None

    def _conclude(self, attempt: Attempt, outcome: Outcome | None) -> None:
        stopped = self._stopping.is_set() and attempt.context.cancelled.is_set() and not attempt.gone
        if isinstance(outcome, Resume):
            end = self._desk.hand_in(attempt, outcome)
        elif attempt.lost:
            end = End(DROPPED)  # whoever has it now goes on
        elif outcome is None or stopped:
            end = self._release(attempt)
        else:
            end = self._desk.hand_in(attempt, Gone() if attempt.gone else outcome)
        task = attempt.claim.task
        with self._mutex:
            self._counts[end.word] += 1
            if end.why is not None:
                self._last = f"{task.agent} {task.request} {task.kind}: {end.why}"

    def _release(self, attempt: Attempt) -> End:
        with suppress(CliaError):  # else the claim runs out
            self._parts.queue.release(attempt.claim)
        return End(DROPPED)

    def _end_overdue(self) -> None:
        """Handlers whose time is up count as failed; their threads cannot be killed, and are left to themselves."""
        now = self._parts.tools.monotonic()
        with self._mutex:
            late = [each for each in self._running.values() if each.overdue_at is not None and each.overdue_at <= now]
        for attempt in late:
            if attempt.ends is not None and attempt.take():
                attempt.context.cancelled.set()
                with self._mutex:
                    self._hanging.append(attempt)
                task = attempt.claim.task
                error = BackendError(f"{task.kind}: no answer within {attempt.ends[0]:g} s", code="effect-timed-out")
                outcome = hand_over.after_error(error, task, attempt.claim.attempt, self._now(), self._patience)
                self._conclude(attempt, outcome)
                self._leave(attempt)

    def _leave(self, attempt: Attempt) -> None:
        with self._mutex:
            if self._running.get(attempt.place) is attempt:
                del self._running[attempt.place]

    def _progress(self, attempt: Attempt, text: str) -> None:
        attempt.said = text
        self._show()

    # The heartbeat, and the end

    def _keep_claims(self, beating: threading.Event) -> None:
        """The heartbeat's thread: what runs is kept; what was lost is told to the handler."""
        lease = self._options.lease_seconds
        while not beating.wait(lease / 3):
            with self._mutex:
                running = list(self._running.values())
            for attempt in running:
                with suppress(CliaError):  # the store is away: the next beat tries again
                    kept = self._parts.queue.keep(attempt.claim, self._now(), lease)
                    if kept is not None:
                        attempt.claim = kept
                    else:
                        attempt.lost = True
                        attempt.context.cancelled.set()

    def _notice_silence(self, beating: threading.Event) -> None:
        """The watch's thread: a call to a store that is away ends late; whoever looks is told meanwhile, once."""
        told = False
        while not self._parts.wait(beating, _SILENCE / 4):
            silent = self._is_silent()
            if silent and not told:
                self._show()
            told = silent

    def _is_silent(self) -> bool:
        asked_at = self._asked_at
        return asked_at is not None and self._parts.tools.monotonic() - asked_at >= _SILENCE

    def _wind_down(self) -> None:
        """What runs may end within the grace, is cancelled then, and is given back at last."""
        self._await_running(self._options.grace_seconds)
        with self._mutex:
            left = list(self._running.values())
        for attempt in left:
            attempt.context.cancelled.set()
        self._await_running(self._options.grace_seconds)
        with self._mutex:
            left = list(self._running.values())
        for attempt in left:
            if attempt.take():
                self._release(attempt)
        if left:
            self._halted.set()  # whoever still hands something in stops waiting for the store
        self._show()

    def _await_running(self, seconds: float) -> None:
        monotonic = self._parts.tools.monotonic
        ends_at = monotonic() + seconds
        while self._running and not self._halted.is_set() and monotonic() < ends_at:
            self._wake.clear()
            if self._running:
                self._parts.wait(self._wake, min(self._options.poll_seconds, seconds))

    # Time, and what is said

    def _now(self) -> float:
        return self._parts.tools.clock().timestamp()

    def _pause(self, seconds: float) -> bool:
        return self._parts.wait(self._halted, seconds)

    def _until(self, next_at: float | None) -> float:
        """How long to wait for the next look: no longer than the first thing that is known to come."""
        passed = self._parts.tools.monotonic()
        with self._mutex:
            overdue = [each.overdue_at - passed for each in self._running.values() if each.overdue_at is not None]
        times = [self._options.poll_seconds, *overdue]
        if next_at is not None and self._room() > 0:
            times.append(next_at - self._now())
        return max(_SHORTEST_PAUSE, min(times))

    def _say(self, seen: WorkerStatus) -> None:
        self._seen = seen
        self._show()

    def _show(self) -> None:
        with self._telling:  # what is told last is how it stands: several threads tell
            self._parts.tell(self.status())

    def _clean(self, text: str) -> str:
        """A text that is to be kept, without secrets; the key to the endpoint is one whatever it looks like."""
        tools = self._parts.tools
        return tools.cleaning.text(llm.hide(text, llm.key_of(self._parts.config, tools.environment)))


def _doing(attempt: Attempt) -> RunningAttempt:
    task = attempt.claim.task
    return RunningAttempt(task.agent, task.request, task.kind, attempt.claim.attempt, attempt.said)
