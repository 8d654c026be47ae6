"""Forks: a new agent with a copy of another's session, as it is or as of a commit.

Invariant: a fork copies everything that the run depends on, including seed and clock, so it makes the same requests. Afterwards the
two are independent. The agent and its session are created together or not at all.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.engine.records import Turn
from clia.errors import InvalidInput
from clia.sessions import records
from clia.sessions.checkpoints import CheckpointedSession, checkpoint_writes, full_checkpoint, live_row
from clia.sessions.lifecycle import no_session
from clia.sessions.model import SUSPENDED
from clia.sessions.records import COUNTS, LIVE, SNAPSHOT, Journal, resumed_event, session_row, snapshot_from
from clia.sessions.replay import SNAPSHOT_INTERVAL, nondeterminism
from clia.sessions.transitions import NOWHERE, feed_append, first_row
from clia.space.envelope import Append, Intent
from clia.space.model import FORKED
from clia.space.traces import stream as trace_stream
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.engine.records import FlowCall
    from clia.sessions.checkpoints import Checkpoints
    from clia.sessions.lifecycle import Lifecycle
    from clia.sessions.model import Session
    from clia.sessions.replay import Replay
    from clia.sessions.transitions import Transitions
    from clia.space.agents import Agents
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.space.traces import Traces

FIRST = "1"


class CopiedRun(NamedTuple):
    """A run to copy: its source and state."""

    agent: str
    session: str
    commit: str
    journal: Journal
    pending: tuple[FlowCall, ...]
    snapshot: list[Any] | None


class Forks:
    def __init__(
        self,
        core: Core,
        envelope: Envelope,
        agents: Agents,
        traces: Traces,
        checkpoints: Checkpoints,
        lifecycle: Lifecycle,
        parts: tuple[Replay, Transitions],
    ) -> None:
        self._core = core
        self._envelope = envelope
        self._agents = agents
        self._traces = traces
        self._checkpoints = checkpoints
        self._lifecycle = lifecycle
        self._replay, self._transitions = parts

    def fork(self, agent: str, as_agent: str, at: str | None) -> Session:
        """``at``: the full id of a commit of the agent."""
        names.check_name(agent)
        names.check_name(as_agent)
        if agent == as_agent:
            raise InvalidInput("a fork needs another name", code="same-agent", fields={"agent": agent})
        copy = self._now(agent) if at is None else self._then(agent, at)
        row = self._row(copy)
        record = self._agents.record(agent)
        profile = record.get("profile.json")
        self._agents.spawn(
            as_agent,
            self._agents.briefing_of(agent),
            at=copy.commit,
            parent=agent if self._core.head(agent) is not None else None,  # an archived agent cannot be a parent
            profile={key: each for key, each in profile.items() if key != "type"} if isinstance(profile, dict) else None,
            trailers=[(FORKED, f"{agent} session {copy.session} after {len(copy.journal.resumes)} resumes")],
            along=lambda genesis: self._along(as_agent, copy, row, genesis),
        )
        return self._lifecycle.made(as_agent, FIRST, row | {"on": self._core.require_head(as_agent)})

    def _now(self, agent: str) -> CopiedRun:
        """The run as it is; the snapshot is copied, and nothing runs."""
        core = self._core
        with self._envelope.at_work(agent):
            head = core.require_head(agent)
            with core.store.reading() as view:
                live = live_row(view, agent)
                if live is None:
                    raise no_session(agent, None)
                row = session_row(live[1])
                journal = records.read_journal(view, agent, live[0])
                snapshot = view.values.get(records.key(SNAPSHOT, agent, live[0]))
        self._lifecycle.check_beginning(journal.origin)
        sound = snapshot is not None and snapshot_from(snapshot.value) is not None
        return CopiedRun(agent, live[0], head, journal, row.pending, snapshot.value if snapshot is not None and sound else None)

    def _then(self, agent: str, commit: str) -> CopiedRun:
        """The run as of a commit, rebuilt."""
        with self._envelope.at_work(agent):
            head = self._agents.any_head(agent)
            if not self._core.graph.descends(head, commit):
                raise InvalidInput(
                    f"{commit[:12]} is not a commit of {agent!r}",
                    code="not-in-history",
                    hints=[f"clia log {agent}"],
                    fields={"agent": agent, "commit": commit},
                )
            found: CheckpointedSession = self._checkpoints.find(agent, commit)
        self._lifecycle.check_beginning(found.journal.origin)
        with self._replay.run(found.journal) as run:
            if run.turn.ended:
                raise nondeterminism(len(found.journal.resumes), "a suspended run", run.turn)
            long = len(found.journal.resumes) >= SNAPSHOT_INTERVAL
            snapshot = self._replay.snapshot(run, found.journal.origin.flow, len(found.journal.resumes)) if long else None
            return CopiedRun(agent, found.session, commit, found.journal, run.turn.pending, snapshot)

    def _row(self, copy: CopiedRun) -> dict[str, Any]:
        forked = {"agent": copy.agent, "session": copy.session, "commit": copy.commit, "at": self._transitions.now()}
        done, cut = len(copy.journal.resumes), self._cut(copy)
        row = first_row(copy.journal.origin, done, 1 + bool(cut) + done - cut, {"forked": forked})
        return self._transitions.row(row._replace(kept=0 if copy.snapshot is None else copy.snapshot[0]), Turn(copy.pending))

    def _cut(self, copy: CopiedRun) -> int:
        """The number of resumes to copy as one event: those before the snapshot."""
        resumes = len(copy.journal.resumes)
        return resumes if copy.snapshot is None else min(copy.snapshot[0], resumes)

    def _events(self, copy: CopiedRun, extra: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The copied events; the resumes after the snapshot are separate, as loading the snapshot expects."""
        resumes, cut = copy.journal.resumes, self._cut(copy)
        return records.opening(copy.journal.origin, resumes[:cut], extra) + [resumed_event(each) for each in resumes[cut:]]

    def _along(self, name: str, copy: CopiedRun, row: Mapping[str, Any], genesis: str) -> Intent:
        """The intent that binds the session to the new agent's first commit."""
        writes = checkpoint_writes(name, FIRST, genesis, full_checkpoint(copy.journal.origin, copy.journal.resumes, genesis))
        where = f"session {FIRST} forked from {copy.agent}, session {copy.session}, after {row['done']} resumes"
        data = {"session": FIRST, "status": SUSPENDED, "forked": row["forked"]}
        puts: list[tuple[str, Any]] = [
            (COUNTS + name, {"last": 1}),
            (records.key(LIVE, name, FIRST), {**row, "on": genesis}),
            *writes.puts,
        ]
        puts += [(records.key(SNAPSHOT, name, FIRST), copy.snapshot)] if copy.snapshot is not None else []
        appends = (
            Append(records.stream(name, FIRST), tuple(self._events(copy, {"on": genesis, "forked": row["forked"]}))),
            Append(trace_stream(name), (self._traces.entry("session", where, data),)),
            feed_append(name, FIRST, row, row["forked"]["at"]),
        )
        return Intent(name, "fork", NOWHERE, notes=writes.notes, appends=appends, puts=tuple(puts))
