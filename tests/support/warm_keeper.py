"""The process behind ``support.warm``: it has loaded the program, and forks for each command.

Invariant: it does nothing but load and fork, in one thread, so that what a command does is there for no other; a command has the
words, variables, directory, streams, mask, ignored signals and group of processes of whoever asked, and ends as a program does. A
command whose asker is gone is killed, and all end with whoever started this.

Run as a script, so that nothing of the tests is loaded: ``warm_keeper.py SOCKET PROGRAM``, until standard input ends.
"""

from __future__ import annotations

import gc
import io
import marshal
import os
import selectors
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

LOADED = (
    "clia.facade.opening",
    "clia.facade.setup",
    "clia.store.sqlite_store",
    "pydantic_monty",
    "rich.table",
    "rich.tree",
)
"""What most commands load. The web and its kin are left to the few that need them."""
HANDLES = 4  # standard input, output and error, and the directory
HEAD = 4  # bytes of the length of a request, and of each number of an answer


class Request(NamedTuple):
    words: list[str]
    variables: dict[bytes, bytes]
    mask: int
    ignored: list[int]
    group: int


class Keeper:
    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._deaths, told = socket.socketpair()
        told.setblocking(False)
        signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._told = told
        self._askers: dict[int, socket.socket] = {}
        self._ready = selectors.DefaultSelector()
        for each in (self._listener, self._deaths, sys.stdin):
            self._ready.register(each, selectors.EVENT_READ)

    def next_command(self) -> Request:
        """Forks for all that comes. It comes back in a forked process alone, with what that is to do."""
        while True:
            for key, _ in self._ready.select():
                if key.fileobj is sys.stdin:
                    self._end()
                elif key.fileobj is self._deaths:
                    self._deaths.recv(4096)
                    self._tell_of_the_dead()
                elif key.fileobj is self._listener:
                    if request := self._take():
                        return request
                elif key.data in self._askers:  # an asker says nothing more: it is gone
                    with suppress(ProcessLookupError):
                        os.kill(key.data, signal.SIGKILL)
                    self._ready.unregister(key.fileobj)

    def _take(self) -> Request | None:
        asker, _ = self._listener.accept()
        head, handles, _, _ = socket.recv_fds(asker, HEAD, HANDLES)
        try:
            request = Request(*marshal.loads(exactly(asker, int.from_bytes(head, "big"))))  # noqa: S302  # ours
        except EOFError:  # the asker is gone already
            for each in (*handles, asker.detach()):
                os.close(each)
            return None
        child = os.fork()
        if not child:
            asker.close()
            self._forget()
            _become(request, handles)
            return request
        for each in handles:
            os.close(each)
        self._askers[child] = asker
        self._ready.register(asker, selectors.EVENT_READ, child)
        with suppress(OSError):  # a death is seen by the loop
            asker.sendall(child.to_bytes(HEAD, "big"))
        return None

    def _tell_of_the_dead(self) -> None:
        while self._askers:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            asker = self._askers.pop(child)
            with suppress(OSError):
                asker.sendall(os.waitstatus_to_exitcode(status).to_bytes(HEAD, "big", signed=True))
            with suppress(KeyError):  # it was gone before
                self._ready.unregister(asker)
            asker.close()

    def _forget(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._ready.close()
        for each in (self._listener, self._deaths, self._told, *self._askers.values()):
            each.close()

    def _end(self) -> None:
        for child in self._askers:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        while self._askers:
            self._askers.pop(os.wait()[0])
        sys.exit(0)


def exactly(asker: socket.socket, length: int) -> bytes:
    """So many bytes; ``EOFError`` where the other end says no more."""
    found = b""
    while len(found) < length:
        part = asker.recv(length - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _become(request: Request, handles: list[int]) -> None:
    """Makes of this process what the interpreter would be at the program's start."""
    os.setpgid(0, request.group)
    os.fchdir(handles[3])
    os.close(handles[3])
    for number, each in enumerate(handles[:3]):
        os.dup2(each, number)
        os.close(each)
    os.umask(request.mask)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in request.ignored:
        signal.signal(number, signal.SIG_IGN)
    os.environb.clear()
    os.environb.update(request.variables)
    time.tzset()
    at_once = "PYTHONUNBUFFERED" in os.environ
    sys.stdin, sys.stdout, sys.stderr = (_stream(number, at_once=at_once) for number in range(3))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]  # as at a start


def _stream(number: int, *, at_once: bool) -> io.TextIOWrapper:
    raw: Any = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115  # as long as the process
    errors = "backslashreplace" if number == 2 else "surrogateescape"
    by_lines = number == 2 or raw.isatty()
    return io.TextIOWrapper(raw, "utf-8", errors, line_buffering=by_lines, write_through=at_once and number > 0)


def main(address: str, program: str) -> int:
    sys.path[0] = os.path.dirname(program)
    from clia.cli.entry import run

    for name in LOADED:
        import_module(name)
    assert threading.active_count() == 1, "what is loaded has begun a thread, which no forked process would have"
    gc.collect()
    gc.freeze()  # else the first collection of each command would copy all that is loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of whoever runs the tests: they end it
    keeper = Keeper(address)
    print("ready", flush=True)  # noqa: T201  # that is how one process tells another
    sys.argv = [program, *keeper.next_command().words]
    return run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
