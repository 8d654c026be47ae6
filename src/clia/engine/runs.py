"""One flow, as far as it has come.

Invariant: a run holds its worker while calls are pending and lets it go when it ends, whichever way. What it tells depends on
the program and the answers alone. A process that was forked off never speaks to a worker that it inherited.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property

from clia.engine import forking as forks
from clia.engine.calls import CallSite, ImmediateReply, coming_out, read_call
from clia.engine.flow_source import form_of
from clia.engine.records import LIMIT, LOST, RAISED, RESULT, Failure, FlowAnswer, FlowCall, Turn
from clia.errors import EngineError, InvalidAnswer, InvalidInput
from clia.values.json_values import CannotCross, copied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Literal, Self

    from pydantic_monty import ExternalSettledResult as Settled
    from pydantic_monty import (
        Frame,
        FunctionSnapshot,
        FutureSnapshot,
        MontyRuntimeError,
        MontySession,
        MontySyntaxError,
        SourceRange,
        SyncSnapshot,
    )

    from clia.engine.records import EngineLimits, FlowProgram


INPUT = "_clia_input_"
_MAGIC = b"clia-monty\n"
_DIGEST = 16


class PreparedProgram:
    """What a run must know of its program."""

    def __init__(self, program: FlowProgram, version: str, limits: EngineLimits, *, patient: bool) -> None:
        self._program, self._version, self._usual = program, version, limits
        self.limits = limits.patient() if patient else limits
        self.input = program.input
        self.source = program.source.encode()
        self.form = form_of(program.source)
        self.call_of_main = f"{'await ' if self.form.is_async else ''}main({INPUT})"
        # The flow's lines stay where they are: the call stands below them.
        self.fed = f"{program.source}\n{self.call_of_main}"

    @cached_property
    def identity(self) -> bytes:
        """A hash of all that a dump depends on; the limits are in it because a dump brings along those it was made under."""
        everything = json.dumps([self._version, self._usual, self._program]).encode()
        return hashlib.blake2b(everything, digest_size=32).digest()


class MontyRun:
    """``Run`` on a session of the engine, which it must let go."""

    def __init__(self, session: MontySession, job: PreparedProgram) -> None:
        self._session: MontySession | None = session
        self._job = job
        self._snapshot: FunctionSnapshot | FutureSnapshot | None = None
        self._open: dict[int, FlowCall] = {}
        self._printed = _PrintBuffer(job.limits.printed)
        self._turn = Turn()
        self._inherited = False
        forks.register(self)

    @property
    def turn(self) -> Turn:
        return self._turn

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        session, self._session, self._snapshot = self._session, None, None
        if session is not None:
            session.__exit__(None, None, None)

    def abandon(self) -> list[Any]:
        """In a process that was forked off: the worker is the parent's."""
        parts = [part for part in (self._session, self._snapshot) if part is not None]
        self._session, self._snapshot, self._inherited = None, None, True
        return parts

    # --- coming to the first calls

    def begin(self) -> Self:
        """Runs up to the first calls."""
        session, job = self._held(), self._job
        self._advance(lambda: session.feed_start(job.fed, inputs={INPUT: job.input}, print_callback=self._printed.take))
        return self

    def come_back(self, dump: bytes, pending: Sequence[FlowCall]) -> Self:
        """Comes to where a run was dumped."""
        from pydantic_monty import FunctionSnapshot, FutureSnapshot

        session, state = self._held(), _unsealed(self._job.identity, dump)
        try:
            snapshot = session.load_snapshot(state, print_callback=self._printed.take)
        except Exception as err:  # noqa: BLE001 - whatever the engine says of bytes that it cannot use
            raise EngineError(f"a dump cannot be loaded: {err}", code="dump-unusable") from None
        if isinstance(snapshot, FunctionSnapshot):
            found = [snapshot.call_id + 1]
        elif isinstance(snapshot, FutureSnapshot):
            found = sorted(number + 1 for number in snapshot.pending_call_ids)
        else:
            raise EngineError("a dump does not wait for a call", code="dump-unusable")
        if found != sorted(call.number for call in pending):
            raise EngineError("a dump waits for other calls than the session does", code="dump-unusable", fields={"calls": found})
        self._open = {call.number: call for call in pending}
        self._wait(snapshot, self._open.values())
        return self

    # --- going on

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        call = next((call for call in self._turn.pending if call.number == number), None)
        if call is None:
            raise InvalidInput(f"call {number} of the run is not pending", fields={"number": number})
        reply = _reply_to(call, answer)
        snapshot = self._snapshot
        self._held()
        del self._open[number]
        return self._advance(lambda: _resumed(snapshot, number, reply))

    def dump(self) -> bytes:
        if self._snapshot is None:
            raise InvalidInput("a run that waits for nothing cannot be dumped")
        self._held()
        try:
            state = self._snapshot.dump()
        except Exception as err:  # noqa: BLE001 - the worker is gone, or its answer made no sense
            raise self._lost(err) from None
        return _sealed(self._job.identity, state)

    # --- inside

    def _held(self) -> MontySession:
        if self._inherited:
            raise EngineError("a run belongs to the process that started it", code="run-inherited")
        if self._session is None:
            raise EngineError("the run has been let go", code="run-released")
        return self._session

    def _advance(self, step: Callable[[], SyncSnapshot]) -> Turn:
        """Runs as far as it can, replying at once to whatever nobody is asked for."""
        from pydantic_monty import FutureSnapshot, MontyComplete, MontyCrashedError, MontyRuntimeError, MontySyntaxError

        while True:
            try:
                snapshot = step()
            except (MontyRuntimeError, MontySyntaxError) as err:
                return self._end(Turn(failure=failure_of(err, self._job.call_of_main, self._job.limits)))
            except MontyCrashedError as err:
                if err.timed_out:
                    return self._end(Turn(failure=Failure(LIMIT, self._job.limits.time_message(), None)))
                raise self._lost(err) from None
            except Exception as err:  # noqa: BLE001 - the pool was closed, or the worker's answer made no sense
                raise self._lost(err) from None
            except BaseException:
                self.__exit__()  # nobody knows where the worker stands
                raise
            if isinstance(snapshot, MontyComplete):
                return self._end(_result_of(snapshot))
            if isinstance(snapshot, FutureSnapshot):
                return self._wait(snapshot, [self._open[number + 1] for number in snapshot.pending_call_ids])
            next_step = self._replied(snapshot)
            if next_step is None:
                return self._turn
            step = next_step

    def _replied(self, snapshot: SyncSnapshot) -> Callable[[], SyncSnapshot] | None:
        """How to go on at once; None where a plain call now waits."""
        from pydantic_monty import FunctionSnapshot, NameLookupSnapshot

        if isinstance(snapshot, NameLookupSnapshot):
            function = _HOST_FUNCTIONS.get(snapshot.variable_name)
            return snapshot.resume if function is None else lambda: snapshot.resume(value=function)
        assert isinstance(snapshot, FunctionSnapshot)  # noqa: S101 - the other kinds were seen above
        found = read_call(snapshot, self._site(snapshot.position))
        if isinstance(found, ImmediateReply):
            return lambda: snapshot.resume(found.reply)
        self._open[found.number] = found
        if self._job.form.is_async:
            return lambda: snapshot.resume({"future": ...})
        self._wait(snapshot, [found])
        return None

    def _site(self, position: SourceRange) -> CallSite:
        form = self._job.form
        if position.filename != FLOW_FILE:
            return CallSite(0, form.is_async, discarded=False)
        line = self._job.source.count(b"\n", 0, position.start) + 1
        return CallSite(line, form.is_async, (position.start, position.end) in form.discarded)

    def _wait(self, snapshot: FunctionSnapshot | FutureSnapshot, calls: Iterable[FlowCall]) -> Turn:
        self._snapshot = snapshot
        self._turn = Turn(pending=tuple(sorted(calls)), printed=self._printed.text())
        return self._turn

    def _end(self, turn: Turn) -> Turn:
        self._turn = turn._replace(printed=self._printed.text())
        self.__exit__()
        return self._turn

    def _lost(self, err: BaseException) -> EngineError:
        self.__exit__()
        error = EngineError(f"the process that ran the flow was lost: {err}", code=LOST)
        error.retryable = True
        return error


