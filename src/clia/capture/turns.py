"""The state of a session's turn, and the subjects of the commits that it ends with.

Invariant: pure functions of events.
"""

from __future__ import annotations

from clia.capture.changes.git_activity import is_in_call
from clia.capture.events import CALL, END, FAILURE, NOTE, PROMPT, RESULT, START, TURN_END, is_reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.capture.events import ToolEvent
    from clia.capture.service import CapturedSession
    from clia.capture.spool_reader import SpoolRecord

SUBJECT_MAX = 72
_UNFINISHED = {"open": "unfinished turn", "failed": "model error", "interrupted": "interrupted turn"}
_TURN_ENDS = {"error": "failed", "interrupted": "interrupted"}  # the data of a note -> the state of the turn


def watched(captured: CapturedSession, event: ToolEvent, head: str) -> CapturedSession:
    """The session, with HEAD as of an event. A move while a tool call runs is the tool's; any other move is a person's."""
    calls, writing = captured.calls, captured.writing
    writes = not is_reading(event.data.get("tool"))
    moved = bool(is_in_call(captured, event) and head and captured.head and head != captured.head)
    if event.what == CALL:
        calls, writing = calls + 1, writing + writes
    elif event.what in (RESULT, FAILURE):
        calls, writing = max(0, calls - 1), max(0, writing - writes)
    elif event.what in (PROMPT, START, TURN_END, END):  # an interrupted call has no end
        calls = writing = 0
    moves = (*captured.moves, (captured.head, head)) if moved else captured.moves
    if event.what == PROMPT:
        captured = captured._replace(base=head, prompt_ids=event.counted is None)
    return captured._replace(head=head or captured.head, calls=calls, writing=writing, moves=moves)


def turn_after(turn: str, read: Sequence[ToolEvent]) -> str:
    """The state of a turn after events of its transcript: an error of the model or an interruption ends it."""
    ends = (_TURN_ENDS.get(str(event.data.get("event"))) for event in reversed(read) if event.what == NOTE)
    return next(filter(None, ends), turn)


def subject(prompt: str, otherwise: str) -> str:
    line = next((text_line.strip() for text_line in prompt.splitlines() if text_line.strip()), otherwise)
    return line if len(line) <= SUBJECT_MAX else f"{line[: SUBJECT_MAX - 1]}…"


def unfinished_subject(captured: CapturedSession) -> str:
    """The subject of a commit with what a turn left that reported no end."""
    return subject(f"{_UNFINISHED[captured.turn]}: {captured.prompt}", "")


def heard(captured: CapturedSession, record: SpoolRecord) -> CapturedSession:
    """The session, with the process and the time of its last event."""
    return captured._replace(stored=max(captured.stored, record.stored), process=record.process or captured.process)
