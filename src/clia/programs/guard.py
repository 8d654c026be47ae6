"""The guard: the parent process of a program that clia runs, started as a script.

Invariant: when the control pipe ends, because clia closed it or died, the program's process group is terminated and, after a grace
period, killed. When the program ends, processes that it left in its group are killed. The guard is the program's parent, so the
process id cannot be reused while it waits. Each byte on the control pipe is a signal number for the group; none is lost, even
while the program starts.

If standard output is a terminal, it was created for the program, which leads its own session there. Ctrl-C reaches the program;
Ctrl-Z does nothing, because no shell could continue it.

Arguments: the file descriptor of the control pipe, that of a lock to hold while the program runs, the grace period in seconds, then
the program and its arguments. The program inherits neither descriptor: a daemon that it starts must not hold the lock.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import termios
import time
from contextlib import suppress

NOT_FOUND, NOT_STARTED = 127, 126


def main(words: list[str]) -> int:
    control, lock, grace = int(words[0]), int(words[1]), float(words[2])
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # to end the program, clia closes the pipe
    terminal = os.isatty(1)
    started, starting = os.pipe()  # the second is closed when the program has taken over
    child = os.fork()
    if not child:
        _become(words[3:], (control, lock), terminal)
    os.close(starting)
    os.read(started, 1)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # the program's channels end with the program
        os.dup2(null, number)
    code = _watch(child, control, awake, grace)
    _signal(child, signal.SIGKILL)
    return code


def _become(words: list[str], hidden: tuple[int, ...], terminal: bool) -> None:
    try:
        if terminal:
            os.setsid()
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        else:
            os.setpgid(0, 0)
        for reset in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(reset, signal.SIG_DFL)  # Python ignores the last two, and a program would do so with it
        for number in hidden:
            os.close(number)
        os.execvp(words[0], words)  # noqa: S606  # a program that the operator listed
    except OSError as err:
        os.write(2, f"{words[0]}: {err.strerror}\n".encode("utf-8", "replace"))
        os._exit(NOT_FOUND if isinstance(err, FileNotFoundError) else NOT_STARTED)


def _watch(child: int, control: int, awake: int, grace: float) -> int:
    """Wait for the program, or for the end of the pipe; return the program's exit code."""
    ends_at: float | None = None
    while True:
        inputs = [awake] if ends_at is not None else [awake, control]
        left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
        ready, _, _ = select.select(inputs, [], [], left)
        if awake in ready:
            os.read(awake, 4096)
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if control in ready:
            message = os.read(control, 1)
            _signal(child, message[0] if message else signal.SIGTERM)
            ends_at = None if message else time.monotonic() + grace
        elif ends_at is not None and time.monotonic() >= ends_at:
            _signal(child, signal.SIGKILL)
            ends_at = time.monotonic() + 1.0


def _signal(group: int, number: int) -> None:
    with suppress(OSError):  # the group is empty
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