class _PrintBuffer:
    """What a flow printed in a turn, cut where it is too much."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[str] = []
        self._size = 0

    def take(self, _stream: Literal["stdout", "stderr"], text: str) -> None:
        if self._size <= self._limit:
            self._parts.append(text[: self._limit + 1 - self._size])
            self._size += len(text)

    def text(self) -> str:
        """What has come since the last time."""
        text, self._parts, self._size = "".join(self._parts), [], 0
        return text if len(text) <= self._limit else f"{text[: self._limit]}\n[cut: more than {self._limit} characters]\n"


def _request(*_args: Any, **_kwargs: Any) -> None:
    """Stands for a function of the host where a flow takes it as a value; calls of it arrive by its name."""


def _suspend(*_args: Any, **_kwargs: Any) -> None:
    """As ``_request``."""


_request.__name__, _suspend.__name__ = "request", "suspend"
_HOST_FUNCTIONS = {"request": _request, "suspend": _suspend}


def _reply_to(call: FlowCall, answer: FlowAnswer) -> Settled:
    if answer.error is not None:
        return {"exc_type": "RuntimeError", "message": answer.error.encode("utf-8", "replace").decode()}
    try:
        return {"return_value": copied(answer.value, "the answer")}
    except CannotCross as refused:
        raise InvalidAnswer(refused.problem, fields={"number": call.number}) from None


def _resumed(snapshot: FunctionSnapshot | FutureSnapshot | None, number: int, reply: Settled) -> SyncSnapshot:
    from pydantic_monty import FutureSnapshot

    if isinstance(snapshot, FutureSnapshot):
        return snapshot.resume({number - 1: reply})
    assert snapshot is not None  # noqa: S101 - a pending call has one
    return snapshot.resume(reply)


def _result_of(complete: Any) -> Turn:
    try:
        return Turn(result=coming_out(complete.output, "the result"))
    except CannotCross as refused:
        return Turn(failure=Failure(RESULT, refused.problem, None))


def _sealed(identity: bytes, state: bytes) -> bytes:
    return _MAGIC + hashlib.blake2b(state, key=identity, digest_size=_DIGEST).digest() + state


def _unsealed(identity: bytes, dump: bytes) -> bytes:
    """The engine's part of a dump. It would load one with a flipped bit, hence the hash over it and its program."""
    state = dump[len(_MAGIC) + _DIGEST :]
    if not state or dump != _sealed(identity, state):
        raise EngineError("a dump is damaged, or of another flow or engine", code="dump-unusable")
    return state


