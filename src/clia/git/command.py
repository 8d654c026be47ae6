"""Run the git command, with or without limits on time and output.

Invariant: the caller's ``GIT_*`` variables, hooks, pager, prompts and file monitor have no effect, whatever the repository
configures; only filters that a command needs (``add`` of a directory) run. Git reaches servers by its own transports only
(``PROTOCOLS``): a helper such as ``ext::`` would run a program that an address names. A limited run ends in time with everything
that it started, even if this process is killed; no file that it writes exceeds the limit, and only the start of its output is kept.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import threading
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from clia.errors import GitError, TransportError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import IO

    from clia.git.records import TransferLimits

# Users may configure how servers are reached, but not which repository, index or objects are used.
_REACHING = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_PROXY_COMMAND")
PROTOCOLS = ("file", "git", "http", "https", "ssh")
"""The transports that git may use, whatever the configuration of git allows."""
ALLOWED = "GIT_ALLOW_PROTOCOL"
_REFUSED = re.compile(r"transport '([^']*)' not allowed")
_QUIET = ("--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.quotePath=false")


class GitResult(NamedTuple):
    code: int
    out: bytes
    err: str
    late: bool = False  # stopped because its time was up

    def failure(self, *words: str) -> GitError:
        """Return the error to raise for this git command."""
        at = 0
        while words[at].startswith("-"):  # git's own options
            at += 2 if words[at] in ("-c", "-C") else 1
        verb = words[at]
        # Git's own hints are about its options, which clia chose.
        lines = [line.strip() for line in self.err.splitlines() if not line.startswith("hint: ")]
        message = f"git {verb} failed: {' '.join(lines) or f'exit code {self.code}'}"
        return GitError(message, fields={"command": verb, "reason": self.err})


class GitCommand:
    """The git command, run on one repository."""

    def __init__(
        self, git_dir: str, environment: Mapping[str, str], *, durable: bool = True, refused: Collection[str] = ()
    ) -> None:
        """``refused``: transports that the repository's configuration does not allow."""
        self._git_dir = git_dir
        self.environment = environment
        self.reaching = {key: environment[key] for key in _REACHING if key in environment}
        self._settings = (*_QUIET, "-c", f"core.fsync={'all' if durable else 'none'}")
        self._protocols = allowed_protocols(environment, refused)

    def _environment(self) -> dict[str, str]:
        """Return git's environment, without variables that point to another repository."""
        environment = {key: value for key, value in self.environment.items() if not key.startswith("GIT_")}
        return environment | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", ALLOWED: self._protocols}

    def whole(self, *words: str) -> tuple[list[str], dict[str, str]]:
        """Return a git command on the repository and its environment, for callers that run it themselves."""
        return ["git", f"--git-dir={self._git_dir}", "--no-optional-locks", *self._settings, *words], self._environment()

    def run(self, *words: str, data: bytes = b"", cwd: str | None = None, variables: Mapping[str, str] | None = None) -> bytes:
        """Run git and return its output; ``GitError`` has its message if it fails."""
        result = self.attempt(*words, data=data, cwd=cwd, variables=variables)
        if result.code:
            raise result.failure(*words)
        return result.out

    def attempt(
        self, *words: str, data: bytes = b"", cwd: str | None = None, variables: Mapping[str, str] | None = None
    ) -> GitResult:
        """Run git on the repository or, with ``cwd``, in the worktree there."""
        where = [] if cwd else [f"--git-dir={self._git_dir}"]
        try:
            process = subprocess.run(
                ["git", *where, "--no-optional-locks", *self._settings, *words],
                input=data,
                cwd=cwd or self._git_dir,
                env={**self._environment(), **(variables or {})},
                capture_output=True,
                check=False,
            )
        except OSError as err:
            raise _no_git(f": {err.strerror}") from None
        return GitResult(process.returncode, process.stdout, process.stderr.decode("utf-8", "replace").strip())


def allowed_protocols(environment: Mapping[str, str], refused: Collection[str] = ()) -> str:
    """The value of ``GIT_ALLOW_PROTOCOL``: the transports of ``PROTOCOLS``, or those of them that the caller allows."""
    allowed = environment[ALLOWED].split(":") if ALLOWED in environment else PROTOCOLS
    return ":".join(protocol for protocol in PROTOCOLS if protocol in allowed and protocol not in refused) or "none"


