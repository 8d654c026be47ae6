"""The rows of pending requests, for sessions with many.

Invariant: a session with at most ``INLINE_MAX`` pending requests has them in its row. With more, its row has their number and the
time of the last step, and each request has a row of its own. So a step writes what it changes, however many requests are pending.
Request rows of a session whose row lists its requests do not count.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.engine.records import FlowCall
from clia.errors import CorruptJournal
from clia.sessions.checkpoints import damaged_row
from clia.sessions.records import LIVE, REQUEST, is_call, key, session_row, sound_rows, split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.engine.records import Turn
    from clia.sessions.records import SessionRow
    from clia.store.interface import Store, Transaction, Values

INLINE_MAX = 16
"""A session with more pending requests has a row for each of them."""


class RowChanges(NamedTuple):
    """What a step changes in the rows of a live session."""

    puts: tuple[tuple[str, Any], ...]
    discards: tuple[str, ...] = ()

    def write(self, transaction: Transaction) -> None:
        for prefix in self.discards:
            transaction.values.discard(prefix)
        for row_key, value in self.puts:
            transaction.values.put(row_key, value)


def request_key(agent: str, session: str, number: int) -> str:
    """The key of a request's row. All have the same length, so they sort by number, and none is a prefix of another."""
    return f"{prefix_of(agent, session)}{number:012d}"


def prefix_of(agent: str, session: str) -> str:
    """What the keys of a session's request rows begin with."""
    return f"{REQUEST}{agent}/{session}/"


def has_own_rows(row: Mapping[str, Any]) -> bool:
    """Whether the requests of a session are in rows of their own."""
    return "pending" not in row and "waits" in row


def complete(values: Store | Values, agent: str, session: str, row: dict[str, Any]) -> dict[str, Any]:
    """A well-formed row with all pending requests; raises ``CorruptJournal`` if some are missing."""
    if not has_own_rows(row):
        return row
    pending = request_rows(values, agent, session)
    if len(pending) != row["waits"]:
        raise damaged_row(agent, session)
    return {**row, "pending": pending}


def complete_rows(values: Values, rows: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The well-formed rows of sessions, with all pending requests; a damaged row hides no other."""
    for row_key, row in sound_rows(rows):
        with suppress(CorruptJournal):
            yield row_key, complete(values, *split(row_key), row)


def request_rows(values: Store | Values, agent: str, session: str) -> list[Any]:
    """The readable rows of a session's requests."""
    return [call for _, call in values.scan(prefix_of(agent, session)) if _is_sound(call)]


def pending_call(values: Store | Values, agent: str, session: str, row: Mapping[str, Any], number: str) -> FlowCall | None:
    """The pending call with this number, which may be any text; None if there is none."""
    if not has_own_rows(row):
        return next((call for call in session_row(row).pending if str(call.number) == number), None)
    key = request_key(agent, session, int(number)) if number.isascii() and number.isdecimal() and len(number) < 12 else None
    stored = None if key is None else values.get(key)
    if stored is None or str(int(number)) != number:
        return None
    if not _is_sound(stored.value):
        raise damaged_row(agent, session)
    return FlowCall(*stored.value[:5])


def _is_sound(call: Any) -> bool:
    return type(call) is list and len(call) == 6 and is_call(*call)


def waiting(row: SessionRow, turn: Turn, now: str) -> SessionRow:
    """A row with the pending calls of a turn. A call that has a time in the row keeps it."""
    return _with(row, turn.pending, {call.number: row.since.get(call.number, now) for call in turn.pending}, now)


def waiting_after(before: SessionRow, row: SessionRow, answered: int, turn: Turn, now: str) -> SessionRow:
    """As ``waiting``, for a turn after one answer: looks at the new calls only, if no other call was dropped."""
    since = dict(before.since)
    since.pop(answered, None)
    for call in new_calls(before.pending, turn.pending):
        since[call.number] = now
    if len(since) != len(turn.pending):  # the flow no longer waits for some
        return waiting(row._replace(since=since), turn, now)
    return _with(row, turn.pending, since, now)


def _with(row: SessionRow, pending: tuple[FlowCall, ...], since: Mapping[int, str], now: str) -> SessionRow:
    waits, at = (len(pending), now) if are_many(pending) else (None, None)
    return row._replace(pending=pending, since=since, waits=waits, at=at)


def are_many(pending: Sequence[FlowCall]) -> bool:
    """Whether too many requests are pending for a step to list all of them."""
    return len(pending) > INLINE_MAX


def new_calls(before: Sequence[FlowCall], after: Sequence[FlowCall]) -> Sequence[FlowCall]:
    """The calls of ``after`` that were made since ``before``. Calls are sorted by number, and numbers grow."""
    last = before[-1].number if before else 0
    first = len(after)
    while first and after[first - 1].number > last:
        first -= 1
    return after[first:]


def changes(agent: str, session: str, before: SessionRow | None, after: SessionRow, answered: int | None = None) -> RowChanges:
    """What to write so that the rows of a live session are those of ``after``.

    ``before``: the complete row that is stored. ``answered``: the call that was answered since.
    """
    row, prefix = (key(LIVE, agent, session), after.to_json()), prefix_of(agent, session)
    if after.waits is None:
        return RowChanges((row,), (prefix,) if before is not None and before.waits is not None else ())
    if before is None or before.waits is None:
        added: Sequence[FlowCall] = after.pending
        discards = [prefix]
    else:
        added = new_calls(before.pending, after.pending)
        gone = [answered] if answered is not None else []
        if len(before.pending) + len(added) - len(gone) != len(after.pending):  # the flow no longer waits for some
            gone = sorted(before.since.keys() - after.since.keys())
        discards = [request_key(agent, session, number) for number in gone]
    puts = [(request_key(agent, session, call.number), [*call, after.since[call.number]]) for call in added]
    return RowChanges((row, *puts), tuple(discards))
