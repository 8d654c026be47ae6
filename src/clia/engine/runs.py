"""Runs of flows on pydantic-monty.

Invariant: a run holds its worker while calls are pending and releases it when it ends, however it ends. Its turns depend on the
program and the answers alone.

A forked process never calls or destroys engine objects of its parent. The engine's threads exist in the parent only, so a call
would wait forever; and destroying the objects would break the parent's calls, because both share file descriptors.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
import weakref
from bisect import bisect_left
from functools import cached_property
from operator import itemgetter

from clia.engine.calls import CallSite, coming_out, read_call
from clia.engine.flow_source import form_of
from clia.engine.records import INHERITED, LIMIT, LOST, RAISED, REQUEST, RESULT, SUSPEND, Failure, FlowAnswer, FlowCall, Turn
from clia.errors import EngineError, InvalidAnswer, InvalidInput
from clia.values.json_values import CannotCross, copied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, Self

    from pydantic_monty import ExternalSettledResult as Settled
    from pydantic_monty import (
        Frame,
        FunctionSnapshot,
        FutureSnapshot,
        MontyRuntimeError,
        MontySession,
        MontySyntaxError,
        SyncSnapshot,
    )

    from clia.engine.monty import MontyEngine
    from clia.engine.records import EngineLimits, FlowProgram

INPUT = "_clia_input_"
_CLOCK_OF_PROCESS = 2
"""The kind of clock in the lowest bits of the id of another process's clock (``clock_getcpuclockid`` of glibc and musl)."""
_MAGIC = b"clia-monty\n"
_DIGEST = 16


fork_sensitive: weakref.WeakSet[MontyRun | MontyEngine] = weakref.WeakSet()
"""Holders of engine objects. In a forked process they abandon them."""
_in_use: list[int] = []  # id of the process that has the engine's threads


def claim_threads() -> None:
    """Claim the engine's threads for this process, before the first worker starts."""
    if not _in_use:
        _in_use.append(os.getpid())
        os.register_at_fork(after_in_child=_abandon_all)
    if _in_use[0] != os.getpid():
        hints = ["start a new process (multiprocessing: spawn), or fork before the first flow runs"]
        raise EngineError("a process forked after its parent ran a flow cannot run flows", code="engine-forked", hints=hints)


def _abandon_all() -> None:
    import ctypes  # only here: few processes ever fork

    for holder in list(fork_sensitive):
        for part in holder.abandon():
            # Keep an extra reference: even interpreter shutdown must not destroy the object.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))


class PreparedProgram:
    """A program in the form that runs use."""

    def __init__(self, program: FlowProgram, version: str, limits: EngineLimits, patience: float) -> None:
        self._program, self._version, self.usual = program, version, limits
        self.limits = limits.patient(patience)
        self.input = program.input
        self.source = program.source.encode()
        self.form = form_of(program.source)
        self.call_of_main = f"{'await ' if self.form.is_async else ''}main({INPUT})"
        # The call is below the flow, whose line numbers stay the same.
        self.fed = f"{program.source}\n{self.call_of_main}"

    @cached_property
    def identity(self) -> bytes:
        """A hash of everything that a dump depends on, including the limits: a dump contains those of its run."""
        return hashlib.blake2b(json.dumps([self._version, self.usual, self._program]).encode(), digest_size=32).digest()