def refused_transport(text: str) -> TransportError | None:
    """The error if git's message says that a transport is not allowed; else None."""
    match = _REFUSED.search(text)
    if match is None:
        return None
    message = f"git may not use the transport {match[1]!r}"
    hints = [
        f"use an address of {', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}: git remote set-url REMOTE URL",
        "url.*.insteadOf and remote.*.vcs in git's configuration can replace an address",
    ]
    error = TransportError(message, code="transport-not-allowed", hints=hints, fields={"transport": match[1]})
    error.retryable = False
    return error


def _no_git(reason: str = "") -> GitError:
    return GitError(f"cannot run git{reason}", hints=["install git and add it to PATH"])


_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
_BLOCK = 512  # bytes; the unit of ulimit -f
OUTPUT_MAX = 1024 * 1024
_LAST_WORDS = 10.0
_NOT_FOUND = 127  # exit code of a shell that does not find a program
_HELD = "640m"
"""The largest allocation git may make. Git streams objects larger than 512m and makes no deltas of them."""
# A second shell kills the process group when our pipe closes, unless a line was written to it.
_SCRIPT = """
exec 3<&0
(read -r _ || kill -KILL 0) <&3 >/dev/null 2>&1 &
ulimit -f "$1" 2>/dev/null
given=$2
shift 2
exec "$@" <"$given" 3<&-
"""


def run_limited(
    words: Sequence[str],
    environment: Mapping[str, str],
    cwd: str,
    limits: TransferLimits,
    stdin: str = os.devnull,
    most: int = OUTPUT_MAX,
) -> GitResult:
    """Run git with limits, and with a file as its input. Of its output, the start is kept: ``most`` bytes."""
    argv = ["sh", "-c", _SCRIPT, "sh", str(cut_at(limits) // _BLOCK), stdin, *words]
    end = monotonic() + limits.seconds
    pipe = subprocess.PIPE
    variables = {**environment, "GIT_ALLOC_LIMIT": _HELD}
    try:
        process = subprocess.Popen(argv, cwd=cwd, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as err:
        raise _no_git(f": {err.strerror}") from None
    with process:
        out, complaints = _PipeReader(process.stdout, most), _PipeReader(process.stderr, OUTPUT_MAX)
        in_time = False
        try:
            in_time = _ended(process, (out, complaints), end)
        finally:
            if in_time and process.returncode == 0 and process.stdin is not None:
                with suppress(OSError):
                    process.stdin.write(b"\n")
                    process.stdin.flush()
            else:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        # Before the pipes are closed: the last output says what went wrong.
        for reader in (out, complaints):
            reader.join(_LAST_WORDS)
    if process.returncode == _NOT_FOUND:
        raise _no_git()
    return GitResult(process.returncode, bytes(out.kept), complaints.kept.decode("utf-8", "replace").strip(), late=not in_time)


def cut_at(limits: TransferLimits) -> int:
    """Return the largest size of a file, in whole blocks."""
    return max(1, limits.bytes // _BLOCK) * _BLOCK


def unreachable(doing: str, remote: str, reason: str) -> TransportError:
    refused = refused_transport(reason)
    if refused is not None:
        return refused
    name = without_credentials(remote)
    return TransportError(f"git could not {doing} {name}: {reason}", fields={"remote": name, "reason": reason})


def without_credentials(text: str) -> str:
    """Remove user names and passwords from the addresses in a text."""
    return _CREDENTIALS.sub("", text)


def _ended(process: subprocess.Popen[bytes], readers: Sequence[threading.Thread], end: float) -> bool:
    """Return whether the process ended in time and all its output was read."""
    with suppress(AttributeError, OSError):  # not all systems have a pidfd; ``wait`` with a timeout only polls
        handle = os.pidfd_open(process.pid)
        try:
            waiting = select.poll()
            waiting.register(handle, select.POLLIN)
            waiting.poll(max(0.0, end - monotonic()) * 1000)
        finally:
            os.close(handle)
    try:
        process.wait(max(0.0, end - monotonic()))
    except subprocess.TimeoutExpired:
        return False
    if process.returncode:
        return True  # its process group is killed, so no more output can come
    for reader in readers:
        reader.join(max(0.0, end - monotonic()))
    return not any(reader.is_alive() for reader in readers)


class _PipeReader(threading.Thread):
    """Reads a pipe to its end and keeps the start: the other side can send without end."""

    def __init__(self, stream: IO[bytes] | None, most: int) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._most = most
        self.kept = bytearray()
        self.start()

    def run(self) -> None:
        with suppress(OSError, ValueError):
            while self._stream is not None and (data := os.read(self._stream.fileno(), 65536)):
                self.kept += data[: self._most - len(self.kept)]
