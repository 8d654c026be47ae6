"""Run programs on this machine, each under a guard process.

Invariant: one program at a time works in a place, over all processes of the machine. Nothing outlives the call that started it,
nor the death of the calling process: the guard (``guard.py``) is the program's parent and ends its process group when our end
of a pipe closes. A place is a lock file that the guard holds open too, so it is free only when the guard has ended.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.errors import FileError
from clia.programs import guard as program_guard
from clia.programs.terminal import ProgramChannels
from clia.store import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager


_LOOK = 0.1  # seconds between checks for cancellation
_CHUNK = 64 * 1024
_LAST_WORDS = 5.0  # seconds for the guard, after the grace period


class ProgramRunner:
    """Runs programs on POSIX. ``grace``: seconds that a program has to end when it is told to."""

    def __init__(self, grace: float = 5.0) -> None:
        self._grace = grace
        self._held: dict[str, int] = {}
        self._mutex = threading.Lock()

    @contextmanager
    def alone(self, place: str, cancelled: Callable[[], bool]) -> Iterator[bool]:
        """Hold a place against every other process, waiting for it. Yields False if cancelled before it was free."""
        handle = _open(place)
        try:
            while not _locked(handle):
                if cancelled():
                    yield False
                    return
                time.sleep(_LOOK)
            with self._mutex:
                self._held[place] = handle
            try:
                yield True
            finally:
                with self._mutex:
                    del self._held[place]
        finally:
            os.close(handle)  # not unlocked: a guard that still runs keeps the place

    def run(
        self, order: ProgramCommand, place: str, on_output: Callable[[bytes], None], cancelled: Callable[[], bool]
    ) -> ProgramExit:
        """Run a program in a place whose lock is held. ``on_output`` gets output as it arrives, and empty chunks in between.

        ``FileError`` if it cannot be started.
        """
        if _which(order) is None:  # the guard could only report it by its exit code
            raise _cannot(order, "not found")
        control, ours = os.pipe()
        try:
            with tempfile.TemporaryFile() as stdin:
                stdin.write(order.stdin)
                stdin.seek(0)
                streams = (stdin.fileno(), subprocess.PIPE, subprocess.STDOUT)
                started = self._guarded(order, (control, self._held[place]), streams)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(control)
        how, out = EXITED, started.stdout
        assert out is not None  # noqa: S101  # as requested
        try:
            with out:
                try:
                    how = _listen(started, out.fileno(), time.monotonic() + order.seconds, on_output, cancelled)
                finally:
                    os.close(ours)
                _listen(started, out.fileno(), time.monotonic() + self._grace + _LAST_WORDS, on_output, lambda: False)
        finally:
            if started.poll() is None:
                self._reap(started)
        return ProgramExit(how, _exit_code(started))

    def _guarded(
        self, order: ProgramCommand, descriptors: tuple[int, int], streams: tuple[int, int, int]
    ) -> subprocess.Popen[bytes]:
        """Start the guard with the control pipe, the lock and the program's streams."""
        guard = [sys.executable, "-I", "-S", program_guard.__file__, *map(str, descriptors), str(self._grace)]
        stdin, stdout, stderr = streams
        try:
            return subprocess.Popen(
                [*guard, *order.words],
                cwd=order.directory,
                env=dict(order.environment),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=descriptors,
                start_new_session=True,
            )
        except OSError as err:
            raise _cannot(order, str(err.strerror)) from None

    def attend(self, order: ProgramCommand, place: str, user: UserStreams, on_output: Callable[[str, bytes], None]) -> ProgramExit:
        """Run a program on the user's streams, in a place whose lock is held, without a time limit.

        Output is shown as it arrives, then passed to ``on_output`` with the name of its stream (``terminal``, ``stdout`` or
        ``stderr``), and an empty chunk from time to time. ``stdin`` and ``seconds`` of the command are ignored.
        """
        self.check(order)
        numbers = os.pipe()
        with open(numbers[0], "rb", 0) as control, open(numbers[1], "wb", 0) as ours, ProgramChannels(user) as channels:
            started = self._guarded(order, (control.fileno(), self._held[place]), channels.far)
            control.close()
            channels.started()
            try:
                with channels.raw(), user.signals(lambda number: _tell(number, channels, ours.fileno())):
                    _pass_on(started, channels, on_output)
            finally:
                ours.close()  # if we fail, the program must end
                self._reap(started)
            return ProgramExit(EXITED, _exit_code(started))

    def check(self, order: ProgramCommand) -> None:
        """Raise ``FileError`` if there is no such program, or it may not be run."""
        if _which(order) is not None:
            return
        name = order.words[0]
        exists = _which(order, os.F_OK) is not None or ("/" in name and os.path.isdir(os.path.join(order.directory, name)))
        reason = "not executable" if exists else "not found"
        code = "program-not-executable" if exists else "program-not-found"
        raise FileError(f"cannot run {name}: {reason}", code=code, fields={"path": name, "reason": reason})

    def _reap(self, started: subprocess.Popen[bytes]) -> None:
        """Wait for the guard, which ends by itself unless it is stuck in the kernel with its program."""
        try:
            started.wait(self._grace + _LAST_WORDS)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()

    def clear(self, directory: str) -> None:
        """Remove a directory and everything below it, if it exists."""
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            pass
        except OSError as err:
            raise FileError(f"{directory}: {err.strerror}", fields={"path": directory, "reason": str(err.strerror)}) from None


