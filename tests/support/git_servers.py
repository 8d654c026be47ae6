"""Git servers over HTTP: ``git http-backend``, and some that are slow, broken or hostile.

Each runs in a thread of the test process, on a free port.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import threading
import zlib
from base64 import b64encode
from contextlib import contextmanager, suppress
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_KINDS = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            received = b""
            while size := int(self.rfile.readline(), 16):
                received += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return received
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, status: int, body: bytes | Iterable[bytes] = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        with suppress(ConnectionError):  # the client may have closed the connection
            for chunk in [body] if isinstance(body, bytes) else body:
                self.wfile.write(chunk)


def stock(
    root: Path, *, newest: bool = True, requests: list[bytes] | None = None, login: str | None = None
) -> type[BaseHTTPRequestHandler]:
    """``git http-backend`` for all repositories of a folder, with the newest protocol or the first one.

    The bodies of requests are added to ``requests``. ``login`` (``NAME:PASSWORD``) is required if given.
    """
    authorization = None if login is None else f"Basic {b64encode(login.encode()).decode()}"

    class Handler(_Quiet):
        def do_GET(self) -> None:
            if authorization is not None and self.headers.get("authorization") != authorization:
                self.body()
                self.answer(401, b"", WWW_Authenticate='Basic realm="git"', Content_Length="0")
                return
            path, _, query = self.path.partition("?")
            request_environment = {
                key: self.headers[name] for key, name in (("CONTENT_TYPE", "content-type"),) if name in self.headers
            }
            if newest and "git-protocol" in self.headers:
                request_environment["GIT_PROTOCOL"] = self.headers["git-protocol"]
            if "content-encoding" in self.headers:
                request_environment["HTTP_CONTENT_ENCODING"] = self.headers["content-encoding"]
            body = self.body()
            if requests is not None:
                requests.append(gzip.decompress(body) if "content-encoding" in self.headers else body)
            environment = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REMOTE_USER": "tess",
                "CONTENT_LENGTH": str(len(body)),
                **request_environment,
            }
            result = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
            head, _, rest = result.stdout.partition(b"\r\n\r\n")
            lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.answer(int(lines.pop("Status", "200").split()[0]), rest, **lines)

        do_POST = do_GET  # noqa: N815  # the server looks for this name

    return Handler


def files(root: Path) -> type[BaseHTTPRequestHandler]:
    """A plain file server."""

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(root))

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def saying(status: int, body: bytes = b"", **headers: str) -> type[BaseHTTPRequestHandler]:
    """A server with the same answer to every request."""

    class Handler(_Quiet):
        def do_GET(self) -> None:
            self.answer(status, body, **headers)

        do_POST = do_GET  # noqa: N815  # the server looks for this name

    return Handler


def waiting(until: threading.Event, reached: threading.Event) -> type[BaseHTTPRequestHandler]:
    """A server that does not answer before ``until`` is set; ``heard`` is set by the first request."""

    class Handler(_Quiet):
        def do_GET(self) -> None:
            reached.set()
            until.wait()

    return Handler


def sending(pack: Callable[[], Iterable[bytes]]) -> type[BaseHTTPRequestHandler]:
    """A server that answers every fetch with the same pack."""

    class Handler(_Quiet):
        def do_GET(self) -> None:
            capabilities = [b"version 2\n", b"agent=harm\n", b"fetch=shallow\n", b"object-format=sha1\n"]
            first = _line(b"# service=git-upload-pack\n") + b"0000"
            self.answer(
                200,
                first + b"".join(map(_line, capabilities)) + b"0000",
                Content_Type="application/x-git-upload-pack-advertisement",
            )

        def do_POST(self) -> None:
            self.body()
            self.answer(200, self._sent(), Content_Type="application/x-git-upload-pack-result")

        def _sent(self) -> Iterator[bytes]:
            yield _line(b"packfile\n")
            for part in pack():
                for at in range(0, len(part), 60_000):
                    yield _line(b"\1" + part[at : at + 60_000])
            yield b"0000"

    return Handler


def _line(text: bytes) -> bytes:
    return b"%04x" % (len(text) + 4) + text


def packed(objects: Iterable[tuple[str, bytes] | tuple[bytes, bytes]]) -> bytes:
    """A pack of objects: a kind and the content, or the id of a base and the delta to it."""
    entries = list(objects)
    pack = b"PACK" + (2).to_bytes(4, "big") + len(entries).to_bytes(4, "big")
    for kind, data in entries:
        pack += heading(7 if isinstance(kind, bytes) else _KINDS[kind], len(data))
        pack += (kind if isinstance(kind, bytes) else b"") + zlib.compress(data)
    return pack + sha1(pack, usedforsecurity=False).digest()


def heading(kind: int, size: int) -> bytes:
    """The header of an object in a pack."""
    header = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        header[-1] |= 128
        header.append(size & 127)
        size >>= 7
    return bytes(header)


def id_of(kind: str, data: bytes) -> bytes:
    return sha1(b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False).digest()
