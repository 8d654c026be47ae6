"""``clia serve`` as people run it: streams that go on after a restart, several processes on one store, and what it says."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest

import clia as library
from clia.facade.config import ForgeOptions
from clia.forge import events
from clia.users.service import users_of
from support import Ran, clia
from support.forge import OpenForge, open_forge
from support.forge_server import PATIENCE, QUESTION, Api, Event, ForgeProcess, Place, made_place
from support.remote import running
from support.space_driver import postgres_url
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUICK = library.Settings(durable=False, person=("Tess", "tess@example.org"))
EVENTS = "/api/v1/spaces/repo/events"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return made_place(tmp_path.resolve() / "repo")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path, options=ForgeOptions(listeners=3)) as made:
        made.space.spawn("scout", BRIEFING)
        made.forge.users.add("tess", "admin")
        yield made


def eventually(holds: Callable[[], bool]) -> None:
    """Waits for another thread or process to have seen something."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 100)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never came")


def token_of(opened: OpenForge) -> str:
    return opened.forge.users.make_token("tess")[0]


def decided(place: Place, agent: str = "scout") -> str:
    """A decision that is made without the forge."""
    with library.open(place.root, settings=QUICK) as space:
        request = space.ask(agent, QUESTION)
        return space.decide(agent, "yes", by="Ada", request_id=request.id).cid


# Streams


def test_a_stream_goes_on_after_a_restart_with_what_was_missed(place: Place) -> None:
    with ForgeProcess(place.root) as forge, Api(forge.address, place.token).events() as stream:
        api = Api(forge.address, place.token)
        first = api.decide(api.ask()).json()["cid"]
        seen = stream.decision(first)
        assert seen.data["space"] == "repo"
        assert forge.stop() == 0
        assert [each.name for each in stream.rest() if each.name != "change"] == [], "it ends, and says nothing more"
    missed = [decided(place), decided(place)]
    with ForgeProcess(place.root) as forge, Api(forge.address, place.token).events(after=seen.id) as stream:
        api = Api(forge.address, place.token)
        missed.append(api.decide(api.ask()).json()["cid"])
        stream.decision(missed[-1])
        got = [(each.data.get("answered") or {}).get("decision") for each in stream.seen if each.name == "change"]
        assert [cid for cid in got if cid] == missed, "each once, in order, and none from before"
        positions = [each.data["position"] for each in stream.seen if each.name == "change"]
        assert positions == sorted(set(positions))


def test_who_is_too_far_behind_is_told_to_start_over(opened: OpenForge) -> None:
    site = opened.forge.sites["repo"]
    with running(opened.forge) as address:
        api = Api(address, token_of(opened))
        with api.events() as stream:
            old = stream.last
            newest = [api.decide(api.ask()).json()["cid"] for _ in range(3)][-1]
            newest_id = stream.decision(newest).id
        site.feed.trim(1)
    with running(opened.forge) as address, Api(address, token_of(opened)).events(after=old) as stream:
        reset = stream.until(lambda event: bool(event.name))
        assert (reset.name, reset.data) == ("reset", {"space": "repo"})
    with running(opened.forge) as address, Api(address, token_of(opened)).events(after=newest_id) as stream:
        api = Api(address, token_of(opened))
        stream.decision(api.decide(api.ask()).json()["cid"])
        assert "reset" not in [each.name for each in stream.seen]


def test_a_place_in_a_store_that_was_lost_is_told_to_start_over(place: Place) -> None:
    with ForgeProcess(place.root) as forge, Api(forge.address, place.token).events() as stream:
        api = Api(forge.address, place.token)
        old = stream.decision(api.decide(api.ask()).json()["cid"]).id
    for each in (place.root / ".git/clia").glob("space.db*"):
        each.unlink()
    with library.open(place.root, settings=QUICK) as space:
        space.rebuild()
        users = users_of(space)
        users.add("tess", "admin")
        token = users.make_token("tess")[0]
    for _ in range(5):
        decided(place)  # the new feed is longer than the old one was
    with ForgeProcess(place.root) as forge, Api(forge.address, token).events(after=old) as stream:
        assert stream.until(lambda event: bool(event.name)).name == "reset"


@pytest.mark.parametrize("after", ["x", "-1", "1", "a.b", "abc.99999999999999999999", "../..", "repo=1;repo=2", "é.1"])
def test_a_place_that_is_none_is_refused(opened: OpenForge, after: str) -> None:
    with running(opened.forge) as address:
        answer = Api(address, token_of(opened))("GET", EVENTS, Last_Event_ID=after)
        assert (answer.status, answer.json()["fields"]) == (422, {"field": "Last-Event-ID"})


