"""Applying a schema that a flow's author wrote, in a process of its own.

Invariant: it ends within its time and its memory, whatever the schema says, and holds up nobody else meanwhile: a pattern that
backtracks for ever keeps a whole interpreter from doing anything else.
"""

from __future__ import annotations

import json
import subprocess
import sys

from clia.sessions.answers import CannotApply, problem_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECONDS = 5.0
_MEMORY = 1024 * 1024 * 1024


def judged(schema: Any, value: Any) -> str | None:
    """Why a schema does not take a value; ``CannotApply`` where that cannot be told in time."""
    asked = json.dumps([schema, value])
    try:
        done = subprocess.run(
            # Not from where we stand: that is a repository, and agents write files there.
            [sys.executable, "-P", "-m", __name__],
            input=asked,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        verdict, said = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise CannotApply(f"it takes more than {SECONDS:g} s") from None
    except (subprocess.CalledProcessError, OSError, ValueError):
        raise CannotApply("whoever applies it dies of it") from None
    if verdict == "cannot":
        raise CannotApply(said)
    problem: str | None = said
    return problem


def main() -> None:
    import resource  # POSIX, as the rest

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS) + 1, int(SECONDS) + 1))
    schema, value = json.load(sys.stdin)
    try:
        answer = ["says", problem_of(schema, value)]
    except CannotApply as err:
        answer = ["cannot", str(err)]
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
