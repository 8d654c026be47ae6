"""Incremental reading of the transcripts that tools write.

Invariant: continuing from a saved cursor gives each event the same key as reading the whole file at once. An incomplete last line
is left for later; an unreadable line is skipped and counted. Transcripts belong to the tool: they are only ever read, a file that
cannot be read counts as empty, and a cursor contains no text of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from contextlib import suppress
from typing import NamedTuple

from clia.capture.events import CALL, FAILURE, PROMPT, RESULT, SAID, digest, time_field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.capture.events import ToolEvent
    from clia.capture.tools import ToolReader

    LineParser = Callable[[Mapping[str, Any]], list[ToolEvent]]

READ_MAX = 64 * 1024 * 1024
PIECE = 1024 * 1024
_SEPARATORS = ("", "\n", "\n\n")
_JOINED = "joined:"
_TEXTS_MAX = 8
_HEAD, _MORE = 1 << 16, 1 << 20


class TranscriptCursor(NamedTuple):
    """How far a transcript was read, and how often each text (by its digest) has occurred so far."""

    offset: int = 0
    counts: Mapping[str, int] = {}
    message: str = ""  # the id of the last message
    message_start: int = 0  # the offset of its first line
    texts: tuple[str, ...] = ()  # its last texts; never saved, see `with_texts`
    calls: Mapping[str, str] = {}  # call id -> tool, for calls without a result
    first: str = ""  # digest of the first line: it identifies the file
    begun: bool = False  # whether it had an event so far

    def to_json(self) -> dict[str, Any]:
        saved = self._asdict()
        del saved["texts"]
        return saved

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> TranscriptCursor:
        """Older versions saved ``parts``, the raw texts of the last message, and no ``message_start``."""
        cursor = cls(**{field: value for field, value in saved.items() if field in cls._fields and field != "texts"})
        return cursor if "message_start" in saved else cursor._replace(message="")


class TranscriptEvents(NamedTuple):
    """Events read from a transcript, with their keys, the cursor after them and the number of unreadable lines."""

    events: tuple[ToolEvent, ...]
    cursor: TranscriptCursor
    unreadable: int = 0


def read_events(
    data: bytes, cursor: TranscriptCursor, from_line: LineParser, upto: str | None = None, since: str = ""
) -> TranscriptEvents:
    """Return the events in ``data``, which starts at the cursor. Those later than ``upto`` are left for the next read.

    Events before ``since`` belong to another session: they are skipped and not counted.
    """
    counts, calls = dict(cursor.counts), dict(cursor.calls)
    offset, unreadable = cursor.offset, 0
    message, message_start, texts = cursor.message, cursor.message_start, cursor.texts
    events: list[ToolEvent] = []
    for line in data.split(b"\n")[:-1]:  # split at \n only: a carriage return does not end a line
        parsed, readable = _parse(line, from_line)
        if upto is not None and any(event.at is not None and event.at > upto for event in parsed):
            break
        for event in parsed if not since else [event for event in parsed if (event.at or "") >= since]:
            events.append(_with_key(_with_tool(event, calls), counts))
            if event.what == SAID:
                if not event.message or event.message != message:
                    message, message_start, texts = event.message, offset, ()
                texts = (*texts, event.text)[-_TEXTS_MAX:]
                _count_joined(texts, counts)
        offset += len(line) + 1
        unreadable += not readable
    first, begun = cursor.first or _first_digest(data), cursor.begun or bool(events)
    after = TranscriptCursor(offset, counts, message, message_start, texts, calls, first, begun)
    return TranscriptEvents(tuple(events), after, unreadable)


def read_on(path: str, cursor: TranscriptCursor, from_line: LineParser, upto: str | None, since: str) -> TranscriptEvents:
    """Read a transcript to its end, or up to a time, in pieces, so that later lines are not parsed again and again."""
    if read_bytes(path, cursor.offset, 0) is None:  # shorter than before: another file
        cursor = restart(cursor, read_bytes(path, 0, PIECE) or b"")
    cursor, size = with_texts(cursor, path, from_line), PIECE
    events: list[ToolEvent] = []
    unreadable = 0
    while True:
        data = read_bytes(path, cursor.offset, size) or b""
        reading = read_events(data, cursor, from_line, upto, since)
        consumed = reading.cursor.offset - cursor.offset
        events += reading.events
        cursor, unreadable = reading.cursor, unreadable + reading.unreadable
        if len(data) < size or (consumed < data.rfind(b"\n") + 1):
            return TranscriptEvents(tuple(events), cursor, unreadable)
        if not consumed and size >= READ_MAX:
            cursor, unreadable = cursor._replace(offset=cursor.offset + size), unreadable + 1
        size = PIECE if consumed else min(2 * size, READ_MAX)  # a line longer than a piece


def with_texts(cursor: TranscriptCursor, path: str, from_line: LineParser) -> TranscriptCursor:
    """The cursor with the texts of its last message, read again from the transcript."""
    if not cursor.message or cursor.texts or not 0 <= cursor.message_start < cursor.offset:
        return cursor
    data = read_bytes(path, cursor.message_start, min(cursor.offset - cursor.message_start, READ_MAX)) or b""
    events = (event for line in data.split(b"\n") for event in _parse(line, from_line)[0])
    texts = [event.text for event in events if event.what == SAID and event.message == cursor.message]
    return cursor._replace(texts=tuple(texts[-_TEXTS_MAX:]))


def _first_digest(data: bytes) -> str:
    line, end, _ = data.partition(b"\n")
    return hashlib.sha256(line).hexdigest()[:16] if end else ""


def restart(cursor: TranscriptCursor, data: bytes) -> TranscriptCursor:
    """The cursor for a file that is read from its start.

    A file with the same first line is a copy of the last one and repeats it; any other continues where that one ended.
    """
    if cursor.first and _first_digest(data) == cursor.first:
        return TranscriptCursor()
    return cursor._replace(offset=0, message="", message_start=0, texts=(), first="", begun=False)


def _parse(line: bytes, from_line: LineParser) -> tuple[list[ToolEvent], bool]:
    if not line.strip():
        return [], True
    try:
        value = json.loads(line)
        return (from_line(value), True) if isinstance(value, dict) else ([], False)
    except (ValueError, RecursionError):
        return [], False


def _with_key(event: ToolEvent, counts: dict[str, int]) -> ToolEvent:
    if event.counted is not None:
        counts[event.counted] = nth = counts.get(event.counted, 0) + 1
        return event._replace(key=f"{event.counted}:{nth}")
    if event.what == PROMPT and event.key is not None:
        # One prompt may take several lines: what a person typed, then what the tool added to it.
        counts[event.key] = nth = counts.get(event.key, 0) + 1
        counts[f"{_JOINED}prompt:{digest(event.text)}"] = 1  # a hook of an older version reports it without its id
        return event if nth == 1 else event._replace(key=f"{event.key}:{nth}")
    return event


def _with_tool(event: ToolEvent, calls: dict[str, str]) -> ToolEvent:
    """Add the tool's name to a result: only the call has it."""
    call = str(event.data.get("id", ""))
    if event.what == CALL and call:
        calls[call] = str(event.data.get("tool", ""))
    elif event.what in (RESULT, FAILURE) and call in calls:
        return event._replace(data={"tool": calls.pop(call), **event.data})
    return event


