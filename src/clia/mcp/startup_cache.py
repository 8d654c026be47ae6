"""Answers to a client's first requests while the MCP SDK is being loaded.

Loading the SDK takes most of the time that a server needs to start. Its answers to ``initialize``, ``server/discover`` and
``tools/list`` depend only on the installed code and on the request. Each is kept in a file, and the next server gives it at once.
The SDK still receives every message; only its own answer to such a request is dropped.

Invariant: an early answer is one that the SDK gave to the same request, after the same handshake, with the same installed code, but
for the name of the client.
Only whole messages are written to standard output. This module loads the standard library only.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from queue import Queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STATIC = ("initialize", "server/discover", "tools/list")
_PROTOCOL = "io.modelcontextprotocol/"
_CLIENT = f"{_PROTOCOL}clientInfo"
"""The name and version of the client, on which no answer depends; in a handshake it is ``clientInfo``."""
_FIRST = 32
"""Messages of a client that may be answered early."""
_FILES_MAX = 64
_LINES_AHEAD = 64


def answers_directory(environment: Mapping[str, str]) -> str:
    home, state = environment.get("HOME", ""), environment.get("XDG_STATE_HOME", "")
    return os.path.join(state if os.path.isabs(state) else os.path.join(home, ".local", "state"), "clia", "mcp-answers")


def installed_code() -> str:
    """Text that changes when clia or the SDK is installed again or edited."""
    specs = [find_spec(name) for name in ("mcp", "mcp_types")]
    packages = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
    files = [*packages, *_modules(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))]
    return " ".join(f"{path}:{os.stat(path).st_ctime_ns}" for path in files)


def _modules(directory: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _modules(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path


class EarlyAnswers:
    """Standard input and output of a server, as a text file for the SDK. A thread reads ahead and answers what it can.

    As the SDK does, it diverts the descriptors 0 and 1, so that nothing else reads or writes messages.
    """

    def __init__(self, directory: str, code: str) -> None:
        self._directory = directory
        self._code = code
        self._handshake = ""
        self._expected: dict[str, str] = {}  # request id -> file for the SDK's answer; empty: it was answered
        self._writing = threading.Lock()
        self._lines: Queue[str] = Queue(_LINES_AHEAD)
        self._input, self._output = os.fdopen(os.dup(0), "rb"), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)
        threading.Thread(target=self._read, daemon=True).start()

    # What the SDK calls

    def readline(self) -> str:
        line = self._lines.get()
        if not line:
            self._lines.put(line)  # the end stays
        return line

    def write(self, text: str) -> int:
        with self._writing:
            path = self._take(text) if self._expected else None
            if path:  # before the answer, after which a client may end the server
                self._keep(path, json.dumps(json.loads(text)["result"], ensure_ascii=False, separators=(",", ":")))
            if path != "":
                self._send(text.encode("utf-8"))
        return len(text)

    def flush(self) -> None:
        """Nothing is buffered."""

    def _take(self, text: str) -> str | None:
        """The file for an answer of the SDK; empty if the request was answered, None for any other message."""
        message = json.loads(text)
        path = None if "method" in message else self._expected.pop(json.dumps(message.get("id")), None)
        return path if not path or "result" in message else None

    # Reading ahead

    def _read(self) -> None:
        for number, line in enumerate(self._input):
            if number < _FIRST:
                self._answer(line)
            self._lines.put(line.decode("utf-8", "replace"))
        self._lines.put("")

    def _answer(self, line: bytes) -> None:
        """Answer a request for which an answer is kept, and expect the SDK's otherwise."""
        try:
            message = json.loads(line)
            method, params = message["method"], message.get("params") or {}
            given = {key: value for key, value in (params.get("_meta") or {}).items() if key.startswith(_PROTOCOL)}
            fields = {**params, "_meta": {**given, _CLIENT: None}, "clientInfo": None}
            request_id, request = json.dumps(message["id"]), json.dumps([method, fields], sort_keys=True)
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return  # not a request; the SDK says what is wrong
        if method not in _STATIC:
            return
        digest = sha256(f"{self._code}\n{self._handshake}\n{request}".encode("utf-8", "surrogatepass")).hexdigest()
        if method == "initialize":
            self._handshake = request
        path = os.path.join(self._directory, f"{digest}.json")
        result = _content(path)
        with self._writing:
            self._expected[request_id] = "" if result else path
            if result:
                self._send(b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (request_id.encode(), result))

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._output, data) :]

    # Files

    def _keep(self, path: str, result: str) -> None:
        """Keep an answer for the next server; without a place to write, nothing is kept."""
        with suppress(OSError):
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            draft = f"{path}.{os.getpid()}"
            with open(draft, "x", encoding="utf-8", errors="replace", opener=_private) as file:
                file.write(result)
            os.replace(draft, path)
            with os.scandir(self._directory) as entries:
                newest = sorted(entries, key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
            for entry in newest[_FILES_MAX:]:
                os.unlink(entry.path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
