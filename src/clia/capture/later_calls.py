"""Tool calls after an event, for an ingest that reads the directory late.

Invariant: a file that the session may have changed does not count as existing before it. If all later calls name the files that
they write, the other files are unchanged since the event. If one does not, such as a shell command, any file may have changed.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.capture import transcripts
from clia.capture.changes.directory_looks import Moment
from clia.capture.events import CALL, FAILURE, RESULT, is_delegating, is_reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.capture.agents import IncomingEvent, IngestedSession
    from clia.capture.events import ToolEvent


class LaterCall(NamedTuple):
    """A tool call, its result, or another event of a turn that has gone on."""

    paths: tuple[str, ...] = ()  # the files that it says it writes
    unnamed: bool = True  # whether it may have changed other files
    id: str = ""  # the id of the call, or of the call whose result it is
    is_result: bool = False


def later_call(event: ToolEvent) -> LaterCall:
    ident = str(event.data.get("id") or "")
    if event.what in (RESULT, FAILURE):
        return LaterCall(unnamed=not ident, id=ident, is_result=True)
    tool = event.data.get("tool")
    unnamed = event.what != CALL or (not event.paths and (not is_reading(tool) or is_delegating(tool)))
    return LaterCall(event.paths, unnamed, ident)


def named_files(calls: Sequence[LaterCall]) -> list[str] | None:
    """The files that calls write; None if they may have written others. A result adds nothing if its call is known."""
    call_ids = {call.id for call in calls if not call.is_result}
    if any(call.unnamed or (call.is_result and call.id not in call_ids) for call in calls):
        return None
    return [path for call in calls for path in call.paths]


def moment_of(hook: IncomingEvent) -> Moment:
    """The moment of an event, for a look at the directory."""
    paths = tuple(path for call in hook.later_calls() for path in call.paths)
    return Moment(hook.record.stored, hook.is_past(), paths)


def calls_in_transcript(live: IngestedSession, at: str) -> list[LaterCall]:
    """The tool calls after a time in the unread part of a transcript: their hooks may have been missed."""
    captured, cursor = live.captured, transcripts.TranscriptCursor.from_json(live.captured.standing)
    data = transcripts.read_bytes(captured.transcript, cursor.offset, transcripts.PIECE) if captured.transcript else None
    ahead = transcripts.read_events(data or b"", cursor, live.parser, None, captured.since).events
    return [later_call(event) for event in ahead if event.what == CALL and (event.at or "") > at]