def _count_joined(texts: tuple[str, ...], counts: dict[str, int]) -> None:
    """Count the joined texts of a message: a hook reports them as one text, and tools join them differently."""
    if len(texts) > 1:
        for separator in _SEPARATORS:
            counts[f"{_JOINED}say:{digest(separator.join(texts))}"] = 1


def hook_key(event: ToolEvent, counts: Mapping[str, int], record: str) -> str | None:
    """The key of an event reported by a hook: the one that the transcript's reader gives it.

    None if the transcript has the text in several parts.
    """
    if event.key is not None:
        return event.key
    if event.counted is None:
        return f"hook:{record}:{event.what}"
    if event.counted not in counts and _JOINED + event.counted in counts:
        return None
    return f"{event.counted}:{max(1, counts.get(event.counted, 0))}"


# Files


def read_bytes(path: str, offset: int, limit: int = READ_MAX) -> bytes | None:
    """Up to ``limit`` bytes of a file from an offset; None if the file is shorter than the offset."""
    if not os.path.isabs(path) or not os.path.isfile(path):  # a pipe would block
        return b""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < offset:
                return None
            file.seek(offset)
            return file.read(limit)
    except OSError:
        return b""


def first_lines(path: str, limit: int, offset: int = 0) -> list[dict[str, Any]]:
    """The JSON objects in the first ``limit`` bytes of a transcript, or in those from an offset."""
    objects = []
    for line in (read_bytes(path, offset, limit) or b"").split(b"\n"):
        with suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                objects.append(value)
    return objects


def copied_lines(path: str) -> tuple[str, str]:
    """The time that a forked session's transcript starts at, and the id of a line that was copied into it; empty without any.

    Copied lines keep their time and id (``uuid``), so they are older than the first line.
    """
    start = ""
    for line in first_lines(path, 1 << 20):
        at = time_field(line, "timestamp") or ""
        start = start or at
        uuid = line.get("uuid")
        if at and at < start and isinstance(uuid, str):
            return start, uuid
    return "", ""


def list_folder(folder: str) -> list[str]:
    """The sorted names in a folder; empty if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except (OSError, ValueError):
        return []


def has_grown(path: str, offset: int) -> bool:
    """Whether a transcript is longer than what was read of it."""
    try:
        return os.path.isabs(path) and os.stat(path).st_size > offset
    except (OSError, ValueError):
        return False


class OwnTranscripts:
    """The transcripts that one ingest may read; a positive result is kept.

    Invariant: a transcript is read only if its own lines name the session (or the sub-agent) of the event, and a directory of this
    repository. An event can name any file: that of another project would bring its conversation into this record.
    """

    def __init__(self, is_here: Callable[[str], bool]) -> None:
        self._is_here = is_here
        self._own: set[tuple[str, str, str]] = set()

    def is_own(self, tool: ToolReader, path: str, session: str, sub: str = "") -> bool | None:
        """Whether a transcript belongs to a session or its sub-agent; None while the file is missing or empty."""
        key = (path, session, sub)
        if key not in self._own:
            result = self._check(tool, path, {sub, session} if sub else {session})
            if not result:
                return result
            self._own.add(key)
        return True

    def _check(self, tool: ToolReader, path: str, wanted: set[str]) -> bool | None:
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode) or not os.path.isabs(path):
            return False
        if not status.st_size:
            return None
        # The first lines usually have both. Those of a resumed session may name an earlier one.
        for size, offset in ((_HEAD, 0), (_MORE, 0), (_MORE, max(0, status.st_size - _MORE))):
            owners = [tool.owner(line) for line in first_lines(path, size, offset)]
            places = [place for _, place in owners if place]
            if wanted.intersection(name for name, _ in owners) and (places or size == _MORE):
                return all(self._is_here(place) for place in places[:1])
        return False