class MontyRun:
    """``FlowRun`` on a session of the engine, which it must release."""

    def __init__(self, session: MontySession, program: PreparedProgram) -> None:
        self.session: MontySession | None = session
        self.program = program
        self._snapshot: FunctionSnapshot | FutureSnapshot | None = None
        self._open: dict[int, FlowCall] = {}
        self._printed = PrintBuffer(program.limits.printed)
        self.turn = Turn()
        self._inherited = False
        fork_sensitive.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        session, self.session, self._snapshot = self.session, None, None
        if session is not None:
            session.__exit__(None, None, None)

    def abandon(self) -> list[Any]:
        """Forget the engine objects in a forked process, and return them: the worker is the parent's."""
        parts = [part for part in (self.session, self._snapshot) if part is not None]
        self.session, self._snapshot, self._inherited = None, None, True
        return parts

    def begin(self) -> Self:
        """Run up to the first calls."""
        session, program = self._require_session(), self.program
        self._advance(lambda: session.feed_start(program.fed, inputs={INPUT: program.input}, print_callback=self._printed.take))
        return self

    def restore(self, dump: bytes, pending: Sequence[FlowCall]) -> Self:
        """Continue where a run was dumped."""
        from pydantic_monty import FunctionSnapshot, FutureSnapshot

        session, state = self._require_session(), dump[len(_MAGIC) + _DIGEST :]
        # The engine would load a dump with a flipped bit.
        if not state or dump != seal(self.program.identity, state):
            raise EngineError("a dump is damaged, or of another flow or engine", code="dump-unusable")
        try:
            snapshot = session.load_snapshot(state, print_callback=self._printed.take)
        except Exception as err:  # noqa: BLE001 - whatever the engine raises for bytes that it cannot use
            raise EngineError(f"a dump cannot be loaded: {err}", code="dump-unusable") from None
        if isinstance(snapshot, FunctionSnapshot):
            numbers = [snapshot.call_id + 1]
        elif isinstance(snapshot, FutureSnapshot):
            numbers = sorted(number + 1 for number in snapshot.pending_call_ids)
        else:
            raise EngineError("a dump does not wait for a call", code="dump-unusable")
        if numbers != sorted(call.number for call in pending):
            message = "a dump waits for other calls than the session does"
            raise EngineError(message, code="dump-unusable", fields={"calls": numbers})
        self._open = {call.number: call for call in sorted(pending)}
        self._wait(snapshot, tuple(self._open.values()))
        return self

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        call = _call_numbered(self.turn.pending, number)
        if call is None:
            raise InvalidInput(f"call {number} of the run is not pending", fields={"number": number})
        reply = _reply_to(call, answer)
        snapshot = self._snapshot
        self._require_session()
        del self._open[number]

        def step() -> SyncSnapshot:
            from pydantic_monty import FutureSnapshot

            assert snapshot is not None  # noqa: S101 - a pending call has one
            return snapshot.resume({number - 1: reply}) if isinstance(snapshot, FutureSnapshot) else snapshot.resume(reply)

        return self._advance(step)

    def dump(self) -> bytes:
        if self._snapshot is None:
            raise InvalidInput("a run that waits for nothing cannot be dumped")
        self._require_session()
        try:
            state = self._snapshot.dump()
        except Exception as err:  # noqa: BLE001 - the worker is gone, or its answer is invalid
            raise self._lost(err) from None
        return seal(self.program.identity, state)

    def _require_session(self) -> MontySession:
        if self._inherited:
            raise EngineError("a run belongs to the process that started it", code=INHERITED)
        if self.session is None:
            raise EngineError("the run is closed", code="run-released")
        return self.session

    def _advance(self, step: Callable[[], SyncSnapshot]) -> Turn:
        """Run as far as possible, with immediate replies to calls that need no answer."""
        from pydantic_monty import FutureSnapshot, MontyComplete, MontyCrashedError, MontyRuntimeError, MontySyntaxError

        program, session = self.program, self._require_session()
        worker = session.worker_pid
        while True:
            before = processor_seconds(worker)
            try:
                snapshot = step()
            except (MontyRuntimeError, MontySyntaxError) as err:
                failure = failure_of(err, program.call_of_main, program.usual)
                if failure.used is not None:
                    failure = failure._replace(used=used_part(before, processor_seconds(worker), program.usual))
                return self._end(Turn(failure=failure))
            except MontyCrashedError as err:
                if err.timed_out:  # the worker is gone, and with it the clock of its processor time
                    return self._end(Turn(failure=Failure(LIMIT, program.usual.time_message(), None, used=1.0)))
                raise self._lost(err) from None
            except Exception as err:  # noqa: BLE001 - the pool was closed, or the worker's answer is invalid
                raise self._lost(err) from None
            except BaseException:
                self.__exit__()  # the state of the worker is unknown
                raise
            if isinstance(snapshot, MontyComplete):
                try:
                    return self._end(Turn(result=coming_out(snapshot.output, "the result")))
                except CannotCross as refused:
                    return self._end(Turn(failure=Failure(RESULT, refused.problem, None)))
            if isinstance(snapshot, FutureSnapshot):
                return self._wait(snapshot, self._awaited(snapshot.pending_call_ids))
            next_step = self._replied(snapshot)
            if next_step is None:
                return self.turn
            step = next_step

    def _replied(self, snapshot: SyncSnapshot) -> Callable[[], SyncSnapshot] | None:
        """Return the next step; None if a plain call now waits."""
        from pydantic_monty import FunctionSnapshot, NameLookupSnapshot

        if isinstance(snapshot, NameLookupSnapshot):
            function = _HOST_FUNCTIONS.get(snapshot.variable_name)
            return snapshot.resume if function is None else lambda: snapshot.resume(value=function)
        assert isinstance(snapshot, FunctionSnapshot)  # noqa: S101 - the caller handles the other kinds
        form, position = self.program.form, snapshot.position
        in_flow = position.filename == FLOW_FILE
        line = self.program.source.count(b"\n", 0, position.start) + 1 if in_flow else 0
        discarded = in_flow and (position.start, position.end) in form.discarded
        call = read_call(snapshot, CallSite(line, form.is_async, discarded))
        if not isinstance(call, FlowCall):
            return lambda: snapshot.resume(call)
        self._open[call.number] = call
        if form.is_async:
            return lambda: snapshot.resume({"future": ...})
        self._wait(snapshot, (call,))
        return None

    def _awaited(self, ids: Sequence[int]) -> tuple[FlowCall, ...]:
        """Return the calls with these ids, sorted: usually all that are open, which are in order."""
        if len(ids) == len(self._open):
            return tuple(self._open.values())
        return tuple(sorted(self._open[number + 1] for number in ids))

    def _wait(self, snapshot: FunctionSnapshot | FutureSnapshot, calls: tuple[FlowCall, ...]) -> Turn:
        self._snapshot = snapshot
        self.turn = Turn(pending=calls, printed=self._printed.text())
        return self.turn

    def _end(self, turn: Turn) -> Turn:
        self.turn = turn._replace(printed=self._printed.text())
        self.__exit__()
        return self.turn

    def _lost(self, err: BaseException) -> EngineError:
        self.__exit__()
        error = EngineError(f"the process that ran the flow was lost: {err}", code=LOST)
        error.retryable = True
        return error


