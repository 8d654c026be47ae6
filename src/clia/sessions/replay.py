"""Replay: bringing a run back to where it was, and keeping runs for the next answer.

Invariant: replay is the source of truth. A snapshot is only a shortcut, used if engine, flow, position and digest match;
otherwise the run is replayed from its first event. A replay that makes another request than the recorded one raises
``Nondeterminism`` and changes nothing. A process keeps few runs, because each occupies an engine worker; none outlives the last
handle on its store.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections import Counter, OrderedDict
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.engine.records import INHERITED, LIMIT, LOST, PATIENCE, Failure, Turn
from clia.errors import EngineError, Nondeterminism
from clia.sessions import records
from clia.sessions.records import Journal, Snapshot, request_hash, session_row, snapshot_from
from clia.sessions.request_rows import complete

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from typing import Any

    from clia.engine.records import Engine, FlowAnswer, FlowProgram, FlowRun
    from clia.sessions.records import Origin, Resumed, SessionRow
    from clia.store.interface import Store, Transaction

SNAPSHOT_INTERVAL = 4
"""Resumes between snapshots, at least: replaying fewer costs about as much as loading a snapshot."""
SNAPSHOT_BLOCK = 4096
"""Characters of a snapshot per additional resume before the next one, so that a large state is not written often."""
_LOSSES = 3
KEPT_RUNS_MAX = 4


class LiveSession(NamedTuple):
    """A live session and its row."""

    agent: str
    session: str
    row: SessionRow


class RestoredRun(NamedTuple):
    """The run of a live session, waiting for the requests in its row, which is complete."""

    run: FlowRun
    row: SessionRow


class ReplayPath(NamedTuple):
    """How to restore a session: from its snapshot, if it has one, and the resumes since."""

    origin: Origin
    snapshot: Snapshot | None
    tail: Sequence[Resumed]


class TurnResult:
    """A run after a turn."""

    def __init__(self, run: FlowRun | None, turn: Turn, before: SessionRow | None = None) -> None:
        self.run = run
        self.turn = turn
        self.before = before  # the complete row before the turn, if it was not the first one
        self.snapshot: list[Any] | None = None  # of the new state, if one is due
        self.row: SessionRow | None = None  # once it is stored, unless the session has ended: the run is kept for the next answer


class Replay:
    """Restores runs, and keeps the last ones in case the next answer is for the same session."""

    def __init__(self, engine: Engine, store: Store, source: Callable[[str], str], kept_runs: KeptRuns, place: Hashable) -> None:
        self._engine = engine
        self._store = store
        self._source = source
        self._kept_runs = kept_runs
        self._place = place
        self._closed = False
        kept_runs.join(place)

    @property
    def version(self) -> str:
        return self._engine.version

    def close(self) -> None:
        """Release the kept runs, unless another handle on the place is open."""
        if not self._closed:
            self._closed = True
            self._kept_runs.leave(self._place)

    def program(self, origin: Origin) -> FlowProgram:
        return origin.program(self._source(origin.flow))

    @contextmanager
    def beginning(self, agent: str, session: str, origin: Origin) -> Iterator[TurnResult]:
        """Start a run up to its first requests. The block writes the result; then the run is kept."""

        def start(patience: float, losses: list[str]) -> TurnResult | None:
            with _counted(losses):
                run = self._engine.start(self.program(origin), patience=patience)
                return TurnResult(run, run.turn)
            return None

        with self._keeping(_taken(start), agent, session) as result:
            yield result

    @contextmanager
    def going_on(self, live: LiveSession, number: int, answer: FlowAnswer) -> Iterator[TurnResult]:
        """Answer a call, and take a snapshot if one is due. The block writes the result; then the run is kept."""

        def go_on(patience: float, losses: list[str]) -> TurnResult | None:
            run, row = self._there(live, patience)
            with _counted(losses):
                try:
                    return TurnResult(run, run.answer(number, answer), row)
                except BaseException:
                    release(run)
                    raise
            return None

        with self._keeping(_taken(go_on), live.agent, live.session) as result:
            done, run = live.row.done + 1, result.run
            if run is not None and not result.turn.ended and done >= (live.row.due or live.row.kept + SNAPSHOT_INTERVAL):
                result.snapshot = self.snapshot(run, live.row.flow, done)
                if result.snapshot is None:
                    result.run = None  # the worker cannot even take a snapshot
                    release(run)
            yield result

    @contextmanager
    def _keeping(self, result: TurnResult, agent: str, session: str) -> Iterator[TurnResult]:
        try:
            yield result
        except BaseException:
            release(result.run)
            raise
        if result.run is None or result.turn.ended or result.row is None:
            release(result.run)
        else:
            self._kept_runs.put(RunKey(self._place, agent, session), RestoredRun(result.run, result.row))

    def _there(self, live: LiveSession, patience: float) -> RestoredRun:
        """The run that waits for an answer. Retried if a worker dies: this says nothing about the answer."""
        for _ in range(_LOSSES):
            with _counted([]):
                return self._at(live, patience)
        return self._at(live, patience)

    def _at(self, live: LiveSession, patience: float) -> RestoredRun:
        """The kept run of a session, or else a restored one."""
        kept_run = self._kept_runs.take(RunKey(self._place, live.agent, live.session), live.row)
        if kept_run is not None:
            return kept_run
        path, run = None, None
        with self._store.reading() as view:
            row = _complete(view, live)
            # A patient run is always rebuilt, because a dump contains the limits of its run.
            if row.kept and patience == 1:
                path = read_replay_path(view, live)
        live = live._replace(row=row)
        run = path and self._from_snapshot(live, path)
        return RestoredRun(run or self._replayed(live, patience), row)

    def _replayed(self, live: LiveSession, patience: float) -> FlowRun:
        with self._store.reading() as view:
            journal = records.read_journal(view, live.agent, live.session)
        return _waiting(self.run(journal, patience), live.row)

    def _from_snapshot(self, live: LiveSession, path: ReplayPath) -> FlowRun | None:
        """Restore from the snapshot; None if it is missing or unusable."""
        snapshot = path.snapshot
        if snapshot is None or (snapshot.engine, snapshot.flow) != (self._engine.version, path.origin.flow):
            return None
        if snapshot.done + len(path.tail) != live.row.done or snapshot.digest != _digest(snapshot.data):
            return None
        try:
            run = self._engine.load(self.program(path.origin), base64.b64decode(snapshot.data), snapshot.pending)
            return _waiting(_on(run, path.tail, snapshot.done), live.row)
        except (EngineError, Nondeterminism, _ReplayTooSlow, ValueError):
            return None  # only a replay of the journal can prove divergence

    def can_use(self, live: LiveSession, path: ReplayPath) -> bool:
        """Whether a live session's snapshot restores its current state. The row is complete."""
        run = self._from_snapshot(live, path)
        release(run)
        return run is not None

    def run(self, journal: Journal, patience: float = 1) -> FlowRun:
        """Rebuild a run from its events. Hitting a limit here means that the machine is slow, not that the flow failed."""
        with suppress(_ReplayTooSlow):
            return self._run(journal, patience)
        try:
            return self._run(journal, PATIENCE)
        except _ReplayTooSlow as err:
            hints = ["try again on a less busy machine"]
            raise EngineError(f"the run could not be rebuilt here: {err}", code="replay-too-slow", hints=hints) from None

    def _run(self, journal: Journal, patience: float) -> FlowRun:
        run = self._engine.start(self.program(journal.origin), patience=patience)
        _no_limit(run)
        return _on(run, journal.resumes, 0)

    def last_turn(self, journal: Journal) -> TurnResult:
        """Take the last turn of a journal again, as if its answer had just arrived; the caller releases the run."""
        last = journal.resumes[-1] if journal.resumes else None
        earlier = journal.resumes[:-1]

        def attempt(patience: float, losses: list[str]) -> TurnResult | None:
            with _counted(losses):
                if last is None:
                    run = self._engine.start(self.program(journal.origin), patience=patience)
                    return TurnResult(run, run.turn)
                run = self.run(Journal(journal.origin, earlier), patience)
                try:
                    _check_asked(run, last, len(earlier))
                    return TurnResult(run, run.answer(last.call, last.answer()))
                except BaseException:
                    release(run)
                    raise
            return None

        return _taken(attempt)

    def snapshot(self, run: FlowRun, flow: str, count: int) -> list[Any] | None:
        """A snapshot to store; None if the engine cannot take one."""
        try:
            data = base64.b64encode(run.dump()).decode("ascii")
        except EngineError:
            return None
        return [count, self._engine.version, flow, _digest(data), data, [list(call) for call in run.turn.pending]]


