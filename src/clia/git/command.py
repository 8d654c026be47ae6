"""Running stock git.

Invariant: the caller's ``GIT_*`` variables, hooks, pager, prompts and file monitor take no part, whatever the repository's
configuration says; only filters that a command needs for its work (``add`` of a directory) run.
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

    from clia.git.libgit2 import GitHandle
    from clia.git.records import TransferLimits


# How a person reaches servers is theirs to say; which repository, index or objects are meant is not.
_REACHING = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_PROXY_COMMAND")
_QUIET = ("--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.quotePath=false")


class GitResult(NamedTuple):
    code: int
    out: bytes
    err: str
    late: bool = False  # stopped because its time was up

    def failure(self, *words: str) -> GitError:
        """What to raise for the git command of these words."""
        verb = _verb(words)
        return GitError(f"git {verb} failed: {self.err or f'exit code {self.code}'}", fields={"command": verb, "reason": self.err})


class GitCommand:
    """Stock git on one repository."""

    def __init__(self, git_dir: str, environment: Mapping[str, str], *, durable: bool = True) -> None:
        self._git_dir = git_dir
        self.given = environment
        self.reaching = {key: environment[key] for key in _REACHING if key in environment}
        self._settings = (*_QUIET, "-c", f"core.fsync={'all' if durable else 'none'}")

    def _environment(self) -> dict[str, str]:
        """What git sees: nothing that would point it to another repository."""
        kept = {key: value for key, value in self.given.items() if not key.startswith("GIT_")}
        return kept | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}

    def whole(self, *words: str) -> tuple[list[str], dict[str, str]]:
        """A command in the repository itself, for whoever runs it in a way of its own; and what it sees of the environment."""
        return ["git", f"--git-dir={self._git_dir}", "--no-optional-locks", *self._settings, *words], self._environment()

    def run(
        self,
        *words: str,
        data: bytes = b"",
        cwd: str | None = None,
        more: Mapping[str, str] | None = None,
        optional_locks: bool = False,
    ) -> bytes:
        """What git prints; ``GitError`` with its complaint where it fails."""
        done = self.attempt(*words, data=data, cwd=cwd, more=more, optional_locks=optional_locks)
        if done.code:
            raise done.failure(*words)
        return done.out

    def attempt(
        self,
        *words: str,
        data: bytes = b"",
        cwd: str | None = None,
        more: Mapping[str, str] | None = None,
        optional_locks: bool = False,
    ) -> GitResult:
        """In the repository itself, or with ``cwd`` in the worktree there."""
        where = [] if cwd else [f"--git-dir={self._git_dir}"]
        locks = [] if optional_locks else ["--no-optional-locks"]
        try:
            done = subprocess.run(
                ["git", *where, *locks, *self._settings, *words],
                input=data,
                cwd=cwd or self._git_dir,
                env={**self._environment(), **(more or {})},
                capture_output=True,
                check=False,
            )
        except OSError as err:
            raise GitError(f"git cannot be run: {err.strerror}", hints=["install git, and have it on PATH"]) from None
        return GitResult(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace").strip())


class GitPart:
    """What a part of the workbench works with."""

    def __init__(self, handle: GitHandle, command: GitCommand) -> None:
        self._handle = handle
        self._command = command


def _verb(words: tuple[str, ...]) -> str:
    """The subcommand, behind whatever options of git itself stand before it."""
    at = 0
    while words[at].startswith("-"):
        at += 2 if words[at] in ("-c", "-C") else 1
    return words[at]


_BLOCK = 512  # bytes, of the shell's limit
_OUTPUT_MAX = 1024 * 1024
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


def run_limited(
    words: Sequence[str], environment: Mapping[str, str], cwd: str, limits: TransferLimits, given: str = os.devnull
) -> GitResult:
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
        out, complaints = _PipeReader(process.stdout), _PipeReader(process.stderr)
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
    return GitResult(process.returncode, bytes(out.kept), complaints.kept.decode("utf-8", "replace").strip(), late=not done)


def cut_at(limits: TransferLimits) -> int:
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


class _PipeReader(threading.Thread):
    """Reads a pipe to its end and keeps the beginning: what another side says can be endless."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.kept = bytearray()
        self.start()

    def run(self) -> None:
        with suppress(OSError, ValueError):
            while self._stream is not None and (data := os.read(self._stream.fileno(), 65536)):
                self.kept += data[: _OUTPUT_MAX - len(self.kept)]