def processor_seconds(process: int | None) -> float | None:
    """Return the processor time that a process has used; None if the system does not report it, or the process is gone."""
    if process is None or not sys.platform.startswith("linux"):
        return None
    try:
        return time.clock_gettime(~process << 3 | _CLOCK_OF_PROCESS)
    except (OSError, OverflowError):
        return None


def used_part(before: float | None, after: float | None, limits: EngineLimits) -> float:
    """Return the used share of a turn's processor time; 1 if it is unknown."""
    return 1.0 if before is None or after is None else (after - before) / limits.turn_seconds


class PrintBuffer:
    """The output of a flow in a turn, cut at a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[str] = []
        self._size = 0

    def take(self, _stream: Literal["stdout", "stderr"], text: str) -> None:
        if self._size <= self._limit:
            self._parts.append(text[: self._limit + 1 - self._size])
            self._size += len(text)

    def text(self) -> str:
        """Return and clear the output."""
        text, self._parts, self._size = "".join(self._parts), [], 0
        return text if len(text) <= self._limit else f"{text[: self._limit]}\n[cut: more than {self._limit} characters]\n"


def _call_numbered(calls: Sequence[FlowCall], number: int) -> FlowCall | None:
    """Return the call with a number among calls that are sorted by number."""
    index = bisect_left(calls, number, key=itemgetter(0))
    return calls[index] if index < len(calls) and calls[index].number == number else None


def _host_function(name: str) -> Callable[..., None]:
    """Return what represents a host function when a flow uses it as a value; calls of it arrive by its name."""

    def function(*_args: Any, **_kwargs: Any) -> None:
        pass

    function.__name__ = name
    return function


_HOST_FUNCTIONS = {name: _host_function(name) for name in (REQUEST, SUSPEND)}


def _reply_to(call: FlowCall, answer: FlowAnswer) -> Settled:
    if answer.error is not None:
        return {"exc_type": "RuntimeError", "message": answer.error.encode("utf-8", "replace").decode()}
    try:
        return {"return_value": copied(answer.value, "the answer")}
    except CannotCross as refused:
        raise InvalidAnswer(refused.problem, fields={"number": call.number}) from None


def seal(identity: bytes, state: bytes) -> bytes:
    """Return a dump: the engine's state behind a hash over it and its program."""
    return _MAGIC + hashlib.blake2b(state, key=identity, digest_size=_DIGEST).digest() + state


FLOW_FILE = "<python-input-0>"
"""The engine's file name for the flow."""
_MAX_FRAMES = 50
_MAX_TRACE = 8000
_MAX_MESSAGE = 500
_TIME = re.compile(r"TimeoutError: (?:turn|feed) time limit exceeded: \S+ > \S+")
_MEMORY = re.compile(
    r"MemoryError: (?:memory limit exceeded: \d+ bytes > \d+ bytes|the worker exceeded its memory limit and was terminated)"
)


def failure_of(error: MontyRuntimeError | MontySyntaxError, call_of_main: str, limits: EngineLimits) -> Failure:
    text = error.display("type-msg")
    outside = (None, "<module>")  # of functions: the call of main
    frames = [frame for frame in error.traceback() if frame.function_name not in outside or frame.source_line != call_of_main]
    line = next((frame.line for frame in reversed(frames) if frame.filename == FLOW_FILE), None)
    if _TIME.fullmatch(text) and not frames:
        return Failure(LIMIT, limits.time_message(), line, used=1.0)
    if _MEMORY.fullmatch(text):
        message = f"memory: it took more than {limits.memory / 1024 / 1024:g} MiB"
        return Failure(LIMIT, message, line, _trace(frames, "MemoryError"))
    message = " ".join(text.split("\n")).strip()
    message = message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…"
    return Failure(RAISED, message, line, _trace(frames, text))


def _trace(frames: Sequence[Frame], text: str) -> str:
    """Return a traceback as Python prints it, oldest call first; the middle of a long one is left out."""
    shown = []
    for frame in frames:
        place = "line" if frame.filename == FLOW_FILE else f"{frame.filename}, line"
        shown.append(f"  {place} {frame.line}, in {frame.function_name or '<module>'}")
        shown[-1] += f"\n    {frame.source_line.strip()[:200]}" if frame.source_line else ""
    if len(shown) > _MAX_FRAMES:
        left_out = len(shown) - _MAX_FRAMES
        shown[10 : 10 + left_out] = [f"  … {left_out} more …"]
    trace = "\n".join(["Traceback (most recent call last):", *shown, text[: _MAX_TRACE // 2]])
    return trace if len(trace) <= _MAX_TRACE else trace[: _MAX_TRACE // 2] + "\n…\n" + trace[3 - _MAX_TRACE // 2 :]
