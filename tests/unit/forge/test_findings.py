"""What was found by breaking the forge: each of these was wrong, or could have become so without any other test failing."""

from __future__ import annotations

import asyncio
import json
import queue
import re
import select
import socket
import threading
from collections import Counter
from contextlib import ExitStack, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

import clia
from clia.errors import BackendError, InvalidAnswer, StoreError
from clia.facade.config import ForgeOptions
from clia.forge import events, guard, server
from clia.forge.api import reading
from clia.forge.api.idempotency import PREFIX as KEYS
from clia.forge.api.idempotency import Once
from clia.forge.events import EPOCH, EventBus, FeedMessage, _Tail
from clia.forge.rendering import forms
from clia.forge.rendering.forms import form_of
from clia.forge.webhooks import ROW, Webhooks, deliveries
from clia.http_client import HttpResponse
from clia.sessions.answers import is_large
from clia.space.feed import KEPT
from clia.store.interface import FEED
from support.forge import BASE, OpenForge, open_forge
from support.forge_server import PATIENCE, PERSON, QUESTION, Api, Place, made_place
from support.remote import running
from support.session_flows import APPROVAL
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from httpx2 import Response

    from clia.forge.forge import Site

AGENTS = "/api/v1/spaces/repo/agents"
FINDING = {"kind": "finding", "files": {"a": "1"}}
BOTH = """\
import asyncio

async def main(input):
    return await asyncio.gather(request("llm", {"prompt": "x"}), request("human", {"question": "Go on?"}), request("clock", {}))
"""


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


def said(answer: Response) -> tuple[int, str]:
    """The status and the code of a problem."""
    return answer.status_code, answer.json()["code"]


# What a key stands for


def test_a_key_that_was_used_for_one_agent_is_none_for_another(opened: OpenForge) -> None:
    who, before = bearer(opened), opened.space.head("smith")
    assert post(opened, "/scout/commits", FINDING, idempotency_key="k", **who).status_code == 200
    assert said(post(opened, "/smith/commits", FINDING, idempotency_key="k", **who)) == (422, "idempotency-mismatch")
    assert opened.space.head("smith") == before
    assert post(opened, "/smith/commits", FINDING, idempotency_key="k-2", **who).status_code == 200


