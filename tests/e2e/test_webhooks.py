"""Webhooks to a real receiver: signed, in order, retried, not lost, and delivered by one process."""

from __future__ import annotations

import hashlib
import hmac
import json
import queue
import socket
import threading
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia as library
from clia.forge import metrics, webhooks
from clia.forge.server import open_forge
from clia.forge.webhooks import Webhooks
from support import clia
from support.forge_server import PATIENCE, QUESTION, Api, ForgeProcess, ForgeSpace, new_forge_space
from support.space_driver import postgres_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SECRET = "a-secret-of-the-hook-0123456789"  # noqa: S105  # made up for these tests
ENV = {"HOOK_SECRET": SECRET}
QUICK = library.Settings(durable=False, person=("Tess", "tess@example.org"))


class Delivered(NamedTuple):
    path: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.raw)
        return body

    def is_signed(self, secret: str = SECRET) -> bool:
        parts = dict(part.split("=") for part in self.headers["clia-signature"].split(","))
        mac = hmac.new(secret.encode(), parts["t"].encode() + b"." + self.raw, hashlib.sha256).hexdigest()
        return hmac.compare_digest(mac, parts["v1"])


class Receiver(ThreadingHTTPServer):
    """Collects deliveries; answers with the given statuses, then with 204. For the status 0 it does not answer."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.got: queue.Queue[Delivered] = queue.Queue()
        self.statuses: queue.Queue[int] = queue.Queue()
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def next(self) -> Delivered:
        return self.got.get(timeout=PATIENCE)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        try:
            status = self.server.statuses.get_nowait()
        except queue.Empty:
            status = 204
        self.server.got.put(Delivered(self.path, {key.lower(): value for key, value in self.headers.items()}, raw))
        if status == 0:
            self.server.released.wait(PATIENCE)
            return
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    with Receiver(port) as new_receiver:
        thread = threading.Thread(target=new_receiver.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield new_receiver
        finally:
            new_receiver.released.set()
            new_receiver.shutdown()
            thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as new_receiver:
        yield new_receiver


def configured(place: ForgeSpace, url: str, more: str = "", name: str = "ci") -> str:
    return f"[forge.webhooks.{name}]\nurl = '{url}'\nsecret_env = 'HOOK_SECRET'\n{more}\n"


@pytest.fixture
def place(tmp_path: Path) -> ForgeSpace:
    return new_forge_space(tmp_path.resolve() / "repo")


@contextmanager
def delivering(place: ForgeSpace, monkeypatch: pytest.MonkeyPatch) -> Iterator[library.Space]:
    """Webhooks in this process with short waits between attempts; yields their space."""
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.01)
    with ExitStack() as stack:
        forge = open_forge([str(place.root)], QUICK)
        stack.callback(forge.close)
        hooks = Webhooks(forge, ENV)
        hooks.start()
        stack.callback(hooks.stop)
        yield forge.sites["repo"].space


def test_waiting_and_decided_events_are_signed_and_in_order(
    place: ForgeSpace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.configured("[forge]\naddress = 'https://forge.example'\n" + configured(place, receiver.url))
    with delivering(place, monkeypatch) as space:
        expected = []
        for _ in range(3):
            request = space.ask("scout", QUESTION)
            decision = space.decide("scout", "yes", "since", by="Ada", request_id=request.id)
            expected += [("waiting", request.id), ("decided", decision.cid)]
        deliveries = [receiver.next() for _ in expected]
    bodies = [delivery.body for delivery in deliveries]
    assert all(delivery.is_signed() for delivery in deliveries)
    assert not any(delivery.is_signed("another") for delivery in deliveries)
    assert [
        (body["event"], body["requests"][0]["id"] if body["event"] == "waiting" else body["decision"]) for body in bodies
    ] == expected
    assert [delivery.headers["clia-event"] for delivery in deliveries] == [event for event, _ in expected]
    assert [delivery.headers["clia-delivery"] for delivery in deliveries] == [body["id"] for body in bodies]
    assert len({body["id"] for body in bodies}) == len(bodies)
    waiting, decided = bodies[0], bodies[1]
    assert (waiting["space"], waiting["agent"], waiting["hook"]) == ("repo", "scout", "ci")
    assert waiting["requests"][0]["url"] == f"https://forge.example/s/repo/inbox/scout/{expected[0][1]}"
    assert (decided["by"], decided["request"]) == ("Ada", expected[0][1])
    assert decided["url"] == f"https://forge.example/s/repo/commits/{expected[1][1]}"
    assert SECRET not in "".join(f"{delivery.headers}{delivery.raw!r}" for delivery in deliveries)
    assert receiver.got.empty()


def test_a_hook_gets_only_its_events(place: ForgeSpace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    place.configured(configured(place, receiver.url, "events = ['decided']"))
    with delivering(place, monkeypatch) as space:
        request = space.ask("scout", QUESTION)
        space.decide("scout", "yes", by="Ada", request_id=request.id)
        assert receiver.next().body["event"] == "decided"
    assert receiver.got.empty()


def test_a_delivery_is_retried_until_accepted_and_the_next_waits(
    place: ForgeSpace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a server error, a redirect (which is not followed), a refusal, and a timeout."""
    place.configured(configured(place, receiver.url, "timeout_seconds = 3.0"))
    for status in (500, 302, 403, 0):
        receiver.statuses.put(status)
    with delivering(place, monkeypatch) as space:
        request = space.ask("scout", QUESTION)
        space.decide("scout", "yes", by="Ada", request_id=request.id)
        deliveries = [receiver.next() for _ in range(6)]
    assert [delivery.body["event"] for delivery in deliveries] == ["waiting"] * 5 + ["decided"]
    assert len({delivery.headers["clia-delivery"] for delivery in deliveries[:5]}) == 1, "retries have the same delivery id"
    assert all(delivery.is_signed() for delivery in deliveries)


