"""Forks: a new agent with a copy of another's session, as it is or as of a commit.

Invariant: a fork copies everything that the run depends on, including seed and clock, so it makes the same requests. Afterwards the
two are independent. The agent and its session are created together or not at all.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.engine.records import Turn
from clia.errors import AlreadyExists, InvalidInput
from clia.sessions import records
from clia.sessions.checkpoints import checkpoint_writes, full_checkpoint, live_row, session_counts
from clia.sessions.lifecycle import no_session
from clia.sessions.model import SUSPENDED
from clia.sessions.records import COUNTS, SNAPSHOT, Journal, resumed_event, session_row, snapshot_from
from clia.sessions.replay import SNAPSHOT_INTERVAL, nondeterminism
from clia.sessions.request_rows import changes, complete, waiting
from clia.sessions.transitions import NOWHERE, feed_append, first_row
from clia.space.envelope import Append, Intent, RefMove
from clia.space.model import AGENT, BRIEFING, FORKED, PROFILE, TYPE
from clia.space.traces import stream as trace_stream
from clia.store.interface import KNOWN
from clia.values import refs as names
from clia.values.types import AGENT_COMMIT, SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.engine.records import FlowCall
    from clia.sessions.checkpoints import Checkpoints
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.model import Session
    from clia.sessions.records import SessionRow
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.traces import Traces
    from clia.values.typed_objects import Briefing

FIRST = "1"


class CopiedRun(NamedTuple):
    """A run to copy: its source and state."""

    agent: str
    session: str
    commit: str
    journal: Journal
    pending: tuple[FlowCall, ...]
    snapshot: list[Any] | None

    def events(self, extra: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The copied events; the resumes after the snapshot are separate, as loading the snapshot expects."""
        resumes = self.journal.resumes
        cut = len(resumes) if self.snapshot is None else self.snapshot[0]
        return [*records.opening(self.journal.origin, resumes[:cut], extra), *map(resumed_event, resumes[cut:])]


