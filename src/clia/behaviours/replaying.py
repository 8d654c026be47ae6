"""Replay of a past session with another version of its flow, as evidence before adoption.

Invariant: nothing is written and no effect runs. The other version gets the recorded input, clock and randomness, and the
recorded answer to each request that the session also made. It stops at any other request.
"""

from __future__ import annotations

import json
from collections import deque
from typing import NamedTuple

from clia.behaviours.model import Replayed, ReplayStep
from clia.engine.records import PATIENCE
from clia.errors import Nondeterminism, NotFound
from clia.sessions.lifecycle import no_session
from clia.sessions.records import Journal, Resumed
from clia.sessions.replay import describe
from clia.sessions.transitions import failure_json
from clia.space.events import read_events
from clia.values import refs as names
from clia.values.types import DECISION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.engine.records import Engine, FlowAnswer, FlowCall, FlowRun, Turn
    from clia.sessions.checkpoints import Checkpoints
    from clia.space.core import Core
    from clia.space.model import AgentCommit


class PastSession(NamedTuple):
    """The record of a session."""

    agent: str
    session: str
    journal: Journal
    status: str
    in_part: bool = False  # the store lost it, and git has only a part of it


LOST = "lost"
"""The status of a session whose end is not recorded in git."""


def past_in_git(core: Core, checkpoints: Checkpoints, agent: str, head: str, session: str | None) -> PastSession:
    """A session that the store has lost, as of the last commit made while it was live.

    That commit may be a decision of the session. ``NotFound`` if no commit was made while it was live.
    """
    endings = _session_ends(core, agent)
    for commit in core.own_commits(agent, head):
        checkpoint = checkpoints.at(agent, commit.cid)
        if checkpoint is not None and session in (None, checkpoint.session):
            origin, resumes = checkpoint.journal
            journal = Journal(origin, [*resumes, *_decision_answer(commit, checkpoint.session)])
            status, count = endings.get(checkpoint.session, (LOST, None))
            return PastSession(agent, checkpoint.session, journal, status, in_part=status == LOST or count != len(journal.resumes))
    if session in endings:
        raise NotFound(
            f"session {session} of {agent!r} is {endings[session][0]}, but its requests are not recorded in git",
            code="session-lost",
            hints=["git records requests only with commits made while the session is live"],
            fields={"agent": agent, "session": session},
        )
    raise no_session(agent, session)


def _session_ends(core: Core, agent: str) -> dict[str, tuple[str, Any]]:
    """The final status of sessions by the events in git, and their number of answers."""
    ends: dict[str, tuple[str, Any]] = {}
    for event in read_events(core, core.refs.get(names.events(agent))):
        body = event.body
        if body.get("event") == "session-ended" and isinstance(body.get("status"), str):
            ends.setdefault(str(body.get("session")), (str(body["status"]), body.get("resumes")))
    return ends


def _decision_answer(commit: AgentCommit, session: str) -> list[Resumed]:
    """The answer in a decision commit, whose checkpoint is the state before it."""
    session_id, _, number = (commit.request or "").rpartition(".")
    if commit.kind != DECISION or session_id != session or not number.isdecimal() or commit.value is None:
        return []
    return [Resumed(int(number), "", json.loads(commit.value), None, commit.cid, commit.by)]


class Transcript(NamedTuple):
    """The requests and answers of a session in order, and its last turn."""

    steps: tuple[tuple[FlowCall, FlowAnswer], ...]
    turn: Turn


def transcript(engine: Engine, past: PastSession, source: str) -> Transcript:
    """Replay a session from its answers to recover its requests."""
    steps = []
    with engine.start(past.journal.origin.program(source), patience=PATIENCE) as run:
        for resume in past.journal.resumes:
            call = next((call for call in run.turn.pending if call.number == resume.call), None)
            if call is None:
                raise Nondeterminism(
                    f"session {past.session} of {past.agent!r} does not replay: the record answers call {resume.call}, "
                    f"but there is {describe(run.turn)}",
                    hints=["check sessions with: clia doctor"],
                    fields={"agent": past.agent, "session": past.session},
                )
            steps.append((call, resume.answer()))
            run.answer(call.number, resume.answer())
        return Transcript(tuple(steps), run.turn)