def test_more_listeners_than_allowed_are_sent_away_until_one_goes(opened: OpenForge) -> None:
    with running(opened.forge) as address:
        api = Api(address, token_of(opened))
        with api.events(), api.events():
            with api.events():
                refused = api("GET", EVENTS)
                assert (refused.status, refused.json()["code"]) == (503, "too-many-listeners")
                assert api("GET", "/api/v1/whoami").status == 200, "others are answered"
            eventually(lambda: _listens(api))
        assert "clia_event_listeners" in api("GET", "/metrics").text


def _listens(api: Api) -> bool:
    connection = HTTPConnection(api.host, timeout=PATIENCE)
    try:
        connection.request("GET", EVENTS, headers=api.headers())
        return connection.getresponse().status == 200
    finally:
        connection.close()


def test_a_quiet_stream_shows_that_it_lives(opened: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BEAT", 0.01)
    with running(opened.forge) as address, Api(address, token_of(opened)).events() as stream:
        assert [stream.next() for _ in range(3)] == [Event(stream.last, "", "beat")] * 3


@pytest.mark.parametrize("how", ["revoked", "removed", "logged out"])
def test_a_stream_ends_when_its_listener_may_listen_no_more(opened: OpenForge, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(events, "BEAT", 0.01)
    monkeypatch.setattr(events, "ALLOWED", 0.0)
    users = opened.forge.users
    users.add("eve", "viewer")
    token, info = users.make_token("eve")
    session = users.redeem(users.login_link("eve"))
    assert session is not None
    with running(opened.forge) as address:
        login = {"cookie": f"clia_login={session.secret}"} if how == "logged out" else {}
        api = Api(address, None if login else token)
        with api.events(**login) as stream:
            stream.next()  # it goes on as long as she may
            if how == "revoked":
                users.revoke_token("eve", info.id)
            elif how == "removed":
                users.remove("eve")
            else:
                users.end_session(session.secret)
            stream.rest()
        refused = api("GET", EVENTS, **login)
        assert refused.status == 401


def test_one_stream_tells_of_every_space_and_goes_on_in_each(tmp_path: Path) -> None:
    with open_forge(tmp_path, "one", "two") as opened:
        spaces = {name: site.space for name, site in opened.forge.sites.items()}
        for space in spaces.values():
            space.spawn("scout", BRIEFING)
        opened.forge.users.add("tess", "admin")
        with running(opened.forge) as address:
            api = Api(address, token_of(opened))
            with api.events("/events") as stream:
                assert stream.seen[0].data == {"spaces": ["one", "two"]}
                first = api.decide(api.ask(space="two"), space="two").json()["cid"]
                place = stream.decision(first).id
            assert re.fullmatch(r"one=\w+\.\d+;two=\w+\.\d+", place)
            missed = [api.decide(api.ask(space=name), space=name).json()["cid"] for name in ("one", "two")]
            with api.events("/events", after=place) as stream:
                got: dict[str, str] = {}
                while len(got) < 2:
                    event = stream.until(lambda event: event.name == "change")
                    made = (event.data.get("answered") or {}).get("decision")
                    got |= {event.data["space"]: made} if made else {}
                assert got == dict(zip(("one", "two"), missed, strict=True))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_forge_in_order_with_streams_open(place: Place, number: int) -> None:
    with ForgeProcess(place.root) as forge:
        api = Api(forge.address, place.token)
        with api.events() as one, api.events("/events") as other:
            assert forge.stop(number) == 0
            one.rest()
            other.rest()
        assert "Traceback" not in forge.log()
        assert "Cancel" not in forge.log(), "the streams had ended before their time was up"


# Several processes


def test_two_forges_on_one_postgresql_are_one(tmp_path: Path, postgres_address: str) -> None:
    store = postgres_url(postgres_address)
    place = made_place(tmp_path.resolve() / "repo", store=store)
    with ForgeProcess(place.root, "--store", store) as one, ForgeProcess(place.root, "--store", store) as two:
        first, second = Api(one.address, place.token), Api(two.address, place.token)
        with first.events() as here, second.events() as there:
            request = first.ask()
            cid = second.decide(request, Idempotency_Key="k-1").json()["cid"]
            here.decision(cid)
            there.decision(cid)
            again = first.decide(request, Idempotency_Key="k-1")
            assert (again.status, again.headers["idempotency-replayed"], again.json()["cid"]) == (200, "true", cid)
            other = first.decide(request, "no", Idempotency_Key="k-1")
            assert (other.status, other.json()["code"]) == (422, "idempotency-mismatch")
            assert first.decide(request).status == 409
        key = one.said["link"].partition("?key=")[2]
        answer = _log_in(two.address, key)
        cookie = answer[1]
        assert (answer[0], _log_in(one.address, key)[0]) == (303, 403), "the link of one works at the other, once"
        for api in (Api(one.address), Api(two.address)):
            assert api("GET", "/s/repo/inbox", cookie=cookie).status == 200
        csrf = re.search(r'csrf-token" content="(\w+)"', Api(one.address)("GET", "/s/repo/inbox", cookie=cookie).text)
        assert csrf is not None
        made = first.ask()
        body = f"_csrf={csrf[1]}&v={json.dumps('yes')}".encode()
        sent = Api(two.address)(
            "POST",
            f"/s/repo/inbox/scout/{made['id']}",
            body,
            cookie=cookie,
            content_type="application/x-www-form-urlencoded",
        )
        assert (sent.status, first.done("GET", "/api/v1/spaces/repo/pending")["items"]) == (303, []), sent.text


def _log_in(address: str, key: str) -> tuple[int, str]:
    answer = Api(address)("POST", "/login", f"key={key}".encode(), content_type="application/x-www-form-urlencoded")
    return answer.status, answer.headers.get("set-cookie", "").partition(";")[0]


def test_a_key_used_twice_changes_once_and_one_that_was_refused_may_be_used_again(place: Place) -> None:
    with ForgeProcess(place.root) as forge:
        api = Api(forge.address, place.token)
        request = api.ask()
        refused = api.decide(request, "maybe", Idempotency_Key="k")
        made = api.decide(request, Idempotency_Key="k")
        again = api.decide(request, Idempotency_Key="k")
        assert (refused.status, made.status, again.status) == (422, 200, 200)
        assert again.text == made.text
        assert api("POST", "/api/v1/spaces/repo/agents/scout/asks", {"payload": QUESTION}, Idempotency_Key="k").status == 422
        for bad in ("", "x" * 201, "é"):
            assert api.decide(request, Idempotency_Key=bad).status == 422
        head = api.done("GET", "/api/v1/spaces/repo/agents/scout/head")
        assert head == made.json()["cid"]
        place.configured("")
    with ForgeProcess(place.root) as forge:
        assert Api(forge.address, place.token).decide(request, Idempotency_Key="k").text == made.text, "also after a restart"


# What is said


def test_the_log_has_every_request_and_no_secret(place: Place) -> None:
    with ForgeProcess(place.root) as forge:
        key = forge.said["link"].partition("?key=")[2]
        api = Api(forge.address, place.token)
        assert Api(forge.address)("GET", f"/login?key={key}").status == 200
        _, cookie = _log_in(forge.address, key)
        assert api("GET", "/s/repo/inbox", cookie=cookie).status == 200
        assert Api(forge.address)("GET", "/s/repo/inbox", cookie=cookie).status == 200
        assert Api(forge.address)("GET", f"/api/v1/whoami?token={place.token}").status == 401
        assert Api(forge.address, "clia_wrong-secret")("GET", "/api/v1/whoami").status == 401
        assert api("GET", "/x/%0d%0aforged%20line%1b[31m").status == 404
        api.ask()
        assert forge.stop() == 0
        log = forge.log()
    for secret in (key, place.token, cookie.partition("=")[2], "clia_wrong-secret"):
        assert secret not in log
    lines = [line.partition("clia.access ")[2] for line in log.splitlines() if "clia.access" in line]
    said = [re.sub(r"[\d.]+$", "", line).strip() for line in lines]
    assert said == [
        "127.0.0.1 - GET /login 200",
        "127.0.0.1 - POST /login 303",
        "127.0.0.1 tess GET /s/repo/inbox 200",
        "127.0.0.1 tess GET /s/repo/inbox 200",
        "127.0.0.1 - GET /api/v1/whoami 401",
        "127.0.0.1 - GET /api/v1/whoami 401",
        r"127.0.0.1 tess GET /x/\r\nforged line\x1b[31m 404",
        "127.0.0.1 tess POST /api/v1/spaces/repo/agents/scout/asks 200",
    ]


def test_health_and_metrics(place: Place) -> None:
    with ForgeProcess(place.root) as forge:
        api = Api(forge.address, place.token)
        assert Api(forge.address).done("GET", "/healthz") == {"status": "ok", "spaces": {"repo": "ok"}}
        assert Api(forge.address)("GET", "/metrics").status == 401
        api.ask()
        api("GET", "/s/repo/inbox")
        api("GET", "/nothing/at/all")
        text = api("GET", "/metrics").text
    wanted = [
        'clia_http_requests_total{method="POST",route="api:ask",status="200"} 1.0',
        'clia_http_requests_total{method="GET",route="inbox",status="200"} 1.0',
        'clia_http_requests_total{method="GET",route="other",status="404"} 1.0',
        'clia_requests_waiting{kind="human",space="repo"} 1.0',
        'clia_agents{space="repo"} 1.0',
    ]
    assert [line for line in wanted if line not in text] == []


def test_several_spaces_are_served_each_once_under_its_name(tmp_path: Path) -> None:
    for name in ("a/Repo", "b/Repo", "c/Ünicode"):
        made_place(tmp_path.resolve() / name)
    roots = [str(tmp_path.resolve() / name) for name in ("a/Repo", "b/Repo", "c/Ünicode")]
    words = [word for root in roots for word in ("--space", root)]
    with ForgeProcess(tmp_path.resolve() / "a/Repo", *words) as forge:
        assert forge.said["spaces"] == ["repo", "repo-2", "nicode"]
        assert set(forge.said) == {"address", "link", "user", "spaces"}
        with library.open(roots[0], settings=QUICK) as home:
            token = users_of(home).make_token("tess")[0]
        api = Api(forge.address, token)
        assert [each["name"] for each in api.done("GET", "/api/v1/spaces")] == ["repo", "repo-2", "nicode"]
        api.ask(space="repo-2")
        waiting = [len(api.done("GET", f"/api/v1/spaces/{name}/pending")["items"]) for name in ("repo", "repo-2", "nicode")]
        assert waiting == [0, 1, 0]


def refused(*words: str, cwd: Path) -> tuple[int, dict[str, Any]]:
    """How the program refuses to serve: nothing on standard output."""
    ran: Ran = clia("serve", "--port", "0", "--json", *words, cwd=cwd)
    assert ran.out == "", ran
    error: dict[str, Any] = json.loads(ran.err[ran.err.index("{") :])["error"]
    return ran.code, error


def test_what_cannot_be_served_is_said_and_nothing_is_begun(place: Place, tmp_path: Path) -> None:
    root = place.root
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, error = refused("--port", port, cwd=root)
        assert (code, error["code"], error["fields"]["port"]) == (1, "address-taken", int(port))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refused(cwd=empty)[0] == 2
    assert refused("--space", str(root), "--space", str(empty), cwd=root)[0] == 2
    link = tmp_path / "link"
    link.symlink_to(root)
    for twice in (root, f"{root}/.", link):
        code, error = refused("--space", str(root), "--space", str(twice), cwd=root)
        assert (code, error["code"]) == (2, "same-space")
    code, error = refused("--user", "nobody", cwd=root)
    assert (code, error["code"], error["hints"]) == (2, "no-such-user", ["clia user add nobody"])
    assert refused("--port", "99999", cwd=root)[1]["code"] == "usage"
    assert refused("--host", "256.0.0.1", cwd=root)[1]["code"] == "no-such-host"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[forge]\nadress = 'https://x'", "forge.adress"),
        ("[forge]\naddress = 'forge.example'", "forge.address"),
        ("[forge]\nbody_max = 0", "forge.body_max"),
        ("[forge]\nper_minute = 'many'", "forge.per_minute"),
        ("[forge]\nlisteners = true", "forge.listeners"),
        ("[forge]\nproxies = '127.0.0.1'", "forge.proxies"),
        ("[forge.webhooks.ci]\nurl = 'https://ci.example/x'", "forge.webhooks.ci.secret_env"),
        ("[forge.webhooks.ci]\nsecret_env = 'S'\nurl = 'ftp://x'", "forge.webhooks.ci.url"),
        ("[forge.webhooks.ci]\nsecret_env = 'S'\nurl = 'https://x/y'\nevents = ['all']", "forge.webhooks.ci.events"),
    ],
)
def test_a_setting_that_is_mistyped_is_named(place: Place, text: str, field: str) -> None:
    place.configured(text)
    code, error = refused(cwd=place.root)
    assert (code, error["code"], error["fields"]["field"]) == (2, "invalid-config", field)


def test_a_link_made_beside_the_forge_logs_in_and_a_changed_role_counts_at_once(place: Place) -> None:
    with ForgeProcess(place.root) as forge:
        assert clia("user", "add", "ada", "--path", str(place.root)).code == 0
        link = clia("user", "link", "ada", "--address", f"{forge.address}/", "--path", str(place.root)).out.strip()
        assert link.startswith(f"{forge.address}/login?key=")
        status, cookie = _log_in(forge.address, link.partition("=")[2])
        assert status == 303
        api = Api(forge.address)
        request = Api(forge.address, place.token).ask()
        csrf = re.search(r'csrf-token" content="(\w+)"', api("GET", "/s/repo/inbox", cookie=cookie).text)
        assert csrf is not None
        headers = {"cookie": cookie, "x-csrf-token": csrf[1]}
        assert api.decide(request, **headers).status == 403
        changed = clia("user", "change", "ada", "--role", "decider", "--name", "Ada L", "--path", str(place.root))
        assert changed.code == 0
        made = api.decide(request, **headers)
        assert (made.status, made.json()["by"]) == (200, "Ada L")
        assert _log_in(forge.address, link.partition("=")[2])[0] == 403
