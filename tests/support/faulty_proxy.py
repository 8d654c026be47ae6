"""A relay in front of a TCP server, which can be told to fail in one of the ways that networks do.

A fault holds for every connection that begins after it was switched on, until ``heal``; those that are under way when the server
is to be gone are cut. Resets are real: the other side sees a broken connection and no orderly end.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PIECE = 65536
_LOOK = 0.05  # seconds between looks at whether the proxy is to stop
_SILENCE = 20.0  # seconds after which a silent connection breaks, so that a test that waits for it ends, and fails


class Fault(NamedTuple):
    """``request``: so many bytes reach the server before the cut; ``answer_to``: the request whose answer never arrives.

    ``once``: it strikes one connection, and all is well then.
    """

    request: int | None = None
    answer_to: bytes | None = None
    silent: bool = False
    once: bool = False


WELL = Fault()


class FaultyProxy:
    """In front of a port of this machine. ``met`` is set once a fault has struck."""

    def __init__(self, server_port: int) -> None:
        self._server = ("127.0.0.1", server_port)
        self._fault = WELL
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._stopped = False
        self.met = threading.Event()
        self._holder = _bound(0)  # bound and never listening: while the server is gone, nobody else gets the port
        self.port: int = self._holder.getsockname()[1]
        self._listen()

    def refuse(self) -> None:
        """The server is gone: whoever connects is refused by the system."""
        with suppress(OSError):  # it is gone already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        with self._guard:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def cut_request(self, after: int, *, once: bool = False) -> None:
        """Connections break when this many bytes went to the server."""
        self._begin(Fault(request=after, once=once))

    def cut_answer(self, to: bytes) -> None:
        """A request that holds these bytes is carried out, and the connection breaks when the server begins to say how it went."""
        self._begin(Fault(answer_to=to))

    def fall_silent(self) -> None:
        """Connections are taken, and nothing comes back."""
        self._begin(Fault(silent=True))

    def heal(self) -> None:
        self._begin(WELL)
        if not self._accepting.is_alive():
            self._listen()

    def stop(self) -> None:
        self._stopped = True
        self.refuse()
        self._holder.close()

    def _begin(self, fault: Fault) -> None:
        self.met.clear()
        self._fault = fault

    def _listen(self) -> None:
        self._listener = _bound(self.port)
        self._listener.listen(64)
        self._accepting = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._accepting.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, self._fault), daemon=True).start()

    def _serve(self, client: socket.socket, fault: Fault) -> None:
        with client, socket.create_connection(self._server) as server:
            with self._guard:
                self._open |= {client, server}
            try:
                if not _relay(client, server, fault, lambda: self._stopped):
                    if fault.once:
                        self._fault = WELL
                    self.met.set()
                    for connection in (client, server):  # closing is a reset then
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                return  # one of the two went away, or the server is to be gone
            finally:
                with self._guard:
                    self._open -= {client, server}


def _relay(client: socket.socket, server: socket.socket, fault: Fault, stopped: Callable[[], bool]) -> bool:
    """Hands bytes on until both sides have ended; False where the fault struck."""
    size, request, sources = 0, b"", [client, server]
    silent_until = monotonic() + _SILENCE
    while sources and not stopped():
        if fault.silent and monotonic() > silent_until:
            return False
        for source in select.select(sources, [], [], _LOOK)[0]:
            data = source.recv(_PIECE)
            if not data:
                sources.remove(source)
                if not fault.silent:
                    (server if source is client else client).shutdown(socket.SHUT_WR)
                elif source is client:
                    return True  # it has had enough
                continue
            if source is client:
                size += len(data)
                if fault.request is not None and size >= fault.request:
                    server.sendall(data[: len(data) - (size - fault.request)])
                    return False
                request = (request + data)[-_PIECE:] if fault.answer_to else b""
                server.sendall(data)
            elif fault.answer_to and fault.answer_to in request and b" 200 " in data[:20]:
                return False
            elif not fault.silent:
                client.sendall(data)
    return True


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


@contextmanager
def proxy_for(server_port: int) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(server_port)
    try:
        yield proxy
    finally:
        proxy.stop()
