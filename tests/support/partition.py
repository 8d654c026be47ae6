"""A connection to a PostgreSQL server that can become silent: nothing is closed or lost, and nothing passes."""

from __future__ import annotations

import select
import socket
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK = 0.02  # seconds between checks whether it is open
_PIECE = 65536


class Partition:
    """A TCP proxy for a server on a local socket."""

    def __init__(self, store: str) -> None:
        parts = urlsplit(store)
        words = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self._server = f"{words.pop('host')}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        more = "&".join(f"{key}={quote(value, safe='')}" for key, value in words.items())
        self.store = f"postgresql://{parts.username}@127.0.0.1:{self._listener.getsockname()[1]}{parts.path}?{more}"
        self._flows, self._over, self._cut = threading.Event(), threading.Event(), threading.Event()
        self._flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def fall_silent(self) -> None:
        self._cut.clear()
        self._flows.clear()

    def heal(self, *, cut: bool) -> None:
        """``cut``: both sides give up the existing connections, as after a long silence."""
        if cut:
            self._cut.set()
        self._flows.set()

    def close(self) -> None:
        self._over.set()
        self._flows.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            try:
                server.connect(self._server)
                ends = {client: server, server: client}
                while not self._over.is_set():
                    silent = not self._flows.is_set()
                    self._flows.wait()
                    if silent and self._cut.is_set():
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing is a reset
                        return
                    for source in select.select(list(ends), [], [], _LOOK)[0]:
                        if not self._flows.is_set():
                            break
                        data = source.recv(_PIECE)
                        if not data:
                            return
                        ends[source].sendall(data)
            except OSError:
                return  # one side closed


@contextmanager
def partition_of(store: str) -> Iterator[Partition]:
    new_partition = Partition(store)
    try:
        yield new_partition
    finally:
        new_partition.close()
