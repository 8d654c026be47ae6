"""Running git where another side has a say in how long it takes and how much it writes.

Invariant: a run ends in time with everything that it started, also where this process is killed meanwhile; no file that it
writes grows beyond the limit; of what it prints only so much is kept. Memory is limited for each object that git holds whole.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from clia.errors import GitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

    from clia.git.transport_records import Limits

_BLOCK = 512  # bytes, of the shell's limit
_KEPT = 1024 * 1024
_LAST_WORDS = 10.0
_NOT_FOUND = 127  # what a shell answers where there is no such program
_HELD = "640m"
"""The largest piece of memory that git may ask for. It makes no deltas of what is larger than 512m, and streams that."""
# The end of our pipe is the end of all: a shell beside git waits for it. A line in it says that all is well.
_SCRIPT = """
exec 3<&0
(read -r _ || kill -KILL 0) <&3 >/dev/null 2>&1 &
ulimit -f "$1" 2>/dev/null
given=$2
shift 2
exec "$@" <"$given" 3<&-
"""


class Ran(NamedTuple):
    code: int
    out: bytes
    err: str
    late: bool = False


def run(words: Sequence[str], environment: Mapping[str, str], cwd: str, limits: Limits, given: str = os.devnull) -> Ran:
    """Runs git with a file as its input."""
    whole = ["sh", "-c", _SCRIPT, "sh", str(cut_at(limits) // _BLOCK), given, *words]
    end = monotonic() + limits.seconds
    pipe = subprocess.PIPE
    seen = {**environment, "GIT_ALLOC_LIMIT": _HELD}
    try:
        process = subprocess.Popen(whole, cwd=cwd, env=seen, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as err:
        raise GitError(f"git cannot be run: {err.strerror}", hints=["install git, and have it on PATH"]) from None
    with process:
        out, complaints = _Kept(process.stdout), _Kept(process.stderr)
        done = False
        try:
            done = _ended(process, (out, complaints), end)
        finally:
            if done and process.returncode == 0 and process.stdin is not None:
                with suppress(OSError):
                    process.stdin.write(b"\n")
                    process.stdin.flush()
            else:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        # Before the pipes are closed: what was printed last says what went wrong. Nobody is left who could print more.
        for each in (out, complaints):
            each.join(_LAST_WORDS)
    if process.returncode == _NOT_FOUND:
        raise GitError("git cannot be run", hints=["install git, and have it on PATH"])
    return Ran(process.returncode, bytes(out.kept), complaints.kept.decode("utf-8", "replace").strip(), late=not done)


def cut_at(limits: Limits) -> int:
    """The size that no file gets beyond."""
    return max(1, limits.bytes // _BLOCK) * _BLOCK


def _ended(process: subprocess.Popen[bytes], readers: Sequence[threading.Thread], end: float) -> bool:
    """Whether it came to its end in time, and all that it printed has been read."""
    _notice_end(process, end)
    try:
        process.wait(max(0.0, end - monotonic()))
    except subprocess.TimeoutExpired:
        return False
    if process.returncode:
        return True  # whatever it left running is ended, and prints no more
    for each in readers:
        each.join(max(0.0, end - monotonic()))
    return not any(each.is_alive() for each in readers)


def _notice_end(process: subprocess.Popen[bytes], end: float) -> None:
    """Waits until a process has ended, where the system can tell at once; ``wait`` with a time looks only now and then."""
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        waiting.poll(max(0.0, end - monotonic()) * 1000)
    finally:
        os.close(handle)


class _Kept(threading.Thread):
    """Reads a pipe to its end and keeps the beginning: what another side says can be endless."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.kept = bytearray()
        self.start()

    def run(self) -> None:
        with suppress(OSError, ValueError):
            while self._stream is not None and (data := os.read(self._stream.fileno(), 65536)):
                self.kept += data[: _KEPT - len(self.kept)]
