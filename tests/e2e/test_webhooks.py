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
from support.forge_server import PATIENCE, QUESTION, Api, ForgeProcess, Place, made_place
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
        made: dict[str, Any] = json.loads(self.raw)
        return made

    def is_signed(self, secret: str = SECRET) -> bool:
        parts = dict(each.split("=") for each in self.headers["clia-signature"].split(","))
        mac = hmac.new(secret.encode(), parts["t"].encode() + b"." + self.raw, hashlib.sha256).hexdigest()
        return hmac.compare_digest(mac, parts["v1"])


class Receiver(ThreadingHTTPServer):
    """Keeps what it gets; answers with the statuses it is given, then with 204. A status of 0: it does not answer."""

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
        """Nothing: the test says what matters."""


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    with Receiver(port) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            made.released.set()
            made.shutdown()
            thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def configured(place: Place, url: str, more: str = "", name: str = "ci") -> str:
    return f"[forge.webhooks.{name}]\nurl = '{url}'\nsecret_env = 'HOOK_SECRET'\n{more}\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return made_place(tmp_path.resolve() / "repo")


@contextmanager
def delivering(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[library.Space]:
    """Hooks at work in this process, which do not wait long between two attempts; the space they speak of."""
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.01)
    with ExitStack() as stack:
        forge = open_forge([str(place.root)], QUICK)
        stack.callback(forge.close)
        hooks = Webhooks(forge, ENV)
        hooks.start()
        stack.callback(hooks.stop)
        yield forge.sites["repo"].space


def test_waiting_and_decided_are_told_signed_and_in_order(
    place: Place, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.configured("[forge]\naddress = 'https://forge.example'\n" + configured(place, receiver.url))
    with delivering(place, monkeypatch) as space:
        expected = []
        for _ in range(3):
            request = space.ask("scout", QUESTION)
            made = space.decide("scout", "yes", "since", by="Ada", request_id=request.id)
            expected += [("waiting", request.id), ("decided", made.cid)]
        got = [receiver.next() for _ in expected]
    told = [each.body for each in got]
    assert all(each.is_signed() for each in got)
    assert not any(each.is_signed("another") for each in got)
    assert [
        (each["event"], each["requests"][0]["id"] if each["event"] == "waiting" else each["decision"]) for each in told
    ] == expected
    assert [each.headers["clia-event"] for each in got] == [event for event, _ in expected]
    assert [each.headers["clia-delivery"] for each in got] == [each["id"] for each in told]
    assert len({each["id"] for each in told}) == len(told)
    waiting, decided = told[0], told[1]
    assert (waiting["space"], waiting["agent"], waiting["hook"]) == ("repo", "scout", "ci")
    assert waiting["requests"][0]["url"] == f"https://forge.example/s/repo/inbox/scout/{expected[0][1]}"
    assert (decided["by"], decided["request"]) == ("Ada", expected[0][1])
    assert decided["url"] == f"https://forge.example/s/repo/commits/{expected[1][1]}"
    assert SECRET not in "".join(f"{each.headers}{each.raw!r}" for each in got)
    assert receiver.got.empty()


def test_a_hook_hears_only_what_it_wants(place: Place, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    place.configured(configured(place, receiver.url, "events = ['decided']"))
    with delivering(place, monkeypatch) as space:
        request = space.ask("scout", QUESTION)
        space.decide("scout", "yes", by="Ada", request_id=request.id)
        assert receiver.next().body["event"] == "decided"
    assert receiver.got.empty()


def test_a_delivery_is_tried_until_it_is_taken_and_the_next_waits_for_it(
    place: Place, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure of the server, a redirect, which is not followed, a refusal, and no answer in time."""
    place.configured(configured(place, receiver.url, "timeout_seconds = 3.0"))
    for status in (500, 302, 403, 0):
        receiver.statuses.put(status)
    with delivering(place, monkeypatch) as space:
        request = space.ask("scout", QUESTION)
        space.decide("scout", "yes", by="Ada", request_id=request.id)
        got = [receiver.next() for _ in range(6)]
    assert [each.body["event"] for each in got] == ["waiting"] * 5 + ["decided"]
    assert len({each.headers["clia-delivery"] for each in got[:5]}) == 1, "the receiver can tell that it is the same"
    assert all(each.is_signed() for each in got)


def test_what_a_receiver_that_was_away_missed_comes_when_it_is_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_event_that_nobody_takes_is_given_up_and_said_so_and_holds_up_no_other_hook(
    place: Place, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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


def test_a_restart_loses_no_event(place: Place, receiver: Receiver) -> None:
    """The forge is killed while the receiver refuses, and things happen while it is away."""
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
        assert receiver.next().body["requests"][0]["id"] == second["id"], "what was told is not told again"


def test_of_two_forges_one_delivers_and_the_other_takes_over(tmp_path: Path, postgres_address: str, receiver: Receiver) -> None:
    store = postgres_url(postgres_address)
    place = made_place(tmp_path.resolve() / "repo", store=store)
    place.configured(configured(place, receiver.url))
    with (
        ForgeProcess(place.root, "--store", store, env=ENV, cold=True) as one,
        ForgeProcess(place.root, "--store", store, env=ENV) as two,
    ):
        expected = []
        for api in (Api(one.address, place.token), Api(two.address, place.token)):
            request = api.ask()
            expected += [request["id"], api.decide(request).json()["cid"]]
        got = [receiver.next().body for _ in expected]
        assert [each["requests"][0]["id"] if each["event"] == "waiting" else each["decision"] for each in got] == expected
        assert receiver.got.empty(), "none was told twice"
        one.process.kill()
        one.process.wait()
        last = Api(two.address, place.token).ask()
        told = receiver.next().body
        while told["id"] in [each["id"] for each in got]:  # who is killed right after telling could not take note of it
            told = receiver.next().body
        assert told["requests"][0]["id"] == last["id"]


def test_a_secret_that_is_not_there_is_said_at_the_start(place: Place, receiver: Receiver) -> None:
    place.configured(configured(place, receiver.url))
    for env in ({}, {"HOOK_SECRET": ""}):
        ran = clia("serve", "--port", "0", "--json", cwd=place.root, env=env)
        error = json.loads(ran.err[ran.err.index("{") :])["error"]
        assert (ran.code, ran.out, error["code"]) == (2, "", "no-webhook-secret")
        assert error["fields"] == {"field": "forge.webhooks.ci.secret_env"}
        assert "HOOK_SECRET" in error["message"]


def test_the_secret_is_nowhere_but_in_the_environment(place: Place, receiver: Receiver) -> None:
    place.configured(configured(place, receiver.url))
    with ForgeProcess(place.root, env=ENV) as forge:
        api = Api(forge.address, place.token)
        api.decide(api.ask())
        said = "".join(f"{each.headers}{each.raw!r}" for each in (receiver.next(), receiver.next()))
        said += api("GET", "/metrics").text + api("GET", "/s/repo/").text + json.dumps(forge.said)
        assert forge.stop() == 0
        said += forge.log()
    kept = b"".join(each.read_bytes() for each in (place.root / ".git/clia").rglob("*") if each.is_file())
    assert SECRET not in said
    assert SECRET.encode() not in kept
