"""A work queue in the store: claims are stored values.

Invariant: each operation is one transaction, so one process at a time has a task. Only attempted tasks are stored, not waiting
ones: the cost depends on the number of attempted tasks. A time that is further away than its length allows comes from a clock that
was ahead; the next worker that looks for tasks counts it from its own time.
"""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

from clia.store.interface import Claim, Task, Waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.store.interface import Store, Transaction, Values

_KEYS = 64
ERROR_MAX = 2000


class TaskValues(NamedTuple):
    """Lists of fields, one for a task. Tasks share a fixed number of keys, because a deleted key leaves a tombstone."""

    prefix: str

    def all(self, values: Store | Values) -> dict[str, Any]:
        rows = (value for _, value in values.scan(self.prefix) if isinstance(value, dict))
        return {name: fields for value in rows for name, fields in value.items()}

    def get(self, values: Store | Values, name: str) -> Any:
        return self._bucket(values, name)[1].get(name)

    def put(self, transaction: Transaction, name: str, fields: Sequence[Any] | None) -> None:
        """Set the fields of a task; None deletes them."""
        key, value = self._bucket(transaction.values, name)
        if fields is not None:
            transaction.values.put(key, {**value, name: list(fields)})
        elif name in value:
            transaction.values.put(key, {other: value[other] for other in value if other != name})

    def _bucket(self, values: Store | Values, name: str) -> tuple[str, dict[str, Any]]:
        key = f"{self.prefix}{zlib.crc32(name.encode()) % _KEYS:02d}"
        row = values.get(key)
        return key, row.value if row is not None and isinstance(row.value, dict) else {}


_STATES = TaskValues("claim/")


class _Attempted(NamedTuple):
    """The stored state of a task."""

    kind: str
    not_before: float
    attempts: int
    worker: str | None = None
    until: float | None = None
    next_at: float | None = None
    error: str | None = None
    length: float | None = None  # seconds from the moment at which `until` or `next_at` was set, at most; None in older stores

    def corrected(self, now: float, lease: float) -> _Attempted:
        """The state without an end that a wrong clock has moved into the future. ``lease``: that of a claim of unknown length."""
        if self.until is not None:
            return self._replace(until=min(self.until, now + (lease if self.length is None else self.length)))
        if self.next_at is not None and self.length is not None:
            return self._replace(next_at=min(self.next_at, now + self.length))
        return self


class StoreQueue:
    """``Queue`` on a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def claim(self, tasks: Sequence[Task], worker: str, now: float, lease: float) -> Claim | None:
        if not tasks:
            return None
        with self._store.writing() as transaction:
            states = _attempted(transaction)
            for name, stored in list(states.items()):
                states[name] = stored.corrected(now, lease)
                if states[name] != stored:
                    _STATES.put(transaction, name, states[name])
            due, _, task = min((_due(task, states.get(_name(task))), number, task) for number, task in enumerate(tasks))
            if due > now:
                return None
            before = states.get(_name(task), _Attempted(task.kind, task.not_before, 0))
            error = f"worker {before.worker} stopped responding" if before.worker else before.error
            state = before._replace(attempts=before.attempts + 1, worker=worker, until=now + lease, error=error, length=lease)
            _STATES.put(transaction, _name(task), state)
        return Claim(task, worker, state.attempts, now + lease)

    def keep(self, claim: Claim, now: float, lease: float) -> Claim | None:
        changed = self._change(claim, lambda state: state._replace(until=now + lease, length=lease))
        return claim._replace(until=now + lease) if changed else None

    def retry(self, claim: Claim, at: float, error: str, *, counts: bool = True) -> None:
        def returned(state: _Attempted) -> _Attempted:
            length = None if state.until is None or state.length is None else max(0.0, at - (state.until - state.length))
            attempts = state.attempts - (not counts)
            return state._replace(attempts=attempts, worker=None, until=None, next_at=at, error=error[:ERROR_MAX], length=length)

        self._change(claim, returned)

    def release(self, claim: Claim) -> None:
        self._change(claim, lambda state: state._replace(attempts=state.attempts - 1, worker=None, until=None, length=None))

    def done(self, claim: Claim) -> None:
        with self._store.writing() as transaction:
            _STATES.put(transaction, _name(claim.task), None)

    def next_time(self, tasks: Sequence[Task], now: float) -> float | None:
        with self._store.reading() as view:
            states = {name: state.corrected(now, math.inf) for name, state in _attempted(view).items()}
        return max(now, min(_due(task, states.get(_name(task))) for task in tasks)) if tasks else None

    def waiting(self) -> list[Waiting]:
        with self._store.reading() as view:
            states = _attempted(view)
        tasks = [(Task(*name.partition("/")[::2], *state[:2]), state) for name, state in states.items()]
        ordered = sorted(tasks, key=lambda row: row[0][:2])
        return [Waiting(task, state.attempts, state.worker, state.until, state.next_at, state.error) for task, state in ordered]

    def forget(self, live: Sequence[tuple[str, str]]) -> int:
        live_names = {f"{agent}/{request}" for agent, request in live}
        with self._store.reading() as view:
            if not _attempted(view).keys() - live_names:
                return 0  # the usual case, without a write transaction
        with self._store.writing() as transaction:
            ended = _attempted(transaction).keys() - live_names
            for name in sorted(ended):
                _STATES.put(transaction, name, None)
        return len(ended)

    def watch(self, wake: Callable[[], None]) -> None:
        """Never calls ``wake``: waiting tasks are not stored."""

    def close(self) -> None:
        """Nothing to release: the store has another owner, and claims expire."""

    def _change(self, claim: Claim, change: Callable[[_Attempted], _Attempted]) -> bool:
        """Change the state of a task; False if the claim was lost."""
        with self._store.writing() as transaction:
            name = _name(claim.task)
            state = _parse(_STATES.get(transaction.values, name))
            if state is None or (state.worker, state.attempts) != (claim.worker, claim.attempt):
                return False
            state = change(state)
            _STATES.put(transaction, name, state if state.attempts or state.worker or state.error else None)
        return True


def _name(task: Task) -> str:
    return f"{task.agent}/{task.request}"


def _due(task: Task, state: _Attempted | None) -> float:
    """Return when a task may be attempted next: a claimed one when the claim expires."""
    if state is None:
        return task.not_before
    if state.until is not None:
        return state.until
    return max(task.not_before, state.next_at or 0.0)


def _attempted(view: Transaction) -> dict[str, _Attempted]:
    states = {name: _parse(fields) for name, fields in _STATES.all(view.values).items()}
    return {name: state for name, state in states.items() if state is not None}


def _parse(fields: Any) -> _Attempted | None:
    """Parse a stored state; None if it is damaged, which at most repeats an attempt."""
    if not isinstance(fields, list) or not 3 <= len(fields) <= len(_Attempted._fields):
        return None
    state = _Attempted(*fields)
    numbers = (state.not_before, state.attempts, state.until or 0, state.next_at or 0, state.length or 0)
    texts = (state.kind, state.worker or "", state.error or "")
    valid = all(isinstance(number, (int, float)) for number in numbers) and all(isinstance(text, str) for text in texts)
    return state if valid else None