class Forks(NamedTuple):
    core: Core
    envelope: Envelope
    agents: Agents
    traces: Traces
    checkpoints: Checkpoints
    lifecycle: Lifecycle

    def fork(self, agent: str, as_agent: str, at: str | None, briefing: Briefing | None = None) -> Session:
        """``at``: the full id of a commit of the agent. ``briefing``: of the new agent, instead of the agent's own.

        An agent that was spawned and did nothing yet takes over the session, with the briefing and files that it has.
        """
        names.check_name(agent)
        names.check_name(as_agent)
        if agent == as_agent:
            raise InvalidInput("a fork needs a new name", code="same-agent", fields={"agent": agent})
        copy = self._now(agent) if at is None else self._then(agent, at)
        row = self._row(copy)
        forked = f"{agent} session {copy.session} after {len(copy.journal.resumes)} resumes"
        if self.core.head(as_agent) is not None:
            self._into(as_agent, copy, row, forked, briefing)
            return self.lifecycle.as_session(as_agent, FIRST, row._replace(on=self.core.require_head(as_agent)))
        self.agents.spawn(
            as_agent,
            briefing or self.agents.briefing_of(agent),
            at=copy.commit,
            parent=agent if self.core.head(agent) is not None else None,  # an archived agent cannot be a parent
            origin=self.agents.origin_of(agent),
            trailers=[(FORKED, forked)],
            along=lambda genesis: self._along(as_agent, copy, row, genesis),
        )
        return self.lifecycle.as_session(as_agent, FIRST, row._replace(on=self.core.require_head(as_agent)))

    def _into(self, name: str, copy: CopiedRun, row: SessionRow, forked: str, briefing: Briefing | None) -> None:
        """Give the session to an agent that was spawned for it."""
        core = self.core
        with self.envelope.at_work(name):
            head = core.own_head(name)
            commit = core.read(head)
            with core.store.reading() as view:
                is_new = commit.kind == SPAWN and commit.agent == name and not session_counts(view.values, name).get("last")
            if not is_new or briefing is not None:
                why = "has a briefing" if is_new else "has worked already"
                hints = ["choose another name", "an agent that was spawned and did nothing yet can take over a session"]
                fields = {"agent": name, "actual": head}
                raise AlreadyExists(f"agent {name!r} already exists, and {why}", hints=hints, fields=fields)
            identity = [(AGENT, name), (TYPE, AGENT_COMMIT), (BRIEFING, commit.briefing), (PROFILE, commit.profile)]
            text = f"session {FIRST} forked from {copy.agent}"
            cid = core.write_commit(name, commit.tree, [head], text, [*identity, (FORKED, forked)], text)
            intent = self._along(name, copy, row, cid)
            self.envelope.carry_out(intent._replace(point=RefMove(names.head(name), head, cid)))

    def _now(self, agent: str) -> CopiedRun:
        """The run as it is; the snapshot is copied, and nothing runs."""
        core = self.core
        with self.envelope.at_work(agent):
            head = core.require_head(agent)
            with core.store.reading() as view:
                live = live_row(view.values, agent)
                if live is None:
                    raise no_session(agent, None)
                session, row = live
                journal = records.read_journal(view, agent, session)
                stored = view.values.get(records.key(SNAPSHOT, agent, session))
                row = complete(view.values, agent, session, row)
            self.checkpoints.agree(agent, head, session)
        self.lifecycle.check_beginning(journal.origin)
        snapshot = stored.value if stored is not None and snapshot_from(stored.value) is not None else None
        return CopiedRun(agent, session, head, journal, session_row(row).pending, snapshot)

    def _then(self, agent: str, commit: str) -> CopiedRun:
        """The run as of a commit, rebuilt."""
        with self.envelope.at_work(agent):
            head = self.agents.any_head(agent)
            if not self.core.graph.descends(head, commit):
                message = f"{commit[:12]} is not a commit of {agent!r}"
                hints = [f"clia log {agent}"]
                raise InvalidInput(message, code="not-in-history", hints=hints, fields={"agent": agent, "commit": commit})
            session, journal = self.checkpoints.find(agent, commit)
        self.lifecycle.check_beginning(journal.origin)
        with self.lifecycle.replay.run(journal) as run:
            count = len(journal.resumes)
            if run.turn.ended:
                raise nondeterminism(count, "a suspended run", run.turn)
            snapshot = self.lifecycle.replay.snapshot(run, journal.origin.flow, count) if count >= SNAPSHOT_INTERVAL else None
            return CopiedRun(agent, session, commit, journal, run.turn.pending, snapshot)

    def _row(self, copy: CopiedRun) -> SessionRow:
        forked = {"agent": copy.agent, "session": copy.session, "commit": copy.commit, "at": self.lifecycle.now()}
        row = first_row(copy.journal.origin, len(copy.journal.resumes), len(copy.events({})), {"forked": forked})
        row = row._replace(kept=0 if copy.snapshot is None else copy.snapshot[0])
        return waiting(row, Turn(copy.pending), self.lifecycle.transitions.step_time())

    def _along(self, name: str, copy: CopiedRun, row: SessionRow, genesis: str) -> Intent:
        """The intent that binds the session to the new agent's first commit."""
        notes, last = checkpoint_writes(name, FIRST, genesis, full_checkpoint(*copy.journal, genesis))
        where = f"session {FIRST} forked from {copy.agent}, session {copy.session}, after {row.done} resumes"
        forked = row.forked or {}
        data = {"session": FIRST, "status": SUSPENDED, "forked": forked}
        rows = changes(name, FIRST, None, row._replace(on=genesis))
        puts = [(COUNTS + name, {"last": 1}), (KNOWN + name, [genesis, None]), *rows.puts, *last]
        puts += [(records.key(SNAPSHOT, name, FIRST), copy.snapshot)] if copy.snapshot is not None else []
        appends = (
            Append(records.stream(name, FIRST), tuple(copy.events({"on": genesis, "forked": forked}))),
            Append(trace_stream(name), (self.traces.entry("session", where, data),)),
            feed_append(name, FIRST, row, forked["at"], row.pending),
        )
        return Intent(name, "fork", NOWHERE, notes=notes, appends=appends, puts=tuple(puts), discards=rows.discards)
