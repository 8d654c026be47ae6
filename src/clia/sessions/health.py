"""Checks and repairs of sessions, for ``clia doctor``.

Invariant: checking changes nothing, except that an agent of another machine is fetched, as always when it is named. Repairing
derives rows and snapshots from events; events are never removed. After losing the store, sessions are restored as far as git
has them, and what is missing is reported. Every repaired row is announced in the feed.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from clia.errors import CliaError, Nondeterminism, NoSuchAgent
from clia.sessions import records
from clia.sessions.checkpoints import counts_of
from clia.sessions.model import DIVERGED
from clia.sessions.records import (
    ASK,
    CHECKPOINT,
    COUNTS,
    ENDED,
    LIVE,
    OVER,
    SNAPSHOT,
    Resumed,
    is_sound,
    request_hash,
    request_hashes,
    session_row,
)
from clia.sessions.replay import LiveSession, read_replay_path
from clia.sessions.transitions import StepSummary, feed_append, first_row
from clia.space.events import read_events
from clia.values import refs as names
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from clia.engine.records import Turn
    from clia.sessions.checkpoints import Checkpoints
    from clia.sessions.records import Origin
    from clia.sessions.replay import Replay
    from clia.sessions.transitions import Transitions
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.store.interface import StreamEntry, Transaction

REOPENED = "reopened"


class Ailment(NamedTuple):
    """A problem of a session; ``repaired`` if it was just repaired."""

    code: str
    message: str
    agent: str
    session: str
    repaired: bool = False


class Health:
    def __init__(
        self,
        core: Core,
        envelope: Envelope,
        agents: Agents,
        checkpoints: Checkpoints,
        replay: Replay,
        transitions: Transitions,
        check_beginning: Callable[[Origin], None],
    ) -> None:
        self._core = core
        self._envelope = envelope
        self._agents = agents
        self._checkpoints = checkpoints
        self._replay = replay
        self._transitions = transitions
        self._check_beginning = check_beginning  # whether a session that only notes know of may be started again

    def examine(self, *, repair: bool = False) -> list[Ailment]:
        """Every problem, by agent and session; with ``repair``, after repairing."""
        known = self._known()
        found = [each for agent, session in known for each in self._session(agent, session, repair=repair)]
        found += self._numbers(known, repair=repair)
        return found + [each for agent in self._agents.names() for each in self._lost(agent, repair=repair)]

    def _known(self) -> list[tuple[str, str]]:
        """Every session that the store knows of, by its events or its row."""
        with self._core.store.reading() as view:
            found = {records.split(each.removeprefix("session/")) for each in view.streams.names("session/")}
            for prefix in (LIVE, ENDED):
                found.update(records.split(key.removeprefix(prefix)) for key, _ in view.values.scan(prefix))
        return sorted(found)

    def _numbers(self, known: list[tuple[str, str]], *, repair: bool) -> Iterator[Ailment]:
        """Compare an agent's session numbers with its sessions: no number may be reused."""
        last = {(agent, _numbered(session)[0]): session for agent, session in sorted(known, key=lambda each: _numbered(each[1])[1])}
        for (agent, which), session in sorted(last.items()):
            with self._core.store.reading() as view:
                kept = view.values.get(COUNTS + agent)
            if kept is not None and counts_of(kept.value).get(which, 0) >= _numbered(session)[1]:
                continue
            if repair:
                with self._envelope.at_work(agent), self._core.store.writing() as transaction:
                    _count(transaction, agent, session)
            yield Ailment("row-differs", "the numbers that were given out do not reach this session", agent, session, repair)

    def _session(self, agent: str, session: str, *, repair: bool) -> Iterator[Ailment]:
        with self._core.store.reading() as view:
            live = view.values.get(records.key(LIVE, agent, session))
            ended = view.values.get(records.key(ENDED, agent, session))
        try:
            if live is not None and self._core.refs.get(names.head(agent)) is None:
                if self._is_elsewhere(agent):
                    return  # a machine that has the agent reports on its session
                if self._core.refs.get(names.head(agent)) is None:
                    message = f"the session waits, and the agent's branch is gone; git branch agents/{agent} COMMIT brings it back"
                    yield Ailment("no-branch", message, agent, session)
                    return
            rows = (None if live is None else live.value, ended.value if ended is not None and is_sound(ended.value) else None)
            yield from self._compared(agent, session, *rows, repair=repair)
        except CliaError as err:
            yield Ailment(err.code, err.message, agent, session)

    def _is_elsewhere(self, agent: str) -> bool:
        """Whether an agent is only on another machine. One that the hub has is fetched."""
        if self._core.clone is None:
            return False  # the store belongs to this clone, so the agents were here
        try:
            self._core.seek(agent)
        except NoSuchAgent:
            return True
        return False

    def _compared(
        self, agent: str, session: str, live: dict[str, Any] | None, ended: dict[str, Any] | None, *, repair: bool
    ) -> Iterator[Ailment]:
        """Compare the rows with the events."""
        with self._core.store.reading() as view:
            events = view.streams.read(records.stream(agent, session))
        over = bool(events) and _kind(events[-1]) == OVER
        if over and live is None and ended is not None:
            if ended["status"] == DIVERGED:
                yield from self._diverged(agent, session, repair=repair)
            return
        if over:
            done = repair and self._put_ended(agent, session, events)
            yield Ailment("row-differs", "the session is over, and its row does not say so", agent, session, done)
            return
        row = self._derived(agent, session, events)
        if live is None or _essence(live) != _essence(row):
            done = repair and self._put_live(agent, session, row)
            yield Ailment("row-differs", "what the list shows is not what the events say", agent, session, done)
        yield from self._snapshot(agent, session, row, repair=repair)

    def _derived(self, agent: str, session: str, events: list[StreamEntry]) -> dict[str, Any]:
        """A live session's row, derived from its events."""
        with self._core.store.reading() as view:
            journal = records.read_journal(view, agent, session)
            before = view.values.get(records.key(LIVE, agent, session))
        with self._replay.run(journal) as run:
            turn = run.turn
        if turn.ended:
            raise Nondeterminism(
                "the events say that the session waits, and a replay of them ends",
                fields={"position": len(journal.resumes), "recorded": "a suspended run", "actual": "an end"},
            )
        first = events[0].body
        sound = before is not None and is_sound(before.value)
        since = {each[0]: each[5] for each in before.value["pending"]} if before is not None and sound else {}
        row = first_row(journal.origin, len(journal.resumes), events[-1].position, first)
        kept = before.value.get("kept", 0) if before is not None and sound else 0
        return self._transitions.row(row._replace(since=since, kept=kept), turn)

    def _put_live(self, agent: str, session: str, row: Mapping[str, Any]) -> bool:
        with self._envelope.at_work(agent), self._core.store.writing() as transaction:
            if transaction.streams.end(records.stream(agent, session)) != row["end"]:
                return False  # the session went on in between
            transaction.values.put(records.key(LIVE, agent, session), dict(row))
            transaction.values.delete(records.key(ENDED, agent, session))
            _count(transaction, agent, session)
            self._tell(transaction, agent, session, row, StepSummary("", {}, waited={each[0] for each in row["pending"]}))
        return True

    def _put_ended(self, agent: str, session: str, events: list[StreamEntry]) -> bool:
        with self._core.store.reading() as view:
            journal = records.read_journal(view, agent, session)
        over, first = events[-1].body, events[0].body
        row: dict[str, Any] = {"flow": journal.origin.flow, "name": journal.origin.name, "started_at": journal.origin.started_at}
        row |= {key: over[key] for key in ("status", "result", "failure") if key in over}
        row |= {key: first[key] for key in ("on", "forked") if first.get(key) is not None}
        row |= {"done": len(journal.resumes), "end": events[-1].position, "pending": [], "ended_at": over.get("at")}
        with self._envelope.at_work(agent), self._core.store.writing() as transaction:
            transaction.values.put(records.key(ENDED, agent, session), row)
            for prefix in (LIVE, SNAPSHOT):
                transaction.values.delete(records.key(prefix, agent, session))
            _count(transaction, agent, session)
            self._tell(transaction, agent, session, row)
        return True

    def _snapshot(self, agent: str, session: str, row: Mapping[str, Any], *, repair: bool) -> Iterator[Ailment]:
        """An unusable snapshot does no harm: it is a cache, and is deleted."""
        key = records.key(SNAPSHOT, agent, session)
        with self._core.store.reading() as view:
            kept = view.values.get(key)
            if kept is None:
                return
            live = LiveSession(agent, session, session_row(row))
            path = read_replay_path(view, live)
        if self._replay.can_use(live, path):
            return
        done = False
        if repair:
            with self._envelope.at_work(agent), self._core.store.writing() as transaction:
                transaction.values.delete(key)
            done = True
        yield Ailment("snapshot", "its snapshot is damaged or another engine's, and every resume replays", agent, session, done)

    def _diverged(self, agent: str, session: str, *, repair: bool) -> Iterator[Ailment]:
        """A session that diverged may replay with the current engine."""
        with self._core.store.reading() as view:
            events = view.streams.read(records.stream(agent, session))
        try:
            derived = self._derived(agent, session, events)
        except Nondeterminism as err:
            yield Ailment(err.code, f"diverged: {err.message}", agent, session)
            return
        done = repair and self._reopen(agent, session, derived)
        yield Ailment("replays-again", "it diverged, and the engine that is here replays it well", agent, session, done)

    def _reopen(self, agent: str, session: str, row: dict[str, Any]) -> bool:
        with self._envelope.at_work(agent), self._core.store.writing() as transaction:
            counts = transaction.values.get(COUNTS + agent)
            if session.startswith(ASK) or counts is None or str(counts_of(counts.value).get("last")) != session:
                return False  # a later session took its place
            event = {"event": REOPENED, "at": self._transitions.now()}
            end = transaction.streams.append(records.stream(agent, session), [event], row["end"])
            transaction.values.put(records.key(LIVE, agent, session), row | {"end": end})
            transaction.values.delete(records.key(ENDED, agent, session))
            transaction.values.delete(CHECKPOINT + agent)  # the next checkpoint is a full one
            self._tell(transaction, agent, session, row)
        return True

    def _tell(
        self, transaction: Transaction, agent: str, session: str, row: Mapping[str, Any], said: StepSummary | None = None
    ) -> None:
        news = feed_append(agent, session, row, self._transitions.now(), said)
        transaction.streams.append(news.stream, news.bodies)

    # Sessions that only git knows of

    def _lost(self, agent: str, *, repair: bool) -> Iterator[Ailment]:
        """A session that was live at the agent's head and is missing in the store."""
        head = self._core.refs.get(names.head(agent))
        if head is None or self._core.refs.get(names.sessions(agent)) is None:
            return
        try:
            found = self._checkpoints.at(agent, head)
            if found is None or not self._is_lost(agent, found.session):
                return
            done = repair and self._restore(agent, head)
        except CliaError as err:
            yield Ailment(err.code, err.message, agent, "")
            return
        message = f"git has it as it was at {head[:12]}, and the store knows nothing of it; answers since then are lost"
        yield Ailment("lost-session", message, agent, found.session, done)

    def _is_lost(self, agent: str, session: str) -> bool:
        with self._core.store.reading() as view:
            if view.streams.end(records.stream(agent, session)) or view.values.get(COUNTS + agent) is not None:
                return False
            if view.values.get(f"foreign/{agent}") is not None:
                return False
        tip = self._core.refs.get(names.events(agent))
        ended = (event.body for event in read_events(self._core, tip)) if tip else ()
        return not any(body.get("event") == "session-ended" and body.get("session") == session for body in ended)

    def _decided(self, head: str, session: str, turn: Turn) -> Resumed | None:
        """The answer in the head itself: a decision's checkpoint is the state before it."""
        commit = self._core.read(head)
        if commit.kind != DECISION or commit.request is None or commit.value is None:
            return None
        number = _number(commit.request, session)
        for call in turn.pending:
            if call.number == number:
                return Resumed(number, request_hash(call), json.loads(commit.value), None, head, commit.by, None)
        return None

    def _restore(self, agent: str, head: str) -> bool:
        found = self._checkpoints.at(agent, head)
        if found is None:
            return False
        origin, resumes = found.journal
        self._check_beginning(origin)  # anyone who can write notes could name another flow
        with self._replay.run(found.journal) as run:
            decided = self._decided(head, found.session, run.turn)
            if decided is not None:
                resumes = [*resumes, decided]
                run.answer(decided.call, decided.answer())
            turn = run.turn
        if turn.ended:
            return False
        events = records.opening(origin, resumes, {"restored": head})
        row = self._transitions.row(first_row(origin, len(resumes), len(events), {}), turn)
        with self._envelope.at_work(agent), self._core.store.writing() as transaction:
            transaction.streams.append(records.stream(agent, found.session), events, 0)
            transaction.values.put(records.key(LIVE, agent, found.session), row)
            _count(transaction, agent, found.session)
            self._tell(transaction, agent, found.session, row)
        return True


def _number(request: str, session: str) -> int:
    """The call number in a request id of this session."""
    own, _, number = request.rpartition(".")
    return int(number) if own == session and number.isascii() and number.isdigit() else 0


def _count(transaction: Any, agent: str, session: str) -> None:
    """Raise the agent's counts to at least this session."""
    kept = transaction.values.get(COUNTS + agent)
    counts = {} if kept is None else counts_of(kept.value)
    which, number = _numbered(session)
    counts[which] = max(counts.get(which, 0), number)
    transaction.values.put(COUNTS + agent, counts)


def _numbered(session: str) -> tuple[str, int]:
    """The counter of a session, and its number."""
    which, number = ("asks", session.removeprefix(ASK)) if session.startswith(ASK) else ("last", session)
    return which, int(number) if number.isascii() and number.isdigit() else 0


def _kind(entry: StreamEntry) -> str | None:
    return entry.body.get("event") if isinstance(entry.body, dict) else None


def _essence(row: Mapping[str, Any]) -> Any:
    """The fields that must agree: all but times."""
    if not is_sound(row):
        return None
    pending = request_hashes(session_row(row).pending)
    return [row.get(key) for key in ("flow", "name", "status", "started_at", "done", "end")], pending
