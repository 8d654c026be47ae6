"""Why a flow ended, in the flow's own lines.

Invariant: the line that calls ``main`` is ours and is never shown. A limit is told apart from an exception of the same name
that the flow raised itself.
"""

from __future__ import annotations

import re

from clia.engine.interface import LIMIT, RAISED, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_monty import Frame, MontyRuntimeError, MontySyntaxError

    from clia.engine.limits import Limits

FLOW_FILE = "<python-input-0>"
"""How the engine calls the one text that a session is fed."""
_MAX_FRAMES = 50
_MAX_TRACE = 8000
_MAX_MESSAGE = 500
_TIME = re.compile(r"TimeoutError: (?:turn|feed) time limit exceeded: \S+ > \S+")
_MEMORY = re.compile(
    r"MemoryError: (?:memory limit exceeded: \d+ bytes > \d+ bytes|the worker exceeded its memory limit and was terminated)"
)


def failure_of(error: MontyRuntimeError | MontySyntaxError, call_of_main: str, limits: Limits) -> Failure:
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
