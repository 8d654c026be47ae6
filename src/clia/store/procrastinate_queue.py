"""The queue of workers on several machines: claims are jobs of procrastinate.

Invariant: a claim is a job that is being done by a slot of the claim's own, and lasts as long as the slot gives signs of life:
all by the clock of the database, so that a machine whose clock is wrong neither loses its work nor takes that of others. Each
task has a job of its own name, so that whoever fetches gets one of the tasks it asked for and no other. Jobs are put in, found
to be stalled and given back in the turn of the space's writers: of two who do so at once, the second sees what the first did.
What waits is put in a few at a time: a look reads as much as is in flight, however much waits.

What procrastinate does not keep are notes in the store: the last error and how often a task was given back untried, by job;
the name and the lease of each slot. A note that is lost costs an explanation, or an attempt more.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import threading
import time
import zlib
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from clia.errors import CliaError
from clia.store.interface import Claim, Task, Waiting
from clia.store.procrastinate_jobs import DOING, Jobs, NewJob, NoSlot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from procrastinate.jobs import Job

    from clia.store.interface import Store, Transaction

    Place = tuple[str, str]  # agent and request

_SLOTS, _NOTES = "queue/slots", "queue/notes/"
_VALUES = 64  # of notes: a deleted value leaves a row behind for ever
_AHEAD = 16  # about so many tasks are in that nobody has yet
_ERROR_MAX = 2000
_LEAST, _MOST = -(2**31), 2**31 - 1  # a priority has 32 bits
_TOO_LATE = 4_000_000_000.0  # the database has a last day
_CLOCK_SECONDS, _CLOCK_JUMP = 60.0, 0.5
_PRUNE_SECONDS = 86_400.0


class _Slot(NamedTuple):
    """Whose a slot is, and after how long of silence it is lost."""

    worker: str
    lease: float


class _Held(NamedTuple):
    """What a claim of ours is in the database."""

    job: Job
    slot: int
    owner: _Slot

    @property
    def id(self) -> int:
        return self.job.id or 0


class _Note(NamedTuple):
    """What is kept of a task beside its job."""

    job: int
    given_back: int = 0
    error: str | None = None


class ProcrastinateQueue:
    """``Queue`` on procrastinate. Nothing is loaded and nobody connects before the first call that needs it.

    ``store``: the one that all workers of the space share; ``dsn``: the database, as for ``PostgresStore``.
    """

    def __init__(self, store: Store, dsn: str, space: str, *, timeout: float = 30.0) -> None:
        self._store = store
        self._space = space
        self._jobs = Jobs(dsn, f"clia:{_hashed(space)}", timeout=timeout)
        self._mutex = threading.Lock()
        self._held: dict[Claim, _Held] = {}
        self._free: dict[_Slot, list[int]] = {}  # slots of ours that have nothing
        self._search_at = -math.inf  # when stalled jobs are looked for next, by our caller's clock
        self._ahead = 0.0  # by how much our caller's clock is ahead of the database's
        self._read: tuple[float, float] | None = None  # when that was found out, by a clock that nobody sets and by our caller's

    def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
        due = {task[:2]: task for task in tasks if task.not_before <= now}
        if not due:
            return None
        self._read_clock(now)
        self._recover(now, lease)
        tried: set[str] = set()
        while not tried.issuperset(names := self._put_in(due, now)):
            found = self._fetch(names, _Slot(worker, lease))
            if found is not None:
                claim = Claim(due[_place(found.job)], worker, self._attempts(found.job), now + lease)
                with self._mutex:
                    self._held[_key(claim)] = found
                return claim
            tried.update(names)  # others were quicker
        return None

    def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
        with self._mutex:
            held = self._held.get(_key(claim))
        if held is None:
            return None
        self._jobs.beat(held.slot)
        if self._jobs.is_held(held.id, held.slot):
            return claim._replace(until=now + lease)
        self._let_go(claim)
        return None

    def retry(self, claim: Claim, at: float, error: str, *, counts: bool = True) -> None:
        said = error[:_ERROR_MAX]
        self._give_back(
            claim,
            self._at(at),
            _priority(at),
            lambda note: note._replace(error=said, given_back=note.given_back + (not counts)),
        )

    def release(self, claim: Claim) -> None:
        with self._mutex:
            held = self._held.get(_key(claim))
        at = held.job.scheduled_at if held is not None else None
        self._give_back(claim, at or self._at(), None, lambda note: note._replace(given_back=note.given_back + 1))

    def done(self, claim: Claim) -> None:
        name = self._name(claim.task[:2])
        with self._mutex:
            held = self._held.get(_key(claim))
        self._jobs.finish([held.id] if held is not None else self._jobs.named(name))
        if held is None or held.job.attempts:
            with self._store.writing() as transaction:
                _put_note(transaction, name, None)
        self._let_go(claim)

    def next_time(self, tasks: Sequence[Task], now: float) -> float | None:
        if not tasks:
            return None
        self._read_clock(now)
        known = {_place(job): job for job in self._jobs.live()}
        ends = self._ends(known.values())
        fresh = min((task.not_before for task in tasks if task[:2] not in known), default=math.inf)
        tried = (self._due(task, known[task[:2]], ends) for task in tasks if task[:2] in known)
        return max(now, min([fresh, *tried]))

    def waiting(self) -> list[Waiting]:
        if not self._jobs.are_there():
            return []
        jobs = self._jobs.live()
        ends, slots = self._ends(jobs), self._slots()
        notes = {name: note for _, value in self._store.scan(_NOTES) for name, note in _notes(value).items()}
        made = [self._as_waiting(job, notes.get(job.queue), ends, slots) for job in jobs]
        return sorted((each for each in made if each.attempts or each.worker or each.error), key=lambda each: each.task[:2])

    def forget(self, live: Sequence[tuple[str, str]]) -> int:
        if not self._jobs.are_there():
            return 0
        kept = set(live)
        tried = {each.task[:2] for each in self.waiting()} - kept
        gone = [job for job in self._jobs.live() if _place(job) not in kept]
        self._jobs.finish(job.id for job in gone if job.id is not None)
        noted = {name for _, value in self._store.scan(_NOTES) for name in _notes(value)}
        dropped = noted - {self._name(place) for place in kept} if noted else noted
        if dropped:
            with self._store.writing() as transaction:
                for name in sorted(dropped):
                    _put_note(transaction, name, None)
        return len(tried)

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

    # To get a job

    def _put_in(self, due: dict[Place, Task], now: float) -> list[str]:
        """The names of jobs that may be fetched, the one that comes first among them; it is put in where nobody has."""
        there, missing = self._choice(due, now)
        if missing:
            with self._store.writing():
                there, missing = self._choice(due, now)
                self._jobs.put([NewJob(self._name(task[:2]), _priority(task.not_before), task._asdict()) for task in missing])
        return there + [self._name(task[:2]) for task in missing]

    def _choice(self, due: dict[Place, Task], now: float) -> tuple[list[str], list[Task]]:
        """Of the tasks that nobody has: the names of those that are in; and what to put in, if that comes before all others."""
        known = {_place(job): job for job in self._jobs.live()}
        ours = ((due[place], job) for place, job in known.items() if place in due and job.status != DOING)
        there = [job for task, job in ours if self._due(task, job, {}) <= now]
        first = max((job.priority for job in there), default=_LEAST - 1)
        room = max(1, _AHEAD - len(there))
        missing = heapq.nsmallest(room, (due[place] for place in due if place not in known), key=lambda task: task.not_before)
        wanted = bool(missing) and _priority(missing[0].not_before) > first
        return [job.queue for job in there], missing if wanted else []

    def _fetch(self, names: Sequence[str], owner: _Slot) -> _Held | None:
        while True:
            slot = self._slot(owner)
            try:
                job = self._jobs.fetch(names, slot)
            except NoSlot:
                continue
            if job is not None:
                return _Held(job, slot, owner)
            with self._mutex:
                self._free.setdefault(owner, []).append(slot)
            return None

    def _slot(self, owner: _Slot) -> int:
        """One that has nothing. Whoever makes one sweeps out those of the dead."""
        with self._mutex:
            free = self._free.get(owner)
            if free:
                return free.pop()
        self._jobs.prune_slots(_PRUNE_SECONDS)
        made = self._jobs.new_slot()
        with self._store.writing() as transaction:
            known = _as_slots(transaction.values.get(_SLOTS))
            alive = self._jobs.silent(known)
            kept = {number: each for number, each in known.items() if number in alive} | {made: owner}
            transaction.values.put(_SLOTS, {str(number): list(each) for number, each in sorted(kept.items())})
        return made

    def _let_go(self, claim: Claim) -> None:
        """Forgets a claim of ours; its slot may have another."""
        with self._mutex:
            held = self._held.pop(_key(claim), None)
            if held is not None:
                self._free.setdefault(held.owner, []).append(held.slot)

    # To give one back

    def _give_back(self, claim: Claim, at: datetime, priority: int | None, change: Callable[[_Note], _Note]) -> None:
        with self._mutex:
            held = self._held.get(_key(claim))
        if held is None:
            return
        with self._store.writing() as transaction:
            if self._jobs.is_held(held.id, held.slot):
                _put_note(transaction, held.job.queue, change(_note(transaction, held.job)))
                self._jobs.retry(held.id, at, priority)
        self._let_go(claim)

    def _recover(self, now: float, lease: float) -> None:
        """Now and then, what those had who were not heard of any more is given back for them."""
        if self._search_at - lease / 10 <= now < self._search_at:
            return
        self._search_at = now + lease / 10
        if not self._stalled(self._slots(), lease):
            return
        with self._store.writing() as transaction:
            for job, slot, seconds in self._stalled(_as_slots(transaction.values.get(_SLOTS)), lease):
                if slot is not None:
                    error = f"the worker {slot.worker} was not heard of any more"
                    _put_note(transaction, job.queue, _note(transaction, job)._replace(error=error))
                if job.id is not None:
                    self._jobs.retry(job.id, self._at(), _priority(now - seconds))

    def _stalled(self, slots: dict[int, _Slot], lease: float) -> list[tuple[Job, _Slot | None, float]]:
        """Jobs whose lease has run out, with whose it was and for how long; each worker's lease is its own."""
        longest = max([lease, *(each.lease for each in slots.values())])
        found: list[tuple[Job, _Slot | None, float]] = []
        for seconds in sorted({lease, longest, *(each.lease for each in slots.values())}):
            jobs = self._jobs.stalled(seconds)
            silent = self._jobs.silent(job.worker_id for job in jobs if job.worker_id is not None)
            for job in jobs:
                slot = slots.get(job.worker_id) if job.worker_id is not None else None
                if job.worker_id not in silent:
                    if seconds == longest:
                        found.append((job, slot, 0.0))  # its slot was dropped
                elif (slot.lease if slot is not None else longest) == seconds:
                    found.append((job, slot, silent[job.worker_id] - seconds))
        return found

    # What is known

    def _name(self, place: Place) -> str:
        """The name of a task's job: of a length that procrastinate can also tell others of."""
        return f"clia:{_hashed(self._space, *place)}"

    def _slots(self) -> dict[int, _Slot]:
        return _as_slots(self._store.get(_SLOTS))

    def _attempts(self, job: Job) -> int:
        """Which attempt this is; a job that was never given back has no notes."""
        if not job.attempts:
            return 1
        found = self._store.get(_where(job.queue))
        note = _notes(found.value).get(job.queue) if found is not None else None
        return max(1, job.attempts + 1 - _given_back(job, note))

    def _due(self, task: Task, job: Job, ends: dict[int, float]) -> float:
        """When a task may be tried next, by our caller's clock. One that somebody has is free when the claim runs out."""
        if job.status == DOING:
            return max(self._search_at, ends.get(job.id or 0, task.not_before))
        return max(task.not_before, self._time(job.scheduled_at) or 0.0)

    def _ends(self, jobs: Iterable[Job]) -> dict[int, float]:
        """When the claims of jobs that are being done run out, by our caller's clock."""
        doing = [job for job in jobs if job.status == DOING]
        if not doing:
            return {}
        slots, now = self._slots(), self._jobs.clock() + self._ahead
        silent = self._jobs.silent(job.worker_id for job in doing if job.worker_id is not None)
        return {
            job.id: now + slots[job.worker_id].lease - silent[job.worker_id]
            for job in doing
            if job.id is not None and job.worker_id in slots and job.worker_id in silent
        }

    def _as_waiting(self, job: Job, note: _Note | None, ends: dict[int, float], slots: dict[int, _Slot]) -> Waiting:
        doing = job.status == DOING
        attempts = job.attempts + doing - _given_back(job, note)
        slot = slots.get(job.worker_id or 0)
        worker = (slot.worker if slot is not None else "unknown") if doing else None
        next_at = None if doing else self._time(job.scheduled_at)
        error = note.error if note is not None and note.job == job.id else None
        return Waiting(_task(job), max(0, attempts), worker, ends.get(job.id or 0), next_at, error)

    # Time

    def _read_clock(self, now: float) -> None:
        """Finds out by how much our caller's clock differs, now and then, and whenever it was set."""
        passed = time.monotonic()
        if self._read is not None:
            then, said = self._read
            if passed - then < _CLOCK_SECONDS and abs((now - said) - (passed - then)) < _CLOCK_JUMP:
                return
        self._ahead = now - self._jobs.clock()
        self._read = passed, now

    def _at(self, at: float = 0.0) -> datetime:
        """A time by our caller's clock as one of the database's; at once where none is given."""
        return datetime.fromtimestamp(min(max(at - self._ahead, 0.0), _TOO_LATE), UTC)

    def _time(self, at: datetime | None) -> float | None:
        return at.timestamp() + self._ahead if at is not None else None


