"""Trace entries, commit subjects and counts, made of events.

Invariant: pure functions. The same events give the same keys, so an interrupted ingest can start again.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.capture.events import CALL, END, FAILURE, NOTE, PROMPT, RESULT, START, TURN_END, ToolEvent, digest, is_reading
from clia.capture.git_activity import is_in_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.capture.agents import IncomingEvent, IngestedSession
    from clia.capture.service import CapturedSession
    from clia.errors import CliaError

SUBJECT_MAX = 72


class IngestCounts(NamedTuple):
    """Counts of what an ingest did."""

    events: int = 0  # events of hooks
    entries: int = 0  # new trace entries
    agents: int = 0  # new agents
    sub_agents: int = 0  # new sub-agents
    commits: int = 0  # new commits
    merges: int = 0  # merges of sub-agents' work
    rejected: int = 0  # events that could not be parsed, and are kept aside
    left: int = 0  # events that wait behind one that could not be recorded
    unreadable: int = 0  # lines of transcripts that could not be read


def not_taken(hook: IncomingEvent, err: CliaError, done: str = "committed", key: str = "not-taken") -> ToolEvent:
    return ToolEvent(NOTE, f"the files were not {done}: {err}", f"{key}:{hook.record.id}")


def not_read(path: str) -> ToolEvent:
    text = f"the transcript {path} was not read: it is not that of this session in this repository"
    return ToolEvent(NOTE, text, f"not-read:{digest(path)}")


def combined(event: ToolEvent, reported: ToolEvent | None) -> ToolEvent:
    """An event of a transcript with what a hook reports of it. The hook has more detail, but not each result of a command."""
    if reported is None or reported is event:
        return event
    failed = FAILURE in (event.what, reported.what)
    return reported._replace(what=FAILURE if failed else reported.what, data={**event.data, **reported.data})


def watched(captured: CapturedSession, event: ToolEvent, head: str) -> CapturedSession:
    """A session that has seen HEAD at an event. A move while a tool call runs is the tool's; another one is a person's."""
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


def key_of(live: IngestedSession, event: ToolEvent, key: str | None) -> str:
    """A key for the agent, which may have several sessions: counted texts are counted for each session."""
    return f"{key}@{digest(live.captured.session)[:8]}" if event.counted is not None else str(key)


def nth_report(reports: dict[str, list[str]], text: str | None, record: str) -> int:
    """The number of times a text was reported up to an event; repeating the event does not count."""
    records = reports.setdefault(text, []) if text is not None else []
    if record not in records:
        records.append(record)
    return records.index(record) + 1


def entry_of(event: ToolEvent, key: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": event.what, "text": event.text, "key": key}
    if event.at:
        entry["at"] = event.at
    if event.data:
        entry["data"] = dict(event.data)
    return entry


def subject(prompt: str, otherwise: str) -> str:
    line = next((text_line.strip() for text_line in prompt.splitlines() if text_line.strip()), otherwise)
    return line if len(line) <= SUBJECT_MAX else f"{line[: SUBJECT_MAX - 1]}…"
