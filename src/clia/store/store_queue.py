"""The queue of all processes that share a store: claims as values of the store.

Invariant: each operation is one transaction, so that of any number of processes one has a task at a time. What is kept is
what is being tried or was, not what waits: a look reads as much as is in flight, however much waits and however much was
ever done. Tasks share a fixed number of values, because a deleted value leaves a row behind for ever.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from clia.store.interface import Claim, Task, Waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.store.interface import Store, Transaction

_PREFIX = "claim/"
_VALUES = 64
_ERROR_MAX = 2000


class _Tried(NamedTuple):
    """What is known of one task, as it is kept."""

    kind: str
    not_before: float
    attempts: int
    worker: str | None = None
    until: float | None = None
    next_at: float | None = None
    error: str | None = None


class StoreQueue:
    """``Queue`` on a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
        if not tasks:
            return None
        with self._store.writing() as transaction:
            known = _all(transaction)
            due, _, task = min((_due(task, known.get(_name(task))), number, task) for number, task in enumerate(tasks))
            if due > now:
                return None
            before = known.get(_name(task), _Tried(task.kind, task.not_before, 0))
            lost = f"the worker {before.worker} was not heard of any more" if before.worker else before.error
            made = before._replace(attempts=before.attempts + 1, worker=worker, until=now + lease, error=lost)
            _put(transaction, _name(task), made)
        return Claim(task, worker, made.attempts, now + lease)

    def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
        kept = self._change(claim, lambda held: held._replace(until=now + lease))
        return claim._replace(until=now + lease) if kept else None

    def retry(self, claim: Claim, at: float, error: str, *, counts: bool = True) -> None:
        said = error[:_ERROR_MAX]
        self._change(
            claim,
            lambda held: held._replace(attempts=held.attempts - (not counts), worker=None, until=None, next_at=at, error=said),
        )

    def release(self, claim: Claim) -> None:
        self._change(claim, lambda held: held._replace(attempts=held.attempts - 1, worker=None, until=None))

    def done(self, claim: Claim) -> None:
        with self._store.writing() as transaction:
            _put(transaction, _name(claim.task), None)

    def next_time(self, tasks: Sequence[Task], now: float) -> float | None:
        with self._store.reading() as view:
            known = _all(view)
        return max(now, min(_due(task, known.get(_name(task))) for task in tasks)) if tasks else None

    def waiting(self) -> list[Waiting]:
        with self._store.reading() as view:
            known = _all(view)
        return [_waiting(name, known[name]) for name in sorted(known, key=lambda each: each.partition("/")[::2])]

    def forget(self, live: Sequence[tuple[str, str]]) -> int:
        kept = {f"{agent}/{request}" for agent, request in live}
        with self._store.reading() as view:
            if not _all(view).keys() - kept:
                return 0  # most often: and no writer is kept waiting for it
        with self._store.writing() as transaction:
            gone = _all(transaction).keys() - kept
            for name in sorted(gone):
                _put(transaction, name, None)
        return len(gone)

    def watch(self, wake: Callable[[], None]) -> None:
        """What waits is not put in: nobody knows of it before they look."""

    def close(self) -> None:
        """The store is its owner's to close, and claims run out."""

    def _change(self, claim: Claim, change: Callable[[_Tried], _Tried]) -> bool:
        """Changes what is known of a task that is still the claim's; whether it was."""
        with self._store.writing() as transaction:
            name = _name(claim.task)
            held = _tried(transaction, name)
            if held is None or (held.worker, held.attempts) != (claim.worker, claim.attempt):
                return False
            made = change(held)
            _put(transaction, name, made if made.attempts or made.worker or made.error else None)
        return True


def _name(task: Task) -> str:
    return f"{task.agent}/{task.request}"


def _due(task: Task, known: _Tried | None) -> float:
    """When a task may be tried next. One that somebody has is free when the claim runs out."""
    if known is None:
        return task.not_before
    if known.until is not None:
        return known.until
    return max(task.not_before, known.next_at or 0.0)


def _key(name: str) -> str:
    return f"{_PREFIX}{zlib.crc32(name.encode()) % _VALUES:02d}"


def _all(view: Transaction) -> dict[str, _Tried]:
    values = (value for _, value in view.values.scan(_PREFIX) if isinstance(value, dict))
    made = {name: _as_tried(each) for value in values for name, each in value.items()}
    return {name: each for name, each in made.items() if each is not None}


def _tried(view: Transaction, name: str) -> _Tried | None:
    found = view.values.get(_key(name))
    return _as_tried(found.value.get(name)) if found is not None and isinstance(found.value, dict) else None


def _as_tried(made: Any) -> _Tried | None:
    """What is kept of a task. What is damaged is as if nobody had tried: at most, work is done once more."""
    if not isinstance(made, list) or not 3 <= len(made) <= len(_Tried._fields):
        return None
    found = _Tried(*made)
    numbers = (found.not_before, found.attempts, found.until or 0, found.next_at or 0)
    texts = (found.kind, found.worker or "", found.error or "")
    sound = all(isinstance(each, (int, float)) for each in numbers) and all(isinstance(each, str) for each in texts)
    return found if sound else None


def _put(transaction: Transaction, name: str, made: _Tried | None) -> None:
    """Sets what is known of a task; None: nothing any more."""
    found = transaction.values.get(_key(name))
    value = dict(found.value) if found is not None and isinstance(found.value, dict) else {}
    if made is None and name not in value:
        return
    if made is None:
        del value[name]
    else:
        value[name] = list(made)
    transaction.values.put(_key(name), value)


def _waiting(name: str, known: _Tried) -> Waiting:
    agent, _, request = name.partition("/")
    task = Task(agent, request, known.kind, known.not_before)
    return Waiting(task, known.attempts, known.worker, known.until, known.next_at, known.error)