def _listen(
    started: subprocess.Popen[bytes], out: int, deadline: float, on_output: Callable[[bytes], None], cancelled: Callable[[], bool]
) -> str:
    """Pass on output until the guard has ended or it is time to stop. A daemon may keep the stream open."""
    while True:
        has_ended = started.poll() is not None
        ready, _, _ = select.select([out], [], [], 0.0 if has_ended else _LOOK)
        data = os.read(out, _CHUNK) if ready else b""
        on_output(data)
        if has_ended and not data:
            return EXITED
        if ready and not data:
            time.sleep(_LOOK / 10)  # the stream is closed, but the program still runs
        if cancelled():
            return CANCELLED
        if time.monotonic() >= deadline:
            return TIMED_OUT


def _pass_on(started: subprocess.Popen[bytes], channels: ProgramChannels, on_output: Callable[[str, bytes], None]) -> None:
    """Show and pass on output until the guard has ended. A daemon may keep a stream open and continue to print."""
    last = None
    while True:
        has_ended = started.poll() is not None
        if has_ended:
            last = last or time.monotonic() + _LAST_WORDS
        elif not channels.open:
            with suppress(subprocess.TimeoutExpired):
                started.wait(_LOOK)
        printed = channels.pass_on(0.0 if has_ended else _LOOK, on_output)
        if last is not None and (not printed or time.monotonic() >= last):
            return


def _tell(number: int, channels: ProgramChannels, control: int) -> None:
    if number == signal.SIGWINCH:
        channels.resize()
        return
    with suppress(OSError):  # the guard has ended
        os.write(control, bytes([number]))


def _which(order: ProgramCommand, mode: int = os.F_OK | os.X_OK) -> str | None:
    """The path of the program, if there is one."""
    name = order.words[0]
    where = os.path.join(order.directory, name) if "/" in name else name
    return shutil.which(where, mode=mode, path=order.environment.get("PATH", os.defpath))


def _exit_code(started: subprocess.Popen[bytes]) -> int:
    return started.returncode if started.returncode >= 0 else 128 - started.returncode


def _open(place: str) -> int:
    try:
        private_files.make_directory(os.path.dirname(place))
        return private_files.open_file(place, os.O_RDWR | os.O_CREAT)
    except OSError as err:
        raise FileError(f"{place}: {err.strerror}", fields={"path": place, "reason": str(err.strerror)}) from None


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _cannot(order: ProgramCommand, reason: str) -> FileError:
    name = order.words[0]
    return FileError(f"cannot run {name}: {reason}", code="program-not-run", fields={"path": name, "reason": reason})


EXITED, TIMED_OUT, CANCELLED = "exited", "timed-out", "cancelled"


class ProgramCommand(NamedTuple):
    """A command to run. ``words[0]`` is looked up on the PATH of ``environment``, the program's whole environment."""

    words: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    stdin: bytes = b""
    seconds: float = 600.0


class ProgramExit(NamedTuple):
    """How a program ended; ``code`` is 128 plus the signal's number if a signal ended it."""

    how: str  # EXITED, TIMED_OUT or CANCELLED
    code: int


class UserStreams(NamedTuple):
    """The standard streams and signals of the user who runs a program."""

    stdin: int
    stdout: int
    stderr: int
    terminal: bool  # the user is at a terminal: the program gets its own
    signals: Callable[[Callable[[int], None]], AbstractContextManager[None]]  # calls back with each signal's number
