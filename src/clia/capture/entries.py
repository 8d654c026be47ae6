"""Trace entries, commit subjects and counts, made of events.

Invariant: pure functions. The same events give the same keys, so an interrupted ingest can start again.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.capture.events import FAILURE, NOTE, ToolEvent, digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.capture.agents import IncomingEvent, IngestedSession
    from clia.errors import CliaError


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
    left_out: int = 0  # files that are not recorded: too large, with a secret, or unreadable


def not_taken(hook: IncomingEvent, err: CliaError, done: str = "committed", key: str = "not-taken") -> ToolEvent:
    return ToolEvent(NOTE, f"the files were not {done}: {err}", f"{key}:{hook.record.id}")


def not_read(path: str) -> ToolEvent:
    text = f"the transcript {path} was not read: it is not that of this session in this repository"
    return ToolEvent(NOTE, text, f"not-read:{digest(path)}")


def combined(event: ToolEvent, reported: ToolEvent | None) -> ToolEvent:
    """An event of a transcript, completed by the hook's report. The hook has more detail, but not every result of a command."""
    if reported is None or reported is event:
        return event
    failed = FAILURE in (event.what, reported.what)
    return reported._replace(what=FAILURE if failed else reported.what, data={**event.data, **reported.data})


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
