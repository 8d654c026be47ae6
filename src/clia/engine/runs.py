"""One flow, as far as it has come.

Invariant: a run holds its worker while calls are pending and lets it go when it ends, whichever way. What it tells depends on
the program and the answers alone. A process that was forked off never speaks to a worker that it inherited.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property

from clia.engine import futures as forks
from clia.engine.calls import Site, Unheard, read_call
from clia.engine.failures import FLOW_FILE, failure_of
from clia.engine.flow_values import coming_out
from clia.engine.interface import LIMIT, LOST, RESULT, Answer, Call, Failure, Turn
from clia.engine.source import form_of
from clia.errors import EngineError, InvalidAnswer, InvalidInput
from clia.values.json_values import CannotCross, copied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Literal, Self

    from pydantic_monty import ExternalSettledResult as Settled
    from pydantic_monty import FunctionSnapshot, FutureSnapshot, MontySession, SourceRange, SyncSnapshot

    from clia.engine.interface import Program
    from clia.engine.limits import Limits

INPUT = "_clia_input_"
_MAGIC = b"clia-monty\n"
_DIGEST = 16


class Job:
    """What a run must know of its program."""

    def __init__(self, program: Program, version: str, limits: Limits, *, patient: bool) -> None:
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

    def __init__(self, session: MontySession, job: Job) -> None:
        self._session: MontySession | None = session
        self._job = job
        self._snapshot: FunctionSnapshot | FutureSnapshot | None = None
        self._open: dict[int, Call] = {}
        self._printed = _Printed(job.limits.printed)
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

    def come_back(self, dump: bytes, pending: Sequence[Call]) -> Self:
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

    def answer(self, number: int, answer: Answer) -> Turn:
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
        if isinstance(found, Unheard):
            return lambda: snapshot.resume(found.reply)
        self._open[found.number] = found
        if self._job.form.is_async:
            return lambda: snapshot.resume({"future": ...})
        self._wait(snapshot, [found])
        return None

    def _site(self, position: SourceRange) -> Site:
        form = self._job.form
        if position.filename != FLOW_FILE:
            return Site(0, form.is_async, discarded=False)
        line = self._job.source.count(b"\n", 0, position.start) + 1
        return Site(line, form.is_async, (position.start, position.end) in form.discarded)

    def _wait(self, snapshot: FunctionSnapshot | FutureSnapshot, calls: Iterable[Call]) -> Turn:
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


class _Printed:
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


def _reply_to(call: Call, answer: Answer) -> Settled:
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
