"""Checks and repairs of sessions and refs, for ``clia doctor``.

Invariant: checking changes nothing, except that an agent that only another machine has is fetched. Repairing derives rows and
snapshots from events. Where the store and git differ, sessions are repaired from git (``repairs``), and what is missing is
reported. Every repaired row is announced in the feed.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.engine.records import Turn
from clia.errors import CliaError, CorruptJournal, Nondeterminism, NoSuchAgent, StaleRef
from clia.sessions import records
from clia.sessions.checkpoints import known_head, session_counts
from clia.sessions.model import DIVERGED
from clia.sessions.records import ASK, ENDED, LIVE, OVER, SNAPSHOT, is_sound, request_hash, session_row
from clia.sessions.repairs import count, numbered
from clia.sessions.replay import LiveSession, read_replay_path
from clia.sessions.request_rows import changes, complete, prefix_of, waiting
from clia.sessions.transitions import feed_append, first_row
from clia.space.lost_moves import LostMove
from clia.space.remotes import lock_of, owner_of, title_of
from clia.space.rewritten import Rewritten
from clia.store.interface import KNOWN
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from clia.engine.records import FlowCall
    from clia.errors import StoreError
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.records import SessionRow
    from clia.sessions.reopening import Reopening
    from clia.sessions.repairs import Repairs
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.lost_moves import LostMoves
    from clia.space.traces import Traces
    from clia.store.interface import StreamEntry, Transaction


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
    lifecycle: Lifecycle
    lost_moves: LostMoves
    traces: Traces
    repairs: Repairs
    reopening: Reopening

    def examine(self, *, repair: bool = False) -> list[Ailment]:
        """Every problem: of the store, then by agent and session; with ``repair``, after repairing."""
        guard = self.core.store.guard
        problem = None if guard is None else guard.problem()
        if guard is None or problem is None or not repair:
            problems = [] if problem is None else [_of_store(problem, repaired=False)]
            return problems + self._sessions(repair=repair)
        with guard.repairing(problem.message):
            self.envelope.recover_all()
            ailments = [*self._forget_bound(), *self._sessions(repair=True)]
        return [_of_store(problem, repaired=True), *ailments]

    def _forget_bound(self) -> Iterator[Ailment]:
        """Forget pending entries that a trace has. An agent that cannot be worked on does not stop the repair of others."""
        for name in self.agents.names():
            try:
                self.traces.forget_bound(name)
            except CliaError as err:
                yield Ailment(err.code, err.message, name, "")

    def _sessions(self, *, repair: bool) -> list[Ailment]:
        ailments = list(self._refs(repair=repair))
        ailments += self._branches(repair=repair)
        ailments += [ailment for agent in self.agents.names() for ailment in self._differences(agent, repair=repair)]
        ailments += self._stored(repair=repair)
        return ailments

    def _stored(self, *, repair: bool) -> list[Ailment]:
        """Problems of the sessions in the store."""
        with self.core.store.reading() as view:  # a session is known by its events or its row
            keys = [*view.streams.names("session/"), *(key for prefix in (LIVE, ENDED) for key, _ in view.values.scan(prefix))]
        sessions = sorted(set(map(records.split, keys)))
        ailments = [ailment for agent, session in sessions for ailment in self._session(agent, session, repair=repair)]
        return ailments + list(self._numbers(sessions, repair=repair))

    def _branches(self, *, repair: bool) -> Iterator[Ailment]:
        """Waiting sessions of agents without a branch; it is restored if it was not archived and its last commit is known."""
        waiting: dict[str, list[str]] = {}
        for agent, session in sorted(records.split(key) for key, _ in self.core.store.scan(LIVE)):
            waiting.setdefault(agent, []).append(session)
        refs = self.core.refs
        for agent, sessions in waiting.items():
            if refs.get(names.head(agent)) is not None or self._is_elsewhere(agent):
                continue
            if refs.get(names.head(agent)) is not None:
                continue  # it was fetched from the hub
            archived = refs.get(names.archived(agent)) is not None
            head = None if archived else self._last_head(agent)
            repaired = repair and head is not None
            if repaired:
                with self.envelope.at_work(agent), suppress(StaleRef):  # the hub had it
                    refs.move(names.head(agent), None, head, "clia: repair")
            command = f"clia archive {agent} --restore" if archived else f"git branch agents/{agent} {head or 'COMMIT'}"
            message = f"the session waits, but the agent's branch is missing; restore it: {command}"
            yield from (Ailment("no-branch", message, agent, session, repaired) for session in sessions)

    def _last_head(self, agent: str) -> str | None:
        """The last known head of an agent without a branch: from the store, or a later one that was logged or read."""
        agreed_row = self.core.store.get(KNOWN + agent)
        head = None if agreed_row is None else known_head(agreed_row.value)
        candidates = [] if head is None else [head.head]
        candidates += [loss.cid for loss in self.lost_moves.of_branch(agent)]
        newest: str | None = None
        for cid in candidates:
            if self.core.objects.kind(cid) == "commit" and (newest is None or self.core.contains(cid, newest)):
                newest = cid
        return newest

    def _differences(self, agent: str, *, repair: bool) -> Iterator[Ailment]:
        """Differences between the store and git."""
        try:
            yield from self._left_notes(agent, repair=repair)  # first: checkpoints on the branch prove sessions
            for difference in self.repairs.agreement.differences(agent):
                repaired = repair and self.repairs.repair(difference)
                yield Ailment(difference.code, difference.message, agent, difference.session, repaired)
            if repair and self._has_live(agent):
                with self.envelope.at_work(agent):
                    self.repairs.confirm(agent, self.core.require_head(agent))
        except CliaError as err:
            yield Ailment(err.code, err.message, agent, "")

    def _left_notes(self, agent: str, *, repair: bool) -> Iterator[Ailment]:
        """Notes of commits that a rebase replaced, of an agent with sessions."""
        core, rewritten = self.core, Rewritten(self.core)
        head = core.refs.get(names.head(agent))
        if head is None or core.refs.get(names.sessions(agent)) is None or self.repairs.agreement.is_foreign(agent):
            return
        count = len({note.commit for note in rewritten.left(agent, head)})
        if count:
            if repair:
                with self.envelope.at_work(agent):
                    rewritten.carry(agent, core.require_head(agent))
            message = f"traces and checkpoints of {count} commits are bound to the former commits, from before a rebase"
            yield Ailment("notes-left", message, agent, "", repair)

    def _has_live(self, agent: str) -> bool:
        return bool(self.core.store.scan(f"{LIVE}{agent}/"))

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
        by_number = sorted(sessions, key=lambda session: numbered(session[1])[1])
        last = {(agent, numbered(session)[0]): session for agent, session in by_number}
        for (agent, counter), session in sorted(last.items()):
            if session_counts(self.core.store, agent).get(counter, -1) >= numbered(session)[1]:
                continue
            if repair:
                with self.envelope.at_work(agent), self.core.store.writing() as transaction:
                    count(transaction, agent, session)
            yield Ailment("row-differs", "the session counter is lower than this session's number", agent, session, repair)

    def _session(self, agent: str, session: str, *, repair: bool) -> Iterator[Ailment]:
        with self.core.store.reading() as view:
            live = view.values.get(records.key(LIVE, agent, session))
            ended = view.values.get(records.key(ENDED, agent, session))
        try:
            if live is not None and self.core.refs.get(names.head(agent)) is None:
                return  # reported above, or by a machine that has the agent
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
            count(transaction, agent, session)
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
            count(transaction, agent, session)
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
        with self.envelope.at_work(agent):
            if session.startswith(ASK) or str(session_counts(self.core.store, agent).get("last")) != session:
                return False  # a later session took its place
            self.reopening.reopen(agent, session, Turn(row.pending))
        return True

    def _announce(self, transaction: Transaction, agent: str, session: str, row: SessionRow, added: Sequence[FlowCall]) -> None:
        append = feed_append(agent, session, row, self.lifecycle.now(), added)
        transaction.streams.append(append.stream, append.bodies)


def _of_store(problem: StoreError, *, repaired: bool) -> Ailment:
    return Ailment(problem.code, problem.message, "", "", repaired)


def _essence(row: Mapping[str, Any]) -> Any:
    """The fields that must agree: all but times."""
    if not is_sound(row) or "pending" not in row:
        return None
    pending = list(map(request_hash, session_row(row).pending))
    return [row.get(key) for key in ("flow", "name", "status", "started_at", "done", "end")], pending
