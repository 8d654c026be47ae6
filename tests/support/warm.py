"""Commands of clia without the start of the program, which takes many times as long as most commands do.

Invariant: a command that is run here prints, changes and returns what the installed program does. Where that cannot be promised
(another locale, settings of Python, a closed stream, another controlling terminal), the installed program is run. Only a cold start
shows that a command loads all that it uses: see ``pages.cold_commands`` and the tests that start the program themselves.

``run`` is for a command that ends, ``program`` for one that keeps running, and ``stand_in`` for the ``PATH`` of a shell.
"""

from __future__ import annotations

import atexit
import marshal
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from support import warm_keeper

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PROGRAM = str(Path(sys.executable).parent / "clia")
HARMLESS = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
LOCALES = ("LC_ALL", "LC_CTYPE", "LANG")
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


class Done(NamedTuple):
    code: int
    out: bytes
    err: bytes


class KeeperProcess:
    """The process that forks. It ends with this process; a process forked from this one starts its own."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="clia-", dir="/tmp" if Path("/tmp").is_dir() else None))
        self.address = str(self.directory / "socket")  # short: the path of a socket has 107 bytes
        command = [sys.executable, warm_keeper.__file__, self.address, PROGRAM]
        self._process = subprocess.Popen(command, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        self._owner = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        if self._owner != os.getpid():
            return
        self._process.communicate()
        shutil.rmtree(self.directory)


def _environment() -> dict[str, str]:
    """Nothing that says how Python starts: a command with such a variable is not run here."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LC_", "COVERAGE_"))}
    return inherited | {"LANG": "C.UTF-8"}


@cache
def _keeper(owner: int) -> KeeperProcess:
    return KeeperProcess()


def can_run(variables: Mapping[str, str]) -> bool:
    """Whether Python would start with these variables as it does with none."""
    special = [key for key in variables if key.startswith(("PYTHON", "COVERAGE_")) and key not in HARMLESS]
    return not special and all(variables.get(key, "UTF-8").upper().endswith(("UTF-8", "UTF8")) for key in LOCALES)


def run(words: Sequence[str], *, cwd: str | Path | None, env: Mapping[str, str], data: bytes = b"") -> Done:
    """Do what ``subprocess.run`` does with the installed program; ``data`` is its standard input."""
    if not can_run(env):
        result = subprocess.run([PROGRAM, *words], cwd=cwd, env=env, input=data, capture_output=True, check=False)
        return Done(result.returncode, result.stdout, result.stderr)
    variables = {os.fsencode(key): os.fsencode(value) for key, value in env.items()}
    mask = os.umask(0o22)
    os.umask(mask)
    request = marshal.dumps((list(map(os.fspath, words)), variables, mask, [], os.getpgrp()))
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    handles = [_input(data), out_end, err_end, os.open(cwd or ".", os.O_RDONLY)]
    with socket.socket(socket.AF_UNIX) as keeper:
        keeper.connect(_keeper(os.getpid()).address)
        socket.send_fds(keeper, [len(request).to_bytes(warm_keeper.HEAD, "big")], handles)
        keeper.sendall(request)
        for handle in handles:
            os.close(handle)
        written = _read(out, err)
        answer = warm_keeper.exactly(keeper, 2 * warm_keeper.HEAD)
    return Done(int.from_bytes(answer[warm_keeper.HEAD :], "big", signed=True), *written)


def _input(data: bytes) -> int:
    """A handle to read ``data`` from, no more than a pipe holds."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY)
    handle, end = os.pipe()
    assert os.write(end, data) == len(data) <= select.PIPE_BUF
    os.close(end)
    return handle


def _read(*handles: int) -> list[bytes]:
    """Read pipes to their ends and close them."""
    parts: dict[int, list[bytes]] = {handle: [] for handle in handles}
    with selectors.DefaultSelector() as selector:
        for handle in handles:
            selector.register(handle, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                parts[key.fd].append(os.read(key.fd, 2**16))
                if not parts[key.fd][-1]:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [b"".join(parts[handle]) for handle in handles]


@cache
def _program(owner: int) -> str:
    directory = _keeper(owner).directory / "bin"
    directory.mkdir()
    stand_in(directory, cold=())
    return str(directory / "clia")


def program() -> str:
    """A program to start in place of the installed one. Its process is not the one of the command; it passes signals on."""
    return _program(os.getpid())


# Python without its library starts in a tenth of the time that the program takes.

_STAND_IN = """\
#!{python} -IS
import marshal, posix, sys, _signal, _socket

is_other_session = posix.getsid(0) != {session}
variables = dict(posix.environ)
variables[b"PATH"] = b":".join(part for part in variables.get(b"PATH", b"").split(b":") if part != {directory})

def is_first(name):
    if name not in {cold}:
        return False
    try:
        posix.close(posix.open({directory} + b"/started-" + name.encode(), posix.O_CREAT | posix.O_EXCL))
    except FileExistsError:
        return False
    return True

def has_terminal():
    try:
        posix.close(posix.open("/dev/tty", posix.O_RDWR | posix.O_NOCTTY))
    except OSError:
        return False
    return True

def is_cold():
    if is_other_session and has_terminal() or any(is_first(name) for name in ("".join(sys.argv[1:2]), " ".join(sys.argv[1:3]))):
        return True
    if any(key.startswith((b"PYTHON", b"COVERAGE_")) and key not in {harmless} for key in variables):
        return True
    return not all(variables.get(key, b"UTF-8").upper().endswith((b"UTF-8", b"UTF8")) for key in {locales})

def connect():
    try:
        handles = [posix.dup(0), posix.dup(1), posix.dup(2), posix.open(".", posix.O_RDONLY)]
        keeper = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        keeper.connect({address})
    except OSError:
        return None
    mask = posix.umask(0o22)
    posix.umask(mask)
    ignored = [number for number in {passed} if _signal.getsignal(number) == _signal.SIG_IGN]
    request = marshal.dumps((sys.argv[1:], variables, mask, ignored, 0 if is_other_session else posix.getpgrp()))
    passed = b"".join(handle.to_bytes(4, sys.byteorder) for handle in handles)
    keeper.sendmsg([len(request).to_bytes({head}, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
    keeper.sendall(request)
    for handle in (0, 1, *handles):  # the command is the only writer that a reader of its output waits for
        posix.close(handle)
    return keeper, ignored

def read_number(keeper):
    data = keeper.recv({head}, _socket.MSG_WAITALL)
    return int.from_bytes(data, "big", signed=True) if len(data) == {head} else 1

connection = None if is_cold() else connect()
if connection is None:
    posix.execve({program}, [{program}, *sys.argv[1:]], variables)
keeper, ignored = connection
child = read_number(keeper)

def pass_on(number, _):
    try:
        posix.kill(child, number)
    except OSError:  # it ended
        pass

for number in {passed}:
    if number not in ignored:
        _signal.signal(number, pass_on)
code = read_number(keeper)
if code < 0:
    if -code != _signal.SIGKILL:
        _signal.signal(-code, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -code)
posix._exit(code)
"""


def stand_in(directory: Path, cold: Iterable[str]) -> None:
    """Write a ``clia`` into a directory that runs commands here; the first of each in ``cold`` starts the installed program.

    The command gets a ``PATH`` without that directory: the only program on it is the installed one.
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