@pytest.mark.parametrize("kind", [BackendError, StoreError])
def test_a_key_stays_taken_where_nobody_knows_whether_the_change_was_made(
    opened: OpenForge, monkeypatch: pytest.MonkeyPatch, kind: type[BackendError]
) -> None:
    """The line to the store breaks after the commit was made: asked for again with the same key, it is not made twice."""
    who, space, made = bearer(opened), opened.space, type(opened.space).commit

    def lost(self: clia.Space, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        raise kind("the connection was lost")

    monkeypatch.setattr(type(space), "commit", lost)
    assert post(opened, "/scout/commits", FINDING, idempotency_key="k", **who).status_code == 503
    monkeypatch.undo()
    head = space.head("scout")
    for _ in range(2):
        assert said(post(opened, "/scout/commits", FINDING, idempotency_key="k", **who)) == (409, "idempotency-in-progress")
    assert space.head("scout") == head


# In whose name


@pytest.mark.parametrize(("verb", "body"), [("resume", {"value": "a plan"}), ("give-up", {"reason": "no model"})])
def test_who_answers_for_a_worker_is_recorded_as_the_tokens_user(opened: OpenForge, verb: str, body: dict[str, str]) -> None:
    opened.space.define("approval", APPROVAL)
    opened.space.start("scout", "approval", {"goal": "x"})
    who = bearer(opened, "will", display="Will Worker")
    forged = post(opened, f"/scout/{verb}", {**body, "by": "Ann"}, **who)
    assert (*said(forged), forged.json()["fields"]["by"]) == (403, "not-the-user", "Will Worker")
    assert opened.space.session("scout").given() == []
    assert post(opened, f"/scout/{verb}", body, **who).status_code == 200
    assert [each.by for each in opened.space.session("scout").given()] == ["Will Worker"]
    opened.space.start("smith", "approval", {"goal": "x"})
    assert post(opened, f"/smith/{verb}", {**body, "by": "Will Worker"}, **who).status_code == 200, "their own name is no forgery"


def test_a_decision_on_a_request_for_workers_is_a_conflict(opened: OpenForge) -> None:
    opened.space.define("approval", APPROVAL)
    opened.space.start("scout", "approval", {"goal": "x"})
    refused = post(opened, "/scout/decisions", {"value": "yes", "request_id": "1.1"}, **bearer(opened, "will"))
    assert said(refused) == (409, "not-a-human-request")
    assert (refused.json()["kind"], refused.json()["hints"]) == ("not-allowed", ["clia session resume scout VALUE --request 1.1"])


# Webhooks


def site_of(opened: OpenForge) -> Site:
    return next(iter(opened.forge.sites.values()))


def told(opened: OpenForge) -> list[dict[str, Any]]:
    """Everything that the feed says to a hook."""
    site = site_of(opened)
    return [
        json.loads(each.body)
        for position, entry in site.feed.read(0)
        for each in deliveries(site, "https://forge.example", "ci", position, entry)
    ]


def test_a_hook_hears_of_requests_to_people_only(opened: OpenForge) -> None:
    space = opened.space
    space.define("approval", APPROVAL)
    space.define("both", BOTH)
    space.start("scout", "approval", {"goal": "x"})
    assert told(opened) == [], "a worker answers this one"
    space.resume("scout", "a plan")
    assert [(each["event"], [(one["id"], one["kind"]) for one in each["requests"]]) for each in told(opened)] == [
        ("waiting", [("1.2", "human")])
    ]
    space.start("smith", "both", None)
    assert [(one["id"], one["kind"]) for one in told(opened)[-1]["requests"]] == [("1.2", "human")], "of three at once, this one"


class Line:
    """Where deliveries go: each is kept, and taken."""

    def __init__(self) -> None:
        self.got: queue.Queue[dict[str, Any]] = queue.Queue()

    def post(self, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float, limit: int) -> HttpResponse:
        del url, headers, seconds, limit
        self.got.put(json.loads(body))
        return HttpResponse(204, {}, b"")


@pytest.mark.parametrize("place", [1000, None, "x", True, 1.0], ids=str)
def test_a_hook_that_was_told_of_another_feed_goes_on_at_the_end_of_this_one(tmp_path: Path, place: Any) -> None:
    """As after a store was lost: what the hook was told up to is nowhere in the feed, or is not known."""
    config = tmp_path / "config.toml"
    config.write_text("[forge.webhooks.ci]\nurl = 'https://ci.example/x'\nsecret_env = 'S'\n")
    with open_forge(tmp_path, config=str(config)) as opened:
        opened.space.spawn("scout", BRIEFING)
        opened.space.ask("scout", QUESTION)
        if place is not None:
            with opened.forge.home.writing() as change:
                change.values.put(f"{ROW}ci", place)
        line = Line()
        hooks = Webhooks(opened.forge, {"S": "secret"}, cast("Any", line))
        hooks.start()
        try:
            asked = [opened.space.ask("scout", QUESTION).id for _ in range(2)]
            got = [line.got.get(timeout=PATIENCE) for _ in asked]
        finally:
            hooks.stop()
    assert [each["requests"][0]["id"] for each in got] == asked


# The feed, as those who listen have it


def test_entries_of_a_store_that_was_lost_are_never_served_as_those_of_the_new_one() -> None:
    async def tried() -> None:
        tail = _Tail()
        tail.add([FeedMessage(number, f"old {number}") for number in range(1, 6)], 5, "a")
        assert tail.after(3) == [FeedMessage(4, "old 4"), FeedMessage(5, "old 5")]
        tail.add([], 4, "b")
        assert [tail.after(position) for position in range(6)] == [None, None, None, None, [], None]
        tail.add([FeedMessage(5, "new 5")], 5, "b")
        assert tail.after(4) == [FeedMessage(5, "new 5")]
        assert tail.after(3) is None, "who is behind that reads the store"

    asyncio.run(tried())


def test_who_listens_while_the_store_is_lost_starts_over_and_gets_nothing_of_the_old_one(
    opened: OpenForge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BEAT", 0.1)
    feed, home = site_of(opened).feed, opened.forge.home
    token = bearer(opened)["authorization"].removeprefix("Bearer ")
    with running(opened.forge) as address:
        api = Api(address, token)
        with api.events() as stream:
            stream.decision(api.decide(api.ask()).json()["cid"])
            with home.writing() as change:  # another feed, in which nothing has happened yet
                change.values.put(EPOCH, "another")
                change.streams.forget(FEED, change.streams.end(FEED))
            before = len(stream.seen)
            reset = stream.until(lambda event: event.name not in ("", "change") or len(stream.seen) > before + 200)
            assert (reset.name, reset.data) == ("reset", {"space": "repo"})
            assert reset.id == f"another.{feed.end()}"
            with api.events(after="another.0") as late:
                assert late.until(lambda event: bool(event.name)).name == "reset"
            made = stream.decision(api.decide(api.ask()).json()["cid"])
            assert made.id.startswith("another."), "and it goes on"


def test_tidying_trims_every_feed_and_forgets_keys_and_logins_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidied: queue.Queue[str] = queue.Queue()
    tidy = EventBus._tidy

    def watched(self: EventBus, site: Site) -> None:
        tidy(self, site)
        tidied.put(site.name)

    monkeypatch.setattr(EventBus, "_tidy", watched)
    monkeypatch.setattr(events, "_LOOK", 0.001)
    monkeypatch.setattr(events, "_TRIM", 0.001)
    with open_forge(tmp_path, "one", "two") as opened:
        forge = opened.forge
        forge.users.add("ada", "admin")
        forge.users.make_session("ada")
        Once(forge.home, forge.clock).claim("ada", "old", b"x")
        for site in forge.sites.values():
            with site.space.core.store.writing() as change:
                change.streams.append(FEED, [{"event": "head", "agent": "scout"} for _ in range(KEPT + 7)])
        then = forge.clock() + timedelta(days=30)
        forge.clock = forge.users._clock = lambda: then
        login = forge.users.make_session("ada")
        Once(forge.home, forge.clock).claim("ada", "new", b"x")

        async def served() -> None:
            async with EventBus(forge):
                names: set[str] = set()
                while names != {"one", "two"}:
                    names.add(await asyncio.to_thread(tidied.get, timeout=PATIENCE))

        asyncio.run(served())
        assert [(site.feed.oldest(), site.feed.end()) for site in forge.sites.values()] == [(8, KEPT + 7)] * 2
        assert len(forge.home.scan(KEYS)) == len(forge.home.scan("web/")) == 1, "those that are not over stay"
        assert forge.users.session(login.secret) is not None
        assert Once(forge.home, forge.clock).claim("ada", "old", b"y") is None


# Who asks


@pytest.mark.parametrize("given", ["Bearer clia_nothing", "Bearer", "Bearer ", "bearer x y"])
def test_a_token_that_is_no_good_is_refused_with_a_good_cookie_beside_it(opened: OpenForge, given: str) -> None:
    """Else whoever revoked a token would see it go on working in a browser."""
    browser = opened.browser("ada")
    assert browser.get("/api/v1/whoami").json()["name"] == "ada"
    refused = browser.get("/api/v1/whoami", headers={"authorization": given})
    assert said(refused) == (401, "bad-token")


def test_a_page_of_another_site_logs_nobody_in_without_the_headers_of_new_browsers(opened: OpenForge) -> None:
    """A browser that sends no ``Sec-Fetch-Site`` says by ``Origin`` whose form it is."""
    opened.forge.users.add("ada", "admin")
    key, client = opened.forge.users.login_link("ada"), opened.stranger().client
    for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example", "http://127.0.0.1:9999", "http://", ""):
        answer = client.post("/login", data={"key": key}, headers={"origin": origin})
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False), origin
    assert client.post("/login", data={"key": key}, headers={"origin": BASE}).status_code == 303, "the link was not used up"
    for headers in ({"origin": BASE.replace("http:", "https:")}, {}):
        assert client.post("/login", data={"key": opened.forge.users.login_link("ada")}, headers=headers).status_code == 303


def test_what_people_told_a_proxy_is_no_token_of_ours(tmp_path: Path) -> None:
    """A proxy that asks for a password passes it on beside its own word; a token beside that word is a token."""
    with open_forge(tmp_path, options=ForgeOptions(proxy_header="x-user", proxies=("10.0.0.9",))) as opened:
        token = bearer(opened, "bob")["authorization"]
        opened.forge.users.add("ada", "viewer")
        proxy = TestClient(opened.app, base_url=BASE, client=("10.0.0.9", 4000))
        other = TestClient(opened.app, base_url=BASE, client=("10.0.0.8", 4000))
        for given in ("Basic eDp5", "Digest username=ada", "Negotiate x"):
            headers = {"x-user": "ada", "authorization": given}
            assert proxy.get("/api/v1/whoami", headers=headers).json()["name"] == "ada"
            assert said(other.get("/api/v1/whoami", headers=headers)) == (401, "bad-token"), "it proves nothing by itself"
            assert said(proxy.get("/api/v1/whoami", headers={"authorization": given})) == (401, "bad-token")
        for given in ("Bearer clia_nothing", "bearer x", "BEARER "):
            assert said(proxy.get("/api/v1/whoami", headers={"x-user": "ada", "authorization": given})) == (401, "bad-token")
        assert proxy.get("/api/v1/whoami", headers={"x-user": "ada", "authorization": token}).json()["name"] == "bob"


# Rules that are too large for a form


LARGE: dict[str, dict[str, Any]] = {
    "choices": {"choices": [f"c{number}" for number in range(50_000)]},
    "enum": {"schema": {"enum": [f"c{number}" for number in range(20_000)]}},
    "enum of a type": {"schema": {"type": "string", "enum": [f"c{number}" for number in range(20_000)]}},
    "enum in a list": {"schema": {"type": "array", "items": {"enum": [f"c{number}" for number in range(20_000)]}}},
    "properties": {"schema": {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(20_000)}}},
    "fewer properties": {"schema": {"type": "object", "properties": {f"p{number}": {} for number in range(4000)}}},
    "fewer choices": {"choices": list(range(1900))},
    "parts within parts": {"schema": {"type": "object", "properties": {f"p{n}": {"enum": [0, n]} for n in range(1000)}}},
}


