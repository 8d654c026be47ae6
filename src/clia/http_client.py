"""HTTP client on the standard library.

Invariant: every call ends within its time, however slowly the server sends, reads at most ``limit`` bytes, follows no redirect
and verifies certificates. Errors contain no request header. A connection is reused only if both sides have finished, so that
a response is never taken for that of another request.
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


TOO_SLOW = "no answer in time"
"""The ``reason`` field of a ``TransportError`` after a timeout: the server may still be working."""


class HttpResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]  # by lower-case name
    body: bytes


class HttpStream(NamedTuple):
    """A response without an end: its lines, without line ends, as the server sends them."""

    status: int
    headers: Mapping[str, str]
    lines: Iterator[bytes]


_LINE_MAX = 4 * 1024 * 1024


class HttpClient:
    """Makes one connection per call. Threads may share it."""

    def post(self, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float, limit: int) -> HttpResponse:
        """Return the response, whatever its status. ``TransportError`` after a timeout, or beyond ``limit`` bytes."""
        address, path = _address(url)
        connection = address.connection(seconds)
        with _translated(address.host):
            try:
                connection.connect()
                return _exchanged(connection, _HttpCall("POST", path, headers, body), seconds, limit)[0]
            finally:
                connection.close()


class HttpConnectionPool:
    """Reuses connections to one server, one call at a time on each. Threads may share it.

    A target is a path on the server, from its first slash on.
    """

    def __init__(self, url: str) -> None:
        self._address, path = _address(url)
        self._prefix = path.rstrip("/")
        self._idle: list[http.client.HTTPConnection] = []  # append and pop are atomic
        self._closed = False

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, seconds: float, limit: int
    ) -> HttpResponse:
        """As ``HttpClient.post``, with any method, on a connection that may be reused."""
        keep = False
        with _translated(self._address.host):
            connection = self._connected(seconds)
            try:
                response, keep = _exchanged(connection, _HttpCall(method, self._prefix + target, headers, body), seconds, limit)
            finally:
                if keep and not self._closed:
                    self._idle.append(connection)
                else:
                    connection.close()
        return response

    @contextmanager
    def stream(self, target: str, headers: Mapping[str, str], *, seconds: float) -> Iterator[HttpStream]:
        """Yield a response without an end. ``TransportError`` if nothing arrives for ``seconds``, or the connection is lost."""
        host = self._address.host
        connection = self._address.connection(seconds)  # not reused: it is not read to its end
        try:
            with _translated(host):
                connection.connect()
                _send(connection, _HttpCall("GET", self._prefix + target, headers, None))
                response = connection.getresponse()
            with response:
                yield HttpStream(response.status, _headers(response), _lines(host, response))
        finally:
            connection.close()

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        while self._idle:
            with suppress(IndexError):  # another thread took it
                self._idle.pop().close()

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        with suppress(IndexError):
            connection = self._idle.pop()  # the last used is the most likely to be open
            connection.sock.settimeout(seconds)
            return connection
        connection = self._address.connection(seconds)
        connection.connect()
        return connection


class _HttpCall(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None


class _LoopbackConnection(http.client.HTTPConnection):
    """A connection to a name below localhost, which is this machine (RFC 6761); not every system resolves it."""

    def connect(self) -> None:
        self.sock = socket.create_connection(("localhost", self.port), self.timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Address(NamedTuple):
    scheme: str
    host: str
    port: int | None

    def connection(self, seconds: float) -> http.client.HTTPConnection:
        if self.scheme == "http" and self.host.endswith(".localhost"):
            return _LoopbackConnection(self.host, self.port, timeout=seconds)
        if self.scheme == "http":
            return http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=context)


def _address(url: str) -> tuple[_Address, str]:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return _Address(parts.scheme, parts.hostname, parts.port), parts.path or "/"
    raise InvalidInput("an address must be http:// or https:// with a host", code="invalid-url", fields={"field": "url"})


def _exchanged(connection: http.client.HTTPConnection, request: _HttpCall, seconds: float, limit: int) -> tuple[HttpResponse, bool]:
    """Return the response, and whether the connection can be reused."""
    with _bounded(connection, seconds) as out_of_time:
        try:
            _send(connection, request)
            response = connection.getresponse()
            data = response.read(limit + 1)
        except (OSError, ValueError, http.client.HTTPException):
            if out_of_time.is_set():
                raise TimeoutError from None
            raise
        if out_of_time.is_set():  # the response may be cut off
            raise TimeoutError
    if len(data) > limit:
        raise _failed(connection.host, f"response is larger than {limit} bytes", retryable=False)
    return HttpResponse(response.status, _headers(response), data), response.isclosed() and not response.will_close


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {key.lower(): value for key, value in response.getheaders()}


def _send(connection: http.client.HTTPConnection, request: _HttpCall) -> None:
    try:
        connection.request(request.method, request.path, body=request.body, headers=dict(request.headers))
    except ValueError:  # raised before anything is sent; its message contains the header
        message = f"{connection.host}: invalid characters in the address or in a header"
        raise InvalidInput(message, code="invalid-request", fields={"host": connection.host}) from None
    except (BrokenPipeError, ConnectionResetError):
        # The server may have answered before it stopped reading a large body.
        if not request.body or connection.sock is None:
            raise


def _lines(host: str, response: http.client.HTTPResponse) -> Iterator[bytes]:
    with _translated(host):
        while True:
            line = response.readline(_LINE_MAX)
            if line:
                yield line.rstrip(b"\r\n")
            if not line.endswith(b"\n"):
                raise http.client.RemoteDisconnected("the server closed the connection")


@contextmanager
def _bounded(connection: http.client.HTTPConnection, seconds: float) -> Iterator[threading.Event]:
    """Close the socket when the time is up: a socket's own timeout only limits each read."""
    out_of_time = threading.Event()
    channel = connection.sock  # a response without a length takes it over

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
        raise _failed(host, f"invalid certificate: {err.verify_message}", retryable=False) from None
    except (OSError, ValueError, http.client.HTTPException) as err:
        raise _failed(host, getattr(err, "strerror", None) or str(err) or type(err).__name__) from None


def _failed(host: str, reason: str, *, retryable: bool = True) -> TransportError:
    error = TransportError(f"{host}: {reason}", fields={"host": host, "reason": reason})
    error.retryable = retryable
    return error
