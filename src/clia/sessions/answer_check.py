"""Applying a schema that a flow's author wrote, in a process of its own.

Invariant: it ends within its time and its memory, whatever the schema says, and holds up nobody else meanwhile.
"""

from __future__ import annotations

from clia.engine.limited_process import SubprocessFailed, limited_subprocess, serve
from clia.sessions.answers import CannotApply, problem_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECONDS = 5.0


def judged(schema: Any, value: Any) -> str | None:
    """Why a schema does not take a value; ``CannotApply`` where that cannot be told in time."""
    try:
        with limited_subprocess(__name__, SECONDS) as ask:
            verdict, said = ask([schema, value])
    except (SubprocessFailed, OSError) as err:  # or no process can be started
        raise CannotApply(str(err)) from None
    if verdict == "cannot":
        raise CannotApply(said)
    problem: str | None = said
    return problem


def _verdict(asked: Any) -> list[str | None]:
    schema, value = asked
    try:
        return ["says", problem_of(schema, value)]
    except CannotApply as err:
        return ["cannot", str(err)]


if __name__ == "__main__":
    serve(_verdict, SECONDS)
