"""The stored form of sessions.

Invariant: a session's event stream is the source of truth. Its row and snapshot are derived, and written in the same transaction. A
live session's row is below ``live/``; it moves to ``ended/``.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from clia.errors import CorruptJournal
from clia.values.types import QUESTION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from clia.engine.records import FlowAnswer, FlowCall, FlowProgram
    from clia.store.interface import StreamEntry, Transaction

LIVE, ENDED, COUNTS, SNAPSHOT, CHECKPOINT = "live/", "ended/", "sessions/", "snapshot/", "checkpoint/"
REQUEST = "request/"
STARTED, COPIED, RESUMED, OVER = "started", "copied", "resumed", "ended"
RETRIED, REOPENED = "retried", "reopened"
"""The session continues after its end: a person retried it, or it diverged and replays again."""
ASK = QUESTION
"""Prefix of sessions of the built-in ``ask`` flow. They are numbered separately and do not count as the agent's session."""


class Origin(NamedTuple):
    """What a run depends on, apart from its answers. Forks and checkpoints copy it."""

    flow: str
    name: str
    input: Any
    seed: str
    started_at: str
    timezone: str
    engine: str

    def program(self, source: str) -> FlowProgram:
        from clia.engine.records import FlowProgram  # not needed to write a commit

        return FlowProgram(source, self.input, self.seed, self.started_at, self.timezone)


class Resumed(NamedTuple):
    """One answer that a flow was resumed with."""

    call: int  # number of the request in its session
    asked: str  # hash of the request
    value: Any  # the answer
    error: str | None = None  # if it was given up: the reason
    decision: str | None = None  # the commit of the decision, if a person answered
    by: str | None = None  # who answered
    at: str | None = None  # RFC 3339

    def answer(self) -> FlowAnswer:
        from clia.engine.records import FlowAnswer  # as above

        return FlowAnswer(self.value, self.error)


class Snapshot(NamedTuple):
    """The engine's dump after a number of resumes. It is a cache, used only if every field is as expected."""

    done: int
    engine: str
    flow: str
    digest: str
    data: str  # base64
    pending: tuple[FlowCall, ...]


class SessionRow(NamedTuple):
    """The row of a live session, for lists.

    ``pending`` is empty if each request has its own row and these were not read.
    """

    flow: str
    name: str
    status: str
    started_at: str
    done: int  # number of resumes
    end: int  # position of the last event in its stream
    pending: tuple[FlowCall, ...]
    since: Mapping[int, str]
    forked: Mapping[str, Any] | None = None
    on: str | None = None  # the agent's head at the start
    kept: int = 0  # number of resumes at the last snapshot
    redacted: int = 0  # number of secrets removed from its input and answers
    secret: str | None = None  # "keep": its result is stored as it is
    waits: int | None = None  # number of pending requests if each has its own row
    at: str | None = None  # of the last step; only with ``waits``
    due: int = 0  # number of resumes at which the next snapshot is due, if later than usual

    @property
    def is_complete(self) -> bool:
        """Whether ``pending`` has all pending requests."""
        return self.waits is None or self.waits == len(self.pending)

    def calls(self) -> list[list[Any]]:
        """The pending requests as they are stored."""
        return [[*call, self.since[call.number]] for call in self.pending]

    def to_json(self) -> dict[str, Any]:
        row = self._asdict() | {"pending": self.calls() if self.waits is None else None}
        row |= {"since": None, "kept": self.kept or None, "redacted": self.redacted or None, "due": self.due or None}
        return {key: value for key, value in row.items() if value is not None}

    def stamp(self) -> tuple[Any, ...]:
        """Identifies a session's state. It includes times, because a lost store may come back with other answers."""
        return self.started_at, self.end, self.at or tuple(self.since.items())


def stream(agent: str, session: str) -> str:
    return f"session/{agent}/{session}"


def key(prefix: str, agent: str, session: str) -> str:
    return f"{prefix}{agent}/{session}"


def split(key: str) -> tuple[str, str]:
    """The agent and the session in a key or a stream's name."""
    agent, _, session = key.partition("/")[2].partition("/")
    return agent, session


