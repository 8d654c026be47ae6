"""Checks and repairs of sessions and refs, for ``clia doctor``.

Invariant: checking changes nothing, except that an agent that only another machine has is fetched. Repairing derives rows and
snapshots from events; events are never removed. After losing the store, sessions are restored as far as git has them, and what is
missing is reported. Every repaired row is announced in the feed.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.errors import CliaError, CorruptJournal, Nondeterminism, NoSuchAgent
from clia.sessions import records
from clia.sessions.checkpoints import session_counts, session_number
from clia.sessions.model import DIVERGED
from clia.sessions.records import ASK, CHECKPOINT, COUNTS, ENDED, LIVE, OVER, SNAPSHOT, Resumed, is_sound, request_hash, session_row
from clia.sessions.replay import LiveSession, read_replay_path
from clia.sessions.request_rows import changes, complete, prefix_of, waiting
from clia.sessions.transitions import feed_append, first_row
from clia.space.events import read_events
from clia.space.lost_moves import LostMove
from clia.space.remotes import lock_of, owner_of, title_of
from clia.store.interface import FOREIGN
from clia.values import refs as names
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from clia.engine.records import FlowCall, Turn
    from clia.errors import StoreError
    from clia.sessions.checkpoints import CheckpointedSession, Checkpoints
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.records import SessionRow
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.lost_moves import LostMoves
    from clia.store.interface import StreamEntry, Transaction

REOPENED = "reopened"


class Ailment(NamedTuple):
    """A problem of a session or of a ref; ``repaired`` if it was just repaired."""

    code: str  # kind of problem
    message: str  # one sentence for a person
    agent: str  # the agent; of a ref of no agent: its name in parentheses; empty: the whole store
    session: str  # session id; empty: it is about a ref, or the whole store
    repaired: bool = False  # whether it was repaired just now


class Health(NamedTuple):
    core: Core
    envelope: Envelope
    agents: Agents
    checkpoints: Checkpoints
    lifecycle: Lifecycle
    lost_moves: LostMoves

    def examine(self, *, repair: bool = False) -> list[Ailment]:
        """Every problem: of the store, then by agent and session; with ``repair``, after repairing."""
        guard = self.core.store.guard
        problem = None if guard is None else guard.problem()
        if guard is None or problem is None or not repair:
            found = [] if problem is None else [_of_store(problem, repaired=False)]
            return found + self._sessions(repair=repair)
        with guard.repairing(problem.message):
            self.envelope.recover_all()
            ailments = self._sessions(repair=True)
        return [_of_store(problem, repaired=True), *ailments]

    def _sessions(self, *, repair: bool) -> list[Ailment]:
        with self.core.store.reading() as view:  # a session is known by its events or its row
            keys = [*view.streams.names("session/"), *(key for prefix in (LIVE, ENDED) for key, _ in view.values.scan(prefix))]
        sessions = sorted(set(map(records.split, keys)))
        ailments = [ailment for agent, session in sessions for ailment in self._session(agent, session, repair=repair)]
        ailments += self._numbers(sessions, repair=repair)
        ailments += [ailment for agent in self.agents.names() for ailment in self._lost(agent, repair=repair)]
        return [*self._refs(repair=repair), *ailments]

    def _refs(self, *, repair: bool) -> Iterator[Ailment]:
        """Refs that went back or vanished."""
        for loss in self.lost_moves.find():
            owner = title_of(owner_of(lock_of(loss.ref)))
            if isinstance(loss, LostMove):
                yield Ailment(loss.code, loss.message(), owner, "", repair and self.lost_moves.repair(loss))
            else:
                yield Ailment(loss.error.code, loss.error.message, owner, "")

    def _numbers(self, sessions: list[tuple[str, str]], *, repair: bool) -> Iterator[Ailment]:
        """Compare an agent's session numbers with its sessions: no number may be reused."""
        by_number = sorted(sessions, key=lambda session: _numbered(session[1])[1])
        last = {(agent, _numbered(session)[0]): session for agent, session in by_number}
        for (agent, counter), session in sorted(last.items()):
            if session_counts(self.core.store, agent).get(counter, -1) >= _numbered(session)[1]:
                continue
            if repair:
                with self.envelope.at_work(agent), self.core.store.writing() as transaction:
                    _count(transaction, agent, session)
            yield Ailment("row-differs", "the session counter is lower than this session's number", agent, session, repair)

    def _session(self, agent: str, session: str, *, repair: bool) -> Iterator[Ailment]:
        with self.core.store.reading() as view:
            live = view.values.get(records.key(LIVE, agent, session))
            ended = view.values.get(records.key(ENDED, agent, session))
        try:
            if live is not None and self.core.refs.get(names.head(agent)) is None:
                if self._is_elsewhere(agent):
                    return  # a machine that has the agent reports on its session
                if self.core.refs.get(names.head(agent)) is None:
                    message = f"the session waits, but the agent's branch is missing; restore it: git branch agents/{agent} COMMIT"
                    yield Ailment("no-branch", message, agent, session)
                    return
            ended_row = ended.value if ended is not None and is_sound(ended.value) else None
            live_row = None if live is None else self._whole(agent, session, live.value)
            yield from self._compared(agent, session, live_row, ended_row, repair=repair)
        except CliaError as err:
            yield Ailment(err.code, err.message, agent, session)

    def _whole(self, agent: str, session: str, row: Any) -> Any:
        """A row with all of its pending requests, as far as it is well-formed."""
        try:
            return complete(self.core.store, agent, session, row) if is_sound(row) else row
        except CorruptJournal:
            return row

    def _is_elsewhere(self, agent: str) -> bool:
        """Whether an agent is only on another machine. One that the hub has is fetched."""
        if self.core.clone is None:
            return False  # the store belongs to this clone, so the agents were here
        try:
            self.core.seek(agent)
        except NoSuchAgent:
            return True
        return False

    def _compared(
        self, agent: str, session: str, live: dict[str, Any] | None, ended: dict[str, Any] | None, *, repair: bool
    ) -> Iterator[Ailment]:
        """Compare the rows with the events."""
        with self.core.store.reading() as view:
            events = view.streams.read(records.stream(agent, session))
        last = events[-1].body if events else None
        over = isinstance(last, dict) and last.get("event") == OVER
        if over and live is None and ended is not None:
            if ended["status"] == DIVERGED:
                yield from self._diverged(agent, session, events, repair=repair)
            return
        if over:
            repaired = repair and self._put_ended(agent, session, events)
            yield Ailment("row-differs", "the session has ended, but its row is still live", agent, session, repaired)
            return
        row = self._derived(agent, session, events)
        if live is None or _essence(live) != _essence(row.to_json() | {"pending": row.calls()}):
            repaired = repair and self._put_live(agent, session, row)
            yield Ailment("row-differs", "its row differs from its events", agent, session, repaired)
        yield from self._snapshot(agent, session, row, repair=repair)

    def _derived(self, agent: str, session: str, events: list[StreamEntry]) -> SessionRow:
        """A live session's row, derived from its events."""
        with self.core.store.reading() as view:
            journal = records.read_journal(view, agent, session)
            before = view.values.get(records.key(LIVE, agent, session))
        with self.lifecycle.replay.run(journal) as run:
            turn = run.turn
        if turn.ended:
            raise Nondeterminism(
                "its events show a waiting session, but their replay ends",
                fields={"position": len(journal.resumes), "recorded": "a suspended run", "actual": "an end"},
            )
        row = first_row(journal.origin, len(journal.resumes), events[-1].position, events[0].body)
        if before is not None and is_sound(before.value):
            before_row = session_row(self._whole(agent, session, before.value))
            row = row._replace(since=before_row.since, kept=before_row.kept, due=before_row.due)
        row = row._replace(redacted=records.redacted_in(events))
        return waiting(row, turn, self.lifecycle.transitions.step_time())

    def _put_live(self, agent: str, session: str, row: SessionRow) -> bool:
        with self.envelope.at_work(agent), self.core.store.writing() as transaction:
            if transaction.streams.end(records.stream(agent, session)) != row.end:
                return False  # the session continued in between
            changes(agent, session, None, row).write(transaction)
            transaction.values.delete(records.key(ENDED, agent, session))
            _count(transaction, agent, session)
            self._announce(transaction, agent, session, row, ())
        return True

    def _put_ended(self, agent: str, session: str, events: list[StreamEntry]) -> bool:
        with self.core.store.reading() as view:
            journal = records.read_journal(view, agent, session)
        over, first = events[-1].body, events[0].body
        row = {key: first[key] for key in ("flow", "name", "started_at")}
        row |= {key: over[key] for key in ("status", "result", "failure", "redacted") if key in over}
        row |= {key: first[key] for key in ("on", "forked") if first.get(key) is not None}
        row |= {"done": len(journal.resumes), "end": events[-1].position, "pending": [], "ended_at": over.get("at")}
        with self.envelope.at_work(agent), self.core.store.writing() as transaction:
            transaction.values.put(records.key(ENDED, agent, session), row)
            for prefix in (LIVE, SNAPSHOT):
                transaction.values.delete(records.key(prefix, agent, session))
            transaction.values.discard(prefix_of(agent, session))
            _count(transaction, agent, session)
            shown = first_row(journal.origin, 0, 0, {})._replace(status=row["status"])
            self._announce(transaction, agent, session, shown, ())
        return True

    def _snapshot(self, agent: str, session: str, row: SessionRow, *, repair: bool) -> Iterator[Ailment]:
        """An unusable snapshot does no harm: it is a cache, and is deleted."""
        key = records.key(SNAPSHOT, agent, session)
        with self.core.store.reading() as view:
            if view.values.get(key) is None:
                return
            live = LiveSession(agent, session, row)
            path = read_replay_path(view, live)
        if self.lifecycle.replay.can_use(live, path):
            return
        if repair:
            with self.envelope.at_work(agent), self.core.store.writing() as transaction:
                transaction.values.delete(key)
        yield Ailment("snapshot", "its snapshot is damaged or from another engine, so every resume replays", agent, session, repair)

    def _diverged(self, agent: str, session: str, events: list[StreamEntry], *, repair: bool) -> Iterator[Ailment]:
        """A session that diverged may replay with the current engine."""
        try:
            derived = self._derived(agent, session, events)
        except Nondeterminism as err:
            yield Ailment(err.code, f"diverged: {err.message}", agent, session)
            return
        repaired = repair and self._reopen(agent, session, derived)
        yield Ailment("replays-again", "it diverged, but the current engine replays it", agent, session, repaired)

    def _reopen(self, agent: str, session: str, row: SessionRow) -> bool:
        with self.envelope.at_work(agent), self.core.store.writing() as transaction:
            if session.startswith(ASK) or str(session_counts(transaction.values, agent).get("last")) != session:
                return False  # a later session took its place
            event = {"event": REOPENED, "at": self.lifecycle.now()}
            end = transaction.streams.append(records.stream(agent, session), [event], row.end)
            changes(agent, session, None, row._replace(end=end)).write(transaction)
            transaction.values.delete(records.key(ENDED, agent, session))
            transaction.values.delete(CHECKPOINT + agent)  # the next checkpoint is a full one
            self._announce(transaction, agent, session, row, row.pending)
        return True

    def _announce(self, transaction: Transaction, agent: str, session: str, row: SessionRow, added: Sequence[FlowCall]) -> None:
        append = feed_append(agent, session, row, self.lifecycle.now(), added)
        transaction.streams.append(append.stream, append.bodies)

    # Sessions that only git knows of

    def _lost(self, agent: str, *, repair: bool) -> Iterator[Ailment]:
        """A session that was live at the agent's head and is missing in the store."""
        head = self.core.refs.get(names.head(agent))
        if head is None or self.core.refs.get(names.sessions(agent)) is None:
            return
        try:
            checkpoint = self.checkpoints.at(agent, head)
            if checkpoint is None or not self._is_lost(agent, checkpoint.session):
                return
            repaired = repair and self._restore(agent, head, checkpoint)
        except CliaError as err:
            yield Ailment(err.code, err.message, agent, "")
            return
        message = f"git has it as of {head[:12]}, but the store has lost it; later answers are lost"
        yield Ailment("lost-session", message, agent, checkpoint.session, repaired)

    def _is_lost(self, agent: str, session: str) -> bool:
        with self.core.store.reading() as view:
            rows = [view.values.get(key) for key in (COUNTS + agent, FOREIGN + agent)]
            if view.streams.end(records.stream(agent, session)) or any(row is not None for row in rows):
                return False
        bodies = (event.body for event in read_events(self.core, self.core.refs.get(names.events(agent))))
        return not any(body.get("event") == "session-ended" and body.get("session") == session for body in bodies)

    def _decided(self, head: str, session: str, turn: Turn) -> Resumed | None:
        """The answer in the head itself: a decision's checkpoint is the state before it."""
        commit = self.core.read(head)
        if commit.kind != DECISION or commit.request is None or commit.value is None:
            return None
        for call in turn.pending:
            if commit.request == f"{session}.{call.number}":
                return Resumed(call.number, request_hash(call), json.loads(commit.value), None, head, commit.by, None)
        return None

    def _restore(self, agent: str, head: str, checkpoint: CheckpointedSession) -> bool:
        session, (origin, resumes) = checkpoint
        self.lifecycle.check_beginning(origin)  # anyone who can write notes could name another flow
        with self.lifecycle.replay.run(checkpoint.journal) as run:
            decided = self._decided(head, session, run.turn)
            if decided is not None:
                resumes = [*resumes, decided]
                run.answer(decided.call, decided.answer())
            turn = run.turn
        if turn.ended:
            return False
        events = records.opening(origin, resumes, {"restored": head})
        row = waiting(first_row(origin, len(resumes), len(events), {}), turn, self.lifecycle.transitions.step_time())
        with self.envelope.at_work(agent), self.core.store.writing() as transaction:
            transaction.streams.append(records.stream(agent, session), events, 0)
            changes(agent, session, None, row).write(transaction)
            _count(transaction, agent, session)
            self._announce(transaction, agent, session, row, row.pending)
        return True


def _of_store(problem: StoreError, *, repaired: bool) -> Ailment:
    return Ailment(problem.code, problem.message, "", "", repaired)


def _count(transaction: Transaction, agent: str, session: str) -> None:
    """Raise the agent's counts to at least this session."""
    counts = session_counts(transaction.values, agent)
    counter, number = _numbered(session)
    transaction.values.put(COUNTS + agent, counts | {counter: max(counts.get(counter, 0), number)})


def _numbered(session: str) -> tuple[str, int]:
    """The counter of a session, and its number."""
    return "asks" if session.startswith(ASK) else "last", session_number(session.removeprefix(ASK))


def _essence(row: Mapping[str, Any]) -> Any:
    """The fields that must agree: all but times."""
    if not is_sound(row) or "pending" not in row:
        return None
    pending = list(map(request_hash, session_row(row).pending))
    return [row.get(key) for key in ("flow", "name", "status", "started_at", "done", "end")], pending
