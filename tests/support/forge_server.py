"""A forge in a separate process, and HTTP clients that do not use clia."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, NamedTuple

import clia
from clia.users.service import users_of
from support import git, program, warm
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from http.client import HTTPResponse
    from pathlib import Path

PATIENCE = 60.0
"""The timeout in seconds."""
PERSON = ("Tess", "tess@example.org")
QUESTION = {"question": "Go on?", "choices": ["yes", "no"]}


class HttpAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


class Api:
    """Calls the API of a forge with a token, or without one; each call has its own connection."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.host = address.removeprefix("http://")  # as requests name it
        self.token = token

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> HttpAnswer:
        """``body``: JSON, or bytes; ``_`` in a header's name stands for ``-``."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if content is not None and not isinstance(body, bytes):
            named.setdefault("content-type", "application/json")
        with closing_connection(self.host) as connection:
            connection.request(method, path, content, self.headers() | {"host": self.host} | named)
            answer = connection.getresponse()
            received = {key.lower(): value for key, value in answer.getheaders()}
            endless = received.get("content-type", "").startswith("text/event-stream")
            return HttpAnswer(answer.status, received, "" if endless else answer.read().decode())

    def done(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The answer of a call, which must succeed."""
        answer = self(method, path, body, **headers)
        assert answer.status == 200, answer
        return answer.json()

    def ask(self, agent: str = "scout", space: str = "repo") -> dict[str, Any]:
        question: dict[str, Any] = self.done("POST", f"/api/v1/spaces/{space}/agents/{agent}/asks", {"payload": QUESTION})
        return question

    def decide(self, request: Mapping[str, Any], value: Any = "yes", space: str = "repo", **headers: str) -> HttpAnswer:
        body = {"value": value, "request_id": request["id"], "rationale": "it is time"}
        return self("POST", f"/api/v1/spaces/{space}/agents/{request['agent']}/decisions", body, **headers)

    @contextmanager
    def events(self, path: str = "/api/v1/spaces/repo/events", after: str | None = None, **headers: str) -> Iterator[Events]:
        """An open stream, whose greeting has arrived."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        with closing_connection(self.host) as connection:
            connection.request(
                "GET",
                path,
                headers=self.headers() | {"host": self.host} | named | ({} if after is None else {"Last-Event-ID": after}),
            )
            answer = connection.getresponse()
            assert answer.status == 200, (answer.status, answer.read())
            stream = Events(answer)
            stream.until(lambda event: event.name == "hello")
            yield stream

    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}


@contextmanager
def closing_connection(host: str) -> Iterator[HTTPConnection]:
    name, colon, port = host.rpartition(":")  # names below localhost are this machine, but not every system resolves them
    connection = HTTPConnection(f"127.0.0.1:{port}" if colon and name.endswith(".localhost") else host, timeout=PATIENCE)
    try:
        yield connection
    finally:
        connection.close()


class ServerEvent(NamedTuple):
    id: str
    name: str
    data: Any


class Events:
    """Reads a stream of server-sent events; comments count as events without a name."""

    def __init__(self, answer: HTTPResponse) -> None:
        self._answer = answer
        self.last = ""  # the id with which a browser reconnects
        self.seen: list[ServerEvent] = []

    def next(self) -> ServerEvent | None:
        """The next event; None at the stream's end."""
        fields: dict[str, str] = {}
        while True:
            line = self._answer.readline().decode()
            if not line:
                return None
            if not line.strip():
                break
            key, _, value = line.rstrip("\n").partition(":")
            fields[key] = value.strip()
        self.last = fields.get("id", self.last)
        event = ServerEvent(
            self.last, fields.get("event", ""), json.loads(fields["data"]) if "data" in fields else fields.get("", "")
        )
        self.seen.append(event)
        return event

    def until(self, matches: Callable[[ServerEvent], bool]) -> ServerEvent:
        while True:
            event = self.next()
            assert event is not None, self.seen
            if matches(event):
                return event

    def decision(self, cid: str) -> ServerEvent:
        """The event of a decision."""
        return self.until(lambda event: event.name == "change" and (event.data.get("answered") or {}).get("decision") == cid)

    def rest(self) -> list[ServerEvent]:
        """The events until the stream ends."""
        remaining: list[ServerEvent] = []
        while (event := self.next()) is not None:
            remaining.append(event)
            assert len(remaining) < 3000, "the stream does not end"
        return remaining


class ForgeSpace(NamedTuple):
    """A space with an agent, and an admin's token."""

    root: Path
    token: str

    def configured(self, text: str) -> None:
        (self.root / ".git/clia/config.toml").write_text(text)

    def refs(self) -> str:
        return git("for-each-ref", cwd=self.root)


def new_forge_space(root: Path, *agents: str, store: str | None = None) -> ForgeSpace:
    with clia.init(root, settings=clia.Settings(durable=False, person=PERSON, store=store)) as space:
        for name in agents or ("scout",):
            space.spawn(name, BRIEFING)
        users = users_of(space)
        users.add("tess", "admin", *PERSON)
        token = users.make_token("tess")[0]
    git("config", "clia.durable", "false", cwd=root)
    return ForgeSpace(root, token)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for a condition that another process or thread fulfils."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 20)):
        if holds():
            return
        pause.wait(0.05)
    raise AssertionError("the condition never held")


def connect(address: str) -> socket.socket:
    """A raw connection to a forge."""
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def receive(connection: socket.socket, until: bytes | None = None) -> bytes:
    """The bytes that arrive, until the connection ends or this text has arrived."""
    received = b""
    while (until is None or until not in received) and (data := connection.recv(65536)):
        received += data
    return received


class ForgeProcess:
    """``clia serve``, loaded already unless it is to start ``cold``; its standard error is kept."""

    def __init__(self, root: Path, *words: str, env: dict[str, str] | None = None, cold: bool = False) -> None:
        self._log = (root.parent / f"{root.name}.{os.urandom(4).hex()}.log").open("w+")
        command = [program() if cold else warm.program(), "serve", "--port", "0", "--json", "--path", str(root), *words]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CLIA_"))}
        self.process = subprocess.Popen(
            command, env=environment | (env or {}), stdout=subprocess.PIPE, stderr=self._log, text=True, encoding="utf-8"
        )
        assert self.process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline()
            assert line, (self.process.wait(), self.log())
            text += line
        self.said: dict[str, Any] = json.loads(text)
        self.address: str = self.said["api"]
        self.pages: str = self.said["address"]  # the address for browsers

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    def log(self) -> str:
        self._log.flush()
        self._log.seek(0)
        return self._log.read()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it with a signal and return its exit code. If it does not end in time, the test fails."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout=PATIENCE)
        finally:
            self.process.kill()
            if self.process.stdout is not None and not self.process.stdout.closed:
                self.process.stdout.read()  # the command has it open as long as it runs
                self.process.stdout.close()

    def __enter__(self) -> ForgeProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self._log.close()
