"""``clia serve``: streams that continue after a restart, several processes on one store, the log and messages."""

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
from support.forge_server import PATIENCE, QUESTION, Api, ForgeProcess, ForgeSpace, ServerEvent, new_forge_space
from support.remote import running
from support.space_driver import postgres_url
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUICK = library.Settings(durable=False, person=("Tess", "tess@example.org"))
EVENTS = "/api/v1/spaces/repo/events"


@pytest.fixture
def place(tmp_path: Path) -> ForgeSpace:
    return new_forge_space(tmp_path.resolve() / "repo")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path, options=ForgeOptions(listeners=3)) as forge:
        forge.space.spawn("scout", BRIEFING)
        forge.forge.users.add("tess", "admin")
        yield forge


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for a condition that another thread or process fulfils."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 100)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never came")


def token_of(opened: OpenForge) -> str:
    return opened.forge.users.make_token("tess")[0]


def decided(place: ForgeSpace, agent: str = "scout") -> str:
    """Decide without the forge."""
    with library.open(place.root, settings=QUICK) as space:
        request = space.ask(agent, QUESTION)
        return space.decide(agent, "yes", by="Ada", request_id=request.id).cid


# Streams


def test_a_stream_continues_after_a_restart_with_the_missed_events(place: ForgeSpace) -> None:
    with ForgeProcess(place.root) as forge, Api(forge.address, place.token).events() as stream:
        api = Api(forge.address, place.token)
        first = api.decide(api.ask()).json()["cid"]
        event = stream.decision(first)
        assert event.data["space"] == "repo"
        assert forge.stop() == 0
        assert [event.name for event in stream.rest() if event.name != "change"] == [], "the stream ends without another event"
    missed = [decided(place), decided(place)]
    with ForgeProcess(place.root) as forge, Api(forge.address, place.token).events(after=event.id) as stream:
        api = Api(forge.address, place.token)
        missed.append(api.decide(api.ask()).json()["cid"])
        stream.decision(missed[-1])
        decisions = [(event.data.get("answered") or {}).get("decision") for event in stream.seen if event.name == "change"]
        assert [cid for cid in decisions if cid] == missed, "each once, in order, without earlier ones"
        positions = [event.data["position"] for event in stream.seen if event.name == "change"]
        assert positions == sorted(set(positions))


def test_a_listener_that_is_too_far_behind_gets_a_reset(opened: OpenForge) -> None:
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
        assert "reset" not in [event.name for event in stream.seen]


def test_a_position_of_a_lost_store_gets_a_reset(place: ForgeSpace) -> None:
    with ForgeProcess(place.root) as forge, Api(forge.address, place.token).events() as stream:
        api = Api(forge.address, place.token)
        old = stream.decision(api.decide(api.ask()).json()["cid"]).id
    for path in (place.root / ".git/clia").glob("space.db*"):
        path.unlink()
    with library.open(place.root, settings=QUICK) as space:
        space.doctor(repair=True)
        users = users_of(space)
        users.add("tess", "admin")
        token = users.make_token("tess")[0]
    for _ in range(5):
        decided(place)  # the new feed is longer than the old one was
    with ForgeProcess(place.root) as forge, Api(forge.address, token).events(after=old) as stream:
        assert stream.until(lambda event: bool(event.name)).name == "reset"


@pytest.mark.parametrize("after", ["x", "-1", "1", "a.b", "abc.99999999999999999999", "../..", "repo=1;repo=2", "é.1"])
def test_an_invalid_position_is_refused(opened: OpenForge, after: str) -> None:
    with running(opened.forge) as address:
        answer = Api(address, token_of(opened))("GET", EVENTS, Last_Event_ID=after)
        assert (answer.status, answer.json()["fields"]) == (422, {"field": "Last-Event-ID"})


def test_listeners_above_the_limit_are_refused_until_one_leaves(opened: OpenForge) -> None:
    with running(opened.forge) as address:
        api = Api(address, token_of(opened))
        with api.events(), api.events():
            with api.events():
                refused = api("GET", EVENTS)
                assert (refused.status, refused.json()["code"]) == (503, "too-many-listeners")
                assert api("GET", "/api/v1/whoami").status == 200, "other requests are answered"
            eventually(lambda: _listens(api))
        assert "clia_event_listeners" in api("GET", "/metrics").text


