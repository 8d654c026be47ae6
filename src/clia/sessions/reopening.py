"""Sessions that continue after they had ended: failed ones that a person retries, and diverged ones that replay again.

A failed session is retried from its last step. If a worker or a program gave the last answer, the request is made again, and that
answer no longer counts. A person's decision stays, and so does the answer after which the flow exceeded a limit: then the flow's
last turn is run again, and if it fails again, nothing is recorded.

Invariant: the move of the agent's events in git is the point of no return. The journal keeps every event, also those of the end.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.engine.records import LIMIT
from clia.errors import Conflict
from clia.sessions import records
from clia.sessions.checkpoints import live_row, session_counts
from clia.sessions.lifecycle import no_session
from clia.sessions.model import FAILED
from clia.sessions.records import ASK, ENDED, REOPENED, RETRIED, Journal, is_sound
from clia.sessions.replay import nondeterminism, release
from clia.sessions.transitions import SessionStep, StepSummary, first_row
from clia.values import refs as names
from clia.values.commit_messages import check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.engine.records import Turn
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.model import Session
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.store.interface import StreamEntry, Transaction


class EndedSession(NamedTuple):
    """A session that has ended: its row and its events."""

    agent: str
    session: str
    row: Mapping[str, Any]
    entries: Sequence[StreamEntry]
    journal: Journal

    @property
    def runs_again(self) -> bool:
        """Whether a retry runs the last turn again; otherwise it makes the last request again."""
        failure, resumes = self.row.get("failure") or {}, self.journal.resumes
        return not resumes or resumes[-1].decision is not None or failure.get("reason") == LIMIT


class Reopening(NamedTuple):
    core: Core
    envelope: Envelope
    lifecycle: Lifecycle

    def retry(self, agent: str, reason: str, by: str | None, session: str | None) -> Session:
        """Retry a failed session from its last step."""
        names.check_name(agent)
        author = self.lifecycle.by(by)
        why = self.core.clean.text(check_text(reason, "reason"), "reason")
        with self.envelope.at_work(agent):
            head = self.core.own_head(agent)
            ended = self._failed(agent, session)
            self.lifecycle.check_running(ended.row["name"])
            agreed_rows = self.lifecycle.checkpoints.agree(agent, head, ended.session)
            turn = self._turn_again(ended) if ended.runs_again else self._turn_before(ended)
            event: dict[str, Any] = {"event": RETRIED, "by": author, "why": why, "at": self.lifecycle.now()}
            if not ended.runs_again:
                event["dropped"] = ended.journal.resumes[-1].call
            text = f"session {ended.session} retried by {author}"
            row = self._reopen(ended, event, turn, f"{text}: {why}" if why else text, agreed_rows)
        return self.lifecycle.as_session(agent, ended.session, row)

    def reopen(self, agent: str, session: str, turn: Turn) -> None:
        """Continue a session that diverged, and replays now up to this turn. The caller holds the agent's lock."""
        with self.core.store.reading() as view:
            row = view.values.get(records.key(ENDED, agent, session))
            ended = None if row is None else _ended(view, agent, session, row.value)
        if ended is not None:
            self._reopen(ended, {"event": REOPENED, "at": self.lifecycle.now()}, turn, f"session {session} reopened")

    def _failed(self, agent: str, session: str | None) -> EndedSession:
        """The agent's failed session; an error if it has not failed, or another one took its place."""
        with self.core.store.reading() as view:
            live, last = live_row(view.values, agent), str(session_counts(view.values, agent).get("last", ""))
            chosen = (last if live is None else live[0]) if session is None else check_text(session, "session")
            stored = view.values.get(records.key(ENDED, agent, chosen)) if chosen else None
            ended = None if stored is None or not is_sound(stored.value) else _ended(view, agent, chosen, stored.value)
        fields: dict[str, Any] = {"agent": agent, "session": chosen}
        if ended is None or chosen.startswith(ASK) or ended.row["status"] != FAILED:
            if not chosen:
                raise no_session(agent, None)
            status = self.lifecycle.session(agent, chosen).status  # raises if there is none
            message = f"session {chosen} of {agent!r} is {status}; only a failed session can be retried"
            raise Conflict(message, code="not-failed", fields=fields | {"status": status})
        if live is not None or chosen != last:
            message = f"session {chosen} of {agent!r} cannot be retried: a later session took its place"
            hints = [f"continue it under another agent: clia session fork {agent} NEW --at COMMIT"]
            raise Conflict(message, code="session-superseded", hints=hints, fields=fields)
        return ended

    def _turn_before(self, ended: EndedSession) -> Turn:
        """The flow's turn before its last answer: it waits for the request."""
        origin, resumes = ended.journal
        with self.lifecycle.replay.run(Journal(origin, resumes[:-1])) as run:
            turn = run.turn
        if turn.ended:
            raise nondeterminism(len(resumes) - 1, "a suspended run", turn)
        return turn

    def _turn_again(self, ended: EndedSession) -> Turn:
        """The flow's last turn, run again."""
        result = self.lifecycle.replay.last_turn(ended.journal)
        release(result.run)
        failure = result.turn.failure
        if failure is not None:
            hints = [f"continue from an earlier commit: clia session fork {ended.agent} NEW --at COMMIT"]
            hints.append("or define a corrected flow, and start a new session")
            message = f"session {ended.session} of {ended.agent!r} fails again: {failure.message}"
            raise Conflict(message, code="fails-again", hints=hints, fields={"agent": ended.agent, "session": ended.session})
        return result.turn

    def _reopen(
        self,
        ended: EndedSession,
        event: dict[str, Any],
        turn: Turn,
        text: str,
        puts: Sequence[tuple[str, Any]] = (),
    ) -> Any:
        """Record that a session continues; returns its row."""
        agent, session, _, entries, journal = ended
        dropped = event.get("dropped")
        done = len(journal.resumes) - (dropped is not None)
        row = first_row(journal.origin, done, entries[-1].position + 1, entries[0].body)
        row = row._replace(redacted=records.redacted_in(entries))
        data = {} if dropped is None else {"request": f"{session}.{dropped}"}
        step = SessionStep(agent, session, [event], row, StepSummary(text, data), puts=puts)
        body = {key: value for key, value in event.items() if key != "event"}
        body |= {"event": "session-reopened", "agent": agent, "session": session}
        transition = self.lifecycle.transitions.reopened(step, turn)
        self.lifecycle.transitions.write_reopened(transition, (body, f"session {session} of {agent} reopened: {text}"))
        return transition.row


def _ended(view: Transaction, agent: str, session: str, row: Mapping[str, Any]) -> EndedSession:
    stream = records.stream(agent, session)
    entries = view.streams.read(stream)
    return EndedSession(agent, session, row, entries, records.journal_in(entries, stream))
