"""The writes of one step of a session: events, row, trace and feed entry, atomically.

Invariant: a step is one transaction of the store and adds one entry to the feed. If it ends the session, the end is also an
event in git: that is the point of no return, and the transaction follows it.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.engine.records import LIMIT
from clia.errors import StaleRef
from clia.sessions import records
from clia.sessions.checkpoints import known_head
from clia.sessions.model import FAILED, FINISHED, KEEP, SUSPENDED, kept_secret
from clia.sessions.records import ASK, CHECKPOINT, ENDED, LIVE, OVER, SNAPSHOT, SessionRow, redactions, resumed_event
from clia.sessions.replay import next_snapshot
from clia.sessions.request_rows import are_many, changes, new_calls, prefix_of, waiting, waiting_after
from clia.space.envelope import Append, Intent, RefMove, settle
from clia.space.events import write_event
from clia.space.traces import stream as trace_stream
from clia.store.interface import FEED, KNOWN
from clia.values import refs as names
from clia.values.clock import timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.engine.records import Failure, FlowCall, Turn
    from clia.sessions.records import Origin, Resumed
    from clia.sessions.replay import LiveSession
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.traces import Traces

    # The end of a session as an event in git, and its subject: statistics also count sessions that never committed.
    Ending = tuple[Mapping[str, Any], str]

NOWHERE = RefMove("", None, "")
_ERROR_MAX = 200


class StepSummary(NamedTuple):
    """A step described for its trace and for the feed."""

    text: str
    data: Mapping[str, Any]
    resumed: Resumed | None = None  # the answer that led to it


class SessionStep(NamedTuple):
    """What leads to a transition."""

    agent: str
    session: str
    events: list[dict[str, Any]]
    row: SessionRow  # afterwards
    summary: StepSummary
    before: SessionRow | None = None  # the complete row before; None at the start
    puts: Sequence[tuple[str, Any]] = ()


class Transition(NamedTuple):
    """One transition, ready to write: the changes to the store as an intent, and the end if it is one."""

    intent: Intent
    row: SessionRow | Mapping[str, Any]  # the row afterwards: a mapping if the session has ended
    ending: Ending | None = None

    def with_puts(self, puts: Sequence[tuple[str, Any]]) -> Transition:
        """Write more rows with the transition."""
        return self._replace(intent=self.intent._replace(puts=(*self.intent.puts, *puts)))

    @property
    def live(self) -> SessionRow | None:
        """The row afterwards, unless the session has ended."""
        return self.row if isinstance(self.row, SessionRow) else None


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
        row = waiting(first_row(origin, 0, len(events), extra), turn, self.step_time())
        return self._step(SessionStep(agent, session, events, row, StepSummary(text, {}), puts=puts), turn)

    def moved(
        self,
        live: LiveSession,
        resumed: Resumed,
        turn: Turn,
        snapshot: list[Any] | None,
        summary: tuple[str, Mapping[str, Any]],
        redacted: int,
    ) -> Transition:
        """The transition after an answer, with a new snapshot if there is one. ``redacted``: secrets removed from the answer.

        ``live`` has the complete row, with all pending requests.
        """
        before, done = live.row, live.row.done + 1
        row = before._replace(done=done, end=before.end + 1, redacted=before.redacted + redacted)
        row = row if snapshot is None else row._replace(kept=done, due=next_snapshot(snapshot))
        after = waiting_after(before, row, resumed.call, turn, self.step_time())
        puts = [(records.key(SNAPSHOT, live.agent, live.session), snapshot)] if snapshot is not None else []
        events = [resumed_event(resumed, redacted)]
        return self._step(SessionStep(live.agent, live.session, events, after, StepSummary(*summary, resumed), before, puts), turn)

    def stopped(self, live: LiveSession, status: str, reason: Mapping[str, Any], text: str) -> Transition:
        """The transition of a session that ends without an answer: cancelled or diverged."""
        step = SessionStep(live.agent, live.session, [], live.row, StepSummary(text, {}), live.row)
        return self._over(step, {"status": status, "failure": dict(reason)})

    def reopened(self, step: SessionStep, turn: Turn) -> Transition:
        """The transition of a session that had ended and continues. ``step.row``: afterwards, without pending calls."""
        agent = step.agent
        transition = self._step(step._replace(row=waiting(step.row, turn, self.step_time())), turn)
        ended = () if transition.live is None else (records.key(ENDED, agent, step.session),)
        deletes = (*transition.intent.deletes, *ended, CHECKPOINT + agent)  # the next checkpoint is a full one
        return transition._replace(intent=transition.intent._replace(deletes=deletes))

    def step_time(self) -> str:
        """The time of a step: timers of its new requests start now."""
        return timestamp(self._core.clock(), "milliseconds")

    def _step(self, step: SessionStep, turn: Turn) -> Transition:
        if turn.ended:
            failed = {} if turn.failure is None else {"status": FAILED, "failure": failure_json(turn.failure)}
            return self._over(step, failed or self._finished(step.row, turn.result), turn.printed)
        agent, session, events, row, summary = step[:5]
        added = new_calls(() if step.before is None else step.before.pending, turn.pending)
        text = f"{summary.text}; waits for {_listed(session, added, turn.pending)}"
        trace = self._trace(agent, session, SUSPENDED, summary._replace(text=text), turn.printed)
        news = feed_append(agent, session, row, trace.bodies[-1]["at"], added, summary.resumed)
        appends = (Append(records.stream(agent, session), tuple(events), row.end), trace, news)
        rows = changes(agent, session, step.before, row, summary.resumed and summary.resumed.call)
        intent = Intent(agent, "session", NOWHERE, appends=appends, puts=(*rows.puts, *step.puts), discards=rows.discards)
        return Transition(intent, row)

    def _finished(self, row: SessionRow, result: Any) -> dict[str, Any]:
        clean, count = (result, 0) if row.secret == KEEP else self._core.clean.counted(result)
        return {"status": FINISHED, "result": clean, **redactions(row.redacted + count)}

    def _over(self, step: SessionStep, outcome: Mapping[str, Any], printed: str = "") -> Transition:
        """The end of a session. ``outcome``: its status, with the result or the failure."""
        agent, session, events, row, summary = step[:5]
        over_row = row._replace(pending=(), since={}, waits=None, at=None, status=outcome["status"])
        fields = {**over_row.to_json(), **outcome}
        status, at = over_row.status, timestamp(self._core.clock())
        failure = self._core.clean.value(fields.get("failure"))  # the flow composed the message, and it goes into git
        fields = fields | {"failure": failure} if failure else fields
        over = {"event": OVER, "status": status, "at": at}
        over |= {key: fields[key] for key in ("result", "failure", "redacted") if key in fields}
        after = fields | {"ended_at": at, "end": row.end + 1}
        why = f": {failure['message']}" if failure and failure.get("message") else ""
        appends = (
            Append(records.stream(agent, session), (*events, over), after["end"]),
            self._trace(agent, session, status, summary._replace(text=f"{summary.text}; {status}{why}"), printed),
            feed_append(agent, session, over_row, at, (), summary.resumed),
        )
        deletes = tuple(records.key(prefix, agent, session) for prefix in (LIVE, SNAPSHOT))
        puts = ((records.key(ENDED, agent, session), after), *(put for put in step.puts if put[0] not in deletes))
        discards = (prefix_of(agent, session),) if step.before is not None and step.before.waits is not None else ()
        intent = Intent(agent, "session", NOWHERE, appends=appends, puts=puts, deletes=deletes, discards=discards)
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
        if step.ending is None:
            core.reached("engine-ran")
            with core.store.writing() as transaction:
                events = step.intent.appends[0]
                transaction.streams.append(events.stream, events.bodies, expected)
                settle(transaction, step.intent._replace(appends=step.intent.appends[1:]))
            core.reached("finished")
            return
        self._record(step, step.ending)

    def write_reopened(self, step: Transition, reopening: Ending) -> None:
        """Write the transition of a session that continues. ``reopening``: the event in git, and its subject."""
        self._record(step, reopening, *(() if step.ending is None else (step.ending,)))

    def _record(self, step: Transition, *events: Ending) -> None:
        """Append events to the agent's events in git, then write the transition."""
        agent = step.intent.agent
        while True:
            moves = self._event_moves(agent, events)
            move, puts = RefMove(moves[0].ref, moves[0].old, moves[-1].new), step.intent.puts
            try:
                self._envelope.carry_out(step.intent._replace(point=move, puts=(*puts, *self.known_after(agent, move, puts))))
            except StaleRef:
                continue  # plain git moved the chain
            return

    def _event_moves(self, agent: str, events: Sequence[Ending]) -> list[RefMove]:
        core, ref = self._core, names.events(agent)
        moves = [RefMove(ref, None, core.refs.get(ref) or "")]
        for event in events:
            tip = moves[-1].new or None
            moves.append(RefMove(ref, tip, write_event(core, tip, core.agent_stamp(agent), *event)))
        return moves[1:]

    def known_after(self, agent: str, move: RefMove, puts: Sequence[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
        """The row about the agreement of store and git after an end, if they agreed before it. ``puts``: rows of the same step."""
        key = KNOWN + agent
        stored = self._core.store.get(key)
        agreed_head = known_head(dict(puts).get(key, None if stored is None else stored.value))
        return ((key, [agreed_head.head, move.new]),) if agreed_head is not None and agreed_head.events == move.old else ()

    def end_move(self, agent: str, ending: Ending) -> RefMove:
        """Append the end to the agent's events."""
        return self._event_moves(agent, [ending])[0]


def _listed(session: str, added: Sequence[FlowCall], pending: Sequence[FlowCall]) -> str:
    """The pending requests for a trace entry; of many, the new ones and the number of others."""
    listed = added if are_many(pending) else pending
    texts = [f"{call.kind} ({session}.{call.number})" for call in listed]
    return ", ".join([*texts, f"{len(pending) - len(listed)} others"] if len(listed) < len(pending) else texts)


def feed_append(
    agent: str, session: str, row: SessionRow, at: str, added: Sequence[FlowCall], resumed: Resumed | None = None
) -> Append:
    """The feed entry for a step: pending and answered requests, never their contents. ``added``: the new requests.

    Of many pending requests it lists the new ones, and the number of others.
    """
    listed = added if are_many(row.pending) else row.pending
    waits = [{"id": f"{session}.{call.number}", "kind": call.kind} for call in listed]
    entry: dict[str, Any] = {"event": "session", "agent": agent, "session": session, "flow": row.name, "status": row.status}
    entry |= {"waits": waits, "asked": [f"{session}.{call.number}" for call in added]}
    if len(listed) < len(row.pending):
        entry["more"] = len(row.pending) - len(listed)
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
