"""The process behind ``support.warm``: it has loaded the program, and forks for each command.

Invariant: it only loads and forks, in one thread, so a command leaves nothing behind for the next. A command has the arguments,
variables, directory, streams, umask, ignored signals and process group of its client (its own session if its client has one), and
ends as a program does. A command whose client is gone is killed, and all end with the process that started this one.

Run as a script, so that no test module is loaded: ``warm_keeper.py SOCKET PROGRAM``, until standard input ends.
"""

from __future__ import annotations

import atexit
import gc
import io
import marshal
import os
import pkgutil
import selectors
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGES = ("cryptography.hazmat.bindings._rust", "joserfc.jws", "jsonschema", "pydantic_monty", "rich.table", "rich.tree")
"""Other packages that many commands load."""
WEB_COMMANDS = (["mcp"], ["serve"])
WEB = ("clia.forge", "clia.mcp")
WEB_PACKAGES = ("uvicorn.lifespan.on", "uvicorn.loops.asyncio", "uvicorn.protocols.websockets.auto")
"""What the first of ``WEB_COMMANDS`` loads, into this process; it takes longer than all the rest."""
LEFT_OUT = (*WEB, "clia.cli.entry", "clia.client", "clia.testing")
HANDLES = 4  # standard input, output and error, and the directory
HEAD = 4  # bytes of the length of a request, and of each number of a response


class Request(NamedTuple):
    words: list[str]
    variables: dict[bytes, bytes]
    mask: int
    ignored: list[int]
    group: int  # 0: its own session


class Keeper:
    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._exits, wakeup = socket.socketpair()
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wakeup = wakeup
        self._clients: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        for stream in (self._listener, self._exits, sys.stdin):
            self._selector.register(stream, selectors.EVENT_READ)
        self._web_is_loaded = False

    def next_command(self) -> Request:
        """Fork for each request. Returns only in a forked process, with the request that it is for."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    self._end()
                elif key.fileobj is self._exits:
                    self._exits.recv(4096)
                    self._report_exits()
                elif key.fileobj is self._listener:
                    if request := self._accept():
                        return request
                elif key.data in self._clients:  # a client sends nothing more: it is gone
                    with suppress(ProcessLookupError):
                        os.kill(key.data, signal.SIGKILL)
                    self._selector.unregister(key.fileobj)

    def _accept(self) -> Request | None:
        client, _ = self._listener.accept()
        head, handles, _, _ = socket.recv_fds(client, HEAD, HANDLES)
        try:
            request = Request(*marshal.loads(exactly(client, int.from_bytes(head, "big"))))  # noqa: S302  # ours
        except EOFError:  # the client is gone already
            for handle in (*handles, client.detach()):
                os.close(handle)
            return None
        if not self._web_is_loaded and request.words[:1] in WEB_COMMANDS:
            load_web()
            self._web_is_loaded = True
        child = os.fork()
        if not child:
            client.close()
            self._close()
            _become(request, handles)
            return request
        for handle in handles:
            os.close(handle)
        self._clients[child] = client
        self._selector.register(client, selectors.EVENT_READ, child)
        with suppress(OSError):  # the loop notices that a client is gone
            client.sendall(child.to_bytes(HEAD, "big"))
        return None

    def _report_exits(self) -> None:
        while self._clients:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            client = self._clients.pop(child)
            with suppress(OSError):
                client.sendall(os.waitstatus_to_exitcode(status).to_bytes(HEAD, "big", signed=True))
            with suppress(KeyError):  # it was gone before
                self._selector.unregister(client)
            client.close()

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for stream in (self._listener, self._exits, self._wakeup, *self._clients.values()):
            stream.close()

    def _end(self) -> None:
        for child in self._clients:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        while self._clients:
            self._clients.pop(os.wait()[0])
        sys.exit(0)


def exactly(stream: socket.socket, length: int) -> bytes:
    """Read ``length`` bytes; ``EOFError`` if the other end sends fewer."""
    data = b""
    while len(data) < length:
        part = stream.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _become(request: Request, handles: list[int]) -> None:
    """Turn this process into what the interpreter is when the program starts."""
    if request.group:
        os.setpgid(0, request.group)
    else:
        os.setsid()
    os.fchdir(handles[3])
    os.close(handles[3])
    for number, handle in enumerate(handles[:3]):
        os.dup2(handle, number)
        os.close(handle)
    os.umask(request.mask)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in request.ignored:
        signal.signal(number, signal.SIG_IGN)
    os.environb.clear()
    os.environb.update(request.variables)
    time.tzset()
    unbuffered = "PYTHONUNBUFFERED" in os.environ
    sys.stdin, sys.stdout, sys.stderr = (_stream(number, unbuffered=unbuffered) for number in range(3))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]  # as at a start


def _stream(number: int, *, unbuffered: bool) -> io.TextIOWrapper:
    raw: Any = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115  # as long as the process
    errors = "backslashreplace" if number == 2 else "surrogateescape"
    by_lines = number == 2 or raw.isatty()
    return io.TextIOWrapper(raw, "utf-8", errors, line_buffering=by_lines, write_through=unbuffered and number > 0)


def load() -> None:
    """Import all of clia except the web and what no command uses."""
    for name in (*_modules("clia"), *PACKAGES):
        import_module(name)
    _loaded()


def load_web() -> None:
    for package in WEB:
        for name in _modules(package, left_out=()):
            import_module(name)
    for name in WEB_PACKAGES:
        import_module(name)
    _loaded()


def _modules(package: str, left_out: tuple[str, ...] = LEFT_OUT) -> Iterator[str]:
    for module in pkgutil.iter_modules(import_module(package).__path__, f"{package}."):
        if module.name not in left_out:
            yield module.name
            if module.ispkg:
                yield from _modules(module.name, left_out)


def _loaded() -> None:
    assert threading.active_count() == 1, "a module started a thread, which no forked process would have"
    gc.collect()
    gc.freeze()  # else the first collection of each command would copy all that is loaded


def end(run: Callable[[], int]) -> int:
    """Run the program and end the process, without the part of the interpreter's end that would copy all that is loaded.

    Returns, or raises what the program raised, where the interpreter itself has to say how the process ends.
    """
    try:
        code = run()
    except SystemExit as err:
        if not isinstance(err.code, int):
            raise
        code = err.code
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  # in the interpreter's order
    atexit._run_exitfuncs()  # noqa: SLF001
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return code
    os._exit(code & 0xFF)


def main(address: str, program: str) -> int:
    sys.path[0] = os.path.dirname(program)
    from clia.cli.entry import run

    load()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the person who runs the tests: the tests end this process
    keeper = Keeper(address)
    print("ready", flush=True)  # noqa: T201  # how one process tells another
    sys.argv = [program, *keeper.next_command().words]
    return end(run)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
