"""Repairs of sessions from git, where the store and git differ.

Invariant: git takes precedence, and nothing is dropped: events that a repair replaces are kept in the stream ``replaced/``. A
session goes back only to just before a decision that is not on its branch. Every repair can be repeated after a crash.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.sessions import records
from clia.sessions.agreement import BOUND, LOST, NUMBERS, UNENDED, Agreement, common
from clia.sessions.checkpoints import known_head, live_row, session_counts, session_number
from clia.sessions.model import CANCELLED
from clia.sessions.records import (
    ASK,
    CHECKPOINT,
    COUNTS,
    ENDED,
    LIVE,
    OVER,
    SNAPSHOT,
    Journal,
    Resumed,
    is_sound,
    request_hash,
    resumed_event,
    session_row,
)
from clia.sessions.replay import LiveSession
from clia.sessions.request_rows import changes, complete, prefix_of, waiting
from clia.sessions.transitions import ending_of, feed_append, first_row
from clia.space.events import append_event
from clia.space.traces import stream as trace_stream
from clia.store.interface import KNOWN
from clia.values import refs as names
from clia.values.clock import timestamp_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.engine.records import Turn
    from clia.sessions.agreement import BranchSessions, SessionDifference
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.records import SessionRow
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.store.interface import StreamEntry, Transaction

REPLACED = "replaced/"
"""Prefix of the streams that keep the events which a repair replaced."""


class ProvedRun(NamedTuple):
    """A session as git proves it, and where it waits."""

    journal: Journal
    turn: Turn
    before: Turn | None = None  # if it ended: where it waited before the last answer


class Repairs(NamedTuple):
    core: Core
    envelope: Envelope
    agreement: Agreement
    lifecycle: Lifecycle

    def repair(self, difference: SessionDifference) -> bool:
        """Repair one difference; return whether it is gone."""
        agent, session = difference.agent, difference.session
        with self.envelope.at_work(agent):
            if difference not in self.agreement.differences(agent):
                return True  # another process did it
            head = self.core.require_head(agent)
            if difference.code == BOUND:
                self._drop_bound(agent, head)
            elif difference.code == UNENDED:
                self._record_end(agent, session)
            elif difference.code == NUMBERS:
                with self.core.store.writing() as transaction:
                    count(transaction, agent, session)
            else:
                branch = self.agreement.branch(agent, head)
                if difference.code == LOST and self._is_superseded(agent, session, branch):
                    self._end_lost(agent, session, branch)
                else:
                    self._bring(agent, session, branch)
            self.confirm(agent, head)
            return difference not in self.agreement.differences(agent)

    def confirm(self, agent: str, head: str) -> None:
        """Record that store and git agree, if they do."""
        if not self.agreement.differences(agent):
            with self.core.store.writing() as transaction:
                transaction.values.put(KNOWN + agent, [head, self.core.refs.get(names.events(agent))])

    def _drop_bound(self, agent: str, head: str) -> None:
        """Remove the pending entries that git has bound to a commit already."""
        stream = trace_stream(agent)
        with self.core.store.reading() as view:
            known_row, pending = view.values.get(KNOWN + agent), view.streams.read(stream)
        again = self.agreement.bound_again(agent, head, None if known_row is None else known_head(known_row.value), pending)
        dropped = {entry.position for entry in again}
        with self.core.store.writing() as transaction:
            remaining = [entry.body for entry in pending if entry.position not in dropped]
            transaction.streams.forget(stream, pending[-1].position)
            transaction.streams.append(stream, remaining)

    def _record_end(self, agent: str, session: str) -> None:
        """Record the end of a session in git, as the store has it."""
        row = self.core.store.get(records.key(ENDED, agent, session))
        if row is not None:
            ending = ending_of(agent, session, row.value)
            append_event(self.core, names.events(agent), self.core.agent_stamp(agent), *ending)

    # Lost sessions

    def _is_superseded(self, agent: str, session: str, branch: BranchSessions) -> bool:
        """Whether another session took the place of a lost one."""
        with self.core.store.reading() as view:
            live = live_row(view.values, agent)
            stored = {records.split(stream)[1] for stream in view.streams.names(f"session/{agent}/")}
        known_sessions = {*stored, *branch.newest, *branch.over}
        return live is not None or any(session_number(other) > session_number(session) for other in known_sessions)

    def _end_lost(self, agent: str, session: str, branch: BranchSessions) -> None:
        """Record the end of a lost session that cannot continue."""
        commit = branch.newest[session]
        checkpoint = self.agreement.checkpoints.at(agent, commit)
        if checkpoint is None:
            return
        origin, resumes = checkpoint.journal
        reason = f"lost with the store, and a later session took its place; to continue it, fork it at {commit}"
        row = {"done": len(resumes), "status": CANCELLED, "ended_at": self.lifecycle.now(), "failure": {"message": reason}}
        row |= {"flow": origin.flow, "name": origin.name, "started_at": origin.started_at}
        core = self.core
        append_event(core, names.events(agent), core.agent_stamp(agent), *ending_of(agent, session, row))

    # Sessions of the store that git contradicts, and lost ones that can continue

    def _bring(self, agent: str, session: str, branch: BranchSessions) -> None:
        """Bring a session to what git proves of it."""
        with self.core.store.reading() as view:
            entries = view.streams.read(records.stream(agent, session))
        stored = records.journal_in(entries, session) if entries else None
        if stored is None:
            checkpoint = self.agreement.proved(agent, branch, session, None)
            if checkpoint is None:
                return
            self.lifecycle.check_beginning(checkpoint.journal.origin)  # anyone who can write notes could name another flow
            stored = Journal(checkpoint.journal.origin, [])
        dropped = branch.reopened.get(session, {}).get("dropped")
        if entries and entries[-1].body.get("event") == OVER and stored.resumes and stored.resumes[-1].call == dropped:
            del stored.resumes[-1]  # a retry made the request again
        run = self._proved(agent, session, branch, stored)
        over = None if entries and _has_ended(entries) else branch.over.get(session)
        if not run.turn.ended:
            self._put_waiting(agent, session, run.journal, run.turn, entries)
            self.core.reached("session-restored")
            if over is not None:
                self._put_over(agent, session, over)
            return
        *before, last = run.journal.resumes
        assert run.before is not None  # noqa: S101  # a session that never waited has no checkpoint
        self._put_waiting(agent, session, Journal(run.journal.origin, before), run.before, entries)
        self.core.reached("session-restored")
        self._finish(agent, session, last, run.turn, is_over=session in branch.over)

    def _proved(self, agent: str, session: str, branch: BranchSessions, stored: Journal) -> ProvedRun:
        """What git proves: the store's answers up to where git contradicts them, and the decisions that follow."""
        checkpoint = self.agreement.proved(agent, branch, session, stored)
        decisions = branch.of(session)
        git_resumes = [] if checkpoint is None else checkpoint.journal.resumes
        resumes = stored.resumes
        shared = common(git_resumes, resumes)
        if shared < len(git_resumes):  # behind, or contradicted
            resumes = git_resumes
        for number, resume in enumerate(resumes):
            if resume.decision is not None and not self.agreement.is_on(branch, decisions, resume):
                resumes = resumes[:number]
                break
        return self._with_decisions(Journal(stored.origin, list(resumes)), branch, session)

    def _with_decisions(self, journal: Journal, branch: BranchSessions, session: str) -> ProvedRun:
        """The run of a journal, continued with the decisions on the branch that answer its requests."""
        before: Turn | None = None
        if journal.resumes:
            with self.lifecycle.replay.run(Journal(journal.origin, journal.resumes[:-1])) as run:
                before = run.turn
        with self.lifecycle.replay.run(journal) as run:
            for decision in branch.of(session):
                call = next((call for call in run.turn.pending if call.number == decision.call), None)
                answered = any(resume.call == decision.call for resume in journal.resumes)
                if call is None or answered or not self.agreement.is_for(decision, call.payload):
                    continue
                at = timestamp_at(decision.commit.committer.at)
                resumed = Resumed(call.number, request_hash(call), decision.value, None, decision.cid, decision.commit.by, at)
                before = run.turn
                run.answer(call.number, resumed.answer())
                journal.resumes.append(resumed)
            return ProvedRun(journal, run.turn, before)

    def _put_waiting(self, agent: str, session: str, journal: Journal, turn: Turn, entries: Sequence[StreamEntry]) -> None:
        """Store a session that waits. Events that do not fit are kept aside."""
        origin, resumes = journal
        stream = records.stream(agent, session)
        stored = records.journal_in(entries, session).resumes if entries else []
        started = entries[0].body if entries else {}
        restored = {"restored": self.core.require_head(agent)}
        with self.core.store.writing() as transaction:
            if entries and common(stored, resumes) == len(stored) and not _has_ended(entries):
                events = [resumed_event(resume) | restored for resume in resumes[len(stored) :]]
                end = transaction.streams.append(stream, events, entries[-1].position)
            else:
                if entries:
                    transaction.streams.append(REPLACED + stream, [entry.body for entry in entries])
                    transaction.streams.forget(stream, entries[-1].position)
                start_fields = {key: started[key] for key in ("on", "by", "forked") if key in started}
                end = transaction.streams.append(stream, records.opening(origin, resumes, {**start_fields, **restored}))
            row = first_row(origin, len(resumes), end, started)
            before = self._live_row(transaction, agent, session)
            row = row if before is None else row._replace(since=before.since)
            row = waiting(row, turn, self.lifecycle.transitions.step_time())
            changes(agent, session, None, row).write(transaction)
            for key in (records.key(SNAPSHOT, agent, session), records.key(ENDED, agent, session), CHECKPOINT + agent):
                transaction.values.delete(key)
            count(transaction, agent, session)
            self._announce(transaction, agent, session, row, f"session {session} restored from git, with {len(resumes)} answers")

    def _live_row(self, view: Transaction, agent: str, session: str) -> SessionRow | None:
        """The complete row of a live session."""
        row = view.values.get(records.key(LIVE, agent, session))
        if row is None or not is_sound(row.value):
            return None
        return session_row(complete(view.values, agent, session, row.value))

    def _finish(self, agent: str, session: str, last: Resumed, turn: Turn, *, is_over: bool) -> None:
        """Apply the answer that ended a session. ``is_over``: git has the event of its end."""
        with self.core.store.reading() as view:
            row = self._live_row(view, agent, session)
        if row is None:
            return
        text = f"session {session} restored from git: its last answer"
        step = self.lifecycle.transitions.moved(LiveSession(agent, session, row), last, turn, None, (text, {}), 0)
        self.lifecycle.transitions.write(step._replace(ending=None) if is_over else step, row.end)

    def _put_over(self, agent: str, session: str, event: Mapping[str, Any]) -> None:
        """Store the end that git has of a session whose last answers are lost."""
        over = {"event": OVER, "status": event.get("status"), "at": event.get("ended_at"), "restored": True}
        over |= {"failure": {"reason": event.get("status"), "message": event["reason"]}} if event.get("reason") else {}
        with self.core.store.writing() as transaction:
            live = self._live_row(transaction, agent, session)
            if live is None:
                return
            end = transaction.streams.append(records.stream(agent, session), [over])
            row = live._replace(status=str(over["status"]), pending=(), since={}, waits=None, at=None, end=end)
            outcome = {key: over[key] for key in ("failure",) if key in over}
            transaction.values.put(records.key(ENDED, agent, session), row.to_json() | {"ended_at": over["at"]} | outcome)
            for prefix in (LIVE, SNAPSHOT):
                transaction.values.delete(records.key(prefix, agent, session))
            transaction.values.discard(prefix_of(agent, session))
            self._announce(transaction, agent, session, row, f"session {session} {row.status}, according to git")

    def _announce(self, transaction: Transaction, agent: str, session: str, row: SessionRow, text: str) -> None:
        """Add the repair to the trace and the feed."""
        entry = self.lifecycle.transitions.trace_entry(text, {"session": session, "status": row.status})
        transaction.streams.append(trace_stream(agent), [entry])
        append = feed_append(agent, session, row, self.lifecycle.now(), row.pending)
        transaction.streams.append(append.stream, append.bodies)


def count(transaction: Transaction, agent: str, session: str) -> None:
    """Raise the agent's counts to at least this session."""
    counts = session_counts(transaction.values, agent)
    counter, number = numbered(session)
    transaction.values.put(COUNTS + agent, counts | {counter: max(counts.get(counter, 0), number)})


def numbered(session: str) -> tuple[str, int]:
    """The counter of a session, and its number."""
    return "asks" if session.startswith(ASK) else "last", session_number(session.removeprefix(ASK))


def _has_ended(entries: Sequence[StreamEntry]) -> bool:
    return any(entry.body.get("event") == OVER for entry in entries)