@pytest.mark.parametrize("name", LARGE)
def test_a_rule_that_is_too_large_gets_a_place_for_json_and_is_hardly_looked_at(
    opened: OpenForge, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An agent asks so, and every look at the inbox would take the forge's time."""
    browser, request = opened.browser("ada"), opened.space.ask("scout", {"question": "Which?", **LARGE[name]})
    opened.space.ask("smith", QUESTION)
    looked: Counter[str] = Counter()

    def counted(where: Any, what: str) -> None:
        real = getattr(where, what)

        def call(*args: Any, **more: Any) -> Any:
            looked[what] += 1
            return real(*args, **more)

        monkeypatch.setattr(where, what, call)

    for what in ("_takes", "_field", "json_text"):
        counted(forms, what)
    counted(Draft202012Validator, "check_schema")
    assert form_of(opened.space.rule(request)).kind == "raw"
    item = f"{opened.base}/inbox/scout/{request.id}"
    for page in (browser.get(f"{opened.base}/inbox"), browser.get(item), browser.get(f"{item}?as=json")):
        assert page.status_code == 200
        assert "Which?" in page.text
        assert len(re.findall(r"<(?:option|input|button|textarea)\b", page.text)) < 50
    assert sum(looked.values()) < 50, looked
    large = "schema" in LARGE[name] and is_large(LARGE[name]["schema"])
    assert looked["check_schema"] <= (0 if large else 4), "at most once a page: whether it is a schema at all"


# Streams


def eventually(holds: Callable[[], bool]) -> None:
    """Waits for another thread to have seen something."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 100)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never came")


def connected(address: str) -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def heard(line: socket.socket, until: bytes | None = None) -> bytes:
    """What comes on a line, to its end or up to a text."""
    found = b""
    while (until is None or until not in found) and (data := line.recv(65536)):
        found += data
    return found


@pytest.mark.parametrize("path", ["/events", "/api/v1/spaces/repo/events"])
def test_the_head_of_a_stream_ends(opened: OpenForge, path: str) -> None:
    head = f"HEAD {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer(opened)['authorization']}\r\n\r\n"
    then = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with running(opened.forge) as address, connected(address) as line:
        line.sendall(f"{head}{then}".encode())
        first, _, second = heard(line).partition(b"\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200 ")
    assert b"text/event-stream" in first
    assert second.startswith(b"HTTP/1.1 200 "), "the next request is answered on the same connection"


def test_one_user_takes_a_part_of_all_places_for_listeners_only(tmp_path: Path) -> None:
    with open_forge(tmp_path, options=ForgeOptions(listeners=events._LEAST + 5)) as opened:
        opened.space.spawn("scout", BRIEFING)
        ada, bob = (bearer(opened, name)["authorization"].removeprefix("Bearer ") for name in ("ada", "bob"))
        again = bearer(opened, "ada")["authorization"].removeprefix("Bearer ")
        with running(opened.forge) as address:
            hers, his = Api(address, ada), Api(address, bob)
            with ExitStack() as stack:
                for _ in range(events._LEAST):
                    stack.enter_context(hers.events())
                for api in (hers, Api(address, again)):
                    refused = api("GET", "/events")
                    assert (refused.status, refused.json()["code"]) == (503, "too-many-listeners"), "by whichever token"
                with his.events("/events") as stream:
                    stream.decision(hers.decide(hers.ask()).json()["cid"])
            eventually(lambda: hers("GET", "/events").status == 200)


# Requests that do not end


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
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(events, "BEAT", 0.1)
    place = made_place(tmp_path.resolve() / "repo")
    made: queue.Queue[server._Server] = queue.Queue()
    serving: queue.Queue[server.ServeBanner] = queue.Queue()

    class Here(server._Server):
        """In a thread, where no signal comes."""

        def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]  # a wider kind of the same
            made.put(self)
            return nullcontext()

    monkeypatch.setattr(server, "_Server", Here)
    settings = clia.Settings(durable=False, person=PERSON)
    thread = threading.Thread(
        target=server.serve, args=(server.ServeOptions([str(place.root)], port=0), settings, {}, serving.put), daemon=True
    )
    thread.start()
    runs = made.get(timeout=PATIENCE)
    try:
        yield Impatient(serving.get(timeout=PATIENCE).address, place)
    finally:
        runs._stopping()
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
    left = 500
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
    seen: list[bool] = []
    parse = reading.parse_body

    def watched(body: bytes, kind: str) -> dict[str, Any]:
        seen.append(asyncio._get_running_loop() is None)
        return parse(body, kind)

    monkeypatch.setattr(reading, "parse_body", watched)
    assert post(opened, "/scout/commits", FINDING, **bearer(opened)).status_code == 200
    assert seen == [True]


# Behind a proxy, and beside a stream


def test_the_address_that_the_operator_gave_is_an_origin_of_ours(tmp_path: Path) -> None:
    """A proxy may not pass on the name that browsers ask for."""
    options = ForgeOptions(address="https://forge.example")
    with open_forge(tmp_path, options=options) as opened, TestClient(opened.app, base_url=BASE) as client:
        opened.forge.users.add("eve", "viewer")
        for origin, status in (("https://forge.example", 303), ("https://evil.example", 403)):
            secret = opened.forge.users.login_link("eve")
            answer = client.post("/login", data={"key": secret}, headers={"origin": origin}, follow_redirects=False)
            assert answer.status_code == status


def test_a_wrong_answer_to_many_choices_is_told_in_a_few_words(opened: OpenForge) -> None:
    request = opened.space.ask("scout", {"question": "Which?", "choices": list(range(50_000))})
    with pytest.raises(InvalidAnswer) as caught:
        opened.space.check_answer(request, "none of them")
    assert len(str(caught.value.hints)) < 1000
