"""Assignment of an agent's commits and trace entries to its sessions.

Invariant: every commit and entry belongs to exactly one run: a session, or the agent itself (the run ``""``) if no session was
live. This is for display only: unreadable times, and sessions known only from a trace, are handled as well as possible.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple

from clia.sessions.model import RUNNING, SUSPENDED
from clia.sessions.records import ASK
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from clia.sessions.records import Resumed
    from clia.space.model import AgentCommit

ITSELF = ""
"""The run of an agent outside its sessions: its spawn, and what was done by hand or by a tool."""

SESSION, FLOW = "session", "flow"
LAST = 2**63 - 1
_SECOND = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ID_MAX = 64


class SessionRun(NamedTuple):
    """A session; fields that only the store knows are None if just the trace is left."""

    id: str
    status: str
    start: str
    end: str | None = None
    flow: str | None = None
    flow_cid: str | None = None
    forked: str | None = None  # agent and session it was forked from
    reason: str = ""  # why it failed
    answers: tuple[Resumed, ...] = ()


class TracedEntry(NamedTuple):
    """A trace entry and the commit it is bound to; None while it is pending."""

    entry: Mapping[str, Any]
    commit: str | None = None


class AgentRecord(NamedTuple):
    """What is recorded of an agent."""

    agent: str
    parent: str | None = None
    commits: tuple[AgentCommit, ...] = ()  # its own, oldest first
    traced: tuple[TracedEntry, ...] = ()  # in order of arrival
    sessions: tuple[SessionRun, ...] = ()
    title: str = ""
    meta: Mapping[str, Any] = {}  # of its briefing


class PlacedEntry(NamedTuple):
    """An entry with its run and time; ``identity`` is the same in every export."""

    run: str
    at: int
    kind: str
    text: str
    data: Mapping[str, Any]
    commit: str | None
    identity: str
    redacted: int = 0


class SessionWindow(NamedTuple):
    """The time span of a session."""

    ran: SessionRun
    start: int
    end: int


class AgentRuns(NamedTuple):
    """An agent's record, assigned to runs."""

    story: AgentRecord
    entries: list[PlacedEntry]
    windows: dict[str, SessionWindow]
    commits: list[tuple[str, int, AgentCommit]]  # run and time of each

    def at(self, moment: int) -> str:
        """The session that was live at a time; the last to start, if two share a second."""
        return next((window.ran.id for window in live_at(self.windows, moment)), ITSELF)

    def born(self) -> int | None:
        """When the agent was spawned; None if unknown in this clone."""
        return next((at for _, at, commit in self.commits if commit.kind == SPAWN), None)


def live_at(windows: dict[str, SessionWindow], moment: int) -> list[SessionWindow]:
    """The sessions that were live at a time, the last to start first."""
    return [window for window in reversed(windows.values()) if window.start <= moment <= window.end]


def runs_of(story: AgentRecord) -> AgentRuns:
    entries = _placed(story)
    windows = _windows(story.sessions, entries)
    commits = [(_run_of(commit, windows), seconds(commit.committer.at), commit) for commit in story.commits]
    return AgentRuns(story, entries, windows, commits)


def nanoseconds(text: object) -> int | None:
    """A timestamp in nanoseconds; None if it is invalid."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return seconds(since.days * 86400 + since.seconds, since.microseconds * 1000)


def seconds(at: int, fraction: int = 0) -> int:
    """A time in nanoseconds, limited to a valid range."""
    return min(max(at * _SECOND + fraction, 0), LAST)


def _placed(story: AgentRecord) -> list[PlacedEntry]:
    runs = _by_order([traced.entry for traced in story.traced])
    at = seconds(story.commits[0].committer.at) if story.commits else 0
    counts: Counter[str] = Counter()
    placed: list[PlacedEntry] = []
    for run, (entry, commit) in zip(runs, story.traced, strict=True):
        own_time = nanoseconds(entry.get("at"))
        at = at if own_time is None else own_time
        identity = _identity(entry)
        counts[identity] += 1
        kind, text = str(entry.get("kind", ""))[:_ID_MAX], str(entry.get("text", ""))
        data = entry["data"] if isinstance(entry.get("data"), dict) else {}
        redacted = entry["redacted"] if type(entry.get("redacted")) is int else 0
        placed.append(PlacedEntry(run, at, kind, text, data, commit, f"{identity}#{counts[identity]}", redacted))
    return placed


def _identity(entry: Mapping[str, Any]) -> str:
    """An entry's key, else its hash: inserting another entry before it must not change it."""
    key = entry.get("key")
    if isinstance(key, str) and key:
        return f"key:{key}"
    text = json.dumps(entry, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _by_order(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The run of each entry. Session entries open and close a run; what the flow printed comes before its session entry."""
    runs: list[str] = []
    current, printed = ITSELF, 0
    for entry in entries:
        session = session_of(entry)
        if session is None:
            runs.append(current)
            printed = printed + 1 if entry.get("kind") == FLOW else 0
            continue
        runs[len(runs) - printed :] = [session] * (printed + 1)
        printed = 0
        current = session if entry["data"].get("status") in (SUSPENDED, RUNNING) else ITSELF
    return runs


def session_of(entry: Mapping[str, Any]) -> str | None:
    """The session that an entry is about. Questions from ``ask`` are not sessions."""
    data = entry.get("data")
    session = data.get("session") if entry.get("kind") == SESSION and isinstance(data, dict) else None
    valid = isinstance(session, str) and 0 < len(session) <= _ID_MAX and not session.startswith(ASK)
    return session if valid else None


def _windows(sessions: Iterable[SessionRun], entries: Sequence[PlacedEntry]) -> dict[str, SessionWindow]:
    """Every session in the store or in a trace, in order of start."""
    by_run: dict[str, list[PlacedEntry]] = {}
    for entry in entries:
        if entry.run != ITSELF:
            by_run.setdefault(entry.run, []).append(entry)
    windows = [_window(session, by_run.pop(session.id, [])) for session in sessions]
    for run, placed in by_run.items():  # sessions of which only the trace is left
        status = next((str(entry.data.get("status", "")) for entry in reversed(placed) if entry.kind == SESSION), "")
        windows.append(_window(SessionRun(run, status, "", None if status in (SUSPENDED, RUNNING) else ""), placed))
    windows.sort(key=lambda window: (window.start, len(window.ran.id), window.ran.id))
    return {window.ran.id: window for window in windows}


def _window(ran: SessionRun, placed: Sequence[PlacedEntry]) -> SessionWindow:
    times = [entry.at for entry in placed]
    start, end = nanoseconds(ran.start), nanoseconds(ran.end)
    first = min(times, default=0) if start is None else start
    if ran.end is None:
        return SessionWindow(ran, first, LAST)  # still live
    return SessionWindow(ran, first, max(first, max(times, default=0) if end is None else end))


def _run_of(commit: AgentCommit, windows: dict[str, SessionWindow]) -> str:
    """The run of a commit: a decision names its session; other commits carry the flow of the live session."""
    if commit.kind == SPAWN:
        return ITSELF
    session_id = (commit.request or "").rpartition(".")[0]
    if session_id in windows:
        return session_id
    live = [window.ran for window in live_at(windows, seconds(commit.committer.at))]
    return next((ran.id for ran in live if ran.flow_cid in (None, commit.behaviour)), ITSELF)
