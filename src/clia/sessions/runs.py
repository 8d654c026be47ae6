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
    given: tuple[Resumed, ...] = ()


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

    def has(self, at: int) -> bool:
        return self.start <= at <= self.end


class AgentRuns(NamedTuple):
    """An agent's record, assigned to runs."""

    story: AgentRecord
    entries: list[PlacedEntry]
    windows: dict[str, SessionWindow]
    commits: list[tuple[str, int, AgentCommit]]  # run and time of each

    def at(self, moment: int) -> str:
        """The session that was live at a time; the last to start, if two share a second."""
        return next((name for name in reversed(self.windows) if self.windows[name].has(moment)), ITSELF)

    def born(self) -> int | None:
        """When the agent was spawned; None if unknown in this clone."""
        return next((at for _, at, commit in self.commits if commit.kind == SPAWN), None)


def runs_of(story: AgentRecord) -> AgentRuns:
    entries = _placed(story)
    windows = _windows(story.sessions, entries)
    commits = [(_run_of(each, windows), seconds(each.committer.at), each) for each in story.commits]
    return AgentRuns(story, entries, windows, commits)


def nanoseconds(text: object) -> int | None:
    """A timestamp in nanoseconds; None if it is invalid."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
        if found is None:
            return None
        since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return _bounded((since.days * 86400 + since.seconds) * _SECOND + since.microseconds * 1000)


def seconds(at: int) -> int:
    """A commit time in nanoseconds, limited to a valid range."""
    return _bounded(at * _SECOND)


def _bounded(at: int) -> int:
    return min(max(at, 0), LAST)


def _placed(story: AgentRecord) -> list[PlacedEntry]:
    runs = _by_order([each.entry for each in story.traced])
    made_at = {each.cid: seconds(each.committer.at) for each in story.commits}
    before = next(iter(made_at.values()), 0)
    seen: Counter[str] = Counter()
    found: list[PlacedEntry] = []
    for run, (entry, commit) in zip(runs, story.traced, strict=True):
        at = nanoseconds(entry.get("at"))
        before = before if at is None else at
        identity = _identity(entry)
        seen[identity] += 1
        data, count = entry.get("data"), entry.get("redacted")
        found.append(
            PlacedEntry(
                run,
                before,
                str(entry.get("kind", ""))[:_ID_MAX],
                str(entry.get("text", "")),
                data if isinstance(data, dict) else {},
                commit,
                f"{identity}#{seen[identity]}",
                count if type(count) is int else 0,
            )
        )
    return found


def _identity(entry: Mapping[str, Any]) -> str:
    """An entry's key, else its hash: inserting another entry before it must not change it."""
    key = entry.get("key")
    if isinstance(key, str) and key:
        return f"key:{key}"
    text = json.dumps(entry, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _by_order(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The run of each entry. Session entries open and close a run; what the flow printed comes before its session entry."""
    found: list[str] = []
    now, printed = ITSELF, 0
    for entry in entries:
        session = session_of(entry)
        if session is None:
            found.append(now)
            printed = printed + 1 if entry.get("kind") == FLOW else 0
            continue
        found[len(found) - printed :] = [session] * (printed + 1)
        printed = 0
        now = session if entry["data"].get("status") in (SUSPENDED, RUNNING) else ITSELF
    return found


def session_of(entry: Mapping[str, Any]) -> str | None:
    """The session that an entry is about. Questions from ``ask`` are not sessions."""
    data = entry.get("data")
    session = data.get("session") if entry.get("kind") == SESSION and isinstance(data, dict) else None
    known = isinstance(session, str) and 0 < len(session) <= _ID_MAX and not session.startswith(ASK)
    return session if known else None


def _windows(sessions: Iterable[SessionRun], entries: Sequence[PlacedEntry]) -> dict[str, SessionWindow]:
    """Every session that the store or a trace knows, in order of start."""
    told: dict[str, list[PlacedEntry]] = {}
    for each in entries:
        if each.run != ITSELF:
            told.setdefault(each.run, []).append(each)
    found = [_window(each, told.pop(each.id, [])) for each in sessions]
    found += [_window(_told(run, placed), placed) for run, placed in told.items()]
    found.sort(key=lambda each: (each.start, len(each.ran.id), each.ran.id))
    return {each.ran.id: each for each in found}


def _told(run: str, placed: Sequence[PlacedEntry]) -> SessionRun:
    """A session of which only the trace is left."""
    said = [each.data for each in placed if each.kind == SESSION]
    status = str(said[-1].get("status", "")) if said else ""
    return SessionRun(run, status, "", None if status in (SUSPENDED, RUNNING) else "")


def _window(ran: SessionRun, placed: Sequence[PlacedEntry]) -> SessionWindow:
    times = [each.at for each in placed]
    start, end = nanoseconds(ran.start), nanoseconds(ran.end)
    first = min(times, default=0) if start is None else start
    if ran.end is None:
        return SessionWindow(ran, first, LAST)  # still live
    return SessionWindow(ran, first, max(first, max(times, default=0) if end is None else end))


def _run_of(commit: AgentCommit, windows: dict[str, SessionWindow]) -> str:
    """The run of a commit: a decision names its session; other commits carry the flow of the live session."""
    if commit.kind == SPAWN:
        return ITSELF
    asked = (commit.request or "").rpartition(".")[0]
    if asked in windows:
        return asked
    at = seconds(commit.committer.at)
    for name in reversed(windows):
        ran = windows[name].ran
        if windows[name].has(at) and ran.flow_cid in (None, commit.behaviour):
            return name
    return ITSELF
