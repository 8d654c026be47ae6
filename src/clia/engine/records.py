"""What runs flows: a sandbox that stops wherever a flow asks for something.

Invariant: the same program given the same answers in the same order makes the same calls, under the same numbers, and
comes to the same end. A flow reaches no file, no network, no environment and no clock but the program's own; it is
bounded in time, memory and depth. What crosses into or out of a flow is JSON.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

    from pydantic_monty import ResourceLimits


REQUEST, SUSPEND, SLEEP = "request", "suspend", "sleep"
"""The functions that a flow may call outside of itself."""
TIMER = "timer"
"""The kind of request that sleeping becomes."""

LOST, INHERITED = "engine-lost", "run-inherited"
"""Codes of the ``EngineError`` where a run is of no more use: its worker died, or the process was forked since."""

RAISED, LIMIT, RESULT = "raised", "limit", "result"
"""Why a flow failed: it raised; it used up what it may use; it returned what cannot cross."""


class FlowProgram(NamedTuple):
    """Everything that a run depends on, apart from the answers."""

    source: str
    input: Any
    seed: str
    started_at: str  # ISO 8601 with an offset: the instant that the flow's clocks show
    timezone: str = "UTC"  # an IANA name


class FlowCall(NamedTuple):
    """What a flow waits for. ``number`` counts a run's calls from 1; gaps are calls that were refused inside the flow."""

    number: int
    kind: str
    tag: str | None
    payload: Any
    line: int  # in the flow's source, from 1; 0 where it is not known


class FlowAnswer(NamedTuple):
    """What a call returns; with ``error``, what it raises instead: a RuntimeError with that text."""

    value: Any = None
    error: str | None = None


class Failure(NamedTuple):
    """Why a flow cannot go on. One that ``repeats`` comes again at the same point of every replay; a limit need not."""

    reason: str  # RAISED, LIMIT or RESULT
    message: str  # one line: "ValueError: no plan"
    line: int | None  # in the flow's source, where that is known
    trace: str = ""  # the traceback, in the flow's own lines

    @property
    def repeats(self) -> bool:
        return self.reason != LIMIT


class Turn(NamedTuple):
    """Where a run stands after it has run as far as it can: it waits for calls, or it has ended."""

    pending: tuple[FlowCall, ...] = ()  # sorted by number
    result: Any = None
    failure: Failure | None = None
    printed: str = ""  # what the flow printed since the last answer

    @property
    def ended(self) -> bool:
        return not self.pending


class Problem(NamedTuple):
    """What cannot work in a flow, in the flow's own lines; a warning where it may work."""

    code: str  # syntax, no-main, unsupported, suspends-in-callback, unknown-name, type, …
    message: str
    line: int
    column: int
    severity: str = "error"  # or "warning"


class FlowRun(Protocol):
    """One flow, as far as it has come. A context manager: it holds a worker until it is let go."""

    @property
    def turn(self) -> Turn: ...

    def answer(self, number: int, answer: FlowAnswer) -> Turn:
        """Answers one pending call and runs on. ``EngineError`` where the worker was lost: the run is of no more use."""

    def dump(self) -> bytes:
        """What ``load`` takes to come back to this very point; only while calls are pending."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class Engine(Protocol):
    """Threads may share it. A process that is forked off after a flow has run cannot run one: ``EngineError`` (engine-forked)."""

    @property
    def version(self) -> str:
        """Name and version. Dumps of another version are not to be loaded."""

    def start(self, program: FlowProgram, *, patient: bool = False) -> FlowRun:
        """Runs a flow up to its first calls. ``patient``: a replay, which a busy machine must not fail; its limits are wide."""

    def load(self, program: FlowProgram, dump: bytes, pending: Sequence[FlowCall]) -> FlowRun:
        """The run that was dumped, waiting for the same calls. ``EngineError`` where the bytes cannot be used."""

    def check(self, source: str, *, types: bool = False) -> list[Problem]:
        """What cannot work in a flow's source, sorted by line; ``types``: what a type checker says too. Runs nothing."""

    def close(self) -> None:
        """Lets the workers go; the engine may be used again."""


PATIENCE = 10
"""How many times as long a replay may take."""
_ENDLESS = 2**31 - 1


class EngineLimits(NamedTuple):
    turn_seconds: float = 5.0  # between two answers
    memory: int = 64 * 1024 * 1024
    depth: int = 200
    printed: int = 1024 * 1024  # characters a turn; what is beyond is cut

    def patient(self) -> EngineLimits:
        return self._replace(turn_seconds=self.turn_seconds * PATIENCE)

    def of_a_session(self) -> ResourceLimits:
        """As the engine wants them. No limit on a whole feed: its clock travels in the dump, and ends long sessions at random."""
        return {
            "max_turn_duration_secs": self.turn_seconds,
            "max_memory": self.memory,
            "max_recursion_depth": self.depth,
            "max_suspensions": _ENDLESS,
        }

    def watchdog(self) -> float:
        """When a worker that does not even keep its own limits is ended: one number for all, hence the patient one."""
        return self.patient().turn_seconds + 30

    def time_message(self) -> str:
        return f"time: a turn ran longer than {self.turn_seconds:g} seconds"

    def memory_message(self) -> str:
        return f"memory: it took more than {self.memory / 1024 / 1024:g} MiB"
