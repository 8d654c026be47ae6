"""The parent of a program that clia runs: a process of its own, started as a script.

Invariant: when the control pipe ends, because clia closed it or died in any way, the program's whole group is told to end
and, after a grace, killed. When the program itself ends, what it left running in its group is killed. As the program's
parent, the guard knows its group for certain: no number of a process is ever used again while it waits.

Words: the number of the control pipe, that of a lock to hold as long as the program runs, the grace in seconds, then the
program and its words. The program has neither: a daemon that it leaves behind must not hold the lock for ever.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

NOT_FOUND, NOT_STARTED = 127, 126


def main(words: list[str]) -> int:
    control, lock, grace = int(words[0]), int(words[1]), float(words[2])
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for each in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # whoever wants the program to end closes the pipe
    child = os.fork()
    if not child:
        _become(words[3:], (control, lock))
    _set_group(child)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # the program's channels end with the program
        os.dup2(nothing, number)
    code = _watch(child, control, awake, grace)
    _signal(child, signal.SIGKILL)
    return code


def _become(words: list[str], hidden: tuple[int, ...]) -> None:
    try:
        os.setpgid(0, 0)
        for each in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(each, signal.SIG_DFL)
        for number in hidden:
            os.close(number)
        os.execvp(words[0], words)  # noqa: S606  # a program that the operator listed
    except OSError as err:
        os.write(2, f"{words[0]}: {err.strerror}\n".encode("utf-8", "replace"))
        os._exit(NOT_FOUND if isinstance(err, FileNotFoundError) else NOT_STARTED)


def _set_group(child: int) -> None:
    with suppress(OSError):  # it has done so itself, and runs already
        os.setpgid(child, child)


def _watch(child: int, control: int, awake: int, grace: float) -> int:
    """Waits for the program, or for the end of the pipe; the program's exit code."""
    ends_at: float | None = None
    while True:
        wanted = [awake] if ends_at is not None else [awake, control]
        left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
        ready, _, _ = select.select(wanted, [], [], left)
        if awake in ready:
            os.read(awake, 4096)
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if control in ready and not os.read(control, 1):
            _signal(child, signal.SIGTERM)
            ends_at = time.monotonic() + grace
        elif ends_at is not None and time.monotonic() >= ends_at:
            _signal(child, signal.SIGKILL)
            ends_at = time.monotonic() + 1.0


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(OSError):  # nobody is left in it
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