def test_missed_events_are_delivered_when_the_receiver_is_back(place: ForgeSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as line:
        port = line.getsockname()[1]
    place.configured(configured(place, f"http://127.0.0.1:{port}/hook"))
    monkeypatch.setattr(webhooks, "ATTEMPTS", 10_000)
    monkeypatch.setattr(webhooks, "LONGEST_PAUSE", 0.05)
    refused = threading.Event()
    monkeypatch.setattr(metrics, "hook_done", lambda outcome: refused.set() if outcome == "failed" else None)
    with delivering(place, monkeypatch) as space:
        request = space.ask("scout", QUESTION)
        assert refused.wait(PATIENCE)
        with receiving(port) as receiver:
            assert receiver.next().body["requests"][0]["id"] == request.id


def test_an_undeliverable_event_is_given_up_reported_and_does_not_block_other_hooks(
    place: ForgeSpace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhooks, "ATTEMPTS", 3)
    with receiving() as broken:
        place.configured(configured(place, broken.url, name="broken") + configured(place, receiver.url))
        for status in (500, 500, 500):
            broken.statuses.put(status)
        with delivering(place, monkeypatch) as space:
            request = space.ask("scout", QUESTION)
            space.decide("scout", "yes", by="Ada", request_id=request.id)
            assert [receiver.next().body["event"] for _ in range(2)] == ["waiting", "decided"]
            assert [broken.next().body["event"] for _ in range(4)] == ["waiting", "waiting", "waiting", "decided"]
    assert "after 3 attempts" in caplog.text
    assert SECRET not in caplog.text


def test_a_restart_loses_no_event(place: ForgeSpace, receiver: Receiver) -> None:
    """The forge is killed while the receiver refuses, and events happen before it restarts."""
    place.configured(configured(place, receiver.url))
    receiver.statuses.put(500)
    with ForgeProcess(place.root, env=ENV, cold=True) as forge:
        first = Api(forge.address, place.token).ask()
        assert receiver.next().body["requests"][0]["id"] == first["id"]
        forge.process.kill()
    with library.open(place.root, settings=QUICK) as space:
        cid = space.decide("scout", "yes", by="Ada", request_id=first["id"]).cid
    with ForgeProcess(place.root, env=ENV) as forge:
        assert receiver.next().body["requests"][0]["id"] == first["id"]
        assert receiver.next().body["decision"] == cid
        assert forge.stop() == 0
        assert SECRET not in forge.log()
    with ForgeProcess(place.root, env=ENV) as forge:
        second = Api(forge.address, place.token).ask()
        assert receiver.next().body["requests"][0]["id"] == second["id"], "delivered events are not repeated"


def test_of_two_forges_one_delivers_and_the_other_takes_over(tmp_path: Path, postgres_address: str, receiver: Receiver) -> None:
    store = postgres_url(postgres_address)
    place = new_forge_space(tmp_path.resolve() / "repo", store=store)
    place.configured(configured(place, receiver.url))
    with (
        ForgeProcess(place.root, "--store", store, env=ENV, cold=True) as first_forge,
        ForgeProcess(place.root, "--store", store, env=ENV) as two,
    ):
        expected = []
        for api in (Api(first_forge.address, place.token), Api(two.address, place.token)):
            request = api.ask()
            expected += [request["id"], api.decide(request).json()["cid"]]
        bodies = [receiver.next().body for _ in expected]
        assert [body["requests"][0]["id"] if body["event"] == "waiting" else body["decision"] for body in bodies] == expected
        assert receiver.got.empty(), "no event was delivered twice"
        first_forge.process.kill()
        first_forge.process.wait()
        last = Api(two.address, place.token).ask()
        body_after = receiver.next().body
        while body_after["id"] in [body["id"] for body in bodies]:  # a forge killed right after a delivery could not record it
            body_after = receiver.next().body
        assert body_after["requests"][0]["id"] == last["id"]


def test_a_missing_secret_is_reported_at_the_start(place: ForgeSpace, receiver: Receiver) -> None:
    place.configured(configured(place, receiver.url))
    for env in ({}, {"HOOK_SECRET": ""}):
        ran = clia("serve", "--port", "0", "--json", cwd=place.root, env=env)
        error = json.loads(ran.err[ran.err.index("{") :])["error"]
        assert (ran.code, ran.out, error["code"]) == (2, "", "no-webhook-secret")
        assert error["fields"] == {"field": "forge.webhooks.ci.secret_env"}
        assert "HOOK_SECRET" in error["message"]


def test_the_secret_is_only_in_the_environment(place: ForgeSpace, receiver: Receiver) -> None:
    place.configured(configured(place, receiver.url))
    with ForgeProcess(place.root, env=ENV) as forge:
        api = Api(forge.address, place.token)
        api.decide(api.ask())
        visible = "".join(f"{delivery.headers}{delivery.raw!r}" for delivery in (receiver.next(), receiver.next()))
        visible += api("GET", "/metrics").text + api("GET", "/s/repo/").text + json.dumps(forge.said)
        assert forge.stop() == 0
        visible += forge.log()
    stored = b"".join(path.read_bytes() for path in (place.root / ".git/clia").rglob("*") if path.is_file())
    assert SECRET not in visible
    assert SECRET.encode() not in stored