def _key(claim: Claim) -> Claim:
    """What stays the same of a claim that is kept."""
    return claim._replace(until=0.0)


def _hashed(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _priority(due: float) -> int:
    """Jobs with a higher one are fetched first: what is due longer, to the second."""
    return max(_LEAST, min(_MOST, _MOST - int(min(max(due, 0.0), _TOO_LATE))))


def _task(job: Job) -> Task:
    """What a job is about; something else in our place is about nothing that anybody asks for."""
    words: Any = job.task_kwargs
    try:
        return Task(str(words["agent"]), str(words["request"]), str(words["kind"]), float(words["not_before"]))
    except (KeyError, TypeError, ValueError):
        return Task("", "", "")


def _place(job: Job) -> Place:
    return _task(job)[:2]


def _as_slots(found: Any) -> dict[int, _Slot]:
    value = found.value if found is not None and isinstance(found.value, dict) else {}
    return {int(number): _Slot(str(each[0]), float(each[1])) for number, each in value.items()}


def _where(name: str) -> str:
    return f"{_NOTES}{zlib.crc32(name.encode()) % _VALUES:02d}"


def _notes(value: Any) -> dict[str, _Note]:
    return {name: _Note(*each) for name, each in value.items()} if isinstance(value, dict) else {}


def _note(transaction: Transaction, job: Job) -> _Note:
    """What is noted of a job; nothing, where the note is about another job of the same task."""
    found = transaction.values.get(_where(job.queue))
    note = _notes(found.value).get(job.queue) if found is not None else None
    return note if note is not None and note.job == job.id else _Note(job.id or 0)


def _put_note(transaction: Transaction, name: str, note: _Note | None) -> None:
    """Sets what is noted of a task; None: nothing any more."""
    found = transaction.values.get(_where(name))
    value = dict(found.value) if found is not None and isinstance(found.value, dict) else {}
    if note is None and name not in value:
        return
    if note is None:
        del value[name]
    else:
        value[name] = list(note)
    transaction.values.put(_where(name), value)


def _given_back(job: Job, note: _Note | None) -> int:
    return note.given_back if note is not None and note.job == job.id else 0
