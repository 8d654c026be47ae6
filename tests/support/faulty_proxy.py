"""A proxy in front of a TCP server that can fail in the ways that networks do.

A fault applies to every connection that starts after it was set, until ``heal``; connections that are open when the server
is set to refuse are cut. Resets are real: the other side sees a broken connection, not an orderly end.
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
_LOOK = 0.05  # seconds between checks whether the proxy is to stop
_SILENCE = 20.0  # seconds after which a silent connection breaks, so that a waiting test fails


class Fault(NamedTuple):
    """``request``: the number of bytes that reach the server before the cut; ``answer_to``: the request whose answer is lost.

    ``once``: only for one connection.
    """

    request: int | None = None
    answer_to: bytes | None = None
    silent: bool = False
    once: bool = False


WELL = Fault()


class FaultyProxy:
    """A proxy for a local port. ``met`` is set when a fault has occurred."""

    def __init__(self, server_port: int) -> None:
        self._server = ("127.0.0.1", server_port)
        self._fault = WELL
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._stopped = False
        self.met = threading.Event()
        self._holder = _bound(0)  # bound without listening, so that no other process gets the port
        self.port: int = self._holder.getsockname()[1]
        self._listen()

    def refuse(self) -> None:
        """Refuse connections, as without a server."""
        with suppress(OSError):  # it is closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        with self._guard:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def cut_request(self, after: int, *, once: bool = False) -> None:
        """Break connections after this number of bytes to the server."""
        self._begin(Fault(request=after, once=once))

    def cut_answer(self, to: bytes) -> None:
        """Break the connection when the server starts to answer a request that contains these bytes."""
        self._begin(Fault(answer_to=to))

    def fall_silent(self) -> None:
        """Accept connections and never answer."""
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
                    for connection in (client, server):  # closing becomes a reset
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                return  # one side closed, or the server is set to refuse
            finally:
                with self._guard:
                    self._open -= {client, server}


def _relay(client: socket.socket, server: socket.socket, fault: Fault, stopped: Callable[[], bool]) -> bool:
    """Relay bytes until both sides have ended; False if the fault occurred."""
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
                    return True  # the limit is reached
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
