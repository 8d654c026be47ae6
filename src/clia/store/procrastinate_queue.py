"""The queue of workers on several machines: claims are procrastinate jobs.

Invariant: a claim is a job run by the claim's own slot, and lasts while the slot sends heartbeats, all by the database's clock: a
machine with a wrong clock neither loses its work nor takes others'. Each task has a job with a unique name, so a fetch returns one
of the requested tasks only. Jobs are enqueued, recovered and returned under the writers' lock of the space. Waiting tasks are
enqueued a few at a time, so the cost depends on the number of running tasks.

Notes in the store hold data that procrastinate lacks: the last error and the uncounted attempts of a job, name and lease of a slot.
Losing a note loses an error message or causes one extra attempt.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from clia.errors import CliaError
from clia.store.interface import Claim, Task, Waiting
from clia.store.procrastinate_jobs import DOING, Jobs, NoSlot
from clia.store.store_queue import ERROR_MAX, TaskValues

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from procrastinate.jobs import Job

    from clia.store.interface import Store, Values, Versioned

    TaskKey = tuple[str, str]  # agent and request

_SLOTS, _NOTES = "queue/slots", TaskValues("queue/notes/")
_MAX_ENQUEUED = 16  # unclaimed jobs, about
_MIN_PRIORITY, _MAX_PRIORITY = -(2**31), 2**31 - 1  # 32 bits
_MAX_TIME = 4_000_000_000.0  # the database's timestamps are limited
_CLOCK_SECONDS, _CLOCK_JUMP = 60.0, 0.5
_PRUNE_SECONDS = 86_400.0


class _SlotOwner(NamedTuple):
    """The worker of a slot and its lease."""

    worker: str
    lease: float


class _HeldJob(NamedTuple):
    """The job of one of our claims."""

    job: Job
    slot: int
    owner: _SlotOwner


class _JobNote(NamedTuple):
    """The data of a job that is stored in addition to procrastinate's row."""

    job: int
    uncounted: int = 0
    error: str | None = None


