from __future__ import annotations

import asyncio
import queue
import select
import socket
import threading
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia
from clia.forge import events, guard, server
from clia.forge.api import reading
from support.forge import OpenForge, open_forge
from support.forge_server import PATIENCE, PERSON, Api, Place, made_place
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from httpx2 import Response


AGENTS = "/api/v1/spaces/repo/agents"


FINDING = {"kind": "finding", "files": {"a": "1"}}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path) as made:
        for name in ("scout", "smith"):
            made.space.spawn(name, BRIEFING)
        yield made


def bearer(opened: OpenForge, name: str = "ada", role: str = "admin", display: str = "") -> dict[str, str]:
    """What proves to be a user, who is made where there is none of that name."""
    if opened.forge.users.get(name) is None:
        opened.forge.users.add(name, role, display)
    return {"authorization": f"Bearer {opened.forge.users.make_token(name)[0]}"}


def post(opened: OpenForge, path: str, body: Any, **headers: str) -> Response:
    """Asks the API for a change; a header's name may be written with ``_``."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    answer: Response = opened.stranger().client.post(AGENTS + path, json=body, headers=named)
    return answer


def connected(address: str) -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def heard(line: socket.socket, until: bytes | None = None) -> bytes:
    """What comes on a line, to its end or up to a text."""
    found = b""
    while (until is None or until not in found) and (data := line.recv(65536)):
        found += data
    return found


class Impatient(NamedTuple):
    """A forge as ``clia serve`` runs it, that waits for hardly anything."""

    address: str
    place: Place

    def head(self, length: int) -> bytes:
        """Of a request for a commit whose body has so many bytes."""
        lines = [f"POST {AGENTS}/scout/commits HTTP/1.1", "Host: x", f"Authorization: Bearer {self.place.token}"]
        lines += ["Content-Type: application/json", f"Content-Length: {length}", "", ""]
        return "\r\n".join(lines).encode()


@pytest.fixture
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Impatient]:
    monkeypatch.setattr(guard, "BODY_SECONDS", 1.0)
    monkeypatch.setattr(server, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(events, "BEAT", 0.2)
    place = made_place(tmp_path.resolve() / "repo")
    made: queue.Queue[server.ForgeServer] = queue.Queue()
    serving: queue.Queue[server.ServeBanner] = queue.Queue()

    class Here(server.ForgeServer):
        """In a thread, where no signal comes."""

        def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # a wider kind of the same
            made.put(self)
            return nullcontext()

    monkeypatch.setattr(server, "ForgeServer", Here)
    settings = clia.Settings(durable=False, person=PERSON)
    thread = threading.Thread(
        target=server.serve, args=(server.ServeOptions([str(place.root)], port=0), settings, {}, serving.put), daemon=True
    )
    thread.start()
    runs = made.get(timeout=PATIENCE)
    try:
        yield Impatient(serving.get(timeout=PATIENCE).address, place)
    finally:
        runs.should_exit = True
        thread.join(timeout=PATIENCE)


def test_a_body_that_does_not_come_to_its_end_is_refused(impatient: Impatient) -> None:
    before = impatient.place.refs()
    with connected(impatient.address) as line:
        line.sendall(impatient.head(100) + b'{"kind":')
        got = heard(line, b'"too-slow"')
    assert got.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in got
    with connected(impatient.address) as line:
        lines = ("POST /login HTTP/1.1", "Host: x", "Content-Type: application/x-www-form-urlencoded", "Content-Length: 9", "", "k")
        line.sendall("\r\n".join(lines).encode())
        assert heard(line, b"</html>").startswith(b"HTTP/1.1 408 ")
    assert impatient.place.refs() == before


def test_a_body_that_comes_a_byte_at_a_time_has_no_more_time_than_another(impatient: Impatient) -> None:
    left = 5000
    with connected(impatient.address) as line:
        line.sendall(impatient.head(1000))
        answered = False
        while not answered and (left := left - 1):
            line.sendall(b" ")
            answered = bool(select.select([line], [], [], 0.02)[0])
        assert answered, "while more of it came"
        assert heard(line, b'"too-slow"').startswith(b"HTTP/1.1 408 ")


UNENDED = ("GET", "GET / HTTP/1.1\r\nHost: x\r\nX-Long: ")


@pytest.mark.parametrize("begun", ["", *UNENDED])
def test_a_connection_on_which_no_request_comes_to_its_end_is_closed(impatient: Impatient, begun: str) -> None:
    with connected(impatient.address) as line:
        line.sendall(begun.encode())
        assert heard(line) == b""


@pytest.mark.parametrize("begun", UNENDED)
def test_a_second_request_that_does_not_come_to_its_end_closes_the_connection_too(impatient: Impatient, begun: str) -> None:
    with connected(impatient.address) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert heard(line, b"}}").startswith(b"HTTP/1.1 200 ")
        line.sendall(begun.encode())
        assert heard(line) == b""


def test_an_answer_that_goes_on_is_not_cut_short(impatient: Impatient) -> None:
    """Who listens has asked to the end: the times for that say nothing of how long the answer may take."""
    api = Api(impatient.address, impatient.place.token)
    with api.events() as stream:
        assert [event.data for event in (stream.next() for _ in range(8)) if event is not None] == ["beat"] * 8
        stream.decision(api.decide(api.ask()).json()["cid"])


def test_what_is_sent_is_read_beside_the_event_loop(opened: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight megabytes of JSON take a while, and everybody waits for the loop."""
    loops: list[asyncio.AbstractEventLoop] = []
    bodies: list[bytes] = []
    parse = reading.parse_body

    def watched(body: bytes, kind: str) -> dict[str, Any]:
        with suppress(RuntimeError):
            loops.append(asyncio.get_running_loop())
        bodies.append(body)
        return parse(body, kind)

    monkeypatch.setattr(reading, "parse_body", watched)
    assert post(opened, "/scout/commits", FINDING, **bearer(opened)).status_code == 200
    assert (len(bodies), loops) == (1, [])
