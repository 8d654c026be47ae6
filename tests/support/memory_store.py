"""A store in memory for tests and models, stricter than any database.

Invariant: a transaction works on a copy, which replaces the state when its block ends, so that rollback is exact and a reader's
view never changes. Values go through JSON, and a value that is not read back unchanged is refused: code that works with this store
works with every other.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import NamedTuple, cast

from clia.errors import InvalidInput
from clia.store import validation
from clia.store.interface import ABSENT, ANY_VERSION, Edge, GateFacts, StreamEntry, Versioned
from clia.store.sql_store import SqlStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from clia.store.interface import GateQuestion, Transaction
    from clia.store.sql_store import Connection


class _State(NamedTuple):
    """Only the outer containers change, so copying them copies everything."""

    streams: dict[str, tuple[int, tuple[tuple[int, str], ...]]]  # the last position; positions and texts
    values: dict[str, tuple[int, str | None]]  # the last version; the text, or None if deleted
    edges: set[Edge]
    retractions: set[tuple[str, str]]  # source, origin
    facts: list[GateFacts]  # one item: the facts last loaded

    def copy(self) -> _State:
        return _State(dict(self.streams), dict(self.values), set(self.edges), set(self.retractions), list(self.facts))


class MemoryStore(SqlStore):
    """A store in memory. Threads may share it."""

    def __init__(self) -> None:
        super().__init__("memory")
        self._state = _State({}, {}, set(), set(), [GateFacts()])
        self._writer = threading.Lock()
        self._closed = False

    @property
    def location(self) -> str:
        return "memory"

    def close(self) -> None:
        self._closed = True

    def scrub(self) -> None:
        with self._open():
            pass  # it has no files

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self._open(), self._writer:
            guard = _Guard(self._state.copy(), writes=True)
            try:
                yield cast("Transaction", MemoryTransaction(guard))
                self._state = guard.state
            finally:
                guard.ended = True

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        with self._open():
            guard = _Guard(self._state, writes=False)
            try:
                yield cast("Transaction", MemoryTransaction(guard))
            finally:
                guard.ended = True

    def get(self, key: str) -> Versioned | None:
        with self.reading() as view:
            return view.values.get(key)

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        with self.reading() as view:
            return view.values.scan(prefix)

    @contextmanager
    def _open(self) -> Iterator[None]:
        if self._closed:
            raise validation.refusal("store-closed")
        with self._one_at_a_time():
            yield

    def _begin(self, *, writes: bool) -> Connection:
        raise NotImplementedError

    def _rewrite_files(self) -> None:
        raise NotImplementedError


class MemoryTransaction:
    """``Transaction`` on a copy."""

    def __init__(self, guard: _Guard) -> None:
        self.streams = _Streams(guard)
        self.values = _Values(guard)
        self.edges = _Edges(guard)
        self.gate = _Gate(guard)


class _Guard:
    def __init__(self, state: _State, *, writes: bool) -> None:
        self._state = state
        self._writes = writes
        self.ended = False

    @property
    def state(self) -> _State:
        if self.ended:
            raise validation.refusal("transaction-ended")
        return self._state

    @property
    def writable_state(self) -> _State:
        state = self.state
        if not self._writes:
            raise validation.refusal("only-reading")
        return state


class _Streams:
    def __init__(self, guard: _Guard) -> None:
        self._guard = guard

    def append(self, stream: str, bodies: Sequence[Any], expected: int | None = None) -> int:
        state = self._guard.writable_state
        texts = [_encode(body) for body in bodies]
        end, entries = state.streams.get(validation.check_name(stream), (0, ()))
        if expected is not None and expected != end:
            raise validation.stale_position(stream, expected, end)
        if texts:
            state.streams[stream] = end + len(texts), (*entries, *enumerate(texts, end + 1))
        return end + len(texts)

    def read(self, stream: str, after: int = 0, limit: int | None = None) -> list[StreamEntry]:
        _, entries = self._guard.state.streams.get(validation.check_name(stream), (0, ()))
        later = [StreamEntry(position, validation.decode(text, stream)) for position, text in entries if position > after]
        return later[: validation.at_most(limit)]

    def end(self, stream: str) -> int:
        return self._guard.state.streams.get(validation.check_name(stream), (0, ()))[0]

    def replace(self, stream: str, position: int, body: Any) -> None:
        state, text = self._guard.writable_state, _encode(body)
        end, entries = state.streams.get(validation.check_name(stream), (0, ()))
        if position not in dict(entries):
            raise validation.no_entry(stream, position)
        state.streams[stream] = end, tuple((place, text if place == position else old) for place, old in entries)

    def forget(self, stream: str, upto: int) -> None:
        state = self._guard.writable_state
        end, entries = state.streams.get(validation.check_name(stream), (0, ()))
        state.streams[stream] = end, tuple(entry for entry in entries if entry[0] > upto)

    def names(self, prefix: str) -> list[str]:
        streams = self._guard.state.streams
        validation.check_name(prefix)
        return sorted(name for name, (_, entries) in streams.items() if entries and name.startswith(prefix))


class _Values:
    def __init__(self, guard: _Guard) -> None:
        self._guard = guard

    def get(self, key: str) -> Versioned | None:
        version, text = self._guard.state.values.get(validation.check_name(key), (0, None))
        return None if text is None else Versioned(validation.decode(text, key), version)

    def put(self, key: str, value: Any, expected: int = ANY_VERSION) -> int:
        values, text = self._guard.writable_state.values, _encode(value)
        version, _ = _expect(values, key, expected)
        values[key] = version + 1, text
        return version + 1

    def delete(self, key: str, expected: int = ANY_VERSION) -> bool:
        values = self._guard.writable_state.values
        version, text = _expect(values, key, expected)
        values[key] = version, None
        return text is not None

    def discard(self, prefix: str) -> None:
        values = self._guard.writable_state.values
        validation.check_name(prefix)
        for key in [key for key in values if key.startswith(prefix)]:
            del values[key]

    def each(self, prefix: str) -> Iterator[tuple[str, Any]]:
        return iter(self.scan(prefix))

    def scan(self, prefix: str) -> list[tuple[str, Any]]:
        values = self._guard.state.values
        validation.check_name(prefix)
        present = [(key, text) for key, (_, text) in values.items() if text is not None and key.startswith(prefix)]
        return [(key, validation.decode(text, key)) for key, text in sorted(present)]


class _Edges:
    def __init__(self, guard: _Guard) -> None:
        self._guard = guard

    def add(self, edges: Iterable[Edge]) -> None:
        state = self._guard.writable_state
        state.edges.update([Edge(*map(validation.check_name, edge)) for edge in edges])

    def retract(self, source: str, origins: Iterable[str]) -> None:
        state = self._guard.writable_state
        validation.check_name(source)
        state.retractions.update([(source, validation.check_name(origin)) for origin in origins])

    def drop(self, source: str) -> None:
        state = self._guard.writable_state
        validation.check_name(source)
        state.edges.difference_update([edge for edge in state.edges if edge.source == source])
        state.retractions.difference_update([pair for pair in state.retractions if pair[0] == source])

    def clear(self) -> None:
        state = self._guard.writable_state
        state.edges.clear()
        state.retractions.clear()

    def targets(self, src: str, kind: str) -> list[str]:
        _check_names(src, kind)
        return sorted({edge.dst for edge in self.standing() if (edge.src, edge.kind) == (src, kind)})

    def sources(self, dst: str, kind: str) -> list[str]:
        _check_names(dst, kind)
        return sorted({edge.src for edge in self.standing() if (edge.dst, edge.kind) == (dst, kind)})

    def reachable(self, src: str, kind: str) -> list[str]:
        reached: set[str] = set()
        ahead = self.targets(src, kind)
        while ahead:
            node = ahead.pop()
            if node not in reached:
                reached.add(node)
                ahead.extend(self.targets(node, kind))
        return sorted(reached)

    def origins(self, src: str, kind: str, dst: str) -> list[str]:
        _check_names(src, kind, dst)
        return sorted({edge.origin for edge in self.standing() if edge[:3] == (src, kind, dst)})

    def standing(self, touching: str | None = None) -> list[Edge]:
        state = self._guard.state
        _check_names(*([] if touching is None else [touching]))
        retracted = {origin for _, origin in state.retractions}
        return sorted(
            edge for edge in state.edges if edge.origin not in retracted and (touching is None or touching in (edge.src, edge.dst))
        )


class _Gate:
    def __init__(self, guard: _Guard) -> None:
        self._guard = guard

    def load(self, facts: GateFacts) -> None:
        state = self._guard.writable_state
        for names in (*(grant[:4] for grant in facts.grants), facts.trusted, *facts.parents):
            _check_names(*names)
        state.facts[:] = [facts]

    def allowing(self, question: GateQuestion) -> list[str]:
        (facts,) = self._guard.state.facts
        _check_names(*question[:3])
        if question.peer not in facts.trusted:
            return []
        types, at = _wider(question.type, facts.parents), validation.clamp(question.at)
        cids = {
            grant.cid
            for grant in facts.grants
            if (grant.peer, grant.trigger) == (question.peer, question.trigger)
            and grant.type in types
            and (grant.expires is None or validation.clamp(grant.expires) > at)
            and (grant.execute or not question.execute)
        }
        return sorted(cids)


def _wider(type_: str, parents: Sequence[tuple[str, str]]) -> set[str]:
    """A type and all its ancestors."""
    types: set[str] = set()
    ahead = [type_]
    while ahead:
        current = ahead.pop()
        if current not in types:
            types.add(current)
            ahead.extend(parent for child, parent in parents if child == current)
    return types


def _check_names(*names: str) -> None:
    for name in names:
        validation.check_name(name)


def _expect(values: dict[str, tuple[int, str | None]], key: str, expected: int) -> tuple[int, str | None]:
    version, text = values.get(validation.check_name(key), (0, None))
    present = ABSENT if text is None else version
    if expected not in (ANY_VERSION, present):
        raise validation.stale_value(key, expected, present)
    return version, text


def _encode(value: Any) -> str:
    """Encode as the databases do, but refuse a value that would be read back as another: a tuple, a key that is not text."""
    text = validation.encode(value)
    if not _is_same(value, validation.decode(text, "a new value")):
        raise InvalidInput("not a JSON value: it would be read back as another one", code="invalid-json")
    return text


def _is_same(value: Any, decoded: Any) -> bool:
    if type(value) is not type(decoded):
        return False
    if isinstance(value, dict):
        return value.keys() == decoded.keys() and all(_is_same(member, decoded[key]) for key, member in value.items())
    if isinstance(value, list):
        return len(value) == len(decoded) and all(map(_is_same, value, decoded))
    return bool(value == decoded)
