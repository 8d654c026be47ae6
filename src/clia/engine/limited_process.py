"""Run a function in a subprocess with limits on time and memory.

Use it for work that may never end and would block the whole interpreter, such as a regular expression that backtracks. Only the
time spent on answers counts.
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
    """The subprocess exceeded a limit or died."""


@contextmanager
def limited_subprocess(module: str, seconds: float) -> Iterator[Ask]:
    """Start a module that calls ``serve``, and yield a function that asks it; all answers take at most ``seconds``."""
    process = subprocess.Popen(
        # Not from the current directory: it is a repository, and agents write files there.
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
        with suppress(OSError):  # unread input cannot be written any more
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
    except (OSError, ValueError):  # the process is gone: the pipe is closed, or the line is incomplete
        raise SubprocessFailed(f"takes more than {seconds:g} s" if late.is_set() else "the subprocess died") from None
    finally:
        timer.cancel()
        timer.join()  # no thread must be left when the process forks


def serve(answer: Ask, seconds: float) -> None:
    """Answer each line of stdin with a line: the subprocess side of ``limited_subprocess``."""
    import resource  # POSIX, as the rest

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # In case the parent dies without killing this process.
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    for line in sys.stdin.buffer:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
