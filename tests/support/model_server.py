"""A model server for real coding tools: it answers with scripted replies, on the loopback only.

Invariant: the server keeps no state of conversations. A prompt names its script, and the tool calls in the conversation since that
prompt tell how far the script has come, so that any number of sessions and sub-agents can run at once. Requests that a tool makes
beside its turns (a title, a summary) get fixed texts. The server is also the proxy of the tools: a request to any other host is
refused and listed in ``outside``.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from support import model_apis

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from support.model_apis import Conversation


DEADLINE = 240.0
"""Seconds that the server waits for a test to open a gate; a test that fails opens none."""
SUMMARY = "SUMMARY: notes were written."
_SCRIPT = re.compile(r"SCRIPT-(\d+)")
_SUMMARIZE = re.compile(
    r"detailed summary|summari[sz]e (the|our|this) conversation|CONTEXT CHECKPOINT|state_snapshot|handoff summary", re.IGNORECASE
)


class ToolCall(NamedTuple):
    """A call that the model makes. ``arguments`` is a text for the free-form tools of Codex."""

    tool: str
    arguments: Mapping[str, Any] | str
    namespace: str = ""


class Gate:
    """A point in a script: the test sees that it was reached, and lets the script continue."""

    def __init__(self) -> None:
        self._asked, self._opened = threading.Event(), threading.Event()

    def wait_until_reached(self, process: subprocess.Popen[str]) -> None:
        """Wait until the tool has come this far; fail at once if it ends before."""
        end = time.monotonic() + DEADLINE
        while not self._asked.wait(1.0):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, "the tool did not come this far"

    def is_reached(self) -> bool:
        return self._asked.is_set()

    def open(self) -> None:
        self._opened.set()

    def pass_through(self) -> None:
        self._asked.set()
        self._opened.wait(DEADLINE)


class Reply(NamedTuple):
    """One reply of the model; without calls it ends the turn."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thought: str = ""
    status: int = 200  # other than 200: the request fails
    gate: Gate | None = None  # sent when this gate opens


class ModelServer:
    """The server. It runs in threads of this process."""

    def __init__(self) -> None:
        self.scripts: dict[str, Sequence[Reply | Callable[[str], Reply]]] = {}
        self.outside: list[str] = []  # requests to other hosts
        self.tolerated: set[str] = set()  # beginnings of hosts that a tool asks in spite of its settings; refused, but not listed
        self.unknown: list[str] = []  # requests to no API that is known here
        self._numbers = count(1)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_ModelHandler,), {"model": self}))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def script(self, *steps: Reply | Callable[[str], Reply]) -> str:
        """Add a script; return the text that names it in a prompt. A step may be computed from the conversation so far."""
        name = f"SCRIPT-{next(self._numbers)}"
        self.scripts[name] = steps
        return name

    def reply(self, conversation: Conversation) -> Reply:
        """The next reply of the script that the last prompt names."""
        name, calls = "", 0
        for message in conversation.messages:
            scripts = _SCRIPT.findall(message.text) if message.role == "user" else []
            name, calls = (f"SCRIPT-{scripts[-1]}", 0) if scripts else (name, calls + message.calls)
        last = next(
            (message.text for message in reversed(conversation.messages) if message.role == "user" and message.text.strip()), ""
        )
        if _SUMMARIZE.search(last) and not _SCRIPT.search(last[-300:]):
            return Reply(SUMMARY)
        if not conversation.has_tools:
            return Reply('{"title": "A title"}')
        for step in self.scripts.get(name, ()):
            reply = step if isinstance(step, Reply) else step("\n".join(message.text for message in conversation.messages))
            if not reply.calls or calls < len(reply.calls):
                return reply
            calls -= len(reply.calls)
        return Reply("Ready.")


class _ModelHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ModelServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name in the base class
        """Print nothing."""

    def do_CONNECT(self) -> None:
        self._refuse(self.path.partition(":")[0])

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self._is_outside():
            return
        is_models = self.path.partition("?")[0].endswith("/models")
        models = [
            {"id": "fake-model", "slug": "fake-model", "object": "model", "type": "model", "display_name": "Fake", "created": 1}
        ]
        self._send(
            {"object": "list", "data": models, "models": [], "has_more": False} if is_models else {}, 200 if is_models else 404
        )

    def do_POST(self) -> None:
        body = self._body()
        if self._is_outside():
            return
        try:
            self._answer(self.path.partition("?")[0], body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the tool was killed

    def _is_outside(self) -> bool:
        if not self.path.startswith(("http://", "https://")) or self.path.startswith(self.model.url):
            return False
        self._refuse(urlsplit(self.path).hostname or "")
        return True

    def _refuse(self, host: str) -> None:
        if not host.startswith(tuple(self.model.tolerated)):
            self.model.outside.append(host)
        self._send({"error": {"message": "no network"}}, 403)
        self.close_connection = True

    def _answer(self, path: str, body: dict[str, Any]) -> None:
        if path.endswith(("/count_tokens", ":countTokens")):
            return self._send({"input_tokens": 1000, "totalTokens": 1000})
        api = model_apis.api_of(path)
        if api is None:
            self.model.unknown.append(path)
            return self._send({"error": {"message": "not found"}}, 404)
        reply = self.model.reply(api.conversation(body))
        if reply.gate is not None:
            reply.gate.pass_through()
        if reply.status != 200:
            error = {"type": "invalid_request_error", "message": reply.text}
            return self._send({"type": "error", "error": error}, reply.status)
        if api.streams(path, body):
            return self._stream(api.events(body, reply), named=api.named)
        return self._send(api.value(body, reply))

    def _body(self) -> dict[str, Any]:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            data = b"".join(chunks)
        else:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            data = gzip.decompress(data)
        try:
            value = json.loads(data or b"{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def _send(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, events: Sequence[Mapping[str, Any] | str], *, named: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if named and not isinstance(event, str) else ""
            data = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(f"{name}data: {data}\n\n".encode())
        self.close_connection = True
