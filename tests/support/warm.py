"""The installed program without its start: loading takes many times as long as most commands do.

Invariant: a command that is run here prints, changes and answers what the installed program does; where that cannot be promised
(another locale, settings of Python's, a stream that is closed, another session of processes), the installed program itself is run.
What only a cold start shows - that a command loads all that it uses - is not shown here: see ``pages.cold_commands``, and the
tests that start the program themselves.

There are two ways in: ``run``, for tests, and ``stand_in``, for a shell's path.
"""

from __future__ import annotations

import atexit
import marshal
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from support import warm_keeper

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PROGRAM = str(Path(sys.executable).parent / "clia")
HARMLESS = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
LOCALES = ("LC_ALL", "LC_CTYPE", "LANG")
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Done(NamedTuple):
    code: int
    out: bytes
    err: bytes


class Keeper:
    """The process that forks; it ends with this one, and is made again in a process that was forked from this one."""

    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="clia-", dir="/tmp" if Path("/tmp").is_dir() else None)
        self.address = f"{self.directory}/socket"  # short: the path of a socket has 107 bytes
        words = [sys.executable, warm_keeper.__file__, self.address, PROGRAM]
        self._process = subprocess.Popen(words, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        self._owner = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        if self._owner != os.getpid():
            return
        self._process.communicate()
        with suppress(FileNotFoundError):
            os.unlink(self.address)
        os.rmdir(self.directory)


def _environment() -> dict[str, str]:
    """Nothing that says how Python starts: a command that has such a variable is not run here."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LC_", "COVERAGE_"))}
    return kept | {"LANG": "C.UTF-8"}


@cache
def _keeper(owner: int) -> Keeper:
    return Keeper()


def can_run(variables: Mapping[str, str]) -> bool:
    """Whether Python would start with these variables as it does with none."""
    odd = [key for key in variables if key.startswith(("PYTHON", "COVERAGE_")) and key not in HARMLESS]
    return not odd and all(variables.get(key, "UTF-8").upper().endswith(("UTF-8", "UTF8")) for key in LOCALES)


def run(words: Sequence[str], *, cwd: str | Path | None, env: Mapping[str, str]) -> Done:
    """What ``subprocess.run`` does with the installed program, and nothing to read for it."""
    if not can_run(env):
        done = subprocess.run([PROGRAM, *words], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)
    variables = {os.fsencode(key): os.fsencode(value) for key, value in env.items()}
    mask = os.umask(0o22)
    os.umask(mask)
    request = marshal.dumps((list(map(os.fspath, words)), variables, mask, [], os.getpgrp()))
    (out, out_end), (err, err_end), nothing = os.pipe(), os.pipe(), os.open(os.devnull, os.O_RDONLY)
    handles = [nothing, out_end, err_end, os.open(cwd or ".", os.O_RDONLY)]
    with socket.socket(socket.AF_UNIX) as keeper:
        keeper.connect(_keeper(os.getpid()).address)
        socket.send_fds(keeper, [len(request).to_bytes(warm_keeper.HEAD, "big")], handles)
        keeper.sendall(request)
        for each in handles:
            os.close(each)
        written = _read(out, err)
        answer = warm_keeper.exactly(keeper, 2 * warm_keeper.HEAD)
    return Done(int.from_bytes(answer[warm_keeper.HEAD :], "big", signed=True), *written)


def _read(*handles: int) -> list[bytes]:
    """All that is written to pipes, which are closed then."""
    found: dict[int, list[bytes]] = {each: [] for each in handles}
    with selectors.DefaultSelector() as ready:
        for each in handles:
            ready.register(each, selectors.EVENT_READ)
        while ready.get_map():
            for key, _ in ready.select():
                found[key.fd].append(os.read(key.fd, 2**16))
                if not found[key.fd][-1]:
                    ready.unregister(key.fd)
                    os.close(key.fd)
    return [b"".join(found[each]) for each in handles]


# For a shell's path: Python without its library starts in a tenth of the time that the program takes.

_STAND_IN = """\
#!{python} -IS
import marshal, posix, sys, _signal, _socket

found = dict(posix.environ)
found[b"PATH"] = b":".join(each for each in found.get(b"PATH", b"").split(b":") if each != {directory})

def is_first(name):
    if name not in {cold}:
        return False
    try:
        posix.close(posix.open({directory} + b"/started-" + name.encode(), posix.O_CREAT | posix.O_EXCL))
    except FileExistsError:
        return False
    return True

def cold():
    if posix.getsid(0) != {session} or any(is_first(each) for each in ("".join(sys.argv[1:2]), " ".join(sys.argv[1:3]))):
        return True
    if any(key.startswith((b"PYTHON", b"COVERAGE_")) and key not in {harmless} for key in found):
        return True
    return not all(found.get(key, b"UTF-8").upper().endswith((b"UTF-8", b"UTF8")) for key in {locales})

def ask():
    try:
        handles = [posix.dup(0), posix.dup(1), posix.dup(2), posix.open(".", posix.O_RDONLY)]
        keeper = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        keeper.connect({address})
    except OSError:
        return None
    mask = posix.umask(0o22)
    posix.umask(mask)
    ignored = [each for each in {passed} if _signal.getsignal(each) == _signal.SIG_IGN]
    request = marshal.dumps((sys.argv[1:], found, mask, ignored, posix.getpgrp()))
    passed = b"".join(each.to_bytes(4, sys.byteorder) for each in handles)
    keeper.sendmsg([len(request).to_bytes({head}, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
    keeper.sendall(request)
    for each in (0, 1, *handles):  # whoever reads what the command writes waits for no other end
        posix.close(each)
    return keeper, ignored

def number(keeper):
    read = keeper.recv({head}, _socket.MSG_WAITALL)
    return int.from_bytes(read, "big", signed=True) if len(read) == {head} else 1

asked = None if cold() else ask()
if asked is None:
    posix.execve({program}, [{program}, *sys.argv[1:]], found)
keeper, ignored = asked
child = number(keeper)

def pass_on(which, _):
    try:
        posix.kill(child, which)
    except OSError:  # it ended
        pass

for each in {passed}:
    if each not in ignored:
        _signal.signal(each, pass_on)
code = number(keeper)
if code < 0:
    if -code != _signal.SIGKILL:
        _signal.signal(-code, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -code)
posix._exit(code)
"""


def stand_in(directory: Path, cold: Iterable[str]) -> None:
    """Puts a ``clia`` into a directory that asks for the command here; the first of each in ``cold`` starts the installed program.

    The command sees a path without that directory: the only program on it is the installed one.
    """
    text = _STAND_IN.format(
        python=sys.executable,
        program=repr(PROGRAM),
        directory=repr(os.fsencode(directory)),
        address=repr(_keeper(os.getpid()).address),
        session=os.getsid(0),
        cold=repr(tuple(sorted(cold))),
        harmless=repr(tuple(map(str.encode, HARMLESS))),
        locales=repr(tuple(map(str.encode, LOCALES))),
        passed=repr(tuple(map(int, PASSED_ON))),
        head=warm_keeper.HEAD,
    )
    (directory / "clia").write_text(text, encoding="utf-8")
    (directory / "clia").chmod(0o755)
