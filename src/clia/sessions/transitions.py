"""What one step of a session writes: events, row, trace and feed entry, atomically.

Invariant: a step is one transaction of the store and adds one entry to the feed. If it ends the session, the end is also an
event in git: that is the point of no return, and the transaction follows it.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.engine.records import LIMIT
from clia.errors import StaleRef
from clia.sessions import records
from clia.sessions.model import FAILED, FINISHED, KEEP, SUSPENDED, kept_secret
from clia.sessions.records import ASK, ENDED, LIVE, OVER, SNAPSHOT, SessionRow, redactions, resumed_event
from clia.space.envelope import Append, Intent, RefMove, settle
from clia.space.events import write_event
from clia.space.traces import stream as trace_stream
from clia.store.interface import FEED, KNOWN
from clia.values import refs as names
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from clia.engine.records import Failure, Turn
    from clia.sessions.records import Origin, Resumed
    from clia.sessions.replay import LiveSession
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.traces import Traces

    # The end of a session as an event in git, and its subject: statistics count sessions that never committed.
    Ending = tuple[Mapping[str, Any], str]

NOWHERE = RefMove("", None, "")
_ERROR_MAX = 200


class StepSummary(NamedTuple):
    """A step described for its trace and for the feed."""

    text: str
    data: Mapping[str, Any]
    resumed: Resumed | None = None  # the answer that led to it
    waited: Collection[int] = ()  # the calls pending before


class Transition(NamedTuple):
    """One transition, ready to write: the changes to the store as an intent, and the end if it is one."""

    intent: Intent
    row: Mapping[str, Any]  # the row afterwards
    ending: Ending | None = None


class Transitions:
    def __init__(self, core: Core, envelope: Envelope, traces: Traces) -> None:
        self._core = core
        self._envelope = envelope
        self._traces = traces

    def opened(
        self, agent: str, session: str, origin: Origin, turn: Turn, extra: Mapping[str, Any], puts: Sequence[tuple[str, Any]]
    ) -> Transition:
        """The transition of a session that has just started."""
        events = records.opening(origin, (), extra)
        text = f"session {session} started: flow {origin.name} ({origin.flow[:12]})"
        row = self.row(first_row(origin, 0, len(events), extra), turn)
        return self._step(agent, session, events, row, turn, StepSummary(text, {}), puts=puts)

    def moved(
        self, live: LiveSession, resumed: Resumed, turn: Turn, snapshot: Any, summary: tuple[str, Mapping[str, Any]], redacted: int
    ) -> Transition:
        """The transition after an answer, with a new snapshot if there is one. ``redacted``: secrets removed from the answer."""
        row, done = live.row, live.row.done + 1
        row = row._replace(done=done, end=row.end + 1, redacted=row.redacted + redacted)
        after = self.row(row if snapshot is None else row._replace(kept=done), turn)
        puts = [(records.key(SNAPSHOT, live.agent, live.session), snapshot)] if snapshot is not None else []
        news = StepSummary(*summary, resumed, {call.number for call in row.pending})
        return self._step(live.agent, live.session, [resumed_event(resumed, redacted)], after, turn, news, puts=puts)

    def stopped(self, live: LiveSession, status: str, reason: Mapping[str, Any], text: str) -> Transition:
        """The transition of a session that ends without an answer: cancelled or diverged."""
        row = live.row.to_json() | {"status": status, "failure": dict(reason)}
        return self._over(live.agent, live.session, [], row, StepSummary(text, {}))

    def row(self, row: SessionRow, turn: Turn) -> dict[str, Any]:
        """The row with a turn's pending calls. A call that was pending before keeps its time."""
        now = timestamp(self._core.clock(), "milliseconds")  # timers start now
        since = {call.number: row.since.get(call.number, now) for call in turn.pending}
        return row._replace(pending=turn.pending, since=since).to_json()

    def _step(
        self,
        agent: str,
        session: str,
        events: list[dict[str, Any]],
        row: dict[str, Any],
        turn: Turn,
        summary: StepSummary,
        *,
        puts: Sequence[tuple[str, Any]] = (),
    ) -> Transition:
        if turn.ended:
            failed = {} if turn.failure is None else {"status": FAILED, "failure": failure_json(turn.failure)}
            outcome = failed or self._finished(row, turn.result)
            return self._over(agent, session, events, row | outcome, summary, turn.printed, puts)
        waits = ", ".join(f"{call.kind} ({session}.{call.number})" for call in turn.pending)
        trace = self._trace(agent, session, SUSPENDED, summary._replace(text=f"{summary.text}; waits for {waits}"), turn.printed)
        news = feed_append(agent, session, row, trace.bodies[-1]["at"], summary)
        appends = (Append(records.stream(agent, session), tuple(events), row["end"]), trace, news)
        intent = Intent(agent, "session", NOWHERE, appends=appends, puts=((records.key(LIVE, agent, session), row), *puts))
        return Transition(intent, row)

    def _finished(self, row: dict[str, Any], result: Any) -> dict[str, Any]:
        clean, count = (result, 0) if row.get("secret") == KEEP else self._core.clean.counted(result)
        return {"status": FINISHED, "result": clean, **redactions(row.get("redacted", 0) + count)}

    def _over(
        self,
        agent: str,
        session: str,
        events: list[dict[str, Any]],
        row: dict[str, Any],
        summary: StepSummary,
        printed: str = "",
        puts: Sequence[tuple[str, Any]] = (),
    ) -> Transition:
        status, at = row["status"], timestamp(self._core.clock())
        failure = self._core.clean.value(row.get("failure"))  # the flow composed the message, and it goes into git
        row = row | {"failure": failure} if failure else row
        over = {"event": OVER, "status": status, "at": at}
        over |= {key: row[key] for key in ("result", "failure", "redacted") if key in row}
        after = row | {"pending": [], "ended_at": at, "end": row["end"] + 1}
        why = f": {failure['message']}" if failure and failure.get("message") else ""
        appends = (
            Append(records.stream(agent, session), (*events, over), after["end"]),
            self._trace(agent, session, status, summary._replace(text=f"{summary.text}; {status}{why}"), printed),
            feed_append(agent, session, after, at, summary),
        )
        deletes = tuple(records.key(prefix, agent, session) for prefix in (LIVE, SNAPSHOT))
        all_puts = ((records.key(ENDED, agent, session), after), *(put for put in puts if put[0] not in deletes))
        intent = Intent(agent, "session", NOWHERE, appends=appends, puts=all_puts, deletes=deletes)
        return Transition(intent, after, None if session.startswith(ASK) else ending_of(agent, session, after))

    def trace_entry(self, text: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """An entry about a session for its agent's trace."""
        return self._traces.entry("session", text, data)

    def _trace(self, agent: str, session: str, status: str, summary: StepSummary, printed: str) -> Append:
        data = {"session": session, "status": status, **summary.data}
        entries = [self._traces.entry("flow", printed)] if printed else []
        return Append(trace_stream(agent), (*entries, self.trace_entry(summary.text, data)))

    def write(self, step: Transition, expected: int) -> None:
        """Write a transition that moves no branch. ``expected``: the end of the session's stream when it was read."""
        core = self._core
        agent = step.intent.agent
        if step.ending is None:
            core.reached("engine-ran")
            with core.store.writing() as transaction:
                events = step.intent.appends[0]
                transaction.streams.append(events.stream, events.bodies, expected)
                settle(transaction, step.intent._replace(appends=step.intent.appends[1:]))
            core.reached("finished")
            return
        while True:
            move = self.end_move(agent, step.ending)
            known = (KNOWN + agent, [core.refs.get(names.head(agent)), move.new])
            try:
                self._envelope.carry_out(step.intent._replace(point=move, puts=(*step.intent.puts, known)))
            except StaleRef:
                continue  # plain git moved the chain
            return

    def end_move(self, agent: str, ending: Ending) -> RefMove:
        """Append the end to the agent's events."""
        core = self._core
        ref = names.events(agent)
        tip = core.refs.get(ref)
        return RefMove(ref, tip, write_event(core, tip, core.agent_stamp(agent), *ending))


def feed_append(agent: str, session: str, row: Mapping[str, Any], at: str, summary: StepSummary | None = None) -> Append:
    """The feed entry for a step: pending and answered requests, never their contents."""
    resumed, waited = (None, ()) if summary is None else (summary.resumed, summary.waited)
    waits = [{"id": f"{session}.{call}", "kind": kind} for call, kind, *_ in row["pending"]]
    new_requests = [f"{session}.{call}" for call, *_ in row["pending"] if call not in waited]
    entry = {"event": "session", "agent": agent, "session": session, "flow": row["name"], "status": row["status"]}
    entry |= {"waits": waits, "asked": new_requests}
    if resumed is not None:
        error = None if resumed.error is None else resumed.error[:_ERROR_MAX]
        answered = {"request": f"{session}.{resumed.call}", "by": resumed.by, "decision": resumed.decision, "error": error}
        entry["answered"] = {key: value for key, value in answered.items() if value is not None}
    return Append(FEED, ({**entry, "at": at},))


def first_row(origin: Origin, done: int, end: int, extra: Mapping[str, Any]) -> SessionRow:
    """The first row of a session, without pending calls."""
    forked, on = extra.get("forked"), extra.get("on")
    row = SessionRow(origin.flow, origin.name, SUSPENDED, origin.started_at, done, end, (), {}, forked, on)
    return row._replace(redacted=extra.get("redacted", 0), secret=kept_secret(origin.input))


def failure_json(failure: Failure) -> dict[str, Any]:
    optional = {"line": failure.line, "trace": None if failure.reason == LIMIT else failure.trace}
    return {"reason": failure.reason, "message": failure.message} | {key: value for key, value in optional.items() if value}


def ending_of(agent: str, session: str, row: Mapping[str, Any]) -> Ending:
    """The event of a session's end, from its row."""
    body = {"event": "session-ended", "agent": agent, "session": session, "resumes": row["done"]}
    body |= {key: row[key] for key in ("status", "flow", "name", "started_at", "ended_at")}
    if row.get("failure"):
        body["reason"] = row["failure"].get("message", "")
    return body, f"session {session} of {agent} {row['status']}: flow {row['name']}"