class ProcrastinateQueue:
    """``Queue`` on procrastinate. Imports and connects on first use.

    ``store``: shared by all workers of the space; ``dsn``: as for ``PostgresStore``.
    """

    def __init__(self, store: Store, dsn: str, space: str, *, timeout: float = 30.0) -> None:
        self._store = store
        self._space = space
        self._jobs = Jobs(dsn, f"clia:{_hashed(space)}", timeout=timeout)
        self._mutex = threading.Lock()
        self._held: dict[Claim, _HeldJob] = {}
        self._free: dict[_SlotOwner, list[int]] = {}  # our free slots
        self._search_at = -math.inf  # next search for stalled jobs, by the caller's clock
        self._clock_offset = 0.0  # seconds that the caller's clock is ahead of the database's
        self._read: tuple[float, float] | None = None  # when that was measured: monotonic, and by the caller's clock

    def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
        due = {task[:2]: task for task in tasks if task.not_before <= now}
        if not due:
            return None
        self._read_clock(now)
        self._recover(now, lease)
        tried: set[str] = set()
        while not tried.issuperset(names := self._enqueue(due, now)):
            held = self._fetch(names, _SlotOwner(worker, lease))
            if held is not None:
                job = held.job  # one that was never returned has no note
                attempt = max(1, job.attempts + 1 - _note(self._store, job).uncounted) if job.attempts else 1
                claim = Claim(due[_task_key(job)], worker, attempt, now + lease)
                with self._mutex:
                    self._held[_key(claim)] = held
                return claim
            tried.update(names)  # taken by others
        return None

    def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
        held = self._held.get(_key(claim))
        if held is None:
            return None
        self._jobs.beat(held.slot)
        if self._jobs.is_held(held.job.id or 0, held.slot):
            return claim._replace(until=now + lease)
        self._forget_claim(claim)
        return None

    def retry(self, claim: Claim, at: float, error: str, *, counts: bool = True) -> None:
        self._return_job(claim, self._at(at), _priority(at), uncounted=not counts, error=error[:ERROR_MAX])

    def release(self, claim: Claim) -> None:
        held = self._held.get(_key(claim))
        at = held.job.scheduled_at if held is not None else None
        self._return_job(claim, at or self._at(), None, uncounted=True)

    def done(self, claim: Claim) -> None:
        name = self._name(claim.task[:2])
        held = self._held.get(_key(claim))
        jobs = [held.job] if held is not None else self._jobs.live(queueing_lock=name)
        self._jobs.finish(job.id or 0 for job in jobs)
        if held is None or held.job.attempts:
            with self._store.writing() as transaction:
                _NOTES.put(transaction, name, None)
        self._forget_claim(claim)

    def next_time(self, tasks: Sequence[Task], now: float) -> float | None:
        if not tasks:
            return None
        self._read_clock(now)
        jobs = {_task_key(job): job for job in self._jobs.live()}
        ends = self._ends(jobs.values())
        return max(now, min(self._due(task, jobs[task[:2]], ends) if task[:2] in jobs else task.not_before for task in tasks))

    def waiting(self) -> list[Waiting]:
        if not self._jobs.tables_exist():
            return []
        jobs = self._jobs.live()
        ends, slots = self._ends(jobs), self._slots()
        notes = _NOTES.all(self._store)
        rows = [self._as_waiting(job, _as_note(notes.get(job.queue), job), ends, slots) for job in jobs]
        return sorted((row for row in rows if row.attempts or row.worker or row.error), key=lambda row: row.task[:2])

    def forget(self, live: Sequence[tuple[str, str]]) -> int:
        if not self._jobs.tables_exist():
            return 0
        keys = set(live)
        attempted = {row.task[:2] for row in self.waiting()} - keys
        self._jobs.finish([job.id or 0 for job in self._jobs.live() if _task_key(job) not in keys])
        notes = _NOTES.all(self._store)
        names = notes.keys() - {self._name(key) for key in keys} if notes else ()
        if names:
            with self._store.writing() as transaction:
                for name in sorted(names):
                    _NOTES.put(transaction, name, None)
        return len(attempted)

    def watch(self, wake: Callable[[], None]) -> None:
        self._jobs.listen(wake)

    def close(self) -> None:
        with self._mutex:
            slots = [slot for free in self._free.values() for slot in free] + [held.slot for held in self._held.values()]
            self._held, self._free = {}, {}
        if slots and self._jobs.is_open():
            with suppress(CliaError, TimeoutError):  # else they fall silent
                self._jobs.drop_slots(slots)
        self._jobs.close()

    # Claiming

    def _enqueue(self, due: dict[TaskKey, Task], now: float) -> list[str]:
        """Return the names of jobs that may be fetched; enqueue the first task if no worker has."""
        fetchable, missing = self._choice(due, now)
        if missing:
            with self._store.writing():
                fetchable, missing = self._choice(due, now)
                self._jobs.put([(self._name(task[:2]), _priority(task.not_before), task._asdict()) for task in missing])
        return fetchable + [self._name(task[:2]) for task in missing]

    def _choice(self, due: dict[TaskKey, Task], now: float) -> tuple[list[str], list[Task]]:
        """Return the names of enqueued free tasks, and the tasks to enqueue if one of them comes first."""
        jobs = {_task_key(job): job for job in self._jobs.live()}
        free = ((due[key], job) for key, job in jobs.items() if key in due and job.status != DOING)
        fetchable = [job for task, job in free if self._due(task, job, {}) <= now]
        first = max((job.priority for job in fetchable), default=_MIN_PRIORITY - 1)
        room = max(1, _MAX_ENQUEUED - len(fetchable))
        missing = heapq.nsmallest(room, (due[key] for key in due if key not in jobs), key=lambda task: task.not_before)
        comes_first = bool(missing) and _priority(missing[0].not_before) > first
        return [job.queue for job in fetchable], missing if comes_first else []

    def _fetch(self, names: Sequence[str], owner: _SlotOwner) -> _HeldJob | None:
        while True:
            slot = self._slot(owner)
            try:
                job = self._jobs.fetch(names, slot)
            except NoSlot:
                continue
            if job is not None:
                return _HeldJob(job, slot, owner)
            with self._mutex:
                self._free.setdefault(owner, []).append(slot)
            return None

    def _slot(self, owner: _SlotOwner) -> int:
        """Return a free slot. Creating one removes those of dead workers."""
        with self._mutex:
            free = self._free.get(owner)
            if free:
                return free.pop()
        self._jobs.prune_slots(_PRUNE_SECONDS)
        slot = self._jobs.new_slot()
        with self._store.writing() as transaction:
            slots = _as_slots(transaction.values.get(_SLOTS))
            alive = self._jobs.silent(slots)
            slots = {number: slots[number] for number in slots if number in alive} | {slot: owner}
            transaction.values.put(_SLOTS, {str(number): list(slots[number]) for number in sorted(slots)})
        return slot

    def _forget_claim(self, claim: Claim) -> None:
        """Forget one of our claims; its slot becomes free."""
        with self._mutex:
            held = self._held.pop(_key(claim), None)
            if held is not None:
                self._free.setdefault(held.owner, []).append(held.slot)

    # Returning

    def _return_job(self, claim: Claim, at: datetime, priority: int | None, *, uncounted: bool, error: str | None = None) -> None:
        held = self._held.get(_key(claim))
        if held is None:
            return
        with self._store.writing() as transaction:
            if self._jobs.is_held(held.job.id or 0, held.slot):
                note = _note(transaction.values, held.job)
                fields = (note.job, note.uncounted + uncounted, note.error if error is None else error)
                _NOTES.put(transaction, held.job.queue, fields)
                self._jobs.retry(held.job.id or 0, at, priority)
        self._forget_claim(claim)

    def _recover(self, now: float, lease: float) -> None:
        """Periodically return the jobs of silent workers."""
        if self._search_at - lease / 10 <= now < self._search_at:
            return
        self._search_at = now + lease / 10
        for number, silence in self._jobs.silent(self._slots()).items():
            if silence < 0:  # the database's clock was ahead: its lease begins now
                self._jobs.beat(number)
        if not self._stalled(self._slots(), lease):
            return
        with self._store.writing() as transaction:
            for job, slot, seconds in self._stalled(_as_slots(transaction.values.get(_SLOTS)), lease):
                if slot is not None:
                    note = _note(transaction.values, job)._replace(error=f"worker {slot.worker} stopped responding")
                    _NOTES.put(transaction, job.queue, note)
                self._jobs.retry(job.id or 0, self._at(), _priority(now - seconds))

    def _stalled(self, slots: dict[int, _SlotOwner], lease: float) -> list[tuple[Job, _SlotOwner | None, float]]:
        """Return jobs whose lease expired, with owner and seconds since; leases differ by worker."""
        leases = sorted({lease, *(owner.lease for owner in slots.values())})
        longest = leases[-1]
        stalled: list[tuple[Job, _SlotOwner | None, float]] = []
        for seconds in leases:
            jobs = self._jobs.stalled(seconds)
            silent = self._jobs.silent(job.worker_id or 0 for job in jobs)
            for job in jobs:
                slot = slots.get(job.worker_id or 0)
                if job.worker_id not in silent:
                    if seconds == longest:
                        stalled.append((job, slot, 0.0))  # its slot was removed
                elif (slot.lease if slot is not None else longest) == seconds:
                    stalled.append((job, slot, silent[job.worker_id] - seconds))
        return stalled

    # State

    def _name(self, key: TaskKey) -> str:
        """Return the name of a task's job, short enough for notifications."""
        return f"clia:{_hashed(self._space, *key)}"

    def _slots(self) -> dict[int, _SlotOwner]:
        return _as_slots(self._store.get(_SLOTS))

    def _due(self, task: Task, job: Job, ends: dict[int, float]) -> float:
        """Return when a task may be attempted next, by the caller's clock: a claimed one when the claim expires."""
        if job.status == DOING:
            return max(self._search_at, ends.get(job.id or 0, task.not_before))
        return max(task.not_before, self._time(job.scheduled_at) or 0.0)

    def _ends(self, jobs: Iterable[Job]) -> dict[int, float]:
        """Return when the claims of running jobs expire, by the caller's clock."""
        doing = [job for job in jobs if job.status == DOING]
        if not doing:
            return {}
        slots, now = self._slots(), self._jobs.clock() + self._clock_offset
        silent = self._jobs.silent(job.worker_id or 0 for job in doing)
        return {
            job.id or 0: now + slots[job.worker_id].lease - silent[job.worker_id]
            for job in doing
            if job.worker_id in slots and job.worker_id in silent
        }

    def _as_waiting(self, job: Job, note: _JobNote, ends: dict[int, float], slots: dict[int, _SlotOwner]) -> Waiting:
        doing = job.status == DOING
        attempts = job.attempts + doing - note.uncounted
        slot = slots.get(job.worker_id or 0)
        worker = (slot.worker if slot is not None else "unknown") if doing else None
        next_at = None if doing else self._time(job.scheduled_at)
        return Waiting(_task(job), max(0, attempts), worker, ends.get(job.id or 0), next_at, note.error)

    # Time

    def _read_clock(self, now: float) -> None:
        """Measure the offset of the caller's clock, periodically and after it was set."""
        monotonic = time.monotonic()
        if self._read is not None:
            passed = monotonic - self._read[0]
            if passed < _CLOCK_SECONDS and abs(now - self._read[1] - passed) < _CLOCK_JUMP:
                return
        self._clock_offset = now - self._jobs.clock()
        self._read = monotonic, now

    def _at(self, at: float = 0.0) -> datetime:
        """Convert a time from the caller's clock to the database's; default: now."""
        return datetime.fromtimestamp(min(max(at - self._clock_offset, 0.0), _MAX_TIME), UTC)

    def _time(self, at: datetime | None) -> float | None:
        return at.timestamp() + self._clock_offset if at is not None else None


