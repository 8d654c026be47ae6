"""Programs of this machine, each under a guard.

Invariant: the guard (``program_guard.py``) is the program's parent and ends it when our end of a pipe is closed, which the
kernel does at our death. A place is a lock file that the guard and the program hold open too: a place is free when
nobody from before is left.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager

from clia.backends import program_guard
from clia.errors import FileError
from clia.ports.programs import CANCELLED, EXITED, TIMED_OUT, Ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.ports.programs import Order

_LOOK = 0.1  # how often it is asked whether to go on
_CHUNK = 64 * 1024
_LAST_WORDS = 5.0  # for the guard, behind its own grace


class LocalPrograms:
    """``Programs`` on POSIX. ``grace``: how long a program may take to end when it is told to."""

    def __init__(self, grace: float = 5.0) -> None:
        self._grace = grace
        self._held: dict[str, int] = {}
        self._mutex = threading.Lock()

    @contextmanager
    def alone(self, place: str, cancelled: Callable[[], bool]) -> Iterator[bool]:
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
            os.close(handle)  # not unlocked: a program that outlived its end still holds the place

    def run(self, order: Order, place: str, said: Callable[[bytes], None], cancelled: Callable[[], bool]) -> Ended:
        _check_program(order)
        control, ours = os.pipe()
        try:
            started = self._start(order, control, self._held[place])
        except OSError as err:
            os.close(ours)
            raise _cannot(order, str(err.strerror)) from None
        finally:
            os.close(control)
        how, out = EXITED, started.stdout
        assert out is not None  # noqa: S101  # it was asked for
        try:
            with out:
                try:
                    how = _listen(started, out.fileno(), time.monotonic() + order.seconds, said, cancelled)
                finally:
                    os.close(ours)
                _listen(started, out.fileno(), time.monotonic() + self._grace + _LAST_WORDS, said, lambda: False)
        finally:
            if started.poll() is None:
                self._reap(started)
        return Ended(how, started.returncode if started.returncode >= 0 else 128 - started.returncode)

    def _start(self, order: Order, control: int, lock: int) -> subprocess.Popen[bytes]:
        guard = [sys.executable, "-I", "-S", program_guard.__file__, str(control), str(lock), str(self._grace)]
        with tempfile.TemporaryFile() as stdin:
            stdin.write(order.stdin)
            stdin.seek(0)
            return subprocess.Popen(
                [*guard, *order.words],
                cwd=order.directory,
                env=dict(order.environment),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(control, lock),
                start_new_session=True,
            )

    def _reap(self, started: subprocess.Popen[bytes]) -> None:
        """The guard ends by itself; one that does not is stuck in the kernel with its program."""
        try:
            started.wait(self._grace + _LAST_WORDS)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()

    def clear(self, directory: str) -> None:
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            pass
        except OSError as err:
            raise FileError(f"{directory}: {err.strerror}", fields={"path": directory, "reason": str(err.strerror)}) from None


def _listen(
    started: subprocess.Popen[bytes], out: int, deadline: float, said: Callable[[bytes], None], cancelled: Callable[[], bool]
) -> str:
    """Passes on what is printed until the guard has ended, or it is time to stop. A daemon may keep the channel for ever."""
    while True:
        ended = started.poll() is not None
        ready, _, _ = select.select([out], [], [], 0.0 if ended else _LOOK)
        data = os.read(out, _CHUNK) if ready else b""
        said(data)
        if ended and not data:
            return EXITED
        if ready and not data:
            time.sleep(_LOOK / 10)  # the channel is closed, and the program goes on
        if cancelled():
            return CANCELLED
        if time.monotonic() >= deadline:
            return TIMED_OUT


def _check_program(order: Order) -> None:
    """Before anything runs: what the guard could only tell by its exit code."""
    name = order.words[0]
    where = os.path.join(order.directory, name) if "/" in name else name
    if shutil.which(where, path=order.environment.get("PATH", os.defpath)) is None:
        raise _cannot(order, "there is no such program")


def _open(place: str) -> int:
    try:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as err:
        raise FileError(f"{place}: {err.strerror}", fields={"path": place, "reason": str(err.strerror)}) from None


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _cannot(order: Order, reason: str) -> FileError:
    name = order.words[0]
    return FileError(f"{name} cannot be run: {reason}", code="program-not-run", fields={"path": name, "reason": reason})