def _listens(api: Api) -> bool:
    connection = HTTPConnection(api.host, timeout=PATIENCE)
    try:
        connection.request("GET", EVENTS, headers=api.headers())
        return connection.getresponse().status == 200
    finally:
        connection.close()


def test_an_idle_stream_sends_keep_alives(opened: OpenForge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BEAT", 0.01)
    with running(opened.forge) as address, Api(address, token_of(opened)).events() as stream:
        assert [stream.next() for _ in range(3)] == [ServerEvent(stream.last, "", "beat")] * 3


@pytest.mark.parametrize("reason", ["revoked", "removed", "logged out"])
def test_a_stream_ends_when_its_listener_loses_access(opened: OpenForge, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.setattr(events, "BEAT", 0.01)
    monkeypatch.setattr(events, "ALLOWED", 0.0)
    users = opened.forge.users
    users.add("eve", "viewer")
    token, info = users.make_token("eve")
    session = users.redeem(users.login_link("eve"))
    assert session is not None
    with running(opened.forge) as address:
        login = {"cookie": f"clia_login={session.secret}"} if reason == "logged out" else {}
        api = Api(address, None if login else token)
        with api.events(**login) as stream:
            stream.next()  # it continues as long as she has access
            if reason == "revoked":
                users.revoke_token("eve", info.id)
            elif reason == "removed":
                users.remove("eve")
            else:
                users.end_session(session.secret)
            stream.rest()
        refused = api("GET", EVENTS, **login)
        assert refused.status == 401


def test_one_stream_has_the_events_of_every_space_and_resumes_in_each(tmp_path: Path) -> None:
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
                decisions: dict[str, str] = {}
                while len(decisions) < 2:
                    event = stream.until(lambda event: event.name == "change")
                    cid = (event.data.get("answered") or {}).get("decision")
                    decisions |= {event.data["space"]: cid} if cid else {}
                assert decisions == dict(zip(("one", "two"), missed, strict=True))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_forge_in_order_with_streams_open(place: ForgeSpace, number: int) -> None:
    with ForgeProcess(place.root) as forge:
        api = Api(forge.address, place.token)
        with api.events() as space_stream, api.events("/events") as all_stream:
            assert forge.stop(number) == 0
            space_stream.rest()
            all_stream.rest()
        assert "Traceback" not in forge.log()
        assert "Cancel" not in forge.log(), "the streams ended before the grace period"


# Several processes


def test_two_forges_on_one_postgresql_share_everything(tmp_path: Path, postgres_address: str) -> None:
    store = postgres_url(postgres_address)
    place = new_forge_space(tmp_path.resolve() / "repo", store=store)
    with ForgeProcess(place.root, "--store", store) as first_forge, ForgeProcess(place.root, "--store", store) as two:
        first, second = Api(first_forge.address, place.token), Api(two.address, place.token)
        with first.events() as first_stream, second.events() as second_stream:
            request = first.ask()
            cid = second.decide(request, Idempotency_Key="k-1").json()["cid"]
            first_stream.decision(cid)
            second_stream.decision(cid)
            again = first.decide(request, Idempotency_Key="k-1")
            assert (again.status, again.headers["idempotency-replayed"], again.json()["cid"]) == (200, "true", cid)
            mismatch = first.decide(request, "no", Idempotency_Key="k-1")
            assert (mismatch.status, mismatch.json()["code"]) == (422, "idempotency-mismatch")
            assert first.decide(request).status == 409
        key = first_forge.said["link"].partition("?key=")[2]
        answer = _log_in(two.pages, key)
        cookie = answer[1]
        assert (answer[0], _log_in(first_forge.pages, key)[0]) == (303, 403), "a login link of one works once at the other"
        for api in (Api(first_forge.pages), Api(two.pages)):
            assert api("GET", "/s/repo/inbox", cookie=cookie).status == 200
        csrf = re.search(r'csrf-token" content="(\w+)"', Api(first_forge.pages)("GET", "/s/repo/inbox", cookie=cookie).text)
        assert csrf is not None
        asked_request = first.ask()
        body = f"_csrf={csrf[1]}&v={json.dumps('yes')}".encode()
        response = Api(two.pages)(
            "POST",
            f"/s/repo/inbox/scout/{asked_request['id']}",
            body,
            cookie=cookie,
            content_type="application/x-www-form-urlencoded",
        )
        assert (response.status, first.done("GET", "/api/v1/spaces/repo/pending")["items"]) == (303, []), response.text


def _log_in(address: str, key: str) -> tuple[int, str]:
    answer = Api(address)("POST", "/login", f"key={key}".encode(), content_type="application/x-www-form-urlencoded")
    return answer.status, answer.headers.get("set-cookie", "").partition(";")[0]


def test_an_idempotency_key_applies_once_and_can_be_reused_after_a_refusal(place: ForgeSpace) -> None:
    with ForgeProcess(place.root) as forge:
        api = Api(forge.address, place.token)
        request = api.ask()
        refused = api.decide(request, "maybe", Idempotency_Key="k")
        accepted = api.decide(request, Idempotency_Key="k")
        again = api.decide(request, Idempotency_Key="k")
        assert (refused.status, accepted.status, again.status) == (422, 200, 200)
        assert again.text == accepted.text
        assert api("POST", "/api/v1/spaces/repo/agents/scout/asks", {"payload": QUESTION}, Idempotency_Key="k").status == 422
        for bad in ("", "x" * 201, "é"):
            assert api.decide(request, Idempotency_Key=bad).status == 422
        head = api.done("GET", "/api/v1/spaces/repo/agents/scout/head")
        assert head == accepted.json()["cid"]
        place.configured("")
    with ForgeProcess(place.root) as forge:
        assert Api(forge.address, place.token).decide(request, Idempotency_Key="k").text == accepted.text, "also after a restart"


# Log, metrics and messages


def test_the_log_has_every_request_and_no_secret(place: ForgeSpace) -> None:
    with ForgeProcess(place.root) as forge:
        key = forge.said["link"].partition("?key=")[2]
        api = Api(forge.address, place.token)
        page = Api(forge.pages)
        assert page("GET", f"/login?key={key}").status == 200
        _, cookie = _log_in(forge.pages, key)
        assert Api(forge.pages, place.token)("GET", "/s/repo/inbox", cookie=cookie).status == 200
        assert page("GET", "/s/repo/inbox", cookie=cookie).status == 200
        assert Api(forge.address)("GET", f"/api/v1/whoami?token={place.token}").status == 401
        assert Api(forge.address, "clia_wrong-secret")("GET", "/api/v1/whoami").status == 401
        assert Api(forge.pages, place.token)("GET", "/x/%0d%0aforged%20line%1b[31m").status == 404
        api.ask()
        assert forge.stop() == 0
        log = forge.log()
    for secret in (key, place.token, cookie.partition("=")[2], "clia_wrong-secret"):
        assert secret not in log
    lines = [line.partition("clia.access ")[2] for line in log.splitlines() if "clia.access" in line]
    log_lines = [re.sub(r"[\d.]+$", "", line).strip() for line in lines]
    assert log_lines == [
        "127.0.0.1 - GET /login 200",
        "127.0.0.1 - POST /login 303",
        "127.0.0.1 tess GET /s/repo/inbox 200",
        "127.0.0.1 tess GET /s/repo/inbox 200",
        "127.0.0.1 - GET /api/v1/whoami 401",
        "127.0.0.1 - GET /api/v1/whoami 401",
        r"127.0.0.1 tess GET /x/\r\nforged line\x1b[31m 404",
        "127.0.0.1 tess POST /api/v1/spaces/repo/agents/scout/asks 200",
    ]


def test_health_and_metrics(place: ForgeSpace) -> None:
    with ForgeProcess(place.root) as forge:
        api = Api(forge.address, place.token)
        assert Api(forge.address).done("GET", "/healthz") == {"status": "ok"}, "strangers see no names of spaces"
        assert api.done("GET", "/healthz") == {"status": "ok", "spaces": {"repo": "ok"}}
        assert Api(forge.address)("GET", "/metrics").status == 401
        api.ask()
        for path in ("/s/repo/inbox", "/nothing/at/all"):
            Api(forge.pages, place.token)("GET", path)
        text = api("GET", "/metrics").text
    expected_lines = [
        'clia_http_requests_total{method="POST",route="api:ask",status="200"} 1.0',
        'clia_http_requests_total{method="GET",route="inbox",status="200"} 1.0',
        'clia_http_requests_total{method="GET",route="other",status="404"} 1.0',
        'clia_requests_waiting{kind="human",space="repo"} 1.0',
        'clia_agents{space="repo"} 1.0',
    ]
    assert [line for line in expected_lines if line not in text] == []


def test_several_spaces_are_served_each_once_under_its_name(tmp_path: Path) -> None:
    for name in ("a/Repo", "b/Repo", "c/Ünicode"):
        new_forge_space(tmp_path.resolve() / name)
    roots = [str(tmp_path.resolve() / name) for name in ("a/Repo", "b/Repo", "c/Ünicode")]
    words = [word for root in roots for word in ("--space", root)]
    with ForgeProcess(tmp_path.resolve() / "a/Repo", *words) as forge:
        assert forge.said["spaces"] == ["repo", "repo-2", "nicode"]
        assert set(forge.said) == {"address", "api", "link", "user", "spaces"}
        with library.open(roots[0], settings=QUICK) as home:
            token = users_of(home).make_token("tess")[0]
        api = Api(forge.address, token)
        assert [row["name"] for row in api.done("GET", "/api/v1/spaces")] == ["repo", "repo-2", "nicode"]
        api.ask(space="repo-2")
        waiting = [len(api.done("GET", f"/api/v1/spaces/{name}/pending")["items"]) for name in ("repo", "repo-2", "nicode")]
        assert waiting == [0, 1, 0]


def refused(*words: str, cwd: Path) -> tuple[int, dict[str, Any]]:
    """The error of a server that does not start; its standard output must be empty."""
    ran: Ran = clia("serve", "--port", "0", "--json", *words, cwd=cwd)
    assert ran.out == "", ran
    error: dict[str, Any] = json.loads(ran.err[ran.err.index("{") :])["error"]
    return ran.code, error


def test_invalid_spaces_and_addresses_are_refused_at_the_start(place: ForgeSpace, tmp_path: Path) -> None:
    root = place.root
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
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
def test_a_setting_that_is_mistyped_is_named(place: ForgeSpace, text: str, field: str) -> None:
    place.configured(text)
    code, error = refused(cwd=place.root)
    assert (code, error["code"], error["fields"]["field"]) == (2, "invalid-config", field)


def test_login_links_and_role_changes_of_the_command_line_take_effect_at_once(place: ForgeSpace) -> None:
    with ForgeProcess(place.root) as forge:
        assert clia("user", "add", "ada", "--path", str(place.root)).code == 0
        link = clia("user", "link", "ada", "--path", str(place.root)).out.strip()
        assert link.startswith(f"{forge.pages}/login?key=")
        status, cookie = _log_in(forge.pages, link.partition("=")[2])
        assert status == 303
        api = Api(forge.pages)
        request = Api(forge.address, place.token).ask()
        csrf = re.search(r'csrf-token" content="(\w+)"', api("GET", "/s/repo/inbox", cookie=cookie).text)
        assert csrf is not None
        headers = {"cookie": cookie, "x-csrf-token": csrf[1]}
        assert api.decide(request, **headers).status == 403
        changed = clia("user", "change", "ada", "--role", "decider", "--name", "Ada L", "--path", str(place.root))
        assert changed.code == 0
        response = api.decide(request, **headers)
        assert (response.status, response.json()["by"]) == (200, "Ada L")
        assert _log_in(forge.pages, link.partition("=")[2])[0] == 403
