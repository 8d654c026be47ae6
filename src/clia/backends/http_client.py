"""HTTP through the standard library, one connection a call.

Invariant: the whole answer comes within the time given, however slowly a server sends. No header of ours is in an error.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from clia.errors import InvalidInput, TransportError
from clia.ports.http import HttpAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class HttpClient:
    """``Http`` without state: threads may share it."""

    def post(self, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float, limit: int) -> HttpAnswer:
        connection, path = _connection(url, seconds)
        with _translated(connection.host), _bounded(connection, seconds) as out_of_time:
            try:
                _send(connection, path, headers, body)
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
        return HttpAnswer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, data)


def _send(connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str], body: bytes) -> None:
    try:
        connection.request("POST", path, body=body, headers=dict(headers))
    except ValueError:  # raised before anything is sent, and its words have the header in them
        message = f"{connection.host}: the address or a header has characters that cannot be sent"
        raise InvalidInput(message, code="invalid-request", fields={"host": connection.host}) from None


def _connection(url: str, seconds: float) -> tuple[http.client.HTTPConnection, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _no_address() from None
    if parts.scheme not in ("http", "https") or not host:
        raise _no_address()
    path = parts.path or "/"
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=seconds), path
    context = ssl.create_default_context()
    return http.client.HTTPSConnection(host, port, timeout=seconds, context=context), path


def _no_address() -> InvalidInput:
    return InvalidInput("an address must be http:// or https:// with a host", code="invalid-url", fields={"field": "url"})


@contextmanager
def _bounded(connection: http.client.HTTPConnection, seconds: float) -> Iterator[threading.Event]:
    """A socket's own timeout is for each piece: here the whole conversation is cut when its time is up."""
    out_of_time = threading.Event()

    def cut() -> None:
        out_of_time.set()
        with suppress(OSError):
            channel.shutdown(socket.SHUT_RDWR)

    connection.connect()
    channel = connection.sock  # an answer without a length takes it over
    watch = threading.Timer(seconds, cut)
    watch.daemon = True
    watch.start()
    try:
        yield out_of_time
    finally:
        watch.cancel()
        connection.close()


@contextmanager
def _translated(host: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise _failed(host, "it does not answer in time") from None
    except ssl.SSLCertVerificationError as err:
        raise _failed(host, f"its certificate does not hold: {err.verify_message}", retryable=False) from None
    except (OSError, ValueError, http.client.HTTPException) as err:
        raise _failed(host, getattr(err, "strerror", None) or str(err) or type(err).__name__) from None


def _failed(host: str, reason: str, *, retryable: bool = True) -> TransportError:
    error = TransportError(f"{host}: {reason}", fields={"host": host, "reason": reason})
    error.retryable = retryable
    return error
