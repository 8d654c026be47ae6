"""Asking a server over HTTP.

Invariant of every call: it ends within its time, holds no more than it was told of the answer, follows no redirect, and
trusts no server whose certificate does not hold.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from clia.errors import InvalidInput, TransportError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


TOO_SLOW = "it does not answer in time"
"""The ``reason`` among a ``TransportError``'s fields where the time was up: the server may be at it still."""


class HttpResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]  # by lower-case name
    body: bytes


class HttpStream(NamedTuple):
    """An answer that goes on: its lines come as the server sends them, without their ends."""

    status: int
    headers: Mapping[str, str]
    lines: Iterator[bytes]


_LINE_MAX = 4 * 1024 * 1024


class HttpClient:
    """``Http`` without state, one connection a call: threads may share it."""

    def post(self, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float, limit: int) -> HttpResponse:
        address, path = _address(url)
        connection = address.connection(seconds)
        with _translated(address.host):
            try:
                connection.connect()
                return _exchanged(connection, _Request("POST", path, headers, body), seconds, limit)[0]
            finally:
                connection.close()


class HttpConnectionPool:
    """``HttpChannel``: connections are kept from call to call, as many as were ever used at once; each call has one to itself."""

    def __init__(self, url: str) -> None:
        self._address, path = _address(url)
        self._prefix = path.rstrip("/")
        self._idle: list[http.client.HTTPConnection] = []  # appended to and popped from: either is one step for all threads
        self._closed = False

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, seconds: float, limit: int
    ) -> HttpResponse:
        keep = False
        with _translated(self._address.host):
            connection = self._connected(seconds)
            try:
                answer, keep = _exchanged(connection, _Request(method, self._prefix + target, headers, body), seconds, limit)
            finally:
                if keep and not self._closed:
                    self._idle.append(connection)
                else:
                    connection.close()
        return answer

    @contextmanager
    def stream(self, target: str, headers: Mapping[str, str], *, seconds: float) -> Iterator[HttpStream]:
        host = self._address.host
        connection = self._address.connection(seconds)  # never given back: it is not read to its end
        try:
            with _translated(host):
                connection.connect()
                _send(connection, _Request("GET", self._prefix + target, headers, None))
                answer = connection.getresponse()
            with answer:
                yield HttpStream(answer.status, _headers(answer), _lines(host, answer))
        finally:
            connection.close()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            with suppress(IndexError):  # another thread has just taken it
                self._idle.pop().close()

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        with suppress(IndexError):
            found = self._idle.pop()  # the one that was used last: the likeliest to be open still
            found.sock.settimeout(seconds)
            return found
        made = self._address.connection(seconds)
        made.connect()
        return made


class _Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None


class _Address(NamedTuple):
    scheme: str
    host: str
    port: int | None

    def connection(self, seconds: float) -> http.client.HTTPConnection:
        if self.scheme == "http":
            return http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=context)


def _address(url: str) -> tuple[_Address, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _no_address() from None
    if parts.scheme not in ("http", "https") or not host:
        raise _no_address()
    return _Address(parts.scheme, host, port), parts.path or "/"


def _no_address() -> InvalidInput:
    return InvalidInput("an address must be http:// or https:// with a host", code="invalid-url", fields={"field": "url"})


def _exchanged(connection: http.client.HTTPConnection, asked: _Request, seconds: float, limit: int) -> tuple[HttpResponse, bool]:
    """The answer, and whether the connection can be used for another request."""
    with _bounded(connection, seconds) as out_of_time:
        try:
            _send(connection, asked)
            answer = connection.getresponse()
            data = answer.read(limit + 1)
        except (OSError, ValueError, http.client.HTTPException):
            if out_of_time.is_set():
                raise TimeoutError from None
            raise
        if out_of_time.is_set():  # the end of what was sent may be where we cut it
            raise TimeoutError
    if len(data) > limit:
        raise _failed(connection.host, f"it sends more than {limit} bytes", retryable=False)
    return HttpResponse(answer.status, _headers(answer), data), answer.isclosed() and not answer.will_close


def _headers(answer: http.client.HTTPResponse) -> dict[str, str]:
    return {key.lower(): value for key, value in answer.getheaders()}


def _send(connection: http.client.HTTPConnection, asked: _Request) -> None:
    try:
        connection.request(asked.method, asked.path, body=asked.body, headers=dict(asked.headers))
    except ValueError:  # raised before anything is sent, and its words have the header in them
        message = f"{connection.host}: the address or a header has characters that cannot be sent"
        raise InvalidInput(message, code="invalid-request", fields={"host": connection.host}) from None
    except (BrokenPipeError, ConnectionResetError):
        # Whoever is sent too much may have answered before it stopped to listen.
        if not asked.body or connection.sock is None:
            raise


def _lines(host: str, answer: http.client.HTTPResponse) -> Iterator[bytes]:
    with _translated(host):
        while True:
            line = answer.readline(_LINE_MAX)
            if line:
                yield line.rstrip(b"\r\n")
            if not line.endswith(b"\n"):
                raise http.client.RemoteDisconnected("it ended the answer")


@contextmanager
def _bounded(connection: http.client.HTTPConnection, seconds: float) -> Iterator[threading.Event]:
    """A socket's own timeout is for each piece: here the whole conversation is cut when its time is up."""
    out_of_time = threading.Event()
    channel = connection.sock  # an answer without a length takes it over

    def cut() -> None:
        out_of_time.set()
        with suppress(OSError):
            channel.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(seconds, cut)
    watch.daemon = True
    watch.start()
    try:
        yield out_of_time
    finally:
        watch.cancel()


@contextmanager
def _translated(host: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise _failed(host, TOO_SLOW) from None
    except ssl.SSLCertVerificationError as err:
        raise _failed(host, f"its certificate does not hold: {err.verify_message}", retryable=False) from None
    except (OSError, ValueError, http.client.HTTPException) as err:
        raise _failed(host, getattr(err, "strerror", None) or str(err) or type(err).__name__) from None


def _failed(host: str, reason: str, *, retryable: bool = True) -> TransportError:
    error = TransportError(f"{host}: {reason}", fields={"host": host, "reason": reason})
    error.retryable = retryable
    return error
