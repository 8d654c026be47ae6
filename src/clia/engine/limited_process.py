"""Work that may take for ever, done in a process of its own.

Invariant: it ends within its time and its memory, whatever it is given, and holds up nobody else meanwhile: a pattern that
backtracks for ever keeps a whole interpreter from doing anything else. Only the time that answers take counts, not the time
in which nothing is asked.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager, suppress
from threading import Event, Timer
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Ask = Callable[[Any], Any]  # JSON in, JSON out; raises Unanswered

_MEMORY = 1024 * 1024 * 1024


class SubprocessFailed(Exception):
    """Why there is no answer."""


@contextmanager
def limited_subprocess(module: str, seconds: float) -> Iterator[Ask]:
    """Asks a module that calls ``serve`` when it is run; all answers together take at most ``seconds``."""
    process = subprocess.Popen(
        # Not from where we stand: that is a repository, and agents write files there.
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    spent = 0.0

    def ask(question: Any) -> Any:
        nonlocal spent
        begun = monotonic()
        try:
            return _answer(process, json.dumps(question).encode("ascii") + b"\n", seconds, spent)
        finally:
            spent += monotonic() - begun

    try:
        yield ask
    finally:
        process.kill()
        with suppress(OSError):  # what it left unread cannot be written any more
            process.stdin.close()  # type: ignore[union-attr]  # they are pipes
        process.stdout.close()  # type: ignore[union-attr]
        process.wait()


def _answer(process: subprocess.Popen[bytes], question: bytes, seconds: float, spent: float) -> Any:
    late = Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = Timer(seconds - spent, stop)
    timer.start()
    try:
        process.stdin.write(question)  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        return json.loads(process.stdout.readline())  # type: ignore[union-attr]
    except (OSError, ValueError):  # it is gone: the pipe is closed, or the line is empty or cut
        raise SubprocessFailed(f"it takes more than {seconds:g} s" if late.is_set() else "whoever applies it dies of it") from None
    finally:
        timer.cancel()
        timer.join()  # a thread that is left behind would be there when somebody forks


def serve(answer: Ask, seconds: float) -> None:
    """Answers each line of stdin with a line: the other end of ``apart``."""
    import resource  # POSIX, as the rest

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # Should nobody be left to end this process: it needs no more than its time.
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
