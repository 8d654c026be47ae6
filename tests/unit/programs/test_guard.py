"""The guard, run as clia runs it: as a script, with a control pipe and a lock."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from clia.programs import guard as program_guard
from support.terminal import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import FileIO
    from pathlib import Path

IGNORES_SIGTERM = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
SAYS_GOODBYE = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.write(1, b"ready\\n")
signal.sigwait([signal.SIGTERM])
os.write(1, b"goodbye\\n")
os._exit(5)
"""


class Guarded(NamedTuple):
    """A guard with its program, and our end of the control pipe."""

    process: subprocess.Popen[bytes]
    control: FileIO

    def readline(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, data: bytes = b"") -> tuple[int, bytes]:
        """Send input, wait for the guard, and return its exit code and the rest of the output."""
        output = self.process.communicate(data, timeout=PATIENCE)[0]
        return self.process.returncode, output


@contextmanager
def guarded(*words: str, grace: float = PATIENCE, first_signals: Sequence[int] = (), lock: int | None = None) -> Iterator[Guarded]:
    """Start a program under a guard. ``first_signals`` are on the control pipe before the guard starts."""
    theirs, ours = os.pipe()
    lock = os.open(os.devnull, os.O_RDONLY) if lock is None else lock
    os.write(ours, bytes(first_signals))
    command = [sys.executable, "-I", "-S", program_guard.__file__, str(theirs), str(lock), str(grace), *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, pass_fds=(theirs, lock)) as process:
        os.close(theirs)
        os.close(lock)
        with open(ours, "wb", 0) as control:
            try:
                yield Guarded(process, control)
            finally:
                process.kill()  # in case it does not end by itself


@pytest.mark.parametrize(("script", "exit_code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 128 + 9)])
def test_the_exit_code_is_that_of_the_program(script: str, exit_code: int) -> None:
    with guarded("sh", "-c", script) as guard:
        assert guard.end() == (exit_code, b"")


def test_a_program_that_cannot_be_started_is_reported_as_by_a_shell(tmp_path: Path) -> None:
    (tmp_path / "text").touch(0o644)
    for path, exit_code, reason in (
        (tmp_path / "none", 127, "No such file or directory"),
        (tmp_path / "text", 126, "Permission denied"),
    ):
        with guarded(str(path)) as guard:
            assert guard.end() == (exit_code, f"{path}: {reason}\n".encode())


def test_the_program_reads_its_input_and_inherits_no_other_file() -> None:
    with guarded("sh", "-c", "cat; ls /proc/self/fd") as guard:
        exit_code, output = guard.end(b"input\n")
    assert exit_code == 0
    assert output.split() == [b"input", b"0", b"1", b"2", b"3"]  # the last is the directory that ls reads


def test_when_the_control_pipe_closes_the_program_is_terminated_and_may_clean_up() -> None:
    with guarded(sys.executable, "-c", SAYS_GOODBYE) as guard:
        assert guard.readline() == b"ready\n"
        guard.control.close()
        assert guard.end() == (5, b"goodbye\n")


@pytest.mark.parametrize(("script", "exit_code"), [(IGNORES_SIGTERM, 137), (f"({IGNORES_SIGTERM}) & read ready; exit 3", 3)])
def test_programs_that_ignore_sigterm_are_killed(script: str, exit_code: int) -> None:
    """The program after its grace period, and its children when it has ended; the channel closes with the last process."""
    with guarded("sh", "-c", script, grace=0.05) as guard:
        assert guard.readline() == b"ready\n"
        if exit_code == 137:
            guard.control.close()
        assert guard.end(b"\n") == (exit_code, b"")


def test_a_byte_on_the_control_pipe_is_a_signal_for_the_program() -> None:
    with guarded(sys.executable, "-c", SAYS_GOODBYE) as guard:
        assert guard.readline() == b"ready\n"
        guard.control.write(bytes([signal.SIGTERM]))
        assert guard.end() == (5, b"goodbye\n")


def test_a_signal_that_arrives_before_the_program_has_started_is_not_lost() -> None:
    with guarded("tail", "-f", "/dev/null", first_signals=[signal.SIGINT]) as guard:
        assert guard.end() == (128 + signal.SIGINT, b"")


def test_signals_to_the_guard_do_not_end_it() -> None:
    with guarded("sh", "-c", "echo ready; cat") as guard:
        assert guard.readline() == b"ready\n"
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            guard.process.send_signal(number)
        assert guard.end(b"input\n") == (0, b"input\n")


def test_the_lock_is_held_until_the_guard_ends_and_not_by_a_daemon(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    daemon = "setsid sh -c 'echo $$; exec tail -f /dev/null > /dev/null 2>&1' & read line"
    with open(tmp_path / "lock", "rb") as handle, guarded("sh", "-c", daemon, lock=lock) as guard:
        pid = int(guard.readline())
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert guard.end(b"\n") == (0, b"")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(pid, signal.SIGKILL)  # fails unless the daemon still runs


def test_at_a_terminal_the_program_leads_its_own_session() -> None:
    master, screen = pty.openpty()
    (theirs, ours), lock = os.pipe(), os.open(os.devnull, os.O_RDONLY)
    script = "import os; print(os.getsid(0) == os.getpid(), os.tcgetpgrp(1) == os.getpid(), os.isatty(0))"
    words = ["-I", "-S", program_guard.__file__, str(theirs), str(lock), "1", sys.executable, "-c", script]
    with open(master, "rb", 0) as terminal, open(ours, "wb", 0), open(screen, "wb", 0) as streams:
        guard = subprocess.Popen(
            [sys.executable, *words], stdin=streams, stdout=streams, stderr=streams, pass_fds=(theirs, lock), start_new_session=True
        )
        os.close(theirs)
        os.close(lock)
        assert guard.wait(PATIENCE) == 0
        assert terminal.read(1000) == b"True True True\r\n"