def replayed(engine: Engine, past: PastSession, sources: tuple[str, str], with_: str) -> Replayed:
    """Replay a session. ``sources``: of the version that ran, and of the one to try."""
    recorded = transcript(engine, past, sources[0])
    steps: list[ReplayStep] = []
    # Use the limits of a new session.
    with engine.start(past.journal.origin.program(sources[1])) as run:
        waiting, printed = _by_request(recorded), [run.turn.printed]
        while not run.turn.ended:
            calls = _next(run, waiting)
            if calls is None:
                break
            call, number, answer = calls
            steps.append(_step(call, answer, number))
            printed.append(run.answer(call.number, answer).printed)
        turn = run.turn
    steps += [_step(call, None, None) for call in turn.pending]
    return _replay_result(past, with_, recorded, (turn, steps, "".join(printed)))


def _by_request(recorded: Transcript) -> dict[str, deque[tuple[int, FlowAnswer]]]:
    answers: dict[str, deque[tuple[int, FlowAnswer]]] = {}
    for number, (call, answer) in enumerate(recorded.steps, 1):
        answers.setdefault(_request_key(call), deque()).append((number, answer))
    return answers


def _next(run: FlowRun, waiting: Mapping[str, deque[tuple[int, FlowAnswer]]]) -> tuple[FlowCall, int, FlowAnswer] | None:
    """The pending request whose recorded answer came first, if any."""
    candidates = [(waiting[key][0][0], call, key) for call in run.turn.pending if waiting.get(key := _request_key(call))]
    if not candidates:
        return None
    _, call, key = min(candidates, key=lambda candidate: candidate[0])
    number, answer = waiting[key].popleft()
    return call, number, answer


def _request_key(call: FlowCall) -> str:
    """The key of a request: everything but its position."""
    return json.dumps([call.kind, call.tag, call.payload], sort_keys=True)


def _step(call: FlowCall, answer: FlowAnswer | None, number: int | None) -> ReplayStep:
    step = ReplayStep(call.kind, call.tag, call.payload, call.line, answer is not None, number)
    return step if answer is None else step._replace(value=answer.value, error=answer.error)


def _replay_result(past: PastSession, with_: str, recorded: Transcript, now: tuple[Turn, Sequence[ReplayStep], str]) -> Replayed:
    turn, steps, printed = now
    recorded_steps = [_step(call, answer, number) for number, (call, answer) in enumerate(recorded.steps, 1)]
    recorded_steps += [_step(call, None, None) for call in recorded.turn.pending]
    before, after = ([json.dumps(step[:3], sort_keys=True) for step in sequence] for sequence in (recorded_steps, steps))
    departs = next((index for index, pair in enumerate(zip(before, after, strict=False), 1) if pair[0] != pair[1]), None)
    if departs is None and len(before) != len(after):
        departs = min(len(before), len(after)) + 1
    matched = {step.recorded for step in steps}
    failure, recorded_failure = _failure(turn), _failure(recorded.turn)
    ends = (turn.ended, turn.result, failure) == (recorded.turn.ended, recorded.turn.result, recorded_failure)
    return Replayed(
        agent=past.agent,
        session=past.session,
        flow=past.journal.origin.flow,
        with_=with_,
        same=departs is None and ends,
        steps=tuple(steps),
        departs_at=departs,
        recorded=tuple(recorded_steps),
        unasked=tuple(number for number in range(1, len(recorded.steps) + 1) if number not in matched),
        ended=turn.ended,
        result=turn.result,
        failure=failure,
        recorded_status=past.status,
        recorded_result=recorded.turn.result,
        recorded_failure=recorded_failure,
        printed=printed,
        in_part=past.in_part,
    )


def _failure(turn: Turn) -> dict[str, Any] | None:
    """The failure without line numbers, which differ between versions."""
    if turn.failure is None:
        return None
    failure = failure_json(turn.failure)
    return {key: failure[key] for key in ("reason", "message")}