FLOW_FILE = "<python-input-0>"
"""How the engine calls the one text that a session is fed."""
_MAX_FRAMES = 50
_MAX_TRACE = 8000
_MAX_MESSAGE = 500
_TIME = re.compile(r"TimeoutError: (?:turn|feed) time limit exceeded: \S+ > \S+")
_MEMORY = re.compile(
    r"MemoryError: (?:memory limit exceeded: \d+ bytes > \d+ bytes|the worker exceeded its memory limit and was terminated)"
)


def failure_of(error: MontyRuntimeError | MontySyntaxError, call_of_main: str, limits: EngineLimits) -> Failure:
    """What ended the flow, as the port tells it."""
    text = error.display("type-msg")
    frames = [frame for frame in error.traceback() if not _is_ours(frame, call_of_main)]
    line = next((frame.line for frame in reversed(frames) if frame.filename == FLOW_FILE), None)
    if _TIME.fullmatch(text) and not frames:
        return Failure(LIMIT, limits.time_message(), line)
    if _MEMORY.fullmatch(text):
        return Failure(LIMIT, limits.memory_message(), line, _trace(frames, "MemoryError"))
    return Failure(RAISED, _one_line(text), line, _trace(frames, text))


def _is_ours(frame: Frame, call_of_main: str) -> bool:
    return frame.function_name in (None, "<module>") and frame.source_line == call_of_main


def _one_line(text: str) -> str:
    line = " ".join(text.split("\n")).strip()
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 1] + "…"


def _trace(frames: Sequence[Frame], text: str) -> str:
    """Like Python's own, oldest call first; in a long one the middle is left out."""
    shown = [_shown(frame) for frame in frames]
    if len(shown) > _MAX_FRAMES:
        left_out = len(shown) - _MAX_FRAMES
        shown[10 : 10 + left_out] = [f"  … {left_out} more …"]
    trace = "\n".join(["Traceback (most recent call last):", *shown, text[: _MAX_TRACE // 2]])
    return trace if len(trace) <= _MAX_TRACE else trace[: _MAX_TRACE // 2] + "\n…\n" + trace[3 - _MAX_TRACE // 2 :]


def _shown(frame: Frame) -> str:
    place = "line" if frame.filename == FLOW_FILE else f"{frame.filename}, line"
    head = f"  {place} {frame.line}, in {frame.function_name or '<module>'}"
    return f"{head}\n    {frame.source_line.strip()[:200]}" if frame.source_line else head
