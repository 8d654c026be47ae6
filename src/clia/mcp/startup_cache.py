"""Answers to a client's first requests while the MCP SDK is being loaded.

Loading the SDK takes most of the time that a server needs to start. Its answers to ``initialize``, ``server/discover`` and
``tools/list`` depend only on the installed code and on the request. Each is kept in a file, and the next server gives it at once.
The SDK still receives every message; only its own answer to such a request is dropped.

Invariant: an early answer is an answer that the SDK gave to the same request, after the same handshake and with the same installed
code. The name and the capabilities of the client may differ, because these answers do not depend on them. Only complete messages
are written to standard output. This module loads the standard library only.
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
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

_STATIC = ("initialize", "server/discover", "tools/list")
_PROTOCOL = "io.modelcontextprotocol/"
_OF_THE_CLIENT = ("clientInfo", "capabilities")
"""The fields of a handshake about the client itself; no answer depends on them. Other requests have them in ``_meta``."""
_IN_META = (f"{_PROTOCOL}clientInfo", f"{_PROTOCOL}clientCapabilities")
_FIRST = 32
"""Messages of a client that may be answered early."""
_FILES_MAX = 64
_PREPARING_SECONDS = 30.0
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


class KeptAnswers:
    """The files with the answers to one client; it follows the client's handshake."""

    def __init__(self, directory: str, code: str) -> None:
        self._directory = directory
        self._code = code
        self._handshake = ""

    def file_of(self, line: bytes) -> tuple[str, str] | None:
        """A request's id, as JSON, and the file for its answer. None if it is another message."""
        try:
            message = json.loads(line)
            method, params = message["method"], message.get("params") or {}
            protocol_fields = {key: value for key, value in (params.get("_meta") or {}).items() if key.startswith(_PROTOCOL)}
            fields = {**params, "_meta": protocol_fields | dict.fromkeys(_IN_META)} | dict.fromkeys(_OF_THE_CLIENT)
            request_id, request = json.dumps(message["id"]), json.dumps([method, fields], sort_keys=True)
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return None  # not a request; the SDK says what is wrong
        if method not in _STATIC:
            return None
        digest = sha256(f"{self._code}\n{self._handshake}\n{request}".encode("utf-8", "surrogatepass")).hexdigest()
        if method == "initialize":
            self._handshake = request
        return request_id, os.path.join(self._directory, f"{digest}.json")

    def keep(self, path: str, text: str) -> None:
        """Keep the answer in a message; without a place to write, nothing is kept."""
        result = json.dumps(json.loads(text)["result"], ensure_ascii=False, separators=(",", ":"))
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


class ExpectedAnswers:
    """The requests that the SDK has not answered yet, each with the file for its answer. The file is empty if the request was
    answered early."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._files)

    def add(self, request_id: str, path: str) -> None:
        self._files[request_id] = path

    def take(self, text: str) -> str | None:
        """The file for an answer of the SDK; empty if the request was answered, None for any other message."""
        if not self._files:
            return None
        message = json.loads(text)
        path = None if "method" in message else self._files.pop(json.dumps(message.get("id")), None)
        return path if not path or "result" in message else None


class EarlyAnswers:
    """Standard input and output of a server, as a text file for the SDK. A thread reads ahead and answers what it can.

    Like the SDK, it redirects the descriptors 0 and 1, so that nothing else reads or writes messages.
    """

    def __init__(self, kept: KeptAnswers) -> None:
        self._kept = kept
        self._expected = ExpectedAnswers()
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
            path = self._expected.take(text)
            if path:  # before the answer, after which a client may end the server
                self._kept.keep(path, text)
            if path != "":
                self._send(text.encode("utf-8"))
        return len(text)

    def flush(self) -> None:
        """Nothing is buffered."""

    # Reading ahead

    def _read(self) -> None:
        for number, line in enumerate(self._input):
            if number < _FIRST:
                self._answer(line)
            self._lines.put(line.decode("utf-8", "replace"))
        self._lines.put("")

    def _answer(self, line: bytes) -> None:
        """Answer a request for which an answer is kept, and expect the SDK's otherwise."""
        cached = self._kept.file_of(line)
        if cached is None:
            return
        request_id, path = cached
        result = _content(path)
        with self._writing:
            self._expected.add(request_id, "" if result else path)
            if result:
                self._send(b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (request_id.encode(), result))

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._output, data) :]


# Preparing answers


class FirstRequests:
    """The first requests of a client, as standard input and output of a server: a text file for the SDK. Its answers are kept.

    The input ends when all requests are answered.
    """

    def __init__(self, kept: KeptAnswers, lines: Iterable[str]) -> None:
        self._kept = kept
        self._expected = ExpectedAnswers()
        self._answered = threading.Event()
        self._lines = list(lines)
        for line in self._lines:
            cached = kept.file_of(line.encode())
            if cached is not None:
                self._expected.add(*cached)

    def readline(self) -> str:
        if self._lines:
            return self._lines.pop(0)
        self._answered.wait(_PREPARING_SECONDS)
        return ""

    def write(self, text: str) -> int:
        path = self._expected.take(text)
        if path:
            self._kept.keep(path, text)
        if not self._expected:
            self._answered.set()
        return len(text)

    def flush(self) -> None:
        """Nothing is buffered."""


def first_requests(version: str, *, has_handshake: bool) -> list[str]:
    """The first messages of a client with a version of the protocol; a newer one names it in each request."""
    if has_handshake:
        greeting = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "clia", "version": "1"}}
        messages: list[dict[str, Any]] = [
            {"id": 1, "method": "initialize", "params": greeting},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/list"},
        ]
    else:
        meta = {f"{_PROTOCOL}protocolVersion": version, f"{_PROTOCOL}clientCapabilities": {}}
        messages = [{"id": method, "method": method, "params": {"_meta": meta}} for method in ("server/discover", "tools/list")]
    return [json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages]


# Files


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
