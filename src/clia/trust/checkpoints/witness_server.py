"""A witness over HTTP: C2SP tlog-witness.

``POST /add-checkpoint`` takes a checkpoint with the proof that it extends the last one, and answers with a cosignature. Every
client may ask: a checkpoint counts only if its log signed it.

Invariant: a request is limited in size and time, and one that fails changes nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread

from clia.errors import CliaError, Conflict, Denied, InvalidInput, NotFound
from clia.trust.checkpoints.witness_protocol import ADD_CHECKPOINT, REQUEST_MAX, SIZE_TYPE, read_request
from clia.trust.checkpoints.witnesses import OTHER_SIZE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.trust.checkpoints.signed_notes import NoteKey
    from clia.trust.checkpoints.witnesses import Witness

    Logs = Callable[[], Mapping[str, Sequence[NoteKey]]]

SECONDS = 20.0
"""The time limit of each read and write."""
AT_ONCE = 32
_TEXT = "text/plain; charset=utf-8"


class WitnessServer(ThreadingHTTPServer):
    """Serves one witness. ``logs`` returns the keys of the logs that it knows, by origin."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], witness: Witness, logs: Logs) -> None:
        self.witness = witness
        self.logs = logs
        self.places = BoundedSemaphore(AT_ONCE)
        super().__init__(address, WitnessRequestHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are not errors of the witness."""

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve while the block runs; yields the address."""
        thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self.url
        finally:
            self.shutdown()
            self.server_close()
            thread.join()

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"


class WitnessRequestHandler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: WitnessServer
    protocol_version = "HTTP/1.1"
    timeout = SECONDS

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return
        if self.path != ADD_CHECKPOINT:
            self._answer(404, "not found\n")
            return
        with self.server.places:
            self._answer(*self._cosigned(body))

    def do_GET(self) -> None:
        """The key of the witness, for people who look."""
        is_root = self.path == "/"
        self._answer(200 if is_root else 404, f"{self.server.witness.key.text}\n" if is_root else "not found\n")

    def _cosigned(self, body: bytes) -> tuple[int, str, str]:
        try:
            signature = self.server.witness.add_checkpoint(read_request(body), self.server.logs())
        except CliaError as err:
            if err.code == OTHER_SIZE:
                return 409, f"{err.fields['size']}\n", SIZE_TYPE
            return _status(err), f"{err.message}\n", _TEXT
        return 200, signature.line, _TEXT

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") is not None or not length.isascii() or not length.isdigit():
            self.close_connection = True
            self._answer(411, "a request has a Content-Length and no Transfer-Encoding\n")
            return None
        if int(length) > REQUEST_MAX:
            self.close_connection = True
            self._answer(413, f"a request has at most {REQUEST_MAX} bytes\n")
            return None
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            self.close_connection = True
            return None
        return body

    def _answer(self, status: int, text: str, kind: str = _TEXT) -> None:
        data = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as the base class has it
        """Requests are not logged: what was cosigned is in the state."""


def _status(error: CliaError) -> int:
    kinds: list[tuple[type[CliaError], int]] = [(NotFound, 404), (Denied, 403), (InvalidInput, 400), (Conflict, 422)]
    return next((status for kind, status in kinds if isinstance(error, kind)), 500)