def _key(claim: Claim) -> Claim:
    """Return the part of a claim that renewals do not change."""
    return claim._replace(until=0.0)


def _hashed(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _priority(due: float) -> int:
    """Return the priority of a job: longer due first, to the second."""
    return max(_MIN_PRIORITY, min(_MAX_PRIORITY, _MAX_PRIORITY - int(min(max(due, 0.0), _MAX_TIME))))


def _task(job: Job) -> Task:
    """Return the task of a job; a foreign job matches no task."""
    words: Any = job.task_kwargs
    try:
        return Task(str(words["agent"]), str(words["request"]), str(words["kind"]), float(words["not_before"]))
    except (KeyError, TypeError, ValueError):
        return Task("", "", "")


def _task_key(job: Job) -> TaskKey:
    return _task(job)[:2]


def _as_slots(row: Versioned | None) -> dict[int, _SlotOwner]:
    value = row.value if row is not None and isinstance(row.value, dict) else {}
    return {int(number): _SlotOwner(str(worker), float(lease)) for number, (worker, lease) in value.items()}


def _note(values: Store | Values, job: Job) -> _JobNote:
    return _as_note(_NOTES.get(values, job.queue), job)


def _as_note(fields: Any, job: Job) -> _JobNote:
    """Return the note of a job; an empty one if it is about another job of the same task."""
    note = _JobNote(*fields) if fields else None
    return note if note is not None and note.job == job.id else _JobNote(job.id or 0)