def _complete(view: Transaction, live: LiveSession) -> SessionRow:
    """A live session's row with all pending requests."""
    if live.row.is_complete:
        return live.row
    stored = complete(view.values, live.agent, live.session, live.row.to_json())
    return session_row(stored)


def next_snapshot(snapshot: Sequence[Any]) -> int:
    """The number of resumes at which the snapshot after this one is due; 0 if that is after the usual interval."""
    done, size = snapshot[0], len(snapshot[4])
    return int(done + size // SNAPSHOT_BLOCK) if size > SNAPSHOT_INTERVAL * SNAPSHOT_BLOCK else 0


def read_replay_path(view: Transaction, live: LiveSession) -> ReplayPath:
    agent, session, row = live
    stored = view.values.get(records.key(records.SNAPSHOT, agent, session))
    snapshot = None if stored is None else snapshot_from(stored.value)
    behind = 0 if snapshot is None else row.done - snapshot.done
    tail: Sequence[Resumed] = ()
    if behind > 0:
        stream = records.stream(agent, session)
        tail = records.resumes_in(view.streams.read(stream, after=row.end - behind), stream)
    return ReplayPath(records.read_origin(view, agent, session), snapshot, tail)


def _taken(attempt: Callable[[float, list[str]], TurnResult | None]) -> TurnResult:
    """Take a turn. ``attempt`` gets a factor for the time limit, and a list to which it adds the loss of a worker.

    A flow that kills several workers has failed. A turn that exceeds its time is taken again with more time, and has failed only
    if it then used up its processor time. If even the most time is not enough, the machine is too busy, and nothing is recorded.
    """
    losses: list[str] = []
    patience = 1.0
    while len(losses) < _LOSSES:
        result = attempt(patience, losses)
        if result is None:
            continue
        failure = result.turn.failure
        if failure is None or failure.used is None or (patience > 1 and failure.used >= 1):
            return result
        release(result.run)
        if patience == PATIENCE:
            raise _too_busy(failure.used)
        patience = min(PATIENCE, 2 * patience / min(1, max(failure.used, 0.01)))
    return TurnResult(None, _died_of(losses))


def _too_busy(used: float) -> EngineError:
    message = f"the machine is too busy: a turn of the flow got only {used:.0%} of its processor time before its time was over"
    error = EngineError(message, code="machine-busy", hints=["nothing was recorded; try again when the machine is less busy"])
    error.retryable = True
    return error


@contextmanager
def _counted(losses: list[str]) -> Iterator[None]:
    """Suppress the loss of an engine worker, and record its message."""
    try:
        yield
    except EngineError as err:
        if err.code not in (LOST, INHERITED):
            raise
        losses.append(err.message)


def _died_of(losses: Sequence[str]) -> Turn:
    return Turn(failure=Failure(LIMIT, f"engine: {len(losses)} workers in a row died of it ({losses[-1]})", None))


class _ReplayTooSlow(Exception):
    """A turn exceeded a limit that it did not exceed when it was recorded."""


def _digest(data: str) -> str:
    return hashlib.sha256(data.encode("ascii")).hexdigest()


def _no_limit(run: FlowRun) -> None:
    failure = run.turn.failure
    if failure is not None and failure.reason == LIMIT:
        release(run)
        raise _ReplayTooSlow(failure.message)


def _on(run: FlowRun, resumes: Sequence[Resumed], before: int) -> FlowRun:
    """Apply recorded resumes to a run; each must answer the recorded request."""
    try:
        for position, resume in enumerate(resumes, before):
            _check_asked(run, resume, position)
            run.answer(resume.call, resume.answer())
            _no_limit(run)
    except BaseException:
        release(run)
        raise
    return run


def _check_asked(run: FlowRun, resume: Resumed, position: int) -> None:
    """Raise ``Nondeterminism`` unless a run waits for the request that was answered."""
    call = next((call for call in run.turn.pending if call.number == resume.call), None)
    if call is None or request_hash(call) != resume.asked:
        raise nondeterminism(position, f"an answer to call {resume.call}", run.turn)


def _waiting(run: FlowRun, row: SessionRow) -> FlowRun:
    """Check that a run waits for the requests in the session's row."""
    if list(map(request_hash, row.pending)) != list(map(request_hash, run.turn.pending)):
        release(run)
        raise nondeterminism(row.done, describe(Turn(pending=row.pending)), run.turn)
    return run


def nondeterminism(position: int, recorded: str, turn: Turn) -> Nondeterminism:
    actual = describe(turn)
    return Nondeterminism(
        f"the replay diverges from the record after {position} resumes: recorded {recorded}, got {actual}",
        hints=[
            "nothing is lost: the record is complete, and the engine that wrote it can replay it",
            "clia session show AGENT shows flow and engine; clia session fork AGENT NEW --at COMMIT starts over from a checkpoint",
        ],
        fields={"position": position, "recorded": recorded, "actual": actual},
    )


def describe(turn: Turn) -> str:
    """The position of a run, for messages."""
    if turn.failure is not None:
        return f"a failure: {turn.failure.message}"
    if turn.ended:
        return "an end"
    return " and ".join(f"call {call.number} ({call.kind}, {request_hash(call)[:8]})" for call in turn.pending)


class RunKey(NamedTuple):
    """Identifies a run. The place is a store and its engine: copies of a space have the same agents and sessions."""

    place: Hashable
    agent: str
    session: str


class KeptRuns:
    """Runs kept for the next answer. Thread-safe; the oldest run is released first."""

    def __init__(self, size: int = KEPT_RUNS_MAX) -> None:
        self._size = size
        self._runs: OrderedDict[RunKey, RestoredRun] = OrderedDict()
        self._handles: Counter[Hashable] = Counter()
        self._mutex = threading.Lock()

    def join(self, place: Hashable) -> None:
        """Register a handle on a place."""
        with self._mutex:
            self._handles[place] += 1

    def leave(self, place: Hashable) -> None:
        """Unregister a handle; the last one releases the place's runs."""
        with self._mutex:
            self._handles[place] -= 1
            if self._handles[place] > 0:
                return
            del self._handles[place]
        self.clear(place)

    def clear(self, place: Hashable) -> None:
        """Release the runs of a place."""
        with self._mutex:
            runs = [self._runs.pop(key).run for key in list(self._runs) if key.place == place]
        for run in runs:
            release(run)

    def take(self, key: RunKey, row: SessionRow) -> RestoredRun | None:
        """Take the run of a session if it still matches the row; otherwise release it."""
        with self._mutex:
            kept_run = self._runs.pop(key, None)
        if kept_run is not None and kept_run.row.stamp() != row.stamp():
            release(kept_run.run)  # the session continued elsewhere
            return None
        return kept_run

    def put(self, key: RunKey, new_run: RestoredRun) -> None:
        with self._mutex:
            removed = [self._runs.pop(key, None)]
            if key.place in self._handles:
                self._runs[key] = new_run
            else:
                removed.append(new_run)  # closed in between
            if len(self._runs) > self._size:
                removed.append(self._runs.popitem(last=False)[1])
        for old_run in removed:
            if old_run is not None:
                release(old_run.run)


def release(run: FlowRun | None) -> None:
    if run is not None:
        run.__exit__(None, None, None)