def request_hash(call: FlowCall) -> str:
    """The hash of a request, recorded with its answer: replay must make the same request."""
    text = json.dumps([call.number, call.kind, call.tag, call.payload], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def session_row(row: Mapping[str, Any]) -> SessionRow:
    from clia.engine.records import FlowCall  # as above

    calls = row.get("pending", ())
    fields = {field: row[field] for field in SessionRow._fields if field in row}
    fields["pending"] = tuple(FlowCall(*call[:5]) for call in calls)
    return SessionRow(**fields, since={call[0]: call[5] for call in calls})


def snapshot_from(stored: Any) -> Snapshot | None:
    from clia.engine.records import FlowCall  # as above

    try:
        done, engine, flow, digest, data, pending = stored
        sound = type(done) is int and isinstance(data, str) and data.isascii()
        return Snapshot(done, engine, flow, digest, data, tuple(FlowCall(*call) for call in pending)) if sound else None
    except (TypeError, ValueError):
        return None  # an unreadable cache is ignored


def resumed_json(resume: Resumed) -> list[Any]:
    """A resume as a list without trailing None."""
    fields = list(resume)
    while fields[-1] is None and len(fields) > 3:
        fields.pop()
    return fields


def opening(origin: Origin, resumes: Sequence[Resumed], extra: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first events of a session; a fork starts with the resumes it copies."""
    events: list[dict[str, Any]] = [{"event": STARTED, **origin._asdict(), **extra}]
    return events + ([{"event": COPIED, "resumes": list(map(resumed_json, resumes))}] if resumes else [])


def resumed_event(resume: Resumed, redacted: int = 0) -> dict[str, Any]:
    """``redacted``: number of secrets removed from the answer."""
    return {"event": RESUMED, "resume": resumed_json(resume), **redactions(redacted)}


def redactions(count: int) -> dict[str, int]:
    """The field of an event, or of a row, with the number of secrets removed, if any."""
    return {"redacted": count} if count else {}


def redacted_in(events: Sequence[StreamEntry]) -> int:
    """The number of secrets removed from the input and the answers."""
    counts = (event.body.get("redacted", 0) for event in events if event.body.get("event") in (STARTED, RESUMED))
    return sum(count for count in counts if type(count) is int)


class Journal(NamedTuple):
    """A session's events, parsed."""

    origin: Origin
    resumes: list[Resumed]


def read_origin(transaction: Transaction, agent: str, session: str) -> Origin:
    name = stream(agent, session)
    return _started(transaction.streams.read(name, limit=1), name)


def read_journal(transaction: Transaction, agent: str, session: str) -> Journal:
    name = stream(agent, session)
    return journal_in(transaction.streams.read(name), name)


def journal_in(entries: Sequence[StreamEntry], name: str) -> Journal:
    """The journal in the entries of a session's stream."""
    return Journal(_started(entries, name), resumes_in(entries[1:], name))


def resumes_in(entries: Sequence[StreamEntry], name: str) -> list[Resumed]:
    """The resumes in these events, in order."""
    resumes: list[Resumed] = []
    for entry in entries:
        try:
            if entry.body["event"] == RESUMED:
                resumes.append(resumed_from(entry.body["resume"]))
            elif entry.body["event"] == COPIED:
                resumes.extend(map(resumed_from, entry.body["resumes"]))
            elif entry.body["event"] == RETRIED and entry.body.get("dropped") is not None:
                del resumes[-1:]  # may be before these events
        except (KeyError, TypeError):
            raise _corrupt(name, entry.position) from None
    return resumes


def _started(entries: Sequence[StreamEntry], name: str) -> Origin:
    try:
        body = entries[0].body
        return origin_from(body if body["event"] == STARTED else {})
    except (KeyError, TypeError, IndexError):
        raise _corrupt(name, 1) from None


def origin_from(stored: Mapping[str, Any]) -> Origin:
    """Raises ``TypeError`` or ``KeyError`` if it is invalid: it may come from another clone's notes."""
    origin = Origin(*(stored[field] for field in Origin._fields))
    if not all(isinstance(field, str) for field in origin._replace(input="")):
        raise TypeError("every field of an origin must be text")
    return origin


def resumed_from(stored: Any) -> Resumed:
    """Raises ``TypeError`` if it is invalid."""
    resume = Resumed(*stored)
    call, request_hash, _, *texts = stored
    if type(call) is not int or not all(text is None or isinstance(text, str) for text in (request_hash, *texts)):
        raise TypeError("a resume must have a call, the request's hash, a value, and texts")
    return resume


def is_sound(row: Any) -> bool:
    """Whether a row is well-formed. Lists check every row, so this is fast."""
    try:
        return (
            type(row["flow"]) is type(row["name"]) is type(row["status"]) is type(row["started_at"]) is str
            and type(row["done"]) is type(row["end"]) is type(row.get("kept", 0)) is int
            and (_is_list_of_calls(row["pending"]) if "pending" in row else type(row["waits"]) is int and type(row["at"]) is str)
        )
    except (TypeError, KeyError, AttributeError):
        return False


def _is_list_of_calls(pending: Any) -> bool:
    return type(pending) is list and all(is_call(*call) for call in pending)


def is_call(number: Any, kind: Any, tag: Any, payload: Any, line: Any, since: Any) -> bool:
    del payload  # any JSON
    return type(number) is type(line) is int and type(kind) is type(since) is str and (tag is None or type(tag) is str)


def sound_rows(rows: Iterable[tuple[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The well-formed rows; a damaged row hides no other, and ``doctor`` reports it."""
    return [(key, row) for key, row in rows if is_sound(row)]


def _corrupt(name: str, position: int) -> CorruptJournal:
    message = f"the journal {name} cannot be read at entry {position}"
    hints = ["fork the session from the last commit with a checkpoint: clia session fork AGENT NEW --at COMMIT"]
    return CorruptJournal(message, hints=hints, fields={"stream": name, "position": position})
