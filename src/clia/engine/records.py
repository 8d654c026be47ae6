"""Records of the engine that runs flows, and its interface.

Invariant: the same program with the same answers in the same order makes the same calls with the same numbers and has the same
result. A flow has no files, network, environment or clock except the program's, and limited time, memory and depth. Values that
go into or out of a flow are JSON. Time and memory limits depend on the machine, so a flow cannot catch them; depth does not.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

REQUEST, SUSPEND, SLEEP = "request", "suspend", "sleep"
"""The host functions that a flow may call."""
TIMER = "timer"
"""The kind of request that sleeping becomes."""

LOST, INHERITED = "engine-lost", "run-inherited"
"""Codes of the ``EngineError`` of a run that cannot be used any more: its worker died, or the process was forked."""

RAISED, LIMIT, RESULT = "raised", "limit", "result"
"""Why a flow failed: it raised, exceeded a limit, or returned a value that is not JSON."""


class FlowProgram(NamedTuple):
    """Everything that a run depends on, except the answers."""

    source: str
    input: Any
    seed: str
    started_at: str  # ISO 8601 with an offset: the time that the flow's clocks show
    timezone: str = "UTC"  # an IANA name


class FlowCall(NamedTuple):
    """A pending call of a flow. ``number`` counts a run's calls from 1; gaps are calls refused inside the flow."""

    number: int
    kind: str
    tag: str | None
    payload: Any
    line: int  # in the flow's source, from 1; 0 if unknown


class FlowAnswer(NamedTuple):
    """The value that a call returns or, with ``error``, the message of the RuntimeError that it raises."""

    value: Any = None
    error: str | None = None


class Failure(NamedTuple):
    """Why a flow failed. A failure that ``repeats`` happens at the same point of every replay; a limit may not.

    ``used``: if the time limit ended the turn, the part of its processor time that it had used. With much less than 1 the machine
    was busy, and the failure says nothing about the flow.
    """

    reason: str  # RAISED, LIMIT or RESULT
    message: str  # one line: "ValueError: no plan"
    line: int | None  # in the flow's source, if known
    trace: str = ""  # the traceback, in the flow's own lines
    used: float | None = None

    @property
    def repeats(self) -> bool:
        return self.reason != LIMIT


class Turn(NamedTuple):
    """The state of a run that has run as far as it can: it waits for calls, or has ended."""

    pending: tuple[FlowCall, ...] = ()  # sorted by number
    result: Any = None
    failure: Failure | None = None
    printed: str = ""  # what the flow printed since the last answer

    @property
    def ended(self) -> bool:
        return not self.pending


class Problem(NamedTuple):
    """Something that cannot work in a flow or, as a warning, may not work."""

    code: str  # syntax, no-main, unsupported, suspends-in-callback, unknown-name, type, …
    message: str  # one sentence for a person
    line: int  # from 1
    column: int  # from 1
    severity: str = "error"  # `error`, or `warning` if it may work


class FlowRun(Protocol):
    """A run of a flow. A context manager: it holds a worker until it is closed.

    One class implements it; a Protocol, because tests replace it by runs that fail (``tests/unit/sessions/test_replay*.py``).
    """

    @property
    def turn(self) -> Turn: ...

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        """Answer one pending call and continue. ``EngineError`` if the worker was lost: the run cannot be used any more."""

    def dump(self) -> bytes:
        """Return the bytes from which ``load`` restores this state; only while calls are pending."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class Engine(Protocol):
    """Runs flows: ``MontyEngine``, and in ``facade.backends`` one that loads it on first use.

    Threads may share it. A process forked after a flow has run cannot run flows: ``EngineError`` (engine-forked).
    """

    @property
    def version(self) -> str:
        """Name and version. Dumps of another version must not be loaded."""

    def start(self, program: FlowProgram, *, patience: float = 1) -> FlowRun:
        """Run a flow up to its first calls. ``patience``: how many times longer than usual a turn may take, for a busy machine."""

    def load(self, program: FlowProgram, dump: bytes, pending: Sequence[FlowCall]) -> FlowRun:
        """Return the dumped run, waiting for the same calls. ``EngineError`` if the bytes cannot be used."""

    def check(self, source: str, *, types: bool = False) -> list[Problem]:
        """Return the problems of a flow's source, sorted by line; with ``types`` also type errors. Runs nothing."""

    def close(self) -> None:
        """Stop the workers; the engine may be used again."""


PATIENCE = 10.0
"""Highest factor by which a turn may take longer on a busy machine. Replays always may."""


class EngineLimits(NamedTuple):
    turn_seconds: float = 5.0  # between two answers: of elapsed time, which bounds the processor time
    memory: int = 64 * 1024 * 1024
    depth: int = 200
    printed: int = 1024 * 1024  # characters per turn; the rest is cut

    def patient(self, patience: float) -> EngineLimits:
        return self._replace(turn_seconds=self.turn_seconds * patience)

    def time_message(self) -> str:
        return f"time: a turn used more than {self.turn_seconds:g} seconds of processor time"
