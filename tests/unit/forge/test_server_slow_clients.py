"""Clients that send their requests slowly or not at all."""

from __future__ import annotations

import queue
import select
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import pytest

import clia
from clia.forge import events, middleware, server
from clia.forge.binding import ServeOptions
from support.forge import AGENTS
from support.forge_server import PATIENCE, PERSON, Api, ForgeSpace, connect, new_forge_space, receive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path


class ImpatientForge(NamedTuple):
    """A forge as ``clia serve`` runs it, with very short time limits."""

    address: str
    host: str  # of its pages
    place: ForgeSpace

    def head(self, length: int) -> bytes:
        """The head of a request to commit, with a body of this length."""
        lines = [f"POST {AGENTS}/scout/commits HTTP/1.1", "Host: localhost", f"Authorization: Bearer {self.place.token}"]
        lines += ["Content-Type: application/json", f"Content-Length: {length}", "", ""]
        return "\r\n".join(lines).encode()


@pytest.fixture
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImpatientForge]:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 1.0)
    monkeypatch.setattr(server, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(events, "BEAT", 0.2)
    place = new_forge_space(tmp_path.resolve() / "repo")
    servers: queue.Queue[server.ForgeServer] = queue.Queue()
    banners: queue.Queue[server.ServeBanner] = queue.Queue()

    class ServerInThread(server.ForgeServer):
        """A server in a thread, which cannot handle signals."""

        def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # a wider type
            servers.put(self)
            return nullcontext()

    monkeypatch.setattr(server, "ForgeServer", ServerInThread)
    settings = clia.Settings(durable=False, person=PERSON)
    thread = threading.Thread(
        target=server.serve, args=(ServeOptions([str(place.root)], port=0), settings, {}, banners.put), daemon=True
    )
    thread.start()
    running = servers.get(timeout=PATIENCE)
    try:
        banner = banners.get(timeout=PATIENCE)
        yield ImpatientForge(banner.api, banner.address.removeprefix("http://"), place)
    finally:
        running.should_exit = True
        thread.join(timeout=PATIENCE)


def test_a_body_that_never_ends_is_refused(impatient: ImpatientForge) -> None:
    before = impatient.place.refs()
    with connect(impatient.address) as connection:
        connection.sendall(impatient.head(100) + b'{"kind":')
        answer = receive(connection, b'"too-slow"')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in answer
    with connect(impatient.address) as connection:
        lines = (
            "POST /login HTTP/1.1",
            f"Host: {impatient.host}",
            "Content-Type: application/x-www-form-urlencoded",
            "Content-Length: 9",
            "",
            "k",
        )
        connection.sendall("\r\n".join(lines).encode())
        assert receive(connection, b"</html>").startswith(b"HTTP/1.1 408 ")
    assert impatient.place.refs() == before


def test_a_body_sent_byte_by_byte_has_the_same_time_limit(impatient: ImpatientForge) -> None:
    remaining = 5000
    with connect(impatient.address) as connection:
        connection.sendall(impatient.head(1000))
        answered = False
        while not answered and (remaining := remaining - 1):
            connection.sendall(b" ")
            answered = bool(select.select([connection], [], [], 0.02)[0])
        assert answered, "while more bytes were sent"
        assert receive(connection, b'"too-slow"').startswith(b"HTTP/1.1 408 ")


UNFINISHED = ("GET", "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ")


@pytest.mark.parametrize("start", ["", *UNFINISHED])
def test_a_connection_without_a_complete_request_is_closed(impatient: ImpatientForge, start: str) -> None:
    with connect(impatient.address) as connection:
        connection.sendall(start.encode())
        assert receive(connection) == b""


@pytest.mark.parametrize("start", UNFINISHED)
def test_a_connection_is_closed_if_its_second_request_is_never_completed(impatient: ImpatientForge, start: str) -> None:
    with connect(impatient.address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert receive(connection, b"}}").startswith(b"HTTP/1.1 200 ")
        connection.sendall(start.encode())
        assert receive(connection) == b""


def test_a_streamed_answer_is_not_cut_short(impatient: ImpatientForge) -> None:
    """The request is complete, and its time limits do not apply to the answer."""
    api = Api(impatient.address, impatient.place.token)
    with api.events() as stream:
        assert [event.data for event in (stream.next() for _ in range(8)) if event is not None] == ["beat"] * 8
        stream.decision(api.decide(api.ask()).json()["cid"])
